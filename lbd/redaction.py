"""Secrets that this process has read, and their removal from everything that it writes.

Code that reads a secret calls :func:`remember`. Text passes :func:`redacted` where it leaves the process: errors, log
lines, status, turns, journal details, responses of the API, output of commands. JSON passes :func:`redacted_json`.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from urllib.parse import quote, quote_plus

HIDDEN = "[redacted]"

SHORTEST, LONGEST_WORD = 7, 15
"""Lengths of secrets that are not cut out as they stand: short ones, and words in small letters up to the second.
``pulsar`` is part of many names, and the gap in a known sentence would reveal it. With a user name before it, in
base64, every secret is cut out.
"""

MOST = 32
"""Number of secrets kept; with rotation the oldest go first."""

_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*")
_USER_INFO = re.compile(r"(?<=://)[^/\s@\"'<>]*:[^/\s@\"'<>]+@")
_OWN_KEY = re.compile(r"[a-z_]+")


class _Registry:
    """Forms in which known secrets may appear, longest first; replaced whole, so that readers need no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[tuple[str, str], tuple[str, ...]] = {}
        self.forms: tuple[str, ...] = ()
        self.encoded: tuple[bytes, ...] = ()

    def add(self, secret: str, user: str) -> None:
        if (secret, user) in self._secrets:
            return
        with self._lock:
            recent = list(self._secrets.items())[-MOST + 1 :]
            self._replace(dict(recent) | {(secret, user): tuple(_forms(secret, user))})

    def drop(self, secret: str) -> None:
        with self._lock:
            self._replace({key: forms for key, forms in self._secrets.items() if key[0] != secret})

    def _replace(self, secrets: dict[tuple[str, str], tuple[str, ...]]) -> None:
        self._secrets = secrets
        distinct = {form for forms in secrets.values() for form in forms}
        self.forms = tuple(sorted(distinct, key=len, reverse=True))
        self.encoded = tuple(form.encode(errors="replace") for form in self.forms)


_KNOWN = _Registry()


def remember(secret: str, user: str = "") -> None:
    """Hide the secret from now on; with ``user`` also the pair of basic authentication."""
    if secret:
        _KNOWN.add(secret, user)


def forget(secret: str) -> None:
    """Forget a token that has been replaced many times over: it must not push out secrets that last (``MOST``)."""
    _KNOWN.drop(secret)


def redacted(text: str) -> str:
    """The text without secrets: known ones, anything shaped as a JWT, and user and password in a URL."""
    for form in _KNOWN.forms:
        if form in text:
            text = text.replace(form, HIDDEN)
    if "eyJ" in text:
        text = _TOKEN.sub(HIDDEN, text)
    if "://" in text and "@" in text:
        text = _USER_INFO.sub(f"{HIDDEN}@", text)
    return text


def redacted_json(content: bytes) -> bytes:
    """A JSON document whose strings are redacted; numbers, and keys of lbd's own, stay as they are."""
    if not _suspicious(content):
        return content
    end = content[len(content.rstrip()) :]
    try:
        clean = _clean(json.loads(content))
    except (ValueError, RecursionError):
        return redacted(content.decode(errors="replace")).encode()
    return json.dumps(clean, separators=(",", ":")).encode() + end


def _suspicious(content: bytes) -> bool:
    has_secret = any(form in content for form in _KNOWN.encoded)
    return has_secret or b"eyJ" in content or (b"://" in content and b"@" in content)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key if _OWN_KEY.fullmatch(key) else redacted(key): _clean(item) for key, item in value.items()}
    return value


def _forms(secret: str, user: str) -> set[str]:
    """Forms of a secret: plain, in a URL, in JSON, in Python's quotes; and in a header of basic authentication."""
    forms: set[str] = set()
    word = secret.isalpha() and secret.islower() and len(secret) <= LONGEST_WORD
    if len(secret) >= SHORTEST and not word:
        forms |= {secret, quote(secret, safe="", errors="replace"), quote_plus(secret, errors="replace")}
        forms |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    if user:
        pair = f"{user}:{secret}".encode(errors="replace")
        whole = {form(pair).decode() for form in (base64.b64encode, base64.urlsafe_b64encode)}
        forms |= whole | {form.rstrip("=") for form in whole}
    return forms
