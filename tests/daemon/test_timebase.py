"""A daemon by another clock than the machine's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.clock import SYSTEM, Steps, Timebase
from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.model import Result

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


def test_the_machines_own():
    """Seconds are seconds."""
    assert SYSTEM.takes(15) == 15
    assert abs(SYSTEM.at(time.time() + 15) - (time.time() + 15)) < 1


def test_a_faster_one():
    """An interval takes a part of its seconds, and what comes in one of the machine's comes in many of its own."""
    fast = Timebase(lambda: 1000.0, lambda: 12.0)
    assert fast.takes(15) == 1.25
    assert abs(fast.at(time.time() + 1.25) - 1015) < 1


def test_a_clock_that_is_set_is_noticed_once():
    """Ahead and back; what drifts is none, nor is a process that stood still between two looks."""
    clock = {"now": 1000.0, "monotonic": 0.0}
    steps = Steps(lambda: clock["now"], lambda: clock["monotonic"])
    found = []
    for now, monotonic in ((1001.0, 1.0), (1003.5, 2.0), (4603.5, 3.0), (4604.5, 4.0), (1004.0, 5.0), (1005.0, 6.0)):
        clock["now"], clock["monotonic"] = now, monotonic
        found.append(steps.since_last_look())
    assert found == [0.0, 0.0, 3600.5, 0.0, -3601.5, 0.0]


def test_a_process_that_stands_still_tells_nothing_of_the_clock():
    """It was stopped for three seconds between asking one and the other."""
    looks = iter([0.0, 1.0, 4.0, 5.0, 5.0])
    steps = Steps(lambda: 1000.0, lambda: next(looks))
    assert steps.since_last_look() == 0.0
    assert steps.since_last_look() == -5.0


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
        status = build_status(balancer, record, 1, None)
        attempts = balancer.last_hour.attempts
    assert record.observation is not None
    assert record.observation.snapshot.taken_at == then
    assert [one.result for one in record.moves.outcomes][:1] == [Result.LANDED]
    assert status.at == then
    assert attempts == len(record.moves.outcomes)
