"""Plans are worked off beside who hands them over: intent before the request, outcome after it, spaced, and stopped."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from lbd.act import executor as executing
from lbd.act.executor import Execution, Executor, FinishedMoves, Pace
from lbd.act.ownership import ActClock
from lbd.act.unload import Unloader
from lbd.errors import UsageError
from lbd.model import Outcome, Result, Skip, Unload
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import Reply, page, refused
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal, read
from lbd.store.moves import history
from tests import fake_pulsar
from tests.daemon.test_service import eventually
from tests.journals import entries
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.act.executor import Limits
    from lbd.act.unload import ReadyMove
    from lbd.permit.budget import Sent
    from tests.fake_pulsar import FakePulsar

BUNDLES = [f"t/n/0x{number << 28:08x}_0x{(number + 1) << 28:08x}" for number in range(6)]


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A cluster of its own for each test: broker 1 owns six bundles, broker 2 leads."""
    with fake_pulsar.started() as cluster:
        cluster.own(cluster.ids[0], dict.fromkeys(BUNDLES, 100.0))
        yield cluster


@dataclass
class Diary:
    """A journal in memory that also notes what had been asked of the brokers when each line was written."""

    pulsar: FakePulsar
    lines: list[tuple[str, str, int, int]] = field(default_factory=list)
    open: tuple[tuple[str, Unload], ...] = ()
    attempted_at: dict[str, float] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()

    def intend(self, unload: Unload, attempt: int) -> str:
        """Note the attempt and how many unloads had been sent before it."""
        self.lines.append(("intent", unload.bundle, attempt, self._sent()))
        return str(len(self.lines))

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Note the outcome."""
        assert self.lines[int(move) - 1][0] == "intent"
        self.lines.append((outcome.result.value, outcome.unload.bundle, outcome.attempts, self._sent()))

    def amend(self, move: str, outcome: Outcome) -> None:
        """Note what it is by now."""
        self.lines.append(("amended", outcome.unload.bundle, outcome.attempts, self._sent()))

    def confirm(self, move: str, again: bool) -> None:
        """One lbd."""

    def _sent(self) -> int:
        return len(self.pulsar.asked("/unload", "PUT"))


def unloader(pulsar: FakePulsar) -> Unloader:
    """An unloader that waits for nothing."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Unloader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), ActClock(lambda: now[0], sleep))


def plan(pulsar: FakePulsar, *numbers: int, source: int = 0) -> list[Unload]:
    """Unloads of these bundles to the third broker."""
    return [Unload(BUNDLES[number], pulsar.ids[source], pulsar.ids[2], 200.0, 20_000.0) for number in numbers]


def executed(pulsar: FakePulsar, journal: Any, moves: list[Unload], limits: Limits | None = None) -> FinishedMoves:
    """A plan, handed over and waited for."""
    executor = Executor(journal, time.time)
    executor.start(moves, limits or SameForAll(), Execution(unloader(pulsar)))
    assert executor.wait(60)
    return executor.collect()


def results(ended: FinishedMoves) -> list[tuple[str, int]]:
    """How each ended, and after how many attempts."""
    return [(outcome.result.value, outcome.attempts) for outcome in ended.outcomes]


def values(ended: FinishedMoves) -> list[str]:
    """How each ended."""
    return [outcome.result.value for outcome in ended.outcomes]


class TestJournal:
    def test_intent_before_the_request_and_outcome_after(self, pulsar: FakePulsar) -> None:
        """At each intent no request of that unload was sent yet; each takes two: leader and owner."""
        diary = Diary(pulsar)
        assert results(executed(pulsar, diary, plan(pulsar, 0, 1))) == [("landed", 1), ("landed", 1)]
        assert diary.lines == [
            ("intent", BUNDLES[0], 1, 0),
            ("landed", BUNDLES[0], 1, 2),
            ("intent", BUNDLES[1], 1, 2),
            ("landed", BUNDLES[1], 1, 4),
        ]

    def test_a_retry_has_lines_of_its_own(self, pulsar: FakePulsar) -> None:
        """Every attempt starts a cool-down, so every attempt is written."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
        diary = Diary(pulsar)
        executed(pulsar, diary, plan(pulsar, 0))
        assert [line[:3] for line in diary.lines] == [
            ("intent", BUNDLES[0], 1),
            ("failed", BUNDLES[0], 1),
            ("intent", BUNDLES[0], 2),
            ("landed", BUNDLES[0], 2),
        ]


class TestRetry:
    @pytest.mark.parametrize(
        ("thieves", "may_stay", "expected"),
        [
            ([0], True, ("landed", 2)),
            ([0, 0], True, ("failed", 2)),
            ([0, 1], True, ("landed-elsewhere", 2)),
            ([1], True, ("landed-elsewhere", 1)),
        ],
        ids=["came back", "came back twice", "came back, then elsewhere", "a healthy third broker"],
    )
    def test_once_more_when_it_came_back(
        self, thieves: list[int], may_stay: bool, expected: tuple[str, int], pulsar: FakePulsar
    ) -> None:
        """A bundle back on its source is tried once more; one on a healthy third broker stays there."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[thief] for thief in thieves]
        ended = executed(pulsar, Diary(pulsar), plan(pulsar, 0), SameForAll(may_stay))
        assert results(ended) == [expected]

    def test_once_more_when_it_must_not_stay_there(self, pulsar: FakePulsar) -> None:
        """It landed where policy or load forbid: it is moved on from where it is now, to where it was meant to go."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[1]]
        assert results(executed(pulsar, Diary(pulsar), plan(pulsar, 0), SameForAll(may_stay_anywhere=False))) == [
            ("landed", 2)
        ]
        assert pulsar.owners[BUNDLES[0]] == pulsar.ids[2]

    @pytest.mark.parametrize(
        ("thieves", "expected", "landings"),
        [([1, 1], Result.ELSEWHERE, [1]), ([1, 0], Result.FAILED, [])],
        ids=["it stayed there", "it came back to its source"],
    )
    def test_the_end_of_a_move_that_went_on_from_a_third_broker(
        self, thieves: list[int], expected: Result, landings: list[int], pulsar: FakePulsar
    ) -> None:
        """It is that of the whole move: whether the bundle has left the broker that was to give it, and for which."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[thief] for thief in thieves]
        limits = SameForAll(may_stay_anywhere=False)
        (outcome,) = executed(pulsar, Diary(pulsar), plan(pulsar, 0), limits).outcomes
        assert (outcome.result, outcome.owner) == (expected, pulsar.ids[thieves[-1]])
        assert limits.landings == [(BUNDLES[0], pulsar.ids[broker]) for broker in landings]

    @pytest.mark.parametrize(
        "reply", [refused(409, "inactive"), refused(412, "split"), refused(500, "not active"), refused(503, "busy")]
    )
    def test_a_refusal_is_not_tried_again(self, reply: Reply, pulsar: FakePulsar) -> None:
        """The broker said no; the next turn decides anew."""
        pulsar.fault("/unload", reply, broker=pulsar.ids[0])
        assert results(executed(pulsar, Diary(pulsar), plan(pulsar, 0), SameForAll(may_stay_anywhere=False))) == [
            ("failed", 1)
        ]
        assert [one.broker for one in pulsar.asked("/unload")].count(pulsar.ids[0]) == 1

    def test_silence_is_not_tried_again(self, pulsar: FakePulsar) -> None:
        """What may have happened is judged, never repeated."""
        pulsar.fault("/unload", fake_pulsar.SILENCE, broker=pulsar.ids[0], after_acting=True)
        assert results(executed(pulsar, Diary(pulsar), plan(pulsar, 0), SameForAll(may_stay_anywhere=False))) == [
            ("landed", 1)
        ]
        assert [one.broker for one in pulsar.asked("/unload")].count(pulsar.ids[0]) == 1


