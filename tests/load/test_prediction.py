"""What a move is expected to do to scores."""

from __future__ import annotations

import pytest

from lbd.load.estimate import points, smallest_gap
from lbd.load.scoring import Weights, scores
from lbd.model import Unload
from tests.builders import bundle, report, snapshot, stats


def test_a_bundle_weighs_its_share_of_the_source():
    """A quarter of the messages of a broker at 80 points is 20 points."""
    seen = snapshot({"a:80": report(80, {bundle(1): stats(100), bundle(2): stats(300)}), "b:80": report(10)})
    move = Unload(bundle(1), "a:80", "b:80", msg_rate=200, throughput=20_000)

    assert 20 == points(move, seen.brokers, scores(seen.brokers, Weights()), seen.brokers.index())


def test_nothing_is_promised_of_a_source_without_traffic():
    """Infinite points fit nowhere."""
    seen = snapshot({"a:80": report(80), "b:80": report(10)})

    assert float("inf") == points(
        Unload(bundle(1), "a:80", "b:80", 0, 0), seen.brokers, scores(seen.brokers, Weights()), seen.brokers.index()
    )


@pytest.mark.parametrize(
    ("hot", "cold", "left"),
    [
        ((60.0, 3000.0), (20.0, 1000.0), 0.0),
        ((60.0, 3000.0), (0.0, 0.0), 0.0),
        ((90.0, 3000.0), (20.0, 2000.0), 40.0),
        ((90.0, 1000.0), (20.0, 2000.0), 70.0),
        ((90.0, 0.0), (20.0, 0.0), 70.0),
    ],
    ids=["all traffic", "empty destination", "partly background", "traffic the other way", "no traffic"],
)
def test_what_levelling_cannot_take_away(hot: tuple[float, float], cold: tuple[float, float], left: float):
    """Scores are proportional to traffic at best; the rest of a gap is background."""
    assert max(smallest_gap(hot, cold), 0.0) == pytest.approx(left)
