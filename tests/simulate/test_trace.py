"""What a run leaves for its scorecard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.config import Settings
from lbd.simulate.run import Finished, finish
from lbd.simulate.scenario import settled
from tests.simulate.worlds import scenario

if TYPE_CHECKING:
    from lbd.score.bounds import BundleHistory
    from lbd.score.scorecard import Trace

SPIKE = {"kind": "spike", "to": 2, "at_minutes": 15, "minutes": 5}


def ran(**changes: Any) -> Finished:
    """Half an hour. Broker a has 60 points in six bundles, b none; half of it moves after a minute."""
    found = scenario(**{"hours": 0.5, **changes})
    settings = settled(found, Settings(), {"guardrails.max_traffic_per_turn": 1.0})
    return finish("a test", found, settings, 1)


def placement(trace: Trace) -> BundleHistory:
    """It is there."""
    assert trace.placement is not None
    return trace.placement


def test_the_load_is_the_heaviest_since_the_last_move():
    """Of a spike at 15 minutes the double, though the run ends without it."""
    load = {"name": "n", "brokers": ["a"], "mib_per_second": 20, "bundles": 6, "shape": SPIKE}
    run = ran(load=[load])
    assert placement(run.trace).sizes.sum() == pytest.approx(40)
    assert placement(ran().trace).sizes.sum() == pytest.approx(60)


def test_who_owned_what():
    """Six on a at first, three of them on b at last, and what that needed."""
    found = placement(ran().trace)
    assert found.first.tolist() == [0] * 6
    assert sorted(found.last.tolist()) == [0, 0, 0, 1, 1, 1]
    assert (found.peak(found.first), found.peak(found.last)) == (pytest.approx(60), pytest.approx(30))


def test_what_would_have_been():
    """Without the moves a keeps its 60 points to the end; what is carried is told by broker."""
    run = ran()
    unmoved = run.trace.unmoved()
    assert unmoved is not None
    assert np.allclose(unmoved, [60, 0])
    assert run.trace.points()[-1].tolist() == pytest.approx([30, 30])
    assert run.trace.carried()[-1].tolist() == pytest.approx([60 * 1024**2] * 2)
    assert run.card.unmoved is not None
    assert run.card.unmoved.gap_points == pytest.approx(60)


def test_a_broker_that_joins_is_not_there_before():
    """Its score is NaN until then."""
    points = ran(brokers=[{"id": "a"}, {"id": "b", "joins_at_minutes": 5}]).trace.points()
    assert np.isnan(points[:5, 1]).all()
    assert np.isfinite(points[5:]).all()


def test_moves_have_their_cost():
    """Each leaves its bundle unserved for a moment, and none is against a policy."""
    run = ran()
    assert 0.1 <= run.card.unserved_bundle_seconds / run.card.moves <= 2
    assert run.card.policy_violations == 0
