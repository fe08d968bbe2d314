"""The records of a turn: JSON and rows of text, the kept turn for ``lbd explain``, and the round for history."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from lbd.bundles import WITH_CLUSTER
from lbd.fields import derived
from lbd.load.scoring import percent
from lbd.load.summary import loads
from lbd.model import BYTES_IN, BYTES_OUT, CLUSTER, MSG_IN, MSG_OUT, RESOURCES, FloatArray, Hits, Skip, counter_key
from lbd.permit.served import reconnecting
from lbd.reason import Reason
from lbd.score.bounds import fewest_removed
from lbd.score.gap import gap
from lbd.store.history_round import HistoryRound
from lbd.store.predictions import Predictions
from lbd.store.proposal import PLAN_SECONDS, PlannedScore, Proposal, ProposedMove, plan_id
from lbd.store.status import HitStatus, PairStatus
from lbd.store.turn_record import (
    BrokerRecord,
    CandidateLine,
    OutcomeRecord,
    PairRecord,
    Planned,
    SkipLine,
    TurnRecord,
    Verdict,
)
from lbd.store.turns import ReportedBundles, named
from lbd.turn.strategy_config import deciding, effective
from lbd.turn.verdict import pair_skip, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lbd.config import Settings
    from lbd.model import Averages, Outcome, Pair, Snapshot, Unload
    from lbd.permit.served import ServiceResult
    from lbd.turn.parts import TurnResult


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker: score in points, usage in percent by resource (null: its limit is not known), traffic in + out."""

    id: str
    score: float | None
    binding: str | None
    usage: dict[str, float | None]
    msg_rate: float | None
    throughput: float | None
    bundles: int


class BrokerFacts(BrokerRow, frozen=True):
    """All that a turn knows of a broker; the documents and records about brokers are derived from this.

    ``to_settle``, ``doubt`` and ``fresh`` as in :class:`BrokerRecord`.
    """

    to_settle: int = 0
    doubt: str | None = None
    fresh: bool = False


class PlanPair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pair, with its hits before the round."""

    pool: str = ""
    source: str
    destination: str
    difference: float | None
    hits: HitStatus


class PlannedUnload(msgspec.Struct, frozen=True):
    """An unload of a plan, and why."""

    bundle: str
    source: str
    destination: str | None
    msg_rate: float | None
    throughput: float | None
    reason: str


class LeftOut(msgspec.Struct, frozen=True):
    """A bundle that stays, or a broker that may not have one, and why."""

    what: str
    reason: str
    detail: str


class BrokerBackground(msgspec.Struct, frozen=True):
    """A broker's load without traffic, in points, and the state of its model."""

    id: str
    state: str
    background: float | None


class TurnDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of a turn that planned; ``skipped`` counts bundles that stay, by reason."""

    taken_at: float
    cluster: str
    strategy: str
    brokers: list[BrokerRow]
    pairs: list[PlanPair]
    unloads: list[PlannedUnload]
    skips: list[LeftOut] | msgspec.UnsetType = msgspec.UNSET
    skipped: dict[str, int]
    verdict: Verdict
    summary: str
    load: list[BrokerBackground] | msgspec.UnsetType = msgspec.UNSET


def document(record: TurnResult, *, everything: bool) -> dict[str, Any]:
    """The JSON shape of a turn."""
    assert record.observation is not None
    assert record.plan.decision is not None
    snapshot, pairs = record.observation.snapshot, record.plan.pairs
    slopes = record.facts.slopes if record.facts is not None else None
    fitted = loads(snapshot.brokers.ids, slopes, {}) if slopes is not None else None
    shape = TurnDocument(
        taken_at=snapshot.taken_at,
        cluster=record.observation.cluster,
        strategy=record.chosen.name,
        brokers=[derived(BrokerRow, broker) for broker in brokers(record)],
        pairs=[
            derived(PlanPair, status, pair)
            for status, pair in zip(pair_statuses(record, before=True), pairs, strict=True)
            if pair.destination is not None
        ],
        unloads=[derived(PlannedUnload, _planned(unload)) for unload in record.plan.unloads],
        skips=[left_out(skip) for skip in skips(record, everything=everything)],
        skipped=dict(record.plan.counts),
        verdict=verdict(record),
        summary=record.sentence,
        load=msgspec.UNSET if fitted is None else [derived(BrokerBackground, load, id=load.broker) for load in fitted],
    )
    fields: dict[str, Any] = msgspec.to_builtins(shape)
    if record.moves.outcomes:
        fields["outcomes"] = [_outcome_document(outcome) for outcome in record.moves.outcomes]
    return fields


def brokers(record: TurnResult) -> list[BrokerFacts]:
    """The facts about each broker; empty for a turn that observed nothing."""
    if record.facts is None or record.plan.decision is None:
        return []
    snapshot, comparison, evidence = record.facts.snapshot, record.plan.decision.comparison, record.facts.evidence
    used, table = percent(snapshot.brokers), snapshot.brokers
    listed = snapshot.rows.count(snapshot.rows.listed)
    return [
        BrokerFacts(
            id=broker,
            score=number(comparison.scores[row]),
            binding=comparison.binding[row],
            usage={
                resource: number(used[row, column]) if table.limit[row, column] > 0 else None
                for column, resource in enumerate(RESOURCES)
            },
            msg_rate=number(float(table.rates[row, MSG_IN]) + float(table.rates[row, MSG_OUT])),
            throughput=number(float(table.rates[row, BYTES_IN]) + float(table.rates[row, BYTES_OUT])),
            bundles=int(listed[row]),
            to_settle=evidence.to_settle(row, broker),
            doubt=Reason.of(int(evidence.paired[row])).label if evidence.paired[row] else None,
            fresh=bool(evidence.fresh[row]),
        )
        for row, broker in enumerate(table.ids)
    ]


class Scored(Protocol):
    """A broker with its score, and why its report is no ground to move on."""

    @property
    def id(self) -> str: ...
    @property
    def score(self) -> float | None: ...
    @property
    def doubt(self) -> str | None: ...


def gap_points(brokers: Iterable[Scored]) -> float | None:
    """The gap: the highest score minus the lowest, in points; None where fewer than two are known.

    A drained broker does not count: it is empty on purpose, in no pair and no average.
    """
    apart = gap(np.array(compared_scores(brokers), dtype=np.float64))
    return None if np.isnan(apart) else round(apart, 3)


def mean_points(brokers: Iterable[Scored]) -> float | None:
    """The mean score of the brokers that the gap counts, in points; None where none is known."""
    scores = compared_scores(brokers)
    return round(sum(scores) / len(scores), 3) if scores else None


def compared_scores(brokers: Iterable[Scored]) -> list[float]:
    """The known scores of the brokers that count, in points."""
    return [broker.score for broker in brokers if broker.score is not None and counts(broker)]


def counts(broker: Scored) -> bool:
    """Whether a broker counts when all are compared as a whole."""
    return broker.doubt != Reason.DRAINED.label


def number(value: float) -> float | None:
    """Three digits after the point are enough to read; None for what JSON has no number for."""
    return round(float(value), 3) if math.isfinite(value) else None


def pair_statuses(record: TurnResult, *, before: bool = False) -> list[PairStatus]:
    """The pairs of a turn with their hits, this turn's counted; ``before``: without it, as of a turn that counts none.

    Empty for a turn that observed nothing.
    """
    if record.plan.decision is None:
        return []
    return [
        _pair_status(record, pair, _hits_before(record, pair) if before else pair.hits) for pair in record.plan.pairs
    ]


def _pair_status(record: TurnResult, pair: Pair, hits: Hits) -> PairStatus:
    required = record.chosen.wanted_hits
    counted = HitStatus(hits.low, required.low, hits.high, required.high)
    return PairStatus(pair.source, pair.destination, number(pair.difference), counted)


def _hits_before(record: TurnResult, pair: Pair) -> Hits:
    """Counters before this turn: a dry-run counts nothing, and a firing turn has cleared them."""
    hits = record.facts.memory.hits if record.facts is not None else {}
    ends = (pair.source, pair.destination or pair.source, CLUSTER)
    both = [hits.get(counter_key(end, pair.pool), Hits()) for end in ends]
    return Hits(max(hit.low for hit in both), max(hit.high for hit in both))


def outcome_record(outcome: Outcome) -> OutcomeRecord:
    """The outcome as records and answers have it."""
    return derived(OutcomeRecord, outcome, outcome.unload, seconds=round(outcome.seconds, 3))


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    """The outcome without source and destination, which stand with its unload."""
    fields = named(outcome_record(outcome))
    return {name: value for name, value in fields.items() if name not in {"source", "destination"}}


def left_out(skip: Skip) -> LeftOut:
    """A skip as JSON has it."""
    return LeftOut(skip.what, skip.reason.label, skip.detail)


def skips(record: TurnResult, *, everything: bool) -> Iterator[Skip]:
    """The skips with a text, then the bundles of fired sources (or of all brokers) by their code."""
    yield from record.skips
    assert record.observation is not None
    assert record.plan.decision is not None
    snapshot, verdicts = record.observation.snapshot, record.plan.decision.verdicts
    sources = {pair.source for pair in record.plan.pairs if pair.fired}
    for row, broker in enumerate(snapshot.brokers.ids):
        if everything or broker in sources:
            for bundle in snapshot.rows.bundle[snapshot.rows.of(row)].tolist():
                reason = Reason.of(int(verdicts[bundle]))
                if reason is not Reason.MOVES:
                    detail = WITH_CLUSTER if reason is Reason.NAME_WITH_CLUSTER else ""
                    yield Skip(snapshot.bundles[bundle], reason, detail)


# --- the plan of a turn under its name


class PlanDocument(TurnDocument, frozen=True, kw_only=True):
    """The JSON of a turn with its plan's :class:`~lbd.store.proposal.Proposal`.

    With ``proposed`` the plan waits for approval; otherwise it is what would move if the imbalance lasts, and nobody
    remembers it where ``expires_at`` is null. ``refused`` is why ``lbd apply`` would refuse it now; null where it would
    begin. ``plan_scores`` are the scores of all brokers now and after it, and
    ``gap_after_points`` is the gap then. ``predictions`` are the last ones of this lbd, and what came of them.
    """

    id: str
    proposed: bool
    made_at: float
    expires_at: float | None
    unloads: list[ProposedMove]  # type: ignore[assignment]
    expected: dict[str, float]
    clients: int
    approved_by: list[str]
    refused: str | None = None
    plan_scores: list[PlannedScore] = []
    gap_after_points: float | None = None
    predictions: Predictions = Predictions()


def proposal(record: TurnResult, before: Proposal | None = None) -> Proposal:
    """The plan of a turn; ``before`` is the proposal that was open when the turn began.

    It lasts longer by each turn in which one of its pairs fires.
    """
    assert record.observation is not None
    assert record.plan.decision is not None
    snapshot, name = record.observation.snapshot, plan_id(record.plan.unloads)
    fired = {pair.source for pair in record.plan.pairs if pair.fired}
    renewed = before is None or any(unload.source in fired for unload in record.plan.unloads)
    named = [unload for unload in record.plan.unloads if unload.destination is not None]
    position = snapshot.positions_of({unload.bundle for unload in named})
    moves = [
        derived(
            ProposedMove,
            _planned(unload),
            clients=clients,
            cost=0.0 if record.plan.costs is None else float(record.plan.costs[position[unload.bundle]]),
        )
        for unload, clients in zip(named, reconnecting(named, snapshot), strict=True)
    ]
    return Proposal(
        name,
        snapshot.taken_at if before is None or before.id != name else before.made_at,
        snapshot.taken_at + PLAN_SECONDS if renewed or before is None else before.expires_at,
        moves,
        _expected(record),
        sum(move.clients for move in moves),
    )


def planned_scores(brokers: Iterable[Scored], expected: Mapping[str, float]) -> tuple[list[PlannedScore], float | None]:
    """The scores of all brokers before and after a plan, the highest first, and the gap after it.

    Brokers that it does not touch keep their score.
    """
    scores = [PlannedScore(row.id, row.score, expected.get(row.id, row.score), row.doubt) for row in brokers]
    after = [PlannedScore(row.id, row.after, row.after, row.doubt) for row in scores]
    return sorted(scores, key=lambda row: -(row.score or 0.0)), gap_points(after)


def plan_document(
    record: TurnResult, plan: Proposal, refused: str, past: Predictions, *, proposed: bool
) -> dict[str, Any]:
    """The JSON shape of a plan, :class:`PlanDocument`; ``record`` is the last turn that is about it."""
    scores, gap_after = planned_scores(brokers(record), plan.expected)
    verdict_fields = {"proposed": proposed, "refused": refused or None, "gap_after_points": gap_after}
    verdict_fields |= {"plan_scores": msgspec.to_builtins(scores), "predictions": msgspec.to_builtins(past)}
    return {**document(record, everything=False), **msgspec.to_builtins(plan), **verdict_fields}


# --- the kept turn of ``lbd explain``

CANDIDATES = 20
"""Number of bundles that are named for each source that fired, the largest first; a broker may have thousands."""

SKIPS = 200
"""Skips recorded with text; bundles that a cool-down bars are counts, so more than this is a cluster in trouble."""


def turn_record(record: TurnResult, at: float) -> TurnRecord:
    """The record of a turn for ``lbd explain``. ``at`` is when it ended, for a turn that observed nothing."""
    observation, hold = record.observation, record.plan.hold
    candidates, rest = _candidates(record)
    alone = {pair.ends for pair in record.plan.pairs}
    return TurnRecord(
        at=observation.snapshot.taken_at if observation is not None else at,
        sentence=record.sentence,
        verdict=verdict(record),
        acts=record.acts,
        hold=SkipLine("cluster", hold[0].label, hold[1]) if hold is not None else None,
        brokers=[derived(BrokerRecord, broker) for broker in brokers(record)],
        pairs=_pairs(record),
        unloads=[_planned(unload) for unload in record.plan.unloads],
        expected=_expected(record),
        candidates=candidates,
        rest=rest,
        skips=[_skip_line(skip) for skip in record.skips if " -> " not in skip.what and skip.what not in alone][:SKIPS],
        counts=dict(record.plan.counts),
        outcomes=[outcome_record(outcome) for outcome in record.moves.outcomes],
        refused=[_skip_line(skip) for skip in record.moves.skips],
        unfinished=len(record.moves.unfinished),
        crowded=list(record.plan.crowded),
        dear_kinds=list(record.plan.dear_kinds),
        error=str(record.error) if record.error is not None else None,
    )


def _expected(record: TurnResult) -> dict[str, float]:
    """Score of each broker that the plan touches, once all its moves have landed."""
    return {broker: round(score, 3) for broker, score in record.plan.expected.items() if np.isfinite(score)}


def _pairs(record: TurnResult) -> list[PairRecord]:
    if record.plan.decision is None:
        return []
    skipped = {skip.what for skip in record.plan.decision.skips}
    pairs = record.plan.pairs
    return [_pair_seen(pair, pair_skip(record, pair) if pair.ends in skipped else None) for pair in pairs]


def _pair_seen(pair: Pair, skip: Skip | None) -> PairRecord:
    return derived(
        PairRecord,
        pair,
        difference=round(pair.difference, 3),
        low=pair.hits.low,
        low_wanted=pair.wanted_hits.low,
        high=pair.hits.high,
        high_wanted=pair.wanted_hits.high,
        wanted=round(pair.wanted, 3) if pair.measure else None,
        reason=skip.reason.label if skip is not None else None,
        detail=skip.detail if skip is not None else "",
    )


def _candidates(record: TurnResult) -> tuple[list[CandidateLine], dict[str, dict[str, int]]]:
    """The largest bundles of each source that fired, and how many others there are of each reason."""
    if record.plan.decision is None or record.observation is None or record.facts is None:
        return [], {}
    refused = {skip.what: skip for skip in record.skips}
    sources = dict.fromkeys(pair.source for pair in record.plan.pairs if pair.fired)
    named: list[CandidateLine] = []
    rest: dict[str, dict[str, int]] = {}
    position = record.observation.snapshot.brokers.index()
    for source in sources:
        largest, others = _ordered(record, position[source], record.facts.averages)
        named += [_candidate(record, source, bundle, refused, record.facts.averages) for bundle in largest]
        codes = Counter(record.plan.decision.verdicts[others].tolist())
        rest[source] = {Reason.of(code).label: count for code, count in codes.items() if code}
    return named, {source: counts for source, counts in rest.items() if counts}


def _ordered(record: TurnResult, broker: int, averages: Averages) -> tuple[list[int], list[int]]:
    """A broker's bundles: what moves and the largest by messages or bytes, and all others."""
    assert record.observation is not None
    assert record.plan.decision is not None
    rows = record.observation.snapshot.rows
    own = rows.bundle[rows.of(broker)]
    short = averages.short[own]
    with np.errstate(all="ignore"):  # numbers of a broken report: they order nothing, and must not end the turn
        messages, volume = short[:, MSG_IN] + short[:, MSG_OUT], short[:, BYTES_IN] + short[:, BYTES_OUT]
        share = np.fmax(messages / max(np.nansum(messages), 1.0), volume / max(np.nansum(volume), 1.0))
    order = own[np.argsort(-share, kind="stable")]
    moves = record.plan.decision.verdicts[order] == Reason.MOVES.code
    first = np.zeros(order.size, dtype=np.bool_)
    first[:CANDIDATES] = True
    first[np.flatnonzero(moves)[:CANDIDATES]] = True
    considered = record.plan.decision.verdicts[order] != Reason.NOT_ASKED.code
    return order[first & considered].tolist(), order[~first].tolist()


