"""Every strategy balances each pool of brokers for itself, and remembers it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.decide.strategies import STRATEGIES
from lbd.model import CLUSTER, Memory, counter_key
from lbd.permit.policies import parse_isolation
from tests.builders import bundle, report, snapshot, stats
from tests.decide.asking import MIB, ask
from tests.decide.test_contract import EAGER

if TYPE_CHECKING:
    from lbd.model import Decision, Snapshot

TWO_POOLS = parse_isolation({"p": {"namespaces": ["p/.*"], "primary": ["[ab]"]}})
NAMES = pytest.mark.parametrize("name", list(STRATEGIES))


def two_pools(**cpu: float) -> Snapshot:
    """Brokers a and b are those of namespace p/n, c and d those of t/n; bundles carry more on hotter brokers."""
    home = {"a": "p/n", "b": "p/n", "c": "t/n", "d": "t/n"}
    return snapshot(
        {
            f"{name}:80": report(
                cpu[name],
                {bundle(16 * at + number, home[name]): stats(cpu[name], cpu[name] * MIB / 20) for number in range(10)},
            )
            for at, name in enumerate(home)
        }
    )


def pooled(name: str, seen: Snapshot, memory: Memory | None = None, **changes: object) -> Decision:
    """What is decided within the pools that these policies make."""
    pools = TWO_POOLS.pools(seen, seen.brokers.ids)
    settings = {**EAGER[name], **changes}
    placement = "least-long-term-message-rate"
    return ask(name, seen, memory, live=True, permit={"pools": pools}, placement=placement, **settings)


@NAMES
def test_nothing_leaves_its_pool(name: str):
    """The hottest broker gives to the other one of its pool, however idle a third is."""
    found = pooled(name, two_pools(a=90, b=50, c=30, d=5))

    ends = {(unload.source[0], unload.destination[0]) for unload in found.unloads if unload.destination}
    assert ("a", "b") in ends
    assert ends <= {("a", "b"), ("c", "d")}
    assert {"p"} == {pair.pool for pair in found.comparison.pairs if pair.source == "a:80"}


@NAMES
def test_a_balanced_pool_does_not_hide_another(name: str):
    """What is said of one names it."""
    found = pooled(name, two_pools(a=40, b=40, c=90, d=5))

    assert {"c:80"} == {unload.source for unload in found.unloads}
    assert "pool p" in {skip.what for skip in found.skips}


@pytest.mark.parametrize("name", ["threshold-shedder", "transfer-shedder"])
def test_what_is_remembered_belongs_to_a_pool(name: str):
    """A broker has an average in each of its pools, and a pool its own hits; pools that are gone are forgotten."""
    seen = two_pools(a=90, b=50, c=30, d=30)
    first = (
        pooled(name, seen, shedding_condition_hit_count_threshold=5)
        if name == "transfer-shedder"
        else pooled(name, seen)
    )
    keys = {counter_key("a:80", "p"), counter_key("b:80", "p"), "c:80", "d:80"}

    assert keys == set(first.memory.loads)
    if name == "transfer-shedder":
        assert {counter_key(CLUSTER, "p"): 1} == {key: hits.low for key, hits in first.memory.hits.items()}
    gone = Memory(loads={**first.memory.loads, counter_key("a:80", "old"): first.memory.loads["c:80"]})
    assert keys == set(pooled(name, seen, gone).memory.loads)
