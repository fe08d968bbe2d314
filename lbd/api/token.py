"""The token that a change needs: from a file, and read again when that changes."""

from __future__ import annotations

import hmac
import stat
import threading
from typing import TYPE_CHECKING

from lbd.redaction import remember

if TYPE_CHECKING:
    from pathlib import Path


LONGEST_TOKEN_BYTES = 16 << 10


class TokenFile:
    """The token that stands in a file, read again when the file changes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def refusal(self, authorization: str) -> tuple[int, str] | None:
        """Status and reason why this header opens nothing; None when it does. Takes as long for any wrong token."""
        if self._path is None:
            return 403, "this needs a token, and lbd has none: set api.token_file"
        token, trouble = self._read(self._path)
        if trouble:
            return 503, trouble
        scheme, _, given = authorization.partition(" ")
        if not authorization:
            return 401, "this needs a token: Authorization: Bearer TOKEN"
        fits = hmac.compare_digest(given.strip().encode("latin-1"), token)
        return None if fits and scheme.lower() == "bearer" else (401, "wrong token")

    @property
    def trouble(self) -> str:
        """Why nothing can be opened, in words; empty where a token stands in the file, or none is wanted."""
        return self._read(self._path)[1] if self._path is not None else ""

    def _read(self, path: Path) -> tuple[bytes, str]:
        try:
            token = self._current(path)
        except OSError as error:
            return b"", f"api.token_file cannot be read: {error.strerror or error}"
        return token, "" if token else "api.token_file is empty"

    def _current(self, path: Path) -> bytes:
        with self._lock:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST_TOKEN_BYTES:
                raise OSError(f"wanted a file of at most {LONGEST_TOKEN_BYTES:,} bytes")  # a pipe would be waited for
            seen = found.st_mtime_ns, found.st_size, found.st_ino
            if seen != self._seen:
                self._token, self._seen = path.read_bytes().strip(), seen
                remember(self._token.decode(errors="replace"))
            return self._token
