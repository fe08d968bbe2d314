"""Simulated brokers with faults that are switched on at any time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from enum import Enum
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.model import bundle_range
from lbd.simulate.answers import Reply, Request, crash, ok, page, refused
from lbd.simulate.fake_cluster import Book
from lbd.simulate.fake_pulsar import BrokerExchange, FakeBrokers, FakePulsar

if TYPE_CHECKING:
    from collections.abc import Callable


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


@dataclass(frozen=True)
class Spoilt(Reply):
    """An answer that comes otherwise. ``promised`` is a length larger than the body's: the connection closes then.

    ``hangs_up``: the broker closes it without an answer. ``delay_seconds``: the answer comes this much later, in
    seconds of this machine. ``drip_seconds``: it comes byte by byte, beginning with its head, at this interval.
    """

    promised: int | None = None
    hangs_up: bool = False
    delay_seconds: float = 0.0
    drip_seconds: float = 0.0


def spoil(reply: Reply, **changes: Any) -> Spoilt:
    """The answer with these changes."""
    return Spoilt(**{**vars(reply), **changes})


class Drip(BufferedIOBase):
    """Writes byte by byte; ends with the connection, as all writing does."""

    def __init__(self, file: BufferedIOBase, seconds: float) -> None:
        self._file, self._seconds = file, seconds

    def write(self, content: bytes) -> int:
        for byte in bytes(content):
            self._file.write(bytes([byte]))
            self._file.flush()
            time.sleep(self._seconds)
        return len(bytes(content))

    def close(self) -> None:
        self._file.close()


class FaultyExchange(BrokerExchange):
    """Answers that come as they are spoilt."""

    _promised: int | None = None

    def send(self, reply: Spoilt) -> None:
        """Late, in part, drop by drop, or not at all."""
        time.sleep(reply.delay_seconds)
        self._promised = reply.promised
        self.close_connection |= reply.hangs_up or bool(reply.drip_seconds) or reply.promised is not None
        if reply.drip_seconds:
            self.wfile = Drip(self.wfile, reply.drip_seconds)
        if not reply.hangs_up:
            super().send(reply)

    def send_header(self, keyword: str, value: str) -> None:
        """The length that is promised."""
        is_length = keyword == "Content-Length" and self._promised is not None
        super().send_header(keyword, str(self._promised) if is_length else value)


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
    Fault.HALF_JSON: Spoilt(200, b'{"cpu": {"usage": 1', promised=4096),
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
        reply = spoil(reply, delay_seconds=slow.seconds)
    skew = faults.take(Fault.CLOCK_SKEW, request.broker)
    drips = faults.take(Fault.DRIPS, request.broker, request.path)
    changes = {} if drips is None else {"drip_seconds": drips.seconds}
    return spoil(reply, date=now() + (0.0 if skew is None else skew.seconds), **changes)


def _instead(switch: Switch, request: Request, usual: Callable[[Request], Reply]) -> Reply:
    if switch.acts:
        usual_one = usual(request)
        if usual_one.location is not None:
            switch.times = None if switch.times is None else switch.times + 1
            return usual_one
    switch.then()
    return switch.reply or replace(INSTEAD[switch.fault], location=switch.location or None)


def of_nan(document: object) -> Any:
    """The same with every rate and usage NaN, as Jackson writes it: a text."""
    if isinstance(document, dict):
        return {key: of_nan(value) for key, value in document.items()}
    return "NaN" if isinstance(document, float) else document


class FaultyBrokers(FakeBrokers):
    """Brokers whose answers are wrong as ``faults`` says."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.faults = Faults()
        self._frozen: dict[str, Any] = {}
        super().__init__(*args, **options)
        for port in self._ports:
            port.RequestHandlerClass = FaultyExchange

    def reply(self, request: Request) -> Reply:
        """The broker's answer, with the faults that are switched on."""
        if self.faults.take(Fault.LEADER_CHANGES, request.broker, request.path) is not None:
            with self._lived():
                self._book.lead_another()
        death = self.faults.take(Fault.BROKER_DIES, request.broker, request.path)
        if death is None:
            return spoilt(self.faults, request, self._usual, self.now)
        if death.acts:
            self._usual(request)
        self.kill(request.broker)
        return Spoilt(silent=True)

    def unloaded(self, request: Request, bundle: str) -> Reply:
        """As usual, or 500 at once and the bundle is closed later."""
        late = self.faults.take(Fault.CLOSES_LATE, request.broker, request.path)
        if late is None:
            return super().unloaded(request, bundle)
        closing = threading.Timer(late.seconds, self._close, [bundle])
        closing.daemon = True
        closing.start()
        return crash(f"Namespace bundle {bundle} was not closed in time")

    def _usual(self, request: Request) -> Reply:
        reply = super()._usual(request)
        if reply.status != 200:
            return reply
        if request.path.endswith(LOAD_REPORT):
            return self._report(request.broker, msgspec.json.decode(reply.body))
        return self._statistics(request, reply) if b'"subscriptions"' in reply.body else reply

    def _report(self, broker: str, report: dict[str, Any]) -> Reply:
        skew = self.faults.take(Fault.CLOCK_SKEW, broker)
        for key in ("lastUpdate", "startTimestamp") if skew is not None else ():
            report[key] += int(1000 * skew.seconds)
        frozen = self.faults.take(Fault.FROZEN_REPORT, broker, LOAD_REPORT) is not None
        if not (frozen and broker in self._frozen):
            self._frozen[broker] = report
        report = self._frozen[broker]
        return ok(of_nan(report) if self.faults.take(Fault.NAN, broker, LOAD_REPORT) else report)

    def _statistics(self, request: Request, reply: Reply) -> Reply:
        """Those of a topic, which its broker may be unable to load, and which may have lost its clients."""
        *_, tenant, namespace, topic, _ = request.path.split("/")
        space = f"{tenant}/{namespace}"
        bundle = self._answers._bundles.bundle_of(space, f"persistent://{space}/{topic}") or ""
        if self.faults.take(Fault.TOPICS_DO_NOT_LOAD, request.broker, bundle) is not None:
            return crash("Failed to load topic within timeout")
        left = self.faults.take(Fault.CLIENTS_LEAVE, request.broker, bundle) is not None
        return ok({"publishers": [], "subscriptions": {}}) if left else reply


