"""The facts of one turn, established once, before anything is decided. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lbd.model import Memory
from lbd.permit.membership import Membership
from lbd.permit.policies import Policies
from lbd.permit.progress import Progress
from lbd.permit.topic_costs import SystemTopics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lbd.model import Averages, FloatArray, Slopes, Snapshot, Unload
    from lbd.permit.budget import Sent
    from lbd.permit.evidence import Evidence
    from lbd.reason import Reason

Hold = tuple["Reason", str]
"""Why nothing may fire in a turn, and the details."""


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of one turn. Every later step reads these values, and no step establishes one of them again.

    ``changed_at`` is when the owner of a bundle changed without lbd, ``attempted_at`` when lbd last tried to move one
    (epoch seconds), ``taken_by_others`` the former owner and the present one of bundles that changed hands since the
    last round without lbd and without a restart of the former one, ``sent`` what was sent within the last day,
    ``unfinished`` the moves under way. ``memory`` is the strategy's, ``progress`` what came of earlier rounds of moves.
    ``ordered_hold`` is a hold that a person ordered. ``leaderless`` says why no broker leads, ``shedding`` which
    brokers shed by themselves; both are empty where nothing is wrong. ``slopes`` are what was learned of the brokers'
    load. ``joined`` are brokers that joined lately and whose CPU of now is known; none after one left within the hour,
    as in a restart. ``unshown`` float64 (B,) are points of moves of late that the scores do not show yet; None: they
    show all.
    """

    snapshot: Snapshot
    averages: Averages
    evidence: Evidence
    policies: Policies = field(default_factory=Policies)
    members: Membership = field(default_factory=Membership)
    memory: Memory = field(default_factory=Memory)
    progress: Progress = field(default_factory=Progress)
    changed_at: Mapping[str, float] = field(default_factory=dict)
    taken_by_others: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    attempted_at: Mapping[str, float] = field(default_factory=dict)
    sent: Collection[Sent] = ()
    unfinished: tuple[Unload, ...] = ()
    ordered_hold: Hold | None = None
    leaderless: str = ""
    shedding: str = ""
    system_topics: SystemTopics = field(default_factory=SystemTopics)
    sample_interval_seconds: float = 60.0
    slopes: Slopes | None = None
    joined: frozenset[str] = frozenset()
    unshown: FloatArray | None = None

    @property
    def now(self) -> float:
        """When the round was observed: the only clock of a turn (epoch seconds)."""
        return self.snapshot.taken_at

    @property
    def scores(self) -> FloatArray:
        """The score of each broker in points, float64 (B,)."""
        return self.evidence.scores

    @cached_property
    def points(self) -> Mapping[str, float]:
        """The same by broker."""
        return dict(zip(self.snapshot.brokers.ids, self.scores.tolist(), strict=True))
