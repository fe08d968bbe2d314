"""A journal shared by a topic: intents only from the leader, outcomes always, and what others wrote is known."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.clock import Moment
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.model import Outcome, Result, Unload
from lbd.store.database import STORE_NAME
from lbd.store.journal_lines import Intent, Noted, OutcomeLine, PlacementLine
from lbd.store.moves import history
from lbd.store.shared import Leads, SharedJournal, decoded, leads
from tests.journals import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
NOW = 1_800_000_000.0
TICKS = count(NOW)
"""One clock for all of them, which goes on by a second whenever it is read."""

MOVE = Unload(FIRST, "a:80", "b:80", 200.0, 20_000.0, "30.0 points apart")
LANDED = Outcome(MOVE, Result.LANDED, "b:80", "", seconds=0.1)


class Topic:
    """Lines that were stored. ``broken``: nothing is acknowledged, though it may be stored."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.broken = False
        self.stores_when_broken = False

    def publish(self, line: bytes) -> None:
        if not self.broken or self.stores_when_broken:
            self.lines.append(line)
        if self.broken:
            raise ObserveError("no acknowledgement within 10 s")

    def read(self) -> list[object]:
        return [decoded(line) for line in self.lines]


def journal(path: Path, name: str, monotonic: Callable[[], float] = lambda: 0.0) -> SharedJournal:
    """The journal of one lbd."""
    (path / name).mkdir(exist_ok=True)
    return SharedJournal(path / name / STORE_NAME, lambda: next(TICKS), monotonic)


def test_an_intent_is_acknowledged_before_it_is_written(tmp_path: Path):
    """Without an acknowledgement there is none, here or for the next try, and lbd leads no more."""
    topic, one = Topic(), journal(tmp_path, "one")
    one.lead(topic.publish)
    topic.broken = True
    with pytest.raises(RefusedError, match=r"leads no more: no acknowledgement within 10 s"):
        one.intend(MOVE, 1)

    assert (one.open, one.leading, topic.lines) == ((), False, [])
    with pytest.raises(RefusedError, match=r"does not lead"):
        one.intend(MOVE, 1)


def test_an_intent_that_the_topic_has_and_the_disk_has_not_ends_the_leadership(tmp_path: Path):
    """It is open for whoever leads next; until this lbd has read it back, another move of the bundle could be a second.

    The write of any other line fails without that: what it tells has happened, and nothing is begun by it.
    """
    topic, one = Topic(), journal(tmp_path, "one")
    one.lead(topic.publish)
    before = one.intend(Unload(SECOND, "a:80", "b:80", 1, 1), 1)
    with broken_disk(one), pytest.raises(UsageError):
        one.conclude(before, Outcome(MOVE, Result.FAILED, "a:80", "HTTP 500"))
    assert one.leading

    with broken_disk(one), pytest.raises(UsageError, match=r"no unload is sent without it"):
        one.intend(MOVE, 1)

    assert not one.leading
    with pytest.raises(RefusedError, match=r"does not lead"):
        one.intend(MOVE, 1)
    one.take([entry for entry in topic.read() if entry is not None])
    assert [unload.bundle for _, unload in one.open] == [FIRST]


@contextmanager
def broken_disk(journal: SharedJournal) -> Iterator[None]:
    """No write of this journal reaches its store."""
    with mock.patch.object(journal._store, "write", side_effect=UsageError("disk I/O error")):
        yield


def test_a_connection_is_let_go_with_the_leadership(tmp_path: Path):
    """It has a thread and sockets of its own, and this lbd may stand by for weeks."""
    one, topic = journal(tmp_path, "one"), Topic()
    gone = weakref.ref(topic)
    one.lead(topic.publish)
    one.resign()
    del topic
    assert gone() is None


