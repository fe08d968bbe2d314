"""A drain and a fill over the API: shown, begun, watched and ended, with the guard of every change."""

from __future__ import annotations

import json
import queue
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import requests
from structlog.testing import capture_logs

from tests.api.conftest import PATIENCE_SECONDS, Api, lbd
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.simulate.fake_pulsar import FakePulsar


@pytest.fixture
def api(unpaced_api: Api) -> Api:
    """An lbd that moves without a pause."""
    return unpaced_api


def who(broker: str, **more: Any) -> dict[str, Any]:
    """A body."""
    return {"owner": "ann", "broker": broker, **more}


def owned(cluster: FakePulsar, broker: str) -> int:
    """How many bundles a broker owns."""
    return sum(owner == broker for owner in cluster.owners().values())


def ended(api: Api, broker: str) -> dict[str, Any]:
    """The work on a drained broker once it has ended."""

    def over() -> dict[str, Any] | None:
        told = next(one for one in api.get("/v1/drains").json()["drains"] if one["drain"]["broker"] == broker)
        work: dict[str, Any] | None = told["work"]
        return work if work is not None and work["ended_at"] is not None else None

    eventually(over)
    found = over()
    assert found is not None
    return found


class TestDrain:
    def test_it_is_shown_begun_and_ended(self, api: Api, cluster: FakePulsar):
        """What would go where; then all of it is gone, and it stays drained until it is released."""
        target = cluster.brokers[0]
        shown = api.get(f"/v1/drain/{target}").json()
        assert (len(shown["unloads"]), shown["cannot_spare"], owned(cluster, target)) == (14, None, 14)
        begun = api.post("/v1/drain", who(target, reason="new disk", for_seconds=600))
        assert begun.status_code == 200, begun.text
        drain = begun.json()["drain"]
        assert (drain["by"], drain["reason"], round(drain["until"] - drain["since"])) == ("ann", "new disk", 600)
        work = ended(api, target)
        assert (work["landed"] + work["elsewhere"], work["exit_code"], owned(cluster, target)) == (14, 0, 0)
        assert [one["drain"]["broker"] for one in api.get("/v1/status").json()["drains"]] == [target]
        released = api.post("/v1/release", who(target)).json()["released"]
        assert (released["broker"], api.get("/v1/drains").json()["drains"]) == (target, [])
        assert api.post("/v1/release", who(target)).json() == {"released": None, "filled": None}

    def test_the_same_key_begins_it_once(self, api: Api, cluster: FakePulsar):
        """Asked again it is answered as before, also when the drain was released meanwhile."""
        asked = "/v1/drain", who(cluster.brokers[0])
        first = api.post(*asked, **{"Idempotency-Key": "k"})
        api.post("/v1/release", who(cluster.brokers[0]))
        assert api.post(*asked, **{"Idempotency-Key": "k"}).json() == first.json()
        assert api.get("/v1/drains").json()["drains"] == []

    def test_released_while_looked_at_it_ends(self, api: Api, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch):
        """The release comes in the middle of a step of the drain: nothing moves, and the daemon goes on."""
        target, released = cluster.brokers[0], threading.Event()

        def release_first() -> None:
            if not released.is_set():
                released.set()
                assert api.post("/v1/release", who(target)).json()["released"]["broker"] == target

        monkeypatch.setattr(api.engine.draining, "_held", release_first)
        api.post("/v1/drain", who(target))
        eventually(lambda: released.is_set() and not api.engine.draining.busy)
        assert owned(cluster, target) == 14
        assert api.get("/v1/status").status_code == 200

    def test_each_change_is_one_line_in_the_log(self, api: Api, cluster: FakePulsar):
        """Who, why, what came of it."""
        with capture_logs() as log:
            api.post("/v1/drain", who(cluster.brokers[0], reason="new disk"))
        told = [line for line in log if line["event"] == "change asked for over the API"]
        assert [(line["what"], line["by"], line["why"]) for line in told] == [("/v1/drain", "ann", "new disk")]
        assert told[0]["asked"] == {"broker": cluster.brokers[0], "timeout_seconds": 120, "respect_rest": False}
        assert told[0]["result"].startswith(f"The drain of {cluster.brokers[0]} has begun: 14 bundles")

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("/v1/drain", who("nobody:1"), 400),
            ("/v1/fill", who("nobody:1"), 400),
            ("/v1/drain", {"owner": "ann"}, 422),
            ("/v1/drain", who("b", for_seconds=0), 422),
            ("/v1/drain", who("b", override=""), 422),
            ("/v1/drain", who(""), 422),
            ("/v1/fill", who("b", for_seconds=60), 422),
            ("/v1/release", who("b" * 301), 422),
        ],
    )
    def test_junk_drains_nothing(self, api: Api, path: str, body: dict[str, Any], status: int):
        """Told as a problem; no order is left."""
        found = api.post(path, body)
        assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json"), found.text
        assert api.get("/v1/drains").json() == {"drains": [], "fill": None, "fill_tried": 0}

    def test_those_who_wait_for_a_look_keep_nobody_else_from_an_answer(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """More of them than the API has threads, while a broker does not answer the first one."""
        answered = threading.Event()

        def hung(broker: str) -> object:
            assert answered.wait(PATIENCE_SECONDS), broker
            return {}

        monkeypatch.setattr(api.serving, "show_drain", hung)
        assert api.serving.url is not None
        host, port = api.serving.url.removeprefix("http://").split(":")
        ask = f"GET /v1/drain/b:1 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        with ExitStack() as asking:
            asking.callback(answered.set)
            for _ in range(60):
                asking.enter_context(socket.create_connection((host, int(port)))).sendall(ask)
            for _ in range(3):
                found = requests.get(f"{api.serving.url}/v1/status", timeout=PATIENCE_SECONDS)
                assert found.status_code == 200

    def test_a_pause_refuses_it(self, api: Api, cluster: FakePulsar):
        """409, with who paused; without a token nothing is begun at all."""
        api.post("/v1/pause", {"owner": "bob", "reason": "upgrade"})
        found = api.post("/v1/drain", who(cluster.brokers[0]))
        assert (found.status_code, "by bob" in found.json()["detail"]) == (409, True), found.text
        assert api.post("/v1/drain", who(cluster.brokers[0]), Authorization="Bearer x").status_code == 401

    def test_progress_is_told_as_it_comes(self, api: Api, cluster: FakePulsar):
        """Events of one stream: under way, then ended."""
        told: queue.Queue[dict[str, Any]] = queue.Queue()
        with requests.get(f"{api.serving.url}/v1/events", stream=True, timeout=PATIENCE_SECONDS) as stream:
            lines = stream.iter_lines(chunk_size=1)
            assert next(lines).startswith(b"retry")

            def listen() -> None:
                of_drain = False
                for line in lines:
                    if line.startswith(b"event: "):
                        of_drain = line == b"event: drain"
                    elif line.startswith(b"data: ") and of_drain:
                        told.put(json.loads(line[6:]))
                        if told.queue[-1]["work"]["ended_at"] is not None:
                            return

            thread = threading.Thread(target=listen, daemon=True)
            thread.start()
            api.post("/v1/drain", who(cluster.brokers[0]))
            thread.join(PATIENCE_SECONDS)
        found = list(told.queue)
        assert {one["broker"] for one in found} == {cluster.brokers[0]}
        assert (found[0]["work"]["ended_at"], found[-1]["work"]["owned"]) == (None, 0)


class TestFill:
    def test_it_is_shown_begun_and_ended(self, api: Api, cluster: FakePulsar):
        """A slice of the hot one; the last fill is told with its outcome."""
        target = cluster.brokers[2]
        shown = api.get(f"/v1/fill/{target}").json()
        assert {unload["destination"] for unload in shown["unloads"]} == {target}
        assert api.post("/v1/fill", who(target)).json()["drain"] is None
        eventually(lambda: (api.get("/v1/drains").json()["fill"] or {}).get("ended_at"))
        fill = api.get("/v1/drains").json()["fill"]
        assert (fill["broker"], fill["owned"], fill["total"] > 0) == (target, None, True)
        assert owned(cluster, target) == 2 + fill["landed"]


class TestFromElsewhere:
    def test_a_drain_by_an_lbd_elsewhere(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """Shown, made, told in status, and released; nothing is kept here."""
        target = cluster.brokers[0]
        shown = lbd(api, tmp_path, "drain", target)
        assert (shown.exit_code, f"The cluster can do without {target}" in shown.stdout) == (0, True), shown.output
        done = lbd(api, tmp_path, "drain", target, "--apply", "--for", "2h", "--reason", "new disk")
        assert (done.exit_code, f"{target} owns nothing: 14 bundles gone" in done.stdout) == (0, True), done.output
        assert "has begun: 14 bundles" in done.stderr
        told = lbd(api, tmp_path, "status").stdout
        assert "DRAINED" in told
        assert "new disk" in told
        assert "Released: " in lbd(api, tmp_path, "drain", target, "--release").stdout
        assert "is not drained" in lbd(api, tmp_path, "drain", target, "--release").stdout
        assert not (tmp_path / "elsewhere").exists()

    def test_what_is_refused_there_is_refused_here(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """Exit 4 for a pause, 2 for a broker that is none."""
        assert lbd(api, tmp_path, "drain", "nobody:1", "--apply").exit_code == 2
        lbd(api, tmp_path, "pause")
        refused = lbd(api, tmp_path, "fill", cluster.brokers[2], "--apply")
        assert (refused.exit_code, "paused" in refused.output) == (4, True), refused.output
