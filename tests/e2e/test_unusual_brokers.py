"""Real brokers with unusual settings: what lbd placed, moved, drained or split can be released and served again.

Rule: no request of lbd changes more than it is sent for (lbd/pulsar/request_table.py). Each test is a row of the table
that the part ``unusual`` of ``tests/soak`` keeps.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.store.control import REFUSED
from tests.e2e import naming, placing, probe, security, settings
from tests.e2e.balancing import run, write_config
from tests.e2e.kills import HOT_CORES
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.e2e.cluster import Cluster

    Tell = Callable[[str], None]

VERSIONS = ["4.0.8", "4.2.4"]
BUNDLES, RELEASES, RATE = 8, 2, 5.0
TRUSTED_SECONDS = 240.0
"""lbd trusts brokers two minutes after their start."""
SERVED_SECONDS = 5.0


class Commands:
    """Commands of lbd on one cluster, with what each ended with."""

    def __init__(self, cluster: Cluster, directory: Path, pulsar: Mapping[str, Any]) -> None:
        self.ended: dict[str, int] = {}
        self.config = write_config(cluster, directory, BY_HAND)
        written = yaml.safe_load(self.config.read_text())
        self.config.write_text(yaml.safe_dump({**written, "pulsar": {**written["pulsar"], **pulsar}}))

    def do(self, *words: str, refused: bool = False) -> str:
        """What a command prints, once lbd does it: it is asked again while brokers are young; ``refused``: only once.

        Raises :class:`AssertionError` if it fails.
        """
        deadline = time.monotonic() + TRUSTED_SECONDS
        while True:
            done = run([sys.executable, "-m", "lbd", *words, "--config", str(self.config)])
            if refused or done.returncode != REFUSED or time.monotonic() > deadline:
                break
            time.sleep(5)
        self.ended[words[0]] = done.returncode
        assert done.returncode == (REFUSED if refused else 0), done.stdout + done.stderr
        return done.stdout


def owner(cluster: Cluster, bundle: str) -> str:
    """The one broker that owns a bundle."""
    (broker,) = placing.owner(cluster, bundle)
    return broker


def released_and_looked_up(cluster: Cluster, bundles: Mapping[str, str]) -> dict[str, list[int]]:
    """What each broker answers a client's lookup of a bundle's topic, each time after a release of the bundle."""
    statuses: dict[str, list[int]] = {bundle: [] for bundle in bundles}
    for bundle, topic in [*bundles.items()] * RELEASES:
        assert placing.unload(cluster, bundle) == 204
        for url in cluster.admin_urls:
            path = topic.replace("://", "/")
            statuses[bundle].append(probe.ask(cluster, "GET", f"{url}/lookup/v2/topic/{path}").status_code)
    return statuses


def serves_all(cluster: Cluster, topics: list[str]) -> None:
    """Publish to each topic and consume it."""
    with Traffic(cluster, dict.fromkeys(topics, RATE)) as traffic:
        time.sleep(SERVED_SECONDS)
        result = traffic.stop()
    assert (result.lost, result.unanswered, result.send_errors) == (0, 0, {})
    assert min(result.sent_by_topic.get(topic, 0) for topic in topics) > 0


def move_and_split(cluster: Cluster, lbd: Commands, bundles: list[str], alone: str | None) -> None:
    """Unload a bundle to another broker, split one, and drain a broker; see :func:`check` for ``alone``.

    The broker that gives is hot: lbd moves nothing to one that would have more load than it.
    """
    override, refused = ("--override", "a test"), alone is not None
    hot = cluster.brokers.index(alone) if alone is not None else 0
    source, other = cluster.brokers[hot], cluster.brokers[hot - 1]
    if not refused:
        cluster.set_quota(hot, HOT_CORES)
        cluster.burn(hot)
        placing.place_all(cluster, dict.fromkeys(bundles[:4], source))
    lbd.do("unload", bundles[0], "--to", other, "--apply", *override, refused=refused)
    assert owner(cluster, bundles[0]) == (source if refused else other)
    lbd.do("split", bundles[1], "--apply", *override)
    if not refused:
        cluster.quench(hot)
        cluster.set_quota(hot, None)
    lbd.do("drain", source, "--apply", "--reason", "a test", *override, refused=refused)
    if not refused:
        assert source not in {owner(cluster, bundle) for bundle in (bundles[0], *bundles[2:])}
        lbd.do("drain", source, "--release")


def check(
    cluster: Cluster,
    directory: Path,
    tell: Tell,
    row: str,
    pulsar: Mapping[str, Any] | None = None,
    *,
    alone: str | None = None,
) -> None:
    """Place, unload, split and drain; then release every bundle, look its topics up, and publish and consume on them.

    ``alone`` is the only broker that isolation leaves: nothing can be moved off it then.
    """
    lbd = Commands(cluster, directory, pulsar or {})
    bundles = placing.namespace(cluster, f"unusual{time.time_ns()}", BUNDLES)
    namespace = bundles[0].rpartition("/")[0]
    if alone is not None:
        placing.isolate(cluster, "alone", placing.policy(namespace, alone))
    topics = {bundle: naming.topic_in(bundle) for bundle in bundles}
    for bundle, topic in topics.items():
        placing.create_topic(cluster, topic)  # which has its bundle placed
        assert placing.unload(cluster, bundle) == 204
    lbd.do("place", namespace, "--apply")
    assert {bundle: len(placing.owner(cluster, bundle)) for bundle in bundles} == dict.fromkeys(bundles, 1)
    with Traffic(cluster, dict.fromkeys(topics.values(), RATE)) as traffic:
        move_and_split(cluster, lbd, bundles, alone)
        result = traffic.stop()
    assert (result.lost, result.send_errors) == (0, {})

    owned = probe.owners(cluster, f"{namespace}/")
    parts = {bundle: topic for topic in topics.values() for bundle in owned if naming.contains(bundle, topic)}
    statuses = released_and_looked_up(cluster, parts)
    assert {bundle: set(seen) for bundle, seen in statuses.items()} == {bundle: {200} for bundle in parts}
    serves_all(cluster, list(topics.values()))
    assert alone is None or {owner(cluster, bundle) for bundle in parts} == {alone}
    ended = ", ".join(f"{command} {code}" for command, code in lbd.ended.items())
    tell(f"| {cluster.spec.version} | {row} | {ended} | {len(parts)} bundles, each {RELEASES} times | 0 lost |")


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=VERSIONS, settings={"enableNonPersistentTopics": "false"})
def test_without_non_persistent_topics(cluster: Cluster, tmp_path: Path, tell: Tell):
    """A lookup of a non-persistent topic would take the bundle from its persistent ones."""
    check(cluster, tmp_path, tell, "enableNonPersistentTopics=false")


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=VERSIONS, settings={"allowAutoTopicCreation": "false"})
def test_without_topics_that_create_themselves(cluster: Cluster, tmp_path: Path, tell: Tell):
    """A lookup of a topic that does not exist is answered 404 and assigns nothing."""
    check(cluster, tmp_path, tell, "allowAutoTopicCreation=false")


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=VERSIONS, settings={"allowAutoTopicCreation": "false"}, late=1)
def test_isolation_that_leaves_one_broker(cluster: Cluster, tmp_path: Path, tell: Tell):
    """Everything is placed on it, and nothing is moved off it; it is served there after each release."""
    alone = cluster.brokers[1]
    try:
        check(cluster, tmp_path, tell, "isolation leaves one broker", alone=alone)
    finally:
        placing.lift_isolation(cluster, "alone")


OWN_RULE = "org.apache.pulsar.common.naming.OwnRule"


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=VERSIONS, settings={"topicBundleAssignmentStrategy": OWN_RULE}, java="OwnRule.java")
def test_another_rule_of_topics_and_bundles(cluster: Cluster, tmp_path: Path, tell: Tell):
    """The name that lbd computes is in another bundle; brokers are asked until one is in this one."""
    check(cluster, tmp_path, tell, "topicBundleAssignmentStrategy of its own")


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(
    versions=VERSIONS,
    tokens=True,
    tls=True,
    settings={"superUserRoles": f"{security.ADMIN},lbd", **settings.TLS_ONLY},
)
def test_only_tls_and_authorization(cluster: Cluster, tmp_path: Path, tell: Tell):
    """lbd's role is a superuser of its own, as docs/permissions.md says, and nothing listens without TLS."""
    token = tmp_path / "lbd.token"
    token.write_text(security.role_token(cluster.work, "lbd"))
    check(cluster, tmp_path, tell, "TLS only, authorization, role lbd", {"token_file": str(token)})
