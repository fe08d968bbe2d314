"""Who waits for answers, for how long, and that it is never long: a turn must end whatever is asked."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.api.connection import LONG, PROMPT
from lbd.api.guard import Guard
from lbd.giving_way import LATELY_SECONDS, LONG_SECONDS, MOST_SECONDS, TURN, Answers
from tests.api.conftest import serving
from tests.fake_pulsar import hot_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_SECONDS = 60.0


class Clock(threading.Event):
    """Time that passes only where somebody waits: for as long as they would, or until ``answered_at``."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self.waited, self.answered_at = 100.0, 0.0, float("inf")

    def now(self) -> float:
        return self.seconds

    def wait(self, timeout: float | None = None) -> bool:
        """Nobody in these tests waits without a limit."""
        assert timeout is not None
        spent = min(timeout, max(self.answered_at - self.seconds, 0.0))
        self.seconds += spent
        self.waited += spent
        return True


def answers(clock: Clock, let_come: Callable[[float], None] = float) -> Answers:
    """By this clock alone."""
    found = Answers(clock.now, let_come)
    clock.set()
    found._none = clock
    return found


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


def test_nobody_waits_where_nothing_is_asked(clock: Clock):
    """Nor after the answer."""
    found = answers(clock)
    found.give_way()
    found.begun("a")
    found.ended("a")
    found.give_way()
    assert clock.waited == 0


def test_whoever_waits_for_the_interpreter_comes_first_where_a_pressing_answer_was_made_lately(clock: Clock):
    """Nobody is asked in a simulated month, whose rounds are not made longer."""
    let_come: list[float] = []
    found = answers(clock, let_come.append)
    found.give_way()
    assert let_come == []
    found.begun("a")
    found.pressing()
    found.ended("a")
    found.give_way()
    assert let_come == [0.0]
    clock.seconds += LATELY_SECONDS
    found.give_way()
    assert let_come == [0.0]


def test_nobody_comes_first_for_what_can_wait(clock: Clock):
    """A turn is not made longer by who reads all else, however often."""
    let_come: list[float] = []
    found = answers(clock, let_come.append)
    for _ in range(10):
        found.begun("a page")
        found.ended("a page")
        found.give_way()
    assert (clock.waited, let_come) == (0, [])


def test_nobody_comes_first_while_it_is_worked_for_as_long_as_was_waited(clock: Clock):
    """Letting go of the interpreter again and again would cost a turn far more than waiting may."""
    let_come: list[float] = []
    found = answers(clock, let_come.append)
    found.begun("a")
    found.give_way()
    found.begun("b")
    found.give_way()
    assert (clock.waited, let_come) == (pytest.approx(MOST_SECONDS), [])
    found.pressing()
    found.ended("b")
    clock.seconds += 2 * MOST_SECONDS
    found.give_way()
    assert let_come == [0.0]


def test_an_answer_is_waited_for_until_it_is_there(clock: Clock):
    """Not longer."""
    found = answers(clock)
    found.begun("a")
    clock.answered_at = clock.seconds + 0.002
    found.give_way()
    assert clock.waited == pytest.approx(0.002)


def test_one_that_does_not_come_is_waited_for_once(clock: Clock):
    """A stream of events has no end, and a drain may take minutes: neither holds anybody after the first moment."""
    found = answers(clock)
    found.begun("a stream")
    for _ in range(100):
        found.give_way()
        clock.seconds += 0.001
    assert clock.waited == pytest.approx(MOST_SECONDS)


def test_one_that_does_not_come_holds_nobody_with_the_next_one(clock: Clock):
    """What was asked later is answered, and that ends the wait."""
    found = answers(clock)
    found.begun("a stream")
    clock.seconds += 1
    found.begun("a")
    assert not clock.is_set()
    found.ended("a")
    assert clock.is_set()


def test_two_answers_are_both_waited_for(clock: Clock):
    """The first one that is there does not end it."""
    found = answers(clock)
    found.begun("a")
    found.begun("b")
    found.ended("a")
    assert not clock.is_set()
    found.ended("b")
    assert clock.is_set()


