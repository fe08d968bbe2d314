"""Who leads of several lbds, on a topic in memory that lets one of them write at a time, as brokers do."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from lbd.act.executor import Execution, Executor
from lbd.act.unload import ReadyMove
from lbd.daemon import election
from lbd.daemon.election import Leadership
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.admin import Leader
from lbd.pulsar.leader_topic import Writer
from lbd.reason import Reason
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains
from lbd.store.journal_lines import Intent, encoded
from lbd.store.shared import SharedJournal, SharedOrders
from tests.leader_topic import Connection, Topic
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MOVE = Unload("t/n/0x00000000_0xffffffff", "a:80", "b:80", 1, 1)
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of a machine, not of a network."""
    for name in ("ELECT_EVERY_SECONDS", "AGAIN_AFTER_SECONDS"):
        monkeypatch.setattr(election, name, 0.01)


@contextmanager
def lbd(
    path: Path, topic: Topic, name: str, on_gain: Callable[[], None] = lambda: None, **parts: Any
) -> Iterator[Leadership]:
    """One lbd that follows the topic, and leaves it in the end."""
    (path / name).mkdir(exist_ok=True)
    journal, orders = SharedJournal(path / name / "lbd.db", time.time), SharedOrders(path / name, time.time)
    found = Leadership(name, journal, time.time, lambda: Connection(topic), orders, **parts)
    found.on_gain = on_gain
    found.start()
    try:
        yield found
    finally:
        found.stop()
        journal.close()


def until(condition: Callable[[], object]) -> None:
    """Wait for it, as long as a busy machine may take."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.005)


def test_one_leads_and_the_other_stands_by(tmp_path: Path):
    """And each says so: to lead is no hold, to stand by is one that names the leader."""
    topic = Topic()
    with lbd(tmp_path, topic, "one", url="http://one:8085") as one:
        assert one.wait(PATIENCE_SECONDS)
        with lbd(tmp_path, topic, "two") as two:
            until(lambda: "leads since" in two.words)
            hold = two.hold()

            assert one.hold() is None
            assert one.words.startswith("this lbd leads since ")
            assert hold is not None
            assert hold[0] is Reason.NOT_LEADER
            assert hold[1].startswith("this lbd stands by, one (http://one:8085) leads since ")
            with pytest.raises(RefusedError, match=r"does not lead"):
                two.journal.intend(MOVE, 1)


def test_the_next_leader_knows_open_moves_before_it_may_move(tmp_path: Path):
    """What the one before wrote is read to its end first, and then taken over, while the hold still stands."""
    topic = Topic()
    taken: list[object] = []

    def take_over() -> None:
        taken.append((two.hold() is not None, [unload.bundle for _, unload in two.journal.open]))

    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        one.journal.intend(MOVE, 1)
        with lbd(tmp_path, topic, "two", take_over) as two:
            until(lambda: two.journal.open)
            assert taken == []
            one.stop()
            assert two.wait(PATIENCE_SECONDS)

    assert taken == [(True, [MOVE.bundle])]


def test_who_was_replaced_writes_nothing_more(tmp_path: Path):
    """As after a long standstill: its next intent fails, and what it ends is known to it alone."""
    topic = Topic()
    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        move = one.journal.intend(MOVE, 1)
        with topic.changed:
            topic.writer = Connection(topic)  # the broker lets another one in
        with pytest.raises(RefusedError, match=r"leads no more|does not lead"):
            one.journal.intend(MOVE, 1)
        one.journal.conclude(move, Outcome(MOVE, Result.LANDED, "b:80", ""))

        assert one.hold() is not None
        assert one.journal.open == ()
        assert sum(b'"outcome"' in line for line in topic.lines) == 0


def test_who_cannot_write_its_store_leaves_the_lead_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on a full disk: it would lead and move nothing. It stands for election again once a write has succeeded."""
    monkeypatch.setattr(election, "LEADS_UNWRITTEN_SECONDS", 0.01)
    topic, said = Topic(), list[str]()
    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        one.on_change = said.append
        with lbd(tmp_path, topic, "two") as two:
            set_writable(one, writable=False)
            assert two.wait(PATIENCE_SECONDS)
            until(lambda: "stands by, two leads since " in one.words)
            assert one.words.endswith("; its store cannot be written")
        assert not one.wait(0.2)
        set_writable(one, writable=True)
        assert one.wait(PATIENCE_SECONDS)

    assert said[0].startswith("leads no more: its store could not be written for ")


