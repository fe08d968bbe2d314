"""The list of orders in force as a value: what two copies of it come to, whichever is older."""

from __future__ import annotations

import math
from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.store.orders import DRAIN, ENDS, PAUSE, ROLLOUT, Order, OrderList, next_number

NONE = OrderList({})
KEYS = (PAUSE, ROLLOUT, DRAIN + "a:80", DRAIN + "b:80")
ACTS = st.lists(st.tuples(st.sampled_from(["give", "amend", "end", "here"]), st.sampled_from(KEYS)), max_size=12)


def given_order(key: str, number: int, until: float | None = None) -> Order:
    """An order as a person gives it."""
    return Order(f"{key} {number}", key, {"until": until, "step": 0})


@pytest.mark.parametrize("until", [None, "soon", 10**400, -(10**400), math.nan])
def test_an_end_that_no_clock_shows_is_none(until: object):
    """As another version may have written it, or a damaged store has it: the order lasts until somebody ends it."""
    assert Order("a", PAUSE, {"until": until}).until == math.inf


def history(acts: list[tuple[str, str]]) -> list[OrderList]:
    """The list after each change, as its leaders publish it one after the other; the clock of each other one is wrong.

    ``here``: an order that was given at an lbd before it led, so that its own copy had it before any list did.
    """
    lists, time = [NONE], 1000.0
    for number, (act, key) in enumerate(acts):
        before, time = lists[-1], time + 1
        order = before.of(key)
        if act == "give":
            after = before.give(given_order(key, number), time)
        elif act == "here":
            copy = OrderList({"h": given_order(key, number)}).orders["h"]
            lists.append(OrderList({copy.id: copy}))
            after = before.merge(lists[-1])
        elif order is None:
            continue
        else:
            after = before.amend(order, {**order.body, "step": number}) if act == "amend" else before.end(key, time)
        lists.append(after.published(next_number(before, time * (number % 2)), time))
    return lists


@given(ACTS, st.data())
def test_merging_is_commutative_idempotent_and_associative(acts: list[tuple[str, str]], data: st.DataObject):
    """Copies of one history, however old, in whatever order, and however often they are merged."""
    copies = data.draw(st.lists(st.sampled_from(history(acts)), min_size=3, max_size=3))
    merged = {repr(reduce(OrderList.merge, order)) for order in permutations(copies)}
    assert len(merged) == 1
    first, second, third = copies
    assert first.merge(first) == first
    both = first.merge(second)
    assert both.merge(second) == both.merge(first) == both
    assert first.merge(second.merge(third)) == both.merge(third)


@given(ACTS, st.data())
def test_the_newest_list_wins_over_every_older_one(acts: list[tuple[str, str]], data: st.DataObject):
    """What ended in it stays ended, and what stands in it is as it stands there."""
    lists = history(acts)
    older = data.draw(st.lists(st.sampled_from(lists)))
    assert reduce(OrderList.merge, older, lists[-1]) == lists[-1]


@given(ACTS)
def test_of_each_key_one_published_order_is_in_force(acts: list[tuple[str, str]]):
    """Numbers only grow, also where the clock goes back."""
    published = [orders for orders in history(acts) if orders.number]
    assert [orders.number for orders in published] == sorted({orders.number for orders in published})
    for orders in published:
        keys = [order.key for order in orders.orders.values()]
        assert len(keys) == len(set(keys))
        assert all(0 < order.born <= orders.number for order in orders.orders.values())


def test_an_end_wins_over_a_later_version_that_was_not_published():
    """A leader wrote on, and was killed; the next one had ended the order by then."""
    order = given_order(ROLLOUT, 1)
    begun = NONE.give(order, 1.0).published(1000, 1.0)
    written_on = begun.amend(begun.orders[order.id], {"step": 7})
    ended = begun.end(ROLLOUT, 2.0).published(1001, 2.0)
    assert written_on.merge(ended) == ended.merge(written_on) == ended


def test_a_list_of_many_ends_stays_small_and_brings_nothing_back():
    """The number says of orders that were published that they have ended, when their ids are forgotten."""
    orders = NONE.give(given_order(PAUSE, 0), 0.5).published(1, 0.5)
    old = orders
    for number in range(1, 3 * ENDS):
        orders = orders.end(PAUSE, number).give(given_order(PAUSE, number), number).published(number + 1, number)
    assert len(orders.ended) == ENDS
    assert "pause 0" not in orders.ended
    assert orders.merge(old) == old.merge(orders) == orders


def test_what_no_list_had_is_not_judged_by_numbers():
    """A pause that was given while nobody led stands beside that of the leader, and the longer one is obeyed."""
    leaders = NONE.give(given_order(PAUSE, 1, 50.0), 1.0).published(10**12, 1.0)
    here = NONE.give(given_order(PAUSE, 2, 90.0), 1.0)
    both = here.merge(leaders)
    assert [order.id for order in both.orders.values()] == ["pause 1", "pause 2"]
    assert (both.of(PAUSE) or given_order(PAUSE, 0)).id == "pause 2"
    published = both.published(10**12 + 1, 2.0)
    assert list(published.orders) == ["pause 2"]
    assert published.merge(here) == published.merge(leaders) == published
