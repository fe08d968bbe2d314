"""Placing and picking on real brokers: an unowned namespace, a destination that lbd names, a namespace unloaded."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import naming, placing, probe
from tests.e2e.balancing import run, write_config
from tests.e2e.daemon import Daemon
from tests.e2e.kills import HOT_CORES, SERVED_SECONDS
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster

SETTINGS: dict[str, Any] = {**BY_HAND, "guardrails": {**BY_HAND["guardrails"], "unload_spacing_seconds": 0.2}}
BUNDLES, MOVED = 64, 16


def lbd(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of lbd as its users call it."""
    return run([sys.executable, "-m", "lbd", *words, "--config", str(config)])


def answers(done: subprocess.CompletedProcess[str]) -> Any:
    """What a command printed as JSON, when it succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def owners(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Who owns each bundle of a namespace, told by the brokers; one owner each."""
    found = probe.owners(cluster, f"{namespace}/")
    assert all(len(brokers) == 1 for brokers in found.values()), found
    return {bundle: next(iter(brokers)) for bundle, brokers in found.items()}


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_an_unowned_namespace_is_placed_where_lbd_answered(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """64 bundles, all where they should be by what the brokers say; owned ones are left alone, also by a daemon."""
    bundles = placing.namespace(cluster, f"place{time.time_ns()}", BUNDLES)
    namespace, config = bundles[0].rpartition("/")[0], write_config(cluster, tmp_path, SETTINGS)
    before = answers(lbd(config, "place", namespace, "--format", "json"))
    assert {one["owner"] for one in before["answers"]} == {None}
    assert owners(cluster, namespace) == {}, "asking placed something"

    begun = time.monotonic()
    placed = answers(lbd(config, "place", namespace, "--apply", "--format", "json"))["placed"]
    seconds = time.monotonic() - begun
    told = {one["bundle"]: one["answer"] for one in placed}
    assert owners(cluster, namespace) == told
    assert {one["result"] for one in placed} == {"landed"}
    assert len(told) == BUNDLES
    tell(f"placed {BUNDLES} bundles in {seconds:.1f} s: {dict(Counter(told.values()))}")

    others = placing.namespace(cluster, f"other{time.time_ns()}", MOVED)
    other = others[0].rpartition("/")[0]
    placing.nudge(cluster, others[0], 2)
    topic = f"persistent://{other}/orders"
    url = f"{cluster.admin_urls[0]}/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    named = answers(lbd(config, "place", topic, "--format", "json"))["answers"]
    assert [one["bundle"] for one in named] == [f"{other}/{cluster.session.get(url).text.strip()}"]
    with Daemon(cluster, tmp_path, SETTINGS) as daemon:
        done = lbd(config, "place", other, namespace, "--strategy", "avg-shedder", "--apply")
        ended = daemon.terminate()
    assert (done.returncode, ended.code, daemon.noise()) == (0, 0, [])
    assert "80 bundles: 15 placed, 65 owned already and left alone." in done.stdout
    assert len(owners(cluster, other)) == MOVED
    assert owners(cluster, other)[others[0]] == cluster.brokers[2]
    assert owners(cluster, namespace) == told
    history = answers(lbd(config, "history", "--last", "100", "--format", "json"))
    assert Counter(one["source"] for one in history) == {"": BUNDLES + MOVED - 1}


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"])
def test_a_namespace_is_unloaded_to_brokers_that_lbd_picks(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """One bundle to a named broker, one to a picked one, then the namespace: each is where lbd says."""
    cluster.set_quota(0, HOT_CORES)
    cluster.burn(0)
    bundles = placing.namespace(cluster, f"unload{time.time_ns()}", MOVED)
    namespace, config = bundles[0].rpartition("/")[0], write_config(cluster, tmp_path, SETTINGS)
    placing.place_all(cluster, dict.fromkeys(bundles, cluster.brokers[0]))
    with Traffic(cluster, {naming.topic_in(bundle): 5.0 for bundle in bundles}) as traffic:
        _until_trusted(config, bundles[0], cluster.brokers[1])
        assert owners(cluster, namespace)[bundles[0]] == cluster.brokers[1]
        picked = lbd(config, "unload", bundles[1], "--apply")
        assert picked.returncode == 0, picked.stdout + picked.stderr
        begun = time.monotonic()
        done = lbd(
            config, "unload", namespace, "--apply", "--override", "a test that empties a broker", "--format", "json"
        )
        seconds = time.monotonic() - begun
        now = owners(cluster, namespace)
        result = traffic.stop()

    ended = json.loads(done.stdout)
    landed = [one for one in ended if one["exit_code"] == 0]
    tell(
        f"{len(landed)} of {len(ended)} landed in {seconds:.1f} s: {dict(Counter(now.values()))}: {done.stderr[-300:]}"
    )
    assert now[bundles[1]] != cluster.brokers[0]
    assert landed  # how many the guardrails let go depends on how much CPU the burner gets
    assert {one["exit_code"] for one in ended} <= {0, 4, 5}
    for one in (one for one in ended if one["owner"] is not None):
        bundle = one["sentence"].partition(": ")[0]
        assert now[bundle] == one["owner"], one
        assert one["exit_code"] != 0 or one["owner"] != cluster.brokers[0], one
    assert result.lost == 0


def _until_trusted(config: Path, bundle: str, broker: str) -> None:
    """lbd trusts brokers of two minutes, and sees the burner with the CPU sample after that."""
    deadline = time.monotonic() + SERVED_SECONDS
    while (done := lbd(config, "unload", bundle, "--apply", "--to", broker)).returncode != 0:
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(3)
