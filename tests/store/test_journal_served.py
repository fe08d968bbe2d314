"""What a journal knows of moves that landed: whose clients are still to be looked for, and whose are not back."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from lbd.daemon.service_proof import ServiceProof
from lbd.model import BundleClients, Outcome, Result, Unload
from lbd.permit.served import Landing, ServiceResult
from lbd.split.plan import Cut
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal
from lbd.store.journal_lines import Intent, OutcomeLine, ServedLine
from lbd.store.moves import history, newest_moves
from lbd.store.shared import SharedJournal
from tests.act.test_executor import no_thread
from tests.journals import entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW, YEAR_SECONDS = 1_800_000_000.0, 365 * 86_400.0

FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
BEFORE, NONE_AFTER = BundleClients(4, 4, 6), BundleClients(4, 0, 0)
NO = ServiceResult("no", NONE_AFTER, None, "persistent://t/n/x: HTTP 500")
YES = ServiceResult("yes", BEFORE, 0.42)


class Clock:
    """A second later whenever it is read."""

    now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty one."""
    found = Journal(tmp_path / STORE_NAME, Clock())
    yield found
    found.close()


def move(bundle: str = FIRST, before: BundleClients | None = BEFORE) -> Unload:
    """From a to b."""
    return Unload(bundle, "a:80", "b:80", 200.0, 20_000.0, "why", clients_before=before)


def land(journal: Journal, one: Unload, result: Result = Result.LANDED, noted: str | None = None) -> str:
    """The id of a move that was made."""
    name = journal.intend(one, 1)
    journal.conclude(name, Outcome(one, result, "b:80", seconds=0.1, noted=noted, leader="l:80" if noted else None))
    return name


def again(journal: Journal) -> Journal:
    """What another process reads from the same file, as after a kill."""
    path = journal._path
    copied = path.parent / "copied" / path.name
    copied.parent.mkdir(exist_ok=True)
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, copied.with_name(file.name))
    found = Journal(copied, journal._now)
    found.close()
    return found


def test_a_landing_waits_for_its_proof(journal: Journal):
    """With what stood before it and when it was asked for; other ends wait for none."""
    name = land(journal, move())
    land(journal, move(SECOND), Result.ELSEWHERE)
    assert list(journal.landings) == [name]
    found = journal.landings[name]
    assert (found.unload, found.unload.clients_before) == (move(), BEFORE)
    assert (found.landed_at - found.asked_at, found.since) == (1.0, "")
    assert found.outcome.result is Result.LANDED
    assert again(journal).landings == journal.landings


def test_what_is_told_is_over_and_what_is_not_served_is_kept(journal: Journal):
    """Also by another process."""
    names = {bundle: land(journal, move(bundle)) for bundle in (FIRST, SECOND)}
    journal.serve(names[FIRST], journal.landings[names[FIRST]], NO)
    journal.serve(names[SECOND], journal.landings[names[SECOND]], YES)
    for one in (journal, again(journal)):
        assert dict(one.landings) == {}
        assert [(known.landing.bundle, known.detail) for known in one.unserved.values()] == [(FIRST, NO.served_detail)]


@pytest.mark.parametrize("end", [YES, ServiceResult("no", NONE_AFTER, None, "by now its topics load", lifted=True)])
def test_a_later_line_ends_it(journal: Journal, end: ServiceResult):
    """Its clients are back, or nothing keeps them away any more."""
    name = land(journal, move())
    landing = journal.landings[name]
    journal.serve(name, landing, NO)
    journal.serve(name, landing, end)
    assert dict(journal.unserved) == dict(again(journal).unserved) == {}


@pytest.mark.parametrize("split", [False, True])
def test_a_bundle_that_moves_on_is_no_concern_any_more(journal: Journal, *, split: bool):
    """What is not told yet will be told as that; another bundle of the same plan waits on."""
    told, untold = land(journal, move()), land(journal, move(SECOND))
    journal.serve(told, journal.landings[told], NO)
    for bundle in (FIRST, SECOND):
        if split:
            journal.intend_split(Cut(bundle, "b:80", "range_equally_divide", (0x40000000,), "why"))
        else:
            journal.intend(move(bundle), 1)
    for one in (journal, again(journal)):
        assert dict(one.unserved) == {}
        assert (
            one.landings[untold].since == f"it was {'split' if split else 'moved again'} before its clients were seen"
        )


