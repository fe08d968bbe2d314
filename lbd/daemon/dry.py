"""Turns that change nothing: against the live cluster, and on the last round of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lbd.act.dry_run import DryRun
from lbd.config import section_of
from lbd.cycle import CycleRecord, Hold, Parts, turn
from lbd.cycle.chosen import configured, gap_seconds, learner_of, strategy_of, wanted_hits
from lbd.cycle.learning import Learning
from lbd.daemon.learned import beside
from lbd.daemon.parts import observing
from lbd.daemon.policies import PolicyReader
from lbd.daemon.requests import ordered
from lbd.errors import UsageError
from lbd.model import Averages
from lbd.observe import averages as running
from lbd.observe.observer import Observation, Observer
from lbd.permit.evidence import Sample, judge
from lbd.permit.policies import Groups, Isolation
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from lbd.record.control import Control
from lbd.record.drains import Drains
from lbd.record.journal import KEEP_SECONDS, Past, read
from lbd.record.state import Kept, Scratch, StateDir
from lbd.replay import rounds, settings_from
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.config import Settings
    from lbd.cycle.parts import Observer as Looking
    from lbd.model import Slopes, Snapshot
    from lbd.pulsar.admin import Admin
    from lbd.record.journal import Journal
    from lbd.record.recording import Header


IGNORED_HOLDS = frozenset(
    {Reason.IN_BROKER_SHEDDING, Reason.PAUSED, Reason.QUIET_HOURS, Reason.NO_IMPROVEMENT},
)
"""They would hide what lbd would do; that it would wait is said beside it."""


def dry_run(settings: Settings) -> CycleRecord:
    """One turn against the live cluster that changes nothing, neither there nor in the state directory.

    Hit counters are taken as reached; those of the daemon are read where its state directory can be read.
    """
    with observing(settings) as observer:
        return turn(live_parts(settings, observer))


def live_parts(settings: Settings, observer: Observer) -> Parts:
    """What such a turn, or any other look at the live cluster, is made of."""
    kept, averages, past = remembered(settings)
    looked = _TakenOver(observer) if settings.in_broker_shedding == "take-over" else observer
    ordered_hold = partial(_ordered, settings)
    return look_parts(settings, looked, PolicyReader(observer.admin), kept, averages, past, ordered_hold)


def look_parts(
    settings: Settings,
    observer: Looking,
    policies: PolicyReader,
    kept: Kept,
    averages: Averages,
    past: Past | Journal,
    ordered_hold: Callable[[], Hold | None],
) -> Parts:
    """The same of what is known already, by whoever knows it."""
    return Parts(
        observer=observer,
        strategy=strategy_of(settings, eager=True),
        strategy_name=settings.strategy,
        weights=settings.weights,
        guardrails=settings.guardrails,
        isolation=policies.isolation,
        groups=policies.groups,
        attempted_at=lambda: past.attempted_at,
        sent=lambda: past.sent,
        store=Scratch(unsampled(kept), averages),
        actuator=DryRun(),
        gap_seconds=float("inf"),
        ordered_hold=ordered_hold,
        ignored_holds=IGNORED_HOLDS,
        eager=True,
        assumed=configured(settings).assumed,
        wanted_hits=wanted_hits(settings),
        learn=beside(settings),
        leader_topic=settings.leader.kept_topic,
        drained=partial(_drained, settings),
    )


def _drained(settings: Settings) -> frozenset[str]:
    """The brokers that are drained; a directory that this user may not look into tells of none."""
    try:
        return (
            frozenset(Drains(settings.state_dir).in_force(time.time())) if settings.state_dir.is_dir() else frozenset()
        )
    except (UsageError, OSError):
        return frozenset()


def unsampled(kept: Kept) -> Kept:
    """What the daemon knows, but not its samples: those are a minute old at most, and every report is looked at."""
    known = Kept(changed_at=kept.changed_at, progress=kept.progress)
    return known.with_memory(kept.memory)


def _ordered(settings: Settings) -> Hold | None:
    """The pause of a daemon on this machine; a directory that this user may not look into tells of none."""
    try:
        return ordered(Control(settings.state_dir), time.time()) if settings.state_dir.is_dir() else None
    except OSError:
        return None


def remembered(settings: Settings) -> tuple[Kept, Averages, Past]:
    """Counters, averages and the past of a daemon on this machine; nothing where there is none to be read."""
    nothing = (Kept(), Averages.empty(), Past())
    try:
        if not settings.state_dir.is_dir():
            return nothing
        state, now = StateDir(settings.state_dir), time.time()
        kept = state.load().at(now, gap_seconds(settings))
        return kept, state.load_averages(now), read(state.journal, now, KEEP_SECONDS)
    except (UsageError, OSError):
        return nothing


def taking_over(settings: Settings, admin: Admin) -> dict[str, str]:
    """Brokers that lbd moves bundles to now, and why each must not be asked for all that it owns.

    A move without an outcome for longer than it may take was cut short, and is under way no more.
    """
    if admin.transfers:
        return {}
    past, begun = remembered(settings)[2], time.time() - 2 * settings.pulsar.unload_timeout_seconds
    coming: dict[str, list[str]] = {}
    for _, one in past.open:
        if one.destination is not None and past.attempted_at.get(one.bundle, 0.0) > begun:
            coming.setdefault(one.destination, []).append(one.bundle)
    return {
        broker: f"it takes over {counted(len(bundles), 'bundle')} now, the first: {bundles[0]}, and can hang if asked"
        for broker, bundles in coming.items()
    }


@dataclass(frozen=True)
class _TakenOver:
    """A cluster as ``lbd run`` would find it once it had turned the brokers' own shedding off."""

    observer: Observer

    def observe(self) -> Observation:
        return replace(self.observer.observe(), shedding_on=())


