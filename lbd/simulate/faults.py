"""Requests to fake brokers, their answers, and what is wrong with these: faults that are switched on at any time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HTML_PAGE = b"<html>\n<head>\n<title>Error</title>\n</head>\n<body><h2>HTTP ERROR</h2></body>\n</html>\n"


@dataclass(frozen=True)
class Request:
    """Request to a broker."""

    broker: str
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""
    authorization: str | None = None


@dataclass(frozen=True)
class Reply:
    """One answer. ``promised`` is a length larger than the body's: the connection closes in the middle.

    ``silent``: no answer comes, until the other side closes the connection or the broker does. ``hangs_up``: the broker
    closes it without an answer. ``delay_seconds``: the answer comes this much later, in seconds of this machine.
    ``drip_seconds``: it comes byte by byte, beginning with its head, at this interval; 0: at once.
    """

    status: int = 200
    body: bytes = b""
    location: str | None = None
    content_type: str = "application/json"
    date: float | None = None
    promised: int | None = None
    silent: bool = False
    hangs_up: bool = False
    delay_seconds: float = 0.0
    drip_seconds: float = 0.0


def ok(document: object) -> Reply:
    """200 with JSON."""
    return Reply(200, msgspec.json.encode(document))


def text(words: str) -> Reply:
    """200 with words."""
    return Reply(200, words.encode(), content_type="text/plain")


def refused(status: int, reason: str) -> Reply:
    """An error response of Pulsar."""
    return Reply(status, msgspec.json.encode({"reason": reason}))


def page(status: int) -> Reply:
    """An error page of the web server or a proxy."""
    return Reply(status, HTML_PAGE, content_type="text/html;charset=iso-8859-1")


def crash(message: str) -> Reply:
    """Answer 500 with a stack trace; only its first lines matter."""
    text = f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}\n\nStacktrace:\n\n"
    return refused(500, text)


class Fault(Enum):
    """Faults of ownership, of single answers and clocks, and of brokers."""

    LOST_TO_A_LOOKUP = "a concurrent lookup takes the bundle elsewhere, and the leader's note with it (#24884)"
    OTHER_REPLY = "the switch's own reply"
    NO_EFFECT = "an unload is answered 204 and nothing happens"
    AFFINITY_BY_RANGE = (
        "the leader keys destinations by range, whatever the namespace (#25518), also where it is mended"
    )
    AFFINITY_LEFT = "the leader keeps its note of a destination after it was used"
    CONFLICT = "409"
    NO_SUCH_BUNDLE = "412"
    CLOSES_LATE = "500 at once, and the bundle is closed so many seconds later"
    NOT_ACTIVE = "500, as for a bundle that is being unloaded"
    UNAVAILABLE = "503, as of a broker that stops"
    SILENT = "no answer: the connection stays open until the other side gives up"
    SLOW = "an answer that comes so many seconds later"
    DRIPS = "an answer that comes byte by byte, its head first, one in so many seconds"
    LED_AWAY = "a redirect to another address"
    HALF_JSON = "an answer that breaks off"
    HTML = "a page of a proxy"
    TOPICS_DO_NOT_LOAD = "a bundle's owner loads none of its topics (#25294): statistics miss it, and stats answer 500"
    CLIENTS_LEAVE = "no client is connected to a bundle"
    NAN = "a load report full of NaN"
    FROZEN_REPORT = "the load report as it was when first asked for, again and again"
    CLOCK_SKEW = "a clock that is so many seconds ahead"
    LEADER_CHANGES = "another broker leads from this request on, and knows of no note"
    BROKER_DIES = "kill -9 at this request, which is not answered"


UNLOAD, LOAD_REPORT = "/unload", "/load-report"

_PARTS = {
    Fault.CONFLICT: UNLOAD,
    Fault.NO_SUCH_BUNDLE: UNLOAD,
    Fault.NOT_ACTIVE: UNLOAD,
    Fault.NO_EFFECT: UNLOAD,
    Fault.CLOSES_LATE: UNLOAD,
    Fault.LED_AWAY: UNLOAD,
    Fault.NAN: LOAD_REPORT,
    Fault.FROZEN_REPORT: LOAD_REPORT,
    Fault.LEADER_CHANGES: UNLOAD,
    Fault.BROKER_DIES: UNLOAD,
}
"""The part of the path that a fault is for unless said otherwise; else every path."""


@dataclass
class Switch:
    """A fault that is on: at a broker (None: at all), where the path contains ``part``, ``times`` times.

    With TOPICS_DO_NOT_LOAD and CLIENTS_LEAVE, ``part`` is looked for in the bundle's name.

    ``acts``: the request is carried out anyway, or (SLOW) at once, and only its answer is wrong. ``seconds`` is how
    late (SLOW, DRIPS, CLOSES_LATE), in seconds of this machine, or how far ahead (CLOCK_SKEW), in those of the cluster.
    ``location`` is where LED_AWAY leads, ``reply`` is OTHER_REPLY's, and ``then`` is called when it is given. Where
    ``acts`` a redirect stays as it is, and is not one of the ``times``.
    """

    fault: Fault
    broker: str | None = None
    part: str = ""
    times: int | None = None
    seconds: float = 0.0
    acts: bool = False
    location: str = ""
    reply: Reply | None = None
    method: str | None = None
    then: Callable[[], object] = lambda: None

    def fits(self, fault: Fault, broker: str, path: str, method: str) -> bool:
        """Whether it is for this, and not used up."""
        mine = fault is self.fault and self.broker in {None, broker} and self.times != 0
        return mine and self.method in {None, method} and (self.part or _PARTS.get(fault, "")) in path


class Faults:
    """The switches of a cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._switches: list[Switch] = []
        self._kinds: tuple[Fault, ...] = ()

    def on(self, switch: Switch) -> Switch:
        """Switch a fault on."""
        with self._lock:
            self._switches.append(switch)
            self._kinds = tuple(switch.fault for switch in self._switches)
        return switch

    def off(self, switch: Switch | None = None) -> None:
        """Switch it off; without one, all of them."""
        with self._lock:
            self._switches = [other for other in self._switches if switch is not None and other is not switch]
            self._kinds = tuple(switch.fault for switch in self._switches)

    def take(self, fault: Fault, broker: str, path: str = "", method: str = "") -> Switch | None:
        """The switch that makes this fault happen now, counted as used; None when none does."""
        if fault not in self._kinds:
            return None
        with self._lock:
            fitting = (switch for switch in self._switches if switch.fits(fault, broker, path, method))
            switch = next(fitting, None)
            if switch is not None and switch.times is not None:
                switch.times -= 1
            return switch


