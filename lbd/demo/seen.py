"""What the daemon has said so far, gathered for a picture: its last turn, its sentences, and its moves. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.model import Outcome

if TYPE_CHECKING:
    from lbd.model import Skip
    from lbd.record.turns.lines import Planned, Turn

WAITS, SENT, NOT_SENT = "waits", "sent", "not sent"
"""States of a move before its end, and of one that never began; else it is the outcome's word."""


@dataclass(frozen=True)
class Move:
    """One move: its ``state``, what there is to say of it, and when that came to be (epoch seconds)."""

    bundle: str
    source: str
    destination: str
    state: str
    at: float
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in {WAITS, SENT}


@dataclass(frozen=True)
class Said:
    """A sentence, when it was first said, and in how many turns running; its numbers are the last ones."""

    at: float
    sentence: str
    turns: int = 1


@dataclass(frozen=True)
class Seen:
    """Everything told so far; ``first`` and ``last`` are the first turn that saw brokers, and the last turn."""

    first: Turn | None = None
    last: Turn | None = None
    said: tuple[Said, ...] = ()
    moves: tuple[Move, ...] = ()

    def turned(self, turn: Turn) -> Seen:
        """The same after one more turn; some of its moves may have ended before it was told."""
        first = self.first or (turn if turn.brokers else None)
        told = {move.bundle for move in self.moves if move.ended and move.at >= turn.at}
        planned = tuple(_planned(one, turn.at) for one in turn.unloads if one.bundle not in told)
        return replace(self, first=first, last=turn, said=_said(self.said, turn), moves=(*self.moves, *planned))

    def ended(self, ended: Outcome | Skip, at: float) -> Seen:
        """The same after a move has ended, or was not sent."""
        if isinstance(ended, Outcome):
            unload = ended.unload
            words = "; ".join(filter(None, (f"in {ended.seconds:.2f} s", ended.detail)))
            found = Move(unload.bundle, unload.source, unload.destination or "", ended.result.value, at, words)
        else:
            begun = next((move for move in reversed(self.moves) if move.bundle == ended.what), None)
            ends = (begun.source, begun.destination) if begun is not None else ("", "")
            words = ended.reason.told(ended.detail)
            found = Move(ended.what, *ends, NOT_SENT, at, words)
        return replace(self, moves=(*(move for move in self.moves if not _same(move, found)), found))

    @property
    def gaps(self) -> tuple[float, float] | None:
        """Points between the highest and the lowest score at first and now; None before two brokers were seen."""
        found = [gap(turn) for turn in (self.first, self.last) if turn is not None]
        return (found[0], found[-1]) if len(found) == 2 and None not in found else None  # type: ignore[return-value]


def gap(turn: Turn) -> float | None:
    """Points between the highest and the lowest score of a turn."""
    scores = [broker.score for broker in turn.brokers if broker.score is not None]
    return max(scores) - min(scores) if len(scores) > 1 else None


def _said(said: tuple[Said, ...], turn: Turn) -> tuple[Said, ...]:
    if said and _gist(said[-1].sentence) == _gist(turn.sentence):
        return (*said[:-1], replace(said[-1], sentence=turn.sentence, turns=said[-1].turns + 1))
    return (*said, Said(turn.at, turn.sentence))


def _gist(sentence: str) -> str:
    """What it says, without the numbers in brackets."""
    return sentence.partition(" (")[0]


def _planned(unload: Planned, at: float) -> Move:
    return Move(unload.bundle, unload.source, unload.destination or "", WAITS, at)


def _same(move: Move, found: Move) -> bool:
    return move.bundle == found.bundle and not move.ended
