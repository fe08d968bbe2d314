"""What is seen before Spark is started."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import UsageError
from lbd.learn.spark import ELSEWHERE, check_local_history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment says that paths are of another file system."""
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)


def part(root: Path, folder: str) -> None:
    (root / "v1" / "decisions" / folder).mkdir(parents=True)
    (root / "v1" / "decisions" / folder / "part-0.parquet").touch()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, "v1/decisions: no history of version 1 there; lbd run and lbd history import make some"),
        (lambda root: (root / "v1" / "decisions").mkdir(parents=True), "no history of version 1 there; lbd run"),
        (lambda root: (root / "v2" / "decisions").mkdir(parents=True), "no history of version 1 there; there is v2"),
    ],
    ids=["nothing", "empty", "of a newer version"],
)
@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_no_history_is_told_at_once(tmp_path: Path, make: Any, told: str, scheme: str):
    """Which folder it was looked for in, and what makes some."""
    make(tmp_path)
    with pytest.raises(UsageError, match=told):
        check_local_history(f"{scheme}{tmp_path}", "local[*]")


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
@pytest.mark.parametrize("folder", ["", "day=2026-01-05"])
def test_history_is_left_to_spark(tmp_path: Path, folder: str, scheme: str):
    """By days as the daemon writes it, or without."""
    part(tmp_path, folder)
    check_local_history(f"{scheme}{tmp_path}", "local[*]")


def test_what_this_user_may_not_see_is_no_missing_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As in a state directory that is the daemon's alone."""

    def denied(folder: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    part(tmp_path, "")
    monkeypatch.setattr("lbd.learn.spark.Path.iterdir", denied)
    with pytest.raises(UsageError, match="v1/decisions: cannot be read: Permission denied"):
        check_local_history(str(tmp_path), "local[*]")


@pytest.mark.parametrize(
    ("history", "master", "environ"),
    [
        ("s3a://bucket/history", "local[*]", ""),
        ("hdfs:/lbd/history", "local[*]", ""),
        ("file://other/lbd/history", "local[*]", ""),
        ("none", "spark://spark.example:7077", ""),
        ("{one,two}", "local[*]", ""),
        ("none", "local[*]", "HADOOP_CONF_DIR"),
    ],
    ids=["a bucket", "of Hadoop", "of a host", "a cluster's", "several", "of another default"],
)
def test_paths_of_other_machines_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, history: str, master: str, environ: str
):
    """Spark knows what they are."""
    if environ:
        monkeypatch.setenv(environ, "/etc/hadoop")
    check_local_history(history, master)
