"""Calibration: history to load samples, history and settings to figures of windows, figures to a choice. Pure.

What runs its functions over the parts of a history is handed in (:mod:`lbd.learn.workers`); a Spark job is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from lbd.config import Settings
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.least_moves import LeastMovesSettings
from lbd.learn.choose import (
    DEALS,
    FEWEST_WINDOWS,
    PRESENT,
    TUNABLE,
    SettingsCandidate,
    candidates,
    choose,
    clearly_better,
    over_deals,
    shortlist,
    through_incidents,
)
from lbd.learn.features import MINUTE_SECONDS, features, joined_scores
from lbd.learn.history import read_history
from lbd.learn.incidents import BEFORE_SECONDS, INCIDENT_SECONDS, Harm, harms, times
from lbd.learn.replay import RECONNECT_SECONDS, Figures, Scale, as_recorded, figures, recorded, replays
from lbd.learn.slopes import cpu_by_traffic, with_borrowed
from lbd.learn.window import as_one, bundle_traffic, dealt
from lbd.learn.workers import Task, columns_of
from lbd.load.estimate import CPU, Source
from lbd.load.fit import fit
from lbd.load.model_error import measure
from lbd.load.samples import BrokerSamples, gather
from lbd.load.unlike import points_of_neighbours, times_of_others
from lbd.model import RESOURCES
from lbd.observe.averages import half_in
from lbd.store.calibration import CalibratedMix
from lbd.store.history_tables import RATES
from lbd.text import DAY_SECONDS, HOUR_SECONDS, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lbd.learn.choose import Choice, Tunable
    from lbd.learn.features import Features
    from lbd.learn.history import CheckedHistory, Stretch
    from lbd.learn.replay import Course
    from lbd.learn.slopes import Borrowed
    from lbd.learn.window import Window
    from lbd.learn.workers import Rows, Workers
    from lbd.load.estimate import LoadModel
    from lbd.load.model_error import ModelError
    from lbd.load.scoring import Weights
    from lbd.model import FloatArray
    from lbd.store.calibration import CalibratedLoad


# --- rows that are handed to the workers and back: their columns, with types, also where all values are null

SAMPLES = {
    "hour": pa.int64(),
    "broker": pa.string(),
    "at": pa.binary(),
    "carried": pa.binary(),
    "used": pa.binary(),
    "since_change": pa.binary(),
    "half_in": pa.float64(),
}
RESULTS = {"candidate": pa.string(), "window": pa.int64(), "seed": pa.int64(), **columns_of(Figures)}
INCIDENTS = {"candidate": pa.string(), "incident": pa.string(), "number": pa.int64(), **columns_of(Harm)}
COURSES = {
    "candidate": pa.string(),
    "at": pa.binary(),
    "recorded": pa.binary(),
    "points": pa.binary(),
    "moves": pa.list_(pa.float64()),
}

WHOLE_SHARE = 0.9
"""Share of a day that a day must have to show what bundles carry in one."""

CANDIDATES_A_TASK = 4
"""Candidates of a task, which reads the history once for all of them."""


def sampled(own: Stretch, task: Task) -> Iterator[dict[str, object]]:
    """The load samples of a stretch, a row for each broker, also of one without any; and in each the number of busiest
    bundles that carried half of its traffic.
    """
    traffic = np.zeros(len(own.whole.bundles))

    def hours() -> Iterator[Window]:
        for hour in own.hourly(own.whole):
            np.add(traffic, bundle_traffic(hour), out=traffic)
            yield hour

    gathered = gather(recorded(hours()))
    half = half_in(traffic)
    for broker in own.whole.brokers:
        samples = gathered.get(broker, BrokerSamples.none())
        columns = {name: getattr(samples, name).tobytes() for name in ("at", "carried", "used", "since_change")}
        yield {"hour": task.first, "broker": broker, **columns, "half_in": half}


def broker_samples(rows: Rows) -> dict[str, BrokerSamples]:
    """The samples of each broker over all windows, out of rows of :data:`SAMPLES`; empty for a broker without any."""
    by_broker: defaultdict[str, Rows] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["broker"], row["hour"])):
        by_broker[row["broker"]].append(row)
    return {broker: _samples(own) for broker, own in by_broker.items()}


def mix_of_days(history: CheckedHistory, rows: Rows) -> CalibratedMix | None:
    """The mix of the whole days of a history, out of rows of :data:`SAMPLES`; None where there are none."""
    whole = {
        history.hours_of(number)[0]
        for number, (begins, ends) in zip(history.numbers, history.spans, strict=True)
        if ends - begins >= WHOLE_SHARE * DAY_SECONDS
    }
    halves = [row["half_in"] for row in rows if row["hour"] in whole and row["half_in"] > 0]
    return CalibratedMix(min(halves), max(halves)) if halves else None


def _samples(rows: Rows) -> BrokerSamples:
    sampled_at, carried, used = (
        np.concatenate([np.frombuffer(row[name]) for row in rows]) for name in ("at", "carried", "used")
    )
    since = np.concatenate([np.frombuffer(row["since_change"], np.int32) for row in rows])
    used = used.reshape(-1, len(RESOURCES))
    hardware = tuple(np.isfinite(used).any(axis=0).astype(float).tolist())
    return BrokerSamples(sampled_at, carried.reshape(-1, len(RATES)), used, since, hardware)


def judged(
    own: Stretch, task: Task, *, model: LoadModel, windows: Sequence[int], seconds: int, scale: Scale
) -> Iterator[dict[str, object]]:
    """The figures of some candidates, which are the task's argument, in each of these windows of ``seconds`` each,
    under the deal of noise that it names.

    Each candidate is replayed in one go, from the placement that was recorded first: a window begins with what the
    candidate has made of the one before.
    """
    argument = json.loads(task.argument)
    for name, course in _courses(own, argument["tried"], argument["seed"], model):
        for window in windows:
            scores = figures(course.since(window * seconds, (window + 1) * seconds), scale)
            yield {"candidate": name, "window": window, "seed": argument["seed"], **asdict(scores)}


def _courses(own: Stretch, tried: Mapping[str, Any], seed: int, model: LoadModel) -> Iterator[tuple[str, Course]]:
    """Replay each of these settings, by name and as in lbd.yaml: name and course."""
    by_name = {name: Settings.model_validate(values) for name, values in tried.items()}
    courses = replays(own.hourly(dealt(own.whole, seed)), list(by_name.values()), model)
    yield from zip(by_name, courses, strict=True)


def injected(own: Stretch, task: Task, *, model: LoadModel, scale: Scale) -> Iterator[dict[str, object]]:
    """The harm of each incident at one time under some candidates: both are the task's argument."""
    argument = json.loads(task.argument)
    by_name = {name: Settings.model_validate(values) for name, values in argument["tried"].items()}
    number, begins = argument["number"], argument["begins"]
    for name, incident, harm in harms(as_one(own.hourly(own.whole)), begins, number, by_name, model, scale):
        yield {"candidate": name, "incident": incident, "number": number, **asdict(harm)}


