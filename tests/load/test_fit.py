"""Slope and background of brokers whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.load.estimate import BANDWIDTH_IN, CPU, Source
from lbd.load.fit import fit
from lbd.load.samples import BrokerSamples, gather
from lbd.load.scoring import Weights
from tests.load.histories import THREE, TRUE_SLOPE, WAVE, rounds

if TYPE_CHECKING:
    from lbd.load.estimate import LoadModel

CAPACITY = np.array([1.0, 1.0, 2.0])
BACKGROUND = np.array([10.0, 25.0, 12.0])
LOAD = THREE["load"][0]


def fitted(minutes: int, seed: int = 1, **changes: Any) -> LoadModel:
    return fit(gather(rounds(minutes, {**THREE, **changes}, seed)))


def sources(model: LoadModel) -> list[Source]:
    return [own[CPU] for own in model.sources]


def broker(at: int, **changes: Any) -> list[dict[str, Any]]:
    """The three brokers, one of them changed."""
    brokers = [dict(one) for one in THREE["brokers"]]
    brokers[at].update(changes)
    return brokers


SEEDS = pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.landing) for seed in (2, 3))])


@SEEDS
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise_points": 3},
        {"load": [{**LOAD, "shape": {"kind": "ramp", "to": 2, "at_minutes": 10, "minutes": 150}}]},
        {"load": [{**LOAD, "fan_out": 3}]},
        {"load": [LOAD, {**LOAD, "name": "m", "mib_per_second": 60, "shape": {**WAVE, "period_hours": 1.3}}]},
    ],
    ids=["wave", "noisy", "ramp", "fan-out", "two loads"],
)
def test_slope_and_background_are_recovered(changes: dict[str, Any], seed: int):
    """Within a tenth and within three points, on like and unlike brokers, over three hours."""
    model = fitted(180, seed, **changes)

    assert [Source.FITTED] * 3 == sources(model)
    assert model.slope[:, CPU] * CAPACITY == pytest.approx(np.full(3, TRUE_SLOPE), rel=0.1)
    assert model.background[:, CPU] == pytest.approx(BACKGROUND, abs=3)


@SEEDS
def test_a_neighbour_for_a_while_does_not_bend_the_line(seed: int):
    """A burner of 35 points on one broker for 40 of 180 minutes: its slope stays, and its background after it."""
    model = fitted(180, seed, brokers=broker(1, bursts=[{"at_minutes": 50, "minutes": 40, "points": 35}]))

    assert sources(model)[1] is Source.FITTED
    assert model.slope[1, CPU] == pytest.approx(TRUE_SLOPE, rel=0.1)
    assert model.background[1, CPU] == pytest.approx(25, abs=3)


def test_a_neighbour_who_stays_is_background():
    """Of the last half hour: 25 points and the neighbour's 35."""
    model = fitted(180, brokers=broker(1, bursts=[{"at_minutes": 140, "minutes": 100, "points": 35}]))

    assert model.background[1, CPU] == pytest.approx(60, abs=4)
    assert model.slope[1, CPU] == pytest.approx(TRUE_SLOPE, rel=0.15)


@pytest.mark.landing
def test_noise_and_interval_are_told():
    """Noise of a point is found within a third; the interval holds the truth in nine of ten runs or more."""
    models = [fitted(60, seed) for seed in range(1, 13)]
    off = np.array([np.abs(one.slope[:, CPU] - TRUE_SLOPE / CAPACITY) <= one.half_width[:, CPU] for one in models])

    assert np.mean([one.noise[:, CPU] for one in models]) == pytest.approx(1, rel=0.33)
    assert off.mean() >= 0.85


def test_a_broker_without_traffic_takes_what_its_like_know():
    """All three have the same limits: the slope of the class, and a background of its own."""
    model = fitted(120, load=[{**LOAD, "brokers": ["a", "b"]}])

    assert [Source.FITTED, Source.FITTED, Source.CLASS] == sources(model)
    assert model.slope[2, CPU] == pytest.approx(TRUE_SLOPE, rel=0.1)
    assert model.background[2, CPU] == pytest.approx(12, abs=3)


