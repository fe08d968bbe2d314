"""The Spark job: runs a calibration's functions over files, days and windows of a history, on any path Spark reads.

Rows of bundles are shuffled once, by window, all of which are equally long, and none comes to the driver. Spark itself
reads the files, by row group, so that no file need fit in memory. Whatever Python hands to Spark has the columns and
types that its caller names, also where all values are null or there is no row.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING
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
from lbd.learn.window import from_bytes
from lbd.store.history_tables import COLUMNS, VERSION
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from lbd.learn.workers import Columns, OfDay, OfTask, OfWindow, Rows, Task


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
            found = {name: self._named(name) for name in NEEDED}
            rows = reduce(DataFrame.unionAll, (part for name, frame in found.items() for part in _counted(name, frame)))
            counted = rows.collect()
        except PythonException:
            raise
        except PySparkException as error:
            raise UsageError(f"{self._root}: cannot be read: {first_line(error)}") from error
        footers = {_path(row["file"]): row["rows"] for row in counted if row["digest"] is None}
        readable = {_path(row["file"]): row for row in counted if row["digest"] is not None}
        found_rows = []
        for name, files in self._files.items():
            for file in files:
                row = readable.get(file)
                values = dict(zip(NEEDED[name], row["values"], strict=True)) if row is not None else {}
                found_rows.append(FileRows(name, file, footers.get(file), row["rows"] if row else 0, values))
        return found_rows

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """The rows that this function makes of each day (UTC), without the files of these names."""
        reports = self._reports(without, _number("t", int(DAY_SECONDS)).alias("number"))

        def of_day(rows: pa.Table) -> pa.Table:
            return _table(function(table_of(rows, "decisions"), table_of(rows, "broker_rounds")), columns)

        found: Rows = reports.groupBy("number").applyInArrow(of_day, _types(columns)).toArrow().to_pylist()
        return found

    def windows(self, without: Collection[str], seconds: int, function: OfWindow, columns: Columns) -> SparkWindows:
        """Windows of so many seconds, packed by this function."""
        number = _number("t", seconds).alias("number")
        reports = self._reports(without, number)
        bundles = self._rows("bundle_rounds", without).select(*USED["bundle_rounds"], number)

        def packed(key: tuple[pa.Scalar, ...], rows: pa.Table, changes: pa.Table) -> pa.Table:
            tables = table_of(rows, "decisions"), table_of(rows, "broker_rounds")
            return _table([{"window": key[0].as_py(), **function(*tables, changes)}], columns)

        by_window = reports.groupBy("number").cogroup(bundles.groupBy("number"))
        windows = by_window.applyInArrow(packed, _types(columns)).where("rounds > 1")
        return SparkWindows(self._spark, windows.persist(StorageLevel.MEMORY_AND_DISK))

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


class SparkWindows:
    """Packed windows, kept by Spark's executors."""

    def __init__(self, spark: SparkSession, packed: DataFrame) -> None:
        self._spark, self._packed = spark, packed

    def rows(self, names: Sequence[str]) -> Rows:
        """These columns of each window, in the order of windows."""
        found: Rows = self._packed.select("window", *names).toArrow().sort_by("window").to_pylist()
        return found

    def run(self, tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """The rows that this function makes of each task; each is a task of Spark's, too."""
        if not tasks:
            return []
        numbered = [(index, task.window, task.before) for index, task in enumerate(tasks)]
        frame = self._spark.createDataFrame(numbered, "task int, window long, before long")
        earlier = self._packed.select(F.col("window").alias("before"), F.col("packed").alias("packed_before"))
        spread = (
            self._packed.select("window", "packed")
            .join(F.broadcast(frame), on="window")
            .join(earlier, on="before", how="left")
            .repartition(len(tasks), "task")
        )

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in batch.to_pylist():
                    before = from_bytes(row["packed_before"]) if row["packed_before"] is not None else None
                    made = function(from_bytes(row["packed"]), before, tasks[row["task"]])
                    yield from _table(made, columns).to_batches()

        found: Rows = spread.mapInArrow(run, _types(columns)).toArrow().to_pylist()
        return found


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