def test_what_took_too_long_is_not_asked_for(tmp_path: Path):
    """A process that stood still for a minute may have been replaced: its intent stays open, and is not its own."""
    topic, times = Topic(), iter([0.0, 60.0])
    one = journal(tmp_path, "one", lambda: next(times))
    one.lead(topic.publish)
    with pytest.raises(RefusedError, match=r"took 60 s to be written, wanted 10"):
        one.intend(MOVE, 1)

    assert not one.leading
    assert [unload.bundle for _, unload in one.open] == [FIRST]
    assert len(topic.lines) == 1


def test_a_standby_knows_what_the_leader_knows(tmp_path: Path):
    """Open moves, cool-downs, budgets and notes, whatever part of the topic is read again."""
    topic, one, two = Topic(), journal(tmp_path, "one"), journal(tmp_path, "two")
    one.lead(topic.publish)
    one.conclude(one.intend(MOVE, 1), LANDED)
    one.intend(Unload(SECOND, "a:80", "b:80", 1, 1), 1)
    one.note(FIRST, "c:80", "l:80")
    one.placed(LANDED)
    for part in (slice(0, 2), slice(0, 5), slice(0, 5)):
        two.take([entry for entry in topic.read()[part] if entry is not None])

    assert (two.open, two.sent, two.attempted_at, two.notes) == (one.open, one.sent, one.attempted_at, one.notes)
    assert list(history(tmp_path / "two")) == list(history(tmp_path / "one"))
    assert sum("move" in entry for entry in entries(tmp_path / "two")) == 4


def test_an_amended_outcome_is_followed(tmp_path: Path):
    """Once, whatever part of the topic is read again."""
    topic, one, two = Topic(), journal(tmp_path, "one"), journal(tmp_path, "two")
    one.lead(topic.publish)
    move = one.intend(MOVE, 1)
    one.conclude(move, Outcome(MOVE, Result.FAILED, "a:80", "HTTP 500"))
    one.amend(move, Outcome(MOVE, Result.UNOWNED, None, "was failed before", amended=True))
    one.amend(move, Outcome(MOVE, Result.LANDED, "b:80", "was unowned before", amended=True))
    for last in (2, 3, 4, 4):
        two.take([entry for entry in topic.read()[:last] if entry is not None])
    two.take([entry for entry in topic.read() if entry is not None])

    assert list(history(tmp_path / "two")) == list(history(tmp_path / "one"))
    assert two.sent == one.sent
    assert [entry.get("amended") for entry in entries(tmp_path / "two")] == [None, None, True, True]


class TestConfirmed:
    """What a fence asks: whether requests of a move may still begin here."""

    def test_it_leads(self, tmp_path: Path):
        """Asked again, the topic has the intent once more, which who reads it knows already."""
        topic, one, two = Topic(), journal(tmp_path, "one"), journal(tmp_path, "two")
        one.lead(topic.publish)
        move = one.intend(MOVE, 1)
        one.confirm(move, again=False)
        assert len(topic.lines) == 1
        one.confirm(move, again=True)
        two.take([entry for entry in topic.read() if entry is not None])
        assert topic.lines[0] == topic.lines[1]
        assert (two.sent, two.open) == (one.sent, one.open)

    def test_it_led_again_meanwhile(self, tmp_path: Path):
        """Another one may have led in between."""
        topic, one = Topic(), journal(tmp_path, "one")
        one.lead(topic.publish)
        move = one.intend(MOVE, 1)
        one.resign()
        one.lead(topic.publish)
        with pytest.raises(RefusedError, match=r"another lbd may have led"):
            one.confirm(move, again=False)

    @pytest.mark.parametrize("again", [True, False])
    def test_it_leads_no_more(self, again: bool, tmp_path: Path):
        """Nothing is asked of the topic then."""
        topic, one = Topic(), journal(tmp_path, "one")
        one.lead(topic.publish)
        move = one.intend(MOVE, 1)
        one.resign()
        with pytest.raises(RefusedError, match=r"another lbd may have led"):
            one.confirm(move, again=again)

    def test_the_topic_does_not_acknowledge(self, tmp_path: Path):
        """As after a standstill: it leads no more from then on."""
        topic, one = Topic(), journal(tmp_path, "one")
        one.lead(topic.publish)
        move = one.intend(MOVE, 1)
        topic.broken = True
        with pytest.raises(RefusedError, match=r"leads no more"):
            one.confirm(move, again=True)
        assert not one.leading


