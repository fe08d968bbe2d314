"""The data frames: short lists of tuples in, short lists of tuples out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lbd.learn.quality import ReadCounts
from lbd.store.history_tables import COLUMNS
from tests.disks import flip

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
BEGUN = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = 3600
MISSING = float("nan")


def at(minutes: float) -> datetime:
    return BEGUN + timedelta(minutes=minutes)


def frame(spark: SparkSession, table: str, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a table of history; columns that are not given are null."""
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS[table].items()])
    return spark.createDataFrame(pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema))


def decisions(spark: SparkSession, *rounds: tuple[float, list[str]], turn: int = 1) -> DataFrame:
    return frame(spark, "decisions", *({"t": at(minute), "brokers": names, "turn": turn} for minute, names in rounds))


def samples(spark: SparkSession, *rows: tuple[float, str, float | None]) -> DataFrame:
    columns = ({"t": at(minute), "broker": name, "cpu": cpu, "topics": 1} for minute, name, cpu in rows)
    return frame(spark, "broker_rounds", *columns)


def listed(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in found.collect())


def minutes(found: DataFrame) -> list[float]:
    """When, in minutes since the beginning."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = found.select(F.col("t").cast("double").alias("t")).collect()
    return sorted((row["t"] - BEGUN.timestamp()) / 60 for row in rows)


def test_a_round_that_is_there_twice_is_taken_once(spark: SparkSession):
    """Of a recording imported twice, or of one that the daemon had kept, too: the one with the later turn."""
    from lbd.learn import features as curated

    both = decisions(spark, (0, ["a"]), (1, ["a"])).unionByName(decisions(spark, (1, ["a", "b"]), turn=2))
    found = curated.rounds(both)

    assert minutes(found) == [0, 1]
    assert listed(found, "brokers") == [(["a"],), (["a", "b"],)]


def test_silence_is_measured_within_a_day(spark: SparkSession):
    """Whatever order rounds come in; the first of a day follows none."""
    from lbd.learn import features as curated

    found = curated.rounds(decisions(spark, (7, ["a"]), (0, ["a"]), (1, ["a"]), (1440, ["a"])))

    assert sorted(row["since"] or 0 for row in found.collect()) == [0, 0, 60, 360]


def test_rounds_that_a_clock_came_by_again_are_left_out(spark: SparkSession):
    """Two minutes were told twice, at other seconds: the later turns stay. Who knows no turns cannot tell."""
    from lbd.learn import features as curated

    turns = {0: 1, 1: 2, 2: 3, 3: 4, 1.5: 5, 2.5: 6, 3.5: 7, 4.5: 8}
    rows = [{"t": at(minute), "brokers": ["a"], "turn": turn} for minute, turn in turns.items()]
    told, imported = frame(spark, "decisions", *rows), frame(spark, "decisions", *({**row, "turn": 0} for row in rows))
    seen = samples(spark, *((minute, "a", 20.0) for minute in turns))
    (counted,) = curated.dropped(seen, told).collect()

    assert minutes(curated.rounds(told)) == [0, 1, 1.5, 2.5, 3.5, 4.5]
    assert minutes(curated.without(seen, curated.overtaken(told))) == [0, 1, 1.5, 2.5, 3.5, 4.5]
    assert (counted["rounds_read"], counted["rounds_kept"], counted["rounds_overtaken"]) == (8, 6, 2)
    assert minutes(curated.rounds(imported)) == sorted(turns)


def test_rounds_of_turns_that_are_counted_anew_are_kept(spark: SparkSession):
    """As after ``turns/`` was removed: no clock went back, also where the count comes by its old height that day."""
    from lbd.learn import features as curated

    turns = {0: 5, 1: 6, 60: 1, 61: 2, 62: 3, 66: 4, 70: 7, 71: 8}
    told = frame(spark, "decisions", *({"t": at(minute), "brokers": ["a"], "turn": turns[minute]} for minute in turns))

    assert minutes(curated.rounds(told)) == sorted(turns)


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([(0, "a", 20.0), (0, "a", 20.0)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", None)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", -1.0)], [("a", 20.0)]),
        ([(0, "a", 0.0)], [("a", 0.0)]),
        ([], []),
    ],
    ids=["twice", "without a number", "below nought", "idle", "none"],
)
def test_samples_that_are_kept(
    spark: SparkSession, rows: list[tuple[float, str, float | None]], kept: list[tuple[str, float]]
):
    """One for each broker and round, with a number."""
    from lbd.learn import features as curated

    assert listed(curated.samples(samples(spark, *rows)), "broker", "cpu") == kept


def test_every_report_has_a_row(spark: SparkSession):
    """Its numbers are null without a new sample, and a sample without a round is left out."""
    from lbd.learn import features as curated

    found = curated.brokers(
        decisions(spark, (0, ["a", "b"]), (61, ["a"])), samples(spark, (0, "a", 20.0), (30, "a", 99.0)), HOUR
    )
    first = int(BEGUN.timestamp()) // HOUR

    assert sorted(listed(found, "window", "broker", "cpu"), key=str) == [
        (first, "a", 20.0), (first, "b", None), (first + 1, "a", None),
    ]  # fmt: skip


def test_rates_below_nought_are_none(spark: SparkSession):
    """And a bundle that nobody owns stays in."""
    from lbd.learn import features as curated

    rows = (
        {"t": at(0), "bundle": "x", "msg_rate_in": -5.0},
        {"t": at(0), "bundle": "y", "msg_rate_in": 7.0, "broker": "a"},
    )
    found = curated.bundles(frame(spark, "bundle_rounds", *rows), HOUR)

    assert listed(found, "bundle", "broker", "msg_rate_in") == [("x", None, 0.0), ("y", "a", 7.0)]


@pytest.mark.parametrize(
    ("rounds", "counted"),
    [
        ([], (0, 0, 0, 0)),
        ([0], (1, 1, 0, 0)),
        ([0, 1, 1, 2], (4, 3, 0, 120)),
        ([0, 1, 61, 62], (4, 4, 1, 60 + 180 + 60)),
        ([0, 1, -60 * 24 * 400, 60 * 24 * 4000], (4, 4, 0, 60)),
    ],
    ids=["none", "one", "twice", "a hole", "a clock that jumped by years"],
)
def test_what_was_read_and_dropped_is_counted(
    spark: SparkSession, rounds: list[float], counted: tuple[int, int, int, float]
):
    """Rounds read, rounds kept, gaps, and the seconds that were seen: a hole or a jump is no time."""
    from lbd.learn import features as curated

    told = curated.dropped(
        samples(spark, (0, "a", 20.0), (1, "a", None), (2, "a", -1.0), (3, "a", -1.0)),
        decisions(spark, *((one, ["a"]) for one in rounds)),
    ).collect()[0]

    assert (told["rounds_read"], told["rounds_kept"], told["gaps"], told["seconds_seen"]) == counted
    assert [told[f"samples_{kind}"] for kind in ("read", "kept", "missing", "negative")] == [4, 1, 1, 2]
    assert told["seconds_silent"] == (3600 - 180 if told["gaps"] else 0)
    assert ReadCounts(**told.asDict()).rounds_read == told["rounds_read"]


def test_rows_of_bundles_are_shuffled_by_window_alone(spark: SparkSession):
    """A day is as long as any other; by broker or by bundle, one task would get most of the rows. Rounds are few."""
    from lbd.learn import calibrate as pipeline
    from lbd.learn import features as curated

    bundles = curated.bundles(frame(spark, "bundle_rounds", {"t": at(0), "bundle": "x", "broker": "a"}), HOUR)
    brokers = curated.brokers(decisions(spark, (0, ["a"])), samples(spark, (0, "a", 20.0)), HOUR)
    packed = pipeline.read_windows(brokers, bundles)
    plan = packed._jdf.queryExecution().executedPlan().toString()
    keys = re.findall(r"hashpartitioning\(([^)]*), \d+\)", plan)

    assert {re.sub(r"#\d+L?", "", key) for key in keys} <= {"window", "t", "t, broker", "day"}
    assert sum(key.startswith("window") for key in keys) == 2
    assert "CartesianProduct" not in plan
    assert "SinglePartition" not in plan


def other_columns(root: Path) -> None:
    import pyarrow.parquet as pq

    folder = root / "v1" / "decisions"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"t": [1], "turn": [2]}), folder / "part-0.parquet")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, r"v1/decisions: no history of version 1 there"),
        (lambda root: (root / "v1" / "decisions").mkdir(parents=True), r"no history of version 1 there"),
        (other_columns, r"has no column 'brokers'; wanted history of version 1"),
    ],
    ids=["nothing", "an empty folder", "other columns"],
)
def test_what_is_no_history_is_told(spark: SparkSession, tmp_path: Path, make: Any, told: str):
    """In one line that names the folder."""
    from lbd.errors import UsageError
    from lbd.learn.tables import table

    make(tmp_path)
    with pytest.raises(UsageError, match=told) as found:
        table(spark, str(tmp_path), "decisions")
    assert "\n" not in str(found.value)


def part(root: Path, day: int, content: bytes | None = None, version: int = 1) -> Path:
    """A file of decisions: one round, or these bytes."""
    import json

    import pyarrow.parquet as pq

    path = root / "v1" / "decisions" / f"day=2026-01-{day:02d}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
        return path
    schema = pa.schema(
        [(name, kind) for name, (kind, _) in COLUMNS["decisions"].items()],
        metadata={"lbd.history": json.dumps({"version": version, "table": "decisions"})},
    )
    row = {**dict.fromkeys(schema.names), "t": at(day * 1440), "brokers": ["a"], "turn": day}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path, compression="zstd", write_page_checksum=True)
    return path


def test_what_is_torn_is_left_out_and_named(spark: SparkSession, tmp_path: Path):
    """Half a file, an empty one, one of another kind and one with a changed byte; hidden files are nobody's."""
    from lbd.learn.tables import table

    whole = part(tmp_path, 1)
    torn = [part(tmp_path, day, content) for day, content in enumerate((whole.read_bytes()[:-40], b"", b"junk" * 9), 2)]
    torn.append(part(tmp_path, 5))
    flip(torn[-1], "turn")
    (whole.parent / ".part-1.parquet.new").write_bytes(b"PAR1")
    found = table(spark, str(tmp_path), "decisions")

    assert [row["turn"] for row in found.rows.collect()] == [1]
    assert [*found.torn] == [str(path) for path in torn]
    assert [*found.torn.values()] == ["unreadable-file"] * 3 + ["wrong-checksum"]
    assert found.files == 5


