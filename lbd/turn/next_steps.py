"""The answer to "what should I do?" after a turn: the remedies of the reasons that its record gives. Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, bundle_namespace
from lbd.permit.eligibility import broker_bundles
from lbd.permit.membership import settled_at
from lbd.permit.quiet_hours import quiet_until
from lbd.reason import Reason
from lbd.remedy import REMEDIES, NextStep, next_step
from lbd.turn.verdict import not_compared, pair_skip, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.model import Pair, Snapshot
    from lbd.permit.settings import Guardrails
    from lbd.store.proposal import Proposal
    from lbd.store.turn_record import Verdict
    from lbd.turn.parts import TurnResult


FAILED_TURN, EMPTY_BROKER, FULL_BROKERS = "failed-turn", "empty-broker", "full-brokers"
"""Reasons of steps that are no reason not to move something."""

OF_DESTINATIONS = frozenset({Reason.SLOW_BROKER, Reason.DRAINED})
"""Reasons of a pair that are about the broker that would be given bundles."""

FOR_GOOD = frozenset(reason.label for reason, remedy in REMEDIES.items() if remedy.command.startswith("lbd split "))
"""Reasons whose remedy is a split, which cannot be undone: what else there is to do comes before it."""

FOR_OTHERS = frozenset({Reason.NOT_LEADER, Reason.OBSERVE_ONLY})
"""Holds that want nothing of a person while the brokers are balanced."""


CALM = frozenset({"balanced", "partial"})
"""Verdicts under which such a hold wants nothing."""

_ALWAYS_QUIET = NextStep(
    reason=Reason.QUIET_HOURS.label,
    do="Change guardrails.quiet_hours, which leave no time of the week, and reload lbd (SIGHUP); what is set",
    command="lbd config show",
)


def next_steps(
    record: TurnResult,
    guardrails: Guardrails,
    waiting: Proposal | None = None,
    holds_end_at: Mapping[Reason, float] | None = None,
) -> list[NextStep]:
    """The steps for a person after this turn, the most important first; never empty.

    ``waiting`` is the plan that waits for approval, ``holds_end_at`` the end of each hold that lbd's state knows and
    the turn's facts do not, in epoch seconds. The first step answers the verdict. Others follow only where a
    person has something to do: brokers that are full, could not be compared or carry nothing. They come before a
    split, and that balanced brokers want nothing is then left out.
    """
    first = _first(record, guardrails, waiting, holds_end_at or {})
    others = {(step.reason, step.what): step for step in _of_brokers(record, guardrails) if step.do}
    others.pop((first.reason, first.what), None)
    more = [step for step in others.values() if step.command != first.command]
    if more and first.reason == Reason.BALANCED.label:
        return more
    return [*more, first] if first.reason in FOR_GOOD else [first, *more]


def _first(
    record: TurnResult, guardrails: Guardrails, waiting: Proposal | None, holds_end_at: Mapping[Reason, float]
) -> NextStep:
    if record.observation is None or record.plan.decision is None:
        do, end = "Find why the cluster cannot be observed", "lbd tries again in the next turn"
        return NextStep(reason=FAILED_TURN, do=do, command="lbd doctor", by_itself=end)
    if waiting is not None:
        return next_step(Reason.APPROVAL_REQUIRED, waiting.id, waiting.expires_at, plan=waiting.id)
    judged, hold = verdict(record), record.plan.hold
    calm = judged.kind in CALM
    if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED and not (calm and hold[0] in FOR_OTHERS):
        ends_at = holds_end_at.get(hold[0]) or _hold_ends_at(record, guardrails, hold[0])
        return next_step(hold[0], ends_at=ends_at) if ends_at != inf else _ALWAYS_QUIET
    return _of_verdict(record, judged)


def _of_verdict(record: TurnResult, judged: Verdict) -> NextStep:
    """The remedy of what the verdict gives as its reason."""
    if judged.kind == "moving":
        return next_step(Reason.MOVES_UNFINISHED)
    if judged.kind == "partial":
        broker, (reason, _) = next(iter(not_compared(record).items()))
        return next_step(reason, broker, broker=broker)
    reason = next((reason for reason in Reason if reason.label == judged.reason), Reason.BALANCED)
    ends_at, pair = _samples_end_at(record, judged.samples), _pair_of(record, reason)
    if pair is None:
        return next_step(reason, ends_at=ends_at)
    skip = pair_skip(record, pair)
    ends_at = skip.until if skip.reason is reason and skip.until is not None else ends_at
    names = {"broker": pair.source, **_bundle_names(record, pair, reason)}
    if reason in OF_DESTINATIONS and pair.destination is not None:
        names["broker"] = pair.destination
    return next_step(reason, pair.ends, ends_at, **names)


def _pair_of(record: TurnResult, reason: Reason) -> Pair | None:
    """The widest pair for which this reason is given; the widest of all where none says so itself."""
    pairs = sorted(record.plan.pairs, key=lambda pair: -pair.difference)
    return next((pair for pair in pairs if pair_skip(record, pair).reason is reason), pairs[0] if pairs else None)


def _bundle_names(record: TurnResult, pair: Pair, reason: Reason) -> dict[str, str]:
    """The bundle of the source that this reason is about, and its namespace: the largest, where it is about several.

    Empty where the turn names none: a remedy that can cut or move a bundle must not name another one.
    """
    assert record.observation is not None
    assert record.plan.decision is not None
    snapshot = record.observation.snapshot
    rows = snapshot.rows.of(snapshot.brokers.index()[pair.source])
    own = snapshot.rows.bundle[rows]
    codes = record.plan.decision.verdicts[own]
    size = np.nan_to_num(snapshot.rows.rates[rows][:, [BYTES_IN, BYTES_OUT]].sum(axis=1))
    refused = snapshot.positions_of({skip.what for skip in record.skips if skip.reason is reason})
    matching = (codes == reason.code) | np.isin(own, list(refused.values()))
    if not matching.any():
        return {}
    bundle = snapshot.bundles[int(own[int(np.argmax(np.where(matching, size, -1.0)))])]
    return {"bundle": bundle, "namespace": bundle_namespace(bundle)}


def _samples_end_at(record: TurnResult, samples: int | None) -> float | None:
    """About when that many more ``samples`` have come (epoch seconds); brokers sample for their reports."""
    if samples is None or record.facts is None:
        return None
    return record.facts.now + samples * record.facts.sample_interval_seconds


def _hold_ends_at(record: TurnResult, guardrails: Guardrails, reason: Reason) -> float | None:
    """When a hold ends by itself, where the facts of the turn say so."""
    if record.facts is None:
        return None
    facts = record.facts
    if reason is Reason.MEMBERSHIP_CHANGED:
        members = facts.members
        return settled_at(members.since, members.departures, guardrails.membership_settle_seconds)
    if reason is Reason.QUIET_HOURS:
        quiet = quiet_until(guardrails.quiet_hours, facts.now)
        return quiet[0] if quiet is not None else None
    return facts.progress.until or None if reason is Reason.NO_IMPROVEMENT else None


def _of_brokers(record: TurnResult, guardrails: Guardrails) -> Iterator[NextStep]:
    """Brokers that a person has to look at, whatever the verdict: each reason once, with the first broker."""
    yield from _full_brokers(record, guardrails.max_destination_score)
    if record.plan.hold is not None and record.plan.hold[0] is Reason.TOO_FEW_BROKERS:
        return  # the first step is about them all
    named = set[Reason]()
    uncompared = {what: reason for what, (reason, _) in not_compared(record).items()}
    for broker, reason in uncompared.items():
        if reason not in named and reason is not Reason.DRAINED:
            named.add(reason)
            yield next_step(reason, broker, broker=broker)
    if record.facts is not None and record.plan.decision is not None:
        yield from _empty_brokers(record, record.facts.snapshot, uncompared)


def _full_brokers(record: TurnResult, limit: float) -> Iterator[NextStep]:
    """All brokers that take bundles, where none may be a destination: they may be balanced, and no move relieves them.

    A broker that has just started takes some as soon as its reports are trusted.
    """
    facts, takers = record.facts, (0, Reason.FIRST_SAMPLE.code)
    takes = facts.scores[np.isin(facts.evidence.paired, takers)] if facts is not None else np.zeros(0)
    if takes.size and (lowest := takes.min()) >= limit:
        do = (
            f"Bring back a broker that is down, or add one: the lowest one has {lowest:.1f} points, and from {limit:g} "
            "on none is given bundles (guardrails.max_destination_score); how many are missing"
        )
        yield NextStep(reason=FULL_BROKERS, do=do, command="lbd capacity", by_itself="it ends when the load falls")


def _empty_brokers(record: TurnResult, snapshot: Snapshot, uncompared: dict[str, Reason]) -> Iterator[NextStep]:
    """The first broker without a bundle to which no pair will move any: as after a failed restart."""
    taking = {pair.destination for pair in record.plan.pairs}
    taking |= {unload.destination for unload in (*record.plan.unloads, *record.moves.unfinished)}
    numbers = snapshot.rows.count(broker_bundles(snapshot)[snapshot.rows.bundle] == 0)
    listed = zip(snapshot.brokers.ids, numbers.tolist(), strict=True)
    empty = [broker for broker, number in listed if not number and broker not in taking and broker not in uncompared]
    if empty and numbers.any():
        do = f"{empty[0]} has no bundle; if it should carry load, see what it would be given, and add --apply"
        yield NextStep(reason=EMPTY_BROKER, what=empty[0], do=do, command=f"lbd fill {empty[0]}")
