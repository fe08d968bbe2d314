"""What a person should do after a turn: a table of situations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.errors import ObserveError
from lbd.model import Hits, Skip, Unload
from lbd.permit.membership import Membership
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from lbd.store.proposal import Proposal
from lbd.turn.next_steps import next_steps
from lbd.turn.parts import TurnResult
from tests.builders import TAKEN_AT, bundle, report, stats
from tests.turn.records import COLD, HOT, altered, record, two

if TYPE_CHECKING:
    from lbd.observe.parse import LoadReport


AT_ONCE = {"hit_count_low": 1, "hit_count_high": 1}
ENDS = f"{HOT} -> {COLD}"
RAILS = Guardrails()
FULL = Skip(ENDS, Reason.HOUR_UNLOADS, "30 of 30 used", until=TAKEN_AT + 3000)
CALM = "Nothing: lbd goes on comparing the brokers in every turn"
WAITING = "Nothing, for about {}: lbd moves bundles if the brokers are still too far apart then"


def text_of(found: TurnResult, **more: Any) -> list[str]:
    """The steps as lines at the time of the round."""
    return [step.text(TAKEN_AT) for step in next_steps(found, RAILS, **more)]


BY_HAND = "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false"
LOOK = "Look whether the brokers without a usable report serve their clients: `lbd doctor`"
FOR_GOOD = "(--apply splits it, which cannot be undone)"
TO_MOVE = (
    "For lbd to move bundles, set mode: approve (a person applies each plan) or mode: auto, and restart it; "
    "what it would move"
)
NOT_URGENT = (
    "It is not urgent, as the brokers balance themselves. For lbd to do it, set in_broker_shedding to take-over, "
    "or turn their own shedding off"
)
CUT_SOLE = "See where the only bundle of the broker would be cut, so that lbd can move a part"
ONE_MORE = "the oldest of these moves is an hour old then, and another bundle may move"
FILL = "idle:8080 has no bundle; if it should carry load, see what it would be given, and add --apply"
HISTORY = (
    "To move sooner, raise guardrails.max_unloads_per_hour and reload lbd (SIGHUP), if what moved was right: "
    "`lbd history --since 1h --last 200`"
)


@pytest.mark.parametrize(
    ("seen", "changes", "first"),
    [
        (two(30, 20), {}, CALM),
        (two(), {}, WAITING.format("60 s")),
        (two(50, 20), {}, WAITING.format("7 min")),
        (two(50, 20), {"hits": {HOT: Hits(5, 0)}}, WAITING.format("2 min")),
        (two(), {"settings": AT_ONCE}, "Nothing: lbd plans again when the moves under way have ended"),
        (two(), {"hold": (Reason.PAUSED, "by alice")},
         "When the work is done, let lbd go on: `lbd resume`; or wait: lbd goes on when the pause ends"),
        (two(30, 20), {"hold": (Reason.OBSERVE_ONLY, "")}, CALM),
        (two(), {"settings": AT_ONCE, "acts": False},
         f"{TO_MOVE}: `lbd dry-run`"),
        (two(30, 20), {"hold": (Reason.IN_BROKER_SHEDDING, "")},
         f"{NOT_URGENT}: `{BY_HAND}`"),
        (two(rates=(5000.0,)), {"settings": AT_ONCE},
         f"{CUT_SOLE} {FOR_GOOD}: `lbd split {bundle(0)}`"),
        (two(rates=(5000.0, 1.0)),
         {"settings": AT_ONCE, "permitted": {"barred": {bundle(1): Reason.COOL_DOWN}}},
         f"See where the bundle that is too large to move would be cut {FOR_GOOD}: `lbd split {bundle(0)}`"),
        (two(), {"blocked": {ENDS: FULL}},
         f"{HISTORY}; or wait about 50 min: {ONE_MORE}"),
        (two(rates=(10.0,) * 8), {},
         f"Find what uses {HOT} beside its traffic: another process, compaction, a weaker machine: `lbd doctor`"),
        ({HOT: report(80.0)}, {},
         f"{LOOK}; or wait: it ends when half of the brokers, and two at least, have a usable report"),
    ],
)  # fmt: skip
def test_the_answer_to_each_situation(seen: dict[str, LoadReport], changes: dict[str, Any], first: str):
    """What to do with the names that it takes, or when it ends."""
    assert text_of(record(seen, **changes)) == [first]


def test_a_change_of_brokers_ends_at_a_time():
    """The one at which its hold does."""
    found = record(two(), hold=(Reason.MEMBERSHIP_CHANGED, "b joined, 20 s to wait"))
    assert found.facts is not None
    joined = replace(found.facts, members=Membership((HOT, COLD), since=TAKEN_AT - 10, joined=(COLD,)))
    (step,) = next_steps(replace(found, facts=joined), RAILS)
    assert step.text(TAKEN_AT) == "Nothing, for about 20 s: lbd goes on when no broker has come or gone for a while"


def test_a_plan_that_waits_comes_first():
    """Whatever the last turn said."""
    plan = Proposal("1fa0c0de", TAKEN_AT, TAKEN_AT + 600, [], {}, 3)
    order = "Approve plan 1fa0c0de, if `lbd plan` shows what you want: `lbd apply 1fa0c0de`"
    end = "the plan expires, and a later turn proposes a new one if the brokers are still too far apart"
    assert text_of(record(two(30, 20)), waiting=plan) == [f"{order}; or wait about 10 min: {end}"]


@pytest.mark.parametrize("reason", [Reason.CHANGED_HANDS, Reason.NOT_SERVED])
def test_a_hold_that_the_state_knows_ends_at_a_time(reason: Reason):
    """The one that lbd's state gives, as the facts of a turn have none."""
    (step,) = next_steps(record(two(), hold=(reason, "")), RAILS, holds_end_at={reason: TAKEN_AT + 900})
    assert "; or wait about 15 min: " in step.text(TAKEN_AT)


