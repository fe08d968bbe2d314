"""Calibration: history to windows, windows to load samples, windows and settings to figures, figures to a choice. Pure.

What runs its functions over the parts of a history is handed in (:mod:`lbd.learn.workers`); a Spark job is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

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
    halving,
    shortlist,
    with_fewer_moves,
)
from lbd.learn.features import features, joined_scores
from lbd.learn.history import read_history
from lbd.learn.incidents import Harm, harms, times
from lbd.learn.replay import Figures, as_recorded, figures, pooled, recorded, replay
from lbd.learn.slopes import with_borrowed
from lbd.learn.window import after, dealt, from_bytes, to_bytes
from lbd.learn.workers import Task, columns_of
from lbd.load.estimate import CPU, Source
from lbd.load.fit import fit
from lbd.load.model_error import measure
from lbd.load.samples import BrokerSamples, gather
from lbd.load.unlike import points_of_neighbours, times_of_others
from lbd.model import RESOURCES
from lbd.store.history_tables import RATES
from lbd.text import DAY_SECONDS, HOUR_SECONDS, counted
from lbd.turn.strategy_config import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lbd.learn.choose import Choice, Tunable
    from lbd.learn.features import Features
    from lbd.learn.history import CheckedHistory
    from lbd.learn.slopes import Borrowed
    from lbd.learn.window import Window
    from lbd.learn.workers import Rows, Windows, Workers
    from lbd.load.estimate import LoadModel
    from lbd.load.model_error import ModelError
    from lbd.model import FloatArray


# --- rows that are handed to the workers and back: their columns, with types, also where all values are null

SAMPLES = {
    "window": pa.int64(),
    "broker": pa.string(),
    "at": pa.binary(),
    "carried": pa.binary(),
    "used": pa.binary(),
    "since_change": pa.binary(),
}
RESULTS = {"candidate": pa.string(), "window": pa.int64(), "seed": pa.int64(), **columns_of(Figures)}
INCIDENTS = {"candidate": pa.string(), "incident": pa.string(), "number": pa.int64(), **columns_of(Harm)}
LAST = {"own": pa.binary(), "whole": pa.binary()}

CANDIDATES_A_TASK = 5
"""Each task unpacks its window once."""


def sampled(own: Window, before: Window | None, task: Task) -> Iterator[dict[str, object]]:
    """The load samples of a window, a row for each broker; also of one without any."""
    del before
    gathered = gather(recorded(own))
    for broker in own.brokers:
        samples = gathered.get(broker, BrokerSamples.none())
        columns = {name: getattr(samples, name).tobytes() for name in ("at", "carried", "used", "since_change")}
        yield {"window": task.window, "broker": broker, **columns}


def broker_samples(rows: Rows) -> dict[str, BrokerSamples]:
    """The samples of each broker over all windows, out of rows of :data:`SAMPLES`; empty for a broker without any."""
    by_broker: defaultdict[str, Rows] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["broker"], row["window"])):
        by_broker[row["broker"]].append(row)
    return {broker: _samples(own) for broker, own in by_broker.items()}


def _samples(rows: Rows) -> BrokerSamples:
    at, carried, used = (
        np.concatenate([np.frombuffer(row[name]) for row in rows]) for name in ("at", "carried", "used")
    )
    since = np.concatenate([np.frombuffer(row["since_change"], np.int32) for row in rows])
    used = used.reshape(-1, len(RESOURCES))
    hardware = tuple(np.isfinite(used).any(axis=0).astype(float).tolist())
    return BrokerSamples(at, carried.reshape(-1, len(RATES)), used, since, hardware)


def judged(
    own: Window, before: Window | None, task: Task, *, model: LoadModel, seeds: range, over_points: float
) -> Iterator[dict[str, object]]:
    """The figures of some candidates, which are the task's argument, in a window, one for each deal of noise.

    The last hours of the window before are replayed, too, and not counted, so that a window begins with the placement
    that the candidate made. Otherwise every candidate but the present one would begin each window with the moves that
    its own start takes.
    """
    begins = float(own.at[0])
    whole = after(before, own) if before is not None else own
    tried = {name: Settings.model_validate(values) for name, values in json.loads(task.argument).items()}
    for seed in seeds:
        drawn = dealt(whole, seed)
        for name, chosen in tried.items():
            scores = figures(replay(drawn, chosen, model).since(begins), over_points)
            yield {"candidate": name, "window": task.window, "seed": seed, **asdict(scores)}


def injected(
    own: Window,
    before: Window | None,
    task: Task,
    *,
    places: Sequence[int],
    model: LoadModel,
    over_points: float,
) -> Iterator[dict[str, object]]:
    """What some candidates, which are the task's argument, make of the incidents of a window, one of ``places``."""
    whole = after(before, own) if before is not None else own
    known = {name: Settings.model_validate(values) for name, values in json.loads(task.argument).items()}
    for number, begins in times(own.at, places.index(task.window), len(places)):
        for name, incident, harm in harms(whole, begins, number, known, model, over_points):
            yield {"candidate": name, "incident": incident, "number": number, **asdict(harm)}


