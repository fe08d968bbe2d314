"""What a fake cluster can be told to do wrong: switches, set at any time, for one broker or all of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What goes wrong: with ownership, with single answers and clocks, and with brokers."""

    LOST_TO_A_LOOKUP = "a concurrent lookup takes the bundle elsewhere, and the leader's note with it (#24884)"
    NO_EFFECT = "an unload is answered 204 and nothing happens"
    AFFINITY_BY_RANGE = (
        "the leader keys destinations by range, whatever the namespace (#25518), also where it is mended"
    )
    AFFINITY_LEFT = "the leader keeps its note of a destination after it was used"
    CONFLICT = "409"
    NO_SUCH_BUNDLE = "412"
    NOT_ACTIVE = "500, as for a bundle that is being unloaded"
    UNAVAILABLE = "503, as of a broker that stops"
    SILENT = "no answer: the connection stays open until the other side gives up"
    SLOW = "an answer that comes so many seconds later"
    HALF_JSON = "an answer that breaks off"
    HTML = "a page of a proxy"
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
    Fault.NAN: LOAD_REPORT,
    Fault.FROZEN_REPORT: LOAD_REPORT,
    Fault.LEADER_CHANGES: UNLOAD,
    Fault.BROKER_DIES: UNLOAD,
}
"""The part of the path that a fault is for unless said otherwise; else every path."""


@dataclass
class Switch:
    """A fault that is on: at a broker (None: at all), where the path contains ``part``, so many ``times``.

    ``acts``: what was asked is done all the same, and only its answer is wrong. ``seconds`` is how late (SLOW) or how
    far ahead (CLOCK_SKEW), in seconds of this machine, and of the cluster.
    """

    fault: Fault
    broker: str | None = None
    part: str = ""
    times: int | None = None
    seconds: float = 0.0
    acts: bool = False

    def fits(self, fault: Fault, broker: str, path: str) -> bool:
        """Whether it is for this, and not used up."""
        mine = fault is self.fault and self.broker in {None, broker} and self.times != 0
        return mine and (self.part or _PARTS.get(fault, "")) in path


class Faults:
    """The switches of a cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._switches: list[Switch] = []

    def on(self, switch: Switch) -> Switch:
        """Switch a fault on."""
        with self._lock:
            self._switches.append(switch)
        return switch

    def off(self, switch: Switch | None = None) -> None:
        """Switch it off; without one, all of them."""
        with self._lock:
            self._switches = [one for one in self._switches if switch is not None and one is not switch]

    def take(self, fault: Fault, broker: str, path: str = "") -> Switch | None:
        """The switch that makes this fault happen now, counted as used; None when none does."""
        with self._lock:
            found = next((one for one in self._switches if one.fits(fault, broker, path)), None)
            if found is not None and found.times is not None:
                found.times -= 1
            return found
