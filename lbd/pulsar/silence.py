"""Brokers that take requests and answer none: nobody waits for them again and again, and they are asked beside it all.

A JVM whose metadata thread is stuck keeps its ports and its session, so it stays listed for as long as it is stuck
(seen on 4.0.8 for 50 minutes), and says that it is ready until its web threads are used up, one by each load report
that is asked for. Without this every turn, check and proof would wait for its time-out.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lbd.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

AGAIN_SECONDS = 15.0
"""How long after a question that was not answered the next one is asked: about once a turn."""

MISTRUSTED_SECONDS = 300.0
"""How long a broker is left alone that gives load reports and takes no bundle: longer than any pause of a JVM."""

_DAY_SECONDS = 86_400


@dataclass
class _Silence:
    """Since when a broker answers nothing (epoch seconds), and what ends that before it answers.

    ``whose`` is what must stay listed: its host, or its id where no more than this process is doubted. ``listed`` is
    whether it ever was, for the address of a proxy never is.
    """

    since: float
    whose: str
    listed: bool
    ended: threading.Event = field(default_factory=threading.Event)


class Silences:
    """Which brokers answer nothing, and since when: what one process knows of them, whichever part found it out.

    Thread-safe.
    """

    def __init__(self, again_seconds: float = AGAIN_SECONDS) -> None:
        self._again_seconds = again_seconds
        self._answers: Callable[[str], bool] = lambda _: True
        self._silent: dict[str, _Silence] = {}
        self._asking: dict[str, threading.Event] = {}
        self._hosts: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def asked_by(self, answers: Callable[[str], bool]) -> None:
        """Who asks from now on, by the settings of now.

        ``answers`` asks a broker, by its base URL, for what no turn can do without, its load report.
        """
        self._answers = answers

    def since(self, base: str) -> float | None:
        """When the first request was sent that was not answered (epoch seconds); None for a broker that answers."""
        found = self._silent.get(base)
        return None if found is None else found.since

    def refuse(self, request: str, base: str) -> None:
        """Raise :class:`AdminError` in place of a request to a broker that is known to answer nothing."""
        since = self.since(base)
        if since is not None:
            raise AdminError(f"{request}: {urlsplit(base).netloc} {in_words(since)}; not sent", sent=False)

    def unanswered(self, base: str, begun_at: float) -> None:
        """A request of ``begun_at`` had no answer in time. One that gives its load report is slow, and not silent.

        Of several that time out together the first asks, and the others wait for what it hears.
        """
        with self._lock:
            if self._closed or base in self._silent:
                return
            heard = self._asking.get(base)
            if heard is None:
                asked = self._asking[base] = threading.Event()
        if heard is not None:
            heard.wait()
            return
        try:
            if not self._answers(base):
                host = urlsplit(base).hostname or ""
                self._begin(base, _Silence(begun_at, host, host in self._hosts), self._ask_again)
        finally:
            with self._lock:
                del self._asking[base]
            asked.set()

    def mistrust(self, base: str, broker: str) -> None:
        """It has let a lookup go unanswered that would have given it a bundle, and nobody has the bundle.

        Of a broker whose metadata thread is stuck load reports may come for minutes more. It is left alone for a time.
        """
        self._begin(base, _Silence(time.time(), broker, listed=True), _wait)

    def listed(self, brokers: Collection[str], hosts: set[str]) -> None:
        """These have a session now. Mistrusted is a process: one whose session has ended comes back as another.

        A host that has left the list is asked no more: it may be somebody else's by now.
        """
        with self._lock:
            self._hosts = hosts
            for silence in self._silent.values():
                if silence.whose in hosts or silence.whose in brokers:
                    silence.listed = True
                elif silence.listed:
                    silence.ended.set()

    def _begin(self, base: str, silence: _Silence, until: Callable[[str, _Silence], object]) -> None:
        with self._lock:
            if self._closed or base in self._silent:
                return
            self._silent[base] = silence
        threading.Thread(target=self._last, args=(base, silence, until), name=f"lbd-asks-{base}", daemon=True).start()

    def _last(self, base: str, silence: _Silence, until: Callable[[str, _Silence], object]) -> None:
        until(base, silence)
        with self._lock:
            del self._silent[base]

    def close(self) -> None:
        """Ask no more."""
        with self._lock:
            self._closed = True
            for silence in self._silent.values():
                silence.ended.set()

    def _ask_again(self, base: str, silence: _Silence) -> None:
        """Until it answers."""
        while not silence.ended.wait(self._again_seconds) and not self._answers(base):
            pass


def _wait(_: str, silence: _Silence) -> None:
    silence.ended.wait(MISTRUSTED_SECONDS)


def in_words(since: float) -> str:
    """``does not answer since 12:03:20``, by this machine's clock, with the day where that is not the last one."""
    form = "%H:%M:%S" if 0 <= time.time() - since < _DAY_SECONDS else "%Y-%m-%dT%H:%M:%S"
    return f"does not answer since {time.strftime(form, time.localtime(since))}"
