"""Idempotency keys: a change that is asked for again under the same key is answered as before, and not done twice.

Kept in memory, for a day at most; a restart forgets them. The header is that of draft-ietf-httpapi-idempotency-key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from lbd.api.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

KEPT = 1000
KEPT_SECONDS = 86_400.0


@dataclass(frozen=True, eq=False)
class _Done:
    """What was asked for under a key; ``response`` is None while it is being done."""

    asked: bytes
    at: float
    response: Response | None = None


class Once:
    """What was answered under which key. ``monotonic`` is seconds that no clock can set back."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._done: OrderedDict[str, _Done] = OrderedDict()

    def answer(self, key: str | None, asked: bytes, act: Callable[[], Response]) -> Response:
        """Do it, unless it was done under this key: then its answer.

        Raises :class:`ProblemError` for a key that was used for something else (422), or is being worked on (409).
        """
        if key is None:
            return act()
        digest = sha256(asked).digest()
        before = self._begun(key, digest)
        if before is not None:
            return before
        try:
            response = act()
        except BaseException:
            with self._lock:
                del self._done[key]
            raise
        with self._lock:
            self._done[key] = _Done(digest, self._monotonic(), response)
        return response

    def _begun(self, key: str, digest: bytes) -> Response | None:
        with self._lock:
            self._forget()
            found = self._done.get(key)
            if found is None:
                self._done[key] = _Done(digest, self._monotonic())
                return None
        if found.asked != digest:
            raise ProblemError(422, "this idempotency key was used for another change; take a new one")
        if found.response is None:
            raise ProblemError(409, "the change of this idempotency key is under way; ask again later")
        return found.response

    def _forget(self) -> None:
        """Answers that are old, and the oldest of too many; what is under way stays."""
        oldest = self._monotonic() - KEPT_SECONDS
        ended = [key for key, one in self._done.items() if one.response is not None]
        for number, key in enumerate(ended):
            if len(ended) - number >= KEPT or self._done[key].at < oldest:
                del self._done[key]
