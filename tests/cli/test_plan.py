"""``lbd plan`` as text: each bundle with its own reason, and what several reasons share once."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from lbd.cli.plan import print_plan
from lbd.cli.render import shared_notes, without_notes
from lbd.model import Hits
from lbd.store.predictions import Predictions
from lbd.turn.record import PlanDocument, plan_document, proposal
from tests.turn.records import HOT, record, two

MORE, JOINED = "more would make its destination a source", "its destination has joined lately"


@pytest.mark.parametrize(
    ("notes", "wanted"),
    [
        ([f"; {MORE}", f"; {MORE}", f"; {MORE}"], ["3 of 3 bundles: " + MORE]),
        ([f"; {MORE}; {JOINED}", f"; {MORE}", ""], ["2 of 3 bundles: " + MORE]),
        (["", "", ""], []),
    ],
)
def test_a_note_on_several_bundles_is_printed_once(
    notes: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]
):
    """Below the moves, with their number; a note on one bundle stays in its line."""
    turn = record(two(80, 20), hits={HOT: Hits(8, 1)})
    moves = [replace(unload, reason=f"r{at}{notes[at]}") for at, unload in enumerate(turn.unloads[:3])]
    turn = replace(turn, unloads=tuple(moves))
    print_plan(msgspec.convert(plan_document(turn, proposal(turn), "", Predictions(), proposed=False), PlanDocument))

    printed = capsys.readouterr().out
    assert len(moves) == 3
    assert [line for line in printed.splitlines() if " of 3 bundles" in line] == wanted
    assert printed.count(MORE) == len(wanted)
    assert printed.count(JOINED) == sum(JOINED in note for note in notes)
    assert all(f"r{at}" in printed for at in range(3))


def test_a_reason_is_not_cut_within_its_brackets():
    """What stands in brackets belongs to the clause before."""
    by = "by share; by what traffic costs it +3.5"
    reasons = [f"{points} points apart; b (+{points} {by}); is full" for points in (7, 9)]
    shared = shared_notes(reasons)
    assert shared == {"is full": 2}
    assert without_notes(reasons[0], shared) == f"7 points apart; b (+7 {by})"
