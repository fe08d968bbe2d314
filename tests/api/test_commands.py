"""Commands over the API, on TCP and on the socket in the state directory: executed once, by whom, and what is told."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbd.api.client import Client, LocalClient
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.files import connect, listen, user_name
from lbd.store.control import SOCKET, UnloadRequest
from tests.api.conftest import Api, lbd, serving, working
from tests.daemon.test_service import eventually
from tests.fake_pulsar import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_pulsar import FakePulsar

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def who(**more: Any) -> dict[str, Any]:
    """A body."""
    return {"owner": "ann", **more}


def local(api: Api) -> LocalClient:
    """A client on the same machine."""
    return LocalClient(api.engine.settings.state_dir, "lbd")


def a_command(pulsar: FakePulsar, bundle: str = HOT[0], seconds: float = 60.0) -> UnloadRequest:
    """One hot bundle to the cold broker."""
    return UnloadRequest(f"r-{bundle}", bundle, pulsar.ids[2], None, "ann", 0.0, seconds)


@pytest.fixture
def busy(api: Api) -> Iterator[Api]:
    """An lbd that executes commands."""
    with working(api):
        yield api


class TestUnload:
    def test_it_lands_and_says_so(self, busy: Api, pulsar: FakePulsar):
        """The JSON of the command line; the journal has who and why."""
        found = busy.post("/v1/unload", who(bundle=HOT[0], destination=pulsar.ids[2], override="told to"))
        assert found.status_code == 200, found.text
        told = found.json()
        assert (told["exit_code"], told["result"], told["owner"]) == (0, "landed", pulsar.ids[2])
        assert pulsar.owners[HOT[0]] == pulsar.ids[2]
        (move,) = busy.get("/v1/moves").json()
        assert move["reason"] == "by hand, ann, overriding limits: told to"

    def test_what_is_refused_and_what_misses(self, busy: Api, pulsar: FakePulsar):
        """409 and 502, with the exit code; what missed is not tried again under its key, what was refused may be."""
        pulsar.steals[HOT[0]] = [pulsar.ids[1]] * 9
        body, key = who(bundle=HOT[0], destination=pulsar.ids[2]), {"Idempotency-Key": "k"}
        missed = busy.post("/v1/unload", body, **key)
        assert (missed.status_code, missed.json()["exit_code"], missed.json()["owner"]) == (502, 5, pulsar.ids[1])
        tried = len(pulsar.asked("/unload"))
        assert busy.post("/v1/unload", body, **key).json() == missed.json()
        assert len(pulsar.asked("/unload")) == tried
        refused = busy.post("/v1/unload", body)
        assert (refused.status_code, refused.json()["exit_code"]) == (409, 4), refused.text
        assert "cool-down" in refused.json()["detail"]

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (who(bundle="nonsense"), 400),
            (who(bundle="t/n/0x80000000_0x00000000"), 400),
            (who(bundle=HOT[0], destination=""), 422),
            (who(bundle=HOT[0], override=" "), 422),
            (who(bundle=HOT[0], timeout_seconds=0), 422),
            (who(bundle=HOT[0], timeout_seconds="NaN"), 422),
            (who(bundle=HOT[0], force=True), 422),
            ({"bundle": HOT[0]}, 422),
        ],
    )
    def test_junk_moves_nothing(self, busy: Api, pulsar: FakePulsar, body: dict[str, Any], status: int):
        """Told as a problem."""
        found = busy.post("/v1/unload", body)
        assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json"), found.text
        assert pulsar.asked("/unload") == []

    def test_without_a_token_nothing_is_moved(self, busy: Api, pulsar: FakePulsar):
        """On TCP, also on loopback."""
        for path, body in (("unload", who(bundle=HOT[0])), ("place", who(targets=["t/n"])), ("split", who())):
            assert busy.post(f"/v1/{path}", body, Authorization="Bearer x").status_code == 401
        assert pulsar.asked("/unload") == []


def test_two_at_once_are_executed_one_after_the_other(busy: Api, pulsar: FakePulsar):
    """Each has its own answer; the second waits for the first."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(local(busy).command, [a_command(pulsar, HOT[0]), a_command(pulsar, HOT[1])]))
    assert [one["exit_code"] for one in found] == [0, 0]
    moves = busy.get("/v1/moves").json()
    assert {move["bundle"] for move in moves} == {HOT[0], HOT[1]}


def test_one_whose_time_is_over_while_another_is_under_way_is_never_begun(api: Api, pulsar: FakePulsar):
    """Nobody executes the first one here; the second is withdrawn."""
    api.engine.requests.submit(a_command(pulsar, HOT[0], seconds=1e12))
    found = local(api).command(a_command(pulsar, HOT[1], seconds=1.0))
    assert (found["exit_code"], found["sentence"]) == (5, "No answer within 1 s: nothing was begun.")
    with working(api):
        eventually(lambda: pulsar.owners[HOT[0]] == pulsar.ids[2])
    assert pulsar.owners[HOT[1]] == pulsar.ids[0]


