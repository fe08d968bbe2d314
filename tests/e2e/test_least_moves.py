"""least-moves on real brokers: a hot one, one that joins, one with three times the CPU, one with a neighbour."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import scenarios
from tests.e2e.scenarios import Tried

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MINUTES = 8
TRAFFIC = {"max_traffic_per_turn": 0.35}
"""Of the cluster: with a tenth a gap of 40 points takes four turns, each with two samples of settling."""


def ran(name: str, version: str, directory: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """One scenario; what must hold of each, and a line for the table."""
    row = scenarios.run(name, Tried(version, "least-moves", TRAFFIC, MINUTES * 60), directory)
    tell(json.dumps(row))
    assert row["denied by the brokers"] == []
    assert row["lost"] == 0
    assert row["moves"] == row["bundles"], "a bundle was moved twice"
    return row


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(brokers=0, versions=["4.0.8"])
@pytest.mark.parametrize("name", ["s1", "s2", "s5", "unlike"])
def test_brokers_are_brought_together(no_cluster: str, tmp_path: Path, tell: Callable[[str], None], name: str):
    """Something is moved, no broker gives and takes, and what is left is below 15 points."""
    row = ran(name, no_cluster, tmp_path, tell)
    ends = [pair.split(" -> ") for pair in row["pairs"]]

    assert row["moves"] > 0
    assert not {source for source, _ in ends} & {destination for _, destination in ends}
    assert row["true gap first, last"][1] < 15


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(brokers=0, versions=["4.0.8"])
def test_a_neighbour_is_relieved_as_far_as_its_traffic_goes(
    no_cluster: str, tmp_path: Path, tell: Callable[[str], None]
):
    """A burner beside the broker with the least traffic: nothing is moved towards it."""
    row = ran("burner-cold", no_cluster, tmp_path, tell)

    assert not any(pair.endswith("127.0.0.1:18080") for pair in row["pairs"])
