"""Splits of a simulated run: by lbd's rule with its journal and limits, or by the leader of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.model import bundle_namespace
from lbd.simulate.cluster import HANDED_OVER_SECONDS
from lbd.simulate.run import Cutting
from lbd.split.triggers import SplitSettings
from tests.simulate.test_run import simulated
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from lbd.simulate.run import Simulation, Turned

BIG = "simulated/big/0x00000000_0xffffffff"
LOAD = [
    {"name": "big", "brokers": ["a"], "mib_per_second": 60, "bundles": 1, "topics": 40},
    {"name": "small", "brokers": ["b"], "mib_per_second": 6, "bundles": 6},
]
LARGE = {"split.enabled": True, "split.max_msg_rate": 1e9, "split.max_bandwidth_mbytes": 100}
"""120 MiB/s in + out are too many, a half of them is not."""
STILL = {"avg_shedder.low_threshold": 99, "avg_shedder.high_threshold": 99}
"""Nothing moves."""


def big(overrides: dict[str, Any] | None = None, **changes: Any) -> tuple[Simulation, list[Turned]]:
    """Broker a has 60 points, all of them in one bundle, b has 6; two hours."""
    return simulated({**LARGE, **(overrides or {})}, **{"load": LOAD, "hours": 2, **changes})


def test_lbd_splits_what_is_too_large_and_levels_the_parts():
    """The whole is one bundle and stays; its halves are none too large, and one of them moves."""
    simulation, turns = big()
    trace = simulation.trace()
    (split,) = trace.splits
    assert (split.bundle, split.owner, split.parts, split.by) == (BIG, "a:8080", 2, "lbd")
    assert len([move for move in trace.moves if "/big/" in move.bundle]) == 1
    assert trace.truths[-1].points.max() < 45
    assert turns[-1].record.observation is not None
    assert len(turns[-1].record.observation.snapshot.bundles) == 8


def test_without_the_setting_nothing_is_split():
    """As by default."""
    assert big({"split.enabled": False})[0].trace().splits == ()


def test_traffic_and_what_would_have_been_stay_whole():
    """Splits move no load: before the first move both curves are one, and the sum is the same all the time."""
    trace = big(STILL)[0].trace()
    assert (len(trace.splits), len(trace.moves)) == (1, 0)
    unmoved = trace.unmoved()
    assert unmoved is not None
    assert unmoved == pytest.approx(trace.points())
    assert {round(one.throughput) for one in trace.truths} == {(132 * 1024**2)}


def test_bounds_are_not_told_of_what_was_split():
    """A bundle that moves whole is one move; of its parts it would be several. The peak is told."""
    trace = big()[0].trace()
    assert trace.bounded is None
    assert trace.fewest_moves is None
    assert trace.placement is not None
    assert trace.placement.peak(trace.placement.last) == pytest.approx(trace.truths[-1].points.max(), abs=0.1)


def test_parts_rest_before_they_are_split_again():
    """Half an hour, as the journal says it; one split a turn."""
    trace = big({**STILL, "split.max_bandwidth_mbytes": 40})[0].trace()
    at = [split.seconds for split in trace.splits]
    assert len(at) >= 3
    assert at[1] - at[0] >= 1800
    assert len(set(at)) == len(at)


def test_the_hour_has_a_limit():
    """Two splits an hour, of six bundles that are too large."""
    load = [{"name": "n", "brokers": ["a"], "mib_per_second": 60, "bundles": 6, "topics": 60}]
    trace = big({"split.max_bandwidth_mbytes": 15, "split.max_splits_per_hour": 2}, load=load)[0].trace()
    at = [split.seconds for split in trace.splits]
    assert len(at) >= 4
    assert all(third - first >= 3600 for first, third in zip(at, at[2:], strict=False))


def test_a_bundle_of_one_topic_is_never_cut():
    """There is nothing to cut, whatever it carries."""
    load = [{**LOAD[0], "topics": 1}, LOAD[1]]
    assert big(load=load)[0].trace().splits == ()


def test_brokers_split_by_their_own_rule_and_place_the_parts_anew():
    """By the defaults of broker.conf, lbd's settings notwithstanding; bundles changed hands without lbd then."""
    simulation, turns = big({"split.max_bandwidth_mbytes": 1e6}, auto_bundle_split=True)
    trace = simulation.trace()
    assert {split.by for split in trace.splits} == {"brokers"}
    assert trace.placement is None
    ends = len(trace.moves) + 2 * len(trace.splits)
    assert trace.unserved_bundle_seconds == pytest.approx(ends * HANDED_OVER_SECONDS, rel=0.05)
    observed = turns[-1].record.observation
    assert observed is not None
    assert observed.splitting_on == ("a:8080", "b:8080")
    spans = [name for name in observed.snapshot.bundles if bundle_namespace(name) == "simulated/big"]
    assert len(spans) == len(trace.splits) + 1


def test_what_is_being_unloaded_is_not_split_by_brokers():
    """The owner closes it."""
    _, turns = big({"split.enabled": False})
    world, state = begun(load=LOAD)
    for closing, made in (({BIG}, 0), ((), 1)):
        cutting = Cutting(world, world, state)
        cutting.by_brokers(turns[0].record, closing)
        assert len(cutting.made) == made


def test_a_plan_is_what_the_rates_say():
    """Topics have equal shares of what the owner has counted, so that cuts by flow can be found."""
    world, state = begun(load=LOAD)
    plan = Cutting(world, world, state).look(BIG, SplitSettings(algorithm="flow_or_qps_equally_divide"))
    assert plan.whole.throughput == pytest.approx(120 * 1024**2)
    assert all(part.msg_rate <= 30_000 for part in plan.parts)
    assert len(plan.parts) == 5
