"""The journal survives what happens to files: kills in the middle of a line, and lines that are none."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload
from lbd.record.journal import Journal, Past, read

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def move(bundle: str = FIRST) -> Unload:
    """An unload from a to b."""
    return Unload(bundle, "a:80", "b:80", 200.0, 20_000.0, "30.0 points apart")


def ended(unload: Unload, result: Result = Result.LANDED) -> Outcome:
    """How it ended."""
    return Outcome(unload, result, "b:80", "in words", attempts=1, seconds=0.1234, affinity_left=True)


def ticking(start: float = 100.0) -> Callable[[], float]:
    """A clock that advances by one second whenever it is read."""
    times = iter(range(10_000))
    return lambda: start + next(times)


def written(path: Path, *events: str) -> bytes:
    """The bytes of a journal: ``i1`` intends the first bundle, ``o1`` concludes it, and so on."""
    journal = Journal(path, ticking())
    ids: dict[str, str] = {}
    for event in events:
        unload = move(FIRST if event[1] == "1" else SECOND)
        if event[0] == "i":
            ids[event[1]] = journal.intend(unload, 1)
        else:
            journal.conclude(ids[event[1]], ended(unload))
    journal.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("events", "attempted", "still_open"),
    [
        ((), {}, []),
        (("i1",), {FIRST: 100.0}, [FIRST]),
        (("i1", "o1"), {FIRST: 100.0}, []),
        (("i1", "o1", "i1"), {FIRST: 102.0}, [FIRST]),
        (("i1", "i2", "o1"), {FIRST: 100.0, SECOND: 101.0}, [SECOND]),
        (("i1", "o1", "i2", "o2"), {FIRST: 100.0, SECOND: 102.0}, []),
    ],
)
def test_what_was_written_is_read(
    events: tuple[str, ...], attempted: dict[str, float], still_open: list[str], tmp_path: Path
) -> None:
    """Each attempt's time starts a cool-down; an intent without an outcome is open."""
    written(tmp_path / "j", *events)
    past = read(tmp_path / "j")
    assert past.attempted_at == attempted
    assert [unload for _, unload in past.open] == [move(bundle) for bundle in still_open]
    assert past.torn_lines == 0


def test_a_line_is_one_json_object(tmp_path: Path) -> None:
    """Both events as a person greps them: what, when, which move, and how it ended."""
    intent, outcome = (json.loads(line) for line in written(tmp_path / "j", "i1", "o1").splitlines())
    assert intent == {
        "event": "intent",
        "at": 100.0,
        "move": intent["move"],
        "bundle": FIRST,
        "source": "a:80",
        "destination": "b:80",
        "msg_rate": 200.0,
        "throughput": 20_000.0,
        "reason": "30.0 points apart",
    }
    assert outcome == {
        "event": "outcome",
        "at": 101.0,
        "move": intent["move"],
        "result": "landed",
        "owner": "b:80",
        "detail": "in words",
        "seconds": 0.123,
        "affinity_left": True,
    }


def test_moves_have_ids_of_their_own(tmp_path: Path) -> None:
    """Also those of one bundle in the same millisecond."""
    journal = Journal(tmp_path / "j", lambda: 100.0)
    ids = [journal.intend(move(), attempt) for attempt in (1, 2, 3)]
    journal.close()
    assert len(set(ids)) == 3


def test_an_intent_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    """Another reader sees it while the journal is still open."""
    journal = Journal(tmp_path / "j", ticking())
    identity = journal.intend(move(), 1)
    assert read(tmp_path / "j").open == ((identity, move()),)
    journal.conclude(identity, ended(move()))
    assert read(tmp_path / "j").open == ()
    journal.close()


def test_an_absent_journal_is_an_empty_one(tmp_path: Path) -> None:
    """Nothing was ever moved."""
    assert read(tmp_path / "absent") == Past()


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    """The outcome that a kill tore is not known, so its intent stays open."""
    (tmp_path / "j").write_bytes(written(tmp_path / "j", "i1", "o1")[:-10])
    past = read(tmp_path / "j")
    assert ([unload for _, unload in past.open], past.torn_lines) == ([move()], 1)


