"""The Spark job: what only Spark shows of it. What it runs is tested without Spark in the modules beside this one."""

from __future__ import annotations

import re
import shutil
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lbd.errors import UsageError
from lbd.learn.history import DAYS, HOURS, WINDOWS, day_row, hour_row, window_row
from lbd.learn.quality import OTHER_COLUMNS, UNREADABLE_FILE, UNREADABLE_PAGE, damage
from lbd.learn.rounds import NEEDED
from lbd.learn.window import hourly, joined, to_bytes, without_bundles
from lbd.learn.workers import Packing, Task
from lbd.load.scoring import Weights
from lbd.store.history_tables import schema
from tests.disks import flip
from tests.learn.in_process import InProcess
from tests.learn.windows import minute

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lbd.learn.job import SparkWorkers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.default.parallelism": "1",
}
"""For a few rows: no code is generated, and nothing is spread."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Spark in this process, on one core."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    from lbd.learn.spark import session

    with session("local[1]", SMALL) as found:
        yield found


def workers(spark: SparkSession, root: Path | str) -> SparkWorkers:
    from lbd.learn.job import SparkWorkers

    return SparkWorkers(spark, str(root))


def packed(own: Any) -> Any:
    """Windows of two hours."""
    own.files()
    windows = Packing(7200, partial(window_row, overtaken=frozenset(), weights=Weights()), WINDOWS)
    return own.packed((), windows, Packing(3600, partial(hour_row, overtaken=frozenset()), HOURS))


def part(root: Path, day: int, *, table: str = "decisions", rows: int = 1, **changes: Any) -> Path:
    """A file of a table on a day, with so many rounds; ``changes`` are its bytes, or columns of another type."""
    path = root / "v1" / table / f"day=2026-01-{day:02d}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    if "content" in changes:
        path.write_bytes(changes["content"])
        return path
    values = {"t": minute(day * 1440), "brokers": ["a"], "turn": day, "broker": "a", "bundle": "t/n/1", "cpu": 20.0}
    row = {name: values.get(name, 1 if pa.types.is_integer(kind) else 1.0 if pa.types.is_floating(kind) else None)
           for name, kind in zip(schema(table).names, schema(table).types, strict=True)}  # fmt: skip
    found = pa.Table.from_pylist([row] * rows, schema=schema(table))
    for name, kind in changes.items():
        found = found.drop_columns([name]).append_column(name, pa.array([None] * rows, kind).fill_null("x"))
    pq.write_table(found, path, compression="zstd", write_page_checksum=True)
    return path


def test_damaged_files_are_found_whatever_is_wrong_with_them(spark: SparkSession, tmp_path: Path):
    """Half a file, an empty one, another kind, a changed byte, a column of another type and one that is not there;
    hidden files are nobody's, and a folder may have any name.
    """
    root = tmp_path / "my history, 100%25"
    for table in ("broker_rounds", "bundle_rounds"):
        part(root, 1, table=table)
    whole = part(root, 1)
    torn = [part(root, day, content=bad) for day, bad in enumerate((whole.read_bytes()[:-40], b"", b"junk" * 9), 2)]
    torn += [part(root, 5), part(root, 6, turn=pa.string())]
    flip(torn[-2], "turn")
    torn.append(part(root, 7))
    pq.write_table(pq.read_table(torn[-1], partitioning=None).drop_columns(["turn"]), torn[-1])
    for day in range(8, 12):
        part(root, day, rows=2)
    (whole.parent / ".part-1.parquet.new").write_bytes(b"PAR1")
    found = workers(spark, root).files()
    kinds = [UNREADABLE_FILE] * 3 + [UNREADABLE_PAGE] * 2 + [OTHER_COLUMNS]

    assert len(found) == 2 + 11
    assert damage(found) == {f"file:{path}": kind for path, kind in zip(torn, kinds, strict=True)}


def test_the_job_gives_what_its_functions_give(spark: SparkSession, history: Path):
    """Rows of days, of windows, of hours, and of tasks on stretches, are those that the same functions make here."""
    made = []
    for one in (workers(spark, history), InProcess(history)):
        files = one.files()
        own = packed(one)
        rows = own.windows([name for name in WINDOWS if name != "number"])
        numbers = [row["number"] for row in rows]
        first, last = 2 * numbers[0], 2 * numbers[-1] + 2

        def over(windows: Any, hours: Any, task: Task, bundles: tuple[str, ...] = own.bundles()) -> Any:
            whole = without_bundles(reduce(joined, windows), bundles)
            for window in hourly(whole, hours):
                yield {"task": task.argument, "packed": to_bytes(window), "at": float(window.at[0])}

        tasks = [Task(first, last, "all"), Task(first + 1, first + 3, "between"), Task(first, first, "none")]
        columns = {"task": pa.string(), "packed": pa.binary(), "at": pa.float64()}
        made.append(
            {
                "files": [(file.table, file.rows, file.readable, file.values) for file in files],
                "days": one.days((), day_row, DAYS),
                "windows": rows,
                "hours": own.hours([name for name in HOURS if name != "number"]),
                "bundles": own.bundles(),
                "stretches": _ordered(own.run(numbers, tasks[:2], over, columns), "task", "at"),
                "without": _ordered(own.run(numbers[1:], tasks[:1], over, columns), "task", "at"),
            }
        )

    assert made[0] == made[1]
    assert {name: len(rows) for name, rows in made[0].items() if name != "files"} == {
        "days": 1, "windows": 4, "hours": 7, "bundles": 96, "stretches": 9, "without": 5,
    }  # fmt: skip


def test_no_more_rows_come_to_the_driver_where_there_are_more_bundles(
    spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Three times as many bundles on the same brokers: as many rows are collected, by each call that collects."""
    more = tmp_path / "more"
    shutil.copytree(history, more)
    for file in more.glob("v1/bundle_rounds/*/*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        at = rows.column_names.index("bundle")
        copies = [rows.set_column(at, "bundle", pc.binary_join_element_wise(rows["bundle"], name, "")) for name in "ab"]
        pq.write_table(pa.concat_tables([rows, *copies]), file, compression="zstd", write_page_checksum=True)
    collected: list[int] = []

    def noted(method: Any) -> Any:
        def call(frame: Any) -> Any:
            rows = method(frame)
            collected.append(len(rows))
            return rows

        return call

    frame = type(spark.range(1))
    for name in ("collect", "toArrow"):
        monkeypatch.setattr(frame, name, noted(getattr(frame, name)))

    def rows_of(root: Path) -> tuple[int, list[int]]:
        collected.clear()
        own = packed(workers(spark, root))
        numbers = [row["number"] for row in own.windows(["rounds"])]
        own.hours(["carried"])
        tasks = [Task(2 * number, 2 * number + 2, number) for number in numbers]
        own.run(numbers, tasks, lambda *of_task: [{"task": of_task[-1].argument}], {"task": pa.int64()})
        return len(own.bundles()), list(collected)

    (few, once), (many, thrice) = rows_of(history), rows_of(more)
    assert many == 3 * few
    assert once == thrice


def test_the_median_of_measured_moves_is_what_a_move_takes(spark: SparkSession, tmp_path: Path):
    """Moves that were not measured do not count; without any, and without a file of moves, nothing is known."""
    assert workers(spark, tmp_path).reconnect_seconds() is None
    for day, (seconds, median) in enumerate([(None, None), (1.5, 1.5), (9.0, 5.25), (2.5, 2.5)], 1):
        path = part(tmp_path, day, table="moves")
        rows = pq.read_table(path).to_pylist()
        pq.write_table(pa.Table.from_pylist([{**rows[0], "reconnect_seconds": seconds}], schema=schema("moves")), path)
        assert workers(spark, tmp_path).reconnect_seconds() == median


def test_each_task_has_a_partition_of_its_own(spark: SparkSession, history: Path):
    """By their hashes alone some would share one, and the others would wait for it."""
    own = packed(workers(spark, history))

    for number in (1, 2, 7):
        keys = spark.createDataFrame([(key,) for key in own._keys(number)], "key int").repartition(number, "key")
        assert keys.rdd.glom().map(len).collect() == [1] * number


def _ordered(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def test_rows_may_be_all_null_or_none(spark: SparkSession, history: Path):
    """Types are those that were named, and not those of the values: of a broker without a sample nothing is known."""
    columns = {"window": pa.int64(), "number": pa.float64(), "names": pa.list_(pa.string())}
    own = packed(workers(spark, history))
    first, second, *_ = numbers = [row["number"] for row in own.windows(["rounds"])]

    def made(windows: object, hours: object, task: Task) -> list[dict[str, object]]:
        del windows, hours
        return [] if task.argument else [{"window": task.first, "number": None, "names": []}]

    tasks = [Task(2 * first, 2 * first + 2, "none"), Task(2 * second, 2 * second + 2)]
    assert own.run(numbers, tasks, made, columns) == [{"window": 2 * second, "number": None, "names": []}]
    assert own.run(numbers, [], made, columns) == []


def test_rows_of_bundles_are_shuffled_by_hour_alone(spark: SparkSession, history: Path):
    """An hour is as long as any other; by broker or by bundle, one task would get most of the rows."""
    plan = packed(workers(spark, history))._hours._jdf.queryExecution().executedPlan().toString()
    keys = re.findall(r"hashpartitioning\(([^)]*), \d+\)", plan)

    assert {re.sub(r"#\d+L?", "", key) for key in keys} <= {"number"}
    assert "CartesianProduct" not in plan


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, r"v1/decisions: no history of version 1 there"),
        (lambda root: (root / "v2" / "decisions").mkdir(parents=True), "no history of version 1 there; there is v2"),
    ],
    ids=["nothing", "a newer folder"],
)
def test_no_history_is_an_error_of_one_line(spark: SparkSession, tmp_path: Path, make: Any, message: str):
    """It names the folder."""
    make(tmp_path)
    with pytest.raises(UsageError, match=message) as found:
        workers(spark, tmp_path).files()
    assert "\n" not in str(found.value)


def test_a_path_without_its_package_is_told_with_the_option_that_adds_it(spark: SparkSession):
    """In the version of Spark's own Hadoop."""
    from py4j.protocol import Py4JError

    from lbd.learn.spark import first_line

    with pytest.raises(Py4JError) as found:
        workers(spark, "s3a://bucket/history").files()
    assert re.fullmatch(
        r"no package for s3a: paths; add --packages org\.apache\.hadoop:hadoop-aws:3\.\d+\.\d+", first_line(found.value)
    )


def test_every_needed_column_is_one_of_history():
    """A typo would leave out every file."""
    assert [name for table, names in NEEDED.items() for name in names if name not in schema(table).names] == []
