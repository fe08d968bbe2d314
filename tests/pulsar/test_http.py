"""One request: redirects by hand, credentials for this cluster's hosts only, bounded in time and size."""

from __future__ import annotations

import base64
import gzip
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest
import requests
import responses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from responses import matchers

from lbd.clock import boot_seconds
from lbd.deadline import connection
from lbd.errors import AdminError, RefusedError, UsageError
from lbd.pulsar.admin import Admin
from lbd.pulsar.http import MAX_HOPS, Http, Response, _waited
from lbd.pulsar.oauth2 import bearer_token
from lbd.pulsar.paths import LOAD_REPORT
from lbd.pulsar.settings import BasicSettings, PulsarSettings, TlsSettings
from tests import fake_pulsar
from tests.pulsar.issuer import Clock
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONE, TWO, THREE = "http://b1:8080", "http://b2:8080", "http://b3:8080"
FOREIGN = "http://evil.example:8080"
TOKEN = "top-secret-token"
UNLOAD = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/unload"


def http(*urls: str, **changes: object) -> Http:
    """An Http of a cluster whose brokers b1, b2 and b3 are known."""
    settings = PulsarSettings.model_validate({"admin_urls": urls or (ONE,), **changes})
    found = Http(settings, token=bearer_token(settings))
    found.trust(["b1:8080", "b2:8080", "b3:8080"])
    return found


def requested(mock: responses.RequestsMock) -> list[str]:
    """The URLs that were requested, in order."""
    return [str(call.request.url) for call in mock.calls]


def secret(path: Path, content: str = TOKEN) -> Path:
    """A file with a secret in it."""
    path.write_text(content, encoding="utf-8")
    return path


def authorized(value: str) -> object:
    """A matcher: the request carries exactly this Authorization."""
    return matchers.header_matcher({"Authorization": value})


