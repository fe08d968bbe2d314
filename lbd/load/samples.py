"""What load reports tell of traffic and usage: one sample for each new one of a broker's, beside what it carried. Pure.

Brokers sample CPU once a minute, however often they are asked, as the mean since the sample before: so what a broker
carried is the mean over the same time (``meter.py``).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.changes import changed_brokers
from lbd.load.meter import Meter
from lbd.load.scoring import percent
from lbd.load.start_up import is_of_start_up
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import BoolArray, FloatArray, IntArray, Snapshot

SAMPLED = [RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out")]
"""What changes with a new sample; memory is read whenever somebody asks."""

IS_SAMPLED = np.isin(np.arange(len(RESOURCES)), SAMPLED)
"""The same as bool (5,), for loops over brokers: to look up columns lets go of the interpreter (``giving_way``)."""

LONGEST_SECONDS = 300.0
"""A sample is taken to be of no longer a time."""

KEPT = 1440
"""Samples of a broker: a day of them."""

GO_STALE_SECONDS = 24 * 3600.0
"""A day: what a machine does for its traffic changes with restarts and limits, which are looked at, and with messages
and settings of brokers, which are not."""

NEVER = 1_000_000
"""Samples since the bundles of a broker changed, where nobody saw them change."""


@dataclass(frozen=True, eq=False)
class BrokerSamples:
    """Samples of one broker in the order of time, since it was started last and its limits were set.

    ``at`` is float64 (n,), epoch seconds; ``carried`` (n, 4), messages/s and bytes/s of its bundles; ``used`` (n, 5),
    percent of the limit, NaN where none is known. ``since_change`` is int32 (n,): how many new samples came before
    this one since the report of the broker's bundles changed; 0 also for one that came with that report. ``hardware``
    is equal on like brokers. ``started_at`` is when it was started, epoch seconds; NaN where reports do not tell.
    """

    at: FloatArray
    carried: FloatArray
    used: FloatArray
    since_change: IntArray
    hardware: tuple[float, ...]
    started_at: float = math.nan

    def where(self, chosen: BoolArray) -> BrokerSamples:
        """Some of them: ``chosen`` is bool (n,)."""
        columns = self.at[chosen], self.carried[chosen], self.used[chosen], self.since_change[chosen]
        return BrokerSamples(*columns, self.hardware, self.started_at)

    @property
    def trusted(self) -> BoolArray:
        """All but those that saw bundles come or go: the next fresh one is the first to tell what that did."""
        return self.since_change > 0


@dataclass(frozen=True, eq=False)
class _Sample:
    """One that was seen, from ``begin`` to ``end`` (epoch seconds)."""

    at: float
    begin: float
    end: float
    used: FloatArray
    since_change: int


@dataclass
class _Kept:
    """What is being gathered of one broker. ``waiting``: what it carried meanwhile has not been counted yet.

    ``usage`` is the sample seen last, None where it may be among those known from before.
    """

    hardware: tuple[float, ...]
    started_at: float
    samples: deque[tuple[_Sample, FloatArray]]
    meter: Meter = field(default_factory=Meter)
    waiting: list[_Sample] = field(default_factory=list)
    usage: tuple[float, ...] | None = ()
    sampled_at: float = -math.inf
    since_change: int = NEVER

    def is_still(self, hardware: tuple[float, ...], started_at: float) -> bool:
        unknown = math.isnan(self.started_at) and math.isnan(started_at)
        return self.hardware == hardware and (unknown or self.started_at == started_at)

    def take(self, at: float, since: float, used: FloatArray, *, changed: bool) -> None:
        """A new sample, first seen now; the round before was ``since`` seconds ago."""
        self.since_change = 0 if changed else min(self.since_change + 1, NEVER)
        end = at - Meter.lag(since)
        begin = max(self.sampled_at, end - LONGEST_SECONDS)
        self.sampled_at = end
        young = is_of_start_up(at - self.started_at, used[0])
        known = used[np.array(self.hardware) > 0]
        if not young and ((known >= 0) & np.isfinite(known)).all():
            self.waiting.append(_Sample(at, begin, end, used, self.since_change))

    def doubt(self) -> None:
        """Bundles came or went: what was carried until then is told by the last count, and nobody will make it."""
        self.waiting = [replace(one, since_change=0) for one in self.waiting]

    def latest(self, most: int, since: float) -> list[FloatArray]:
        """Usage in percent, float64 (5,) each, by at most so many samples, the newest first.

        None of before ``since``, epoch seconds, nor of before the bundles changed last: the first two samples after a
        change may hold what was before it, and are not among them. Also those of which nobody knows yet what was
        carried meanwhile.
        """
        newest = islice(chain(reversed(self.waiting), (one for one, _ in reversed(self.samples))), most)
        return [one.used for one in takewhile(lambda one: one.since_change > 0 and one.at >= since, newest)]

    def settle(self) -> None:
        """Samples of which is known by now what was carried meanwhile."""
        still = []
        for one in self.waiting:
            carried = self.meter.mean(one.begin, one.end)
            if carried is None:
                still.append(one)
            elif np.isfinite(carried).all():
                self.samples.append((one, carried))
        self.waiting = still


class Gathering:
    """Takes rounds one after the other; at most ``keep`` samples of a broker are kept, the latest.

    It goes on with what is ``known`` from before. The sample that it finds may be one of those, and nobody saw what
    happened to bundles until the next one: the first to be trusted is the second new one.
    """

    def __init__(self, keep: int = KEPT, known: Mapping[str, BrokerSamples] | None = None) -> None:
        self._keep = keep
        self._of = {broker: _resumed(own, keep) for broker, own in (known or {}).items()}
        self._before: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> None:
        """One more round, later than those before. Brokers that are away keep what they have."""
        used, carried = percent_used(snapshot), row_totals(snapshot)
        usages, changed = snapshot.brokers.usage[:, SAMPLED].tolist(), changed_brokers(self._before, snapshot)
        since = math.inf if self._before is None else snapshot.taken_at - self._before.taken_at
        for at, broker in enumerate(snapshot.brokers.ids):
            kept = self._of[broker] = self._known(snapshot, at)
            usage = tuple(usages[at])
            if changed[at]:
                kept.doubt()
            kept.meter.take(snapshot.taken_at, carried[at])
            seen, kept.usage = kept.usage, usage
            if seen is not None and not np.array_equal(usage, seen, equal_nan=True):
                kept.take(snapshot.taken_at, since, used[at], changed=bool(changed[at]))
            if changed[at]:
                kept.since_change = -1
            kept.settle()
        self._before = snapshot

    def forget(self, before: float) -> None:
        """Leave out samples from before that time, epoch seconds, and brokers that are away and have no others."""
        for broker, kept in list(self._of.items()):
            while kept.samples and kept.samples[0][0].at <= before:
                kept.samples.popleft()
            if not kept.samples and (self._before is None or broker not in self._before.brokers.ids):
                del self._of[broker]

    def sizes(self) -> Mapping[str, int]:
        """How many samples of each broker are kept."""
        return {broker: len(kept.samples) for broker, kept in sorted(self._of.items())}

    def samples(self) -> Mapping[str, BrokerSamples]:
        """What was gathered of each broker."""
        return {broker: _columns(kept) for broker, kept in sorted(self._of.items())}

    def with_waiting(self, broker: str) -> BrokerSamples | None:
        """What was gathered of a broker, its newest samples beside the latest count; None where nothing is known."""
        kept = self._of.get(broker)
        if kept is None:
            return None
        counted = kept.meter.latest()
        waiting = [] if counted is None else [(one, counted) for one in kept.waiting]
        return _columns(replace(kept, samples=deque([*kept.samples, *waiting])))

    def version(self, broker: str) -> tuple[float, ...] | None:
        """Another one whenever :meth:`with_waiting` has more or less to tell; None while a count still goes on."""
        kept = self._of.get(broker)
        if kept is None or kept.waiting:
            return None
        ends = (kept.samples[0][0].at, kept.samples[-1][0].at) if kept.samples else ()
        return (len(kept.samples), *ends)

    def latest(self, broker: str, most: int, since: float) -> list[FloatArray]:
        """Usage in percent, float64 (5,) each, by a broker's newest samples, the newest first; at most so many.

        None of before ``since``, epoch seconds, nor of before its bundles changed.
        """
        return self._of[broker].latest(most, since) if broker in self._of else []

    def _known(self, snapshot: Snapshot, at: int) -> _Kept:
        """What is kept of a broker; nothing of how it was before a restart or on another machine."""
        hardware = tuple(snapshot.brokers.limit[at].tolist())
        started_at = float(snapshot.brokers.started_at[at])
        kept = self._of.get(snapshot.brokers.ids[at])
        if kept is not None and kept.is_still(hardware, started_at):
            return kept
        return _Kept(hardware, started_at, deque(maxlen=self._keep))


def gather(snapshots: Iterable[Snapshot]) -> Mapping[str, BrokerSamples]:
    """The samples of some rounds, in the order of time."""
    gathering = Gathering()
    for snapshot in snapshots:
        gathering.take(snapshot)
    return gathering.samples()


def row_totals(snapshot: Snapshot) -> FloatArray:
    """The sum of what each broker reports of its bundles, float64 (B, 4); NaN with a rate that is negative or none.

    Of brokers that tell of their largest bundles only it is the broker's own total.
    """
    if snapshot.partial:  # the totals are all there is: what the smaller bundles carry is not told
        return np.where(snapshot.brokers.rates >= 0, snapshot.brokers.rates, np.nan)
    owner, size = snapshot.rows.owner(), len(snapshot.brokers)
    rates = np.where(snapshot.rows.rates >= 0, snapshot.rows.rates, np.nan)
    return np.stack([np.bincount(owner, column, size) for column in rates.T], axis=1)


def percent_used(snapshot: Snapshot) -> FloatArray:
    """Percent of the limit, float64 (B, 5); NaN where that is unknown."""
    return np.where(snapshot.brokers.limit > 0, percent(snapshot.brokers), np.nan)


def _resumed(own: BrokerSamples, keep: int) -> _Kept:
    rows = zip(own.at.tolist(), own.used, own.since_change.tolist(), own.carried, strict=True)
    samples = deque(((_Sample(at, at, at, used, since), carried) for at, used, since, carried in rows), maxlen=keep)
    return _Kept(own.hardware, own.started_at, samples, usage=None, since_change=-1)


def _columns(kept: _Kept) -> BrokerSamples:
    seen, carried = [one for one, _ in kept.samples], [rates for _, rates in kept.samples]
    return BrokerSamples(
        at=np.array([one.at for one in seen]),
        carried=np.array(carried).reshape(-1, 4),
        used=np.array([one.used for one in seen]).reshape(-1, 5),
        since_change=np.array([one.since_change for one in seen], dtype=np.int32),
        hardware=kept.hardware,
        started_at=kept.started_at,
    )