def test_one_whose_client_has_gone_is_withdrawn(api: Api, pulsar: FakePulsar):
    """As after Ctrl-C: it is not executed behind the back of who stopped it."""
    body = json.dumps(who(bundle=HOT[0], destination=pulsar.ids[2])).encode()
    kind = "Content-Type: application/json"
    head = f"POST /v1/unload HTTP/1.1\r\nHost: localhost\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with connect(api.engine.settings.state_dir / SOCKET, 1.0) as client:
        client.sendall(head + body)
        eventually(lambda: bool(api.engine.requests._waiting))
    eventually(lambda: not api.engine.requests._waiting)
    assert pulsar.asked("/unload") == []


def test_a_reload_breaks_no_command_on_this_machine(api: Api, pulsar: FakePulsar):
    """The API on TCP begins anew with its settings; the socket stays, and who waits there gets the answer."""
    before = api.engine.settings
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(local(api).command, a_command(pulsar))
        eventually(lambda: bool(api.engine.requests._waiting))
        api.engine.take(before.model_copy(update={"api": before.api.model_copy(update={"enabled": False})}))
        api.serving.take(before)
        assert api.serving.url is None
        with working(api):
            assert asked.result(60)["exit_code"] == 0


class TestSocket:
    def test_who_may_is_its_mode(self, api: Api):
        """Its owner and root; no token is asked for, also where none is set."""
        path = api.engine.settings.state_dir / SOCKET
        found = path.lstat()
        assert (stat.S_IMODE(found.st_mode), stat.S_ISSOCK(found.st_mode)) == (0o600, True)
        assert local(api).post("resume", body={"owner": "ann"})["ended"] is None
        api.serving.stop()
        assert not path.exists()

    @pytest.mark.parametrize("plant", ["a stale socket", "a file", "a link elsewhere"])
    def test_what_was_left_there_is_replaced(self, pulsar: FakePulsar, tmp_path: Path, plant: str):
        """Who holds the state directory may; what a link points to stays as it is."""
        state, other = tmp_path / "state", tmp_path / "other"
        state.mkdir()
        other.write_text("mine")
        if plant == "a stale socket":
            listen(state / SOCKET, 1).close()
        elif plant == "a file":
            (state / SOCKET).write_text("x")
        else:
            (state / SOCKET).symlink_to(other)
        with serving(pulsar, tmp_path) as api:
            assert local(api).post("resume", body={"owner": "ann"})["ended"] is None
        assert other.read_text() == "mine"

    def test_where_it_cannot_be_made_lbd_goes_on_and_says_so(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """In the status; who sends a command is refused, and does not wait."""
        monkeypatch.setattr("lbd.api.client.START_SECONDS", 0.2)
        (tmp_path / "state" / SOCKET).mkdir(parents=True)
        with serving(pulsar, tmp_path) as api:
            assert api.turn().error is None
            warnings = api.get("/v1/status").json()["warnings"]
            assert any(f"{SOCKET}: commands cannot reach this lbd: " in one for one in warnings), warnings
            with pytest.raises(UsageError, match="it is no socket"):
                local(api).command(a_command(pulsar))
            (tmp_path / "state" / SOCKET).rmdir()
            with pytest.raises(RefusedError, match=r"accepts no commands at lbd\.sock"):
                local(api).command(a_command(pulsar))

    def test_a_path_longer_than_an_address(self, pulsar: FakePulsar, tmp_path: Path):
        """107 bytes is the most that an address of a socket holds."""
        folder = tmp_path / ("long" * 40)
        folder.mkdir()
        with serving(pulsar, folder) as api:
            assert len(str(api.engine.settings.state_dir)) > 200
            assert local(api).post("resume", body={"owner": "ann"})["ended"] is None

    def test_a_link_is_not_followed_to_another_socket(self, api: Api, tmp_path: Path):
        """Who plants one would get the commands of root."""
        state = tmp_path / "planted"
        state.mkdir()
        (state / SOCKET).symlink_to(api.engine.settings.state_dir / SOCKET)
        with pytest.raises(OSError, match="it is no socket"):
            connect(state / SOCKET, 1.0)

    def test_an_lbd_that_has_stopped(self, tmp_path: Path):
        """Nobody holds the state directory any more."""
        with pytest.raises(ObserveError, match="lbd has stopped"):
            LocalClient(tmp_path, "lbd").get("status")


AS_USER = """
import os, sys
from pathlib import Path
from lbd.api.client import LocalClient
from lbd.errors import LbdError
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
try:
    print(LocalClient(Path(sys.argv[1]), "lbd").post("pause", body={"owner": "mallory"})["paused"]["by"])
except LbdError as error:
    print(type(error).__name__, error)
"""


@as_root
@pytest.mark.security("the socket of commands: its owner by the name that the kernel gives, nobody else", cases=1)
def test_the_kernel_says_who_asks(pulsar: FakePulsar):
    """The owner of the directory, whatever name it claims; root may claim one; nobody else gets in."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        os.chown(folder / "state", NOBODY, NOBODY)

        def told(user: int) -> str:
            command = [sys.executable, "-c", AS_USER, str(folder / "state"), str(user)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        with serving(pulsar, folder):
            assert (folder / "state" / SOCKET).lstat().st_uid == NOBODY
            for path in (folder / "state").iterdir():
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            assert told(NOBODY) == user_name(NOBODY)
            assert told(0) == "mallory"
            stranger = told(NOBODY - 1)
            assert stranger.startswith("UsageError")
            assert "Permission denied" in stranger
            assert f"do it as root or {user_name(NOBODY)}" in stranger


LAZY = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace
from lbd.api.client import LocalClient
from lbd.api.published import Board
from lbd.api.server import Server, listen_locally
from lbd.config import Settings
from lbd.store.state import StateDir
folder = Path(sys.argv[1])
backend = SimpleNamespace(board=Board(), settings=Settings(), state_dir=folder)
with StateDir(folder).locked():
    server = Server(backend, listen_locally(folder / "lbd.sock"), local=True)
    print("fastapi" in sys.modules)
    print(LocalClient(folder, "lbd").get("strategy")["name"], "fastapi" in sys.modules)
    server.stop()
    idle = Server(backend, listen_locally(folder / "lbd.sock"), local=True)
    idle.stop()
    print(threading.active_count())
"""


def test_its_libraries_are_loaded_for_the_first_client(tmp_path: Path):
    """An lbd without the API on TCP, to which nobody sends commands, never needs them."""
    found = subprocess.run(
        [sys.executable, "-c", LAZY, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.stdout.split() == ["False", "avg-shedder", "True", "1"], found


class TestFromElsewhere:
    def test_one_bundle_and_a_namespace(self, busy: Api, pulsar: FakePulsar, tmp_path: Path):
        """The same words and exit codes; the bundles are those of that lbd's last round."""
        shown = lbd(busy, tmp_path, "unload", HOT[0], "--to", pulsar.ids[2].partition(":")[0])
        assert (shown.exit_code, shown.stdout.startswith(f"Would move {HOT[0]} ")) == (0, True), shown.output
        one = lbd(busy, tmp_path, "unload", HOT[0], "--apply", "--to", pulsar.ids[2])
        assert (one.exit_code, ": landed in " in one.stdout) == (0, True), one.output
        assert f"Asked {busy.serving.url}; waiting up to 2 min" in one.stderr
        again = lbd(busy, tmp_path, "unload", HOT[0], "--apply", "--to", pulsar.ids[1])
        assert (again.exit_code, "Refused: cool-down" in again.stdout) == (4, True), again.output
        all_of_it = lbd(busy, tmp_path, "unload", "t/n", "--apply", "--to", pulsar.ids[2])
        assert "t/n: " in all_of_it.stdout.splitlines()[-1]
        assert pulsar.owners[HOT[1]] == pulsar.ids[2]
        assert not (tmp_path / "elsewhere").exists()

    def test_placing(self, busy: Api, pulsar: FakePulsar, tmp_path: Path):
        """Owned bundles stay; unowned ones are placed."""
        pulsar.own(None, {"t/new/0x00000000_0xffffffff": 0.0})
        found = lbd(busy, tmp_path, "place", "t/new", "--apply")
        assert (found.exit_code, "1 bundle: 1 placed." in found.stdout) == (0, True), found.output
        assert pulsar.owners["t/new/0x00000000_0xffffffff"] in pulsar.ids

    def test_an_address_where_nobody_listens(self, pulsar: FakePulsar):
        """Exit 3, before anything was sent."""
        with pytest.raises(ObserveError, match="it cannot be reached"):
            Client("http://127.0.0.1:1", None).command(a_command(pulsar))

    def test_a_connection_that_ends_is_not_tried_again(self, pulsar: FakePulsar):
        """Exit 5 with where the truth is: that lbd may have executed it."""
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(Client(f"http://127.0.0.1:{server.getsockname()[1]}", None).command, a_command(pulsar))
            accepted, _ = server.accept()
            accepted.recv(1)
            accepted.close()
            found = asked.result(30)
            server.settimeout(0.5)
            with pytest.raises(TimeoutError):
                server.accept()
        assert (found["exit_code"], "see lbd history" in found["sentence"]) == (5, True)

    def test_another_version_is_named(self, api: Api):
        """It knows no such route."""
        assert api.serving.url is not None
        with pytest.raises(UsageError, match="404: Not Found; is it another version than this one"):
            Client(api.serving.url, None).get("later")


def test_a_command_waits_for_an_lbd_that_has_just_started(api: Api):
    """It holds its state directory a moment before it listens."""
    path = api.engine.settings.state_dir / SOCKET
    path.rename(path.with_suffix(".later"))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(local(api).get, "strategy")
        time.sleep(0.5)
        path.with_suffix(".later").rename(path)
        assert asked.result(30)["name"] == "avg-shedder"
