"""Moves as rows of a table."""

from __future__ import annotations

from dataclasses import replace

from lbd.score.scorecard import Trace, Transfer, transfers
from tests.score.runs import EVEN, move, seen


def test_moves_of_one_turn_from_and_to_the_same_broker_are_one_row():
    """What landed before the next turn belongs to the turn before it, also when it landed just then."""
    moves = (move(65, "a"), move(70, "b"), replace(move(71, "c"), source="z"), move(120, "d"), move(121, "e"))
    found = transfers(Trace(tuple(seen(at, EVEN) for at in range(3)), moves))
    assert found == (
        Transfer(1, 60.0, "x", "y", 3, 300),
        Transfer(1, 60.0, "z", "y", 1, 100),
        Transfer(2, 120.0, "x", "y", 1, 100),
    )
    assert [one.clock for one in found] == ["0:01", "0:01", "0:02"]


def test_no_moves_are_no_rows():
    """A quiet run."""
    assert transfers(Trace((seen(0, EVEN),), ())) == ()
