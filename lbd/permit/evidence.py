"""Reports that are new evidence, reports that are not trusted, and ownership changes between rounds. Pure.

Brokers sample CPU once a minute however often they are polled, so a counter that advances with every poll would count
one sample many times. A broker gives new evidence when cpu or bandwidth changed; the samples of its first two sampling
intervals include start-up work; after a move or a restart its second fresh sample is the first correct one. Where its
CPU of now is known, it has settled as soon as that stands still. A report that has been unchanged for long may hide any
load, so its broker gives nothing, and takes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.scoring import SCORED, Weights, scores
from lbd.model import IMPOSSIBLE_NUMBER, RESOURCES, Permission, counter_broker
from lbd.permit.slow import UNCHECKED, Health
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.model import BoolArray, Brokers, CodeArray, FloatArray, IntArray, Memory, Snapshot
    from lbd.permit.budget import Sent


SAMPLE_INTERVAL_SECONDS = 60.0
"""loadBalancerHostUsageCheckIntervalMinutes has a floor of one minute, which is also its default."""

SAMPLES_TO_SETTLE = 2

LIVE_SETTLE_SECONDS = 18.0
"""Two times ten seconds of live CPU, less what turns are not to the second: shorter ones are too noisy to compare."""

GOES_ON_SECONDS = 600.0
"""Time after it gave bundles in which a broker may give more without hits, and is watched for that. Later, an imbalance
is no longer the one for which those bundles were moved.
"""

JOINED_SECONDS = 900.0
"""Time after it joined in which a broker may take bundles without hits: it came empty, and stays so until it does."""

LIVE_STILL_POINTS = 5.0
"""Those two times differ by no more where nothing changes (a deviation of 1.4 points each, docs/load-model.md)."""

WATCHED_POINTS = 15.0
"""A broker that is so far above the least loaded one may have to give (``avg_shedder.low_threshold``).

It takes one minute of a report until a broker's CPU of now is known: asked before its first hit, it is when it gives.
"""

ABOVE_EXPECTED_POINTS = 10.0
"""Points above its prediction at which a broker is still as expected: ten seconds of CPU are within 1.4 points of the
truth (docs/load-model.md), the rest is for predictions."""

BROKERS_WATCHED = 10
"""At each end. Which of a few brokers is the least loaded changes with every sample."""

FROZEN_SAMPLES = 5
"""Sample intervals without a new sample (five minutes by default) after which a report is frozen.

