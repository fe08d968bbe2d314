"""A build of lbd whose machine's clock can be set: by itself it is set back by an hour at SIGUSR1."""

from __future__ import annotations

import signal
import time
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_SECONDS = 3600.0


def install(ahead: Callable[[], float]) -> None:
    """Have everything that asks for the time get one that is so many seconds ahead; before lbd is imported."""
    import apscheduler.executors.base
    import apscheduler.schedulers.base
    import apscheduler.triggers.interval

    usual = time.time
    time.time = lambda: usual() + ahead()

    class Shifted(datetime):
        """Now as that clock shows it."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            """The time that is shown."""
            return super().now(tz) + timedelta(seconds=ahead())

    modules = (apscheduler.executors.base, apscheduler.schedulers.base, apscheduler.triggers.interval)
    for module in modules:
        module.datetime = Shifted

    from lbd.daemon import schedule

    schedule.datetime = Shifted  # type: ignore[attr-defined]


def main() -> None:
    """As ``lbd``, with that clock."""
    ahead = [0.0]
    install(lambda: ahead[0])
    signal.signal(signal.SIGUSR1, lambda *_: ahead.__setitem__(0, -HOUR_SECONDS))

    from lbd.cli import main as command

    command()


if __name__ == "__main__":
    main()
