"""What people order on brokers of the extensible load manager, with tokens and TLS, under traffic, holds there, too."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lbd.store.control import REFUSED
from tests.e2e import probe, skew
from tests.e2e.balancing import run
from tests.e2e.leaders import Pair, at_once, topic_broker
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.witness import Witness, contradictions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.e2e.cluster import Cluster
    from tests.e2e.daemon import Daemon

EVEN = skew.Scenario(bundles=32, rate=800.0, shares=(0.34, 0.33, 0.33), quotas=(0.8, 0.8, 0.8), warm_up_seconds=0.0)
"""Ten or eleven bundles on each broker, which tells of ten: two can bear it, also on a busy machine."""

DONE_SECONDS = 240.0
SHARED_SECONDS = 60.0
OVERRIDE = ("--override", "placed a moment ago")


def ordered(pair: Pair, *words: str) -> CompletedProcess[str]:
    """What who leads answers; asked again while it refuses, since brokers are not trusted from their start on."""
    deadline = time.monotonic() + DONE_SECONDS
    while True:
        done = run(pair.leader().command(*words), DONE_SECONDS)
        if done.returncode != REFUSED or time.monotonic() > deadline:
            return done
        time.sleep(2)


def stands(daemon: Daemon) -> tuple[list[str], str]:
    """The brokers that one lbd holds for drained, and why it holds itself for paused."""
    told: dict[str, Any] = json.loads(run(daemon.command("status", "--format", "json")).stdout)
    return [one["drain"]["broker"] for one in told["drains"]], (told["paused"] or {}).get("reason", "")


def comes_to(daemon: Daemon, drained: list[str], paused: str = "") -> None:
    """Wait until an lbd knows what was ordered at the other one."""
    deadline = time.monotonic() + SHARED_SECONDS
    while (found := stands(daemon)) != (drained, paused):
        assert time.monotonic() < deadline, f"{found} instead of {drained}, {paused!r}\n{daemon.last_lines()}"
        time.sleep(0.5)


def own(cluster: Cluster, broker: str) -> list[str]:
    """What a broker owns of the users' bundles."""
    found = probe.owners(cluster)
    return [bundle for bundle, owners in found.items() if broker in owners and not bundle.startswith("pulsar/")]


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.0.8"], load_manager="extensible", tokens=True, tls=True, own=True)
def test_a_drain_outlives_the_leader_and_a_fill_gives_back(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """Drained at the leader, which is then killed; released at its heir, paused and resumed there, and filled."""
    with (
        skew.skewed(cluster, f"orders{time.time_ns()}", EVEN) as running,
        Witness(cluster) as witness,
        Pair.of(cluster, tmp_path, BY_HAND) as pair,
    ):
        first = pair.leader()
        target = next(broker for at, broker in enumerate(cluster.brokers) if at != topic_broker(cluster))
        begun = time.monotonic()
        drained = ordered(pair, "drain", target, "--apply", "--reason", "a test", *OVERRIDE, "--format", "json")
        tell(f"drain: {drained.returncode} after {time.monotonic() - begun:.0f} s\n{drained.stderr}{drained.stdout}")
        assert drained.returncode == 0
        assert own(cluster, target) == []
        comes_to(pair.other(first), [target])

        first.kill()
        second = pair.leader()
        assert stands(second) == ([target], "")
        first.start()
        released = ordered(pair, "drain", target, "--release")
        paused = ordered(pair, "pause", "--reason", "a pause")
        comes_to(first, [], "a pause")
        resumed = ordered(pair, "resume")
        comes_to(first, [])

        begun = time.monotonic()
        filled = ordered(pair, "fill", target, "--apply", *OVERRIDE, "--format", "json")
        tell(f"fill: {filled.returncode} after {time.monotonic() - begun:.0f} s\n{filled.stderr}{filled.stdout}")
        time.sleep(4)  # so that the witness has seen what the last outcome claims
        back = own(cluster, target)
        told = pair.moves()
        denied = contradictions(told, witness, probe.owners(cluster), cluster.kills)
        result = running.traffic.stop()

    gap = max((gap.seconds for gap in result.gaps), default=0.0)
    found = Counter((move.source == target, str(move.result)) for move in told)
    tell(f"{found}; filled with {len(back)}; longest gap {gap:.2f} s; lost {result.lost} of {result.sent}")
    assert [done.returncode for done in (released, paused, resumed, filled)] == [0, 0, 0, 0]
    assert denied == []
    assert at_once(told) == []
    assert {move.result for move in told} == {"landed"}
    assert len(back) > 0
    assert result.lost == 0
