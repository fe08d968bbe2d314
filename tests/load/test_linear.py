"""What a broker would use with other bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.load import estimate
from lbd.load.estimate import CPU, Source, background_as_recorded, carried, driving, scores, usage
from lbd.load.scoring import Weights
from lbd.simulate.cluster import points_at, rates_at
from lbd.simulate.world import MIB
from tests.load.histories import THREE
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray

RATES = np.array([[10.0, 20.0, 1000.0, 2000.0], [5.0, 5.0, 500.0, 500.0], [0.0, 1.0, 0.0, 100.0]])
MODEL = estimate.fixed_model(["a:80", "b:80"], np.array([10.0, 30.0]), np.array([0.01, 0.005]))


def what_if(
    model: estimate.LoadModel, rates: FloatArray, owner: IntArray, background: FloatArray | None = None
) -> FloatArray:
    """Usage in percent of each broker if it owned these bundles."""
    idle = model.background if background is None else background
    return usage(idle, model.slope, driving(carried(rates, owner, len(model.brokers)), model.measure))


def test_each_owner_carries_its_bundles():
    """Rates are summed by owner; who owns nothing carries nothing."""
    assert [[10, 21, 1000, 2100], [5, 5, 500, 500], [0, 0, 0, 0]] == carried(
        RATES, np.array([0, 1, 0], dtype=np.int32), 3
    ).tolist()


def test_background_and_slope_make_the_usage():
    """30 + 0.005 x 3000 bytes/s in and out is 45; without bundles background is left."""
    found = what_if(MODEL, RATES[:1], np.array([1], dtype=np.int32))

    assert [10.0, 45.0] == found[:, CPU].tolist()
    assert [10.0, 45.0] == scores(found, Weights()).tolist()


def test_cpu_may_follow_messages():
    """Whichever explains it better; bandwidth follows its own bytes, memory nothing."""
    assert [[30, 0, 0, 1000, 2000]] == driving(RATES[:1], "msg_rate").tolist()
    assert [[3000, 0, 0, 1000, 2000]] == driving(RATES[:1], "throughput").tolist()


@given(st.lists(st.integers(0, 1), min_size=3, max_size=3), st.lists(st.floats(31, 90), min_size=2, max_size=2))
def test_as_it_was_owned_it_is_as_recorded(owner: list[int], cpu: list[float]):
    """With the background of a round and the owners of that round, the model gives back what was seen."""
    owners = np.array(owner, dtype=np.int32)
    percent = np.zeros((2, 5))
    percent[:, CPU] = [value + 31 for value in cpu]
    background = background_as_recorded(MODEL, percent, carried(RATES, owners, 2))

    assert what_if(MODEL, RATES, owners, background)[:, CPU] == pytest.approx(percent[:, CPU])


def test_a_model_by_decree_says_so():
    """Given for CPU, nothing for the rest; it can be asked for some of its brokers, in any order."""
    chosen = MODEL.of(["b:80"])

    assert (("b:80",), Source.GIVEN) == (chosen.brokers, chosen.sources[0][CPU])
    assert ([30.0], [0.005]) == (chosen.background[:, CPU].tolist(), chosen.slope[:, CPU].tolist())
    assert () == MODEL.unknown(Weights())
    with pytest.raises(KeyError):
        MODEL.of(["c:80"])


def test_a_broker_of_which_nothing_is_known_has_no_score():
    """Not 0, which would make it the best of all destinations."""
    percent = np.array([[np.nan] * 5, [np.nan, 90, 40, 7, np.nan]])

    assert [True, False] == np.isnan(scores(percent, Weights())).tolist()
    assert 7 == scores(percent, Weights())[1]


@given(st.integers(0, 1000), st.integers(0, 7200))
def test_the_simulated_cluster_is_this_model(seed: int, seconds: int):
    """Unlike brokers under a wave of traffic: the same points, as far as a machine has them."""
    world, state = begun(seed, **THREE)
    model = estimate.fixed_model(world.brokers, world.background, world.points_per_mib / world.capacity / 2 / MIB)
    rates = rates_at(world, seconds)
    found = what_if(model, rates, state.owner)[:, CPU]

    assert points_at(world, state.owner, rates, seconds) == pytest.approx(np.minimum(found, 100))