def _candidate(
    record: TurnResult, source: str, bundle: int, refused: dict[str, Skip], averages: Averages
) -> CandidateLine:
    assert record.observation is not None
    assert record.plan.decision is not None
    name = record.observation.snapshot.bundles[bundle]
    short = averages.short[bundle]
    skip = refused.get(name)
    reason = skip.reason if skip is not None else Reason.of(int(record.plan.decision.verdicts[bundle]))
    rates = (number(short[MSG_IN] + short[MSG_OUT]), number(short[BYTES_IN] + short[BYTES_OUT]))
    return CandidateLine(name, source, *rates, reason.label, skip.detail if skip is not None else "")


def _planned(unload: Unload) -> Planned:
    return derived(Planned, unload, msg_rate=number(unload.msg_rate), throughput=number(unload.throughput))


def _skip_line(skip: Skip) -> SkipLine:
    return SkipLine(skip.what, skip.reason.label, skip.detail)


def reported_bundles(record: TurnResult) -> ReportedBundles | None:
    """The reporter of each bundle, and why it stayed; None if nothing was observed. The later of two reports counts."""
    if record.observation is None or record.plan.decision is None or record.facts is None:
        return None
    snapshot, short = record.observation.snapshot, record.facts.averages.short
    owner = np.zeros(len(snapshot.bundles), dtype=np.int32)
    owner[snapshot.rows.bundle] = snapshot.rows.owner()
    with np.errstate(all="ignore"):
        rates = np.stack([short[:, MSG_IN] + short[:, MSG_OUT], short[:, BYTES_IN] + short[:, BYTES_OUT]], axis=1)
    columns = owner, record.plan.decision.verdicts, rates
    return ReportedBundles(snapshot.taken_at, snapshot.brokers.ids, snapshot.bundles, *columns)


