"""What a turn is made of, and the record that it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lbd.model import Hits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lbd.decide import Strategy
    from lbd.errors import LbdError
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Outcome, Reason, Skip, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.limits import Ledger
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
    the silence after which hit counters start anew. Turns that cannot act list in ``ignored_holds`` what would only
    hide their answer, and say with ``eager`` that their strategy takes hit counts as reached; ``wanted_hits`` are the
    real ones.
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
    ignored_holds: frozenset[Reason] = frozenset()
    eager: bool = False
    wanted_hits: Hits = field(default_factory=Hits)
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
    wanted_hits: Hits = field(default_factory=Hits)
    counts: Mapping[str, int] = field(default_factory=dict)
