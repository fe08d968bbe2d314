"""``lbd rollout``: shown, followed to its end with a command that restarts brokers, stopped, and refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from lbd.api.shapes import RolloutResponse
from lbd.cli import rollout as command
from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine
from lbd.errors import RefusedError
from lbd.operations import drain
from lbd.store.control import RequestResult, RolloutRequest
from lbd.store.drains import Drains
from lbd.store.rollouts import Rollout, Rollouts
from lbd.text import duration_text
from tests.cli.conftest import lbd, written
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.api.client import Client
    from lbd.simulate.fake_pulsar import FakePulsar


@pytest.fixture
def config(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of that cluster; nothing is waited for."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
    monkeypatch.setattr(command, "POLL_SECONDS", 0.05)
    chosen = fakes.settings(
        cluster, tmp_path / "state", api={"enabled": False}, avg_shedder={"low_threshold": 95, "high_threshold": 99}
    )
    return written(chosen, tmp_path)


@contextmanager
def running(config: Path, cluster: FakePulsar, orders: Path) -> Iterator[None]:
    """A daemon whose clock goes fast, and a machine on which a file named as a broker restarts it."""
    settings, done = Settings.model_validate(yaml.safe_load(config.read_text())), threading.Event()
    orders.mkdir()
    with capture_logs(), engine(settings, timebase=Timebase(cluster.now, lambda: cluster.speed)) as found:
        found.turn()
        api = Serving(found, lambda: 0.0, lambda: 60.0)
        api.start()

        def live() -> None:
            turned = 0.0
            while not done.wait(0.01):
                found.serve()
                for order in list(orders.iterdir()):
                    order.unlink()
                    cluster.leave(order.name)
                    cluster.forward(30)
                    cluster.start(order.name)
                if time.monotonic() - turned > 0.1:
                    turned = time.monotonic()
                    cluster.forward(15)
                    found.turn()

        thread = threading.Thread(target=live)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            found.halt()
            found.wait(60)
            api.stop()


def test_a_command_restarts_each_broker(cluster: FakePulsar, config: Path, tmp_path: Path):
    """Once each, when it owns nothing; what comes of it is told in the end."""
    with running(config, cluster, tmp_path / "orders"):
        found = lbd("rollout", "--all", "--exec", f"touch {tmp_path}/orders/{{broker}}", "--config", config)
    assert found.exit_code == 0, found.output
    assert [found.stderr.count(f"runs: touch {tmp_path}/orders/{broker}") for broker in cluster.brokers] == [1, 1, 1]
    assert "All 3 brokers were restarted in" in found.stdout
    assert Drains(tmp_path / "state").all() == []


class _Answers:
    """An lbd whose rollout is due to restart a broker until the command has run; ``answers`` to who asks for that."""

    name = "lbd (process 1)"

    def __init__(self, restarted: Path, answers: list[Exception | RequestResult]) -> None:
        self._restarted, self._answers = restarted, answers
        self.asked: list[tuple[str, bool]] = []

    def get(self, *_: str) -> dict[str, Any]:
        """As a standby or the leader tells it; the first one has not read of this rollout yet."""
        old = Rollout(**{**ROLLOUT, "id": "another", "ended_at": 1.0, "sentence": "Long over."})
        now = Rollout(**{**ROLLOUT, **({"ended_at": 3.0, "sentence": "Over."} if self._restarted.exists() else {})})
        shown = now if self.asked else old
        self.asked = self.asked or [("", False)]
        built: dict[str, Any] = msgspec.to_builtins(RolloutResponse(shown, shown.summary, None))
        return built

    def command(self, order: RolloutRequest) -> dict[str, Any]:
        """One answer after the other."""
        self.asked.append((order.restarts, self._restarted.exists()))
        assert (order.target, order.claim) == ("r", "1")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        built: dict[str, Any] = msgspec.to_builtins(answer)
        return built


ROLLOUT: dict[str, Any] = {
    "id": "r",
    "brokers": ("b:1",),
    "members": ("b:1", "c:1"),
    "by": "ann",
    "begun_at": 0.0,
    "phase_at": 0.0,
    "broker": "b:1",
    "timeout_seconds": 900.0,
    "executes": True,
    "phase": "restart",
}


def test_who_leads_is_asked_before_each_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What a standby tells may be old: nothing is restarted until the leader says that the broker is due."""
    monkeypatch.setattr(command, "POLL_SECONDS", 0)
    standby = RefusedError("409: not-leader: this lbd stands by")
    not_due = RequestResult(4, "Refused: b:1 is not to be restarted now: it is over.")
    api = _Answers(tmp_path / "restarted", [standby, not_due, RequestResult(0, "b:1 is to be restarted now.")])
    request = RolloutRequest("1", ("b:1",), True, 900.0, "", "ann", 0.0, 60.0)

    ended = command._followed(cast("Client", api), f"touch {tmp_path}/restarted", request, "r")

    assert (ended.id, ended.sentence) == ("r", "Over.")
    assert api.asked == [("", False), *[("b:1", False)] * 3]
    noted = capsys.readouterr().err
    assert "b:1 is not restarted yet: 409: not-leader: this lbd stands by" in noted
    assert noted.index("it is over") < noted.index("runs: touch")


