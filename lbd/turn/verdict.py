"""The message of a turn: one sentence, and a verdict (one word with its reason) for the person on call."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lbd.model import CLUSTER, Result, Skip
from lbd.reason import Group, Reason, cause
from lbd.store.proposal import plan_id
from lbd.store.turn_record import Verdict
from lbd.text import counted, first_clauses
from lbd.turn.plan import PASSED_OVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.model import Decision, Pair
    from lbd.store.turn_record import Kind
    from lbd.turn.parts import TurnResult


def sentence(record: TurnResult) -> str:
    """The turn in one sentence, with what a canary holds, the brokers that do not answer, and those that are slow."""
    text = _sentence(record)
    more = [*filter(None, (record.plan.canary.words, _unheard_text(record), _slow_text(record)))]
    return f"{'; '.join((text.removesuffix('.'), *more))}." if more else text


def _unheard_text(record: TurnResult) -> str:
    observation = record.observation
    if observation is None or not observation.silent:
        return ""
    first, more = observation.silent[0], len(observation.silent) - 1
    return f"{first} {observation.missing[first]}" + (f", nor do {more} more" if more else "")


def _slow_text(record: TurnResult) -> str:
    slow = [skip for skip in record.skips if skip.reason is Reason.SLOW_BROKER and skip.what in _avoided(record)]
    if not slow:
        return ""
    others = f", nor to {len(slow) - 1} more" if len(slow) > 1 else ""
    return f"nothing goes to {_skip_text(slow[0])}{others}"


def _avoided(record: TurnResult) -> frozenset[str]:
    return record.facts.evidence.health.avoided if record.facts is not None else frozenset()


def _sentence(record: TurnResult) -> str:
    if (text := _finished_text(record)) or record.plan.gave_up:
        return _after_earlier_moves(record, text)
    if record.plan.unloads:
        plan = _waves(record) or _plan(record)
        verb = "Proposes to move" if record.approval else "Begins to move" if record.acts else "Would move"
        moves = f"{verb} {counted(len(record.plan.unloads), 'bundle')}{_lasting(record)}{plan}"
        return f"{'; '.join((moves, *_blocked_beside(record)))}."
    pairs = _widest_first(record)
    if record.plan.hold is not None:
        reason, detail = record.plan.hold
        return _no(f"{'; '.join((reason.message(detail), *map(_are, pairs[:1])))}.")
    general = [skip for skip in record.skips if skip.what == CLUSTER or skip.what.startswith("pool ")]
    if pairs and not any(skip.what == CLUSTER for skip in general):
        blocked = next((pair for pair in pairs if pair_skip(record, pair).reason.group is Group.LIMIT), pairs[0])
        return _no(f"{'; '.join(_pair_text(record, pair) for pair in dict.fromkeys((pairs[0], blocked)))}.")
    reasons = general or record.skips
    if reasons and reasons[0].reason is Reason.BALANCED and not_compared(record):
        return _no(f"{_compared_text(record, reasons[0].detail)}.")
    return _no(f"{_skip_text(reasons[0])}.") if reasons else "No move."


def _after_earlier_moves(record: TurnResult, finished: str) -> str:
    """The moves that have ended, those that begin, and why an earlier plan ended.

    A turn has one verdict: "No move" is said of a turn in which none ended and none begins.
    """
    under_way = moves_under_way(record)
    if not under_way and not (finished and record.plan.gave_up):
        return finished or _no(f"{record.plan.gave_up}.")
    begins = f"begins to move {counted(under_way, 'bundle')}{_waves(record)}" if under_way else ""
    parts = [finished.removesuffix("."), begins, record.plan.gave_up]
    text = "; ".join(filter(None, parts if record.moves.outcomes or not under_way else (begins, parts[0], parts[2])))
    return f"{text[0].upper()}{text[1:]}."


LEFT_OUT = (
    *(Reason.DRAINED, Reason.SLOW_BROKER, Reason.SETTLING, Reason.REPORT_MISSING, Reason.REPORT_EMPTY),
    *(Reason.FIRST_SAMPLE, Reason.NO_NEW_SAMPLE, Reason.IMPOSSIBLE_NUMBER, Reason.UNKNOWN_RESOURCES),
)
"""Every reason for which a broker is compared with no other."""


def not_compared(record: TurnResult) -> dict[str, tuple[Reason, str]]:
    """The active brokers that the strategy did not compare with others, each with the reason and its detail.

    A verdict about some brokers says how many, and which were not compared; such a cluster is not called balanced.
    """
    observation, facts, decision = record.observation, record.facts, record.plan.decision
    if observation is None or facts is None or decision is None:
        return {}
    uncompared = {broker: (Reason.REPORT_MISSING, why) for broker, why in observation.missing.items()}
    ids, compared = facts.snapshot.brokers.ids, decision.comparison.compared
    codes = facts.evidence.paired.tolist()
    for broker, code, counts in zip(ids, codes, [True] * len(ids) if compared is None else compared, strict=True):
        if code or not counts:
            uncompared[broker] = (Reason.of(code) if code else Reason.SETTLING), ""
    return uncompared


def _compared_text(record: TurnResult, detail: str) -> str:
    """How many brokers were compared with what result, and which were not."""
    assert record.observation is not None
    active, uncompared = len(record.observation.active), not_compared(record)
    compared = f"{active - len(uncompared)} of {active} brokers are compared"
    names = first_clauses([f"{broker} ({reason.message(why)})" for broker, (reason, why) in uncompared.items()])
    return f"{compared}{detail and f', {detail}'}; not compared: {names}"


def _widest_first(record: TurnResult) -> list[Pair]:
    """The strategy's pairs of all pools, the largest difference first."""
    pairs = record.plan.pairs
    return sorted(pairs, key=lambda pair: -pair.difference)


