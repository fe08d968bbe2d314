"""A turn as a program reads it: the JSON shape, and the rows that the text is made from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.cycle.verdict import verdict
from lbd.load.scoring import percent
from lbd.load.told import loads
from lbd.model import CLUSTER, RESOURCES, Hits, Skip, counter_of
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cycle import CycleRecord
    from lbd.model import Outcome, Pair, Unload


def document(record: CycleRecord, *, everything: bool) -> dict[str, Any]:
    """The JSON shape of a turn."""
    assert record.observation is not None
    assert record.decision is not None
    taken_at = record.observation.snapshot.taken_at
    found: dict[str, Any] = {
        "taken_at": taken_at,
        "cluster": record.observation.cluster,
        "strategy": record.strategy_name,
        "brokers": brokers(record),
        "pairs": [_pair(record, pair) for pair in record.decision.facts.pairs if pair.destination is not None],
        "unloads": [_unload(unload) for unload in record.unloads],
        "skips": [_skip(skip) for skip in skips(record, everything=everything)],
        "skipped": dict(record.counts),
        "verdict": msgspec.to_builtins(verdict(record)),
        "summary": record.sentence,
    }
    if record.slopes is not None:
        known = loads(record.observation.snapshot.brokers.ids, record.slopes, {})
        found["load"] = [{"id": one.broker, "state": one.state, "background": one.background} for one in known]
    if record.outcomes:
        found["outcomes"] = [_outcome(outcome) for outcome in record.outcomes]
    return found


def brokers(record: CycleRecord) -> list[dict[str, Any]]:
    """Each broker's score, usage in percent (null: limit unknown), traffic in + out, and number of bundles."""
    assert record.observation is not None
    assert record.decision is not None
    snapshot = record.observation.snapshot
    used, table = percent(snapshot.brokers), snapshot.brokers
    listed = snapshot.rows.count(snapshot.rows.listed)
    return [
        {
            "id": broker,
            "score": number(record.decision.facts.scores[at]),
            "binding": record.decision.facts.binding[at],
            "usage": {
                resource: number(used[at, column]) if table.limit[at, column] > 0 else None
                for column, resource in enumerate(RESOURCES)
            },
            "msg_rate": number(float(table.rates[at, 0]) + float(table.rates[at, 1])),
            "throughput": number(float(table.rates[at, 2]) + float(table.rates[at, 3])),
            "bundles": int(listed[at]),
        }
        for at, broker in enumerate(table.ids)
    ]


def number(value: float) -> float | None:
    """Three digits after the point are enough to read; None for what JSON has no number for."""
    return round(float(value), 3) if math.isfinite(value) else None


def _pair(record: CycleRecord, pair: Pair) -> dict[str, Any]:
    hits = hits_before(record, pair)
    return {
        **({"pool": pair.pool} if pair.pool else {}),
        "source": pair.source,
        "destination": pair.destination,
        "difference": number(pair.difference),
        "hits": {
            "low": hits.low,
            "low_wanted": record.wanted_hits.low,
            "high": hits.high,
            "high_wanted": record.wanted_hits.high,
        },
    }


def hits_before(record: CycleRecord, pair: Pair) -> Hits:
    """Counters before this turn: a dry-run counts nothing, and a firing turn has cleared them."""
    known = record.kept.hits if record.kept is not None else {}
    ends = (pair.source, pair.destination or pair.source, CLUSTER)
    both = [known.get(counter_of(end, pair.pool), Hits()) for end in ends]
    return Hits(max(hit.low for hit in both), max(hit.high for hit in both))


def _unload(unload: Unload) -> dict[str, Any]:
    return {
        "bundle": unload.bundle,
        "source": unload.source,
        "destination": unload.destination,
        "msg_rate": number(unload.msg_rate),
        "throughput": number(unload.throughput),
        "reason": unload.reason,
    }


def _skip(skip: Skip) -> dict[str, str]:
    return {"what": skip.what, "reason": skip.reason.label, "detail": skip.detail}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "bundle": outcome.unload.bundle,
        "result": outcome.result.value,
        "owner": outcome.owner,
        "attempts": outcome.attempts,
        "seconds": number(outcome.seconds),
        "detail": outcome.detail,
    }


def skips(record: CycleRecord, *, everything: bool) -> Iterator[Skip]:
    """What was said in words, then the bundles of fired sources (or of all brokers) by their code."""
    yield from record.skips
    assert record.observation is not None
    assert record.decision is not None
    snapshot, verdicts = record.observation.snapshot, record.decision.verdicts
    sources = {pair.source for pair in record.decision.facts.pairs if pair.fired}
    for at, broker in enumerate(snapshot.brokers.ids):
        if everything or broker in sources:
            for bundle in snapshot.rows.bundle[snapshot.rows.of(at)].tolist():
                reason = Reason.of(int(verdicts[bundle]))
                if reason is not Reason.MOVES:
                    yield Skip(snapshot.bundles[bundle], reason)
