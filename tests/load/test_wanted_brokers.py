"""How many brokers the load needs, when that number changes, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.load.capacity import (
    DAY_HOURS,
    LASTS_SECONDS,
    WEEK_HOURS,
    ClusterLoad,
    Peak,
    Peaks,
    cluster_load,
    highest_score,
    hour_of,
    known_hours,
    needed,
    needed_by_resource,
    report,
    target_brokers,
    with_round,
)
from lbd.load.estimate import BANDWIDTH_IN, CPU
from lbd.load.scoring import Weights
from lbd.model import Slopes
from lbd.observe.parse import Usage
from tests.builders import TAKEN_AT
from tests.builders import report as load_report
from tests.builders import snapshot as build_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX = 70.0
MINUTE, HOUR = 60.0, 3600.0
BEGIN = (TAKEN_AT // HOUR) * HOUR


def cluster(
    used: Sequence[float],
    background: Sequence[float] | float = 10.0,
    size: Sequence[float] | float = 1.0,
    at: float = BEGIN,
    **changes: Any,
) -> ClusterLoad:
    """Brokers a, b, … by the points of CPU that each uses; of a size of 1 unit a point unless said."""
    brokers = tuple(f"{name}:80" for name in "abcdefghijklmnopqrstuvwxyz"[: len(used)])
    columns = [np.broadcast_to(np.array(one, dtype=float), (len(used),))[:, None] for one in (used, background, size)]
    values: dict[str, Any] = {
        "taken_at": at,
        "brokers": brokers,
        "active": len(brokers),
        "resources": ("cpu",),
        "used": columns[0],
        "background": columns[1],
        "size": columns[2],
        "fixed": np.zeros(len(brokers)),
        "grounded": True,
    }
    return ClusterLoad(**{**values, **changes})


def demand_of(load: ClusterLoad) -> dict[str, float]:
    return dict(zip(load.resources, load.carried.sum(axis=0).tolist(), strict=True))


def number(load: ClusterLoad, max_score: float = MAX) -> float:
    return needed(demand_of(load), load, max_score)


@pytest.mark.parametrize(
    ("load", "brokers"),
    [
        pytest.param(cluster([70, 70, 70, 70]), 4.0, id="full to the last point"),
        pytest.param(cluster([40, 40, 40, 40]), 2.0, id="half of it"),
        pytest.param(cluster([85, 85, 85, 85]), 5.0, id="a fourth too much"),
        pytest.param(cluster([85, 85, 85, 85], background=0), 340 / 70, id="the same, all of it traffic's"),
        pytest.param(cluster([100, 70, 40, 40]), 210 / 60, id="unevenly spread"),
        pytest.param(cluster([10, 5]), 0.0, id="idle"),
        pytest.param(cluster([65, 65], background=[10, 60]), 1 + 50 / 60, id="a neighbour leaves little room on one"),
        pytest.param(cluster([70, 70], size=[1, 2]), 2.0, id="unequal, and full"),
        pytest.param(cluster([40, 40], size=[1, 2]), 1.25, id="unequal: the small one counts first"),
        pytest.param(cluster([85, 85], size=[1, 2]), 2.5, id="unequal: one more is the mean of both"),
        pytest.param(cluster([85, 85], background=80), 2.0, id="no room anywhere: no number is enough"),
        pytest.param(cluster([70, 70], active=3), 2.0, id="one that does not tell counts as the others"),
    ],
)
def test_brokers_that_a_load_needs(load: ClusterLoad, brokers: float):
    """What all use beyond their backgrounds, over what fits beside these below 70 points."""
    assert number(load) == pytest.approx(brokers)


def test_the_resource_that_needs_most_counts():
    """CPU needs two brokers, what they receive three."""
    load = cluster([40, 40])
    both = replace(
        load,
        resources=("cpu", "bandwidth_in"),
        used=np.array([[40.0, 90.0], [40.0, 90.0]]),
        background=np.array([[10.0, 0.0], [10.0, 0.0]]),
        size=np.array([[1.0, 100.0], [1.0, 100.0]]),
    )

    assert number(both) == pytest.approx(180 / 70)
    assert needed_by_resource(demand_of(both), both, MAX) == pytest.approx({"cpu": 1.0, "bandwidth_in": 180 / 70})
    assert highest_score(demand_of(both), both) == pytest.approx(90)


@pytest.mark.parametrize(
    ("load", "brokers", "without", "points"),
    [
        pytest.param(cluster([70, 40]), None, None, 55.0, id="evenly spread"),
        pytest.param(cluster([70, 70, 70]), None, "a:80", 100.0, id="one away"),
        pytest.param(cluster([70, 70]), 3, None, 50.0, id="one more brings its background"),
        pytest.param(cluster([60, 60], background=[10, 60]), None, None, 60.0, id="a neighbour's broker gets nothing"),
        pytest.param(cluster([90, 90], size=[1, 3]), None, "b:80", 330.0, id="the large one away"),
        pytest.param(cluster([20, 20], fixed=np.array([80.0, 5.0])), None, None, 80.0, id="direct memory"),
        pytest.param(cluster([20, 20], fixed=np.array([80.0, 5.0])), None, "a:80", 30.0, id="and that broker away"),
    ],
)
def test_the_highest_score(load: ClusterLoad, brokers: int | None, without: str | None, points: float):
    """With the demand spread as evenly as the backgrounds allow."""
    assert highest_score(demand_of(load), load, brokers, without) == pytest.approx(points)


# --- the load of a round


def slopes(background: Sequence[float], slope: Sequence[float]) -> Slopes:
    size = len(background)
    idle, steep = np.zeros((size, 5)), np.zeros((size, 5))
    idle[:, CPU], steep[:, CPU] = background, slope
    steep[:, BANDWIDTH_IN] = np.nan
    return Slopes(steep, np.zeros((size, 5)), background=idle)


def round_of(*cpu: float, **changes: Any):
    reports = {f"{name}:80": load_report(one, **changes) for name, one in zip("abc", cpu, strict=False)}
    return build_snapshot(reports)


EVERYONE = np.ones(3, dtype=np.bool_)


def test_what_a_round_tells():
    """Points of CPU beyond the learned background; of a broker whose background is not learned the others' median."""
    known = slopes([10, 20, 77], [1e-6, 1e-6, np.nan])
    found = cluster_load(round_of(50, 60, 95), EVERYONE, 3, known, Weights())

    assert found is not None
    assert (found.resources, found.grounded, found.saturated) == (("cpu",), True, ("c:80",))
    assert found.background[:, 0].tolist() == [10, 20, 15]
    assert found.carried[:, 0].tolist() == pytest.approx([40, 40, 80])


