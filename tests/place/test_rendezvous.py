"""lbd's own picker: stable when brokers come and go, never above its bound, and by hash alone without trusted loads."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.place.placements import BrokerLoads, PlaceMemory, build
from tests.builders import TAKEN_AT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.place.placements import PlacementChoice

BROKERS = tuple(f"broker-{number}:8080" for number in range(1, 6))
LOADS = st.lists(st.floats(0, 80), min_size=2, max_size=12)


def seen(
    points: Mapping[str, float], *, age_seconds: float = 0.0, to_place: int = 1, taken_at: float = TAKEN_AT
) -> BrokerLoads:
    """Brokers of which only the score matters."""
    used, none = np.array([*points.values()]) / 100, np.zeros((len(points), 2))
    bundles = np.zeros(len(points), dtype=np.int32)
    return BrokerLoads(
        taken_at, tuple(points), used, used, none, none, bundles, age_seconds=age_seconds, to_place=to_place
    )


def bundles(number: int) -> list[str]:
    """Names of many bundles."""
    return [f"t/n/0x{at * 65536:08x}_0x{(at + 1) * 65536:08x}" for at in range(number)]


def answers(
    looked: BrokerLoads, wanted: list[str], memory: PlaceMemory | None = None, candidates: tuple[str, ...] | None = None
) -> tuple[dict[str, str], PlaceMemory]:
    """All bundles placed one after the other, and what is remembered then."""
    found, memory = dict[str, str](), memory or PlaceMemory()
    for bundle in wanted:
        placed = ask(bundle, looked, memory, candidates)
        assert placed.broker is not None
        found[bundle], memory = placed.broker, placed.memory
    return found, memory


def ask(
    bundle: str, looked: BrokerLoads, memory: PlaceMemory, candidates: tuple[str, ...] | None = None
) -> PlacementChoice:
    """One answer."""
    return build("rendezvous")(bundle, candidates or looked.ids, looked, memory)


@pytest.mark.parametrize("gone", BROKERS)
def test_one_broker_less_moves_only_its_own_bundles(gone: str):
    """Asked anew without memory, by the one bundle, every other bundle has the same broker as before."""
    looked = seen(dict.fromkeys(BROKERS, 30.0))
    left = tuple(broker for broker in BROKERS if broker != gone)
    before = {bundle: ask(bundle, looked, PlaceMemory()).broker for bundle in bundles(500)}
    after = {bundle: ask(bundle, looked, PlaceMemory(), left).broker for bundle in before}
    moved = {bundle for bundle in before if before[bundle] != after[bundle]}
    assert moved == {bundle for bundle in before if before[bundle] == gone}


@given(points=LOADS, gone=st.integers(0, 11))
def test_answers_given_lately_stay_when_a_broker_goes_and_nobody_exceeds_the_bound(points: list[float], gone: int):
    """Only what was answered with the broker that went is answered anew, and each is within 1.25 times its share."""
    loads = {f"b{at}:8080": load for at, load in enumerate(points)}
    wanted = bundles(60)
    before, memory = answers(seen(loads, to_place=60), wanted)
    left = tuple(broker for at, broker in enumerate(loads) if at != gone % len(points))
    after, _ = answers(seen(loads, to_place=60), wanted, memory, left)
    assert {bundle for bundle in wanted if before[bundle] != after[bundle]} == {
        bundle for bundle in wanted if before[bundle] not in left
    }
    for found, brokers in ((before, tuple(loads)), (after, left)):
        free = {broker: 85 - loads[broker] for broker in brokers}
        for broker, count in Counter(found.values()).items():
            assert count <= math.ceil(1.25 * 60 * free[broker] / sum(free.values()) + 1e-9)


def test_a_broker_that_comes_takes_its_share_from_all_and_gives_none():
    """What is not answered with the newcomer is answered as before."""
    looked = seen(dict.fromkeys(BROKERS, 30.0))
    before = {bundle: ask(bundle, looked, PlaceMemory(), BROKERS[:4]).broker for bundle in bundles(500)}
    after = {bundle: ask(bundle, looked, PlaceMemory()).broker for bundle in before}
    assert {after[bundle] for bundle in before if before[bundle] != after[bundle]} == {BROKERS[4]}
    assert 60 <= Counter(after.values())[BROKERS[4]] <= 140


def test_free_capacity_is_the_share():
    """A broker with 60 points free is answered twice as often as one with 30."""
    looked = seen({"busy:8080": 55.0, "idle:8080": 25.0})
    found = Counter(ask(bundle, looked, PlaceMemory()).broker for bundle in bundles(3000))
    assert found["idle:8080"] / found["busy:8080"] == pytest.approx(2, rel=0.15)


def test_recent_answers_count_until_reports_show_them():
    """After five minutes they are forgotten, and the bundle may be answered otherwise."""
    looked = seen(dict.fromkeys(BROKERS, 30.0))
    found, memory = answers(looked, bundles(20))
    assert memory.answered == found
    later = ask("t/n/0x00000000_0xffffffff", seen(dict.fromkeys(BROKERS, 30.0), taken_at=TAKEN_AT + 301), memory)
    assert set(later.memory.answered) == {"t/n/0x00000000_0xffffffff"}


def test_without_trusted_loads_the_hash_alone_decides_and_says_so():
    """Old reports, a candidate without one, and full brokers: each is a plain rendezvous, the same for all three."""
    plain = {bundle: ask(bundle, seen(dict.fromkeys(BROKERS, 30.0)), PlaceMemory()).broker for bundle in bundles(50)}
    uneven = dict(zip(BROKERS, (0.0, 80.0, 84.0, 10.0, 50.0), strict=True))
    cases = {
        "reports are 10 min old": seen(uneven, age_seconds=600),
        "broker-5:8080 gives no usable report": seen({**uneven, BROKERS[4]: float("nan")}),
        "every candidate is at 85 points or above": seen(dict.fromkeys(BROKERS, 90.0)),
    }
    for why, looked in cases.items():
        for bundle, broker in plain.items():
            placed = ask(bundle, looked, PlaceMemory())
            assert (placed.broker, placed.reason) == (broker, f"by hash alone: {why}")


def test_the_reason_names_who_was_full():
    """Where a bundle's first choice has had its share, the answer is its second, and says so."""
    looked, bundle = seen(dict.fromkeys(BROKERS, 30.0)), bundles(1)[0]
    first = ask(bundle, looked, PlaceMemory())
    assert first.reason == "first choice by hash; 55.0 points free below 85, 20% of all free points"
    counts = {broker: 10 if broker == first.broker else 1 for broker in BROKERS}
    second = ask(bundle, looked, PlaceMemory(since=TAKEN_AT, counts=counts))
    assert second.broker != first.broker
    assert f"choice 2 by hash, as {first.broker} has 10 of at most 4 bundles; " in second.reason


def test_no_candidate_is_no_answer():
    """There is nothing to choose from."""
    assert build("rendezvous")("t/n/0x00000000_0xffffffff", (), seen({}), PlaceMemory()).broker is None


def test_an_answer_is_not_repeated_once_its_broker_is_full():
    """Where others have room; where none has, or nothing is known, it stays."""
    bundle = bundles(1)[0]
    first = ask(bundle, seen(dict.fromkeys(BROKERS, 30.0)), PlaceMemory())
    assert first.broker is not None
    points = {broker: 85.0 if broker == first.broker else 30.0 for broker in BROKERS}
    again = {
        "full by now": ask(bundle, seen(points), first.memory),
        "all are": ask(bundle, seen(dict.fromkeys(BROKERS, 90.0)), first.memory),
        "old reports": ask(bundle, seen(points, age_seconds=600), first.memory),
    }
    assert {why: placed.broker == first.broker for why, placed in again.items()} == {
        "full by now": False,
        "all are": True,
        "old reports": True,
    }
