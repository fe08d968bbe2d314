"""``lbd calibrate`` over histories whose truth is known, and over such as nobody wants."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from lbd.config import Settings
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.errors import ObserveError
from lbd.files import decoded
from lbd.learn.choose import SettingsCandidate, moves_per_day
from lbd.load.estimate import CPU, Source
from lbd.store.calibration import CalibrationSummary, ReplayedFigures
from tests import fake_pulsar
from tests.daemon.test_service import running, settings_for
from tests.disks import flip
from tests.learn.histories import CALM, settled, simulated
from tests.load.histories import TRUE_SLOPE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lbd.learn.calibrate import Calibration

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession, history: Path) -> Calibration:
    """What calibration makes of it."""
    return calibrated(spark, history)


def calibrated(spark: SparkSession, root: Path, candidates: int = 4) -> Calibration:
    from lbd.learn.calibrate import CalibrationRequest as Asked
    from lbd.learn.calibrate import calibrate

    return calibrate(spark, Asked(str(root), Settings(), candidates, 1, lambda _: None))


@pytest.mark.parametrize(
    ("seen", "hours"),
    [(5 * 24 - 5 / 120, 24), (5 * 24 - 0.5, 24), (5 * 24 - 1, 23), (7 * 24, 24), (9, 1), (10, 2), (0.2, 1)],
    ids=["five days of rounds", "and a restart", "not quite", "a week", "nine hours", "ten hours", "minutes"],
)
def test_a_window_is_a_fifth_of_the_hours_seen(seen: float, hours: float):
    """Whole ones, a day at most. A round counts from the one before on its day: five days lack five intervals."""
    pytest.importorskip("pyspark")
    from lbd.learn.calibrate import window_length

    assert window_length(seen * 3600) == hours * 3600


class TestKnownTruth:
    """Of a cluster that was simulated one knows what is to be found."""

    def test_slopes_are_recovered(self, found: Calibration):
        """Within a tenth, on the larger broker and beside the neighbour, too."""
        capacity = np.array([1, 1, 2, 1])

        assert [Source.FITTED] * 4 == [own[CPU] for own in found.model.sources]
        assert found.model.slope[:, CPU] * capacity == pytest.approx(np.full(4, TRUE_SLOPE), rel=0.1)

    def test_neighbours_and_other_machines_are_named(self, found: Calibration):
        """And nobody else."""
        assert len(found.remarks) == 2
        assert found.remarks[0].startswith("c:8080: the same traffic takes 0.5 times the CPU")
        assert found.remarks[1].startswith("noisy:8080: 2")
        assert found.remarks[1].endswith("points of CPU above the others that no traffic explains")

    def test_what_would_have_levelled_is_seen(self, found: Calibration):
        """Those in force moved nothing; the defaults bring brokers closer by more than five points on average."""
        by_name = {one.name: one for one in found.choice.judged}
        present, default = by_name["present"], by_name["default"]

        assert (present.trained.moves, present.held_out.moves) == (0, 0)
        assert default.trained.mean_gap < present.trained.mean_gap - 5
        assert (present.whole, len(present.windows)) == (True, 4)
        assert set(default.windows) <= set(present.windows)
        assert found.days == pytest.approx(6 / 24, rel=0.01)

    def test_the_proposal_is_what_lbd_accepts(self, found: Calibration, tmp_path: Path):
        """As settings, with the evidence beside them; as lines of broker.conf; and as a page without a network."""
        from lbd.learn import report as written

        at, recorded = found.shown.at, found.shown.recorded
        shown = replace(found.shown, chosen=recorded, moves=(found.shown.moves[0], (float(at[5]),)))
        judged = tuple(
            replace(one, whole=True, held_out=one.trained) if one.name == "default" else one
            for one in found.choice.judged
        )
        choice = replace(found.choice, judged=judged, recommended="default", why="of a test")
        found = replace(found, choice=choice, shown=shown)
        said = written.write(found, tmp_path, 1000.0)
        proposal = (tmp_path / "proposal.yaml").read_text()
        broker_conf = [line for line in (tmp_path / "broker.conf").read_text().splitlines() if line[0] != "#"]
        page = (tmp_path / "report.html").read_text()

        assert said[-1].startswith(f"Recommended: {found.choice.recommended}")
        assert all(f"# {line}\n" in proposal for line in said)
        proposed = Settings.model_validate(yaml.safe_load(proposal))
        checked = proposed.avg_shedder
        fitted = [at for at, own in enumerate(found.model.sources) if own[CPU] is Source.FITTED]
        assert fitted
        assert [one.broker for one in proposed.load.brokers] == [found.model.brokers[at] for at in fitted]
        slopes = [proposed.load.slope(found.model.brokers[at]) for at in fitted]
        assert slopes == pytest.approx(found.model.slope[fitted, CPU].tolist(), rel=1e-3)
        assert found.recommended is not None
        assert checked.low_threshold == found.recommended.settings.low_threshold
        assert f"loadBalancerAvgShedderLowThreshold={checked.low_threshold:g}" in broker_conf
        assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
        assert len(page) < 1_000_000
        charts = [written.gap(found), written.front(found), written.day(found)]
        assert re.findall("<figcaption>(.*?)<", page) == [one.title for one in charts]
        gap, front, _ = charts
        assert [one.name for one in gap.lines] == ["as recorded", "present settings", "proposed: default"]
        assert (gap.time, gap.lines[0].x[0]) == (True, at[0])
        assert gap.marks[-1].name == "moves, proposed: default"
        assert [(one.x, one.colour) for one in gap.marks[-1].marks] == [(at[5], gap.lines[2].colour)]
        assert [(one.name, one.y) for one in gap.thresholds] == [
            ("low threshold, present", found.tried["present"].settings.low_threshold),
            ("low threshold, proposed", checked.low_threshold),
        ]
        named = {one.name: [mark.text.partition(":")[0] for mark in one.marks] for one in front.marks}
        assert (named["present"], named["proposed"]) == (["present"], ["default"])
        assert "<td>avg_shedder.low_threshold</td>" in page
        rows = {row["name"]: row for row in pq.read_table(tmp_path / "candidates.parquet").to_pylist()}
        assert rows.keys() == found.tried.keys()
        assert (len(rows["present"]["windows"]), rows["present"]["all_windows"]) == (4, True)
        checks = pq.read_table(tmp_path / "quality.parquet").to_pylist()
        assert {one["name"]: one["count"] for one in checks if one["count"]} == {}
        assert [f"<td>{one['name']}</td>" in page for one in checks] == [True] * 9
        summary = decoded(tmp_path / "summary.json", CalibrationSummary)
        by_name = {one.name: one.held_out for one in found.choice.judged}
        assert summary is not None
        assert (summary.at, summary.recommended, summary.reason) == (1000.0, "default", "of a test")
        assert summary.in_force(proposed)
        assert not summary.in_force(settled(**CALM))
        assert (summary.present, summary.proposed) == tuple(
            ReplayedFigures(moves_per_day(one), one.mean_gap, one.p95_gap)
            for one in (by_name["present"], by_name["default"])
        )

    def test_figures_over_few_windows_are_not_shown_beside_others(self, found: Calibration):
        """Settings that left the search are neither in the chart nor in the table, and a sentence says how many."""
        from lbd.learn import report as written

        dropped = [one.name for one in found.choice.judged if not one.whole]
        page, marks = written.page(found), [mark.text for group in written.front(found).marks for mark in group.marks]

        assert dropped
        assert f"{len(dropped)} other setting" in page
        assert not [text for text in marks if text.partition(":")[0] in dropped]

    def test_finalists_go_through_incidents(
        self, spark: SparkSession, history: Path, found: Calibration, tmp_path: Path
    ):
        """Each at all times; the page and a table of their own have them."""
        from lbd.learn import calibrate as pipeline
        from lbd.learn import features as curated
        from lbd.learn import report as written
        from lbd.learn.incidents import TIMES
        from lbd.learn.tables import table

        decisions, brokers, bundles = (
            table(spark, str(history), name).rows for name in ("decisions", "broker_rounds", "bundle_rounds")
        )
        packed = pipeline.read_windows(curated.brokers(decisions, brokers, 3600), curated.bundles(bundles, 3600))
        windows = [row["window"] for row in packed.select("window").orderBy("window").collect()]
        before = {now: then for then, now in pairwise(windows)}
        tried = [found.tried["present"], found.tried["default"]]
        made = pipeline.in_incidents(spark, packed, before, tried, Settings(), found.model, 15.0)

        assert {name: {len(several) for several in own.values()} for name, own in made.items()} == {
            "present": {TIMES},
            "default": {TIMES},
        }
        written.write(replace(found, choice=replace(found.choice, incidents=made)), tmp_path, 1000.0)
        assert len(pq.read_table(tmp_path / "incidents.parquet")) == 2 * 5 * TIMES
        assert "In an emergency" in (tmp_path / "report.html").read_text()

    def test_the_daemon_runs_on_it(self, found: Calibration, tmp_path: Path):
        """As a process, beside where the cluster is: it decides with the proposed numbers, until it is stopped."""
        from lbd.learn import report as written

        tried = {**found.tried, "another": SettingsCandidate("another", AvgShedderSettings(low_threshold=17.0), 2)}
        choice = replace(found.choice, recommended="another", why="of a test")
        written.write(replace(found, tried=tried, choice=choice), tmp_path, 1000.0)
        proposed = yaml.safe_load((tmp_path / "proposal.yaml").read_text())
        assert proposed["guardrails"] == {"max_unloads_per_turn": 2}
        assert "# guardrails.max_unloads_per_turn is lbd's own" in (tmp_path / "broker.conf").read_text()
        with (
            fake_pulsar.hot_broker() as pulsar,
            running(tmp_path, {**settings_for(pulsar, tmp_path), **proposed}) as daemon,
        ):
            daemon.notified.wait_for("STATUS=")
            assert daemon.end() == 0

        (first, *_) = pq.read_table(tmp_path / "state" / "history" / "v1" / "decisions").to_pylist()
        assert AvgShedderSettings.model_validate_json(first["settings"]).low_threshold == 17


class TestPoorHistories:
    """Each ends in a sentence, and none in settings that nothing speaks for."""

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"hours": 1.5}, "the history is too short"),
            (
                {"hours": 5, "load": [{"name": "n", "mib_per_second": 0, "bundles": 8}]},
                "no sample shows how cpu follows",
            ),
            pytest.param(
                {"hours": 5, "load": [{"name": "n", "mib_per_second": 90, "bundles": 8}]},
                "no sample shows how cpu follows",
                marks=pytest.mark.soak,
            ),
        ],
        ids=["short", "no traffic", "traffic that never changes"],
    )
    def test_nothing_is_recommended(self, spark: SparkSession, tmp_path: Path, changes: dict[str, Any], why: str):
        """And it is said why."""
        simulated(tmp_path, settled(**CALM), **changes)
        choice = calibrated(spark, tmp_path, 2).choice

        assert choice.recommended is None
        assert choice.why.startswith(why)

    def test_bad_data_are_not_learned_from(self, spark: SparkSession, history: Path, tmp_path: Path):
        """A disk changed a byte in a third of the files: one line, exit 3."""
        root = shutil.copytree(history, tmp_path / "history")
        _, *others = sorted((root / "v1" / "broker_rounds").glob("*/*.parquet"))
        for file in others:
            flip(file, "cpu")

        bad = rf"bad, .*: wrong-checksum {len(others)} \(.* % of the files\), at most 10 %$"
        with pytest.raises(ObserveError, match=bad):
            calibrated(spark, root)

    def test_brokers_that_came_for_a_moment(self, spark: SparkSession, tmp_path: Path):
        """One renamed in the middle of it all, and one seen for two minutes only: the others' slopes are theirs."""
        brokers = [
            {"id": "a", "leaves_at_minutes": 120}, {"id": "renamed", "joins_at_minutes": 120},
            {"id": "short", "joins_at_minutes": 60, "leaves_at_minutes": 61}, {"id": "b"},
        ]  # fmt: skip
        simulated(tmp_path, settled(**CALM), hours=5, brokers=brokers)
        model = calibrated(spark, tmp_path, 2).model

        assert model.brokers == ("a:8080", "b:8080", "renamed:8080", "short:8080")
        assert model.slope[:, CPU] == pytest.approx(np.full(4, TRUE_SLOPE), rel=0.15)


