"""Who may ask what: tokens, names, sizes, and what is never told."""

from __future__ import annotations

import asyncio
import http.client
import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import requests

from lbd.api.guard import EXPENSIVE, WorkLimit
from lbd.config import Settings
from tests.api.conftest import PATIENCE_SECONDS, TOKEN, Api, serving
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

PAUSE = {"owner": "ann", "reason": "upgrade"}


class TestToken:
    @pytest.mark.parametrize(
        "given", [None, "Bearer wrong", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"]
    )
    def test_changes_need_the_token(self, api: Api, given: str | None):
        """401 with a problem, and nothing is changed; the token is never told."""
        headers = {"Authorization": given.encode()} if given else {"Authorization": ""}
        found = api.post("/v1/pause", PAUSE, **headers)  # type: ignore[arg-type]
        assert (found.status_code, found.headers["content-type"]) == (401, "application/problem+json")
        assert TOKEN not in found.text
        assert api.get("/v1/status").json()["paused"] is None

    def test_a_token_file_is_read_again_when_it_changes(self, api: Api, tmp_path: Path):
        """The old token opens nothing any more."""
        assert api.post("/v1/resume", {"owner": "ann"}).status_code == 200
        (tmp_path / "token").write_text("another")
        assert api.post("/v1/resume", {"owner": "ann"}).status_code == 401
        assert api.post("/v1/resume", {"owner": "ann"}, Authorization="Bearer another").status_code == 200

    @pytest.mark.parametrize(("content", "status"), [("", 503), (None, 503)])
    def test_without_a_readable_token_nothing_opens(self, api: Api, tmp_path: Path, content: str | None, status: int):
        """An empty file is no token, and one that has gone neither."""
        path = tmp_path / "token"
        path.write_text(content) if content is not None else path.unlink()
        assert api.post("/v1/resume", {"owner": "ann"}, Authorization="Bearer ").status_code == status
        api.turn()
        assert any("api.token_file" in one for one in api.get("/v1/status").json()["warnings"])

    def test_a_pipe_in_place_of_the_token_is_not_waited_for(self, api: Api, tmp_path: Path):
        """503 with what would be right; the API answers on."""
        path = tmp_path / "token"
        path.unlink()
        os.mkfifo(path)
        found = api.post("/v1/resume", {"owner": "ann"})
        assert (found.status_code, "wanted a file" in found.text) == (503, True)

    @pytest.mark.security("control and bidirectional characters in the address of a request")
    @pytest.mark.parametrize("path", ["/v1/explain/%1b", "/v1/history?bundle=a%0d%0ab", "/v1/%E2%80%AE", "/v1/a%00b"])
    def test_an_address_that_is_not_printable(self, api: Api, path: str):
        """400 before any route sees it: no log and no answer has it."""
        found = api.get(path)
        assert (found.status_code, "control or format characters" in found.text) == (400, True)

    def test_a_token_may_have_any_letters(self, api: Api, tmp_path: Path):
        """They are compared as bytes."""
        (tmp_path / "token").write_text("schlüssel", encoding="utf-8")
        given: Any = "Bearer schlüssel".encode()
        assert api.post("/v1/resume", {"owner": "ann"}, Authorization=given).status_code == 200

    def test_without_a_token_file_the_api_changes_nothing(self, pulsar: FakePulsar, tmp_path: Path):
        """It can be read on loopback all the same."""
        with serving(pulsar, tmp_path, {"token_file": None}) as api:
            api.turn()
            assert api.post("/v1/pause", PAUSE).status_code == 403
            assert api.get("/v1/status").status_code == 200

    def test_elsewhere_than_on_loopback_reading_needs_it_too(self, pulsar: FakePulsar, tmp_path: Path):
        """Probes and the empty page do not: they tell nothing of the cluster."""
        with serving(pulsar, tmp_path, {"listen": "0.0.0.0:0"}) as api:
            api.turn()
            closed = ["/v1/status", "/v1/snapshot", "/v1/events", "/metrics", "/v1/openapi.json", "/v1/explain"]
            assert {path: api.get(path).status_code for path in closed} == dict.fromkeys(closed, 401)
            assert api.get("/v1/status", headers=api.headers).status_code == 200
            assert api.get("/healthz").status_code == 200

    def test_settings_that_would_open_it_to_all_are_none(self):
        """No address but loopback without a token; junk is told with what would be right."""
        for api, words in (
            ({"listen": "0.0.0.0:8085"}, "give token_file"),
            ({"listen": "somewhere:80"}, "wanted an IP address and a port"),
            ({"listen": "127.0.0.1:99999"}, "wanted a port"),
            ({"tls": {"cert_file": "/x"}}, "belong together"),
        ):
            with pytest.raises(ValueError, match=words):
                Settings.model_validate({"api": api})


class TestRequests:
    @pytest.mark.parametrize(
        ("host", "status"),
        [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 421), ("evil.example:80", 421)],
    )
    def test_a_web_page_elsewhere_reads_nothing(self, shared_api: Api, host: str, status: int):
        """On loopback a request comes under a name of this machine, or under none."""
        assert shared_api.get("/v1/status", headers={"Host": host}).status_code == status

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 200),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
            ({"Sec-Fetch-Site": "same-origin", "Origin": "https://lbd.example"}, 200),  # a proxy has changed Host
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
            ({"Sec-Fetch-Site": "anything"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": "SELF"}, 403),
            ({"Origin": "SELF"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://evil.example", "Connection": "Upgrade", "Upgrade": "websocket"}, 403),
        ],
    )
    def test_a_page_of_another_site_makes_nobody_work(self, shared_api: Api, headers: dict[str, str], status: int):
        """A browser asks for it, but says for whom; programs that are no browser say nothing of the kind."""
        own = {"SELF": shared_api.serving.url or ""}
        given = {name: own.get(value, value) for name, value in headers.items()}
        for path in ("/v1/status", "/v1/events", "/v1/drain/broker:1", "/metrics", "/v1/nope"):
            with shared_api.get(path, headers=given, stream=True) as found:
                assert (found.status_code == 403) is (status == 403), (path, found.status_code)
            assert path != "/v1/status" or found.status_code == status

    @pytest.mark.parametrize("path", ["/", "/static/style.css", "/healthz", "/readyz"])
    def test_a_page_of_another_site_may_lead_to_the_dashboard(self, shared_api: Api, path: str):
        """By a link; and probes tell nothing."""
        assert shared_api.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200

    def test_a_page_of_another_site_changes_nothing_with_the_token(self, api: Api):
        """Should it ever have it."""
        found = api.post("/v1/pause", PAUSE, **{"Sec-Fetch-Site": "cross-site"})
        assert (found.status_code, api.get("/v1/status").json()["paused"]) == (403, None)

    def test_few_expensive_requests_run_at_the_same_time(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """Others wait in line, or get 503 where many do; what is cheap is answered meanwhile."""
        (at_once, waiting), ends = EXPENSIVE[r"/v1/(drain|fill|rollout)/"], threading.Event()
        lock, counts, statuses = threading.Lock(), [0, 0], list[int]()

        def hung(*_: object) -> None:
            with lock:
                counts[0] += 1
                counts[1] = max(counts)
            ends.wait(PATIENCE_SECONDS)
            with lock:
                counts[0] -= 1

        monkeypatch.setattr(api.serving, "show_drain", hung)
        asks = [
            threading.Thread(target=lambda: statuses.append(api.get("/v1/drain/broker:1").status_code))
            for _ in range(at_once + waiting + 5)
        ]
        try:
            for one in asks:
                one.start()
            eventually(lambda: statuses == [503] * 5)
            assert api.get("/v1/status").status_code == 200
        finally:
            ends.set()
        for one in asks:
            one.join()
        assert counts[1] == at_once
        assert statuses == [503] * 5 + [200] * (at_once + waiting)

    def test_callers_take_turns_at_what_asks_brokers(self):
        """A caller with many requests in line delays another one by one of them, whoever came first."""
        order = list[str]()

        async def worked(limit: WorkLimit, caller: str) -> None:
            async with limit.place(caller):
                order.append(caller)
                await asyncio.sleep(0)

        async def all_of_them() -> None:
            limit = WorkLimit(at_once=1, waiting=8)
            await asyncio.gather(*(worked(limit, name) for name in ("a", "a", "a", "a", "b", "b")))

        asyncio.run(all_of_them())
        assert order == ["a", "b", "a", "b", "a", "a"]

    def test_previews_are_counted_per_token(self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """One that sends too many in a minute gets 429 with a time, whatever it asks; another token is answered."""
        monkeypatch.setattr("lbd.api.guard.PREVIEWS_A_MINUTE", 2)
        names = tmp_path / "names"
        names.write_text("grafana read 0123456789abcdef\nann administer fedcba9876543210\n")
        with serving(pulsar, tmp_path, {"tokens_file": str(names)}) as api:
            api.turn()

            def ask(path: str, token: str) -> requests.Response:
                return api.get(path, headers={"Authorization": f"Bearer {token}"})

            paths = ("/v1/drain/nobody:1", "/v1/rollout/plan?broker=nobody:1", "/v1/fill/nobody:1", "/v1/split")
            answers = [ask(path, "0123456789abcdef") for path in paths]
            assert [one.status_code for one in answers] == [400, 400, 429, 429]
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
            assert answers[-1].json()["detail"].startswith("2 requests of this kind in 60 s, the most that one caller")
            assert ask("/v1/drains", "0123456789abcdef").status_code == 200
            assert ask(paths[0], "fedcba9876543210").status_code == 400
            assert api.get(paths[0]).status_code == 400

    def test_a_body_that_is_too_long_is_not_read(self, api: Api):
        """By what it says, and by what it is."""
        assert api.post("/v1/pause", {"owner": "a", "reason": "x" * 100_000}).status_code == 413
        assert _chunked(api, b"x" * 100_000) == 413

    def test_every_answer_is_for_this_page_only(self, shared_api: Api):
        """A strict policy on all answers, errors included; nobody keeps them."""
        for path in ("/v1/status", "/v1/nope", "/healthz"):
            found = shared_api.get(path)
            assert "default-src 'none'" in found.headers["content-security-policy"]
            assert found.headers["x-content-type-options"] == "nosniff"
        assert shared_api.get("/v1/status").headers["cache-control"] == "no-store"

    def test_a_page_never_runs_with_the_script_of_an_older_lbd(self, shared_api: Api):
        """Its parts are asked for again each time, and are mostly the same."""
        for path in ("/", "/static/style.css"):
            found = shared_api.get(path)
            assert (found.status_code, found.headers["cache-control"]) == (200, "no-cache"), path
        again = shared_api.get("/static/style.css", headers={"If-None-Match": found.headers["etag"]})
        assert again.status_code == 304

    def test_errors_are_problems(self, shared_api: Api):
        """RFC 9457, whatever went wrong."""
        for path, status in (
            ("/v1/nope", 404),
            ("/v1/moves?last=x", 422),
            ("/v1/pause", 405),
            ("/static/no", 404),
            ("/v1/status/", 404),
        ):
            found = shared_api.get(path)
            assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json"), path
            assert {"title", "status", "detail"} <= found.json().keys()

    @pytest.mark.parametrize("path", ["/healthz", "/v1/status", "/v1/nope", "/metrics"])
    def test_head_is_get_without_its_body(self, shared_api: Api, path: str):
        """As probes of load balancers ask."""
        assert shared_api.serving.url is not None
        found = requests.head(shared_api.serving.url + path, timeout=PATIENCE_SECONDS)
        assert (found.status_code, found.content) == (shared_api.get(path).status_code, b"")

    def test_an_answer_that_does_not_come_is_waited_for_no_longer(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """Its thread hangs, as on a file system that does; the next one is answered."""
        hangs, ends = threading.Event(), threading.Event()

        def hung(*_: object) -> None:
            hangs.set()
            ends.wait(PATIENCE_SECONDS)

        monkeypatch.setattr("lbd.api.guard.ANSWER_SECONDS", 1.0)
        monkeypatch.setattr("lbd.api.read.snapshot", hung)
        try:
            found = api.get("/v1/snapshot")
            assert (found.status_code, found.json()["detail"]) == (503, "not done in time")
            assert hangs.is_set()
            assert not ends.is_set()
            assert api.get("/healthz").status_code == 200
        finally:
            ends.set()

    def test_a_bug_is_told_without_its_trace(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """The log has it."""

        def broken(*_: object) -> None:
            raise ZeroDivisionError("secret")

        monkeypatch.setattr("lbd.api.read.snapshot", broken)
        found = api.get("/v1/snapshot")
        assert (found.status_code, "secret" in found.text) == (500, False)


def _chunked(api: Api, body: bytes) -> int:
    assert api.serving.url is not None
    connection = http.client.HTTPConnection(urlsplit(api.serving.url).netloc, timeout=30)
    connection.request("POST", "/v1/pause", iter([body]), headers=api.headers, encode_chunked=True)
    status = connection.getresponse().status
    connection.close()
    return status
