"""The world of a simulated cluster: traffic over time, membership, placements by brokers, constants. Pure.

Traffic is a factor on a load's rates at each second of the run. Sources: daily waves and one-minute consumers as in the
AvgShedder experiments (apache/pulsar #22946, its author's book, chapter 5).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import cos, inf, isfinite, tau
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.permit.policies import Isolation


LONGEST_HOURS = 24 * 366
LONGEST_MINUTES = 60 * LONGEST_HOURS
"""Length of a scenario at most."""


class Steady(Section):
    """The same all the time."""

    kind: Literal["steady"] = "steady"

    def factor(self, seconds: float) -> float:
        """Always 1."""
        del seconds
        return 1.0


class Wave(Section):
    """A cosine around 1, ``amplitude`` up and down."""

    kind: Literal["wave"]
    amplitude: float = Field(ge=0, le=1)
    period_hours: float = Field(24, ge=0.01, le=LONGEST_HOURS)
    peak_at_hours: float = Field(0, ge=-LONGEST_HOURS, le=LONGEST_HOURS)

    def factor(self, seconds: float) -> float:
        """1 + amplitude at the peak, 1 - amplitude half a period later."""
        return 1 + self.amplitude * cos(tau * (seconds / 3600 - self.peak_at_hours) / self.period_hours)


class Ramp(Section):
    """From ``start`` to ``to`` in a straight line, and so for good."""

    kind: Literal["ramp"]
    start: float = Field(1, ge=0, le=1000)
    to: float = Field(ge=0, le=1000)
    at_minutes: float = Field(0, ge=0, le=LONGEST_MINUTES)
    minutes: float = Field(ge=0, le=LONGEST_MINUTES)

    def factor(self, seconds: float) -> float:
        """``start`` before, ``to`` behind it."""
        passed = seconds / 60 - self.at_minutes
        if passed < 0:
            return self.start
        share = min(passed / self.minutes, 1.0) if self.minutes else 1.0
        return self.start + (self.to - self.start) * share


class Spike(Section):
    """``to`` for some minutes, else 1."""

    kind: Literal["spike"]
    to: float = Field(ge=0, le=1000)
    at_minutes: float = Field(ge=0, le=LONGEST_MINUTES)
    minutes: float = Field(ge=0.01, le=LONGEST_MINUTES)

    def factor(self, seconds: float) -> float:
        """``to`` within the spike."""
        return self.to if 0 <= seconds / 60 - self.at_minutes < self.minutes else 1.0


class OnOff(Section):
    """Nothing for a while, then what was missed as well: the mean stays 1, as of a consumer that comes and goes."""

    kind: Literal["on-off"]
    on_minutes: float = Field(1, ge=0.1, le=LONGEST_MINUTES)
    off_minutes: float = Field(1, ge=0.1, le=LONGEST_MINUTES)

    def factor(self, seconds: float) -> float:
        """0 while it is off."""
        period = self.on_minutes + self.off_minutes
        return period / self.on_minutes if seconds / 60 % period < self.on_minutes else 0.0


Shape = Annotated[Steady | Wave | Ramp | Spike | OnOff, Field(discriminator="kind")]


@dataclass(frozen=True)
class BusyDay:
    """A load's own shape, times a factor that rises from 1 to ``peak`` at the middle of a day, and falls back to 1.

    The day begins at ``begin``, in seconds of the run.
    """

    own: Steady | Wave | Ramp | Spike | OnOff | BusyDay
    begin: float
    day_seconds: float
    peak: float

    def factor(self, seconds: float) -> float:
        """Factor of its own shape, raised to ``peak`` at the middle of the day."""
        passed = min(max((seconds - self.begin) / self.day_seconds, 0.0), 1.0)
        return self.own.factor(seconds) * (1 + (self.peak - 1) * (1 - cos(tau * passed)) / 2)


# --- membership: live brokers at each moment, and which brokers still count a dead one as alive

SESSION_SECONDS = 30.0
"""metadataStoreSessionTimeoutMillis: for so long a broker that crashed is listed, leads and owns; 31.3 s on 4.0.8."""

CLIENTS_RETURN_SECONDS = 18.0
"""From then until its bundles are owned again: clients had backed off meanwhile and came together, on 4.0.8."""


@dataclass(frozen=True)
class Outage:
    """A broker is away from ``begin`` until ``end``, in seconds of the run; inf: for good.

    ``crashed``: it handed nothing over, and the others learn of it when its session times out.
    """

    broker: int
    begin: float
    end: float
    crashed: bool = False

    @property
    def unlisted_from(self) -> float:
        """When the others know that it is away."""
        return self.begin + SESSION_SECONDS if self.crashed else self.begin

    @property
    def placed_from(self) -> float:
        """When its bundles are placed anew."""
        return self.unlisted_from + CLIENTS_RETURN_SECONDS if self.crashed else self.begin


@dataclass(frozen=True, eq=False)
class Members:
    """State of each broker between two moments at which a broker comes or goes; arrays are of shape (B,).

    ``present``: it is up. ``listed``: it is among the active brokers. ``started_at`` is -inf for a start before the
    run. ``placed_from`` is when bundles that it owned are placed elsewhere, inf where it is up. ``leader`` is the
    position of the broker that leads by name, ``leads`` whether it is up.
    """

    present: BoolArray
    listed: BoolArray
    started_at: FloatArray
    placed_from: FloatArray
    leader: int
    leads: bool


class Lifetimes:
    """The members at any moment; ``times`` are the seconds at which something changes."""

    def __init__(self, joins_at: FloatArray, leaves_at: FloatArray, outages: Sequence[Outage] = ()) -> None:
        away = [*_before(joins_at), *_after(leaves_at), *outages]
        times = {time for gap in away for time in (gap.begin, gap.end, gap.unlisted_from) if isfinite(time)}
        self.times = sorted(times)
        self._members = [_members(joins_at.size, away, start) for start in (-inf, *self.times)]

    def at(self, seconds: float) -> Members:
        """The members then."""
        return self._members[bisect_right(self.times, seconds)]

    def changed(self, since: float, until: float) -> bool:
        """Whether somebody came or went after ``since``, and not after ``until``."""
        return bisect_right(self.times, since) != bisect_right(self.times, until)

    def lost_any(self, until: float) -> bool:
        """Whether a broker has gone away within the run so far."""
        members = self._members[bisect_right(self.times, 0) : bisect_right(self.times, until) + 1]
        return any((before.present & ~after.present).any() for before, after in pairwise(members))


def _before(joins_at: FloatArray) -> Iterator[Outage]:
    return (Outage(at, -inf, seconds) for at, seconds in enumerate(joins_at.tolist()) if seconds > -inf)


def _after(leaves_at: FloatArray) -> Iterator[Outage]:
    return (Outage(at, seconds, inf) for at, seconds in enumerate(leaves_at.tolist()) if seconds < inf)


def _members(brokers: int, outages: Sequence[Outage], now: float) -> Members:
    present, listed = np.ones(brokers, dtype=np.bool_), np.ones(brokers, dtype=np.bool_)
    started_at, placed_from = np.full(brokers, -inf), np.full(brokers, inf)
    for outage in outages:
        if outage.begin <= now < outage.end:
            present[outage.broker] = False
            placed_from[outage.broker] = outage.placed_from
        if outage.unlisted_from <= now < outage.end:
            listed[outage.broker] = False
        if outage.end <= now:
            started_at[outage.broker] = max(started_at[outage.broker], outage.end)
    leader = int(np.argmin(np.where(listed, started_at, inf)))
    return Members(present, listed, started_at, placed_from, leader, bool(present[leader]))


# --- placement of unowned bundles by brokers, as lbd finds them after a broker has gone
# ``random``: AvgShedder, which has no plan for them, draws among the candidates. ``least-message-rate``:
# LeastLongTermMessageRate, the default before Pulsar 5.0, takes the broker with the least messages, including those of
# bundles that it has just been given; brokers above 85 points only if all are. The filters before it (an even number of
# bundles) are left out.

Placement = Literal["random", "least-message-rate"]

OVERLOADED_POINTS = 85.0
"""loadBalancerBrokerOverloadedThresholdPercentage."""


def at_random(candidates: BoolArray, random: np.random.Generator) -> IntArray:
    """A broker for each bundle: ``candidates`` is bool (K, B) with at least one in each row; int32 (K,)."""
    draws = random.random(candidates.shape)
    chosen: IntArray = np.argmax(np.where(candidates, draws, -1.0), axis=1).astype(np.int32)
    return chosen


def least_message_rate(candidates: BoolArray, rates: FloatArray, carried: FloatArray, points: FloatArray) -> IntArray:
    """The same by messages/s: ``rates`` is float64 (K,), ``carried`` and ``points`` are float64 (B,)."""
    carried, chosen = carried.copy(), np.zeros(len(candidates), dtype=np.int32)
    for row, able in enumerate(candidates):
        healthy = able & (points <= OVERLOADED_POINTS)
        chosen[row] = np.argmin(np.where(healthy if healthy.any() else able, carried, np.inf))
        carried[chosen[row]] += rates[row]
    return chosen


# --- values: constants of a run, and the state of its brokers at one moment

STEP_SECONDS = 5
WARM_UP_SECONDS = 60.0
"""How long traffic warms a broker up: measured on three real brokers of 0.4 core, one newly started
(docs/results/comparison.md)."""

MINUTE_SECONDS = 60
"""Interval of the CPU sample (loadBalancerHostUsageCheckIntervalMinutes)."""

MIB = 1024.0 * 1024.0


@dataclass(frozen=True)
class Burst:
    """CPU of a broker that no bundle causes, in points, from ``begin`` to ``end`` (seconds of the run)."""

    broker: int
    begin: float
    end: float
    points: float


@dataclass(frozen=True)
class SilentBroker:
    """A broker serves its clients and answers no question, from ``begin`` to ``end`` (seconds of the run)."""

    broker: int
    begin: float
    end: float


@dataclass(frozen=True, eq=False)
class World:
    """The constants of a run. Times are seconds since its beginning.

    ``background`` (points), ``capacity`` (1 = ordinary), ``joins_at`` and ``leaves_at`` (-inf and inf: it is always
    there, but for ``outages``) are float64 (B,), aligned with ``brokers``, which are sorted. ``rates`` is float64
    (N, 4), the rates at factor 1, ``topics`` int64 (N,); ``origin`` is int32 (N,), the bundle of the beginning that
    each one is, or is a part of; ``load`` int32 (N,) into ``shapes`` (that of the traffic, and that of its consumers on
    top), into ``partitioned`` (its topics are the partitions of one) and into the rows of ``allowed``, bool (L, B):
    where ``isolation`` lets its bundles be. ``cpu_second`` and ``stats_second`` are int32 (B,): the second of the CPU
    interval, or of the stats interval, at which a broker samples and counts.
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
    shapes: tuple[tuple[Shape | BusyDay, Shape], ...]
    partitioned: tuple[bool, ...]
    allowed: BoolArray
    isolation: Isolation
    placement: Placement
    bursts: tuple[Burst, ...]
    silences: tuple[SilentBroker, ...]
    points_per_mib: float
    noise_points: float
    cold_times: float
    seed: int
    cpu_second: IntArray
    stats_second: IntArray
    stats_interval_seconds: int
    cpu_interval_seconds: int = MINUTE_SECONDS

    @cached_property
    def membership(self) -> Lifetimes:
        """The brokers that are up at each moment."""
        return Lifetimes(self.joins_at, self.leaves_at, self.outages)

    @cached_property
    def names(self) -> NDArray[np.object_]:
        """``bundles`` as a column."""
        return np.array(self.bundles, dtype=np.object_)

    def present(self, seconds: float) -> BoolArray:
        """The brokers that are up, bool (B,)."""
        return self.membership.at(seconds).present

    def answering(self, seconds: float) -> BoolArray:
        """The brokers that give a load report, bool (B,)."""
        answering = self.present(seconds).copy()
        answering[[silence.broker for silence in self.silences if silence.begin <= seconds < silence.end]] = False
        return answering


