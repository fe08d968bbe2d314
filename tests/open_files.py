"""Files that a worker still has open when its last test has ended, and the test files since which it has them."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

MOST_OPEN = 500
"""Files of a worker at its end: the interpreter and pytest have 15. One for each tenth test is too many."""

CLOSED_WITHIN_SECONDS = 60.0
"""A connection is closed at its far end by a thread, which the machine may keep waiting."""

_OWN = Path("/proc/self/fd")
_LOOK_SECONDS = 0.1


class OpenFiles:
    """How the number of open files grew with each test file."""

    def __init__(self) -> None:
        self._count, self._grown = 0, Counter[str]()

    def note(self, test_file: str) -> None:
        """Count what is open after a test of this file. Fixtures of a module leave it with a later test."""
        now = len(list(_OWN.iterdir()))
        self._grown[test_file] += now - self._count
        self._count = now

    def check(self, most: int = MOST_OPEN, seconds: float = CLOSED_WITHIN_SECONDS) -> None:
        """Raise :class:`AssertionError` if more than ``most`` stay open, by kind, with the files that opened most."""
        until = time.monotonic() + seconds
        while (kinds := _kinds()).total() > most and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        grown = ", ".join(f"{name} +{number}" for name, number in self._grown.most_common(5) if number > 0)
        kinds_text = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(5))
        assert kinds.total() <= most, (
            f"{kinds.total()} files are open after the last test, at most {most} may be: {kinds_text}; since {grown}. "
            "Close them in the fixture that opens them, or in nothing_outlives_its_test of tests/conftest.py"
        )


def _kinds() -> Counter[str]:
    """Number of open files by what they are; numbers in a name do not count."""
    kinds = Counter[str]()
    for link in _OWN.iterdir():
        try:
            kinds[re.sub(r"\d+", "N", str(link.readlink()))] += 1
        except FileNotFoundError:  # the folder itself, while it is read
            continue
    return kinds