def test_a_command_that_fails_stops_it(cluster: FakePulsar, config: Path, tmp_path: Path):
    """And leaves nothing half done."""
    target = cluster.brokers[2]
    with running(config, cluster, tmp_path / "orders"):
        found = lbd("rollout", target, "--exec", "false {host}", "--config", config, "--format", "json")
    assert found.exit_code == 4, found.output
    told = json.loads(found.stdout)
    assert f"false {target.partition(':')[0]} ended with 1" in told["sentence"]
    assert (told["done"], Drains(tmp_path / "state").all()) == ([], [])


def test_it_is_stopped_by_another_command(cluster: FakePulsar, config: Path, tmp_path: Path):
    """Whoever watches is told. It is a process of its own: two commands in one share the standard output."""
    command = [sys.executable, "-m", "lbd", "rollout", "--all", "--config", str(config)]
    with (
        running(config, cluster, tmp_path / "orders"),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watching,
    ):
        until = time.monotonic() + 60
        while Rollouts(tmp_path / "state").under_way() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        again = lbd("rollout", cluster.brokers[0], "--config", config)
        drained = lbd("drain", cluster.brokers[0], "--apply", "--config", config)
        stopped = lbd("rollout", "--stop", "--reason", "enough", "--config", config)
        printed, _ = watching.communicate(timeout=60)
    assert (again.exit_code, "lbd rollout --stop ends it" in again.stdout) == (4, True), again.output
    assert (drained.exit_code, "lbd rollout --stop ends it" in drained.stdout) == (4, True), drained.output
    assert stopped.exit_code == 0, stopped.output
    assert (watching.returncode, "enough; 0 of 3 brokers were restarted" in printed) == (4, True), printed


def test_a_rollout_and_a_drain_count_the_same_clients(cluster: FakePulsar, config: Path):
    """Of the same bundles, in JSON and in words."""
    found = json.loads(lbd("rollout", cluster.brokers[0], "--dry-run", "--config", config, "--format", "json").stdout)
    (step,) = found["steps"]
    drain = json.loads(lbd("drain", cluster.brokers[0], "--config", config, "--format", "json").stdout)
    assert step["clients"] == sum(move["clients"] for move in drain["unloads"]) > 0
    assert f", with {step['clients']} clients: about " in lbd("drain", cluster.brokers[0], "--config", config).stdout


def test_it_is_shown(cluster: FakePulsar, config: Path, tmp_path: Path):
    """Order, moves, time and peaks; nothing is done."""
    found = lbd("rollout", "--all", "--dry-run", "--config", config)
    assert found.exit_code == 0, found.output
    assert "3 brokers, in this order: 20 bundles move once, or twice at most" in found.stdout
    told = json.loads(lbd("rollout", "--all", "--dry-run", "--config", config, "--format", "json").stdout)
    assert [step["broker"] for step in told["steps"]][-1] == cluster.leader
    assert all(step["peak"] > 0 and step["refused"] is None for step in told["steps"])
    moves = sum(step["eta_seconds"] for step in told["steps"])
    assert told["trusted_after_seconds"] == 130.0
    assert told["total_seconds"] == pytest.approx(moves + 3 * 130, abs=0.1)
    assert f"About {duration_text(told['total_seconds'])} in all, and the restarts themselves: " in found.stdout
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "name the brokers to restart, or give --all"),
        (("b:1", "--all"), 2, "name the brokers to restart, or give --all"),
        (("--all", "--exec", " "), 2, "--exec wants a command"),
        (("--all", "--exec", "x", "--wait"), 2, "goes without --wait"),
        (("--all", "--exec", "'x"), 2, "No closing quotation"),
        (("--stop", "--all"), 2, "--stop ends the rollout"),
        (("--all", "--back-within", "soon"), 2, "is no duration"),
        (("--all",), 3, "no lbd runs there"),
        (("nobody:1", "--dry-run"), 2, "no active broker"),
    ],
)
def test_junk(words: tuple[Any, ...], code: int, told: str, config: Path):
    """What is wrong, and exit 2; 3 where no lbd runs."""
    found = lbd("rollout", *words, "--config", config)
    assert (found.exit_code, told in found.output) == (code, True), found.output