@pytest.mark.parametrize(("more", "minutes"), [(1.5, 30), (1.2, 120)], ids=["by half", "by a fifth"])
@SEEDS
def test_how_much_change_is_enough(more: float, minutes: int, seed: int):
    """Slopes within a quarter, also of the broker that is twice as large and has the same limits."""
    wave = {"kind": "wave", "amplitude": (more - 1) / (more + 1), "period_hours": 1}
    model = fitted(minutes, seed, load=[{**LOAD, "shape": wave}])

    assert model.slope[:, CPU] * CAPACITY == pytest.approx(np.full(3, TRUE_SLOPE), rel=0.25)


def test_what_its_like_share_is_not_put_on_a_broker_that_belies_it():
    """Twenty minutes are too few to be sure, and enough to see that the third broker is another kind of machine."""
    wave = {"kind": "wave", "amplitude": 0.2, "period_hours": 1}
    models = [fitted(20, seed, load=[{**LOAD, "shape": wave}]) for seed in range(1, 6)]

    assert {Source.FITTED} == {sources(model)[2] for model in models}
    assert max(model.slope[2, CPU] for model in models) < 0.75 * TRUE_SLOPE


def test_traffic_that_never_changes_tells_nothing():
    """No slope for anybody, and whoever asks is told so."""
    model = fitted(180, load=[{**LOAD, "shape": {"kind": "steady"}}])

    assert [Source.UNKNOWN] * 3 == sources(model)
    assert [("a:8080", "cpu"), ("b:8080", "cpu"), ("c:8080", "cpu")] == list(model.unknown(Weights()))
    assert np.isinf(model.half_width[:, CPU]).all()


def test_no_traffic_at_all_tells_the_background():
    """Zero throughout: what is used is background."""
    model = fitted(60, load=[{**LOAD, "mib_per_second": 0}])

    assert [Source.UNKNOWN] * 3 == sources(model)
    assert model.background[:, CPU] == pytest.approx(BACKGROUND, abs=3)


def test_a_few_samples_are_no_evidence():
    """Five rounds through which a line would fit."""
    assert [Source.UNKNOWN] * 3 == sources(fitted(5, noise_points=0.01))


def test_resources_without_a_limit_have_no_slope():
    """Network cards whose speed nobody knows make no score; memory follows no traffic."""
    model = fitted(60)

    assert (Source.MEMORY, Source.MEMORY, Source.UNLIMITED, Source.UNLIMITED) == model.sources[0][1:]
    assert (model.slope[:, 1:] == 0).all()


def made(seed: int = 1, *, limit: float = 100.0, idle: bool = False, **slopes: float) -> BrokerSamples:
    """An hour of a broker whose messages change in size: points for each ``msg``, byte (``bytes``) and ``bytes_in``."""
    random = np.random.default_rng(seed)
    messages = random.uniform(1000, 5000, 60) * (0 if idle else 1)
    size = random.uniform(100, 2000, 60)
    carried = np.stack([messages, messages, messages * size, messages * size], axis=1)
    used = np.full((60, 5), np.nan)
    used[:, CPU] = 20 + slopes.get("msg", 0) * 2 * messages + slopes.get("bytes", 0) * 2 * messages * size
    used[:, BANDWIDTH_IN] = 5 + slopes.get("bytes_in", 0) * messages * size
    used[:, [CPU, BANDWIDTH_IN]] += random.standard_normal((60, 2))
    changes = np.full(60, 1000, dtype=np.int32)
    return BrokerSamples(60.0 * np.arange(60), carried, used, changes, (limit, 1e6))


def test_cpu_follows_what_explains_it_better():
    """Messages of changing size: messages where they cost, bytes where those do."""
    by_messages = fit({"a:80": made(msg=0.005), "b:80": made(2, msg=0.005)})
    by_bytes = fit({"a:80": made(bytes=2e-6), "b:80": made(2, bytes=2e-6)})

    assert ("msg_rate", "throughput") == (by_messages.measure, by_bytes.measure)
    assert by_messages.slope[:, CPU] == pytest.approx([0.005] * 2, rel=0.1)
    assert by_bytes.slope[:, CPU] == pytest.approx([2e-6] * 2, rel=0.1)


