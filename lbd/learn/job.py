"""The Spark job: runs a calibration's functions over the files, days, windows and hours of a history.

Rows of bundles are shuffled once, by hour (hours are equally long), and none comes to the driver: it collects what is
bounded by files, days, windows, hours and tasks, and the names of bundles once for each partition. Spark itself reads
the files, on any path that it knows, by row group, so that no file need fit in memory. A task gets its packed hours one
after the other, in the order of time, so that no two need be in a worker's memory. Whatever Python hands to Spark has
the columns and types that its caller names, also where all values are null or there is no row.
"""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from lbd.errors import UsageError
from lbd.learn.quality import FileRows
from lbd.learn.rounds import NEEDED, USED, table_of
from lbd.learn.spark import first_line, nothing
from lbd.learn.window import from_bytes, names_from_bytes, names_to_bytes
from lbd.store.history_tables import COLUMNS, VERSION
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from lbd.learn.workers import Columns, OfDay, OfTask, Packing, Rows, Task


FILES = "{day=*/,}[!._]*.parquet"
"""All files of a table that have a reader's name."""

VERSIONS_AHEAD = 10

CHECKED = {"ignoreCorruptFiles": "true", "parquet.page.verify-checksum.enabled": "true"}
"""Options of a look at every page: where a file cannot be read, the rows from there on are missing."""

SAFE = {"parquet.page.verify-checksum.enabled": "true"}
"""Options of what reads whole files: a byte that changed meanwhile ends the job."""


