"""TransferShedder, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lbd.model import CLUSTER, Hits, Memory, UsualLoad
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, permission, report, snapshot, stats
from tests.decide.asking import ask, taken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import Decision, Snapshot
    from lbd.observe.parse import BundleStats

NAME = "transfer-shedder"
MB = 1e6
FIRST_FIRES = {"shedding_condition_hit_count_threshold": 0}
BASE: dict[str, tuple[float, tuple[float, ...]]] = {
    "a": (2, (1, 2)), "b": (4, (1, 3)), "c": (6, (2, 4)), "d": (80, (2, 6)), "e": (90, (2, 7)),
}  # fmt: skip
"""The five brokers of TransferShedderTest: CPU, and MB/s sent of their bundles."""


def five(cpu: Mapping[str, float] | None = None, taken_at: float = TAKEN_AT, **bundles: Sequence[float]) -> Snapshot:
    """These brokers, some with another CPU or other bundles; bundle 1 of broker e is number 41."""
    chosen = {name: ((cpu or {}).get(name, used), bundles.get(name, own)) for name, (used, own) in BASE.items()}
    return of(chosen, taken_at)


def of(brokers: Mapping[str, tuple[float, Sequence[float]]], taken_at: float = TAKEN_AT) -> Snapshot:
    """Brokers by CPU and MB/s sent of their bundles."""
    found = {}
    for at, (name, (cpu, sizes)) in enumerate(brokers.items()):
        namespace, first = f"t/{at // 25}", at % 25 * 10
        own = {bundle(first + number, namespace): sending(size) for number, size in enumerate(sizes, 1)}
        found[f"{name}:80"] = report(cpu, own)
    return snapshot(found, taken_at)


def sending(mb: float) -> BundleStats:
    """A bundle that only sends."""
    return msgspec.structs.replace(stats(0, 0), msg_throughput_out=mb * MB)


def moves(decision: Decision) -> list[str]:
    """Each unload as in TransferShedderTest: ``E1: e -> a``."""
    return sorted(
        f"{source.upper()}{number % 10}: {source} -> {(one.destination or '?')[0]}"
        for (source, number), one in zip(taken(decision), decision.unloads, strict=True)
    )


class TestPulsarsOwnTests:
    """LBT/extensions/scheduler/TransferShedderTest.java as data, brokers 1 to 5 as a to e."""

    @pytest.mark.parametrize(
        ("seen", "settings", "expected"),
        [
            (five(), {}, ["D1: d -> b", "E1: e -> a"]),
            (five(), {"max_number_of_broker_shedding_per_cycle": 10}, ["D1: d -> b", "E1: e -> a"]),
            (five(e=(2, 3)), {}, ["D1: d -> b", "E1: e -> a"]),
            (five({"d": 200, "e": 1000}), {}, ["D1: d -> b", "E1: e -> a"]),
            (five({"d": 55, "e": 65}), {}, ["E1: e -> a"]),
            (five({"b": 3, "d": 55, "e": 65}), {}, ["D1: d -> b", "E1: e -> a"]),
            (of({name: (cpu, own[:1]) for name, (cpu, own) in BASE.items()}), {}, []),
            (of({"a": (10, (1, 2)), "b": (20, (1, 3)), "c": (30, (2, 4))}), {}, []),
            (five(), {"transfer_enabled": False}, ["D1: d -> ?", "E1: e -> ?"]),
            (
                of({"a": (10, (1, 2, 3, 4, 5)), "b": (1000, (100, 180, 220, 250, 250))}),
                {},
                ["A1: a -> b", "A2: a -> b", "A3: a -> b", "A4: a -> b", "B1: b -> a", "B2: b -> a", "B3: b -> a"],
            ),
            (of({"a": (10, (1, 2, 3, 4, 5)), "b": (1000, (490, 510))}), {}, ["B1: b -> a"]),
            (of({"a": (48, (2.4, 2.4)), "b": (100, (5, 5))}), {}, ["A1: a -> b", "B1: b -> a"]),
            (of({"a": (50, (1, 500)), "b": (100, (500, 500))}), {"broker_load_target_std": 0.20}, []),
        ],
        ids=[
            "two pairs",
            "more brokers may give",
            "smaller bundles",
            "far above 100 %",
            "one pair is enough",
            "the same with less on another",
            "single bundles",
            "level enough",
            "destinations left open",
            "a swap for the last one",
            "no swap is needed",
            "one each way",
            "nothing fits, nor can be swapped",
        ],
    )
    def test_what_moves(self, seen: Snapshot, settings: dict[str, Any], expected: list[str]):
        """A table of clusters."""
        assert expected == moves(ask(NAME, seen, **FIRST_FIRES, **settings))

    def test_the_fourth_uneven_round_fires(self):
        """With a threshold of 3; and then it counts from the beginning."""
        memory, found = Memory(), []
        for number in range(5):
            decision = ask(NAME, five(taken_at=TAKEN_AT + 60 * number), memory)
            memory = decision.memory
            found.append((len(decision.unloads), memory.hits.get(CLUSTER, Hits()).low))

        assert [(0, 1), (0, 2), (0, 3), (2, 0), (0, 0)] == found

    def test_an_even_round_in_between_begins_anew(self):
        """Hits are counted in a row."""
        level = of({"a": (50, (5, 5)), "b": (50, (5, 5))})

        assert {} == ask(NAME, level, Memory(hits={CLUSTER: Hits(3)})).memory.hits

    def test_resting_bundles_stay(self):
        """E1, E2, D1 and D2 were unloaded lately: c gives to a, who is next to take."""
        barred = {bundle(number, "t/0"): Reason.COOL_DOWN for number in (31, 32, 41, 42)}

        assert ["C1: c -> a"] == moves(ask(NAME, five(c=(1.9, 4)), permit={"barred": barred}, **FIRST_FIRES))

    def test_after_a_broker_gave_everybody_waits(self):
        """shedding_delay_in_seconds, 180: also where the loads are uneven; hits are neither counted nor lost."""
        memory = Memory(hits={CLUSTER: Hits(2)}, unloaded_at={"a:80": TAKEN_AT - 179})
        waits = ask(NAME, five(), memory, **FIRST_FIRES)
        late = ask(NAME, five(), Memory(unloaded_at={"a:80": TAKEN_AT - 180}), **FIRST_FIRES)

        assert [] == moves(waits)
        assert (2, [Reason.SETTLING]) == (waits.memory.hits[CLUSTER].low, [skip.reason for skip in waits.skips])
        assert ["D1: d -> b", "E1: e -> a"] == moves(late)
        assert {"d:80": TAKEN_AT, "e:80": TAKEN_AT} == late.memory.unloaded_at

    @pytest.mark.parametrize(
        ("many", "odd", "ends"),
        [(1.0, 100.0, ("odd:80", "b00:80")), (98.0, 1.0, ("high:80", "odd:80"))],
        ids=["one far above", "one far below"],
    )
    def test_one_of_a_hundred_brokers(self, many: float, odd: float, ends: tuple[str, str]):
        """The deviation is below its target, 0.25, but somebody is underloaded: its partner's smaller bundle moves."""
        others = {f"b{at:02}": (many, (1.0, 2.0)) for at in range(98)}
        high = {"high": (99.0 if odd < many else many, (5.0, 6.0))}
        found = ask(NAME, of({**others, **high, "odd": (odd, (5.0, 6.0) if odd > many else (0.1, 0.2))}), **FIRST_FIRES)

        assert [ends] == [(one.source, one.destination) for one in found.unloads]

    @pytest.mark.parametrize(("cpu", "moved"), [(85.0, 0), (85.1, 1)])
    def test_a_broker_at_the_threshold_is_not_overloaded(self, cpu: float, moved: int):
        """Pulsar compares with ``>``, where the deviation is below its target and nobody is underloaded."""
        others = {f"b{at:02}": (55.0, (5.0, 6.0)) for at in range(19)}
        assert moved == len(ask(NAME, of({**others, "hot": (cpu, (1.0, 2.0, 8.0))}), **FIRST_FIRES).unloads)


