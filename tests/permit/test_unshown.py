"""What moves have brought to brokers whose reports do not show it yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.load.scoring import Weights, scores
from lbd.model import LiveCpu
from lbd.permit.budget import Sent
from lbd.permit.predicted import borne, last_ended_at, shown_since, unshown, with_moved_traffic
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Snapshot

SEEN = snapshot({"a:1": report(40, {bundle(0): stats(100), bundle(1): stats(300)}), "b:1": report(20)})
SCORES = scores(SEEN.brokers, Weights())
THREE = snapshot(
    {"a:1": report(40, {bundle(0): stats(100), bundle(1): stats(300)}), "b:1": report(20), "c:1": report(20)}
)
THREE_SCORES = scores(THREE.brokers, Weights())
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


def test_a_bundle_counts_where_it_ended():
    """Not where it was meant to go: the broker that it came to instead has its load."""
    landed = replace(HALF_A_MINUTE_AGO, destination="c:1", owner="b:1")
    assert borne([landed], TAKEN_AT - 60, THREE, THREE_SCORES).tolist() == pytest.approx([0.0, 10.0, 0.0])


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"owner": "c:1"}, [0.0, 0.0, 10.0]),
        ({"destination": "a:1", "owner": "a:1"}, [0.0, 0.0, 0.0]),
        ({"failed": True, "owner": "b:1"}, [0.0, 10.0, 0.0]),
        ({"failed": True}, [0.0, 10.0, 0.0]),
    ],
    ids=["on to a third", "back", "stayed", "nobody knows where"],
)
def test_what_was_given_away_again_is_borne_no_more(second: dict[str, Any], expected: list[float]):
    """By the broker that had it in between, as little as by one that it came back to."""
    first = replace(HALF_A_MINUTE_AGO, owner="b:1")
    then = replace(Sent(first.at + 5, bundle(0), "b:1", "c:1", 2, 200.0, 20_000.0), **second)
    assert borne([first, then], TAKEN_AT - 60, THREE, THREE_SCORES).tolist() == pytest.approx(expected)


def test_until_a_move_has_ended_both_may_have_the_bundle():
    """The one that is to give it away, and the one that is to get it."""
    first = replace(HALF_A_MINUTE_AGO, owner="b:1")
    then = replace(first, at=first.at + 5, source="b:1", destination="c:1", owner=None)
    found = borne([first, then], TAKEN_AT - 60, THREE, THREE_SCORES)
    assert found[1] == pytest.approx(10.0)
    assert found[2] > 0


def test_a_bundle_of_which_nothing_is_known_weighs_once_at_each_that_may_have_it():
    """Also at one that was to get it twice."""
    sent = [
        replace(HALF_A_MINUTE_AGO, at=TAKEN_AT - ago, destination=to)
        for ago, to in ((30, "b:1"), (20, "c:1"), (10, "b:1"))
    ]
    assert borne(sent, TAKEN_AT - 60, THREE, THREE_SCORES).tolist() == pytest.approx([0.0, 10.0, 10.0])


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


@pytest.mark.parametrize(
    ("seconds", "ended_ago", "expected"),
    [(np.nan, 12.0, 10.0), (10.0, 12.0, 0.0), (10.0, None, 10.0)],
    ids=["report", "CPU of now", "not known to have ended"],
)
def test_cpu_of_now_shows_them_once_they_have_ended(seconds: float, ended_ago: float | None, expected: float):
    """It is of the time after that."""
    columns = np.array([np.nan, seconds]), np.full(2, np.nan), np.zeros(2)
    seen = replace(SEEN, brokers=replace(SEEN.brokers, live=LiveCpu(SEEN.brokers, *columns)))
    move = replace(HALF_A_MINUTE_AGO, ended_at=None if ended_ago is None else TAKEN_AT - ended_ago)
    found = unshown(SCORES, [move], seen, np.array([False, False]))
    assert found.tolist() == pytest.approx([0.0, expected])


def test_when_the_last_move_of_each_broker_had_ended():
    """Wherever it was sent and came to; one that has not ended, or of which nobody wrote when, has no end."""
    first = replace(HALF_A_MINUTE_AGO, ended_at=TAKEN_AT - 28)
    sent = [
        replace(first, at=TAKEN_AT - 61, source="old:1"),
        first,
        replace(first, ended_at=TAKEN_AT - 20, destination="c:1", owner="d:1"),
        replace(first, ended_at=None, source="e:1", destination=None),
    ]
    ends = {"a:1": TAKEN_AT - 20, "b:1": TAKEN_AT - 28, "c:1": TAKEN_AT - 20, "d:1": TAKEN_AT - 20, "e:1": np.inf}
    assert last_ended_at(sent, TAKEN_AT - 60) == ends


@pytest.mark.parametrize(
    ("landed_after", "turn_after", "since"),
    [(1.0, 5.0, 0.0), (3.0, 15.0, 0.0), (3.5, 15.0, 3.5), (3.5, 20.0, 0.0), (np.inf, 60.0, np.inf)],
    ids=["a fifth", "of 15 s", "more", "later", "under way"],
)
def test_from_when_on_cpu_shows_a_wave(landed_after: float, turn_after: float, since: float):
    """From its beginning where it landed within the first fifth of the time, else from its landing."""
    assert shown_since(TAKEN_AT, TAKEN_AT + landed_after, TAKEN_AT + turn_after) == TAKEN_AT + since


def test_what_reports_must_show_by_now_does_not_keep_cpu_of_now_from_counting():
    """A journal that was rotated carries over a day of moves without when they ended."""
    columns = np.array([np.nan, 15.0]), np.full(2, np.nan), np.zeros(2)
    seen = replace(SEEN, brokers=replace(SEEN.brokers, live=LiveCpu(SEEN.brokers, *columns)))
    an_hour_ago = replace(HALF_A_MINUTE_AGO, at=TAKEN_AT - 3600, bundle=bundle(1))
    sent = [an_hour_ago, replace(HALF_A_MINUTE_AGO, ended_at=TAKEN_AT - 28)]
    assert unshown(SCORES, sent, seen, np.array([False, False])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("interval", "ago", "expected"),
    [(60.0, 140, 10.0), (60.0, 160, 0.0), (180.0, 160, 10.0), (180.0, 440, 10.0), (180.0, 460, 0.0)],
)
def test_they_count_until_two_samples_must_have_come(interval: float, ago: float, expected: float):
    """Where brokers sample every three minutes a move of five minutes ago may show in none of them yet."""
    sent = [replace(HALF_A_MINUTE_AGO, at=TAKEN_AT - ago)]
    found = unshown(SCORES, sent, SEEN, np.array([False, False]), interval)
    assert found.tolist() == pytest.approx([0.0, expected])


def test_rates_beyond_all_numbers_of_another_broker_tell_nothing():
    """Not even a warning: they are looked at elsewhere."""
    absurd = report(20, {bundle(7): stats(1)}, msg_rate_in=1e308, msg_rate_out=1e308)
    seen = snapshot(
        {"a:1": report(40, {bundle(0): stats(100), bundle(1): stats(300)}), "b:1": report(20), "c:1": absurd}
    )
    found = borne([HALF_A_MINUTE_AGO], TAKEN_AT - 60, seen, scores(seen.brokers, Weights()))
    assert found.tolist() == pytest.approx([0.0, 10.0, 0.0])


MOVED, STAYS = bundle(0), bundle(1)
LANDED = replace(HALF_A_MINUTE_AGO, owner="b:1")


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ({MOVED: 100, STAYS: 300}, {}, (600, 200)),
        ({STAYS: 300}, {}, (600, 200)),
        ({MOVED: 100, STAYS: 300}, {MOVED: 40}, (600, 200)),
        ({STAYS: 300}, {MOVED: 110}, (600, 220)),
    ],
    ids=["not counted anew", "on neither report", "counted in part", "counted"],
)
def test_traffic_is_where_its_bundle_has_landed(
    source: dict[str, int], destination: dict[str, int], expected: tuple[int, int]
):
    """Whatever both reports have counted by now; in + out, of a bundle with 100 msg/s each way."""
    carried = {"a:1": source, "b:1": destination}
    seen = snapshot({one: report(40, {name: stats(rate) for name, rate in of.items()}) for one, of in carried.items()})
    found = with_moved_traffic(live(seen), [LANDED]).brokers
    assert found.rates[:, :2].sum(axis=1).tolist() == pytest.approx(list(expected))
    assert found.as_reported().rates.tolist() == seen.brokers.rates.tolist()


@pytest.mark.parametrize(
    "sent",
    [[], [replace(LANDED, owner=None)], [replace(LANDED, owner="c:1")], [replace(LANDED, owner="a:1")]],
    ids=["none", "under way", "elsewhere", "stayed"],
)
def test_only_what_has_landed_has_moved(sent: list[Sent]):
    """Of all else nobody knows where its traffic is."""
    assert with_moved_traffic(live(SEEN), sent).brokers.rates.tolist() == SEEN.brokers.rates.tolist()


def test_by_reports_alone_totals_stay_as_they_are():
    """They count again once two new samples show the move; by then the totals do, too."""
    assert with_moved_traffic(SEEN, [LANDED]) is SEEN


def live(seen: Snapshot) -> Snapshot:
    """The round with the CPU of now of all its brokers."""
    column = np.full(len(seen.brokers), 30.0)
    return replace(seen, brokers=replace(seen.brokers, live=LiveCpu(seen.brokers, column, column, column)))
