"""OAuth2 client credentials: one token for all clients, renewed in time, and whatever an issuer may answer instead."""

from __future__ import annotations

import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError, UsageError
from lbd.pulsar import client
from lbd.pulsar.admin import Admin
from lbd.pulsar.client import connected, disconnect, library
from lbd.pulsar.http import Http
from lbd.pulsar.oauth2 import AGAIN_SECONDS, FRESH_SECONDS, MOST_BYTES, WELL_KNOWN, bearer_token
from lbd.pulsar.settings import PulsarSettings
from lbd.redaction import HIDDEN, MOST, redacted, remember
from tests import fake_pulsar
from tests.act.test_executor import no_thread
from tests.daemon.test_service import eventually
from tests.pulsar.issuer import AUDIENCE, CLIENT, REALM, SCOPE, Clock, Issuer, issuing, key_file, settings
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.pulsar.http import BearerToken

FIRST, SECOND = "access-token-1", "access-token-2"
LIFETIME_SECONDS = 3600


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """One that gives every client with the right secret a token for an hour."""
    with issuing() as found:
        yield found


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The credentials that the issuer knows."""
    return key_file(tmp_path / "key.json")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which tokens end."""
    return Clock(monkeypatch)


def token_of(given: PulsarSettings) -> BearerToken:
    """The token that brokers are sent."""
    token = bearer_token(given)
    assert token is not None
    return token


