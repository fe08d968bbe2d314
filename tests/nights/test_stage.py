"""How lbds end on the stage, and are started again."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from tests.nights.scheduler import simulated
from tests.nights.stage import Stage

MACHINE = "lbd-1"


@pytest.mark.parametrize("by", [MACHINE, "world"])
def test_a_machine_that_was_killed_is_started_again(by: str):
    """Also one whose own task ends it, as an lbd does that waits no longer: its disk and its connections are freed."""
    happened: list[str] = []
    stage = object.__new__(Stage)
    stage.lbds = {MACHINE: SimpleNamespace()}  # type: ignore[dict-item]
    stage.topic = SimpleNamespace(expel=lambda _: happened.append("topic"))  # type: ignore[assignment]
    stage.disk = SimpleNamespace(release=lambda _: happened.append("disk"))  # type: ignore[assignment]
    stage.observer = SimpleNamespace(gone=lambda _: happened.append("observer"))  # type: ignore[assignment]
    stage.tell = lambda _: None  # type: ignore[method-assign]
    stage.start = lambda _: happened.append("started")  # type: ignore[method-assign]

    with simulated(1) as running:
        stage.running = running

        def main() -> None:
            running.spawn(partial(stage.kill, MACHINE, 10.0), "ends it", by)
            running.sleep(20.0)

        running.run(main)

    assert happened == ["topic", "disk", "observer", "started"]
