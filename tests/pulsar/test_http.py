"""One request: redirects by hand, credentials for this cluster's hosts only, bounded in time and size."""

from __future__ import annotations

import base64
import gzip
import os
import re
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import requests
import responses
from responses import matchers

from lbd.errors import AdminError, UsageError
from lbd.pulsar.http import MAX_HOPS, Http
from lbd.pulsar.settings import BasicSettings, PulsarSettings, TlsSettings
from tests import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, TWO, THREE = "http://b1:8080", "http://b2:8080", "http://b3:8080"
FOREIGN = "http://evil.example:8080"
TOKEN = "top-secret-token"
UNLOAD = "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/unload"


def http(*urls: str, **changes: object) -> Http:
    """An Http of a cluster whose brokers b1, b2 and b3 are known."""
    found = Http(PulsarSettings.model_validate({"admin_urls": urls or (ONE,), **changes}))
    found.trust({"b1", "b2", "b3"})
    return found


def secret(path: Path, content: str = TOKEN) -> Path:
    """A file with a secret in it."""
    path.write_text(content, encoding="utf-8")
    return path


def authorized(value: str) -> object:
    """A matcher: the request carries exactly this Authorization."""
    return matchers.header_matcher({"Authorization": value})


@contextmanager
def listening(behaviour: bytes, *, drip_seconds: float | None = None) -> Iterator[str]:
    """A server that sends ``behaviour`` to each connection, at once or byte by byte; the base URL of it."""
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
                connection.recv(65536)
                pieces = [behaviour] if drip_seconds is None else [bytes([byte]) for byte in behaviour]
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                        stop.wait(drip_seconds or 0)
                    if not behaviour:
                        stop.wait(5)
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

    @pytest.mark.parametrize("location", [f"{FOREIGN}/x", "//evil.example:8080/x", "https://evil.example/x"])
    def test_a_redirect_to_a_foreign_host_is_not_followed(self, location: str, tmp_path: Path) -> None:
        """Nothing is sent there: with an unknown URL the mock itself would fail, in other words."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", status=307, headers={"Location": location})
            with pytest.raises(AdminError, match=r"evil\.example is no broker of this cluster"):
                http(token_file=secret(tmp_path / "token")).send("GET", f"{ONE}/x")
            assert [call.request.url for call in mock.calls] == [f"{ONE}/x"]

    def test_a_first_request_to_a_foreign_host_is_refused_too(self) -> None:
        """Whatever gave the address: it is no broker of this cluster."""
        with pytest.raises(AdminError, match="no broker of this cluster"):
            http().send("GET", f"{FOREIGN}/x")

    def test_a_token_is_not_carried_from_https_to_http(self, tmp_path: Path) -> None:
        """A redirect out of TLS would send the token in the clear."""
        with responses.RequestsMock() as mock:
            mock.get("https://b1:8443/x", status=307, headers={"Location": f"{TWO}/x"})
            with pytest.raises(AdminError, match="https"):
                http("https://b1:8443", token_file=secret(tmp_path / "token")).send("GET", "https://b1:8443/x")
            assert len(mock.calls) == 1

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
            assert len(mock.calls) == 1 + MAX_HOPS

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
            assert "Authorization" not in mock.calls[0].request.headers

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

    @pytest.mark.parametrize("where", ["refused", "foreign", "circle", "too long"])
    def test_no_error_tells_a_secret(self, where: str, tmp_path: Path) -> None:
        """Neither token nor query appears in what goes wrong."""
        asker = http(token_file=secret(tmp_path / "token"), max_answer_bytes=1024 * 1024)
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            mock.get(f"{ONE}/refused", body=requests.ConnectionError(f"Connection refused, headers Bearer {TOKEN}"))
            mock.get(f"{ONE}/foreign", status=307, headers={"Location": f"{FOREIGN}/x?key={TOKEN}"})
            mock.get(f"{ONE}/circle", status=307, headers={"Location": f"{ONE}/circle?key={TOKEN}"})
            mock.get(f"{ONE}/too long", body=b"x" * (1024 * 1024 + 1))
            with pytest.raises(AdminError) as caught:
                asker.send("GET", f"{ONE}/{where}", params={"key": TOKEN})
        assert TOKEN not in str(caught.value)


class TestBounds:
    def test_an_answer_too_long_is_refused(self) -> None:
        """One byte more than max_answer_bytes."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body=b"x" * (1024 * 1024 + 1))
            with pytest.raises(AdminError, match="exceeds 1048576 bytes"):
                http(max_answer_bytes=1024 * 1024).send("GET", f"{ONE}/x")

    def test_an_answer_just_short_enough_is_taken(self) -> None:
        """Exactly max_answer_bytes."""
        with responses.RequestsMock() as mock:
            mock.get(f"{ONE}/x", body=b"x" * 1024 * 1024)
            assert len(http(max_answer_bytes=1024 * 1024).send("GET", f"{ONE}/x").body) == 1024 * 1024

    def test_refused(self) -> None:
        """Nobody listens there: one line, no stack of library names, and certainly nothing was done."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(AdminError, match="connection refused; is the address right"):
            http(url).send("PUT", f"{url}/x")

    @pytest.mark.parametrize("method", ["GET", "PUT"])
    def test_no_answer_in_time(self, method: str) -> None:
        """Asked once, given up after the time-out; the broker may have acted. A hung broker is not asked thrice."""
        with listening(b"") as url:
            begun = time.monotonic()
            with pytest.raises(AdminError, match="no answer in time"):
                http(url, read_timeout_seconds=1.0).send(method, f"{url}/x")
        assert time.monotonic() - begun < 3.8

    def test_an_answer_that_drips_is_given_up(self) -> None:
        """The whole answer must come within the time-out, not only its next byte."""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        with listening(head + b"x" * 1000, drip_seconds=0.005) as url:
            begun = time.monotonic()
            with pytest.raises(AdminError, match="not complete in time"):
                http(url, read_timeout_seconds=0.4).send("GET", f"{url}/x")
        assert time.monotonic() - begun < 3

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
            http(url, read_timeout_seconds=1).send(method, f"{url}/x")

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
            assert http(url).send("GET", f"{url}/x").body == wanted

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
    asker.trust({listed})
    with responses.RequestsMock() as mock:
        mock.get(f"{ONE}/x", status=307, headers={"Location": f"http://{asked}:8080/x"})
        mock.get(re.compile(r"(?i)http://pulsar-01:8080/x"), body="here")
        assert asker.send("GET", f"{ONE}/x").body == b"here"