class TestStopping:
    @pytest.mark.parametrize(
        ("stolen", "expected"),
        [
            ([], ["landed"] * 6),
            ([0], ["landed-elsewhere"] + ["landed"] * 5),
            ([0, 1], ["landed-elsewhere"] * 2),
            ([1, 2], ["landed", "landed-elsewhere", "landed-elsewhere"]),
            ([0, 2, 4], ["landed-elsewhere", "landed", "landed-elsewhere", "landed", "landed-elsewhere", "landed"]),
            ([0, 4, 5], ["landed-elsewhere", "landed", "landed", "landed", "landed-elsewhere", "landed-elsewhere"]),
        ],
        ids=["none", "one", "the first two", "two in a row", "every other", "the last two"],
    )
    def test_two_misses_in_a_row_stop_the_round(
        self, stolen: list[int], expected: list[str], pulsar: FakePulsar
    ) -> None:
        """A landing between two misses begins the count anew."""
        for number in stolen:
            pulsar.steals[BUNDLES[number]] = [pulsar.ids[1]]
        ended = executed(pulsar, Diary(pulsar), plan(pulsar, *range(6)))
        assert values(ended) == expected
        assert [skip.reason for skip in ended.skips] == [Reason.ROUND_STOPPED] * (6 - len(expected))

    def test_misses_are_counted_for_each_source(self, pulsar: FakePulsar) -> None:
        """One miss each from two sources stops nothing."""
        for number in (0, 1):
            pulsar.steals[BUNDLES[number]] = [pulsar.ids[number ^ 1]]
        pulsar.owners[BUNDLES[1]] = pulsar.ids[1]
        mixed = [*plan(pulsar, 0), *plan(pulsar, 1, source=1), *plan(pulsar, 2)]
        ended = executed(pulsar, Diary(pulsar), mixed)
        assert sorted(values(ended)) == ["landed", "landed-elsewhere", "landed-elsewhere"]

    def test_a_dead_leader_ends_the_round_and_is_no_failure(self, pulsar: FakePulsar) -> None:
        """Nothing that would need it is sent, nothing is written, and nothing counts as attempted."""
        pulsar.kill(pulsar.ids[1])
        diary = Diary(pulsar)
        ended = executed(pulsar, diary, plan(pulsar, *range(6)))
        assert ended.outcomes == ()
        assert [skip.reason for skip in ended.skips] == [Reason.LEADER_UNREACHABLE] * 6
        assert diary.lines == []
        assert pulsar.asked("/unload") == []

    def test_an_empty_plan(self, pulsar: FakePulsar) -> None:
        """Asks nobody."""
        assert executed(pulsar, Diary(pulsar), []) == FinishedMoves()
        assert pulsar.requests == []

    def test_a_halt_before_the_first_unload(self, pulsar: FakePulsar) -> None:
        """What was not begun is told as not sent, with the reason given."""
        held = threading.Event()
        executor = Executor(Diary(pulsar), time.time)
        mover = Slow(unloader(pulsar), held)
        executor.start(plan(pulsar, 0, 1, 2), SameForAll(), Execution(mover))
        assert mover.begun.wait(60)
        executor.halt(Reason.PAUSED, "by ann")
        held.set()
        assert executor.wait(60)
        ended = executor.collect()
        assert values(ended) == ["landed"]
        assert ended.skips == tuple(Skip(BUNDLES[number], Reason.PAUSED, "by ann") for number in (1, 2))

    def test_a_halt_for_what_a_person_has_overridden(self, pulsar: FakePulsar) -> None:
        """A turn beside it finds lbd paused; the move by hand goes on, and another reason still ends it."""
        for reason, told in ((Reason.PAUSED, ["landed"] * 2), (Reason.ROUND_STOPPED, ["landed"])):
            held = threading.Event()
            executor = Executor(Diary(pulsar), time.time)
            mover = Slow(unloader(pulsar), held)
            bundles = (0, 1) if reason is Reason.PAUSED else (2, 3)
            executor.start(plan(pulsar, *bundles), SameForAll(), Execution(mover, passes=frozenset({Reason.PAUSED})))
            assert mover.begun.wait(60)
            executor.halt(reason, "by ann")
            held.set()
            assert executor.wait(60)
            assert values(executor.collect()) == told

    def test_a_journal_that_cannot_be_written_sends_nothing(self, pulsar: FakePulsar) -> None:
        """The failure is told, the rest is not begun."""

        class Full(Diary):
            def intend(self, unload: Unload, attempt: int) -> str:
                raise UsageError("journal cannot be written: No space left on device")

        ended = executed(pulsar, Full(pulsar), plan(pulsar, 0, 1))
        assert (ended.outcomes, len(ended.skips)) == ((), 2)
        assert "No space left" in str(ended.failure)
        assert pulsar.asked("/unload") == []

    def test_an_outcome_that_cannot_be_written_is_told_and_ends_the_round(self, pulsar: FakePulsar) -> None:
        """What was moved is never forgotten."""

        class FullThen(Diary):
            def conclude(self, move: str, outcome: Outcome) -> None:
                raise UsageError("journal cannot be written: No space left on device")

        ended = executed(pulsar, FullThen(pulsar), plan(pulsar, 0, 1))
        assert values(ended) == ["landed"]
        assert [skip.what for skip in ended.skips] == [BUNDLES[1]]
        assert "No space left" in str(ended.failure)

    def test_a_bug_ends_the_round_and_is_told(self, pulsar: FakePulsar) -> None:
        """A thread has nobody to raise to."""

        class Broken(Diary):
            def intend(self, unload: Unload, attempt: int) -> str:
                raise ZeroDivisionError

        ended = executed(pulsar, Broken(pulsar), plan(pulsar, 0))
        assert "bug in lbd" in str(ended.failure)

    def test_a_bug_after_the_request_is_an_unknown_outcome(self, pulsar: FakePulsar) -> None:
        """What was sent ends in an outcome in the journal, whatever happened to lbd."""

        class Broken(Slow):
            def send(self, ready: ReadyMove) -> Outcome:
                raise ZeroDivisionError("half of nothing")

        diary = Diary(pulsar)
        executor = Executor(diary, time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(Broken(unloader(pulsar), threading.Event())))
        assert executor.wait(60)
        ended = executor.collect()
        assert values(ended) == ["unknown"]
        assert [line[0] for line in diary.lines] == ["intent", "unknown"]
        assert "bug in lbd" in str(ended.failure)

    def test_a_second_attempt_that_cannot_be_written_leaves_the_first_outcome(self, pulsar: FakePulsar) -> None:
        """The unload was sent once and came back; that is what is told."""

        class FullThen(Diary):
            def intend(self, unload: Unload, attempt: int) -> str:
                if attempt == 2:
                    raise UsageError("journal cannot be written: No space left on device")
                return super().intend(unload, attempt)

        pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
        ended = executed(pulsar, FullThen(pulsar), plan(pulsar, 0, 1))
        assert results(ended) == [("failed", 1)]
        assert [skip.what for skip in ended.skips] == [BUNDLES[1]]
        assert "No space left" in str(ended.failure)

    def test_a_hold_between_plan_and_request_holds(self, pulsar: FakePulsar) -> None:
        """It is asked for before each request, and ends the rest of the plan."""
        past: list[Outcome | Skip] = []

        def hold() -> tuple[Reason, str] | None:
            return (Reason.PAUSED, "by ann") if past else None

        executor = Executor(Diary(pulsar), time.time, past.append)
        executor.start(plan(pulsar, 0, 1, 2), SameForAll(), Execution(unloader(pulsar), held=hold))
        assert executor.wait(60)
        ended = executor.collect()
        assert values(ended) == ["landed"]
        assert [skip.reason for skip in ended.skips] == [Reason.PAUSED] * 2

    def test_a_halt_during_the_check_sends_nothing(self, pulsar: FakePulsar) -> None:
        """The check takes seconds where a broker is dead; a stop in it holds for this very move."""
        executor = Executor(diary := Diary(pulsar), time.time)
        pulsar.fault(
            "/brokers/version",
            Reply(200, b"4.0.8"),
            times=1,
            then=lambda: executor.halt(Reason.ROUND_STOPPED, "lbd was stopped"),
        )
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert executor.collect().skips == (Skip(BUNDLES[0], Reason.ROUND_STOPPED, "lbd was stopped"),)
        assert (diary.lines, pulsar.asked("/unload")) == ([], [])

    def test_failed_checks_are_no_misses(self, pulsar: FakePulsar) -> None:
        """Nothing was sent, so nothing was missed: the third one goes on."""
        for number in (0, 1):
            pulsar.owners[BUNDLES[number]] = pulsar.ids[1]
        ended = executed(pulsar, Diary(pulsar), plan(pulsar, 0, 1, 2))
        assert [skip.reason for skip in ended.skips] == [Reason.OWNER_CHANGED] * 2
        assert values(ended) == ["landed"]


