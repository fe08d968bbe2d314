"""Whether moves help, and standing still after some that did not."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from lbd.model import Unload
from lbd.permit.progress import JUDGED_WITHIN_SECONDS, Progress, Tried, judged, planned, standing_still, without
from lbd.permit.settings import Guardrails
from tests.builders import TAKEN_AT, bundle

ROUND_SECONDS = 600.0


def plan(*pairs: str) -> list[Unload]:
    """A move for each pair, such as ``ab``."""
    return [Unload(bundle(at), one[0], one[1], 1, 1) for at, one in enumerate(pairs)]


def after(*gaps: float | None, sent: bool = True, pair: str = "ab", **guardrails: float) -> Progress:
    """What is known after a round each: the first gap is before the first of them, the others after one each."""
    rails, found = Guardrails.model_validate(guardrails), Progress()
    for number, (before, gap) in enumerate(pairwise(gaps)):
        now = TAKEN_AT + number * ROUND_SECONDS
        found = planned(found, plan(pair), {pair[0]: before or 0.0, pair[1]: 0.0}, {}, now)
        found = judged(found, lambda *_, gap=gap: gap, sent=sent, now=now + 300, guardrails=rails)  # type: ignore[misc]
    return found


@pytest.mark.parametrize(
    ("gaps", "rounds", "stands"),
    [
        ((30.0, 30.0), 1, False),
        ((30.0, 30.0, 31.0), 2, False),
        ((30.0, 30.0, 31.0, 27.1), 3, True),
        ((30.0, 30.0, 31.0, 27.0), 0, False),
        ((30.0, 20.0), 0, False),
        ((30.0, 40.0, 50.0, 60.0), 3, True),
        ((30.0, 30.0, 29.0, 26.0, 26.0, 26.0), 2, False),
        ((30.0, 30.0, 29.0, 26.0, 26.0, 26.0, 26.0), 3, True),
    ],
)
def test_three_rounds_without_improvement(gaps: tuple[float, ...], rounds: int, stands: bool):
    """The gap is compared with that before the first of them; three points closer wipe the slate clean."""
    found = after(*gaps)
    assert (found.rounds, found.until > 0) == (rounds, stands)


def test_pairs_whose_load_changed_by_itself_are_not_judged():
    """Segments were split there: the gap tells nothing of the moves. Standing still goes on."""
    both = planned(Progress(), plan("ab", "cd"), {"a": 40.0, "b": 10.0, "c": 30.0, "d": 10.0}, {}, TAKEN_AT)
    assert [one.source for one in without(both, ["b"]).tried] == ["c"]
    assert without(both, ["a", "d", "x"]) == Progress()
    assert without(both, ["x"]) is both
    standing = after(30.0, 30.5, 31.0, 29.0)
    assert without(standing, ["a"]) is standing


def test_what_it_says():
    """What was tried, what it did, when it goes on, and which setting it is."""
    found = after(30.0, 30.5, 31.0, 29.0)
    now = TAKEN_AT + 2 * ROUND_SECONDS + 300 + 600
    assert standing_still(found, now, Guardrails()) == (
        "3 rounds of moves in a row brought no brokers closer, at best a -> b: 29.0 points apart, 30.0 before; "
        "goes on in 50 min (guardrails.stand_still_minutes)"
    )
    assert standing_still(Progress(), now, Guardrails()) is None
    assert standing_still(after(30.0, 30.0), now, Guardrails()) is None


@pytest.mark.parametrize(
    ("later_minutes", "guardrails", "stands"),
    [
        (0, {}, True),
        (59.9, {}, True),
        (60, {}, False),
        (20, {"stand_still_minutes": 10}, False),
        (0, {"stand_still_minutes": 0}, False),
        (-1, {}, False),
    ],
    ids=["at once", "to the end", "past it", "shortened meanwhile", "switched off", "the clock went back"],
)
def test_how_long_it_stands_still(later_minutes: float, guardrails: dict[str, float], stands: bool):
    """Never longer than the settings say; afterwards everything is tried anew."""
    found, rails = after(30.0, 30.0, 30.0, 30.0), Guardrails.model_validate(guardrails)
    now = TAKEN_AT + 2 * ROUND_SECONDS + 300 + later_minutes * 60
    assert (standing_still(found, now, rails) is not None) is stands
    again = judged(found, lambda *_: 30.0, sent=True, now=now, guardrails=rails)
    assert again == (found if stands else Progress())


def test_a_plan_of_which_nothing_was_sent_is_no_round():
    """Refused, held, or only shown: brokers did not come closer because nothing moved."""
    assert after(30.0, 30.0, 30.0, 30.0, sent=False) == Progress()


def test_brokers_that_have_not_settled_are_waited_for():
    """For a quarter of an hour: one that is gone will not say what the moves did."""
    begun = planned(Progress(), plan("ab"), {"a": 80.0, "b": 50.0}, {}, TAKEN_AT)
    for later, expected in ((60.0, begun), (JUDGED_WITHIN_SECONDS, Progress())):
        now = TAKEN_AT + later
        assert judged(begun, lambda *_: None, sent=True, now=now, guardrails=Guardrails()) == expected


def test_one_pair_that_came_closer_is_enough():
    """A broker that no move relieves does not keep the others from being relieved."""
    scores = {"a": 80.0, "b": 50.0, "c": 70.0, "d": 50.0}
    begun = planned(Progress(), plan("ab", "cd", "ab"), scores, {}, TAKEN_AT)
    assert begun.tried == (Tried("a", "b", 30.0, 30.0), Tried("c", "d", 20.0, 20.0))
    now = {("a", "b"): 31.0, ("c", "d"): 10.0}
    found = judged(begun, lambda *pair: now[pair], sent=True, now=TAKEN_AT + 300, guardrails=Guardrails())
    assert found == Progress()


def test_a_pair_keeps_the_gap_of_its_first_round():
    """Other pairs join with theirs; what has no score cannot be compared."""
    first = planned(Progress(), plan("ab"), {"a": 80.0, "b": 50.0}, {}, TAKEN_AT)
    second = planned(
        first, plan("ab", "ac", "xb", "ay"), {"a": 90.0, "b": 50.0, "c": 55.0, "y": math.nan}, {}, TAKEN_AT + 60
    )
    assert second.tried == (Tried("a", "b", 30.0, 30.0), Tried("a", "c", 35.0, 35.0))
    assert second.planned_at == TAKEN_AT + 60
    assert planned(first, [], {}, {}, TAKEN_AT + 60) == first


@pytest.mark.parametrize(
    ("predicted", "came", "rounds"), [(1.0, 0.3, 0), (1.0, 0.2, 1), (20.0, 2.9, 1), (20.0, 3.0, 0), (0.0, 1.0, 1)]
)
def test_moves_that_caps_keep_small_are_judged_by_what_they_could_do(predicted: float, came: float, rounds: int):
    """A quarter of what was predicted is progress, where that is less than the points wanted."""
    expected = {"a": 80.0 - predicted / 2, "b": 50.0 + predicted / 2}
    begun = planned(Progress(), plan("ab"), {"a": 80.0, "b": 50.0}, expected, TAKEN_AT)
    found = judged(begun, lambda *_: 30.0 - came, sent=True, now=TAKEN_AT + 300, guardrails=Guardrails())
    assert found.rounds == rounds


def test_slow_moves_are_waited_for():
    """The quarter of an hour begins when the last of them has ended."""
    begun = planned(Progress(), plan("ab"), {"a": 80.0, "b": 50.0}, {}, TAKEN_AT)
    moving = replace(begun, moving_at=TAKEN_AT + 2 * JUDGED_WITHIN_SECONDS)
    now = TAKEN_AT + 2.5 * JUDGED_WITHIN_SECONDS
    assert judged(moving, lambda *_: None, sent=True, now=now, guardrails=Guardrails()) == moving
    assert judged(moving, lambda *_: 30.0, sent=True, now=now, guardrails=Guardrails()).rounds == 1
