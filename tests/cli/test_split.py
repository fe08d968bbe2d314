"""``lbd split``: what is printed, what is done, and what bad input is told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from lbd.cli import main
from lbd.config import environment, load
from lbd.simulate.answers import Reply
from tests import fake_splits
from tests.api.conftest import serving, working
from tests.fake_splits import HIGH, LOW, NAMESPACE, UNOWNED
from tests.serving import accepting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from tests.fake_splits import SplittingPulsar

LOWER, UPPER = "0x00000000_0x40000000", "0x40000000_0x80000000"
SPECIFIED = ("--algorithm", "specified_positions_divide")


@pytest.fixture
def pulsar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SplittingPulsar]:
    """Two bundles of six topics each, 600 msg/s in and out on all but two."""
    for name in [name for name in os.environ if name.startswith("LBD_") or name == "SUDO_USER"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LBD_SPLIT__MAX_MSG_RATE", "5000")
    with fake_splits.busy() as cluster:
        monkeypatch.setenv("LBD_PULSAR__ADMIN_URLS", json.dumps(cluster.urls))
        monkeypatch.setenv("LBD_GUARDRAILS__MEMBERSHIP_SETTLE_SECONDS", "0")
        yield cluster


def split(*arguments: object) -> Result:
    """One call in this process. What is no SystemExit would be a stack trace, and fails the test."""
    return CliRunner().invoke(main, ["split", *map(str, arguments)], catch_exceptions=False)


def as_json(*arguments: object) -> dict[str, Any]:
    """What it prints for programs."""
    found: dict[str, Any] = json.loads(split(*arguments, "--format", "json").stdout)
    return found


class TestPlan:
    def test_what_lies_on_each_side(self, pulsar: SplittingPulsar):
        """Before and after, a line each; nothing is done."""
        found = split(LOW)
        assert (found.exit_code, found.stderr) == (0, "")
        head, cut, columns, *rows, last = found.stdout.splitlines()
        assert head == f"{LOW} at {pulsar.ids[0]}"
        assert cut == "range_equally_divide cuts at 0x40000000"
        assert columns.split() == ["range", "topics", "msg/s", "MB/s", "busiest", "topic"]
        assert [row.split() for row in rows] == [
            ["before", "0x00000000_0x80000000", "6", "7,200", "0.7", "topic-4"],
            ["after", LOWER, "3", "3,600", "0.4", "topic-4"],
            [UPPER, "3", "3,600", "0.4", "topic-1"],
        ]
        assert last == "Would split 1 bundle; --apply does it. A split cannot be taken back."
        assert pulsar.owners[LOW] == pulsar.ids[0]

    def test_json(self, pulsar: SplittingPulsar):
        """The same for programs, with nothing beside it on stdout."""
        found = as_json(LOW, "--algorithm", "topic_count_equally_divide")
        assert (found["bundle"], found["owner"], found["applied"]) == (LOW, pulsar.ids[0], None)
        assert found["positions"] == [f"{found['after'][0]['bundle'][-10:]}"]
        assert [part["topics"] for part in (found["before"], *found["after"])] == [6, 3, 3]
        assert found["before"]["msg_rate"] == 7200

    def test_loaded_segments_are_counted(self, pulsar: SplittingPulsar):
        """CRC32 0x425d2e2f and 0xa6454582: one in each of the two bundles."""
        low, high = f"segment://{NAMESPACE}/o/8000-ffff-2", f"segment://{NAMESPACE}/o/0000-7fff-1"
        pulsar.segments = {low: 50_000.0, high: 50_000.0}
        for bundle, segment in ((LOW, low), (HIGH, high)):
            before = as_json(bundle)["before"]
            assert (before["topics"], before["busiest_topic"]) == (7, segment)

    def test_a_bundle_that_is_one_segment(self, pulsar: SplittingPulsar):
        """Exit 4 and the command that divides it."""
        pulsar.rated.clear()
        pulsar.segments = {f"segment://{NAMESPACE}/o/8000-ffff-2": 50_000.0}
        command = f"pulsar-admin scalable-topics split-segment {NAMESPACE}/o --segment-id 2"
        found = split(LOW)
        assert (found.exit_code, command in found.stderr) == (4, True), found.output

    def test_positions_in_hexadecimal_and_decimal(self, pulsar: SplittingPulsar):
        """In any order; a part without topics is told."""
        found = split(LOW, *SPECIFIED, "--positions", f"0x70000000, {0x10000000}")
        assert "specified_positions_divide cuts at 0x10000000, 0x70000000\n" in found.stdout
        assert "0x70000000_0x80000000: nothing is gained there.\n" in found.stdout

    def test_the_algorithm_of_the_settings(self, pulsar: SplittingPulsar, monkeypatch: pytest.MonkeyPatch):
        """Where none is named."""
        monkeypatch.setenv("LBD_SPLIT__ALGORITHM", "flow_or_qps_equally_divide")
        assert as_json(LOW)["algorithm"] == "flow_or_qps_equally_divide"


class TestAuto:
    def test_the_leaders_rule(self, pulsar: SplittingPulsar):
        """What exceeds which limit, where it would be cut, and what is left."""
        found = split("--auto")
        assert found.exit_code == 0
        assert f"{LOW} at {pulsar.ids[0]}: 6,000 exceeds split.max_msg_rate 5,000\n" in found.stdout
        assert f"not split: {HIGH}: one split a turn: the next reports show its effect\n" in found.stdout
        assert found.stdout.endswith("Would split 1 bundle; --apply does it. A split cannot be taken back.\n")

    def test_json(self, pulsar: SplittingPulsar):
        """Each with its reason."""
        found = as_json("--auto")
        assert [(one["bundle"], one["reason"]) for one in found["splits"]] == [
            (LOW, "6,000 exceeds split.max_msg_rate 5,000")
        ]
        assert found["left"] == [{"bundle": HIGH, "reason": "one split a turn: the next reports show its effect"}]

    def test_nothing_is_above_a_limit(self, pulsar: SplittingPulsar, monkeypatch: pytest.MonkeyPatch):
        """Exit 0, one sentence."""
        monkeypatch.setenv("LBD_SPLIT__MAX_MSG_RATE", "6000")
        found = split("--auto", "--apply")
        assert (found.exit_code, found.stdout) == (0, "Nothing to split: none is above a limit.\n")

    def test_apply(self, pulsar: SplittingPulsar):
        """One after the other within the caps; the next call passes over what rests."""
        assert split("--auto", "--apply").exit_code == 0
        second = split("--auto", "--apply")
        assert second.exit_code == 0
        assert [one for one in (LOW, HIGH) if one in pulsar.owners] == []

    def test_brokers_that_split_by_themselves(self, pulsar: SplittingPulsar):
        """Exit 4, and what to do instead."""
        pulsar.dynamic["loadBalancerAutoBundleSplitEnabled"] = "true"
        found = split("--auto")
        assert (found.exit_code, "the brokers split by themselves" in found.stderr) == (4, True)


class TestApply:
    def test_the_new_boundaries_are_read_back(self, pulsar: SplittingPulsar):
        """Exit 0, and the parts at their owner."""
        found = split(LOW, "--apply", "--reason", "too large")
        assert found.exit_code == 0
        kept = CliRunner().invoke(main, ["history", "--splits", "--format", "json"]).stdout
        assert ": too large" in kept
        assert found.stdout.splitlines()[-1].startswith(f"{LOW}: split into 2 at {pulsar.ids[0]} in 0.")
        assert pulsar.owners[f"{NAMESPACE}/{LOWER}"] == pulsar.ids[0]

    def test_json(self, pulsar: SplittingPulsar):
        """Plan and answer together."""
        [answer] = as_json(LOW, "--apply")["applied"]
        assert (answer["exit_code"], answer["owner"]) == (0, pulsar.ids[0])
        assert answer["parts"] == [f"{NAMESPACE}/{LOWER}", f"{NAMESPACE}/{UPPER}"]

    def test_204_without_a_cut(self, pulsar: SplittingPulsar):
        """Exit 5: the broker has lost the topics that it had when the plan was made."""
        pulsar.fault("/split", Reply(204))
        found = split(LOW, "--apply", "--algorithm", "topic_count_equally_divide")
        assert found.exit_code == 5
        assert ": not-split in " in found.stdout
        assert found.stdout.endswith("the broker answered 204 and did nothing.\n")

    def test_a_part_rests(self, pulsar: SplittingPulsar):
        """Exit 4; with a reason it may pass."""
        split(LOW, "--apply")
        again = split(f"{NAMESPACE}/{LOWER}", "--apply")
        assert (again.exit_code, "Refused: cool-down: it was moved or split" in again.stdout) == (4, True)
        assert split(f"{NAMESPACE}/{LOWER}", "--apply", "--override", "disk full").exit_code == 0


def test_a_single_turn_tells_of_its_splits(pulsar: SplittingPulsar, monkeypatch: pytest.MonkeyPatch):
    """``lbd run --once`` with split.enabled: a line on stderr, whatever the turn's own sentence is."""
    pulsar.sample(50.0, 50.0, 50.0)
    monkeypatch.setenv("LBD_SPLIT__ENABLED", "true")
    found = CliRunner().invoke(main, ["run", "--once"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert f"split: {LOW}\n" in found.stderr


class TestHistory:
    def test_splits(self, pulsar: SplittingPulsar):
        """A line each: when, what, at whom, how it ended, into how many, and why."""
        assert history().stdout == "No splits.\n"
        split(LOW, "--apply")
        split(f"{NAMESPACE}/{LOWER}", "--apply", "--override", "disk full")
        head, *rows = history().stdout.splitlines()
        assert head.split()[-5:] == ["bundle", "at", "result", "parts", "why"]
        assert [row.split()[1:5] for row in rows] == [
            [bundle, pulsar.ids[0], "split", "2"] for bundle in (LOW, f"{NAMESPACE}/{LOWER}")
        ]
        assert rows[1].endswith(", overriding limits: disk full")

    @pytest.mark.parametrize(
        ("options", "found"),
        [
            ((), 1),
            (("--bundle", "shop"), 1),
            (("--bundle", HIGH), 0),
            (("--broker", "127.0.0.1"), 1),
            (("--broker", "127.0.0.2"), 0),
            (("--since", "1h"), 1),
        ],
    )
    def test_json(self, options: tuple[str, ...], found: int, pulsar: SplittingPulsar):
        """With intent and outcome, of those that are asked for."""
        split(LOW, "--apply")
        told = json.loads(history(*options, "--format", "json").stdout)
        assert [(one["positions"], one["outcome"]["result"]) for one in told] == [(["0x40000000"], "split")] * found


def history(*options: str) -> Result:
    """``lbd history --splits``."""
    return CliRunner().invoke(main, ["history", "--splits", *options], catch_exceptions=False)


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            ((), 2, "split: wanted a BUNDLE, or --auto"),
            ((LOW, "--auto"), 2, "split: wanted a BUNDLE, or --auto"),
            (("nonsense",), 2, "'nonsense' is no bundle; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU"),
            (("t/n/0x80000000_0x00000000",), 2, "the lower end of the range must be below the upper"),
            ((LOW, "--algorithm", "halves"), 2, "'halves' is not one of 'range_equally_divide'"),
            ((LOW, *SPECIFIED), 2, "--positions go with --algorithm specified_positions_divide, and it wants them"),
            ((LOW, "--positions", "5"), 2, "--positions go with --algorithm specified_positions_divide"),
            ((LOW, *SPECIFIED, "--positions", "half"), 2, "'half' are no positions; wanted hashes such as"),
            ((LOW, *SPECIFIED, "--positions", ""), 2, "'' are no positions"),
            ((LOW, *SPECIFIED, "--positions", "0x80000000"), 2, "0x80000000: outside"),
            ((LOW, *SPECIFIED, "--positions", "-1"), 2, "outside"),
            (("--auto", "--algorithm", "range_equally_divide"), 2, "--auto goes by the split: section"),
            ((LOW, "--override", "why"), 2, "--override and --reason go with --apply"),
            ((LOW, "--apply", "--override", " "), 2, "--override: the reason is empty"),
            ((UNOWNED,), 4, "nobody owns it"),
            ((f"{NAMESPACE}/0x00000000_0x10000000",), 2, f"is no bundle of {NAMESPACE}, which has 2; there are {LOW}"),
            (("shop/none/0x00000000_0xffffffff",), 2, "shop/none: the cluster has no such namespace"),
        ],
    )
    @pytest.mark.parametrize("form", ["text", "json"])
    def test_one_clear_line(
        self, arguments: tuple[str, ...], code: int, words: str, form: str, pulsar: SplittingPulsar
    ):
        """And nothing done."""
        found = split(*arguments, "--format", form)
        assert (found.exit_code, found.stdout) == (code, "")
        assert words in found.stderr.splitlines()[-1]
        assert not pulsar.asked("", "PUT")

    def test_topics_without_traffic(self, pulsar: SplittingPulsar):
        """Exit 4: there is nothing to cut by."""
        pulsar.rated = dict.fromkeys(pulsar.rated, 0.0)
        found = split(LOW, "--algorithm", "flow_or_qps_equally_divide", "--apply")
        assert (found.exit_code, "6 topics, 0 of them with traffic, wanted two at least" in found.stderr) == (4, True)

    def test_no_cluster(self, tmp_path: Path):
        """Exit 3."""
        found = split(LOW, "--admin-url", "http://127.0.0.1:1")
        assert (found.exit_code, "connection refused" in found.stderr) == (3, True)


