"""The record of a kept turn: observations, decisions and reasons of a turn, compact enough for a month of them.

Times are epoch seconds, scores points, rates messages/s and throughputs bytes/s in + out; None where unknown. Rows that
come by the hundred are JSON arrays.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lbd.files import At
from lbd.permit.topic_costs import DearKind
from lbd.reason import cause
from lbd.redaction import redacted_json
from lbd.spread import Crowded
from lbd.text import counted

Kind: TypeAlias = Literal["balanced", "partial", "waiting", "moving", "blocked", "held", "not-fixable", "unknown"]


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of a turn. ``reason`` is the label of a :class:`~lbd.reason.Reason`.

    ``blocked``: a pair is too far apart, and a hold or a limit forbids every move of it for now. ``held``: moves are
    forbidden, and no pair is known that needs one, or another lbd or person is to make them. ``partial``: no pair is
    too far apart among those brokers that could be compared, and there are others.
    ``samples`` is how many more fresh samples a waiting pair wants before it fires.
    """

    kind: Kind
    reason: str | None = None
    detail: str = ""
    samples: int | None = None

    @property
    def words(self) -> str:
        """The verdict as a person reads it."""
        return f"{self.head}{self.detail and f': {self.detail}'}"

    @property
    def head(self) -> str:
        """The same without detail."""
        if self.samples is not None:
            return f"waiting for {counted(self.samples, 'more fresh sample')}"
        if self.kind in {"blocked", "held"}:
            return f"{self.kind} {cause(self.reason)}"
        if self.kind == "not-fixable":
            return f"no move possible, {self.reason}"
        return self.kind


class BrokerRecord(msgspec.Struct, frozen=True, array_like=True):
    """One broker's report. ``doubt`` is why it is no ground to move on; ``to_settle`` fresh samples must still come
    after a move or restart; ``fresh``: its sample was new in this turn.
    """

    id: str
    score: float | None
    binding: str | None
    msg_rate: float | None
    throughput: float | None
    bundles: int
    to_settle: int = 0
    doubt: str | None = None
    fresh: bool = False


class PairRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two brokers compared: hits with this turn's, and at how many the strategy fires.

    One without ``destination`` is a broker compared with something else, as ``why`` says.
    Of one that fired, ``wanted`` was to be moved: messages/s where ``measure`` is ``msg_rate``, else bytes/s.
    ``reason`` and ``detail`` are why nothing of it was planned.
    """

    source: str
    destination: str | None
    difference: float
    low: int = 0
    low_wanted: int = 0
    high: int = 0
    high_wanted: int = 0
    fired: bool = False
    pool: str = ""
    measure: str = ""
    wanted: float | None = None
    reason: str | None = None
    detail: str = ""
    why: str = ""

    @property
    def ends(self) -> str:
        """The name of the pair: both brokers, or the one."""
        return self.source if self.destination is None else f"{self.source} -> {self.destination}"

    @property
    def apart(self) -> str:
        """The imbalance, as text."""
        return self.why or f"{self.difference:.1f} points apart"

    @property
    def hits(self) -> str:
        """Hits as text; empty where one sample is enough."""
        if max(self.low_wanted, self.high_wanted) <= 1 and self.destination is None:
            return ""
        low = f"{self.low} of {self.low_wanted}"
        return f"low {low}, high {self.high} of {self.high_wanted}" if self.high_wanted or self.high else low


class CandidateLine(msgspec.Struct, frozen=True, array_like=True):
    """A bundle of a source that fired: ``reason`` is ``moves``, or why it was passed over."""

    bundle: str
    broker: str
    msg_rate: float | None
    throughput: float | None
    reason: str
    detail: str = ""


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unload that the turn began, or in an observing lbd would have."""

    bundle: str
    source: str
    destination: str | None
    msg_rate: float | None = None
    throughput: float | None = None
    reason: str = ""


class SkipLine(msgspec.Struct, frozen=True, array_like=True):
    """Something considered and not moved."""

    what: str
    reason: str
    detail: str = ""


class OutcomeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verified outcome of an unload of this turn or an earlier one."""

    bundle: str
    source: str
    destination: str | None
    result: str
    owner: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    detail: str = ""

    @property
    def words(self) -> str:
        """The outcome as text."""
        return f"{self.result} in {self.seconds:.2f} s{self.detail and f': {self.detail}'}"


class TurnRecord(msgspec.Struct, frozen=True, tag="turn", tag_field="event", omit_defaults=True, kw_only=True):
    """One turn. ``expected`` are the scores of the brokers that the plan touches, once all of it has landed.

    ``candidates`` are the largest bundles of the sources that fired, ``rest`` counts their others by broker and reason.
    ``crowded`` are brokers with more than their share of a topic's partitions, or a namespace's bundles.
    ``dear_kinds`` are Pulsar's own topics that made a move of their bundle dearer.
    ``repeated`` turns after this one, up to the one that ended at ``until``, were quiet and had the same message; the
    numbers are those of the last of them.
    """

    at: At
    turn: int = 0
    sentence: str
    verdict: Verdict
    acts: bool = True
    hold: SkipLine | None = None
    brokers: list[BrokerRecord] = []
    pairs: list[PairRecord] = []
    unloads: list[Planned] = []
    expected: dict[str, float] = {}
    candidates: list[CandidateLine] = []
    rest: dict[str, dict[str, int]] = {}
    skips: list[SkipLine] = []
    counts: dict[str, int] = {}
    outcomes: list[OutcomeRecord] = []
    refused: list[SkipLine] = []
    unfinished: int = 0
    crowded: list[Crowded] = []
    dear_kinds: list[DearKind] = []
    error: str | None = None
    repeated: int = 0
    until: At = 0.0

    @property
    def last(self) -> int:
        """Number of the last turn that this one stands for."""
        return self.turn + self.repeated

    @property
    def ended_at(self) -> float:
        """When the last of these turns was."""
        return max(self.at, self.until)

    def broker(self, name: str) -> BrokerRecord | None:
        """The facts about one broker, None if the turn has none."""
        return next((broker for broker in self.brokers if broker.id == name), None)

    def fired(self, source: str) -> bool:
        """Whether a pair with this source fired, and an amount to move was set."""
        return any(pair.source == source and pair.wanted is not None for pair in self.pairs)

    def named(self, bundle: str) -> bool:
        """Whether a bundle is among the candidates."""
        return any(candidate.bundle == bundle for candidate in self.candidates)


_DECODER = msgspec.json.Decoder(TurnRecord)
_ENCODER = msgspec.json.Encoder()


def encoded(turn: TurnRecord) -> bytes:
    """The turn as JSON. Text that no file can hold (halves of characters) gets question marks."""
    try:
        content = _ENCODER.encode(turn)
    except UnicodeEncodeError:
        content = _ENCODER.encode(_legible(msgspec.to_builtins(turn)))
    return redacted_json(content)


def _legible(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_legible(key): _legible(value) for key, value in value.items()}
    if isinstance(value, list):
        return [_legible(part) for part in value]
    return value


def decoded(content: bytes) -> TurnRecord | None:
    """The turn of JSON; None for one that is damaged."""
    try:
        return _DECODER.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
