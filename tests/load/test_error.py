"""The error of the load model on moves that happened, where the truth is known, and on real brokers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.compare.side_by_side import recordings
from lbd.load.estimate import CPU, fixed_model
from lbd.load.fit import fit
from lbd.load.model_error import measure
from lbd.load.samples import gather
from lbd.load.scoring import Weights
from lbd.simulate.cluster import moved
from tests.load.histories import THREE, rounds

if TYPE_CHECKING:
    from lbd.load.model_error import ModelError
    from lbd.simulate.world import ClusterState, World

ROOT = Path(__file__).parents[2]


def moving(world: World, state: ClusterState) -> ClusterState:
    """From the second hour on, every quarter of an hour four bundles go to the next broker."""
    if state.seconds >= 3600 and state.seconds % 900 == 0:
        first = state.seconds // 900 * 7 % len(world.bundles)
        for bundle in range(first, min(first + 4, len(world.bundles))):
            state = moved(state, bundle, (int(state.owner[bundle]) + 1) % len(world.brokers))
    return state


def simulated(minutes: int = 240, seed: int = 1) -> ModelError:
    return measure(gather(rounds(minutes, THREE, seed, moving)), Weights())


@pytest.mark.landing
@pytest.mark.parametrize("seed", range(1, 3))
def test_simulated_moves_are_predicted_within_the_noise(seed: int):
    """A sample has a point of noise: two points off on average at most, and nearly no bias."""
    error = simulated(seed=seed)

    assert error.number >= 5
    assert error.mean_absolute < 2
    assert error.p95 < 5
    assert abs(error.bias) < 1.5
    assert error.mean_absolute < 0.6 * error.unchanged_mean_absolute


@pytest.mark.landing
def test_a_model_that_is_wrong_is_seen_to_be():
    """Twice the slope, by decree: off on the high side where bundles came, and more than the fitted one."""
    samples = gather(rounds(240, THREE, 1, moving))
    fitted = fit(samples)
    doubled = fixed_model(fitted.brokers, fitted.background[:, CPU], 2 * fitted.slope[:, CPU])

    assert measure(samples, Weights(), doubled).mean_absolute > 2 * measure(samples, Weights()).mean_absolute


def test_without_a_move_nothing_is_claimed():
    """No number instead of a good one."""
    error = measure(gather(rounds(60, THREE)), Weights())

    assert (0, 0) == (error.number, error.unpredicted)
    assert math.isnan(error.mean_absolute)


def test_moves_before_anything_is_known_are_counted_apart():
    """The model cannot be asked for them."""

    def at_once(world: World, state: ClusterState) -> ClusterState:
        return moved(state, 0, (int(state.owner[0]) + 1) % len(world.brokers)) if state.seconds == 180 else state

    error = measure(gather(rounds(30, THREE, 1, at_once)), Weights())

    assert (0, 2) == (error.number, error.unpredicted)


@pytest.mark.parametrize(
    ("path", "number", "unpredicted", "off", "share"),
    [
        (ROOT / "examples" / "moves.jsonl.gz", 7, 0, 1.5, 1 / 5),
        (ROOT / "tests/data/recordings/moves-4.0.8.jsonl.gz", 5, 2, 3.5, 2 / 5),
    ],
    ids=["4.2.4", "4.0.8, busy"],
)
def test_moves_on_real_brokers(path: Path, number: int, unpredicted: int, off: float, share: float):
    """Brokers of 0.4 and 0.55, and of 0.3 to 0.5 cores: so many points off on average, such a share of "it stays"."""
    ((_, found),) = recordings(path)
    error = measure(gather(found), Weights())

    assert (number, unpredicted) == (error.number, error.unpredicted)
    assert error.mean_absolute < off
    assert error.mean_absolute < error.unchanged_mean_absolute * share


def test_slopes_of_real_brokers_stand_as_their_quotas():
    """0.4 and 0.55 cores: the reciprocal, within a tenth."""
    ((_, found),) = recordings(ROOT / "examples" / "moves.jsonl.gz")
    model = fit(gather(found))

    assert np.mean(model.slope[:2, CPU]) / model.slope[2, CPU] == pytest.approx(0.55 / 0.4, rel=0.1)
