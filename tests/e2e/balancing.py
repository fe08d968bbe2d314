"""`lbd run --once`, turn by turn on a real cluster, with a second observer checking every outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from lbd.store.control import REFUSED
from tests.e2e import probe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.e2e.cluster import Cluster

SETTLE_SECONDS = 3.0
"""Clients of the last bundle of a turn may reconnect after the turn has ended."""

EAGER = {
    "avg_shedder": {
        "hit_count_low": 2,
        "hit_count_high": 1,
        "min_unload_message": 50,
        "min_unload_message_throughput": 10_000,
    },
    "guardrails": {"max_traffic_per_turn": 0.35},
}
"""Hit counts lowered, and minimums that 3,000 msg/s can reach; all else is lbd's default."""


@dataclass
class Balancer:
    """Runs turns and keeps what each said. ``false_outcomes`` are those that the second observer contradicts."""

    cluster: Cluster
    directory: Path
    settings: Mapping[str, Any] = field(default_factory=lambda: EAGER)
    turns: list[dict[str, Any]] = field(default_factory=list)
    false_outcomes: list[str] = field(default_factory=list)

    def command(self, *words: str) -> list[str]:
        """A command line of lbd against the cluster."""
        return [sys.executable, "-m", "lbd", *words, "--config", str(self._config())]

    def _config(self) -> Path:
        return write_config(self.cluster, self.directory, self.settings)

    def turn(self, *, may_refuse: bool = False) -> dict[str, Any]:
        """One turn; what it printed, with when it began and its exit code."""
        began = time.time()
        done = run(self.command("run", "--once", "--format", "json"))
        if done.returncode not in (0, 5) and not (may_refuse and done.returncode == REFUSED):
            raise AssertionError(f"lbd run --once ended with {done.returncode}: {done.stdout}{done.stderr}")
        told: dict[str, Any] = json.loads(done.stdout)
        found = {**told, "began": began, "ended": time.time() + SETTLE_SECONDS, "exit_code": done.returncode}
        self.turns.append(found)
        self._check(found)
        return found

    def _check(self, turn: dict[str, Any]) -> None:
        """Ask the brokers themselves who owns each bundle that the turn told of."""
        outcomes = turn.get("outcomes", [])
        owners = probe.owners(self.cluster) if outcomes else {}
        for outcome in outcomes:
            seen = owners.get(outcome["bundle"], set())
            if seen != ({outcome["owner"]} if outcome["owner"] else set()):
                self.false_outcomes.append(f"{outcome['bundle']}: told {outcome['owner']}, seen {seen}")

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """Outcomes of all turns."""
        return [outcome for turn in self.turns for outcome in turn.get("outcomes", [])]


def write_config(cluster: Cluster, directory: Path, settings: Mapping[str, Any]) -> Path:
    """A configuration file for the cluster, with its state directory beside it."""
    path = directory / "lbd.yaml"
    own = cluster.credentials
    pulsar: dict[str, Any] = {"admin_urls": cluster.admin_urls}
    if cluster.spec.load_manager == "extensible" or "leader" in settings:
        pulsar["service_url"] = cluster.service_url
    if own.token_file is not None:
        pulsar["token_file"] = str(own.token_file)
    if own.ca_file is not None:
        pulsar["tls"] = {"ca_file": str(own.ca_file)}
    path.write_text(yaml.safe_dump({"pulsar": pulsar, "state_dir": str(directory / "state"), **settings}))
    return path


def run(command: list[str], timeout_seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run a command of lbd as its users do: a process of its own, without this test run's settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, env=environ, check=False)


def reported_gap(turn: Mapping[str, Any]) -> float:
    """Highest minus lowest score of a turn."""
    scores = [broker["score"] for broker in turn["brokers"] if broker["score"] is not None]
    return max(scores) - min(scores)