# --- the round of history


def history_round(record: TurnResult, settings: Settings) -> HistoryRound | None:
    """The round for history of a turn that was made under these settings; None if it observed nothing."""
    if record.observation is None or record.plan.decision is None or record.facts is None:
        return None
    snapshot, evidence = record.observation.snapshot.as_reported(), record.facts.evidence
    used = percent(snapshot.brokers)
    return HistoryRound(
        snapshot,
        evidence.fresh,
        np.where(snapshot.brokers.limit > 0, used, np.nan),
        record.plan.decision.comparison.scores,
        record.plan.decision.comparison.binding,
        tuple(Reason.of(code).label if code else None for code in evidence.paired.tolist()),
        _decision(record, settings),
        (
            *(_move_row(record, outcome) for outcome in (*record.moves.outcomes, *record.moves.amended)),
            *(_move_row(record, replace(landing.outcome, amended=True), service) for landing, service in record.served),
        ),
    )


def _move_row(record: TurnResult, outcome: Outcome, service: ServiceResult | None = None) -> dict[str, object]:
    """A row of the moves; what is known only after the outcome gets a row of its own."""
    before, after = outcome.unload.clients_before, service.clients_after if service is not None else None
    counts = {
        f"{name}_{when}": getattr(clients, name) if clients is not None else None
        for when, clients in (("before", before), ("after", after))
        for name in ("topics", "producers", "consumers")
    }
    row = {"turn": record.number, **vars(outcome.unload), **vars(outcome), **counts}
    if service is None:
        return {**row, "reconnect_seconds": None, "served": None}
    fields = {"reconnect_seconds": service.reconnect_seconds, "served": service.served, "detail": service.served_detail}
    return {**row, **fields}


