"""How long it takes to empty a broker of 650 bundles, on a simulated cluster behind HTTP, and how long was foretold."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lbd.config import Settings
from lbd.daemon import standalone
from lbd.operations.drain import show_drain
from lbd.simulate.cluster import cluster
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import Scenario
from lbd.store.control import DrainRequest

NAMESPACES, BUNDLES = 10, 65
VERSIONS = ("4.2.4", "4.0.8")
"""Leaders know a destination by the bundle's full name, and by its range alone."""


def scenario() -> Scenario:
    """Four brokers; one has 650 bundles, the others 120 each."""
    load: list[dict[str, Any]] = [
        {"name": f"n{at}", "brokers": ["a"], "mib_per_second": 10, "bundles": BUNDLES} for at in range(NAMESPACES)
    ]
    load += [{"name": f"own-{name}", "brokers": [name], "mib_per_second": 40, "bundles": 120} for name in "bcd"]
    brokers = [{"id": name} for name in "abcd"]
    return Scenario.model_validate({"about": "a drain", "noise_points": 0.01, "brokers": brokers, "load": load})


def main() -> None:
    """A line for each version; default settings but for the state directory."""
    for version in VERSIONS:
        with FakePulsar(*cluster(scenario(), 1), version=version) as pulsar, tempfile.TemporaryDirectory() as folder:
            chosen = Settings.model_validate(
                {"state_dir": Path(folder), "pulsar": {"admin_urls": list(pulsar.admin_urls)}}
            )
            print(_drained(pulsar, chosen, version), flush=True)


def _drained(pulsar: FakePulsar, settings: Settings, version: str) -> str:
    broker, begun = pulsar.brokers[0], time.time()
    shown = show_drain(settings, broker)
    with standalone.draining(settings, lambda _: None, lambda _: None) as work:
        request = DrainRequest("bench", broker, None, "", None, "bench", begun, begun + 1e6)
        answer, found = work(request)
    if found is None:
        return f"{version}: {answer.sentence}"
    left: Counter[str] = Counter()
    for change in pulsar.history():
        left[change.bundle] += change.owner is None
    most = max(left.values(), default=0)
    seconds = (found.ended_at or 0.0) - found.begun_at
    ranges = "names" if shown.look.by_name else "ranges"
    return (
        f"{version} ({ranges}): {found.sentence} foretold {shown.eta_seconds:.0f} s, taken {seconds:.0f} s, "
        f"{found.landed} landed, {found.elsewhere} elsewhere, each bundle unloaded {most} times at most"
    )
