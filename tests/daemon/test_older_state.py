"""A state directory as the first lbd left it: a journal without a header, counters and averages of format 1."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.record.journal import history, read
from lbd.record.state import StateDir
from tests import fake_pulsar
from tests.fake_pulsar import HOT

OLD = Path(__file__).parent.parent / "data" / "state-0.1.0"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A copy of it, written to a moment ago."""
    folder = tmp_path / "state"
    shutil.copytree(OLD, folder)
    late = time.time() - json.loads((folder / "memory.json").read_text())["written_at"]
    for name in ("journal.jsonl", "memory.json"):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        moved = [
            {key: value + late if key in {"at", "written_at"} else value for key, value in one.items()} for one in lines
        ]
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in moved))
    return folder


def test_it_is_read_as_it_is(state: Path):
    """Every move, none of them open, each bundle rests; the counters and the averages of all ten bundles."""
    found = list(history(state))
    kept = StateDir(state).load()
    written = float(json.loads((OLD / "memory.json").read_text())["written_at"])
    assert [(move.bundle, move.result and move.result.value) for move in found] == [
        (HOT[0], "landed-elsewhere"),
        (HOT[1], "landed"),
        (HOT[2], "landed"),
    ]
    assert read(state / "journal.jsonl").open == ()
    assert {sample.to_settle for sample in kept.samples.values()} == {2}
    assert len(StateDir(OLD).load_averages(written).bundles) == 10


def test_lbd_goes_on_with_it(state: Path):
    """A turn finds the three bundles resting, and what it writes comes after what was there."""
    with fake_pulsar.hot_broker() as pulsar:
        guardrails = {"membership_settle_seconds": 0}
        chosen = Settings.model_validate(
            {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": state, "guardrails": guardrails}
        )
        with engine(chosen) as balancer:
            record = balancer.once()
    assert record.error is None
    assert record.counts["cool-down"] == 3
