"""A scorecard for each candidate, over a scenario or over a recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.compare.as_recorded import recorded_trace
from lbd.compare.candidates import Candidate, of_recording, of_scenario, settings_for
from lbd.compare.rerun import Rerun
from lbd.errors import UsageError
from lbd.load.error import ModelError, measure
from lbd.load.fit import fit
from lbd.load.samples import gather
from lbd.load.theil_sen import FEWEST_FREE
from lbd.replay import rounds as rounds_of
from lbd.score.scorecard import scorecard
from lbd.simulate.run import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.compare.candidates import Below
    from lbd.config import Settings
    from lbd.load.linear import LoadModel
    from lbd.load.samples import BrokerSamples
    from lbd.load.scoring import Weights
    from lbd.model import Snapshot
    from lbd.record.recording import Header
    from lbd.score.scorecard import Scorecard
    from lbd.score.trace import Trace
    from lbd.simulate.scenario import Scenario


ENOUGH_SAMPLES = FEWEST_FREE + 2
"""Of one broker, for a slope of its own."""

RECORDED = "as recorded"
"""Label of what really happened."""


@dataclass(frozen=True)
class Run:
    """One candidate's run: its scorecard, what that was made of, and the sentence of its last turn."""

    label: str
    card: Scorecard
    trace: Trace
    sentence: str


@dataclass(frozen=True)
class Compared:
    """Runs over one scenario or recording, ``name``. ``thresholds`` (low and high, points) are the same for all.

    Over a recording ``model`` is what the runs were predicted with, and ``error`` how far it was off on moves that
    really happened.
    """

    name: str
    runs: tuple[Run, ...]
    thresholds: tuple[float, float]
    model: LoadModel | None = None
    error: ModelError | None = None


@dataclass(frozen=True)
class Asked:
    """What is compared, and under which settings: the user's, and what is tried with all of them."""

    candidates: tuple[Candidate, ...]
    given: Settings
    overrides: Mapping[str, object]
    clock: Callable[[], float]
    tell: Callable[[str, float], None]
    """Called with a candidate's label and how much of its run is done, 0 to 1."""


def over_scenario(asked: Asked, name: str, scenario: Scenario, seed: int) -> Compared:
    """Each candidate on the same simulated cluster."""
    below = of_scenario(scenario)
    settings = [settings_for(one, below, asked.given, asked.overrides) for one in asked.candidates]
    thresholds = _thresholds(_for_all(asked, below))
    runs = []
    for candidate, own in zip(asked.candidates, settings, strict=True):
        simulation, sentence = Simulation(scenario, own, seed, asked.clock), ""
        for turned in simulation.turns():
            sentence = turned.record.sentence
            asked.tell(candidate.label, turned.seconds / (scenario.hours * 3600))
        trace = simulation.trace()
        runs.append(Run(candidate.label, scorecard(trace, *thresholds), trace, sentence))
    return Compared(name, tuple(runs), thresholds)


def over_recording(asked: Asked, header: Header, rounds: Sequence[Snapshot], model: LoadModel | None) -> Compared:
    """What was recorded, and each candidate as it would have been. ``model``: instead of one fitted to the recording.

    Raises :class:`UsageError` where the recording does not tell how load follows traffic.
    """
    name = header.id or header.where
    below = of_recording(header)
    settings = [settings_for(one, below, asked.given, asked.overrides) for one in asked.candidates]
    shared = _for_all(asked, below)
    weights, thresholds = shared.weights, _thresholds(shared)
    samples = gather(rounds)
    found = model or fit(samples)
    _check(found, samples, header, weights)
    as_recorded = recorded_trace(rounds, found, weights, thresholds[1])
    runs = [Run(RECORDED, scorecard(as_recorded, *thresholds), as_recorded, "")]
    for candidate, own in zip(asked.candidates, settings, strict=True):
        rerun, sentence = Rerun(rounds, found, own, asked.clock), ""
        for number, record in enumerate(rerun.turns(), start=1):
            sentence = record.sentence
            asked.tell(candidate.label, number / len(rounds))
        trace = rerun.trace()
        runs.append(Run(candidate.label, scorecard(trace, *thresholds), trace, sentence))
    return Compared(name, tuple(runs), thresholds, found, measure(samples, weights, model))


def recordings(path: Path) -> Iterator[tuple[Header, list[Snapshot]]]:
    """Each recording of a file with its rounds in the order of time."""
    found: list[Snapshot] = []
    current: Header | None = None
    for header, number, snapshot in rounds_of(path):
        if current is not None and header is not current:
            yield current, found
            found = []
        current = header
        found.append(_after(found, snapshot, f"{header.where}: round {number}"))
    if current is not None:
        yield current, found


def _for_all(asked: Asked, below: Below) -> Settings:
    """The settings without what single candidates change: all are measured by the same."""
    return settings_for(Candidate("", "avg-shedder", {}), below, asked.given, asked.overrides)


def _thresholds(settings: Settings) -> tuple[float, float]:
    return settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold


def _check(model: LoadModel, samples: Mapping[str, BrokerSamples], header: Header, weights: Weights) -> None:
    unknown = model.unknown(weights)
    if not unknown:
        return
    broker, resource = unknown[0]
    own = samples[broker]
    most, least = own.carried[:, 2:].sum(axis=1).max(initial=0), own.carried[:, 2:].sum(axis=1).min(initial=np.inf)
    seen = f"{own.at.size} samples" + (f", traffic {least / 1e6:.1f} to {most / 1e6:.1f} MB/s" if own.at.size else "")
    raise UsageError(
        f"{header.where}: {header.id}: nothing tells how {resource.replace('_', ' ')} follows traffic on {broker} "
        f"({seen}), nor on brokers like it; wanted {ENOUGH_SAMPLES} samples or more under changing traffic, or "
        "--points-per-mib"
    )


def _after(before: Sequence[Snapshot], snapshot: Snapshot, where: str) -> Snapshot:
    """The next round; names that are those of the last one are kept once."""
    if not snapshot.brokers.ids:
        raise UsageError(f"{where}: no report in it; wanted one of each broker")
    if not before:
        return snapshot
    last = before[-1]
    if not snapshot.taken_at > last.taken_at:
        seen = f"{snapshot.taken_at:.0f} after {last.taken_at:.0f}"
        raise UsageError(f"{where}: t is {seen}; wanted rounds in the order of time")
    return replace(snapshot, bundles=last.bundles) if last.bundles == snapshot.bundles else snapshot
