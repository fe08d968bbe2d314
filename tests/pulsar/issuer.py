"""A fake OAuth2 issuer on a port of its own: metadata, client credentials, and the ways in which it may fail."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from lbd.clock import boot_seconds
from lbd.pulsar import http, oauth2
from lbd.pulsar.settings import PulsarSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

REALM = "/realms/pulsar"
CLIENT, AUDIENCE, SCOPE = "lbd-client", "urn:pulsar:main", "pulsar.admin offline"


@dataclass
class Issuer:
    """Tokens are ``access-token-1`` and so on; a client that has not ``secret`` and ``audience`` is refused."""

    url: str
    secret: str = "first-client-secret"
    audience: str | None = None
    expires_in: object = 3600
    status: int = 200
    body: bytes | None = None
    """In place of every answer; as long as it is ``None``, of none."""
    endpoint: str | None = None
    issued: int = 0
    forms: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    hanging: threading.Event | None = None

    @property
    def token(self) -> str:
        """The one that it gave last."""
        return f"access-token-{self.issued}"

    def answer(self, path: str, form: dict[str, str] | None) -> tuple[int, bytes]:
        """Of metadata where there is no form, else of the token endpoint."""
        self.paths.append(path)
        if self.hanging is not None:
            self.hanging.wait(60)
        if self.body is not None or self.status != 200:
            return self.status, self.body or b"<html>out of order</html>"
        if form is None:
            return 200, json.dumps(
                {"issuer": self.url, "token_endpoint": self.endpoint or f"{self.url}/token"}
            ).encode()
        self.forms.append(form)
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT, self.secret):
            return 401, _refusal("invalid_client", f"no client with the secret {form.get('client_secret')}")
        if form.get("audience") != self.audience:
            return 403, _refusal("access_denied", "no such audience")
        self.issued += 1
        lifetime = {} if self.expires_in is None else {"expires_in": self.expires_in}
        return 200, json.dumps({"access_token": self.token, "token_type": "Bearer", **lifetime}).encode()


def _refusal(error: str, description: str) -> bytes:
    return json.dumps({"error": error, "error_description": description}).encode()


@contextmanager
def issuing(**how: Any) -> Iterator[Issuer]:
    """A running issuer. It ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(None)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send({name: values[0] for name, values in form.items()})

        def _send(self, form: dict[str, str] | None) -> None:
            status, body = issuer.answer(self.path, form)
            try:
                self.send_response(status)
                if status in {302, 307}:
                    self.send_header("Location", f"{issuer.url}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # whoever asked has gone

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}{REALM}", **how)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        if issuer.hanging is not None:
            issuer.hanging.set()
        server.shutdown()
        server.server_close()
        thread.join()


def key_file(path: Path, secret: str = "first-client-secret", **changes: object) -> Path:
    """Credentials as Pulsar's clients take them."""
    content = {
        "type": "client_credentials",
        "client_id": CLIENT,
        "client_secret": secret,
        "issuer_url": "https://issuer.example",
        **changes,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def settings(issuer: Issuer, key: Path, urls: tuple[str, ...] = ("http://b1:8080",), **changes: Any) -> PulsarSettings:
    """Of a client of this issuer."""
    given = {"issuer_url": issuer.url, "private_key_file": key, **changes.pop("oauth2", {})}
    return PulsarSettings.model_validate({"admin_urls": urls, "oauth2": given, **changes})


class Clock:
    """The boot clock of tokens and requests, which a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self.ahead = boot_seconds, 0.0
        for module in (http, oauth2):
            monkeypatch.setattr(module, "boot_seconds", lambda: self._real() + self.ahead)

    def later(self, seconds: float) -> None:
        """So much of the lifetimes is over."""
        self.ahead += seconds
