"""A live lbd on a small cluster, with its API on a port of its own: everything real but the brokers."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.clock import SYSTEM, Timebase
from lbd.config import Settings
from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.operations import drain
from tests.daemon.test_service import settings_for
from tests.fake_pulsar import hot_broker
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from lbd.daemon.engine import Engine
    from lbd.simulate.fake_pulsar import FakePulsar as SimulatedPulsar
    from lbd.turn.parts import TurnResult
    from tests.fake_pulsar import FakePulsar

TOKEN = "a-token-of-the-tests"
PATIENCE_SECONDS = 60.0
QUIET = {"low_threshold": 95, "high_threshold": 99}
"""With these thresholds an lbd wants nothing by itself."""


@dataclass
class Api:
    """An lbd whose turns a test asks for, and its API."""

    engine: Engine
    serving: Serving
    silent_seconds: list[float]
    turns: int = 0
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {TOKEN}"})

    def turn(self) -> TurnResult:
        """One turn, shown as the daemon shows it."""
        record = self.engine.turn()
        self.turns += 1
        self.serving.publish(record, build_status(self.engine, record, self.turns, None))
        return record

    def get(self, path: str, **more: Any) -> requests.Response:
        """Ask without a token."""
        assert self.serving.url is not None
        return requests.get(self.serving.url + path, timeout=PATIENCE_SECONDS, **more)

    def post(self, path: str, body: object, **headers: str) -> requests.Response:
        """Ask for a change, with the token."""
        assert self.serving.url is not None
        given = {**self.headers, **headers}
        return requests.post(self.serving.url + path, json=body, headers=given, timeout=PATIENCE_SECONDS)


def lbd(api: Api, folder: Path, *words: str) -> Result:
    """A command on another machine: its own state directory is empty."""
    (folder / "mine").write_text(TOKEN)
    own = {"state_dir": str(folder / "elsewhere"), "api": {"token_file": str(folder / "mine")}}
    (folder / "lbd.yaml").write_text(yaml.safe_dump(own))
    assert api.serving.url is not None
    given = [*words, "--api", api.serving.url, "--config", str(folder / "lbd.yaml")]
    return CliRunner().invoke(main, given, prog_name="lbd", standalone_mode=True)


@contextmanager
def serving(pulsar: FakePulsar, folder: Path, api: dict[str, Any] | None = None, **changes: Any) -> Iterator[Api]:
    """An lbd that has ended no turn yet."""
    own = {**own_api(folder), **(api or {})}
    settings = Settings.model_validate(settings_for(pulsar, folder, api=own, **{"interval_seconds": 3600, **changes}))
    with listening(settings) as found:
        yield found


def own_api(folder: Path) -> dict[str, Any]:
    """A free port, and a token."""
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    return {"listen": "127.0.0.1:0", "token_file": str(token)}


@contextmanager
def listening(settings: Settings, timebase: Timebase = SYSTEM) -> Iterator[Api]:
    """The same of any settings."""
    silent = [0.0]
    with engine(settings, timebase=timebase) as balancer:
        found = Serving(balancer, lambda: silent[0], lambda: 60.0)
        balancer.on_end = found.moved
        found.start()
        try:
            yield Api(balancer, found, silent)
        finally:
            found.stop()
            balancer.wait()


@contextmanager
def working(api: Api) -> Iterator[None]:
    """The daemon's thread that works off what is asked for by hand."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            api.engine.serve()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One such lbd for all tests of a module that change nothing of it."""
    folder = tmp_path_factory.mktemp("shared")
    with hot_broker() as pulsar, serving(pulsar, folder, avg_shedder=QUIET) as found:
        found.turn()
        yield found


@pytest.fixture
def api(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd that wants nothing by itself, and has ended one turn."""
    with serving(pulsar, tmp_path, avg_shedder=QUIET) as found:
        found.turn()
        yield found


@pytest.fixture
def unpaced_api(cluster: SimulatedPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """An lbd on it that has ended a turn, and takes what is asked for by hand, without a pause between moves."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
    chosen = fakes.settings(cluster, tmp_path / "state", api=own_api(tmp_path))
    with listening(chosen) as found:
        found.turn()
        with working(found):
            yield found