class TestLoads:
    """What is compared: averages with history, and heap memory where it has a weight."""

    def test_history_weighs_nine_parts_of_ten(self):
        """Of usage, and of bytes/s; the first sample counts as it is."""
        found = ask(NAME, five(), Memory(loads={"e:80": UsualLoad(0.5, 1e6)}))

        assert (pytest.approx(0.54), pytest.approx(1.8e6)) == (
            found.memory.loads["e:80"].usage,
            found.memory.loads["e:80"].throughput,
        )
        assert UsualLoad(0.02, 3e6) == found.memory.loads["a:80"]

    def test_without_a_new_sample_nothing_is_counted(self):
        """Neither in an average nor as a hit: the most loaded broker's sample is the clock."""
        seen = five()
        counts = permission(seen).counts & [True, True, True, True, False]
        found = ask(NAME, seen, Memory(loads={"e:80": UsualLoad(0.9, 9e6)}), live=True, permit={"counts": counts})

        assert UsualLoad(0.9, 9e6) == found.memory.loads["e:80"]
        assert {} == found.memory.hits
        assert [Reason.NO_NEW_SAMPLE] == [skip.reason for skip in found.skips]

    def test_a_hold_stops_the_count_one_below_its_limit(self):
        """So that one more round is seen after it."""
        found = ask(NAME, five(), Memory(hits={CLUSTER: Hits(9)}), permit={"hold": Reason.PAUSED})

        assert Hits(3) == found.memory.hits[CLUSTER]
        assert [Reason.PAUSED] == [skip.reason for skip in found.skips]

    def test_a_pair_that_was_touched_is_left_out(self):
        """The next most loaded broker gives, to the same one."""
        seen = five()
        settled = permission(seen).settled & [True, True, True, False, True]
        found = ask(NAME, seen, permit={"settled": settled}, **FIRST_FIRES)

        assert ["E1: e -> a"] == moves(found)
        assert ("d:80 -> b:80", Reason.SETTLING) in [(skip.what, skip.reason) for skip in found.skips]