@pytest.mark.parametrize("known", [None, slopes([9, 9, 9], [np.nan] * 3)])
def test_all_counts_as_traffic_until_a_background_is_learned(known: Slopes | None):
    """Which makes one broker less look worse than it is, and one more better."""
    found = cluster_load(round_of(50, 60, 70), EVERYONE, 3, known, Weights())

    assert found is not None
    assert not found.grounded
    assert found.carried.sum() == pytest.approx(180)


def test_brokers_that_are_not_trusted_tell_nothing():
    """They are counted all the same."""
    found = cluster_load(round_of(50, 60, 70), np.array([True, False, True]), 4, None, Weights())

    assert found is not None
    assert (found.brokers, found.active, found.unreported) == (("a:80", "c:80"), 4, 2)


@pytest.mark.parametrize(
    ("trusted", "weights"),
    [(np.zeros(3, dtype=np.bool_), Weights()), (EVERYONE, Weights(cpu=0, direct_memory=1))],
    ids=["nobody is trusted", "only what follows no traffic makes the score"],
)
def test_a_round_that_tells_nothing(trusted: np.ndarray[Any, Any], weights: Weights):
    """No number can be made of it."""
    assert cluster_load(round_of(50, 60, 70), trusted, 3, None, weights) is None


def test_resources_with_a_weight_and_a_limit_count():
    """Bandwidth by its weight; what follows no traffic stands for itself."""
    weights = Weights(bandwidth_in=0.5, direct_memory=2)
    seen = round_of(50, 60, 70, bandwidth_in=Usage(800.0, 1000.0), direct_memory=Usage(64.0, 256.0))
    found = cluster_load(seen, EVERYONE, 3, None, weights)

    assert found is not None
    assert found.resources == ("cpu", "bandwidth_in")
    assert found.used[:, 1].tolist() == pytest.approx([40, 40, 40])
    assert found.carried[:, 1].tolist() == pytest.approx([800, 800, 800])
    assert found.fixed.tolist() == pytest.approx([50, 50, 50])


def test_a_background_of_cpu_is_not_missed_where_cpu_does_not_count():
    """Bandwidth alone makes the score."""
    seen = round_of(50, 60, 70, bandwidth_in=Usage(800.0, 1000.0))
    found = cluster_load(seen, EVERYONE, 3, None, Weights(cpu=0))

    assert found is not None
    assert (found.resources, found.grounded) == (("bandwidth_in",), True)


# --- peaks and the wanted number, over time


