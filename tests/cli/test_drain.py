"""``lbd drain`` and ``lbd fill``: words, JSON, exit codes, and nothing done on junk or without --apply."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from lbd.api.client import LocalClient
from lbd.api.shapes import DrainsResponse, Started
from lbd.cli import remote
from lbd.cli.drain import DrainProgressBar
from lbd.config import Settings
from lbd.errors import ObserveError
from lbd.operations import drain
from lbd.store.control import Control, DrainRequest, FillRequest, Pause
from lbd.store.drains import Drain, Drains, DrainStatus, Work
from tests.builders import state_begun
from tests.cli.conftest import lbd, written
from tests.serving import accepting
from tests.simulate import fakes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lbd.daemon.engine import Engine
    from lbd.simulate.fake_pulsar import FakePulsar


@pytest.fixture
def config(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of that cluster; a drain makes no pause between two moves."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
    chosen = fakes.settings(cluster, tmp_path / "state")
    return written(chosen, tmp_path)


def running(config: Path) -> AbstractContextManager[Engine]:
    """An lbd that executes commands and goes on with drains."""
    return accepting(Settings.model_validate(yaml.safe_load(config.read_text())), turns=1)


def owned(cluster: FakePulsar, broker: str) -> int:
    """How many bundles a broker owns."""
    return sum(owner == broker for owner in cluster.owners().values())


class TestShown:
    def test_whether_it_can_be_spared_and_what_would_go_where(self, cluster: FakePulsar, config: Path, tmp_path: Path):
        """Scores, bundles, time; and nothing is done."""
        found = lbd("drain", cluster.brokers[0].partition(":")[0], "--config", config)
        assert found.exit_code == 0, found.output
        assert f"The cluster can do without {cluster.brokers[0]}" in found.stdout
        assert found.stdout.count(f"{cluster.brokers[0]}  127.") == 14
        assert "14 bundles, 4 at once, with 28 clients: about" in found.stdout
        assert (owned(cluster, cluster.brokers[0]), (tmp_path / "state").exists()) == (14, False)

    def test_as_json(self, cluster: FakePulsar, config: Path):
        """For programs; the sentence goes to stderr."""
        found = lbd("drain", cluster.brokers[0], "--config", config, "--format", "json")
        told = json.loads(found.stdout)
        assert [len(told[key]) for key in ("brokers", "unloads", "stay")] == [2, 14, 0]
        assert (told["hold"], told["cannot_spare"], told["drain"]) == (None, None, None)
        assert told["eta_seconds"] > 0

    def test_a_cluster_that_cannot_do_without_it(self, cluster: FakePulsar, config: Path):
        """Exit 4, and which bundles nobody can bear."""
        values = yaml.safe_load(config.read_text())
        values["guardrails"]["max_destination_score"] = 40
        config.write_text(yaml.safe_dump(values))
        found = lbd("drain", cluster.brokers[0], "--config", config)
        assert found.exit_code == 4
        assert "the cluster cannot do without" in found.stdout
        assert "destination-overloaded" in found.stdout

    def test_what_a_fill_would_bring(self, cluster: FakePulsar, config: Path):
        """From where, and how far it would come."""
        found = lbd("fill", cluster.brokers[2], "--config", config)
        assert found.exit_code == 0, found.output
        assert "would go from" in found.stdout
        hottest = lbd("fill", cluster.brokers[0], "--config", config)
        assert (hottest.exit_code, "nothing that would help may move" in hottest.stdout) == (0, True)


class TestApplied:
    def test_without_a_daemon(self, cluster: FakePulsar, config: Path, tmp_path: Path):
        """To the end, in this process; then it is released."""
        target = cluster.brokers[0]
        found = lbd("drain", target, "--apply", "--for", "2h", "--reason", "new disk", "--config", config)
        assert (found.exit_code, owned(cluster, target)) == (0, 0), found.output
        assert f"{target} owns nothing: 14 bundles gone in" in found.stdout
        assert f"The drain of {target} has begun: 14 bundles" in found.stderr
        drain = Drains(tmp_path / "state").in_force(time.time())[target]
        assert (drain.reason, round((drain.until or 0) - drain.since)) == ("new disk", 7200)
        again = lbd("drain", target, "--config", config)
        assert "Drained: " in again.stdout
        assert "There is nothing to move." in again.stdout
        released = lbd("drain", target, "--release", "--reason", "done", "--config", config)
        assert (released.exit_code, released.stdout[:10]) == (0, "Released: ")
        assert "is not drained" in lbd("drain", target, "--release", "--config", config).stdout

    def test_through_a_running_lbd(self, cluster: FakePulsar, config: Path):
        """The same, asked for and watched; status tells of it."""
        target = cluster.brokers[0]
        with running(config):
            found = lbd("drain", target, "--apply", "--config", config, "--format", "json")
            assert found.exit_code == 0, found.output
            work = json.loads(found.stdout)
            assert (work["landed"] + work["elsewhere"], work["owned"], work["left"]) == (14, 0, [])
            filled = lbd("fill", target, "--apply", "--config", config)
            assert (filled.exit_code, "is being drained" in filled.stdout) == (4, True), filled.output
            assert owned(cluster, target) == 0

    def test_a_fill(self, cluster: FakePulsar, config: Path):
        """All of it lands."""
        found = lbd("fill", cluster.brokers[2], "--apply", "--config", config)
        assert found.exit_code == 0, found.output
        assert f"{cluster.brokers[2]} was given" in found.stdout

    def test_what_is_refused(self, cluster: FakePulsar, config: Path, tmp_path: Path):
        """A pause, told in one line; nothing is begun."""
        Control(state_begun(tmp_path / "state").path).pause(Pause(0.0, None, "look", "bob"))
        found = lbd("drain", cluster.brokers[0], "--apply", "--config", config)
        assert (found.exit_code, found.stdout) == (4, "Refused: paused: by bob until lbd resume: look\n")
        assert Drains(tmp_path / "state").in_force(time.time()) == {}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("drain", "nobody:1"), 2, "no active broker"),
        (("drain", "nobody:1", "--apply"), 2, "no active broker"),
        (("fill", "nobody:1"), 2, "no active broker"),
        (("fill", "nobody"), 2, "'nobody' is no active broker; wanted one of "),
        (("drain", "b:1", "--reason", "x"), 2, "go with --apply"),
        (("drain", "b:1", "--for", "2h"), 2, "go with --apply"),
        (("drain", "b:1", "--apply", "--override", " "), 2, "the reason is empty"),
        (("drain", "b:1", "--apply", "--for", "soon"), 2, "is no duration"),
        (("drain", "b:1", "--apply", "--release"), 2, "--release ends a drain"),
        (("fill", "b:1", "--override", "x"), 2, "go with --apply"),
        (("drain", "b:1", "--respect-rest"), 2, "go with --apply"),
        (("drain", "b:1", "--apply", "--override", "x", "--respect-rest"), 2, "name one of them"),
        (("drain", "b:1", "--release", "--respect-rest"), 2, "--release ends a drain"),
        (("drain",), 2, "Missing argument"),
    ],
)
def test_junk(words: tuple[Any, ...], code: int, told: str, config: Path):
    """What is wrong, and exit 2."""
    found = lbd(*words, "--config", config)
    assert (found.exit_code, told in found.output) == (code, True), found.output


@pytest.mark.parametrize(
    ("words", "told"),
    [("drain", "the next lbd goes on with the drain of"), ("fill", "the next lbd goes on with the fill of")],
)
def test_who_watches_is_told_what_becomes_of_it_when_lbd_stops(
    words: str, told: str, cluster: FakePulsar, config: Path, monkeypatch: pytest.MonkeyPatch
):
    """The next lbd goes on with it."""
    broker = cluster.brokers[0 if words == "drain" else 2]
    with running(config) as found:
        begin = remote.begin

        def begun(*asked: Any) -> Any:
            started = begin(*asked)
            Control(found.settings.state_dir).pause(Pause(time.time(), None, "", "ann"))  # so that it does not end
            monkeypatch.setattr(LocalClient, "_connected", gone)
            return started

        monkeypatch.setattr(remote, "begin", begun)
        done = lbd(words, broker, "--apply", "--config", config)
    assert (done.exit_code, told in done.stderr) == (3, True), done.output


def test_who_watches_a_drain_that_is_released_is_told_that_it_is_over(
    cluster: FakePulsar, config: Path, monkeypatch: pytest.MonkeyPatch
):
    """Exit 4, as where no daemon runs, and no lbd goes on with it."""
    broker = cluster.brokers[0]
    with running(config) as found:
        begin = remote.begin

        def begun(*asked: Any) -> Any:
            started = begin(*asked)
            Control(found.settings.state_dir).pause(Pause(time.time(), None, "", "ann"))  # so that it does not end
            Drains(found.settings.state_dir).release(broker)
            return started

        monkeypatch.setattr(remote, "begin", begun)
        done = lbd("drain", broker, "--apply", "--config", config)
    last = done.stderr.splitlines()[-1]
    over = f"Error: the drain of {broker} is over: it was released, or its broker was started again"
    assert (done.exit_code, last) == (4, over), done.output


@pytest.mark.parametrize("kind", ["drain", "fill"])
def test_who_watches_recognizes_the_end_after_a_clock_was_set_back(kind: str, monkeypatch: pytest.MonkeyPatch):
    """The end is that of the order, whatever the time: of an earlier one it is not."""
    own = Work(
        kind=kind, broker="b:1", request="new", begun_at=1000.0, ordered_at=1000.0, ended_at=400.0, sentence="it"
    )
    old = msgspec.structs.replace(own, request="old", ordered_at=2000.0, ended_at=2000.0, sentence="that of before")
    drain = Drain("b:1", 1000.0, None, "ann", ordered_at=1000.0)
    answers = [DrainsResponse([DrainStatus.of(drain, work)], work) for work in (old, own)]
    monkeypatch.setattr(remote, "_remote_drains", lambda _: answers.pop(0))
    monkeypatch.setattr(remote, "POLL_SECONDS", 0.0)
    name, now = "sent-as", 1000.0
    requests = {
        "drain": DrainRequest(name, "b:1", None, "", None, "ann", now, now),
        "fill": FillRequest(name, "b:1", None, "ann", now, now),
    }
    started = Started("b:1", "It has begun.", now, drain, "new")
    assert remote.watched(LocalClient, requests[kind], started, lambda _: None).sentence == "it"  # type: ignore[arg-type]


def gone(*_: object) -> Any:
    """Nobody listens any more."""
    raise ObserveError("lbd has stopped")


def test_a_wait_is_not_told_second_by_second(capsys: pytest.CaptureFixture[str]):
    """A line when it begins, one when it waits for something else, and one when it goes on."""
    work = Work(kind="fill", broker="b:80", request="r", begun_at=0.0)
    progress = DrainProgressBar()
    for held in ("settling: 60 s at most", "settling: 58 s at most", "paused: by ann", "paused: by ann", ""):
        progress(msgspec.structs.replace(work, held=held, total=0 if held else 9))
    told = capsys.readouterr().err.splitlines()
    assert told == ["waits: settling: 60 s at most", "waits: paused: by ann", "0 of 9 bundles"]


def test_ctrl_c_is_no_failed_move(cluster: FakePulsar, config: Path, monkeypatch: pytest.MonkeyPatch):
    """Exit 130, as after Ctrl-C anywhere else: 5 would say that an unload failed, and the drain goes on."""
    with running(config):
        begin = remote.begin

        def begun(*asked: Any) -> Any:
            started = begin(*asked)
            monkeypatch.setattr(remote, "_remote_drains", interrupted)
            return started

        monkeypatch.setattr(remote, "begin", begun)
        done = lbd("drain", cluster.brokers[0], "--apply", "--config", config)
    assert (done.exit_code, "No longer watched: it goes on in" in done.stdout) == (130, True), done.output


def test_who_stops_watching_is_told_commands_that_reach_that_lbd(config: Path, monkeypatch: pytest.MonkeyPatch):
    """Without the address they would be about this machine, where nothing is drained."""
    monkeypatch.setattr(remote, "begin", lambda *_: Started("b:1", "The drain of b:1 has begun.", 0.0, None, "1"))
    monkeypatch.setattr(remote, "watched", interrupted)
    done = lbd("drain", "b:1", "--apply", "--api", "http://lbd-1:8085", "--config", config)
    for command in ("lbd status --api http://lbd-1:8085", "lbd drain b:1 --release --api http://lbd-1:8085"):
        assert command in done.stdout, done.output


def interrupted(*_: object) -> Any:
    """A person has seen enough."""
    raise KeyboardInterrupt
