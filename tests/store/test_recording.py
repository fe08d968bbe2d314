"""Recordings: read line by line, and told by file and line when they are none."""

from __future__ import annotations

import gzip
import json
import signal
from typing import IO, TYPE_CHECKING

import pytest

from lbd.errors import UsageError
from lbd.replay import rounds
from lbd.store import recording

if TYPE_CHECKING:
    from pathlib import Path


HEADER = '{"recording": 1, "id": "one"}'
ROUND = '{"t": 60, "reports": {"a:80": {"cpu": {"usage": 1, "limit": 100}}}}'


def file_of(path: Path, *lines: str) -> Path:
    """A recording of these lines; gzipped when its name says so."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
class TestReading:
    def test_rounds_are_numbered_from_1(self, name: str, tmp_path: Path) -> None:
        """Each with its header, its bytes, and where it stands; blank lines are none."""
        path = file_of(tmp_path / name, HEADER, ROUND, "", ROUND)
        found = list(recording.read(path))
        assert [(line.header.id, line.number, line.where) for line in found] == [
            ("one", 1, f"{path}:2"),
            ("one", 2, f"{path}:4"),
        ]
        assert json.loads(found[0].body) == json.loads(ROUND)

    def test_many_recordings_in_one_file(self, name: str, tmp_path: Path) -> None:
        """Each header starts a recording of its own, counted anew."""
        other = '{"recording": 1, "id": "two", "grace_s": 5}'
        path = file_of(tmp_path / name, HEADER, ROUND, ROUND, other, ROUND)
        assert [(line.header.id, line.number, line.header.grace_s) for line in recording.read(path)] == [
            ("one", 1, 1800.0),
            ("one", 2, 1800.0),
            ("two", 1, 5),
        ]

    def test_a_file_without_rounds(self, name: str, tmp_path: Path) -> None:
        """A header alone, or nothing at all."""
        assert list(recording.read(file_of(tmp_path / name))) == []
        assert list(recording.read(file_of(tmp_path / name, HEADER))) == []

    @pytest.mark.parametrize(
        ("lines", "at", "complaint"),
        [
            ([ROUND], 1, "a round before any header"),
            ([HEADER, ROUND[:-5]], 2, "not a line of a recording"),
            ([HEADER, ROUND, "words"], 3, "not a line of a recording"),
            ([HEADER, "[1, 2]"], 2, "not a line of a recording"),
            ([HEADER, "5"], 2, "not a line of a recording"),
            (['{"recording": 2}'], 1, "recording format 2, this lbd reads format 1"),
            (['{"recording": "1"}'], 1, "recording format '1'"),
            (['{"recording": true}'], 1, "recording format True"),
            (['{"recording": 1, "settings": []}'], 1, "header 'settings' is .*wanted an object"),
            (['{"recording": 1, "weights": 5}'], 1, "header 'weights' is 5, wanted an object"),
            (['{"recording": 1, "grace_s": "30"}'], 1, "header 'grace_s' is '30', wanted a number"),
            (['{"recording": 1, "interval_s": true}'], 1, "header 'interval_s' is True, wanted a number"),
            (['{"recording": 1, "strategy": 7}'], 1, "header 'strategy' is 7, wanted a text"),
            (['{"recording": 1, "id": ["x"]}'], 1, "header 'id' is .*wanted a text"),
        ],
    )
    def test_what_is_no_recording(self, lines: list[str], at: int, complaint: str, name: str, tmp_path: Path) -> None:
        """Told with file, line, what was seen, and what would be right."""
        path = file_of(tmp_path / name, *lines)
        with pytest.raises(UsageError, match=complaint) as caught:
            list(recording.read(path))
        assert str(caught.value).startswith(f"{path}:{at}: ")

    @pytest.mark.parametrize(
        "line",
        [
            "{}",
            '{"t": 60}',
            '{"reports": {}}',
            '{"t": "noon", "reports": {}}',
            '{"t": 60, "reports": []}',
            '{"t": 60, "reports": {"a:80": 5}}',
            '{"t": 60, "reports": {"a:80": {"cpu": {"usage": "much"}}}}',
        ],
    )
    def test_a_line_that_is_no_round(self, line: str, name: str, tmp_path: Path) -> None:
        """Its place is told when it is taken apart."""
        path = file_of(tmp_path / name, HEADER, ROUND, line)
        with pytest.raises(UsageError, match="not a round") as caught:
            list(rounds(path))
        assert str(caught.value).startswith(f"{path}:3: ")

    def test_an_absent_file(self, name: str, tmp_path: Path) -> None:
        """The name, and that it is not there."""
        with pytest.raises(UsageError, match="No such file") as caught:
            list(recording.read(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)

    def test_written_and_read_again(self, name: str, tmp_path: Path) -> None:
        """Header and reports come back as they were given, numbers to the last digit."""
        report = b'{"cpu": {"usage": 1.5500000000000001e-07, "limit": 200.0},\n "unknown": ["\\u00fc", null]}'
        header = {"id": "x", "strategy": "avg-shedder", "settings": {"low_threshold": 20}, "grace_s": 60}
        with recording.create(tmp_path / name, header) as writer:
            writer.round(60.5, {"b:80": report, "a:80": b"{}"})
            writer.round(120.0, {"a:80": b"{}"})
        first, second = recording.read(tmp_path / name)
        assert first.header == recording.Header("x", "avg-shedder", {"low_threshold": 20}, grace_s=60)
        assert json.loads(first.body) == {"t": 60.5, "reports": {"a:80": {}, "b:80": json.loads(report)}}
        assert second.number == 2

    def test_an_existing_file_is_refused(self, name: str, tmp_path: Path) -> None:
        """And left as it was."""
        path = file_of(tmp_path / name, HEADER)
        before = path.read_bytes()
        with pytest.raises(UsageError, match="exists already"), recording.create(path, {}):
            pass
        assert path.read_bytes() == before

    def test_a_folder_that_is_not_there(self, name: str, tmp_path: Path) -> None:
        """The path that cannot be written is named."""
        path = tmp_path / "absent" / name
        with pytest.raises(UsageError, match="cannot be written"), recording.create(path, {}):
            pass


def test_a_round_is_on_disk_before_the_next_one(tmp_path: Path) -> None:
    """A kill tears at most the last line."""
    with recording.create(tmp_path / "r.jsonl", {}) as writer:
        writer.round(60, {"a:80": b"{}"})
        assert len(list(recording.read(tmp_path / "r.jsonl"))) == 1


@pytest.mark.parametrize("kept", [5, 15, -1, -9, -20])
def test_a_torn_gzip_is_told(kept: int, tmp_path: Path) -> None:
    """What came before the tear is read; then the file is named as torn."""
    path = file_of(tmp_path / "r.jsonl.gz", HEADER, *[ROUND] * 50)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UsageError, match="cannot be read") as caught:
        list(recording.read(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("at", [0, 3, 12, 20, 40, -3, -7])
def test_a_damaged_gzip_is_told(at: int, tmp_path: Path) -> None:
    """A wrong magic, wrong blocks, a wrong checksum: never a stack trace."""
    path = file_of(tmp_path / "r.jsonl.gz", HEADER, *[ROUND] * 50)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"r\.jsonl\.gz"):
        list(recording.read(path))


def test_plain_lines_under_the_name_of_a_gzip(tmp_path: Path) -> None:
    """The name promises what the content does not hold."""
    (tmp_path / "r.jsonl.gz").write_text(f"{HEADER}\n{ROUND}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="Not a gzipped file"):
        list(recording.read(tmp_path / "r.jsonl.gz"))


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_an_interrupt_waits_until_the_line_is_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a round: that round is kept, the file ends as it should, and the command is ended."""
    path = tmp_path / name

    def interrupted() -> None:
        with recording.create(path, {"id": "one"}) as writer:
            monkeypatch.setattr(writer, "_file", Interrupting(writer._file))
            writer.round(60.0, {"a:80": b"{}"})

    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert [line.number for line in recording.read(path)] == [1]


class Interrupting:
    """A file during whose writes somebody presses Ctrl-C."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, line: bytes) -> None:
        """Half of it before, half of it after."""
        half = len(line) // 2
        self._file.write(line[:half])
        signal.raise_signal(signal.SIGINT)
        self._file.write(line[half:])

    def flush(self) -> None:
        """As it is."""
        self._file.flush()