def handed_back(own: Window, before: Window | None, task: Task) -> Iterator[dict[str, object]]:
    """The window itself, and the same with the end of the one before it."""
    del task
    yield {"own": to_bytes(own), "whole": to_bytes(after(before, own) if before is not None else own)}


def results(
    windows: Windows,
    before: Mapping[int, int],
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    *,
    seeds: range,
    over_points: float,
) -> dict[str, dict[int, list[Figures]]]:
    """The figures of each candidate in each of these windows, one for each deal of noise.

    ``before`` has the number of the window before each.
    """
    chunks = [
        json.dumps(_under(tried[begin : begin + CANDIDATES_A_TASK], settings))
        for begin in range(0, len(tried), CANDIDATES_A_TASK)
    ]
    tasks = [Task(window, then, chunk) for window, then in before.items() for chunk in chunks]
    function = partial(judged, model=model, seeds=seeds, over_points=over_points)
    figures_of: dict[str, dict[int, list[Figures]]] = {}
    names = [field.name for field in fields(Figures)]
    for row in sorted(windows.run(tasks, function, RESULTS), key=lambda row: row["seed"]):
        one = Figures(**{name: row[name] for name in names})
        figures_of.setdefault(row["candidate"], {}).setdefault(row["window"], []).append(one)
    return figures_of


def _under(tried: Sequence[SettingsCandidate], settings: Settings) -> dict[str, Any]:
    """All settings of a replay under each of these candidates, by name, as in lbd.yaml."""
    return {one.name: one.under(settings).model_dump(mode="json", exclude_unset=True) for one in tried}


def in_incidents(
    windows: Windows,
    before: Mapping[int, int],
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    over_points: float,
) -> dict[str, dict[str, list[Harm]]]:
    """What each of these settings makes of each incident, in the order of time: by candidate and incident.

    Incidents are spread over the windows of which ``before`` has the number of the window before each.
    """
    function = partial(injected, places=sorted(before), model=model, over_points=over_points)
    argument = json.dumps(_under(tried, settings))
    rows = windows.run([Task(window, then, argument) for window, then in before.items()], function, INCIDENTS)
    by_incident: dict[str, dict[str, list[Harm]]] = {one.name: {} for one in tried}
    for row in sorted(rows, key=lambda row: row["number"]):
        one = Harm(**{field.name: row[field.name] for field in fields(Harm)})
        by_incident[row["candidate"]].setdefault(row["incident"], []).append(one)
    return by_incident


# --- stages, from history to a choice of settings

NOT_KNOWN = "no sample shows how {1} follows traffic on {0}, so what moves would have done is not known"

SHORT = (
    "History is short: in windows of {0:g} h the moves that level brokers once count as if they came each day; ask "
    "again when there are {1} days"
)


