"""The one place where the real parts of a live lbd are put together."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lbd.act.executor import Executor, close_open
from lbd.act.ownership import Clock
from lbd.act.unloader import Unloader
from lbd.cycle import CycleRecord, Parts, turn
from lbd.decide import build
from lbd.errors import AdminError, LbdError, UsageError
from lbd.model import Hits
from lbd.observe.observer import Observer
from lbd.permit.policies import Groups, Isolation, isolation_of
from lbd.pulsar.admin import Admin
from lbd.record.journal import Journal
from lbd.record.state import StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.model import Outcome, Unload

CLOCK = Clock(time.monotonic, time.sleep)
SAMPLE_GAP_SECONDS = 3 * 60.0

NAMESPACES_A_TURN = 100
"""Namespaces whose policies are read at once; bundles of further ones count as ``policy-unknown`` in this turn."""


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def effective(settings: Settings) -> AvgShedderSettings:
    """The strategy's settings with the profile applied."""
    return settings.avg_shedder.stock() if settings.profile == "stock" else settings.avg_shedder


def wanted_hits(settings: Settings) -> Hits:
    """Hit counts at which the strategy fires."""
    return Hits(settings.avg_shedder.hit_count_low, settings.avg_shedder.hit_count_high)


def strategy_of(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy; ``eager`` takes hit counts as reached."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights)


def isolation(admin: Admin) -> Isolation:
    """The cluster's isolation policies; unknown where they cannot be read, and then nothing moves."""
    try:
        return isolation_of(admin.isolation_policies())
    except AdminError:
        return Isolation(known=False)


def groups(admin: Admin, namespaces: frozenset[str]) -> Groups:
    """Anti-affinity groups of the namespaces that a plan would touch; those that cannot be read stay unknown."""
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


@contextmanager
def observing(settings: Settings, *, keep_raw: bool = False) -> Iterator[Observer]:
    """An observer of the configured cluster."""
    observer = Observer(Admin(settings.pulsar), time.time, keep_raw=keep_raw)
    try:
        yield observer
    finally:
        observer.close()


def broker_configuration(settings: Settings) -> dict[str, str]:
    """The effective configuration of the broker that answers."""
    return Admin(settings.pulsar).runtime_configuration()


class Engine:
    """A live lbd on a state directory that it holds: one turn after the other, with the same journal."""

    def __init__(self, settings: Settings, state: StateDir, journal: Journal) -> None:
        self._state, self._journal = state, journal
        self._stopping = threading.Event()
        self.settings = settings
        self._observer = Observer(Admin(settings.pulsar), time.time)

    def turn(
        self,
        on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> CycleRecord:
        """One turn. Moves that a killed process left open get their outcome first."""
        settings, admin = self.settings, self._observer.admin
        unloader = Unloader(admin, CLOCK)
        try:
            close_open(self._journal, unloader)
        except LbdError as error:
            return CycleRecord(f"No move: {error}", error=error)
        return turn(
            Parts(
                observer=self._observer,
                strategy=strategy_of(settings),
                weights=settings.weights,
                guardrails=settings.guardrails,
                isolation=partial(isolation, admin),
                groups=partial(groups, admin),
                attempted_at=lambda: self._journal.attempted_at,
                store=self._state,
                actuator=lambda ledger: Executor(unloader, self._journal, ledger.accepts, self._stopping.is_set),
                gap_seconds=gap_seconds(settings),
                wanted_hits=wanted_hits(settings),
                on_plan=on_plan,
                on_outcome=on_outcome,
            )
        )

    @property
    def warning(self) -> str:
        """What a person should know of the journal; empty when all of it could be read."""
        torn = self._journal.torn_lines
        return f"{self._state.journal}: {torn} lines cannot be read; cool-downs in them are lost" if torn else ""

    def take(self, settings: Settings) -> None:
        """Go on with other settings from the next turn on; counters, averages and journal stay."""
        if settings.state_dir != self.settings.state_dir:
            raise UsageError(f"state_dir: {settings.state_dir} takes effect with a restart, not with a reload")
        self._observer.close()
        self.settings, self._observer = settings, Observer(Admin(settings.pulsar), time.time)

    def stop(self) -> None:
        """Begin no further unload; the one in flight is brought to its end."""
        self._stopping.set()

    def close(self) -> None:
        """Close what was opened."""
        self._observer.close()
        self._journal.close()


@contextmanager
def engine(settings: Settings) -> Iterator[Engine]:
    """A live lbd. Raises :class:`~lbd.errors.RefusedError` when another one holds the state directory."""
    state = StateDir(settings.state_dir)
    with state.locked():
        found = Engine(settings, state, Journal(state.journal, time.time))
        try:
            yield found
        finally:
            found.close()
