"""What lasts too long: gaps about which nobody acts, and reports that cannot be true."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import ObserveError
from lbd.model import Unload
from lbd.observe.parse import Usage
from lbd.permit.evidence import Sample
from lbd.reason import Reason
from lbd.turn.parts import TurnResult
from lbd.turn.watchdog import WatchdogMemory, watch
from tests.builders import TAKEN_AT, bundle, report, stats
from tests.turn.records import COLD, HOT, record, two

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.observe.parse import LoadReport
    from lbd.turn.watchdog import Alarm


if TYPE_CHECKING:
    Scene = Callable[[int], Mapping[str, LoadReport]]

MINUTE = 60.0
PAUSED = (Reason.PAUSED, "by alice")


def alarms(scene: Scene, minutes: int, **changes: Any) -> dict[int, tuple[Alarm, ...]]:
    """The alarms of each minute; ``scene`` gives the reports of a minute."""
    state, samples = WatchdogMemory(), dict[str, Sample]()
    found: dict[int, tuple[Alarm, ...]] = {}
    for minute in range(minutes + 1):
        values = {key: value(minute) if callable(value) else value for key, value in changes.items()}
        seen = record(scene(minute), after_seconds=minute * MINUTE, samples=samples, **values)
        assert seen.facts is not None
        samples = dict(seen.facts.evidence.samples)
        state, found[minute] = watch(state, seen)
    return found


def first(found: Mapping[int, tuple[Alarm, ...]]) -> dict[tuple[str, str], int]:
    """In which minute each alarm began."""
    told: dict[tuple[str, str], int] = {}
    for minute, all_of_it in found.items():
        for alarm in all_of_it:
            told.setdefault(alarm.key, minute)
    return told


def gap(minute: int) -> dict[str, LoadReport]:
    """Sixty points, with new samples."""
    return two(80 + minute * 0.01, 20 + minute * 0.01)


def unload(minute: int) -> tuple[Unload, ...]:
    """A move from the hot broker in the tenth minute."""
    return (Unload(bundle(0), HOT, COLD, 1.0, 1.0),) if minute == 10 else ()


class TestGaps:
    def test_one_that_lasts_is_told_with_its_size_its_age_and_why_lbd_leaves_it(self) -> None:
        """After twice the eight samples in which the strategy would have acted."""
        found = alarms(gap, 20, hold=PAUSED)
        assert first(found) == {("gap", HOT): 16}
        assert [alarm.text for alarm in found[20]] == [
            f"{HOT} is 60.0 points above {COLD} for 20 min and nobody acted; lbd: blocked while lbd is paused"
        ]

    @pytest.mark.parametrize(
        ("scene", "changes", "wanted"),
        [
            (lambda minute: two(80, 20) if minute % 10 else two(30, 20), {"hold": PAUSED}, {}),
            (gap, {"hold": PAUSED, "unfinished": unload}, {("gap", HOT): 26}),
            (gap, {"hold": PAUSED, "settings": {"hit_count_low": 2}}, {("gap", HOT): 10}),
            (gap, {"hold": PAUSED, "settings": {"hit_count_low": 12}}, {("gap", HOT): 24}),
            (gap, {"settings": {"hit_count_low": 1, "hit_count_high": 1}}, {}),
            (gap, {"settings": {"hit_count_low": 1, "hit_count_high": 1}, "acts": False}, {("gap", HOT): 10}),
            (lambda minute: two(80 + minute * 0.01, 20, rates=(50.0,) * 8),
             {"settings": {"hit_count_low": 1, "hit_count_high": 1}}, {("gap", HOT): 10}),
            (lambda minute: two(80, 20, rates=(500.0,) * (8 if minute < 5 else 7)), {"hold": PAUSED},
             {("gap", HOT): 21}),
        ],
        ids=[
            "it comes and goes", "lbd moved one", "few hits wanted", "many hits wanted", "lbd acts",
            "only observed", "below the minimum", "somebody else moved one",
        ],
    )  # fmt: skip
    def test_a_deed_or_a_pause_of_the_gap_begins_the_clock_anew(
        self, scene: Scene, changes: dict[str, Any], wanted: dict[tuple[str, str], int]
    ) -> None:
        """Whoever acted: lbd, the leader or a person."""
        found = first(alarms(scene, 28, **changes))
        assert {key: minute for key, minute in found.items() if key[0] == "gap"} == wanted

    def test_it_ends_with_the_gap(self) -> None:
        """In the same turn."""
        found = alarms(lambda minute: gap(minute) if minute < 20 else two(30, 20), 20, hold=PAUSED)
        assert (len(found[19]), found[20]) == (1, ())

    def test_a_turn_that_saw_nothing_changes_nothing(self) -> None:
        """What was wrong before is taken to be so."""
        state, before = watch(WatchdogMemory(), record(gap(0)))
        later, now = watch(replace(state, alarms=before), TurnResult(error=ObserveError("gone")))
        assert (later.since, now) == (state.since, before)

    def test_a_long_silence_is_no_gap(self) -> None:
        """After more than half an hour without a turn nobody knows what went on."""
        state, _ = watch(WatchdogMemory(), record(gap(0), hold=PAUSED))
        state, found = watch(state, record(gap(1), after_seconds=3600, hold=PAUSED))
        assert (found, set(state.since.values())) == ((), {state.at})


def still(**changes: Any) -> Scene:
    """A broker whose report is the same every minute; the other one's changes."""
    own = {bundle(0): stats(300)}
    return lambda minute: {HOT: report(**{"cpu": 30.0, "statistics": own, **changes}), COLD: report(20 + minute)}


