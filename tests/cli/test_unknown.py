"""Unknown is never no: what no broker has answered ends in a refusal that says so, the same from every command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.pulsar.admin import unsupported_versions
from lbd.simulate.faults import page
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
    """What the doctor says, by check."""
    said = json.loads(lbd("doctor", "--format", "json", "--config", config).stdout)
    return {finding["check"]: finding for finding in said["findings"]}


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
