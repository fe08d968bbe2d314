"""A daemon by another clock than the machine's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.daemon.telling import status_of
from lbd.daemon.timebase import SYSTEM, Timebase
from lbd.model import Result
from tests import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker with eight bundles and two cold ones."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


def test_the_machines_own():
    """Seconds are seconds."""
    assert SYSTEM.takes(15) == 15
    assert abs(SYSTEM.at(time.time() + 15) - (time.time() + 15)) < 1


def test_a_faster_one():
    """An interval takes a part of its seconds, and what comes in one of the machine's comes in many of its own."""
    fast = Timebase(lambda: 1000.0, lambda: 12.0)
    assert fast.takes(15) == 1.25
    assert abs(fast.at(time.time() + 1.25) - 1015) < 1


def test_everything_that_is_kept_is_told_by_it(pulsar: FakePulsar, tmp_path: Path):
    """Turns, moves and the status stand at its time, also when that is tomorrow."""
    then = time.time() + 86_400
    settings = Settings.model_validate(
        {
            "pulsar": {"admin_urls": pulsar.urls},
            "state_dir": tmp_path / "state",
            "avg_shedder": {"hit_count_high": 1, "min_unload_message": 1, "min_unload_message_throughput": 1},
        }
    )
    with engine(settings, timebase=Timebase(lambda: then, lambda: 1.0)) as balancer:
        record = balancer.once()
        status = status_of(balancer, record, 1, None)
        attempts = balancer.attempts_last_hour
    assert record.observation is not None
    assert record.observation.snapshot.taken_at == then
    assert [one.result for one in record.outcomes][:1] == [Result.LANDED]
    assert status.at == then
    assert attempts == len(record.outcomes)
