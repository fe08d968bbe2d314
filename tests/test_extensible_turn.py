"""Whole turns under the extensible load manager: HTTP to a fake Pulsar, load data from topics that it tells them on."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.daemon.engine import engine
from lbd.doctor.checklist import examine
from lbd.model import Result
from lbd.observe import reports
from lbd.operations.drain import show_drain, show_fill
from lbd.operations.dry import dry_run
from lbd.pulsar import load_topics
from lbd.pulsar.client import Message
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES
from lbd.reason import Reason
from tests import fake_pulsar
from tests.api.conftest import listening
from tests.fake_pulsar import EXTENSIBLE, HOT, FakePulsar
from tests.test_turn import held_by, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.turn.parts import TurnResult

NOBODYS = "t/new/0x00000000_0xffffffff"
TOLD = 5
"""Of the hot broker's eight bundles."""

STILL = {"low_threshold": 95, "high_threshold": 99}


@dataclass
class Brokers:
    """A cluster of the extensible manager; ``silent`` brokers tell nothing."""

    pulsar: FakePulsar
    silent: set[str] = field(default_factory=set)
    most: int = TOLD
    connections: int = 0

    def messages(self) -> Iterator[Message | None]:
        """What they tell, over and over."""
        for number in cycle(range(len(self.pulsar.brokers))):
            broker = self.pulsar.brokers[number].id
            if broker in self.silent:
                yield None
                continue
            found = self.pulsar.report(broker)
            top = [{"bundleName": name, "stats": stats} for name, stats in found["lastStats"].items()]
            yield self._message(BROKER_LOAD, broker, {**found, "topics": found["numTopics"]})
            yield self._message(TOP_BUNDLES, broker, {"topBundlesLoadData": top[: self.most]})

    @staticmethod
    def _message(topic: str, broker: str, value: dict[str, Any]) -> Message:
        return Message(topic, broker, json.dumps(value).encode())

    def listening(self, _: object, topics: Sequence[str]) -> Listening:
        """In place of the client library's connection."""
        assert set(topics) == {BROKER_LOAD, TOP_BUNDLES}
        self.connections += 1
        return Listening(self.messages())


