"""The daemon's report of a turn: its line in the log, ``status.json``, and what notifications are made from."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd import __version__
from lbd.errors import LbdError, UnheardError, UsageError
from lbd.fields import derived
from lbd.load.estimate import CPU
from lbd.load.samples import percent_used
from lbd.model import BYTES_IN, BYTES_OUT, IMPOSSIBLE_NUMBER, MSG_IN, MSG_OUT, Averages, Outcome, Skip
from lbd.notify.events import NOT_SENT, ORDERED, EndedMove, TurnEnd
from lbd.observe.averages import settled_half_in
from lbd.operations.parts import broker_loads
from lbd.permit.served import served_text
from lbd.reason import Reason
from lbd.remedy import next_step
from lbd.split.plan import CutOutcome
from lbd.store.calibration import MeanBroker, PresentLoad, proposal_text
from lbd.store.control import Control
from lbd.store.drains import drains_in_force
from lbd.store.status import BrokerStatus, BudgetStatus, CanaryStatus, Status, UnfinishedStatus, without_holds
from lbd.store.turns import named
from lbd.turn.next_steps import CALM, next_steps
from lbd.turn.record import brokers, gap_points, mean_points, outcome_record, pair_statuses, planned_scores, proposal
from lbd.turn.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.daemon.election import Role
    from lbd.daemon.engine import Engine
    from lbd.model import Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.served import Landing, ServiceResult
    from lbd.permit.settings import Canary
    from lbd.turn.parts import TurnResult


def log_level(record: TurnResult) -> int:
    """Level of a turn's log line: ERROR where the turn failed, INFO otherwise, and while lbd waits for reports."""
    failed = record.error is not None and not isinstance(record.error, UnheardError)
    return logging.ERROR if failed else logging.INFO


def turn_line(record: TurnResult) -> dict[str, Any]:
    """Fields of a turn's log line, for searches in the log."""
    observation, skips = record.observation, [skip for skip in record.skips if "/0x" not in skip.what]
    return {
        "verdict": (judged := verdict(record)).kind,
        "why": judged.reason,
        "planned": len(record.plan.unloads),
        "outcomes": [
            f"{outcome.unload.bundle} {outcome.result.value} {outcome.owner}" for outcome in record.moves.outcomes
        ],
        "unfinished": len(record.moves.unfinished),
        "hold": record.plan.hold[0].label if record.plan.hold is not None else None,
        "brokers": len(observation.active) if observation is not None else None,
        "requests": observation.requests if observation is not None else None,
        "seconds": round(observation.seconds, 3) if observation is not None else None,
        "skips": [f"{skip.what}: {skip.reason.label}: {skip.detail}" for skip in skips],
    }


def move_line(end: Outcome | Skip) -> tuple[str, dict[str, Any]]:
    """Log line of a move's end, or of a later correction of its result."""
    if isinstance(end, Skip):
        return f"not sent: {end.what}: {end.reason.label}", {"bundle": end.what, "detail": end.detail}
    fields = named(outcome_record(end))
    result, detail = fields.pop("result"), fields.pop("detail")
    amended = "amended, " if end.amended else ""
    return f"{amended}{result}: {fields['bundle']}", {**fields, "noted": end.noted, "detail": detail}


def served_line(landing: Landing, service: ServiceResult) -> tuple[str, dict[str, Any]]:
    """Whether the clients of a move that landed are back."""
    before = landing.unload.clients_before
    words = served_text(service.served, service.reconnect_seconds, before, service.clients_after)
    facts = msgspec.to_builtins({**vars(service), "clients_before": before})
    ends = {"bundle": landing.bundle, "source": landing.unload.source, "destination": landing.unload.destination}
    return f"{words}: {landing.bundle}", {**ends, **facts}


def split_line(end: CutOutcome | LbdError) -> tuple[str, dict[str, Any]]:
    """One split's end, or why none was tried."""
    if not isinstance(end, CutOutcome):
        return f"not split: {end}", {}
    cut = end.cut
    return f"{end.result.value}: {cut.bundle}", {
        "bundle": cut.bundle,
        "algorithm": cut.algorithm,
        "parts": list(end.parts),
        "owner": end.owner,
        "seconds": round(end.seconds, 3),
        "reason": cut.reason,
        "detail": end.detail,
    }


