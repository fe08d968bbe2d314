"""A Spark session, or one line on what is missing for it, after a look at history on this machine's own disks.

It loads without PySpark: Spark takes seconds to say what a look says at once.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from lbd.errors import UsageError
from lbd.store.history_tables import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    root = local_folder(history, master)
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
    """Names in a folder, none where there is no folder; raises OSError where it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def local_folder(history: str, master: str) -> Path | None:
    """The folder of a history on this machine; None for one that only Spark can reach."""
    scheme, colon, rest = history.partition(":/")
    with_host = rest.startswith("/") and not rest.startswith("//")
    plain = scheme == "file" and not with_host if colon else not any(os.environ.get(name) for name in ELSEWHERE)
    if not (master.startswith("local") and plain) or PATTERN & set(history):
        return None
    return Path("/" + rest.lstrip("/")) if colon else Path(history)


# --- the session

OLDEST_JAVA = 17

CONNECT, STANDALONE = "sc://", "spark://"
PORTS = {CONNECT: 15002, STANDALONE: 7077}
"""Where Connect servers and masters listen unless the address says otherwise."""

REACHED_SECONDS = 8.0
"""Time in which a server must accept a connection. Spark would try for a minute, a client of Connect for ten."""

DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a driver that lbd starts, where the user has none: raw rows are shuffled once, by hour, and each task
starts a Python, so Spark's 200 partitions would be mostly empty. An hour of a large cluster is some twenty megabytes,
and a batch would be ten thousand of them."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Is in the environment under spark-submit, whose Java is there already."""


