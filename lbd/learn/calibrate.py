"""Calibration over a Spark session: history to windows, windows to load samples, windows and settings to figures.

Rows of bundles are shuffled once, by window, all of which are equally long, and none comes to the driver.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.storagelevel import StorageLevel

from lbd.config import Settings, without_removed
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.least_moves import LeastMovesSettings
from lbd.errors import UsageError
from lbd.learn import features as curated
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
from lbd.learn.features import collect_features
from lbd.learn.incidents import Harm, harms, times
from lbd.learn.quality import NOTICED_SHARE, ReadCounts, file_checks, refuse_bad, row_checks, traffic_check
from lbd.learn.replay import Figures, as_recorded, figures, pooled, recorded, replay
from lbd.learn.spark import HOW
from lbd.learn.tables import table
from lbd.learn.window import after, dealt, from_bytes, pack, reported_traffic, to_bytes
from lbd.load.estimate import CPU, Source
from lbd.load.fit import fit
from lbd.load.model_error import measure
from lbd.load.samples import BrokerSamples, gather
from lbd.model import RESOURCES
from lbd.store.history_tables import RATES
from lbd.text import DAY_SECONDS, HOUR_SECONDS, counted
from lbd.turn.strategy_config import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from lbd.learn.choose import Choice, Tunable
    from lbd.learn.features import FeatureRows
    from lbd.learn.quality import QualityCheck
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel
    from lbd.load.model_error import ModelError
    from lbd.model import FloatArray


WINDOWS = (
    "window long, rounds int, brokers array<string>, rounds_short int, carried double, reported double, packed binary"
)
SAMPLES = "broker string, at double, carried array<double>, used array<double>, since_change int, window long"
ARROW = {"string": pa.string(), "long": pa.int64(), "int": pa.int32(), "double": pa.float64()}


def _columns(keys: dict[str, str], kind: type) -> dict[str, str]:
    """Columns of what replays came to, by Spark's names of their types: the keys, and each field of this dataclass."""
    return keys | {field.name: "int" if field.type == "int" else "double" for field in fields(kind)}


RESULTS = _columns({"candidate": "string", "window": "long", "seed": "int"}, Figures)
INCIDENTS = _columns({"candidate": "string", "incident": "string", "number": "int"}, Harm)
CANDIDATES_A_TASK = 5
"""Each task unpacks its window once."""


def read_windows(brokers: DataFrame, bundles: DataFrame) -> DataFrame:
    """Each window packed into one row."""
    return (
        brokers.groupBy("window").cogroup(bundles.groupBy("window")).applyInArrow(_packed, WINDOWS).where("rounds > 1")
    )


def _packed(key: tuple[pa.Scalar, ...], brokers: pa.Table, bundles: pa.Table) -> pa.Table:
    window = pack(brokers, bundles)
    carried, reported = reported_traffic(window)
    short = int(np.count_nonzero(reported < (1 - NOTICED_SHARE) * carried))
    values = {
        "window": pa.array([key[0].as_py()], pa.int64()),
        "rounds": pa.array([window.at.size], pa.int32()),
        "brokers": pa.array([list(window.brokers)], pa.list_(pa.string())),
        "rounds_short": pa.array([short], pa.int32()),
        "carried": pa.array([float(carried.sum())]),
        "reported": pa.array([float(reported.sum())]),
        "packed": pa.array([to_bytes(window)], pa.binary()),
    }
    return pa.table(values)


def read_samples(packed: DataFrame) -> dict[str, BrokerSamples]:
    """Samples of each broker over all windows, some thousand small rows each; empty for a broker without samples."""
    brokers = packed.select(F.explode("brokers").alias("broker")).distinct().orderBy("broker").collect()
    rows = packed.select("window", "packed").mapInArrow(_sampled, SAMPLES).orderBy("broker", "at").toArrow()
    names = rows["broker"].combine_chunks()
    at, since = rows["at"].to_numpy(), rows["since_change"].to_numpy().astype(np.int32)
    carried, used = _matrix(rows["carried"], len(RATES)), _matrix(rows["used"], len(RESOURCES))
    samples = {}
    for broker in (row["broker"] for row in brokers):
        own = np.asarray(pc.equal(names, broker).to_numpy(zero_copy_only=False), dtype=np.bool_)
        hardware = tuple(np.isfinite(used[own]).any(axis=0).astype(float).tolist())
        samples[broker] = BrokerSamples(at[own], carried[own], used[own], since[own], hardware)
    return samples


def _matrix(column: pa.ChunkedArray, width: int) -> FloatArray:
    flat: FloatArray = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat.astype(np.float64).reshape(-1, width)


