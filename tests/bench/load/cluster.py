"""A simulated cluster in a process of its own: its addresses on the first line, and then it answers until it is ended.

python -m tests.bench.load.cluster
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lbd.simulate.build import cluster
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import Scenario

NAMESPACES, EACH = 100, 600
HOT_NAMESPACES, HOT_EACH = 50, 100


def scenario() -> Scenario:
    """100 brokers and 65,000 bundles in 150 namespaces; twenty brokers are some fifty points above the others."""
    load: list[dict[str, Any]] = [
        {"name": f"n{at:02}", "bundles": EACH, "mib_per_second": 40, "spread": 1} for at in range(NAMESPACES)
    ]
    load += [
        {"name": f"hot{at:02}", "bundles": HOT_EACH, "mib_per_second": 60, "spread": 1, "brokers": ["hot"]}
        for at in range(HOT_NAMESPACES)
    ]
    brokers = [{"id": "hot", "number": 20}, {"id": "cold", "number": 80}]
    return Scenario.model_validate({"about": "a large cluster", "brokers": brokers, "load": load})


def bundles() -> list[str]:
    """All of its bundles."""
    return list(cluster(scenario(), 1)[0].bundles)


def main() -> None:
    """Until the other end of standard input is closed."""
    with FakePulsar(*cluster(scenario(), 1)) as pulsar:
        print(json.dumps(pulsar.admin_urls), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