def pictured(
    own: Stretch, task: Task, *, model: LoadModel, weights: Weights, begins: float
) -> Iterator[dict[str, object]]:
    """How even brokers were from a time on, in epoch seconds, and how even some candidates would have left them."""
    rows = np.flatnonzero(own.whole.at >= begins)
    scored = as_recorded(own.whole.from_round(int(rows[0])) if rows.size else own.whole, weights)
    for name, course in _courses(own, json.loads(task.argument), 0, model):
        shown = course.since(begins)
        moves = [move.at for move in shown.moves]
        columns = {"at": shown.at.tobytes(), "points": shown.points.tobytes(), "recorded": scored.tobytes()}
        yield {"candidate": name, "moves": moves, **columns}


def results(
    history: CheckedHistory,
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    *,
    seeds: range,
    scale: Scale,
) -> dict[str, dict[int, list[Figures]]]:
    """The figures of each candidate in each window of a history, one for each deal of noise."""
    parts = [tried[begin : begin + CANDIDATES_A_TASK] for begin in range(0, len(tried), CANDIDATES_A_TASK)]
    tasks = [
        Task(*history.hours, json.dumps({"tried": _under(part, settings), "seed": seed}))
        for seed in seeds
        for part in parts
    ]
    function = partial(judged, model=model, windows=history.numbers, seconds=history.seconds, scale=scale)
    figures_of: dict[str, dict[int, list[Figures]]] = {}
    names = [column.name for column in fields(Figures)]
    for row in sorted(history.run(tasks, function, RESULTS), key=lambda row: row["seed"]):
        measured = Figures(**{name: row[name] for name in names})
        figures_of.setdefault(row["candidate"], {}).setdefault(row["window"], []).append(measured)
    return figures_of


