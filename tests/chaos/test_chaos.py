"""Two lbds while everything goes wrong: no rule is broken, and every outcome that is told is true."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos import observer
from tests.chaos.chaos import Chaos
from tests.chaos.faults import FAULTS

if TYPE_CHECKING:
    from pathlib import Path

MINUTES, SEED = "CHAOS_MINUTES", "CHAOS_SEED"


def check(folder: Path, minutes: float, seed: int, *, once: bool) -> set[str]:
    """Run it, and print what happened; the kinds of faults that there were."""
    with Chaos(folder, seed, minutes, once=once) as chaos:
        chaos.run()
    found = observer.violations(chaos.record, chaos.limits)
    print(observer.report(chaos.record, found))
    assert found == []
    landed = [one for one in chaos.record.attempts if one.outcomes and one.outcomes[-1].line["result"] == "landed"]
    assert len(landed) >= minutes
    return {event.detail for event in chaos.record.of("fault")}


@pytest.mark.soak
@pytest.mark.security(
    "27 kinds of faults, each once: no rule broken, every outcome true, by an observer", cases=len(FAULTS)
)
def test_each_fault_once(tmp_path: Path) -> None:
    """In a minute, one soon after the other."""
    assert len(check(tmp_path, 1.0, 5, once=True)) == len(FAULTS)


@pytest.mark.soak
@pytest.mark.security("an hour of faults, several at a time: no rule broken, every outcome true, by an observer")
def test_an_hour(tmp_path: Path) -> None:
    """Several faults at a time; minutes and seed by the environment."""
    check(tmp_path, float(os.environ.get(MINUTES, "60")), int(os.environ.get(SEED, "1")), once=False)
