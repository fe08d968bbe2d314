"""Splits on real brokers: each algorithm under traffic, what is refused, and through a running lbd."""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import naming, placing, probe
from tests.e2e.balancing import run, write_config
from tests.e2e.daemon import Daemon
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster

TOPICS, RATE = 32, 10.0
STATS_WITHIN_SECONDS = 15.0

SETTINGS: dict[str, Any] = {"split": {"max_msg_rate": 70}, "log": {"format": "json"}}
"""A limit that a few topics exceed, for flow_or_qps_equally_divide; nothing is split by lbd itself."""


def boundaries(cluster: Cluster, namespace: str) -> list[str]:
    """As the brokers tell them."""
    found: list[str] = cluster.session.get(f"{_namespace(cluster, namespace)}/bundles").json()["boundaries"]
    return found


def _namespace(cluster: Cluster, namespace: str) -> str:
    return f"{cluster.admin_urls[0]}/admin/v2/namespaces/{namespace}"


def bundle_told(cluster: Cluster, topic: str) -> str:
    """The range that a broker finds a topic in."""
    url = f"{cluster.admin_urls[0]}/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    return cluster.session.get(url).text.strip().strip('"')


class Splitter:
    """``lbd split`` as its users call it."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.config = write_config(cluster, directory, SETTINGS)

    def __call__(self, bundle: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One call, whatever comes of it."""
        return run([sys.executable, "-m", "lbd", "split", bundle, *words, "--config", str(self.config)])

    def json(self, bundle: str, *words: str) -> dict[str, Any]:
        """One call that succeeds; what it printed."""
        done = self(bundle, *words, "--format", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def _wait_for_rates(split: Splitter, bundles: list[str]) -> None:
    """Until the owners have counted traffic on every topic."""
    deadline = time.monotonic() + STATS_WITHIN_SECONDS
    while any(split.json(bundle)["before"]["msg_rate"] < RATE for bundle in bundles):
        assert time.monotonic() < deadline, "the brokers count no traffic"
        time.sleep(1)


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_each_algorithm_cuts_where_it_said(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """Four bundles under traffic, an algorithm each: the brokers' boundaries, owners and topics are those foretold."""
    bundles = placing.namespace(cluster, f"split{time.time_ns()}", 4)
    namespace = bundles[0].rpartition("/")[0]
    topics = [f"persistent://{namespace}/t{number}" for number in range(TOPICS)]
    split = Splitter(cluster, tmp_path)
    with Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        _wait_for_rates(split, bundles)
        middle = int(bundles[2].rpartition("/")[2][:10], 16) + 0x1800_0000
        wanted = {
            "range_equally_divide": (),
            "topic_count_equally_divide": (),
            "specified_positions_divide": ("--positions", f"0x{middle:08x},{middle + 0x1000_0000}"),
            "flow_or_qps_equally_divide": (),
        }
        begun = time.time()
        for bundle, (algorithm, words) in zip(bundles, wanted.items(), strict=True):
            found = split.json(bundle, "--algorithm", algorithm, *words, "--apply")
            answer = found["applied"][0]
            tell(f"{algorithm}: {found['positions']}: {answer['sentence']}")
            assert set(found["positions"]) <= set(boundaries(cluster, namespace))
            assert answer["parts"] == [part["bundle"] for part in found["after"]]
            assert [placing.owner(cluster, part) for part in answer["parts"]] == [{found["owner"]}] * len(
                answer["parts"]
            )
            for part in found["after"]:
                assert part["topics"] == sum(naming.contains(part["bundle"], topic) for topic in topics)
        result = load.stop()

    gap = max((gap.seconds for gap in result.gaps if gap.at > begun), default=0.0)
    tell(f"longest publish gap while four bundles were split: {gap:.3f} s; each topic sends every {1 / RATE:g} s")
    assert (result.lost, result.duplicates) == (0, 0)
    edges = boundaries(cluster, namespace)
    ranges = [f"{low}_{high}" for low, high in itertools.pairwise(edges)]
    assert len(ranges) >= 4 + 1 + 1 + 2 + 1
    for topic in topics:
        told = bundle_told(cluster, topic)
        assert told in ranges
        assert naming.contains(f"{namespace}/{told}", topic)


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_the_brokers_cut_by_topics_where_lbd_would(cluster: Cluster, tmp_path: Path):
    """The same bundle, cut by the broker's own topic_count_equally_divide."""
    bundle = placing.namespace(cluster, f"own{time.time_ns()}", 1)[0]
    namespace, _, span = bundle.rpartition("/")
    for number in range(9):
        placing.create_topic(cluster, f"persistent://{namespace}/t{number}")
    placing.place(cluster, bundle, cluster.brokers[0])
    foretold = Splitter(cluster, tmp_path).json(bundle, "--algorithm", "topic_count_equally_divide")["positions"]
    params = {"splitAlgorithmName": "topic_count_equally_divide"}
    answer = probe.ask(cluster, "PUT", f"{_namespace(cluster, namespace)}/{span}/split", params=params)

    assert answer.status_code == 204
    assert boundaries(cluster, namespace) == ["0x00000000", *foretold, "0xffffffff"]


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_what_is_no_bundle_or_nobodys_is_left_alone(cluster: Cluster, tmp_path: Path):
    """Exit 4 or 2 with one line; the boundaries stay, and nobody takes the bundle."""
    bundles = placing.namespace(cluster, f"left{time.time_ns()}", 2)
    namespace = bundles[0].rpartition("/")[0]
    split = Splitter(cluster, tmp_path)
    placing.place(cluster, bundles[0], cluster.brokers[0])
    calls = [
        (4, "nobody owns it", split(bundles[1], "--apply")),
        (2, "is no bundle of ", split(f"{namespace}/0x00000000_0x40000000", "--apply")),
        (2, "no such namespace", split("e2e/none/0x00000000_0x40000000", "--apply")),
        (4, "it has no topics", split(bundles[0], "--algorithm", "topic_count_equally_divide", "--apply")),
        (2, "outside", split(bundles[0], "--algorithm", "specified_positions_divide", "--positions", "1,0x80000000")),
    ]

    for code, words, done in calls:
        assert (done.returncode, words in done.stderr, len(done.stderr.splitlines())) == (code, True, 1), done.stderr
    assert boundaries(cluster, namespace) == ["0x00000000", "0x80000000", "0xffffffff"]
    assert placing.owner(cluster, bundles[1]) == set()


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_a_running_lbd_splits_and_journals(cluster: Cluster, tmp_path: Path):
    """Handed over, read back, and in the journal with intent and outcome; a part rests unless limits are overridden."""
    bundle = placing.namespace(cluster, f"daemon{time.time_ns()}", 1)[0]
    placing.place(cluster, bundle, cluster.brokers[1])
    with Daemon(cluster, tmp_path, SETTINGS) as daemon:
        split = Splitter(cluster, tmp_path)
        done = split(bundle, "--apply")
        part = f"{bundle.rpartition('/')[0]}/0x00000000_0x7fffffff"
        rests = split(part, "--apply")
        passes = split(part, "--apply", "--override", "the test says so")
        assert daemon.terminate().code == 0

    assert (done.returncode, "Asked lbd (process" in done.stderr) == (0, True), done.stderr
    assert (rests.returncode, "cool-down" in rests.stdout) == (4, True), rests.stdout
    assert passes.returncode == 0, passes.stdout
    lines = [line for line in daemon.journal() if line["event"].startswith("split")]
    assert [line["event"] for line in lines] == ["split", "split-outcome"] * 2
    assert [line.get("result") for line in lines] == [None, "split", None, "split"]
    assert len(boundaries(cluster, bundle.rpartition("/")[0])) == 4
