"""Whatever bytes stand in a journal, wherever a kill or a failing disk strikes: no intent is lost, no move told twice.

A killed process leaves what it has written, so disks are not synced here.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload
from lbd.store.journal import Journal, LeaderNote, Past, read
from lbd.store.moves import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MEMORY_DISK = Path("/dev/shm")
"""A rename waits for the disk on some file systems, and there are thousands here."""

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

BUNDLES = tuple(f"t/n/{number}" for number in range(3))
LANDED = Result.LANDED.value
CUT = {"algorithm": "range_equally_divide", "positions": [5]}


def entry(event: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    """A line as lbd writes it, of a move and a bundle with that number."""
    known = {
        "journal": {"format": 1},
        "intent": {"move": f"m{number}", "bundle": BUNDLES[number], "source": "a:80", "destination": "b:80"},
        "outcome": {"move": f"m{number}", "result": LANDED, "owner": "b:80", "bundle": BUNDLES[number]},
        "note": {"bundle": BUNDLES[number], "noted": "b:80"},
        "attempt": {"bundle": BUNDLES[number]},
        "split": {"split": f"s{number}", "bundle": BUNDLES[number], "owner": "a:80", **CUT},
        "split-outcome": {"split": f"s{number}", "result": "split", "bundle": BUNDLES[number]},
    }
    return {"event": event, "at": 100.0, **known[event], **fields}


ENTRIES = st.builds(
    entry,
    st.sampled_from(["journal", "intent", "outcome", "note", "attempt", "split", "split-outcome"]),
    st.integers(0, 2),
    at=st.integers(0, 10**10),
)
BAD_NUMBERS = st.sampled_from([float("nan"), float("inf"), 1e308, -1.0, None, "1", True, [], {}, 10**40])
JUNK = st.one_of(
    st.binary(max_size=60).filter(lambda junk: b'"event"' not in junk),
    st.sampled_from([b"null", b"7", b'""', b"[]", b"{}", b'{"event":null}', b'[{"event":"note"}]', b"\x00", b"\r"]),
    st.builds(lambda found, at: json.dumps({**found, "at": at}).encode(), ENTRIES, BAD_NUMBERS),
    st.builds(lambda found, cut: json.dumps(found).encode()[:-1][:cut], ENTRIES, st.integers(0, 60)),
    st.builds(lambda found: json.dumps({**found, "event": "later"}).encode(), ENTRIES),
).map(lambda junk: junk.replace(b"\n", b""))


@contextmanager
def journal_of(content: bytes) -> Iterator[Path]:
    """The path of a journal with that content, in a directory of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(content)
        yield path


class TestBytes:
    @pytest.mark.security("any bytes as the journal: read, or refused in one line")
    @PATIENT
    @given(st.binary(max_size=300))
    @example(b'{"event":"journal","format":2,"at":1}')
    @example(b'{"event":"journal","format":1e400,"at":1}')
    def test_any_bytes_can_be_read(self, content: bytes) -> None:
        """Or are refused for their format; and a journal can go on behind them."""
        with journal_of(content) as path:
            try:
                past = read(path)
                list(history(path))
                journal = Journal(path, lambda: 100.0)
            except UsageError as error:
                assert "format" in str(error)  # noqa: PT017
                return
            journal.intend(Unload("b", "a:80", "b:80", 0, 0), 1)
            journal.close()
            assert read(path).open[-1][1].bundle == "b"
            assert len(read(path).open) == len(past.open) + 1

    @pytest.mark.security("damaged lines among whole ones in the journal: no whole line is lost")
    @PATIENT
    @given(st.lists(st.tuples(st.lists(JUNK, max_size=2), ENTRIES), max_size=12), JUNK)
    def test_a_whole_line_is_never_lost(self, content: list[tuple[list[bytes], dict[str, Any]]], tail: bytes) -> None:
        """Whatever stands on the lines around it."""
        told = [found for _, found in content]
        lines = [line for junk, found in content for line in (*junk, json.dumps(found).encode())]
        with journal_of(b"\n".join([*lines, tail])) as path, journal_of(b"".join(map(line_of, told))) as clean:
            past, wanted = read(path), read(clean)
            assert (past.attempted_at, past.open, past.notes) == (wanted.attempted_at, wanted.open, wanted.notes)
            assert past.splits == wanted.splits
            assert (past.attempted_at, [move for move, _ in past.open], past.notes) == expected(told)
            assert past.torn_lines == sum(bool(line.strip()) for line in [*lines, tail]) - len(told)
            assert list(history(path)) == list(history(clean))

    @pytest.mark.parametrize("events", [("i0", "o0", "i1", "n1", "i0", "x1"), ("i0", "i1", "r", "o1", "i2", "n0")])
    def test_cut_at_any_byte_it_is_what_its_whole_lines_say(self, events: tuple[str, ...]) -> None:
        """An intent whose outcome is torn is open."""
        with journal_of(b"") as path:
            life = Life(path)
            for event in events:
                life.do(event)
            life.journal.close()
            content = path.read_bytes()
            for kept in range(len(content) + 1):
                path.write_bytes(content[:kept])
                whole = [
                    json.loads(line) for line in content[:kept].split(b"\n") if line.endswith(b"}") and is_json(line)
                ]
                past = read(path)
                assert (past.attempted_at, [move for move, _ in past.open], past.notes) == expected(whole)
                assert past.torn_lines == sum(bool(line) for line in content[:kept].split(b"\n")) - len(whole)