def pair_skip(record: TurnResult, pair: Pair) -> Skip:
    """Why no bundle of a pair moves: a limit at present, something it waits for, or why its bundles were refused."""
    assert record.plan.decision is not None
    skip = next((skip for skip in record.plan.decision.skips if skip.what == pair.ends), None)
    block = record.plan.blocked.get(pair.ends)
    held = pair.source in record.plan.canary.held
    if block is not None and (skip is None or skip.reason in WAITS or skip.reason is block.reason or held):
        return block
    if skip is not None:
        return skip
    chosen = {unload.bundle for unload in record.plan.decision.unloads if unload.source == pair.source}
    refused = [skip for skip in record.skips if skip.what in chosen]
    if not refused:
        return Skip(pair.ends, Reason.NOTHING_FITS)
    first = refused[0]
    number = f"{len(refused)} bundles chosen, the first: " if len(refused) > 1 else f"{first.what}: "
    return Skip(pair.ends, first.reason, number + first.detail)


def _pair_text(record: TurnResult, pair: Pair) -> str:
    skip = pair_skip(record, pair)
    if skip.reason.group is not Group.LIMIT:
        return _skip_text(skip)
    return f"{_at(pair, '')}, blocked {cause(skip.reason.label)}{skip.detail and f': {skip.detail}'}"


def _blocked_beside(record: TurnResult) -> list[str]:
    """The widest of the pairs that are blocked while others move."""
    moving = {unload.source for unload in (*record.plan.unloads, *record.moves.unfinished)}
    pairs = [pair for pair in _widest_first(record) if pair.ends in record.plan.blocked and pair.source not in moving]
    return [_pair_text(record, pair) for pair in pairs[:1]]


def _finished_text(record: TurnResult) -> str:
    """Finished moves and errors, as text; empty when there are none."""
    number = len(record.moves.outcomes) + len(record.moves.skips)
    if record.error is not None and not record.moves.outcomes:
        return str(record.error) if moves_under_way(record) else _no(record.error)
    if record.error is not None:
        total = number + len(record.moves.unfinished)
        return f"Stopped after {len(record.moves.outcomes)} of {counted(total, 'bundle')}: {record.error}"
    return _moved(record) if number else ""


def moves_under_way(record: TurnResult) -> int:
    """Moves of the turn's own plan that are under way at its end; none if the turn waited for them."""
    finished = {outcome.unload.bundle for outcome in record.moves.outcomes} | {skip.what for skip in record.moves.skips}
    return sum(unload.bundle not in finished for unload in record.plan.unloads) if record.acts else 0


def _no(why: object) -> str:
    return f"No move: {why}"


def _lasting(record: TurnResult) -> str:
    if not record.chosen.eager:
        return ""
    held = next((skip for skip in record.skips if skip.detail.startswith(PASSED_OVER)), None)
    now = f", but not now: {held.reason.label}" if held is not None else ""
    return f" if the imbalance lasts{record.chosen.assumed and f' ({record.chosen.assumed})'}{now}"


def _waves(record: TurnResult) -> str:
    """Which wave of a plan begins, and how much is left for further ones."""
    rest = record.plan.rest
    return f" (wave {rest.waves} of plan {rest.plan}, {len(rest.unloads)} to follow)" if rest is not None else ""


