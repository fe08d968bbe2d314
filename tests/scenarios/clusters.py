"""A seeded suite of simulated clusters: eight kinds, forty of each, from ten to three hundred brokers.

What differs within a kind: how many brokers and bundles there are, whether sizes are Zipf's or log-normal, how they
vary, and at what level all brokers would be even. Bundles are placed blind to load, as AvgShedder places what it has no
plan for. Nothing here is a measurement of real brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.simulate.scenario import Scenario

if TYPE_CHECKING:
    from lbd.model import FloatArray

KINDS = ("equal", "unequal", "neighbours", "unequal-neighbours", "drifting", "drifting-unequal", "joining", "losing")
EACH = 40
"""Clusters of a kind."""

STEADY = KINDS[:4]
"""Kinds whose load and brokers stay as they are."""

POINTS_PER_MIB = 0.33
NAMESPACE_BROKERS = 10
"""A namespace for so many brokers' worth of bundles: no law of sizes then makes one larger than a broker."""


def cluster(kind: str, number: int) -> Scenario:
    """The cluster of this number, from 0, of a kind; always the same."""
    random = np.random.default_rng((KINDS.index(kind), number))
    brokers = round(10 * 30 ** ((number % EACH / (EACH - 1)) ** 2.5))
    capacity = random.choice([0.5, 1.0, 2.0], brokers) if "unequal" in kind else np.ones(brokers)
    background = np.full(brokers, random.uniform(3, 20))
    if "neighbours" in kind:
        background[random.choice(brokers, max(brokers // 8, 1), replace=False)] += random.uniform(10, 25)
    extra = max(brokers // 8, 1) if kind == "joining" else 0
    level = random.uniform(45, 55)
    mib = float((np.maximum(level - background, 0) * capacity).sum()) / POINTS_PER_MIB * (1 + extra / brokers)
    parts = [_broker(f"b{at:03d}", background[at], capacity[at]) for at in range(brokers)]
    parts += [{**_broker(f"n{at:03d}", background[0], 1.0), "joins_at_minutes": 5} for at in range(extra)]
    if kind == "losing":
        for at in range(max(brokers // 10, 1)):
            parts[at]["crashes_at_minutes"] = 5
    return Scenario.model_validate(
        {
            "about": f"{kind} {number}",
            "hours": 1.5,
            "points_per_mib": POINTS_PER_MIB,
            "brokers": parts,
            "load": list(_load(kind, brokers, mib, random)),
        }
    )


def _broker(name: str, background: float, capacity: float) -> dict[str, Any]:
    return {"id": name, "background": float(background), "capacity": float(capacity)}


def _load(kind: str, brokers: int, mib: float, random: np.random.Generator) -> list[dict[str, Any]]:
    """Namespaces of equal traffic, each with a law of sizes and, where load drifts, a wave of its own."""
    namespaces, each = max(brokers // NAMESPACE_BROKERS, 1), int(random.integers(12, 25))
    law, least, most = ("zipf", 0.4, 0.7) if random.random() < 0.5 else ("spread", 0.6, 1.1)
    sizes = {law: float(random.uniform(least, most))}
    share = _shares(namespaces, random)
    found = []
    for at in range(namespaces):
        one = {"name": f"ns{at}", "bundles": each * brokers // namespaces, "mib_per_second": mib * share[at], **sizes}
        if "drifting" in kind:
            one["shape"] = {
                "kind": "wave",
                "amplitude": float(random.uniform(0.1, 0.35)),
                "period_hours": float(random.uniform(2, 6)),
                "peak_at_hours": float(random.uniform(0, 6)),
            }
        found.append(one)
    return found


def _shares(namespaces: int, random: np.random.Generator) -> FloatArray:
    weights = random.uniform(0.5, 1.5, namespaces)
    found: FloatArray = weights / weights.sum()
    return found