def build_status(engine: Engine, record: TurnResult, turns: int, next_turn_at: float | None) -> Status:
    """Collect the facts that ``lbd status`` shows."""
    observation, rows = record.observation, _brokers(record, engine.settings)
    calibration, unread = _calibration(engine.settings, record, engine.timebase.now())
    waiting = engine.proposal
    scores, gap_after = planned_scores(rows, waiting.expected) if waiting is not None else ([], None)
    return Status(
        pid=os.getpid(),
        version=__version__,
        at=engine.timebase.now(),
        interval_seconds=engine.settings.interval_seconds,
        next_turn_at=next_turn_at,
        turns=turns,
        cluster=observation.cluster if observation is not None else engine.cluster,
        turn=record.number,
        sentence=record.sentence,
        verdict=verdict(record),
        hold=record.plan.hold[0].label if record.plan.hold is not None else None,
        observe_only=engine.observe_only,
        mode="observe" if engine.observe_only else engine.settings.mode,
        leader=engine.leading.words or None,
        brokers=rows,
        pairs=pair_statuses(record),
        unfinished=[derived(UnfinishedStatus, move, since=engine.since(move)) for move in engine.unfinished],
        proposal=waiting,
        calibration=calibration,
        gap_points=gap_points(rows),
        mean_points=mean_points(rows),
        plan_scores=scores,
        gap_after_points=gap_after,
        last_hour=engine.last_hour,
        canary=_canary(engine.settings.guardrails.canary, record),
        budgets=[derived(BudgetStatus, budget, left=budget.left) for budget in record.plan.usage],
        requests=observation.requests if observation is not None else 0,
        seconds=round(observation.seconds, 3) if observation is not None else 0.0,
        warnings=[*engine.warnings, *_unreported(observation), *unread],
        error=str(record.error) if record.error is not None else None,
        ended_by_resume=list(engine.ended_by_resume),
        resumed=Control(engine.settings.state_dir).resumed,
        steps=next_steps(record, engine.settings.guardrails, waiting, engine.holds_end_at),
    )


def _calibration(settings: Settings, record: TurnResult, now: float) -> tuple[str | None, tuple[str, ...]]:
    """The sentence on a proposal of settings, and why it cannot be read, where it cannot."""
    observation, facts = record.observation, record.facts

    def load() -> PresentLoad | None:
        if observation is None:
            return None
        averages = facts.averages if facts is not None else Averages.empty()
        return present_load(len(observation.active), observation.snapshot, averages)

    try:
        return proposal_text(settings.state_dir, settings, now, load), ()
    except UsageError as error:
        return None, (str(error),)


def present_load(active: int, snapshot: Snapshot, averages: Averages) -> PresentLoad:
    """The load of a round by reports and by the long-term means of bundles; ``active`` is the number of brokers."""
    reported = snapshot.as_reported()
    cpu, rates = percent_used(reported)[:, CPU], reported.brokers.rates
    usable = np.isfinite(cpu) & ((rates >= 0) & (rates <= IMPOSSIBLE_NUMBER)).all(axis=1)
    mean = None
    if usable.any():
        messages, volume = rates[usable][:, [MSG_IN, MSG_OUT]], rates[usable][:, [BYTES_IN, BYTES_OUT]]
        mean = MeanBroker(*(float(values.sum() / usable.sum()) for values in (cpu[usable], messages, volume)))
    return PresentLoad(active, snapshot.brokers.bytes_per_second, mean, settled_half_in(averages))


def _canary(canary: Canary | None, record: TurnResult) -> CanaryStatus | None:
    if canary is None:
        return None
    held = record.plan.canary
    return CanaryStatus(canary.namespaces, canary.max_moves_per_hour, held.planned, held.total)


def _unreported(observation: Observation | None) -> Iterator[str]:
    """Brokers that answer, and give no report that can be used; of those that answer nothing the sentence tells."""
    missing = (
        {}
        if observation is None
        else {broker: why for broker, why in observation.missing.items() if broker not in observation.silent}
    )
    for broker, why in list(missing.items())[:1]:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        yield f"{broker} gives no report{more}: {why}"


def turn_end(engine: Engine, record: TurnResult, status: Status) -> TurnEnd:
    """Facts of a turn for notifications."""
    state_dir, now = engine.settings.state_dir, status.at
    plan = proposal(record) if engine.observe_only and record.plan.unloads else status.proposal
    ends = [derived(EndedMove, outcome_record(outcome)) for outcome in record.moves.outcomes]
    refused = [skip for skip in record.moves.skips if skip.reason.label not in ORDERED]
    ends += [EndedMove(skip.what, NOT_SENT, detail=skip.reason.message(skip.detail)) for skip in refused]
    try:
        works = tuple(work for _, work in drains_in_force(state_dir, now) if work is not None)
        pause = Control(state_dir).paused(now)
    except LbdError:  # the turn tells of files that cannot be read
        works, pause = (), None
    return TurnEnd(status, engine.leading.leading, plan, tuple(ends), works, pause)


def with_leader(status: Status, leading: Role) -> Status:
    """The same, when another one leads than in its turn."""
    status = msgspec.structs.replace(status, leader=leading.words or None)
    stands_by = leading.hold()
    if stands_by is None:
        return without_holds(status, {Reason.NOT_LEADER.label})
    reason = stands_by[0]
    calm = status.verdict is not None and status.verdict.kind in CALM
    steps = status.steps if calm else [next_step(reason)]
    return msgspec.structs.replace(status, hold=reason.label, steps=steps)


def _brokers(record: TurnResult, settings: Settings) -> list[BrokerStatus]:
    """Each broker with what was learned of it."""
    rows = brokers(record)
    if record.facts is None or not rows:
        return []
    loads = broker_loads(record.facts.snapshot, record.facts.slopes, settings)
    return [derived(BrokerStatus, row, load=load) for row, load in zip(rows, loads, strict=True)]
