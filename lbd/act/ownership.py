"""The owner of a bundle, by two witnesses: the response of any broker, confirmed by the owner that it names."""

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
    """The time that acting knows: ``monotonic`` and ``sleep``, and ``boot`` for what a suspended machine must keep."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    boot: Callable[[], float] = boot_seconds


class Ownership:
    """Asks brokers who owns what; nothing that it asks assigns a bundle."""

    def __init__(self, admin: Admin, clock: ActClock) -> None:
        self._admin = admin
        self._clock = clock

    def owner(self, bundle: str) -> str | None:
        """The broker that owns a bundle and says so itself, None when nobody does.

        Raises :class:`AdminError` when it cannot be asked, also while ownership changes hands (a 500 then).
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
        found = broker_at(base, active, {broker: self._admin.base(broker) for broker in active})
        if found is None:
            raise AdminError(f"{bundle} is owned at {base}, which is none of the active brokers {active}")
        return found

    def owner_within(self, bundle: str, seconds: float, patience_seconds: float = 0.0) -> str | None:
        """The owner as soon as there is one; None when nobody owns the bundle until the time is over.

        While it cannot be told (ownership changes hands, a dead owner's session still lives) it is asked for as long as
        ``patience_seconds``, if that is more. Raises :class:`AdminError` when it could not be told then either.
        """
        found, failure = self._until(lambda owner: owner is not None, bundle, seconds, patience_seconds)
        if failure is not None:
            raise failure
        return found

    def let_go(self, bundle: str, broker: str, seconds: float, patience_seconds: float) -> bool:
        """Whether ``broker`` ceases to own the bundle within that time, told as in :meth:`owner_within`."""
        found, failure = self._until(lambda owner: owner != broker, bundle, seconds, patience_seconds)
        if failure is not None:
            raise failure
        return found != broker

    def _until(
        self, reached: Callable[[str | None], bool], bundle: str, seconds: float, patience_seconds: float
    ) -> tuple[str | None, AdminError | None]:
        """The first answer that is wanted, or the last one."""
        begun, pause = self._clock.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            found, failure = self._asked(bundle)
            waited = self._clock.monotonic() - begun
            limit = seconds if failure is None else max(seconds, patience_seconds)
            if (failure is None and reached(found)) or waited >= limit:
                return found, failure
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _asked(self, bundle: str) -> tuple[str | None, AdminError | None]:
        """One look; a failure is an answer of its own, since ownership in transit is answered with errors."""
        try:
            return self.owner(bundle), None
        except AdminError as error:
            return None, error
