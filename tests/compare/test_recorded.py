"""What recorded brokers would have reported under other owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.compare.side_by_side import Recorded, reported_scores
from lbd.load import estimate
from lbd.load.scoring import Weights
from lbd.observe.parse import TOP_BUNDLES_REPORT, Usage
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.compare.side_by_side import RecountedRound
    from lbd.model import Snapshot

A, B = "a:80", "b:80"
MODEL = estimate.fixed_model([A, B], np.zeros(2), np.array([0.001, 0.0005]))
"""A tenth of a point for each msg/s in (of 100 bytes, in and out 200 bytes/s) on a, half of that on b: 0.2 and 0.1."""


def seen(at: int, cpu_a: float, cpu_b: float, owners: Mapping[int, str] | None = None) -> Snapshot:
    """A minute's round; bundles 1 and 2 of 100 msg/s each way are on a unless said."""
    where = owners or {1: A, 2: A}
    own = {name: {bundle(one): stats(100) for one in where if where[one] == name} for name in (A, B)}
    return snapshot({A: report(cpu_a, own[A]), B: report(cpu_b, own[B])}, TAKEN_AT + 60 * at)


def cpus(found: RecountedRound) -> list[float]:
    return found.snapshot.brokers.usage[:, 0].round(6).tolist()


def bundles(found: RecountedRound) -> dict[str, list[str]]:
    """Who reports which bundles."""
    own, rows = found.snapshot, found.snapshot.rows
    return {
        name: sorted(own.bundles[one] for one in rows.bundle[rows.of(at)].tolist())
        for at, name in enumerate(own.brokers.ids)
    }


@given(st.lists(st.tuples(st.floats(1, 99), st.floats(1, 99)), min_size=1, max_size=5))
def test_a_plan_that_moves_nothing_reports_what_was_recorded(samples: list[tuple[float, float]]):
    """To the last bit: rounds pass through untouched."""
    recorded = Recorded(MODEL)
    for at, pair in enumerate(samples):
        assert recorded.round(seen(at, *pair)).snapshot.brokers.usage[:, 0].tolist() == list(pair)


def test_a_moved_bundle_takes_its_points_along():
    """20 points of a's slope leave a, 10 of b's come to b; what else the brokers do is as recorded."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    recorded.move(bundle(1), B)
    found = recorded.round(seen(1, 61, 25))

    assert [41, 35] == cpus(found)
    assert {A: [bundle(2)], B: [bundle(1)]} == bundles(found)
    assert [20_000, 20_000] == found.snapshot.brokers.rates[:, 2:].sum(axis=1).tolist()
    assert [1, 1] == found.snapshot.brokers.topics.tolist()


def test_what_no_new_sample_shows_is_not_shown():
    """Between two samples a broker reports what it did; the next one is of the whole time between."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    recorded.round(seen(1, 60, 20))
    recorded.move(bundle(1), B)
    still = recorded.round(seen(2, 60, 20))
    later = recorded.round(seen(3, 61, 25))

    assert [60, 20] == cpus(still)
    assert [61 - 20 * 2 / 3, 25 + 10 * 2 / 3] == pytest.approx(cpus(later))


def test_memory_read_anew_is_no_sample():
    """Only CPU and bandwidth tell a new one; memory is shown as it was read."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    recorded.move(bundle(1), B)
    report_a = report(60, {bundle(1): stats(100), bundle(2): stats(100)}, memory=Usage(123.0, 400.0))
    found = recorded.round(snapshot({A: report_a, B: report(20)}, TAKEN_AT + 60))

    assert [60, 20] == cpus(found)
    assert [123, 100] == found.snapshot.brokers.usage[:, 1].tolist()


def test_moves_of_the_record_are_not_the_plans():
    """What was moved when it was recorded is still with a, which has its points back, until the plan moves it."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    found = recorded.round(seen(1, 40, 30, {1: B, 2: A}))
    recorded.move(bundle(1), B)
    after = recorded.round(seen(2, 41, 31, {1: B, 2: A}))

    assert ({A: [bundle(1), bundle(2)], B: []}, [60, 20]) == (bundles(found), cpus(found))
    assert ({A: [bundle(2)], B: [bundle(1)]}, [41, 31]) == (bundles(after), cpus(after))


def test_topics_of_bundles_that_no_broker_tells_of_stay():
    """Where only the largest are told of: a broker has the topics that it says, and those of what the plan gave it."""
    untold = {"load_report_type": TOP_BUNDLES_REPORT, "bundles": [bundle(1), bundle(2), bundle(9)], "num_topics": 50}
    told = {bundle(1): stats(100, topics=3), bundle(2): stats(100, topics=4)}
    rounds = [snapshot({A: report(60, told, **untold), B: report(20)}, TAKEN_AT + 60 * at) for at in (0, 1)]
    recorded = Recorded(MODEL)
    recorded.round(rounds[0])
    recorded.move(bundle(1), B)
    assert recorded.round(rounds[1]).snapshot.brokers.topics.tolist() == [47, 3]


def test_where_a_broker_is_gone_its_bundles_are_as_recorded():
    """The plan's owner left: the record says who took the bundle."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    recorded.move(bundle(1), B)
    recorded.round(seen(1, 61, 21))
    alone = snapshot({A: report(62, {bundle(1): stats(100), bundle(2): stats(100)})}, TAKEN_AT + 120)

    assert {A: [bundle(1), bundle(2)]} == bundles(recorded.round(alone))


def test_a_bundle_on_two_reports_is_on_one():
    """While it changes hands in the record it is where the plan has it, once."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    both = {bundle(1): stats(100), bundle(2): stats(100)}
    found = recorded.round(snapshot({A: report(61, both), B: report(21, {bundle(1): stats(9)})}, TAKEN_AT + 60))

    assert {A: [bundle(1), bundle(2)], B: []} == bundles(found)
    assert [20_000, 20_000] == found.snapshot.rows.rates[:, 2:].sum(axis=1).tolist()


def test_usage_stays_within_what_a_machine_has():
    """Neither below nothing, which would be no sample, nor above the limit."""
    steep = estimate.fixed_model([A, B], np.zeros(2), np.array([1.0, 1.0]))
    recorded = Recorded(steep)
    recorded.round(seen(0, 60, 20))
    recorded.move(bundle(1), B)

    assert [0.01, 100] == cpus(recorded.round(seen(1, 61, 21)))


def test_a_new_sample_at_either_end_is_a_new_one():
    """Else lbd would take the broker's report for one that stands still."""
    recorded = Recorded(estimate.fixed_model([A, B], np.zeros(2), np.array([1.0, 1.0])))
    recorded.move(bundle(1), B)
    shown = [recorded.round(seen(at, cpu, cpu)).snapshot.brokers.usage[:, 0] for at, cpu in ((1, 60), (2, 61), (3, 61))]
    assert [0.01, 100] == shown[1].round(6).tolist()
    assert [[True, True], [False, False]] == [(shown[0] != shown[1]).tolist(), (shown[1] != shown[2]).tolist()]


@pytest.mark.parametrize("cpu", [float("nan"), float("inf"), -5.0, 1e-7])
def test_impossible_numbers_score_nothing(cpu: float):
    """They are left as they are, so that lbd sees them; told as a score they are none, and spoil no others."""
    recorded = Recorded(MODEL)
    recorded.round(seen(0, 60, 20))
    recorded.move(bundle(1), B)
    found = recorded.round(seen(1, cpu, 25)).snapshot

    assert found.brokers.usage[0, 0] == pytest.approx(cpu, nan_ok=True)
    assert reported_scores(found, Weights()).tolist() == pytest.approx([0, 35], abs=1e-6)
