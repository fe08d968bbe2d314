"""The parts of a turn, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lbd.model import Hits
from lbd.permit import evidence
from lbd.permit.consent import Consent
from lbd.permit.limits import Ledger
from lbd.permit.policies import Groups
from lbd.permit.rule import Case
from lbd.permit.rules import RULES
from lbd.turn.canary import NOTHING_HELD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lbd.act.executor import FinishedMoves, Limits
    from lbd.decide.strategies import Strategy
    from lbd.errors import LbdError
    from lbd.load.capacity import Capacity
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, FloatArray, Outcome, Permission, Pool, Skip, Slopes, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.budget import Sent, Used
    from lbd.permit.evidence import ReportedOwners
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.policies import Isolation, Policies
    from lbd.permit.served import Landing, ServiceResult
    from lbd.permit.settings import Guardrails
    from lbd.permit.topic_costs import DearKind, TopicKind
    from lbd.reason import Reason
    from lbd.spread import Crowded, Spread
    from lbd.store.state import TurnMemory
    from lbd.turn.canary import CanaryHold
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


def no_checks(snapshot: Snapshot) -> Mapping[str, float]:
    """No broker is checked."""
    del snapshot
    return {}


SpreadSource = Callable[["Snapshot", "Sequence[Pool]"], "Spread | None"]
"""Where partitions of topics, or bundles of namespaces, are in a round, within the pools of its brokers."""


def no_spread(snapshot: Snapshot, pools: Sequence[Pool]) -> Spread | None:
    """Nothing belongs apart."""
    del snapshot, pools
    return None


class Actuator(Protocol):
    """Executes plans, beside the turns."""

    @property
    def acts(self) -> bool: ...
    def collect(self) -> FinishedMoves: ...
    def settled(self) -> None: ...
    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None: ...
    def halt(self, reason: Reason, detail: str) -> None: ...


ConsentSource = Callable[["tuple[str, ...]"], "Mapping[str, Consent]"]
"""Reads what properties of these namespaces allow, and returns it with all that was read lately."""


class PolicySource(Protocol):
    """The source of isolation policies, anti-affinity groups and properties of namespaces."""

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
    """Everything that a turn needs, chosen in one place (``daemon/``).

    ``consents`` is None where properties of namespaces do not bind the turn: by the settings, or in a person's order.
    ``sent`` is what was sent within the last day, ``watch`` knows the owners of the round before. ``ordered_hold`` is a
    hold that a person ordered. ``unserved`` are the namespaces that stay while clients of their bundles are not back.
    ``gap_seconds`` is the silence after which hit counters start anew. ``strategy_name`` is the strategy's name in the
    settings. Turns that cannot act list in ``ignored_holds`` the holds that would only hide their answer. With
    ``eager`` their strategy assumes what it would otherwise wait for, named in ``assumed``; ``wanted_hits`` are the
    real hit counts. With ``approval`` a plan is a proposal, and nothing is handed over. ``learn`` gets every round, and
    returns what traffic costs each broker. With ``moved_rest`` a bundle that lbd moved lately rests while others can go
    instead. The bundle that carries ``leader_topic`` stays where it is. ``drained`` are the brokers that nothing may go
    to, and that no broker is compared with. ``live`` asks the brokers of recent moves for their present CPU. With
    ``in_waves`` the result has what the limits of a turn cut off its plan: the ``rest`` for the next turn. ``spread``
    says what belongs apart and where it is; None: it is not known, or off. ``topic_costs`` are those that the settings
    give; None: Pulsar's own topics make no bundle dearer. ``health`` is how long brokers take to check themselves.
    """

    observer: RoundSource
    strategy: Strategy
    weights: Weights
    guardrails: Guardrails
    isolation: Callable[[], Isolation]
    groups: Callable[[tuple[str, ...], frozenset[str]], Groups]
    attempted_at: Callable[[], Mapping[str, float]]
    store: Store
    actuator: Actuator
    gap_seconds: float
    consents: ConsentSource | None = None
    sent: Callable[[], Collection[Sent]] = tuple
    watch: OwnershipWatch = field(default_factory=OwnershipWatch)
    ordered_hold: Callable[[], Hold | None] = lambda: None
    unserved: Callable[[], Mapping[str, str]] = dict
    ignored_holds: frozenset[Reason] = frozenset()
    ignored_bars: frozenset[Reason] = frozenset()
    approval: bool = False
    moved_rest: bool = True
    strategy_name: str = "avg-shedder"
    eager: bool = False
    assumed: str = ""
    wanted_hits: Hits = field(default_factory=Hits)
    learn: Callable[[Snapshot], Slopes | None] = lambda _: None
    on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None
    leader_topic: str = ""
    drained: Callable[[], frozenset[str]] = frozenset
    live: LiveCpuSource = reports_alone
    in_waves: bool = False
    rest: Rest | None = None
    spread: SpreadSource = no_spread
    topic_costs: Mapping[TopicKind, float | str] | None = None
    health: HealthSource = no_checks

    @property
    def acts(self) -> bool:
        """Whether the turn's own plan is executed."""
        return self.actuator.acts and not self.approval

    def case(self, facts: Facts) -> Case:
        """The case for the rules: these facts, under the settings of these parts."""
        return Case(facts, self.guardrails, self.leader_topic, self.topic_costs, self.moved_rest)

    def ledger(
        self,
        case: Case,
        snapshot: Snapshot,
        scores: FloatArray,
        policies: Policies,
        plan: Sequence[Unload],
        permission: Permission,
        unshown: FloatArray | None = None,
    ) -> Ledger:
        """The judge of each move of a plan under these guardrails, to be advanced by those that are let through.

        ``unshown``: points of moves that the case knows and that ``scores`` do not show yet, float64 (B,).
        """
        return Ledger(
            snapshot,
            scores,
            policies,
            self.guardrails,
            plan,
            rules=RULES,
            trips=case.trips,
            sent=case.facts.sent,
            unshown=unshown,
            permission=permission,
            ignored=self.ignored_bars,
            weights=self.weights,
        )


