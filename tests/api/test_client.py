"""``--api URL``: the commands that ask an lbd elsewhere print what they print of one here."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import requests
import yaml
from click.testing import CliRunner, Result

from lbd.api import client as client_module
from lbd.api.client import STANDBY_TRIES, Client
from lbd.cli import main
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.store.control import PlaceRequest
from tests.api.conftest import PATIENCE_SECONDS, TOKEN, serving
from tests.api.test_tls import OPENSSL, certify
from tests.fake_pulsar import COLD, HOT, scalable_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar


def lbd(api: Api, folder: Path, *words: str, token: str | None = TOKEN) -> Result:
    """A command whose own state directory is empty."""
    (folder / "mine").write_text(token or "")
    own: dict[str, Any] = {"token_file": str(folder / "mine")} if token is not None else {}
    (folder / "lbd.yaml").write_text(yaml.safe_dump({"state_dir": str(folder / "elsewhere"), "api": own}))
    assert api.serving.url is not None
    given = [*words, "--api", api.serving.url, "--config", str(folder / "lbd.yaml")]
    return CliRunner().invoke(main, given, prog_name="lbd", standalone_mode=True)


def test_status_of_an_lbd_elsewhere(api: Api, pulsar: FakePulsar, tmp_path: Path):
    """The same text and JSON, by that lbd's clock."""
    found = lbd(api, tmp_path, "status")
    assert (found.exit_code, pulsar.ids[0] in found.stdout) == (0, True), found.output
    told = json.loads(lbd(api, tmp_path, "status", "--format", "json").stdout)
    assert told == {**api.get("/v1/status").json(), "age_seconds": told["age_seconds"]}


def test_pause_and_resume_an_lbd_elsewhere(api: Api, tmp_path: Path):
    """It holds there, for as long as was asked, and nothing is left here."""
    assert lbd(api, tmp_path, "pause", "--for", "2h", "--reason", "upgrade").exit_code == 0
    record = api.turn()
    assert record.plan.hold is not None
    assert "upgrade" in record.plan.hold[1]
    assert "Ended the pause" in lbd(api, tmp_path, "resume").stdout
    assert api.turn().plan.hold is None
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("what", ["", "1", "broker", "bundle", "namespace"])
def test_explain_of_an_lbd_elsewhere(api: Api, pulsar: FakePulsar, tmp_path: Path, what: str):
    """A turn, a broker, a bundle, a namespace."""
    words = {"": [], "1": ["1"], "broker": [pulsar.ids[0]], "bundle": [HOT[0]], "namespace": ["t/n"]}[what]
    found = lbd(api, tmp_path, "explain", *words)
    assert (found.exit_code, pulsar.ids[0].split(":")[0] in found.stdout) == (0, True), found.output


def test_place_by_an_lbd_elsewhere(api: Api, tmp_path: Path):
    """A row with owner and answer; a namespace is not asked so."""
    found = lbd(api, tmp_path, "place", HOT[0])
    assert (found.exit_code, HOT[0] in found.stdout) == (0, True), found.output
    assert lbd(api, tmp_path, "place", HOT[0].rpartition("/")[0]).exit_code == 2
    assert lbd(api, tmp_path, "place", HOT[0], "--recording", "x").exit_code == 2


def test_segments_by_an_lbd_elsewhere(api: Api, pulsar: FakePulsar, tmp_path: Path):
    """It lists the segments of a scalable topic for place, explain and unload."""
    pulsar.fault("/scalable/t/n/orders", scalable_topic({1: (0, 0x7FFF), 2: (0x8000, 0xFFFF)}))
    found = lbd(api, tmp_path, "place", "topic://t/n/orders")
    assert (found.exit_code, f"{HOT[0]} segment://t/n/orders/0000-7fff-1" in found.stdout) == (0, True), found.output
    found = lbd(api, tmp_path, "explain", "topic://t/n/orders", "--format", "json")
    assert [one["bundle"] for one in json.loads(found.stdout)] == [HOT[0], COLD]
    found = lbd(api, tmp_path, "unload", "topic://t/n/orders")
    assert (found.exit_code, "has 2 segments; wanted one of segment://" in found.stderr) == (2, True), found.output
    found = lbd(api, tmp_path, "unload", "segment://t/n/orders/0000-7fff-1")
    assert (found.exit_code, found.stdout.startswith(f"Would move {HOT[0]} (")) == (0, True), found.output


def test_what_goes_wrong_is_told_in_one_line(api: Api, tmp_path: Path):
    """A wrong token, none, what is not known, nobody there; never the token."""
    wrong = lbd(api, tmp_path, "pause", token="secret-word")
    assert (wrong.exit_code, "401: wrong token" in wrong.output, "secret-word" in wrong.output) == (2, True, False)
    assert lbd(api, tmp_path, "pause", token="two words").exit_code == 2
    assert lbd(api, tmp_path, "explain", "nobody:1").exit_code == 2
    api.serving.stop()
    runner = CliRunner().invoke(main, ["status", "--api", "http://127.0.0.1:9"], prog_name="lbd")
    assert (runner.exit_code, "no lbd answers there" in runner.output) == (3, True), runner.output
    assert CliRunner().invoke(main, ["status", "--api", "ftp://x"], prog_name="lbd").exit_code == 2


