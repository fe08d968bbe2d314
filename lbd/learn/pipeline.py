"""The Spark part: history to windows, windows to samples of load, windows and settings to figures.

Rows of bundles are shuffled once, by window, each of which is as long as any other, and none comes to the driver.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from lbd.config import Settings
from lbd.learn.closed_loop import replay
from lbd.learn.cluster import recorded
from lbd.learn.dealt import dealt
from lbd.learn.packing import pack
from lbd.learn.scoring import Figures, figures
from lbd.learn.window import after, from_bytes, to_bytes
from lbd.load.samples import BrokerSamples, gather
from lbd.model import RESOURCES
from lbd.record.history.tables import RATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lbd.learn.candidates import Candidate
    from lbd.load.linear import LoadModel
    from lbd.model import FloatArray

WINDOWS = "window long, rounds int, brokers array<string>, changes int, packed binary"
SAMPLES = "broker string, at double, carried array<double>, used array<double>, since_change int, window long"
RESULTS = "candidate string, window long, seed int, " + ", ".join(
    f"{field.name} {'int' if field.type == 'int' else 'double'}" for field in fields(Figures)
)
CANDIDATES_A_TASK = 5
"""Each task unpacks its window once."""


def windows(brokers: DataFrame, bundles: DataFrame) -> DataFrame:
    """Each window packed into one row."""
    return (
        brokers.groupBy("window").cogroup(bundles.groupBy("window")).applyInArrow(_packed, WINDOWS).where("rounds > 1")
    )


def _packed(key: tuple[pa.Scalar, ...], brokers: pa.Table, bundles: pa.Table) -> pa.Table:
    found = pack(brokers, bundles)
    values = (key[0].as_py(), found.at.size, list(found.brokers), found.change_round.size, to_bytes(found))
    names = ("window", "rounds", "brokers", "changes", "packed")
    kinds = (pa.int64(), pa.int32(), pa.list_(pa.string()), pa.int32(), pa.binary())
    return pa.table({name: pa.array([value], kind) for name, kind, value in zip(names, kinds, values, strict=True)})


def samples(packed: DataFrame) -> dict[str, BrokerSamples]:
    """What each broker carried and used, over all windows: some thousand small rows a broker; none of who gave none."""
    brokers = packed.select(F.explode("brokers").alias("broker")).distinct().orderBy("broker").collect()
    rows = packed.select("window", "packed").mapInArrow(_sampled, SAMPLES).orderBy("broker", "at").toArrow()
    names = rows["broker"].combine_chunks()
    at, since = rows["at"].to_numpy(), rows["since_change"].to_numpy().astype(np.int32)
    carried, used = _matrix(rows["carried"], len(RATES)), _matrix(rows["used"], len(RESOURCES))
    found = {}
    for broker in (row["broker"] for row in brokers):
        own = np.asarray(pc.equal(names, broker).to_numpy(zero_copy_only=False), dtype=np.bool_)
        hardware = tuple(np.isfinite(used[own]).any(axis=0).astype(float).tolist())
        found[broker] = BrokerSamples(at[own], carried[own], used[own], since[own], hardware)
    return found


def _matrix(column: pa.ChunkedArray, width: int) -> FloatArray:
    found: FloatArray = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return found.astype(np.float64).reshape(-1, width)


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
    numbers: Sequence[int],
    tried: Sequence[Candidate],
    settings: Settings,
    model: LoadModel,
    *,
    seeds: int,
    over_points: float,
) -> dict[str, dict[int, list[Figures]]]:
    """The figures of each candidate in each window but the first, one for each deal of noise.

    ``numbers`` are the windows'. What a window begins with is what the candidate made of the hours before, which are
    replayed, too, and not counted: otherwise every candidate but the one in force would begin each window with the
    moves that its own start takes.
    """
    begins = range(0, len(tried), CANDIDATES_A_TASK)
    tasks = [(begin, _as_json(tried[begin : begin + CANDIDATES_A_TASK])) for begin in begins]
    chunks = spark.createDataFrame(tasks, "chunk int, candidates string")
    number = max((len(numbers) - 1) * len(tasks), 1)
    spread = with_before(spark, packed, numbers).crossJoin(F.broadcast(chunks)).repartition(number, "window", "chunk")
    plain = settings.model_dump(mode="json", exclude_unset=True)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _judged(row, plain, model, seeds, over_points)

    found: dict[str, dict[int, list[Figures]]] = {}
    names = [field.name for field in fields(Figures)]
    for row in spread.mapInArrow(judge, RESULTS).toArrow().to_pylist():
        one = Figures(**{name: row[name] for name in names})
        found.setdefault(row["candidate"], {}).setdefault(row["window"], []).append(one)
    return found


def with_before(spark: SparkSession, packed: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Each window but the first beside the one before it, whatever time lies between."""
    pairs = spark.createDataFrame([(now, before) for before, now in pairwise(numbers)], "window long, before long")
    earlier = packed.select(F.col("window").alias("before"), F.col("packed").alias("packed_before"))
    return (
        packed.join(F.broadcast(pairs), on="window", how="inner")
        .join(earlier, on="before", how="inner")
        .select("window", "packed", "packed_before")
    )


def _as_json(tried: Sequence[Candidate]) -> str:
    return json.dumps({one.name: one.values for one in tried})


def _judged(
    row: Mapping[str, Any], plain: Mapping[str, object], model: LoadModel, seeds: int, over_points: float
) -> Iterator[pa.RecordBatch]:
    own = from_bytes(row["packed"])
    window, begins = after(from_bytes(row["packed_before"]), own), float(own.at[0])
    tried = {name: Settings.model_validate({**plain, **own}) for name, own in json.loads(row["candidates"]).items()}
    for seed in range(seeds):
        drawn = dealt(window, seed)
        for name, settings in tried.items():
            course = replay(drawn, settings, model)
            found = figures(course.since(begins), over_points)
            values_of = {"candidate": name, "window": row["window"], "seed": seed, **asdict(found)}
            yield pa.RecordBatch.from_pylist([values_of], schema=_RESULT)


_RESULT = pa.schema(
    [("candidate", pa.string()), ("window", pa.int64()), ("seed", pa.int32())]
    + [(field.name, pa.int32() if field.type == "int" else pa.float64()) for field in fields(Figures)]
)
