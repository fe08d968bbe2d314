"""The nouns of a simulated cluster: what does not change in a run, and what its brokers know at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.membership import Membership

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.permit.policies import Isolation
    from lbd.simulate.membership import Outage
    from lbd.simulate.placing import Placement
    from lbd.simulate.shapes import Shape


STEP_SECONDS = 5
MINUTE_SECONDS = 60
"""Of the CPU sample (loadBalancerHostUsageCheckIntervalMinutes)."""

MIB = 1024.0 * 1024.0


@dataclass(frozen=True)
class Burst:
    """CPU of a broker that no bundle causes, in points, from ``begin`` to ``end`` (seconds of the run)."""

    broker: int
    begin: float
    end: float
    points: float


@dataclass(frozen=True)
class Silence:
    """A broker serves its clients and answers no question, from ``begin`` to ``end`` (seconds of the run)."""

    broker: int
    begin: float
    end: float


@dataclass(frozen=True, eq=False)
class World:
    """What does not change in a run. Times are seconds since its beginning.

    ``background`` (points), ``capacity`` (1 = ordinary), ``joins_at`` and ``leaves_at`` (-inf and inf: it is always
    there, but for ``outages``) are float64 (B,), aligned with ``brokers``, which are sorted. ``rates`` is float64
    (N, 4), the rates at factor 1, ``topics`` int64 (N,); ``origin`` is int32 (N,), the bundle of the beginning that
    each one is, or is a part of; ``load`` int32 (N,) into ``shapes`` (that of the traffic, and that of its consumers on
    top) and into the rows of ``allowed``, bool (L, B): where ``isolation`` lets its bundles be. ``cpu_second`` and
    ``stats_second`` are int32 (B,): the second of the minute, or of the stats interval, at which a broker samples and
    counts.
    """

    brokers: tuple[str, ...]
    background: FloatArray
    capacity: FloatArray
    joins_at: FloatArray
    leaves_at: FloatArray
    outages: tuple[Outage, ...]
    bundles: tuple[str, ...]
    rates: FloatArray
    topics: np.ndarray[tuple[int], np.dtype[np.int64]]
    origin: IntArray
    load: IntArray
    shapes: tuple[tuple[Shape, Shape], ...]
    allowed: BoolArray
    isolation: Isolation
    placement: Placement
    bursts: tuple[Burst, ...]
    silences: tuple[Silence, ...]
    points_per_mib: float
    noise_points: float
    seed: int
    cpu_second: IntArray
    stats_second: IntArray
    stats_interval_seconds: int

    @cached_property
    def membership(self) -> Membership:
        """Who is there when."""
        return Membership(self.joins_at, self.leaves_at, self.outages)

    @cached_property
    def names(self) -> NDArray[np.object_]:
        """``bundles`` as a column."""
        return np.array(self.bundles, dtype=np.object_)

    def present(self, seconds: float) -> BoolArray:
        """The brokers that are up, bool (B,)."""
        return self.membership.at(seconds).present

    def answering(self, seconds: float) -> BoolArray:
        """The brokers that give a load report, bool (B,)."""
        found = self.present(seconds).copy()
        found[[one.broker for one in self.silences if one.begin <= seconds < one.end]] = False
        return found


@dataclass(frozen=True, eq=False)
class Counted:
    """A broker's statistics: its bundles, int64 (n,), and their mean rates over the last interval, (n, 4)."""

    bundles: np.ndarray[tuple[int], np.dtype[np.int64]]
    rates: FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """The cluster at one moment: what is true, and what its brokers know of it.

    ``owner`` is int32 (N,) into the brokers: of a bundle that nobody owns, who had it last. ``cpu`` is float64 (B,),
    the points sampled last, and ``counted`` the statistics counted last. ``busy`` (points x seconds) and ``passed``
    (messages and bytes) add up for the next ones. ``placed_from`` is when a bundle that nobody owns is placed, inf
    where it is owned; ``served_from`` when its owner serves it; ``missed`` how many seconds of its traffic are to be
    caught up (all float64 (N,)). ``disturbed``: some bundle is not served, or catches up.
    ``unserved_bundle_seconds`` adds up from the beginning.
    """

    seconds: int
    owner: IntArray
    cpu: FloatArray
    counted: tuple[Counted, ...]
    busy: FloatArray
    passed: FloatArray
    placed_from: FloatArray
    served_from: FloatArray
    missed: FloatArray
    disturbed: bool = False
    unserved_bundle_seconds: float = 0.0

    @property
    def owned(self) -> BoolArray:
        """Bundles that have an owner, bool (N,)."""
        return np.isinf(self.placed_from)
