"""One turn: observe, decide, permit, act, record. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with other parts plugged in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from lbd.errors import LbdError
from lbd.model import Memory, Permission, Reason, Result, Skip, bundle_namespace
from lbd.observe import averages as running
from lbd.permit import evidence as judging
from lbd.permit.eligibility import barred
from lbd.permit.limits import Ledger, permit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lbd.decide import Strategy
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Outcome, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.permit.policies import Groups, Isolation
    from lbd.permit.settings import Guardrails
    from lbd.record.state import Kept


class Observer(Protocol):
    """Where rounds come from."""

    def observe(self) -> Observation: ...


class Actuator(Protocol):
    """What works a plan off."""

    def run(self, plan: Iterable[Unload]) -> Iterator[Outcome]: ...


class Store(Protocol):
    """What is kept between turns."""

    def load(self) -> Kept: ...
    def save(self, kept: Kept) -> None: ...
    def load_averages(self, now: float) -> Averages: ...
    def save_averages(self, averages: Averages, now: float) -> None: ...


@dataclass(frozen=True)
class Parts:
    """Everything that a turn needs, chosen in one place (``daemon.py``).

    ``actuator`` is made for each turn, from the ledger that knows what a destination still takes. ``gap_seconds`` is
    the silence after which hit counters start anew. ``standing_hold`` forbids firing whatever is seen; turns that
    cannot act list in ``ignored_holds`` what would only hide their answer, and say with ``eager`` that their strategy
    takes hit counts as reached.
    """

    observer: Observer
    strategy: Strategy
    weights: Weights
    guardrails: Guardrails
    isolation: Callable[[], Isolation]
    groups: Callable[[frozenset[str]], Groups]
    attempted_at: Callable[[], Mapping[str, float]]
    store: Store
    actuator: Callable[[Ledger], Actuator]
    gap_seconds: float
    standing_hold: Reason | None = None
    ignored_holds: frozenset[Reason] = frozenset()
    eager: bool = False
    on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None
    on_outcome: Callable[[Outcome], None] = lambda _: None


@dataclass(frozen=True, eq=False)
class CycleRecord:
    """Everything one turn saw, decided and did. ``error`` is set when it could not be finished."""

    sentence: str
    observation: Observation | None = None
    decision: Decision | None = None
    unloads: tuple[Unload, ...] = ()
    skips: tuple[Skip, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    hold: Reason | None = None
    kept: Kept | None = None
    error: LbdError | None = None
    eager: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


def turn(parts: Parts) -> CycleRecord:
    """Run one turn."""
    try:
        return _turn(parts)
    except LbdError as error:
        return CycleRecord(f"No move: {error}", error=error)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is told in full by its type and text
        bug = LbdError(f"bug in lbd, please report it: {type(error).__name__}: {error}")
        bug.__cause__ = error
        return CycleRecord(f"No move: {bug}", error=bug)


def _turn(parts: Parts) -> CycleRecord:
    observation = parts.observer.observe()
    snapshot = observation.snapshot
    before = parts.store.load().at(snapshot.taken_at, parts.gap_seconds)
    evidence = judging.judge(before.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    kept = _members(before, observation)
    hold = parts.standing_hold or next(_counting_holds(parts, observation, evidence, kept), None)
    isolation = parts.isolation()
    permission = Permission(
        barred=barred(snapshot, parts.attempted_at(), isolation, parts.guardrails),
        counts=evidence.fresh,
        paired=evidence.paired,
        settled=evidence.settled,
        hold=hold,
    )
    decision = parts.strategy(snapshot, averages, permission, Memory(kept.hits))
    groups = parts.groups(frozenset(bundle_namespace(unload.bundle) for unload in decision.unloads))
    ledger = Ledger(snapshot, decision.facts.scores, isolation, groups, parts.guardrails, decision.unloads)
    permitted = permit(decision.unloads, ledger)
    kept = msgspec.structs.replace(
        kept, hits=dict(decision.memory.hits), samples=dict(evidence.samples), written_at=snapshot.taken_at
    )
    parts.store.save_averages(averages, snapshot.taken_at)
    kept = _unsettled(kept, {end for unload in permitted.unloads for end in (unload.source, unload.destination)})
    parts.store.save(kept)
    outcomes = _act(parts, ledger, permitted.unloads)
    if any(outcome.result is Result.ELSEWHERE for outcome in outcomes):
        parts.store.save(_unsettled(kept, {outcome.owner for outcome in outcomes}))
    skips = (
        *_data_skips(observation, evidence),
        *decision.skips,
        *permitted.skips,
        *_stopped(permitted.unloads, outcomes),
    )
    record = CycleRecord(
        "",
        observation,
        decision,
        permitted.unloads,
        skips,
        outcomes,
        hold,
        before,
        eager=parts.eager,
        counts=_counts(decision),
    )
    return replace(record, sentence=sentence(record))


def _act(parts: Parts, ledger: Ledger, plan: tuple[Unload, ...]) -> tuple[Outcome, ...]:
    parts.on_plan(plan)
    outcomes: list[Outcome] = []
    for outcome in parts.actuator(ledger).run(plan):
        outcomes.append(outcome)
        parts.on_outcome(outcome)
    return tuple(outcomes)


def _unsettled(kept: Kept, touched: set[str | None]) -> Kept:
    """What is kept before acting, and so whatever happens to lbd: touched brokers must show two fresh samples."""
    brokers = [broker for broker in touched if broker is not None]
    return msgspec.structs.replace(kept, samples=judging.unsettle(kept.samples, brokers))


def _members(kept: Kept, observation: Observation) -> Kept:
    """Note when the set of active brokers last changed; the first look counts as no change."""
    members, now = list(observation.active), observation.snapshot.taken_at
    if kept.members == members:
        return kept
    since = now if kept.members else 0.0
    return msgspec.structs.replace(kept, members=members, members_since=since)


def _counting_holds(parts: Parts, observation: Observation, evidence: Evidence, kept: Kept) -> Iterator[Reason]:
    found = _holds(observation, evidence, kept, parts.guardrails)
    return (reason for reason in found if reason not in parts.ignored_holds)


def _holds(observation: Observation, evidence: Evidence, kept: Kept, guardrails: Guardrails) -> Iterator[Reason]:
    """Why nothing may fire in this turn, the gravest first."""
    usable = int(np.count_nonzero(evidence.paired == 0))
    if observation.shedding_on:
        yield Reason.IN_BROKER_SHEDDING
    if observation.leader is None:
        yield Reason.LEADER_UNREACHABLE
    if observation.snapshot.taken_at - kept.members_since < guardrails.membership_settle_seconds:
        yield Reason.MEMBERSHIP_CHANGED
    if usable < max(2, (len(observation.active) + 1) // 2):
        yield Reason.TOO_FEW_BROKERS


_DATA_DETAIL = {
    Reason.REPORT_EMPTY: "had bundles in the last turn and reports none now: read in the middle of a stats run",
    Reason.FIRST_SAMPLE: "samples of a broker's first minutes hold its start-up work",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def _data_skips(observation: Observation, evidence: Evidence) -> Iterator[Skip]:
    for broker, why in observation.missing.items():
        yield Skip(broker, Reason.REPORT_MISSING, why)
    for broker, code in zip(observation.snapshot.brokers.ids, evidence.paired.tolist(), strict=True):
        if code:
            yield Skip(broker, Reason.of(code), _DATA_DETAIL[Reason.of(code)])


def _stopped(plan: tuple[Unload, ...], outcomes: tuple[Outcome, ...]) -> Iterator[Skip]:
    """Planned and not attempted, because the round was stopped. Without outcomes nothing was attempted on purpose."""
    if outcomes:
        tried = {outcome.unload.bundle for outcome in outcomes}
        for unload in plan:
            if unload.bundle not in tried:
                yield Skip(
                    unload.bundle, Reason.ROUND_STOPPED, "not asked for: two misses in a row, or lbd was stopped"
                )


def _counts(decision: Decision) -> dict[str, int]:
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    return {Reason.of(int(code)).label: int(number) for code, number in zip(codes, numbers, strict=True)}


def sentence(record: CycleRecord) -> str:
    """What happened, in one sentence."""
    if record.outcomes:
        results = Counter(outcome.result.value for outcome in record.outcomes)
        told = ", ".join(f"{number} {result}" for result, number in results.items())
        return f"Moved {results[Result.LANDED.value]} of {len(record.unloads)} bundles: {told}."
    if record.unloads:
        lasting = " if the imbalance lasts (hit counts taken as reached)" if record.eager else ""
        return f"Would move {_bundles(len(record.unloads))}{lasting}."
    if record.hold is not None:
        return f"No move: {record.hold.label}{_hold_detail(record)}."
    reasons = [skip for skip in record.skips if skip.what == "cluster" or " -> " in skip.what] or list(record.skips)
    return f"No move: {_told(reasons[0])}." if reasons else "No move."


def _bundles(number: int) -> str:
    return "1 bundle" if number == 1 else f"{number} bundles"


def _told(skip: Skip) -> str:
    detail = f" ({skip.detail})" if skip.detail else ""
    return f"{skip.what}: {skip.reason.label}{detail}"


def _hold_detail(record: CycleRecord) -> str:
    if record.hold is Reason.IN_BROKER_SHEDDING and record.observation is not None:
        names = ", ".join(record.observation.shedding_on)
        return f": {names} shed by themselves; set loadBalancerSheddingEnabled=false (dynamic) before lbd may move"
    return ""