class TestExchange:
    def test_the_request_is_the_one_of_pulsars_clients(self, issuer: Issuer, key: Path) -> None:
        """Metadata below the issuer's path, then a form with the credentials; a final slash does not matter."""
        issuer.audience = AUDIENCE
        issuer.url += "/"
        wanted = settings(issuer, key, oauth2={"audience": AUDIENCE, "scope": SCOPE})
        issuer.url = issuer.url.rstrip("/")

        assert token_of(wanted).word() == FIRST
        assert issuer.paths == [REALM + WELL_KNOWN, f"{REALM}/token"]
        assert issuer.forms == [
            {
                "grant_type": "client_credentials",
                "client_id": CLIENT,
                "client_secret": issuer.secret,
                "audience": AUDIENCE,
                "scope": SCOPE,
            }
        ]

    @pytest.mark.parametrize("prefix", ["", "file://", "file:"])
    def test_the_credentials_file_is_a_path_or_a_url(self, prefix: str, issuer: Issuer, tmp_path: Path) -> None:
        """As Pulsar's clients take it; a blank in it is %20 in a URL."""
        path = str(key_file(tmp_path / "my key.json"))
        named = prefix + (path.replace(" ", "%20") if prefix else path)
        assert token_of(settings(issuer, key_file(tmp_path / "k"), oauth2={"private_key_file": named})).word() == FIRST

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "cannot be read: No such file or directory"),
            ("first-client-secret", "no credentials file; wanted JSON with type client_credentials, client_id and"),
            ('["first-client-secret"]', "no credentials file"),
            ('{"client_id": "first-client-secret"}', "no credentials file"),
            ('{"client_id": "c", "client_secret": 7}', "no credentials file"),
            ('{"client_id": "c", "client_secret": ""}', "another type, or an empty value"),
            ('{"type": "jwt", "client_id": "c", "client_secret": "first-client-secret"}', "another type"),
            ("[" * 100_000, "no credentials file"),
        ],
    )
    def test_another_file_is_named_and_not_shown(
        self, content: str | None, words: str, issuer: Issuer, key: Path
    ) -> None:
        """The issuer is not even asked."""
        key.unlink()
        if content is not None:
            key.write_text(content)
        with pytest.raises(UsageError, match=re.escape(words)) as raised:
            token_of(settings(issuer, key)).word()
        assert str(key) in str(raised.value)
        assert issuer.secret not in str(raised.value)
        assert issuer.paths == []

    @pytest.mark.security("junk, a redirect or too much from an OAuth2 issuer: refused in one line")
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"body": b"<html>"}, f"GET .*{WELL_KNOWN}: the answer names no token_endpoint"),
            ({"body": b"[" * 100_000}, "the answer names no token_endpoint"),
            ({"body": b"\xff\xfe"}, "the answer names no token_endpoint"),
            ({"body": b'{"token_endpoint": 7}'}, "the answer names no token_endpoint"),
            ({"body": b" " * (MOST_BYTES + 1)}, f"answer exceeds {MOST_BYTES} bytes"),
            ({"status": 503}, "HTTP 503, wanted 200; is pulsar.oauth2.issuer_url right?"),
            ({"status": 302}, "HTTP 302, wanted 200"),
            ({"endpoint": "http://evil.example/token"}, "its token_endpoint http://evil.example would be sent the"),
            ({"endpoint": "ftp://evil.example/token"}, "its token_endpoint is no address of an issuer"),
            (
                {"secret": "another-secret"},
                r"HTTP 401 \(invalid_client: no client with the secret \[redacted\]\)",
            ),
            (
                {"audience": AUDIENCE},
                r"HTTP 403 \(access_denied: no such audience\).*are private_key_file, aud",
            ),
            ({"expires_in": -1}, "/token: HTTP 200, wanted an access token"),
            ({"expires_in": "soon"}, "/token: HTTP 200, wanted an access token"),
            ({"expires_in": {"days": 1}}, "/token: HTTP 200, wanted an access token"),
            ({"expires_in": float("inf")}, "/token: HTTP 200, wanted an access token"),
        ],
    )
    def test_what_is_no_token_is_told_in_one_line(
        self, changes: dict[str, object], words: str, issuer: Issuer, key: Path
    ) -> None:
        """Which issuer, since when, which request, and what to look at."""
        for name, value in changes.items():
            setattr(issuer, name, value)
        with pytest.raises(AdminError, match=words) as raised:
            token_of(settings(issuer, key)).word()
        text = str(raised.value)
        assert re.match(rf"{re.escape(issuer.url)}: no access token since \d{{4}}-\S+Z: (GET|POST) http", text)
        assert "\n" not in text
        assert "first-client-secret" not in text
        assert not raised.value.sent

    @pytest.mark.parametrize(
        "answer",
        [
            *(b"null", b"[]", b'"error"', b"7", b"{}", b"", b"<html>", b"[" * 100_000, b"\xff"),
            *(b'{"access_token": 7}', b'{"access_token": "two words"}', b'{"access_token": ""}', b'{"error": ["x"]}'),
        ],
    )
    def test_junk_of_the_token_endpoint(self, answer: bytes, issuer: Issuer, key: Path) -> None:
        """Whatever the library makes of it."""
        with issuing(body=answer) as other:
            issuer.endpoint = f"{other.url}/token"
            with pytest.raises(AdminError, match=r"HTTP 200.*, wanted an access token"):
                token_of(settings(issuer, key)).word()

    @pytest.mark.parametrize("lifetime", [3600, "3600", 3600.0])
    def test_a_lifetime_may_be_spelt(self, lifetime: object, issuer: Issuer, key: Path, clock: Clock) -> None:
        """As some issuers do."""
        issuer.expires_in = lifetime
        token = token_of(settings(issuer, key))
        assert token.word() == FIRST
        clock.later(0.79 * LIFETIME_SECONDS)
        assert (token.word(), issuer.issued) == (FIRST, 1)


