"""``lbd`` with the topic of ``tests/chaos/topic.py`` for its leader, and a clock that the test can set at any time.

The clock is a file with a float64 of seconds ahead, named by :data:`CLOCK`.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from tests.chaos.topic import Log
from tests.daemon import clock_set

CLOCK = "CHAOS_CLOCK"
_AHEAD = struct.Struct("<d")


def set_clock(path: Path, ahead_seconds: float) -> None:
    """Have the clock of the processes that were given this file be so far ahead, in place."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(_AHEAD.pack(ahead_seconds))


def main() -> None:
    """As ``lbd``."""
    with Path(os.environ[CLOCK]).open("rb") as file:
        seconds = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    clock_set.install(lambda: float(_AHEAD.unpack_from(seconds)[0]))

    from lbd.cli import main as command
    from lbd.daemon import election

    election.SharedLog = Log  # type: ignore[assignment, misc]
    command()


if __name__ == "__main__":
    main()
