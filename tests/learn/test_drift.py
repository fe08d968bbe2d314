"""How proposed settings did since they were taken: from history alone, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lbd.errors import UsageError
from lbd.learn.drift import measure, taken_since
from lbd.learn.replay import as_recorded, gap_figures
from lbd.load.scoring import Weights
from lbd.store.calibration import ChangedSetting
from tests.disks import flip
from tests.learn.histories import NEIGHBOUR, settled, simulated
from tests.learn.windows import packed

if TYPE_CHECKING:
    from pathlib import Path

LOW = ChangedSetting("avg_shedder.low_threshold", 15.0, 8.0)
STRATEGY = ChangedSetting("strategy", "avg-shedder", "least-moves")
SKEWED = {"load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b"]}]}


def decided(strategy: str | None, low: float = 8.0) -> tuple[str | None, str | None]:
    return strategy, json.dumps({"low_threshold": low, "hit_count_low": 8}) if strategy else None


OURS, BEFORE = decided("avg-shedder"), decided("avg-shedder", 15.0)


@pytest.mark.parametrize(
    ("rounds", "changes", "since"),
    [
        ([BEFORE, OURS, OURS], [LOW], 1),
        ([OURS, OURS], [LOW], 0),
        ([OURS, BEFORE, OURS], [LOW], 2),
        ([OURS, BEFORE], [LOW], None),
        ([decided(None), OURS], [LOW], 1),
        ([OURS, decided("least-moves")], [STRATEGY], 1),
        ([OURS, decided("least-moves")], [LOW], None),
        ([], [LOW], None),
    ],
    ids=["taken", "all along", "taken again", "taken back", "imported", "a strategy", "another one's", "no round"],
)
def test_settings_are_in_force_since_the_last_round_without_them(
    rounds: list[tuple[str | None, str | None]], changes: list[ChangedSetting], since: float | None
):
    """By what each round was decided with, until the newest one."""
    assert taken_since(((at, *one) for at, one in enumerate(rounds)), changes) == since


def test_a_day_may_end_before_they_are_taken_back():
    """The answer of the days before holds on."""
    assert taken_since([(5, *OURS)], [LOW], since=2) == 2
    assert taken_since([(5, *BEFORE)], [LOW], since=2) is None


def test_what_really_happened_is_measured(tmp_path: Path):
    """Moves that were made, and the gap of the brokers' own reports, in the figures of a calibration."""
    made = simulated(tmp_path, settled(low_threshold=8.0, hit_count_low=3), hours=2, **SKEWED)
    found = measure(tmp_path, [LOW], 0.0, Weights())

    assert found is not None
    assert found.figures.days == pytest.approx(2 / 24, rel=0.05)
    assert found.figures.moves == len(made.trace().moves) > 0
    window = packed(tmp_path)
    gaps = gap_figures(window.at, as_recorded(window, Weights()), 0.0)
    assert (found.figures.mean_gap, found.figures.p95_gap) == (gaps["mean_gap"], gaps["p95_gap"])
    assert gaps["mean_gap"] > 5


def test_settings_that_were_not_taken_have_no_drift(tmp_path: Path):
    """Also where nothing is in history since they were proposed."""
    simulated(tmp_path, settled(low_threshold=15.0), hours=0.1)
    taken = ChangedSetting("avg_shedder.low_threshold", 8.0, 15.0)

    assert measure(tmp_path, [LOW], 0.0, Weights()) is None
    assert measure(tmp_path, [taken], 9e9, Weights()) is None
    assert measure(tmp_path / "none", [taken], 0.0, Weights()) is None


def test_history_that_cannot_be_read_is_named(tmp_path: Path):
    """A byte that a disk has changed ends it in one line."""
    simulated(tmp_path, settled(low_threshold=8.0), hours=0.1)
    (file,) = (tmp_path / "v1" / "broker_rounds").glob("*/*.parquet")
    flip(file, "cpu")

    with pytest.raises(UsageError, match=r"broker_rounds/day=.*: cannot be read"):
        measure(tmp_path, [LOW], 0.0, Weights())