def set_writable(lbd: Leadership, *, writable: bool) -> None:
    """Have its store take writes or not; one is tried, as each turn does."""
    lbd.journal._store._connection.execute(f"PRAGMA query_only = {'OFF' if writable else 'ON'}")
    with suppress(UsageError):
        lbd.journal._store.put({"memory": b""})


def test_a_topic_that_is_gone_for_a_while_is_waited_for(tmp_path: Path):
    """Nobody leads then; the reason is told, and afterwards somebody does, with what ended meanwhile."""
    topic = Topic()
    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        move = one.journal.intend(MOVE, 1)
        topic.gone = True
        until(lambda: "no broker has it" in one.words)
        one.journal.conclude(move, Outcome(MOVE, Result.LANDED, "b:80", ""))
        assert one.hold() is not None
        topic.gone = False
        until(lambda: one.leading)

        assert [b'"outcome"' in line for line in topic.lines].count(True) == 1


def test_a_standby_connects_anew_after_many_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each refusal stays in the memory of its client, and nobody else notices that it is another one."""
    monkeypatch.setattr(election, "REFUSALS_OF_A_CLIENT", 3)
    topic, said = Topic(), []
    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        with lbd(tmp_path, topic, "two") as two:
            until(lambda: "leads since" in two.words)
            two.on_change = one.on_change = said.append
            connections = []
            two._connect = lambda: connections.append(Connection(topic)) or connections[-1]
            until(lambda: len(connections) > 1)
            said.clear()  # that one leads may have been said only now
            until(lambda: len(connections) > 3)

            assert one.leading
            assert "one leads since" in two.words
            assert said == []
            one.stop()
            until(lambda: two.leading)


def test_changes_are_told_once(tmp_path: Path):
    """Who leads, and that one leads no more; not each try."""
    topic, said = Topic(), []
    with lbd(tmp_path, topic, "one") as one, lbd(tmp_path, topic, "two") as two:
        until(lambda: one.leading or two.leading)
        first, second = (one, two) if one.leading else (two, one)
        second.on_change = said.append
        until(lambda: first.name in second.words)
        first.stop()
        until(lambda: second.leading)
        topic.gone = True
        until(lambda: not second.leading)
        until(lambda: said and said[-1].startswith("leads no more"))

    assert [line for line in said if not line.endswith(f"{first.name} leads")] == ["leads", *said[-1:]]


def test_many_kills_leave_one_leader_and_no_open_move(tmp_path: Path):
    """Each leader in turn intends, and is cut off before it can conclude: the next one finds all of it."""
    topic, names = Topic(), count()
    for _ in range(5):
        with lbd(tmp_path, topic, f"lbd-{next(names)}") as one:
            assert one.wait(PATIENCE_SECONDS)
            for move, unload in one.journal.open:
                one.journal.conclude(move, Outcome(unload, Result.LANDED, "b:80", "found open"))
            one.journal.intend(MOVE, 1)
    with lbd(tmp_path, topic, "last") as last:
        assert last.wait(PATIENCE_SECONDS)
        assert len(last.journal.open) == 1


def test_lines_that_are_none_are_counted(tmp_path: Path):
    """They may be a newer lbd's."""
    topic = Topic()
    topic.lines += [b"junk", b'{"event":"from-the-future"}']
    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        assert [warning.partition(":")[2].split(";")[0] for warning in one.warnings] == [" 2 lines cannot be read"]


STRANGER = Writer("importer", "/10.0.0.9:4711", "2026-07-01T10:00:00Z")