@dataclass(frozen=True, eq=False)
class TurnResult:
    """Everything one turn observed, decided and did.

    ``unloads`` is what this turn planned. ``outcomes``, ``refused`` (planned and not sent) and ``unfinished`` belong to
    plans handed over before it, or to its own where somebody waited for that. ``acts`` is False where plans are only
    shown; with ``approval`` they wait for a person's. ``turn_memory`` is the memory before the turn. ``error`` is set
    when the turn, or acting, could not be finished. ``expected`` is the score, in points, of each broker that the plan
    touches, once all of it has landed. ``number`` names a turn that is recorded; 0: it is not. ``amended`` are
    corrected outcomes of moves that earlier turns reported, ``served`` is whether clients are back, for moves that
    landed before. ``blocked`` is why a pair, by its ends, can move nothing at present, and until when, ``canary`` what
    a canary holds of the plan. ``rest`` is what remains of the plan after this turn's wave; ``gave_up`` is why the rest
    of an earlier one is not moved. ``capacity`` is how many brokers are wanted, where that is followed. ``crowded`` are
    brokers with more than their share of a topic's partitions, or a namespace's bundles. ``dear_kinds`` are Pulsar's
    own topics that make a move of a bundle dearer, ``costs`` the points of each bundle, float64 (N,), None where none
    has any.
    """

    sentence: str = ""
    observation: Observation | None = None
    facts: Facts | None = None
    decision: Decision | None = None
    unloads: tuple[Unload, ...] = ()
    skips: tuple[Skip, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    refused: tuple[Skip, ...] = ()
    unfinished: tuple[Unload, ...] = ()
    hold: Hold | None = None
    turn_memory: TurnMemory | None = None
    error: LbdError | None = None
    acts: bool = True
    approval: bool = False
    strategy_name: str = "avg-shedder"
    eager: bool = False
    assumed: str = ""
    wanted_hits: Hits = field(default_factory=Hits)
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: tuple[Used, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    amended: tuple[Outcome, ...] = ()
    served: tuple[tuple[Landing, ServiceResult], ...] = ()
    blocked: Mapping[str, Skip] = field(default_factory=dict)
    canary: CanaryHold = NOTHING_HELD
    rest: Rest | None = None
    gave_up: str = ""
    capacity: Capacity | None = None
    crowded: tuple[Crowded, ...] = ()
    dear_kinds: tuple[DearKind, ...] = ()
    costs: FloatArray | None = None