def test_a_remedy_names_only_the_bundle_that_its_reason_is_about():
    """Where the turn refused a bundle, that one; the largest of the broker would be cut in vain."""
    found = record(two(rates=(5000.0, 3000.0, 1000.0)), settings=AT_ONCE)
    assert found.plan.decision is not None
    refused = Skip(bundle(1), Reason.DESTINATION_ABOVE_SOURCE, "")
    for skips, named in (((refused,), bundle(1)), ((), "BUNDLE")):
        stopped = Skip(ENDS, Reason.DESTINATION_ABOVE_SOURCE, "")
        (step,) = next_steps(altered(found, unloads=(), skips=skips, blocked={ENDS: stopped}), RAILS)
        assert step.command == f"lbd split {named}"


def test_a_turn_that_saw_nothing():
    """Doctor says what stands in the way."""
    (step,) = next_steps(TurnResult(error=ObserveError("connection refused")), RAILS)
    order = "Find why the cluster cannot be observed: `lbd doctor`"
    assert step.text(0) == f"{order}; or wait: lbd tries again in the next turn"


def test_an_empty_broker_is_named_beside_the_verdict():
    """Not while a pair is to fill it, and not for its own heartbeat bundle."""
    own = {"pulsar/c/idle:8080/0x00000000_0xffffffff": stats(1.0)}
    calm = {**two(12, 10), "idle:8080": report(1.0, own)}
    assert text_of(record(calm)) == [f"{FILL}: `lbd fill idle:8080`"]
    apart = {**two(60, 30), "idle:8080": report(1.0, own)}
    assert len(text_of(record(apart))) == 1
    moved = (Unload(bundle(0), HOT, "idle:8080", 1.0, 1.0),)
    assert len(text_of(record(calm, unfinished=moved))) == 1


def test_where_all_brokers_are_full_a_broker_is_missing():
    """They are balanced, and nothing that lbd does would help: "Nothing" was the answer at 96, 92 and 88 points."""
    (step,) = text_of(record(two(96, 88)))
    assert step == (
        "Bring back a broker that is down, or add one: the lowest one has 88.0 points, and from 85 on none is given "
        "bundles (guardrails.max_destination_score); how many are missing: `lbd capacity`; "
        "or wait: it ends when the load falls"
    )
    assert text_of(record(two(96, 84))) == [CALM]


@pytest.mark.parametrize(
    ("doubt", "points", "is_room"),
    [
        (Reason.DRAINED, 1.0, False),
        (Reason.SLOW_BROKER, 1.0, False),
        (Reason.NO_NEW_SAMPLE, 1.0, False),
        (Reason.IMPOSSIBLE_NUMBER, np.nan, False),
        (Reason.FIRST_SAMPLE, 1.0, True),
    ],
)
def test_a_broker_that_is_given_nothing_is_no_room(doubt: Reason, points: float, is_room: bool):
    """It is drained, slow, or not to be trusted, and whoever has just started is about to be given some."""
    found = record({**two(96, 88), "other:8080": report(1.0, {})})
    facts = found.facts
    assert facts is not None
    other = np.array([broker == "other:8080" for broker in facts.snapshot.brokers.ids])
    paired, scores = (other * doubt.code).astype(np.int8), np.where(other, points, facts.scores)
    left_out = replace(facts, evidence=replace(facts.evidence, paired=paired, scores=scores))
    steps = text_of(replace(found, facts=left_out))
    assert any("the lowest one has 88.0 points" in step for step in steps) is not is_room


def test_a_split_comes_last():
    """It cannot be undone, and filling an empty broker can."""
    empty = {**two(rates=(5000.0,)), "idle:8080": report(30.0, {})}
    found = record(empty, settings=AT_ONCE)
    assert [step.command for step in next_steps(found, RAILS)] == ["lbd fill idle:8080", f"lbd split {bundle(0)}"]


def test_quiet_hours_without_an_end_are_to_be_changed():
    """ "Nothing, for about 21 h" was the answer to windows that leave no time of the week."""
    always = Guardrails.model_validate({"quiet_hours": [{"from": "00:00", "to": "24:00"}]})
    (step,) = next_steps(record(two(), hold=(Reason.QUIET_HOURS, "")), always)
    assert step.text(TAKEN_AT) == (
        "Change guardrails.quiet_hours, which leave no time of the week, and reload lbd (SIGHUP); what is set: "
        "`lbd config show`"
    )