def lbd(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would."""
    command = [sys.executable, "-m", "lbd", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environ}, check=False, timeout=300
    )


def test_the_command(proposed: tuple[Path, subprocess.CompletedProcess[str]]):
    """From history to files that lbd accepts, with what is recommended, or that nothing is, in the last line."""
    out, done = proposed
    assert done.stdout.splitlines()[0].startswith("0.2 days of history in windows of ")
    assert {path.name for path in out.iterdir()} == {
        "proposal.yaml", "broker.conf", "report.html", "candidates.parquet", "quality.parquet", "summary.json",
    }  # fmt: skip
    assert "replaying 2 settings over 1 window" in done.stderr
    checked = lbd("config", "check", "--config", str(out / "proposal.yaml"), "--admin-url", "http://127.0.0.1:8080")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.soak
def test_sigterm_leaves_nothing_behind(history: Path, tmp_path: Path):
    """As of a unit that is stopped: no word of Java's, no directory, and no process."""
    out = tmp_path / "calibration"
    words = ("calibrate", "--history", str(history), "--out", str(out), "--master", "local[1]")
    with subprocess.Popen([sys.executable, "-m", "lbd", *words], stderr=subprocess.PIPE, text=True) as begun:
        assert begun.stderr is not None
        for line in begun.stderr:
            if line.startswith("replaying"):
                begun.terminate()
                break
        told = begun.stderr.read()  # until Java, which has it, too, is gone

    assert begun.returncode == -signal.SIGTERM
    assert told == ""
    assert not out.exists()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for programs, alone on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def old_java(tools: Path) -> None:
    java = tools / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)


