"""How long the health check of each broker takes, measured beside the turns.

A check writes a message to a topic of the broker's own and reads it. Its answer has two bytes, whatever the broker
carries. ``broker-stats/metrics`` has latencies of entries, too: its answer grows with namespaces, and a broker without
traffic has none.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError
from lbd.permit.slow import FAILED_SECONDS
from lbd.pulsar.http import timed_out

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future


EVERY_SECONDS = 30.0
"""Three slow checks name a broker. The fastest strategy acts on two samples of a minute each; checks must be faster."""

SLACK_SECONDS = 1.0
"""Turns are not to the second."""

REFUSED_SECONDS = 600.0
"""A broker that refuses is asked again after this time: the refusal does not change from turn to turn."""

AT_ONCE = 4
"""Checks wait for brokers, and cost this process nothing. Where some hang, the others are checked less often."""


@dataclass(frozen=True)
class _RefusedCheck:
    why: str


class HealthCheckSource(Protocol):
    """Has a broker check itself, such as the admin API."""

    def check_health(self, broker: str, *, timeout_seconds: float) -> None: ...


class HealthChecks:
    """Checks brokers of one cluster, every half minute. Not thread-safe."""

    def __init__(self, source: HealthCheckSource) -> None:
        self._source = source
        self._asked_at: dict[str, float] = {}
        self._under_way: dict[str, Future[float | _RefusedCheck | None]] = {}
        self._refused: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lbd-health")

    def __call__(self, brokers: Iterable[str], now: float) -> dict[str, float]:
        """Seconds of each check that has ended since the last call; begins those that are due at ``now``.

        Waits for none. A check that says nothing of the broker's speed is not in the result: one that was refused, or
        never reached the broker.
        """
        listed = set(brokers)
        finished = {broker: future for broker, future in self._under_way.items() if future.done()}
        self._under_way = {broker: future for broker, future in self._under_way.items() if broker not in finished}
        self._asked_at = {broker: at for broker, at in self._asked_at.items() if broker in listed}
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
        """Why brokers refuse to be checked, as a sentence; empty if none does."""
        if not self._refused:
            return ""
        broker, why = min(self._refused.items())
        others = f" (and of {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
        return f"the health check of {broker}{others} is refused, so a slow broker is not found: {why}"

    def close(self) -> None:
        """End the threads; requests under way end in seconds."""
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
            return None  # a token that cannot be read: the turn says so by its own requests
        return min(boot_seconds() - started_at, FAILED_SECONDS)
