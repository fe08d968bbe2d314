"""Recordings: rounds of load reports as JSON lines, plain or .gz; one file may have several, one after another.

Format: a header line ``{"recording": 1, ...}``, then a line ``{"t": seconds, "reports": {broker: report}}`` per
round.
"""

from __future__ import annotations

import gzip
import json
import signal
import threading
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import msgspec

from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


FORMAT = 1


@dataclass(frozen=True)
class Header:
    """The header of a recording; all but the format number is optional. ``where`` is its file and line."""

    id: str = ""
    strategy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    interval_s: float = 60.0
    grace_s: float = 1800.0
    source: str = ""
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class RecordedRound:
    """One round as it stands in the file: ``number`` counts from 1, ``where`` is file and line."""

    header: Header
    number: int
    body: bytes
    where: str


def read(path: Path) -> Iterator[RecordedRound]:
    """Each round of each recording in the file, unparsed.

    Raises :class:`UsageError` that names file and line for anything that is not a recording.
    """
    header: Header | None = None
    number = 0
    for line_number, line in _lines(path):
        where = f"{path}:{line_number}"
        kind = _kind(line, where)
        if kind.recording is not None:
            header, number = _header(kind.recording, line, where), 0
            continue
        if header is None:
            raise UsageError(
                f'{where}: a round before any header; the first line must be {{"recording": {FORMAT}, ...}}'
            )
        number += 1
        yield RecordedRound(header, number, line, where)


class _RecordingKind(msgspec.Struct):
    recording: Any = None


_KIND = msgspec.json.Decoder(_RecordingKind)


def _kind(line: bytes, where: str) -> _RecordingKind:
    try:
        return _KIND.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: not a line of a recording: {error}; wanted one JSON object a line") from error


def _header(version: object, line: bytes, where: str) -> Header:
    if isinstance(version, bool) or version != FORMAT:
        raise UsageError(f"{where}: recording format {version!r}, this lbd reads format {FORMAT}")
    fields = _object(line, where)
    header = {name: fields[name] for name in _HEADER_KINDS if name in fields}
    for name, value in header.items():
        kinds, description = _HEADER_KINDS[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise UsageError(f"{where}: header {name!r} is {value!r}, wanted {description}")
    return Header(**header, where=where)


def _object(line: bytes, where: str) -> dict[str, Any]:
    """The header whole; a decoder that looks for one key passes over junk in the others."""
    try:
        fields: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: the header cannot be read: {error}; wanted one JSON object") from error
    return fields


_HEADER_KINDS: dict[str, tuple[Any, str]] = {
    "id": (str, "a text"),
    "strategy": ((str, type(None)), "a text"),
    "settings": (dict, "an object"),
    "weights": (dict, "an object"),
    "interval_s": ((int, float), "a number"),
    "grace_s": ((int, float), "a number"),
    "source": (str, "a text"),
}


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, numbered from 1."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path}: cannot be read: {_error_text(error)}; wanted a recording (.jsonl or .jsonl.gz)"
        ) from error


def _error_text(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class RecordingWriter:
    """Appends rounds to an open recording; the reports are written as the brokers sent them."""

    def __init__(self, file: IO[bytes], header: Mapping[str, Any]) -> None:
        self._file = file
        self._put(json.dumps({"recording": FORMAT, **header}, separators=(",", ":")).encode())

    def round(self, taken_at: float, reports: Mapping[str, bytes]) -> None:
        """One line for one round, taken at epoch seconds; flushed, so that a kill tears at most the last line."""
        raw = {broker: msgspec.Raw(body) for broker, body in sorted(reports.items())}
        self._put(msgspec.json.encode({"t": taken_at, "reports": raw}))

    def _put(self, line: bytes) -> None:
        with _uninterrupted():
            self._file.write(line.replace(b"\n", b" ") + b"\n")
            self._file.flush()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: in the middle of a line it would spoil all that gzip writes after it, its end included."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets the signal
        return
    signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signals:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def create(path: Path, header: Mapping[str, Any]) -> Iterator[RecordingWriter]:
    """A new recording at ``path``, gzipped when its name ends in .gz; an existing file is refused, and so is ``-``."""
    if path.name in {"", "-"}:
        raise UsageError(f"{str(path)!r}: a recording is no stream; name a new file (.jsonl or .jsonl.gz)")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        file = opener(path, "xb")
    except FileExistsError as error:
        raise UsageError(f"{path}: exists already; name a new file") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {_error_text(error)}") from error
    try:
        with file:
            yield RecordingWriter(file, header)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {_error_text(error)}") from error
