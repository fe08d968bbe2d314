"""Unloads by hand, in this process: every request ends in its own answer, and leaves what a turn would leave."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from lbd.config import Settings
from lbd.daemon.engine import Engine, engine
from lbd.daemon.standalone import working
from lbd.errors import UsageError
from lbd.model import Result, Unload
from lbd.permit.budget import LastHour
from lbd.simulate.answers import refused
from lbd.simulate.fake_pulsar import FakePulsar as FakeCluster
from lbd.store.control import Control, Pause, PlaceRequest, RequestResult, UnloadRequest
from lbd.store.journal import Journal
from lbd.store.state import MEMORY, StateDir, TurnMemory
from tests import test_turn
from tests.builders import put_value, state_begun
from tests.daemon.alone import done
from tests.fake_pulsar import HOT
from tests.simulate import fakes
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


BURNING = ("a", 16), ("b", 4)


def settings(pulsar: FakePulsar, folder: Path, **guardrails: Any) -> Settings:
    """The strategy wants nothing by itself."""
    shedder = {"low_threshold": 95, "high_threshold": 99}
    return test_turn.settings(pulsar, folder, avg_shedder=shedder, guardrails=guardrails)


def request(pulsar: FakePulsar, number: int = 0, seconds: float = 60.0, **changes: Any) -> UnloadRequest:
    """One hot bundle to the cold broker."""
    now = time.time()
    values = {"id": f"r{number}", "bundle": HOT[number], "destination": pulsar.ids[2], "override": None, "by": "ann"}
    return UnloadRequest(**{**values, "at": now, "expires_at": now + seconds, **changes})


def to_settle(folder: Path) -> dict[str, int]:
    """How many fresh samples each broker must still show, as kept on disk."""
    return {broker: sample.to_settle for broker, sample in StateDir(folder / "state").load().samples.items()}


class TestWithoutADaemon:
    def test_touched_brokers_settle(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """As after any other move, also where it landed instead."""
        pulsar.steals[HOT[0]] = [pulsar.ids[1]]
        answer = done(settings(pulsar, tmp_path), request(pulsar))
        assert (answer.exit_code, answer.owner) == (5, pulsar.ids[1])
        assert to_settle(tmp_path) == dict.fromkeys(pulsar.ids, 2)

    def test_a_changed_membership_is_waited_for_once(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The time runs from the first look, not from the last."""
        chosen = settings(pulsar, tmp_path, membership_settle_seconds=2)
        state_begun(chosen.state_dir).save(
            TurnMemory(written_at=time.time(), members=pulsar.ids[:2], members_since=1.0)
        )
        first = done(chosen, request(pulsar))
        time.sleep(2.1)
        second = done(chosen, request(pulsar))
        assert (first.exit_code, "membership-changed" in first.sentence) == (4, True)
        assert second.exit_code == 0, second

    def test_what_no_report_shows_yet_counts_at_its_destination(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The warm broker's report says 45 points after each of three moves of 10 and more: one too many."""
        chosen = settings(pulsar, tmp_path)
        told = [done(chosen, request(pulsar, number, destination=pulsar.ids[1])) for number in range(3)]
        assert [answer.exit_code for answer in told] == [0, 0, 4]
        assert "would reach 85.0 (+26.7 by moves of late that its report does not show yet)" in told[2].sentence

    def test_an_open_move_of_the_same_bundle_is_not_its_answer(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A killed lbd had moved it elsewhere: that is closed first, and the request judged by itself."""
        chosen = settings(pulsar, tmp_path)
        lines = Journal(state_begun(chosen.state_dir).store, lambda: time.time() - 100)
        lines.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[1], 1.0, 1.0), 1)
        lines.close()
        pulsar.owners[HOT[0]] = pulsar.ids[1]
        answer = done(chosen, request(pulsar))
        assert answer.exit_code == 4
        assert "cool-down" in answer.sentence


@pytest.fixture
def balancer(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Engine]:
    """A live lbd whose answers are kept in a mapping."""
    with engine(settings(pulsar, tmp_path)) as found:
        yield found


def answers_of(found: Engine) -> dict[str, RequestResult]:
    """Answers as they are given."""
    told: dict[str, RequestResult] = {}
    found.requests.deliver = told.__setitem__
    return told


class TestBesideTheTurns:
    def served(self, found: Engine, times: int = 1) -> None:
        for _ in range(times):
            found.serve()
            found.wait()

    def test_one_after_the_other(self, balancer: Engine, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Each has its own answer; the turns hear of both moves, too."""
        told = answers_of(balancer)
        balancer.requests.submit(request(pulsar, 0))
        balancer.requests.submit(request(pulsar, 1))
        balancer.turn()
        self.served(balancer, 2)
        assert {name: answer.exit_code for name, answer in told.items()} == {"r0": 0, "r1": 0}
        assert len(balancer.turn().moves.outcomes) == 2
        assert set(to_settle(tmp_path).values()) == {0, 2}

    def test_what_no_turn_has_heard_of_yet_counts_at_its_destination(
        self, balancer: Engine, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """As without a daemon, between two turns as well as after the next one."""
        told = answers_of(balancer)
        balancer.turn()
        for number in range(3):
            balancer.requests.submit(request(pulsar, number, destination=pulsar.ids[1]))
        self.served(balancer, 3)
        assert [answer.exit_code for answer in told.values()] == [0, 0, 4]
        balancer.turn()
        balancer.requests.submit(request(pulsar, 3, destination=pulsar.ids[1]))
        self.served(balancer)
        assert told["r3"].exit_code == 4, told["r3"]

    def test_one_that_has_expired_meanwhile_is_not_begun(
        self, balancer: Engine, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """It waited behind an older one, and whoever asked has stopped waiting."""
        told = answers_of(balancer)
        balancer.requests.submit(request(pulsar, 0))
        balancer.requests.submit(request(pulsar, 1, seconds=0.5))
        self.served(balancer)
        time.sleep(0.5)
        self.served(balancer)
        assert told["r0"].exit_code == 0
        assert (told["r1"].exit_code, "expired" in told["r1"].sentence) == (4, True)
        assert pulsar.owners[HOT[1]] == pulsar.ids[0]

    def test_a_memory_that_cannot_be_read_is_told(self, balancer: Engine, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No request stays without an answer."""
        told = answers_of(balancer)
        put_value(tmp_path / "state", MEMORY, b"half")
        balancer.requests.submit(request(pulsar))
        self.served(balancer)
        assert (told["r0"].exit_code, "memory cannot be read" in told["r0"].sentence) == (2, True)

    def test_an_lbd_that_only_observes_refuses(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Also while a killed one has left a move open, which it does not close."""
        chosen = settings(pulsar, tmp_path)
        lines = Journal(state_begun(chosen.state_dir).store, time.time)
        lines.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[1], 1.0, 1.0), 1)
        lines.close()
        with engine(chosen.model_copy(update={"mode": "observe"})) as found:
            told = answers_of(found)
            found.requests.submit(request(pulsar))
            self.served(found)
        assert (told["r0"].exit_code, "only observes" in told["r0"].sentence) == (4, True)


def test_a_burner_beside_the_source_holds_no_harmless_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nearly all of its 88 points are not its traffic's; one bundle after the other goes where lbd picks."""
    load = [{"name": name, "brokers": [name], "mib_per_second": 8, "bundles": number} for name, number in BURNING]
    brokers = [{"id": "a", "background": 80}, {"id": "b"}, {"id": "c"}]
    with FakeCluster(*begun(brokers=brokers, load=load)) as cluster:
        chosen = fakes.settings(cluster, tmp_path, avg_shedder={"low_threshold": 95, "high_threshold": 99})
        with fakes.run(cluster, tmp_path, monkeypatch, chosen) as lbd:
            lbd.turns(20)
            told = answers_of(lbd.engine)
            hot = sorted(bundle for bundle, owner in cluster.owners().items() if owner == cluster.brokers[0])
            for bundle in hot:
                lbd.engine.by_hand(UnloadRequest(bundle, bundle, None, "burner", "ann", 0.0, 1e12))
    assert [answer.sentence for answer in told.values() if answer.exit_code == 4] == []
    assert len(told) == 16


def test_a_turn_that_fails_gives_up_what_was_planned(pulsar: FakePulsar, tmp_path: Path):
    """A cluster that cannot be looked at is not moved on: the unload in flight ends, the rest is not begun."""
    values = settings(pulsar, tmp_path, unload_spacing_seconds=60).model_dump()
    chosen = Settings.model_validate({**values, "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1}})
    with engine(chosen) as found:
        assert len(found.turn().plan.unloads) == 3
        while len(pulsar.asked("/unload", "PUT")) < 2:
            time.sleep(0.01)
        pulsar.fault("load-report", refused(500, "boom"))
        assert found.turn().error is not None
        assert found.wait(60)
        record = found.turn()
    assert len(record.moves.skips) == 2
    assert "boom" in record.moves.skips[0].detail


def reloaded(found: Engine, _: Path) -> None:
    """Other settings may exclude what was planned under the old ones."""
    found.take(found.settings)


def paused(_: Engine, folder: Path) -> None:
    """By a person, who wants nothing more to move."""
    Control(folder / "state").pause(Pause(time.time(), None, "enough", "bob"))


@pytest.mark.parametrize(
    ("happens", "why"),
    [(reloaded, "not asked for: the settings were read again"), (paused, "by bob until lbd resume: enough")],
)
def test_what_was_planned_is_given_up(
    happens: Callable[[Engine, Path], None], why: str, pulsar: FakePulsar, tmp_path: Path
):
    """The unload in flight ends; what was not begun is told as not sent."""
    values = settings(pulsar, tmp_path, unload_spacing_seconds=60).model_dump()
    chosen = Settings.model_validate({**values, "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1}})
    go_on = pulsar.hold("/unload", pulsar.ids[0])
    with engine(chosen) as found:
        found.turn()
        while not pulsar.asked("/unload", "PUT"):
            time.sleep(0.01)
        happens(found, tmp_path)
        found.turn()
        go_on.set()
        assert found.wait(60)
        told = [skip.detail for _ in range(2) for skip in found.turn().moves.skips]
    assert told == [why] * 2


def full(*_: object) -> None:
    """A journal on a full disk."""
    raise UsageError("lbd.db: cannot be written: No space left on device")


class TestPlacing:
    def asked(self, *targets: str, seconds: float = 60.0) -> PlaceRequest:
        now = time.time()
        return PlaceRequest("p0", list(targets), "rendezvous", "ann", now, now + seconds)

    def unowned(self, pulsar: FakePulsar) -> list[str]:
        names = [f"t/new/0x{half}" for half in ("00000000_0x80000000", "80000000_0xffffffff")]
        pulsar.own(None, dict.fromkeys(names, 0.0))
        return names

    def test_the_listener_hears_of_each_bundle(self, balancer: Engine, pulsar: FakePulsar) -> None:
        """As of a move: the daemon's log and its watchdog know that something goes on."""
        heard: list[Any] = []
        told, names = answers_of(balancer), self.unowned(pulsar)
        balancer.on_end = heard.append
        balancer.by_hand(self.asked("t/new"))
        assert told["p0"].exit_code == 0
        assert [one.unload.bundle for one in heard] == names

    def test_it_is_no_move_of_the_last_hour(self, balancer: Engine, pulsar: FakePulsar) -> None:
        """The bundles rest, and ``lbd status`` counts no unload."""
        self.unowned(pulsar)
        balancer.by_hand(self.asked("t/new"))
        assert balancer.last_hour == LastHour()

    def test_a_stop_ends_it_with_an_answer(self, balancer: Engine, pulsar: FakePulsar) -> None:
        """What was not asked for by then is told as such."""
        told, names = answers_of(balancer), self.unowned(pulsar)
        balancer.on_end = lambda _: balancer.halt()
        balancer.by_hand(self.asked("t/new"))
        assert told["p0"].exit_code == 4
        assert [pulsar.owners[name] is None for name in names] == [False, True]
        assert "1 placed, 1 not placed: " in told["p0"].sentence
        assert "not asked for: lbd was stopped" in told["p0"].sentence

    def test_what_cannot_be_written_down_ends_it(
        self, balancer: Engine, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One bundle is placed and told as placed; no other is asked for."""
        told, names = answers_of(balancer), self.unowned(pulsar)
        monkeypatch.setattr(Journal, "placed", full)
        balancer.by_hand(self.asked("t/new"))
        assert [pulsar.owners[name] is None for name in names] == [False, True]
        assert [one.result for one in told["p0"].placed or ()] == [Result.LANDED, None]
        assert f"not asked for: {names[0]} is in no journal: lbd.db: " in told["p0"].sentence

    def test_the_last_one_that_cannot_be_written_down_is_told(
        self, balancer: Engine, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is placed, and its cool-down is lost: nobody would know."""
        told, names = answers_of(balancer), self.unowned(pulsar)
        monkeypatch.setattr(Journal, "placed", full)
        balancer.by_hand(self.asked(names[0]))
        assert told["p0"].sentence.startswith(f"1 bundle: 1 placed, {names[0]} is in no journal: lbd.db: ")

    def test_one_that_a_client_took_meanwhile_is_left_alone(self, balancer: Engine, pulsar: FakePulsar) -> None:
        """Its owner is told; nothing is wrong with it."""
        told, names = answers_of(balancer), self.unowned(pulsar)
        balancer.on_end = lambda _: pulsar.owners.update({names[1]: pulsar.ids[1]})
        balancer.by_hand(self.asked("t/new"))
        assert (told["p0"].exit_code, told["p0"].sentence) == (
            0,
            "2 bundles: 1 placed, 1 owned already and left alone.",
        )
        assert [one.owner for one in told["p0"].placed or ()][1] == pulsar.ids[1]

    def test_a_move_that_was_left_open_comes_first(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What nobody owns may be on its way to where a killed lbd moved it."""
        chosen, names = settings(pulsar, tmp_path), self.unowned(pulsar)
        lines = Journal(state_begun(chosen.state_dir).store, time.time)
        lines.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[1], 1.0, 1.0), 1)
        lines.close()
        with working(chosen) as work:
            answer = work(self.asked("t/new"))
        assert (answer.exit_code, f"moves-unfinished: {HOT[0]} is under way" in answer.sentence) == (4, True), answer
        assert [pulsar.owners[name] for name in names] == [None, None]

    def test_with_none_running_nobody_stops_waiting(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whoever asked is this very process: ``--timeout`` is for the answer of a running lbd."""
        self.unowned(pulsar)
        with working(settings(pulsar, tmp_path)) as work:
            answer = work(self.asked("t/new", seconds=0.0))
        assert (answer.exit_code, answer.sentence) == (0, "2 bundles: 2 placed.")

    def test_a_pause_that_comes_meanwhile_ends_it(self, balancer: Engine, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The rest waits for lbd resume, and for whoever asks again."""
        told, _ = answers_of(balancer), self.unowned(pulsar)
        pause = Pause(time.time(), None, "enough", "bob")
        balancer.on_end = lambda _: Control(tmp_path / "state").pause(pause)
        balancer.by_hand(self.asked("t/new"))
        assert "not asked for: paused: by bob until lbd resume: enough" in told["p0"].sentence

    def test_an_lbd_that_only_observes_places_nothing(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whatever is asked of it."""
        names = self.unowned(pulsar)
        with engine(settings(pulsar, tmp_path).model_copy(update={"mode": "observe"})) as found:
            told = answers_of(found)
            found.by_hand(self.asked("t/new"))
        assert (told["p0"].exit_code, "only observes" in told["p0"].sentence) == (4, True)
        assert [pulsar.owners[name] for name in names] == [None, None]
