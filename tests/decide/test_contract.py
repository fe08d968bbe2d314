"""What holds for every strategy of the registry, whatever it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.config import Settings, strategy_section
from lbd.decide.strategies import RULES, STRATEGIES, strategy_settings
from lbd.model import Memory
from lbd.place.placements import PLACEMENTS
from lbd.reason import Reason
from lbd.store.state import StateDir, TurnMemory
from tests.builders import bundle, report, snapshot, stats
from tests.decide.asking import ask

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lbd.observe.parse import LoadReport

EAGER: dict[str, dict[str, Any]] = {
    "avg-shedder": {"low_threshold": 1, "hit_count_low": 1, "min_unload_message": 0},
    "threshold-shedder": {
        "broker_threshold_shedder_percentage": 1,
        "bundle_unload_min_throughput_threshold": 0,
        "lower_boundary_shedding_enabled": True,
    },
    "overload-shedder": {"broker_overloaded_threshold_percentage": 50},
    "uniform-load-shedder": {"min_unload_message": 0, "min_unload_message_throughput": 0},
    "transfer-shedder": {"broker_load_target_std": 0.01, "shedding_condition_hit_count_threshold": 0},
    "least-moves": {
        "low_threshold": 1,
        "hit_count_low": 1,
        "aim_points": 1,
        "min_unload_message": 0,
        "min_unload_message_throughput": 0,
    },
}
"""Settings with which each moves what it can."""

NAMES = pytest.mark.parametrize("name", list(STRATEGIES))
BROKERS = st.lists(st.tuples(st.integers(0, 99), st.lists(st.integers(0, 300_000), max_size=8)), min_size=2, max_size=6)
PROFILES = st.sampled_from([True, False])
PLACED = st.sampled_from([None, *PLACEMENTS])


def reports(brokers: list[tuple[int, list[int]]]) -> dict[str, LoadReport]:
    """Brokers by CPU and the bytes/s of their bundles; a message has a hundred bytes."""
    found, number = dict[str, Any](), 0
    for at, (cpu, sizes) in enumerate(brokers):
        own = {bundle(number + more): stats(size / 100, size) for more, size in enumerate(sizes)}
        number += len(sizes)
        found[f"broker-{at}:80"] = report(cpu, own)
    return found


@NAMES
@given(BROKERS, PROFILES, PLACED)
def test_only_what_was_seen_moves_once_and_to_another_broker(
    name: str, brokers: list[tuple[int, list[int]]], live: bool, placement: str | None
):
    """Each unload is of a bundle that its source lists; destinations are other brokers of the round, or left open."""
    found = reports(brokers)
    decision = ask(name, snapshot(found), live=live, placement=placement, **EAGER[name])

    bundles = [unload.bundle for unload in decision.unloads]
    assert len(bundles) == len(set(bundles))
    for unload in decision.unloads:
        assert unload.bundle in found[unload.source].bundles
        assert unload.destination != unload.source
        assert unload.destination in {None, *found}
        assert placement is None or unload.destination is not None


@NAMES
@given(BROKERS, PROFILES, PLACED, st.randoms(use_true_random=False))
def test_the_order_of_reports_and_bundles_does_not_matter(
    name: str, brokers: list[tuple[int, list[int]]], live: bool, placement: str | None, shuffled: random.Random
):
    """The same twice, and the same from reports that came in another order, with their bundles in another order.

    Sums of many bundles differ in their last bit then, which placements by long-term rates may see in a tie.
    """
    found = reports(brokers)
    first, again = (ask(name, snapshot(found), live=live, placement=placement, **EAGER[name]) for _ in range(2))
    other = {}
    for broker in shuffled.sample(sorted(found), len(found)):
        names = list(found[broker].bundles)
        if placement is None:
            shuffled.shuffle(names)
        other[broker] = replace_order(found[broker], names)
    third = ask(name, snapshot(other), live=live, placement=placement, **EAGER[name])

    assert first.unloads == again.unloads == third.unloads
    assert first.memory == again.memory == third.memory


def replace_order(one: LoadReport, names: list[str]) -> LoadReport:
    """The same report with its bundles in another order."""
    return msgspec.structs.replace(one, bundles=names, last_stats={name: one.last_stats[name] for name in names})


@NAMES
@given(st.integers(2, 6), st.integers(0, 80), st.lists(st.integers(0, 300_000), max_size=8), PROFILES)
def test_nothing_moves_where_all_are_equal(name: str, brokers: int, cpu: int, sizes: list[int], live: bool):
    """Equal CPU, equal bundles; below its threshold for OverloadShedder, which knows no other broker."""
    settings = {**EAGER[name], **({"broker_overloaded_threshold_percentage": 85} if name == "overload-shedder" else {})}
    decision = ask(name, snapshot(reports([(cpu, sizes)] * brokers)), live=live, **settings)

    assert decision.unloads == ()
    assert [skip.reason for skip in decision.skips] == [Reason.BALANCED]


@NAMES
@given(BROKERS, PROFILES)
def test_what_is_barred_stays_and_a_hold_holds(name: str, brokers: list[tuple[int, list[int]]], live: bool):
    """No barred bundle moves, and under a hold none at all."""
    seen = snapshot(reports(brokers))
    barred = dict.fromkeys(seen.bundles[::2], Reason.EXCLUDED_NAMESPACE)
    some = ask(name, seen, live=live, permit={"barred": barred}, **EAGER[name])
    held = ask(name, seen, live=live, permit={"hold": Reason.PAUSED}, **EAGER[name])

    assert not {unload.bundle for unload in some.unloads} & set(barred)
    assert held.unloads == ()


@NAMES
def test_a_gap_moves_something(name: str):
    """So that the rules above are about something: one broker carries nearly all."""
    found = reports(
        [(95, [90_000, 50_000, 40_000, 30_000, 20_000, 10_000]), (20, [5_000, 6_000]), (20, [7_000, 8_000])]
    )
    decision = ask(name, snapshot(found), **EAGER[name])

    assert {"broker-0:80"} <= {unload.source for unload in decision.unloads}
    assert all(pair.fired for pair in decision.comparison.pairs if pair.source == "broker-0:80")


@NAMES
def test_one_broker_is_compared_with_nobody(name: str):
    """Nobody is asked, as in Pulsar."""
    decision = ask(name, snapshot(reports([(95, [1000, 2000])])), **EAGER[name])

    assert decision.unloads == ()
    assert [skip.reason for skip in decision.skips] == [Reason.TOO_FEW_BROKERS]


@NAMES
def test_a_doubted_broker_takes_no_part(name: str):
    """It neither gives nor takes, and nothing is remembered of what it seems to have."""
    seen = snapshot(reports([(99, [90_000, 50_000]), (70, [5_000, 6_000]), (20, [7_000, 8_000])]))
    paired = np.array([Reason.IMPOSSIBLE_NUMBER.code, 0, 0], dtype=np.int8)
    decision = ask(name, seen, permit={"paired": paired}, placement="rendezvous", **EAGER[name])

    ends = {end for unload in decision.unloads for end in (unload.source, unload.destination)}
    assert "broker-0:80" not in ends
    assert "broker-0:80" not in decision.memory.loads


@NAMES
def test_every_strategy_can_be_configured(name: str):
    """Its settings are a section, or fixed."""
    assert isinstance(Settings.model_validate({"strategy": name}).strategy_settings, STRATEGIES[name])
    assert (strategy_section(name) in Settings.model_fields) is STRATEGIES[name].is_section
    assert STRATEGIES[name] in RULES


@NAMES
def test_profiles_differ_only_in_what_is_not_pulsars(name: str):
    """``stock`` keeps every setting; ``eager`` waits for nothing, and keeps the profile."""
    chosen = strategy_settings(name, EAGER[name])
    assert chosen.model_dump() == chosen.stock().model_dump()
    assert (chosen.is_stock, chosen.stock().is_stock, chosen.stock().eager().is_stock) == (False, True, True)
    assert chosen.eager().wanted_hits.low <= 1


@NAMES
def test_memory_is_kept_in_full(name: str, tmp_path: Path):
    """What a strategy answers to remember is read back from the store as it was."""
    seen = snapshot(reports([(95, [90_000, 50_000, 40_000]), (20, [5_000, 6_000]), (20, [7_000, 8_000])]))
    memory = ask(name, seen, Memory(), placement="round-robin", **EAGER[name]).memory
    state = StateDir(tmp_path)
    state.save(TurnMemory(written_at=seen.taken_at).with_memory(memory))

    assert state.load().at(seen.taken_at + 60, 180).memory == memory
