"""AvgShedder by the worked examples of PIP-364 and of its author's book, chapter "Multiple Times Trigger"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.model import Memory
from tests.builders import bundle, report, stats
from tests.decide.asking import ask, cluster

if TYPE_CHECKING:
    from lbd.model import Decision

NAME = "avg-shedder"


def ends(decision: Decision) -> list[tuple[int, int]]:
    """The scores of each pair, the higher one first."""
    score = dict(zip("abcdefgh", decision.comparison.scores.round().astype(int).tolist(), strict=False))
    return [(score[pair.source[0]], score[pair.destination[0]]) for pair in decision.comparison.pairs]


def test_outermost_brokers_are_paired():
    """PIP-364: "20,30,52,70,80, we will pair 20 and 80, 30 and 70"; the middle one is left.

    The PIP calls 70 - 30 "greater than the threshold 40". It is equal, and in Pulsar's float32 a little less.
    """
    seen = cluster(*(report(cpu) for cpu in (20, 30, 52, 70, 80)))

    assert [(80, 20), (70, 30)] == ends(ask(NAME, seen, low_threshold=39.9))
    assert [(80, 20)] == ends(ask(NAME, seen, low_threshold=40))


def test_two_full_brokers_have_two_destinations():
    """PIP-364: of 20, 30, 52, 80 and 80 one of the full ones gives to the broker at 20, the other to that at 30."""
    seen = cluster(*(report(cpu) for cpu in (20, 30, 52, 80, 80)))

    assert {(80, 20), (80, 30)} == set(ends(ask(NAME, seen)))


def test_a_pair_meets_in_the_middle():
    """PIP-364: 1,000 and 500 msg/s: "The shedding strategy will unload 250", and both have 750."""
    first = {bundle(at): stats(25) for at in range(20)}
    second = {bundle(100 + at): stats(25) for at in range(10)}
    seen = cluster(report(80, first), report(20, second))
    found = ask(NAME, seen, high_threshold=40, hit_count_high=1, min_unload_message=0)

    assert 250 == sum(unload.msg_rate for unload in found.unloads)


def test_hits_are_counted_by_broker_and_not_by_pair():
    """Book: 80, 80 and 20 with three hits: brokers 1 and 2 take turns as the highest, broker 3 has <broker3, 3>."""
    settings = {"low_threshold": 15, "high_threshold": 99, "hit_count_low": 3}
    memory = Memory()
    for first, second in ((81, 80), (80, 81)):
        found = ask(NAME, cluster(report(first), report(second), report(20)), memory, **settings)
        memory = found.memory
        assert [False] == [pair.fired for pair in found.comparison.pairs]
    assert {"b:80": 1, "c:80": 2} == {broker: hits.low for broker, hits in memory.hits.items()}
    third = ask(NAME, cluster(report(80), report(81), report(20)), memory, **settings)

    assert [("b:80", "c:80", True)] == [(pair.source, pair.destination, pair.fired) for pair in third.comparison.pairs]


@pytest.mark.parametrize(("gap", "rounds"), [(20, 8), (45, 2)])
def test_a_wider_gap_wants_fewer_hits(gap: float, rounds: int):
    """PIP-364: above 15 "it needs to be triggered 8 times continuously", above 40 two times."""
    memory, fired = Memory(), list[bool]()
    for _ in range(rounds):
        found = ask(NAME, cluster(report(10 + gap), report(10)), memory)
        memory = found.memory
        fired += [pair.fired for pair in found.comparison.pairs]

    assert [*[False] * (rounds - 1), True] == fired