def test_what_could_not_be_told_is_told_by_the_next_leader_it_concerns(tmp_path: Path):
    """An outcome is written here at once, and in the topic when this lbd leads again."""
    topic, one, two = Topic(), journal(tmp_path, "one"), journal(tmp_path, "two")
    one.lead(topic.publish)
    move = one.intend(MOVE, 1)
    topic.broken = True
    one.conclude(move, LANDED)
    assert (one.open, one.leading) == ((), False)

    topic.broken = False
    one.lead(topic.publish)
    two.take([entry for entry in topic.read() if entry is not None])
    assert two.open == ()


def test_an_own_line_that_was_stored_and_never_acknowledged_is_read_back(tmp_path: Path):
    """The topic says that a move may be under way; who leads next has to ask what came of it."""
    topic, one = Topic(), journal(tmp_path, "one")
    one.lead(topic.publish)
    topic.broken = topic.stores_when_broken = True
    with pytest.raises(RefusedError):
        one.intend(MOVE, 1)
    assert one.open == ()
    one.take([entry for entry in topic.read() if entry is not None])

    assert [unload.bundle for _, unload in one.open] == [FIRST]


def test_the_first_outcome_of_a_move_holds(tmp_path: Path):
    """Two lbds may conclude one move: the one that made it, and the one that leads after it."""
    topic, one = Topic(), journal(tmp_path, "one")
    one.lead(topic.publish)
    move = one.intend(MOVE, 1)
    one.take([OutcomeLine(NOW, move, Result.LANDED, "b:80", FIRST)])
    one.take([OutcomeLine(NOW, move, Result.ELSEWHERE, "c:80", FIRST)])

    assert [found.owner for found in history(tmp_path / "one")] == ["b:80"]


def test_of_two_outcomes_read_together_the_first_one_holds(tmp_path: Path):
    """A follower that comes late reads the whole topic in one go; what was placed twice is one placing, too."""
    one = journal(tmp_path, "one")
    move = Intent(NOW, "m-1", FIRST, "a:80", "b:80")
    ends = [
        OutcomeLine(NOW, "m-1", Result.LANDED, "b:80", FIRST),
        OutcomeLine(NOW, "m-1", Result.ELSEWHERE, "c:80", FIRST),
    ]
    placing = PlacementLine(NOW, "m-2", SECOND, "b:80", Result.LANDED, "b:80")
    one.take([move, *ends, placing, placing])

    assert [(found.bundle, found.owner) for found in history(tmp_path / "one")] == [(FIRST, "b:80"), (SECOND, "b:80")]
    assert len(entries(tmp_path / "one")) == 3


@pytest.mark.parametrize(
    "line",
    [
        Intent(NOW - 86_401, "old-1", FIRST, "a:80", "b:80"),
        OutcomeLine(NOW, "never-begun", Result.LANDED, "b:80", FIRST),
        Noted(NOW, FIRST, None),
        PlacementLine(NOW - 86_401, "old-2", FIRST, "b:80", Result.LANDED, "b:80"),
    ],
)
def test_what_says_nothing_new_is_passed_over(tmp_path: Path, line: Intent | OutcomeLine | Noted | PlacementLine):
    """Older than a day, of a move that is not open, or a note that is not there."""
    one = journal(tmp_path, "one")
    one.take([line])

    assert entries(tmp_path / "one") == []


