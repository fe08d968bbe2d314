"""How a fault spoils an answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.simulate.fake_pulsar.faults import Fault, Faults, Switch
from lbd.simulate.fake_pulsar.http import Reply, Request, crash, page, refused

if TYPE_CHECKING:
    from collections.abc import Callable

INSTEAD = {
    Fault.NO_EFFECT: Reply(204),
    Fault.CONFLICT: refused(409, "Not allowed unload namespace bundle to inactive destination broker"),
    Fault.NO_SUCH_BUNDLE: refused(412, "Cannot find bundle in the bundles list"),
    Fault.NOT_ACTIVE: crash("Namespace bundle is not active"),
    Fault.UNAVAILABLE: page(503),
    Fault.SILENT: Reply(silent=True),
    Fault.HALF_JSON: Reply(200, b'{"cpu": {"usage": 1', promised=4096),
    Fault.HTML: page(200),
}
"""What is answered instead of the usual."""


def spoilt(faults: Faults, asked: Request, usual: Callable[[Request], Reply], now: Callable[[], float]) -> Reply:
    """The answer with what is switched on; redirects are answered as they are where a fault ``acts``."""
    slow = faults.take(Fault.SLOW, asked.broker, asked.path)
    if slow is not None:
        time.sleep(slow.seconds)
    found = next(filter(None, (faults.take(fault, asked.broker, asked.path) for fault in INSTEAD)), None)
    reply = usual(asked) if found is None else _instead(found, asked, usual)
    skew = faults.take(Fault.CLOCK_SKEW, asked.broker)
    return replace(reply, date=now() + (0.0 if skew is None else skew.seconds))


def _instead(switch: Switch, asked: Request, usual: Callable[[Request], Reply]) -> Reply:
    if switch.acts:
        usual_one = usual(asked)
        if usual_one.location is not None:
            return usual_one
    return INSTEAD[switch.fault]
