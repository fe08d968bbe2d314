"""A running daemon and the people who steer it: pause, unloads by hand, status, observing, and a stop in the middle."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.api.client import LocalClient
from lbd.cli import main
from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.errors import RefusedError
from lbd.model import Hits, Outcome, Result, Unload
from lbd.simulate.answers import Reply
from lbd.store.control import Control, Pause, UnloadRequest
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal
from lbd.store.state import StateDir, TurnMemory
from tests.api.conftest import listening, working
from tests.builders import state_begun
from tests.daemon.test_service import eventually, journal, running, settings_for
from tests.fake_pulsar import COLD, HOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result as Invoked

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar


def lbd(folder: Path, settings: dict[str, Any], *words: str) -> Invoked:
    """A command on the settings of an lbd."""
    config = folder / "lbd.yaml"
    config.write_text(yaml.safe_dump(settings))
    return CliRunner().invoke(main, [*words, "--config", str(config)], prog_name="lbd")


@contextmanager
def serving(settings: dict[str, Any]) -> Iterator[Api]:
    """An lbd in this process that has ended a turn, and takes commands through its socket."""
    with listening(Settings.model_validate(settings)) as found:
        found.turn()
        with working(found):
            yield found


def by_hand_only(pulsar: FakePulsar, folder: Path) -> dict[str, Any]:
    """Settings under which the strategy never wants anything."""
    return settings_for(pulsar, folder, avg_shedder={"low_threshold": 95, "high_threshold": 99})


def test_a_pause_holds_and_ends_by_a_word(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Said who and why, over a start of lbd too; after it the next new sample moves."""
    Control(state_begun(tmp_path / "state").path).pause(Pause(time.time(), None, "upgrade of the cluster", "ann"))
    settings = settings_for(pulsar, tmp_path)
    with listening(Settings.model_validate(settings)) as found:
        apart = f"{pulsar.ids[0]} -> {pulsar.ids[2]} are 70.0 points apart"
        paused = found.turn().sentence
        assert paused == f"No move: paused: by ann until lbd resume: upgrade of the cluster; {apart}."
        assert lbd(tmp_path, settings, "resume").exit_code == 0
        pulsar.sample(81.0, 46.0, 11.0)
        assert len(found.turn().plan.unloads) == 3