def run(*spans: tuple[float, ClusterLoad], peaks: Peaks | None = None, every: float = MINUTE) -> Peaks:
    """Peaks after loads that each last for so many hours, from :data:`BEGIN` or the last round on."""
    found = peaks or Peaks()
    at = found.recent[-1].at + every if found.recent else BEGIN
    for hours, load in spans:
        for _ in range(round(hours * HOUR / every)):
            found = with_round(found, replace(load, taken_at=at), MAX)
            at += every
    return found


def wanted_of(peaks: Peaks, active: int) -> int:
    return target_brokers(peaks.hours, peaks.recent[-1].at, active)


QUIET, BUSY = cluster([30, 30, 30, 30]), cluster([85, 85, 85, 85])  # 80 / 60 and 300 / 60 brokers


@pytest.mark.parametrize(
    ("spans", "brokers"),
    [
        pytest.param([(0.02, BUSY)], 4, id="the first minutes do not count"),
        pytest.param([(1, BUSY)], 5, id="more at once"),
        pytest.param([(3, QUIET)], 4, id="not fewer before a day is known"),
        pytest.param([(26, QUIET)], 2, id="fewer after a day"),
        pytest.param([(26, cluster([5, 5, 5, 5]))], 2, id="never fewer than two"),
        pytest.param([(30, QUIET), (0.2, BUSY)], 5, id="more at once, however quiet the day was"),
        pytest.param([(30, QUIET), (0.2, BUSY), (23, QUIET)], 5, id="for a day"),
        pytest.param([(30, QUIET), (0.2, BUSY), (26, QUIET)], 2, id="and no longer"),
        pytest.param([(30, QUIET), (0.03, BUSY), (1, QUIET)], 2, id="a burst of two minutes wants nobody"),
    ],
)
def test_wanted_brokers(spans: list[tuple[float, ClusterLoad]], brokers: int):
    """Up at once, down when the lower number was enough for a whole day."""
    assert wanted_of(run(*spans), 4) == brokers


def test_a_long_interval_counts_each_round():
    """Where turns are further apart than a load must last."""
    assert wanted_of(run((0.5, BUSY), every=600), 4) == 5


def test_hours_that_nobody_saw_count_as_not_known():
    """lbd was away for three hours: for a day nothing is given up, and then it is."""
    before = run((30, QUIET))
    away = replace(before, recent=())
    last = before.recent[-1].at
    after, at = away, last + 4 * HOUR
    while at < last + 6 * HOUR:
        after = with_round(after, replace(QUIET, taken_at=at), MAX)
        at += MINUTE

    assert known_hours(after.hours, after.recent[-1].at) < DAY_HOURS
    assert wanted_of(after, 4) == 4
    assert wanted_of(run((25, QUIET), peaks=after), 4) == 2


def test_a_broker_that_is_away_is_no_broker_too_many():
    """Until a day is known the most that were there count, and not those of this moment."""
    found = run((2, QUIET), (0.5, cluster([40, 40, 40])))

    assert wanted_of(found, 3) == 4


def test_a_week_is_kept():
    """Beside the hour that has begun; what a clock put later than it is now is dropped."""
    found = run((WEEK_HOURS + 20, QUIET), every=600)
    assert len(found.hours) == WEEK_HOURS + 1

    set_back = with_round(found, replace(QUIET, taken_at=BEGIN + 50 * HOUR), MAX)
    assert {one.hour <= hour_of(BEGIN + 50 * HOUR) for one in set_back.hours} == {True}


def test_another_setting_judges_the_day_anew():
    """What was needed for 70 points is not what is needed for 35."""
    found = run((2, BUSY))
    at = found.recent[-1].at + MINUTE
    anew = with_round(found, replace(BUSY, taken_at=at), 35.0)

    assert {one.number for one in found.hours} == {5}
    assert {one.number for one in anew.hours} == {12}


def test_what_was_not_known_then_counts_once():
    """An hour from before a background was learned has it in its demand."""
    unknown = replace(BUSY.without_background())
    found = run((2, unknown))
    told = report(found, replace(BUSY, taken_at=found.recent[-1].at), MAX)

    assert told.score == 85.0


# --- the report


