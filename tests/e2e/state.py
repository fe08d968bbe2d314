"""A cluster that outlives the process that started it: written down, so that a later one can use and end it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.e2e import artifacts, processes
from tests.e2e.cluster import Cluster
from tests.e2e.settings import Spec


def file() -> Path:
    """Where the one cluster started by hand is written down."""
    return artifacts.cache_root() / "by-hand.json"


def save(cluster: Cluster) -> None:
    """Write down what another process needs to use or end the cluster."""
    running = {name: asdict(process) for name, process in cluster.processes.items()}
    state = {"spec": asdict(cluster.spec), "work": str(cluster.work), "processes": running, "quotas": cluster.quotas}
    file().parent.mkdir(parents=True, exist_ok=True)
    file().write_text(json.dumps(state))


def load() -> Cluster:
    """The cluster another process has written down."""
    state: dict[str, Any] = json.loads(file().read_text())
    pairs = tuple((key, value) for key, value in state["spec"].pop("settings"))
    cluster = Cluster(Spec(**state["spec"], settings=pairs), outlive=True)
    cluster.work = Path(state["work"])
    cluster.lib = artifacts.cache_root() / "jars" / cluster.spec.version
    cluster.processes = {name: processes.Process(**values) for name, values in state["processes"].items()}
    cluster.make_groups()
    cluster.quotas = state["quotas"]
    return cluster
