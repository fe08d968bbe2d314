"""Unknown is never no: what no broker has answered ends in a refusal that says so, the same from every command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.bundles import WITH_CLUSTER, holds, topic_hash
from lbd.model import bundle_range
from lbd.pulsar.admin import unsupported_versions
from lbd.simulate.answers import page
from tests import fake_pulsar
from tests.cli.conftest import lbd
from tests.fake_pulsar import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker with eight bundles, a warm and a cold one with one each; the second one leads."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


@pytest.fixture
def config(pulsar: FakePulsar, tmp_path: Path) -> Path:
    """Settings of that cluster."""
    guardrails = {"membership_settle_seconds": 0, "unload_spacing_seconds": 0}
    path = tmp_path / "lbd.yaml"
    values = {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": str(tmp_path / "state"), "guardrails": guardrails}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def findings(config: Path) -> dict[str, dict[str, Any]]:
    """What the doctor says, by check: the gravest finding, which comes first."""
    said = json.loads(lbd("doctor", "--format", "json", "--config", config).stdout)
    return {finding["check"]: finding for finding in reversed(said["findings"])}


class TestAnUnsupportedVersion:
    """Brokers of 2.8 to 2.10 have no topicHashPositions (apache/pulsar#15419): nobody can say who owns what."""

    COMMANDS = (
        *(("dry-run",), ("plan",), ("run", "--once"), ("split", HOT[0]), ("split", HOT[0], "--apply")),
        *(("place", HOT[0]), ("place", HOT[0], "--apply"), ("rollout", "--all", "--dry-run")),
        *(("unload", HOT[0], "--to", "COLD"), ("unload", HOT[0], "--to", "COLD", "--apply")),
        *(("drain", "COLD"), ("drain", "COLD", "--apply"), ("fill", "COLD"), ("fill", "COLD", "--apply")),
    )

    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    def test_every_command_refuses_it_with_the_same_sentence(
        self, words: tuple[str, ...], pulsar: FakePulsar, config: Path
    ) -> None:
        """Nothing is sent."""
        pulsar.brokers[0].version = "2.10.4"
        pulsar.fault("topicHashPositions", page(404))
        ended = lbd(*(word.replace("COLD", pulsar.ids[2]) for word in words), "--config", config)
        assert unsupported_versions({pulsar.ids[0]: "2.10.4"}) in ended.output
        assert ended.exit_code == 3
        assert {request.method for request in pulsar.requests} == {"GET"}

    def test_the_doctor_calls_it_a_problem(self, pulsar: FakePulsar, config: Path) -> None:
        """Whatever the load reports say of the version."""
        pulsar.brokers[0].version = "2.10.4"
        pulsar.brokers[0].report = {"brokerVersionString": ""}
        version = findings(config)["verified-versions"]
        assert (version["level"], version["seen"]) == ("problem", unsupported_versions({pulsar.ids[0]: "2.10.4"}))


ORDERS = "persistent://t/n/orders"
PARTS = tuple(f"{ORDERS}-partition-{number}" for number in range(3))


class TestNamesOfTopics:
    """A partitioned topic has nothing in the bundle that its own name falls into (apache/pulsar#7571, #13275)."""

    @pytest.fixture(autouse=True)
    def _topics(self, pulsar: FakePulsar) -> None:
        pulsar.topic_names = {*PARTS, f"{ORDERS}-partition-x", f"{ORDERS}2"}

    def bundles(self, pulsar: FakePulsar) -> list[str]:
        """The bundle of each partition."""
        return [next(bundle for bundle in pulsar.owners if holds(bundle, topic_hash(part))) for part in PARTS]

    @pytest.mark.parametrize("acts", [("--apply",), ()])
    def test_an_unload_names_the_partitions(self, acts: tuple[str, ...], pulsar: FakePulsar, config: Path) -> None:
        """Exit 2, and nothing is sent: which of several bundles is meant is not known."""
        ended = lbd("unload", ORDERS, *acts, "--config", config)
        bundles = zip(PARTS, self.bundles(pulsar), strict=True)
        names = ", ".join(f"{part} ({bundle_range(bundle)})" for part, bundle in bundles)
        assert f"{ORDERS} has 3 partitions; wanted one of {names}" in ended.stderr
        assert (ended.exit_code, pulsar.asked("/unload")) == (2, [])

    @pytest.mark.parametrize(
        "topic", ["persistent://t/n/ordres", f"{ORDERS}-partition-3", "non-persistent://t/n/orders"]
    )
    @pytest.mark.parametrize(
        "words", [("unload",), ("unload", "--apply"), ("place",), ("place", "--apply"), ("explain",)]
    )
    def test_a_topic_that_there_is_not_is_nobodys(
        self, topic: str, words: tuple[str, ...], pulsar: FakePulsar, config: Path
    ) -> None:
        """Exit 2 from every command that takes a topic."""
        ended = lbd(words[0], topic, *words[1:], "--config", config)
        assert f"{topic}: there is no such topic in t/n" in ended.output
        assert (ended.exit_code, {request.method for request in pulsar.requests}) == (2, {"GET"})

    def test_place_answers_for_each_partition(self, pulsar: FakePulsar, config: Path) -> None:
        """A row for each of their bundles."""
        said = json.loads(lbd("place", ORDERS, "--format", "json", "--config", config).stdout)
        topics = {topic: row["bundle"] for row in said["answers"] for topic in row["topics"]}
        assert topics == dict(zip(PARTS, self.bundles(pulsar), strict=True))

    def test_explain_explains_each_partition(self, pulsar: FakePulsar, config: Path) -> None:
        """By its name."""
        lbd("run", "--once", "--observe", "--config", config)
        said = json.loads(lbd("explain", ORDERS, "--format", "json", "--config", config).stdout)
        told = [(answer["partition"], answer["bundle"]) for answer in said]
        assert told == list(zip(PARTS, self.bundles(pulsar), strict=True))

    def test_a_partition_by_its_own_name_is_one_topic(self, pulsar: FakePulsar, config: Path) -> None:
        """As everybody else names it."""
        ended = lbd("unload", PARTS[0], "--to", pulsar.ids[2], "--config", config)
        assert f"Would move {self.bundles(pulsar)[0]} (" in ended.stdout


class TestNamesWithACluster:
    """Names of the first API, ``tenant/cluster/namespace`` (apache/pulsar#5683, streamnative/pulsarctl#139)."""

    BUNDLE = "sample/standalone/ns1/0x00000000_0xffffffff"
    TOPIC = "persistent://sample/standalone/ns1/orders"

    @pytest.fixture(autouse=True)
    def _owned(self, pulsar: FakePulsar) -> None:
        pulsar.own(pulsar.ids[0], {self.BUNDLE: 9000.0})

    @pytest.mark.parametrize(
        "words",
        [
            *(
                ("unload", BUNDLE),
                ("unload", BUNDLE, "--apply"),
                ("unload", TOPIC),
                ("place", BUNDLE),
                ("place", TOPIC),
            ),
            *(("place", BUNDLE, "--apply"), ("split", BUNDLE), ("split", BUNDLE, "--apply"), ("explain", TOPIC)),
        ],
        ids=" ".join,
    )
    def test_every_command_says_that_they_are_never_moved(
        self, words: tuple[str, ...], pulsar: FakePulsar, config: Path
    ) -> None:
        """Exit 2: a bundle that lbd itself lists is a bundle."""
        ended = lbd(*words, "--config", config)
        assert f"{words[1]}: {WITH_CLUSTER}" in ended.stderr
        assert (ended.exit_code, {request.method for request in pulsar.requests} - {"GET"}) == (2, set())

    def test_whatever_lists_them_says_why_they_stay(self, pulsar: FakePulsar, config: Path) -> None:
        """Drain, dry run and explain."""
        stays = f"{self.BUNDLE}: name-with-cluster"
        assert f"stays: {stays}: {WITH_CLUSTER}" in lbd("drain", pulsar.ids[0], "--config", config).stdout
        said = " ".join(lbd("dry-run", "--all", "--config", config).stdout.split())
        assert f"{stays}, {WITH_CLUSTER}" in said
        lbd("run", "--once", "--observe", "--config", config)
        said = " ".join(lbd("explain", self.BUNDLE, "--config", config).stdout.split())
        assert f"name-with-cluster: {WITH_CLUSTER}" in said


class TestAPolicyThatMatchesNobody:
    """``host:port`` written for ``host`` (apache/pulsar#15795, #20886): brokers answer 503 for its namespaces."""

    @pytest.fixture(autouse=True)
    def _policy(self, pulsar: FakePulsar) -> None:
        parameters = {"min_limit": "1", "usage_threshold": "80"}
        pulsar.policies.isolation = {
            "reporting": {
                "namespaces": ["t/n"],
                "primary": [pulsar.ids[1]],
                "secondary": [pulsar.ids[2]],
                "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
            }
        }

    def why(self, pulsar: FakePulsar) -> str:
        """The same sentence from every command."""
        patterns = f"'{pulsar.ids[1]}', '{pulsar.ids[2]}'; patterns are compared with a broker's host, without its port"
        return f"isolation policy reporting matches no active broker ({patterns})"

    def test_the_doctor_calls_it_a_problem(self, pulsar: FakePulsar, config: Path) -> None:
        """And exits with 4."""
        finding = findings(config)["isolation-policies"]
        assert (finding["level"], finding["seen"]) == ("problem", self.why(pulsar))
        assert lbd("doctor", "--config", config).exit_code == 4

    def test_no_broker_without_one_is_a_problem_too(self, pulsar: FakePulsar, config: Path) -> None:
        """Primaries of a policy are for its namespaces alone."""
        pulsar.policies.isolation["reporting"] |= {"namespaces": ["t/other"], "primary": [r"127\.0\.0\.\d"]}
        finding = findings(config)["isolation-policies"]
        why = "every active broker is primary of an isolation policy for others"
        assert (finding["level"], finding["seen"]) == ("problem", f"t/n: {why}")

    @pytest.mark.parametrize(
        ("words", "code"),
        [(("dry-run",), 0), (("drain", "HOT"), 4), (("unload", HOT[0], "--to", "COLD"), 4), (("place", HOT[0]), 0)],
    )
    def test_commands_name_the_policy(
        self, words: tuple[str, ...], code: int, pulsar: FakePulsar, config: Path
    ) -> None:
        """None of them takes the namespace for one that may go anywhere."""
        names = {"HOT": pulsar.ids[0], "COLD": pulsar.ids[2]}
        ended = lbd(*(names.get(word, word) for word in words), "--config", config)
        assert self.why(pulsar) in " ".join(ended.output.split())
        assert (ended.exit_code, "can do without" in ended.output) == (code, False)

    def test_turns_and_explain_name_it(self, pulsar: FakePulsar, config: Path) -> None:
        """For the namespace and for each bundle; the verdict is not that all is well."""
        turn = lbd("run", "--once", "--observe", "--config", config)
        assert f"No move: pool reporting: isolation-policy ({self.why(pulsar)})." in turn.output
        for what in ("t/n", HOT[0]):
            assert self.why(pulsar) in " ".join(lbd("explain", what, "--config", config).stdout.split())
        assert "none of them is barred" not in lbd("explain", "t/n", "--config", config).stdout
