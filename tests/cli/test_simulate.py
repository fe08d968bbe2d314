"""``lbd simulate`` as a person and as a program sees it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


pytestmark = pytest.mark.usefixtures("nobody_elses_settings")


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
    assert re.search(r"highest - lowest, points +24\.6 +9\.6 +11\.6", done.output)
    assert "in 1 round, at least" in done.output
    assert "balanced: after 8 min" in done.output
    assert "noisy sample of a minute: No move: cluster: balanced" in done.output


def test_as_json():
    """The moves and the scorecard, with names that say their units."""
    done = lbd("steady", "--format", "json", "--seed", "2", "--hours", "0.5")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["scenario"], found["seed"]) == ("steady", 2)
    assert found["scorecard"]["moves"] == len(found["moves"])
    assert found["scorecard"]["hours"] == 0.5
    assert found["scorecard"]["first"]["gap_points"] == pytest.approx(24.6, abs=0.1)
    parts = {"seconds", "bundle", "source", "destination", "throughput", "allowed"}
    assert set(found["moves"][0]) == parts
    assert found["splits"] == []


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path):
    """In two processes that order sets differently: what is printed, the page and the recording."""
    command = [sys.executable, "-m", "lbd", "simulate", "pip-364", "--hours", "0.3", "--set", "spread.by=topic"]
    command += ["--report", "page", "--record", "rounds.jsonl"]
    outputs = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
        files = [path.read_bytes() for path in (folder / "page" / "index.html", folder / "rounds.jsonl")]
        outputs.append((done.stdout, done.stderr, *files))

    assert outputs[0] == outputs[1]


def test_splits_are_told(tmp_path: Path):
    """When, what, where, into how many parts and by whom; also in JSON and on the page."""
    asked = ("too-big", "--hours", "0.2", "--set", "split.enabled=true")
    done = lbd(*asked, "--report", str(tmp_path / "page"))
    assert re.search(r"0:00  simulated/big/0x00000000_0xffffffff  broker-1:8080 +2  lbd", done.output)
    assert "bundles split: 1" in done.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<h2>Splits</h2>" in page
    assert "a bundle is split" in page
    found = json.loads(lbd(*asked, "--format", "json").stdout)
    assert [(one["parts"], one["by"]) for one in found["splits"]] == [(2, "lbd")]
    assert found["scorecard"]["splits"] == 1


def test_two_that_would_split(tmp_path: Path):
    """Where the scenario's brokers do, lbd does not, and says so; one split is enough for the turn."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "about: One.\nhours: 0.2\nauto_bundle_split: true\nbrokers: [{id: a}, {id: b}]\n"
        "load: [{name: x, brokers: [a], mib_per_second: 60, bundles: 1, topics: 40}]\n"
    )
    done = lbd(str(path), "--set", "split.enabled=true")
    assert "Note: split.enabled: lbd splits nothing, for the scenario's brokers do" in done.stderr
    assert re.search(r"2  brokers$", done.stdout, re.MULTILINE)


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
        (["steady", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["steady", "--strategy", "x"], "Invalid value for '--strategy': 'x' is not"),
        (["steady", "--seed", "-1"], "Invalid value for '--seed'"),
        (["steady", "--hours", "0"], "Invalid value for '--hours'"),
        (["steady", "--hours", "nan"], "Invalid value for '--hours': nan is not in the range 0<x<=8784"),
        (["steady", "--set", "avg_shedder=null"], "Error: --set: avg_shedder: None: wanted keys and values"),
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


def test_several_seeds():
    """The middle and the ends of each figure; the first run is the one of --seed."""
    done = lbd("steady", "--seed", "2", "--seeds", "3")
    assert done.exit_code == 0
    assert "steady, seeds 2 to 4: Five equal brokers" in done.output
    assert re.search(r"of 3 runs +median +lowest +highest", done.output)
    assert re.search(r"moves +2 +1 +2", done.output)
    assert "in 0 of them" in done.output


def test_several_seeds_as_json():
    """Every scorecard, and the spread of every figure."""
    done = lbd("steady", "--seeds", "2", "--hours", "0.5", "--format", "json")
    found = json.loads(done.stdout)
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    moves = sorted(run["scorecard"]["moves"] for run in found["runs"])
    told = found["spread"]["moves"]
    assert (told["lowest"], told["highest"], told["runs"]) == (moves[0], moves[1], 2)
    assert told["median"] == sum(moves) / 2
    assert found["spread"]["last.gap_points"]["lowest"] > 0


def test_a_strategy_is_named():
    """The one that is set by default, by its name."""
    assert lbd("steady", "--strategy", "avg-shedder").output.splitlines()[4] == lbd("steady").output.splitlines()[4]


def test_a_page_of_charts(tmp_path: Path):
    """One file that asks no network for anything, with the figures, the scenario and the settings in words."""
    done = lbd("pip-364", "--hours", "0.5", "--report", str(tmp_path / "page"))
    assert done.exit_code == 0
    assert f"report: {tmp_path}/page/index.html" in done.stderr
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count('<figure class="chart">') == 3
    assert "default-src 'none'" in page
    assert len(page) < 100_000
    assert page.index("In the end, by reports") < page.index("The six brokers of PIP-364")
    assert "fewest moves that any plan needs" in page
    assert "hit_count_high: 2" in page
    assert "id: broker-80a" in page


def test_a_page_of_several_runs(tmp_path: Path):
    """The charts are of the first, the scorecard has the spread beside it; an empty directory will do."""
    empty = tmp_path / "empty"
    empty.mkdir()
    done = lbd("steady", "--hours", "0.25", "--seeds", "3", "--report", str(empty))
    assert done.exit_code == 0
    page = (empty / "index.html").read_text(encoding="utf-8")
    assert "lbd simulate steady, seed 1" in page
    assert "median of 3" in page


@pytest.mark.parametrize("profile", ["stock", "live"])
def test_a_recording_is_replayed(tmp_path: Path, profile: str):
    """As long as it was said to be, with every turn in it, and bundles of the hot broker chosen in the same round."""
    path = tmp_path / "steady.jsonl"
    done = lbd("steady", "--hours", "0.5", "--record", str(path))
    told = re.search(r"recording 31 rounds in \S+: about ([\d.]+) MB", done.stderr)
    assert told is not None
    assert path.stat().st_size / 1e6 == pytest.approx(float(told[1]), abs=0.1)
    replayed = CliRunner().invoke(main, ["replay", str(path), "--format", "json", "--profile", profile])
    rounds = [json.loads(line) for line in replayed.stdout.splitlines()]
    assert [one["round"] for one in rounds] == list(range(1, 32))
    chosen = {(move["source"], move["destination"]) for one in rounds for move in one["unloads"]}
    assert chosen == {("broker-83:8080", "broker-161:8080")}


def test_a_recording_does_not_control_the_terminal(tmp_path: Path):
    """It may come from anybody."""
    path = tmp_path / "steady.jsonl"
    assert lbd("steady", "--hours", "0.5", "--record", str(path)).exit_code == 0
    header, rounds = path.read_text(encoding="utf-8").split("\n", 1)
    path.write_text(json.dumps(json.loads(header) | {"id": "\x1b[2Jmine"}) + "\n" + rounds, encoding="utf-8")
    done = CliRunner().invoke(main, ["replay", str(path), "--profile", "stock"])
    assert " [2Jmine round " in done.stdout
    assert "\x1b" not in done.stdout


def test_a_recording_is_packed(tmp_path: Path):
    """Where its name says so; the header names where it comes from."""
    path = tmp_path / "quiet.jsonl.gz"
    done = lbd("spike", "--hours", "0.1", "--record", str(path))
    assert done.exit_code == 0
    told = re.search(r"recording 7 rounds in \S+: about (\d+) kB or less", done.stderr)
    assert told is not None
    assert path.stat().st_size <= int(told[1]) * 1000
    with gzip.open(path) as file:
        header = json.loads(file.readline())
    assert (header["id"], header["source"], header["interval_s"]) == ("quiet", "lbd simulate spike --seed 1", 60)


def test_files_that_cannot_be_written(tmp_path: Path):
    """Said before anything is simulated, in one line: exit 2, and what was there is as it was."""
    kept = tmp_path / "kept"
    kept.write_text("mine")
    for words, why in (
        (["--report", str(tmp_path)], "exists already and is not empty"),
        (["--report", str(kept)], "cannot be written: File exists"),
        (["--report", str(tmp_path / "a" / "b")], "cannot be written: No such file or directory"),
        (["--record", str(kept)], "exists already; name a new file"),
        (["--record", str(tmp_path / "a" / "b")], "cannot be written: No such file or directory"),
        (["--record", str(tmp_path / "new"), "--seeds", "2"], "--record keeps one run, --seeds 2 makes 2"),
        (["--record", "-"], "'-': a recording is no stream; name a new file"),
        (["--record", ""], "a recording is no stream; name a new file"),
    ):
        done = lbd("steady", *words)
        assert done.exit_code == 2
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "lbd.yaml"]
    assert kept.read_text() == "mine"
