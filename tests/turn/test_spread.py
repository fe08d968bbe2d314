"""Turns with ``spread.by``: which bundles go, what is read for it, and what a person is told."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.daemon.engine import engine
from lbd.operations.dry import dry_run
from lbd.simulate.answers import refused
from lbd.spread import members_in
from tests import fake_pulsar
from tests.fake_pulsar import COLD, HOT, WARM
from tests.fake_splits import SplittingPulsar
from tests.test_turn import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.model import Unload

TOPIC = "persistent://t/n/events"
PARTITIONS = 36
"""By their hashes 20 of these are in bundles of the hot broker, and 8 on each other one."""


@contextmanager
def topic_on_hot_broker() -> Iterator[SplittingPulsar]:
    """The hot broker of ``fake_pulsar.py``, and a topic of which it has more than half."""
    with fake_pulsar.started(kind=SplittingPulsar) as cluster:
        for broker, rates in zip(cluster.ids, (dict.fromkeys(HOT, 1000.0), {WARM: 4000.0}, {COLD: 100.0}), strict=True):
            cluster.own(broker, rates)
        cluster.sample(80.0, 45.0, 10.0)
        cluster.rated = {f"{TOPIC}-partition-{at}": None for at in range(PARTITIONS)}
        yield cluster


@pytest.fixture
def cluster() -> Iterator[SplittingPulsar]:
    """A fresh one for each test."""
    with topic_on_hot_broker() as started:
        yield started


def left(unloads: tuple[Unload, ...]) -> int:
    """Partitions on the hot broker after a plan."""
    return 20 - sum(members_in(one.bundle, TOPIC, PARTITIONS) for one in unloads)


def planned(cluster: SplittingPulsar, folder: Path, **spread: Any) -> tuple[Unload, ...]:
    """The plan of a dry-run."""
    return dry_run(settings(cluster, folder, spread=spread)).plan.unloads


class TestPlan:
    def test_partitions_that_are_together_go(self, cluster: SplittingPulsar, tmp_path: Path) -> None:
        """As many bundles as without, and the hot broker is named in the reason."""
        plain, found = planned(cluster, tmp_path), planned(cluster, tmp_path, by="topic")

        assert (len(plain), len(found)) == (3, 3)
        assert (left(plain), left(found)) == (15, 14)
        assert any(f"{cluster.ids[0]} has 20 of {TOPIC}, its share is 12.0" in one.reason for one in found)

    @pytest.mark.parametrize("changes", [{"profile": "stock"}, {"spread": {"by": "none"}}])
    def test_off_it_asks_for_nothing(self, changes: dict[str, Any], cluster: SplittingPulsar, tmp_path: Path) -> None:
        """Nor with Pulsar's own rule."""
        usual = {"spread": {"by": "topic"}} if "profile" in changes else {}
        found = dry_run(settings(cluster, tmp_path, **usual, **changes))

        assert found.plan.unloads
        assert cluster.asked("/namespaces/t/n/topics") == []

    def test_names_that_cannot_be_read_change_nothing(self, cluster: SplittingPulsar, tmp_path: Path) -> None:
        """The plan is the one without a spread."""
        cluster.fault("/topics", refused(403, "Forbidden"))

        assert planned(cluster, tmp_path, by="topic") == planned(cluster, tmp_path)

    def test_bundles_of_a_namespace_need_no_request(self, cluster: SplittingPulsar, tmp_path: Path) -> None:
        """The names of bundles have it."""
        shop = [name.replace("t/n/", "a/shop/") for name in HOT]
        cluster.own(cluster.ids[0], dict.fromkeys(shop, 1000.0))
        cluster.own(cluster.ids[2], {shop[0].replace("0x00000000_0x10000000", "0x80000000_0xffffffff"): 100.0})
        found = planned(cluster, tmp_path, by="namespace")

        assert {one.bundle.rpartition("/")[0] for one in found} == {"a/shop", "t/n"}
        assert cluster.asked("/topics") == []


class TestLive:
    def test_the_list_is_read_beside_the_turns_once(self, cluster: SplittingPulsar, tmp_path: Path) -> None:
        """The turn after it goes by it, and explain names the broker and the cost of a bundle."""
        chosen = settings(cluster, tmp_path, spread={"by": "topic"}, avg_shedder={"hit_count_high": 2})
        with engine(chosen) as balancer:
            for more in range(2):
                cluster.sample(80.0 + more, 45.0 + more, 10.0 + more)
                record = balancer.turn()
                balancer.wait()
                for thread in threading.enumerate():
                    if thread.name == "lbd-topics":
                        thread.join()
        assert len(cluster.asked("/namespaces/t/n/topics")) == 1
        assert (len(record.plan.unloads), left(record.plan.unloads)) == (3, 14)

        gone = {unload.bundle for unload in record.plan.unloads}
        stays = next(one for one in HOT if one not in gone and members_in(one, TOPIC, PARTITIONS))
        has = members_in(stays, TOPIC, PARTITIONS)
        crowd = f"it has 20 of the 36 partitions of {TOPIC}, its share is 12"
        assert crowd in explained(tmp_path, cluster.ids[0])
        assert f"its broker: {crowd}; it has {has} of these; spread cost" in explained(tmp_path, stays)
        assert "spread cost" not in explained(tmp_path, WARM)


def explained(folder: Path, what: str) -> str:
    """What ``lbd explain`` says of a broker or bundle, as one line."""
    environment = {"LBD_STATE_DIR": str(folder / "state")}
    found = CliRunner().invoke(main, ["explain", what], env=environment, catch_exceptions=False)
    return " ".join(found.stdout.split())