class TestSwap:
    """A bundle too large to move alone."""

    def test_live_plans_no_way_back(self):
        """From the less to the more loaded broker nothing may move: it would be half a swap."""
        seen = of({"a": (48, (2.4, 2.4)), "b": (100, (5, 5))})
        found = ask(NAME, seen, live=True, **FIRST_FIRES)

        assert [] == moves(found)
        assert [Reason.NOTHING_FITS] == [skip.reason for skip in found.skips]
        assert Reason.TOO_LARGE.code in found.verdicts

    def test_of_the_largest_bundles_only(self):
        """The list is as long as max_number_of_bundles_in_bundle_load_report, and one of it always stays."""
        seen = of({"a": (2, (1, 2)), "e": (90, (1, 1.2, 1.4, 1.6, 9))})

        assert ["B4: e -> a"] == [
            one.replace("E", "B")
            for one in moves(ask(NAME, seen, **FIRST_FIRES, max_number_of_bundles_in_bundle_load_report=2))
        ]


@pytest.mark.parametrize("cpu", [0.0, 50.0])
def test_a_broker_without_load_or_traffic_gives_nothing(cpu: float):
    """By its report: Java would divide by zero here, and move all its bundles but one."""
    one = report(cpu, {bundle(1): sending(9), bundle(2): sending(8)}, msg_throughput_out=0.0 if cpu else 17 * MB)
    found = ask(NAME, snapshot({"a:80": report(0, {bundle(9): sending(0.1)}), "b:80": one}), **FIRST_FIRES)

    assert () == found.unloads
    assert [Reason.NO_TRAFFIC] == [skip.reason for skip in found.skips]
