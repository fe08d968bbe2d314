"""Runs of strategies side by side, each with settings of its own, and a scorecard of each.

On a recording, lbd runs in real turns whose moves change what later rounds report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.config import Settings, strategy_section
from lbd.decide.strategies import STRATEGIES
from lbd.errors import UsageError
from lbd.load import scoring
from lbd.load.estimate import CPU, background_as_recorded, carried, driving
from lbd.load.fit import FEWEST_FREE, fit
from lbd.load.model_error import ModelError, measure
from lbd.load.samples import FIRST_CPU, SAMPLED, gather, row_totals
from lbd.model import BYTES_IN, BYTES_OUT, RESOURCES
from lbd.observe.observer import Observation
from lbd.permit.evidence import IMPOSSIBLE_SHARE, ReportedOwners, compare_owners, former
from lbd.pulsar.admin import Leader
from lbd.replay import rounds as rounds_of
from lbd.score.bounds import BundleHistory
from lbd.score.gap import gap
from lbd.score.scorecard import ClusterTruth, Moved, Trace, scorecard
from lbd.simulate.run import Run, Simulation, WhatIf, run_to_end
from lbd.simulate.scenario import Below, layered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from lbd.load.estimate import LoadModel
    from lbd.load.samples import BrokerSamples
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, FloatArray, IntArray, Snapshot, Unload
    from lbd.simulate.scenario import Scenario
    from lbd.store.recording import Header


@dataclass(frozen=True)
class Contender:
    """A strategy and settings by dotted keys; ``label`` is how it was asked for."""

    label: str
    strategy: str
    settings: Mapping[str, object]


def candidate(text: str, assignment: Callable[[str, str], tuple[str, object]]) -> Contender:
    """Parse ``NAME`` or ``NAME:KEY=VALUE,KEY=VALUE``; a key without a dot is one of the strategy's own settings, or
    ``profile``: ``stock`` is Pulsar's own rule.

    Raises :class:`UsageError` for a strategy that nobody knows.
    """
    name, _, values = text.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"--strategy {text}: {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    section = strategy_section(name)
    pairs = [assignment(part, f"--strategy {name}:") for part in values.split(",")] if values else []
    shared = ("profile",)
    return Contender(
        text, name, {key if "." in key or key in shared else f"{section}.{key}": value for key, value in pairs}
    )


def settings_for(chosen: Contender, below: Below, settings: Settings, overrides: Mapping[str, object]) -> Settings:
    """The settings of a run. Later sources override earlier ones: the scenario's or recording's, the user's, the
    overrides of all candidates, the candidate's own.

    Raises :class:`UsageError` with every problem.
    """
    own = {"strategy": chosen.strategy, **chosen.settings}
    origins = dict.fromkeys(overrides, "--set") | dict.fromkeys(own, f"--strategy {chosen.label}")
    others = {key: value for key, value in overrides.items() if key not in own}
    return layered(below, settings, {**others, **own}, origins)


def of_recording(header: Header) -> Below:
    """Return the settings under which a recording was made.

    Raises :class:`UsageError` for a strategy that nobody knows.
    """
    name = header.strategy or "avg-shedder"
    if name not in STRATEGIES:
        raise UsageError(f"{header.where}: strategy {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    settings = {
        "interval_seconds": header.interval_s,
        "guardrails": {"cool_down_minutes": header.grace_s / 60},
        "weights": dict(header.weights),
        **({strategy_section(name): header.settings} if STRATEGIES[name].is_section else {}),
    }
    return Below(header.where, settings)


# --- the recorded run itself: scores as reported, and moves by anyone


def recorded_trace(rounds: Sequence[Snapshot], model: LoadModel, weights: Weights, high_threshold: float) -> Trace:
    """The trace of what really happened: scores as reported, and each change of a bundle's owner."""
    brokers = tuple(sorted({broker for snapshot in rounds for broker in snapshot.brokers.ids}))
    truths, moves, shown_at = [], list[Moved](), None
    owners: ReportedOwners | None = None
    for snapshot, untouched in zip(rounds, unmoved(rounds, model, weights), strict=True):
        seconds, points = snapshot.taken_at - rounds[0].taken_at, reported_scores(snapshot, weights)
        present = np.isin(brokers, snapshot.brokers.ids)
        carries = np.zeros(len(brokers))
        carries[present] = np.nan_to_num(row_totals(snapshot)[:, (BYTES_IN, BYTES_OUT)].sum(axis=1))
        truths.append(ClusterTruth(seconds, points, untouched, present, carries))
        before, (owners, changed) = owners, compare_owners(owners, snapshot)
        if before is not None and changed:
            moves += _changes(before, owners, changed, snapshot, seconds)
        if shown_at is None and gap(points) >= high_threshold:
            shown_at = seconds
    return Trace(tuple(truths), tuple(moves), brokers, shown_at)


