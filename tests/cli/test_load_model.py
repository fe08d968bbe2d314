"""What is known of brokers, where people read it: dry-run, status and explain, against a fake cluster over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.config import load
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.store.status import read_status, write_status

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.fake_pulsar import FakePulsar

GIVEN = {"measure": "msg_rate", "brokers": [{"broker": ".*", "slope": 4}]}
UNKNOWN = "load model: what traffic costs brokers is not known: a destination is taken to gain its source's points"


def config(pulsar: FakePulsar, folder: Path, **changes: Any) -> Path:
    path = folder / "lbd.yaml"
    values = {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": str(folder / "state"), **changes}
    path.write_text(yaml.safe_dump(values))
    return path


def lbd(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--config", str(path)], catch_exceptions=False)


def test_a_dry_run_without_a_state_directory_says_what_it_takes_instead(pulsar: FakePulsar, tmp_path: Path):
    """And with slopes that were given, that they are known."""
    without = lbd(config(pulsar, tmp_path), "dry-run")
    given = lbd(config(pulsar, tmp_path, load=GIVEN), "dry-run")
    told = json.loads(lbd(tmp_path / "lbd.yaml", "dry-run", "--format", "json").stdout)

    assert UNKNOWN in without.stdout
    assert "load model: what traffic costs is known of 3 of 3 brokers" in given.stdout
    assert [one["state"] for one in told["load"]] == ["known"] * 3
    assert not (tmp_path / "state").exists()


def test_status_and_explain_tell_what_the_last_turn_knew(pulsar: FakePulsar, tmp_path: Path):
    """Of each broker by its state; what was given says so."""
    path = config(pulsar, tmp_path, load=GIVEN)
    pulsar.sample(80, 45, 10)
    with engine(load(path, {}).settings) as balancer:
        record = balancer.turn()
        write_status(tmp_path / "state", build_status(balancer, record, 1, None))
    status = json.loads(lbd(path, "status", "--format", "json").stdout)
    explained = lbd(path, "explain", pulsar.ids[0])
    as_json = json.loads(lbd(path, "explain", pulsar.ids[0], "--format", "json").stdout)

    assert {one["load"]["state"] for one in status["brokers"]} == {"known"}
    assert {one["load"]["slope"] for one in status["brokers"]} == {4.0}
    assert "4.00 points for each 1,000 msg/s, given in load.brokers" in explained.stdout
    assert as_json["load"]["source"] == "given"
    assert read_status(tmp_path / "state").brokers[0].load is not None


def test_an_entry_that_is_wrong_is_told_with_its_place(pulsar: FakePulsar, tmp_path: Path):
    """Exit 2, one line each."""
    path = config(pulsar, tmp_path, load={"brokers": [{"broker": "a("}, {"broker": "b", "slop": 1}], "measure": "cpu"})
    done = lbd(path, "config", "check")

    assert done.exit_code == 2
    assert "load.brokers.0.broker: 'a(': no regular expression" in done.stderr
    assert "load.brokers.1.slop: no such setting" in done.stderr
    assert "load.measure: 'cpu'" in done.stderr