CPU of a JVM that samples never is the same to the last digit twice. A broker that stops for a moment may skip a sample,
and lbd may see one an interval late; five in a row are skipped by one that does not sample any more.
"""

NO_SAMPLE_YET = 1e-5
"""CPU, in percent of a core, up to which a broker has not sampled any."""

IMPOSSIBLE_SHARE = 10.0
"""A usage above ten times its limit is a broken counter; bursts over a cgroup quota stay far below."""

_SAMPLED = (RESOURCES.index("cpu"), RESOURCES.index("bandwidth_in"), RESOURCES.index("bandwidth_out"))


@dataclass(frozen=True)
class Sample:
    """The last sample of one broker, as one turn hands it to the next.

    ``usage`` is cpu, bandwidth in and out; ``distinct`` counts its samples since its start; ``to_settle`` is how many
    fresh samples must still come before it takes part again; ``bundles`` is the size of its last statistics. All times
    are epoch seconds: ``fresh_at`` is when ``usage`` was first seen, and ``touched_at`` when a move last touched the
    broker, or it joined (0: never, infinite: since the last round). ``expected`` is the score in points that it was
    then expected to have at most, None where nothing was. ``is_still``: its CPU of now has stood still since then, and
    is about what was expected. ``joined_at`` is when it was first seen beside brokers that were known before (0: it was
    not).
    """

    usage: tuple[float, float, float]
    started_at: float
    distinct: int = 1
    to_settle: int = 0
    bundles: int = 0
    fresh_at: float = 0.0
    touched_at: float = 0.0
    is_still: bool = False
    expected: float | None = None
    joined_at: float = 0.0


@dataclass(frozen=True, eq=False)
class Evidence:
    """Judgement of one round: what of each broker's report lbd may act on.

    ``fresh`` is bool (B,): the sample of its report is new. ``counts`` is bool (B,): its counter advances, as that is
    so, or it has just settled by its live CPU. ``paired`` is int8 (B,): 0, or the code of why the report is no ground
    to move on. ``settled`` is bool (B,): what it shows is from after the last move or restart. ``scores`` are float64
    (B,), in points. ``samples`` is what is remembered of each broker, those that are away among them. ``health`` is
    which brokers are slow.
    """

    samples: Mapping[str, Sample]
    fresh: BoolArray
    counts: BoolArray
    paired: CodeArray
    settled: BoolArray
    scores: FloatArray
    health: Health = UNCHECKED

    def to_settle(self, row: int, broker: str) -> int:
        """How many fresh samples of the broker at this position must still come before it takes part again."""
        return 0 if self.settled[row] else self.samples[broker].to_settle

    def permission(self, barred: CodeArray) -> Permission:
        """The permission of this round, where ``barred``, int8 (N,), are the bundles that may not move."""
        return Permission(barred, counts=self.counts, paired=self.paired, settled=self.settled)


def judge(
    previous: Mapping[str, Sample],
    snapshot: Snapshot,
    weights: Weights,
    sample_interval_seconds: float = SAMPLE_INTERVAL_SECONDS,
) -> Evidence:
    """Compare this round with what was last seen of each broker; brokers that are away keep their last sample."""
    brokers = snapshot.brokers.as_reported()
    samples = dict(previous)
    size = len(brokers)
    fresh, settled, counts = (np.zeros(size, dtype=np.bool_) for _ in range(3))
    paired = _impossible(brokers, weights)
    reported = snapshot.rows.count(snapshot.rows.reported)
    shows_live, points, started_at = snapshot.brokers.shows_live, scores(snapshot.brokers, weights), brokers.started_at
    for row, broker in enumerate(brokers.ids):
        old = previous.get(broker)
        first = Sample(_usage(brokers, row), float(started_at[row]), 1, 0, int(reported[row]), snapshot.taken_at)
        new = _first_of(first, previous) if old is None else _next(old, first)
        new = replace(new, touched_at=min(new.touched_at, snapshot.taken_at))
        fresh[row] = old is None or new.distinct != old.distinct or not same(new.started_at, old.started_at)
        settles = not new.is_still and new.touched_at > 0 and new.to_settle > 0
        came_to_rest = settles and is_still(snapshot.brokers, row) and is_expected(float(points[row]), new.expected)
        new = replace(new, is_still=new.is_still or came_to_rest)
        shows_still = new.is_still and bool(shows_live[row])
        if paired[row] == 0:
            # a restarted broker waits for its samples: drains and rollouts judge by reports alone
            warm = shows_still and new.joined_at > 0
            is_young = new.usage[0] <= NO_SAMPLE_YET or _is_young(new, snapshot.taken_at, sample_interval_seconds)
            young = is_young and not warm
            paired[row] = _doubt(old, new, snapshot.taken_at, brokers.rates[row], sample_interval_seconds, young=young)
        fresh[row] &= paired[row] == 0
        counts[row] = fresh[row] or (came_to_rest and paired[row] == 0)
        settled[row] = new.to_settle == 0 or shows_still
        samples[broker] = new
    return Evidence(samples, fresh, counts, paired, settled, points)


def is_still(brokers: Brokers, row: int) -> bool:
    """Whether the live CPU of the broker at this position stands still since a move touched it."""
    live = brokers.live
    return live is not None and bool(live.seconds[row] >= LIVE_SETTLE_SECONDS and live.apart[row] <= LIVE_STILL_POINTS)


def is_expected(score: float, expected: float | None, above_points: float = ABOVE_EXPECTED_POINTS) -> bool:
    """Whether a broker that moves touched is at most so far above what was expected; if not, they moved something else.

    ``expected`` is None where nothing was, and infinite where any score is.
    """
    return expected is None or score <= expected + above_points


def watched(
    samples: Mapping[str, Sample], memory: Memory, scores: Mapping[str, float], taken_at: float
) -> dict[str, float]:
    """Brokers on whose CPU of now something depends, each with the time from which on it counts (epoch seconds).

    These are the ones with hits or :data:`WATCHED_POINTS` above the least loaded, those that gave bundles lately, those
    that settle, and as many of the least loaded, or :data:`BROKERS_WATCHED`, where bundles may go. In a balanced
    cluster nobody is asked. ``samples`` and ``memory`` are what the last turn left, ``scores`` are points by broker,
    ``taken_at`` is the time of the round.
    """
    concerned = {counter_broker(counter) for counter in (*memory.hits, *gave_lately(memory, taken_at))}
    concerned |= {broker for broker, sample in samples.items() if sample.to_settle > 0 and sample.touched_at}
    ranked = sorted(scores, key=lambda broker: (scores[broker], broker))
    highest = ranked[-BROKERS_WATCHED:]
    concerned |= {broker for broker in highest if scores[broker] - scores[ranked[0]] >= WATCHED_POINTS}
    concerned &= scores.keys()
    lowest = ranked[: max(len(concerned), BROKERS_WATCHED)] if concerned else []
    return {broker: samples[broker].touched_at for broker in sorted({*concerned, *lowest}) if broker in samples}


def gave_lately(memory: Memory, taken_at: float) -> dict[str, float]:
    """Counters of the brokers that may give more without new hits, each with when it gave last (epoch seconds)."""
    return {counter: at for counter, at in memory.unloaded_at.items() if 0 <= taken_at - at <= GOES_ON_SECONDS}


def unsettle(
    samples: Mapping[str, Sample],
    brokers: Iterable[str],
    at: float = math.inf,
    expected: Mapping[str, float] | None = None,
) -> dict[str, Sample]:
    """The samples after moves touched these brokers: each must settle before it counts again.

    ``at`` (epoch seconds) is a moment after the last of these; where none is known, the next round's is taken.
    ``expected`` are scores in points, of moves that are planned; what was expected of a broker lasts until it settles.
    """
    touched = {}
    for broker in brokers:
        if (old := samples.get(broker)) is not None:
            lasting = old.expected if old.to_settle > 0 else None
            score = (expected or {}).get(broker, lasting)
            touched[broker] = replace(old, to_settle=SAMPLES_TO_SETTLE, touched_at=at, is_still=False, expected=score)
    return {**samples, **touched}


def without(evidence: Evidence, snapshot: Snapshot, touched: Iterable[str]) -> Evidence:
    """The evidence when moves touched these brokers since the last round: this round's sample may be from before."""
    names = set(touched)
    calm = np.array([broker not in names for broker in snapshot.brokers.ids], dtype=np.bool_)
    samples = unsettle(evidence.samples, names, snapshot.taken_at)
    return replace(evidence, samples=samples, settled=evidence.settled & calm)


