"""The truth of a fake cluster: how bundles change hands, and what a leader notes. No HTTP, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.simulate.cluster import rates_at
from lbd.simulate.fake_cluster import (
    DEAD_OWNER_SECONDS,
    LATER_SECONDS,
    SESSION_SECONDS,
    Book,
    Clients,
    FakePolicies,
)
from tests.simulate.faulty import Fault, Faults, FaultyBook, Switch
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = "127.0.0.1:80", "127.0.0.2:80", "127.0.0.3:80"
FIRST, SECOND = "simulated/n/0x00000000_0x55555555", "simulated/n/0x55555555_0xaaaaaaaa"
SAME_RANGE = "simulated/m/0x00000000_0x55555555"


def book(clients: int = 1, version: str = "4.0.8", **changes: Any) -> Book:
    """Brokers A, B (which leads) and C; A has three bundles in each of two namespaces."""
    load = [{"name": name, "brokers": ["a"], "mib_per_second": 6, "bundles": 3} for name in "nm"]
    world, state = begun(**{"brokers": [{"id": one} for one in "abc"], "load": load, **changes})
    found = FaultyBook(world, state, (A, B, C)[: len(world.brokers)], version, FakePolicies())
    found.faults = Faults()
    Clients(found, clients, lambda: 1.0)
    return found


def test_at_first_the_second_broker_leads_and_owners_are_the_scenarios() -> None:
    """Everything is owned and in the history."""
    found = book()
    assert (found.leader, found.listed) == (B, [A, B, C])
    assert {found.owner(bundle) for bundle in found.bundles} == {A}
    assert {(one.bundle, one.owner) for one in found.history} == {(bundle, A) for bundle in found.bundles}


def test_what_is_let_go_is_nobodys_until_a_client_comes() -> None:
    """A tenth of a second later the client has looked it up."""
    found = book()
    found.free(FIRST)
    assert found.owner(FIRST) is None
    found.advance(0.08)
    assert found.owner(FIRST) is None
    found.advance(0.2)
    assert found.owner(FIRST) in {A, B, C}


def test_what_nobody_uses_stays_nobodys() -> None:
    """Its traffic is counted nowhere then."""
    found = book(clients=0)
    found.free(FIRST)
    found.advance(300)
    assert found.owner(FIRST) is None
    assert sum(one.rates[:, 2].sum() for one in found.state.counted[:3]) == pytest.approx(10 * 2**20)


def test_the_note_decides_once() -> None:
    """After that it is chance, over all brokers."""
    found = book(clients=0)
    seen: set[str | None] = set()
    for _ in range(40):
        found.free(FIRST)
        found.note(FIRST, C)
        assert found.place(FIRST) == C
        seen.add(found.place(FIRST))
    assert seen == {A, B, C}
    assert found.affinity == {}


@pytest.mark.parametrize(
    ("version", "fault", "wanted"),
    [
        ("4.0.8", None, C),
        ("3.3.6", None, C),
        ("4.2.4", None, A),
        ("5.0.0-M1", None, A),
        ("4.2.4", Fault.AFFINITY_BY_RANGE, C),
    ],
)
def test_two_namespaces_with_one_range(version: str, fault: Fault | None, wanted: str) -> None:
    """Where notes are keyed by range the later one holds for both; later versions tell them apart (#25518)."""
    found = book(version=version)
    if fault is not None:
        found.faults.on(Switch(fault))
    found.note(FIRST, A)
    found.note(SAME_RANGE, C)
    assert found.place(FIRST) == wanted


def test_a_note_that_is_left_decides_again() -> None:
    """Until another leader comes, who knows of none."""
    found = book()
    found.faults.on(Switch(Fault.AFFINITY_LEFT))
    found.note(FIRST, C)
    assert {found.place(FIRST) for _ in range(20)} == {C}
    found.lead(A)
    assert {found.place(FIRST) for _ in range(40)} == {A, B, C}


def test_a_lookup_that_takes_it_elsewhere_takes_the_note_too() -> None:
    """As many times as was said, and only on the way to that broker."""
    found = book()
    found.faults.on(Switch(Fault.LOST_TO_A_LOOKUP, C, times=1))
    for destination, lost in ((B, False), (C, True), (C, False)):
        found.note(FIRST, destination)
        assert (found.place(FIRST) != destination) == lost
        assert found.affinity == {}


def test_isolation_policies_say_who_may_have_what_nobody_noted() -> None:
    """A note bypasses them, as in Pulsar."""
    found = book()
    parameters = {"min_limit": "1", "usage_threshold": "99"}
    failover = {"policy_type": "min_available", "parameters": parameters}
    own = {"namespaces": ["simulated/n"], "primary": ["127.0.0.3"], "secondary": [], "auto_failover_policy": failover}
    found.policies.isolation["p"] = own
    assert {found.place(FIRST) for _ in range(30)} == {C}
    assert {found.place(SAME_RANGE) for _ in range(30)} == {A, B}
    found.note(FIRST, A)
    assert found.place(FIRST) == A


def test_a_dead_leader_is_believed_in_for_a_session() -> None:
    """Then another one leads, without its notes, and what it owned is nobody's until its clients come."""
    found = book()
    found.lead(A)
    found.note(FIRST, C)
    found.advance(7)
    found.die(A)
    found.advance(6 + SESSION_SECONDS)
    assert (found.leader, found.listed, found.owner(FIRST)) == (A, [A, B, C], A)
    found.advance(7 + SESSION_SECONDS)
    assert (found.leader, found.listed, found.owner(FIRST)) == (B, [B, C], None)
    assert found.affinity == {}
    found.advance(8 + SESSION_SECONDS + DEAD_OWNER_SECONDS)
    assert {found.owner(bundle) for bundle in found.bundles} <= {B, C}


def test_a_restart_within_the_session() -> None:
    """It is empty, has sampled nothing, and does not lead any more; its old session's end is no event."""
    found = book()
    found.lead(A)
    found.die(A)
    found.advance(3)
    found.start(A)
    assert (found.leader, found.listed) == (B, [A, B, C])
    assert found.owned(A) == []
    assert found.state.cpu[0] < 1e-5
    found.advance(2 * SESSION_SECONDS)
    assert A in found.listed


@pytest.mark.parametrize(
    ("meanwhile", "done", "owner"),
    [
        (lambda _: None, True, None),
        (lambda found: found.die(A), False, A),
        (lambda found: found.leave(A), False, None),
        (lambda found: (found.die(A), found.start(A)), False, None),
    ],
    ids=["nothing", "it died", "it left", "it restarted"],
)
def test_what_happens_to_an_owner_that_closes_a_bundle(
    meanwhile: Callable[[Book], object], done: bool, owner: str | None
) -> None:
    """One that died has let go of nothing, until its session ends."""
    found = book(clients=0)
    found.closing.add(FIRST)
    meanwhile(found)
    assert (found.closed(FIRST), found.owner(FIRST)) == (done, owner)


@pytest.mark.parametrize(("clients", "least", "most"), [(1, 0, 0), (6, 0.02, 0.12)])
def test_how_often_clients_take_a_bundle_elsewhere(clients: int, least: float, most: float) -> None:
    """Without a nudge: one client never (0 of 80 on 4.0.8), six of them in 6 % (9 of 140)."""
    found, missed = book(clients), 0
    for number in range(500):
        destination = (A, B, C)[number % 3]
        found.note(FIRST, destination)
        found.free(FIRST)
        found.advance(found.seconds + 1)
        missed += found.owner(FIRST) != destination
        found.affinity.clear()
    assert least <= missed / 500 <= most


STEPS: list[Callable[[Book, str, str], object]] = [
    lambda found, broker, _: found.die(broker),
    lambda found, broker, _: found.leave(broker),
    lambda found, broker, _: found.start(broker),
    lambda found, broker, _: found.lead(broker if found.brokers[broker].up else None),
    lambda found, broker, bundle: found.note(bundle, broker),
    lambda found, _, bundle: found.free(bundle),
    lambda found, broker, bundle: found.acquire(bundle, broker),
]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([A, B, C]), st.integers(0, 5), st.floats(0, 60)), max_size=30)
)
def test_whatever_happens_everything_is_owned_in_the_end(steps: list[tuple[int, str, int, float]]) -> None:
    """By brokers that are there; and the history ends in what is."""
    found = book(clients=2)
    names = list(found.bundles)
    for step, broker, bundle, seconds in steps:
        STEPS[step](found, broker, names[bundle])
        found.advance(found.seconds + seconds)
    found.start(A)
    found.advance(found.seconds + SESSION_SECONDS)
    if found.leader is None:
        found.lead(A)
    found.advance(found.seconds + SESSION_SECONDS + DEAD_OWNER_SECONDS + 2 * LATER_SECONDS)
    up = {broker.id for broker in found.brokers.values() if broker.up}
    assert set(found.listed) == up
    assert {found.owner(bundle) for bundle in names} <= up
    last = {one.bundle: one.owner for one in found.history}
    assert last == {bundle: found.owner(bundle) for bundle in names}
    assert [one.seconds for one in found.history] == sorted(one.seconds for one in found.history)


