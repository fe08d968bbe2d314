"""Predicted scores against those that came, of a state directory that real turns left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.daemon.engine import engine
from lbd.store.predictions import NONE, Prediction, judged, predictions
from tests.test_turn import settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

SAMPLES = [(80, 45, 10), (81, 46, 11), (81, 46, 11), (64, 44, 30), (62, 45, 35), (60, 46, 36)]
"""Turn 2 moves three bundles from the first broker to the third; both have settled in turn 5."""


def balanced(pulsar: FakePulsar, folder: Path, turns: int) -> Path:
    """The state directory after so many turns."""
    chosen = settings(pulsar, folder, avg_shedder={})
    with engine(chosen) as balancer:
        for sample in SAMPLES[:turns]:
            pulsar.sample(*sample)
            balancer.turn()
            balancer.wait()
    return chosen.state_dir


def test_a_plan_predicts_one_score_of_each_broker(pulsar: FakePulsar, tmp_path: Path):
    """However many bundles it moves; the error is the median of what each missed."""
    source, _, destination = pulsar.ids
    past = predictions(balanced(pulsar, tmp_path, 6), time.time())
    tenths = [(one.turn, one.broker, one.before, round(one.predicted, 1), one.found) for one in past.last]
    assert tenths == [(2, source, 81.0, 50.6, 62.0), (2, destination, 11.0, 41.4, 35.0)]
    missed = [abs(one.found - one.predicted) for one in past.last]
    assert past.median_error_points == pytest.approx(sum(missed) / 2)
    assert past.summary == (
        "The last 2 predictions of a broker's score missed what came by 8.9 points in the median, by 11.4 at most."
    )


@pytest.mark.parametrize(("turns", "later_seconds"), [(1, 0), (4, 0), (6, 90_000)])
def test_nothing_is_claimed_that_cannot_be_compared(
    pulsar: FakePulsar, tmp_path: Path, turns: int, later_seconds: float
):
    """No move yet, its brokers not settled yet, or a move of more than a day ago."""
    past = predictions(balanced(pulsar, tmp_path, turns), time.time() + later_seconds)
    assert (past.last, past.median_error_points, past.summary) == ([], None, NONE)


def test_twenty_are_compared():
    """The newest ones."""
    many = [Prediction(turn, "b:1", 50.0, 40.0, 41.0) for turn in range(30, 0, -1)]
    assert [one.turn for one in judged(many).last] == list(range(30, 10, -1))


def test_a_store_that_cannot_be_read_is_said_and_takes_no_plan_away(tmp_path: Path):
    """A plan is shown without it, as before there were comparisons."""
    (tmp_path / "lbd.db").write_bytes(b"junk" * 1000)
    past = predictions(tmp_path, time.time())
    assert (past.last, past.median_error_points) == ([], None)
    assert past.summary.startswith("Earlier predictions cannot be compared: ")
    assert "store is damaged" in past.summary
