"""Bundles that would go to and fro: not moved often, and never straight back. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import Unload
    from lbd.permit.budget import Sent
    from lbd.permit.settings import Guardrails


class Trips:
    """How often each bundle was moved within the window, and where it came from.

    Retries are part of their move, and what never left its source has not moved.
    """

    def __init__(self, sent: Iterable[Sent], now: float, guardrails: Guardrails) -> None:
        self._now, self._guardrails = now, guardrails
        self._window_seconds = guardrails.ping_pong_window_hours * 3600
        moves = [one for one in sent if one.attempt == 1 and not one.failed and one.at > now - self._window_seconds]
        self._number = Counter(one.bundle for one in moves)
        self._last = {one.bundle: one for one in moves}

    @property
    def tired(self) -> frozenset[str]:
        """Bundles that may not move at all, wherever to."""
        most = self._guardrails.max_moves_per_bundle
        return frozenset(bundle for bundle, number in self._number.items() if 0 < most <= number)

    def came_from(self, broker: str) -> frozenset[str]:
        """Bundles whose last move began at this broker: back there they do not go."""
        return frozenset(bundle for bundle, one in self._last.items() if one.source == broker)

    def refusal(self, unload: Unload) -> tuple[Reason, str] | None:
        """Why this move would be one to and fro; None when it is none."""
        number, most = self._number[unload.bundle], self._guardrails.max_moves_per_bundle
        if 0 < most <= number:
            return Reason.PING_PONG, self._told(f"moved {number} times of {most} (guardrails.max_moves_per_bundle)")
        last = self._last.get(unload.bundle)
        if last is None or last.source != unload.destination:
            return None
        ago = max(self._now - last.at, 0) / 60
        return Reason.PING_PONG, self._told(f"it came from {last.source} {ago:.0f} min ago")

    def _told(self, what: str) -> str:
        return f"{what} within {self._guardrails.ping_pong_window_hours:g} h (guardrails.ping_pong_window_hours)"