def no_pyspark(tools: Path) -> None:
    (tools / "pyspark").mkdir()
    (tools / "pyspark" / "__init__.py").write_text("raise ImportError('no pyspark')\n")
    java = shutil.which("java")
    assert java is not None
    (tools / "java").symlink_to(java)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, "no java on the PATH; Spark needs Java 17 or newer"),
        (old_java, "is Java 8; Spark needs Java 17 or newer, for instance: apt-get install default-jre-headless"),
        (no_pyspark, "PySpark is missing: in a checkout of lbd, pip install '.[learn]'"),
    ],
    ids=["no Java", "Java too old", "no PySpark"],
)
def test_what_is_missing_is_told(tools: Path, tmp_path: Path, make: Any, told: str):
    """In one line, with exit 2, and nothing is left behind."""
    make(tools)
    out = tmp_path / "calibration"
    found = os.pathsep.join((str(tools), os.environ.get("PYTHONPATH", "")))
    done = lbd("calibrate", "--out", str(out), PATH=str(tools), PYTHONPATH=found, JAVA_HOME="")

    one_line(done, told)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "{}"], "exists already and is not empty; name a new directory"),
        (["--out", "{}/file/calibration"], "cannot be written: Not a directory"),
        (["--out", "{}/empty", "--history", "{}/none"], "none/v1/decisions: no history of version 1 there"),
        (["--out", "{}/new", "--history", "{}/none"], "none/v1/decisions: no history of version 1 there"),
        (["--out", "{}/new", "--history", "{}", "--master", "nonsense"], "--master nonsense: no Spark session"),
    ],
    ids=["out is there", "out is no place", "out was left by a kill", "no history", "no master"],
)
def test_what_is_wrong_is_told(tmp_path: Path, words: Sequence[str], told: str):
    """In one line, with exit 2; a directory is left only where something is in it."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    done = lbd("calibrate", "--master", "local[1]", *(word.format(tmp_path) for word in words))

    one_line(done, told)
    assert not (tmp_path / "new").exists()


def one_line(done: subprocess.CompletedProcess[str], told: str) -> None:
    """One error, the last line, and no trace."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert told in done.stderr.splitlines()[-1]
    assert sum(line.startswith("Error: ") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
