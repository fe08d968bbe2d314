"""A bundle that landed and whose topics cannot be loaded there is named, and nothing is moved until they load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.store.control import REFUSED
from tests.e2e import naming, placing
from tests.e2e.balancing import run
from tests.e2e.daemon import Daemon
from tests.e2e.settings import STATS_SECONDS
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster

RATE = 3.0
REPORTED_SECONDS = 4.0 * STATS_SECONDS
"""By then the load reports show all clients."""

TRUSTED_WITHIN_SECONDS = 300.0
NAMED_WITHIN_SECONDS = 180.0
"""Two and a half CPU samples of a minute each, and the time of the requests for the topics."""

MENDED_WITHIN_SECONDS = 60.0
"""lbd asks for the topics again after each turn."""


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True)
def test_a_bundle_whose_topics_cannot_load_stops_everything(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """Its namespace wants three bookies where there is one, so no topic of it can open a ledger.

    The other bundles of the same drain are served. A further drain is refused. Once one bookie is enough again, the
    hold ends.
    """
    name = f"sick{time.time_ns()}"
    (sick,) = placing.namespace(cluster, name, 1)
    sound = placing.namespace(cluster, f"sound{time.time_ns()}", 8)
    topics = {bundle: naming.topic_in(bundle) for bundle in (sick, *sound)}
    for topic in topics.values():
        placing.create_topic(cluster, topic)
    placing.place_all(cluster, {bundle: cluster.brokers[at % 3] for at, bundle in enumerate(topics)})
    with (
        Traffic(cluster, dict.fromkeys(topics.values(), RATE), clients=2) as traffic,
        Daemon(cluster, tmp_path, BY_HAND) as daemon,
    ):
        time.sleep(REPORTED_SECONDS)
        placing.want_bookies(cluster, f"{placing.TENANT}/{name}", 3)
        _drain(daemon, cluster.brokers[0])
        (move,) = [one for one in daemon.moves() if one.bundle == sick and one.result == "landed"]
        assert move.ended_at is not None
        _until(lambda: "not-served" in _status(daemon), NAMED_WITHIN_SECONDS, daemon)
        named_after = time.time() - move.ended_at
        status, served = _status(daemon), daemon.served()
        again = run(daemon.command("drain", cluster.brokers[1], "--apply", "--reason", "a test"))

        placing.want_bookies(cluster, f"{placing.TENANT}/{name}", 1)
        _until(lambda: "not-served" not in _status(daemon), MENDED_WITHIN_SECONDS, daemon)
        result = traffic.stop()

    hold = next(line for line in status.splitlines() if sick in line)
    tell(f"{cluster.spec.version}: named {named_after:.0f} s after the landing: {hold}")
    assert served[move.id]["served"] == "no"
    assert {str(line["served"]) for name, line in served.items() if name != move.id} == {"yes"}
    assert topics[sick] in hold
    assert "Not enough non-faulty bookies" in hold
    assert again.returncode == REFUSED, again.stdout + again.stderr
    assert "not-served" in again.stdout + again.stderr
    assert result.lost == 0


def _drain(daemon: Daemon, broker: str) -> None:
    """A broker's first minutes are no ground to move on: the drain is asked for until it is not refused."""
    deadline = time.monotonic() + TRUSTED_WITHIN_SECONDS
    while (done := run(daemon.command("drain", broker, "--apply", "--reason", "a test"))).returncode == REFUSED:
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(5)
    assert done.returncode == 0, done.stdout + done.stderr


def _status(daemon: Daemon) -> str:
    return run(daemon.command("status")).stdout


def _until(condition: Callable[[], bool], seconds: float, daemon: Daemon) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{_status(daemon)}\n{daemon.last_lines()}"
        time.sleep(1)
