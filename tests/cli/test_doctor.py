"""``lbd doctor``: each finding with what was seen, why it matters and what to do; nothing is changed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.model import Outcome, Result, Unload
from lbd.record.journal import Journal
from tests import fake_pulsar
from tests.fake_pulsar import HOT, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers, the second one leads."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


def doctor(pulsar: FakePulsar, folder: Path) -> dict[str, dict[str, Any]]:
    """The findings by what they are about; no request changed anything."""
    config = folder / "lbd.yaml"
    settings = {"admin_urls": pulsar.urls, "read_timeout_seconds": 2}
    config.write_text(yaml.safe_dump({"pulsar": settings, "state_dir": str(folder / "state")}))
    words = CliRunner().invoke(main, ["doctor", "--config", str(config)])
    found = CliRunner().invoke(main, ["doctor", "--config", str(config), "--format", "json"])
    assert (words.exit_code, found.exit_code) == (0, 0), found.output
    told = {one["about"]: one for one in json.loads(found.stdout)}
    assert all(one["seen"] in words.stdout and one["todo"] in words.stdout for one in told.values())
    assert {one.method for one in pulsar.requests} == {"GET"}
    return told


def journal(folder: Path) -> Journal:
    """The journal of an lbd that ran here."""
    (folder / "state").mkdir(exist_ok=True)
    return Journal(folder / "state" / "journal.jsonl", time.time)


def noted(pulsar: FakePulsar, folder: Path, leader: str | None) -> None:
    """A move after which the leader may still hold its destination."""
    lines = journal(folder)
    unload = Unload(HOT[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0)
    outcome = Outcome(unload, Result.FAILED, pulsar.ids[0], noted=pulsar.ids[2], leader=leader)
    lines.conclude(lines.intend(unload, 1), outcome)
    lines.close()


def test_a_healthy_cluster(pulsar: FakePulsar, tmp_path: Path):
    """Nothing to find, and no state directory is made."""
    assert doctor(pulsar, tmp_path) == {}
    assert not (tmp_path / "state").exists()


def shedding(pulsar: FakePulsar) -> None:
    pulsar.brokers[1].runtime = {"loadBalancerSheddingEnabled": "true"}


def leaderless(pulsar: FakePulsar) -> None:
    pulsar.leader = None


def silent(pulsar: FakePulsar) -> None:
    pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.ids[1])


def policies_hidden(pulsar: FakePulsar) -> None:
    pulsar.fault("namespaceIsolationPolicies", refused(500, "no"))


@pytest.mark.parametrize(
    ("wrong", "about", "seen"),
    [
        (shedding, "in-broker shedding", "on at 127.0.0.2:"),
        (leaderless, "leader", "no broker leads"),
        (silent, "report of 127.0.0.2:", "HTTP 500 (boom)"),
        (policies_hidden, "isolation policies", "cannot be read"),
    ],
)
def test_what_is_wrong_with_the_cluster(
    wrong: Callable[[FakePulsar], None], about: str, seen: str, pulsar: FakePulsar, tmp_path: Path
):
    """One finding each."""
    wrong(pulsar)
    ((found, finding),) = doctor(pulsar, tmp_path).items()
    assert found.startswith(about)
    assert seen in finding["seen"]


class TestNotes:
    """A leader's left-over whose destination may not be used any more."""

    def test_one_that_does_no_harm(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The noted broker is active and free for all."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        assert doctor(pulsar, tmp_path) == {}

    @pytest.mark.parametrize(("leader", "found"), [(1, 1), (None, 1), (0, 0)], ids=["leads", "unknown", "led once"])
    def test_the_destination_left(self, leader: int | None, found: int, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It matters as long as the leader is the one that noted it."""
        noted(pulsar, tmp_path, None if leader is None else pulsar.ids[leader])
        pulsar.gone.add(pulsar.ids[2])
        findings = doctor(pulsar, tmp_path)
        assert len(findings) == found
        assert all("has left the cluster" in finding["seen"] for finding in findings.values())

    @pytest.mark.parametrize(
        ("namespaces", "primary", "words"),
        [("t/n", "127[.]0[.]0[.]1", "may forbid to t/n"), ("x/.*", "127[.]0[.]0[.]3", "is primary of")],
    )
    def test_the_destination_became_forbidden(
        self, namespaces: str, primary: str, words: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """An isolation policy came after the move."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        pulsar.isolation = {"p": {"namespaces": [namespaces], "primary": [primary], "secondary": []}}
        assert words in doctor(pulsar, tmp_path)[f"note on {HOT[0]}"]["seen"]


def test_moves_without_an_outcome(pulsar: FakePulsar, tmp_path: Path):
    """While no lbd runs that would close them; and lines that cannot be read."""
    lines = journal(tmp_path)
    lines.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0), 1)
    lines.close()
    assert HOT[0] in doctor(pulsar, tmp_path)["journal"]["seen"]


def test_a_take_over(pulsar: FakePulsar, tmp_path: Path):
    """Since when, and when it was last seen off; one that was not finished is a warning."""
    (tmp_path / "state").mkdir()
    note = {
        "cluster": "c",
        "phase": "taken",
        "before": None,
        "ran": {},
        "at": 1e9,
        "asked_at": 1e9,
        "seen_at": 1e9 + 60,
    }
    (tmp_path / "state" / "take-over.json").write_text(json.dumps(note))
    taken = doctor(pulsar, tmp_path)["take-over"]
    (tmp_path / "state" / "take-over.json").write_text(json.dumps({**note, "phase": "taking"}))
    assert taken["seen"] == (
        "shedding off since 2001-09-09T01:46:40+00:00 by lbd, last seen off 2001-09-09T01:47:40+00:00"
    )
    assert doctor(pulsar, tmp_path)["take-over"]["level"] == "warning"
