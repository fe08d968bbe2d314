"""How the command line asks an lbd on another machine: its API, by ``--api URL``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec
import requests

from lbd.errors import LbdError, ObserveError, RefusedError, UsageError, unread

if TYPE_CHECKING:
    from pathlib import Path

UNAUTHORIZED = 401
TIMEOUT_SECONDS = 30.0
LONGEST_WORDS = 500


class Client:
    """One lbd's API. The token in ``token_file`` is sent where there is one; nothing is followed elsewhere with it.

    Every method raises :class:`ObserveError` where no lbd answers or it cannot tell now, :class:`RefusedError` for what
    it refuses, and :class:`UsageError` for what it does not know or may not tell.
    """

    def __init__(self, url: str, token_file: Path | None) -> None:
        self._url, self._token_file = _checked(url), token_file

    def get(self, *path: str, **query: str | float) -> dict[str, Any]:
        """Ask."""
        return self._answer("GET", path, params=query)

    def post(self, *path: str, body: dict[str, Any], wait_seconds: float = 0.0) -> dict[str, Any]:
        """Ask for a change, whose answer may take so long (``wait_seconds``) and what any answer may."""
        return self._answer("POST", path, TIMEOUT_SECONDS + wait_seconds, json=body)

    def _answer(
        self,
        method: str,
        path: tuple[str, ...],
        seconds: float = TIMEOUT_SECONDS,
        **more: Any,  # noqa: ANN401 - see requests
    ) -> dict[str, Any]:
        url = "/".join([self._url, "v1", *(quote(part, safe=":") for part in path)])
        try:
            found = requests.request(
                method, url, headers=self._headers(), timeout=seconds, allow_redirects=False, **more
            )
            content = found.content
        except requests.RequestException as error:
            raise ObserveError(f"{self._url}: no lbd answers there: {_why(error, seconds)}") from error
        told = _decoded(content)
        if found.status_code == 200 and told is not None:
            return told
        raise _error(self._url, found.status_code, told, named=self._token_file is not None)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"api.token_file {self._token_file}: cannot be read: {unread(error)}") from error
        if not (token.isascii() and token.isprintable() and token and " " not in token):
            raise UsageError(f"api.token_file {self._token_file}: wanted one word of plain characters")
        return {"Authorization": f"Bearer {token}"}


def _checked(url: str) -> str:
    """Scheme, host and port, and nothing else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # no such port, or half a bracket
        known = None
    if not known or "@" in url or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"--api {url!r}: wanted http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"


def _why(error: requests.RequestException, seconds: float) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted, or it speaks no https; REQUESTS_CA_BUNDLE names another CA"
    if isinstance(error, requests.Timeout):
        return f"nothing within {seconds:g} s"
    return "it cannot be reached" if isinstance(error, requests.ConnectionError) else type(error).__name__


def _decoded(content: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _error(url: str, status: int, told: dict[str, Any] | None, *, named: bool) -> LbdError:
    """``named``: a token was sent."""
    detail = str((told or {}).get("detail", "no answer of an lbd"))[:LONGEST_WORDS]
    where = "; api.token_file names the file that has it" if status == UNAUTHORIZED and not named else ""
    words = f"{url}: {status}: {detail}{where}"
    if status == 409:
        return RefusedError(words)
    return UsageError(words) if 400 <= status < 500 else ObserveError(words)