@pytest.mark.parametrize("line", [b"", b"{", b'{"event":"from-the-future"}', b"\xff", b"[" * 9999])
def test_junk_in_the_topic_is_no_line(line: bytes):
    """Whatever stands there."""
    assert decoded(line) is None


def test_a_leader_s_first_line_tells_its_name():
    """And which time of leading it is."""
    assert decoded(leads(NOW, "lbd-host-1", "t1")) == Leads(NOW, "lbd-host-1", "t1")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["intend", "conclude", "break", "mend", "two leads", "one leads"]), max_size=25))
def test_nobody_but_the_last_leader_writes_and_all_agree_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
):
    """Whatever breaks and whoever leads: once everybody has read everything, open moves are the same for both."""
    path, topic = tmp_path_factory.mktemp("shared"), Topic()
    lbds = [journal(path, "one"), journal(path, "two")]
    at = 0
    lbds[at].lead(topic.publish)
    for number, step in enumerate(steps):
        here = lbds[at]
        if step == "intend":
            _try(lambda here=here, number=number: here.intend(Unload(f"t/n{number}/0x0_0x1", "a:80", "b:80", 1, 1), 1))
        elif step == "conclude" and here.open:
            move, unload = here.open[0]
            here.conclude(move, Outcome(unload, Result.LANDED, "b:80", ""))
        elif step in ("break", "mend"):
            topic.broken = step == "break"
        elif step.endswith("leads"):
            lbds[at].resign()
            at = 0 if step.startswith("one") else 1
            lbds[at].take([entry for entry in topic.read() if entry is not None])
            _try(lambda at=at: lbds[at].lead(topic.publish))
    topic.broken = False
    for last in lbds:
        last.take([entry for entry in topic.read() if entry is not None])
        last.lead(topic.publish)
        last.resign()
    for last in lbds:
        last.take([entry for entry in topic.read() if entry is not None])

    assert {move for move, _ in lbds[0].open} == {move for move, _ in lbds[1].open}


def _try(step: Callable[[], object]) -> None:
    """A refusal is one of the ways."""
    try:
        step()
    except (RefusedError, ObserveError):
        return


def test_a_note_that_is_gone_stays_gone_when_all_is_read_again(tmp_path: Path):
    """As after each start and each loss of the topic: the last line on a bundle holds, however many come at once."""
    lines = [
        Intent(NOW, "m1", FIRST, "a:80", "b:80"),
        OutcomeLine(NOW + 1, "m1", Result.ELSEWHERE, "c:80", FIRST, noted="b:80", leader="a:80"),
        Noted(NOW + 2, FIRST, None),
    ]
    one, two = journal(tmp_path, "one"), journal(tmp_path, "two")
    for line in lines:
        one.take([line])
    two.take(lines)
    one.take([Noted(NOW + 1, FIRST, "b:80", "a:80"), *lines])
    assert (dict(one.notes), dict(two.notes)) == ({}, {})


@pytest.mark.parametrize(("live", "age_seconds"), [(True, 60.0), (False, 7260.0)])
def test_what_a_leader_with_a_late_clock_wrote_counts_in_full(live: bool, age_seconds: float, tmp_path: Path) -> None:
    """A standby that hears of an unload as it is sent counts it from then on; of old lines nobody knows more."""
    now, up = [1_800_000_000.0], [500.0]
    (tmp_path / "two").mkdir()
    standby = SharedJournal(tmp_path / "two" / STORE_NAME, lambda: now[0], boot=lambda: Moment("this-start", up[0]))
    intent = Intent(now[0] - 7200, "m1", "t/n/0x00000000_0xffffffff", "a:80", "b:80", boot="another", up=9.0)
    standby.take([intent], live=live)
    now[0], up[0] = now[0] + 60, up[0] + 60
    (sent,) = standby.sent
    assert now[0] - sent.at == pytest.approx(age_seconds)
    assert now[0] - standby.attempted_at[intent.bundle] == pytest.approx(age_seconds)
    standby.close()
