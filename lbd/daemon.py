"""The one place where real parts are put together."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lbd.act.dry_run import DryRun
from lbd.act.executor import Executor, close_open
from lbd.act.ownership import Clock
from lbd.act.unloader import Unloader
from lbd.cycle import CycleRecord, Parts, turn
from lbd.decide import build
from lbd.errors import AdminError, UsageError
from lbd.model import Averages, Reason
from lbd.observe import averages as running
from lbd.observe.observer import Observation, Observer
from lbd.permit.evidence import Sample, judge
from lbd.permit.policies import Groups, Isolation, isolation_of
from lbd.pulsar.admin import Admin
from lbd.record.journal import Journal, read
from lbd.record.state import Kept, Scratch, StateDir
from lbd.replay import rounds, settings_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.model import Outcome, Snapshot, Unload
    from lbd.permit.limits import Ledger
    from lbd.record.recording import Header

CLOCK = Clock(time.monotonic, time.sleep)
SAMPLE_GAP_SECONDS = 3 * 60.0


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def strategy_of(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy; ``eager`` takes hit counts as reached."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights)


def effective(settings: Settings) -> AvgShedderSettings:
    """The strategy's settings with the profile applied."""
    return settings.avg_shedder.stock() if settings.profile == "stock" else settings.avg_shedder


NAMESPACES_A_TURN = 100
"""Namespaces of planned unloads whose policies are read in one turn; bundles of further ones wait."""


def _groups(admin: Admin, namespaces: frozenset[str]) -> Groups:
    """Anti-affinity groups of the namespaces that a plan would touch."""
    free: set[str] = set()
    grouped: dict[str, str] = {}
    for name in sorted(namespaces)[:NAMESPACES_A_TURN]:
        try:
            group = admin.anti_affinity_group(name)
        except AdminError:
            continue
        if group is None:
            free.add(name)
        else:
            grouped[name] = group
    return Groups(frozenset(free), grouped)


def _isolation(admin: Admin) -> Isolation:
    try:
        return isolation_of(admin.isolation_policies())
    except AdminError:
        return Isolation(known=False)


@contextmanager
def observing(settings: Settings, *, keep_raw: bool = False) -> Iterator[Observer]:
    """An observer of the configured cluster."""
    observer = Observer(Admin(settings.pulsar), time.time, keep_raw=keep_raw)
    try:
        yield observer
    finally:
        observer.close()


def once(
    settings: Settings,
    *,
    on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> CycleRecord:
    """One live turn. Raises :class:`~lbd.errors.RefusedError` when another lbd holds the state directory."""
    state = StateDir(settings.state_dir)
    with state.locked(), observing(settings) as observer:
        journal = Journal(state.journal, time.time)
        admin = observer.admin
        unloader = Unloader(admin, CLOCK)
        try:
            close_open(journal, unloader)
            return turn(
                Parts(
                    observer=observer,
                    strategy=strategy_of(settings),
                    weights=settings.weights,
                    guardrails=settings.guardrails,
                    isolation=partial(_isolation, admin),
                    groups=partial(_groups, admin),
                    attempted_at=lambda: journal.past.attempted_at,
                    store=state,
                    actuator=lambda ledger: Executor(unloader, journal, ledger.accepts),
                    gap_seconds=gap_seconds(settings),
                    on_plan=on_plan,
                    on_outcome=on_outcome,
                )
            )
        except AdminError as error:
            return CycleRecord(f"No move: {error}", error=error)
        finally:
            journal.close()


def dry_run(settings: Settings) -> CycleRecord:
    """One turn against the live cluster that changes nothing, neither there nor in the state directory.

    Hit counters are taken as reached; those of the daemon are read where its state directory can be read.
    """
    with observing(settings) as observer:
        kept, attempted_at = _remembered(settings)
        return turn(
            Parts(
                observer=observer,
                strategy=strategy_of(settings, eager=True),
                weights=settings.weights,
                guardrails=settings.guardrails,
                isolation=partial(_isolation, observer.admin),
                groups=partial(_groups, observer.admin),
                attempted_at=lambda: attempted_at,
                store=Scratch(Kept(hits=kept.hits)),
                actuator=_no_actuator,
                gap_seconds=float("inf"),
                ignored_holds=frozenset({Reason.IN_BROKER_SHEDDING}),
                eager=True,
            )
        )


def _no_actuator(ledger: Ledger) -> DryRun:
    del ledger
    return DryRun()


def _remembered(settings: Settings) -> tuple[Kept, dict[str, float]]:
    """Counters and cool-downs of a daemon on this machine; nothing where there is none, or it may not be read."""
    if not settings.state_dir.is_dir():
        return Kept(), {}
    try:
        state = StateDir(settings.state_dir)
        return state.load().at(time.time(), gap_seconds(settings)), dict(read(state.journal).attempted_at)
    except UsageError:
        return Kept(), {}


def broker_configuration(settings: Settings) -> dict[str, str]:
    """The effective configuration of the broker that answers."""
    return Admin(settings.pulsar).runtime_configuration()


@dataclass(frozen=True)
class _Recorded:
    """The last round of a recording as an observation."""

    observation: Observation

    def observe(self) -> Observation:
        return self.observation


def dry_run_recording(settings: Settings, path: Path) -> CycleRecord:
    """The same for the last round of a recording; its earlier rounds feed the averages.

    What the recording's header says of the strategy holds where the settings leave the default.
    """
    given = settings
    averages = Averages.empty()
    samples: dict[str, Sample] = {}
    last: Header | None = None
    found: Snapshot | None = None
    for header, _, snapshot in rounds(path):
        if found is not None:
            averages = running.update(averages, found)
        if last is not header:
            averages, samples, last = Averages.empty(), {}, header
            settings = _with_header(given, header)
        samples = dict(judge(samples, snapshot, settings.weights).samples)
        found = snapshot
    if found is None or last is None:
        raise UsageError(f"{path}: no rounds in it; a round is a line with t and reports")
    observation = Observation(found, last.id or path.name, found.brokers.ids, leader=None)
    return turn(
        Parts(
            observer=_Recorded(observation),
            strategy=strategy_of(settings, eager=True),
            weights=settings.weights,
            guardrails=settings.guardrails,
            isolation=Isolation,
            groups=Groups,
            attempted_at=dict,
            store=Scratch(averages=averages),
            actuator=_no_actuator,
            gap_seconds=float("inf"),
            ignored_holds=frozenset({Reason.LEADER_UNREACHABLE}),
            eager=True,
        )
    )


def _with_header(settings: Settings, header: Header) -> Settings:
    """The header's settings where these leave the default; of another strategy's header, only its weights."""
    if header.strategy not in {None, settings.strategy}:
        header = replace(header, settings={})
    chosen, weights = settings_from(
        header,
        settings.strategy,
        settings.avg_shedder.model_dump(exclude_unset=True),
        settings.weights.model_dump(exclude_unset=True),
    )
    return settings.model_copy(update={"avg_shedder": chosen, "weights": weights})
