"""Which reports are new evidence, and which are not to be trusted. Pure.

Brokers sample CPU once a minute however often they are asked, so a counter that advances with every poll would count
one sample many times. A broker gives new evidence when cpu or bandwidth changed; the samples of its first two sampling
intervals hold start-up work; after a move or a restart its second fresh sample is the first that shows the truth. A
report that has stood still for long may hide any load, so its broker gives nothing, and takes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.scoring import SCORED, Weights
from lbd.model import RESOURCES
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import BoolArray, Brokers, CodeArray, FloatArray, Snapshot
    from lbd.permit.budget import Sent

SAMPLE_INTERVAL_SECONDS = 60.0
"""loadBalancerHostUsageCheckIntervalMinutes has a floor of one minute, which is also its default."""

SAMPLES_TO_SETTLE = 2
FROZEN_SAMPLES = 5
"""Sample intervals without a new sample (five minutes by default) after which a report is frozen.

CPU of a JVM that samples never is the same to the last digit twice. A broker that stops for a moment may skip a sample,
and lbd may see one an interval late; five in a row are skipped by one that does not sample any more.
"""

IMPOSSIBLE_SHARE = 10.0
"""A usage above ten times its limit is a broken counter; bursts over a cgroup quota stay far below."""

IMPOSSIBLE_NUMBER = 1e15
"""No broker has a limit, or carries messages or bytes a second, above it: shares of such a total would bind nothing."""

_SAMPLED = (RESOURCES.index("cpu"), RESOURCES.index("bandwidth_in"), RESOURCES.index("bandwidth_out"))


@dataclass(frozen=True)
class Sample:
    """What was last seen of one broker.

    ``usage`` is cpu, bandwidth in and out; ``seen`` counts distinct samples since its start; ``to_settle`` is how many
    fresh samples must still come before it takes part again; ``bundles`` is the size of its last statistics;
    ``fresh_at`` is when ``usage`` was first seen (epoch seconds).
    """

    usage: tuple[float, float, float]
    started_at: float
    seen: int = 1
    to_settle: int = 0
    bundles: int = 0
    fresh_at: float = 0.0


@dataclass(frozen=True, eq=False)
class Evidence:
    """Judgement of one round: what of each broker's report lbd may act on.

    ``fresh`` is bool (B,): the sample is new, and its broker's counter advances. ``paired`` is int8 (B,): 0, or the
    code of why the report is no ground to move on. ``settled`` is bool (B,): it had its two fresh samples since a move
    or restart. ``samples`` is what is remembered of each broker, those that are away among them.
    """

    samples: Mapping[str, Sample]
    fresh: BoolArray
    paired: CodeArray
    settled: BoolArray


def judge(
    previous: Mapping[str, Sample],
    snapshot: Snapshot,
    weights: Weights,
    sample_interval_seconds: float = SAMPLE_INTERVAL_SECONDS,
) -> Evidence:
    """Compare this round with what was last seen of each broker; brokers that are away keep their last sample."""
    brokers = snapshot.brokers
    samples = dict(previous)
    size = len(brokers)
    fresh, settled = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    paired = _impossible(brokers, weights)
    reported = snapshot.rows.count(snapshot.rows.reported)
    for at, broker in enumerate(brokers.ids):
        old = previous.get(broker)
        first = Sample(_usage(brokers, at), float(brokers.started_at[at]), 1, 0, int(reported[at]), snapshot.taken_at)
        new = first if old is None else _next(old, first)
        fresh[at] = old is None or new.seen != old.seen or not same(new.started_at, old.started_at)
        if paired[at] == 0:
            paired[at] = _doubt(old, new, snapshot.taken_at, brokers.rates[at], sample_interval_seconds)
        fresh[at] &= paired[at] == 0
        settled[at] = new.to_settle == 0
        samples[broker] = new
    return Evidence(samples, fresh, paired, settled)


def unsettle(samples: Mapping[str, Sample], brokers: Iterable[str]) -> dict[str, Sample]:
    """The samples after moves touched these brokers: each must show two fresh samples before it counts again."""
    touched = {broker: replace(samples[broker], to_settle=SAMPLES_TO_SETTLE) for broker in brokers if broker in samples}
    return {**samples, **touched}


def without(evidence: Evidence, snapshot: Snapshot, touched: Iterable[str]) -> Evidence:
    """The evidence when moves touched these brokers since the last round: this round's sample may be from before."""
    names = set(touched)
    calm = np.array([broker not in names for broker in snapshot.brokers.ids], dtype=np.bool_)
    return replace(evidence, samples=unsettle(evidence.samples, names), settled=evidence.settled & calm)


def touched_since(written_at: float, sent: Iterable[Sent]) -> frozenset[str]:
    """Both ends of moves sent since samples were written down (epoch seconds); nobody where none were (0)."""
    lately = [one for one in sent if one.at >= written_at > 0]
    return frozenset(end for one in lately for end in (one.source, one.destination) if end is not None)


def _usage(brokers: Brokers, at: int) -> tuple[float, float, float]:
    cpu, bandwidth_in, bandwidth_out = (float(brokers.usage[at, column]) for column in _SAMPLED)
    return cpu, bandwidth_in, bandwidth_out


def _next(old: Sample, found: Sample) -> Sample:
    """What is seen now of a broker that was seen before. When a clock goes back, its last sample is as old as it is."""
    if not same(old.started_at, found.started_at):
        return replace(found, to_settle=SAMPLES_TO_SETTLE)
    if all(map(same, old.usage, found.usage)):
        return replace(old, bundles=found.bundles, fresh_at=min(old.fresh_at, found.fresh_at))
    return replace(found, seen=old.seen + 1, to_settle=max(old.to_settle - 1, 0))


def same(first: float, second: float) -> bool:
    """Whether two numbers of a report are equal; of one that it lacks, both are NaN."""
    return first == second or (math.isnan(first) and math.isnan(second))


def _doubt(old: Sample | None, new: Sample, now: float, rates: FloatArray, interval: float) -> int:
    """Why this broker's report is no ground to move on; 0 when it is."""
    if old is not None and old.bundles > 1 and new.bundles == 0 and not rates.any():
        return Reason.REPORT_EMPTY.code
    age = now - new.started_at
    if new.usage[0] <= 1e-5 or (age < 2 * interval + 10 and new.seen < 3):
        return Reason.FIRST_SAMPLE.code
    return Reason.NO_NEW_SAMPLE.code if now - new.fresh_at > FROZEN_SAMPLES * interval else 0


def _impossible(brokers: Brokers, weights: Weights) -> CodeArray:
    """Codes of brokers whose scored numbers are NaN, negative or absurd, or whose limits are all unknown."""
    columns = [at for at in SCORED if weights.row()[at] > 0]
    usage, limit = brokers.usage[:, columns], brokers.limit[:, columns]
    known = limit > 0
    with np.errstate(all="ignore"):
        odd = known & ~((usage >= 0) & (usage <= limit * IMPOSSIBLE_SHARE))
    wrong = (
        odd.any(axis=1)
        | ~(limit <= IMPOSSIBLE_NUMBER).all(axis=1)
        | ~((brokers.rates >= 0) & (brokers.rates <= IMPOSSIBLE_NUMBER)).all(axis=1)
    )
    codes = np.zeros(len(brokers), dtype=np.int8)
    codes[~known.any(axis=1)] = Reason.UNKNOWN_RESOURCES.code
    codes[wrong] = Reason.IMPOSSIBLE_NUMBER.code
    return codes