@dataclass(frozen=True)
class _Recorded:
    """The last round of a recording as an observation."""

    observation: Observation

    def observe(self) -> Observation:
        return self.observation


def dry_run_recording(settings: Settings, path: Path) -> CycleRecord:
    """The same for the last round of the last recording in a file; its earlier rounds feed the averages.

    What the recording's header says of the strategy holds where the settings leave the default.
    """
    header, settings, averages, last = last_round(path, settings)
    parts = recorded_parts(settings, header.id or path.name, averages, last)
    return turn(replace(parts, learn=_learned(path, header, settings)))


def _learned(path: Path, header: Header, settings: Settings) -> Callable[[Snapshot], Slopes | None]:
    """What the rounds of the last recording in a file tell, where the strategy wants to know."""
    if not configured(settings).wants_slopes:
        return learner_of(settings)
    learning = Learning(settings.load)
    for own, _, snapshot in rounds(path):
        if own.where == header.where:
            learning.take(snapshot)
    return learning.known


def recorded_parts(settings: Settings, name: str, averages: Averages, last: Snapshot) -> Parts:
    """What a look at the last round of a recording is made of; a recording knows of no policies."""
    return Parts(
        observer=_Recorded(Observation(last, name, last.brokers.ids, Leader(None, "recorded"))),
        strategy=strategy_of(settings, eager=True),
        strategy_name=settings.strategy,
        weights=settings.weights,
        guardrails=settings.guardrails,
        isolation=Isolation,
        groups=lambda names, _: Groups(frozenset(names)),
        attempted_at=dict,
        store=Scratch(averages=averages),
        actuator=DryRun(),
        gap_seconds=float("inf"),
        eager=True,
        assumed=configured(settings).assumed,
        wanted_hits=wanted_hits(settings),
    )


def last_round(path: Path, given: Settings) -> tuple[Header, Settings, Averages, Snapshot]:
    """The last recording's header, the settings with it, the averages before its last round, and that round."""
    seen = rounds(path)
    found = _begun(given, next(seen))
    samples: dict[str, Sample] = {}
    for one in seen:
        header, _, snapshot = one
        if found[0] is not header:
            found, samples = _begun(given, one), {}
            continue
        _, settings, averages, last = found
        evidence = judge(samples, last, settings.weights)
        samples = dict(evidence.samples)
        found = (header, settings, running.update(averages, last, evidence.fresh), snapshot)
    return found


def _begun(given: Settings, first: tuple[Header, int, Snapshot]) -> tuple[Header, Settings, Averages, Snapshot]:
    header, _, snapshot = first
    return header, _with_header(given, header), Averages.empty(), snapshot


def _with_header(settings: Settings, header: Header) -> Settings:
    """The header's settings where these leave the default; of another strategy's header, only its weights."""
    chosen, weights = settings_from(
        header,
        settings.strategy,
        configured(settings).model_dump(exclude_unset=True),
        settings.weights.model_dump(exclude_unset=True),
    )
    return settings.model_copy(update={section_of(settings.strategy): chosen, "weights": weights})