@contextmanager
def started(history: str, master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session to read this history with, under these settings of Spark.

    Raises :class:`UsageError` within ten seconds for what can be seen to be missing before Spark is started (PySpark, a
    Java that is new enough, the history, a master or Connect server), and as :func:`session` does.
    """
    _check_form(master)
    if not master.startswith(CONNECT):
        _check_java()
    if master.startswith((CONNECT, STANDALONE)) and SUBMITTED not in os.environ:
        _check_server(master)
    _check_pyspark(master)
    check_local_history(history, master)
    with session(master, conf) as spark:
        yield spark


@contextmanager
def session(master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on this master, or at this Connect server, stopped in the end; under spark-submit on the one that was
    given there. ``conf`` are Spark's settings; they come before those in spark-defaults.conf, and these before lbd's.

    Raises :class:`UsageError` where the master cannot be reached, or Spark gives up within: a file that it cannot read,
    memory that is not there, workers that are lost.
    """
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415 - lbd loads without it

    with TemporaryFile() as stderr:
        try:
            failures: tuple[type[Exception], ...] = (PySparkException, *_java_errors(master))
            with _stderr_to(stderr.fileno()):
                spark = _builder(master, conf or {}).appName("lbd calibrate").getOrCreate()
            _quieten(spark, conf or {})
        except (PySparkException, OSError, RuntimeError) as error:
            why = _java_exception(stderr) or first_line(error)
            raise UsageError(f"--master {master}: no Spark session: {why}") from error
        try:
            yield spark
        except PythonException:
            raise
        except failures as error:
            raise UsageError(f"--master {master}: Spark could not finish: {first_line(error)}") from error
        finally:
            with suppress(*_java_gone(master)):
                spark.stop()


def _builder(master: str, conf: Mapping[str, str]) -> SparkSession.Builder:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder, settings = SparkSession.builder, dict(conf)
    if master.startswith(CONNECT):
        builder = builder.remote(master)
    elif SUBMITTED not in os.environ:
        builder = builder.master(master)
        settings = {**unset(DEFAULTS), **conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def unset(defaults: Mapping[str, str]) -> dict[str, str]:
    """Those of the settings that the user has not set in spark-defaults.conf or in PYSPARK_SUBMIT_ARGS."""
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    options = {word.partition("=")[0] for flag, word in pairwise(words) if flag in {"--conf", "-c"}}
    if "--driver-memory" in words:
        options.add("spark.driver.memory")
    return {key: value for key, value in defaults.items() if key not in options | _spark_defaults()}


def _spark_defaults() -> set[str]:
    """The keys in spark-defaults.conf, where Spark's own launcher looks for it."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    try:
        lines = (folder / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {
        re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines if not line.strip().startswith(("#", "!"))
    }


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """Processes that are started meanwhile write their errors to this file: Java warns of itself for every user."""
    sys.stderr.flush()
    saved = os.dup(STDERR)
    os.dup2(file, STDERR)
    try:
        yield
    finally:
        os.dup2(saved, STDERR)
        os.close(saved)


STDERR = 2


def _java_exception(stderr: IO[bytes]) -> str:
    """The last exception that a Java which could not start has written; empty where there is none."""
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").splitlines()
    exceptions = [line.strip() for line in lines if re.search(r"(Exception|Error)\b.*:", line)]
    return exceptions[-1] if exceptions else ""


def _quieten(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Under spark-submit Spark logs each of its steps; a level that the user has set stays."""
    key = "spark.log.level"
    if SUBMITTED in os.environ and key not in conf and spark.sparkContext.getConf().get(key) is None:
        spark.sparkContext.setLogLevel(DEFAULTS[key])


def _java_errors(master: str) -> tuple[type[Exception], ...]:
    """Errors that a driver in a Java of its own raises beside PySpark's; a client of Connect has none."""
    if master.startswith(CONNECT):
        return ()
    from py4j.protocol import Py4JError  # noqa: PLC0415

    return (Py4JError, *_java_gone(master))


def _java_gone(master: str) -> tuple[type[Exception], ...]:
    """Those of a Java that has ended; a Connect server is nobody's to end."""
    if master.startswith(CONNECT):
        return ()
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415

    return (Py4JNetworkError, ConnectionError)


def first_line(error: Exception) -> str:
    """The reason Spark failed: Java's own message, without its stack; and for a path that Spark has no package for, the
    option that adds it.
    """
    lines = str(getattr(error, "java_exception", error)).splitlines()
    line = lines[0] if lines else type(error).__name__
    if isinstance(error, ConnectionError) or type(error).__name__ in {"Py4JError", "Py4JNetworkError"}:
        return f"its Java does not answer ({line}); if memory was short: --conf spark.driver.memory=8g"
    if "org.apache.hadoop.fs.s3a" in line:
        return f"no package for s3a: paths; add --packages org.apache.hadoop:hadoop-aws:{_hadoop_version()}"
    if "No FileSystem for scheme" in line:
        return f"{line}; add its package with --packages GROUP:NAME:VERSION"
    return line


def _hadoop_version() -> str:
    """The version of Hadoop that PySpark brings along, which its packages must have, too."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar") if spec is not None and spec.origin else ()
    return next((jar.stem.removeprefix("hadoop-client-api-") for jar in jars), "VERSION")


def parts(spark: SparkSession) -> tuple[int, int]:
    """Tasks of Spark's active stages: how many are done, and how many there are. A Connect server does not say."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return 0, 0
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except _java_gone(context.master):  # the run itself fails by that
        return 0, 0
    active = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in active), sum(stage.numTasks for stage in active)


def parallel(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time, as far as it knows by now."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - lbd loads without it

    return spark.range(100_000).select(F.spark_partition_id()).distinct().count()


def _check_pyspark(master: str) -> None:
    """Raises :class:`UsageError` where PySpark is missing, or what it needs for Connect."""
    try:
        import_module("pyspark.sql.connect.session" if master.startswith(CONNECT) else "pyspark.sql")
    except ImportError as error:
        raise UsageError(f"PySpark is missing: in a checkout of lbd, pip install '.[learn]' ({error})") from error


MASTERS = r"local(\[[^\]]+\])?|local-cluster\[.*\]|yarn|(spark|k8s|sc)://.+"


def _check_form(master: str) -> None:
    """Raises :class:`UsageError` with the forms of a master for any other: Java would name them in a page of calls."""
    if not re.fullmatch(MASTERS, master):
        forms = "local[*], spark://HOST:7077, sc://HOST:15002, k8s://URL or yarn"
        raise UsageError(f"--master {master}: no Spark session: no such form of a master; wanted {forms}")


def _check_server(master: str) -> None:
    """Raises :class:`UsageError` where nobody listens at any of the addresses of a master or a Connect server."""
    scheme, _, rest = master.partition("//")
    what = "Spark Connect server" if master.startswith(CONNECT) else "Spark master"
    addresses, why = rest.partition(";")[0].split(","), ""
    for address in addresses:
        try:
            where = urlsplit(f"//{address}")
            port = where.port or PORTS[f"{scheme}//"]
            socket.create_connection((where.hostname or "", port), REACHED_SECONDS / len(addresses)).close()
        except (OSError, ValueError) as error:
            why = str(getattr(error, "strerror", None) or error)
        else:
            return
    raise UsageError(f"--master {master}: no {what} can be reached there: {why}")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    hint = f"Spark needs Java {OLDEST_JAVA} or newer, for instance: apt-get install default-jre-headless"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise UsageError(f"no java {where}; {hint}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - found above
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise UsageError(f"{java} is Java {version[1] if version else 'of an unknown version'}; {hint}")