def _sampled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            for broker, own in gather(recorded(from_bytes(row["packed"]))).items():
                yield pa.RecordBatch.from_pydict(
                    {
                        "broker": [broker] * own.at.size,
                        "at": own.at.tolist(),
                        "carried": own.carried.tolist(),
                        "used": own.used.tolist(),
                        "since_change": pa.array(own.since_change.tolist(), pa.int32()),
                        "window": pa.array([row["window"]] * own.at.size, pa.int64()),
                    }
                )


def results(
    spark: SparkSession,
    packed: DataFrame,
    before: Mapping[int, int],
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    *,
    seeds: range,
    over_points: float,
) -> dict[str, dict[int, list[Figures]]]:
    """The figures of each candidate in each of these windows, one for each deal of noise.

    ``before`` has the number of the window before each. Its last hours are replayed, too, and not counted, so that a
    window begins with the placement that the candidate made. Otherwise every candidate but the one in force would begin
    each window with the moves that its own start takes.
    """
    begins = range(0, len(tried), CANDIDATES_A_TASK)
    tasks = [(begin, json.dumps(_under(tried[begin : begin + CANDIDATES_A_TASK], settings))) for begin in begins]
    chunks = spark.createDataFrame(tasks, "chunk int, candidates string")
    number = max(len(before) * len(tasks), 1)
    spread = with_before(spark, packed, before).crossJoin(F.broadcast(chunks)).repartition(number, "window", "chunk")

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _judged(row, model, seeds, over_points)

    figures_of: dict[str, dict[int, list[Figures]]] = {}
    names = [field.name for field in fields(Figures)]
    for row in spread.mapInArrow(judge, _declared(RESULTS)).toArrow().sort_by("seed").to_pylist():
        one = Figures(**{name: row[name] for name in names})
        figures_of.setdefault(row["candidate"], {}).setdefault(row["window"], []).append(one)
    return figures_of


def with_before(spark: SparkSession, packed: DataFrame, before: Mapping[int, int]) -> DataFrame:
    """Each of these windows beside the one before it, whatever time lies between."""
    pairs = spark.createDataFrame(list(before.items()), "window long, before long")
    earlier = packed.select(F.col("window").alias("before"), F.col("packed").alias("packed_before"))
    return (
        packed.join(F.broadcast(pairs), on="window", how="inner")
        .join(earlier, on="before", how="inner")
        .select("window", "packed", "packed_before")
    )


def _windows(row: Mapping[str, Any] | Row) -> tuple[Window, Window]:
    """The window of a row of :func:`with_before`, and the same with the end of the one before it."""
    own = from_bytes(row["packed"])
    return own, after(from_bytes(row["packed_before"]), own)


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _row(values: Mapping[str, Any], columns: Mapping[str, str]) -> pa.RecordBatch:
    schema = pa.schema([(name, ARROW[kind]) for name, kind in columns.items()])
    return pa.RecordBatch.from_pylist([values], schema=schema)


def _under(tried: Sequence[SettingsCandidate], settings: Settings) -> dict[str, Any]:
    """All settings of a replay under each of these candidates, by name, as in lbd.yaml."""
    return {one.name: one.under(settings).model_dump(mode="json", exclude_unset=True) for one in tried}


def _judged(row: Mapping[str, Any], model: LoadModel, seeds: range, over_points: float) -> Iterator[pa.RecordBatch]:
    own, window = _windows(row)
    begins = float(own.at[0])
    tried = {name: Settings.model_validate(values) for name, values in json.loads(row["candidates"]).items()}
    for seed in seeds:
        drawn = dealt(window, seed)
        for name, chosen in tried.items():
            course = replay(drawn, chosen, model)
            scores = figures(course.since(begins), over_points)
            values_of = {"candidate": name, "window": row["window"], "seed": seed, **asdict(scores)}
            yield _row(values_of, RESULTS)


