"""A proposal of lbd calibrate before a person: what it promised, what it would change, and what came of it."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import yaml

from lbd.cli.calibrate import NOT_MEASURED
from lbd.model import Averages
from lbd.store.calibration import CalibratedLoad, CalibratedMix, ShownProposal
from lbd.store.state import StateDir
from tests import calibrate_schema
from tests.builders import bundle
from tests.cli.conftest import lbd
from tests.learn.histories import NEIGHBOUR, settled, simulated
from tests.store.test_calibration import SECOND, put, summary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nobody_elses_settings")
PROPOSED = """# evidence
avg_shedder:
  low_threshold: 18.0
load:
  measure: throughput
  brokers:
  - {broker: 'a:8080', slope: 0.31}
"""


@pytest.fixture
def proposal(tmp_path: Path) -> Path:
    """The file of a calibration."""
    path = tmp_path / "proposal.yaml"
    path.write_text(PROPOSED)
    return path


def config(tmp_path: Path, **values: Any) -> Path:
    """Settings in force."""
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"state_dir": str(tmp_path / "state"), **values}))
    return path


class TestDiff:
    def test_each_setting_that_would_change(self, proposal: Path, tmp_path: Path):
        """Its key, its value now, and the proposed one; those of brokers by their names."""
        known = {"measure": "throughput", "brokers": [{"broker": "b:8080", "slope": 0.2}]}
        found = lbd("config", "diff", proposal, "--config", config(tmp_path, load=known))

        assert (found.exit_code, found.stderr) == (0, "")
        assert [line.split() for line in found.stdout.splitlines()] == [
            ["setting", "now", "proposed"],
            ["avg_shedder.low_threshold", "15.0", "18.0"],
            ["load.brokers[b:8080].slope", "0.2", "-"],
            ["load.brokers[a:8080].slope", "-", "0.31"],
        ]

    def test_as_json(self, proposal: Path, tmp_path: Path):
        """With null for what is not there."""
        found = lbd("config", "diff", proposal, "--config", config(tmp_path), "--format", "json")

        assert json.loads(found.stdout)["changes"] == [
            {"key": "avg_shedder.low_threshold", "now": 15.0, "proposed": 18.0},
            {"key": "load.measure", "now": None, "proposed": "throughput"},
            {"key": "load.brokers[a:8080].slope", "now": None, "proposed": 0.31},
        ]

    def test_nothing_to_change(self, proposal: Path, tmp_path: Path):
        """Once its values are in force; also for a file without settings."""
        own = config(tmp_path, **yaml.safe_load(PROPOSED))
        found = lbd("config", "diff", proposal, "--config", own)
        assert (found.exit_code, found.stdout) == (0, "")
        assert found.stderr == f"{proposal}: all of its values are in force\n"
        proposal.write_text("# Nothing is recommended.\n")
        assert lbd("config", "diff", proposal, "--config", own).stdout == ""

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("avg_sheder: {low_threshold: 18}", "avg_sheder"),
            ("avg_shedder: {low_threshold: much}", "avg_shedder.low_threshold"),
            ("[]", "the file is a list, wanted keys and values"),
            (None, "cannot be read: No such file or directory"),
        ],
        ids=["no setting", "no number", "a list", "no file"],
    )
    def test_a_file_that_is_no_settings(self, proposal: Path, tmp_path: Path, content: str | None, message: str):
        """One line with exit 2 that names the file."""
        proposal.unlink()
        if content is not None:
            proposal.write_text(content)
        found = lbd("config", "diff", proposal, "--config", config(tmp_path))

        assert (found.exit_code, found.stdout) == (2, "")
        assert len(found.stderr.splitlines()) == 1
        assert str(proposal) in found.stderr
        assert message in found.stderr


class TestShow:
    def test_what_is_proposed(self, tmp_path: Path):
        """The same sentence as in lbd status, the figures behind it, the changes, and where plot and proposal are."""
        run = put(tmp_path / "state", SECOND, summary())
        found = lbd("calibrate", "--show", "--config", config(tmp_path))

        assert (found.exit_code, found.stderr) == (0, "")
        assert [re.split(r" {2,}", line.strip()) for line in found.stdout.splitlines()] == [
            [f"A{summary().gain()[1:]}."],
            ["client-minutes a day", "moves a day", "mean gap", "p95 gap"],
            ["settings of then, replayed", "5.1", "8.6", "13.0", "20.0"],
            ["proposed, replayed", "3.0", "5.9", "13.0", "20.0"],
            ["setting", "then", "proposed"],
            ["avg_shedder.low_threshold", "15.0", "18.0"],
            ["report:", f"{run}/report.html"],
            ["to take it:", f"lbd config diff {run}/proposal.yaml"],
        ]

    @pytest.mark.parametrize("low", [15.0, 18.0], ids=["not in force", "in force, without a round"])
    def test_as_json(self, tmp_path: Path, low: float):
        """As the published schema says."""
        run = put(tmp_path / "state", SECOND, summary())
        own = config(tmp_path, avg_shedder={"low_threshold": low})
        found = lbd("calibrate", "--show", "--format", "json", "--config", own)

        values = json.loads(found.stdout)
        calibrate_schema.validator(ShownProposal).validate(values)
        assert values == {
            "folder": str(run), "summary": msgspec.to_builtins(summary()), "in_force": low == 18.0, "measured": None,
            "expired": None,
        }  # fmt: skip

    def test_what_came_of_it(self, tmp_path: Path):
        """Once it is in force: moves and gaps since then, from history, beside what was promised."""
        put(tmp_path / "state", SECOND, msgspec.structs.replace(summary(low=8.0), at=0.0))
        skewed = {"load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b"]}]}
        made = simulated(tmp_path / "state" / "history", settled(low_threshold=8.0, hit_count_low=3), hours=1, **skewed)
        own = config(tmp_path, avg_shedder={"low_threshold": 8.0})
        found = lbd("calibrate", "--show", "--config", own)

        (measured,) = (line for line in found.stdout.splitlines() if line.startswith("measured since "))
        name, cost, moves_a_day, *gaps = re.split(r" {2,}", measured)
        assert cost == "-"
        assert name.endswith(" (1 h seen)")
        assert float(moves_a_day) == pytest.approx(24 * len(made.trace().moves), rel=0.05)
        assert [5 < float(one) < 60 for one in gaps] == [True, True]
        assert found.stdout.splitlines()[-1] == "in force:    all of its values"
        as_json = lbd("calibrate", "--show", "--format", "json", "--config", own)
        values = json.loads(as_json.stdout)
        calibrate_schema.validator(ShownProposal).validate(values)
        assert values["measured"]["seconds"] == pytest.approx(3600, rel=0.05)
        assert f"{values['measured']['figures']['moves_per_day']:.1f}" == moves_a_day

    def test_it_has_expired(self, tmp_path: Path):
        """The cluster of its history was another one than that of the last minutes."""
        load = CalibratedLoad(12, 14, 1.0)
        put(tmp_path / "state", SECOND, msgspec.structs.replace(summary(), load=load))
        assert "has expired" not in lbd("calibrate", "--show", "--config", config(tmp_path)).stdout
        simulated(tmp_path / "state" / "history", settled(), hours=0.2, **NEIGHBOUR)
        found = lbd("calibrate", "--show", "--config", config(tmp_path))

        assert (found.exit_code, found.stderr) == (0, "")
        why = "the cluster has 4 brokers, and had 12 to 14; calibrate again."
        assert found.stdout.splitlines()[1].endswith(f" has expired: {why}")
        assert "to take it" not in found.stdout

    def test_it_has_expired_by_the_mix_that_a_running_lbd_knows(self, tmp_path: Path):
        """Its long-term means of bundles are in the state directory, and history has no day of them."""
        load = CalibratedLoad(4, 4, 1e12, mix=CalibratedMix(30.0, 32.0))
        put(tmp_path / "state", SECOND, msgspec.structs.replace(summary(), load=load))
        simulated(tmp_path / "state" / "history", settled(), hours=0.2, **NEIGHBOUR)
        rates = np.ones((20, 4))
        means = Averages([bundle(row) for row in range(20)], rates, rates, np.full(20, 1000, dtype=np.int32))
        with StateDir(tmp_path / "state").locked():
            StateDir(tmp_path / "state").save_averages(means, time.time())
        found = lbd("calibrate", "--show", "--config", config(tmp_path))

        assert (found.exit_code, found.stderr) == (0, "")
        why = "half of the traffic is in 10.0 bundles, and was in 30.0 to 32.0; calibrate again."
        assert found.stdout.splitlines()[1].endswith(f" has expired: {why}")

    def test_before_its_first_round_nothing_is_measured(self, tmp_path: Path):
        """The settings are in force, and history has none of them."""
        put(tmp_path / "state", SECOND, summary())
        found = lbd("calibrate", "--show", "--config", config(tmp_path, avg_shedder={"low_threshold": 18.0}))

        assert found.exit_code == 0
        assert "measured" not in found.stdout
        assert found.stdout.splitlines()[-1] == f"in force:    all of its values{NOT_MEASURED}"

    def test_nothing_was_recommended(self, tmp_path: Path):
        """The reason, and the report all the same."""
        run = put(tmp_path / "state", SECOND, summary(proposed=None))
        found = lbd("calibrate", "--show", "--config", config(tmp_path))

        first, *rest = found.stdout.splitlines()
        assert first == "Nothing is recommended since Monday, 2026-11-23: of a test."
        assert rest == [f"report:      {run}/report.html"]
        as_json = lbd("calibrate", "--show", "--format", "json", "--config", config(tmp_path))
        assert not json.loads(as_json.stdout)["in_force"]

    def test_no_calibration_has_ended(self, tmp_path: Path):
        """One line that names the folder."""
        found = lbd("calibrate", "--show", "--config", config(tmp_path))

        assert found.exit_code == 2
        assert found.stderr.startswith(f"Error: {tmp_path}/state/calibration: no calibration has ended there; ")
        assert len(found.stderr.splitlines()) == 1
