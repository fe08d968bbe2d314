"""What moving a bundle costs, by its namespace: some clients bear a disconnect worse than others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import FloatArray, Snapshot


def cost_of(costs: Mapping[str, float | str], namespace: str) -> float:
    """The cost given for a namespace, else for its tenant, else 0; infinite where it is never to be moved."""
    given = costs.get(namespace, costs.get(f"{namespace.partition('/')[0]}/*", 0.0))
    return float("inf") if given == "never" else float(given)


def column(snapshot: Snapshot, costs: Mapping[str, float | str]) -> FloatArray | None:
    """The cost of each bundle, float64 (N,); None where all cost the same."""
    if not costs:
        return None
    known = np.array([cost_of(costs, name) for name in snapshot.namespaces.names])
    return known[snapshot.namespaces.of] if known.any() else None