def in_incidents(
    spark: SparkSession,
    packed: DataFrame,
    before: Mapping[int, int],
    tried: Sequence[SettingsCandidate],
    settings: Settings,
    model: LoadModel,
    over_points: float,
) -> dict[str, dict[str, list[Harm]]]:
    """What each of these settings makes of each incident, in the order of time: by candidate and incident.

    Incidents are spread over the windows of which ``before`` has the number of the window before each.
    """
    place = {number: index for index, number in enumerate(sorted(before))}
    plain = _under(tried, settings)

    def inject(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = {name: Settings.model_validate(own) for name, own in plain.items()}
        for batch in batches:
            for row in batch.to_pylist():
                own, window = _windows(row)
                for number, begins in times(own.at, place[row["window"]], len(place)):
                    for name, incident, harm in harms(window, begins, number, known, model, over_points):
                        values = {"candidate": name, "incident": incident, "number": number, **asdict(harm)}
                        yield _row(values, INCIDENTS)

    spread = with_before(spark, packed, before).repartition(max(len(before), 1), "window")
    rows = spread.mapInArrow(inject, _declared(INCIDENTS)).toArrow().sort_by("number").to_pylist()
    by_incident: dict[str, dict[str, list[Harm]]] = {one.name: {} for one in tried}
    for row in rows:
        one = Harm(**{field.name: row[field.name] for field in fields(Harm)})
        by_incident[row["candidate"]].setdefault(row["incident"], []).append(one)
    return by_incident


# --- stages, from history to a choice of settings

UNSEEN_HOURS = 0.1
"""Of a window that is whole all the same: before the first round of a day, and while lbd is restarted."""

NOT_KNOWN = "no sample shows how {1} follows traffic on {0}, so what moves would have done is not known"

SHORT = (
    "History is short: in windows of {0:g} h the moves that level brokers once count as if they came each day; ask "
    "again when there are {1} days"
)

UNLIKE = 0.25
"""A broker whose slope differs by more than this fraction from the median is another kind of machine."""

NEIGHBOUR_POINTS = 10.0
"""Background above the median by more than this is a neighbour's."""


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
    """What came of it. ``read`` counts what was read and dropped, ``checks`` say how good that was, ``torn`` are the
    files left out; ``remarks`` are sentences about brokers; ``days`` is the time that history saw.
    """

    choice: Choice
    tried: Mapping[str, SettingsCandidate]
    model: LoadModel
    error: ModelError
    read: ReadCounts
    checks: tuple[QualityCheck, ...]
    torn: tuple[str, ...]
    remarks: tuple[str, ...]
    days: float
    window_hours: float
    shown: WindowScores
    features: FeatureRows

    @property
    def recommended(self) -> SettingsCandidate | None:
        """The settings to take; None where the present ones are to be kept."""
        return self.tried[self.choice.recommended] if self.choice.recommended else None


def calibrate(spark: SparkSession, request: CalibrationRequest) -> Calibration:
    """Run all stages. Raises :class:`UsageError` for a history that cannot be read or holds no usable round, and
    :class:`~lbd.errors.ObserveError` for one of which too much is bad.
    """
    request.tell("reading history")
    tables = [table(spark, request.history, name) for name in _TABLES]
    decisions, brokers, bundles = (one.rows for one in tables)
    read = ReadCounts(**curated.dropped(brokers, decisions).collect()[0].asDict())
    if read.rounds_overtaken:
        brokers, bundles = (curated.without(rows, curated.overtaken(decisions)) for rows in (brokers, bundles))
    if not read.rounds_kept:
        raise UsageError(f"{request.history}: history holds no round; {HOW}")
    torn = {file: check for one in tables for file, check in one.torn.items()}
    checks = (*file_checks(sum(one.files for one in tables), torn.values()), *row_checks(read))
    refuse_bad(request.history, checks)
    request.tell("looking at gaps and noise")
    features = collect_features(brokers, request.settings.weights)
    window_seconds = window_length(read.seconds_seen)
    request.tell("packing windows")
    packed = read_windows(
        curated.brokers(decisions, brokers, window_seconds), curated.bundles(bundles, window_seconds)
    ).persist(StorageLevel.MEMORY_AND_DISK)
    rows = packed.select("window", "rounds_short", "carried", "reported").orderBy("window").collect()
    windows = [row["window"] for row in rows]
    if not windows:
        raise UsageError(f"{request.history}: no two rounds in a row with a sample in them; {HOW}")
    short, carried, reported = (sum(row[name] for row in rows) for name in ("rounds_short", "carried", "reported"))
    checks = (*checks, traffic_check(short, carried, reported))
    refuse_bad(request.history, checks)
    request.tell("fitting load")
    samples = read_samples(packed)
    model = fit(samples)
    error = measure(samples, request.settings.weights)
    present = SettingsCandidate(
        PRESENT, _present(decisions, request.settings), request.settings.guardrails.max_unloads_per_turn
    )
    tried = candidates(present, _noise(model), request.candidates, 1, request.strategies)
    by_name = {one.name: one for one in tried}
    replays = _Replays(spark, packed, {now: then for then, now in pairwise(windows)}, by_name, request, model)
    choice = _searched(replays, windows[1:])
    unknown = model.unknown(request.settings.weights)
    if unknown and choice.judged:
        choice = replace(choice, recommended=None, why=NOT_KNOWN.format(*unknown[0]))
    elif choice.judged and not choice.recommended and window_seconds < DAY_SECONDS:
        hours = window_seconds / HOUR_SECONDS
        choice = replace(choice, why=f"{choice.why}. {SHORT.format(hours, FEWEST_WINDOWS + 1)}")
    return Calibration(
        choice=choice,
        tried=by_name,
        model=model,
        error=error,
        read=read,
        checks=checks,
        torn=tuple(torn),
        remarks=tuple(_remarks(model)),
        days=read.seconds_seen / DAY_SECONDS,
        window_hours=window_seconds / HOUR_SECONDS,
        shown=_replay_last_window(spark, packed, windows, request.settings, model, by_name, choice.recommended),
        features=features,
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
    """Replays by Spark, none of which is made twice. ``before`` has the number of the window before each."""

    spark: SparkSession
    packed: DataFrame
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
            measured = results(
                self.spark, self.packed, before, tried, settings, self.model, seeds=seeds, over_points=low
            )
            for name in names:
                for window in before:
                    self.known[name].setdefault(window, [])[done:] = measured[name][window]
        return {name: {window: pooled(self.known[name][window]) for window in over} for name in names}

    def in_incidents(self, names: Sequence[str]) -> dict[str, dict[str, list[Harm]]]:
        """What each of these settings makes of each incident."""
        tried, low = [self.tried[name] for name in names], _over(self.tried[PRESENT].settings)
        return in_incidents(self.spark, self.packed, self.before, tried, self.request.settings, self.model, low)


def _over(present: Tunable) -> float:
    """The gap that the present settings mind: those of least-moves are from the middle."""
    return present.low_threshold * (2 if isinstance(present, LeastMovesSettings) else 1)


def _noise(model: LoadModel) -> float:
    """Standard deviation of a sample of CPU, of the median broker, in points; 0 where nothing tells."""
    known = model.noise[:, CPU][np.isfinite(model.noise[:, CPU])]
    return float(np.median(known)) if known.size else 0.0


_TABLES = ("decisions", "broker_rounds", "bundle_rounds")


def window_length(covered_seconds: float) -> int:
    """A day, or less where there are too few days: whole hours, for bundles are whole on the hour. The first is only
    what the second begins with.
    """
    hours = max(int(covered_seconds / HOUR_SECONDS / (FEWEST_WINDOWS + 1) + UNSEEN_HOURS), 1)
    return min(hours * HOUR_SECONDS, DAY_SECONDS)


def _present(decisions: DataFrame, settings: Settings) -> Tunable:
    """The settings that were in force last, or the configured ones where history names another strategy or none."""
    last = decisions.orderBy(F.desc("t")).select("strategy", "settings").head()
    own = configured(settings)
    present: Tunable = own if isinstance(own, AvgShedderSettings | LeastMovesSettings) else settings.avg_shedder
    if last is None or last["strategy"] not in TUNABLE or last["settings"] in {None, "{}"}:
        return present
    try:
        kind: type[Tunable] = TUNABLE[last["strategy"]]
        return kind.model_validate(without_removed(kind.name, json.loads(last["settings"])))
    except (ValueError, AttributeError):
        return present


def _remarks(model: LoadModel) -> list[str]:
    """Sentences about brokers that are unlike the others, and about those whose CPU model is unknown."""
    known = [at for at, sources in enumerate(model.sources) if sources[CPU] is Source.FITTED]
    remarks = [
        f"{model.brokers[at]}: no sample shows how its CPU follows traffic, which hardly changed, or was seldom seen"
        for at, sources in enumerate(model.sources)
        if sources[CPU] is Source.UNKNOWN
    ]
    if len(known) > 2:
        slope, idle = np.median(model.slope[known, CPU]), np.median(model.background[known, CPU])
        for at in known:
            factor, above = model.slope[at, CPU] / slope, model.background[at, CPU] - idle
            if abs(factor - 1) > UNLIKE:
                remarks.append(f"{model.brokers[at]}: the same traffic takes {factor:.1f} times the CPU of the others")
            if above > NEIGHBOUR_POINTS:
                remarks.append(
                    f"{model.brokers[at]}: {above:.0f} points of CPU above the others that no traffic explains"
                )
    return remarks


def _replay_last_window(
    spark: SparkSession,
    packed: DataFrame,
    windows: Sequence[int],
    settings: Settings,
    model: LoadModel,
    tried: Mapping[str, SettingsCandidate],
    chosen: str | None,
) -> WindowScores:
    """The last window, replayed once more for the picture."""
    own, whole = _last(spark, packed, windows)
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


def _last(spark: SparkSession, packed: DataFrame, windows: Sequence[int]) -> tuple[Window, Window]:
    """The last window, and the same with the one before it."""
    if len(windows) < 2:
        row = packed.select("packed").head()
        assert row is not None
        return from_bytes(row["packed"]), from_bytes(row["packed"])
    row = with_before(spark, packed, {windows[-1]: windows[-2]}).head()
    assert row is not None
    return _windows(row)
