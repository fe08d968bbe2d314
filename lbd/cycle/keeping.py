"""A turn as it is kept for ``lbd explain``. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lbd.cycle.document import brokers, number
from lbd.cycle.verdict import verdict
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT
from lbd.reason import Reason
from lbd.record.turns.bundles import Bundles
from lbd.record.turns.lines import BrokerSeen, Candidate, OutcomeSeen, PairSeen, Planned, Told, Turn

if TYPE_CHECKING:
    from lbd.cycle.parts import CycleRecord
    from lbd.model import Averages, Outcome, Pair, Skip, Unload

CANDIDATES = 20
"""Bundles named for each source that fired, the largest; a broker may have thousands, and nobody reads so far."""

SKIPS = 200
"""Skips told in words; bundles that a cool-down bars are counts, so more than this is a cluster in trouble."""


def kept(record: CycleRecord, at: float) -> Turn:
    """What is worth keeping of a turn. ``at`` is when it ended, for one that observed nothing."""
    seen = record.observation
    candidates, rest = _candidates(record)
    alone = {pair.ends for pair in record.decision.facts.pairs} if record.decision is not None else set()
    return Turn(
        at=seen.snapshot.taken_at if seen is not None else at,
        sentence=record.sentence,
        verdict=verdict(record),
        acts=record.acts,
        hold=Told("cluster", record.hold[0].label, record.hold[1]) if record.hold is not None else None,
        brokers=_brokers(record),
        pairs=_pairs(record),
        unloads=[_planned(unload) for unload in record.unloads],
        expected={broker: round(score, 3) for broker, score in record.expected.items() if np.isfinite(score)},
        candidates=candidates,
        rest=rest,
        skips=[_told(skip) for skip in record.skips if " -> " not in skip.what and skip.what not in alone][:SKIPS],
        counts=dict(record.counts),
        outcomes=[_outcome(outcome) for outcome in record.outcomes],
        refused=[_told(skip) for skip in record.refused],
        unfinished=len(record.unfinished),
        error=str(record.error) if record.error is not None else None,
    )


def _brokers(record: CycleRecord) -> list[BrokerSeen]:
    if record.observation is None or record.decision is None or record.evidence is None:
        return []
    evidence = record.evidence
    return [
        BrokerSeen(
            row["id"],
            row["score"],
            row["binding"],
            row["msg_rate"],
            row["throughput"],
            row["bundles"],
            evidence.samples[row["id"]].to_settle,
            Reason.of(int(evidence.paired[at])).label if evidence.paired[at] else None,
            bool(evidence.fresh[at]),
        )
        for at, row in enumerate(brokers(record))
    ]


def _pairs(record: CycleRecord) -> list[PairSeen]:
    if record.decision is None:
        return []
    told = {skip.what: skip for skip in record.decision.skips}
    return [_pair(pair, told.get(pair.ends)) for pair in record.decision.facts.pairs]


def _pair(pair: Pair, skip: Skip | None) -> PairSeen:
    return PairSeen(
        pair.source,
        pair.destination,
        round(pair.difference, 3),
        pair.hits.low,
        pair.wanted_hits.low,
        pair.hits.high,
        pair.wanted_hits.high,
        pair.fired,
        pair.pool,
        pair.measure,
        round(pair.wanted, 3) if pair.measure else None,
        skip.reason.label if skip is not None else None,
        skip.detail if skip is not None else "",
        pair.why,
    )


def _candidates(record: CycleRecord) -> tuple[list[Candidate], dict[str, dict[str, int]]]:
    """The largest bundles of each source that fired, and how many others there are of each reason."""
    if record.decision is None or record.observation is None or record.averages is None:
        return [], {}
    refused = {skip.what: skip for skip in record.skips}
    sources = dict.fromkeys(pair.source for pair in record.decision.facts.pairs if pair.fired)
    named: list[Candidate] = []
    rest: dict[str, dict[str, int]] = {}
    position = record.observation.snapshot.brokers.index()
    for source in sources:
        largest, others = _ordered(record, position[source], record.averages)
        named += [_candidate(record, source, bundle, refused, record.averages) for bundle in largest]
        codes = Counter(record.decision.verdicts[others].tolist())
        rest[source] = {Reason.of(code).label: count for code, count in codes.items() if code}
    return named, {source: counts for source, counts in rest.items() if counts}


def _ordered(record: CycleRecord, broker: int, averages: Averages) -> tuple[list[int], list[int]]:
    """A broker's bundles: what moves and the largest by messages or bytes, and all others."""
    assert record.observation is not None
    assert record.decision is not None
    rows = record.observation.snapshot.rows
    own = rows.bundle[rows.of(broker)]
    short = averages.short[own]
    with np.errstate(all="ignore"):  # numbers of a broken report: they order nothing, and must not end the turn
        messages, volume = short[:, MSG_IN] + short[:, MSG_OUT], short[:, BYTES_IN] + short[:, BYTES_OUT]
        share = np.fmax(messages / max(np.nansum(messages), 1.0), volume / max(np.nansum(volume), 1.0))
    order = own[np.argsort(-share, kind="stable")]
    moves = record.decision.verdicts[order] == Reason.MOVES.code
    first = np.zeros(order.size, dtype=np.bool_)
    first[:CANDIDATES] = True
    first[np.flatnonzero(moves)[:CANDIDATES]] = True
    asked = record.decision.verdicts[order] != Reason.NOT_ASKED.code
    return order[first & asked].tolist(), order[~first].tolist()


def _candidate(
    record: CycleRecord, source: str, bundle: int, refused: dict[str, Skip], averages: Averages
) -> Candidate:
    assert record.observation is not None
    assert record.decision is not None
    name = record.observation.snapshot.bundles[bundle]
    short = averages.short[bundle]
    skip = refused.get(name)
    reason = skip.reason if skip is not None else Reason.of(int(record.decision.verdicts[bundle]))
    rates = (number(short[MSG_IN] + short[MSG_OUT]), number(short[BYTES_IN] + short[BYTES_OUT]))
    return Candidate(name, source, *rates, reason.label, skip.detail if skip is not None else "")


def _planned(unload: Unload) -> Planned:
    ends = (unload.bundle, unload.source, unload.destination)
    return Planned(*ends, number(unload.msg_rate), number(unload.throughput), unload.reason)


def _told(skip: Skip) -> Told:
    return Told(skip.what, skip.reason.label, skip.detail)


def _outcome(outcome: Outcome) -> OutcomeSeen:
    unload = outcome.unload
    ends = (unload.bundle, unload.source, unload.destination)
    seconds = round(outcome.seconds, 3)
    return OutcomeSeen(*ends, outcome.result.value, outcome.owner, outcome.attempts, seconds, outcome.detail)


def bundles_of(record: CycleRecord) -> Bundles | None:
    """Who reports each bundle, and why it stayed; None of a turn that saw none. Of two reports the later one counts."""
    if record.observation is None or record.decision is None or record.averages is None:
        return None
    snapshot, short = record.observation.snapshot, record.averages.short
    owner = np.zeros(len(snapshot.bundles), dtype=np.int32)
    owner[snapshot.rows.bundle] = snapshot.rows.owner()
    with np.errstate(all="ignore"):
        rates = np.stack([short[:, MSG_IN] + short[:, MSG_OUT], short[:, BYTES_IN] + short[:, BYTES_OUT]], axis=1)
    columns = owner, record.decision.verdicts, rates
    return Bundles(snapshot.taken_at, snapshot.brokers.ids, snapshot.bundles, *columns)
