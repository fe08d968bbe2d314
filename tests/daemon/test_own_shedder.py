"""Whether the brokers' own shedder should have acted, by its own rule and settings, and when that is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.daemon.recorder import own_shedder
from lbd.reason import Reason
from lbd.turn.watchdog import WatchdogMemory, watch
from tests import fake_pulsar
from tests.builders import bundle
from tests.test_turn import settings
from tests.turn.records import COLD, HOT, record, two

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lbd.turn.parts import TurnResult

AVG = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
THRESHOLD = "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder"
EXTENSIONS = "org.apache.pulsar.broker.loadbalance.extensions"
HELD = (Reason.IN_BROKER_SHEDDING, f"{HOT} shed by themselves")


def shedding(reports: Any = None, *, runtime: Mapping[str, str] | None = None, **changes: Any) -> TurnResult:
    """A turn in which the brokers shed by themselves with AvgShedder, or with what ``runtime`` says."""
    found = record(reports or two(), hold=HELD, **changes)
    assert found.observation is not None
    values = {"loadBalancerLoadSheddingStrategy": AVG, **(runtime or {})}
    return replace(found, observation=replace(found.observation, shedding_on=(COLD, HOT), shedder=values))


@pytest.mark.parametrize(
    ("runtime", "changes", "overdue"),
    [
        ({}, {}, {HOT}),
        ({"loadBalancerAvgShedderLowThreshold": "70"}, {}, set()),
        ({"minUnloadMessage": "9000", "minUnloadMessageThroughput": "900000000"}, {}, set()),
        ({"loadBalancerCPUResourceWeight": "0"}, {}, set()),
        ({}, {"permitted": {"barred": {bundle(n): Reason.ISOLATION_POLICY for n in range(8)}}}, set()),
        ({"loadBalancerAvgShedderLowThreshold": "many"}, {}, {HOT}),
    ],
    ids=["the rule holds", "not by its threshold", "not by its minimums", "not by its weights", "policies", "junk"],
)
def test_its_own_settings_decide(runtime: Mapping[str, str], changes: Mapping[str, Any], overdue: set[str]):
    """As it would at the next round, if the gap has lasted for its hit counts."""
    found = own_shedder(shedding(runtime=runtime, **changes))
    assert found is not None
    assert set(found.overdue) == overdue


@pytest.mark.parametrize(
    ("runtime", "minutes"),
    [
        ({}, 10),
        ({"loadBalancerAvgShedderHitCountLowThreshold": "3"}, 5),
        ({"loadBalancerSheddingIntervalMinutes": "5"}, 50),
        ({"loadBalancerSheddingIntervalMinutes": "soon"}, 10),
    ],
)
def test_how_long_it_may_take(runtime: Mapping[str, str], minutes: float):
    """Its hit count and two rounds more."""
    found = own_shedder(shedding(runtime=runtime))
    assert found is not None
    assert found.patience_seconds == minutes * 60


def test_while_it_is_off_nothing_is_expected_of_it():
    """Nor where nothing was seen."""
    assert own_shedder(record(two())) is None


def test_a_leader_that_does_not_shed_is_told_of():
    """After its time, with the rule; once a bundle has left the broker, the clock starts anew."""
    state, told = WatchdogMemory(), {}
    for minute in range(17):
        rates = (500.0,) * (8 if minute < 12 else 7)
        seen = shedding(two(80 + minute * 0.01, 20 + minute * 0.01, rates=rates), after_seconds=minute * 60.0)
        state, alarms = watch(state, seen, own_shedder(seen))
        told[minute] = [alarm.text for alarm in alarms if alarm.kind == "leader"]
    assert [minute for minute, texts in told.items() if texts] == [10, 11]
    words = (
        f"leader http://leader:8080 has not relieved {HOT}, 60.0 points above {COLD}, though the rule of its AvgShedder"
    )
    assert told[11] == [f"{words} holds, for 11 min"]


def test_of_another_shedder_it_is_said_that_its_rule_is_not_known():
    """Beside the gap, which is told all the same."""
    state, texts = WatchdogMemory(), list[str]()
    for minute in range(18):
        wobble = minute * 0.01
        seen = shedding(
            two(80 + wobble, 20 + wobble),
            after_seconds=minute * 60.0,
            runtime={"loadBalancerLoadSheddingStrategy": THRESHOLD},
        )
        state, alarms = watch(state, seen, own_shedder(seen))
        texts = [alarm.text for alarm in alarms if alarm.kind in {"gap", "leader"}]
    assert len(texts) == 1
    assert texts[0].endswith(
        "lbd: blocked by in-broker-shedding; whether the brokers' own ThresholdShedder should have, lbd cannot know"
    )


def test_the_observer_keeps_what_the_rule_reads(tmp_path: Path):
    """Of a broker that sheds, and of none that does not."""
    from lbd.daemon.engine import engine

    with fake_pulsar.hot_broker() as pulsar, engine(settings(pulsar, tmp_path)) as balancer:
        calm = balancer.turn().observation
        for broker in pulsar.brokers:
            broker.runtime.update({"loadBalancerSheddingEnabled": "true", "loadBalancerLoadSheddingStrategy": AVG})
        sheds = balancer.turn().observation
    assert calm is not None
    assert sheds is not None
    assert (calm.shedder, sheds.shedder["loadBalancerLoadSheddingStrategy"]) == ({}, AVG)
    assert all(key.startswith(("load", "minUnload", "maxUnload")) for key in sheds.shedder)


@pytest.mark.parametrize(
    ("named", "sheds"),
    [
        (THRESHOLD, "TransferShedder"),
        (f"{EXTENSIONS}.scheduler.TransferShedder", "TransferShedder"),
        ("x.Own", "Own"),
    ],
)
def test_the_extensible_managers_shedder(named: str, sheds: str):
    """What another manager would shed with is passed over there, and TransferShedder taken."""
    runtime = {"loadManagerClassName": fake_pulsar.EXTENSIBLE, "loadBalancerLoadSheddingStrategy": named}
    found = own_shedder(shedding(runtime=runtime))
    assert found is not None
    assert found.name == sheds
