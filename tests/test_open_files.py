"""What no test closes is named at the end of a worker, by kind and by test file."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from tests.open_files import OpenFiles


def test_what_stays_open_is_named_with_the_test_file_that_opened_it() -> None:
    """A hundred sockets of one file, while those of another are closed."""
    files = OpenFiles()
    files.note("tests/test_before.py")
    found = r"\d+ files are open .* \d+ socket:\[N\].*test_careless.py \+100"
    with ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(socket.socket())
        files.note("tests/test_careless.py")
        files.note("tests/test_careful.py")
        with pytest.raises(AssertionError, match=found) as raised:
            files.check(most=99, seconds=0)
        assert "careful" not in str(raised.value)


def test_all_that_is_closed_is_no_finding() -> None:
    """Only what is open at the end counts."""
    files = OpenFiles()
    with socket.socket():
        files.note("tests/test_x.py")
    files.check(most=10_000)
