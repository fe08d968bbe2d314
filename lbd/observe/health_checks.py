"""Duration of each broker's health check, measured beside the turns.

A check writes a message to a topic of the broker's own and reads it. Its response has two bytes, whatever the broker
carries. ``broker-stats/metrics`` has latencies of entries, too: its response grows with namespaces, and a broker
without traffic has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError
from lbd.permit.slow import FAILED_SECONDS
from lbd.pulsar.http import timed_out
from lbd.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from lbd.pulsar.admin import Admin


EVERY_SECONDS = 30.0
"""Interval of checks. Three slow ones name a broker; the fastest strategy acts on two samples of a minute each."""

SLACK_SECONDS = 1.0
"""Tolerance: turns are not exact to the second."""

REFUSED_SECONDS = 600.0
"""Pause after a refusal, which does not change from turn to turn."""

AT_ONCE = 4
"""Checks under way at once. They wait for brokers, and cost this process nothing; hanging ones delay the others."""


@dataclass(frozen=True)
class _RefusedCheck:
    why: str


class HealthChecks:
    """Checks brokers of one cluster, every half minute. Not thread-safe."""

    def __init__(self, source: Admin) -> None:
        self._source = source
        self._asked_at: dict[str, float] = {}
        self._under_way: dict[str, Future[float | _RefusedCheck | None]] = {}
        self._refused: dict[str, str] = {}
        self._pool = Threads(AT_ONCE, "lbd-health")

    def __call__(self, brokers: Iterable[str], now: float) -> dict[str, float]:
        """Seconds of each check that has ended since the last call; starts those due at ``now`` (epoch seconds).

        Waits for none. Checks that were refused, or never reached the broker, are not in the result.
        """
        listed = set(brokers)
        finished = {broker: future for broker, future in self._under_way.items() if future.done()}
        self._under_way = {broker: future for broker, future in self._under_way.items() if broker not in finished}
        self._asked_at = {broker: time for broker, time in self._asked_at.items() if broker in listed}
        self._refused = {broker: why for broker, why in self._refused.items() if broker in listed}
        answers = {broker: self._seconds(broker, future.result()) for broker, future in finished.items()}
        for broker in sorted(listed - self._under_way.keys()):
            every = REFUSED_SECONDS if broker in self._refused else EVERY_SECONDS
            if not 0 <= now - self._asked_at.get(broker, -every) < every - SLACK_SECONDS:
                self._asked_at[broker] = now
                self._under_way[broker] = self._pool.submit(self._check, broker)
        return {broker: seconds for broker, seconds in answers.items() if seconds is not None and broker in listed}

    @property
    def trouble(self) -> str:
        """Reason why brokers refuse to be checked, as a sentence; empty if none does."""
        if not self._refused:
            return ""
        broker, why = min(self._refused.items())
        others = f" (and of {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
        return f"the health check of {broker}{others} is refused, so a slow broker is not found: {why}"

    def close(self) -> None:
        """Stop the threads; requests under way end in seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _seconds(self, broker: str, result: float | _RefusedCheck | None) -> float | None:
        self._refused.pop(broker, None)
        if isinstance(result, _RefusedCheck):
            self._refused[broker] = result.why
            return None
        return result

    def _check(self, broker: str) -> float | _RefusedCheck | None:
        started_at = boot_seconds()
        try:
            self._source.check_health(broker, timeout_seconds=FAILED_SECONDS)
        except AdminError as error:
            if timed_out(error) or (error.status is not None and error.status >= 500):
                return FAILED_SECONDS
            return _RefusedCheck(str(error)) if error.status is not None else None
        except LbdError:
            return None  # unreadable token: the turn reports it by its own requests
        return min(boot_seconds() - started_at, FAILED_SECONDS)