def _under(tried: Sequence[SettingsCandidate], settings: Settings) -> dict[str, Any]:
    """All settings of a replay under each of these candidates, by name, as in lbd.yaml."""
    return {
        candidate.name: candidate.under(settings).model_dump(mode="json", exclude_unset=True) for candidate in tried
    }


def in_incidents(
    history: CheckedHistory,
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    scale: Scale,
) -> dict[str, dict[str, list[Harm]]]:
    """Replay these settings in each incident: harm in the order of time, by candidate and incident.

    Incidents are spread over the windows but for the first.
    """
    under, tasks = _under(tried, settings), []
    windows = history.scores[1:]
    for index, scored in enumerate(windows):
        for number, begins in times(scored.minutes.astype(np.float64) * MINUTE_SECONDS, index, len(windows)):
            first, end = (begins - BEFORE_SECONDS) // HOUR_SECONDS, (begins + INCIDENT_SECONDS) // HOUR_SECONDS + 1
            argument = {"tried": under, "number": number, "begins": begins}
            tasks.append(Task(int(first), int(end), json.dumps(argument)))
    rows = history.run(tasks, partial(injected, model=model, scale=scale), INCIDENTS)
    by_incident: dict[str, dict[str, list[Harm]]] = {candidate.name: {} for candidate in tried}
    for row in sorted(rows, key=lambda row: row["number"]):
        measured = Harm(**{column.name: row[column.name] for column in fields(Harm)})
        by_incident[row["candidate"]].setdefault(row["incident"], []).append(measured)
    return by_incident


# --- stages, from history to a choice of settings

NOT_KNOWN = "no sample shows how {1} follows traffic on {0}, so what moves would have done is not known"

NOT_TUNED = "{0} is in force, which is not replayed: what other settings would save beside it is not known"

SHORT = (
    "History is short: in windows of {0:g} h the moves that level brokers once count as if they came each day; ask "
    "again when there are {1} days"
)


