"""The entries of a journal: one JSON object each, distinguished by ``event``. The set of events is closed."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from lbd.errors import UsageError
from lbd.files import YEAR_10000, At
from lbd.model import BundleClients, Result
from lbd.permit.served import Served
from lbd.redaction import redacted
from lbd.split.plan import Algorithm, SplitResult

LONGEST_TEXT = 10_000
"""Characters of a reason or a detail at most."""

Up: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)] | None
"""Time on the clock that nobody can set: seconds since the start of the machine, which ``boot`` beside it names."""


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


Entry: TypeAlias = Intent | OutcomeLine | ServedLine | Noted | PlacementLine | SplitIntent | SplitEnded

_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ENCODER = msgspec.json.Encoder()


def encoded(entry: Entry) -> bytes:
    """The entry as JSON. Raises UnicodeEncodeError for a name that is no UTF-8 text."""
    return _ENCODER.encode(entry)


def event(entry: Entry) -> str:
    """The name of what happened, as the entry has it."""
    return str(entry.__struct_config__.tag)


def decoded(entry: bytes) -> Entry:
    """The entry of a row. Raises :class:`UsageError` for one that this lbd did not write."""
    try:
        return _DECODER.decode(entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"journal: {entry[:80]!r} is no entry: {error}; put a backup of the store in its place"
        ) from error


def text(words: str) -> str:
    """Words as an entry can hold them: not too long, without secrets and the halves of characters of a broker."""
    return redacted(words)[:LONGEST_TEXT].encode(errors="replace").decode()