def touched_since(written_at: float, sent: Iterable[Sent]) -> frozenset[str]:
    """Both ends of moves sent since samples were written down (epoch seconds); none where no samples were (0)."""
    lately = [request for request in sent if request.at >= written_at > 0]
    return frozenset(end for request in lately for end in (request.source, request.destination) if end is not None)


def _usage(brokers: Brokers, row: int) -> tuple[float, float, float]:
    cpu, bandwidth_in, bandwidth_out = (float(brokers.usage[row, column]) for column in _SAMPLED)
    return cpu, bandwidth_in, bandwidth_out


def _next(old: Sample, new: Sample) -> Sample:
    """The sample that follows ``old``. When the clock goes back, an unchanged sample is no newer than ``new``."""
    if not same(old.started_at, new.started_at):
        return replace(new, to_settle=SAMPLES_TO_SETTLE)
    if all(map(same, old.usage, new.usage)):
        return replace(old, bundles=new.bundles, fresh_at=min(old.fresh_at, new.fresh_at))
    to_settle = max(old.to_settle - 1, 0)
    touched = replace(
        new, touched_at=old.touched_at, is_still=old.is_still, expected=old.expected, joined_at=old.joined_at
    )
    return replace(touched, distinct=old.distinct + 1, to_settle=to_settle)


