"""Orders of people at two real lbds on a real topic: what a person ended stays ended, whoever leads later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lbd.store.control import Control
from lbd.store.drains import Drains
from lbd.store.rollouts import Rollouts
from tests.e2e import hung, naming, placing, settings
from tests.e2e.balancing import run
from tests.e2e.cut import OwnNetwork
from tests.e2e.leaders import LED_SECONDS, TOPIC, Pair, topic_broker, until
from tests.e2e.test_drain import owned
from tests.e2e.test_leader import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.daemon import Daemon

GIVEN_SECONDS = 400.0
"""Brokers are trusted after three CPU samples; a rollout needs that of all."""

FIRST_MOVE_SECONDS = 300.0
"""An order waits for CPU samples of brokers that bundles were placed on a moment ago."""

ENDED_SECONDS = 60.0
QUIET_SECONDS = 8.0
"""An lbd that obeyed an ended order would begin its next move within a second or two."""

REFUSED = {3, 4, 5}
"""Of an order at an lbd that is cut off: it cannot look, leads no more, or has no answer in time. A pause is taken."""


@dataclass(frozen=True)
class PersonsOrder:
    """The words that give and end an order, and whether an lbd obeys it, by its state directory.

    ``moves``: whether it moves bundles.
    """

    give: tuple[str, ...]
    end: tuple[str, ...]
    stands: Callable[[Path], object]
    moves: bool = True


def orders(target: str) -> dict[str, PersonsOrder]:
    """One of each kind; a drain and a rollout of the same broker."""
    why = ("--reason", "a test of orders")
    return {
        "pause": PersonsOrder(
            ("pause", *why), ("resume",), lambda state: Control(state).paused(time.time()), moves=False
        ),
        "drain": PersonsOrder(
            ("drain", target, "--apply", *why, "--override", "placed a moment ago"),
            ("drain", target, "--release"),
            lambda state: Drains(state).in_force(time.time()),
        ),
        "rollout": PersonsOrder(
            ("rollout", target, *why), ("rollout", "--stop"), lambda state: Rollouts(state).under_way()
        ),
    }


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4"])
@pytest.mark.parametrize("how", ["kill -9", "SIGSTOP", "cut off"])
def test_what_a_person_ended_at_the_next_leader_stays_ended(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None], how: str
):
    """The leader is killed, stopped past its fence or cut off from the topic in the midst of each order.

    The other one leads and obeys the order, a person ends it there, the first one comes back and leads again.
    """
    placing.remove_all(cluster)
    bundles = placing.namespace(cluster, f"orders{time.time_ns()}", 24)
    topic = f"{TOPIC}-{time.time_ns()}"  # orders of the case before stand on its topic
    addresses = [
        (settings.address(index), port)
        for index in range(len(cluster.brokers))
        for port in (settings.WEB_PORT, settings.BROKER_PORT)
    ]
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as kept:
        kept.enter_context(hung.named(cluster))
        kept.enter_context(Traffic(cluster, {naming.topic_in(bundle): 5.0 for bundle in bundles}))
        pair = Pair.of(cluster, tmp_path, BY_HAND, topic)
        networks = {daemon.directory: kept.enter_context(OwnNetwork(addresses)) for daemon in pair.daemons}
        for daemon in pair.daemons:
            daemon.prefix = networks[daemon.directory].prefix
        kept.enter_context(pair)
        pair.leader()
        target = next(broker for index, broker in enumerate(cluster.brokers) if index != topic_broker(cluster, topic))
        for name, order in orders(target).items():
            placing.place_all(cluster, dict.fromkeys(bundles, target))
            leader = pair.leader()
            rows[name] = _struck(pair, order, how, networks[leader.directory])
            assert owned(cluster, target), "nothing was left that an ended order could have moved"
    tell(str(rows))


def _struck(pair: Pair, order: PersonsOrder, how: str, network: OwnNetwork) -> dict[str, Any]:
    leader = pair.leader()
    heir, row, before = pair.other(leader), dict[str, Any](), len(pair.moves())
    following = _give(leader, order, pair)
    until(lambda: order.stands(heir.state), ENDED_SECONDS, pair.last_lines)
    until(lambda: len(pair.moves()) > before or not order.moves, FIRST_MOVE_SECONDS, pair.last_lines)
    begun = time.monotonic()
    if how == "kill -9":
        leader.kill()
    elif how == "SIGSTOP":
        os.kill(leader.pid, signal.SIGSTOP)
    else:
        network.cut()
    until(lambda: _says_that_it_leads(heir), LED_SECONDS, pair.last_lines)
    row["led after, s"] = round(time.monotonic() - begun, 1)
    following.kill()
    following.communicate()
    assert order.stands(heir.state), f"the order is lost:\n{pair.last_lines()}"
    if how == "cut off":
        lost = run(leader.command("fill", pair.cluster.brokers[-1], "--apply", "--timeout", "20"))
        assert lost.returncode in REFUSED, lost

    ended = run(heir.command(*order.end))
    assert ended.returncode == 0, ended
    until(lambda: not order.stands(heir.state), ENDED_SECONDS, pair.last_lines)
    pair.settle_of(heir)
    ended_at = time.time()
    network.mend()
    pair.bring_back(leader)
    until(lambda: not order.stands(leader.state), ENDED_SECONDS, pair.last_lines)
    heir.kill()
    begun = time.monotonic()
    until(lambda: _says_that_it_leads(leader), LED_SECONDS, pair.last_lines)
    row["leads again after, s"] = round(time.monotonic() - begun, 1)
    time.sleep(QUIET_SECONDS)
    heir.start()
    until(lambda: heir.alive and not order.stands(heir.state), ENDED_SECONDS, pair.last_lines)

    assert not order.stands(leader.state), pair.last_lines()
    late = [move for move in pair.moves() if move.asked_at > ended_at]
    assert late == [], pair.last_lines()
    row["moves"] = len(pair.moves()) - before
    return row


def _give(leader: Daemon, order: PersonsOrder, pair: Pair) -> subprocess.Popen[str]:
    """Give it until it is taken; the command, which may follow it on."""
    deadline = time.monotonic() + GIVEN_SECONDS
    following = leader.background(*order.give)
    while not order.stands(leader.state):
        if following.poll() is not None:
            text, _ = following.communicate()
            assert time.monotonic() < deadline, f"{text}\n{pair.last_lines()}"
            time.sleep(5)
            following = leader.background(*order.give)
        time.sleep(0.02)
    return following


def _says_that_it_leads(daemon: Daemon) -> bool:
    found = run(daemon.command("status", "--format", "json"))
    return "this lbd leads since" in found.stdout