@given(work=st.lists(st.floats(0.0001, 0.05), min_size=1, max_size=200))
def test_a_flood_of_questions_makes_nothing_more_than_twice_as_long(work: list[float]):
    """Somebody always asks, and nothing is ever answered: half of the time is still that of the work."""
    clock = Clock()
    found = answers(clock)
    for number, seconds in enumerate(work):
        found.begun(number)
        found.give_way()
        clock.seconds += seconds
    assert clock.waited <= sum(work) + 2 * MOST_SECONDS


def test_a_thread_that_waits_goes_on_with_the_answer():
    """By a real clock, with nothing to tell it but the answer."""
    found = Answers()
    found.begun("a")
    waiting = threading.Thread(target=found.give_way)
    waiting.start()
    found.ended("a")
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()


class Heeded(Answers):
    """Notes what is told, and how often somebody would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def begun(self, who: object) -> None:
        super().begun(who)
        self.told.append("begun")

    def pressing(self) -> None:
        super().pressing()
        self.told.append("pressing")

    def ended(self, who: object) -> None:
        super().ended(who)
        self.told.append("ended")

    def give_way(self) -> None:
        self.told.append("gave way")


def test_a_question_is_under_way_from_its_first_byte_to_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Before anybody has read it, as reading it takes the interpreter too; and a turn heeds it at each broker."""
    heeded = Heeded()
    for module in ("lbd.api.connection", "lbd.observe.observer", "lbd.observe.reports"):
        monkeypatch.setattr(f"{module}.ANSWERS", heeded)
    with hot_broker() as pulsar, serving(pulsar, tmp_path) as api:
        api.turn()
        assert heeded.told.count("gave way") == 2 * len(pulsar.ids) + 1
        heeded.told.clear()
        assert api.get("/healthz").status_code == 200
        assert heeded.told[:3] == ["begun", "pressing", "ended"]


@pytest.mark.parametrize(
    ("path", "heeded"),
    [
        *((path, True) for path in PROMPT),
        *((path, False) for path in ("/", "/static/app.js", "/v1/status", "/v1/moves", "/v1/explain", "/metrics")),
    ],
)
def test_a_turn_gives_way_to_probes_and_placements_alone(
    path: str, heeded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nobody waits for the rest for the sake of milliseconds, and the turn is what it would wait for."""
    answers, found, answered = Answers(), [], Guard.__call__

    async def noted(guard: Guard, scope: Any, receive: Any, send: Any) -> None:
        found.append((not answers._none.is_set(), answers._pressed_at > 0))
        await answered(guard, scope, receive, send)

    monkeypatch.setattr("lbd.api.connection.ANSWERS", answers)
    monkeypatch.setattr(Guard, "__call__", noted)
    with hot_broker() as pulsar, serving(pulsar, tmp_path) as api:
        api.turn()
        api.get(path)
    assert found == [(heeded, heeded)]


@pytest.mark.parametrize("path", LONG)
def test_what_takes_long_comes_after_the_turn(path: str, tmp_path: Path):
    """And is under way no more while it waits: a turn that waited for it would wait for itself."""
    with hot_broker() as pulsar, serving(pulsar, tmp_path) as api:
        api.turn()
        found: list[int] = []
        asks = threading.Thread(target=lambda: found.append(api.get(path).status_code))
        with TURN:
            asks.start()
            asks.join(LONG_SECONDS / 3)
            assert not found
        asks.join(PATIENCE_SECONDS)
        assert found == [200]


def test_all_else_comes_beside_it(tmp_path: Path):
    """What is short."""
    with hot_broker() as pulsar, serving(pulsar, tmp_path) as api:
        api.turn()
        begun = time.monotonic()
        with TURN:
            codes = [api.get(path).status_code for path in ("/healthz", "/v1/status", "/v1/moves", "/v1/gaps", "/")]
        assert codes == [200] * 5
        assert time.monotonic() - begun < 4 * LONG_SECONDS


def test_a_turn_without_end_is_not_waited_for(tmp_path: Path):
    """One that waits for brokers which do not answer takes nothing from anybody, and on call one wants to see why."""
    with hot_broker() as pulsar, serving(pulsar, tmp_path) as api:
        api.turn()
        begun = time.monotonic()
        with TURN:
            assert api.get("/v1/decisions").status_code == 200
        assert time.monotonic() - begun >= LONG_SECONDS
