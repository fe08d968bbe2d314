"""A window played back: bundles are where the replay put them, and brokers are as busy as that makes them. Pure.

Rates are as recorded. A broker uses what it was recorded to use, plus its slope times what it owns beyond that
(:mod:`lbd.load.linear`): noise, neighbours and bursts stay where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.load.linear import carried, driving
from lbd.model import Brokers, Rows, Snapshot

if TYPE_CHECKING:
    from lbd.learn.window import Window
    from lbd.load.linear import LoadModel
    from lbd.model import FloatArray, IntArray

NOBODY = -1


class Cluster:
    """The cluster of a window, round by round. ``model`` knows every broker of it."""

    def __init__(self, window: Window, model: LoadModel) -> None:
        size = len(window.bundles)
        self._window, self._model = window, model.of(window.brokers)
        self._changes = window.changes()
        self.recorded: IntArray = np.full(size, NOBODY, dtype=np.int32)
        self.owner: IntArray = self.recorded.copy()
        self._home: IntArray = self.recorded.copy()
        self.rates: FloatArray = np.zeros((size, 4))
        self.used: FloatArray = window.used[0]

    def advance(self, number: int) -> None:
        """Go on to a round: what was recorded to change has changed, but not where the replay has moved something.

        A bundle that the record has moved stays, in the replay, where it is, while that broker is there. So does one
        that nobody tells of for a while: it is on its way from broker to broker, or is not among the largest.
        """
        window, own = self._window, self._changes[number]
        bundles = window.change_bundle[own]
        self.rates[bundles] = window.change_rates[own]
        self.recorded[bundles] = window.change_owner[own]
        lost = (self._home == NOBODY) | ~window.present[number][self._home]
        self._home[lost] = self.recorded[lost]
        self.owner = np.where(self.recorded == NOBODY, NOBODY, self._home)
        self.used = window.used[number] + self._model.slope * self._beyond()

    def move(self, bundle: int, broker: int) -> None:
        """The replay has moved a bundle."""
        self.owner[bundle] = self._home[bundle] = broker

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
        used = self.used[here]
        served = np.where(owner == NOBODY, 0, owner)
        traffic = carried(np.where((owner == NOBODY)[:, None], 0.0, self.rates), served, here.size)
        return Brokers(
            ids=tuple(self._window.brokers[at] for at in here.tolist()),
            usage=np.where(np.isnan(used), -1.0, np.clip(used, 0.0, 100.0)),
            limit=np.where(np.isnan(used), -1.0, 100.0),
            rates=traffic,
            topics=np.bincount(served[owner != NOBODY], minlength=here.size).astype(np.int64),
            started_at=self._window.started_at[number, here],
            versions=("",) * here.size,
        )

    def _beyond(self) -> FloatArray:
        """What drives each resource beyond what was recorded, float64 (B, 5)."""
        moved = np.flatnonzero(self.owner != self.recorded)
        size = len(self._window.brokers)
        if not moved.size:
            return np.zeros((size, 5))
        mine, theirs = self.owner[moved], self.recorded[moved]
        gained = carried(self.rates[moved[mine != NOBODY]], mine[mine != NOBODY], size)
        lost = carried(self.rates[moved[theirs != NOBODY]], theirs[theirs != NOBODY], size)
        return driving(gained - lost, self._model.measure)