@dataclass(frozen=True)
class CalibrationRequest:
    """What is to be calibrated. ``history`` is any path that Spark can read; candidates differ from ``settings``.

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
    """What came of it. ``borrowed`` are brokers that took their slopes from others; ``remarks`` are sentences about
    brokers.
    """

    choice: Choice
    tried: Mapping[str, SettingsCandidate]
    model: LoadModel
    error: ModelError
    history: CheckedHistory
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
    :class:`~lbd.errors.ObserveError` for one of which too much is bad.
    """
    weights = request.settings.weights
    history = read_history(workers, request.history, weights, request.tell)
    packed, windows = history.windows, history.numbers
    request.tell("fitting load")
    samples = broker_samples(packed.run([Task(window) for window in windows], sampled, SAMPLES))
    model, borrowed = with_borrowed(fit(samples))
    error = measure(samples, weights)
    present = SettingsCandidate(
        PRESENT,
        _present(history.strategy, history.settings, request.settings),
        request.settings.guardrails.max_unloads_per_turn,
    )
    tried = candidates(present, _noise(model), request.candidates, 1, request.strategies)
    by_name = {one.name: one for one in tried}
    replays = _Replays(packed, {now: then for then, now in pairwise(windows)}, by_name, request, model)
    choice = _searched(replays, windows[1:])
    unknown = model.unknown(weights)
    if unknown and choice.judged:
        choice = replace(choice, recommended=None, why=NOT_KNOWN.format(*unknown[0]))
    elif choice.judged and not choice.recommended and history.seconds < DAY_SECONDS:
        hours = history.seconds / HOUR_SECONDS
        choice = replace(choice, why=f"{choice.why}. {SHORT.format(hours, FEWEST_WINDOWS + 1)}")
    return Calibration(
        choice=choice,
        tried=by_name,
        model=model,
        error=error,
        history=history,
        borrowed=borrowed,
        remarks=tuple(remarks(model)),
        shown=_replay_last_window(packed, windows, request.settings, model, by_name, choice.recommended),
        features=features(joined_scores(history.scores)),
    )


def _searched(replays: _Replays, windows: Sequence[int]) -> Choice:
    """The choice: by halving, then by replays of the best with noise dealt anew, then by incidents."""
    request, again, of_incidents = replays.request, dict[str, dict[int, Figures]](), None

    def replayed(names: Sequence[str], over: Sequence[int]) -> Mapping[str, Mapping[int, Figures]]:
        request.tell(f"replaying {counted(len(names), 'setting')} over {counted(len(over), 'window')}")
        return replays.figures(names, over, request.seeds)

    slower = with_fewer_moves(list(replays.tried.values()))
    searched = halving(list(replays.tried), windows, replayed, always=slower)
    finalists, deals = (PRESENT, *shortlist(searched, windows, slower)), request.seeds
    if len(finalists) > 1:
        request.tell(f"replaying the best {len(finalists) - 1} and the present settings again, with noise dealt anew")
        deals = max(DEALS, request.seeds)
    if searched:
        again = replays.figures(finalists, windows, deals)
    if len(finalists) > 1:
        request.tell("replaying the same in incidents")
        of_incidents = replays.in_incidents(finalists)
    request.tell("choosing")
    return choose(searched, again, windows, of_incidents)