def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path):
    """Spark tells which file a row is from as a URI; none is torn for its folder's name."""
    from lbd.learn.tables import table

    root = tmp_path / "my history, 100%25"
    part(root, 1)
    found = table(spark, str(root), "decisions")
    assert (found.torn, found.files) == ({}, 1)
    assert [row["turn"] for row in found.rows.collect()] == [1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda root: (part(root, 1), part(root, 2, version=2)),
            r"day=2026-01-02/part-0.parquet: history of version 2",
        ),
        (lambda root: part(root, 1, b"junk" * 9), "none of 1 files can be read"),
        (lambda root: (root / "v2" / "decisions").mkdir(parents=True), "no history of version 1 there; there is v2"),
    ],
    ids=["a newer version", "junk alone", "a newer folder"],
)
def test_what_cannot_be_read_is_told(spark: SparkSession, tmp_path: Path, make: Any, told: str):
    """With the file, what was seen and what is wanted."""
    from lbd.errors import UsageError
    from lbd.learn.tables import table

    make(tmp_path)
    with pytest.raises(UsageError, match=told):
        table(spark, str(tmp_path), "decisions")


def test_each_window_is_beside_the_one_before(spark: SparkSession):
    """The first has none, and a hole between two changes nothing; none is collected in one place for it."""
    from lbd.learn import calibrate as pipeline

    packed = spark.createDataFrame(
        [(number, str(number).encode()) for number in (7, 3, 4)], "window long, packed binary"
    )
    found = pipeline.with_before(spark, packed, {4: 3, 7: 4})

    assert sorted((row["window"], bytes(row["packed_before"])) for row in found.collect()) == [(4, b"3"), (7, b"4")]
    assert "SinglePartition" not in found._jdf.queryExecution().executedPlan().toString()