def same(first: float, second: float) -> bool:
    """Whether two numbers of a report are equal; of one that it lacks, both are NaN."""
    return first == second or (math.isnan(first) and math.isnan(second))


def _first_of(sample: Sample, previous: Mapping[str, Sample]) -> Sample:
    """The first sample of a broker. One that joined others has to settle, as if a move had touched it."""
    joined_at = sample.fresh_at
    if not (previous and joined_at - sample.started_at < JOINED_SECONDS):
        return sample
    return replace(sample, to_settle=SAMPLES_TO_SETTLE, touched_at=joined_at, joined_at=joined_at)


def _is_young(sample: Sample, now: float, interval: float) -> bool:
    """Whether what a broker sampled holds start-up work."""
    return now - sample.started_at < young_seconds(interval) and sample.distinct < 3


def young_seconds(interval_seconds: float) -> float:
    """How long a broker is young at most, with brokers that sample at this interval."""
    return 2 * interval_seconds + 10


def _doubt(old: Sample | None, new: Sample, now: float, rates: FloatArray, interval: float, *, young: bool) -> int:
    """Why this broker's report is no ground to move on; 0 when it is."""
    if old is not None and old.bundles > 1 and new.bundles == 0 and not rates.any():
        return Reason.REPORT_EMPTY.code
    if young:
        return Reason.FIRST_SAMPLE.code
    return Reason.NO_NEW_SAMPLE.code if now - new.fresh_at > FROZEN_SAMPLES * interval else 0


def _impossible(brokers: Brokers, weights: Weights) -> CodeArray:
    """Codes of brokers whose scored numbers are NaN, negative or absurd, or whose limits are all unknown."""
    columns = [at for at in SCORED if weights.row()[at] > 0]
    usage, limit = brokers.usage[:, columns], brokers.limit[:, columns]
    limited = limit > 0
    with np.errstate(all="ignore"):
        odd = limited & ~((usage >= 0) & (usage <= limit * IMPOSSIBLE_SHARE))
    wrong = (
        odd.any(axis=1)
        | ~(limit <= IMPOSSIBLE_NUMBER).all(axis=1)
        | ~((brokers.rates >= 0) & (brokers.rates <= IMPOSSIBLE_NUMBER)).all(axis=1)
    )
    codes = np.zeros(len(brokers), dtype=np.int8)
    codes[~limited.any(axis=1)] = Reason.UNKNOWN_RESOURCES.code
    codes[wrong] = Reason.IMPOSSIBLE_NUMBER.code
    return codes


# --- ownership changes since the last round: by clients' lookups, restarts, or other tools

AWAY_SECONDS = 15 * 60.0
"""A bundle that was on no report for longer and shows up elsewhere was loaded anew rather than moved."""


UNSEEN, GONE = -1, -2
"""Codes in a column of former owners: the bundle was in no earlier round; its broker gives no report now."""


@dataclass(frozen=True, eq=False)
class ReportedOwners:
    """The broker that reported each bundle: ``owner`` is int32 (N,) into ``brokers``, aligned with ``bundles``.

    ``away`` are bundles on no report now: the broker that had them, and when it last reported them (epoch seconds).
    ``seen_at`` is the time of the round.
    """

    bundles: list[str]
    brokers: tuple[str, ...]
    owner: IntArray
    away: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    seen_at: float = 0.0