@pytest.mark.security("a foreign producer on leader.topic, which keeps every lbd from leading: named by all of them")
@pytest.mark.parametrize("led_before", [False, True])
def test_a_producer_that_is_no_lbd_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, led_before: bool):
    """With its address; also where the last lbd that led has gone, and until the topic is free again."""
    monkeypatch.setattr(election, "WRITERS_EVERY_SECONDS", 0.0)
    topic = Topic()
    if led_before:
        with lbd(tmp_path, topic, "one") as one:
            assert one.wait(PATIENCE_SECONDS)
    topic.writer = Connection(topic)
    with lbd(tmp_path, topic, "two", writers=lambda: (STRANGER,)) as two:
        until(lambda: "no lbd can lead" in two.words)
        hold, warnings = two.hold(), two.warnings
        topic.writer = None
        assert two.wait(PATIENCE_SECONDS)
        assert two.warnings == ()

    at = "'importer' at /10.0.0.9:4711, connected since 2026-07-01T10:00:00Z"
    assert hold == (
        Reason.NOT_LEADER,
        f"this lbd stands by, no lbd can lead: leader.topic is written by {at}; stop that producer",
    )
    assert warnings == (f"leader.topic: no lbd can lead, it is written by {at}",)


def test_a_leader_is_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is one that has been let write and not yet said so, nor one of whom a look in vain tells nothing."""
    monkeypatch.setattr(election, "WRITERS_EVERY_SECONDS", 0.0)
    topic, looks = Topic(), count()

    def writers() -> tuple[Writer, ...]:
        if next(looks) % 2:
            raise ObserveError("no broker answers")
        return (Writer("one"),)

    with lbd(tmp_path, topic, "one") as one:
        assert one.wait(PATIENCE_SECONDS)
        with lbd(tmp_path, topic, "two", writers=writers) as two:
            until(lambda: next(looks) > 20)
            assert two.words.startswith("this lbd stands by, one leads since ")
            assert two.warnings == ()


def test_lines_that_are_lost_early_are_a_warning(tmp_path: Path):
    """Of every lbd, whether it leads or not."""
    topic = Topic()
    with lbd(tmp_path, topic, "one", early_loss=lambda: "messages expire after 60 s") as one:
        until(lambda: one.warnings)
        (warning,) = one.warnings
        assert warning.startswith(
            "leader.topic: messages expire after 60 s: an lbd that was away for longer knows neither"
        )


class _Still:
    """Splits, of which there are none here."""

    def halt(self) -> None: ...
    def inherit(self, found: object) -> None: ...


def test_a_plan_of_before_is_not_gone_on_with_after_another_one_led(tmp_path: Path):
    """What it was judged by is over: the other lbd may have moved what the budget allows."""
    topic, sent, go_on = Topic(), [], threading.Event()
    moves = [Unload(f"t/n/0x{at:08x}_0x{at + 1:08x}", "a:80", "b:80", 1, 1) for at in range(2)]

    class Sender:
        """An unloader whose first move lasts until it is told."""

        def check(self, move: Unload) -> ReadyMove:
            return ReadyMove(move, Leader("b:80", "http://b:80"), named=True)

        def send(self, ready: ReadyMove) -> Outcome:
            sent.append(ready.move.bundle)
            go_on.wait(PATIENCE_SECONDS)
            return Outcome(ready.move, Result.LANDED, ready.move.destination)

    with lbd(tmp_path, topic, "one") as one:
        executor = Executor(one.journal, time.time)
        one.serve(executor, _Still())  # type: ignore[arg-type]
        assert one.wait(PATIENCE_SECONDS)
        executor.start(moves, SameForAll(), Execution(Sender(), held=one.hold))  # type: ignore[arg-type]
        until(lambda: sent)
        topic.gone = True
        until(lambda: not one.leading)
        topic.gone = False
        until(lambda: one.leading)
        go_on.set()
        assert executor.wait(PATIENCE_SECONDS)

    assert sent == [moves[0].bundle]


class TestOrders:
    """A pause and drains, of which the next leader knows."""

    def test_who_takes_over_neither_forgets_a_pause_nor_a_drain(self, tmp_path: Path):
        """Both were ordered at the leader, which is gone; also an lbd that comes new is told."""
        topic, now = Topic(), time.time()
        pause = Pause(now, now + 3600, "upgrade", "ann")
        drain = Drain("a:80", now, now + 3600, "bob", "new disk", started_at=now - 9.5)
        with lbd(tmp_path, topic, "two") as two:
            assert two.wait(PATIENCE_SECONDS)
            with lbd(tmp_path, topic, "one"):
                Control(tmp_path / "two", two.orders).pause(pause)
                Drains(tmp_path / "two", two.orders).begin(drain)
                until(lambda: Control(tmp_path / "one").paused(now))
                until(lambda: Drains(tmp_path / "one").in_force(now))
        with lbd(tmp_path, topic, "new") as new:
            assert new.wait(PATIENCE_SECONDS)

        for name in ("one", "new"):
            assert Control(tmp_path / name).paused(now) == pause
            assert Drains(tmp_path / name).all() == [drain]

    def test_the_end_of_an_order_is_told_to_who_comes_back(self, tmp_path: Path):
        """An lbd that led in a pause and was killed must not come back with it."""
        topic, now = Topic(), time.time()
        with lbd(tmp_path, topic, "one") as one:
            assert one.wait(PATIENCE_SECONDS)
            Control(tmp_path / "one", one.orders).pause(Pause(now, None, "", "ann"))
        with lbd(tmp_path, topic, "two") as two:
            assert two.wait(PATIENCE_SECONDS)
            assert Control(tmp_path / "two", two.orders).resume() is not None
            with lbd(tmp_path, topic, "one"):
                until(lambda: Control(tmp_path / "one").paused(now) is None)

    def test_orders_of_a_newer_lbd_keep_an_older_one_from_leading(self, tmp_path: Path):
        """It says why, until a list comes that it can read."""
        topic = Topic()
        topic.lines.append(b'{"event": "orders", "format": 2, "orders": {}}')
        with lbd(tmp_path, topic, "one") as one:
            until(lambda: "of a newer lbd, format 2; this one reads 1" in one.words)
            assert (one.wait(0.2), len(topic.lines)) == (False, 1)
            assert any("upgrade it, or let the newer one lead" in warning for warning in one.warnings)
            with topic.changed:
                topic.lines.append(b'{"event": "orders", "format": 1, "orders": {}}')
                topic.changed.notify_all()
            assert one.wait(PATIENCE_SECONDS)

    def test_who_leads_is_said_as_soon_as_it_is_known(self, tmp_path: Path):
        """Not with the next turn only: a status names the true leader."""
        topic = Topic()
        with lbd(tmp_path, topic, "one") as one, lbd(tmp_path, topic, "two") as two:
            until(lambda: one.leading or two.leading)
            first, second = (one, two) if one.leading else (two, one)
            said: list[str] = []
            second.on_words = lambda: said.append(second.words)
            until(lambda: first.name in second.words)
            first.stop()
            until(lambda: said and said[-1].startswith("this lbd leads since"))
            topic.gone = True
            until(lambda: "no broker has it" in said[-1])


def test_a_plan_that_outlasts_another_leader_leaves_its_open_move_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look that it was made from began before the other one led, and the other may still send for its move."""
    for name in ("ELECT_EVERY_SECONDS", "AGAIN_AFTER_SECONDS"):
        monkeypatch.setattr(election, name, 0.01)
    topic, sent = Topic(), list[str]()

    class Sender:
        """An unloader whose moves land at once."""

        def check(self, unload: Unload) -> ReadyMove:
            return ReadyMove(unload, Leader("b:80", "http://b:80"), named=True)

        def send(self, ready: ReadyMove) -> Outcome:
            sent.append(ready.move.bundle)
            return Outcome(ready.move, Result.LANDED, ready.move.destination)

    with lbd(tmp_path, topic, "one") as one:
        executor = Executor(one.journal, time.time)
        one.serve(executor, _Still())  # type: ignore[arg-type]
        assert one.wait(PATIENCE_SECONDS)
        topic.gone = True
        until(lambda: not one.leading)
        topic.lines.append(encoded(Intent(time.time(), "of-two", MOVE.bundle, "a:80", "b:80")))
        topic.gone = False
        until(lambda: one.leading)
        executor.start([MOVE], SameForAll(), Execution(Sender(), held=one.hold))  # type: ignore[arg-type]
        assert executor.wait(PATIENCE_SECONDS)
        ended = executor.collect()

    assert (sent, [skip.reason for skip in ended.skips]) == ([], [Reason.MOVES_UNFINISHED])
