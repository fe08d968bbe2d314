"""What brokers run with, read from each of them: the only proof that a dynamic setting was taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lbd.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.act.ownership import Clock
    from lbd.pulsar.admin import Admin

PATIENCE_SECONDS = 5.0
"""Brokers take 16-80 ms to run with an override that was stored (2.11.0 to 5.0.0-M1, three brokers)."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


class ReadBack:
    """Asks all active brokers for one setting's effective value, at the same time."""

    def __init__(self, admin: Admin, clock: Clock, key: str) -> None:
        self._admin = admin
        self._clock = clock
        self._key = key
        self._pool = ThreadPoolExecutor(admin.settings.concurrency, thread_name_prefix="lbd-read-back")

    def now(self) -> dict[str, Mapping[str, str] | str]:
        """Each active broker's effective configuration, or why it cannot be had."""
        brokers = self._admin.active_brokers()
        return dict(zip(brokers, self._pool.map(self._asked, brokers), strict=True))

    def _asked(self, broker: str) -> Mapping[str, str] | str:
        try:
            return self._admin.runtime_configuration(broker)
        except AdminError as error:
            return str(error)

    def until(self, holds: Callable[[str, Mapping[str, str]], bool]) -> tuple[tuple[str, ...], str]:
        """All active brokers, and what is said of those for which it does not hold even after some seconds."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while True:
            found = self.now()
            wrong = [told for broker, runtime in found.items() if (told := self._against(broker, runtime, holds))]
            if not wrong or self._clock.monotonic() >= deadline:
                return tuple(found), _first_of(wrong)
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _against(
        self, broker: str, runtime: Mapping[str, str] | str, holds: Callable[[str, Mapping[str, str]], bool]
    ) -> str:
        if isinstance(runtime, str):
            return runtime
        return "" if holds(broker, runtime) else f"{broker} runs {self._key}={runtime.get(self._key)}"


def _first_of(wrong: list[str]) -> str:
    more = f" (and {len(wrong) - 1} more brokers)" if len(wrong) > 1 else ""
    return wrong[0] + more if wrong else ""
