"""Turns that change nothing: against the live cluster, or on the last round of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lbd.act.executor import DryRun
from lbd.clock import moment
from lbd.config import strategy_section
from lbd.errors import UsageError
from lbd.model import Averages
from lbd.observe import averages as averaging
from lbd.observe.observer import Observation, Observer
from lbd.observe.topic_names import SpreadReader, TopicNames
from lbd.operations.parts import PolicyReader, observing, stored_learning
from lbd.operations.requests import ONLY_OBSERVES, ordered, rolling
from lbd.permit.evidence import Sample, judge
from lbd.permit.policies import Isolation
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from lbd.replay import rounds, settings_from
from lbd.store.control import Control
from lbd.store.drains import Drains
from lbd.store.journal import KEEP_SECONDS, Past, read
from lbd.store.orders import ONLY_THE_LEADER
from lbd.store.rollouts import Rollouts
from lbd.store.state import Scratch, StateDir, TurnMemory
from lbd.store.status import read_status, running, standby_text
from lbd.text import counted
from lbd.turn.learning import Learning
from lbd.turn.parts import FreePolicies, Parts, TurnResult
from lbd.turn.strategy_config import counting_rule, gap_seconds, parts_of, slope_learner
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.config import Settings
    from lbd.model import Slopes, Snapshot
    from lbd.permit.facts import Hold
    from lbd.pulsar.admin import Admin
    from lbd.store.journal import Journal
    from lbd.store.recording import Header
    from lbd.turn.parts import RoundSource as Looking


TOPICS_SECONDS = 5.0
"""Time that one look waits for topic names; it does without those that are missing then."""

IGNORED_HOLDS = frozenset(
    {Reason.IN_BROKER_SHEDDING, Reason.PAUSED, Reason.QUIET_HOURS, Reason.NO_IMPROVEMENT},
)
"""Holds that would hide the plan; they are reported beside it."""


def dry_run(settings: Settings) -> TurnResult:
    """Run one turn against the live cluster that changes nothing, neither there nor in the state directory.

    Hit counters are taken as reached; those of the daemon are used where its state directory can be read.
    """
    with observing(settings) as observer:
        return turn(live_parts(settings, observer))


def live_parts(settings: Settings, observer: Observer) -> Parts:
    """Parts of such a turn, or of any other look at the live cluster."""
    memory, averages, past = remembered(settings)
    looked = _TakenOver(observer) if settings.in_broker_shedding == "take-over" else observer
    ordered_hold = partial(_ordered, settings)
    parts = parts_of_known(settings, looked, PolicyReader(observer.admin), memory, averages, past, ordered_hold)
    topics = TopicNames(observer.admin.topics, time.time, TOPICS_SECONDS)
    return replace(parts, spread=SpreadReader(settings.spread_in_force, topics))


def order_parts(settings: Settings, observer: Observer) -> Parts:
    """Parts for the preview of an order: they judge as the lbd on this state directory would."""
    memory, averages, _ = remembered(settings)
    return acting(live_parts(settings, observer), memory, averages, partial(order_hold, settings))


def order_hold(settings: Settings) -> Hold | None:
    """Hold on all orders to the lbd of these settings: its mode, another leader, a pause, or a rollout."""
    if settings.mode == "observe":
        return Reason.OBSERVE_ONLY, ONLY_OBSERVES
    return _stands_by(settings) or _ordered(settings) or _rolling(settings)


def _stands_by(settings: Settings) -> Hold | None:
    """Hold of a standby, by the last status of the lbd on this machine."""
    try:
        if not settings.state_dir.is_dir() or running(settings.state_dir) is None:
            return None
        leader = standby_text(read_status(settings.state_dir))
    except (UsageError, OSError):
        return None
    return (Reason.NOT_LEADER, f"{leader}; {ONLY_THE_LEADER}") if leader is not None else None


def parts_of_known(
    settings: Settings,
    observer: Looking,
    policies: PolicyReader,
    memory: TurnMemory,
    averages: Averages,
    past: Past | Journal,
    ordered_hold: Callable[[], Hold | None],
) -> Parts:
    """Parts for a read-only turn from data in hand."""
    store = Scratch(unsampled(memory), averages)
    parts = parts_of(settings, observer, policies, past, store, DryRun(), eager=True)
    return replace(
        parts,
        planning=replace(parts.planning, ignored=IGNORED_HOLDS, leader_topic=settings.leader.kept_topic),
        ordered_hold=ordered_hold,
        learn=stored_learning(settings),
        drained=partial(_drained, settings),
    )


def _drained(settings: Settings) -> frozenset[str]:
    """Drained brokers; none for a directory that this user may not read."""
    try:
        return (
            frozenset(Drains(settings.state_dir).in_force(time.time())) if settings.state_dir.is_dir() else frozenset()
        )
    except (UsageError, OSError):
        return frozenset()


def acting(parts: Parts, memory: TurnMemory, averages: Averages, hold: Callable[[], Hold | None]) -> Parts:
    """Parts of a look that judges like an order: with everything that turns remember, and with every hold."""
    store = Scratch(memory, averages)
    chosen = replace(parts.planning.chosen, eager=False)
    planning = replace(parts.planning, ignored=frozenset(), chosen=chosen)
    return replace(parts, store=store, ordered_hold=hold, planning=planning)


def unsampled(memory: TurnMemory) -> TurnMemory:
    """The daemon's memory without its samples: those are a minute old at most, and every report is read."""
    kept_facts = TurnMemory(changed_at=memory.changed_at, progress=memory.progress, health=memory.health)
    return kept_facts.with_memory(memory.memory)