class TestReports:
    @pytest.mark.parametrize(
        ("scene", "wanted"),
        [
            (still(), {("frozen", HOT): 5}),
            (still(statistics={}), {("frozen", HOT): 5}),
            (still(cpu=0.0), {("zero", HOT): 2}),
            (still(cpu=0.0, statistics={}), {}),
            (still(cpu=float("nan")), {("nan", HOT): 2}),
            (still(bandwidth_in=Usage(float("nan"), 100.0)), {("nan", HOT): 2}),
            (still(msg_rate_in=float("nan")), {("nan", HOT): 2}),
            (lambda minute: {HOT: report(30 + minute % 2, {bundle(0): stats(300)}), COLD: report(20 + minute)}, {}),
        ],
        ids=["frozen", "idle", "zero", "zero and idle", "NaN", "NaN of a NIC", "NaN of a rate", "well"],
    )
    def test_each_fault_is_told_after_its_time(self, scene: Scene, wanted: dict[tuple[str, str], int]) -> None:
        """Five sampling intervals for a report that stands still, two for zeros and NaN."""
        assert first(alarms(scene, 9)) == wanted

    @pytest.mark.parametrize(
        ("scene", "text"),
        [
            (still(), f"CPU and bandwidth in the load report of {HOT} have not changed, while it carries 600 msg/s"),
            (still(cpu=0.0), f"the load report of {HOT} says 0 of every resource, while it carries 600 msg/s"),
            (still(cpu=float("nan")), f"the load report of {HOT} holds NaN"),
        ],
    )
    def test_the_words(self, scene: Scene, text: str) -> None:
        """Which broker, what is wrong, and for how long."""
        minutes = 5 if "not changed" in text else 2
        assert [alarm.text for alarm in alarms(scene, minutes)[minutes]] == [f"{text}, for {minutes} min"]

    def test_a_frozen_report_after_a_restart(self) -> None:
        """How long it stands still is kept: nobody waits anew."""
        before = record(still()(0)).facts
        assert before is not None
        _, found = watch(
            WatchdogMemory(), record(still()(7), after_seconds=7 * MINUTE, samples=before.evidence.samples)
        )
        assert [alarm.text.rpartition(", ")[2] for alarm in found] == ["for 7 min"]

    def test_a_frozen_report_that_moves_again(self) -> None:
        """One new sample ends it."""
        found = alarms(lambda minute: still(cpu=30.0 if minute < 8 else 31.0)(minute), 8)
        assert (len(found[7]), found[8]) == (1, ())


class TestOthers:
    """Bundles that neither this lbd nor a restart moved."""

    @staticmethod
    def others(taken: Mapping[int, tuple[str, ...]], minutes: int, **facts: Any) -> list[int]:
        """The minutes with the alarm; ``taken`` are the bundles that changed hands in each minute."""
        state, found = WatchdogMemory(), []
        for minute in range(minutes + 1):
            seen = record(two(), after_seconds=minute * MINUTE)
            assert seen.facts is not None
            hands = dict.fromkeys(taken.get(minute, ()), (HOT, COLD))
            state, told = watch(state, replace(seen, facts=replace(seen.facts, taken_by_others=hands, **facts)))
            found += [minute for alarm in told if alarm.kind == "others"]
        return found

    @pytest.mark.parametrize(
        ("taken", "facts", "wanted"),
        [
            ({1: (bundle(0),)}, {}, []),
            ({1: (bundle(0), bundle(1))}, {}, list(range(2, 31))),
            ({1: (bundle(0),), 5: (bundle(1),)}, {}, list(range(6, 31))),
            ({1: (bundle(0),), 35: (bundle(1),)}, {}, []),
            ({1: (bundle(0), bundle(1))}, {"attempted_at": {bundle(0): TAKEN_AT}}, []),
            ({1: (bundle(0), bundle(1))}, {"shedding": "both shed by themselves"}, []),
        ],
        ids=[
            "one bundle is a person's unload",
            "two at once",
            "two within half an hour",
            "one, and one more later",
            "one of them is this lbd's, as its journal says by now",
            "the brokers' own shedder",
        ],
    )
    def test_several_bundles_that_change_hands(
        self, taken: Mapping[int, tuple[str, ...]], facts: Mapping[str, Any], wanted: list[int]
    ) -> None:
        """For half an hour after the first of the last two."""
        assert self.others(taken, 40, **facts) == wanted

    def test_a_broker_that_is_shut_down_gives_its_bundles_away_while_it_still_reports(self) -> None:
        """After that it is gone."""
        state = WatchdogMemory()
        for minute, reports in enumerate((two(), two(), {COLD: two()[COLD]})):
            seen = record(reports, after_seconds=minute * MINUTE)
            assert seen.facts is not None
            hands = {bundle(0): (HOT, COLD), bundle(1): (HOT, COLD)} if minute == 1 else {}
            state, told = watch(state, replace(seen, facts=replace(seen.facts, taken_by_others=hands)))
            assert "others" not in {alarm.kind for alarm in told}

    def test_the_text_names_who_may_be_meant(self) -> None:
        """And the first bundle."""
        state = WatchdogMemory()
        for minute in range(3):
            seen = record(two(), after_seconds=minute * MINUTE)
            assert seen.facts is not None
            hands = {bundle(0): (HOT, COLD), bundle(1): (HOT, COLD)} if minute == 1 else {}
            state, told = watch(state, replace(seen, facts=replace(seen.facts, taken_by_others=hands)))
        (text,) = [alarm.text for alarm in told if alarm.kind == "others"]
        assert text == (
            "2 bundles changed their broker within 30 min, not by this lbd and without a restart: another lbd, another "
            "balancer or a person moves them; let only one of them move; the first: "
            f"{bundle(0)} from {HOT} to {COLD}, for 60 s"
        )