def _plan(record: TurnResult) -> str:
    """The strategy's note on its plan as a whole, before limits; and the command that approves the plan."""
    note = record.plan.decision.comparison.summary if record.plan.decision is not None else ""
    if not record.approval:
        return note and f" ({note})"
    name = plan_id(record.plan.unloads)
    return f" (plan {name}{note and f'; {note}'}): lbd apply {name}"


def _moved(record: TurnResult) -> str:
    """The finished moves by result, and the number under way."""
    results = Counter(outcome.result.value for outcome in record.moves.outcomes)
    results.update({"not asked for": len(record.moves.skips)} if record.moves.skips else {})
    total = sum(results.values()) + len(record.moves.unfinished)
    counts = ", ".join(f"{number} {result}" for result, number in results.items())
    more = f"; {len(record.moves.unfinished)} under way" if record.moves.unfinished else ""
    return f"Moved {results[Result.LANDED.value]} of {counted(total, 'bundle')}: {counts}{more}."


def _skip_text(skip: Skip) -> str:
    detail = f" ({skip.detail})" if skip.detail else ""
    return f"{skip.what}: {skip.reason.label}{detail}"


# --- verdict

BLIND = frozenset({Reason.TOO_FEW_BROKERS, Reason.MEMBERSHIP_CHANGED})
"""Holds under which a small difference between the visible brokers proves nothing about the cluster."""

NOT_ITS_OWN = frozenset({Reason.NOT_LEADER, Reason.OBSERVE_ONLY})
"""Holds under which another lbd, or a person, is to move."""

WAITS = frozenset({Reason.WAITING, Reason.NO_NEW_SAMPLE, Reason.SETTLING})
ORDER = ("blocked", "waiting", "not-fixable")
"""The order in which pairs are named: a blocked one first, then a waiting one; among equals the widest."""


def verdict(record: TurnResult) -> Verdict:
    """Balanced, waiting, moving, blocked, held, not fixable by moves, or unknown: see the functions below."""
    if record.observation is None or record.plan.decision is None:
        return Verdict("unknown", detail=str(record.error) if record.error is not None else "nothing was observed")
    calm = _calm_verdict(record, record.plan.decision)
    first = _held(record) or _moving(record) or calm or _waits_for_moves(record) or _of_pairs(record)
    held_back = "" if first.reason == Reason.CANARY.label else record.plan.canary.words  # said once
    detail = "; ".join(filter(None, (first.detail, held_back)))
    return msgspec.structs.replace(first, detail=detail)


def _held(record: TurnResult) -> Verdict | None:
    """A hold blocks a pair that is too far apart, unless another one is to move it; or nothing can be judged."""
    if record.plan.hold is None or record.plan.hold[0] is Reason.MOVES_UNFINISHED:
        return None
    reason, detail = record.plan.hold
    pairs = _widest_first(record)
    if not pairs and reason not in BLIND:
        return None
    kind: Kind = "blocked" if pairs and reason not in NOT_ITS_OWN else "held"
    return Verdict(kind, reason.label, "; ".join(filter(None, (detail, *map(_are, pairs[:1])))))


def _moving(record: TurnResult) -> Verdict | None:
    """Moves are begun or under way, or would be if plans were not only shown."""
    planned, under_way = len(record.plan.unloads), len(record.moves.unfinished)
    if not (planned or under_way):
        return None
    if record.acts or under_way:
        return Verdict("moving", detail="; ".join((", ".join(_numbers(record)), *_blocked_beside(record))))
    would = f"{counted(planned, 'bundle')} would move"
    if record.chosen.eager:
        return Verdict("moving", detail=f"{would} if the imbalance lasts")
    if record.approval:
        return Verdict("held", Reason.APPROVAL_REQUIRED.label, f"{would}: lbd apply {plan_id(record.plan.unloads)}")
    return Verdict("held", Reason.OBSERVE_ONLY.label, would)


def _waits_for_moves(record: TurnResult) -> Verdict | None:
    """A drain, a fill or a rollout is at work: a pair that is too far apart is judged when it has ended."""
    if record.plan.hold is None or record.plan.hold[0] is not Reason.MOVES_UNFINISHED:
        return None
    reason, detail = record.plan.hold
    return Verdict("waiting", reason.label, "; ".join((detail, *map(_are, _widest_first(record)[:1]))))


