"""Tables of history as data frames, from any path that Spark reads: what is torn is left out, what is newer refused.

Each file is read once before any row of it is used: its footer names its version, and each of its pages has a checksum.
So a file that a kill or a disk left is known from one of another version, and no changed byte ends a later stage or is
learned from. Spark's workers read the files, with pyarrow; only a row for each file comes to the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, PySparkException, PythonException

from lbd.errors import UsageError
from lbd.learn.quality import UNREADABLE_FILE, WRONG_CHECKSUM
from lbd.learn.spark import first_line, nothing
from lbd.store.history_tables import COLUMNS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


VERSION_KEY = b"lbd.history"
FILES = "{day=*/,}[!._]*.parquet"
"""All files of a table that have a reader's name."""

VERSIONS_AHEAD = 10

CHECKED = "file string, version int, damage string"
_CHECKED = pa.schema([("file", pa.string()), ("version", pa.int32()), ("damage", pa.string())])


@dataclass(frozen=True, eq=False)
class Table:
    """A table of history, of so many ``files``. ``torn`` are those that are left out, each with the name of the check
    that found it (:mod:`lbd.learn.quality`).
    """

    name: str
    rows: DataFrame
    files: int
    torn: Mapping[str, str]


def table(spark: SparkSession, root: str, name: str) -> Table:
    """A table of history.

    Raises :class:`UsageError` where there is none, a file is of a newer version, or its columns are not this version's.
    """
    root = root.rstrip("/")
    path = f"{root}/v{VERSION}/{name}"
    try:
        files = spark.read.format("binaryFile").load(f"{path}/{FILES}").select("path", "content")
        checked = files.mapInArrow(_checked, CHECKED).orderBy("file").collect()
        inside = f"/v{VERSION}/{name}/"
        names = {unquote(file).rpartition(inside)[2] for file in files.inputFiles()}  # also empty ones, without a row
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise UsageError(f"{path}: cannot be read: {first_line(error)}") from error
        raise nothing(path, _versions(spark, root)) from error
    except PythonException:
        raise
    except PySparkException as error:
        raise UsageError(f"{path}: cannot be read: {first_line(error)}") from error
    for row in checked:
        if row["version"] is not None and row["version"] > VERSION:
            words = f"history of version {row['version']}, this lbd reads version {VERSION}; take a newer lbd"
            raise UsageError(f"{row['file']}: {words}")
    whole = [row["file"] for row in checked if row["damage"] is None]
    if not whole:
        raise UsageError(f"{path}: no history of version {VERSION} there: none of {len(names)} files can be read")
    rows = spark.read.options(basePath=path).parquet(*whole)
    missing = [column for column in COLUMNS[name] if column not in rows.columns]
    if missing:
        raise UsageError(f"{path}: has no column {missing[0]!r}; wanted history of version {VERSION}")
    damage = {row["file"].rpartition(inside)[2]: row["damage"] for row in checked}
    torn = {file: damage.get(file, UNREADABLE_FILE) for file in sorted(names)}
    left_out = {f"{path}/{file}": check for file, check in torn.items() if check is not None}
    return Table(name, rows.select(*COLUMNS[name]), len(names), left_out)


def _versions(spark: SparkSession, root: str) -> list[str]:
    """Folders of other versions that are there, of some that may come."""
    others = (f"v{number}" for number in range(1, VERSION + VERSIONS_AHEAD) if number != VERSION)
    return [name for name in others if _is_there(spark, f"{root}/{name}")]


def _is_there(spark: SparkSession, path: str) -> bool:
    try:
        return bool(spark.read.format("binaryFile").load(path).schema)
    except PySparkException:
        return False


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file, content in zip(batch.column("path").to_pylist(), batch.column("content"), strict=True):
            version, damage = _read(content.as_buffer())
            yield pa.RecordBatch.from_pylist([{"file": file, "version": version, "damage": damage}], schema=_CHECKED)


def _read(content: pa.Buffer) -> tuple[int | None, str | None]:
    """A file's version, this lbd's where it names none, and the check that finds it damaged, None where none does."""
    check = UNREADABLE_FILE
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        version = _version((file.metadata.metadata or {}).get(VERSION_KEY))
        check = WRONG_CHECKSUM
        if version <= VERSION:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return None, check
    return version, None


def _version(metadata: bytes | None) -> int:
    try:
        return int(json.loads(metadata)["version"]) if metadata is not None else VERSION
    except (KeyError, ValueError, TypeError):
        return VERSION