class TestThroughAnotherLbd:
    def test_the_one_that_runs_here(self, pulsar: SplittingPulsar):
        """Through its socket: the parts are told, and the journal has who asked."""
        with accepting(load(None, environment(), {}).settings):
            found = as_json(LOW, "--apply")
        assert [(one["exit_code"], one["parts"]) for one in found["applied"]] == [
            (0, [f"{NAMESPACE}/{LOWER}", f"{NAMESPACE}/{UPPER}"])
        ]

    def test_one_elsewhere(self, pulsar: SplittingPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Its plan is shown as one of here, and made there; nothing is kept here."""
        here = split(LOW).stdout
        rule = split("--auto").stdout
        changes = {"split": {"max_msg_rate": 5000}}
        with capture_logs(), serving(pulsar, tmp_path, **changes) as api, working(api):
            monkeypatch.setenv("LBD_API__TOKEN_FILE", str(tmp_path / "token"))
            monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path / "elsewhere"))
            asked = "--api", api.serving.url
            assert split(LOW, *asked).stdout == here
            assert split("--auto", *asked).stdout == rule
            chosen = as_json(LOW, *SPECIFIED, "--positions", "0x10000000,0x70000000", *asked)
            assert chosen["positions"] == ["0x10000000", "0x70000000"]
            found = split(LOW, "--apply", *asked)
            again = split(LOW, *asked)
        assert (found.exit_code, f"{LOW}: split into 2 at {pulsar.ids[0]} in " in found.stdout) == (0, True), (
            found.output
        )
        assert again.exit_code == 2
        assert (
            f"{LOW} is no bundle any more: it was split into {NAMESPACE}/{LOWER}, {NAMESPACE}/{UPPER}" in again.stderr
        )
        assert not (tmp_path / "elsewhere").exists()
