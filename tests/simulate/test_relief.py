"""How soon a hot broker is relieved: what limits cut off a plan goes on as soon as live CPU shows what its part did."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.simulate import fakes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.simulate.fakes import Run


def waves(lbd: Run) -> list[float]:
    """When moves were begun (epoch seconds), those of one turn once."""
    begun = sorted(move.at for move in lbd.moves())
    return [begun[0], *(later for earlier, later in pairwise(begun) if later - earlier > 5)] if begun else []


def gaps(cluster: FakePulsar, folder: Path, monkeypatch: pytest.MonkeyPatch, *, live_cpu: bool) -> list[float]:
    """Seconds between the first three waves of a plan; each may move an eighth of the cluster's traffic."""
    rails = {"max_traffic_per_turn": 0.12, "unload_spacing_seconds": 0}
    shedder = {"min_unload_message": 0, "min_unload_message_throughput": 0}
    chosen = fakes.settings(cluster, folder, guardrails=rails, load={"live_cpu": live_cpu}, avg_shedder=shedder)
    with fakes.run(cluster, folder, monkeypatch, chosen) as lbd:
        lbd.until(lambda: len(waves(lbd)) >= 3, most=120)
        lbd.true_moves()
        return [later - earlier for earlier, later in pairwise(waves(lbd)[:3])]


def test_by_live_cpu_the_rest_of_a_plan_goes_on_within_minutes(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As soon as the brokers' CPU stands still and their traffic was counted anew."""
    assert max(gaps(cluster, tmp_path, monkeypatch, live_cpu=True)) <= 95


def test_by_reports_it_waits_for_samples(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two of each broker, and hits anew."""
    assert min(gaps(cluster, tmp_path, monkeypatch, live_cpu=False)) >= 105
