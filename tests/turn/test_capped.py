"""Pairs that fire and get nothing, because a cap is used up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lbd.decide.strategies import build
from lbd.decide.transfer_shedder import TransferShedderSettings
from lbd.load.scoring import Weights
from lbd.model import CLUSTER, Decision, Hits, Memory, Skip, Unload
from lbd.permit.limits import Permitted
from lbd.permit.rules import CAPS
from lbd.reason import Group, Reason
from lbd.turn.plan import memory_after
from lbd.turn.waves import Rest
from tests.builders import TAKEN_AT, first_averages, permission, snapshot
from tests.turn.records import COLD, HOT, record, two

if TYPE_CHECKING:
    from collections.abc import Mapping


BEFORE_THAT = {"other:8080": TAKEN_AT - 170.0}
COUNTED = Memory({CLUSTER: Hits(3)}, unloaded_at=BEFORE_THAT)
BEFORE = {HOT: Hits(7, 0), COLD: Hits(3, 0), "other:8080": Hits(5, 1)}


def fired() -> Decision:
    """The hot broker gives some of its bundles to the cold one, after eight samples."""
    found = record(two(), hits=BEFORE, settings={"high_threshold": 90}).plan.decision
    assert found is not None
    assert found.comparison.pairs[0].fired
    assert len(found.unloads) > 1
    assert HOT not in found.memory.hits
    return found


def answer(decision: Decision, *reasons: Reason | None) -> Permitted:
    """What the limits say of each unload in turn: a reason why not, or None; the last answer holds for the rest."""
    padded = (*reasons, *[reasons[-1]] * len(decision.unloads))
    both: list[tuple[Unload, Reason | None]] = list(zip(decision.unloads, padded, strict=False))
    return Permitted(
        tuple(unload for unload, reason in both if reason is None),
        tuple(Skip(unload.bundle, reason) for unload, reason in both if reason is not None),
    )


@pytest.mark.parametrize("reason", sorted(CAPS, key=lambda one: one.code))
def test_a_pair_that_a_cap_refuses_everything_keeps_its_counters(reason: Reason):
    """They are those from before the turn: one more sample, and it fires again."""
    decision = fired()
    assert memory_after(Memory(BEFORE), decision, answer(decision, reason)).hits == BEFORE


@pytest.mark.parametrize(
    "reasons",
    [
        (None,),
        (None, Reason.TURN_TRAFFIC),
        (Reason.TURN_TRAFFIC, None),
        (Reason.DESTINATION_OVERLOADED,),
        (Reason.ANTI_AFFINITY,),
        (Reason.PING_PONG,),
    ],
    ids=["all of it", "its first", "its last", "overloaded", "forbidden", "ping-pong"],
)
def test_a_pair_that_got_something_or_must_not_begins_anew(reasons: tuple[Reason | None, ...]):
    """As in Pulsar, firing clears both counters."""
    decision = fired()
    found = memory_after(Memory(BEFORE), decision, answer(decision, *reasons)).hits
    assert found == {"other:8080": Hits(5, 1)} == decision.memory.hits


def test_one_cap_among_other_refusals_is_enough():
    """What the cap kept back may go later."""
    decision = fired()
    assert (
        memory_after(
            Memory(BEFORE), decision, answer(decision, Reason.DESTINATION_OVERLOADED, Reason.TURN_UNLOADS)
        ).hits
        == BEFORE
    )


def test_counters_of_pools_are_kept_in_their_pool():
    """A broker has a set of its own in each."""
    before = {f"{HOT} in gold": Hits(7, 0), HOT: Hits(2, 0)}
    decision = fired()
    pair = decision.comparison.pairs[0]
    pooled = type(pair)(**{**vars(pair), "pool": "gold"})
    facts = type(decision.comparison)(decision.comparison.scores, decision.comparison.binding, (pooled,))
    decision = Decision(decision.unloads, (), Memory({}), facts, decision.verdicts)
    assert memory_after(Memory(before), decision, answer(decision, Reason.TURN_UNLOADS)).hits == {
        f"{HOT} in gold": Hits(7, 0)
    }


def transfers() -> Decision:
    """TransferShedder fires after its fourth sample; what it counts is the cluster's, and it notes who gave."""
    settings = TransferShedderSettings(broker_load_target_std=0.1, history_resource_percentage=0)
    seen = snapshot(two())
    found = build(settings, Weights())(seen, first_averages(seen), permission(seen), COUNTED)
    assert len(found.unloads) > 1
    assert (found.memory.hits, set(found.memory.unloaded_at)) == ({}, {HOT, "other:8080"})
    return found


@pytest.mark.parametrize(
    ("reasons", "hits", "gave"),
    [
        ((Reason.HOUR_UNLOADS,), COUNTED.hits, {}),
        ((Reason.DESTINATION_OVERLOADED,), {}, {}),
        ((None,), {}, {HOT: TAKEN_AT}),
        ((None, Reason.HOUR_UNLOADS), {}, {HOT: TAKEN_AT}),
    ],
    ids=["capped", "must not", "all of it", "its first"],
)
def test_a_strategy_that_counts_for_all_brokers(
    reasons: tuple[Reason | None, ...], hits: Mapping[str, Hits], gave: Mapping[str, float]
):
    """The cluster's counter is kept like a pair's, and who gave nothing is not said to have given."""
    decision = transfers()
    found = memory_after(COUNTED, decision, answer(decision, *reasons))
    assert (found.hits, found.unloaded_at) == (hits, {**BEFORE_THAT, **gave})


def test_who_gives_in_a_later_wave_has_given():
    """What the plan leaves there needs no new hits either."""
    decision = transfers()
    rest = Rest("p", decision.unloads[:1], {}, 1, TAKEN_AT, 10.0)
    found = memory_after(COUNTED, decision, answer(decision, Reason.TURN_TRAFFIC), rest=rest)
    assert found.unloaded_at == {**BEFORE_THAT, HOT: TAKEN_AT}


def test_who_never_gave_has_not_given_now():
    """Nothing is noted of it, in its pool either."""
    decision = transfers()
    decision = replace(decision, memory=Memory(unloaded_at={f"{HOT} in gold": TAKEN_AT}))
    found = memory_after(COUNTED, decision, answer(decision, Reason.HOUR_UNLOADS))
    assert found.unloaded_at == {}


def test_caps_are_limits():
    """And no rest of a bundle's is one."""
    assert {reason.group for reason in CAPS} == {Group.LIMIT}
    assert not CAPS & {Reason.COOL_DOWN, Reason.PING_PONG, Reason.CHANGED_HANDS}
