"""Rows of history into windows: whatever order they come in, and whatever is missing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.learn.window import (
    Window,
    as_one,
    bundle_traffic,
    from_bytes,
    hourly,
    joined,
    reported_traffic,
    to_bytes,
    without_bundles,
)
from lbd.model import RESOURCES
from tests.learn.windows import broker, bundle, minute, window

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU = RESOURCES.index("cpu")


def test_a_sample_stands_until_the_next():
    """A broker without a new sample has the one before; before its first it is not there."""
    found = window([broker(0, cpu=None), broker(1, cpu=20), broker(2, cpu=None), broker(3, cpu=40)])

    np.testing.assert_array_equal([np.nan, 20, 20, 40], found.used[:, 0, CPU])
    assert found.present[:, 0].tolist() == [False, True, True, True]
    assert found.fresh[:, 0].tolist() == [False, True, False, True]


def test_traffic_of_bundles_beside_that_of_their_brokers():
    """Each round has the last rates of each bundle with an owner, and the last totals of each broker that is there."""
    totals = {"throughput_in": 300.0, "throughput_out": 200.0}
    found = window(
        [*(broker(at, **totals) for at in range(4)), *(broker(at, "b", **totals) for at in (0, 1))],
        [bundle(0, "t/n/1"), bundle(0, "t/n/2", "b"), bundle(1, "t/n/1", "b", 150.0), bundle(3, "t/n/2", None, 0.0)],
    )
    carried, reported = reported_traffic(found)

    assert carried.tolist() == [1000, 1000, 500, 500]
    assert reported.tolist() == [400, 500, 500, 300]


def test_traffic_of_each_bundle_over_an_hour():
    """Its rates in + out, round by round, while somebody owns it."""
    found = window(
        [broker(at) for at in range(4)],
        [bundle(0, "t/n/1"), bundle(0, "t/n/2"), bundle(1, "t/n/1", "a", 150.0), bundle(3, "t/n/2", None, 70.0)],
    )

    assert bundle_traffic(found).tolist() == [200 + 3 * 300, 3 * 200]


def test_no_bundle_is_no_reported_traffic():
    """Brokers carry theirs all the same; a total that is not known counts as none."""
    carried, reported = reported_traffic(window([broker(0, throughput_in=5.0, throughput_out=1.0), broker(0, "b")]))

    assert (carried.tolist(), reported.tolist()) == ([6], [0])


def test_a_broker_without_a_report_is_away():
    """Though it has been there."""
    found = window([broker(0), broker(0, "b"), broker(1), broker(2), broker(2, "b", cpu=None)])

    assert found.brokers == ("a", "b")
    assert found.present[:, 1].tolist() == [True, False, True]


def test_doubt_lasts_as_long_as_its_sample():
    """And no longer."""
    found = window([broker(0, doubt="first sample"), broker(1, cpu=None), broker(2)])

    assert found.doubted[:, 0].tolist() == [True, True, False]


def test_a_resource_that_nobody_told_is_not_a_number():
    """Null in the table."""
    assert np.isnan(window([broker(0)]).used[0, 0, RESOURCES.index("bandwidth_in")])


@pytest.mark.parametrize(
    ("rows", "owners"),
    [
        ([bundle(0), bundle(1, owner="b")], [0, 1]),
        ([bundle(1, owner="b"), bundle(0)], [0, 1]),
        ([bundle(0), bundle(1, owner=None)], [0, -1]),
        ([bundle(0), bundle(1, owner="gone")], [0, -1]),
        ([bundle(0), bundle(0.5, owner="b")], [0, 1]),
        ([bundle(0), bundle(9, owner="b")], [0]),
    ],
    ids=["in order", "any order", "nobody", "a broker without reports", "between rounds", "after the last round"],
)
def test_owners_change_in_the_round_that_says_so(rows: list[dict[str, object]], owners: list[int]):
    """A change between two rounds is seen in the second; one after all of them never."""
    found = window([broker(0), broker(0, "b"), broker(1), broker(1, "b")], rows)

    assert found.change_owner.tolist() == owners
    assert found.change_round.tolist() == list(range(len(owners)))
    assert [part.stop - part.start for part in found.changes()] == [1, len(owners) - 1]


@pytest.mark.parametrize("rate", [None, float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_none(rate: float):
    """Such a bundle carries nothing."""
    found = window([broker(0)], [bundle(0, msg_rate_in=rate)])

    assert found.change_rates.tolist() == [[0, 100, 100, 100]]


def test_nothing_at_all_is_a_window_without_rounds():
    """Bundles of a stretch in which no broker reported."""
    found = window([], [bundle(0)])

    assert (found.at.size, found.brokers, found.change_round.size) == (0, (), 0)


def test_a_window_may_begin_later():
    """What had changed before is there in its first round."""
    rows = [bundle(0), bundle(1, rate=200), bundle(2, rate=300)]
    found = window([broker(number) for number in range(3)], rows).from_round(1)

    assert found.at.tolist() == [minute(1).timestamp(), minute(2).timestamp()]
    assert found.change_round.tolist() == [0, 0, 1]


ROWS = st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.none() | st.floats(0, 100))
CHANGES = st.tuples(st.integers(0, 5), st.sampled_from(["t/n/1", "t/n/2"]), st.sampled_from([None, "a", "b"]))


@given(
    st.lists(ROWS, unique_by=lambda row: row[:2]),
    st.lists(CHANGES, unique_by=lambda row: row[:2]),
    st.randoms(use_true_random=False),
)
def test_packing_knows_no_order_and_loses_nothing(
    rows: list[tuple[int, str, float | None]], changes: list[tuple[int, str, str | None]], shuffled: object
):
    """Rows in any order make the same window, and bytes bring it back."""
    reports, owners = [broker(*row) for row in rows], [bundle(*row) for row in changes]
    found = window(reports, owners)
    shuffled.shuffle(reports)  # type: ignore[attr-defined]
    shuffled.shuffle(owners)  # type: ignore[attr-defined]

    same(found, window(reports, owners))
    same(found, from_bytes(to_bytes(found)))


def same(first: Window, second: Window) -> None:
    """Equal in every field."""
    for name in Window.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


class TestJoined:
    """Two stretches become one."""

    def test_bundles_and_brokers_are_found_by_name(self):
        """What the first has and the second has not is gone, with its broker."""
        first = window([broker(0), broker(0, "c"), broker(1), broker(1, "c")], [bundle(0, "x"), bundle(0, "y", "c")])
        second = window([broker(2), broker(2, "b"), broker(3), broker(3, "b")], [bundle(2, "y", "b")])
        found = joined(first, second)

        assert (found.brokers, found.bundles) == (("a", "b", "c"), ("x", "y"))
        assert found.present.tolist() == [[True, False, True]] * 2 + [[True, True, False]] * 2
        changes = zip(found.change_round, found.change_bundle, found.change_owner, strict=True)
        assert [tuple(map(int, one)) for one in changes] == [(0, 0, 0), (0, 1, 2), (2, 0, -1), (2, 1, 1)]

    @pytest.mark.parametrize(("first_minute", "present"), [(4, True), (8, False)], ids=["soon", "late"])
    def test_a_broker_is_there_until_its_next_sample(self, first_minute: int, present: bool):
        """If that comes soon: a stretch begins between two samples of each."""
        first = window([broker(0), broker(0, "b", cpu=70)])
        rows = [broker(minute) for minute in range(2, 10)]
        rows += [broker(minute, "b", cpu=20 if minute == first_minute else None) for minute in range(2, 10)]
        found = joined(first, window(rows))

        assert found.present[1].tolist() == [True, present]
        assert not found.fresh[1, 1]
        assert found.used[1, 1, CPU] == 70 or not present


class TestHourly:
    """A stretch hour by hour is the stretch."""

    HOUR = int(minute(0).timestamp() // 3600)

    def hours(self, *numbers: int) -> tuple[Window, list[tuple[int, Window]]]:
        """The brokers of these hours, two samples each, and the hours; a second bundle is on ``b`` from the first on,
        and history has it once more on each hour but the fourth.
        """
        reports, changes = [], {}
        for number in numbers:
            reports += [broker(number * 60 + at, name) for at in (0, 30) for name in "ab"]
            changes[number] = [bundle(number * 60), bundle(number * 60 + 30, rate=number)]
            changes[number] += [bundle(number * 60, "t/n/2", "b")] if number != 3 else []
        whole = without_bundles(window(reports), ("t/n/1", "t/n/2"))
        own = [
            (self.HOUR + number, window([row for row in reports if row["t"].hour == number], rows))
            for number, rows in changes.items()
        ]
        return whole, own

    def test_together_they_are_what_was_packed_at_once(self):
        """Rounds, brokers and bundles have the numbers of all of it."""
        whole, own = self.hours(0, 1, 2)
        changes = [row for number in range(3) for row in (bundle(number * 60), bundle(number * 60 + 30, rate=number),
                                                          bundle(number * 60, "t/n/2", "b"))]  # fmt: skip
        reports = [broker(number * 60 + at, name) for number in range(3) for at in (0, 30) for name in "ab"]

        same(as_one(hourly(whole, own)), window(reports, changes))

    def test_no_more_than_an_hour_is_read_before_it_is_asked_for(self):
        """However long the stretch is."""
        whole, own = self.hours(0, 1, 2)
        read: list[int] = []

        def reading() -> Iterator[tuple[int, Window]]:
            for number, hour in own:
                read.append(number - self.HOUR)
                yield number, hour

        for number, _ in enumerate(hourly(whole, reading())):
            assert read == list(range(number + 1))

    @pytest.mark.parametrize(("hours", "owner"), [((0, 1, 3), -1), ((0, 1, 2, 3), 1)], ids=["a hole", "none"])
    def test_a_bundle_that_is_not_there_after_a_hole_is_gone(self, hours: tuple[int, ...], owner: int):
        """Without a hole nobody needs to tell of it again."""
        together = as_one(hourly(*self.hours(*hours)))
        last = np.flatnonzero(together.change_bundle == 1)[-1]

        assert together.change_owner[last] == owner
