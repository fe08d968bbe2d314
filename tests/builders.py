"""Builders: one per noun, each call a new value, so that a test says only what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.load.scoring import Weights
from lbd.model import Averages, Permission, Snapshot
from lbd.observe import averages
from lbd.observe.parse import BundleStats, LoadReport, Usage, build_snapshot
from lbd.permit.evidence import judge
from lbd.permit.facts import Facts
from lbd.permit.limits import Ledger
from lbd.permit.ping_pong import Trips
from lbd.permit.rule import Case
from lbd.permit.rules import RULES
from lbd.permit.settings import Guardrails
from lbd.store.database import STORE_NAME, Database, writing
from lbd.store.state import StateDir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lbd.model import FloatArray, Unload
    from lbd.permit.policies import Policies
    from lbd.reason import Reason

TAKEN_AT = 1_800_000_000.0
LONG_AGO_MS = (TAKEN_AT - 86_400) * 1000


def bundle(number: int, namespace: str = "t/n") -> str:
    """Name of the number-th of 256 equal bundles."""
    upper = min((number + 1) << 24, 0xFFFFFFFF)
    return f"{namespace}/0x{number << 24:08x}_0x{upper:08x}"


def stats(msg_rate: float, throughput: float | None = None, topics: int = 1) -> BundleStats:
    """Statistics of a bundle with ``msg_rate`` in and out each; 100 bytes a message unless said."""
    bytes_each_way = msg_rate * 100 if throughput is None else throughput
    return BundleStats(msg_rate, msg_rate, bytes_each_way, bytes_each_way, topics, 1, 1)


def report(cpu: float | Usage = 0.0, statistics: Mapping[str, BundleStats] | None = None, **changes: Any) -> LoadReport:
    """A load report of a broker with a CPU limit of 100 and no known NIC; totals are the sums of its bundles."""
    found = dict(statistics or {})
    values: dict[str, Any] = {
        "cpu": cpu if isinstance(cpu, Usage) else Usage(cpu, 100.0),
        "memory": Usage(100.0, 400.0),
        "direct_memory": Usage(16.0, 256.0),
        "bandwidth_in": Usage(0.0, -1000.0),
        "bandwidth_out": Usage(0.0, -1000.0),
        "msg_rate_in": sum(one.msg_rate_in for one in found.values()),
        "msg_rate_out": sum(one.msg_rate_out for one in found.values()),
        "msg_throughput_in": sum(one.msg_throughput_in for one in found.values()),
        "msg_throughput_out": sum(one.msg_throughput_out for one in found.values()),
        "last_stats": found,
        "bundles": list(found),
        "num_topics": sum(one.topics for one in found.values()),
        "broker_version_string": "4.0.8",
        "start_timestamp": LONG_AGO_MS,
    }
    return LoadReport(**{**values, **changes})


def snapshot(reports: Mapping[str, LoadReport], taken_at: float = TAKEN_AT) -> Snapshot:
    """One round of reports."""
    return build_snapshot(taken_at, reports)


def first_averages(seen: Snapshot) -> Averages:
    """Averages after this round alone."""
    return averages.update(Averages.empty(), seen)


def case(seen: Snapshot, rails: Guardrails | None = None, **known: Any) -> Case:
    """What rules judge of this round alone; ``known`` are further facts."""
    facts = Facts(seen, first_averages(seen), judge({}, seen, Weights()), **known)
    return Case(facts, rails if rails is not None else Guardrails())


def ledger_of(
    seen: Snapshot, points: FloatArray, policies: Policies, rails: Guardrails, plan: Iterable[Unload], **known: Any
) -> Ledger:
    """A ledger that goes by all rules."""
    trips = Trips(known.get("sent", ()), seen.taken_at, rails)
    return Ledger(seen, points, policies, rails, plan, rules=RULES, trips=trips, **known)


def permission(seen: Snapshot, **changes: Any) -> Permission:
    """Everyone has new evidence, nobody is barred; ``barred`` may map bundle names to reasons."""
    brokers, names = len(seen.brokers), seen.bundles
    barred = np.zeros(len(names), dtype=np.int8)
    reasons: Mapping[str, Reason] = changes.pop("barred", {})
    for name, reason in reasons.items():
        barred[names.index(name)] = reason.code
    values: dict[str, Any] = {
        "barred": barred,
        "counts": np.ones(brokers, dtype=np.bool_),
        "paired": np.zeros(brokers, dtype=np.int8),
        "settled": np.ones(brokers, dtype=np.bool_),
    }
    return Permission(**{**values, **changes})


def state_begun(path: Path) -> StateDir:
    """A state directory as the first start of lbd leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    Database.open(path / STORE_NAME).close()
    return StateDir(path)


def put_value(state_dir: Path, name: str, content: bytes) -> None:
    """Have the store hold these bytes under a name of ``state``, as damage or another hand left them."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with writing(state_dir / STORE_NAME) as store:
        store.put({name: content})