def _decision(record: TurnResult, settings: Settings) -> dict[str, object]:
    return {
        "turn": record.number,
        "strategy": settings.strategy,
        "settings": effective(settings).model_dump_json(),
        "all_settings": msgspec.json.encode(deciding(settings)).decode(),
        "sentence": record.sentence,
        "verdict": verdict(record).kind,
        "hold": record.plan.hold[0].label if record.plan.hold is not None else None,
        "acts": record.acts,
        "planned": len(record.plan.unloads),
        "skipped": msgspec.json.encode(dict(record.plan.counts)).decode(),
    }


# --- planned moves beside the lower bound of any plan that gets the brokers as low


def fewest(record: TurnResult) -> int:
    """The fewest moves of any plan after which no broker stands higher than after this one; 0 where none was planned.

    Each bundle weighs its share of its broker's bytes times the broker's score. Only brokers that stand above that peak
    are looked at, so this costs nothing where nothing is planned, and little where something is.
    """
    if not record.plan.unloads or record.observation is None or record.plan.decision is None:
        return 0
    snapshot, scores = record.observation.snapshot, np.nan_to_num(record.plan.decision.comparison.scores)
    moved = {unload.bundle for unload in record.plan.unloads}
    sources, destinations = (
        {getattr(unload, end) for unload in record.plan.unloads} for end in ("source", "destination")
    )
    peak, weights = 0.0, list[tuple[FloatArray, float]]()
    for row, broker in enumerate(snapshot.brokers.ids):
        score = after = float(scores[row])
        if broker in sources:
            points, gone = _weights(snapshot, row, score, moved)
            weights.append((points, score - float(points.sum()) if snapshot.partial else 0.0))
            after -= gone
        if broker in destinations:
            after = max(after, float(np.nan_to_num(record.plan.expected.get(broker, after))))
        peak = max(peak, after)
    return sum(_least(points, peak - rest) for points, rest in weights)


def _weights(snapshot: Snapshot, broker: int, score: float, moved: set[str]) -> tuple[FloatArray, float]:
    """Points of each bundle of a broker, float64 (N,), and of those that the plan takes from it."""
    rows = snapshot.rows.of(broker)
    share = np.nan_to_num(snapshot.rows.rates[rows][:, [BYTES_IN, BYTES_OUT]].sum(axis=1))
    total = float(share.sum())
    if snapshot.partial:  # the rest is carried by bundles that are not reported
        total = max(total, float(np.nan_to_num(snapshot.brokers.rates[broker, [BYTES_IN, BYTES_OUT]].sum())))
    points = share * (score / total) if total > 0 else np.zeros(len(share))
    gone = [name in moved for name in (snapshot.bundles[index] for index in snapshot.rows.bundle[rows].tolist())]
    return points, float(points[np.array(gone, dtype=np.bool_)].sum())


def _least(points: FloatArray, peak: float) -> int:
    return fewest_removed(points, np.zeros(len(points), dtype=np.int32), np.array([peak]))
