"""A simulated cluster in a process of its own: its addresses on the first line, and then it answers until it is ended.

It stands for brokers on machines of their own, which take no time of the daemon's: load reports are written one after
the other at all times, and a request for one is answered with what stands there; and it yields to all other processes.

python -m tests.bench.load.cluster [BROKERS BUNDLES]
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from lbd.pulsar.paths import LOAD_REPORT, RUNTIME_CONFIGURATION
from lbd.simulate.answers import Request
from lbd.simulate.cluster import cluster
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import Scenario

if TYPE_CHECKING:
    from lbd.simulate.answers import Reply

SIZE = 100, 65_000
NAMESPACES, HOT_NAMESPACES = 100, 50
WRITTEN = (RUNTIME_CONFIGURATION, LOAD_REPORT)
PAUSE_SECONDS = 0.05
"""Between two brokers' reports, so that one is some seconds old at most."""

NICE = 10


def scenario(brokers: int = SIZE[0], bundles: int = SIZE[1]) -> Scenario:
    """Some bundles in 150 namespaces; a fifth of the brokers are some fifty points above the others."""
    size, each, hot_each = brokers / SIZE[0], bundles * 12 // 13 // NAMESPACES, bundles // 13 // HOT_NAMESPACES
    load: list[dict[str, Any]] = [
        {"name": f"n{at:02}", "bundles": each, "mib_per_second": 40 * size, "spread": 1} for at in range(NAMESPACES)
    ]
    load += [
        {"name": f"hot{at:02}", "bundles": hot_each, "mib_per_second": 60 * size, "spread": 1, "brokers": ["hot"]}
        for at in range(HOT_NAMESPACES)
    ]
    parts = [{"id": "hot", "number": brokers // 5}, {"id": "cold", "number": brokers - brokers // 5}]
    return Scenario.model_validate({"about": "a large cluster", "brokers": parts, "load": load})


def bundles() -> list[str]:
    """All of its bundles."""
    return list(cluster(scenario(), 1)[0].bundles)


class Written(FakePulsar):
    """Its load reports and configurations are there before they are asked for."""

    def write(self) -> None:
        """All of them, for the first time."""
        self._there: dict[tuple[str, str], Reply] = {}
        for broker in self.brokers:
            self._write(broker)

    def go_on(self) -> None:
        """Write them anew, one broker after the other, for ever."""
        pause = threading.Event()
        while True:
            for broker in self.brokers:
                self._write(broker)
                pause.wait(PAUSE_SECONDS)

    def _write(self, broker: str) -> None:
        for path in WRITTEN:
            self._there[broker, path] = super()._usual(Request(broker, "GET", path, {}))

    def _usual(self, asked: Request) -> Reply:
        return self._there.get((asked.broker, asked.path)) or super()._usual(asked)


def main() -> None:
    """Until the other end of standard input is closed."""
    os.nice(NICE)
    with Written(*cluster(scenario(*map(int, sys.argv[1:])), 1)) as pulsar:
        pulsar.write()
        gc.freeze()
        threading.Thread(target=pulsar.go_on, daemon=True).start()
        print(json.dumps(pulsar.admin_urls), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
