"""Each shedder against the answers that Pulsar's own classes (5.0.1) gave to the same recordings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbd.replay import replay, rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.model import Unload

VECTORS = Path(__file__).parents[1] / "data" / "vectors"


def answers(name: str) -> Iterator[dict[str, Any]]:
    """What Pulsar answered, a round a line."""
    with gzip.open(VECTORS / f"{name}.expected.jsonl.gz") as file:
        yield from map(json.loads, file)


def as_expected(unload: Unload) -> dict[str, Any]:
    """One unload in the vectors' own form; where Pulsar draws, the brokers it draws from."""
    found: dict[str, Any] = {"bundle": unload.bundle, "source": unload.source, "destination": unload.destination}
    return {**found, "destination": None, "any_of": list(unload.choices)} if unload.choices else found


@pytest.mark.parametrize(
    ("name", "unloads"),
    [
        ("avg-shedder", 2657),
        ("avg-shedder-overloaded-destination", 950),
        ("threshold-shedder", 995),
        ("overload-shedder", 1087),
        ("uniform-load-shedder", 493),
        ("transfer-shedder", 693),
    ],
)
def test_every_round_is_answered_as_pulsar_answers_it(name: str, unloads: int):
    """Same bundles, sources and destinations in every round of every recording, to the last bit."""
    seen = 0
    replayed = replay(rounds(VECTORS / f"{name}.jsonl.gz"), None, {}, stock=True)
    for expected, got in zip(answers(name), replayed, strict=True):
        found = sorted(map(as_expected, got.decision.unloads), key=lambda one: one["bundle"])
        for one in expected["unloads"]:
            if "any_of" in one:
                one["any_of"].sort()
        assert expected == {"id": got.id, "round": got.round, "unloads": found}
        seen += len(found)

    assert unloads == seen


def test_where_pulsar_draws_lbd_takes_the_first_by_name():
    """A planned destination above the overload threshold is replaced by the first healthy broker."""
    replayed = replay(rounds(VECTORS / "avg-shedder-overloaded-destination.jsonl.gz"), None, {}, stock=True)
    drawn = [unload for got in replayed for unload in got.decision.unloads if unload.choices]

    assert drawn
    assert [unload.choices[0] for unload in drawn] == [unload.destination for unload in drawn]
