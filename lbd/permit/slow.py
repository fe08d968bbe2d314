"""Slow brokers: they carry little, and their health check takes long. Pure.

A broker that is sick loses traffic, so its load report shows an idle broker, and every strategy would send bundles
there. Its health check (a message written to and read from a topic of its own) passes through its threads, its network
and the bookies, whatever it carries; so it is slow where its clients wait. A broker that carries much may be slow
because of that, and is not meant here: it has to give bundles.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import FloatArray, Snapshot


FAILED_SECONDS = 10.0
"""Time limit of a health check. A check that fails or takes longer counts with this time."""

TYPICAL_CHECKS = 5
"""A broker's typical time is the median of this many checks: one pause of a JVM does not make it slow."""

KEPT_CHECKS = 10
"""A slow broker has recovered once at most one of this many checks is above the limit: at least five minutes."""

LEAST_SECONDS = 1.0
"""No check below it is slow. A health check takes hundredths of a second on a broker that is well."""

TIMES_USUAL = 5.0
"""And no broker below this multiple of the cluster's usual time: a slow bookie, or a slow lbd, slows all checks."""

ABOVE_POINTS = 10.0
"""A broker whose score is at most so far above the median carries little enough to be a destination."""

LEAST_BROKERS = 3
"""With two brokers it cannot be decided which one is slow."""

MOST_SLOW = 3
"""One broker in this many may look slow. If more do, something that they share is slow, and lbd avoids none of them."""

FORGOTTEN_SECONDS = 900.0
"""Older checks of a broker are not used."""


@dataclass(frozen=True)
class HealthRecord:
    """The last checks of one broker's process: ``seconds`` of each, the newest last.

    ``at`` is when the newest was known, ``started_at`` when the process started (NaN: its report does not say), and
    ``slow_since`` since when it looks slow, 0 where it does not; all in epoch seconds.
    """

    seconds: tuple[float, ...]
    at: float
    started_at: float
    slow_since: float = 0.0

    @property
    def typical_seconds(self) -> float | None:
        """The median of the last checks; None where there are too few."""
        return median(self.seconds[-TYPICAL_CHECKS:]) if len(self.seconds) >= TYPICAL_CHECKS else None

    @property
    def worst_but_one_seconds(self) -> float:
        """The second longest of all that are kept."""
        return sorted(self.seconds)[-2]

    def looks_slow(self, limit_seconds: float) -> bool:
        """Whether the broker looks slow. A broker that already counts as slow must recover first."""
        if self.slow_since and (len(self.seconds) < KEPT_CHECKS or self.worst_but_one_seconds > limit_seconds):
            return True
        return self.typical_seconds is not None and self.typical_seconds > limit_seconds


@dataclass(frozen=True)
class Health:
    """The judgement of one round. ``records`` is what is remembered of each broker.

    ``typical_seconds`` is how long the health check takes of each broker that was checked often enough,
    ``usual_seconds`` the median of these, and above ``limit_seconds`` a check is slow. ``slow`` maps brokers that look
    slow to since when (epoch seconds).
    """

    records: Mapping[str, HealthRecord] = field(default_factory=dict)
    typical_seconds: Mapping[str, float] = field(default_factory=dict)
    usual_seconds: float = 0.0
    limit_seconds: float = LEAST_SECONDS
    slow: Mapping[str, float] = field(default_factory=dict)

    @property
    def avoided(self) -> frozenset[str]:
        """Brokers that nothing is moved to: those that look slow, or none where more than a third do."""
        too_many = MOST_SLOW * len(self.slow) > len(self.typical_seconds)
        return frozenset() if too_many else frozenset(self.slow)

    def text(self, broker: str) -> str:
        """How slow a broker is, beside the others."""
        seconds, limit = self.typical_seconds[broker], f"{self.limit_seconds:.2g} s"
        if seconds <= self.limit_seconds:
            return f"its health check was slow; it takes part again when 9 of its last 10 checks are below {limit}"
        took = f"takes {FAILED_SECONDS:.0f} s, or fails" if seconds >= FAILED_SECONDS else f"takes {seconds:.2g} s"
        return f"its health check {took}; {self.usual_seconds:.2g} s is usual, {limit} the limit"


UNCHECKED = Health()


def with_checks(
    records: Mapping[str, HealthRecord], checks: Mapping[str, float], snapshot: Snapshot
) -> dict[str, HealthRecord]:
    """The records with the checks, in seconds, that ended since the last round; old and future records are dropped.

    The record of a broker that was restarted begins anew: it was of another process.
    """
    brokers, now = snapshot.brokers, snapshot.taken_at
    recent = {broker: record for broker, record in records.items() if 0 <= now - record.at <= FORGOTTEN_SECONDS}
    for broker, started_at in zip(brokers.ids, brokers.started_at.tolist(), strict=True):
        if broker in recent and abs(recent[broker].started_at - started_at) > 0:  # NaN: its report does not say
            del recent[broker]
        if broker in checks:
            old = recent.get(broker, HealthRecord((), now, started_at))
            recent[broker] = replace(old, seconds=(*old.seconds, checks[broker])[-KEPT_CHECKS:], at=now)
    return recent


def judged_round(
    records: Mapping[str, HealthRecord], checks: Mapping[str, float], snapshot: Snapshot, scores: FloatArray
) -> Health:
    """The judgement of one round, with the checks, in seconds, that ended since the last one.

    ``scores`` are those of the brokers, float64 (B,), in points.
    """
    points = zip(snapshot.brokers.ids, scores.tolist(), strict=True)
    finite = {broker: score for broker, score in points if isfinite(score)}
    return judged(with_checks(records, checks, snapshot), finite, snapshot.taken_at)


def judged(records: Mapping[str, HealthRecord], points: Mapping[str, float], now: float) -> Health:
    """Which brokers look slow at ``now`` (epoch seconds); ``points`` are the scores of the brokers in the round."""
    typical = {
        broker: seconds
        for broker in points
        if broker in records and (seconds := records[broker].typical_seconds) is not None
    }
    if len(typical) < LEAST_BROKERS:
        return Health({broker: replace(record, slow_since=0.0) for broker, record in records.items()}, typical)
    usual = median(typical.values())
    limit = max(LEAST_SECONDS, TIMES_USUAL * usual)
    most = median(points[broker] for broker in typical) + ABOVE_POINTS
    slow = {
        broker: records[broker].slow_since or now
        for broker in typical
        if points[broker] <= most and records[broker].looks_slow(limit)
    }
    updated = {broker: replace(record, slow_since=slow.get(broker, 0.0)) for broker, record in records.items()}
    return Health(updated, typical, usual, limit, slow)