def _changes(
    before: ReportedOwners, now: ReportedOwners, changed: frozenset[str], snapshot: Snapshot, seconds: float
) -> Iterator[Moved]:
    """The bundles that changed hands, from whom to whom."""
    was = former(before, changed)
    sizes = bundle_rates(snapshot, now.owner)[0][:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
    for bundle, row in snapshot.positions_of(changed).items():
        destination = snapshot.brokers.ids[now.owner[row]]
        yield Moved(seconds, bundle, was[bundle], destination, float(sizes[row]))


# --- recorded brokers under other owners: what they would have reported if a plan had owned their bundles
# Rates of bundles are as recorded, owners are the plan's. A broker's usage is as recorded, plus the slope of its load
# model times the traffic that the plan adds: so bursts, neighbours and noise stay where they were, and a broker with
# its recorded bundles reports what it did. A new sample has the mean traffic since the one before, as a real one.

if TYPE_CHECKING:
    RowArray = NDArray[np.int64]

MEMORY = [RESOURCES.index(name) for name in ("memory", "direct_memory")]
"""Read whenever somebody asks, and no plan's doing."""

LEAST_SHARE = 1e-4
"""Share of a limit; a broker that reports less has not sampled yet."""

LAST_DIGITS = 1e-9


@dataclass(frozen=True, eq=False)
class RecountedRound:
    """One round as the plan has it. ``owner`` is int32 (N,), ``rates`` float64 (N, 4), aligned with its bundles."""

    snapshot: Snapshot
    owner: IntArray
    rates: FloatArray

    @property
    def throughput(self) -> float:
        """Traffic of all bundles, bytes/s in + out."""
        return float(self.rates[:, (BYTES_IN, BYTES_OUT)].sum())


def reported_scores(snapshot: Snapshot, weights: Weights) -> FloatArray:
    """Score of each broker in points, float64 (B,); 0 where no resource is known, or a number is impossible."""
    points = scoring.scores(snapshot.brokers, weights)
    return np.where((points > 0) & (points <= 100 * IMPOSSIBLE_SHARE), points, 0.0)


def unmoved(rounds: Iterable[Snapshot], model: LoadModel, weights: Weights) -> list[FloatArray]:
    """Scores of each round, float64 (B,), had no bundle changed hands since the first."""
    recorded = Recorded(model)
    return [reported_scores(recorded.round(snapshot).snapshot, weights) for snapshot in rounds]


class Recorded:
    """A recorded cluster under a plan. ``model`` knows every broker of the recording."""

    def __init__(self, model: LoadModel) -> None:
        self._model = model
        self._owners: ReportedOwners | None = None
        self._elsewhere: dict[str, str] = {}
        self._shown: _ReportedUsage | None = None

    def move(self, bundle: str, broker: str) -> None:
        """The plan has moved a bundle."""
        self._elsewhere[bundle] = broker

    def round(self, recorded: Snapshot) -> RecountedRound:
        """The next round of the recording, as it would have been."""
        was = self._look(recorded)
        owner = self._planned(recorded, was)
        rates, row = bundle_rates(recorded, was)
        beyond = carried(rates, owner, len(recorded.brokers)) - carried(rates, was, len(recorded.brokers))
        if not (np.array_equal(owner, was) and recorded.rows.bundle.size == len(recorded.bundles)):
            recorded = _owned(recorded, (was, owner), row, beyond)
        return RecountedRound(self._sampled(recorded, beyond), owner, rates)

    def _look(self, recorded: Snapshot) -> IntArray:
        """Recorded owners, int32 (N,). The plan leaves a bundle where it was while that broker is there."""
        before = self._owners
        self._owners, changed = compare_owners(before, recorded)
        if before is not None and changed:
            present = set(recorded.brokers.ids)
            for bundle, broker in former(before, changed).items():
                if broker in present:
                    self._elsewhere.setdefault(bundle, broker)
        return self._owners.owner

    def _planned(self, recorded: Snapshot, was: IntArray) -> IntArray:
        """The plan's owners; bundles of a broker that is away have their recorded owner."""
        position = recorded.brokers.index()
        self._elsewhere = {bundle: broker for bundle, broker in self._elsewhere.items() if broker in position}
        owner = was.copy()
        for bundle, row in recorded.positions_of(self._elsewhere).items():
            owner[row] = position[self._elsewhere[bundle]]
        return owner

    def _sampled(self, snapshot: Snapshot, beyond: FloatArray) -> Snapshot:
        """Usage changes only when the recorded one does, by the traffic that the plan added since the last sample."""
        brokers, model = snapshot.brokers, self._model.of(snapshot.brokers.ids)
        shown = _of_brokers(self._shown, brokers.ids)
        total, rounds = shown.total + driving(beyond, model.measure), shown.rounds + 1
        shifted = _shifted(brokers.usage, brokers.limit, model.slope * total / rounds[:, None])
        fresh = _differ(shown.recorded[:, SAMPLED], brokers.usage[:, SAMPLED])
        usage = np.where(fresh[:, None], shifted, shown.usage)
        usage[:, MEMORY] = brokers.usage[:, MEMORY]
        total[fresh], rounds[fresh] = 0.0, 0
        self._shown = _ReportedUsage(brokers.ids, brokers.usage, usage, total, rounds)
        return replace(snapshot, brokers=replace(brokers, usage=usage))


@dataclass(frozen=True, eq=False)
class _ReportedUsage:
    """Each broker's ``recorded`` and shown ``usage`` of its last round, both (B, 5), and the traffic beyond its own.

    ``total`` (B, 5) is what the plan gave it, added up over the ``rounds`` (B,) since its last sample.
    """

    ids: tuple[str, ...]
    recorded: FloatArray
    usage: FloatArray
    total: FloatArray
    rounds: FloatArray


def _of_brokers(before: _ReportedUsage | None, ids: tuple[str, ...]) -> _ReportedUsage:
    """The reported usage of these brokers; nothing is known of new ones."""
    if before is not None and before.ids == ids:
        return before
    size = len(ids)
    reported = _ReportedUsage(ids, np.full((size, 5), np.inf), np.zeros((size, 5)), np.zeros((size, 5)), np.zeros(size))
    position = {} if before is None else {broker: at for at, broker in enumerate(before.ids)}
    new = [at for at, broker in enumerate(ids) if broker in position]
    old = [position[ids[at]] for at in new]
    if before is not None:
        for mine, its in zip(_columns(reported), _columns(before), strict=True):
            mine[new] = its[old]
    return reported


def _columns(shown: _ReportedUsage) -> tuple[FloatArray, ...]:
    return shown.recorded, shown.usage, shown.total, shown.rounds


def _differ(first: FloatArray, second: FloatArray) -> BoolArray:
    """Rows in which two tables differ, bool (B,); two missing values are equal."""
    different: BoolArray = np.logical_or.reduce((first != second) & ~(np.isnan(first) & np.isnan(second)), axis=1)
    return different


def bundle_rates(snapshot: Snapshot, owner: IntArray) -> tuple[FloatArray, RowArray]:
    """Rates of each bundle, (N, 4), and its row, int64 (N,): that of its owner where two brokers report it.

    A rate that is no number counts for none.
    """
    rows = snapshot.rows
    row = np.zeros(len(snapshot.bundles), dtype=np.int64)
    row[rows.bundle] = np.arange(rows.bundle.size)
    own = np.flatnonzero(rows.owner() == owner[rows.bundle])
    row[rows.bundle[own]] = own
    return np.nan_to_num(np.maximum(rows.rates[row], 0.0), posinf=0.0), row


def _owned(snapshot: Snapshot, owners: tuple[IntArray, IntArray], row: RowArray, beyond: FloatArray) -> Snapshot:
    """The same reports with each bundle on its planned owner alone; ``owners`` are those recorded and planned.

    A broker's topics are those that it reported, plus and minus those that the plan moved: its report may not list all
    its bundles.
    """
    was, owner = owners
    order = np.argsort(owner, kind="stable").astype(np.int32)
    rows, chosen, size = snapshot.rows, row[order], len(snapshot.brokers)
    start = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=size)))).astype(np.int32)
    each = rows.counts[row, 0]
    gained = np.bincount(owner, each, size) - np.bincount(was, each, size)
    topics = np.maximum(snapshot.brokers.topics + gained.astype(np.int64), 0)
    brokers = replace(snapshot.brokers, rates=np.maximum(snapshot.brokers.rates + beyond, 0.0), topics=topics)
    return replace(snapshot, brokers=brokers, rows=rows.taken(chosen, start, order))


