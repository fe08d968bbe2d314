"""The parts of the harness that need no broker: what it counts, names and limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import journals
from tests.e2e import artifacts, gaps, naming, relief_table, skew
from tests.e2e.cgroups import Group, Hierarchy
from tests.e2e.checker import Result, Stream, summarise
from tests.e2e.cluster import Cluster
from tests.e2e.leaders import Pair
from tests.e2e.security import token
from tests.e2e.settings import Spec

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "persistent://e2e/n/t"


def _sent(count: int, consumers: int = 1) -> Stream:
    stream = Stream(TOPIC, 0, consumers)
    for number in range(count):
        assert stream.next_number() == number
    return stream


def test_a_message_is_lost_when_acknowledged_and_never_seen():
    stream = _sent(3, consumers=2)
    stream.on_answer(0, 1.0, 1.01, 100.0, None)
    stream.on_answer(1, 1.0, 1.02, 100.0, None)
    stream.on_answer(2, 1.0, 1.03, 100.0, "Timeout")
    stream.on_message(0, 0)
    stream.on_message(0, 1)
    stream.on_message(0, 1)
    stream.on_message(1, 0)
    result = summarise([stream], 0, 1.0)
    assert (result.sent, result.acknowledged, result.received) == (3, 2, 3)
    assert (result.lost, result.lost_by_topic, result.duplicates) == (1, {TOPIC: 1}, 1)
    assert result.send_errors == {"Timeout": 1}
    assert result.latency_ms == {"p50": 10, "p99": 20, "p99.9": 20, "max": 20}
    assert Result.from_json(result.to_json()) == result


def test_a_gap_is_time_with_a_message_under_way_and_no_answer():
    stream = _sent(3)
    stream.on_answer(0, sent_at=1.0, now=1.05, wall=100.0, error=None)
    stream.on_answer(1, sent_at=9.0, now=9.05, wall=108.0, error=None)
    assert stream.gaps == []
    stream.on_answer(2, sent_at=9.01, now=9.25, wall=108.2, error=None)
    (gap,) = stream.gaps
    assert gap.seconds == pytest.approx(0.2)
    assert gap.at == pytest.approx(108.0)


def test_a_client_whose_line_is_torn_is_not_back_by_the_reconnects_of_the_next_move():
    first, then = gaps.Moved(TOPIC, 100.0, "b:"), gaps.Moved(TOPIC, 200.0)
    connected = {TOPIC: [(100.25, "one", "b:1"), (200.25, "one", "c:1"), (200.5, "two", "b:1")]}
    assert gaps.stood([first, then], [], connected) == [
        gaps.Stood(first, 0.0, 0.25, 0.25),
        gaps.Stood(then, 0.0, 0.25, 0.5),
    ]


def test_topics_fall_into_bundles_as_pulsar_hashes_them():
    assert naming.topic_hash("persistent://public/default/t") == 0x823CD929
    assert naming.topic_hash("persistent://public/default/t-partition-0") == 0x3DA51034
    assert naming.bundle_ranges(4)[0] == "0x00000000_0x40000000"
    assert naming.bundle_ranges(4)[-1] == "0xc0000000_0xffffffff"
    assert naming.bundle_ranges(7)[-2:] == ["0xb6db6db4_0xdb6db6d8", "0xdb6db6d8_0xffffffff"]  # the last has the rest
    bundles = [f"e2e/n/{each}" for each in naming.bundle_ranges(32)]
    for bundle in bundles:
        topic = naming.topic_in(bundle)
        assert [each for each in bundles if naming.contains(each, topic)] == [bundle]


def test_shares_are_met_over_all_bundles():
    bundles = [f"e2e/n/{each}" for each in naming.bundle_ranges(32)]
    placed = list(skew.assignment(bundles, ["a", "b", "c"], (0.75, 0.125, 0.125)).values())
    assert [placed.count(broker) for broker in "abc"] == [24, 4, 4]


def test_a_group_of_version_1_limits_in_one_directory_and_counts_in_the_other(tmp_path: Path):
    hierarchy = Hierarchy(1, tmp_path / "cpu", tmp_path / "cpuacct")
    for directory in hierarchy.directories:
        directory.mkdir()
    group = Group(hierarchy, "g").create()
    group.set_quota(0.4)
    assert (tmp_path / "cpu/g/cpu.cfs_quota_us").read_text() == "8000"
    group.set_quota(None)
    assert (tmp_path / "cpu/g/cpu.cfs_quota_us").read_text() == "-1"
    (tmp_path / "cpuacct/g/cpuacct.usage").write_text("2500000000\n")
    assert group.used_seconds() == 2.5
    assert len(group.process_files) == 2


def test_a_group_of_version_2_has_one_directory(tmp_path: Path):
    group = Group(Hierarchy(2, tmp_path, tmp_path), "g").create()
    group.set_quota(0.4)
    assert (tmp_path / "g/cpu.max").read_text() == "8000 20000"
    group.set_quota(None)
    assert (tmp_path / "g/cpu.max").read_text() == "max 20000"
    (tmp_path / "g/cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert group.used_seconds() == 1.5
    assert group.process_files == [tmp_path / "g/cgroup.procs"]


def test_an_unknown_version_is_named_with_those_that_are_known():
    with pytest.raises(artifacts.Missing, match=r"9\.9\.9 has no recipe here; known versions: 2\.11\.0, .*5\.0\.0-M1"):
        artifacts.ensure("9.9.9")


def test_jars_that_are_not_the_known_ones_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A registry that serves something else must not get into a broker."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\nmkdir lib && echo another >lib/pulsar-broker.jar\n")
    maven.chmod(0o755)
    monkeypatch.setenv("LBD_E2E_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    monkeypatch.setattr(artifacts, "java", lambda: "java")
    with pytest.raises(artifacts.Missing, match=r"4\.2\.4: Maven left 1 jars, and .* instead of 854811be"):
        artifacts.ensure("4.2.4")
    assert not (tmp_path / "jars" / "4.2.4").exists()


def test_without_maven_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LBD_E2E_CACHE", str(tmp_path))
    monkeypatch.setattr(artifacts, "java", lambda: "java")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(artifacts.Missing, match=r"4\.0\.8 is not fetched yet and there is no mvn command"):
        artifacts.ensure("4.0.8")
    assert not list((tmp_path / "jars").glob("4.0.8*"))


def test_a_token_is_a_signed_json_web_token():
    assert token(b"k", "admin").split(".")[0] == "eyJhbGciOiAiSFMyNTYifQ"
    assert token(b"k", "admin") != token(b"other", "admin")


def test_a_pair_of_daemons_answers_for_its_own_moves_only(tmp_path: Path):
    """The topic of leadership tells them of moves that others made before their time; both know of each."""
    pair = Pair.of(Cluster(Spec("4.0.8")), tmp_path, {})
    ends = {"event": "intent", "bundle": "t/n/0x0_0x1", "source": "a", "destination": "b"}
    lines = [{**ends, "move": "theirs", "at": pair.since - 60}, {**ends, "move": "own", "at": pair.since + 1}]
    for daemon in pair.daemons:
        journals.write(daemon.state, *lines)

    assert [move.id for move in pair.moves()] == ["own"]


RUN = {
    "scenario": "s1",
    "strategy": "avg-shedder",
    "moves of turns after s": [71, 236],
    "moves": 5,
    "bundles": 4,
    "changes of hands": 6,
    "publish ms": {"p50": 2, "p99": 90, "p99.9": 640, "max": 1142},
    "true gap first, last": [43.6, 7.7],
    "true gap each minute": [44, 24.4],
    "below 15 for good from s": 245,
    "gaps of moved topics: n, p50, max ms": [10, 298, 1142],
    "gaps of bystanders meanwhile": [],
    "lost": 0,
}
"""What tests.e2e.scenarios prints of a run, and the table needs."""


def test_runs_become_a_line_each_and_medians():
    """A run that never came below 15 points counts as longer than any."""
    never = {**RUN, "strategy": "AvgShedder", "moves of turns after s": [], "below 15 for good from s": None}
    found = relief_table.rows("\n".join(["$ python -m tests.e2e.scenarios", *map(json.dumps, [RUN, never, RUN])]))
    assert [run["strategy"] for run in found] == ["AvgShedder", "avg-shedder", "avg-shedder"]
    assert relief_table.line(found[1]) == (
        "| s1 | avg-shedder | 71, 236 | 5 | 1 | 6 | 44 → 8 | 44, 24 | 245 | 1142, - | 640, 1142 | 0 |"
    )
    assert "| AvgShedder | never | 5 | 1 | 6 | 44 → 8 | 44, 24 | never |" in relief_table.line(found[0])
    assert relief_table.medians(found) == (
        "- s1, AvgShedder, median of 3: below 15 points for good from 245 s, 5 moves, 8 points left."
    )
    assert "median of 1: never below 15 points for good, 5 moves" in relief_table.medians(found[:1])