def test_a_stopped_lbd_is_not_there(api: Api):
    """Its port is free at once: whoever asks is told so, and not answered by what has ended."""
    url = api.serving.url
    assert url is not None
    assert requests.get(url + "/healthz", timeout=PATIENCE_SECONDS).ok
    api.serving.stop()
    with pytest.raises(requests.ConnectionError):
        requests.get(url + "/healthz", timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "url", ["http://[", "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://127.0.0.1:1?x", "ftp://x", "x", ""]
)
def test_an_address_that_is_none_is_told(url: str):
    """With what would be right, before anything is asked."""
    with pytest.raises(UsageError, match="wanted http://host:port"):
        Client(url, None)


def test_who_has_no_token_is_told_where_to_name_one(api: Api, tmp_path: Path):
    """And what is wrong with the file that is to have it, in words."""
    assert api.serving.url is not None
    with pytest.raises(UsageError, match=r"TOKEN; api\.token_file names the file that has it"):
        Client(api.serving.url, None).post("pause", body={})
    with pytest.raises(UsageError, match="none: cannot be read: No such file or directory"):
        Client(api.serving.url, tmp_path / "none").get("status")


def test_why_no_lbd_answers_is_told_in_words():
    """Nobody listens there."""
    with pytest.raises(ObserveError, match="no lbd answers there: it cannot be reached"):
        Client("http://127.0.0.1:1", None).get("status")


class _Named(BaseHTTPRequestHandler):
    """Notes what it is asked, and sends whoever asks elsewhere."""

    asked: ClassVar[list[tuple[str, str | None]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args


class _Pods(BaseHTTPRequestHandler):
    """Several lbds behind one address: one after the other answers."""

    answers: ClassVar[list[tuple[int, dict[str, Any]]]]
    keys: ClassVar[list[str | None]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        status, document = self.answers.pop(0)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args


STANDBY = 409, {"detail": "not-leader: this lbd stands by", "leader": "lbd-b-7-beef", "leader_url": None}
DONE = 200, {"exit_code": 0, "sentence": "Done."}


@pytest.mark.parametrize(
    ("answers", "requests", "refusal"),
    [
        ([DONE], 1, ""),
        ([STANDBY, STANDBY, DONE], 3, ""),
        ([STANDBY] * STANDBY_TRIES, STANDBY_TRIES, "not-leader: this lbd stands by"),
        ([(409, {"detail": "the pause holds"})], 1, "the pause holds"),
    ],
    ids=["the leader", "standbys first", "standbys alone", "refused by the leader"],
)
def test_an_order_goes_to_one_address_until_a_leader_takes_it(
    answers: list[tuple[int, dict[str, Any]]], requests: int, refusal: str, monkeypatch: pytest.MonkeyPatch
):
    """As behind a Service of Kubernetes; under the same key each time, and to no other address."""
    monkeypatch.setattr(client_module, "STANDBY_PAUSE_SECONDS", 0.0)
    handler = type("Pods", (_Pods,), {"answers": list(answers), "keys": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = Client(f"http://127.0.0.1:{server.server_address[1]}", None)
        order = PlaceRequest("key", ["t/n"], "rendezvous", "ann", 0.0, 5.0)
        with pytest.raises(RefusedError, match=refusal) if refusal else nullcontext():
            assert api.command(order)["sentence"] == "Done."
        server.shutdown()

    assert handler.keys == ["key"] * requests  # type: ignore[attr-defined]


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that may be a proxy or a target of redirects, and what it is asked with which token."""
    handler = type("Named", (_Named,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.asked  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """With the token of the lbd that is asked."""
    path = tmp_path / "mine"
    path.write_text(TOKEN)
    return path


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_is_not_given_the_token(
    api: Api,
    elsewhere: tuple[str, list[tuple[str, str | None]]],
    token_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
):
    """That the environment names one is no reason: the lbd itself is asked."""
    monkeypatch.setenv(name, elsewhere[0])
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert api.serving.url is not None
    assert Client(api.serving.url, token_file).post("resume", body={"owner": "ann"})["ended"] is None
    assert elsewhere[1] == []


def test_a_netrc_does_not_replace_the_token(
    api: Api, token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nor is a login of it sent where there is no token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert api.serving.url is not None
    assert Client(api.serving.url, token_file).post("resume", body={"owner": "ann"})["ended"] is None


def test_a_redirect_is_not_followed(elsewhere: tuple[str, list[tuple[str, str | None]]], token_file: Path):
    """The token goes to the address that was given and to no other."""
    with pytest.raises(ObserveError, match="307: no answer of an lbd"):
        Client(elsewhere[0], token_file).get("status")
    assert elsewhere[1] == [("/v1/status", f"Bearer {TOKEN}")]


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_another_ca_is_named_by_the_environment(pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """REQUESTS_CA_BUNDLE is all that is taken from there; a file that is missing is told in words."""
    files = certify(tmp_path, "127.0.0.1", "subjectAltName=IP:127.0.0.1")
    with serving(pulsar, tmp_path, {"tls": files}) as api:
        api.turn()
        assert api.serving.url is not None
        with pytest.raises(ObserveError, match="its certificate is not trusted"):
            Client(api.serving.url, None).get("status")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
        with pytest.raises(ObserveError, match=r"none\.pem"):
            Client(api.serving.url, None).get("status")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", files["cert_file"])
        assert Client(api.serving.url, None).get("status")["turn"] == 1