class SparkWorkers:
    """A history at ``root``, any path that Spark reads."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self._root = spark, f"{root.rstrip('/')}/v{VERSION}"
        self._files: dict[str, list[str]] = {}

    def files(self) -> list[FileRows]:
        """Each file's rows by its footer, how many of them can be read, and how many have a value in each column.

        Raises :class:`UsageError` where a table has no file, or its folder cannot be read.
        """
        try:
            counts = [count for name in NEEDED for count in _counted(name, self._named(name))]
            counted = reduce(DataFrame.unionAll, counts).collect()
        except PythonException:
            raise
        except PySparkException as error:
            raise UsageError(f"{self._root}: cannot be read: {first_line(error)}") from error
        footers = {_path(row["file"]): row["rows"] for row in counted if row["digest"] is None}
        readable = {_path(row["file"]): row for row in counted if row["digest"] is not None}
        file_rows = []
        for name, files in self._files.items():
            for file in files:
                row = readable.get(file)
                values = dict(zip(NEEDED[name], row["values"], strict=True)) if row is not None else {}
                file_rows.append(FileRows(name, file, footers.get(file), row["rows"] if row else 0, values))
        return file_rows

    def reconnect_seconds(self) -> float | None:
        """The median over all moves; None where no move was measured, or no move was ever made."""
        try:
            moves = self._read("moves", CHECKED).parquet(f"{self._root}/moves/{FILES}")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None
        seconds: float | None = moves.select(F.median("reconnect_seconds")).collect()[0][0]
        return seconds

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """The rows that this function makes of each day (UTC), without the files of these names."""
        reports = self._reports(without, _number("t", int(DAY_SECONDS)).alias("number"))

        def of_day(rows: pa.Table) -> pa.Table:
            return _table(function(table_of(rows, "decisions"), table_of(rows, "broker_rounds")), columns)

        by_day: Rows = reports.groupBy("number").applyInArrow(of_day, _types(columns)).toArrow().to_pylist()
        return by_day

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> SparkHistory:
        """Windows without bundles, and hours with them."""

        def of_window(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
            made = windows.function(table_of(rows, "decisions"), table_of(rows, "broker_rounds"))
            return _table([{"number": key[0].as_py(), **made}], windows.columns)

        def of_hour(key: tuple[pa.Scalar, ...], rows: pa.Table, changes: pa.Table) -> pa.Table:
            made = hours.function(table_of(rows, "decisions"), table_of(rows, "broker_rounds"), changes)
            return _table([{"number": key[0].as_py(), **made}], hours.columns)

        by_window = self._reports(without, _number("t", windows.seconds).alias("number")).groupBy("number")
        number = _number("t", hours.seconds).alias("number")
        bundles = self._rows("bundle_rounds", without).select(*USED["bundle_rounds"], number)
        by_hour = self._reports(without, number).groupBy("number").cogroup(bundles.groupBy("number"))
        return SparkHistory(
            self._spark,
            by_window.applyInArrow(of_window, _types(windows.columns)).persist(StorageLevel.DISK_ONLY),
            by_hour.applyInArrow(of_hour, _types(hours.columns)).persist(StorageLevel.DISK_ONLY),
            windows.seconds // hours.seconds,
        )

    def _reports(self, without: Collection[str], number: Column) -> DataFrame:
        """Rows of decisions and of brokers below one another, each with the name of its table."""
        names = "decisions", "broker_rounds"
        decisions, brokers = (
            self._rows(name, without).select(*USED[name], number, F.lit(name).alias("table")) for name in names
        )
        return decisions.unionByName(brokers, allowMissingColumns=True)

    def _rows(self, name: str, without: Collection[str]) -> DataFrame:
        whole = [file for file in self._files[name] if file not in without]
        return self._read(name, SAFE).parquet(*whole)

    def _read(self, name: str, options: Mapping[str, str]) -> DataFrameReader:
        columns = {column: kind for column, (kind, _) in COLUMNS[name].items()}
        return self._spark.read.schema(_types(columns)).options(**options)

    def _named(self, name: str) -> DataFrame:
        """All files of a table; their names are kept."""
        path = f"{self._root}/{name}"
        try:
            frame = self._read(name, CHECKED).parquet(f"{path}/{FILES}")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise nothing(path, self._versions()) from error
        self._files[name] = sorted(map(_path, frame.inputFiles()))
        return frame

    def _versions(self) -> list[str]:
        """Folders of other versions that are there, of some that may come."""
        others = (f"v{number}" for number in range(1, VERSION + VERSIONS_AHEAD) if number != VERSION)
        return [name for name in others if self._is_there(f"{self._root.rpartition('/')[0]}/{name}")]

    def _is_there(self, path: str) -> bool:
        try:
            return bool(self._spark.read.format("binaryFile").load(path).schema)
        except PySparkException:
            return False


class SparkHistory:
    """Packed ``windows`` of ``hours_a_window`` hours each, and packed ``hours``, kept by Spark's executors."""

    def __init__(self, spark: SparkSession, windows: DataFrame, hours: DataFrame, hours_a_window: int) -> None:
        self._spark, self._windows, self._hours, self._hours_a_window = spark, windows, hours, hours_a_window

    def windows(self, names: Sequence[str]) -> Rows:
        """These columns of each window, in the order of time."""
        return _by_number(self._windows, names)

    def hours(self, names: Sequence[str]) -> Rows:
        """The same of each hour."""
        return _by_number(self._hours, names)

    def bundles(self) -> tuple[str, ...]:
        """The names of all bundles, sorted. Each partition joins those of its hours, so that few rows are collected."""
        columns = {"bundles": pa.binary()}

        def of_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            packed = (row for batch in batches for row in batch["bundles"].to_pylist())
            yield from _table([{"bundles": names_to_bytes(_all_names(packed))}], columns).to_batches()

        by_partition = self._hours.select("bundles").mapInArrow(of_partition, _types(columns))
        return tuple(sorted(_all_names(by_partition.toArrow()["bundles"].to_pylist())))

    def run(self, windows: Collection[int], tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """The rows that this function makes of each task; each is a task of Spark's, too."""
        if not tasks:
            return []
        numbered = [
            (key, index, task.first, task.end)
            for index, (key, task) in enumerate(zip(self._keys(len(tasks)), tasks, strict=True))
        ]
        spans = self._spark.createDataFrame(numbered, "key int, task int, first long, end long")
        hour, window = F.col("number"), F.floor(F.col("number") / self._hours_a_window)
        packed = self._windows.select(F.lit(0).alias("kind"), "number", "packed").where(hour.isin([*windows]))
        packed = packed.unionAll(
            self._hours.select(F.lit(1).alias("kind"), "number", "packed").where(window.isin([*windows]))
        )
        begins = F.when(F.col("kind") == 0, F.col("number") * self._hours_a_window).otherwise(F.col("number"))
        lasts = F.when(F.col("kind") == 0, F.lit(self._hours_a_window)).otherwise(F.lit(1))
        spread = (
            packed.join(F.broadcast(spans), (begins < F.col("end")) & (begins + lasts > F.col("first")))
            .select("key", "task", "kind", "number", "packed")
            .repartition(len(tasks), "key")
            .sortWithinPartitions("task", "kind", "number")
        )

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = (row for batch in batches for row in _each(batch))
            for index, own in groupby(rows, key=itemgetter("task")):
                by_kind = groupby(own, key=itemgetter("kind"))
                unpacked = [from_bytes(row["packed"]) for row in next(by_kind)[1]]
                hours = ((row["number"], from_bytes(row["packed"])) for _, those in by_kind for row in those)
                yield from _table(function(iter(unpacked), hours, tasks[index]), columns).to_batches()

        results: Rows = spread.mapInArrow(run, _types(columns)).toArrow().to_pylist()
        return results

    def _keys(self, number: int) -> list[int]:
        """A value for each of ``number`` partitions: Spark puts each value into a partition of its own."""
        values = self._spark.range(KEYS_A_TASK * number).select(F.col("id").cast("int").alias("key"))
        partition = F.pmod(F.hash("key"), F.lit(number)).alias("partition")
        rows = values.select("key", partition).groupBy("partition").agg(F.min("key").alias("key")).collect()
        keys = {row["partition"]: row["key"] for row in rows}
        return [keys.get(index, index) for index in range(number)]


KEYS_A_TASK = 20
"""Values for each partition: by chance one partition in e to the twentieth gets none of them."""


def _all_names(packed: Iterable[bytes]) -> set[str]:
    names: set[str] = set()
    for each in packed:
        names.update(names_from_bytes(each))
    return names


def _each(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch, each unpacked alone."""
    return (batch.slice(row, 1).to_pylist()[0] for row in range(batch.num_rows))


def _by_number(frame: DataFrame, names: Sequence[str]) -> Rows:
    rows: Rows = (
        frame.select("number", *(name for name in names if name != "number")).toArrow().sort_by("number").to_pylist()
    )
    return rows


def _counted(name: str, frame: DataFrame) -> Iterator[DataFrame]:
    """By file: its rows by the footer alone, and by a look at every page, for which all columns are digested."""
    columns, of_file = COLUMNS[name], frame.groupBy(F.col("_metadata.file_path").alias("file"))
    nothing_more = F.lit(None).cast("long").alias("digest"), F.lit(None).cast("array<long>").alias("values")
    yield of_file.agg(F.count("*").alias("rows")).select("file", "rows", *nothing_more)
    values = F.array(*(F.count(column) for column in NEEDED[name])).alias("values")
    digest = F.bit_xor(F.xxhash64(*columns)).alias("digest")
    yield of_file.agg(F.count("*").alias("rows"), digest, values)


def _path(uri: str) -> str:
    """A file's path as Spark reads it, out of what Spark calls it in two ways."""
    path = unquote(uri)
    return path.replace("file:///", "file:/", 1)


def _number(column: str, seconds: int) -> Column:
    """How many such spans of time passed since 1970."""
    return F.floor(F.col(column).cast("double") / seconds).cast("long")


def _types(columns: Columns) -> StructType:
    return from_arrow_schema(pa.schema(list(columns.items())))


def _table(rows: Iterable[Mapping[str, object]], columns: Columns) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(list(columns.items())))
