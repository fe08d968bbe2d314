"""A build of lbd whose machine's clock is set back by an hour at SIGUSR1."""

from __future__ import annotations

import signal
import time
from datetime import datetime, timedelta, tzinfo
from typing import Self

HOUR_SECONDS = 3600.0
_usual, _back = time.time, [0.0]


class Shifted(datetime):
    """Now as that clock shows it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """The time that is shown."""
        return super().now(tz) - timedelta(seconds=_back[0])


def _set_back(*_: object) -> None:
    _back[0] = HOUR_SECONDS


def main() -> None:
    """As ``lbd``: everything that asks for the time gets that one."""
    import apscheduler.executors.base
    import apscheduler.schedulers.base
    import apscheduler.triggers.interval

    time.time = lambda: _usual() - _back[0]
    modules = (apscheduler.executors.base, apscheduler.schedulers.base, apscheduler.triggers.interval)
    for module in modules:
        module.datetime = Shifted
    signal.signal(signal.SIGUSR1, _set_back)

    from lbd.cli import main as command
    from lbd.daemon import service

    service.datetime = Shifted  # type: ignore[attr-defined]
    command()


if __name__ == "__main__":
    main()
