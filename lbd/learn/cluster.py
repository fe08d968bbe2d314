"""A window played back: bundles are where the replay put them, and brokers are as busy as that makes them. Pure.

Rates are as recorded. A broker uses what it was recorded to use, plus its slope times what it owns beyond that
(:mod:`lbd.load.linear`): noise, neighbours and bursts stay where they were. The same holds of the traffic that it tells
of itself, for brokers of the extensible manager do not tell of all their bundles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.linear import carried, driving, given
from lbd.model import Brokers, Rows, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.learn.window import Window
    from lbd.load.linear import LoadModel
    from lbd.model import FloatArray, IntArray

NOBODY = -1


class Cluster:
    """The cluster of a window, round by round. ``model`` knows every broker of it.

    Of each bundle, int32 (K,) into the brokers, :data:`NOBODY` for none: ``recorded``, who reported it; ``owner``, who
    has it now; ``home``, who had it last.
    """

    def __init__(self, window: Window, model: LoadModel) -> None:
        size = len(window.bundles)
        self._window, self._model = window, model.of(window.brokers)
        self._changes = window.changes()
        self.recorded: IntArray = np.full(size, NOBODY, dtype=np.int32)
        self.owner: IntArray = self.recorded.copy()
        self.home: IntArray = self.recorded.copy()
        self.rates: FloatArray = np.zeros((size, 4))
        self.used: FloatArray = window.used[0]
        self._gained: FloatArray = np.zeros((len(window.brokers), 4))

    def advance(self, number: int) -> None:
        """Go on to a round: what was recorded to change has changed, but not where the replay has moved something.

        A bundle that the record has moved stays, in the replay, where it is, while that broker is there. So does one
        that nobody tells of for a while: it is on its way from broker to broker, or is not among the largest.
        """
        window, own = self._window, self._changes[number]
        bundles = window.change_bundle[own]
        self.rates[bundles] = window.change_rates[own]
        self.recorded[bundles] = window.change_owner[own]
        lost = (self.home == NOBODY) | ~window.present[number][self.home]
        self.home[lost] = self.recorded[lost]
        self.owner = np.where(self.recorded == NOBODY, NOBODY, self.home)
        self._gained = self._beyond()
        self.used = window.used[number] + self._model.slope * driving(self._gained, self._model.measure)

    def follow(self, number: int) -> None:
        """Go on to a round, and to where the record has bundles."""
        self.advance(number)
        self.home = np.where(self.recorded == NOBODY, self.home, self.recorded)
        self.owner, self._gained = self.home, np.zeros_like(self._gained)

    def move(self, bundle: int, broker: int) -> None:
        """The replay has moved a bundle."""
        self.owner[bundle] = self.home[bundle] = broker

    def snapshot(self, number: int, names: list[str]) -> Snapshot:
        """The round as the brokers would report it; ``names`` are the window's bundles. Brokers away have no report."""
        window = self._window
        here = np.flatnonzero(window.present[number]).astype(np.int32)
        place = np.full(len(window.brokers) + 1, NOBODY, dtype=np.int32)
        place[here] = np.arange(here.size, dtype=np.int32)
        owner = place[self.owner]
        own = np.flatnonzero(owner != NOBODY).astype(np.int32)
        order = own[np.argsort(owner[own], kind="stable")]
        start = np.concatenate(([0], np.cumsum(np.bincount(owner[own], minlength=here.size)))).astype(np.int32)
        known = np.ones(order.size, dtype=np.bool_)
        rows = Rows(start, order, self.rates[order], np.ones((order.size, 3), dtype=np.int64), known, known)
        return Snapshot(float(window.at[number]), self._brokers(number, here, owner), names, rows)

    def _brokers(self, number: int, here: IntArray, owner: IntArray) -> Brokers:
        used, told = self.used[here], self._window.totals[number, here] + self._gained[here]
        served = np.where(owner == NOBODY, 0, owner)
        traffic = carried(np.where((owner == NOBODY)[:, None], 0.0, self.rates), served, here.size)
        return Brokers(
            ids=tuple(self._window.brokers[at] for at in here.tolist()),
            usage=np.where(np.isnan(used), -1.0, np.clip(used, 0.0, 100.0)),
            limit=np.where(np.isnan(used), -1.0, 100.0),
            rates=np.where(np.isfinite(told), np.maximum(told, 0.0), traffic),
            topics=np.bincount(served[owner != NOBODY], minlength=here.size).astype(np.int64),
            started_at=self._window.started_at[number, here],
            versions=("",) * here.size,
        )

    def _beyond(self) -> FloatArray:
        """What each broker carries beyond what was recorded, float64 (B, 4)."""
        moved = np.flatnonzero(self.owner != self.recorded)
        size = len(self._window.brokers)
        if not moved.size:
            return np.zeros((size, 4))
        mine, theirs = self.owner[moved], self.recorded[moved]
        gained = carried(self.rates[moved[mine != NOBODY]], mine[mine != NOBODY], size)
        lost = carried(self.rates[moved[theirs != NOBODY]], theirs[theirs != NOBODY], size)
        return gained - lost


def recorded(window: Window) -> Iterator[Snapshot]:
    """The rounds as they were recorded, to learn from what brokers carry.

    A bundle that nobody tells of is listed where it was last: it may be one that is not among the largest there, as in
    a live round (:attr:`~lbd.model.Snapshot.partial`), and brokers' own totals hold.
    """
    size, names = len(window.brokers), list(window.bundles)
    cluster = Cluster(window, given(window.brokers, np.zeros(size), np.zeros(size)))
    for number in range(window.at.size):
        cluster.follow(number)
        seen = cluster.snapshot(number, names)
        told = cluster.recorded[seen.rows.bundle] != NOBODY
        yield replace(seen, rows=replace(seen.rows, reported=told), partial=True)
