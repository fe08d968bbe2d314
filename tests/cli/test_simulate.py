"""``lbd simulate`` as a person and as a program sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture(autouse=True)
def _nobody_elses_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is in /etc of the machine that runs the tests."""
    path = tmp_path / "lbd.yaml"
    path.write_text("{}")
    monkeypatch.setenv("LBD_CONFIG", str(path))


def lbd(*words: str) -> Result:
    """One command."""
    return CliRunner().invoke(main, ["simulate", *words], catch_exceptions=False)


def test_as_text():
    """What it was, what Pulsar alone did, the moves, the scorecard, and the last word."""
    done = lbd("steady")
    assert done.exit_code == 0
    assert "steady, seed 1: Five equal brokers" in done.output
    assert "Pulsar alone: AvgShedder moved 3 bundles" in done.output
    assert "0:07  broker-83:8080  broker-161:8080" in done.output
    assert "highest - lowest, points     24.6   8.3" in done.output
    assert "in 1 round, at least" in done.output
    assert "balanced: after 8 min" in done.output
    assert "In the end: No move: cluster: balanced" in done.output


def test_as_json():
    """The moves and the scorecard, with names that say their units."""
    done = lbd("steady", "--format", "json", "--seed", "2", "--hours", "0.5")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["scenario"], found["seed"]) == ("steady", 2)
    assert found["scorecard"]["moves"] == len(found["moves"])
    assert found["scorecard"]["hours"] == 0.5
    assert found["scorecard"]["first"]["gap_points"] == pytest.approx(24.6, abs=0.1)
    assert set(found["moves"][0]) == {"seconds", "bundle", "source", "destination", "throughput"}


def test_a_setting_is_tried():
    """Four samples instead of eight: the same moves, four minutes earlier."""
    done = lbd("steady", "--set", "avg_shedder.hit_count_low=4")
    assert "0:03  broker-83:8080  broker-161:8080" in done.output


def test_the_users_settings_hold(tmp_path: Path):
    """Those of --config, and what is set wins over them."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"avg_shedder": {"low_threshold": 30}}))
    assert "moves: 0 in 0 rounds" in lbd("steady", "--config", str(path)).output
    assert "in 1 round," in lbd("steady", "--config", str(path), "--set", "avg_shedder.low_threshold=15").output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope"], "Error: nope: no such scenario"),
        (["steady", "--set", "x"], "Error: --set 'x': wanted KEY=VALUE"),
        (["steady", "--set", "x=1"], "Error: --set: x: no such setting"),
        (["steady", "--seed", "-1"], "Invalid value for '--seed'"),
        (["steady", "--hours", "0"], "Invalid value for '--hours'"),
        (["steady", "--hours", "nan"], "Error: --hours nan: wanted a number above 0"),
        (["steady", "--set", "avg_shedder=null"], "Error: --set: avg_shedder: None: Input should be"),
    ],
)
def test_wrong_usage(words: list[str], told: str):
    """Exit 2, and one line that names what is wrong."""
    done = lbd(*words)
    assert done.exit_code == 2
    assert told in done.output


def test_help_names_the_scenarios():
    """They need no documentation of their own."""
    assert "scale-out" in lbd("--help").output
