"""Stages of a long work: lines, and a bar on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

WORK = """
import time
from lbd.cli.progress import stages

with stages(lambda: (1, 4, "1 of 4 parts")) as tell:
    tell("reading")
    tell("choosing")
    time.sleep(1.2)
"""


def test_lines_where_no_terminal_is():
    """One for each stage, on stderr."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("", "reading ...\nchoosing ...\n")


def test_bars_on_a_terminal():
    """One for each stage, and no dots; nothing on stdout."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=theirs, env=environ, check=True)
    os.close(theirs)
    said = _all_of(ours).decode()
    os.close(ours)

    assert done.stdout == b""
    assert "reading" in said
    assert "choosing" in said
    assert "..." not in said
    assert "━" in said
    assert "1 of 4 parts" in said


def _all_of(terminal: int) -> bytes:
    """A read gives 4,096 bytes at most; the end of a terminal whose other side is closed is an error (EIO)."""
    pieces = []
    with suppress(OSError):
        while piece := os.read(terminal, 4096):
            pieces.append(piece)
    return b"".join(pieces)
