"""Samples of traffic and usage from load reports: one per new sample of a broker, with its traffic meanwhile. Pure.

Brokers sample CPU once a minute, however often they are polled, as the mean since the sample before: so a broker's
traffic is also the mean over that time. Samples with start-up work are left out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.scoring import percent
from lbd.model import BYTES_IN, BYTES_OUT, RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.model import BoolArray, FloatArray, IntArray, Snapshot


YOUNG_SECONDS = 130.0
"""The samples of a broker's first two minutes hold start-up work."""

FIRST_CPU = 1e-5
"""A broker that has not sampled yet reports less than this, and not 0."""


def is_of_start_up(age_seconds: float, cpu_percent: float) -> bool:
    """Whether a broker is too young for its sample to count; its age is NaN where no report has it."""
    return age_seconds < YOUNG_SECONDS or cpu_percent <= FIRST_CPU


# --- brokers whose bundles changed between two rounds, detected by their traffic

CHANGED_SHARE = 0.01
"""Share of a broker's bytes/s: with less than this in bundles that came or went, its load is unchanged."""


def is_much(moved: FloatArray, before: FloatArray, now: FloatArray) -> BoolArray:
    """Whether the traffic of bundles that came and went is much of a broker's ``before`` or ``now``, bytes/s."""
    much: BoolArray = moved > CHANGED_SHARE * np.maximum(before, now)
    return much


def changed_brokers(before: Snapshot | None, now: Snapshot) -> BoolArray:
    """Brokers whose bundles, or the segments in them, differ from the round before, bool (B,).

    A change of few bytes does not count.
    """
    traffic = np.zeros((3, len(now.brokers)))
    if before is not None:
        then, position = before.rows.bundle.tolist(), before.brokers.index()
        held = now.positions_in(before.bundles)[now.rows.bundle].tolist()
        for row, broker in enumerate(now.brokers.ids):
            was = position.get(broker)
            if was is not None and held[now.rows.of(row)] != then[before.rows.of(was)]:
                traffic[:, row] = _moved(_bytes(before, was), _bytes(now, row))
    return is_much(*traffic) | now.segment_brokers


