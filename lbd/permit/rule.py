"""The rule, and the case that it judges. Pure.

The model is the scheduling framework of Kubernetes: turns, drains, splits and replays go over one list of rules
(``permit/rules.py``) and name none of them. A rule answers at the points for which it has a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.model import BoolArray, IntArray, Skip, Unload, bundle_namespace
from lbd.permit import eligibility
from lbd.permit.ping_pong import Trips
from lbd.permit.topic_costs import dear_kinds, topic_costs
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.model import CodeArray, FloatArray, Pool
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.settings import Guardrails
    from lbd.permit.topic_costs import DearKind, TopicCosts, TopicKind


@dataclass(frozen=True, eq=False)
class Case:
    """The facts of a look, and the settings under which rules judge them; what several rules need is computed once.

    The bundle of ``leader_topic`` stays where it is. ``costs_by_topic`` are the costs that the settings give; None:
    Pulsar's own topics make no bundle dearer. With ``moved_rest`` a bundle that moved lately rests while others can go
    instead.
    """

    facts: Facts
    guardrails: Guardrails
    leader_topic: str = ""
    costs_by_topic: Mapping[TopicKind, float | str] | None = None
    moved_rest: bool = True

    @cached_property
    def trips(self) -> Trips:
        """How often each bundle moved lately, and where it came from."""
        return Trips(self.facts.sent, self.facts.now, self.guardrails)

    @cached_property
    def dear_kinds(self) -> tuple[DearKind, ...]:
        """Pulsar's own topics that make a move of their bundle dearer."""
        return dear_kinds(self.facts.system_topics, self.costs_by_topic)

    @cached_property
    def topic_costs(self) -> TopicCosts | None:
        """The costs of moves because of such topics; None where no bundle has any."""
        return topic_costs(self.facts.snapshot, self.dear_kinds)

    @cached_property
    def broker_bundles(self) -> CodeArray:
        """The brokers' own heartbeat and SLA bundles, barred; int8 (N,)."""
        return eligibility.broker_bundles(self.facts.snapshot)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The bundles that may be on the same brokers, together; empty where every bundle may go anywhere."""
        policies, snapshot = self.facts.policies, self.facts.snapshot
        if not policies.isolation.policies:
            return ()
        return eligibility.pools(policies.isolation, snapshot, policies.active, self.broker_bundles)

    @cached_property
    def homeless(self) -> Mapping[str, str]:
        """Namespaces whose bundles no active broker may have, and why."""
        return eligibility.homeless(self.pools, self.facts.snapshot, self.broker_bundles) if self.pools else {}

    @cached_property
    def named_costs(self) -> FloatArray | None:
        """The points that ``move_costs`` and ``topic_costs`` give each bundle, float64 (N,); None: none has any."""
        movable = self.topic_costs.movable if self.topic_costs is not None else None
        return eligibility.column(self.facts.snapshot, self.guardrails.move_costs, movable)

    @property
    def costs(self) -> FloatArray | None:
        """The cost of moving each bundle, float64 (N,), those of ``low`` namespaces the dearest; None: all the same."""
        return eligibility.dearer(self.named_costs, self.facts.snapshot, self.facts.policies.low)

    def lately(self, times: Mapping[str, float]) -> Iterable[str]:
        """The bundles whose time (epoch seconds) is within the last ``cool_down_minutes``."""
        since = self.facts.now - self.guardrails.cool_down_minutes * 60
        return (bundle for bundle, at in times.items() if at >= since)


Barred = BoolArray | IntArray | Iterable[str] | dict[str, Reason] | None
"""Bundles that may not move: bool (N,), or their positions; or their names, or those of namespaces as a whole, each
with its reason where that is not the rule's. None: none."""

Refusing = Callable[[Any, Unload], Skip | None]
"""Judges one move by a :class:`~lbd.permit.limits.Ledger`, which knows what was planned before it."""


@dataclass(frozen=True)
class Rule:
    """A reason not to move. It has a function for each point of a turn at which it has a say, and knows no other rule.

    ``reasons`` are its reasons out of the closed enum, each with its sentence: ``lbd explain`` says it of a bundle,
    documents of the rule. ``settings`` are those that it reads, as they stand in the file.

    - ``hold``: why nothing may fire in this turn, as detail of its reason or with another one; empty where it may.
    - ``namespaces``: those of some namespaces whose bundles stay, whoever asks.
    - ``exempts``: whether nothing is done to a bundle, whoever asks; by its name and the leader topic.
    - ``bars``: the bundles that may not move, besides what the rules before it bar, int8 (N,).
    - ``refuses``: why a move may not happen, wherever it goes.
    - ``forbids``: why a move may not go to its destination; also asked where it landed elsewhere.
    - ``caps``: why a plan has no room for one more move; it may have again later, whatever the cluster looks like.
    """

    reasons: Mapping[Reason, str]
    settings: tuple[str, ...] = ()
    hold: Callable[[Case], str | Hold | None] | None = None
    namespaces: Callable[[Iterable[str], Guardrails], Iterable[str]] | None = None
    exempts: Callable[[str, str], bool] | None = None
    bars: Callable[[Case, CodeArray], Barred] | None = None
    refuses: Refusing | None = None
    forbids: Refusing | None = None
    caps: Refusing | None = None

    @cached_property
    def reason(self) -> Reason:
        """Its reason, of several the first."""
        return next(iter(self.reasons))

    @cached_property
    def by_name(self) -> bool:
        """Whether names and settings alone decide."""
        return self.namespaces is not None or self.exempts is not None

    @cached_property
    def bars_bundles(self) -> bool:
        """Whether it bars single bundles."""
        return self.namespaces is not None or self.bars is not None

    def held(self, case: Case) -> Hold | None:
        """Why nothing may fire in this turn."""
        hold = self.hold(case) if self.hold is not None else None
        return (self.reason, hold) if isinstance(hold, str) and hold else hold or None

    def codes(self, case: Case, before: CodeArray) -> CodeArray | None:
        """A code for each bundle that it bars, int8 (N,), 0 for all others; None where it bars none."""
        snapshot, barred = case.facts.snapshot, None
        if self.namespaces is not None:
            barred = self.namespaces(snapshot.namespaces.names, case.guardrails)
        elif self.bars is not None:
            barred = self.bars(case, before)
        if isinstance(barred, np.ndarray):
            if not (barred.any() if barred.dtype == np.bool_ else barred.size):
                return None
            codes = np.zeros(len(snapshot.bundles), dtype=np.int8)
            codes[barred] = self.reason.code
            return codes
        reasons = barred if isinstance(barred, dict) else dict.fromkeys(barred or (), self.reason)
        return eligibility.codes_of(snapshot, reasons)

    def keeps(self, bundle: str, guardrails: Guardrails, leader_topic: str) -> bool:
        """Whether nothing is done to a bundle, whoever asks."""
        if self.namespaces is not None:
            return any(True for _ in self.namespaces((bundle_namespace(bundle),), guardrails))
        return self.exempts is not None and self.exempts(bundle, leader_topic)