@contextmanager
def listening(
    behaviour: bytes, *, drip_seconds: float | None = None, heard: list[bytes] | None = None
) -> Iterator[str]:
    """A server that sends ``behaviour`` to each connection, at once or byte by byte; the base URL of it.

    ``heard`` gets the path of each request.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with connection:
                request = connection.recv(65536)
                if heard is not None:
                    heard.append(request.split()[1])
                pieces = [behaviour] if drip_seconds is None else [bytes([byte]) for byte in behaviour]
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                        stop.wait(drip_seconds or 0)
                    if not behaviour:
                        stop.wait(60)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


class TestRedirects:
    def test_method_and_authorization_survive_a_change_of_host(self, tmp_path: Path) -> None:
        """An unload is redirected to the leader and on to the owner: PUT stays PUT, the token goes along."""
        with responses.RequestsMock() as mock:
            bearer = authorized(f"Bearer {TOKEN}")
            asked = matchers.query_param_matcher({"destinationBroker": "b3:8080"})
            on = matchers.query_param_matcher({"authoritative": "true"})
            mock.put(
                ONE + UNLOAD,
                status=307,
                headers={"Location": f"{TWO}{UNLOAD}?authoritative=true"},
                match=[bearer, asked],
            )
            mock.put(TWO + UNLOAD, status=307, headers={"Location": THREE + UNLOAD}, match=[bearer, on])
            mock.put(THREE + UNLOAD, status=204, match=[bearer, matchers.query_param_matcher({})])
            answer = http(token_file=secret(tmp_path / "token")).send(
                "PUT", ONE + UNLOAD, params={"destinationBroker": "b3:8080"}
            )
        assert (answer.status, answer.base) == (204, THREE)

    @pytest.mark.security("a redirect to a host outside the cluster: not followed, gets no token")
    @pytest.mark.parametrize("location", [f"{FOREIGN}/x", "//evil.example:8080/x", "https://evil.example/x"])
    def test_a_redirect_to_a_foreign_host_is_not_followed(self, location: str, tmp_path: Path) -> None:
        """Nothing is sent there: with an unknown URL the mock itself would fail, in other words."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": location})
            with pytest.raises(AdminError, match=r"evil\.example:\d+ is no broker of this cluster"):
                http(token_file=secret(tmp_path / "token")).send("GET", f"{ONE}/x")
            assert requested(mock) == [f"{ONE}/x"]

    @pytest.mark.parametrize(
        "location",
        [
            "http://b2:8081/x",
            "http://b2/x",
            "https://b2/x",
            "http://b2:80/x",
            "http://b2.example:8080/x",
            "http://b2:8080@evil.example:8080/x",
            "http://lbd:secret@b2:8080/x",
            "http://@b2:8080/x",
            "http://evil.example\\@b2:8080/x",
            "http://evil.example\\.b2:8080/x",
            "http://b2%2eevil.example:8080/x",
            "http://b2:8080:80/x",
            "http://b2:0/x",
            "http://b2:99999/x",
            "http://[b2]:8080/x",
            "ftp://b2:8080/x",
            "//b2:8081/x",
            "gopher:b2:8080",
        ],
    )
    def test_no_other_port_and_no_other_way_to_write_a_host(self, location: str, tmp_path: Path) -> None:
        """A broker is host and port: who else listens on its host is sent no token, nor who hides behind its name."""
        with responses.RequestsMock() as mock:
            mock.put(f"{ONE}/x", status=307, headers={"Location": location})
            with pytest.raises(AdminError, match=r"not followed") as refused:
                http(token_file=secret(tmp_path / "token")).send("PUT", f"{ONE}/x")
            assert requested(mock) == [f"{ONE}/x"]
        assert not refused.value.sent

    @pytest.mark.parametrize(
        ("listed", "asked"),
        [
            ("b2:8080", "http://b2:8080"),
            ("b2:8080", "http://B2:8080"),
            ("b2:8080", "http://b2.:8080"),
            ("b2.:8080", "http://b2:8080"),
            ("b2:80", "http://b2"),
            ("b2", "http://b2:80"),
            ("https://b2", "https://b2:443"),
            ("[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
            ("[2001:db8::1]:8080", "http://[2001:db8:0:0:0:0:0:1]:8080"),
            ("[2001:DB8::A]:8080", "http://[2001:db8::a]:8080"),
            ("10.0.0.1:8080", "http://10.0.0.1:8080"),
        ],
    )
    def test_one_address_in_several_spellings(self, listed: str, asked: str) -> None:
        """Case, a last dot, the port that a scheme stands for, and the zeros of IPv6 make no other address."""
        asking = http()
        asking.trust([listed])
        assert asking._trusts(f"{asked}/x")

    @pytest.mark.parametrize("url", ["http://proxy:1", "https://proxy", "http://10.0.0.1:8080"])
    def test_admin_urls_are_trusted_as_they_are_given(self, url: str) -> None:
        """Though no broker is listed there, and no other port of theirs."""
        asking = http(url)
        asking.trust(["b1:8080"])
        assert asking._trusts(f"{url}/x")
        assert not asking._trusts(f"http://{urlsplit(url).hostname}:2/x")

    def test_a_first_request_to_a_foreign_host_is_refused_too(self) -> None:
        """Whatever gave the address: it is no broker of this cluster."""
        with pytest.raises(AdminError, match="no broker of this cluster"):
            http().send("GET", f"{FOREIGN}/x")

    @pytest.mark.security("a redirect from https to http: not followed, gets no token")
    def test_a_token_is_not_carried_from_https_to_http(self, tmp_path: Path) -> None:
        """A redirect out of TLS would send the token in the clear."""
        with responses.RequestsMock() as mock:
            mock.get("https://b1:8443/x", status=307, headers={"Location": f"{TWO}/x"})
            with pytest.raises(AdminError, match="https"):
                http("https://b1:8443", token_file=secret(tmp_path / "token")).send("GET", "https://b1:8443/x")
            assert requested(mock) == ["https://b1:8443/x"]

    @pytest.mark.parametrize("hops", [0, 1, 3, MAX_HOPS])
    def test_so_many_hops_are_followed(self, hops: int) -> None:
        """Up to five redirects lead to the answer."""
        with responses.RequestsMock() as mock:
            for number in range(hops):
                mock.get(f"{ONE}/{number}", status=307, headers={"Location": f"{ONE}/{number + 1}"})
            mock.get(f"{ONE}/{hops}", body="here")
            assert http().send("GET", f"{ONE}/0").body == b"here"

    def test_a_circle_ends(self) -> None:
        """Two brokers that send each other the request are named, after one request and five hops."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": f"{TWO}/x"})
            mock.get(f"{TWO}/x", status=307, headers={"Location": f"{ONE}/x"})
            with pytest.raises(AdminError, match="still redirected after 5 hops"):
                http().send("GET", f"{ONE}/x")
            assert len(requested(mock)) == 1 + MAX_HOPS

    def test_all_hops_have_one_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A leader that redirects late leaves the owner no time: the unload is not sent there, and that is known."""
        clock = Clock(monkeypatch)

        def redirect(_: object) -> tuple[int, dict[str, str], bytes]:
            clock.later(60)
            return 307, {"Location": f"{TWO}/x"}, b""

        with responses.RequestsMock() as mock:
            mock.add_callback("PUT", f"{ONE}/x", redirect)
            with pytest.raises(AdminError, match=r"PUT http://b2:8080/x: no time left; not sent") as late:
                http().send("PUT", f"{ONE}/x", timeout_seconds=75, deadline=boot_seconds() + 60)
            assert requested(mock) == [f"{ONE}/x"]
        assert not late.value.sent

    def test_past_its_deadline_nothing_is_sent(self) -> None:
        """The mock knows no URL."""
        with responses.RequestsMock(), pytest.raises(AdminError, match="no time left") as late:
            http().send("PUT", f"{ONE}/x", deadline=boot_seconds())
        assert not late.value.sent

    def test_each_hop_after_the_first_may_be_stopped(self) -> None:
        """What raises before a hop comes through as it is, and nothing is sent to that broker."""
        asked: list[str] = []

        def before_hop(base: str) -> None:
            asked.append(base)
            if base == THREE:
                raise RefusedError("paused")

        with responses.RequestsMock() as mock:
            mock.put(f"{ONE}/x", status=307, headers={"Location": f"{TWO}/y?z=1"})
            mock.put(f"{TWO}/y", status=307, headers={"Location": f"{THREE}/x"})
            with pytest.raises(RefusedError, match="paused"):
                http().send("PUT", f"{ONE}/x", before_hop=before_hop)
        assert asked == [TWO, THREE]

    def test_without_hops_the_redirect_is_the_answer(self) -> None:
        """Who owns a bundle is read from where the request would be sent."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": f"{FOREIGN}/x"})
            answer = http().send("GET", f"{ONE}/x", hops=0)
        assert (answer.status, answer.location, answer.base) == (307, f"{FOREIGN}/x", ONE)

    def test_a_relative_location_stays_at_the_broker(self) -> None:
        """A Location without a host is resolved against who sent it."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/a/b", status=307, headers={"Location": "/c?d=1"})
            mock.get(f"{ONE}/c", body="here", match=[matchers.query_param_matcher({"d": "1"})])
            assert http().send("GET", f"{ONE}/a/b").body == b"here"

    @pytest.mark.parametrize("location", ["http://[oops/x", "http://b2:port/x", "mailto:x", "http:///x"])
    def test_a_location_that_is_no_address_is_an_error_of_the_request(self, location: str) -> None:
        """Not a bug in lbd: the broker sent it."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": location})
            with pytest.raises(AdminError, match=r"b1:8080/x|no broker"):
                http().send("GET", f"{ONE}/x")


def retry_after(wait: str | int | None) -> dict[str, str]:
    """The header with a text, or the HTTP date in so many seconds; none for None."""
    text = formatdate(time.time() + wait, usegmt=True) if isinstance(wait, int) else wait
    return {} if text is None else {"Retry-After": text}


class TestBusyBrokers:
    """429 and 503 with ``Retry-After``. Pauses are noted, not waited for."""

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(("wait", "seconds"), [("3", 3), (" 3 ", 3), ("0", 1), (6, 6), (-9, 1)], ids=repr)
    def test_a_pause_that_is_asked_for_is_made(
        self, wait: str | int, seconds: float, status: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In seconds or until an HTTP date, each time that it is asked for, a second at least."""
        monkeypatch.setattr(time, "time", lambda: 1_795_608_000.0)
        with responses.RequestsMock() as mock:
            for _ in range(2):
                mock.get(f"{ONE}/x", status=status, headers=retry_after(wait))
            mock.get(f"{ONE}/x", body="here")
            assert http(read_timeout_seconds=LIMIT_SECONDS).send("GET", f"{ONE}/x").body == b"here"
        assert pauses == [seconds, seconds]

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        "wait",
        [
            *("10", "3600", "9" * 400, "9" * 5000, "-3", "+3", "1.5", "", "soon", "1, 2", "NaN"),
            *(3600, "Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 31 Dec 2100", "0x3", None),
        ],
        ids=lambda wait: f"{wait!r:.24}",
    )
    def test_no_other_pause_is_made(self, wait: str | int | None, status: int, pauses: list[float]) -> None:
        """Past the request's deadline (10 s), of no time that can be read, or none: the refusal is the answer."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=status, headers=retry_after(wait))
            assert http().send("GET", f"{ONE}/x").status == status
        assert pauses == []

    def test_all_pauses_end_with_the_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A broker that is always busy is its answer before the time of the request is over."""
        monkeypatch.setattr(time, "sleep", Clock(monkeypatch).later)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=503, headers={"Retry-After": "1000"})
            answer = http().send("GET", f"{ONE}/x", timeout_seconds=2500)
            assert (answer.status, len(requested(mock))) == (503, 3)

    @given(wait=st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [-+A-Z0-9]*"))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_no_header_breaks_a_request(self, wait: str, pauses: list[float]) -> None:
        """Whatever a gateway sends, its refusal is told, or waited for."""
        assert _waited(Response(503, b"", f"{ONE}/x", retry_after=wait), {503}, boot_seconds() + 5) in {True, False}
        assert all(1 <= seconds < 5 for seconds in pauses)

    @pytest.mark.parametrize(("status", "sent"), [(429, 2), (503, 1)])
    @pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
    def test_a_change_is_sent_again_only_where_it_was_not_begun(
        self, method: str, status: int, sent: int, pauses: list[float]
    ) -> None:
        """A limit on requests stands before what they reach; 503 may come after an unload was begun."""
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            mock.add(method, f"{ONE}/x", status=status, headers={"Retry-After": "2"})
            mock.add(method, f"{ONE}/x", status=204)
            answer = http().send(method, f"{ONE}/x")
            assert (answer.status, len(mock.calls), len(pauses)) == ([204, status][2 - sent], sent, sent - 1)

    def test_an_unload_is_checked_again_after_a_pause(self, pauses: list[float]) -> None:
        """The owner is busy: what is looked at before each redirect is looked at before it is asked again, too."""
        checked: list[str] = []

        def before_hop(base: str) -> None:
            checked.append(base)
            if len(checked) == 2:
                raise RefusedError("paused")

        with responses.RequestsMock() as mock:
            mock.put(ONE + UNLOAD, status=307, headers={"Location": TWO + UNLOAD})
            mock.put(TWO + UNLOAD, status=429, headers={"Retry-After": "2"})
            with pytest.raises(RefusedError, match="paused"):
                http().send("PUT", ONE + UNLOAD, before_hop=before_hop)
        assert (checked, pauses) == ([TWO, TWO], [2])

    def test_an_unload_is_not_put_off_until_it_is_too_late_to_begin(self, pauses: list[float]) -> None:
        """Its answer may take 75 s, but its last checks hold for less: the refusal is the answer."""
        with responses.RequestsMock() as mock:
            mock.put(ONE + UNLOAD, status=429, headers={"Retry-After": "20"})
            refused = http().send("PUT", ONE + UNLOAD, timeout_seconds=75, begin_by=boot_seconds() + 15)
        assert (refused.status, pauses) == (429, [])

    def test_redirects_are_counted_without_the_requests_that_were_put_off(self, pauses: list[float]) -> None:
        """A busy broker on the way leaves the request its five hops."""
        with responses.RequestsMock() as mock:
            for number in range(MAX_HOPS):
                mock.get(f"{ONE}/{number}", status=429, headers={"Retry-After": "1"})
                mock.get(f"{ONE}/{number}", status=307, headers={"Location": f"{ONE}/{number + 1}"})
            mock.get(f"{ONE}/{MAX_HOPS}", body="here")
            assert http().send("GET", f"{ONE}/0").body == b"here"
        assert pauses == [1.0] * MAX_HOPS


class TestCredentials:
    def test_a_changed_token_file_is_read_again(self, tmp_path: Path) -> None:
        """A rotated token needs no restart."""
        token = secret(tmp_path / "token", "first\n")
        asker = http(token_file=token)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", match=[authorized("Bearer first")])
            mock.get(f"{ONE}/x", match=[authorized("Bearer second")])
            asker.send("GET", f"{ONE}/x")
            (tmp_path / "new").write_text("second", encoding="utf-8")
            (tmp_path / "new").replace(token)
            assert asker.send("GET", f"{ONE}/x").status == 200

    def test_a_projected_token_is_read_again(self, tmp_path: Path) -> None:
        """Kubernetes replaces the link ``..data``, to which the file's own link leads, and removes what was there."""
        for name, content in (("..1", "first"), ("..2", "second")):
            (tmp_path / name).mkdir()
            secret(tmp_path / name / "token", content)
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "token").symlink_to("..data/token")
        asker = http(token_file=tmp_path / "token")
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", match=[authorized("Bearer first")])
            mock.get(f"{ONE}/x", match=[authorized("Bearer second")])
            asker.send("GET", f"{ONE}/x")
            (tmp_path / "..data_tmp").symlink_to("..2")
            (tmp_path / "..data_tmp").replace(tmp_path / "..data")
            (tmp_path / "..1" / "token").unlink()
            assert asker.send("GET", f"{ONE}/x").status == 200

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "token: secret is empty; "),
            (b"\xff\x00", "token: secret cannot be read: it is no text; "),
            (None, "token: secret cannot be read: No such file or directory; "),
        ],
        ids=["empty", "junk", "gone"],
    )
    def test_a_token_that_was_spoilt_is_told_as_long_as_it_is(
        self, content: bytes | None, words: str, tmp_path: Path
    ) -> None:
        """Brokers take the one that was read last, until it expires, or lbd is restarted: somebody must hear of it."""
        token = secret(tmp_path / "token", "first")
        asker = http(token_file=token)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", match=[authorized("Bearer first")])
            mock.get(f"{ONE}/x", match=[authorized("Bearer second")])
            asker.send("GET", f"{ONE}/x")
            assert asker.trouble == ""
            token.unlink()
            if content is not None:
                token.write_bytes(content)
            for _ in range(2):
                asker.send("GET", f"{ONE}/x")
                assert words in asker.trouble
            secret(token, "second")
            assert asker.send("GET", f"{ONE}/x").status == 200
            assert asker.trouble == ""

    def test_an_unchanged_token_file_is_read_once(self, tmp_path: Path) -> None:
        """The same stamp means the same content: what is written behind it is not seen."""
        token = secret(tmp_path / "token", "first")
        stamp = token.stat().st_mtime_ns
        asker = http(token_file=token)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", match=[authorized("Bearer first")])
            asker.send("GET", f"{ONE}/x")
            token.write_text("other", encoding="utf-8")
            os.utime(token, ns=(stamp, stamp))
            assert asker.send("GET", f"{ONE}/x").status == 200

    def test_basic(self, tmp_path: Path) -> None:
        """User and password as RFC 7617 has it; the password may hold a colon and more than ASCII."""
        basic = BasicSettings(username="lbd", password_file=secret(tmp_path / "password", "pä:ss\n"))
        expected = f"Basic {base64.b64encode('lbd:pä:ss'.encode()).decode()}"
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", match=[authorized(expected)])
            assert http(basic=basic).send("GET", f"{ONE}/x").status == 200

    def test_nobody_by_default(self) -> None:
        """Without settings no Authorization is sent, whatever the environment or a netrc would give."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x")
            http().send("GET", f"{ONE}/x")
            assert ["Authorization" in one.request.headers for one in mock.calls] == [False]

    @pytest.mark.security("a token file with unusable content: refused without showing it")
    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (b"", "secret is empty"),
            (b" \n", "secret is empty"),
            (b"\xff\xfe", "it is no text"),
            (f"{TOKEN}\nsecond line".encode(), "cannot be sent"),
            (f"{TOKEN} and more".encode(), "cannot be sent"),
            (f"{TOKEN}-日本".encode(), "cannot be sent"),
        ],
        ids=["empty", "blank", "no text", "two lines", "two words", "not ASCII"],
    )
    def test_an_unusable_token_is_told_without_its_content(
        self, content: bytes, complaint: str, tmp_path: Path
    ) -> None:
        """The file is named, never what it holds."""
        path = tmp_path / "token"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=complaint) as caught:
            http(token_file=path).send("GET", f"{ONE}/x")
        assert str(path) in str(caught.value)
        assert TOKEN not in str(caught.value)

    def test_a_missing_token_file_is_named(self, tmp_path: Path) -> None:
        """The path, and what went wrong."""
        with pytest.raises(UsageError, match="No such file or directory") as caught:
            http(token_file=tmp_path / "absent").send("GET", f"{ONE}/x")
        assert str(tmp_path / "absent") in str(caught.value)

    @pytest.mark.security("an error with a token or password in reach: does not contain it")
    @pytest.mark.parametrize("where", ["refused", "foreign", "circle", "too long"])
    def test_no_error_tells_a_secret(self, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither token nor query appears in what goes wrong."""
        monkeypatch.setattr("lbd.pulsar.http.MAX_RESPONSE_BYTES", 1024 * 1024)
        asker = http(token_file=secret(tmp_path / "token"))
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            mock.get(f"{ONE}/refused", body=requests.ConnectionError(f"Connection refused, headers Bearer {TOKEN}"))
            mock.get(f"{ONE}/foreign", status=307, headers={"Location": f"{FOREIGN}/x?key={TOKEN}"})
            mock.get(f"{ONE}/circle", status=307, headers={"Location": f"{ONE}/circle?key={TOKEN}"})
            mock.get(f"{ONE}/too long", body=b"x" * (1024 * 1024 + 1))
            with pytest.raises(AdminError) as caught:
                asker.send("GET", f"{ONE}/{where}", params={"key": TOKEN})
        assert TOKEN not in str(caught.value)


