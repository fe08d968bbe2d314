"""Just the moves of a plan that was seen, from where the bundles were then."""

from __future__ import annotations

import numpy as np

from lbd.decide.manual import ByPlan
from lbd.load.scoring import Weights
from lbd.model import Memory
from lbd.reason import Reason
from tests.builders import bundle, first_averages, permission, report, snapshot, stats

SEEN = snapshot({"a:1": report(80, {bundle(0): stats(500), bundle(1): stats(500)}), "b:1": report(10, {})})


def decided(*moves: tuple[str, str, str], **permitted: object):
    """The decision about these moves."""
    plan = ByPlan(moves, Weights(), "because")
    return plan(SEEN, first_averages(SEEN), permission(SEEN, **permitted), Memory())


def test_each_move_is_wanted_as_it_was_planned():
    """With what the averages say of it."""
    found = decided((bundle(0), "a:1", "b:1"), (bundle(1), "a:1", "b:1"))
    assert [(one.bundle, one.source, one.destination) for one in found.unloads] == [
        (bundle(0), "a:1", "b:1"),
        (bundle(1), "a:1", "b:1"),
    ]
    assert {(one.reason, one.msg_rate) for one in found.unloads} == {("because", 1000.0)}


def test_what_cannot_be_made_any_more_is_told_move_by_move():
    """Another owner, on no report, barred; the others stay wanted."""
    moves = (bundle(0), "b:1", "b:1"), (bundle(9), "a:1", "b:1"), (bundle(1), "a:1", "b:1")
    found = decided(*moves)
    assert [one.bundle for one in found.unloads] == [bundle(1)]
    assert {skip.what: skip.reason for skip in found.skips} == {
        bundle(0): Reason.OWNER_CHANGED,
        bundle(9): Reason.ON_NO_REPORT,
    }
    barred = decided((bundle(0), "a:1", "b:1"), barred={bundle(0): Reason.COOL_DOWN})
    assert (barred.unloads, [skip.reason for skip in barred.skips]) == ((), [Reason.COOL_DOWN])


def test_no_plan_is_made_true_on_reports_that_do_not_show_the_last_one():
    """Applied twice in a minute, it would move a second half of the same difference."""
    move = bundle(0), "a:1", "b:1"
    for settled in ([False, True], [True, False]):
        found = decided(move, settled=np.array(settled))
        assert (found.unloads, [skip.reason for skip in found.skips]) == ((), [Reason.SETTLING])


def test_a_plan_takes_nothing_off_a_source_that_is_left_out():
    """A person approved it on a report that was trusted; what came since then is judged as in any turn."""
    seen = snapshot({"a:1": report(80, {bundle(0): stats(500), bundle(1): stats(500)}), "b:1": report(10, {})})
    allowed = permission(seen, paired=np.array([Reason.IMPOSSIBLE_NUMBER.code, 0], dtype=np.int8))
    found = ByPlan(((bundle(0), "a:1", "b:1"),), Weights(), "because")(seen, first_averages(seen), allowed, Memory())
    assert (found.unloads, [skip.reason for skip in found.skips]) == ((), [Reason.IMPOSSIBLE_NUMBER])