def compare_owners(before: ReportedOwners | None, snapshot: Snapshot) -> tuple[ReportedOwners, frozenset[str]]:
    """The owners of this round, and the bundles whose owner is another than before.

    A bundle that was never seen has changed nothing; one that two brokers report is still with the one it was with.
    """
    owner = _first(snapshot)
    if before is None:
        return ReportedOwners(snapshot.bundles, snapshot.brokers.ids, owner, seen_at=snapshot.taken_at), frozenset()
    was, away = _before(before, snapshot)
    _keep_where_it_was(owner, was, snapshot)
    changed = frozenset(snapshot.bundles[at] for at in np.flatnonzero((was != owner) & (was != UNSEEN)).tolist())
    return ReportedOwners(snapshot.bundles, snapshot.brokers.ids, owner, away, snapshot.taken_at), changed


def former(before: ReportedOwners, changed: Collection[str]) -> Mapping[str, str]:
    """The previous owners of the bundles that changed hands."""
    owners = {bundle: last_report[0] for bundle, last_report in before.away.items() if bundle in changed}
    for row, bundle in enumerate(before.bundles):
        if bundle in changed:
            owners[bundle] = before.brokers[before.owner[row]]
    return owners


def unexplained(
    before: ReportedOwners, now: ReportedOwners, changed: Collection[str], snapshot: Snapshot
) -> dict[str, tuple[str, str]]:
    """The former owner and the present one of those ``changed`` bundles whose former owner has run on since ``before``.

    ``now`` are the owners of ``snapshot``.
    """
    was, running = former(before, changed), ran_on(snapshot, before.seen_at)
    present = {name: now.brokers[now.owner[row]] for name, row in snapshot.positions_of(changed).items()}
    return {name: (was[name], owner) for name, owner in present.items() if was[name] in running}


def ran_on(snapshot: Snapshot, since: float) -> frozenset[str]:
    """The brokers that have run on ``since`` then (epoch seconds).

    One that is gone, or has started later, has lost what it had. One that does not say when it started (2.11) counts.
    """
    started = zip(snapshot.brokers.ids, snapshot.brokers.started_at.tolist(), strict=True)
    return frozenset(broker for broker, time in started if not time > since)


def _first(snapshot: Snapshot) -> IntArray:
    """The first broker that reports each bundle."""
    owner = np.full(len(snapshot.bundles), UNSEEN, dtype=np.int32)
    owner[snapshot.rows.bundle[::-1]] = snapshot.rows.owner()[::-1]
    return owner


def _before(before: ReportedOwners, snapshot: Snapshot) -> tuple[IntArray, dict[str, tuple[str, float]]]:
    """Former owners as positions of this round's brokers, int32 (N,), and what is away now."""
    index = snapshot.brokers.index()
    code = np.array([*(index.get(broker, GONE) for broker in before.brokers), UNSEEN], dtype=np.int32)
    old = snapshot.positions_in(before.bundles)
    was = code[np.append(before.owner, UNSEEN)[old]]
    away = _still(before.away, snapshot.taken_at)
    for bundle in np.flatnonzero(old < 0).tolist():
        if (last := away.pop(snapshot.bundles[bundle], None)) is not None:
            was[bundle] = index.get(last[0], GONE)
    missing = np.delete(np.arange(before.owner.size), old[old >= 0]).tolist()
    gone = {before.bundles[at]: (before.brokers[before.owner[at]], snapshot.taken_at) for at in missing}
    return was, {**away, **gone}


def _still(away: Mapping[str, tuple[str, float]], now: float) -> dict[str, tuple[str, float]]:
    return {name: (broker, at) for name, (broker, at) in away.items() if now - at <= AWAY_SECONDS}


def _keep_where_it_was(owner: IntArray, was: IntArray, snapshot: Snapshot) -> None:
    """Keep the former owner of a bundle that is on two reports, if its report is one of them."""
    bundle = snapshot.rows.bundle
    if bundle.size > owner.size:
        rows = np.flatnonzero(was[bundle] == snapshot.rows.owner())
        owner[bundle[rows]] = was[bundle[rows]]