def _numbers(record: TurnResult) -> Iterator[str]:
    """How many of its own moves are under way, how the others ended, and how many earlier moves are under way."""
    own = {unload.bundle for unload in record.plan.unloads}
    results = Counter(outcome.result.value for outcome in record.moves.outcomes if outcome.unload.bundle in own)
    results.update("not sent" for skip in record.moves.skips if skip.what in own)
    if under_way := moves_under_way(record):
        yield f"{under_way} begun"
    yield from (f"{number} {word}" for word, number in results.items())
    if record.moves.unfinished:
        yield f"{len(record.moves.unfinished)} under way"


def _calm_verdict(record: TurnResult, decision: Decision) -> Verdict | None:
    """No two brokers are too far apart, or none could be compared: policies may leave each its own pool."""
    if decision.comparison.pairs:
        return None
    calm = next((skip for skip in decision.skips if skip.reason is Reason.BALANCED), None)
    few = next((skip for skip in decision.skips if skip.reason is Reason.TOO_FEW_BROKERS), None)
    if calm is None and few is not None:
        return _of_few(record, few)
    cluster = (skip for skip in decision.skips if skip.what == CLUSTER or skip.what.startswith("pool "))
    homeless = next((skip for skip in cluster if skip.reason is Reason.ISOLATION_POLICY), None)
    if homeless is not None:
        return Verdict("not-fixable", homeless.reason.label, f"{homeless.what}: {homeless.detail}")
    detail = calm.detail if calm is not None else ""
    if not_compared(record):
        return Verdict("partial", detail=_compared_text(record, detail))
    return Verdict("balanced", detail=detail)


def _of_few(record: TurnResult, few: Skip) -> Verdict:
    """Policies may leave a pool one broker for good; brokers that are not compared may be compared again."""
    if few.what == CLUSTER:
        return Verdict("unknown", few.reason.label, few.detail)
    if not_compared(record):
        return Verdict("unknown", few.reason.label, f"{few.what}: {_compared_text(record, '')}")
    return Verdict("not-fixable", Reason.ISOLATION_POLICY.label, f"{few.what}: {few.detail}")


def _of_pairs(record: TurnResult) -> Verdict:
    """The verdict on the most important pair, with the brokers that no pair could have."""
    first = _of_first_pair(record)
    if not not_compared(record):
        return first
    return msgspec.structs.replace(first, detail=f"{first.detail}; {_compared_text(record, '')}")


def _of_first_pair(record: TurnResult) -> Verdict:
    """The verdict on the most important pair; if it is not the widest pair, that one is named beside it."""
    verdicts = [_of_pair(record, pair) for pair in _widest_first(record)]
    first, widest = min(verdicts, key=lambda judged: ORDER.index(judged.kind)), verdicts[0]
    if first is widest:
        return first
    return msgspec.structs.replace(first, detail=f"{first.detail}; and {widest.head}: {widest.detail}")


def _of_pair(record: TurnResult, pair: Pair) -> Verdict:
    """Why no bundle of a pair moves: it waits, a limit blocks it, or moving does not help."""
    skip = pair_skip(record, pair)
    if skip.reason in WAITS:
        reason = Reason.SETTLING if skip.reason is Reason.SETTLING else Reason.WAITING
        return Verdict("waiting", reason.label, _at(pair, skip.detail), samples_left(record, pair))
    kind: Kind = "blocked" if skip.reason.group is Group.LIMIT else "not-fixable"
    return Verdict(kind, skip.reason.label, _at(pair, skip.detail))


def samples_left(record: TurnResult, pair: Pair) -> int:
    """Fresh samples until the pair fires, if it stays as far apart: those that let it settle, and those it counts."""
    missing = pair.wanted_hits.low - pair.hits.low
    if pair.hits.high:
        missing = min(missing, pair.wanted_hits.high - pair.hits.high)
    unsettled = 0
    if record.observation is not None and record.facts is not None:
        position = record.observation.snapshot.brokers.index()
        ends = {pair.source, pair.destination or pair.source} & position.keys()
        unsettled = max(record.facts.evidence.to_settle(position[end], end) for end in ends)
    return max(missing, 1) + max(unsettled - 1, 0)


def _at(pair: Pair, detail: str) -> str:
    ends = f"{pair.source}:" if pair.destination is None else pair.ends
    return f"{ends} {pair.apart}{detail and f'; {detail}'}"


def _are(pair: Pair) -> str:
    return _at(pair, "") if pair.destination is None else f"{pair.ends} are {pair.apart}"
