"""What a running lbd keeps in memory, and when it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.errors import UsageError
from lbd.model import Averages, Hits
from lbd.store.database import STORE_NAME
from lbd.store.state import Remembered, StateDir, TurnMemory

if TYPE_CHECKING:
    from pathlib import Path


NOW = 1_800_000_000.0


def averages(rate: float) -> Averages:
    """One bundle's."""
    return Averages(["t/n/0x0_0x1"], np.full((1, 4), rate), np.full((1, 4), rate), np.ones(1, dtype=np.int32))


def on_disk(folder: Path, now: float) -> float | None:
    """The rate that another process would read."""
    found = StateDir(folder).load_averages(now)
    return float(found.short[0, 0]) if found.bundles else None


def test_counters_are_on_disk_at_once(tmp_path: Path):
    """A kill -9 after a turn loses no hit."""
    memory = Remembered(StateDir(tmp_path))
    memory.save(TurnMemory(hits={"b": Hits(1, 1)}))
    assert StateDir(tmp_path).load().hits == memory.load().hits == {"b": Hits(1, 1)}


def test_counters_are_read_once(tmp_path: Path):
    """Only the holder of the directory writes them, so what it wrote is what there is."""
    StateDir(tmp_path).save(TurnMemory(hits={"b": Hits(1, 1)}))
    memory = Remembered(StateDir(tmp_path))
    assert memory.load().hits == {"b": Hits(1, 1)}
    (tmp_path / STORE_NAME).unlink()
    assert memory.load().hits == {"b": Hits(1, 1)}


@pytest.mark.parametrize(("after", "written"), [(59.0, 1.0), (60.0, 2.0), (-5.0, 2.0)])
def test_averages_are_written_once_a_minute(after: float, written: float, tmp_path: Path):
    """With the counters, the first ones at once; also when the clock went back."""
    memory = Remembered(StateDir(tmp_path))
    for rate, now in ((1.0, NOW), (2.0, NOW + after)):
        memory.save_averages(averages(rate), now)
        memory.save(TurnMemory(written_at=now))
    assert on_disk(tmp_path, NOW + 60) == written
    assert float(memory.load_averages(NOW + 60).short[0, 0]) == 2.0


def test_the_last_averages_are_written_at_a_stop(tmp_path: Path):
    """And only when they are not on disk yet."""
    memory = Remembered(StateDir(tmp_path))
    memory.close()
    assert on_disk(tmp_path, NOW) is None
    for rate, now in ((1.0, NOW), (2.0, NOW + 10)):
        memory.save_averages(averages(rate), now)
        memory.save(TurnMemory(written_at=now))
    memory.close()
    assert on_disk(tmp_path, NOW + 10) == 2.0


@pytest.mark.parametrize("age", [-1.0, 901.0])
def test_old_averages_begin_anew(age: float, tmp_path: Path):
    """After a quarter of an hour, or a clock that went back."""
    memory = Remembered(StateDir(tmp_path))
    memory.save_averages(averages(1.0), NOW)
    assert memory.load_averages(NOW + age).bundles == []


def test_a_counter_that_cannot_be_written_is_not_kept(tmp_path: Path):
    """What is not on disk was not counted."""
    (tmp_path / "state").mkdir()
    memory = Remembered(StateDir(tmp_path / "state"))
    memory.save(TurnMemory(hits={"b": Hits(1, 1)}))
    (tmp_path / "state").rename(tmp_path / "away")
    with pytest.raises(UsageError, match=r"lbd\.db: cannot be opened"):
        memory.save(TurnMemory(hits={"b": Hits(2, 2)}))
    assert memory.load().hits == {"b": Hits(1, 1)}
