"""Tables of history as data frames, from any path that Spark reads: what is torn is left out, what is newer refused.

Each file's footer is read before any row of it, through Hadoop's own file systems: so a file that a kill or a disk
left is told from one of another version, and both from rows. Then all pages are read once: one with a byte that a
disk has changed would end every later stage, or be learned from.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from lbd.errors import UsageError
from lbd.learn.spark import nothing
from lbd.store.history_tables import COLUMNS, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


READERS = 16
"""Footers read at once: on an object store each is a request or two."""

VERSION_KEY = "lbd.history"

VERIFIED = {"parquet.page.verify-checksum.enabled": "true"}
"""Pages carry checksums, without which a changed byte may only be another number."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table of history. ``torn`` names the files that are no Parquet, only half of it, or damaged within."""

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
        by_file = dict(zip(files, readers.map(lambda file: _footer(spark, file), files), strict=True))
    footers = {file: footer for file, footer in by_file.items() if footer is not None}
    newer = next((file for file, footer in footers.items() if footer.version > VERSION), None)
    if newer is not None:
        version = footers[newer].version
        raise UsageError(f"{newer}: history of version {version}, this lbd reads version {VERSION}; take a newer lbd")
    whole = _whole(spark, footers) if footers else []
    if not whole:
        raise UsageError(f"{path}: no history of version {VERSION} there: none of {len(files)} files can be read")
    rows = spark.read.options(basePath=path, **VERIFIED).parquet(*whole)
    missing = [column for column in COLUMNS[name] if column not in rows.columns]
    if missing:
        raise UsageError(f"{path}: has no column {missing[0]!r}; wanted history of version {VERSION}")
    return Table(name, rows.select(*COLUMNS[name]), tuple(sorted(set(files) - set(whole))))


def _whole(spark: SparkSession, footers: Mapping[str, _Footer]) -> list[str]:
    """Files all of whose rows can be read. Hashes of rows are asked for, so that no column is left out."""
    rows = spark.read.options(ignoreCorruptFiles="true", **VERIFIED).parquet(*footers)
    columns = (F.col(f"`{name}`") for name in rows.columns)
    read = rows.groupBy(F.col("_metadata.file_path").alias("file")).agg(
        F.count("*").alias("rows"), F.max(F.xxhash64(*columns)).alias("hash")
    )
    jvm: Any = spark._jvm  # noqa: SLF001
    readable = {_path(spark, jvm.java.net.URI(row["file"])).toString(): row["rows"] for row in read.collect()}
    return [file for file, footer in footers.items() if readable.get(file, 0) == footer.rows]


def _files(spark: SparkSession, root: str, path: str) -> Sequence[str]:
    """All files of a table that have a reader's name."""
    try:
        statuses = _hadoop(spark, path).globStatus(_path(spark, f"{path}/{{day=*/,}}[!._]*.parquet"))
        files = sorted(one.getPath().toString() for one in statuses or ())
        others = [] if files else sorted(
            one.getPath().getName() for one in _hadoop(spark, root).globStatus(_path(spark, f"{root}/v[0-9]*")) or ()
        )  # fmt: skip
    except Py4JError as error:
        raise UsageError(f"{path}: cannot be read: {_reading_line(error)}") from error
    if not files:
        raise nothing(path, others)
    return files


@dataclass(frozen=True)
class _Footer:
    """A file's metadata; the version is this lbd's where the file names none."""

    version: int
    rows: int


def _footer(spark: SparkSession, file: str) -> _Footer | None:
    """A file's footer; None if the file is not whole."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark shows no footers otherwise
    try:
        source = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(_path(spark, file), _configuration(spark))
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
        try:
            metadata, rows = reader.getFileMetaData().getKeyValueMetaData().get(VERSION_KEY), reader.getRecordCount()
        finally:
            reader.close()
    except Py4JError:
        return None
    try:
        return _Footer(int(json.loads(metadata)["version"]) if metadata is not None else VERSION, rows)
    except (KeyError, ValueError, TypeError):
        return _Footer(VERSION, rows)


def _hadoop(spark: SparkSession, path: str) -> Any:  # noqa: ANN401 - Java's
    return _path(spark, path).getFileSystem(_configuration(spark))


def _path(spark: SparkSession, path: object) -> Any:  # noqa: ANN401
    """Of a text, or of Java's URI, in which a space is not itself."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return jvm.org.apache.hadoop.fs.Path(path)


def _configuration(spark: SparkSession) -> Any:  # noqa: ANN401
    java: Any = spark._jsc  # noqa: SLF001
    return java.hadoopConfiguration()


def _reading_line(error: Exception) -> str:
    """What Java says, without its stack."""
    java = getattr(error, "java_exception", None)
    return str(java if java is not None else error).splitlines()[0]
