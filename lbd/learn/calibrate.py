"""From history to a choice of settings, stage by stage, over a Spark session that is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.storagelevel import StorageLevel

from lbd.cycle.chosen import configured
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.decide.least_moves.settings import LeastMovesSettings
from lbd.errors import UsageError
from lbd.learn import curated, pipeline
from lbd.learn.candidates import PRESENT, TUNABLE, candidates
from lbd.learn.choosing import DEALS, FEWEST_WINDOWS, choose, shortlist
from lbd.learn.closed_loop import as_recorded, replay
from lbd.learn.local import HOW
from lbd.learn.reading import table
from lbd.learn.scoring import pooled
from lbd.learn.told import told
from lbd.learn.window import after, from_bytes
from lbd.load.error import measure
from lbd.load.fit import fit
from lbd.load.linear import CPU, Source
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from lbd.config import Settings
    from lbd.learn.candidates import Candidate, Tunable
    from lbd.learn.choosing import Choice
    from lbd.learn.scoring import Figures
    from lbd.learn.told import Told
    from lbd.learn.window import Window
    from lbd.load.error import ModelError
    from lbd.load.linear import LoadModel
    from lbd.model import FloatArray

HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS

UNSEEN_HOURS = 0.1
"""Of a window that is whole all the same: before the first round of a day, and while lbd is restarted."""

NOT_KNOWN = "nothing tells how {1} follows traffic on {0}, so what moves would have done is not known"

SHORT = (
    "History is short: in windows of {0:g} h the moves that level brokers once count as if they came each day; ask "
    "again when there are {1} days"
)

UNLIKE = 0.25
"""A broker whose slope differs by more than this fraction from the median is another kind of machine."""

NEIGHBOUR_POINTS = 10.0
"""Background above the median by more than this is a neighbour's."""


@dataclass(frozen=True)
class Asked:
    """What is to be calibrated. ``history`` is any path that Spark can read; candidates differ from ``settings``.

    ``strategies`` are tried beside the one in force. ``tell`` is told each stage as it begins.
    """

    history: str
    settings: Settings
    candidates: int
    seeds: int
    tell: Callable[[str], None]
    strategies: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Shown:
    """One window as it was and as it would have been: scores, float64 (T, B), and when, epoch seconds."""

    at: FloatArray
    recorded: FloatArray
    present: FloatArray
    chosen: FloatArray | None
    moves: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """What came of it. ``read`` counts what was read and dropped, ``torn`` the files that could not be read;
    ``remarks`` are sentences about brokers; ``days`` is the time that history saw.
    """

    choice: Choice
    tried: Mapping[str, Candidate]
    model: LoadModel
    error: ModelError
    read: Row
    torn: tuple[str, ...]
    remarks: tuple[str, ...]
    days: float
    window_hours: float
    shown: Shown
    told: Told

    @property
    def recommended(self) -> Candidate | None:
        """The settings to take; None where the present ones are to be kept."""
        return self.tried[self.choice.recommended] if self.choice.recommended else None


def calibrate(spark: SparkSession, asked: Asked) -> Calibration:
    """Everything, to its end. Raises :class:`UsageError` for a history that cannot be read or tells nothing."""
    asked.tell("reading history")
    tables = [table(spark, asked.history, name) for name in _TABLES]
    decisions, brokers, bundles = (one.rows for one in tables)
    read = curated.dropped(brokers, decisions).collect()[0]
    if read["rounds_overtaken"]:
        brokers, bundles = (curated.without(rows, curated.overtaken(decisions)) for rows in (brokers, bundles))
    if not read["rounds_kept"]:
        raise UsageError(f"{asked.history}: history holds no round; {HOW}")
    asked.tell("looking at gaps and noise")
    features = told(brokers, asked.settings.weights)
    window_seconds = window_length(read["seconds_seen"])
    asked.tell("packing windows")
    packed = pipeline.windows(
        curated.brokers(decisions, brokers, window_seconds), curated.bundles(bundles, window_seconds)
    ).persist(StorageLevel.MEMORY_AND_DISK)
    windows = [row["window"] for row in packed.select("window").orderBy("window").collect()]
    if not windows:
        raise UsageError(f"{asked.history}: no two rounds in a row with a sample in them; {HOW}")
    asked.tell("fitting load")
    samples = pipeline.samples(packed)
    model = fit(samples)
    error = measure(samples, asked.settings.weights)
    present = _present(decisions, asked.settings)
    tried = candidates(present, _noise(model), asked.candidates, 1, asked.strategies)
    asked.tell(f"replaying {len(tried)} settings over {counted(len(windows), 'window')}")
    found = _replayed(spark, packed, windows, tried, asked, model)
    by_name = {one.name: one for one in tried}
    finalists = [by_name[name] for name in (PRESENT, *shortlist(found, windows[1:]))]
    again: dict[str, dict[int, Figures]] = {}
    if len(finalists) > 1:
        asked.tell(f"replaying the best {len(finalists) - 1} again, with noise dealt anew")
        often = replace(asked, seeds=max(DEALS, asked.seeds))
        again = _replayed(spark, packed, windows, finalists, often, model)
    asked.tell("choosing")
    choice = choose(found, again, windows[1:])
    unknown = model.unknown(asked.settings.weights)
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
        torn=tuple(file for one in tables for file in one.torn),
        remarks=tuple(_remarks(model)),
        days=read["seconds_seen"] / DAY_SECONDS,
        window_hours=window_seconds / HOUR_SECONDS,
        shown=_shown(spark, packed, windows, asked.settings, model, by_name, choice.recommended),
        told=features,
    )


