"""A Spark session, or one line on what is missing for it, after a look at history on this machine's own disks.

It loads without PySpark: Spark takes seconds to say what a look says at once.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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


CONNECT = "sc://"
CONNECT_PORT = 15002
CONNECT_SECONDS = 10.0

CONFIG = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS)}
"""What every session needs, wherever it runs."""

OWN = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
}
"""Of a driver that lbd starts; spark-submit and a Connect server have their own."""


@contextmanager
def started(history: str, master: str) -> Iterator[SparkSession]:
    """A session to read this history with.

    Raises :class:`UsageError` at once for what can be seen to be missing before Spark is started (PySpark, a Java that
    is new enough, the history, a Connect server), and as :func:`session` does.
    """
    if master.startswith(CONNECT):
        _check_server(master)
    else:
        _check_java()
    _check_pyspark(master)
    check_local_history(history, master)
    with session(master) as spark:
        yield spark


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session on this master, or at this Connect server, stopped in the end; under spark-submit on the one that was
    given there.

    Raises :class:`UsageError` where the master cannot be reached, or Spark gives up within: a file that it cannot read,
    memory that is not there, workers that are lost.
    """
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415 - lbd loads without it

    try:
        failures: tuple[type[Exception], ...] = (PySparkException, *_java_errors(master))
        spark = _builder(master).appName("lbd calibrate").getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise UsageError(f"--master {master}: no Spark session: {first_line(error)}") from error
    try:
        yield spark
    except PythonException:
        raise
    except failures as error:
        raise UsageError(f"--master {master}: Spark could not finish: {first_line(error)}") from error
    finally:
        spark.stop()


def _builder(master: str) -> SparkSession.Builder:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder, config = SparkSession.builder, CONFIG
    if master.startswith(CONNECT):
        builder = builder.remote(master)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder, config = builder.master(master), {**CONFIG, **OWN}
    for key, value in config.items():
        builder = builder.config(key, value)
    return builder


def _java_errors(master: str) -> tuple[type[Exception], ...]:
    """What a driver in a Java of its own raises beside PySpark's errors; a client of Connect has none."""
    if master.startswith(CONNECT):
        return ()
    from py4j.protocol import Py4JError  # noqa: PLC0415

    return (Py4JError,)


def first_line(error: Exception) -> str:
    """The reason Spark failed: Java's own message, without its stack."""
    lines = str(getattr(error, "java_exception", error)).splitlines()
    return lines[0] if lines else type(error).__name__


def parts(spark: SparkSession) -> tuple[int, int]:
    """Tasks of Spark's active stages: how many are done, and how many there are. A Connect server does not say."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _check_pyspark(master: str) -> None:
    """Raises :class:`UsageError` where PySpark is missing, or what it needs for Connect."""
    try:
        import_module("pyspark.sql.connect.session" if master.startswith(CONNECT) else "pyspark.sql")
    except ImportError as error:
        raise UsageError(f"PySpark is missing: in a checkout of lbd, pip install '.[learn]' ({error})") from error


def _check_server(master: str) -> None:
    """Raises :class:`UsageError` where no Connect server listens: PySpark would try for ten minutes."""
    where = urlsplit(master.replace(CONNECT, "http://", 1).partition(";")[0])
    try:
        port = where.port or CONNECT_PORT
        socket.create_connection((where.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--master {master}: no Spark Connect server can be reached there: {why}") from error


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