def test_the_next_entry_starts_on_a_line_of_its_own(tmp_path: Path) -> None:
    """After a torn line, what follows is readable."""
    (tmp_path / "j").write_bytes(written(tmp_path / "j", "i1", "o1")[:-10])
    journal = Journal(tmp_path / "j", ticking(200.0))
    journal.intend(move(SECOND), 1)
    journal.close()
    past = read(tmp_path / "j")
    assert past.attempted_at == {FIRST: 100.0, SECOND: 200.0}
    assert past.torn_lines == 1


@pytest.mark.parametrize(
    "damage",
    [
        b'{"event": "intent", "at": 1',
        b"\x00\x00\x00\x00",
        b"\xff\xfe",
        b"[]",
        b'{"event": "something new"}',
        b'{"event": "outcome"}',
    ],
)
def test_a_damaged_line_in_the_middle_hides_nothing_else(damage: bytes, tmp_path: Path) -> None:
    """It is counted; the lines before and after it hold."""
    intent, outcome, other = written(tmp_path / "j", "i1", "o1", "i2").splitlines()
    (tmp_path / "j").write_bytes(b"\n".join([intent, damage, outcome, b"", other, b""]))
    past = read(tmp_path / "j")
    assert past.attempted_at == {FIRST: 100.0, SECOND: 102.0}
    assert [unload for _, unload in past.open] == [move(SECOND)]
    assert past.torn_lines == 1


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    """A journal that a newer lbd has written can still be read."""
    entry = json.loads(written(tmp_path / "j", "i1"))
    (tmp_path / "j").write_text(json.dumps({**entry, "later": [1]}) + "\n", encoding="utf-8")
    assert read(tmp_path / "j").attempted_at == {FIRST: 100.0}


@functools.cache
def whole(events: tuple[str, ...]) -> bytes:
    """The bytes of a journal that ended well."""
    with tempfile.TemporaryDirectory() as folder:
        return written(Path(folder) / "j", *events)


@settings(deadline=None)
@given(kept=st.integers(0, 2000), events=st.sampled_from([("i1", "o1", "i2", "o2"), ("i1", "i2", "o2", "o1")]))
def test_any_prefix_is_readable_and_invents_nothing(kept: int, events: tuple[str, ...]) -> None:
    """Cut anywhere, as a kill may: no attempt and no outcome appears that was not written in full."""
    part = whole(events)[:kept]
    with tempfile.NamedTemporaryFile() as file:
        file.write(part)
        file.flush()
        past = read(Path(file.name))
    complete = [json.loads(line) for line in part.splitlines() if line.endswith(b"}")]
    intents = {entry["move"]: entry["bundle"] for entry in complete if entry["event"] == "intent"}
    over = {entry["move"] for entry in complete if entry["event"] == "outcome"}
    assert set(past.attempted_at) == set(intents.values())
    assert {identity for identity, _ in past.open} == set(intents) - over
    assert past.torn_lines == (0 if part.endswith((b"}", b"\n")) or not part else 1)


@pytest.mark.parametrize("call", [read, lambda path: Journal(path, ticking())])
def test_a_journal_that_cannot_be_read_is_told(call: Callable[[Path], object], tmp_path: Path) -> None:
    """One line that names the file; no unload without a journal."""
    with pytest.raises(UsageError, match="journal cannot be") as caught:
        call(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_full_disk_stops_the_unload(tmp_path: Path) -> None:
    """An intent that cannot be written raises before anything is sent."""
    journal = Journal(tmp_path / "j", ticking())
    journal._file.close()
    full = Path("/dev/full")
    journal._file = full.open("wb", buffering=0)
    with pytest.raises(UsageError, match="no unload is sent without it"):
        journal.intend(move(), 1)
    journal.close()
