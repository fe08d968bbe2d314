"""What is true of the simulated cluster while lbd works on it, for the scorecard: no noise, no delay of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Result
from lbd.score.placement import Placement, everywhere
from lbd.score.scorecard import Moved, Scorecard, Seen, Trace, scorecard
from lbd.simulate.cluster import MIB, idle_at, points_at, rates_at

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.model import BoolArray, Outcome
    from lbd.simulate.fake_pulsar import FakePulsar


class Truth:
    """Looks at a cluster from its beginning on; its last broker stands for nobody."""

    def __init__(self, cluster: FakePulsar) -> None:
        self._cluster = cluster
        self._first_owner, self._first_present = cluster.model()[1].owner, self._present()
        self._seen = [self._look()]
        self._moves: list[Moved] = []
        self._shown_at: float | None = None

    def look(self, *, shown: bool) -> None:
        """Keep how it is now; ``shown``: reports show two brokers as far apart as the high threshold."""
        self._seen.append(self._look())
        if shown and self._shown_at is None:
            self._shown_at = self._seen[-1].seconds

    def ended(self, outcome: Outcome) -> None:
        """A move has ended; only those that landed count."""
        if outcome.result is Result.LANDED and outcome.owner is not None:
            one, seconds = outcome.unload, self._cluster.now() - self._cluster.begun_at
            self._moves.append(Moved(seconds, one.bundle, one.source, outcome.owner, one.throughput))

    def scorecard(self, settings: Settings) -> Scorecard:
        """What the run has come to so far."""
        self._seen.append(self._look())
        trace = Trace(
            seen=tuple(self._seen),
            moves=tuple(self._moves),
            brokers=self._cluster.brokers,
            shown_at_seconds=self._shown_at,
            placement=self._placement(),
            unserved_bundle_seconds=self._unserved(),
        )
        return scorecard(trace, settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold)

    def _present(self) -> BoolArray:
        """The brokers that answer, bool (B,)."""
        up = set(self._cluster.admin_urls)
        return np.array([f"http://{broker}" in up for broker in self._cluster.brokers], dtype=np.bool_)

    def _look(self) -> Seen:
        world, state = self._cluster.model()
        rates, present = rates_at(world, state.seconds), self._present()
        points = points_at(world, state.owner, rates, state.seconds)[:-1]
        unmoved = points_at(world, self._first_owner[world.origin], rates, state.seconds)[:-1]
        carried = np.bincount(state.owner, rates[:, 2] + rates[:, 3], points.size + 1)[:-1].astype(np.float64)
        return Seen(float(state.seconds), points[present], unmoved[present], present, carried)

    def _placement(self) -> Placement | None:
        """Under the load of now. Not told where a broker left: what became of its bundles was not lbd's doing."""
        present = self._present()
        if (self._first_present & ~present).any():
            return None
        world, state = self._cluster.model()
        return Placement(
            sizes=rates_at(world, state.seconds)[:, 2:].sum(axis=1) / 2 / MIB,
            first=self._first_owner[world.origin],
            last=state.owner,
            idle=idle_at(world, state.seconds),
            slope=world.points_per_mib / world.capacity,
            present=np.append(present, False),  # nobody
            pools=everywhere(len(world.bundles), len(world.brokers)),
        )

    def _unserved(self) -> float:
        """For how long nobody owned a bundle, in bundle-seconds, by the cluster's own book."""
        lost, total = dict[str, float](), 0.0
        for one in self._cluster.history():
            if one.owner is None:
                lost[one.bundle] = one.seconds
            else:
                total += one.seconds - lost.pop(one.bundle, one.seconds)
        now = self._cluster.now() - self._cluster.begun_at
        return total + sum(now - since for since in lost.values())
