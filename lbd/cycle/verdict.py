"""What a turn comes to, in one word with its reason: the question that a person on call asks first. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lbd.cycle.telling import begun_of
from lbd.reason import Group, Reason
from lbd.record.turns.lines import Verdict
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cycle.parts import CycleRecord
    from lbd.model import Decision, Pair, Skip
    from lbd.observe.observer import Observation
    from lbd.record.turns.lines import Kind

BLIND = frozenset({Reason.TOO_FEW_BROKERS, Reason.MEMBERSHIP_CHANGED})
"""Holds under which a small difference between the brokers that are seen says nothing of the cluster."""

WAITS = frozenset({Reason.WAITING, Reason.NO_NEW_SAMPLE, Reason.SETTLING})
ORDER = ("waiting", "held", "not-fixable")
"""Of several pairs, the one that something will come of is told first; among equals the widest."""


def verdict(record: CycleRecord) -> Verdict:
    """Balanced, waiting, moving, held, not fixable by moving, or unknown: see the functions below, in their order."""
    if record.observation is None or record.decision is None:
        return Verdict("unknown", detail=str(record.error) if record.error is not None else "nothing was observed")
    calm = _calm(record, record.decision, record.observation)
    return _held(record) or _moving(record) or calm or _of_pairs(record, record.decision)


def _held(record: CycleRecord) -> Verdict | None:
    """A hold keeps something back: a pair that is too far apart, or the right to judge at all."""
    assert record.decision is not None
    if record.hold is None or record.hold[0] is Reason.MOVES_UNFINISHED:
        return None
    reason, detail = record.hold
    pairs = record.decision.facts.pairs
    if not pairs and reason not in BLIND:
        return None
    apart = _are(pairs[0]) if pairs else ""
    return Verdict("held", reason.label, "; ".join(filter(None, (detail, apart))))


def _moving(record: CycleRecord) -> Verdict | None:
    """Moves are begun or under way; where plans are only shown, they would be."""
    begun, flying = len(record.unloads), len(record.unfinished)
    if not (begun or flying):
        return None
    if record.acts:
        return Verdict("moving", detail=", ".join(_numbers(record)))
    would = f"{counted(begun, 'bundle')} would move"
    if record.eager:
        return Verdict("moving", detail=f"{would} if the imbalance lasts")
    return Verdict("held", Reason.OBSERVE_ONLY.label, would)


def _numbers(record: CycleRecord) -> Iterator[str]:
    """How many of its own moves have begun, and, where they were waited for, how they ended; and those of before."""
    own = {unload.bundle for unload in record.unloads}
    ended = Counter(one.result.value for one in record.outcomes if one.unload.bundle in own)
    ended.update("not sent" for skip in record.refused if skip.what in own)
    if begun := begun_of(record):
        yield f"{begun} begun"
    yield from (f"{number} {word}" for word, number in ended.items())
    if record.unfinished:
        yield f"{len(record.unfinished)} under way"


def _calm(record: CycleRecord, decision: Decision, observation: Observation) -> Verdict | None:
    """No two brokers are too far apart, or none could be compared: policies may leave each its own pool."""
    if decision.facts.pairs:
        return None
    calm = next((skip for skip in decision.skips if skip.reason is Reason.BALANCED), None)
    few = next((skip for skip in decision.skips if skip.reason is Reason.TOO_FEW_BROKERS), None)
    if calm is None and few is not None and few.what != "cluster":
        return Verdict("not-fixable", Reason.ISOLATION_POLICY.label, f"{few.what}: {few.detail}")
    if calm is None and few is not None:
        return Verdict("unknown", few.reason.label, few.detail)
    detail = calm.detail if calm is not None else ""
    unseen = [*_doubted(record, observation), *_silent(observation)]
    if not unseen:
        return Verdict("balanced", detail=detail)
    seen = f"among {len(observation.active) - len(unseen)} of {len(observation.active)} brokers"
    return Verdict("balanced", detail="; ".join(filter(None, (seen, detail, ", ".join(unseen)))))


def _silent(observation: Observation) -> Iterator[str]:
    return (f"{broker} gives no report ({why})" for broker, why in observation.missing.items())


def _doubted(record: CycleRecord, observation: Observation) -> Iterator[str]:
    if record.evidence is None:
        return
    for broker, code in zip(observation.snapshot.brokers.ids, record.evidence.paired.tolist(), strict=True):
        if code == Reason.DRAINED.code:
            yield f"{broker} is being drained"
        elif code:
            yield f"the report of {broker} is not used ({Reason.of(code).label})"


def _of_pairs(record: CycleRecord, decision: Decision) -> Verdict:
    told = {skip.what: skip for skip in decision.skips}
    found = [_of_pair(record, decision, pair, told.get(pair.ends)) for pair in decision.facts.pairs]
    return min(found, key=lambda one: ORDER.index(one.kind))


def _of_pair(record: CycleRecord, decision: Decision, pair: Pair, skip: Skip | None) -> Verdict:
    """Why nothing came of a pair: it waits, a limit holds its bundles, or moving does not help."""
    if skip is None:
        return _kept_back(record, pair)
    if skip.reason in WAITS:
        reason = Reason.SETTLING if skip.reason is Reason.SETTLING else Reason.WAITING
        return Verdict("waiting", reason.label, _at(pair, skip.detail), samples_left(record, pair))
    reason = _why_nothing_fits(record, decision, pair) if skip.reason is Reason.NOTHING_FITS else skip.reason
    return Verdict(_kind(reason), reason.label, _at(pair, skip.detail))


def samples_left(record: CycleRecord, pair: Pair) -> int:
    """Fresh samples until the pair fires, if it stays as far apart: those that let it settle, and those it counts."""
    missing = pair.wanted_hits.low - pair.hits.low
    if pair.hits.high:
        missing = min(missing, pair.wanted_hits.high - pair.hits.high)
    samples = record.evidence.samples if record.evidence is not None else {}
    ends = {pair.source, pair.destination or pair.source}
    unsettled = max((samples[end].to_settle for end in ends if end in samples), default=0)
    return max(missing, 1) + max(unsettled - 1, 0)


def _kept_back(record: CycleRecord, pair: Pair) -> Verdict:
    """The pair fired, and a limit, a policy or a safety rule refused every bundle that was chosen."""
    assert record.decision is not None
    chosen = {unload.bundle for unload in record.decision.unloads if unload.source == pair.source}
    refused = [skip for skip in record.skips if skip.what in chosen]
    if not refused:
        return Verdict("not-fixable", Reason.NOTHING_FITS.label, _at(pair, ""))
    first = refused[0]
    number = f"{len(refused)} bundles chosen, the first: " if len(refused) > 1 else f"{first.what}: "
    return Verdict(_kind(first.reason), first.reason.label, _at(pair, number + first.detail))


def _why_nothing_fits(record: CycleRecord, decision: Decision, pair: Pair) -> Reason:
    """Every bundle is too large, or those that are not may not move: then what bars most of them."""
    assert record.observation is not None
    snapshot = record.observation.snapshot
    own = snapshot.rows.bundle[snapshot.rows.of(snapshot.brokers.index()[pair.source])]
    codes, numbers = np.unique(decision.verdicts[own], return_counts=True)
    found = {Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)}
    if Reason.TOO_LARGE in found:
        return Reason.TOO_LARGE
    bars = {reason: number for reason, number in found.items() if reason.group is not Group.NORMAL}
    bars.pop(Reason.BROKER_BUNDLE, None)
    return max(bars, key=lambda reason: bars[reason]) if bars else Reason.NOTHING_FITS


def _kind(reason: Reason) -> Kind:
    """A limit lets go by itself, with time."""
    return "held" if reason.group is Group.LIMIT else "not-fixable"


def _at(pair: Pair, detail: str) -> str:
    ends = f"{pair.source}:" if pair.destination is None else pair.ends
    return f"{ends} {pair.apart}{detail and f'; {detail}'}"


def _are(pair: Pair) -> str:
    return _at(pair, "") if pair.destination is None else f"{pair.ends} are {pair.apart}"
