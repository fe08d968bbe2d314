"""How much of its most used resource a broker uses, as a fraction: what Pulsar's shedders but AvgShedder compare. Pure.

Source: LocalBrokerData.getMaxResourceUsageWithWeight, and BrokerLoadData of the extensible manager, which counts
heap memory, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.load import scoring

if TYPE_CHECKING:
    from lbd.load.scoring import Weights
    from lbd.model import Brokers, FloatArray


def fractions(brokers: Brokers, weights: Weights) -> FloatArray:
    """The highest weighted resource, float64 (B,); -inf where every resource is NaN, above 1 where a limit is wrong."""
    return _highest(scoring.weighted(brokers, weights)) / 100.0


def with_memory(brokers: Brokers, weights: Weights) -> FloatArray:
    """The highest weighted resource with heap memory among them, float64 (B,)."""
    with np.errstate(all="ignore"):
        return _highest(scoring.percent(brokers) * weights.row()) / 100.0


def _highest(used: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        highest: FloatArray = np.fmax.reduce(used, axis=1, initial=-np.inf)
        return highest