def _bytes(snapshot: Snapshot, broker: int) -> dict[str, float]:
    """Bytes/s of each bundle that a broker reports, infinite for a bundle without statistics."""
    rows = snapshot.rows.of(broker)
    carried = snapshot.rows.rates[rows][:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
    if snapshot.partial:
        carried[~snapshot.rows.reported[rows]] = math.inf
    names = [snapshot.bundles[row] for row in snapshot.rows.bundle[rows].tolist()]
    return dict(zip(names, carried.tolist(), strict=True))


def _moved(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[float, float, float]:
    """Bytes/s that came and went, and the sums before and now, without bundles that have no statistics."""
    there = before.keys() & now.keys()
    moved = sum(value for side in (before, now) for name, value in side.items() if name not in there)
    return moved, _sum(before), _sum(now)


def _sum(carried: Mapping[str, float]) -> float:
    return sum(value for value in carried.values() if value < math.inf)


# --- traffic over a span of time, from rates that each report a mean over an earlier span
# CPU is sampled once a minute, rates are counted once in statsUpdateFrequencyInSecs (60 unless set), and a report shows
# both some time later: within one report, a change of traffic is in the one and not yet in the other.

COUNTED_SECONDS = 60.0
"""Time after which unchanged rates have been counted anew."""

REMEMBERED = 64
"""Number of counts kept; a sample waits for the next one only."""


class TrafficMeter:
    """Follows the reported traffic of one broker, round by round."""

    def __init__(self) -> None:
        self._until: deque[float] = deque(maxlen=REMEMBERED)
        self._rates: deque[FloatArray] = deque(maxlen=REMEMBERED)
        self._round = -np.inf
        self._counted = -np.inf

    def take(self, at: float, rates: FloatArray) -> None:
        """Add a round at this time; ``rates`` is float64 (4,)."""
        since, self._round = at - self._round, at
        same = bool(self._rates) and np.array_equal(self._rates[-1], rates)
        if same and at - self._counted < COUNTED_SECONDS:
            return
        often = self._counted == at - since and since < COUNTED_SECONDS
        self._counted = at
        self._until.append(at - self.lag(since / 2 if often else since))
        self._rates.append(rates)

    @staticmethod
    def lag(since_seconds: float) -> float:
        """Estimated seconds since the rates that this round is the first to show were counted: within the time since
        the last round, but no longer ago than one counting interval.
        """
        return min(since_seconds, COUNTED_SECONDS) / 2

    def latest(self) -> FloatArray | None:
        """The latest rates, float64 (4,); None before any were counted."""
        return self._rates[-1] if self._rates else None

    def mean(self, begin: float, end: float) -> FloatArray | None:
        """Mean rates over this span, float64 (4,); None while its end has not been counted yet."""
        if not self._until or self._until[-1] < end:
            return None
        passed, total = 0.0, np.zeros(4)
        for index in range(len(self._until) - 1, -1, -1):
            since = self._until[index - 1] if index else -np.inf
            span = min(self._until[index], end) - max(since, begin)
            if span > 0:
                passed, total = passed + span, total + span * self._rates[index]
            if since <= begin:
                break
        return total / passed if passed else self._rates[-1]


# --- sampling

SAMPLED = [RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out")]
"""Resources that change with a new sample only; memory is read for every report."""

IS_SAMPLED = np.isin(np.arange(len(RESOURCES)), SAMPLED)
"""The same as bool (5,), for loops over brokers: to look up columns takes longer."""

LONGEST_SECONDS = 300.0
"""Longest span of a sample."""

KEPT = 1440
"""Number of samples kept per broker: a day of them."""

GO_STALE_SECONDS = 24 * 3600.0
"""Age of a stale sample: the cost of traffic changes with restarts and limits, which are checked, and with messages and
settings of brokers, which are not.
"""

NEVER = 1_000_000
"""Samples since the bundles of a broker changed, where no change was recorded."""


@dataclass(frozen=True, eq=False)
class BrokerSamples:
    """Samples of one broker in the order of time, since its last start and the last change of its limits.

    ``at`` is float64 (n,), epoch seconds; ``carried`` (n, 4), messages/s and bytes/s of its bundles; ``used`` (n, 5),
    percent of the limit, NaN where there is none. ``since_change`` is int32 (n,): the number of new samples before this
    one since the report of the broker's bundles changed; 0 also for one that came with that report. ``hardware`` is
    equal on like brokers. ``started_at`` is the start of its process, epoch seconds; NaN where reports do not have it.
    """

    at: FloatArray
    carried: FloatArray
    used: FloatArray
    since_change: IntArray
    hardware: tuple[float, ...]
    started_at: float = math.nan

    @classmethod
    def none(cls) -> BrokerSamples:
        """Samples of a broker that has none."""
        return cls(np.zeros(0), np.zeros((0, 4)), np.zeros((0, len(RESOURCES))), np.zeros(0, dtype=np.int32), ())

    def where(self, chosen: BoolArray) -> BrokerSamples:
        """Select samples: ``chosen`` is bool (n,)."""
        columns = self.at[chosen], self.carried[chosen], self.used[chosen], self.since_change[chosen]
        return BrokerSamples(*columns, self.hardware, self.started_at)

    @property
    def trusted(self) -> BoolArray:
        """All but those during which bundles came or went: the next fresh one is the first that shows the effect."""
        return self.since_change > 0


@dataclass(frozen=True, eq=False)
class _Sample:
    """A sample from ``begin`` to ``end``, first reported ``at`` (epoch seconds)."""

    at: float
    begin: float
    end: float
    used: FloatArray
    since_change: int


@dataclass
class _PendingSample:
    """Samples of one broker under way. ``waiting``: their traffic has not been counted yet.

    ``usage`` is the last sample, None where it may be among the earlier ones.
    """

    hardware: tuple[float, ...]
    started_at: float
    samples: deque[tuple[_Sample, FloatArray]]
    meter: TrafficMeter = field(default_factory=TrafficMeter)
    waiting: list[_Sample] = field(default_factory=list)
    usage: tuple[float, ...] | None = ()
    sampled_at: float = -math.inf
    since_change: int = NEVER

    def is_still(self, hardware: tuple[float, ...], started_at: float) -> bool:
        unknown = math.isnan(self.started_at) and math.isnan(started_at)
        return self.hardware == hardware and (unknown or self.started_at == started_at)

    def take(self, at: float, since: float, used: FloatArray, *, changed: bool) -> None:
        """Add a new sample, first reported at ``at``; the round before was ``since`` seconds ago."""
        self.since_change = 0 if changed else min(self.since_change + 1, NEVER)
        end = at - TrafficMeter.lag(since)
        begin = max(self.sampled_at, end - LONGEST_SECONDS)
        self.sampled_at = end
        young = is_of_start_up(at - self.started_at, used[0])
        limited = used[np.array(self.hardware) > 0]
        if not young and ((limited >= 0) & np.isfinite(limited)).all():
            self.waiting.append(_Sample(at, begin, end, used, self.since_change))

    def doubt(self) -> None:
        """Mark waiting samples as changed: the last count holds the traffic until then only."""
        self.waiting = [replace(sample, since_change=0) for sample in self.waiting]

    def latest(self, most: int, since: float) -> list[FloatArray]:
        """Usage in percent, float64 (5,) each, of at most ``most`` samples, the newest first.

        Samples from before ``since``, epoch seconds, or from before the last change of bundles are left out, and the
        first two after a change, which may still show the time before it. Samples with uncounted traffic are included.
        """
        newest = islice(chain(reversed(self.waiting), (sample for sample, _ in reversed(self.samples))), most)
        return [
            sample.used for sample in takewhile(lambda sample: sample.since_change > 0 and sample.at >= since, newest)
        ]

    def settle(self) -> None:
        """Keep the waiting samples whose traffic has been counted."""
        still = []
        for sample in self.waiting:
            carried = self.meter.mean(sample.begin, sample.end)
            if carried is None:
                still.append(sample)
            elif np.isfinite(carried).all():
                self.samples.append((sample, carried))
        self.waiting = still


class Gathering:
    """Gathers samples from rounds in the order of time, at most the latest ``keep`` of a broker.

    It continues ``earlier`` samples. The first sample may be one of those, and the bundles until the next one are
    unknown: the first trusted one is the second new one.
    """

    def __init__(self, keep: int = KEPT, earlier: Mapping[str, BrokerSamples] | None = None) -> None:
        self._keep = keep
        self._of = {broker: _resumed(own, keep) for broker, own in (earlier or {}).items()}
        self._before: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> None:
        """Add one more round, later than those before. Brokers that are away keep their samples."""
        used, carried = percent_used(snapshot), row_totals(snapshot)
        usages, changed = snapshot.brokers.usage[:, SAMPLED].tolist(), changed_brokers(self._before, snapshot)
        since = math.inf if self._before is None else snapshot.taken_at - self._before.taken_at
        for row, broker in enumerate(snapshot.brokers.ids):
            own = self._of[broker] = self._pending(snapshot, row)
            usage = tuple(usages[row])
            if changed[row]:
                own.doubt()
            own.meter.take(snapshot.taken_at, carried[row])
            previous, own.usage = own.usage, usage
            if previous is not None and not np.array_equal(usage, previous, equal_nan=True):
                own.take(snapshot.taken_at, since, used[row], changed=bool(changed[row]))
            if changed[row]:
                own.since_change = -1
            own.settle()
        self._before = snapshot

    def forget(self, before: float) -> None:
        """Drop samples from before that time, epoch seconds, and brokers that are away and have no others."""
        for broker, own in list(self._of.items()):
            while own.samples and own.samples[0][0].at <= before:
                own.samples.popleft()
            if not own.samples and (self._before is None or broker not in self._before.brokers.ids):
                del self._of[broker]

    def sizes(self) -> Mapping[str, int]:
        """Number of samples kept of each broker."""
        return {broker: len(own.samples) for broker, own in sorted(self._of.items())}

    def samples(self) -> Mapping[str, BrokerSamples]:
        """Samples of each broker."""
        return {broker: _columns(own) for broker, own in sorted(self._of.items())}

    def with_waiting(self, broker: str) -> BrokerSamples | None:
        """A broker's samples, the newest with the latest count of its traffic; None for an unknown broker."""
        own = self._of.get(broker)
        if own is None:
            return None
        counted = own.meter.latest()
        waiting = [] if counted is None else [(sample, counted) for sample in own.waiting]
        return _columns(replace(own, samples=deque([*own.samples, *waiting])))

    def version(self, broker: str) -> tuple[float, ...] | None:
        """Key that changes whenever the samples of :meth:`with_waiting` change; None while a count still goes on."""
        own = self._of.get(broker)
        if own is None or own.waiting:
            return None
        ends = (own.samples[0][0].at, own.samples[-1][0].at) if own.samples else ()
        return (len(own.samples), *ends)

    def latest(self, broker: str, most: int, since: float) -> list[FloatArray]:
        """Usage in percent, float64 (5,) each, of a broker's newest samples, the newest first; at most ``most``.

        None from before ``since``, epoch seconds, nor from before its bundles changed.
        """
        return self._of[broker].latest(most, since) if broker in self._of else []

    def _pending(self, snapshot: Snapshot, row: int) -> _PendingSample:
        """A broker's pending samples; those from before a restart or from another machine are dropped."""
        hardware = tuple(snapshot.brokers.limit[row].tolist())
        started_at = float(snapshot.brokers.started_at[row])
        own = self._of.get(snapshot.brokers.ids[row])
        if own is not None and own.is_still(hardware, started_at):
            return own
        return _PendingSample(hardware, started_at, deque(maxlen=self._keep))


def gather(snapshots: Iterable[Snapshot]) -> Mapping[str, BrokerSamples]:
    """Samples of some rounds, in the order of time."""
    gathering = Gathering()
    for snapshot in snapshots:
        gathering.take(snapshot)
    return gathering.samples()


def row_totals(snapshot: Snapshot) -> FloatArray:
    """Sum of each broker's reported bundles, float64 (B, 4); NaN with a rate that is negative or NaN.

    Where brokers report their largest bundles only, it is the broker's own total.
    """
    if snapshot.partial:  # the totals are complete: smaller bundles are not reported
        return np.where(snapshot.brokers.rates >= 0, snapshot.brokers.rates, np.nan)
    owner, size = snapshot.rows.owner(), len(snapshot.brokers)
    rates = np.where(snapshot.rows.rates >= 0, snapshot.rows.rates, np.nan)
    return np.stack([np.bincount(owner, column, size) for column in rates.T], axis=1)


def percent_used(snapshot: Snapshot) -> FloatArray:
    """Percent of the limit, float64 (B, 5); NaN where that is unknown."""
    return np.where(snapshot.brokers.limit > 0, percent(snapshot.brokers), np.nan)


def _resumed(own: BrokerSamples, keep: int) -> _PendingSample:
    rows = zip(own.at.tolist(), own.used, own.since_change.tolist(), own.carried, strict=True)
    samples = deque(((_Sample(at, at, at, used, since), carried) for at, used, since, carried in rows), maxlen=keep)
    return _PendingSample(own.hardware, own.started_at, samples, usage=None, since_change=-1)


def _columns(pending: _PendingSample) -> BrokerSamples:
    samples, carried = [sample for sample, _ in pending.samples], [rates for _, rates in pending.samples]
    return BrokerSamples(
        at=np.array([sample.at for sample in samples]),
        carried=np.array(carried).reshape(-1, 4),
        used=np.array([sample.used for sample in samples]).reshape(-1, 5),
        since_change=np.array([sample.since_change for sample in samples], dtype=np.int32),
        hardware=pending.hardware,
        started_at=pending.started_at,
    )


# --- usual usage: the mean of a broker's latest samples, as far as they agree
# A sample at rest differs by a point or more, which is the error of a plan made on one of them; with five it is half.

MOST_SAMPLES = 5
"""More samples hardly reduce the noise, and include load that has drifted."""

MOST_SECONDS = 600.0

SAME_POINTS = 4.0
"""Largest distance of samples of one load (deviations of 1 to 1.5 points); beyond it the load has changed."""


def usual(newest_first: Sequence[FloatArray]) -> tuple[FloatArray, int]:
    """Mean of these usages, each float64 (5,) in percent, up to the first that is unlike the newest, and their number.
    NaN without usages, and NaN for memory: it is read anew for each report, and an emptied heap is no change of load.
    """
    if not newest_first:
        return np.full(len(RESOURCES), np.nan), 0
    usages = np.where(IS_SAMPLED, np.array(newest_first), np.nan)
    apart = np.nan_to_num(np.abs(usages - usages[0])).max(axis=1) > SAME_POINTS
    alike = [*apart.tolist(), True].index(True)
    return usages[:alike].mean(axis=0), alike
