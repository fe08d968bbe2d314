"""``lbd plan`` as text: each bundle with its own reason, and what several reasons share once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from lbd.cli.plan import COST, print_plan
from lbd.cli.render import shared_notes, without_notes
from lbd.model import Hits
from lbd.permit.settings import Guardrails
from lbd.store.predictions import Predictions
from lbd.turn.record import PlanDocument, plan_document, proposal
from tests import fake_pulsar
from tests.builders import case
from tests.cli.conftest import lbd
from tests.turn.records import HOT, altered, record, two

if TYPE_CHECKING:
    from pathlib import Path

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
    moves = [replace(unload, reason=f"r{at}{notes[at]}") for at, unload in enumerate(turn.plan.unloads[:3])]
    turn = altered(turn, unloads=tuple(moves))
    print_plan(msgspec.convert(plan_document(turn, proposal(turn), "", Predictions(), proposed=False), PlanDocument))

    printed = capsys.readouterr().out
    assert len(moves) == 3
    assert [line for line in printed.splitlines() if " of 3 bundles" in line] == wanted
    assert printed.count(MORE) == len(wanted)
    assert printed.count(JOINED) == sum(JOINED in note for note in notes)
    assert all(f"r{at}" in printed for at in range(3))


@pytest.mark.parametrize(
    ("costs", "numbers"),
    [({}, None), ({"t/*": 3}, {3.0}), ({"t/n": 1e6}, {1e6}), ({"x/*": 3}, None)],
    ids=["none set", "of the tenant", "of the namespace", "of another tenant"],
)
def test_a_plan_shows_what_the_settings_let_a_move_cost(
    costs: dict[str, float], numbers: set[float] | None, capsys: pytest.CaptureFixture[str]
):
    """In JSON always, as a column where some move has a cost, with what it means."""
    turn = record(two(80, 20), hits={HOT: Hits(8, 1)})
    assert turn.observation is not None
    rails = Guardrails.model_validate({"move_costs": costs})
    turn = altered(turn, costs=case(turn.observation.snapshot, rails).named_costs)
    plan = msgspec.convert(plan_document(turn, proposal(turn), "", Predictions(), proposed=False), PlanDocument)
    assert {move.cost for move in plan.unloads} == (numbers or {0.0})
    print_plan(plan)
    head, row, *others = capsys.readouterr().out.splitlines()[1:]
    assert ("cost" in head.split(), COST in others) == (numbers is not None, numbers is not None)
    if numbers is not None:
        assert f"{max(numbers):,.0f}" in row.split()


def test_the_plan_of_a_cluster_has_the_costs_of_its_settings(tmp_path: Path):
    """A turn hands them on to what is proposed."""
    rails = {"membership_settle_seconds": 0, "max_traffic_per_hour": 1, "move_costs": {"t/*": 7}}
    with fake_pulsar.hot_broker() as cluster:
        config = tmp_path / "lbd.yaml"
        values = {"pulsar": {"admin_urls": cluster.urls}, "state_dir": str(tmp_path / "state"), "guardrails": rails}
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        found = lbd("plan", "--format", "json", "--config", config)
    moves = json.loads(found.stdout)["unloads"]
    assert moves
    assert {(move["cost"], move["clients"] > 0) for move in moves} == {(7.0, True)}


def test_a_reason_is_not_cut_within_its_brackets():
    """What stands in brackets belongs to the clause before."""
    by = "by share; by what traffic costs it +3.5"
    reasons = [f"{points} points apart; b (+{points} {by}); is full" for points in (7, 9)]
    shared = shared_notes(reasons)
    assert shared == {"is full": 2}
    assert without_notes(reasons[0], shared) == f"7 points apart; b (+7 {by})"
