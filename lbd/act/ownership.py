"""The owner of a bundle: any broker names it, and the named owner confirms it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.clock import boot_seconds
from lbd.errors import AdminError
from lbd.pulsar.admin import broker_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.pulsar.admin import Admin

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class ActClock:
    """Clock for acting: ``monotonic``, ``sleep``, and ``boot``, which goes on while the machine is suspended."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    boot: Callable[[], float] = boot_seconds


class Ownership:
    """Requests the owners of bundles; none of its requests assigns a bundle."""

    def __init__(self, admin: Admin, clock: ActClock) -> None:
        self._admin = admin
        self._clock = clock

    def owner(self, bundle: str) -> str | None:
        """The broker that owns a bundle and confirms it; None if no broker does.

        Raises :class:`AdminError` when there is no clear response, also while ownership changes (a 500 then).
        """
        base = self._admin.owner_base(bundle)
        if base is None:
            return None
        broker = self._broker(bundle, base)
        if not self._admin.owns(broker, bundle):
            raise AdminError(f"{bundle}: {broker} is named as owner and does not own it actively")
        return broker

    def _broker(self, bundle: str, base: str) -> str:
        active = self._admin.active_brokers()
        broker = broker_at(base, active, {broker: self._admin.base(broker) for broker in active})
        if broker is None:
            raise AdminError(f"{bundle} is owned at {base}, which is none of the active brokers {active}")
        return broker

    def owner_within(self, bundle: str, seconds: float, patience_seconds: float = 0.0) -> str | None:
        """The owner as soon as there is one; None if no broker owns the bundle until the time is over.

        While the owner is unclear (ownership changes, a dead owner's session still lives) it tries for as long as
        ``patience_seconds``, if that is more. Raises :class:`AdminError` when it is still unclear then.
        """
        owner, failure = self._until(lambda owner: owner is not None, bundle, seconds, patience_seconds)
        if failure is not None:
            raise failure
        return owner

    def let_go(self, bundle: str, broker: str, seconds: float, patience_seconds: float) -> bool:
        """Whether ``broker`` ceases to own the bundle within that time; waits as :meth:`owner_within` does."""
        owner, failure = self._until(lambda owner: owner != broker, bundle, seconds, patience_seconds)
        if failure is not None:
            raise failure
        return owner != broker

    def _until(
        self, reached: Callable[[str | None], bool], bundle: str, seconds: float, patience_seconds: float
    ) -> tuple[str | None, AdminError | None]:
        """The first response that satisfies ``reached``, or the last one."""
        started, pause = self._clock.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            owner, failure = self._ask(bundle)
            waited = self._clock.monotonic() - started
            limit = seconds if failure is None else max(seconds, patience_seconds)
            if (failure is None and reached(owner)) or waited >= limit:
                return owner, failure
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _ask(self, bundle: str) -> tuple[str | None, AdminError | None]:
        """Send one request; a failure is a result of its own, as brokers return errors while ownership changes."""
        try:
            return self.owner(bundle), None
        except AdminError as error:
            return None, error