def _replayed(
    spark: SparkSession,
    packed: DataFrame,
    windows: Sequence[int],
    tried: Sequence[Candidate],
    asked: Asked,
    model: LoadModel,
) -> dict[str, dict[int, Figures]]:
    """The figures of these settings, the present ones first, in each window but the first, over all deals of noise."""
    over = _over(tried[0].settings)
    found = pipeline.results(spark, packed, windows, tried, asked.settings, model, seeds=asked.seeds, over_points=over)
    return {name: {window: pooled(runs) for window, runs in own.items()} for name, own in found.items()}


def _over(present: Tunable) -> float:
    """The gap that the present settings mind: those of least-moves are from the middle."""
    return present.low_threshold * (2 if isinstance(present, LeastMovesSettings) else 1)


def _noise(model: LoadModel) -> float:
    """Standard deviation of a sample of CPU, of the median broker, in points; 0 where nothing tells."""
    known = model.noise[:, CPU][np.isfinite(model.noise[:, CPU])]
    return float(np.median(known)) if known.size else 0.0


_TABLES = ("decisions", "broker_rounds", "bundle_rounds")


def window_length(seen_seconds: float) -> int:
    """A day, or less where there are too few days: whole hours, for bundles are whole on the hour. The first is only
    what the second begins with.
    """
    hours = max(int(seen_seconds / HOUR_SECONDS / (FEWEST_WINDOWS + 1) + UNSEEN_HOURS), 1)
    return min(hours * HOUR_SECONDS, DAY_SECONDS)


def _present(decisions: DataFrame, settings: Settings) -> Tunable:
    """The settings that were in force last; those given where history names another strategy, or none."""
    last = decisions.orderBy(F.desc("t")).select("strategy", "settings").head()
    given = configured(settings)
    present: Tunable = given if isinstance(given, AvgShedderSettings | LeastMovesSettings) else settings.avg_shedder
    if last is None or last["strategy"] not in TUNABLE or last["settings"] in {None, "{}"}:
        return present
    try:
        kind: type[Tunable] = TUNABLE[last["strategy"]]
        return kind.model_validate_json(last["settings"])
    except ValueError:
        return present


def _remarks(model: LoadModel) -> list[str]:
    """Brokers that are unlike the others, and what nothing is known of."""
    known = [at for at, sources in enumerate(model.sources) if sources[CPU] is Source.FITTED]
    found = [
        f"{model.brokers[at]}: nothing tells how its CPU follows traffic, which hardly changed, or was seldom seen"
        for at, sources in enumerate(model.sources)
        if sources[CPU] is Source.UNKNOWN
    ]
    if len(known) > 2:
        slope, idle = np.median(model.slope[known, CPU]), np.median(model.background[known, CPU])
        for at in known:
            factor, above = model.slope[at, CPU] / slope, model.background[at, CPU] - idle
            if abs(factor - 1) > UNLIKE:
                found.append(f"{model.brokers[at]}: the same traffic takes {factor:.1f} times the CPU of the others")
            if above > NEIGHBOUR_POINTS:
                found.append(
                    f"{model.brokers[at]}: {above:.0f} points of CPU above the others that no traffic explains"
                )
    return found


def _shown(
    spark: SparkSession,
    packed: DataFrame,
    windows: Sequence[int],
    settings: Settings,
    model: LoadModel,
    tried: Mapping[str, Candidate],
    chosen: str | None,
) -> Shown:
    """The last window, replayed once more for the picture."""
    own, whole = _last(spark, packed, windows)
    runs = [
        replay(whole, tried[name].under(settings), model).since(float(own.at[0]))
        for name in (PRESENT, chosen)
        if name is not None
    ]
    moves = tuple(tuple(one.at for one in run.moves) for run in runs)
    return Shown(
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
    row = pipeline.with_before(spark, packed, windows[-2:]).head()
    assert row is not None
    own = from_bytes(row["packed"])
    return own, after(from_bytes(row["packed_before"]), own)
