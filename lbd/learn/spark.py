"""A Spark session, or one line on what is missing for it, after a look at history on this machine's own disks.

It loads without PySpark: Spark takes seconds to say what a look says at once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.store.history_tables import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession


HOW = "lbd run and lbd history import make some"

ELSEWHERE = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
"""With one of these in the environment a path without a scheme may be one of another file system."""

PATTERN = frozenset("*?[]{}")
"""Characters by which Spark's paths name several."""


def nothing(path: str, others: Sequence[str] = ()) -> UsageError:
    """The error for a table without a file; ``others`` are the versions that are there."""
    hint = f"; there is {', '.join(others)}" if others and f"v{VERSION}" not in others else f"; {HOW}"
    return UsageError(f"{path}: no history of version {VERSION} there{hint}")


def check_local_history(history: str, master: str) -> None:
    """Raises :class:`UsageError` where history would be on this machine, and is not, or cannot be seen."""
    root = _folder(history, master)
    if root is None:
        return
    table = root / f"v{VERSION}" / "decisions"
    try:
        if _has_files(table):
            return
        others = sorted(name for name in _names(root) if fnmatch(name, "v[0-9]*"))
    except OSError as error:
        raise UsageError(f"{table}: cannot be read: {error.strerror}") from error
    raise nothing(str(table), others)


def _has_files(table: Path) -> bool:
    names = _names(table)
    days = (_names(table / name) for name in names if name.startswith("day="))
    return any(name.endswith(".parquet") for name in chain(names, chain.from_iterable(days)))


def _names(folder: Path) -> list[str]:
    """What is in a folder, nothing where there is none; raises OSError where that cannot be seen."""
    try:
        return [one.name for one in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folder(history: str, master: str) -> Path | None:
    """Where history is on this machine; None of what only Spark knows."""
    scheme, colon, rest = history.partition(":/")
    with_host = rest.startswith("/") and not rest.startswith("//")
    plain = scheme == "file" and not with_host if colon else not any(os.environ.get(name) for name in ELSEWHERE)
    if not (master.startswith("local") and plain) or PATTERN & set(history):
        return None
    return Path("/" + rest.lstrip("/")) if colon else Path(history)


# --- the session

OLDEST_JAVA = 17
DRIVER_MEMORY = "2g"

SHUFFLE_PARTITIONS = 8
"""Raw rows are shuffled once, by window, and each task starts a Python: Spark's 200 would be mostly empty."""

QUIET = Path(__file__).with_name("log4j2.properties")
"""Spark's own words go nowhere: what fails is told in one line."""


@contextmanager
def started(history: str, master: str) -> Iterator[SparkSession]:
    """A session to read this history with.

    Raises :class:`UsageError` at once for what can be seen to be missing before Spark is started (PySpark, a Java that
    is new enough, the history), and as :func:`session` does.
    """
    _check()
    check_local_history(history, master)
    with session(master) as spark:
        yield spark


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session on this master, stopped in the end; under spark-submit on the one that was given there.

    Raises :class:`UsageError` where the master cannot be reached, or Spark gives up within: a file that it cannot read,
    memory that is not there, workers that are lost.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - lbd loads without it
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = (
        (SparkSession.builder if submitted else SparkSession.builder.master(master))
        .appName("lbd calibrate")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
    )
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise UsageError(f"--master {master}: no Spark session: {str(error).splitlines()[0]}") from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    except PythonException:
        raise
    except (PySparkException, Py4JError) as error:
        raise UsageError(f"--master {master}: Spark could not finish: {_line(error)}") from error
    finally:
        spark.stop()


def _line(error: Exception) -> str:
    """The reason Spark failed: Java's own message, without its stack."""
    lines = str(getattr(error, "java_exception", error)).splitlines()
    return lines[0] if lines else type(error).__name__


def parts(spark: SparkSession) -> tuple[int, int]:
    """Tasks of Spark's active stages: how many are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _check() -> None:
    """Raises :class:`UsageError` where PySpark or Java is missing, or Java is too old."""
    _check_java()
    try:
        import_module("pyspark.sql")
    except ImportError as error:
        raise UsageError("PySpark is missing: in a checkout of lbd, pip install '.[learn]'") from error


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    wanted = f"Spark needs Java {OLDEST_JAVA} or newer, for instance: apt-get install default-jre-headless"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise UsageError(f"no java {where}; {wanted}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - found above
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise UsageError(f"{java} is Java {version[1] if version else 'of an unknown version'}; {wanted}")
