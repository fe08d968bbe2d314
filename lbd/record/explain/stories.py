"""What moves were to do to their brokers, and what came of it: the journal beside the kept turns. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lbd.record.explain.answers import Ends, MoveStory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.record.journal import Move
    from lbd.record.turns.lines import BrokerSeen, Turn


@dataclass
class Story:
    """One move, told by the turns that are shown to it from the newest to the oldest."""

    move: Move
    planned: Turn | None = None
    seen: Turn | None = None
    _done: bool = field(default=False, init=False)

    def take(self, turn: Turn) -> None:
        """A turn, older than those before it."""
        if self._done:
            return
        ended = self.move.ended_at
        if ended is not None and turn.at > ended and self._settled(turn):
            self.seen = turn
        if turn.at <= self.move.at:
            self.planned = turn if any(one.bundle == self.move.bundle for one in turn.unloads) else None
            self._done = self.planned is not None or turn.at < self.move.at - PLANNED_WITHIN_SECONDS

    @property
    def done(self) -> bool:
        """Whether older turns have nothing to add."""
        return self._done

    def _settled(self, turn: Turn) -> bool:
        ends = [turn.broker(name) for name in (self.move.source, self.move.owner or self.move.destination or "")]
        return all(end is not None and end.to_settle == 0 and end.doubt is None for end in ends)

    def told(self) -> MoveStory:
        """The move with what is known of it."""
        move, planned, seen = self.move, self.planned, self.seen
        ends = move.source, move.destination or ""
        return MoveStory(
            move.at,
            move.bundle,
            move.source,
            move.destination,
            move.result.value if move.result is not None else None,
            move.owner,
            move.reason,
            move.detail,
            planned.turn if planned is not None else None,
            _scores(planned, *ends) if planned is not None else None,
            Ends(*(planned.expected.get(end) for end in ends)) if planned is not None else None,
            seen.turn if seen is not None else None,
            _scores(seen, *ends) if seen is not None else None,
        )


PLANNED_WITHIN_SECONDS = 900.0
"""A plan is worked off one unload after the other on each source; what was begun later than this was by hand."""


def stories(moves: Iterable[Move]) -> list[Story]:
    """A story for each move, the newest first."""
    return [Story(move) for move in sorted(moves, key=lambda move: move.at, reverse=True)]


def _scores(turn: Turn, source: str, destination: str) -> Ends:
    return Ends(_score(turn.broker(source)), _score(turn.broker(destination)))


def _score(seen: BrokerSeen | None) -> float | None:
    return seen.score if seen is not None else None
