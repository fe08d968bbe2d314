"""``lbd compare`` as a person and as a program sees it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lbd.cli import main
from tests.charts.test_chart import drawn

if TYPE_CHECKING:
    from click.testing import Result

VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "threshold-shedder.jsonl.gz"
RECORDING = str(Path(__file__).parents[2] / "examples" / "moves.jsonl.gz")
HEADER = '{"recording": 1, "id": "mine"}\n'
EAGER = "avg-shedder:hit_count_low=3,min_unload_message=50,min_unload_message_throughput=10000"


pytestmark = pytest.mark.usefixtures("nobody_elses_settings")


def lbd(*words: str) -> Result:
    """One command."""
    return CliRunner().invoke(main, ["compare", *words], catch_exceptions=False)


def row(done: Result, label: str) -> list[str]:
    """The values of one figure, run by run."""
    return next(line for line in done.stdout.splitlines() if line.startswith(f"{label}  ")).split("  ")[1:]


def values(done: Result, label: str) -> list[str]:
    return [value.strip() for value in row(done, label) if value.strip()]


def test_a_recording_as_text():
    """The answer first, then what happened, what each strategy would have done, and what that rests on."""
    done = lbd(RECORDING, "--strategy", EAGER, "--strategy", "overload-shedder", "--all")

    assert done.exit_code == 0
    assert done.stdout.startswith("moves: overload-shedder is recommended: ends 13.6 points apart, ")
    assert "moves: 55 turns in 14 min, thresholds 15 and 40 points" in done.stdout
    assert ["15", "2", "0"] == values(done, "moves")
    assert ["11.1", "8.0", "13.6"] == values(done, "highest - lowest, points, at last")
    assert f"{EAGER}, in the end: No move: cluster: balanced" in done.stdout
    assert "broker-3.example:8080: background 9.0, slope 43.8 +- 3 (fitted, 10 samples)" in done.stdout
    assert "error of the model on 7 changes that really happened: 1.3 points on average, 3.0 at p95" in done.stdout


def test_a_scenario_as_text():
    """A column for each strategy, its settings under its name; nothing was recorded, so there is no model."""
    done = lbd("steady", "--strategy", "avg-shedder", "--strategy", "avg-shedder:max_unload_percentage=0.2")

    assert done.exit_code == 0
    assert ["3", "2"] == values(done, "moves")
    heads = next(line for line in done.stdout.splitlines() if line.startswith("  ") and "avg-shedder  max" in line)
    assert heads.split() == ["avg-shedder", "max_unload_percentage=0.2"]
    assert "load model" not in done.stdout


def test_the_figures_that_decide_and_all_of_them():
    """Ten rows, and the number of the others; --all shows these, and the load model."""
    words = RECORDING, "--strategy", EAGER, "--strategy", "overload-shedder"
    few, everything = lbd(*words), lbd(*words, "--all")

    assert ["15", "2", "0"] == values(few, "moves") == values(everything, "moves")
    assert "--all shows " in few.stdout
    assert "--all shows " not in everything.stdout
    assert ("in rounds  " in few.stdout, "in rounds  " in everything.stdout) == (False, True)
    assert ("background 9.0" in few.stdout, "background 9.0" in everything.stdout) == (False, True)
    assert "error of the model on 7 changes" in few.stdout


def test_as_json():
    """One object for each scenario or recording, all on stdout, names that say their units."""
    done = lbd(RECORDING, "steady", "--strategy", "avg-shedder", "--hours", "0.5", "--seed", "3", "--format", "json")
    recorded, simulated = json.loads(done.stdout)

    assert {"over", "low_threshold", "high_threshold", "runs", "recommended", "model", "model_error"} == recorded.keys()
    assert ["as recorded", "avg-shedder"] == [run["strategy"] for run in recorded["runs"]]
    assert recorded["runs"][0]["scorecard"]["unserved_bundle_seconds"] is None
    assert len(recorded["runs"][0]["moves"]) == recorded["runs"][0]["scorecard"]["moves"] == 15
    assert recorded["model_error"]["number"] == 7
    assert recorded["model_error"]["mean_absolute"] == pytest.approx(1.3, abs=0.1)
    assert ["fitted"] * 3 == [one["source"] for one in recorded["model"]["brokers"]]
    assert (None, 0.5) == (simulated["model"], simulated["runs"][0]["scorecard"]["hours"])


def test_the_same_twice():
    """Nothing depends on chance or on the clock."""
    first, second = (lbd("steady", RECORDING, "--strategy", EAGER, "--format", "json").stdout for _ in range(2))
    assert first == second


def test_points_per_mib_stand_in_for_what_a_recording_does_not_tell(tmp_path: Path):
    """A minute of reports tells no slope: exit 2 and what would; with one given it goes on."""
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(gzip.decompress(Path(RECORDING).read_bytes()).splitlines(keepends=True)[:10]))
    refused = lbd(str(short), "--strategy", "avg-shedder")
    done = lbd(str(short), "--strategy", "avg-shedder", "--points-per-mib", "100", "--all")

    assert refused.exit_code == 2
    assert "no sample shows how cpu follows traffic on broker-1.example:8080" in refused.output
    assert "or --points-per-mib" in refused.output
    assert done.exit_code == 0
    assert "background as recorded, slope 50 (given)" in done.stdout
    assert "error of the model: not known" in done.stdout


def test_the_report_opens_without_a_network(tmp_path: Path):
    """A page with its script inside, a chart of gaps, a chart for each run, the scorecards, the best values marked."""
    done = lbd(RECORDING, "--strategy", EAGER, "--report", str(tmp_path / "new"))
    page = (tmp_path / "new" / "index.html").read_text()

    assert done.exit_code == 0
    assert "report: " in done.stderr
    assert "default-src 'none'" in page
    assert len(page) < 100_000
    assert page.count('<figure class="chart">') == 3
    assert '<td>moves</td><td class="number">15</td><td class="number best">2</td>' in page
    assert 'Marked in <b class="best">bold</b>: the best value of a row.' in page
    assert "Score of each broker: as recorded" in page
    assert "error of the model on 7 changes" in page


def test_the_chart_of_gaps_names_each_strategy_and_what_had_been_without(tmp_path: Path):
    """The grey line is of nobody's moves."""
    first, second = "avg-shedder", "avg-shedder:max_unload_percentage=0.2"
    report = str(tmp_path / "new")
    assert lbd("demo", "--strategy", first, "--strategy", second, "--hours", "0.1", "--report", report).exit_code == 0
    gaps, *_ = drawn((tmp_path / "new" / "index.html").read_text())
    assert [line["name"] for line in gaps["lines"]] == ["had nothing moved", first, second]