@dataclass
class Listening:
    """A connection that never breaks."""

    messages: Iterator[Message | None]

    def receive(self, _: float) -> Message | None:
        """The next one, a moment later."""
        time.sleep(0.005)
        return next(self.messages)

    def lost(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    """Broker 1 is hot with eight equal bundles and tells of five of them, broker 3 is cold."""
    with fake_pulsar.hot_broker() as pulsar:
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": EXTENSIBLE, "statsUpdateFrequencyInSecs": "1"}
        found = Brokers(pulsar)
        monkeypatch.setattr(load_topics, "Listening", found.listening)
        monkeypatch.setattr(reports, "HEARD_SECONDS", 1.0)
        monkeypatch.setattr(reports, "SILENT_SECONDS", 1.0)
        yield found


def chosen(brokers: Brokers, folder: Path, **changes: Any) -> Settings:
    """One hit is enough, and where the topics are is known."""
    pulsar = {"admin_urls": brokers.pulsar.urls, "service_url": "pulsar://127.0.0.1:6650"}
    return settings(brokers.pulsar, folder, pulsar=pulsar, **changes)


def once(found: Settings) -> TurnResult:
    """One live turn."""
    with engine(found) as balancer:
        return balancer.once()


def test_a_hot_broker_is_relieved(brokers: Brokers, tmp_path: Path):
    """The same turn as under the modular manager, with the bundles that are told of."""
    pulsar = brokers.pulsar
    told = set(list(pulsar.report(pulsar.ids[0])["lastStats"])[:TOLD])
    record = once(chosen(brokers, tmp_path))
    moved = {outcome.unload.bundle for outcome in record.moves.outcomes}
    assert record.error is None
    assert record.sentence == "Moved 3 of 3 bundles: 3 landed."
    assert {(one.result, one.owner, one.noted) for one in record.moves.outcomes} == {
        (Result.LANDED, pulsar.ids[2], None)
    }
    assert {bundle for bundle, owner in pulsar.owners.items() if owner == pulsar.ids[2]} >= moved
    assert moved < told
    assert pulsar.asked("/schemas/") == []


def test_what_is_not_told_of_is_named_and_stays(brokers: Brokers, tmp_path: Path):
    """Three of the hot broker's bundles have no statistics; however much is to go, they are not taken."""
    record = dry_run(chosen(brokers, tmp_path, avg_shedder={"max_unload_percentage": 1.0, "hit_count_high": 1}))
    assert record.plan.counts[Reason.NO_STATISTICS.label] == len(HOT) - TOLD
    assert len(record.plan.unloads) <= TOLD


def test_the_brokers_own_shedder_holds(brokers: Brokers, tmp_path: Path):
    """TransferShedder on: nothing moves, as under any other manager."""
    for broker in brokers.pulsar.brokers:
        broker.runtime["loadBalancerSheddingEnabled"] = "true"
    record = once(chosen(brokers, tmp_path))
    assert held_by(record) is Reason.IN_BROKER_SHEDDING
    assert record.moves.outcomes == ()


def test_a_silent_broker_has_no_report(brokers: Brokers, tmp_path: Path):
    """It is named with the reason, and is no destination."""
    silent = brokers.pulsar.ids[2]
    brokers.silent.add(silent)
    record = once(chosen(brokers, tmp_path))
    missing = {skip.what: skip.detail for skip in record.skips if skip.reason is Reason.REPORT_MISSING}
    assert list(missing) == [silent]
    assert "sent no load data in the " in missing[silent]
    assert silent not in {unload.destination for unload in record.plan.unloads}


def test_the_doctor_counts_what_is_told(brokers: Brokers, tmp_path: Path):
    """A broker that tells as many as it may has perhaps more to tell; the setting is named."""
    for broker in brokers.pulsar.brokers:
        broker.runtime["loadBalancerMaxNumberOfBundlesInBundleLoadReport"] = str(TOLD)
    found = {one.check: one for one in examine(chosen(brokers, tmp_path)).findings}
    hot = brokers.pulsar.ids[0]
    assert found["load-data"].seen == "heard of 3 brokers at pulsar.service_url"
    assert found["told-bundles"].level == "warning"
    assert found["told-bundles"].seen == (
        f"7 of 10 bundles, of each broker the {TOLD} largest that carry traffic; {hot} may carry more"
    )
    assert found["told-bundles"].todo.endswith("loadBalancerMaxNumberOfBundlesInBundleLoadReport --value 100")
    assert found["destination-key"].level == "ok"
    assert "avg-shedder" not in found


def test_the_doctor_takes_no_bundle_for_the_only_one_that_is_told_of(brokers: Brokers, tmp_path: Path):
    """The hot broker tells of one of eight; the others are counted, and it is said that they are not told of."""
    brokers.most = 1
    found = {one.check: one for one in examine(chosen(brokers, tmp_path)).findings}
    assert brokers.pulsar.ids[0] not in found["sole-bundles"].seen
    assert "10 bundles with traffic on 3 brokers, 7 of which no broker reports" in found["bundle-count"].seen


def test_what_is_kept_tells_why_a_bundle_stayed(brokers: Brokers, tmp_path: Path):
    """By hand, too, a bundle that no broker tells of is not moved, and it is said which setting is behind it."""
    pulsar = brokers.pulsar
    untold = list(pulsar.report(pulsar.ids[0])["lastStats"])[-1]
    command = ["unload", untold, "--apply", "--to", pulsar.ids[2], "--config", str(_config(brokers, tmp_path))]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 4
    assert "no-statistics" in found.output
    assert "loadBalancerMaxNumberOfBundlesInBundleLoadReport" in " ".join(found.output.split())
    assert pulsar.owners[untold] == pulsar.ids[0]


def test_a_drain_moves_what_is_not_told_of(brokers: Brokers, tmp_path: Path):
    """All of it, each as the average bundle of its broker: the small bundles are why a drain would never end."""
    pulsar = brokers.pulsar
    command = ["drain", pulsar.ids[0], "--config", str(_config(brokers, tmp_path))]
    shown = json.loads(CliRunner().invoke(main, [*command, "--format", "json"]).stdout)
    assert shown["stay"] == []
    assert {move["bundle"] for move in shown["unloads"]} == {*HOT}

    found = CliRunner().invoke(main, [*command, "--apply", "--reason", "new disk"])
    assert found.exit_code == 0
    assert pulsar.ids[0] not in {owner for bundle, owner in pulsar.owners.items() if bundle in HOT}


def test_a_daemon_that_listens_looks_by_what_it_heard(brokers: Brokers, tmp_path: Path):
    """What its API shows of a drain or a fill neither waits nor connects anew."""
    found, ids = chosen(brokers, tmp_path), brokers.pulsar.ids
    with engine(found) as balancer:
        balancer.once()
        before = brokers.connections
        looks = show_drain(found, ids[1], balancer.looking), show_fill(found, ids[2], balancer.looking)
        assert [look.look.observation.snapshot.brokers.ids for look in looks] == [tuple(sorted(ids))] * 2
        assert brokers.connections == before


def test_settings_read_again_leave_heard_what_was_heard(brokers: Brokers, tmp_path: Path):
    """A broker may be silent for a quarter of an hour; who waits for all of them anew does nothing meanwhile."""
    found = chosen(brokers, tmp_path)
    with engine(found) as balancer:
        balancer.once()
        before = brokers.connections
        balancer.take(found.model_copy(update={"interval_seconds": 30.0}))
        record = balancer.turn()
        assert (record.error, brokers.connections) == (None, before)
        assert balancer.settings.interval_seconds == 30.0


def test_the_snapshot_counts_bundles_that_no_broker_tells_of(brokers: Brokers, tmp_path: Path):
    """They are there, also the two heartbeats of each broker; what they carry is not known, which is not nothing."""
    with listening(chosen(brokers, tmp_path, api={"listen": "127.0.0.1:0"}, avg_shedder=STILL)) as api:
        api.engine.once()
        api.turn()
        told = api.get("/v1/snapshot").json()
    assert told["bundles_all"] == len(told["bundles"]) == len(HOT) + 2 + 2 * len(brokers.pulsar.ids)
    hot = [one for one in told["bundles"] if one["bundle"] in HOT]
    for key in ("throughput_in", "topics", "producers", "consumers"):
        assert [one[key] is not None for one in hot] == [True] * TOLD + [False] * (len(HOT) - TOLD), key


def test_a_fill_leaves_what_is_not_told_of(brokers: Brokers, tmp_path: Path):
    """It may give any bundle, so it gives none of which nobody knows what it carries."""
    pulsar = brokers.pulsar
    told = set(list(pulsar.report(pulsar.ids[0])["lastStats"])[:TOLD])
    command = ["fill", pulsar.ids[2], "--format", "json", "--config", str(_config(brokers, tmp_path))]
    document = json.loads(CliRunner().invoke(main, command).stdout)
    moved = {move["bundle"] for move in document["unloads"]}
    assert moved
    assert moved <= told


def test_nothing_is_placed_where_lbd_cannot_choose(brokers: Brokers, tmp_path: Path):
    """That manager takes whom it likes, whoever is asked: refused, with what works."""
    brokers.pulsar.own(None, {NOBODYS: 0.0})
    found = CliRunner().invoke(main, ["place", NOBODYS, "--apply", "--config", str(_config(brokers, tmp_path))])
    assert found.exit_code == 4
    assert "the extensible load manager chooses the owner" in " ".join(found.output.split())
    assert brokers.pulsar.owners[NOBODYS] is None


def _config(brokers: Brokers, folder: Path) -> Path:
    pulsar = {"admin_urls": brokers.pulsar.urls, "service_url": "pulsar://127.0.0.1:6650"}
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({"pulsar": pulsar, "state_dir": str(folder / "state")}))
    return path