class Slow:
    """An unloader that says when it was asked and waits to be let go on."""

    def __init__(self, inner: Unloader, go: threading.Event) -> None:
        self._inner, self._go = inner, go
        self.begun = threading.Event()
        self.at_once: list[int] = []
        self._now = 0
        self._lock = threading.Lock()
        self.finish = inner.finish
        self.check = inner.check

    def send(self, ready: ReadyMove) -> Outcome:
        """Count how many are in flight."""
        with self._lock:
            self._now += 1
            self.at_once.append(self._now)
        self.begun.set()
        assert self._go.wait(60)
        try:
            return self._inner.send(ready)
        finally:
            with self._lock:
                self._now -= 1


class TestPace:
    def test_handing_over_returns_at_once(self, pulsar: FakePulsar) -> None:
        """Until they end, moves are unfinished; afterwards they are collected once."""
        held = threading.Event()
        executor = Executor(Diary(pulsar), time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(Slow(unloader(pulsar), held)))
        assert executor.collect().unfinished == tuple(plan(pulsar, 0))
        assert not executor.wait(0)
        held.set()
        assert executor.wait(60)
        first = executor.collect()
        assert values(first) == ["landed"]
        assert executor.collect() == FinishedMoves(touched=first.touched)
        executor.settled()
        assert executor.collect() == FinishedMoves()

    def test_touched_brokers_are_told_until_they_are_written_down(self, pulsar: FakePulsar) -> None:
        """Both ends, and the source also when a bundle was tried again from where it had landed instead."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[1]]
        executor = Executor(Diary(pulsar), time.time)
        executor.start(plan(pulsar, 0), SameForAll(may_stay_anywhere=False), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert executor.collect().touched == executor.collect().touched == {pulsar.ids[0], pulsar.ids[2]}

    def test_a_listener_that_fails_holds_nothing(self, pulsar: FakePulsar) -> None:
        """A log on a full disk must not keep the moves from ending; the turn tells it."""

        def full(_: Outcome | Skip) -> None:
            raise OSError(28, "No space left on device")

        executor = Executor(Diary(pulsar), time.time, full)
        executor.start(plan(pulsar, 0, 1), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        ended = executor.collect()
        assert values(ended) == ["landed", "landed"]
        assert "No space left" in str(ended.failure)

    def test_nothing_is_kept_of_empty_plans(self, pulsar: FakePulsar) -> None:
        """A turn hands over a plan each time, most of them empty, also while a move is under way."""
        executor = Executor(Diary(pulsar), time.time)
        go = threading.Event()
        executor.start(plan(pulsar, 0), SameForAll(), Execution(Slow(unloader(pulsar), go)))
        for _ in range(5):
            executor.start([], SameForAll(), Execution(unloader(pulsar)))
        assert len(executor._runs) == 1
        go.set()
        assert executor.wait(60)

    @pytest.mark.parametrize(("sources", "at_once", "most"), [(1, 4, 1), (2, 4, 2), (2, 1, 1)])
    def test_one_in_flight_for_each_source(self, sources: int, at_once: int, most: int, pulsar: FakePulsar) -> None:
        """Two from one source never overlap; sources do, as many as are allowed."""
        for number in range(4):
            pulsar.owners[BUNDLES[number]] = pulsar.ids[number % sources]
        moves = [one for number in range(4) for one in plan(pulsar, number, source=number % sources)]
        go = threading.Event()
        mover = Slow(unloader(pulsar), go)
        executor = Executor(Diary(pulsar), time.time)
        executor.start(moves, SameForAll(), Execution(mover, Pace(at_once=at_once)))
        eventually(lambda: len(mover.at_once) == most)
        time.sleep(0.1)
        go.set()
        assert executor.wait(60)
        assert values(executor.collect()) == ["landed"] * 4
        assert max(mover.at_once) == most

    def test_one_in_flight_for_each_range(self, pulsar: FakePulsar) -> None:
        """The same range of two namespaces on two sources: many leaders know a destination by its range (#25518)."""
        other = BUNDLES[0].replace("t/n/", "t/other/")
        pulsar.own(pulsar.ids[1], {other: 100.0})
        go = threading.Event()
        mover = Slow(unloader(pulsar), go)
        executor = Executor(Diary(pulsar), time.time)
        moves = [*plan(pulsar, 0), Unload(other, pulsar.ids[1], pulsar.ids[2], 1.0, 1.0)]
        executor.start(moves, SameForAll(), Execution(mover))
        time.sleep(0.3)
        go.set()
        assert executor.wait(60)
        assert values(executor.collect()) == ["landed"] * 2
        assert max(mover.at_once) == 1

    def test_unloads_from_one_source_are_spaced(self, pulsar: FakePulsar) -> None:
        """From the end of one to the begin of the next; a halt does not wait for it."""
        diary = Diary(pulsar)
        executor = Executor(diary, time.time)
        began = time.monotonic()
        executor.start(plan(pulsar, 0, 1, 2), SameForAll(), Execution(unloader(pulsar), Pace(spacing_seconds=0.4)))
        assert executor.wait(60)
        assert time.monotonic() - began >= 0.8
        executor.start(plan(pulsar, 3, 4), SameForAll(), Execution(unloader(pulsar), Pace(spacing_seconds=60)))
        while len(diary.lines) < 8:
            time.sleep(0.01)
        executor.halt(Reason.ROUND_STOPPED, "stop")
        assert executor.wait(60)


def until_closed(executor: Executor) -> None:
    """What a killed process left open is closed beside the turns."""
    deadline = time.monotonic() + 60
    while executor.unfinished:
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestAfterAKill:
    def recovered(self, pulsar: FakePulsar, folder: Path, seconds_ago: float, wait_seconds: float = 5) -> Executor:
        """A journal with one intent that was left open so long ago, and an executor that asked once."""
        Journal(folder / STORE_NAME, lambda: time.time() - seconds_ago).intend(plan(pulsar, 0)[0], 1)
        executor = Executor(Journal(folder / STORE_NAME, time.time), time.time)
        assert executor.unfinished == tuple(plan(pulsar, 0))
        executor.recover(lambda: unloader(pulsar), wait_seconds)
        return executor

    @pytest.mark.parametrize(
        ("owner", "result"),
        [(2, "landed"), (1, "landed-elsewhere"), (None, "landed"), (0, "failed")],
        ids=["it landed", "it went elsewhere", "nobody owned it", "it never left"],
    )
    def test_an_open_intent_is_closed_by_who_owns_it(
        self, owner: int | None, result: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Nothing is unloaded again; what nobody owns is placed; the outcome is in the journal."""
        pulsar.owners[BUNDLES[0]] = None if owner is None else pulsar.ids[owner]
        pulsar.affinity[BUNDLES[0]] = pulsar.ids[2]
        executor = self.recovered(pulsar, tmp_path, seconds_ago=100)
        assert executor.unfinished == ()
        assert values(executor.collect()) == [result]
        assert read(tmp_path / STORE_NAME).open == ()
        assert [one for one in pulsar.asked("/unload") if one.broker == pulsar.ids[0]] == []

    def test_a_destination_that_policies_have_come_to_forbid(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The source still owns it: it stays there, and what the leader may have noted is told."""
        asked: list[bool] = []

        def forbids(move: Unload, *, planned: bool) -> Skip:
            asked.append(planned)
            return Skip(move.bundle, Reason.ISOLATION_POLICY, "reserved for others")

        pulsar.affinity[BUNDLES[0]] = pulsar.ids[2]
        mover = Unloader(unloader(pulsar)._admin, ActClock(time.monotonic, time.sleep), forbids=forbids)
        outcome = mover.finish(plan(pulsar, 0)[0], 100)
        assert outcome is not None
        assert (outcome.result, outcome.owner, outcome.noted) == (Result.FAILED, pulsar.ids[0], pulsar.ids[2])
        assert pulsar.affinity[BUNDLES[0]] == pulsar.ids[2]
        assert asked == [False]

    def test_what_nobody_owns_goes_back_where_policies_forbid_its_destination(self, pulsar: FakePulsar) -> None:
        """To its source, and what the leader had noted is used up."""

        def forbids(move: Unload, *, planned: bool) -> Skip | None:
            del planned
            kept = move.destination == pulsar.ids[2]
            return Skip(move.bundle, Reason.ISOLATION_POLICY, "reserved for others") if kept else None

        pulsar.owners[BUNDLES[0]] = None
        pulsar.affinity[BUNDLES[0]] = pulsar.ids[2]
        mover = Unloader(unloader(pulsar)._admin, ActClock(time.monotonic, time.sleep), forbids=forbids)
        outcome = mover.finish(plan(pulsar, 0)[0], 1)
        assert outcome is not None
        assert (outcome.result, outcome.owner, outcome.noted) == (Result.FAILED, pulsar.ids[0], None)
        assert pulsar.affinity == {}

    def test_a_source_that_may_still_be_at_it_is_waited_for(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It closes topics for up to a minute: the intent stays open beside the turns, until it is known."""
        executor = self.recovered(pulsar, tmp_path, seconds_ago=5, wait_seconds=0.3)
        assert executor.unfinished
        pulsar.owners[BUNDLES[0]] = pulsar.ids[2]
        until_closed(executor)
        assert values(executor.collect()) == ["landed"]
        assert read(tmp_path / STORE_NAME).open == ()

    def test_what_cannot_be_told_yet_stays_open(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No broker answers for now."""
        pulsar.fault("/topicHashPositions", refused(500, "no"))
        executor = self.recovered(pulsar, tmp_path, seconds_ago=100, wait_seconds=0.3)
        assert executor.unfinished
        pulsar.faults.off()
        until_closed(executor)

    def test_what_can_never_be_told_ends_unknown(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """After twice the time of an unload lbd goes on, and says that it does not know."""
        pulsar.fault("/topicHashPositions", refused(500, "no"))
        executor = self.recovered(pulsar, tmp_path, seconds_ago=151)
        ended = executor.collect()
        assert values(ended) == ["unknown"]
        assert "HTTP 500 (no)" in ended.outcomes[0].detail

    def test_a_destination_that_is_gone_is_not_used(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nobody owns the bundle: the next client's lookup places it, lbd does not."""
        pulsar.owners[BUNDLES[0]] = None
        pulsar.fault("/brokers/ready", page(503), broker=pulsar.ids[2])
        executor = self.recovered(pulsar, tmp_path, seconds_ago=100)
        assert values(executor.collect()) == ["unowned"]
        assert pulsar.asked("/schemas/") == []

    def test_other_settings_reach_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The unloader is asked for each time: a token that was mended is used."""
        pulsar.authorization = "Bearer right"
        Journal(tmp_path / STORE_NAME, lambda: time.time() - 100).intend(plan(pulsar, 0)[0], 1)
        (tmp_path / "token").write_text("right")
        settings = [PulsarSettings(admin_urls=tuple(pulsar.urls))]
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        executor.recover(lambda: Unloader(Admin(settings[-1]), ActClock(time.monotonic, time.sleep)), 0.5)
        assert executor.unfinished
        settings.append(PulsarSettings(admin_urls=tuple(pulsar.urls), token_file=tmp_path / "token"))
        until_closed(executor)

    def test_what_is_closed_is_left_alone(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A journal without open intents asks nobody and grows by nothing."""
        executed(pulsar, Journal(tmp_path / STORE_NAME, time.time), plan(pulsar, 0))
        before, asked = entries(tmp_path), len(pulsar.requests)
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        executor.recover(lambda: unloader(pulsar), 5)
        assert executor.unfinished == ()
        assert entries(tmp_path) == before
        assert len(pulsar.requests) == asked

    def test_an_open_intent_on_what_is_gone_is_closed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A namespace that was deleted has no owner: the intent ends, and the next start finds none open."""
        gone = Unload("gone/ns/0x00000000_0xffffffff", pulsar.ids[0], pulsar.ids[2], 1.0, 1.0)
        Journal(tmp_path / STORE_NAME, time.time).intend(gone, 1)
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        executor.recover(lambda: unloader(pulsar), 5)
        until_closed(executor)
        assert values(executor.collect()) == ["gone"]
        assert read(tmp_path / STORE_NAME).open == ()


class FullDisk:
    """A journal whose writes number ``fails`` (from 1) fail; with ``published`` an intent is known all the same."""

    def __init__(self, journal: Journal, fails: int, *, published: bool = False) -> None:
        self._journal, self._fails, self._published, self._writes = journal, fails, published, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def intend(self, unload: Unload, attempt: int) -> str:
        """Write the intent, or fail; where it was published, it comes back from the topic."""
        if self._is_full():
            if self._published:
                self._journal.intend(unload, attempt)
            raise UsageError("the disk is full")
        return self._journal.intend(unload, attempt)

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Write the outcome, or fail."""
        if self._is_full():
            raise UsageError("the disk is full")
        self._journal.conclude(move, outcome)

    def _is_full(self) -> bool:
        self._writes += 1
        return self._writes == self._fails


class TestAFullDisk:
    """What stays open in the journal is closed before a later turn, also while this process lives."""

    def test_an_outcome_is_written_later_and_told_once(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """As it was when it was told: no broker is asked again."""
        ends, journal = list[Outcome | Skip](), FullDisk(Journal(tmp_path / STORE_NAME, time.time), fails=2)
        executor = Executor(journal, time.time, ends.append)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert len(journal.open) == 1
        asked = len(pulsar.requests)
        executor.recover(lambda: unloader(pulsar), 5)
        assert [end.result.value for end in ends if isinstance(end, Outcome)] == ["landed"]
        assert (journal.open, executor.unfinished, len(pulsar.requests)) == ((), (), asked)
        assert [entry["result"] for entry in entries(tmp_path) if entry["event"] == "outcome"] == ["landed"]

    def test_an_intent_that_only_the_topic_has_is_closed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The others hold it for a move under way; nothing was sent for it."""
        journal = FullDisk(Journal(tmp_path / STORE_NAME, lambda: time.time() - 100), fails=1, published=True)
        executor = Executor(journal, time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert (len(journal.open), pulsar.asked("/unload", "PUT")) == (1, [])
        executor.collect()
        executor.recover(lambda: unloader(pulsar), 5)
        until_closed(executor)
        assert (values(executor.collect()), journal.open) == (["failed"], ())

    def test_what_is_under_way_is_left_alone(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A turn comes amid a move: its open intent is nobody's but its lane's."""
        journal = Journal(tmp_path / STORE_NAME, time.time)
        executor = Executor(journal, time.time)
        turns = list[tuple[Unload, ...]]()

        def turn() -> None:
            executor.recover(lambda: unloader(pulsar), 0)
            turns.append(executor.unfinished)

        moves = plan(pulsar, 0)
        sending = unloader(pulsar)
        send = sending.send
        sending.send = lambda ready: (turn(), send(ready))[1]  # type: ignore[method-assign]
        executor.start(moves, SameForAll(), Execution(sending))
        assert executor.wait(60)
        assert turns == [tuple(moves)]


class TestAHeir:
    """Whoever comes to lead leaves open moves alone until the one before can send nothing more of them."""

    def test_it_waits_and_counts_from_its_own_beginning(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody owns the bundle, and by the clock of the other machine the move is old: it is placed later."""
        monkeypatch.setattr(executing, "HEIR_WAITS_SECONDS", 0.5)
        pulsar.owners[BUNDLES[0]] = None
        Journal(tmp_path / STORE_NAME, lambda: time.time() - 1000).intend(plan(pulsar, 0)[0], 1)
        journal = Journal(tmp_path / STORE_NAME, time.time)
        executor = Executor(journal, time.time)
        executor.inherit(dict(journal.open))
        executor.recover(lambda: unloader(pulsar), 0.3)
        assert (executor.unfinished, pulsar.requests) == (tuple(plan(pulsar, 0)), [])
        until_closed(executor)
        assert values(executor.collect()) == ["landed"]

    def test_what_another_lbd_has_closed_is_judged_no_more(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was leader for a moment; what the bundle does later belongs to later moves."""
        monkeypatch.setattr(executing, "HEIR_WAITS_SECONDS", 0.1)
        moves = plan(pulsar, 0)
        journal = Journal(tmp_path / STORE_NAME, time.time)
        move = journal.intend(moves[0], 1)
        executor = Executor(journal, time.time)
        executor.inherit(dict(journal.open))
        executor.recover(lambda: unloader(pulsar), 0.3)
        assert executor.unfinished == tuple(moves)
        journal.conclude(move, Outcome(moves[0], Result.LANDED, pulsar.ids[2]))
        pulsar.owners[BUNDLES[0]] = pulsar.ids[1]
        until_closed(executor)
        assert [entry["result"] for entry in entries(tmp_path) if entry["event"] == "outcome"] == ["landed"]
        assert executor.collect().outcomes == ()

    def test_its_source_may_still_be_at_it(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However long ago the intent was by another clock: the last request may have been sent a moment ago."""
        monkeypatch.setattr(executing, "HEIR_WAITS_SECONDS", 0.1)
        Journal(tmp_path / STORE_NAME, lambda: time.time() - 1000).intend(plan(pulsar, 0)[0], 1)
        journal = Journal(tmp_path / STORE_NAME, time.time)
        executor = Executor(journal, time.time)
        executor.inherit(dict(journal.open))
        executor.recover(lambda: unloader(pulsar), 1.0)
        assert executor.unfinished
        pulsar.owners[BUNDLES[0]] = pulsar.ids[2]
        until_closed(executor)


class TestLateActs:
    """For a minute after a doubtful end ownership is looked at again, and the end told as it is by then."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executing, "AMEND_EVERY_SECONDS", 0.05)

    @pytest.mark.parametrize(
        ("reply", "owner", "result"),
        [
            (refused(409, "inactive"), 2, "landed"),
            (refused(412, "split"), 2, "landed"),
            (refused(500, "boom"), 2, "landed"),
            (refused(500, "boom"), 1, "landed-elsewhere"),
            (refused(500, "boom"), None, "unowned"),
        ],
    )
    def test_a_refusal_that_was_acted_on_later(
        self, reply: Reply, owner: int | None, result: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """The journal, the next turn and whoever listens hear of it."""
        pulsar.fault("/unload", reply, broker=pulsar.ids[0])
        heard: list[Outcome | Skip] = []
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time, heard.append)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert values(executor.collect()) == ["failed"]
        pulsar.owners[BUNDLES[0]] = None if owner is None else pulsar.ids[owner]
        amended = self.amended(executor)
        assert amended.result.value == result
        assert amended.detail.startswith("was failed before")
        assert heard[-1] == amended
        assert [one.result for one in history(tmp_path)] == [amended.result]
        executor.close()

    def test_of_a_move_that_went_on_from_a_third_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whoever listens hears of the whole move, and the journal of its second attempt."""
        pulsar.owners[BUNDLES[0]] = pulsar.ids[1]
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0])
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        moves = plan(pulsar, 0, source=1)
        executor.start(moves, SameForAll(may_stay_anywhere=False), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert results(executor.collect()) == [("landed-elsewhere", 2)]
        pulsar.owners[BUNDLES[0]] = pulsar.ids[1]
        amended = self.amended(executor)
        assert (amended.result, amended.unload) == (Result.FAILED, moves[0])
        assert [one.result.value for one in history(tmp_path)] == ["landed-elsewhere", "landed-elsewhere"]
        executor.close()

    def test_a_doubtful_end_of_a_move_that_was_found_open_is_looked_at_as_well(
        self, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """The broker that was asked by a killed process may act later, too."""
        pulsar.owners[BUNDLES[0]] = pulsar.ids[0]
        Journal(tmp_path / STORE_NAME, lambda: time.time() - 100).intend(plan(pulsar, 0)[0], 1)
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        executor.recover(lambda: unloader(pulsar), 5)
        until_closed(executor)
        assert values(executor.collect()) == ["failed"]
        pulsar.owners[BUNDLES[0]] = pulsar.ids[2]
        assert self.amended(executor).result is Result.LANDED
        assert [one.result for one in history(tmp_path)] == [Result.LANDED]
        executor.close()

    @staticmethod
    def amended(executor: Executor) -> Outcome:
        """The first end that is amended."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for one in executor.collect().amended:
                return one
            time.sleep(0.01)
        raise AssertionError("in vain")

    def test_unowned_until_a_client_comes(self, pulsar: FakePulsar) -> None:
        """Each change is told."""
        pulsar.fault("/schemas/", Reply(503))
        diary = Diary(pulsar)
        executor = Executor(diary, time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        pulsar.owners[BUNDLES[0]] = pulsar.ids[1]
        assert self.amended(executor).result is Result.ELSEWHERE
        assert [line[0] for line in diary.lines] == ["intent", "unowned", "amended"]
        executor.close()

    def test_a_journal_that_cannot_be_amended_is_told(self, pulsar: FakePulsar) -> None:
        """The next turn hears of it, and not that the end is another one."""

        class FullThen(Diary):
            def amend(self, move: str, outcome: Outcome) -> None:
                raise UsageError("journal cannot be written: No space left on device")

        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0])
        executor = Executor(FullThen(pulsar), time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        assert values(executor.collect()) == ["failed"]
        pulsar.owners[BUNDLES[0]] = pulsar.ids[2]
        deadline = time.monotonic() + 60
        while (ended := executor.collect()).failure is None:
            assert time.monotonic() < deadline, "it is not told"
            time.sleep(0.01)
        executor.close()
        assert ("No space left" in str(ended.failure), ended.amended) == (True, ())

    def test_not_for_ever(self, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a minute its thread ends, and what nobody doubts is not looked at at all."""
        monkeypatch.setattr(executing, "AMEND_FOR_SECONDS", 0.2)
        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0])
        executor = Executor(Diary(pulsar), time.time)
        executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
        assert executor.wait(60)
        deadline = time.monotonic() + 60
        while executor._amending is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert executor.collect().amended == ()

    def test_a_later_attempt_takes_its_place(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The first one's end stays as it was: what becomes of the bundle is the second one's."""
        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0], times=1)
        executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
        for _ in range(2):
            executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
            assert executor.wait(60)
        time.sleep(0.3)
        assert [one.result.value for one in history(tmp_path)] == ["failed", "landed"]
        executor.close()


class TestSeveralFromOneSource:
    """As a drain does it."""

    NAMESAKES = ("t/m/0x00000000_0x10000000", BUNDLES[0])

    @pytest.mark.parametrize(
        ("bundles", "pace", "most"),
        [
            (BUNDLES[:4], Pace(), 1),
            (BUNDLES[:4], Pace(from_each=4), 4),
            (BUNDLES[:4], Pace(from_each=2), 2),
            (NAMESAKES, Pace(from_each=4), 1),
            (NAMESAKES, Pace(from_each=4, by_name=True), 2),
        ],
        ids=["a turn's", "ranges that differ", "two lanes", "one range", "one range, where leaders know full names"],
    )
    def test_so_many_are_in_flight(
        self, bundles: tuple[str, ...], pace: Pace, most: int, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As many as may be, and no two of a range unless leaders know a destination by the full name."""
        pulsar.own(pulsar.ids[0], dict.fromkeys(bundles, 100.0))
        meter, usual = Meter(most), Unloader.send

        def send(self: Unloader, ready: ReadyMove) -> Outcome:
            with meter:
                return usual(self, ready)

        monkeypatch.setattr(Unloader, "send", send)
        executor = Executor(Diary(pulsar), time.time)
        moves = [Unload(bundle, pulsar.ids[0], pulsar.ids[2], 200.0, 20_000.0) for bundle in bundles]
        executor.start(moves, SameForAll(), Execution(unloader(pulsar), pace))
        assert executor.wait(60)
        assert (values(executor.collect()), meter.most) == (["landed"] * len(bundles), most)


class Meter:
    """How many were within it at once; each waits for as many as there should be, with patience but not for ever."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._changed = wanted, threading.Condition()
        self._within = self.most = 0

    def __enter__(self) -> None:
        with self._changed:
            self._within += 1
            self.most = max(self.most, self._within)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._wanted, 20)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._within -= 1


def no_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The system has no thread left for this work, as under a limit of processes."""
    usual = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name.startswith(name):
            raise RuntimeError("can't start new thread")
        usual(self)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_a_lane_without_a_thread_holds_nothing_for_ever(pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its moves end as not sent, and the turn tells why."""
    no_thread(monkeypatch, "lbd-move-")
    executor = Executor(Diary(pulsar), time.time)
    with suppress(RuntimeError):
        executor.start(plan(pulsar, 0, 1), SameForAll(), Execution(unloader(pulsar)))
    assert executor.wait(60)
    ended = executor.collect()
    assert [skip.what for skip in ended.skips] == BUNDLES[:2]
    assert "can't start new thread" in str(ended.failure)


def test_what_was_left_open_is_closed_once_there_is_a_thread(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later turn tries again; until then the move stays under way."""
    Journal(tmp_path / STORE_NAME, lambda: time.time() - 100).intend(plan(pulsar, 0)[0], 1)
    executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
    with monkeypatch.context() as full, suppress(RuntimeError):
        no_thread(full, "lbd-recover")
        executor.recover(lambda: unloader(pulsar), 1)
    assert executor.unfinished == tuple(plan(pulsar, 0))
    executor.recover(lambda: unloader(pulsar), 5)
    assert executor.unfinished == ()


def test_what_another_lbd_does_with_a_bundle_is_no_end_of_an_earlier_move(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker refused it and never acted on it; the bundle left by the other one's order."""
    monkeypatch.setattr(executing, "AMEND_EVERY_SECONDS", 0.05)
    pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0])
    executor = Executor(Journal(tmp_path / STORE_NAME, time.time), time.time)
    executor.start(plan(pulsar, 0), SameForAll(), Execution(unloader(pulsar)))
    assert executor.wait(60)
    executor.moved_elsewhere(Unload(BUNDLES[0], pulsar.ids[0], pulsar.ids[1], 200.0, 20_000.0))
    pulsar.owners[BUNDLES[0]] = pulsar.ids[1]
    time.sleep(0.5)
    executor.close()
    assert [one.result for one in history(tmp_path)] == [Result.FAILED]


def test_a_move_of_another_lbd_is_told_also_where_it_comes_amid_a_turn(pulsar: FakePulsar) -> None:
    """What is written down of the turn before does not have it."""
    executor = Executor(Diary(pulsar), time.time)
    executor.collect()
    executor.moved_elsewhere(plan(pulsar, 0)[0])
    executor.settled()
    assert executor.collect().touched == {pulsar.ids[0], pulsar.ids[2]}


def test_who_comes_to_lead_once_more_waits_once_more(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one led in between, and may still send for what is open."""
    now = [1000.0]
    monkeypatch.setattr(executing, "boot_seconds", lambda: now[0])
    monkeypatch.setattr(executing, "HEIR_WAITS_SECONDS", 0.1)
    monkeypatch.setattr(executing, "RECOVERY_PAUSE_SECONDS", 0.02)
    journal = Journal(tmp_path / STORE_NAME, time.time)
    journal.intend(plan(pulsar, 0)[0], 1)
    executor = Executor(journal, time.time)
    executor.inherit(dict(journal.open))
    executor.recover(lambda: unloader(pulsar))
    now[0] += 0.2
    eventually(lambda: bool(pulsar.requests))
    executor.inherit(dict(journal.open))
    executor.recover(lambda: unloader(pulsar))
    time.sleep(0.3)
    pulsar.owners[BUNDLES[0]] = None
    time.sleep(0.3)
    assert pulsar.asked("/schemas/") == []
    now[0] += 0.2
    until_closed(executor)
    assert pulsar.owners[BUNDLES[0]] == pulsar.ids[2]
