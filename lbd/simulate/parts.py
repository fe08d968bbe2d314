"""What a turn over a cluster that is not there is made of: all that is real but brokers, clock and disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.cycle import Parts
from lbd.cycle.chosen import gap_seconds, learner_of, strategy_of, wanted_hits
from lbd.permit.policies import Groups
from lbd.record.state import Scratch

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.cycle.parts import Observer
    from lbd.permit.policies import Isolation
    from lbd.simulate.moving import Moving


def parts_of(observer: Observer, moving: Moving, settings: Settings, isolation: Isolation) -> Parts:
    """``observer`` gives the rounds, and ``moving`` makes the moves; no namespace is in an anti-affinity group."""
    return Parts(
        observer=observer,
        strategy=strategy_of(settings),
        learn=learner_of(settings),
        strategy_name=settings.strategy,
        weights=settings.weights,
        guardrails=settings.guardrails,
        isolation=lambda: isolation,
        groups=lambda names, _: Groups(frozenset(names)),
        attempted_at=lambda: moving.attempted_at,
        sent=lambda: moving.sent,
        store=Scratch(),
        actuator=moving,
        gap_seconds=gap_seconds(settings),
        wanted_hits=wanted_hits(settings),
    )
