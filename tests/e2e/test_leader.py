"""Two lbds on one real cluster: one moves, the other takes over when it is killed, stopped or cut off."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import hung, naming, placing, probe
from tests.e2e.daemon import SETTINGS, SHEDDER
from tests.e2e.kills import Hot
from tests.e2e.landing import CLIENTS
from tests.e2e.leaders import Pair, at_once, topic_broker, until
from tests.e2e.test_drain import owned
from tests.e2e.traffic import Traffic
from tests.e2e.witness import Witness, contradictions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.e2e.cluster import Cluster

NO_LIMITS = (
    *("cool_down_minutes", "membership_settle_seconds", "max_moves_per_bundle", "ping_pong_window_hours"),
    *("max_unloads_per_hour", "max_unloads_per_day", "max_unloads_per_broker_per_hour"),
)
BY_HAND: dict[str, Any] = {
    **SETTINGS,
    "interval_seconds": 1,
    "avg_shedder": {**SHEDDER, "hit_count_low": 10_000, "hit_count_high": 10_000},
    "guardrails": dict.fromkeys(NO_LIMITS, 0),
}
"""Daemons that move nothing of their own will, and what they are asked for as often as one likes."""

OF_A_DRAIN = {**BY_HAND, "guardrails": {**BY_HAND["guardrails"], "max_destination_score": 100}}
"""The others may still report the heat of the test before; what stays because of that goes ten minutes later."""

TAKEN_OVER_SECONDS = 30.0
"""After a kill -9; a leader that stands still is missed by its broker after one or two keep-alives of 30 s each."""

MOST_BLOWS = 6
"""A move ends within 0.1 s at best, and a blow that comes later proves nothing: another one follows until one hits."""


DRAINED_SECONDS = 200.0
"""The heir leaves a move that was open alone for 20 s, and judges one that did not move its bundle after 95 s."""


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], late=3)
def test_a_drain_outlives_its_leader(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """kill -9 of the leader in the midst of a drain's moves: the other one leads, closes them, and goes on."""
    placing.remove_all(cluster)
    bundles = placing.namespace(cluster, f"outlives{time.time_ns()}", 24)
    rates = {naming.topic_in(bundle): 5.0 for bundle in bundles}
    with (
        hung.named(cluster),
        Traffic(cluster, rates) as traffic,
        Witness(cluster) as witness,
        Pair.of(cluster, tmp_path, OF_A_DRAIN) as pair,
    ):
        leader = pair.leader()
        target = next(broker for index, broker in enumerate(cluster.brokers) if index != topic_broker(cluster))
        placing.place_all(cluster, dict.fromkeys(bundles, target))
        words = ("drain", target, "--apply", "--reason", "a test", "--override", "placed a moment ago")
        found = pair.strike_at(lambda daemon: daemon.background(*words), "kill -9", after_seconds=0.2)
        left = len(owned(cluster, target))
        begun = time.monotonic()
        until(lambda: not owned(cluster, target), DRAINED_SECONDS, pair.last_lines)
        took = time.monotonic() - begun
        pair.bring_back(leader)
        pair.settle()
        told, owners = pair.moves(), probe.owners(cluster)
        time.sleep(4)  # so that the witness has seen what the last outcome claims
        denied = contradictions(told, witness, owners, cluster.kills)
        result = traffic.stop()

    results = Counter(str(move.result) for move in told)
    tell(f"{found}, {left} bundles left; drained {took:.0f} s later; {results}; lost {result.lost} of {result.sent}")
    assert left > 0
    assert found.seconds < TAKEN_OVER_SECONDS
    assert at_once(told) == []
    assert denied == []
    assert result.lost == 0


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], late=4)
def test_the_other_one_takes_over(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """Two kills in the midst of moves; one that stands still is missed a minute or two later, at length."""
    struck(cluster, tmp_path, tell, ["kill -9"] * 2)


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.0.8"])
@pytest.mark.parametrize("blows", [["kill -9"] * 10, ["SIGSTOP"] * 5, ["broker"]], ids=lambda blows: blows[0])
def test_the_other_one_takes_over_at_length(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None], blows: list[str]
):
    """Ten kills, five that stand still, or the death of the broker that carries the topic."""
    struck(cluster, tmp_path, tell, blows)


def struck(cluster: Cluster, directory: Path, tell: Callable[[str], None], blows: Sequence[str]) -> None:
    """No bundle is moved by two, no move stays open, and the brokers confirm the journal."""
    bundles = placing.namespace(cluster, f"leaders{time.time_ns()}", 16)
    rates = {naming.topic_in(bundle): 1.0 for bundle in bundles}
    hot = Hot(cluster, bundles)
    with (
        Traffic(cluster, rates, clients=CLIENTS) as traffic,
        Witness(cluster) as witness,
        Pair.of(cluster, directory, BY_HAND) as pair,
    ):
        pair.leader()
        hot.heat(next(at for at in range(3) if at != topic_broker(cluster) and not _leads(cluster, at)))
        pair.serve(hot)
        for number, blow in enumerate(blows):
            _blow(cluster, pair, hot, blow, number)
        for number in range(len(blows), MOST_BLOWS):
            if not _hit(pair):
                _blow(cluster, pair, hot, blows[-1], number)
        time.sleep(4)  # so that the witness has seen what the last outcome claims
        told = pair.moves()
        owners = probe.owners(cluster)
        denied = contradictions(told, witness, owners, cluster.kills, hot.brought_back)
        ended = [daemon.terminate().code for daemon in pair.daemons]
        result = traffic.stop()

    tell(_row(pair, Counter(str(move.result) for move in told), result.lost))
    assert [move for move in told if move.result is None] == []
    assert at_once(told) == []
    assert denied == []
    assert pair.codes.keys() <= {0, 4, 5}, pair.said
    assert _hit(pair), "no blow hit a move"
    killed = [found.seconds for found in pair.take_overs if found.how == "kill -9"]
    assert max(killed, default=0.0) < TAKEN_OVER_SECONDS
    assert result.lost == 0
    assert ended == [0, 0], pair.last_lines()


def _blow(cluster: Cluster, pair: Pair, hot: Hot, blow: str, number: int) -> None:
    """One blow, until both lbds run, nothing is open, and the one that leads then has made a move."""
    if blow == "broker":
        dead = topic_broker(cluster)
        cluster.kill_broker(dead, signal.SIGKILL)
        begun = time.monotonic()
        pair.none_leads()
        pair.leader()
        pair.lapses.append(time.monotonic() - begun)
        cluster.start_broker(dead)
    else:
        leader = pair.leader()
        pair.strike(hot, blow, number)
        pair.bring_back(leader)
    pair.settle()
    pair.serve(hot)


def _hit(pair: Pair) -> bool:
    return any(found.open_then for found in pair.take_overs) or bool(pair.lapses)


def _leads(cluster: Cluster, index: int) -> bool:
    return probe.leader(cluster, 0) == cluster.brokers[index]


def _row(pair: Pair, results: Counter[str], lost: int) -> str:
    found = {
        "take-overs, s": {
            how: [round(one.seconds, 1) for one in pair.take_overs if one.how == how]
            for how in dict.fromkeys(one.how for one in pair.take_overs)
        },
        "with a move open": sum(one.open_then for one in pair.take_overs),
        "topic's broker dead, s until somebody leads": [round(seconds, 1) for seconds in pair.lapses],
        "results": results,
        "exit codes": pair.codes,
        "lost": lost,
        "said": dict(pair.said.most_common(6)),
    }
    return json.dumps(found)