@dataclass(frozen=True, eq=False)
class Counted:
    """A broker's statistics: its bundles, int64 (n,), and their mean rates over the last interval, (n, 4)."""

    bundles: np.ndarray[tuple[int], np.dtype[np.int64]]
    rates: FloatArray


@dataclass(frozen=True, eq=False)
class ClusterState:
    """The cluster at one moment: what is true, and what its brokers know of it.

    ``owner`` is int32 (N,) into the brokers: of a bundle that nobody owns, who had it last. ``cpu`` is float64 (B,),
    the points sampled last, and ``counted`` the statistics counted last. ``busy`` (points x seconds) and ``passed``
    (messages and bytes) add up for the next ones; ``spent`` is as ``busy``, since the beginning or a broker's start.
    ``cold_seconds`` is how long each broker has to carry traffic until it is warm, float64 (B,).
    ``placed_from`` is when a bundle that nobody owns is placed, inf where it is owned; ``served_from`` when its owner
    serves it; ``missed`` how many seconds of its traffic are to be caught up (all float64 (N,)). ``disturbed``: some
    bundle is not served, or catches up.
    ``unserved_bundle_seconds`` adds up from the beginning.
    """

    seconds: int
    owner: IntArray
    cpu: FloatArray
    counted: tuple[Counted, ...]
    busy: FloatArray
    spent: FloatArray
    cold_seconds: FloatArray
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