class TestEchoes:
    """A peer that sends back what it was sent, as a debugging page or a proxy's error does."""

    PASSWORD = "pass:word/with+signs=="
    PAIR = base64.b64encode(f"lbd:{PASSWORD}".encode()).decode()
    LONG = "eyJhbGciOiJIUzI1NiJ9." + "ab-_" * 100 + ".sig"

    def asking(self, tmp_path: Path, secret_text: str) -> Http:
        if secret_text == self.LONG:
            return http(token_file=secret(tmp_path / "token", self.LONG))
        return http(basic=BasicSettings(username="lbd", password_file=secret(tmp_path / "password", self.PASSWORD)))

    @pytest.mark.parametrize("sent", [LONG, PAIR, PASSWORD])
    @pytest.mark.parametrize(
        "spelt", [str, lambda text: base64.b64encode(text.encode()).decode(), quote, lambda t: t[:30]]
    )
    @pytest.mark.parametrize(
        "answer",
        [
            lambda text: {"status": 500, "json": {"reason": f"no: Authorization: Bearer {text}"}},
            lambda text: {"status": 500, "json": {"reason": "x" * 190 + text}},
            lambda text: {"body": f"Authorization: {text}"},
            lambda text: {"body": f'{{"reason": "{text}"}}'},
            lambda text: {"status": 307, "headers": {"Location": f"http://{quote(text, safe='')}:80/"}},
            lambda text: {"status": 307, "headers": {"Location": f"http://[{text}"}},
            lambda text: {"status": 307, "headers": {"Location": f"/a/{quote(text, safe='')}"}},
            lambda text: {"body": requests.ConnectionError(f"Connection aborted: {text}")},
            lambda text: {"headers": {"Content-Encoding": text}},
        ],
        ids=["reason", "cut reason", "no JSON", "other JSON", "host", "no address", "circle", "connection", "packing"],
    )
    def test_no_message_shows_what_was_sent(
        self, answer: Callable[[str], dict[str, Any]], spelt: Callable[[str], str], sent: str, tmp_path: Path
    ) -> None:
        """Neither as it was sent, nor in base64, nor as part of a URL, nor a beginning of it."""
        text = spelt(sent)
        admin = Admin(PulsarSettings(admin_urls=(ONE,), cluster="c"))
        admin.http = self.asking(tmp_path, sent)
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            mock.get(re.compile(".*"), **answer(text))
            with pytest.raises(AdminError) as told:
                admin.active_brokers()
        for part in (text, text[:20], sent[:20]):
            assert part.lower() not in str(told.value).lower()

    def test_a_token_that_was_replaced_is_hidden_still(self, tmp_path: Path) -> None:
        """A proxy may tell of the request before."""
        token = secret(tmp_path / "token", "first-secret-token")
        asker = http(token_file=token)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body="ok")
            mock.get(f"{ONE}/x", body=requests.ConnectionError("was first-secret-token, is second-secret-token"))
            asker.send("GET", f"{ONE}/x")
            secret(token, "second-secret-token")
            with pytest.raises(AdminError, match=r"was \[redacted\], is \[redacted\]"):
                asker.send("GET", f"{ONE}/x")

    def test_a_version_that_is_none(self, tmp_path: Path) -> None:
        """Versions are shown."""
        admin = Admin(PulsarSettings(admin_urls=(ONE,), cluster="c"))
        admin.http = self.asking(tmp_path, self.LONG)
        with responses.RequestsMock() as mock:
            mock.get(re.compile(".*"), body=f"Authorization: Bearer {self.LONG}")
            assert admin.version_at(ONE) == "Authorization: Bearer [redacted]"


