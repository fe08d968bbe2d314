"""The lines of a journal: one JSON object each, distinguished by ``event``. The set of events is closed."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from lbd.errors import UsageError
from lbd.files import YEAR_10000, At, reading
from lbd.model import BundleClients, Result
from lbd.permit.served import Served
from lbd.redaction import redacted
from lbd.split.plan import Algorithm, SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FORMAT = 1
"""Goes up when an older lbd would misread a line; fields that it may ignore do not count."""

LONGEST_LINE = 1 << 20
LONGEST_TEXT = 10_000
"""Of a reason or a detail, in characters: a line stays far below :data:`LONGEST_LINE`, which is bytes."""

Up: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)] | None
"""Time on the clock that nobody can set: seconds since the start of the machine, which ``boot`` beside it names."""


class JournalHeader(msgspec.Struct, frozen=True, tag="journal", tag_field="event", omit_defaults=True):
    """The first line of a file: its format, and how many bytes of what follows came over from the file before it."""

    format: Annotated[int, msgspec.Meta(ge=1)]
    at: At
    carried: Annotated[int, msgspec.Meta(ge=0)] = 0


class Intent(msgspec.Struct, frozen=True, tag="intent", tag_field="event", omit_defaults=True):
    """An unload is about to be requested, for the second time where ``attempt`` is 2.

    ``msg_rate`` is messages/s and ``throughput`` bytes/s, in + out, as planned. ``order`` is the unload's.
    ``clients_before`` is from the source's report, None where it has no statistics of the bundle.
    """

    at: At
    move: str
    bundle: str
    source: str
    destination: str | None
    attempt: int = 1
    msg_rate: float = 0.0
    throughput: float = 0.0
    reason: str = ""
    order: str = ""
    clients_before: BundleClients | None = None
    boot: str = ""
    up: Up = None


class OutcomeLine(msgspec.Struct, frozen=True, tag="outcome", tag_field="event", omit_defaults=True):
    """The outcome of an intent, verified by asking for the bundle's owner.

    ``noted`` is the broker that ``leader`` may still have as destination, or with ``older_note`` what it had before.
    ``amended``: the move had an outcome that a broker made untrue later; the last line holds. An lbd that does not know
    this field uses the first one.
    """

    at: At
    move: str
    result: Result
    owner: str | None
    bundle: str
    detail: str = ""
    seconds: float = 0.0
    noted: str | None = None
    leader: str | None = None
    older_note: bool = False
    amended: bool = False


class ServedLine(msgspec.Struct, frozen=True, tag="served", tag_field="event", omit_defaults=True):
    """Whether the clients of a move that landed are back; the last line of a move holds.

    An lbd that does not know these lines passes over them, and counts them.
    """

    at: At
    move: str
    bundle: str
    served: Served
    clients_after: BundleClients | None = None
    reconnect_seconds: float | None = None
    served_detail: str = ""
    lifted: bool = False


class Noted(msgspec.Struct, frozen=True, tag="note", tag_field="event", omit_defaults=True):
    """The destination that a leader has noted for the bundle, or one of the ``older`` ones; None: no note any more."""

    at: At
    bundle: str
    noted: str | None
    leader: str | None = None
    older: tuple[str, ...] = ()


class Attempt(msgspec.Struct, frozen=True, tag="attempt", tag_field="event", omit_defaults=True):
    """An attempt on a bundle, carried over from a file before; the move itself stands there.

    ``move`` and what follows stand with those of the last day, which budgets count; without it, it is the last attempt.
    ``amended_at`` is of the last line that amended its outcome, None where none did.
    """

    at: At
    bundle: str
    move: str = ""
    source: str = ""
    destination: str | None = None
    attempt: int = 1
    msg_rate: float = 0.0
    throughput: float = 0.0
    failed: bool = False
    owner: str | None = None
    order: str = ""
    amended_at: At | None = None
    boot: str = ""
    up: Up = None


class PlacementLine(msgspec.Struct, frozen=True, tag="placing", tag_field="event", omit_defaults=True):
    """The placement of an unowned bundle, with its verified owner.

    There is no intent before it: one left open by a kill would need no recovery.
    """

    at: At
    move: str
    bundle: str
    destination: str
    result: Result
    owner: str | None
    detail: str = ""
    seconds: float = 0.0
    reason: str = ""
    boot: str = ""
    up: Up = None


class SplitIntent(msgspec.Struct, frozen=True, tag="split", tag_field="event", omit_defaults=True):
    """A split is about to be requested. An lbd that knows no splits passes over these lines, and counts them."""

    at: At
    split: str
    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    reason: str = ""
    boot: str = ""
    up: Up = None


class SplitEnded(msgspec.Struct, frozen=True, tag="split-outcome", tag_field="event", omit_defaults=True):
    """The outcome of a split, verified by reading the boundaries: ``parts`` are the full names of the new bundles."""

    at: At
    split: str
    result: SplitResult
    bundle: str
    parts: tuple[str, ...] = ()
    owner: str | None = None
    detail: str = ""
    seconds: float = 0.0


Entry: TypeAlias = (
    JournalHeader | Intent | OutcomeLine | ServedLine | Noted | Attempt | PlacementLine | SplitIntent | SplitEnded
)

_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ENCODER = msgspec.json.Encoder()


def encoded(entry: Entry) -> bytes:
    """The line, with its end."""
    return _ENCODER.encode(entry) + b"\n"


def text(words: str) -> str:
    """Words as a line can hold them: not too long, without secrets and the halves of characters of a broker."""
    return redacted(words)[:LONGEST_TEXT].encode(errors="replace").decode()


def entries(path: Path) -> Iterator[tuple[Entry | None, bytes]]:
    """Each line that is not blank, with its bytes; None for one that cannot be read. An absent file has none.

    Raises :class:`UsageError` when the file cannot be read, or is of a format that only a newer lbd knows.
    """
    try:
        with reading(path) as file:
            for line in _lines(file):
                yield decoded(line, path), line
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be read: {error.strerror}") from error


def lines_with(path: Path, *parts: bytes) -> Iterator[bytes]:
    """The lines that contain one of these; an absent file has none. Raises as :func:`entries`."""
    try:
        with path.open("rb") as file:
            yield from (line for line in _lines(file) if any(part in line for part in parts))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be read: {error.strerror}") from error


def decoded(line: bytes, path: Path) -> Entry | None:
    """The decoded line of ``path``, None for one that cannot be read. Raises :class:`UsageError` for a newer format."""
    try:
        entry = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(entry, JournalHeader) and entry.format > FORMAT:
        raise UsageError(
            f"{path}: journal of format {entry.format}, this lbd reads up to {FORMAT}; "
            "run the newer lbd that wrote it, or move the file away and lose its cool-downs and open moves"
        )
    return entry


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Of a line that is too long, as the zeros after a power cut may be, only the beginning: it is unreadable then."""
    at_start = True
    while piece := file.readline(LONGEST_LINE):
        if at_start and piece.strip():
            yield piece
        at_start = piece.endswith(b"\n")
