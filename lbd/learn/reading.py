"""Tables of history as data frames, from any path that Spark reads: what is torn is left out, what is newer refused.

Each file's footer is read before any row of it, through Hadoop's own file systems: so a file that a kill or a disk left
is told from one of another version, and both from rows.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from lbd.errors import UsageError
from lbd.record.history.tables import COLUMNS, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

READERS = 16
"""Footers read at once: on an object store each is a request or two."""

VERSION_KEY = "lbd.history"


@dataclass(frozen=True, eq=False)
class Table:
    """A table of history. ``torn`` names the files that are no Parquet, or only half of it."""

    name: str
    rows: DataFrame
    torn: tuple[str, ...]


def table(spark: SparkSession, root: str, name: str) -> Table:
    """A table of history.

    Raises :class:`UsageError` where there is none, a file is of a newer version, or its columns are not this version's.
    """
    path = f"{root.rstrip('/')}/v{VERSION}/{name}"
    files = _files(spark, root, path)
    with ThreadPoolExecutor(READERS) as readers:
        told = list(readers.map(lambda file: _version(spark, file), files))
    whole = [file for file, version in zip(files, told, strict=True) if version is not None]
    newest = max((version for version in told if version is not None), default=VERSION)
    if newest > VERSION:
        file = whole[[version for version in told if version is not None].index(newest)]
        raise UsageError(f"{file}: history of version {newest}, this lbd reads version {VERSION}; take a newer lbd")
    if not whole:
        raise UsageError(f"{path}: no history of version {VERSION} there: none of {len(files)} files can be read")
    rows = spark.read.option("basePath", path).parquet(*whole)
    missing = [column for column in COLUMNS[name] if column not in rows.columns]
    if missing:
        raise UsageError(f"{path}: has no column {missing[0]!r}; wanted history of version {VERSION}")
    torn = tuple(file for file, version in zip(files, told, strict=True) if version is None)
    return Table(name, rows.select(*COLUMNS[name]), torn)


def _files(spark: SparkSession, root: str, path: str) -> Sequence[str]:
    """All files of a table that have a reader's name."""
    try:
        found = _hadoop(spark, path).globStatus(_path(spark, f"{path}/{{day=*/,}}[!._]*.parquet"))
        files = sorted(one.getPath().toString() for one in found or ())
        others = [] if files else sorted(
            one.getPath().getName() for one in _hadoop(spark, root).globStatus(_path(spark, f"{root}/v[0-9]*")) or ()
        )  # fmt: skip
    except Py4JError as error:
        raise UsageError(f"{path}: cannot be read: {_line(error)}") from error
    if not files:
        seen = f"; there is {', '.join(others)}" if others and f"v{VERSION}" not in others else ""
        raise UsageError(f"{path}: no history of version {VERSION} there{seen}")
    return files


def _version(spark: SparkSession, file: str) -> int | None:
    """The version that a file names, ours where it names none; None of one that is not whole."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark shows no footers otherwise
    try:
        source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(_path(spark, file), _configuration(spark))
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
        try:
            told = reader.getFileMetaData().getKeyValueMetaData().get(VERSION_KEY)
        finally:
            reader.close()
    except Py4JError:
        return None
    try:
        return int(json.loads(told)["version"]) if told is not None else VERSION
    except (KeyError, ValueError, TypeError):
        return VERSION


def _hadoop(spark: SparkSession, path: str) -> Any:  # noqa: ANN401 - Java's
    return _path(spark, path).getFileSystem(_configuration(spark))


def _path(spark: SparkSession, path: str) -> Any:  # noqa: ANN401
    jvm: Any = spark._jvm  # noqa: SLF001
    return jvm.org.apache.hadoop.fs.Path(path)


def _configuration(spark: SparkSession) -> Any:  # noqa: ANN401
    java: Any = spark._jsc  # noqa: SLF001
    return java.hadoopConfiguration()


def _line(error: Exception) -> str:
    """What Java says, without its stack."""
    java = getattr(error, "java_exception", None)
    return str(java if java is not None else error).splitlines()[0]