def _ordered(settings: Settings) -> Hold | None:
    """The pause of a daemon on this machine; None for a directory that this user may not read."""
    try:
        return ordered(Control(settings.state_dir), time.time()) if settings.state_dir.is_dir() else None
    except OSError:
        return None


def _rolling(settings: Settings) -> Hold | None:
    """The hold of a rollout, likewise."""
    try:
        return rolling(Rollouts(settings.state_dir)) if settings.state_dir.is_dir() else None
    except OSError:
        return None


def remembered(settings: Settings) -> tuple[TurnMemory, Averages, Past]:
    """Counters, averages and the past of a daemon on this machine; empty where they cannot be read."""
    nothing = (TurnMemory(), Averages.empty(), Past())
    try:
        if not settings.state_dir.is_dir():
            return nothing
        state, now = StateDir(settings.state_dir), time.time()
        memory = state.load().at(now, gap_seconds(settings), counting_rule(settings))
        return memory, state.load_averages(now), read(state.store, now, KEEP_SECONDS, boot=moment())
    except (UsageError, OSError):
        return nothing


def taking_over(settings: Settings, admin: Admin) -> dict[str, str]:
    """Destinations of open moves, and for each the reason why it must not be asked for all that it owns.

    A move without an outcome for longer than it may take was cut short, and is over.
    """
    if admin.transfers:
        return {}
    past, since = remembered(settings)[2], time.time() - 2 * settings.pulsar.unload_timeout_seconds
    coming: dict[str, list[str]] = {}
    for _, move in past.open:
        if move.destination is not None and past.attempted_at.get(move.bundle, 0.0) > since:
            coming.setdefault(move.destination, []).append(move.bundle)
    return {
        broker: f"it takes over {counted(len(bundles), 'bundle')} now, the first: {bundles[0]}, and can hang if asked"
        for broker, bundles in coming.items()
    }


@dataclass(frozen=True)
class _TakenOver:
    """A cluster as ``lbd run`` would find it after it had turned the brokers' own shedding off."""

    observer: Observer

    def observe(self) -> Observation:
        return replace(self.observer.observe(), shedding_on=())


@dataclass(frozen=True)
class Fixed:
    """An earlier observation, so that the judgement is about the round of the choice."""

    observation: Observation

    def observe(self) -> Observation:
        """The earlier observation."""
        return self.observation


def dry_run_recording(settings: Settings, path: Path) -> TurnResult:
    """Run such a turn on the last round of the last recording in a file; its earlier rounds feed the averages.

    The strategy settings in the recording's header hold where the settings leave the default.
    """
    header, settings, averages, last = last_round(path, settings)
    parts = recorded_parts(settings, header.id or path.name, averages, last)
    return turn(replace(parts, learn=_learned(path, header, settings)))


def _learned(path: Path, header: Header, settings: Settings) -> Callable[[Snapshot], Slopes | None]:
    """Slopes from the rounds of the last recording in a file, where the strategy uses them."""
    if not settings.strategy_settings.wants_slopes:
        return slope_learner(settings)
    learning = Learning(settings.load)
    for own, _, snapshot in rounds(path):
        if own.where == header.where:
            learning.take(snapshot)
    return learning.known


def recorded_parts(settings: Settings, name: str, averages: Averages, last: Snapshot) -> Parts:
    """Parts of a look at the last round of a recording, which has no policies."""
    looked = Fixed(Observation(last, name, last.brokers.ids, Leader(None, "recorded")))
    policies, store = FreePolicies(Isolation()), Scratch(averages=averages)
    return parts_of(settings, looked, policies, Past(), store, DryRun(), eager=True)


def last_round(path: Path, base: Settings) -> tuple[Header, Settings, Averages, Snapshot]:
    """The last recording's header, the settings with it, the averages before its last round, and that round."""
    recording_rounds = rounds(path)
    state = _open_recording(base, next(recording_rounds))
    samples: dict[str, Sample] = {}
    for line in recording_rounds:
        header, _, snapshot = line
        if state[0] is not header:
            state, samples = _open_recording(base, line), {}
            continue
        _, settings, averages, last = state
        evidence = judge(samples, last, settings.weights)
        samples = dict(evidence.samples)
        state = (header, settings, averaging.update(averages, last, evidence.fresh), snapshot)
    return state


def _open_recording(
    settings: Settings, first: tuple[Header, int, Snapshot]
) -> tuple[Header, Settings, Averages, Snapshot]:
    header, _, snapshot = first
    return header, _with_header(settings, header), Averages.empty(), snapshot


def _with_header(settings: Settings, header: Header) -> Settings:
    """The settings, completed from the header where they have defaults; of another strategy's, only the weights."""
    chosen, weights = settings_from(
        header,
        settings.strategy,
        settings.strategy_settings.model_dump(exclude_unset=True),
        settings.weights.model_dump(exclude_unset=True),
    )
    section = {strategy_section(settings.strategy): chosen} if chosen.is_section else {}
    return settings.model_copy(update={**section, "weights": weights})
