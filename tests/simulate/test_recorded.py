"""Simulated reports as JSON, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.cli.simulate import recorder
from lbd.config import Settings
from lbd.observe.parse import build_snapshot, parse_report
from lbd.replay import rounds
from lbd.simulate.cluster import moved, snapshot
from lbd.simulate.run import estimated_bytes, finish, load_reports
from lbd.simulate.scenario import settled
from tests.simulate.worlds import begun, later, scenario

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.model import Snapshot
    from lbd.simulate.run import Turned


def parsed(seen: Snapshot) -> Snapshot:
    """Through JSON and back."""
    reports = {broker: parse_report(body, broker) for broker, body in load_reports(seen).items()}
    return build_snapshot(seen.taken_at, reports)


def same(one: object, other: object) -> None:
    """Every column and every text."""
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            assert np.array_equal(left, right), field.name
        elif hasattr(left, "__dataclass_fields__"):
            same(left, right)
        else:
            assert left == right, field.name


@pytest.mark.parametrize("seconds", [0, 65, 130])
def test_what_is_recorded_is_what_was_seen(seconds: int):
    """To the last bit, also while a moved bundle is on two reports or on none."""
    world, state = begun(brokers=[{"id": "a"}, {"id": "b"}, {"id": "c", "joins_at_minutes": 1}], noise_points=2)
    state = later(world, moved(later(world, state, 30), 2, 1), seconds)
    seen = snapshot(world, state, 1_767_571_200.0)
    same(parsed(seen), seen)


def test_the_size_is_known_before():
    """Within a twentieth for rounds that are alike; packed it is less."""
    world, state = begun(load=[{"name": "n", "mib_per_second": 60, "bundles": 200, "spread": 1}])
    seen = snapshot(world, state, 1_767_571_200.0)
    line = sum(map(len, load_reports(seen).values()))
    assert estimated_bytes(seen, 10, packed=False) == pytest.approx(10 * line, rel=0.05)
    assert estimated_bytes(seen, 10, packed=True) < 5 * line


def test_a_run_comes_back_from_its_recording(tmp_path: Path):
    """Every round of a run in which bundles moved and a broker joined, through a file, as replay reads it."""
    brokers = [{"id": "a"}, {"id": "b"}, {"id": "c", "joins_at_minutes": 3}]
    found = scenario(brokers=brokers, hours=0.2, noise_points=1)
    reports_alone = {"load.live_cpu": False}  # what brokers told beside their reports is in no recording
    settings = settled(found, Settings(), {"guardrails.max_traffic_per_turn": 1.0, **reports_alone})
    seen: list[Snapshot] = []
    with recorder(tmp_path / "run.jsonl.gz", "a test", found, settings, 1) as keep:

        def follow(turned: Turned) -> None:
            keep(turned)
            seen.append(turned.record.observation.snapshot)

        assert finish("a test", found, settings, 1, follow).trace.moves
    back = list(rounds(tmp_path / "run.jsonl.gz"))
    assert [number for _, number, _ in back] == list(range(1, 14))
    for one, (_, _, other) in zip(seen, back, strict=True):
        same(one, other)