class FaultyBook(Book):
    """A cluster in which bundles, notes and clients go where they should not."""

    faults = Faults()

    def key(self, bundle: str) -> str:
        """By range alone where that is switched on."""
        forced = self.faults.take(Fault.AFFINITY_BY_RANGE, self.leader or "") is not None
        return bundle_range(bundle) if forced else super().key(bundle)

    def place(self, bundle: str) -> str:
        """By the leader's note, which may be left, or be lost to a lookup."""
        key = self.key(bundle)
        noted = self.affinity.get(key)
        if noted is None:
            return self.at_random(bundle)
        if self.faults.take(Fault.AFFINITY_LEFT, self.leader or "") is None:
            del self.affinity[key]
        if self.faults.take(Fault.LOST_TO_A_LOOKUP, noted) is None:
            return noted
        return next((other for _ in range(100) if (other := self.at_random(bundle)) != noted), noted)

    def counted(self, broker: str) -> dict[str, list[float]]:
        """Without bundles whose topics the broker cannot load."""
        rates = super().counted(broker)
        return {
            bundle: row
            for bundle, row in rates.items()
            if self.faults.take(Fault.TOPICS_DO_NOT_LOAD, broker, bundle) is None
        }

    def report(self, broker: str, cluster: str, begun_at: float) -> dict[str, Any]:
        """Without clients where these have left."""
        report = super().report(broker, cluster, begun_at)
        for bundle, statistics in report["lastStats"].items():
            if self.faults.take(Fault.CLIENTS_LEAVE, broker, bundle) is not None:
                for count in ("consumerCount", "producerCount"):
                    report[f"num{count[0].upper()}{count[1:-5]}s"] -= statistics[count]
                    statistics[count] = 0
        return report


class FaultyPulsar(FaultyBrokers, FakePulsar):
    """A simulated cluster with faults."""

    book = FaultyBook

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._book.faults = self.faults
