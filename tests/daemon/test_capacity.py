"""The peaks of a live lbd: over its restarts, on a full disk, and under other settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.config import Settings
from lbd.load.capacity import FEWEST_BROKERS, Peaks
from lbd.model import Slopes
from lbd.operations.capacity import PeakKeeper
from lbd.reason import Reason
from lbd.store.database import STORE_NAME
from lbd.store.state import PEAKS, load_peaks
from lbd.turn.parts import TurnResult
from tests.builders import TAKEN_AT, put_value, report
from tests.turn.records import record

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.load.capacity import CapacityReport

MINUTE, HOUR = 60.0, 3600.0
BEGIN = (TAKEN_AT // HOUR) * HOUR


def turn_at(at: float, *cpu: float, drained: int | None = None) -> TurnResult:
    """A turn at this moment that saw brokers with so much CPU, 10 points of it no traffic's."""
    names = [f"{name}:80" for name in "abcdef"[: len(cpu)]]
    reports = {name: report(one, {}) for name, one in zip(names, cpu, strict=True)}
    found = record(reports)
    assert found.facts is not None
    paired = np.zeros(len(cpu), dtype=np.int8)
    if drained is not None:
        paired[drained] = Reason.DRAINED.code
    idle = np.zeros((len(cpu), 5))
    idle[:, 0] = 10.0
    known = Slopes(np.ones((len(cpu), 5)), np.zeros((len(cpu), 5)), background=idle)
    seen, evidence = replace(found.facts.snapshot, taken_at=at), replace(found.facts.evidence, paired=paired)
    return replace(found, facts=replace(found.facts, snapshot=seen, evidence=evidence, slopes=known))


def lived(keeper: PeakKeeper, since: float, hours: float, *cpu: float) -> CapacityReport:
    """What is told after so many hours of this, a turn each ten minutes."""
    told = None
    for turn in range(round(hours * 6)):
        told = keeper.after(turn_at(since + turn * 10 * MINUTE, *cpu))
    assert told is not None
    return told.report


def settings(folder: Path, **capacity: float) -> Settings:
    return Settings.model_validate({"state_dir": folder, "capacity": capacity})


def test_a_restart_forgets_no_peak(tmp_path: Path):
    """A stop writes what is known; the next lbd goes on with the same day."""
    first = PeakKeeper(settings(tmp_path), BEGIN)
    lived(first, BEGIN, 26, 30, 30, 30, 30)
    busy = lived(first, BEGIN + 26 * HOUR, 1, 85, 85, 85, 85)
    first.close()
    again = PeakKeeper(settings(tmp_path), BEGIN + 27 * HOUR)
    quiet = lived(again, BEGIN + 27 * HOUR, 1, 30, 30, 30, 30)

    assert (busy.wanted, quiet.wanted, quiet.day) == (5, 5, busy.day)
    assert lived(again, BEGIN + 28 * HOUR, 25, 30, 30, 30, 30).wanted == FEWEST_BROKERS


def test_a_kill_forgets_no_wanted_number(tmp_path: Path):
    """What changes the number is on disk at once."""
    killed = PeakKeeper(settings(tmp_path), BEGIN)
    lived(killed, BEGIN, 26, 30, 30, 30, 30)
    for minute in range(5):
        told = killed.after(turn_at(BEGIN + 26 * HOUR + minute * MINUTE, 85, 85, 85, 85))
    again = PeakKeeper(settings(tmp_path), BEGIN + 26 * HOUR + 6 * MINUTE)
    after = again.after(turn_at(BEGIN + 26 * HOUR + 6 * MINUTE, 30, 30, 30, 30))

    assert told is not None
    assert after is not None
    assert (told.target_brokers, after.target_brokers) == (5, 5)


def test_one_turn_writes_nothing(tmp_path: Path):
    """As ``lbd run --once`` makes it: a load counts once it has lasted."""
    keeper = PeakKeeper(settings(tmp_path), BEGIN)
    keeper.after(turn_at(BEGIN, 85, 85))
    keeper.close()

    assert load_peaks(tmp_path) == Peaks()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}",
        b'[{"hour": 1}]',
        b'[{"hour": 9, "at": 1e300, "needed": 9, "demand": {}, "brokers": 9, "max_score": 7}]',
    ],
)
def test_damaged_peaks_are_counted_anew_and_named(content: bytes, tmp_path: Path):
    """It stops nothing; the warning ends when a day is known again."""
    put_value(tmp_path, PEAKS, content)
    keeper = PeakKeeper(settings(tmp_path), BEGIN)

    assert keeper.trouble.startswith(f"{tmp_path / STORE_NAME}: peaks cannot be read: ")
    assert keeper.trouble.endswith("peaks of the load are counted anew, and no fewer brokers are wanted for a day")

    lived(keeper, BEGIN, 23, 40, 40)
    assert keeper.trouble
    lived(keeper, BEGIN + 23 * HOUR, 3, 40, 40)
    assert keeper.trouble == ""
    assert load_peaks(tmp_path) != Peaks()


def test_a_full_disk_stops_nothing(tmp_path: Path):
    """It is told, and the number goes on in memory."""
    folder = tmp_path / "state"
    keeper = PeakKeeper(settings(folder), BEGIN)
    folder.write_text("in the way")

    assert lived(keeper, BEGIN, 1, 85, 85, 85, 85).wanted == 5
    assert keeper.trouble.startswith("peaks of the load are not kept: ")

    folder.unlink()
    folder.mkdir()
    lived(keeper, BEGIN + HOUR, 1, 85, 85, 85, 85)
    assert keeper.trouble == ""


def test_settings_are_read_again(tmp_path: Path):
    """The day is judged by the new limit at once."""
    keeper = PeakKeeper(settings(tmp_path), BEGIN)
    lived(keeper, BEGIN, 2, 85, 85, 85, 85)
    keeper.take(settings(tmp_path, max_score=40))

    assert lived(keeper, BEGIN + 2 * HOUR, 1, 30, 30, 30, 30).wanted == 10


def test_a_drained_broker_is_one_that_is_there(tmp_path: Path):
    """It carries its own background, and what has not moved yet; its load is known."""
    found = PeakKeeper(settings(tmp_path), BEGIN).after(turn_at(BEGIN, 40, 40, 11, drained=2))

    assert found is not None
    assert (found.report.active, [note for note in found.report.notes if "not known" in note]) == (3, [])


def test_a_turn_that_failed_tells_nothing(tmp_path: Path):
    """No load was seen."""
    assert PeakKeeper(settings(tmp_path), BEGIN).after(TurnResult()) is None
