"""Estimates of a calibration by footers alone: no Spark is started, and no page is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lbd.errors import UsageError
from lbd.learn.estimate import CalibrationEstimate, estimated
from lbd.store.history_round import HistorySettings
from tests import calibrate_schema
from tests.cli.conftest import lbd
from tests.learn.histories import CALM, settled, simulated

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a half of four brokers and 48 bundles, a round a minute."""
    folder = tmp_path_factory.mktemp("estimated") / "history"
    simulated(folder, settled(**CALM), hours=1.5)
    return folder


def estimate(root: Path | str, master: str = "local[2]", **changes: Any) -> CalibrationEstimate:
    kept = changes.pop("kept", HistorySettings())
    wanted = {"candidates": 10, "deals": 1, "strategies": ("avg-shedder",), **changes}
    return estimated(str(root), master, wanted.pop("conf", {}), kept, **wanted)


def test_what_the_footers_say(root: Path):
    """Rounds, rows, bytes and files are those of the folder, and the time is from the first to the last round."""
    found = estimate(root)
    files = list(root.glob("v1/*/*/*.parquet"))
    rows = {table: sum(pq.read_metadata(path).num_rows for path in files if path.parent.parent.name == table)
            for table in ("decisions", "broker_rounds", "bundle_rounds", "moves")}  # fmt: skip

    assert (found.rounds, found.rows) == (rows["decisions"], rows)
    assert (found.files, found.unreadable_files) == (len(files), 0)
    assert found.bytes == sum(path.stat().st_size for path in files)
    assert found.days == pytest.approx(1.5 / 24, rel=0.03)
    assert (found.replays, found.more_replays, found.cores) == (10, 16, 2)
    assert found.most_processor_seconds > found.processor_seconds


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"candidates": 1000}, True),
        ({"deals": 20}, True),
        ({"strategies": ("avg-shedder", "least-moves")}, True),
        ({"candidates": 2}, False),
    ],
    ids=["more candidates", "more deals", "a slower strategy", "fewer candidates"],
)
def test_more_work_takes_more_time(root: Path, changes: dict[str, Any], more: bool):
    """And less takes less."""
    assert (estimate(root, **changes).processor_seconds > estimate(root).processor_seconds) == more


@pytest.mark.parametrize(
    ("kept", "days"),
    [
        (HistorySettings(retention_days=30), 30.0),
        (HistorySettings(retention_days=30, max_bytes=64 << 20), None),
    ],
    ids=["by days", "by bytes"],
)
def test_what_is_kept_is_the_shorter_of_two_limits(root: Path, kept: HistorySettings, days: float | None):
    """Bytes a day are those of this history."""
    found = estimate(root, kept=kept)

    assert found.bytes_a_day == pytest.approx(found.bytes / found.days)
    assert found.kept_days == (days if days is not None else (64 << 20) / found.bytes_a_day)


@pytest.mark.parametrize(
    ("conf", "heap"),
    [({}, 2 << 30), ({"spark.driver.memory": "8g"}, 8 << 30), ({"spark.driver.memory": "512m"}, 512 << 20)],
)
def test_memory_follows_the_heap_that_spark_is_given(root: Path, conf: dict[str, str], heap: int):
    """lbd's default, and the user's settings."""
    assert estimate(root, conf=conf).driver_bytes == pytest.approx(1.4 * heap)


def test_a_damaged_file_is_counted_and_left_out(root: Path, tmp_path: Path):
    """Its bytes are there, its rows are not."""
    made = Path(shutil.copytree(root, tmp_path / "history"))
    torn = max(made.glob("v1/bundle_rounds/*/*.parquet"))
    torn.write_bytes(torn.read_bytes()[:-40])
    found = estimate(made)

    assert found.unreadable_files == 1
    assert found.rows["bundle_rounds"] < estimate(root).rows["bundle_rounds"]
    assert "; 1 file cannot be read." in next(found.lines())


def empty(root: Path) -> None:
    for path in root.glob("v1/decisions/*/*.parquet"):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "history", "master", "message"),
    [
        (shutil.rmtree, "{}", "local[2]", "v1/decisions: no history of version 1 there"),
        (empty, "{}", "local[2]", "no file of decisions has a footer that can be read"),
        (lambda _: None, "s3a://bucket/history", "local[2]", "--estimate reads footers of files on this machine"),
        (lambda _: None, "{}", "spark://spark.example:7077", "--estimate reads footers of files on this machine"),
    ],
    ids=["no history", "no footer", "a bucket", "a cluster's"],
)
def test_what_cannot_be_estimated_is_one_line(
    root: Path, tmp_path: Path, change: Callable[[Path], None], history: str, master: str, message: str
):
    """It names what is missing."""
    made = Path(shutil.copytree(root, tmp_path / "history"))
    change(made)
    with pytest.raises(UsageError, match=message):
        estimate(history.format(made), master)


def test_the_command_estimates_without_spark(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Exit 0, no directory is made, and text and JSON have the same values."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java
    (tmp_path / "lbd.yaml").write_text("{}")
    out = tmp_path / "calibration"
    words = ("calibrate", "--estimate", "--history", root, "--out", out, "--config", tmp_path / "lbd.yaml")
    text, as_json = lbd(*words), lbd(*words, "--format", "json")
    values = json.loads(as_json.stdout)

    assert (text.exit_code, text.stderr, as_json.exit_code) == (0, "", 0)
    calibrate_schema.validator(CalibrationEstimate).validate(values)
    assert [line.partition(":")[0] for line in text.stdout.splitlines()] == [
        "History",
        "Work",
        "Time",
        "Memory",
        "Kept",
    ]
    assert "Work: 60 settings x 1 deal of noise = 60 replays of 91 rounds" in text.stdout
    assert (values["replays"], values["rounds"]) == (60, 91)
    assert not out.exists()


def test_a_worker_has_the_samples_of_all_days(tmp_path: Path):
    """A longer history of the same cluster takes more memory."""
    simulated(tmp_path / "short", settled(**CALM), hours=1)
    simulated(tmp_path / "long", settled(**CALM), hours=3)
    short, long = estimate(tmp_path / "short"), estimate(tmp_path / "long")
    samples = long.rows["broker_rounds"] - short.rows["broker_rounds"]
    hourly = 260 * (long.rows["bundle_rounds"] / (24 * long.days) - short.rows["bundle_rounds"] / (24 * short.days))

    assert long.worker_bytes - short.worker_bytes - hourly == pytest.approx(280 * samples)