def line_of(found: dict[str, Any]) -> bytes:
    """One line of a journal."""
    return json.dumps(found).encode() + b"\n"


def is_json(line: bytes) -> bool:
    """Whether it is a whole line."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def expected(told: list[dict[str, Any]]) -> tuple[dict[str, float], list[str], dict[str, LeaderNote]]:
    """Attempts, ids of open moves and notes, by the words of the design."""
    attempts: dict[str, float] = {}
    moves: dict[str, None] = {}
    notes: dict[str, LeaderNote] = {}
    for found in told:
        if found["event"] in {"intent", "attempt", "split"}:
            attempts[found["bundle"]] = found["at"]
        if found["event"] == "intent":
            moves[found["move"]] = None
        if found["event"] == "outcome":
            moves.pop(found["move"], None)
        if found["event"] in {"outcome", "note"}:
            broker, leader = found.get("noted"), found.get("leader")
            notes.pop(found["bundle"], None)
            notes.update({found["bundle"]: LeaderNote(found["bundle"], broker, leader, found["at"])} if broker else {})
    return attempts, list(moves), notes


class Killed(BaseException):
    """The process is gone: nothing after it has any effect."""


STEPS = ("write", "fsync", "ftruncate", "link", "replace", "unlink")


@dataclass
class Disk:
    """Counts what is done to files, and strikes at step ``strike`` after ``share`` of its bytes, if it is a write.

    A kill ends all; a failure is one error, after which the disk works again.
    """

    strike: int | None = None
    share: float = 0.0
    kill: bool = True
    sizes: list[int] = field(default_factory=list)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Stand between the journal and the files."""
        with mock.patch.multiple(os, **{name: self._step(name, getattr(os, name)) for name in STEPS}):
            yield

    @property
    def dead(self) -> bool:
        """Whether the kill has happened."""
        return self.kill and self.strike is not None and len(self.sizes) > self.strike

    def _step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise Killed
            self.sizes.append(len(args[1]) if name == "write" else 0)
            if len(self.sizes) - 1 == self.strike:
                self._strike(name, real, args)
            return None if name == "fsync" else real(*args, **options)

        return call

    def _strike(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if name == "write":
            real(args[0], bytes(args[1])[: round(self.share * len(args[1]))])
        raise Killed if self.kill else OSError(errno.ENOSPC, "No space left on device")


@dataclass
class Model:
    """What must be so: moves by serial number with the bundle and whether they ended, and notes."""

    moves: dict[str, tuple[str, bool]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Model:
        """Another one with the same content."""
        return Model(dict(self.moves), dict(self.notes))

    def said(self) -> tuple[object, ...]:
        """All moves in order; the open ones; bundles with an attempt; notes."""
        still = sorted(serial for serial, (_, over) in self.moves.items() if not over)
        told = [(serial, bundle, over) for serial, (bundle, over) in self.moves.items()]
        return told, still, {bundle for bundle, _ in self.moves.values()}, self.notes


def seen(path: Path) -> tuple[object, ...]:
    """The same, as a reader sees it."""
    past = read(path)
    told = [(one.reason, one.bundle, one.result is not None) for one in history(path.parent)]
    return told, sorted(unload.reason for _, unload in past.open), set(past.attempted_at), named(past)


def named(past: Past | Journal) -> dict[str, str]:
    """The brokers in the notes."""
    return {bundle: note.broker for bundle, note in past.notes.items()}


class Life:
    """A process with its journal, from opening it to its end, beside a model of what the journal must say."""

    def __init__(self, path: Path, model: Model | None = None, max_bytes: int = 1 << 20) -> None:
        self.path = path
        self.before, self.model = model or Model(), model or Model()
        times = iter(range(1000, 100_000))
        self.journal = Journal(path, lambda: float(next(times)), max_bytes=max_bytes, keep_files=10_000)

    def do(self, event: str) -> None:
        """``i0`` intends bundle 0, ``o0`` concludes it, ``n0`` with a note, ``x0`` forgets that, ``r`` rotates."""
        self.before, self.model = self.model, self.model.copy()
        bundle = BUNDLES[int(event[1:] or 0)]
        try:
            getattr(self, f"_{event[0]}")(bundle)
        except UsageError:
            self.model = self.before

    def _i(self, bundle: str) -> None:
        serial = f"{len(self.model.moves):06}"
        self.model.moves[serial] = (bundle, False)
        self.journal.intend(Unload(bundle, "a:80", "b:80", 1, 1, serial), 1)

    def _o(self, bundle: str, noted: str | None = None) -> None:
        mine = [(move, unload) for move, unload in self.journal.open if unload.bundle == bundle]
        if not mine:
            return
        move, unload = mine[-1]
        self.model.moves[unload.reason] = (bundle, True)
        self.model.notes.pop(bundle, None)
        self.model.notes.update({bundle: noted} if noted else {})
        self.journal.conclude(move, Outcome(unload, Result.LANDED, "b:80", noted=noted))

    def _n(self, bundle: str) -> None:
        self._o(bundle, "c:80")

    def _x(self, bundle: str) -> None:
        self.model.notes.pop(bundle, None)
        self.journal.note(bundle, None, None)

    def _r(self, _: str) -> None:
        self.journal._rotate()


def lived(path: Path, model: Model, events: tuple[str, ...], disk: Disk, max_bytes: int = 1 << 20) -> Model:
    """One life; what it came to is either all that was done, or that without the call that the kill struck."""
    life = Life(path, model, max_bytes)
    try:
        with disk():
            for event in events:
                life.do(event)
    except Killed:
        pass
    else:
        assert named(life.journal) == life.model.notes
        assert seen(path) == life.model.said()
    finally:
        life.journal.close()
    found = seen(path)
    assert found in (life.model.said(), life.before.said())
    return life.model if found == life.model.said() else life.before


AFTER = ("i2", "o2", "r", "i0")


class TestKills:
    @pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
    @pytest.mark.parametrize("kill", [True, False], ids=["killed", "failed"])
    def test_at_every_step_of_a_rotation(self, kill: bool, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """And at bytes of every write; the next process goes on from it, and rotates again."""
        if not links:
            monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError))
        events = ("i0", "n0", "i1", "i0", "r", "o1", "r", "i2")
        counted = Disk()
        with journal_of(b"") as path:
            lived(path, Model(), events, counted)
        for step, size in enumerate(counted.sizes):
            for kept in {0, 1, size // 2, size - 1, size} if size else {0}:
                with journal_of(b"") as path:
                    model = lived(path, Model(), events, Disk(step, kept / max(size, 1), kill))
                    lived(path, model, AFTER, Disk())

    @pytest.mark.security("kills and failing disks at any step of the journal: no intent lost, no move told twice")
    @settings(PATIENT, max_examples=150)
    @given(
        lives=st.lists(
            st.tuples(
                st.lists(st.builds("{}{}".format, st.sampled_from("iinoxr"), st.integers(0, 2)), max_size=12).map(
                    tuple
                ),
                st.builds(Disk, st.none() | st.integers(0, 60), st.floats(0, 1), st.booleans()),
                st.sampled_from([1, 800, 1 << 20]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_at_any_step_of_any_life(self, lives: list[tuple[tuple[str, ...], Disk, int]]) -> None:
        """Process after process on one directory, each killed or failed somewhere, with rotations of all sizes."""
        with journal_of(b"") as path:
            model = Model()
            for events, disk, max_bytes in lives:
                model = lived(path, model, events, Disk(disk.strike, disk.share, disk.kill), max_bytes)
            lived(path, model, AFTER, Disk())
