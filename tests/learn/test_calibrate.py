"""Calibration over histories whose truth is known, and over such as nobody wants. Without Spark."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from lbd.config import Settings
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.errors import ObserveError, UsageError
from lbd.files import decoded
from lbd.learn import report as written
from lbd.learn.calibrate import in_incidents
from lbd.learn.choose import MEASURES, MOVES, PRESENT, Choice, Judged, SettingsCandidate, cost, moves_per_day
from lbd.learn.document import CalibrationDocument, document
from lbd.learn.drift import last_load
from lbd.learn.history import window_length
from lbd.learn.incidents import TIMES
from lbd.learn.loss import LostDay
from lbd.learn.prediction import PredictedEffect
from lbd.learn.replay import RECONNECT_SECONDS
from lbd.learn.report import changed_settings
from lbd.load.estimate import CPU, Source
from lbd.store.calibration import CalibrationSummary, ReplayedFigures
from tests import calibrate_schema, fake_pulsar
from tests.daemon.test_service import running, settings_for
from tests.disks import flip, small_disk
from tests.learn.histories import CALM, settled, simulated
from tests.learn.in_process import calibrated
from tests.learn.test_choosing import DAY, a_day
from tests.load.histories import TRUE_SLOPE

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.learn.calibrate import Calibration


CALM_HERE = "avg_shedder.low_threshold 99.0 (lbd.yaml: 15.0), avg_shedder.high_threshold 100.0 (lbd.yaml: 40.0)"

FEWER = {measure: PredictedEffect(-2.0, -3.0, -1.0, 5.0, 0.5) for measure in MEASURES}
"""What is claimed of settings that are proposed for a test."""


@pytest.fixture(scope="module")
def found(history: Path) -> Calibration:
    """What calibration makes of it."""
    return calibrated(history)


@pytest.mark.parametrize(
    ("seen", "hours"),
    [(5 * 24 - 5 / 120, 24), (5 * 24 - 0.5, 24), (5 * 24 - 1, 23), (7 * 24, 24), (9, 1), (10, 2), (0.2, 1)],
    ids=["five days of rounds", "and a restart", "not quite", "a week", "nine hours", "ten hours", "minutes"],
)
def test_a_window_is_a_fifth_of_the_hours_seen(seen: float, hours: float):
    """Whole ones, a day at most. A round counts from the one before on its day: five days lack five intervals."""
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
        assert len(found.history.numbers) == 1 + 5
        assert found.history.days == pytest.approx(6 / 24, rel=0.01)

    def test_the_cost_to_clients_is_by_the_settings_and_by_measured_moves(self, history: Path, found: Calibration):
        """Also in words, beside the answer; without a measured move by what is usual."""
        rate = Settings.model_validate({"calibrate": {"overload_minutes": 5}})
        measured = calibrated(history, settings=rate, reconnect_seconds=7.5)
        texts = [line for one in (found, measured) for line in written.evidence(one) if "connect anew" in line]

        assert (found.scale.reconnect_seconds, found.scale.overload_minutes) == (RECONNECT_SECONDS, 60)
        assert (measured.scale.reconnect_seconds, measured.scale.overload_minutes) == (7.5, 5)
        assert [re.findall(r"[0-9.]+ s\b|[0-9]+ minutes", text) for text in texts] == [
            ["2.0 s", "60 minutes"],
            ["7.5 s", "5 minutes"],
        ]

    def test_the_load_is_that_of_its_history(self, history: Path, found: Calibration):
        """By which a proposal expires: four brokers, about what they carry at last, and what that takes."""
        load, now = found.load, last_load(history, 9e9)

        assert now is not None
        assert now.mean is not None
        assert (load.fewest_brokers, load.most_brokers, now.brokers) == (4, 4, 4)
        assert load.most_bytes_per_second == pytest.approx(now.bytes_per_second, rel=0.2)
        assert load.cpu is not None
        assert load.outgrown(now) == load.cpu.unlike(now.mean) == ""
        hot = now.mean._replace(cpu_percent=1.5 * now.mean.cpu_percent)
        assert load.cpu.unlike(hot).startswith("its traffic takes ")
        assert load.mix is None  # of six hours
        assert written.summary(found, 1000.0).load == load

    def test_the_proposal_is_what_lbd_accepts(self, found: Calibration, tmp_path: Path):
        """As settings, with the evidence beside them; as lines of broker.conf; and as a page without a network."""
        at, recorded = found.shown.at, found.shown.recorded
        shown = replace(found.shown, chosen=recorded, moves=(found.shown.moves[0], (float(at[5]),)))
        judged = tuple(
            replace(one, held_out=one.trained) if one.name == "default" else one for one in found.choice.judged
        )
        choice = replace(found.choice, judged=judged, recommended="default", why="of a test", effects=FEWER)
        found = replace(found, choice=choice, shown=shown)
        result = document(found, 1000.0)
        written.write(found, result.summary, tmp_path)
        said = result.lines(explained=True)
        proposal = (tmp_path / "proposal.yaml").read_text()
        broker_conf = [line for line in (tmp_path / "broker.conf").read_text().splitlines() if line[0] != "#"]
        page = (tmp_path / "report.html").read_text()

        assert said[-1].startswith(
            f"Recommended: {found.choice.recommended}; next week it saves 2.0 client-minutes a day (1.0 to 3.0), 2.0"
        )
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
        checks = pq.read_table(tmp_path / "quality.parquet").to_pylist()
        assert {one["name"]: one["count"] for one in checks if one["count"]} == {}
        assert [f"<td>{one['name']}</td>" in page for one in checks] == [True] * 13
        summary = decoded(tmp_path / "summary.json", CalibrationSummary)
        by_name = {one.name: one.held_out for one in found.choice.judged}
        assert summary is not None
        assert (summary.at, summary.recommended, summary.reason) == (1000.0, "default", "of a test")
        assert summary.in_force(proposed)
        assert not summary.in_force(settled(**CALM))
        assert (summary.present, summary.proposed) == tuple(
            ReplayedFigures(moves_per_day(one), one.mean_gap, one.p95_gap, cost(one))
            for one in (by_name["present"], by_name["default"])
        )

    def test_a_disk_that_is_full_leaves_no_summary(self, found: Calibration, tmp_path: Path):
        """Half of one would be named by ``lbd status`` and hide the proposal before."""
        result = document(found, 1000.0).summary
        written.write(found, result, tmp_path)
        pages = [-(-path.stat().st_size // 4096) for path in tmp_path.iterdir() if path.name != "summary.json"]
        with small_disk(tmp_path, 4 * (sum(pages) + 1)) as disk:
            (disk / "other").write_bytes(bytes(4096))
            with pytest.raises(UsageError, match=f"^{disk}: cannot be written: No space left on device"):
                written.write(found, result, disk)

            assert {path.name for path in disk.iterdir()} >= {"proposal.yaml", "quality.parquet"}
            assert not (disk / "summary.json").exists()

    def test_text_and_json_are_of_one_document(self, found: Calibration):
        """JSON as the schema says, also without an interval; the text is lines of it, the answer last."""
        endless = {MOVES: PredictedEffect(-2.0, -np.inf, np.inf, 1.0, np.inf)}
        lost, torn = (LostDay(20_458, 0.25, "record of brokers"),), ("file:/history/a.parquet",)
        history = replace(found.history, lost=lost, torn=torn)
        result = document(replace(found, history=history, choice=replace(found.choice, effects=endless)), 1000.0)
        values = json.loads(msgspec.json.encode(result))

        calibrate_schema.validator(CalibrationDocument).validate(values)
        assert result.lines(explained=False) == [
            "2026-01-05 is left out: 25 % of its record of brokers is missing.",
            f"The present settings are those of the last round of history: {CALM_HERE}.",
            values["answer"],
        ]
        assert result.lines(explained=True) == values["evidence"]
        assert (values["evidence"][0], values["evidence"][-1]) == (values["caveats"][0], values["answer"])
        assert values["left_out_days"] == [{"day": "2026-01-05", "share": 0.25, "record": "record of brokers"}]
        assert values["effects"] == {MOVES: {"mean": -2.0, "low": None, "high": None, "days": 1.0}}
        assert values["history"]["first_file_left_out"] == torn[0]
        tried = {row["name"]: row for row in values["tried"]}
        assert tried.keys() == found.tried.keys()
        assert tried["present"]["settings"] == found.tried["present"].values

    def test_finalists_go_through_incidents(self, found: Calibration, tmp_path: Path):
        """Each at all times; the page and a table of their own have them."""
        tried = [found.tried["present"], found.tried["default"]]
        made = in_incidents(found.history, tried, Settings(), found.model, found.scale)

        assert {name: {len(several) for several in own.values()} for name, own in made.items()} == {
            "present": {TIMES},
            "default": {TIMES},
        }
        changed = replace(found, choice=replace(found.choice, incidents=made))
        written.write(changed, written.summary(changed, 1000.0), tmp_path)
        assert len(pq.read_table(tmp_path / "incidents.parquet")) == 2 * 5 * TIMES
        assert "In an emergency" in (tmp_path / "report.html").read_text()

    def test_the_daemon_runs_on_it(self, found: Calibration, tmp_path: Path):
        """As a process, beside where the cluster is: it decides with the proposed numbers, until it is stopped."""
        tried = {**found.tried, "another": SettingsCandidate("another", AvgShedderSettings(low_threshold=17.0), 2)}
        choice = replace(found.choice, recommended="another", why="of a test", effects=FEWER)
        changed = replace(found, tried=tried, choice=choice)
        written.write(changed, written.summary(changed, 1000.0), tmp_path)
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


def test_the_schema_is_current():
    """As ``python -m tests.calibrate_schema`` writes it."""
    assert calibrate_schema.PAGE.read_text() == calibrate_schema.page()


class TestPoorHistories:
    """Each ends in a sentence, and none in settings without evidence."""

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
    def test_nothing_is_recommended(self, tmp_path: Path, changes: dict[str, Any], why: str):
        """And it is said why."""
        simulated(tmp_path, settled(**CALM), **changes)
        choice = calibrated(tmp_path, 2).choice

        assert choice.recommended is None
        assert choice.why.startswith(why)

    def test_bad_data_are_not_learned_from(self, history: Path, tmp_path: Path):
        """A disk changed a byte in a third of the files: one line, exit 3."""
        root = shutil.copytree(history, tmp_path / "history")
        _, *others = sorted((root / "v1" / "broker_rounds").glob("*/*.parquet"))
        for file in others:
            flip(file, "cpu")

        bad = r"bad, .*: lost-day 1 \(100\.0 % of the days\), at most 50 %$"
        with pytest.raises(ObserveError, match=bad):
            calibrated(root)

    def test_brokers_that_came_for_a_moment(self, tmp_path: Path):
        """One renamed in the middle of it all, and one seen for two minutes only: the others' slopes are theirs."""
        brokers = [
            {"id": "a", "leaves_at_minutes": 120}, {"id": "renamed", "joins_at_minutes": 120},
            {"id": "short", "joins_at_minutes": 60, "leaves_at_minutes": 61}, {"id": "b"},
        ]  # fmt: skip
        simulated(tmp_path, settled(**CALM), hours=5, brokers=brokers)
        found = calibrated(tmp_path, 2)
        model, proposed = found.model, yaml.safe_load(written.settings_file(found))

        assert model.brokers == ("a:8080", "b:8080", "renamed:8080", "short:8080")
        assert model.slope[:, CPU] == pytest.approx(np.full(4, TRUE_SLOPE), rel=0.15)
        assert [entry["broker"] for entry in proposed["load"]["brokers"]] == ["b:8080", "renamed:8080"]


def test_beside_a_strategy_that_is_not_replayed_nothing_is_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The present settings of the replays would be AvgShedder's, which decide nothing there."""
    settings = settled(**CALM).model_copy(update={"strategy": "overload-shedder"})
    simulated(tmp_path, settings, hours=2)
    figures = {PRESENT: DAY, "default": a_day(moves=1)}
    better = Choice(
        tuple(Judged(name, own, own, front=True) for name, own in figures.items()), "default", "default", ""
    )
    monkeypatch.setattr("lbd.learn.calibrate._searched", lambda _: better)
    found = calibrated(tmp_path, 2, settings)

    assert found.history.strategy == "overload-shedder"
    assert found.choice.recommended is None, changed_settings(found.tried["default"], found.tried[PRESENT], settings)
    assert found.choice.why.startswith("overload-shedder is in force")