class TestBounds:
    @pytest.mark.security("an answer without an end: refused at its limit")
    def test_an_answer_too_long_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One byte more than the limit."""
        monkeypatch.setattr("lbd.pulsar.http.MAX_RESPONSE_BYTES", 1024 * 1024)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body=b"x" * (1024 * 1024 + 1))
            with pytest.raises(AdminError, match="exceeds 1048576 bytes"):
                http().send("GET", f"{ONE}/x")

    def test_an_answer_just_short_enough_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Exactly the limit."""
        monkeypatch.setattr("lbd.pulsar.http.MAX_RESPONSE_BYTES", 1024 * 1024)
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body=b"x" * 1024 * 1024)
            assert len(http().send("GET", f"{ONE}/x").body) == 1024 * 1024

    def test_refused(self) -> None:
        """Nobody listens there: one line, no stack of library names, and certainly nothing was done."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(AdminError, match="connection refused; is the address right"):
            http(url).send("PUT", f"{url}/x")

    @pytest.mark.parametrize(
        ("method", "asked"), [("GET", [b"/x", LOAD_REPORT.encode()]), ("PUT", [b"/x"])], ids=["GET", "PUT"]
    )
    def test_no_answer_in_time(self, method: str, asked: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        """Asked once, given up after the time-out; the broker may have acted. A hung broker is not asked thrice."""
        heard: list[bytes] = []
        begun = boot_seconds()
        monkeypatch.setattr("lbd.pulsar.http.boot_seconds", lambda: boot_seconds() if heard else begun)
        with listening(b"", heard=heard) as url, pytest.raises(AdminError, match="no answer in time"):
            http(url, read_timeout_seconds=0.5).send(method, f"{url}/x")
        assert heard == asked

    def test_an_answer_that_drips_is_given_up(self) -> None:
        """The whole answer must come within the time-out, not only its next byte."""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"
        late = pytest.raises(AdminError, match=r"(no answer|answer not complete) in time")
        with listening(head + b"x" * 10_000, drip_seconds=0.005) as url, late:
            http(url, read_timeout_seconds=0.4).send("GET", f"{url}/x")

    @pytest.mark.parametrize(
        ("sent", "method"),
        [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf", "GET"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nhalf", "GET"),
            (b"H", "PUT"),
        ],
        ids=["half a body", "half a chunk", "one byte"],
    )
    def test_an_answer_that_breaks_off(self, sent: bytes, method: str) -> None:
        """It came to the broker, and what it did is not known."""
        with listening(sent) as url, pytest.raises(AdminError):
            http(url).send(method, f"{url}/x")

    @pytest.mark.parametrize("chunked", [True, False])
    def test_a_compressed_answer_that_comes_in_pieces(self, chunked: bool) -> None:
        """Jetty compresses long reports: a piece that unpacks to nothing yet is not the end."""
        wanted = bytes(range(256)) * 20
        packed = gzip.compress(wanted)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
        if chunked:
            pieces = [packed[at : at + 7] for at in range(0, len(packed), 7)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            sent = head + b"Transfer-Encoding: chunked\r\n\r\n" + body
        else:
            sent = head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed
        with listening(sent, drip_seconds=0.0001) as url:
            assert http(url, read_timeout_seconds=LIMIT_SECONDS).send("GET", f"{url}/x").body == wanted

    def test_a_connection_closed_without_an_answer(self) -> None:
        """An unload sent and never answered may have happened, and is never sent twice."""
        with fake_pulsar.started(1) as pulsar:
            pulsar.fault("/x", fake_pulsar.SILENCE)
            with pytest.raises(AdminError):
                http(*pulsar.urls).send("PUT", f"{pulsar.urls[0]}/x")
            assert len(pulsar.asked("/x")) == 1

    def test_a_get_is_sent_again_over_a_broken_connection(self) -> None:
        """Reading has no side effect."""
        with fake_pulsar.started(1) as pulsar:
            pulsar.fault("/brokers/ready", fake_pulsar.SILENCE, times=1)
            assert http(*pulsar.urls).send("GET", f"{pulsar.urls[0]}/admin/v2/brokers/ready").body == b"ok"

    def test_threads_share_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Turn after turn each broker has one connection, whichever thread sends the request."""
        opened: list[str] = []

        def noted(host: str, port: int, *rest: Any) -> socket.socket:
            opened.append(f"http://{host}:{port}")
            return connection(host, port, *rest)

        monkeypatch.setattr("lbd.pulsar.http.connection", noted)
        with fake_pulsar.started(20) as pulsar:
            asking = http(*pulsar.urls)
            for url in 3 * pulsar.urls:
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asking.send, "GET", f"{url}/admin/v2/brokers/ready").result()
        assert [url for url in opened if url in pulsar.urls] == pulsar.urls  # a thread of another test may open some

    def test_a_connection_that_the_broker_has_closed_is_not_used(self) -> None:
        """A broker closes idle connections: the next unload goes over a new one, and is sent once."""
        with fake_pulsar.started(1) as pulsar:
            asking, door = http(*pulsar.urls), pulsar.brokers[0].server
            asking.send("GET", f"{pulsar.urls[0]}/admin/v2/brokers/ready")
            for kept in door._connections.copy():
                kept.shutdown(socket.SHUT_RDWR)
            assert door.empty(LIMIT_SECONDS)
            asking.send("PUT", f"{pulsar.urls[0]}/x")
            assert len(pulsar.asked("/x")) == 1

    def test_plain_http_where_tls_is_asked_for(self) -> None:
        """The error says TLS and names the setting."""
        with fake_pulsar.started(1) as pulsar:
            url = pulsar.urls[0].replace("http:", "https:")
            with pytest.raises(AdminError, match=r"TLS failed.*pulsar\.tls\.ca_file"):
                http(url).send("GET", f"{url}/x")

    def test_a_certificate_that_has_expired(self) -> None:
        """Neither the CA file nor its names would mend it."""
        why = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)"
        with responses.RequestsMock() as mock:
            mock.get("https://b1:8443/x", body=requests.exceptions.SSLError(why))
            with pytest.raises(AdminError, match=r"certificate has expired.*; renew it") as told:
                http("https://b1:8443").send("GET", "https://b1:8443/x")
        assert "ca_file" not in str(told.value)

    def test_a_ca_file_that_is_not_there(self, tmp_path: Path) -> None:
        """The error names the file that cannot be read."""
        tls = TlsSettings(ca_file=tmp_path / "absent.pem")
        with pytest.raises(AdminError, match=r"absent\.pem"):
            http("https://b1:8443", tls=tls).send("GET", "https://b1:8443/x")

    def test_an_unknown_host(self) -> None:
        """A name that no resolver knows is told as that."""
        unknown = requests.ConnectionError("Failed to resolve 'b1' ([Errno -2] Name or service not known)")
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body=unknown)
            with pytest.raises(AdminError, match="unknown host 'b1'"):
                http().send("GET", f"{ONE}/x")

    def test_requests_are_counted(self) -> None:
        """Every hop counts: what a turn costs the brokers is shown."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": f"{TWO}/x"})
            mock.get(f"{TWO}/x")
            asker = http()
            asker.send("GET", f"{ONE}/x")
        assert asker.sent == 2


class TestWhileATokenIsReplaced:
    @pytest.mark.parametrize("between", ["", " \n", None], ids=["empty", "blank", "gone"])
    def test_the_last_good_one_is_used(self, between: str | None, tmp_path: Path) -> None:
        """A rotation empties the file for a moment: requests go on, and the new token is taken when it is there."""
        token = secret(tmp_path / "token", "first")
        asker = http(token_file=token)
        with responses.RequestsMock() as mock:
            for value in ("first", "first", "second"):
                mock.get(f"{ONE}/x", match=[authorized(f"Bearer {value}")])
            asker.send("GET", f"{ONE}/x")
            token.unlink()
            if between is not None:
                secret(tmp_path / "token", between)
            assert asker.send("GET", f"{ONE}/x").status == 200
            (tmp_path / "new").write_text("second", encoding="utf-8")
            (tmp_path / "new").replace(token)
            assert asker.send("GET", f"{ONE}/x").status == 200


@pytest.mark.parametrize("listed", ["PULSAR-01", "pulsar-01", "Pulsar-01"])
@pytest.mark.parametrize("asked", ["PULSAR-01", "pulsar-01"])
def test_hosts_are_compared_without_regard_to_case(listed: str, asked: str) -> None:
    """A broker that advertises itself in capital letters is trusted, whoever redirects there."""
    asker = http()
    asker.trust([f"{listed}:8080"])
    with responses.RequestsMock() as mock:
        mock.get(f"{ONE}/x", status=307, headers={"Location": f"http://{asked}:8080/x"})
        mock.get(re.compile(r"(?i)http://pulsar-01:8080/x"), body="here")
        assert asker.send("GET", f"{ONE}/x").body == b"here"
