"""What a turn is made of, and the record that it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lbd.cycle.calm import Watch
from lbd.model import Hits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lbd.act.orders import Accepts, Ended
    from lbd.decide import Strategy
    from lbd.errors import LbdError
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Outcome, Skip, Slopes, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.budget import Sent, Used
    from lbd.permit.evidence import Evidence
    from lbd.permit.policies import Groups, Isolation
    from lbd.permit.settings import Guardrails
    from lbd.reason import Reason
    from lbd.record.state import Kept


class Observer(Protocol):
    """Where rounds come from."""

    def observe(self) -> Observation: ...


class Actuator(Protocol):
    """What works plans off, beside the turns."""

    @property
    def acts(self) -> bool: ...
    def collect(self) -> Ended: ...
    def settled(self) -> None: ...
    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None: ...
    def halt(self, reason: Reason, detail: str) -> None: ...


class Store(Protocol):
    """What is kept between turns."""

    def load(self) -> Kept: ...
    def save(self, kept: Kept) -> None: ...
    def load_averages(self, now: float) -> Averages: ...
    def save_averages(self, averages: Averages, now: float) -> None: ...


Hold = tuple["Reason", str]
"""Why nothing may fire in a turn, and what there is to say of it."""


@dataclass(frozen=True)
class Parts:
    """Everything that a turn needs, chosen in one place (``daemon/``).

    ``sent`` is what was sent within the last day, ``watch`` knows the owners of the round before. ``ordered_hold`` is a
    hold that a person asked for. ``gap_seconds`` is the silence after which hit counters start anew. ``strategy_name``
    is what settings call the strategy. Turns that cannot act list in ``ignored_holds`` what would only hide their
    answer, and say with ``eager`` that their strategy takes as given what it would wait for, and in ``assumed`` what
    that is; ``wanted_hits`` are the real ones. ``learn`` is shown every round, and tells what traffic costs
    each broker. The bundle that carries ``leader_topic`` stays where it is. ``drained`` are the brokers that nothing
    may go to, and that none is compared with.
    """

    observer: Observer
    strategy: Strategy
    weights: Weights
    guardrails: Guardrails
    isolation: Callable[[], Isolation]
    groups: Callable[[tuple[str, ...], frozenset[str]], Groups]
    attempted_at: Callable[[], Mapping[str, float]]
    store: Store
    actuator: Actuator
    gap_seconds: float
    sent: Callable[[], Collection[Sent]] = tuple
    watch: Watch = field(default_factory=Watch)
    ordered_hold: Callable[[], Hold | None] = lambda: None
    ignored_holds: frozenset[Reason] = frozenset()
    ignored_bars: frozenset[Reason] = frozenset()
    strategy_name: str = "avg-shedder"
    eager: bool = False
    assumed: str = ""
    wanted_hits: Hits = field(default_factory=Hits)
    learn: Callable[[Snapshot], Slopes | None] = lambda _: None
    on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None
    leader_topic: str = ""
    drained: Callable[[], frozenset[str]] = frozenset


@dataclass(frozen=True, eq=False)
class CycleRecord:
    """Everything one turn saw, decided and did.

    ``unloads`` is what this turn planned; ``outcomes``, ``refused`` (planned and not sent) and ``unfinished`` tell of
    plans handed over before it, or, where it was waited for, of its own. ``acts`` is False where plans are only shown.
    ``error`` is set when the turn, or acting, could not be finished. ``expected`` is the score, in points, of each
    broker that the plan touches, once all of it has landed. ``slopes`` are what was known of the brokers. ``number``
    names a turn that is kept; 0: it is not.
    """

    sentence: str = ""
    observation: Observation | None = None
    decision: Decision | None = None
    unloads: tuple[Unload, ...] = ()
    skips: tuple[Skip, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    refused: tuple[Skip, ...] = ()
    unfinished: tuple[Unload, ...] = ()
    hold: Hold | None = None
    kept: Kept | None = None
    error: LbdError | None = None
    acts: bool = True
    strategy_name: str = "avg-shedder"
    eager: bool = False
    assumed: str = ""
    wanted_hits: Hits = field(default_factory=Hits)
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: tuple[Used, ...] = ()
    averages: Averages | None = None
    evidence: Evidence | None = None
    expected: Mapping[str, float] = field(default_factory=dict)
    slopes: Slopes | None = None
    number: int = 0
