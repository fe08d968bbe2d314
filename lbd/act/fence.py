"""The fence of one move: the deadline and the conditions for its next request that changes something.

An old leader sends for at most :data:`SEND_WITHIN_SECONDS` after the last proof that it leads; its successor touches an
open move no earlier than :data:`HEIR_WAITS_SECONDS` after it became the leader. Both count seconds of their own
machine's boot clock, so no clocks are compared, and neither SIGSTOP nor a suspended machine extends the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.reason import Reason

SEND_WITHIN_SECONDS = 15.0
"""Time from the first of a move's last checks in which each of its requests, at each hop, must begin.

Checks, intent and redirects take 0.1 s on a healthy cluster; a leader topic may take 10 s to acknowledge an intent.
"""

ARRIVES_WITHIN_SECONDS = 5.0
"""Time that a request may need to reach its broker: a connection may take 3 s."""

HEIR_WAITS_SECONDS = SEND_WITHIN_SECONDS + ARRIVES_WITHIN_SECONDS
"""Time for which a new leader does not touch the open moves of its predecessors."""

RENEW_WITHIN_SECONDS = 5.0
"""Remaining time below which a fence is renewed before the next request."""


class Fence:
    """Guards the requests of one move.

    ``leads`` raises :class:`LbdError` when another instance may lead; with ``again`` it gets a new proof from the
    topic. ``held`` returns the reason why nothing may begin now.
    """

    def __init__(
        self,
        checked_at: float | None = None,
        clock: Callable[[], float] = boot_seconds,
        leads: Callable[[bool], None] = lambda _: None,
        held: Callable[[], tuple[Reason, str] | None] = lambda: None,
    ) -> None:
        """``checked_at`` is the start of its last checks, in seconds of the boot ``clock``; None: now."""
        self._clock, self._leads, self._held = clock, leads, held
        self.until = (clock() if checked_at is None else checked_at) + SEND_WITHIN_SECONDS

    def pass_on(self, _: str = "") -> None:
        """Check before an unload begins, or goes on to another broker. Raises :class:`AdminError` when it must not."""
        self.check()
        try:
            hold = self._held()
        except LbdError as error:
            raise AdminError(f"{error}; not sent", sent=False) from error
        if hold is not None:
            raise AdminError(f"{hold[0].message(hold[1])}; not sent", sent=False)

    def check(self) -> None:
        """Raise :class:`AdminError` when no request of the move may begin now."""
        self._prove(again=False)
        late = self._clock() - self.until
        if late > 0:
            spent = f"{SEND_WITHIN_SECONDS + late:.0f} s after its checks, wanted {SEND_WITHIN_SECONDS:.0f} at most"
            raise AdminError(f"{spent}; not sent", sent=False)

    def renew(self) -> None:
        """Prove and extend a fence whose time is nearly over, before a request that ends the move.

        Raises :class:`AdminError` when that fails. A hold does not stop the placement of a released bundle.
        """
        now = self._clock()
        if self.until - now < RENEW_WITHIN_SECONDS:
            self._prove(again=True)
            self.until = now + SEND_WITHIN_SECONDS
        self.check()

    def _prove(self, *, again: bool) -> None:
        try:
            self._leads(again)
        except LbdError as error:
            raise AdminError(f"{error}; not sent", sent=False) from error
