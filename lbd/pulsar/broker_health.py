"""Unresponsive brokers, which accept requests and return nothing: they are skipped, and probed beside the turns.

A JVM whose metadata thread is stuck keeps its ports and its session, so it stays listed as long as it is stuck (50
minutes on 4.0.8). It reports ready until its web threads are used up, one per requested load report. Without this
module every turn, check and verification would wait for its timeout.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lbd.clock import boot_seconds
from lbd.errors import AdminError, ThreadError
from lbd.pulsar.paths import host_port
from lbd.text import DAY_SECONDS
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


AGAIN_SECONDS = 15.0
"""Pause between two probes of an unresponsive broker: about once a turn."""

LEAST_SECONDS = 1.0
"""Shortest timeout of a probe. Several unresponsive brokers are probed one after the other."""

MISTRUSTED_SECONDS = 300.0
"""Time without requests to a broker that gives load reports and takes no bundle: longer than any pause of a JVM."""


@dataclass
class _UnresponsiveBroker:
    """An unresponsive broker since ``since`` (epoch seconds), and the events that end that before it responds.

    ``whose`` must stay listed: its address, or its id where only this process is in doubt. ``listed`` is whether it
    ever was: the address of a proxy never is. At ``next_at`` (boot seconds) it is probed again, or is no longer
    ``mistrusted``.
    """

    since: float
    whose: object
    listed: bool
    next_at: float
    mistrusted: bool = False


class BrokerHealth:
    """Unresponsive brokers, and since when, shared by all parts of one process.

    Thread-safe. One thread probes them again, as long as there are any.
    """

    def __init__(self, again_seconds: float = AGAIN_SECONDS) -> None:
        self._again_seconds = again_seconds
        self._answers: Callable[[str, float], bool] = lambda *_: True
        self._silent: dict[str, _UnresponsiveBroker] = {}
        self._asking: dict[str, threading.Event] = {}
        self._listed: set[object] = set()
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def probe_with(self, answers: Callable[[str, float], bool]) -> None:
        """Set the probe for brokers that do not answer, by the current settings.

        ``answers`` requests the load report of a broker, by its base URL, because no turn can do without it. Its second
        argument is how many seconds it may wait.
        """
        self._answers = answers

    def since(self, base: str) -> float | None:
        """Time of the first request without a response (epoch seconds); None for a broker that responds."""
        broker = self._silent.get(base)
        return None if broker is None else broker.since

    def refuse(self, request: str, base: str) -> None:
        """Raise :class:`AdminError` instead of sending a request to an unresponsive broker."""
        since = self.since(base)
        if since is not None:
            with self._changed:
                self._probe()
                trouble = self._trouble
            message = f"{request}: {urlsplit(base).netloc} {unresponsive_text(since)}; not sent{trouble}"
            raise AdminError(message, sent=False)

    def unanswered(self, base: str, sent_at: float) -> None:
        """Record that a request sent at ``sent_at`` timed out. A broker that still gives its load report is only slow.

        If several requests time out together, the first probes the broker and the others wait for its result.
        """
        with self._changed:
            if self._closed or base in self._silent:
                return
            pending = self._asking.get(base)
            if pending is None:
                answered = self._asking[base] = threading.Event()
        if pending is not None:
            pending.wait()
            return
        try:
            if not self._answers(base, inf):
                whose = host_port(base)
                self._begin(base, _UnresponsiveBroker(sent_at, whose, whose in self._listed, self._next_at()))
        finally:
            with self._changed:
                del self._asking[base]
            answered.set()

    def mistrust(self, base: str, broker: str) -> None:
        """Send a broker no requests for a time: it left a lookup unanswered that would have given it a bundle, and no
        broker owns the bundle.

        A broker whose metadata thread is stuck may still send load reports for minutes.
        """
        until = boot_seconds() + MISTRUSTED_SECONDS
        self._begin(base, _UnresponsiveBroker(time.time(), broker, listed=True, next_at=until, mistrusted=True))

    def listed(self, brokers: Collection[str], addresses: Iterable[str]) -> None:
        """Set the brokers that have a session now, and their addresses.

        Mistrust is about a process: a broker whose session has ended comes back as another process. An address that has
        left the list gets no more requests, because it may belong to another server by now.
        """
        with self._changed:
            self._listed = {host_port(address) for address in addresses} | set(brokers)
            for base, silence in list(self._silent.items()):
                if silence.whose in self._listed:
                    silence.listed = True
                elif silence.listed:
                    del self._silent[base]

    def close(self) -> None:
        """Stop probing."""
        with self._changed:
            self._closed = True
            self._silent.clear()
            self._changed.notify_all()

    def _next_at(self) -> float:
        return boot_seconds() + self._again_seconds

    def _begin(self, base: str, silence: _UnresponsiveBroker) -> None:
        with self._changed:
            if self._closed or base in self._silent:
                return
            self._silent[base] = silence
            self._probe()
            self._changed.notify_all()

    def _probe(self) -> None:
        """Begin to probe; where the system has no thread left, the next request for an unresponsive broker does."""
        try:
            if self._silent:
                self._thread = self._thread or begin(self._ask_again, "lbd-asks-again")
            self._trouble = ""
        except ThreadError as error:
            self._trouble = f", nor asked again: {error}"

    def _ask_again(self) -> None:
        """Probe each unresponsive broker in turn until all respond."""
        try:
            while (due := self._next()) is not None:
                base, silence, seconds = due
                answers = self._answers(base, seconds)
                with self._changed:
                    if answers and self._silent.get(base) is silence:
                        del self._silent[base]
                    silence.next_at = self._next_at()
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _next(self) -> tuple[str, _UnresponsiveBroker, float] | None:
        """The broker to probe next, once it is due, and the timeout in seconds; None when none is left."""
        with self._changed:
            while self._silent:
                base, silence = min(self._silent.items(), key=lambda item: item[1].next_at)
                early = silence.next_at - boot_seconds()
                if early > 0:
                    self._changed.wait(early)
                elif silence.mistrusted:
                    del self._silent[base]
                else:
                    return base, silence, max(AGAIN_SECONDS / len(self._silent), LEAST_SECONDS)
            self._thread = None
            return None


def unresponsive_text(since: float) -> str:
    """``does not answer since 12:03:20``, by this machine's clock, with the date if that is not within the last day."""
    form = "%H:%M:%S" if 0 <= time.time() - since < DAY_SECONDS else "%Y-%m-%dT%H:%M:%S"
    return f"does not answer since {time.strftime(form, time.localtime(since))}"
