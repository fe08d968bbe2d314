"""Tokens and what each may do: from files, and read again when these change."""

from __future__ import annotations

import hmac
import re
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from lbd.redaction import remember

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


LONGEST_FILE_BYTES = 64 << 10
SHORTEST_TOKEN = 16
"""Characters of a named token: 96 bits if they are random ones of base64."""

Role = Literal["read", "operate", "administer"]
"""Each may do what those before it may: read; order what all guardrails allow; pass limits (``override``)."""

ROLES: tuple[Role, ...] = get_args(Role)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


@dataclass(frozen=True)
class Caller:
    """Sender of a request. ``name`` is empty for the token without one: its requests name their owner."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the caller may do what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


class TokenFiles:
    """The callers that a file of one token, and a file of named ones, let in.

    ``one`` has nothing but a token, which may do everything. ``named`` has a line ``NAME ROLE TOKEN`` for each token;
    empty lines and those that begin with ``#`` are left out. A file with a wrong line lets nobody in.
    """

    def __init__(self, single: Path | None, named: Path | None = None) -> None:
        self._files = [
            _TokenFile(setting, path, parse)
            for setting, path, parse in (
                ("api.token_file", single, _one_token),
                ("api.tokens_file", named, _named_tokens),
            )
            if path is not None
        ]

    def caller(self, authorization: str) -> Caller | tuple[int, str]:
        """The caller that has the token of this header; else HTTP status and reason of the refusal.

        It takes as long for any wrong token: each is compared with all, in constant time.
        """
        if not self._files:
            return 403, "this needs a token, and lbd has none: set api.token_file or api.tokens_file"
        contents = [file.read() for file in self._files]
        scheme, _, credentials = authorization.partition(" ")
        sent = credentials.strip().encode("latin-1")
        callers = [who for tokens, _ in contents for who, token in tokens if hmac.compare_digest(sent, token)]
        if callers and scheme.lower() == "bearer":
            return callers[0]
        if trouble := next(filter(None, (trouble for _, trouble in contents)), ""):
            return 503, trouble
        return 401, "wrong token" if authorization else "this needs a token: Authorization: Bearer TOKEN"

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Callers whose tokens the files have."""
        return tuple(who for file in self._files for who, _ in file.read()[0])

    @property
    def trouble(self) -> str:
        """Why a file lets nobody in, in words; empty where each has its tokens, or there is none."""
        return next(filter(None, (file.read()[1] for file in self._files)), "")


_Tokens = tuple[tuple[Caller, bytes], ...]


class _TokenFile:
    """One file, read again when it has changed."""

    def __init__(self, setting: str, path: Path, parse: Callable[[bytes], _Tokens]) -> None:
        self._setting, self._path, self._parse = setting, path, parse
        self._lock = threading.Lock()
        self._version: tuple[int, int, int] | None = None
        self._content: tuple[_Tokens, str] = (), ""

    def read(self) -> tuple[_Tokens, str]:
        """Its tokens, or why it has none."""
        with self._lock:
            try:
                version = self._current()
                if version != self._version:
                    self._content, self._version = self._parsed(self._path.read_bytes()), version
            except OSError as error:
                self._version = None
                return (), f"{self._setting} cannot be read: {error.strerror or error}"
            return self._content

    def _current(self) -> tuple[int, int, int]:
        """Raises :class:`OSError`, also for a pipe, which would be waited for."""
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST_FILE_BYTES:
            raise OSError(f"wanted a file of at most {LONGEST_FILE_BYTES:,} bytes")
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _parsed(self, content: bytes) -> tuple[_Tokens, str]:
        try:
            tokens = self._parse(content)
        except ValueError as error:
            return (), f"{self._setting}: {error}"
        for _, token in tokens:
            remember(token.decode(errors="replace"))
        return tokens, "" if tokens else f"{self._setting} is empty"


def _one_token(content: bytes) -> _Tokens:
    token = content.strip()
    return ((Caller("", "administer"), token),) if token else ()


def _named_tokens(content: bytes) -> _Tokens:
    """Raises :class:`ValueError` that names the line, and shows nothing of it."""
    tokens: dict[str, tuple[Caller, bytes]] = {}
    for number, line in enumerate(content.decode("latin-1").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3:
            raise ValueError(f"line {number} has {len(words)} words, wanted NAME ROLE TOKEN")
        name, role, token = words
        if role not in ROLES:
            raise ValueError(f"line {number}: the second word is no role; wanted {', '.join(ROLES)}")
        if not NAME.fullmatch(name):
            raise ValueError(f"line {number}: the name may have letters, digits and . _ @ - only, at most 100")
        if len(token) < SHORTEST_TOKEN:
            raise ValueError(f"line {number}: the token has {len(token)} characters, wanted {SHORTEST_TOKEN} or more")
        if name in tokens or any(token.encode("latin-1") == other for _, other in tokens.values()):
            raise ValueError(f"line {number} repeats a name or a token of a line before it")
        tokens[name] = Caller(name, role), token.encode("latin-1")
    return tuple(tokens.values())