@dataclass(frozen=True, eq=False)
class _Replays:
    """Replays by the workers, none of which is made twice. ``before`` has the number of the window before each."""

    windows: Windows
    before: Mapping[int, int]
    tried: Mapping[str, SettingsCandidate]
    request: CalibrationRequest
    model: LoadModel
    known: defaultdict[str, dict[int, list[Figures]]] = field(default_factory=lambda: defaultdict(dict))

    def figures(self, names: Sequence[str], over: Sequence[int], deals: int) -> dict[str, dict[int, Figures]]:
        """The figures of these settings in these windows, over so many deals of noise."""
        tried, settings = [self.tried[name] for name in names], self.request.settings
        low = _over(self.tried[PRESENT].settings)
        made = {window: min(len(self.known[name].get(window, ())) for name in names) for window in over}
        for done in sorted(number for number in set(made.values()) if number < deals):
            before = {window: self.before[window] for window in over if made[window] == done}
            seeds = range(done, deals)
            measured = results(self.windows, before, tried, settings, self.model, seeds=seeds, over_points=low)
            for name in names:
                for window in before:
                    self.known[name].setdefault(window, [])[done:] = measured[name][window]
        return {name: {window: pooled(self.known[name][window]) for window in over} for name in names}

    def in_incidents(self, names: Sequence[str]) -> dict[str, dict[str, list[Harm]]]:
        """What each of these settings makes of each incident."""
        tried, low = [self.tried[name] for name in names], _over(self.tried[PRESENT].settings)
        return in_incidents(self.windows, self.before, tried, self.request.settings, self.model, low)


def _over(present: Tunable) -> float:
    """The gap that the present settings mind: those of least-moves are from the middle."""
    return present.low_threshold * (2 if isinstance(present, LeastMovesSettings) else 1)


def _noise(model: LoadModel) -> float:
    """Standard deviation of a sample of CPU, of the median broker, in points; 0 where nothing tells."""
    known = model.noise[:, CPU][np.isfinite(model.noise[:, CPU])]
    return float(np.median(known)) if known.size else 0.0


def _present(strategy: str | None, stored: str | None, settings: Settings) -> Tunable:
    """The settings that were in force last, or the configured ones where history names another strategy or none."""
    own = configured(settings)
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
    known, own = (
        np.array([sources[CPU] in wanted for sources in model.sources], dtype=np.bool_)
        for wanted in ({Source.FITTED, Source.CLASS, Source.POOLED}, {Source.FITTED})
    )
    slope, background = (np.where(known, values[:, CPU], np.nan) for values in (model.slope, model.background))
    times = times_of_others(slope, model.half_width[:, CPU], own)
    above = points_of_neighbours(background, model.background_half_width[:, CPU])
    remarks = [
        f"{broker}: no sample shows how its CPU follows traffic, which hardly changed, or was seldom seen"
        for broker, own in zip(model.brokers, model.sources, strict=True)
        if own[CPU] is Source.UNKNOWN
    ]
    for row, broker in enumerate(model.brokers):
        if np.isfinite(times[row]):
            remarks.append(f"{broker}: the same traffic takes {times[row]:.1f} times the CPU of the others")
        if np.isfinite(above[row]):
            remarks.append(f"{broker}: {above[row]:.0f} points of CPU above the others that no traffic explains")
    return remarks


def _replay_last_window(
    packed: Windows,
    windows: Sequence[int],
    settings: Settings,
    model: LoadModel,
    tried: Mapping[str, SettingsCandidate],
    chosen: str | None,
) -> WindowScores:
    """The last window, replayed once more for the picture."""
    own, whole = _last(packed, windows)
    runs = [
        replay(whole, tried[name].under(settings), model).since(float(own.at[0]))
        for name in (PRESENT, chosen)
        if name is not None
    ]
    moves = tuple(tuple(one.at for one in run.moves) for run in runs)
    return WindowScores(
        at=own.at,
        recorded=as_recorded(own, settings.weights),
        present=runs[0].points,
        chosen=runs[1].points if chosen else None,
        moves=(moves[0], moves[1] if chosen else ()),
    )


def _last(packed: Windows, windows: Sequence[int]) -> tuple[Window, Window]:
    """The last window, and the same with the end of the one before it, where there is one."""
    *_, then, now = (None, *windows)
    assert now is not None
    (row,) = packed.run([Task(now, then)], handed_back, LAST)
    return from_bytes(row["own"]), from_bytes(row["whole"])