def test_the_report_begins_with_what_the_terminal_recommends(tmp_path: Path):
    """Word for word, before the first chart."""
    report = str(tmp_path / "new")
    done = lbd("demo", "--strategy", "avg-shedder", "--strategy", "overload-shedder", "--report", report)
    said = done.stdout.splitlines()[0]
    assert " is recommended: " in said
    page = (tmp_path / "new" / "index.html").read_text()
    body = page[page.index("<body>") :]
    assert body.index(f"<p><b>{said}</b></p>") < body.index("in the end: ") < body.index("<figure")


def test_recordings_with_odd_numbers_are_compared_too():
    """NaN, infinities, brokers that come and go, many recordings in one file: a table for each, and no warning."""
    done = lbd(str(VECTORS), "--strategy", "threshold-shedder", "--points-per-mib", "0.1")

    assert done.exit_code == 0
    assert done.stdout.count("threshold-shedder, in the end: ") == 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["steady"], "Missing option '--strategy'"),
        (["nope", "--strategy", "avg-shedder"], "Error: nope: no such scenario"),
        (["nope.jsonl", "--strategy", "avg-shedder"], "Error: nope.jsonl: cannot be read"),
        (["steady", "--strategy", "nope"], "Error: --strategy nope: 'nope' is not known; wanted avg-shedder, "),
        (["steady", "--strategy", "avg-shedder:x"], "Error: --strategy avg-shedder: 'x': wanted KEY=VALUE"),
        (["steady", "--strategy", "avg-shedder:x=1"], "Error: --strategy avg-shedder:x=1: avg_shedder.x: no such set"),
        (
            ["steady", "--strategy", "avg-shedder", "--strategy", "avg-shedder"],
            "Error: --strategy avg-shedder: given t",
        ),
        (["steady", "--strategy", "avg-shedder", "--set", "x=1"], "Error: --set: x: no such setting"),
        (["steady", "--strategy", "avg-shedder", "--hours", "nan"], "'--hours': nan is not in the range"),
        ([RECORDING, "--strategy", "avg-shedder", "--points-per-mib", "nan"], "nan is not in the range 0<=x<=100"),
        (["steady", "--strategy", "avg-shedder", "--report", "/dev/null"], "Error: --report /dev/null: cannot be"),
    ],
)
def test_wrong_usage(words: list[str], told: str):
    """Exit 2, and one line that names what is wrong."""
    done = lbd(*words)
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no rounds in it"),
        (HEADER, "no rounds in it"),
        ("junk\n", "bad.jsonl:1: not a line of a recording"),
        (HEADER + '{"t": "x", "reports": {}}\n', "bad.jsonl:2: not a round"),
        (HEADER + '{"t": 1, "reports": {}}\n', "bad.jsonl:1: round 1: no report in it"),
        (
            HEADER + '{"t": 1, "reports": {"a": {}}}\n' * 2,
            "round 2: t is 1 after 1; wanted rounds in the order of time",
        ),
        (
            HEADER.replace("mine", 'm", "strategy": "x') + '{"t": 1, "reports": {"a": {}}}\n',
            "strategy 'x' is not known",
        ),
        (
            HEADER.replace("}", ', "interval_s": -1}') + '{"t": 1, "reports": {"a": {}}}\n',
            "interval_seconds: -1: wanted 0.05 or more",
        ),
    ],
)
def test_a_broken_recording(tmp_path: Path, text: str, told: str):
    """Exit 2, and one line with the file and what is wrong in it."""
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    done = lbd(str(path), "--strategy", "avg-shedder")

    assert done.exit_code == 2
    assert told in done.output
    assert len(done.output.splitlines()) == 1


def test_points_per_mib_holds_for_scenarios_too():
    """Brokers without traffic have their background left, whatever is carried."""
    done = lbd("steady", "--strategy", "avg-shedder", "--hours", "0.1", "--points-per-mib", "0", "--format", "json")
    (found,) = json.loads(done.stdout)
    assert {run["scorecard"]["moves"] for run in found["runs"]} == {0}
    usual = json.loads(lbd("steady", "--strategy", "avg-shedder", "--hours", "0.1", "--format", "json").stdout)[0]
    assert found["runs"][0]["scorecard"]["first"] != usual["runs"][0]["scorecard"]["first"]
