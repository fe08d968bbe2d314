"""A broker of three is drained under traffic: it owns nothing in the end, and publishers lose nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lbd.store.control import REFUSED
from tests.e2e import hung, naming, placing, probe
from tests.e2e.balancing import run
from tests.e2e.daemon import Daemon
from tests.e2e.kills import ASKED_AGAIN_SECONDS
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.e2e.cluster import Cluster

BUNDLES, RATE = 32, 10.0
TRUSTED_WITHIN_SECONDS = 240.0
ENDS_WITHIN_SECONDS = 240.0
"""It takes 7 s, on a very busy machine a minute, and two where a broker hangs."""
SERVED_WITHIN_SECONDS = 30.0
"""Brokers report clients each five seconds, and lbd looks at each turn."""

SETTINGS: dict[str, Any] = {**BY_HAND, "log": {"format": "json"}}


def owned(cluster: Cluster, broker: str, namespace: str = "") -> list[str]:
    """The bundles that a broker claims, but for its own and Pulsar's."""
    found = probe.owners(cluster, namespace)
    return sorted(one for one, owners in found.items() if broker in owners and not one.startswith("pulsar/"))


def _drained(daemon: Daemon, target: str) -> CompletedProcess[str]:
    """Asked again until it can be done: a broker's first minutes are no ground to move on, nor is their heat."""
    deadline = time.monotonic() + TRUSTED_WITHIN_SECONDS
    words = ("drain", target, "--apply", "--reason", "a test", "--override", "placed a moment ago", "--format", "json")
    while True:
        done = run(daemon.command(*words), ENDS_WITHIN_SECONDS)
        if done.returncode != REFUSED or time.monotonic() > deadline or hung.silent(daemon.cluster):
            return done
        time.sleep(ASKED_AGAIN_SECONDS)


def _served(daemon: Daemon) -> Counter[str]:
    """What lbd says of the clients of what landed, once it says it of every move."""
    deadline = time.monotonic() + SERVED_WITHIN_SECONDS
    landed = {move.id for move in daemon.moves() if move.result == "landed"}
    while (found := daemon.served()).keys() < landed and time.monotonic() < deadline:
        time.sleep(1)
    return Counter(str(line["served"]) for line in found.values())


@pytest.mark.cluster(landing=True, versions=["4.2.4", "4.0.8"], late=1)
def test_a_drained_broker_owns_nothing_and_nothing_is_lost(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """32 bundles under traffic on one broker of three, several moving at once; the clients of each come back."""
    target = cluster.brokers[0]
    placing.remove_all(cluster)
    bundles = placing.namespace(cluster, f"drain{time.time_ns()}", BUNDLES)
    namespace = bundles[0].rpartition("/")[0]
    topics = [naming.topic_in(bundle) for bundle in bundles]
    with (
        hung.named(cluster),
        Daemon(cluster, tmp_path, SETTINGS) as daemon,
        Traffic(cluster, dict.fromkeys(topics, RATE)) as load,
    ):
        placing.place_all(cluster, dict.fromkeys(bundles, target))
        assert len(owned(cluster, target, f"{namespace}/")) == BUNDLES
        begun = time.time()
        done = _drained(daemon, target)
        seconds = time.time() - begun
        assert done.returncode == 0, (done.stdout, done.stderr)
        work = json.loads(done.stdout)
        left = owned(cluster, target)
        turned = run(daemon.command("status", "--format", "json"))
        released = run(daemon.command("drain", target, "--release"))
        served = _served(daemon)
        result = load.stop()
        moves = daemon.moves()

    gap = max((gap.seconds for gap in result.gaps if gap.at > begun), default=0.0)
    tell(
        f"drained of {work['total']} bundles in {seconds:.1f} s, {work['landed']} landed, {work['elsewhere']} on "
        f"another broker; longest publish gap {gap:.2f} s, {result.duplicates} messages came twice, those of the "
        f"set-up's own unloads among them; {done.stderr.splitlines()[1:2]}"
    )
    assert left == []
    assert work["owned"] == 0
    gone = Counter(move.bundle for move in moves if move.source == target and move.owner not in {None, target})
    assert len(gone) >= BUNDLES
    assert set(gone.values()) == {1}
    assert served == {"yes": len([move for move in moves if move.result == "landed"])}
    assert [one["drain"]["broker"] for one in json.loads(turned.stdout)["drains"]] == [target]
    assert released.returncode == 0
    assert result.lost == 0
