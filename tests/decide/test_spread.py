"""Of bundles of like size the one that spreads goes; that something goes, and how much, is the strategy's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.spread import ALIKE_SHARE, PAIR_SHARE
from lbd.decide.strategies import STRATEGIES
from lbd.model import Pool
from lbd.reason import Reason
from lbd.spread import GroupMembers, spread
from tests.builders import bundle
from tests.decide.asking import ask, broker, cluster, taken
from tests.decide.test_contract import EAGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import Decision, Snapshot
    from lbd.spread import Spread

HOT = "a:80"
TOPIC = "persistent://t/n/orders"


def spread_of(seen: Snapshot, members: dict[int, int], zones: Sequence[int] = ()) -> Spread:
    """One topic: how many partitions the bundles of these numbers have."""
    number = {bundle(at): partitions for at, partitions in members.items()}
    has = [at for at, name in enumerate(seen.bundles) if number.get(name)]
    owner = np.full(len(seen.bundles), -1, dtype=np.int32)
    owner[seen.rows.bundle] = seen.rows.owner()
    rows = np.array([number[seen.bundles[at]] for at in has], dtype=np.int32)
    zone = np.array(zones or [-1] * len(seen.brokers), dtype=np.int32)
    return spread(
        GroupMembers((TOPIC,), np.array(has, dtype=np.int32), np.zeros(len(has), np.int32), rows),
        owner, seen.brokers.ids, (), zone,
    )  # fmt: skip


def decided(name: str, seen: Snapshot, members: dict[int, int], **changes: Any) -> Decision:
    """A live round in which one topic belongs apart."""
    permit = {**changes.pop("permit", {}), "spread": spread_of(seen, members, changes.pop("zones", ()))}
    return ask(name, seen, live=True, permit=permit, **{**EAGER[name], **changes})


def hot(sizes: Sequence[float]) -> Snapshot:
    """One hot broker with bundles of these sizes, the first being number 0, and one that has two others."""
    return cluster(broker(90, sizes), broker(20, [1, 1], first=100))


BOTH = pytest.mark.parametrize("name", ["avg-shedder", "least-moves"])
EQUAL = [10.0] * 8


@BOTH
class TestWhichGoes:
    def test_partitions_that_are_together(self, name: str) -> None:
        """Without a spread the first ones by name go; with it those that have partitions, as many."""
        plain = ask(name, hot(EQUAL), live=True, **EAGER[name])
        found = decided(name, hot(EQUAL), dict.fromkeys(range(4, 8), 1))

        assert len(found.unloads) == len(plain.unloads) >= 2
        with_partitions = [[at for _, at in taken(one) if at >= 4] for one in (plain, found)]
        assert [len(one) for one in with_partitions] == [0, 2]

    def test_not_where_it_would_be_together_again(self, name: str) -> None:
        """The destination has all the partitions but one: that one stays."""
        found = decided(name, hot(EQUAL), {0: 1, 100: 4, 101: 4})

        assert 0 not in [at for _, at in taken(found)]

    def test_its_verdict_and_its_reason_name_both(self, name: str) -> None:
        """The bundle that stays for it is passed over, and the broker with too much is named."""
        seen = hot(EQUAL)
        plain = [at for _, at in taken(ask(name, seen, live=True, **EAGER[name]))]
        other = next(at for at in range(8) if at not in plain)
        found = decided(name, seen, {other: 1, next(at for at in range(8) if at not in [*plain, other]): 9})

        changed = [one for one in found.unloads if "instead of" in one.reason]
        assert changed
        stayed = changed[0].reason.partition("instead of ")[2].partition(",")[0]
        codes = {Reason.of(int(found.verdicts[seen.bundles.index(one)])) for one in (stayed, changed[0].bundle)}
        assert codes == {Reason.NOT_NEEDED, Reason.MOVES}
        assert f"{HOT} has 10 of {TOPIC}, its share is 5.0" in changed[0].reason

    @pytest.mark.parametrize(("factor", "goes"), [(1 - ALIKE_SHARE, True), (0.5, False), (0.01, False)])
    def test_only_one_of_about_its_size(self, name: str, factor: float, goes: bool) -> None:
        """What is much smaller would leave the broker hot: as many of these go as without a spread."""
        seen = hot([10.0] * 8 + [10.0 * factor] * 4)
        members = dict.fromkeys(range(8, 12), 1)
        plain, found = ask(name, seen, live=True, **EAGER[name]), decided(name, seen, members)

        small = [sum(at in members for _, at in taken(one)) for one in (plain, found)]
        assert (small[1] > small[0]) is goes

    @pytest.mark.parametrize(
        "permit",
        [
            {"barred": {bundle(at): Reason.COOL_DOWN for at in range(4, 8)}},
            {"costs": np.array([0.0] * 4 + [1.0] * 4 + [0.0] * 2)},
        ],
    )
    def test_none_that_rests_or_is_dearer(self, name: str, permit: dict[str, Any]) -> None:
        """Bars and costs of moves come first."""
        found = decided(name, hot(EQUAL), dict.fromkeys(range(4, 8), 1), permit=permit)

        assert {at for _, at in taken(found)} <= {0, 1, 2, 3}

    def test_none_of_another_pool(self, name: str) -> None:
        """The second pool's bundles may not go where the first pool's go."""
        seen = hot(EQUAL)
        first = np.array([seen.bundles.index(bundle(at)) for at in (0, 1, 2, 3, 100, 101)])
        mask = np.isin(np.arange(len(seen.bundles)), first)
        both, one = np.ones(2, dtype=np.bool_), np.array([True, False])
        pools = (Pool("", both, mask), Pool("second", one, ~mask))
        found = decided(name, seen, dict.fromkeys(range(4, 8), 1), permit={"pools": pools})

        assert found.unloads
        assert {at for _, at in taken(found)} <= {0, 1, 2, 3}


@pytest.mark.parametrize(("zones", "goes"), [((), False), ((0, 0, 0), False), ((0, 1, 0), True)])
def test_another_zone_is_further_apart(zones: tuple[int, ...], goes: bool) -> None:
    """The destination has as many partitions as the hot broker, but its zone has fewer."""
    seen = cluster(broker(90, EQUAL), broker(20, [1, 1], first=100), broker(55, [5, 5], first=200))
    found = decided("avg-shedder", seen, {4: 1, 5: 1, 100: 2, 200: 3}, zones=zones)

    assert bool({4, 5} & {at for _, at in taken(found)}) is goes


# --- what holds for every strategy

BROKERS = st.lists(st.tuples(st.integers(0, 99), st.lists(st.integers(1, 40), max_size=8)), min_size=2, max_size=5)


def clustered(brokers: Sequence[tuple[int, Sequence[int]]]) -> Snapshot:
    """Brokers by CPU and the sizes of their bundles, which are numbered through."""
    first = np.cumsum([0, *(len(sizes) for _, sizes in brokers)]).tolist()
    return cluster(*(broker(cpu, sizes, at) for (cpu, sizes), at in zip(brokers, first, strict=False)))


def together(seen: Snapshot, known: Spread, decision: Decision) -> float:
    """Pairs of partitions on one broker after a plan."""
    on, index = known.on[0].copy(), seen.brokers.index()
    for unload in decision.unloads:
        _, number = known.rows(seen.bundles.index(unload.bundle))
        on[index[unload.source]] -= number.sum()
        on[index[unload.destination or ""]] += number.sum()
    return float((on * (on - 1)).sum() / 2)


@pytest.mark.parametrize("name", list(STRATEGIES))
@given(BROKERS, st.dictionaries(st.integers(0, 39), st.integers(1, 5), max_size=12))
def test_a_spread_changes_neither_whether_nor_how_much_moves(
    name: str, brokers: list[tuple[int, list[int]]], members: dict[int, int]
) -> None:
    """As many moves between the same brokers, whose traffic differs by a tenth at most; pairs, memory and skips are the
    same, and never is more together than without it.
    """
    seen = clustered(brokers)
    known = spread_of(seen, members)
    placed = {"placement": "least-long-term-message-rate"}
    plain, found = (
        ask(name, seen, live=True, permit=permit, **placed, **EAGER[name]) for permit in ({}, {"spread": known})
    )

    def ends(decision: Decision) -> Counter[tuple[str, str | None]]:
        return Counter((one.source, one.destination) for one in decision.unloads)

    assert ends(found) == ends(plain)
    assert len({one.bundle for one in found.unloads}) == len(found.unloads)
    assert (found.comparison.pairs, found.memory, found.skips) == (plain.comparison.pairs, plain.memory, plain.skips)
    assert Counter(found.verdicts[found.verdicts == Reason.MOVES.code].tolist()) == Counter(
        plain.verdicts[plain.verdicts == Reason.MOVES.code].tolist()
    )
    for pair in ends(plain):
        for measure in ("msg_rate", "throughput"):
            before, after = (
                sum(getattr(one, measure) for one in of.unloads if (one.source, one.destination) == pair)
                for of in (plain, found)
            )
            assert abs(after - before) <= PAIR_SHARE * before + 1e-6
    assert together(seen, known, found) <= together(seen, known, plain) + 1e-6


@pytest.mark.parametrize("name", list(STRATEGIES))
@given(BROKERS, st.dictionaries(st.integers(0, 39), st.integers(1, 5), max_size=12))
def test_stock_decides_as_pulsar_whatever_is_known(
    name: str, brokers: list[tuple[int, list[int]]], members: dict[int, int]
) -> None:
    """``profile: stock`` ignores it."""
    seen = clustered(brokers)
    plain, found = (
        ask(name, seen, permit=permit, **EAGER[name]) for permit in ({}, {"spread": spread_of(seen, members)})
    )

    assert found.unloads == plain.unloads
    assert found.verdicts.tolist() == plain.verdicts.tolist()
