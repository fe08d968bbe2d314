"""What moves have brought to brokers whose reports do not show it yet."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.load.scoring import Weights, scores
from lbd.permit.budget import Sent
from lbd.permit.unshown import borne, unshown
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

SEEN = snapshot({"a:1": report(40, {bundle(0): stats(100), bundle(1): stats(300)}), "b:1": report(20)})
SCORES = scores(SEEN.brokers, Weights())
HALF_A_MINUTE_AGO = Sent(TAKEN_AT - 30, bundle(0), "a:1", "b:1", msg_rate=200.0, throughput=20_000.0)


def test_moves_of_late_count_where_they_went():
    """Those before, those that failed, and those to brokers without a report do not."""
    since = TAKEN_AT - 60
    sent = [
        HALF_A_MINUTE_AGO,
        Sent(since - 1, bundle(1), "a:1", "b:1", msg_rate=200.0, throughput=20_000.0),
        Sent(since + 1, bundle(1), "a:1", "b:1", msg_rate=200.0, failed=True),
        Sent(since + 2, bundle(1), "a:1", "gone:1", msg_rate=200.0),
    ]
    assert borne(sent, since, SEEN, SCORES).tolist() == pytest.approx([0.0, 10.0])


def test_all_that_a_broker_gave_is_no_more_than_what_it_had():
    """Its report shows most of the moves by now: measured by what it has left, each would weigh four times as much."""
    names = [bundle(number) for number in range(8)]
    seen = snapshot({"a:1": report(40, {names[0]: stats(100)}), "b:1": report(20)})
    sent = [Sent(TAKEN_AT, name, "a:1", "b:1", msg_rate=200.0, throughput=20_000.0) for name in names[1:]]
    assert borne(sent, TAKEN_AT, seen, SCORES).tolist() == pytest.approx([0.0, 40.0])


@pytest.mark.parametrize(("settled", "expected"), [(False, 10.0), (True, 0.0)])
def test_a_report_that_has_settled_shows_them(settled: bool, expected: float):
    """Nothing is counted twice."""
    found = unshown(SCORES, [HALF_A_MINUTE_AGO], SEEN, np.array([False, settled]))
    assert found.tolist() == pytest.approx([0.0, expected])


def test_rates_beyond_all_numbers_of_another_broker_tell_nothing():
    """Not even a warning: they are looked at elsewhere."""
    absurd = report(20, {bundle(7): stats(1)}, msg_rate_in=1e308, msg_rate_out=1e308)
    seen = snapshot(
        {"a:1": report(40, {bundle(0): stats(100), bundle(1): stats(300)}), "b:1": report(20), "c:1": absurd}
    )
    found = borne([HALF_A_MINUTE_AGO], TAKEN_AT - 60, seen, scores(seen.brokers, Weights()))
    assert found.tolist() == pytest.approx([0.0, 10.0, 0.0])
