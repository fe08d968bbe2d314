"""The parts of a turn, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lbd.act.executor import NOTHING_FINISHED
from lbd.permit import evidence
from lbd.permit.consent import Consent
from lbd.permit.policies import Groups
from lbd.turn.plan import NOTHING_PLANNED, Chosen

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lbd.act.executor import FinishedMoves, Limits
    from lbd.errors import LbdError
    from lbd.load.capacity import Capacity
    from lbd.model import Averages, Skip, Slopes, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.budget import Sent
    from lbd.permit.evidence import ReportedOwners
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.policies import Isolation
    from lbd.permit.served import Landing, ServiceResult
    from lbd.reason import Reason
    from lbd.store.state import TurnMemory
    from lbd.turn.plan import Plan, Planning, SpreadSource
    from lbd.turn.waves import Rest


class RoundSource(Protocol):
    """Where rounds come from."""

    def observe(self) -> Observation: ...


LiveCpuSource = Callable[["Snapshot", "Mapping[str, float]", float], "Snapshot"]
"""Gives a round the present CPU of some brokers: those named, each with the time from which on it counts, and how often
brokers sample for their reports, in seconds."""


def reports_alone(snapshot: Snapshot, watched: Mapping[str, float], sample_interval_seconds: float) -> Snapshot:
    """The round as it is: CPU from load reports alone."""
    del watched, sample_interval_seconds
    return snapshot


HealthSource = Callable[["Snapshot"], "Mapping[str, float]"]
"""Gives how long health checks took that ended since the round before, in seconds by broker."""


class Actuator(Protocol):
    """Executes plans, beside the turns."""

    @property
    def acts(self) -> bool: ...
    def collect(self) -> FinishedMoves: ...
    def settled(self) -> None: ...
    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None: ...
    def halt(self, reason: Reason, detail: str) -> None: ...


class PolicySource(Protocol):
    """The source of isolation policies, anti-affinity groups and properties of namespaces.

    ``consents`` reads what properties of these namespaces allow, and returns it with all that was read lately.
    """

    def isolation(self) -> Isolation: ...
    def groups(self, names: tuple[str, ...], tenants: frozenset[str]) -> Groups: ...
    def consents(self, names: tuple[str, ...]) -> Mapping[str, Consent]: ...


class SentUnloads(Protocol):
    """The record of earlier unloads, as a journal has it."""

    @property
    def attempted_at(self) -> Mapping[str, float]: ...
    @property
    def sent(self) -> Collection[Sent]: ...


@dataclass(frozen=True)
class FreePolicies:
    """Policies where there is no cluster to read them from: no namespace has an anti-affinity group or properties."""

    policies: Isolation

    def isolation(self) -> Isolation:
        """The isolation policies."""
        return self.policies

    def groups(self, names: tuple[str, ...], tenants: frozenset[str]) -> Groups:
        """None of these is in one."""
        del tenants
        return Groups(frozenset(names))

    def consents(self, names: tuple[str, ...]) -> Mapping[str, Consent]:
        """None of these has a property."""
        return dict.fromkeys(names, Consent())


class Store(Protocol):
    """The memory and the averages between turns."""

    def load(self) -> TurnMemory: ...
    def save(self, memory: TurnMemory) -> None: ...
    def load_averages(self, now: float) -> Averages: ...
    def save_averages(self, averages: Averages, now: float) -> None: ...


@dataclass(frozen=True, eq=False)
class OwnerChanges:
    """The bundles whose owner is another one ``now`` than ``before``, which is None in the first round."""

    before: ReportedOwners | None
    now: ReportedOwners
    changed: frozenset[str]

    def unexplained(self, bundles: Collection[str], snapshot: Snapshot) -> dict[str, tuple[str, str]]:
        """The former owner, which has run on, and the present one of those of ``bundles`` that changed."""
        if self.before is None or not bundles:
            return {}
        return evidence.unexplained(self.before, self.now, self.changed.intersection(bundles), snapshot)


class OwnershipWatch:
    """The owners of bundles in the last round; ``before``: those that were kept, so that a restart hides no change."""

    def __init__(self, before: ReportedOwners | None = None) -> None:
        self._owners = before

    @property
    def seen_at(self) -> float:
        """The time of that round, epoch seconds; 0 before the first one."""
        return self._owners.seen_at if self._owners is not None else 0.0

    def changes(self, snapshot: Snapshot) -> OwnerChanges:
        """The changes since the last call."""
        before = self._owners
        self._owners, changed = evidence.compare_owners(before, snapshot)
        return OwnerChanges(before, self._owners, changed)


@dataclass(frozen=True)
class Parts:
    """Everything that a turn needs, chosen in one place (``daemon/``): where its facts come from, and where they go.

    Properties of namespaces bind the turn where it ``heeds_properties``: not in a person's order, and as the settings
    say. ``past`` is what was sent lately, ``watch`` knows the owners of the round before. ``ordered_hold`` is a
    hold that a person ordered. ``unserved`` are the namespaces that stay while clients of their bundles are not back.
    ``gap_seconds`` is the silence after which hit counters start anew. ``learn`` gets every round, and returns what
    traffic costs each broker. ``drained`` are the brokers that nothing may go to, and that no broker is compared with.
    ``live`` asks the brokers of recent moves for their present CPU. ``rest`` is what the turn before left of its plan.
    ``spread`` says what belongs apart and where it is; None: it is not known, or off. ``health`` is how long brokers
    take to check themselves.
    """

    observer: RoundSource
    planning: Planning
    policies: PolicySource
    past: SentUnloads
    store: Store
    actuator: Actuator
    gap_seconds: float
    heeds_properties: bool = True
    watch: OwnershipWatch = field(default_factory=OwnershipWatch)
    ordered_hold: Callable[[], Hold | None] = lambda: None
    unserved: Callable[[], Mapping[str, str]] = dict
    learn: Callable[[Snapshot], Slopes | None] = lambda _: None
    on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None
    drained: Callable[[], frozenset[str]] = frozenset
    live: LiveCpuSource = reports_alone
    rest: Rest | None = None
    spread: SpreadSource = lambda *_: None
    health: HealthSource = lambda _: {}

    @property
    def acts(self) -> bool:
        """Whether the turn's own plan is executed."""
        return self.actuator.acts and not self.planning.approval


@dataclass(frozen=True, eq=False)
class TurnResult:
    """Everything one turn observed, decided and did.

    ``moves`` are those that have ended, or were planned and not sent, of plans handed over before it, or of its own
    where somebody waited for that. ``acts`` is False where plans are only shown; with ``approval`` they wait for a
    person's. ``turn_memory`` is the memory before the turn. ``error`` is set when the turn, or acting, could not be
    finished. ``number`` names a turn that is recorded; 0: it is not. ``served`` is whether clients are back, for moves
    that landed before. ``capacity`` is how many brokers are wanted, where that is followed.
    """

    sentence: str = ""
    number: int = 0
    observation: Observation | None = None
    facts: Facts | None = None
    plan: Plan = NOTHING_PLANNED
    moves: FinishedMoves = NOTHING_FINISHED
    chosen: Chosen = field(default_factory=Chosen)
    acts: bool = True
    approval: bool = False
    turn_memory: TurnMemory | None = None
    served: tuple[tuple[Landing, ServiceResult], ...] = ()
    capacity: Capacity | None = None
    error: LbdError | None = None

    @property
    def skips(self) -> tuple[Skip, ...]:
        """Why things stay: of the plan, and of what was planned and not sent."""
        return (*self.plan.skips, *self.moves.skips)