class TestByHand:
    def test_an_unload_lands_and_says_so(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The daemon does it: same journal, same proof; the cool-down holds for the next one, unless overridden."""
        (first, second, third), settings = pulsar.ids, by_hand_only(pulsar, tmp_path)
        with serving(settings) as found:
            landed = lbd(tmp_path, settings, "unload", HOT[0], "--apply", "--to", third)
            rests = lbd(tmp_path, settings, "unload", HOT[0], "--apply", "--to", second)
            pulsar.sample(5.0, 10.0, 81.0)
            found.turn()
            passed = lbd(tmp_path, settings, "unload", HOT[0], "--apply", "--to", first, "--override", "told to")
        assert landed.exit_code == 0, landed.output
        assert f"{HOT[0]}: {first} -> {third}: landed in" in landed.stdout
        assert (rests.exit_code, "cool-down" in rests.output) == (4, True), rests.output
        assert passed.exit_code == 0, passed.output
        assert pulsar.owners[HOT[0]] == first
        assert "overriding limits: told to" in journal(tmp_path)[2]["reason"]

    @pytest.mark.parametrize(
        ("bundle", "to", "code", "words"),
        [
            ("t/n/0x00000000_0x00000001", 0, 2, "is no bundle of t/n"),
            (COLD, 2, 4, "has it already"),
            (HOT[0], 1, 4, "destination-overloaded"),
            (HOT[0], 3, 2, "'b:80' is no active broker"),
        ],
    )
    def test_what_is_not_safe_is_refused(
        self, bundle: str, to: int, code: int, words: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Exit 4, or 2 for a name that the cluster does not know, and the reason; an override does not help."""
        pulsar.sample(80.0, 84.0, 10.0)
        to_broker, settings = [*pulsar.ids, "b:80"][to], by_hand_only(pulsar, tmp_path)
        with serving(settings):
            done = lbd(tmp_path, settings, "unload", bundle, "--apply", "--to", to_broker, "--override", "I insist")
        assert (done.exit_code, words in done.output) == (code, True), done.output
        assert pulsar.asked("/unload") == []

    def test_a_stop_still_answers_what_is_under_way(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """And refuses what waits behind it: nothing is left for the next start."""
        go_on = pulsar.hold("/unload", pulsar.ids[0])
        client, now = LocalClient(tmp_path / "state", "lbd"), time.time()

        def unload(number: int) -> dict[str, Any]:
            request = UnloadRequest(f"r{number}", HOT[number], pulsar.ids[2], None, "ann", now, now + 60)
            try:
                return client.command(request)
            except RefusedError as error:  # it came after the signal
                return {"exit_code": error.exit_code}

        with running(tmp_path, by_hand_only(pulsar, tmp_path)) as daemon, ThreadPoolExecutor(2) as pool:
            first = pool.submit(unload, 0)
            eventually(lambda: bool(pulsar.asked("/unload", "PUT")))
            second = pool.submit(unload, 1)
            time.sleep(0.5)
            daemon.process.terminate()
            assert second.result()["exit_code"] == 4
            go_on.set()
            assert daemon.process.wait(60) == 0
            assert first.result()["result"] == "landed"
        assert pulsar.owners[HOT[1]] == pulsar.ids[0]


class TestBeside:
    def test_turns_go_on_while_a_move_is_under_way(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker that closes topics for seconds holds no observing; meanwhile nothing new is planned."""
        go_on = pulsar.hold("/unload", pulsar.ids[0])
        with engine(Settings.model_validate(settings_for(pulsar, tmp_path))) as found:
            assert len(found.turn().plan.unloads) == 3
            for extra in range(3):
                pulsar.sample(80.0 + extra, 45.0 + extra, 10.0 + extra)
                record = found.turn()
                assert (record.plan.unloads, "moves-unfinished: 3 under way" in record.sentence) == ((), True)
            go_on.set()
            assert found.wait(60)
            assert found.turn().sentence == "Moved 3 of 3 bundles: 3 landed."
        assert len(journal(tmp_path)) == 6

    def test_a_stop_hands_over_what_does_not_end(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker that answers never: the process ends in time, and the next start finds the true outcome."""
        pulsar.fault("/unload", Reply(silent=True), broker=pulsar.ids[0], after_acting=True)
        quick = (
            "import lbd.daemon.service as s; s.STOP_SECONDS = 1; s.LEAVE_SECONDS = 2; from lbd.cli import main; main()"
        )
        settings = settings_for(pulsar, tmp_path)
        with running(tmp_path, settings, program=("-c", quick)) as daemon:
            daemon.notified.wait_for("STATUS=Begins")
            eventually(lambda: len(journal(tmp_path)) == 1)
            assert daemon.end() == 0
            assert daemon.lines()[-1]["handed_over"] == 1
        (tmp_path / "notify").unlink()
        pulsar.faults.off()
        with running(tmp_path, settings) as daemon:
            eventually(lambda: len(journal(tmp_path)) >= 2)
            assert journal(tmp_path)[1]["result"] == "landed"
            daemon.end()


class TestObserving:
    def test_beside_brokers_that_shed_by_themselves(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What would move is told all the same, and that it could not be: lbd is tried before anything is changed."""
        for broker in pulsar.brokers:
            broker.runtime["loadBalancerSheddingEnabled"] = "true"
        with engine(Settings.model_validate(settings_for(pulsar, tmp_path, mode="observe"))) as found:
            record = found.turn()
        assert record.sentence == "Would move 3 bundles."
        assert {one.method for one in pulsar.requests} == {"GET"}
        assert "lbd run would move nothing: " in "\n".join(map(str, record.skips))

    def test_it_says_once_what_would_move(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing is asked of any broker; the same imbalance is not said again, a new one is."""
        told = []
        with engine(Settings.model_validate(settings_for(pulsar, tmp_path, mode="observe"))) as found:
            for loads in ((80.0, 45.0, 10.0), (81.0, 46.0, 11.0), (40.0, 41.0, 42.0), None, (81.0, 45.0, 9.0)):
                if loads is not None:
                    pulsar.sample(*loads)
                told.append(found.turn().sentence)
        would, said = "Would move 3 bundles.", "No move: observe-only"
        starts = (would, said, said, "No move: cluster: balanced", would)
        assert [line[: len(start)] for line, start in zip(told, starts, strict=True)] == list(starts)
        assert {one.method for one in pulsar.requests} == {"GET"}
        assert journal(tmp_path) == []


def test_a_clock_that_jumps_begins_the_count_anew(pulsar: FakePulsar, tmp_path: Path):
    """A state directory from the future: counters and averages begin anew, bundles do not rest for years."""
    state = tmp_path / "state"
    future = time.time() + 10 * 365 * 86_400
    state_begun(state).save(TurnMemory(written_at=future, hits={pulsar.ids[0]: Hits(9, 9)}))
    with closing(Journal(state / STORE_NAME, lambda: future)) as ahead:
        unload = Unload(HOT[0], "a", "b", 1.0, 1.0)
        ahead.conclude(ahead.intend(unload, 1), Outcome(unload, Result.LANDED, "b"))
    with engine(Settings.model_validate(settings_for(pulsar, tmp_path))) as found:
        assert len(found.turn().plan.unloads) == 3
        found.wait()
    assert StateDir(state).load().written_at < future