@dataclass(frozen=True)
class CalibrationRequest:
    """Input of a calibration. ``history`` is any path that Spark can read; candidates differ from ``settings``.

    ``strategies`` are tried beside the one in force. ``tell`` is called with the name of each stage as it begins.
    """

    history: str
    settings: Settings
    candidates: int
    seeds: int
    tell: Callable[[str], None]
    strategies: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class WindowScores:
    """One window as it was and as it would have been: scores, float64 (T, B), and when, epoch seconds."""

    at: FloatArray
    recorded: FloatArray
    present: FloatArray
    chosen: FloatArray | None
    moves: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Result of a calibration. ``settings`` are those of the request; ``load`` is that of its history, with which a
    proposal expires; ``borrowed`` are brokers that took their slopes from others; ``remarks`` are sentences about
    brokers.
    """

    choice: Choice
    tried: Mapping[str, SettingsCandidate]
    settings: Settings
    model: LoadModel
    scale: Scale
    error: ModelError
    history: CheckedHistory
    load: CalibratedLoad
    borrowed: tuple[Borrowed, ...]
    remarks: tuple[str, ...]
    shown: WindowScores
    features: Features

    @property
    def recommended(self) -> SettingsCandidate | None:
        """The settings to take; None where the present ones are to be kept."""
        return self.tried[self.choice.recommended] if self.choice.recommended else None


def calibrate(workers: Workers, request: CalibrationRequest) -> Calibration:
    """Run all stages. Raises :class:`UsageError` for a history that cannot be read or holds no usable round, and
    :class:`~lbd.errors.ObserveError` for a history with too much bad data.
    """
    weights = request.settings.weights
    history = read_history(workers, request.history, weights, request.tell)
    request.tell("fitting load")
    tasks = [Task(*history.hours_of(number)) for number in history.numbers]
    sample_rows = history.run(tasks, sampled, SAMPLES)
    samples = broker_samples(sample_rows)
    model, borrowed = with_borrowed(fit(samples), history.last_brokers)
    error = measure(samples, weights)
    present = SettingsCandidate(
        PRESENT,
        _present(history.strategy, history.settings, request.settings),
        request.settings.guardrails.max_unloads_per_turn,
    )
    tried = candidates(present, _noise(model), request.candidates, 1, request.strategies)
    by_name = {candidate.name: candidate for candidate in tried}
    scale = _scale(present.settings, request.settings.calibrate.overload_minutes, workers.reconnect_seconds())
    choice = _searched(_Replays(history, by_name, request, model, scale))
    unknown = model.unknown(weights)
    if choice.recommended and request.settings.strategy not in TUNABLE:
        choice = replace(choice, recommended=None, why=NOT_TUNED.format(request.settings.strategy))
    elif unknown and choice.judged:
        choice = replace(choice, recommended=None, why=NOT_KNOWN.format(*unknown[0]))
    elif choice.judged and not choice.recommended and history.seconds < DAY_SECONDS:
        hours = history.seconds / HOUR_SECONDS
        choice = replace(choice, why=f"{choice.why}. {SHORT.format(hours, FEWEST_WINDOWS + 1)}")
    return Calibration(
        choice=choice,
        tried=by_name,
        settings=request.settings,
        model=model,
        scale=scale,
        error=error,
        history=history,
        load=msgspec.structs.replace(
            history.load, cpu=cpu_by_traffic(samples, model.measure), mix=mix_of_days(history, sample_rows)
        ),
        borrowed=borrowed,
        remarks=tuple(remarks(model.of([broker for broker in model.brokers if broker in history.last_brokers]))),
        shown=_last_window(history, request.settings, model, by_name, choice.recommended),
        features=features(joined_scores(history.scores)),
    )


def _searched(replays: _Replays) -> Choice:
    """The choice: by replays of all, then by incidents, then by replays of the best with noise dealt anew."""
    request, windows = replays.request, replays.history.numbers[1:]
    searched: dict[str, dict[int, Figures]] = {}
    if len(windows) >= FEWEST_WINDOWS:
        request.tell(f"replaying {counted(len(replays.tried), 'setting')} over all of it")
        searched = over_deals(replays.deals(list(replays.tried), request.seeds))
    harms = through_incidents(clearly_better(searched, windows), replays.in_incidents)
    finalists = (PRESENT, *shortlist(harms))
    deals = request.seeds
    if len(finalists) > 1:
        request.tell(f"replaying the best {len(finalists) - 1} and the present settings again, with noise dealt anew")
        deals = max(DEALS, request.seeds)
    again = replays.deals(finalists, deals) if searched else []
    request.tell("choosing")
    return choose(searched, again, windows, harms)


@dataclass(frozen=True, eq=False)
class _Replays:
    """Replays by the workers; each is made once."""

    history: CheckedHistory
    tried: Mapping[str, SettingsCandidate]
    request: CalibrationRequest
    model: LoadModel
    scale: Scale
    runs: dict[str, list[dict[int, Figures]]] = field(default_factory=dict)

    def deals(self, names: Sequence[str], deals: int) -> list[dict[str, dict[int, Figures]]]:
        """The figures of these settings in each window, in each of ``deals`` deals of noise."""
        tried = [self.tried[name] for name in names]
        seeds = range(min(len(self.runs.get(name, ())) for name in names), deals)
        measured = results(self.history, tried, self.request.settings, self.model, seeds=seeds, scale=self.scale)
        for name, by_window in measured.items():
            deal = ({window: own[index] for window, own in by_window.items()} for index in range(len(seeds)))
            self.runs.setdefault(name, [])[seeds.start :] = deal
        windows = self.history.numbers[1:]
        return [
            {name: {window: self.runs[name][index][window] for window in windows} for name in names}
            for index in range(deals)
        ]

    def in_incidents(self, names: Sequence[str]) -> dict[str, dict[str, list[Harm]]]:
        """The harm of each incident under these settings, by candidate and incident."""
        self.request.tell(f"replaying {counted(len(names), 'setting')} in incidents")
        tried = [self.tried[name] for name in names]
        return in_incidents(self.history, tried, self.request.settings, self.model, self.scale)


def _scale(present: Tunable, overload_minutes: float, reconnect_seconds: float | None) -> Scale:
    """Gaps by the thresholds of the present settings: those of least-moves are from the middle."""
    times = 2 if isinstance(present, LeastMovesSettings) else 1
    seconds = RECONNECT_SECONDS if reconnect_seconds is None else reconnect_seconds
    return Scale(present.low_threshold * times, present.high_threshold * times, seconds, overload_minutes)


def _noise(model: LoadModel) -> float:
    """Standard deviation of a sample of CPU, of the median broker, in points; 0 where no fit has it."""
    finite = model.noise[:, CPU][np.isfinite(model.noise[:, CPU])]
    return float(np.median(finite)) if finite.size else 0.0


def _present(strategy: str | None, stored: str | None, settings: Settings) -> Tunable:
    """The settings that were in force last, or the configured ones where history names another strategy or none."""
    own = settings.strategy_settings
    present: Tunable = own if isinstance(own, AvgShedderSettings | LeastMovesSettings) else settings.avg_shedder
    if strategy not in TUNABLE or stored in {None, "{}"}:
        return present
    try:
        kind: type[Tunable] = TUNABLE[strategy]
        return kind.model_validate_json(str(stored))
    except (ValueError, AttributeError):
        return present


def remarks(model: LoadModel) -> list[str]:
    """Sentences about brokers that are unlike the others by more than the error of their fit, and about those whose CPU
    model is unknown.
    """
    with_slope, with_own_fit = (
        np.array([sources[CPU] in accepted for sources in model.sources], dtype=np.bool_)
        for accepted in ({Source.FITTED, Source.CLASS, Source.POOLED}, {Source.FITTED})
    )
    slope, background = (np.where(with_slope, values[:, CPU], np.nan) for values in (model.slope, model.background))
    factors = times_of_others(slope, model.half_width[:, CPU], with_own_fit)
    above = points_of_neighbours(background, model.background_half_width[:, CPU])
    sentences = [
        f"{broker}: no sample shows how its CPU follows traffic, which hardly changed, or was seldom seen"
        for broker, own in zip(model.brokers, model.sources, strict=True)
        if own[CPU] is Source.UNKNOWN
    ]
    for row, broker in enumerate(model.brokers):
        if np.isfinite(factors[row]):
            sentences.append(f"{broker}: the same traffic takes {factors[row]:.1f} times the CPU of the others")
        if np.isfinite(above[row]):
            sentences.append(f"{broker}: {above[row]:.0f} points of CPU above the others that no traffic explains")
    return sentences


def _last_window(
    history: CheckedHistory,
    settings: Settings,
    model: LoadModel,
    tried: Mapping[str, SettingsCandidate],
    chosen: str | None,
) -> WindowScores:
    """The last window for the picture, out of replays of all of it."""
    names = [name for name in (PRESENT, chosen) if name is not None]
    argument = json.dumps(_under([tried[name] for name in names], settings))
    begins = float(history.numbers[-1] * history.seconds)
    picture = partial(pictured, model=model, weights=settings.weights, begins=begins)
    rows = {row["candidate"]: row for row in history.run([Task(*history.hours, argument)], picture, COURSES)}

    def points(name: str, column: str) -> FloatArray:
        rounds = np.frombuffer(rows[name]["at"]).size
        return np.frombuffer(rows[name][column]).reshape(rounds, -1)

    return WindowScores(
        at=np.frombuffer(rows[PRESENT]["at"]),
        recorded=points(PRESENT, "recorded"),
        present=points(PRESENT, "points"),
        chosen=points(chosen, "points") if chosen else None,
        moves=(tuple(rows[PRESENT]["moves"]), tuple(rows[chosen]["moves"]) if chosen else ()),
    )
