"""Bundles that would move to and fro: not moved often, and never straight back. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT
from lbd.reason import Reason
from lbd.text import HOUR_SECONDS, duration_text, minutes_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import BoolArray, FloatArray, Snapshot, Unload
    from lbd.permit.budget import Sent
    from lbd.permit.settings import Guardrails


SECOND_MOVE_POINTS = 40.0
"""A bundle may move a second time if its broker is this many points above the least loaded one.

It is AvgShedder's high threshold: such a gap is worth a second move, a smaller one waits for other bundles. With it no
bundle moved twice in the long simulations (docs/decisions/results/0007-simulated-cluster.md)."""


class Trips:
    """How often each bundle was moved within the window, and where it came from.

    Retries are part of their move, and what never left its source has not moved. Moves of drains and fills do not
    count: no strategy changed its mind, and a broker emptied for a restart is to be filled again.
    """

    def __init__(self, sent: Iterable[Sent], now: float, guardrails: Guardrails) -> None:
        self._now, self._guardrails = now, guardrails
        self._window_seconds = guardrails.ping_pong_window_hours * 3600
        since = now - self._window_seconds
        moves = [move for move in sent if move.attempt == 1 and not (move.failed or move.order) and move.at > since]
        self._number = Counter(move.bundle for move in moves)
        self._last = {move.bundle: move for move in moves}

    @property
    def tired(self) -> frozenset[str]:
        """Bundles that may not move at all, wherever to."""
        most = self._guardrails.max_moves_per_bundle
        return frozenset(bundle for bundle, number in self._number.items() if 0 < most <= number)

    def moved(self, snapshot: Snapshot, points: FloatArray, compared: BoolArray, able: BoolArray) -> frozenset[str]:
        """Bundles that moved lately and rest: it is not urgent, and others of their broker can go instead.

        ``points`` are the brokers' scores, float64 (B,), ``compared`` those that take part, bool (B,), and ``able``
        the bundles that nothing bars for longer than a rest, bool (N,). It is urgent on a broker that is overloaded, or
        :data:`SECOND_MOVE_POINTS` above the least loaded one. Others can go where such carry half of what their broker
        does: levelling a pair never takes more.
        """
        rails = self._guardrails
        if not (self._number and rails.max_moves_per_bundle and compared.any()):
            return frozenset()
        rows, brokers = snapshot.rows, len(snapshot.brokers)
        owner, carried = rows.owner(), rows.rates[:, [BYTES_IN, BYTES_OUT]].sum(axis=1)
        lately = np.isin(rows.bundle, list(snapshot.positions_of(self._number).values()))
        instead, total = able[rows.bundle] & ~lately, np.bincount(owner, carried, brokers)
        if snapshot.partial:  # bundles without statistics cannot go instead
            total = snapshot.brokers.rates[:, [BYTES_IN, BYTES_OUT]].sum(axis=1)
        others = 2 * np.bincount(owner, np.where(instead, carried, 0.0), brokers) >= total
        urgent = min(float(points[compared].min()) + SECOND_MOVE_POINTS, rails.max_destination_score)
        rests = rows.bundle[lately & (others & (points < urgent))[owner]]
        return frozenset(snapshot.bundles[at] for at in rests.tolist())

    def came_from(self, broker: str) -> frozenset[str]:
        """Bundles whose last move began at this broker: they may not go back there."""
        return frozenset(bundle for bundle, move in self._last.items() if move.source == broker)

    def refusal(self, unload: Unload) -> tuple[Reason, str] | None:
        """Why this move would be ping-pong; None when it is not."""
        number, most = self._number[unload.bundle], self._guardrails.max_moves_per_bundle
        if 0 < most <= number:
            return Reason.PING_PONG, self._detail(f"moved {number} times of {most} (guardrails.max_moves_per_bundle)")
        last = self._last.get(unload.bundle)
        if last is None or last.source != unload.destination:
            return None
        return Reason.PING_PONG, self._detail(f"it came from {last.source} {minutes_text(self._now - last.at)} ago")

    def _detail(self, what: str) -> str:
        window = duration_text(self._guardrails.ping_pong_window_hours * HOUR_SECONDS)
        return f"{what} within {window} (guardrails.ping_pong_window_hours)"