def test_moves_are_told_with_their_service(journal: Journal):
    """The last line of a move holds, whoever reads: all of the journal, or what is new of it."""
    name = land(journal, move())
    landing = journal.landings[name]
    journal.serve(name, landing, NO)
    assert [one.served for one in newest_moves(journal._path.parent, 5)] == ["no"]
    journal.serve(name, landing, YES)
    for one in (*history(journal._path.parent), *newest_moves(journal._path.parent, 5)):
        assert (one.served, one.reconnect_seconds, one.served_detail) == ("yes", 0.42, "")
        assert (one.clients_before, one.clients_after) == (BEFORE, BEFORE)
        assert (one.at, one.result, one.detail) == (landing.asked_at, Result.LANDED, "")


def test_a_standby_knows_what_is_told_and_takes_it_once(tmp_path: Path):
    """Whoever leads next goes on with what is not served."""
    standby = SharedJournal(tmp_path / STORE_NAME, Clock())
    lines = [
        Intent(1001.0, "m", FIRST, "a:80", "b:80", clients_before=BEFORE),
        OutcomeLine(1002.0, "m", Result.LANDED, "b:80", FIRST),
        ServedLine(1003.0, "m", FIRST, "no", NONE_AFTER, None, "why"),
    ]
    standby.take(lines)
    written = entries(tmp_path)
    assert [one.detail for one in standby.unserved.values()] == ["why"]
    standby.take(lines)
    standby.take([ServedLine(1004.0, "unknown", FIRST, "yes")])
    assert entries(tmp_path) == written
    standby.take([ServedLine(1004.0, "m", FIRST, "yes")])
    assert dict(standby.unserved) == {}
    standby.close()


def test_a_day_later_nothing_waits(tmp_path: Path):
    """Nobody could tell the move's effect from what happened since."""
    clock = Clock()
    journal = Journal(tmp_path / STORE_NAME, clock)
    name = land(journal, move())
    assert isinstance(journal.landings[name], Landing)
    journal.close()
    clock.now += 90_000
    assert dict(Journal(tmp_path / STORE_NAME, clock).landings) == {}


def test_what_was_found_while_the_clock_was_ahead_can_be_ended(tmp_path: Path) -> None:
    """By a resume, and by itself after the time of any hold, and not only in a year."""
    now, resumed_at = [NOW + YEAR_SECONDS], [0.0]
    journal = Journal(tmp_path / STORE_NAME, lambda: now[0])
    name = land(journal, move())
    journal.serve(name, journal.landings[name], NO)
    proof = ServiceProof(journal, lambda: None, lambda: now[0], lambda: 3600.0, lambda: resumed_at[0])
    now[0] = NOW
    assert list(proof.namespaces()) == ["t/n"]
    now[0], resumed_at[0] = NOW + 2, NOW + 1
    assert list(proof.namespaces()) == []
    resumed_at[0] = 0.0
    assert list(proof.namespaces()) == ["t/n"]
    now[0] = NOW + 3601
    assert list(proof.namespaces()) == []
    journal.close()


def test_a_thread_that_could_not_be_had_fails_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system had none left: it is said, and the next turn asks for the topics."""
    journal = Journal(tmp_path / STORE_NAME, time.time)
    name = land(journal, move())
    proof = ServiceProof(journal, lambda: None, time.time, lambda: 3600.0, lambda: 0.0)
    no_thread(monkeypatch, "lbd-served")
    proof._ask(name, journal.landings[name], lambda _: YES)
    assert ("can't start new thread" in proof.trouble, proof._pending) == (True, {})
    journal.close()


@pytest.mark.parametrize("first", [Result.UNKNOWN, Result.FAILED, Result.UNOWNED])
def test_a_landing_that_was_seen_late_waits_for_its_proof_too(first: Result, tmp_path: Path) -> None:
    """It is a landing like any other, also for the process after this one."""
    journal = Journal(tmp_path / STORE_NAME, time.time)
    name = journal.intend(move(), 1)
    journal.conclude(name, Outcome(move(), first, None))
    journal.amend(name, Outcome(move(), Result.LANDED, "b:80", f"was {first.value} before", amended=True))
    assert list(journal.landings) == [name]
    journal.close()
    assert list(Journal(tmp_path / STORE_NAME, time.time).landings) == [name]


def test_what_is_not_served_is_known_after_a_restart_a_day_later(tmp_path: Path) -> None:
    """guardrails.stand_still_minutes may be a week."""
    now = [NOW]
    journal = Journal(tmp_path / STORE_NAME, lambda: now[0])
    name = land(journal, move())
    journal.serve(name, journal.landings[name], NO)
    journal.close()
    now[0] += 30 * 3600
    assert list(Journal(tmp_path / STORE_NAME, lambda: now[0]).unserved) == [name]
