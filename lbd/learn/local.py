"""A look at history on this machine's own disks before Spark is started, which takes seconds to say the same."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.record.history.tables import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

HOW = "lbd run and lbd history import make some"

ELSEWHERE = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
"""With one of these in the environment a path without a scheme may be one of another file system."""

PATTERN = frozenset("*?[]{}")
"""Characters by which Spark's paths name several."""


def nothing(path: str, others: Sequence[str] = ()) -> UsageError:
    """Where a table has no file; ``others`` are the versions that are there."""
    seen = f"; there is {', '.join(others)}" if others and f"v{VERSION}" not in others else f"; {HOW}"
    return UsageError(f"{path}: no history of version {VERSION} there{seen}")


def look(history: str, master: str) -> None:
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
