"""A state directory that a backup brought back: the cluster shows what its journal does not know, and all rests."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lbd.clock import Moment, Timebase
from lbd.daemon import engine as live
from lbd.daemon.unknown_moves import OWNERS
from lbd.reason import Reason
from lbd.store import database
from lbd.store.control import Control, RequestResult, UnloadRequest
from lbd.store.database import STORE_NAME, Database
from lbd.store.drains import Drain, Drains
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.simulate.fake_pulsar import FakePulsar
    from lbd.store.control import Request

COOL_DOWN_SECONDS = 30 * 60.0
AWAY_SECONDS = 600.0


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    """A hot broker, a warm and a cold one."""
    with fakes.hot() as made:
        yield made


class Site:
    """One lbd's machine: its state directory, and a backup of that."""

    def __init__(self, cluster: FakePulsar, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cluster, self.folder, self.state, self.patch = cluster, folder, folder / "state", patch

    def run(self, **changes: Any) -> Any:
        """An lbd on it."""
        return fakes.run(self.cluster, self.state, self.patch, fakes.settings(self.cluster, self.state, **changes))

    def back_up(self) -> None:
        """As it is now, while no lbd runs."""
        shutil.copytree(self.state, self.folder / "backup")

    def restore(self, name: str = "") -> None:
        """The whole backup, or one file of it; lbd was off for ten minutes by then."""
        self.cluster.forward(AWAY_SECONDS)
        if name:
            shutil.copy(self.folder / "backup" / name, self.state / name)
            return
        shutil.rmtree(self.state)
        shutil.copytree(self.folder / "backup", self.state)


@pytest.fixture
def site(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An lbd that ran, was backed up, and has moved bundles since."""
    found = Site(cluster, tmp_path, monkeypatch)
    with found.run(mode="observe") as lbd:
        lbd.turn()
    found.back_up()
    with found.run() as lbd:
        assert lbd.until_tried()
    return found


@pytest.mark.parametrize("name", ["", STORE_NAME], ids=["the whole directory", "the store alone"])
def test_a_restored_backup_is_noticed_and_everything_rests(site: Site, name: str):
    """For the length of a cool-down, and then it goes on; status and log have one sentence with what to do."""
    moved = {move.bundle for move in fakes.history(site.state)}
    site.restore(name)
    owners = site.cluster.owners()
    with site.run() as lbd:
        record = lbd.turn()

        assert record.plan.hold is not None
        assert record.plan.hold[0] is Reason.CHANGED_HANDS
        assert f"{len(moved)} bundle" in record.plan.hold[1]
        assert "an older backup was restored, or others moved them; all rests until " in record.plan.hold[1]
        assert any("an older backup was restored" in warning for warning in lbd.engine.warnings)
        lbd.turns(int(COOL_DOWN_SECONDS / fakes.TURN_SECONDS) - 1)
        assert site.cluster.owners() == owners
        assert lbd.turn().plan.hold is None


def test_it_rests_on_after_another_restart(site: Site):
    """What was noticed is kept, though the owners of now are known by then."""
    site.restore()
    for _ in range(2):
        with site.run() as lbd:
            assert lbd.turn().plan.hold is not None
        site.cluster.forward(AWAY_SECONDS)


def test_what_its_own_journal_has_is_no_news(site: Site):
    """lbd was off for a while and nothing was restored: its moves are known."""
    site.cluster.forward(AWAY_SECONDS)
    with site.run() as lbd:
        assert lbd.turn().plan.hold is None


def test_what_the_journal_learns_later_is_no_news_either(site: Site, monkeypatch: pytest.MonkeyPatch):
    """A standby looks at the cluster before it has read in the leader's topic what the leader moved."""
    site.restore()
    with site.run() as lbd:
        moves = lbd.engine._real.unknown_moves
        assert lbd.turn().plan.hold is not None
        learned = dict.fromkeys(site.cluster.owners(), site.cluster.now() - AWAY_SECONDS)
        monkeypatch.setattr(moves, "_attempted_at", lambda: learned)
        assert lbd.turn().plan.hold is None


def test_a_broker_that_restarted_meanwhile_explains_its_bundles(site: Site):
    """They went when it did, and nobody moved them."""
    target = site.cluster.brokers[1]
    site.cluster.leave(target)
    site.cluster.forward(30)
    site.cluster.start(target)
    site.cluster.forward(AWAY_SECONDS)
    with site.run() as lbd:
        lbd.turn()
        assert lbd.engine._real.unknown_moves.hold(site.cluster.now()) is None


def test_a_drain_that_the_backup_brings_back_waits(site: Site):
    """It was released after the backup; whoever reads the status has half an hour to release it again."""
    site.restore()
    target = site.cluster.brokers[2]
    Drains(site.state).begin(Drain(target, site.cluster.now() - AWAY_SECONDS, None, "ann"))
    before = owned(site.cluster, target)
    with site.run() as lbd:
        for _ in range(5):
            lbd.engine.go_on()
            lbd.turn()
        status = lbd.engine.draining.hold()
        assert (before > set(), owned(site.cluster, target)) == (True, before)
        assert status is not None
        assert f"{target} is being drained, 0 bundles so far; it waits: changed-hands" in status[1]
        Control(site.state, lbd.engine.orders).go_on(site.cluster.now())
        site.cluster.forward(10)
        lbd.engine.go_on()
        lbd.engine.wait(60)
        assert owned(site.cluster, target) < before


def owned(cluster: FakePulsar, broker: str) -> set[str]:
    """The bundles of a broker."""
    return {bundle for bundle, owner in cluster.owners().items() if owner == broker}


@pytest.mark.parametrize("override", [None, "I moved them myself"])
def test_a_person_may_move_on(site: Site, override: str | None):
    """An order with a reason passes it, one without does not; a resume ends it."""
    site.restore()
    with site.run() as lbd:
        lbd.turn()
        results: list[RequestResult] = []
        lbd.engine.requests.deliver = lambda _, result: results.append(result)
        now, bundle = site.cluster.now(), min(owned(site.cluster, site.cluster.brokers[0]))
        request: Request = UnloadRequest("u", bundle, None, override, "ann", now, now + 60)
        lbd.engine._dispatcher.begin(request, lbd.engine._real.beside)
        lbd.engine.wait(60)
        assert [result.exit_code for result in results] == [0 if override else 4]
        Control(site.state, lbd.engine.orders).go_on(site.cluster.now())
        assert lbd.turn().plan.hold is None


def test_owners_that_cannot_be_read_are_a_warning(site: Site):
    """Nothing is held by them; the next start would not notice a backup, and lbd says so now."""
    with closing(Database.open(site.state / STORE_NAME)) as store:
        store.put({OWNERS: b"junk"})
    with site.run() as lbd:
        assert any("the owners of bundles cannot be read" in warning for warning in lbd.engine.warnings)
        assert lbd.turn().plan.hold is None
    assert database.damage(site.state / STORE_NAME) == ""


@pytest.mark.parametrize("step_seconds", [3600.0, -60.0], ids=["ahead", "back"])
def test_a_clock_that_is_set_ends_no_rest(site: Site, step_seconds: float) -> None:
    """A machine that came from a backup has its clock set right a moment after the start."""
    site.restore()
    ahead = [0.0]
    timebase = Timebase(
        lambda: site.cluster.now() + ahead[0], boot=lambda: Moment("this-start", site.cluster.now() - 1e9)
    )
    with live.engine(fakes.settings(site.cluster, site.state), timebase=timebase) as engine:
        engine.turn()
        assert engine.order_hold() is not None
        ahead[0] = step_seconds
        found = engine.order_hold()
        assert found is not None
        assert found[0] is Reason.CHANGED_HANDS