def traffic(found: Book) -> dict[str, float]:
    """Bytes/s in of each broker by what it owns now."""
    rates = rates_at(found.world, found.seconds)[:, 2]
    return {broker: sum(rates[found.bundles[bundle]] for bundle in found.owned(broker)) / 2**20 for broker in (A, B, C)}


def test_each_day_the_bundles_of_another_broker_are_busy() -> None:
    """At noon they carry twice as much, at night what they did; a broker without bundles has no day."""
    found = book()
    for bundle in ("simulated/m/0x00000000_0x55555555", "simulated/m/0x55555555_0xaaaaaaaa"):
        found.transfer(bundle, B)
    usual = traffic(found)
    found.begin_day(3600, 2.0)
    found.advance(1800)
    assert traffic(found) == pytest.approx({**usual, A: 2 * usual[A]})
    found.split(FIRST, [0x10000000])
    assert traffic(found) == pytest.approx({**usual, A: 2 * usual[A]})
    found.advance(3600)
    assert traffic(found) == pytest.approx(usual)
    found.advance(3600 + 1800)
    assert traffic(found) == pytest.approx({**usual, B: 2 * usual[B]})
    found.advance(2 * 3600 + 1800)
    assert traffic(found) == pytest.approx({**usual, A: 2 * usual[A]})
    found.advance(3 * 3600)
    assert traffic(found) == pytest.approx(usual)


def test_a_bundle_stays_busy_where_it_goes() -> None:
    """The traffic is the bundle's, not the broker's."""
    found = book()
    usual = traffic(found)[A]
    found.begin_day(3600, 2.0)
    found.advance(1800)
    found.transfer(FIRST, C)
    assert traffic(found) == pytest.approx({A: 2 * usual * 5 / 6, B: 0, C: 2 * usual / 6})
