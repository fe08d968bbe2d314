"""How good the last predictions of scores were: the journal's moves beside the kept turns."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.model import Result
from lbd.store.explain import move_stories
from lbd.store.moves import newest_moves
from lbd.store.turns import KeptTurns
from lbd.text import DAY_SECONDS, counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.store.explain import Story


SHOWN = 20
"""Predictions that are compared with what came."""

LOOKED_AT = 200
"""Moves that are looked at: a plan predicts one score of each broker, whatever the number of its moves."""


class Prediction(msgspec.Struct, frozen=True):
    """A broker's score in points before the moves that ``turn`` planned, as ``predicted``, and as ``found`` in the
    first turn in which both ends of a move had settled; other load may have changed, too.
    """

    turn: int
    broker: str
    before: float
    predicted: float
    found: float


class Predictions(msgspec.Struct, frozen=True):
    """The last predictions of the last day, the newest first; ``median_error_points`` is None where there is none.

    ``summary`` is a sentence with that error.
    """

    last: list[Prediction] = []
    median_error_points: float | None = None
    summary: str = ""


def predictions(state_dir: Path, now: float) -> Predictions:
    """The last predictions at ``now`` (epoch seconds); of a store that cannot be read, why."""
    try:
        return judged(_newest(state_dir, now))
    except UsageError as error:
        return Predictions(summary=f"Earlier predictions cannot be compared: {error}")


def _newest(state_dir: Path, now: float) -> list[Prediction]:
    since = now - DAY_SECONDS
    moves = [move for move in newest_moves(state_dir, LOOKED_AT) if move.result is Result.LANDED and move.at > since]
    if not moves:
        return []
    stories = move_stories(moves)
    for turn in KeptTurns(state_dir):
        for story in stories:
            story.take(turn)
        if turn.ended_at < since or all(story.done for story in stories):
            break
    compared = (prediction for story in stories for prediction in _compared(story))
    return list({(prediction.turn, prediction.broker): prediction for prediction in compared}.values())


NONE = "No prediction of the last day can be compared with what came of it yet."


def _compared(story: Story) -> Iterator[Prediction]:
    """Predictions for the two ends of a move whose scores before, predicted and afterwards are known."""
    move = story.answer()
    if move.planned_in is None or move.before is None or move.expected is None or move.came is None:
        return
    for broker, end in ((move.source, "source"), (move.destination or "", "destination")):
        before, predicted, came = (getattr(scores, end) for scores in (move.before, move.expected, move.came))
        if before is not None and predicted is not None and came is not None:
            yield Prediction(move.planned_in, broker, before, predicted, came)


def judged(compared: list[Prediction]) -> Predictions:
    """The newest of these predictions, and their error."""
    last = compared[:SHOWN]
    if not last:
        return Predictions(summary=NONE)
    errors = [abs(prediction.found - prediction.predicted) for prediction in last]
    error = median(errors)
    many = f"The last {counted(len(last), 'prediction')} of a broker's score"
    missed = f"{error:.1f} points in the median, by {max(errors):.1f} at most"
    return Predictions(last, error, f"{many} missed what came by {missed}.")
