"""A placement beside a strategy that names no destination."""

from __future__ import annotations

import pytest

from lbd.model import Memory
from lbd.permit.policies import parse_isolation
from lbd.reason import Reason
from tests.builders import bundle, report, snapshot, stats
from tests.decide.asking import ask, broker, cluster

NAME = "overload-shedder"


def test_the_least_of_long_is_the_next_destination():
    """Each answer counts for the next: PIP-364's two bundles go to two brokers, 100 and 110 before them."""
    hot = report(95, {bundle(at): stats(10) for at in range(2)})
    seen = cluster(hot, report(10, {bundle(20): stats(50)}), report(10, {bundle(30): stats(55)}))
    found = ask(NAME, seen, placement="least-long-term-message-rate", broker_overloaded_threshold_percentage=10)

    first, second = (unload.destination for unload in found.unloads if unload.source == "a:80")
    assert ("b:80", "c:80") == (first, second)


def test_a_bundle_that_is_placed_where_it_is_stays():
    """As Pulsar's leader does: the hot broker has the fewest messages, and all stays."""
    seen = cluster(report(84, {bundle(0): stats(1), bundle(1): stats(1)}), report(10, {bundle(9): stats(500)}))
    found = ask(NAME, seen, placement="least-long-term-message-rate", broker_overloaded_threshold_percentage=80)

    assert () == found.unloads
    assert {Reason.PLACEMENT_STAYS} == {skip.reason for skip in found.skips}
    assert {"a:80"} < {skip.what for skip in found.skips}
    assert Reason.PLACEMENT_STAYS.code in found.verdicts


def test_destinations_are_in_the_bundles_pool():
    """However idle another broker is."""
    own = {bundle(at, "p/n"): stats(100, 1e6) for at in range(4)}
    seen = snapshot({"a:80": report(95, own), "b:80": report(60), "c:80": report(5)})
    pools = parse_isolation({"p": {"namespaces": ["p/.*"], "primary": ["[ab]"]}}).pools(seen, seen.brokers.ids)
    found = ask(NAME, seen, placement="least-long-term-message-rate", permit={"pools": pools})

    assert {("a:80", "b:80")} == {(unload.source, unload.destination) for unload in found.unloads}


def test_the_round_robin_goes_on_where_it_was():
    """Its place is remembered from turn to turn."""
    seen = cluster(broker(95, (5.0, 4.0)), broker(10, first=10), broker(10, first=20), broker(10, first=30))
    memory, found = Memory(), list[str | None]()
    for _ in range(4):
        decision = ask(NAME, seen, memory, placement="round-robin")
        memory = decision.memory
        found += [unload.destination for unload in decision.unloads]

    assert len(set(found)) == 3


@pytest.mark.parametrize("name", ["avg-shedder", "transfer-shedder"])
def test_destinations_of_a_strategy_are_its_own(name: str):
    """A placement is asked only where there is none."""
    seen = cluster(
        broker(95, (5.0, 4.0, 3.0, 2.0, 1.0)), broker(10, (1.0, 1.0), first=10), broker(50, (1.0, 1.0), first=20)
    )
    eager = {
        "avg-shedder": {"hit_count_low": 1, "min_unload_message": 0, "min_unload_message_throughput": 0},
        "transfer-shedder": {"shedding_condition_hit_count_threshold": 0},
    }
    alone = ask(name, seen, **eager[name])
    beside = ask(name, seen, placement="round-robin", **eager[name])

    assert alone.unloads
    assert alone.unloads == beside.unloads