INSTEAD = {
    Fault.NO_EFFECT: Reply(204),
    Fault.CONFLICT: refused(409, "Not allowed unload namespace bundle to inactive destination broker"),
    Fault.NO_SUCH_BUNDLE: refused(412, "Cannot find bundle in the bundles list"),
    Fault.NOT_ACTIVE: crash("Namespace bundle is not active"),
    Fault.UNAVAILABLE: page(503),
    Fault.SILENT: Reply(silent=True),
    Fault.HALF_JSON: Reply(200, b'{"cpu": {"usage": 1', promised=4096),
    Fault.HTML: page(200),
    Fault.LED_AWAY: Reply(307),
}
"""Answers in place of the usual one, by their faults."""


def spoilt(faults: Faults, request: Request, usual: Callable[[Request], Reply], now: Callable[[], float]) -> Reply:
    """The answer with the faults that are switched on; a redirect stays as it is where a fault ``acts``."""
    slow = faults.take(Fault.SLOW, request.broker, request.path)
    if slow is not None and not slow.acts:
        time.sleep(slow.seconds)
    taken = (
        faults.take(fault, request.broker, request.path, request.method) for fault in (Fault.OTHER_REPLY, *INSTEAD)
    )
    switch = next(filter(None, taken), None)
    reply = usual(request) if switch is None else _instead(switch, request, usual)
    if slow is not None and slow.acts:
        reply = replace(reply, delay_seconds=slow.seconds)
    skew = faults.take(Fault.CLOCK_SKEW, request.broker)
    drips = faults.take(Fault.DRIPS, request.broker, request.path)
    late = reply.drip_seconds if drips is None else drips.seconds
    return replace(reply, date=now() + (0.0 if skew is None else skew.seconds), drip_seconds=late)


def _instead(switch: Switch, request: Request, usual: Callable[[Request], Reply]) -> Reply:
    if switch.acts:
        usual_one = usual(request)
        if usual_one.location is not None:
            switch.times = None if switch.times is None else switch.times + 1
            return usual_one
    switch.then()
    return switch.reply or replace(INSTEAD[switch.fault], location=switch.location or None)