def test_the_report_of_a_day():
    """When, by which resource, and what one less and one more would do."""
    load = cluster([50, 45, 40, 33])
    found = run((20, QUIET), (1, load), (10, QUIET))
    told = report(found, replace(load, taken_at=found.recent[-1].at), MAX)

    assert (told.active, told.wanted, told.easiest) == (4, 3, "d:80")
    assert (told.score, told.one_less, told.one_more) == (42.0, 52.7, 35.6)
    assert told.day is not None
    assert BEGIN + 20 * HOUR <= told.day.at < BEGIN + 21 * HOUR
    assert (told.day.needed, told.day.resource, told.day.at_least) == (2.13, "cpu", False)
    assert [(one.id, one.without, one.can_go) for one in told.brokers] == [
        (f"{name}:80", 52.7, True) for name in "abcd"
    ]
    assert told.summary.startswith("4 brokers are active, 3 are wanted: cpu needed 2.1 brokers of 70 points at 2027-")
    assert told.notes == ()


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (cluster([95, 40, 40], saturated=("a:80",)), "a:80 has 90 points or more"),
        (cluster([40, 40], active=3), "the load of 1 active broker is not known now"),
        (cluster([40, 40], grounded=False, background=0), "not learned yet"),
        (cluster([80, 40], background=[75, 10]), "a:80 has 75 points that no traffic makes"),
        (cluster([40, 40], size=[1, 2]), "the brokers are unequal"),
    ],
)
def test_what_the_number_does_not_know_is_said(load: ClusterLoad, words: str):
    """One note each."""
    found = run((2, load))
    told = report(found, replace(load, taken_at=found.recent[-1].at), MAX)

    assert any(words in one for one in told.notes)
    assert "History covers 1 h" in told.summary


def test_before_anything_is_known():
    """The number of those that are there, and no score."""
    found = with_round(Peaks(), BUSY, MAX)
    told = report(found, BUSY, MAX)

    assert (told.wanted, told.day, told.score, told.brokers) == (4, None, None, ())
    assert "nothing is known yet" in told.summary


# --- invariants

POINTS = st.floats(0, 100)
CLUSTERS = st.integers(2, 8).flatmap(
    lambda size: st.tuples(
        st.lists(POINTS, min_size=size, max_size=size),
        st.lists(st.floats(0, 60), min_size=size, max_size=size),
        st.lists(st.floats(0.5, 8), min_size=size, max_size=size),
    )
)


@given(CLUSTERS, st.floats(1, 5))
def test_more_load_never_needs_fewer(values: tuple[list[float], list[float], list[float]], more: float):
    """Whatever the brokers are."""
    load = cluster(*values)
    demand = demand_of(load)

    assert needed({name: one * more for name, one in demand.items()}, load, MAX) >= needed(demand, load, MAX)


@given(CLUSTERS, st.integers(0, 7))
def test_the_needed_number_is_enough(values: tuple[list[float], list[float], list[float]], which: int):
    """Whichever broker goes where one fewer is enough, and with as many more as are needed."""
    load = cluster(*values)
    demand, size = demand_of(load), len(load.brokers)
    brokers = int(np.ceil(needed(demand, load, MAX) - 1e-9))

    if brokers <= size - 1:
        away = load.brokers[which % size]
        assert highest_score(demand, load, without=away) <= MAX + 1e-6
    assert highest_score(demand, load, max(brokers, size)) <= MAX + 1e-6


@given(CLUSTERS)
def test_one_fewer_than_needed_is_not_enough(values: tuple[list[float], list[float], list[float]]):
    """Where more brokers are needed than there are, no smaller number would do."""
    load = cluster(*values)
    demand, size = demand_of(load), len(load.brokers)
    brokers = int(np.ceil(needed(demand, load, MAX) - 1e-9))

    if brokers > size:
        assert highest_score(demand, load, brokers - 1) > MAX - 1e-6


@given(st.lists(st.floats(0, 100), min_size=26, max_size=36))
def test_the_wanted_number_never_falls_below_what_a_day_needed(points: list[float]):
    """One load an hour: the number never falls while a higher one was needed within the last day."""
    found, needs, before, at = Peaks(), [], 4, BEGIN
    for one in points:
        load = cluster([one] * 4)
        for minute in range(0, 60, 20):
            found = with_round(found, replace(load, taken_at=at + minute * MINUTE), MAX)
        at += HOUR
        needs.append(int(np.ceil(number(load) - 1e-9)))
        now = wanted_of(found, 4)
        assert now >= max(needs[-DAY_HOURS:])
        if now < before:
            assert len(needs) >= DAY_HOURS
        assert now <= max(*needs[-DAY_HOURS - 1 :], 4 if len(needs) <= DAY_HOURS else 2)
        before = now


def test_a_peak_lasts():
    """The constant that keeps bursts out is longer than two samples of CPU."""
    assert LASTS_SECONDS >= 2 * MINUTE
    assert Peak(0, 0.0, 3.0 + 1e-12, {}, 4, MAX).number == 3
