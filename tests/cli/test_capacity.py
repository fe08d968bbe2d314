"""``lbd capacity``: the number, why, what one less and one more would do, and the drain of the easiest one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml
from structlog.testing import capture_logs

from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from tests.cli.conftest import lbd, written
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.simulate.fake_pulsar import FakePulsar


@pytest.fixture
def config(cluster: FakePulsar, tmp_path: Path) -> Path:
    """Settings of that cluster, under which nothing moves."""
    quiet = {"low_threshold": 95, "high_threshold": 99}
    chosen = fakes.settings(cluster, tmp_path / "state", api={"enabled": False}, avg_shedder=quiet)
    return written(chosen, tmp_path)


@contextmanager
def running(config: Path, cluster: FakePulsar, hours: float) -> Iterator[None]:
    """A daemon that has seen so much of the cluster's time, a turn every ten minutes."""
    settings = Settings.model_validate(yaml.safe_load(config.read_text()))
    with capture_logs(), engine(settings, timebase=Timebase(cluster.now, lambda: cluster.speed)) as found:
        api = Serving(found, lambda: 0.0, lambda: 60.0)
        api.start()
        for turn in range(round(hours * 6) + 1):
            cluster.forward(600 if turn else 0)
            record = found.turn()
            api.publish(record, build_status(found, record, turn + 1, None))
        try:
            yield
        finally:
            found.halt()
            found.wait(60)
            api.stop()


def test_a_day_that_needed_fewer(cluster: FakePulsar, config: Path):
    """The table, the sentences, and the plan of the drain that would give one up."""
    with running(config, cluster, hours=25):
        text = lbd("capacity", "--config", config)
        told = json.loads(lbd("capacity", "--config", config, "--format", "json").stdout)

    assert text.exit_code == 0, text.output
    assert (told["active"], told["wanted"], told["known_hours"]) == (3, 2, 24)
    assert told["easiest"] in cluster.brokers
    assert "3 brokers are active, 2 are wanted: " in text.stdout
    assert f"The highest score at that peak: {told['one_less']:.1f} with 2, {told['score']:.1f} with 3" in text.stdout
    assert f"The easiest to give up is {told['easiest']}" in text.stdout
    assert f"The cluster can do without {told['easiest']}" in text.stdout


def test_the_first_hours(cluster: FakePulsar, config: Path):
    """Not fewer than are there, and it is said why; nothing is said of giving up."""
    with running(config, cluster, hours=2):
        found = lbd("capacity", "--config", config)

    assert found.exit_code == 0, found.output
    assert "3 brokers are active, 3 are wanted" in found.stdout
    assert " h: until it covers a day, the number never falls." in found.stdout
    assert "easiest" not in found.stdout


def test_without_a_daemon(config: Path):
    """Nobody knows the load of a day."""
    found = lbd("capacity", "--config", config)

    assert (found.exit_code, "no lbd runs there" in found.stderr) == (3, True)