class TestRenewal:
    def test_it_begins_at_80_percent_and_nobody_waits_for_it(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """The old token is sent until the new one is there, even by an issuer that hangs."""
        token = token_of(settings(issuer, key, read_timeout_seconds=LIMIT_SECONDS))
        token.word()
        issuer.hanging = threading.Event()
        clock.later(0.81 * LIFETIME_SECONDS)
        assert token.word() == FIRST
        assert token._renewal is not None
        issuer.hanging.set()
        eventually(lambda: token.word() == SECOND)
        assert token.recent == (FIRST, SECOND)

    def test_a_thread_that_could_not_be_had_is_an_outage(
        self, issuer: Issuer, key: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The old token is sent on while it is good, and without one the request ends with the reason."""
        token = token_of(settings(issuer, key))
        with monkeypatch.context() as full:
            no_thread(full, "lbd-oauth2")
            with pytest.raises(AdminError, match="can't start new thread"):
                token.word()
        clock.later(20)
        token.word()
        clock.later(0.81 * LIFETIME_SECONDS)
        with monkeypatch.context() as full:
            no_thread(full, "lbd-oauth2")
            assert token.word() == FIRST
        assert "can't start new thread" in token.trouble

    def test_without_a_lifetime_it_is_renewed_and_kept(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """After four minutes; an outage of any length does not end it."""
        issuer.expires_in = None
        token = token_of(settings(issuer, key))
        token.word()
        clock.later(239)
        assert (token.word(), issuer.issued) == (FIRST, 1)
        issuer.status = 503
        clock.later(10 * LIFETIME_SECONDS)
        token.word()
        eventually(lambda: token.trouble)
        assert token.trouble.endswith("; the last one is used until a broker refuses it")
        assert token.word() == FIRST

    def test_threads_share_one_request(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """For the first token and for each one after it."""
        token, barrier = token_of(settings(issuer, key)), threading.Barrier(16)

        def words(_: int) -> str:
            barrier.wait()
            return token.word()

        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(words, range(16))) == {FIRST}
            clock.later(LIFETIME_SECONDS)
            assert set(pool.map(words, range(16))) == {SECOND}
        assert issuer.issued == 2

    def test_an_outage_is_told_and_the_token_kept_until_it_ends(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """Then one line says what failed, where, and since when; the end of the outage needs nobody."""
        token = token_of(settings(issuer, key))
        assert (token.word(), token.trouble) == (FIRST, "")
        issuer.status = 503
        clock.later(0.9 * LIFETIME_SECONDS)
        assert token.word() == FIRST
        eventually(lambda: token.trouble)
        told = rf"{issuer.url}: no access token since \S+Z: GET \S+: HTTP 503, .*; the last one is used until \S+Z"
        assert re.fullmatch(told, token.trouble)

        asked = len(issuer.paths)
        clock.later(AGAIN_SECONDS / 2)
        assert (token.word(), len(issuer.paths)) == (FIRST, asked), "the issuer is left alone"
        clock.later(0.1 * LIFETIME_SECONDS)
        with pytest.raises(AdminError, match=r"no access token since \S+Z: GET \S+: HTTP 503"):
            token.word()
        asked = len(issuer.paths)
        with pytest.raises(AdminError):
            token.word()
        assert len(issuer.paths) == asked, "a turn with many requests fails at once"

        issuer.status = 200
        clock.later(AGAIN_SECONDS)
        assert (token.word(), token.trouble) == (SECOND, "")

    def test_a_hanging_issuer_takes_the_read_timeout_at_most(self, issuer: Issuer, key: Path) -> None:
        """Or what is left of the request's own time: then the issuer's answer is still waited for."""
        issuer.hanging = threading.Event()
        token = token_of(settings(issuer, key, read_timeout_seconds=LIMIT_SECONDS))
        with pytest.raises(AdminError, match="no access token"):
            token.word(boot_seconds() + 0.1)
        assert token._renewal is not None
        with pytest.raises(AdminError, match="no access token"):
            token_of(settings(issuer, key, read_timeout_seconds=0.5)).word()

    def test_a_rotated_credentials_file_is_read_at_the_renewal(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """Both secrets are cut out of texts: somebody may not have replaced the older one yet."""
        token = token_of(settings(issuer, key))
        token.word()
        issuer.secret = "second-client-secret"
        clock.later(0.9 * LIFETIME_SECONDS)
        token.word()
        eventually(lambda: "invalid_client" in token.trouble)
        key_file(key, "second-client-secret")
        clock.later(AGAIN_SECONDS)
        token.word()
        eventually(lambda: token.word() == SECOND)
        assert [form["client_secret"] for form in issuer.forms] == [
            "first-client-secret",
            "first-client-secret",
            "second-client-secret",
        ]
        assert redacted("first-client-secret, second-client-secret") == f"{HIDDEN}, {HIDDEN}"

    def test_many_renewals_push_no_other_secret_out(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """The registry of secrets keeps so many; a token that was replaced twice is forgotten."""
        remember("the-token-of-the-api")
        token = token_of(settings(issuer, key))
        for _ in range(MOST + 2):
            token.word()
            clock.later(LIFETIME_SECONDS)
        assert redacted("the-token-of-the-api") == HIDDEN
        assert redacted(token.recent[0]) == HIDDEN

    def test_clients_with_the_same_settings_share_a_token(self, issuer: Issuer, key: Path) -> None:
        """REST and the binary protocol, and each command of a daemon; another audience has a token of its own."""
        one, other = settings(issuer, key), settings(issuer, key, ("http://b2:8080",))
        assert bearer_token(one) is bearer_token(other)
        assert bearer_token(one) is not bearer_token(settings(issuer, key, oauth2={"audience": AUDIENCE}))
        assert bearer_token(PulsarSettings()) is None


class TestBrokers:
    def test_requests_carry_the_token_of_the_moment(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """A broker that takes the newest one only is content, as a renewal replaces it."""
        with fake_pulsar.started(2) as pulsar:
            admin = Admin(settings(issuer, key, tuple(pulsar.urls)))
            pulsar.authorization = f"Bearer {FIRST}"
            assert admin.active_brokers() == sorted(pulsar.ids)
            pulsar.authorization = f"Bearer {SECOND}"
            clock.later(LIFETIME_SECONDS)
            assert admin.active_brokers() == sorted(pulsar.ids)

    def test_a_revoked_token_is_renewed_once(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """The 401 leads to one renewal and one more request, an unload as well as a read."""
        with fake_pulsar.started(1) as pulsar:
            admin = Admin(settings(issuer, key, tuple(pulsar.urls)))
            pulsar.authorization = f"Bearer {FIRST}"
            admin.active_brokers()
            pulsar.authorization = f"Bearer {SECOND}"
            clock.later(FRESH_SECONDS)
            pulsar.own(pulsar.ids[0], {"t/n/0x00000000_0xffffffff": 1.0})
            answer = admin.unload("t/n/0x00000000_0xffffffff", None, pulsar.urls[0])
            assert (answer.status, issuer.issued) == (204, 2)
            assert [one.authorization for one in pulsar.asked("/unload")] == [f"Bearer {FIRST}", f"Bearer {SECOND}"]

    def test_the_checks_of_a_hop_precede_the_second_request(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """It may come seconds after the first one."""
        with fake_pulsar.started(1) as pulsar:
            admin = Admin(settings(issuer, key, tuple(pulsar.urls)))
            admin.active_brokers()
            pulsar.authorization = f"Bearer {SECOND}"
            clock.later(FRESH_SECONDS)
            hops: list[str] = []
            admin.unload("t/n/0x00000000_0xffffffff", None, pulsar.urls[0], before_hop=hops.append)
            assert hops == pulsar.urls

    def test_a_token_that_brokers_never_take_is_not_renewed_again_and_again(
        self, issuer: Issuer, key: Path, clock: Clock
    ) -> None:
        """One of a wrong audience, or a role without rights: at most one renewal in a minute."""
        with fake_pulsar.started(1) as pulsar:
            admin = Admin(settings(issuer, key, tuple(pulsar.urls)))
            pulsar.authorization = "Bearer of-another-audience"
            for _ in range(5):
                with pytest.raises(AdminError, match="401") as raised:
                    admin.active_brokers()
            assert issuer.issued == 1
            assert issuer.url in str(raised.value)
            assert "audience" in str(raised.value)
            clock.later(FRESH_SECONDS)
            for _ in range(5):
                with pytest.raises(AdminError, match="401"):
                    admin.active_brokers()
            assert issuer.issued == 2

    def test_an_outage_does_not_make_a_broker_silent(self, issuer: Issuer, key: Path) -> None:
        """It was not asked; a move is not sent."""
        with fake_pulsar.started(1) as pulsar:
            issuer.hanging = threading.Event()
            admin = Admin(settings(issuer, key, tuple(pulsar.urls), read_timeout_seconds=0.3))
            with pytest.raises(LbdError, match="no access token"):
                admin.active_brokers()
            assert admin.http.silences.since(pulsar.urls[0]) is None
            assert pulsar.requests == []

    @pytest.mark.security("an OAuth2 token and a host outside the cluster: not sent there")
    def test_another_host_gets_no_token(self, issuer: Issuer, key: Path) -> None:
        """As a token of a file."""
        with fake_pulsar.started(1) as pulsar, fake_pulsar.started(1) as foreign:
            pulsar.fault("/x", fake_pulsar.Reply(307, location=f"{foreign.urls[0]}/x"))
            given = settings(issuer, key, tuple(pulsar.urls))
            with pytest.raises(AdminError, match="is no broker of this cluster"):
                Http(given, token=bearer_token(given)).send("GET", f"{pulsar.urls[0]}/x")
            assert foreign.requests == []

    def test_the_client_library_asks_for_the_same_token(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """Whenever it connects, by a function."""
        given = settings(issuer, key, service_url="pulsar://127.0.0.1:6650")
        token = token_of(given)
        library = SimpleNamespace(
            AuthenticationToken=lambda word: word,
            Client=lambda _, authentication, **__: authentication,
            FileLogger=lambda *_: None,
            LoggerLevel=SimpleNamespace(Error=0),
            PulsarException=OSError,
        )
        supplier = connected(library, given)
        assert (supplier(), token.word(), issuer.issued) == (FIRST, FIRST, 1)
        clock.later(LIFETIME_SECONDS)
        assert (supplier(), token.word(), issuer.issued) == (SECOND, SECOND, 2)

    def test_the_client_library_sends_it(
        self, issuer: Issuer, key: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The real one, each time that it connects: to a broker that hangs up, which it then tries again."""
        monkeypatch.setattr(client, "ACKNOWLEDGED_WITHIN_SECONDS", 2)
        pulsar, received = library("for this test"), []

        def hang_up() -> None:
            with suppress(OSError):
                while connection := server.accept()[0]:
                    with connection:
                        received.append(connection.recv(4096))
                    clock.later(LIFETIME_SECONDS)

        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=hang_up, daemon=True).start()
            url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"
            connection = connected(pulsar, settings(issuer, key, service_url=url))
            with pytest.raises(pulsar.PulsarException):
                connection.create_producer("persistent://t/n/topic")
            disconnect(pulsar, connection)
            server.shutdown(socket.SHUT_RDWR)
        assert FIRST.encode() in received[0]
        assert SECOND.encode() in received[1]

    @pytest.mark.security("OAuth2 secrets and tokens in errors and logs, while the issuer fails: not there")
    def test_nothing_secret_is_written(self, issuer: Issuer, key: Path, clock: Clock) -> None:
        """Neither the client's secret, which this issuer sends back, nor a token, which this broker sends back."""
        with fake_pulsar.started(1) as pulsar, capture_logs() as logs:
            admin = Admin(settings(issuer, key, tuple(pulsar.urls)))
            texts = []
            pulsar.fault("/brokers/", fake_pulsar.Reply(500, json.dumps({"reason": f"no {FIRST}"}).encode()))
            with pytest.raises(LbdError) as raised:
                admin.active_brokers()
            texts.append(str(raised.value))
            issuer.secret = "another-secret"
            clock.later(LIFETIME_SECONDS)
            with pytest.raises(LbdError) as raised:
                admin.active_brokers()
            texts += [str(raised.value), admin.http.trouble, json.dumps(logs)]
        assert HIDDEN in texts[0]
        for text in texts:
            assert FIRST not in text
            assert "first-client-secret" not in text


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"issuer_url": "http://issuer.example"}, "would be sent the client's secret unencrypted; wanted https"),
            ({"issuer_url": "https://me:hunter2@issuer.example"}, "issuer_url is no address of an issuer"),
            ({"issuer_url": "issuer.example"}, "issuer_url is no address of an issuer"),
            ({"issuer_url": "https://issuer.example/?a=b"}, "issuer_url is no address of an issuer"),
            ({"private_key_file": "file://elsewhere/key.json"}, "wanted a path, or file:///PATH"),
            ({"private_key_file": "data:application/json;base64,eyJhIjoi"}, "this is not a path to a file"),
            ({"audience": ""}, "audience"),
            ({"scope": "a\nb"}, "scope"),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, changes: dict[str, str], words: str) -> None:
        """With what would be right."""
        given = {"issuer_url": "https://issuer.example", "private_key_file": "/etc/lbd/key.json", **changes}
        with pytest.raises(ValueError, match=re.escape(words)):
            PulsarSettings.model_validate({"oauth2": given})

    @pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080"])
    def test_http_is_for_this_machine(self, host: str) -> None:
        """As an issuer in a test, or a proxy that speaks TLS."""
        given = {"issuer_url": f"http://{host}/realm/", "private_key_file": "/k"}
        oauth2 = PulsarSettings.model_validate({"oauth2": given}).oauth2
        assert oauth2 is not None
        assert oauth2.issuer_url == f"http://{host}/realm"
