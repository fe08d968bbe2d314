"""What ``lbd explain`` answers, as programs read it. Times are epoch seconds, scores points, rates in + out."""

from __future__ import annotations

import msgspec

from lbd.load.told import BrokerLoad
from lbd.record.turns.lines import BrokerSeen, Candidate, PairSeen, Planned, Turn, Verdict


class Ends(msgspec.Struct, frozen=True):
    """Scores of the two brokers of a move; None where one was not seen."""

    source: float | None
    destination: float | None


class MoveStory(msgspec.Struct, frozen=True):
    """A move of the journal, and what it was to do and did to its brokers.

    ``before`` and ``expected`` are the scores that the turn ``planned_in`` saw and predicted. ``came`` are those of the
    first kept turn, ``seen_in``, in which both brokers had settled after the landing: other load may have changed, too.
    """

    at: float
    bundle: str
    source: str
    destination: str | None
    result: str | None
    owner: str | None
    reason: str
    detail: str
    planned_in: int | None = None
    before: Ends | None = None
    expected: Ends | None = None
    seen_in: int | None = None
    came: Ends | None = None


class SplitStory(msgspec.Struct, frozen=True):
    """A split of the journal, and what came of it: ``result`` is None while it is open, ``parts`` what it made."""

    at: float
    bundle: str
    owner: str
    algorithm: str
    positions: list[str]
    result: str | None
    parts: list[str]
    reason: str
    detail: str


class Fired(msgspec.Struct, frozen=True):
    """The last turn in which a broker gave, or was to give: what was wanted, taken and passed over."""

    turn: int
    at: float
    pairs: list[PairSeen]
    unloads: list[Planned]
    candidates: list[Candidate]
    rest: dict[str, int]


class TurnAnswer(msgspec.Struct, frozen=True):
    """One turn, with what became of the moves that it began; ``turn`` is as kept: what is not there was empty.

    ``splits`` are those that were begun before the next turn.
    """

    turn: Turn
    moves: list[MoveStory]
    splits: list[SplitStory]


class BrokerAnswer(msgspec.Struct, frozen=True):
    """One broker. ``because`` is why it gives bundles away or does not, in sentences.

    ``load`` is what the lbd that ran last on this state directory had learned of it; None where it told nothing.
    """

    broker: str
    turn: int
    at: float
    verdict: Verdict
    seen: BrokerSeen | None
    because: list[str]
    pairs: list[PairSeen]
    fired: Fired | None
    moves: list[MoveStory]
    load: BrokerLoad | None = None


class PassedOver(msgspec.Struct, frozen=True):
    """What became of a bundle in the last turn in which its broker fired; ``reason`` ``moves``: it was chosen."""

    turn: int
    at: float
    reason: str
    detail: str


class BundleAnswer(msgspec.Struct, frozen=True):
    """One bundle. ``owner`` is who reported it at ``at``, or who it was moved to since; ``because`` why it is there.

    ``splits`` are those that cut it, and the one that it came out of.
    """

    bundle: str
    owner: str | None
    at: float | None
    msg_rate: float | None
    throughput: float | None
    because: list[str]
    cool_down_left_seconds: float | None
    passed_over: PassedOver | None
    moves: list[MoveStory]
    splits: list[SplitStory]


Answer = TurnAnswer | BrokerAnswer | BundleAnswer