def test_bandwidth_follows_its_own_bytes():
    """A network card with a known limit gets a slope and a background as CPU does."""
    model = fit({"a:80": made(msg=0.005, bytes_in=5e-6)})

    assert Source.FITTED is model.sources[0][BANDWIDTH_IN]
    assert model.slope[0, BANDWIDTH_IN] == pytest.approx(5e-6, rel=0.1)
    assert model.background[0, BANDWIDTH_IN] == pytest.approx(5, abs=2)


def test_unlike_brokers_without_traffic_take_the_slope_of_all_and_say_so():
    """Nobody has the same limits: pooled; with four times the CPU a message takes a quarter of the points."""
    model = fit({"a:80": made(msg=0.005), "b:80": made(2, msg=0.005), "new:80": made(3, limit=400.0, idle=True)})

    assert [Source.FITTED, Source.FITTED, Source.POOLED] == sources(model)
    assert model.slope[2, CPU] == pytest.approx(0.005 / 4, rel=0.1)
    assert model.background[2, CPU] == pytest.approx(20, abs=2)


def test_at_its_limit_a_broker_tells_no_slope():
    """Samples at a hundred percent are left out, of however much traffic."""
    hot = made(msg=0.01)
    capped = replace(hot, used=np.minimum(hot.used, 100))

    assert (capped.used[:, CPU] == 100).sum() > 5
    assert fit({"a:80": capped}).slope[0, CPU] == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(("odd", "source"), [(1, Source.UNKNOWN), (2, Source.FITTED)])
def test_one_sample_beside_level_traffic_is_no_slope(odd: int, source: Source):
    """After a drain, the first sample without traffic; the second one tells whether it was right."""
    count = 16
    carried = np.zeros((count, 4))
    carried[: count - odd, 2] = 200e6
    used = np.full((count, 5), np.nan)
    used[:, CPU] = 20 + 0.15 * carried[:, 2] / 1e6 + np.sin(np.arange(count))
    since = np.ones(count, dtype=np.int32)
    own = BrokerSamples(60.0 * np.arange(count), carried, used, since, (100.0, 1.0, 1.0, 1.0, 1.0))
    model = fit({"a:80": own})

    assert model.sources[0][CPU] is source


SLOPES = [
    pytest.param([1, 1, 1, 1], Source.CLASS, id="all alike"),
    pytest.param([1, 1, 1, 3], Source.CLASS, id="one of four is another"),
    pytest.param([1, 1, 3, 3], Source.UNKNOWN, id="two kinds of machines that report like limits"),
]


@pytest.mark.parametrize(("slopes", "wanted"), SLOPES)
def test_what_many_belie_is_nobodys_slope(slopes: list[float], wanted: Source):
    """A broker whose traffic never changed takes the slope of its like, if those that know their own agree on one."""
    random = np.random.default_rng(1)
    found = {}
    for at, slope in enumerate([*slopes, 2]):
        traffic = np.full(40, 20.0) if at == len(slopes) else np.linspace(10, 30, 40)
        found[f"b{at}:80"] = samples(traffic, 10 + slope * traffic + random.standard_normal(40) / 10)

    assert fit(found).sources[-1][CPU] is wanted


def samples(traffic: np.ndarray[Any, Any], cpu: np.ndarray[Any, Any]) -> BrokerSamples:
    """Samples of a minute each; all traffic is bytes that come in."""
    number = traffic.size
    carried, used = np.zeros((number, 4)), np.full((number, 5), np.nan)
    carried[:, 2], used[:, CPU] = traffic, cpu
    return BrokerSamples(60.0 * np.arange(number), carried, used, np.arange(1, number + 1, dtype=np.int32), (100.0,))
