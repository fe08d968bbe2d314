"""Which brokers are called slow in simulated clusters: none where none is sick, and a sick one within minutes.

    python -m tests.scenarios.slow [--seeds 2] [--each 3]

How long a health check takes is made up, and harsh: 0.02 s at rest, more as a queue grows with the score, pauses of
a garbage collector, and a slow minute after a start. Nothing here is a measurement of real brokers.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.config import Settings
from lbd.load.scoring import Weights, scores
from lbd.observe.health_checks import EVERY_SECONDS
from lbd.permit.slow import FAILED_SECONDS
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import load, settled, shipped
from tests.scenarios.clusters import KINDS, cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import Snapshot
    from lbd.simulate.scenario import Scenario
    from lbd.turn.parts import Parts

HOURS = 1.5
"""Of each run at most."""

SICK_AFTER_SECONDS = 900.0
SICK_SECONDS = 2.0


@dataclass
class Checks:
    """Health checks of simulated brokers. Where ``sick``, the least loaded broker is slow from a quarter of an hour on,
    in this part of its checks.
    """

    seed: int
    sick: float = 0.0
    broker: str = ""
    sick_at: float = 0.0
    _begun_at: float = 0.0
    _asked_at: float = float("-inf")
    _known_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def __call__(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Those that ended since the last turn."""
        now, random = snapshot.taken_at, self._random
        self._begun_at = self._begun_at or now
        if now - self._asked_at < EVERY_SECONDS - 1:
            return {}
        self._asked_at = now
        points = dict(zip(snapshot.brokers.ids, scores(snapshot.brokers, Weights()).tolist(), strict=True))
        if self.sick and not self.broker and now - self._begun_at >= SICK_AFTER_SECONDS:
            self.broker, self.sick_at = min(points, key=points.__getitem__), now
        found = {broker: self._seconds(broker, score, now) for broker, score in points.items()}
        if self.broker in found and random.random() < self.sick:
            found[self.broker] = SICK_SECONDS * float(random.lognormal(0, 0.3))
        return found

    def _seconds(self, broker: str, score: float, now: float) -> float:
        random, load_share = self._random, min(score / 100, 0.99)
        seconds = 0.02 * float(random.lognormal(0, 0.7)) / (1 - load_share)
        if random.random() < 0.03 + 0.1 * load_share**4:
            seconds += float(random.exponential(1.0))
        if now - self._known_since.setdefault(broker, now) < 60 and now - self._begun_at > 60:
            seconds += float(random.exponential(2.0))
        return min(seconds, FAILED_SECONDS)


@dataclass(frozen=True)
class Named:
    """What came of a run: the turns, those that named a broker slow that was well, the turns from the beginning of the
    sickness until the sick one was avoided (None: it never was), and bundles that were sent to it before and after.
    """

    turns: int
    wrong: int
    until: int | None
    before: int
    after: int


class CheckedSimulation(Simulation):
    """A cluster whose health is checked."""

    def __init__(self, scenario: Scenario, settings: Settings, seed: int, checks: Checks) -> None:
        super().__init__(scenario, settings, seed)
        self._checks = checks

    def parts(self) -> Parts:
        return replace(super().parts(), health=self._checks)


def run(scenario: Scenario, seed: int, sick: float = 0.0) -> Named:
    """One run."""
    scenario = scenario.model_copy(update={"hours": min(scenario.hours, HOURS)})
    checks = Checks(seed, sick)
    turns = wrong = waited = before = after = 0
    until: int | None = None
    settings = settled(scenario, Settings(), {})
    for turned in CheckedSimulation(scenario, settings, seed, checks).turns():
        evidence = turned.record.facts.evidence
        assert evidence is not None
        turns += 1
        wrong += bool(evidence.health.slow.keys() - {checks.broker})
        waited += bool(checks.broker)
        avoided = bool(checks.broker) and checks.broker in evidence.health.avoided
        until = waited if avoided and until is None else until
        sent = sum(unload.destination == checks.broker for unload in turned.record.plan.unloads)
        before, after = before + sent * (not avoided), after + sent * avoided
    return Named(turns, wrong, until, before, after)


def main() -> None:
    """Print a line for each cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--each", type=int, default=3)
    chosen = parser.parse_args()
    clusters = {f"{name}, seed {seed}": (load(name), seed) for name in shipped() for seed in range(1, chosen.seeds + 1)}
    clusters |= {f"{kind} {at}": (cluster(kind, at), 1) for kind in KINDS for at in range(chosen.each)}
    for name, (scenario, seed) in clusters.items():
        well, always, often = (run(scenario, seed, sick) for sick in (0.0, 1.0, 0.7))
        print(
            f"{name}: {well.turns} turns, {well.wrong} with a false alarm; sick: avoided after {always.until} turns, "
            f"{always.before} bundles sent before, {always.after} after, {always.wrong} false; sick in 7 of 10 checks: "
            f"after {often.until} turns, {often.before} and {often.after}, {often.wrong} false"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
