"""Runs of shipped scenarios, each made once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lbd.config import Settings
from lbd.score.scorecard import Moved, Scorecard, scorecard
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import load, settled

if TYPE_CHECKING:
    from lbd.reason import Reason


@dataclass(frozen=True)
class Run:
    """What came of a run: its card, its moves, true scores by broker in the end, and all reasons that were given."""

    card: Scorecard
    moves: tuple[Moved, ...]
    last: dict[str, float]
    reasons: frozenset[Reason]

    def between(self, source: str, destination: str) -> int:
        """Moves from one broker to another."""
        return sum((move.source, move.destination) == (source, destination) for move in self.moves)

    @property
    def first_round(self) -> tuple[Moved, ...]:
        """The moves within a minute of the first one."""
        return tuple(move for move in self.moves if move.seconds < self.moves[0].seconds + 60)

    @property
    def minutes(self) -> list[float]:
        """When each bundle landed, in minutes of the run."""
        return [move.seconds / 60 for move in self.moves]


@cache
def run(name: str, seed: int, *overrides: tuple[str, object], hours: float | None = None) -> Run:
    """One run; ``hours`` where it need not go on to its end."""
    scenario = load(name)
    if hours is not None:
        scenario = scenario.model_copy(update={"hours": hours})
    settings = settled(scenario, Settings(), dict(overrides))
    simulation = Simulation(scenario, settings, seed)
    reasons: set[Reason] = set()
    for turned in simulation.turns():
        brokers = turned.record.observation.snapshot.brokers.ids
        reasons |= {skip.reason for skip in turned.record.skips}
        if turned.record.plan.hold is not None:
            reasons.add(turned.record.plan.hold[0])
    trace = simulation.trace()
    last = dict(zip(brokers, trace.truths[-1].points.tolist(), strict=True))
    card = scorecard(trace, settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold)
    return Run(card, trace.moves, last, frozenset(reasons))