def _shifted(usage: FloatArray, limit: FloatArray, points: FloatArray) -> FloatArray:
    """Usage plus ``points`` percent of the limit, within the limit.

    It is unchanged where nothing is added, and where it is no usable number: lbd shall see that, too. A new sample
    that is cut off at either end still differs from the last one, by its last digits.
    """
    usable = (limit > 0) & (points != 0) & (usage >= 0) & np.isfinite(usage)
    usable[:, CPU] &= usage[:, CPU] > FIRST_CPU
    target = usage + points / 100 * limit
    shifted = np.clip(target, LEAST_SHARE * limit, np.maximum(limit, usage))
    return np.where(usable, np.where(shifted == target, shifted, shifted + LAST_DIGITS * usage), usage)


# --- lbd over a recording


class Rerun(WhatIf):
    """A recording under lbd. Every unload lands where it should."""

    def __init__(self, recording: Sequence[Snapshot], model: LoadModel, settings: Settings) -> None:
        super().__init__(settings, recording[0].taken_at)
        self._recording, self._model, self._recorded = recording, model, Recorded(model)
        self.brokers = tuple(sorted({broker for snapshot in recording for broker in snapshot.brokers.ids}))
        self._unmoved = unmoved(recording, model, settings.weights)
        self._first: dict[str, str] = {}
        self._named: list[str] = []
        self._heaviest: RecountedRound | None = None

    def rounds(self) -> Iterator[None]:
        """A round for each that was recorded."""
        for recorded in self._recording:
            self._now = recorded.taken_at
            self.land()
            self._round = self._recorded.round(recorded)
            yield

    def observe(self) -> Observation:
        """The round under the plan. One broker leads, and the brokers do not shed by themselves."""
        snapshot = self._round.snapshot
        return Observation(snapshot, "recorded", snapshot.brokers.ids, Leader(snapshot.brokers.ids[0], ""))

    def present(self) -> tuple[str, ...]:
        return self._round.snapshot.brokers.ids

    def move(self, unload: Unload, destination: str, seconds: float) -> bool:
        """Change the owner of a bundle from the next round on. Recordings hold no policy that could forbid it."""
        del seconds
        self._recorded.move(unload.bundle, destination)
        self._heaviest = None
        return True

    def truth(self) -> ClusterTruth:
        current, brokers = self._round, self._round.snapshot.brokers
        points = reported_scores(current.snapshot, self.settings.weights)
        present = np.isin(self.brokers, brokers.ids)
        carries = np.zeros(len(self.brokers))
        carries[present] = carried(current.rates, current.owner, len(brokers))[:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
        if self._heaviest is None or current.throughput > self._heaviest.throughput:
            self._heaviest = current
        self.show(points)
        if self._named != current.snapshot.bundles:
            self._named = current.snapshot.bundles
            for bundle, owner in zip(self._named, current.owner.tolist(), strict=True):
                self._first.setdefault(bundle, brokers.ids[owner])
        return ClusterTruth(self._seconds, points, self._unmoved[len(self._truths)], present, carries)

    def placement(self) -> BundleHistory | None:
        """Bundle sizes in the measure that drives CPU; None where brokers came or went, or another resource binds."""
        heaviest = self._heaviest
        if heaviest is None or len({snapshot.brokers.ids for snapshot in self._recording}) > 1:
            return None
        brokers, weight = heaviest.snapshot.brokers, self.settings.weights.cpu
        if set(scoring.binding(brokers, self.settings.weights)) != {"cpu"}:
            return None
        model, position = self._model.of(brokers.ids), brokers.index()
        traffic = carried(heaviest.rates, heaviest.owner, len(brokers))
        return BundleHistory(
            sizes=driving(heaviest.rates, model.measure)[:, CPU],
            first=np.array([position[self._first[bundle]] for bundle in heaviest.snapshot.bundles], dtype=np.int32),
            last=heaviest.owner,
            idle=weight * np.maximum(background_as_recorded(model, scoring.percent(brokers), traffic)[:, CPU], 0.0),
            slope=weight * model.slope[:, CPU],
            present=np.ones(len(brokers), dtype=np.bool_),
        )


# --- scorecards

ENOUGH_SAMPLES = FEWEST_FREE + 2
"""Samples that a broker needs for a slope of its own."""

RECORDED = "as recorded"
"""Label of what really happened."""


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
class ComparisonRequest:
    """The candidates, the user's settings, and the overrides that are tried with all candidates."""

    candidates: tuple[Contender, ...]
    base: Settings
    overrides: Mapping[str, object]
    tell: Callable[[str, float], None]
    """Called with a candidate's label and how much of its run is done, 0 to 1."""

    def run(self, label: str, what_if: WhatIf, thresholds: tuple[float, float], seconds: float) -> Run:
        """A candidate's run over ``seconds`` of the cluster's time."""
        return run_to_end(label, what_if, thresholds, lambda turned: self.tell(label, turned.seconds / seconds))


def over_scenario(request: ComparisonRequest, name: str, scenario: Scenario, seed: int) -> Compared:
    """Each candidate on the same simulated cluster."""
    below = Below.of(scenario)
    settings = [settings_for(candidate, below, request.base, request.overrides) for candidate in request.candidates]
    thresholds = _thresholds(_for_all(request, below))
    runs = [
        request.run(candidate.label, Simulation(scenario, own, seed), thresholds, scenario.hours * 3600)
        for candidate, own in zip(request.candidates, settings, strict=True)
    ]
    return Compared(name, tuple(runs), thresholds)


def over_recording(
    request: ComparisonRequest, header: Header, rounds: Sequence[Snapshot], model: LoadModel | None
) -> Compared:
    """The recording, and each candidate rerun over it. ``model`` replaces the one fitted to the recording.

    Raises :class:`UsageError` where the recording does not show how load follows traffic.
    """
    name = header.id or header.where
    below = of_recording(header)
    settings = [settings_for(candidate, below, request.base, request.overrides) for candidate in request.candidates]
    shared = _for_all(request, below)
    weights, thresholds = shared.weights, _thresholds(shared)
    samples = gather(rounds)
    fitted = model or fit(samples)
    _check(fitted, samples, header, weights)
    as_recorded = recorded_trace(rounds, fitted, weights, thresholds[1])
    runs = [Run(RECORDED, scorecard(as_recorded, *thresholds), as_recorded, "")]
    seconds = max(rounds[-1].taken_at - rounds[0].taken_at, 1.0)
    for candidate, own in zip(request.candidates, settings, strict=True):
        runs.append(request.run(candidate.label, Rerun(rounds, fitted, own), thresholds, seconds))
    return Compared(name, tuple(runs), thresholds, fitted, measure(samples, weights, model))


def recordings(path: Path) -> Iterator[tuple[Header, list[Snapshot]]]:
    """Each recording of a file with its rounds in the order of time."""
    rounds: list[Snapshot] = []
    current: Header | None = None
    for header, number, snapshot in rounds_of(path):
        if current is not None and header is not current:
            yield current, rounds
            rounds = []
        current = header
        rounds.append(_after(rounds, snapshot, f"{header.where}: round {number}"))
    if current is not None:
        yield current, rounds


def _for_all(request: ComparisonRequest, below: Below) -> Settings:
    """The settings without those of single candidates, so that all are measured by the same thresholds."""
    return settings_for(Contender("", "avg-shedder", {}), below, request.base, request.overrides)


def _thresholds(settings: Settings) -> tuple[float, float]:
    return settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold


def _check(model: LoadModel, samples: Mapping[str, BrokerSamples], header: Header, weights: Weights) -> None:
    unknown = model.unknown(weights)
    if not unknown:
        return
    broker, resource = unknown[0]
    own = samples[broker]
    most, least = own.carried[:, 2:].sum(axis=1).max(initial=0), own.carried[:, 2:].sum(axis=1).min(initial=np.inf)
    traffic = f", traffic {least / 1e6:.1f} to {most / 1e6:.1f} MB/s" if own.at.size else ""
    raise UsageError(
        f"{header.where}: {header.id}: no sample shows how {resource.replace('_', ' ')} follows traffic on {broker} "
        f"({own.at.size} samples{traffic}), nor on brokers like it; wanted {ENOUGH_SAMPLES} samples or more under "
        "changing traffic, or --points-per-mib"
    )


def _after(before: Sequence[Snapshot], snapshot: Snapshot, where: str) -> Snapshot:
    """The next round; it shares the bundle names of the last one if they are equal."""
    if not snapshot.brokers.ids:
        raise UsageError(f"{where}: no report in it; wanted one of each broker")
    if not before:
        return snapshot
    last = before[-1]
    if not snapshot.taken_at > last.taken_at:
        times = f"{snapshot.taken_at:.0f} after {last.taken_at:.0f}"
        raise UsageError(f"{where}: t is {times}; wanted rounds in the order of time")
    return replace(snapshot, bundles=last.bundles) if last.bundles == snapshot.bundles else snapshot
