"""Load of a broker: its highest weighted resource, in points. Pure, and bit for bit Pulsar's result.

Source: ResourceUsage.percentUsage (float32 division and product, limit <= 0 gives 0) and
LocalBrokerData.getMaxResourceUsageWithWeight (double weights, heap memory left out, NaN skipped, / 100), which
AvgShedder multiplies by 100 again: one more rounding that decides equality with a threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from lbd.model import RESOURCES
from lbd.section import Section

if TYPE_CHECKING:
    from lbd.model import Brokers, FloatArray


SCORED = (0, 2, 3, 4)
"""Columns of :data:`~lbd.model.RESOURCES` that make a score: all but heap memory."""

AT_LIMIT_POINTS = 90.0
"""Score of a saturated broker: more work cannot raise it, so its distance from others is too small. One stood 36 points
above the others after its first move, and 45 before it (docs/decisions/0004-real-clusters.md).
"""


def broker_conf(key: str, text: str) -> dict[str, Any]:
    """Keyword arguments of a pydantic field whose counterpart in broker.conf is ``key``."""
    return {"description": f"{text}; broker.conf {key}", "json_schema_extra": {"broker_conf": key}}


class Weights(Section):
    """Weight of each resource in a broker's score."""

    cpu: float = Field(
        1.0, ge=0, le=10, **broker_conf("loadBalancerCPUResourceWeight", "Weight of CPU in a broker's score")
    )
    memory: float = Field(
        0.0,
        ge=0,
        le=10,
        **broker_conf(
            "loadBalancerMemoryResourceWeight",
            "Weight of heap memory. The modular load manager ignores it since Pulsar 3.0",
        ),
    )
    direct_memory: float = Field(
        0.0,
        ge=0,
        le=10,
        **broker_conf(
            "loadBalancerDirectMemoryResourceWeight",
            "Weight of direct memory. 0 since Pulsar 3.3, because direct memory does not follow traffic",
        ),
    )
    bandwidth_in: float = Field(
        1.0, ge=0, le=10, **broker_conf("loadBalancerBandwidthInResourceWeight", "Weight of the bytes received")
    )
    bandwidth_out: float = Field(
        1.0, ge=0, le=10, **broker_conf("loadBalancerBandwidthOutResourceWeight", "Weight of the bytes sent")
    )

    def row(self) -> FloatArray:
        """The weights in the order of :data:`~lbd.model.RESOURCES`, float64 (5,)."""
        return np.array([getattr(self, resource) for resource in RESOURCES], dtype=np.float64)


def percent(brokers: Brokers) -> FloatArray:
    """Usage in percent of the limit, float64 (B, 5) holding float32 values; 0 where the limit is unknown."""
    with np.errstate(all="ignore"):
        fraction = brokers.usage.astype(np.float32) / brokers.limit.astype(np.float32)
        return np.where(brokers.limit > 0, fraction * np.float32(100), np.float32(0)).astype(np.float64)


def weighted(brokers: Brokers, weights: Weights) -> FloatArray:
    """Percent times weight of the scored resources, float64 (B, 4) in the order of :data:`SCORED`."""
    with np.errstate(all="ignore"):
        return (percent(brokers) * weights.row())[:, SCORED]


def scores(brokers: Brokers, weights: Weights) -> FloatArray:
    """Score of each broker in points, float64 (B,); -inf where every resource is NaN."""
    with np.errstate(all="ignore"):
        highest: FloatArray = np.fmax.reduce(weighted(brokers, weights), axis=1, initial=-np.inf)
        return highest / 100.0 * 100.0


def binding(brokers: Brokers, weights: Weights) -> tuple[str | None, ...]:
    """Resource that makes each broker's score; None where no resource has a limit and a weight."""
    values = weighted(brokers, weights)
    counts = (brokers.limit[:, SCORED] > 0) & (weights.row()[list(SCORED)] > 0) & ~np.isnan(values)
    best = np.where(counts, values, -np.inf).argmax(axis=1)
    return tuple(RESOURCES[SCORED[column]] if counts[row, column] else None for row, column in enumerate(best))


# --- fractions: usage of the most used resource, compared by Pulsar's shedders other than AvgShedder
# Source: LocalBrokerData.getMaxResourceUsageWithWeight, and BrokerLoadData of the extensible manager, which also counts
# heap memory.


def fractions(brokers: Brokers, weights: Weights) -> FloatArray:
    """The highest weighted resource, float64 (B,); -inf where every resource is NaN, above 1 where a limit is wrong."""
    return _highest(weighted(brokers, weights)) / 100.0


def with_memory(brokers: Brokers, weights: Weights) -> FloatArray:
    """The highest weighted resource with heap memory among them, float64 (B,)."""
    with np.errstate(all="ignore"):
        return _highest(percent(brokers) * weights.row()) / 100.0


def _highest(used: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        highest: FloatArray = np.fmax.reduce(used, axis=1, initial=-np.inf)
        return highest
