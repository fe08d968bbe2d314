"""A simulated run to its end, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.score.scorecard import scorecard
from lbd.simulate.run import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.score.scorecard import Scorecard
    from lbd.score.trace import Trace
    from lbd.simulate.run import Turned
    from lbd.simulate.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that has ended; ``sentence`` is what its last turn said."""

    name: str
    scenario: Scenario
    settings: Settings
    seed: int
    trace: Trace
    card: Scorecard
    sentence: str

    @property
    def turn_seconds(self) -> float:
        """What all turns took of this machine's time."""
        return sum(one.took_seconds for one in self.trace.seen)


def finish(
    name: str,
    scenario: Scenario,
    settings: Settings,
    seed: int,
    clock: Callable[[], float],
    follow: Callable[[Turned], None] = lambda _: None,
) -> Finished:
    """Run the scenario to its end; ``follow`` is told of each turn, ``clock`` measures what turns take."""
    simulation, sentence = Simulation(scenario, settings, seed, clock), ""
    for turned in simulation.turns():
        sentence = turned.record.sentence
        follow(turned)
    trace = simulation.trace()
    limits = settings.avg_shedder
    card = scorecard(trace, limits.low_threshold, limits.high_threshold)
    return Finished(name, scenario, settings, seed, trace, card, sentence)
