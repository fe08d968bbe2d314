"""Brokers that take requests and answer none: nobody waits for them again and again, and they are asked beside it all.

A JVM whose metadata thread is stuck keeps its ports and its session, so it stays listed for as long as it is stuck
(seen on 4.0.8 for 50 minutes), and says that it is ready until its web threads are used up, one by each load report
that is asked for. Without this every turn, check and proof would wait for its time-out.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lbd.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS = 15.0
"""How long after a question that was not answered the next one is asked: about once a turn."""

MISTRUSTED_SECONDS = 300.0
"""How long a broker is left alone that gives load reports and takes no bundle: longer than any pause of a JVM."""

_DAY_SECONDS = 86_400


class Silences:
    """Which brokers answer nothing, and since when. Thread-safe.

    ``answers`` asks a broker, by its base URL, for what no turn can do without, its load report.
    """

    def __init__(self, answers: Callable[[str], bool], again_seconds: float = AGAIN_SECONDS) -> None:
        self._answers, self._again_seconds = answers, again_seconds
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def since(self, base: str) -> float | None:
        """When the first request was sent that was not answered (epoch seconds); None for a broker that answers."""
        return self._since.get(base)

    def refuse(self, request: str, base: str) -> None:
        """Raise :class:`AdminError` in place of a request to a broker that is known to answer nothing."""
        since = self._since.get(base)
        if since is not None:
            raise AdminError(f"{request}: {urlsplit(base).netloc} {in_words(since)}; not sent", sent=False)

    def unanswered(self, base: str, begun_at: float) -> None:
        """A request of ``begun_at`` had no answer in time. One that gives its load report is slow, and not silent."""
        if self._closed.is_set() or base in self._since or self._answers(base):
            return
        self._begin(base, begun_at, self._ask_again)

    def mistrust(self, base: str) -> None:
        """It has let a lookup go unanswered that would have given it a bundle, and nobody has the bundle.

        Of a broker whose metadata thread is stuck load reports may come for minutes more. It is left alone for a time.
        """
        if not self._closed.is_set():
            self._begin(base, time.time(), self._wait)

    def _begin(self, base: str, begun_at: float, until: Callable[[str], None]) -> None:
        with self._lock:
            if base in self._since:
                return
            self._since[base] = begun_at
        threading.Thread(target=self._last, args=(base, until), name=f"lbd-asks-{base}", daemon=True).start()

    def _last(self, base: str, until: Callable[[str], None]) -> None:
        until(base)
        with self._lock:
            del self._since[base]

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _ask_again(self, base: str) -> None:
        """Until it answers."""
        while not self._closed.wait(self._again_seconds) and not self._answers(base):
            pass

    def _wait(self, _: str) -> None:
        self._closed.wait(MISTRUSTED_SECONDS)


def in_words(since: float) -> str:
    """``does not answer since 12:03:20``, by this machine's clock, with the day where that is not the last one."""
    form = "%H:%M:%S" if 0 <= time.time() - since < _DAY_SECONDS else "%Y-%m-%dT%H:%M:%S"
    return f"does not answer since {time.strftime(form, time.localtime(since))}"
