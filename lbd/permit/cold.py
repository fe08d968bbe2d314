"""Brokers that have just started and carry next to nothing: what the first bundles do to them. Pure.

The JVM of such a broker has compiled nothing of what serves clients. For about a minute its first load takes several
times the CPU that it takes later: on real brokers of 0.4 core 92 points, where 24 were predicted
(docs/results/comparison.md). So the first wave of a plan brings it one bundle. While it warms up further waves bring it
one bundle each, and only as long as it stays far below the mean of the brokers; what remains waits until it has warmed
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, Skip, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lbd.model import Snapshot


COLD_SECONDS = 900.0
"""Age up to which a broker may be cold: longer than lbd waits after a rolling restart (ten minutes)."""

NEXT_TO_NOTHING = 0.1
"""A cold broker carries less than this share of the average broker's bytes."""


def cold_brokers(snapshot: Snapshot) -> frozenset[str]:
    """Brokers that started within :data:`COLD_SECONDS`, and that carry less than a tenth of the average."""
    brokers = snapshot.brokers
    with np.errstate(invalid="ignore", over="ignore"):  # what a report may hold; a start that is not known is NaN
        carried = brokers.rates[:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
        cold = (snapshot.taken_at - brokers.started_at < COLD_SECONDS) & (carried < NEXT_TO_NOTHING * carried.mean())
    return brokers.ids_where(cold)


def one_bundle_each(plan: Sequence[Unload], cold: Collection[str]) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
    """A plan with one bundle for each cold broker, the first of the plan, and what is left for later waves."""
    now, later, used = list[Unload](), list[Skip](), set[str | None]()
    for unload in plan:
        if unload.destination in used:
            why = f"one bundle at a time for {unload.destination}, which has just started"
            later.append(Skip(unload.bundle, Reason.TURN_UNLOADS, why))
        else:
            now.append(unload)
            used |= {unload.destination} & {*cold}
    return tuple(now), tuple(later)
