"""ThresholdShedder: a broker far above the cluster's average gives bundles away, the largest first.

Source: Pulsar's ThresholdShedder.java (4.0.8 to 5.0.1), default of 2.10 to 4.x; lower boundary from #17456. It compares
a running average, 9 parts history to 1 part of the present: it forgives a spike, and is wrong for many minutes after
every real change (PIP-364).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.shedder import MOST_POINTS, Demand, ShedderRound, ShedderSettings, at_least, parameter
from lbd.load.scoring import fractions
from lbd.model import Memory, UsualLoad

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.load.scoring import Weights
    from lbd.model import Decision, FloatArray

MARGIN = 0.05
"""Fraction added to the excess (ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""

LOWER_MARGIN = 0.5
"""Part of the threshold that the highest broker gives for the lowest (LOWER_BOUNDARY_THRESHOLD_MARGIN)."""

MIB = 1024 * 1024


class ThresholdShedderSettings(ShedderSettings):
    """Numbers of ``strategy: threshold-shedder``."""

    name = "threshold-shedder"
    is_section = False
    placed_by = "least-resource-usage-with-weight"
    assumed = "running averages taken as having caught up"

    broker_threshold_shedder_percentage: float = parameter(
        10, "loadBalancerBrokerThresholdShedderPercentage", MOST_POINTS
    )
    """Points above the average from which a broker sheds."""
    history_resource_percentage: float = parameter(0.9, "loadBalancerHistoryResourcePercentage", 1)
    """Weight of the previous average in the new one, as a fraction."""
    bundle_unload_min_throughput_threshold: float = parameter(10, "loadBalancerBundleUnloadMinThroughputThreshold", 1e6)
    """MiB/s in + out. If less would move, nothing moves."""
    lower_boundary_shedding_enabled: bool = parameter(False, "lowerBoundarySheddingEnabled")
    """Also relieve the highest broker if another one is far below the average."""

    def eager(self) -> ThresholdShedderSettings:
        """Settings as if the present had lasted: the average of each broker is its present value."""
        return self.model_copy(update={"history_resource_percentage": 0.0})


def decide(offers: Offers, memory: Memory, settings: ThresholdShedderSettings, weights: Weights) -> Decision:
    """One round of ThresholdShedder, the most loaded broker first.

    A running average takes new evidence only (:attr:`~lbd.model.Permission.counts`), in stock rounds that of every
    broker; averages of brokers that give no report are dropped, as in Pulsar.
    """
    turn, ids = ShedderRound(offers, settings, weights), offers.snapshot.brokers.ids
    previous = {broker: memory.loads[broker] for broker in ids if broker in memory.loads}
    if (few := turn.too_few(Memory(loads=previous))) is not None:
        return few
    before = np.array([previous[broker].usage if broker in previous else np.nan for broker in ids])
    usage = _smoothed(turn, before, settings)
    average = _average(turn, usage)
    if average != 0:
        _relieve_above(turn, usage, average, settings)
        if settings.lower_boundary_shedding_enabled and not turn.unloads:
            usage = _smoothed(turn, usage, settings)
            _relieve_for_lowest(turn, usage, settings)
    loads = {broker: UsualLoad(used) for broker, used in zip(ids, usage.tolist(), strict=True) if not math.isnan(used)}
    highest = 100 * max(float(usage[row]) for row in turn.taking_part)
    return turn.decision(
        Memory(loads=loads), f"highest {highest:.1f} points, average {100 * average:.1f}, both smoothed"
    )


def _smoothed(turn: ShedderRound, before: FloatArray, settings: ThresholdShedderSettings) -> FloatArray:
    """Running averages after one more sample, float64 (B,); NaN where there is none yet.

    The lower boundary takes the same sample a second time, as in Pulsar.
    """
    now, history = fractions(turn.snapshot.brokers, turn.weights), settings.history_resource_percentage
    with np.errstate(invalid="ignore"):
        after = np.where(np.isnan(before), now, before * history + (1 - history) * now)
    takes = (turn.permission.paired == 0) & (turn.permission.counts | np.isnan(before))
    return np.where(takes, after, before)


def _average(turn: ShedderRound, usage: FloatArray) -> float:
    total = 0.0
    for row in turn.taking_part:
        total += float(usage[row])
    return total / len(turn.taking_part)


def _relieve_above(turn: ShedderRound, usage: FloatArray, average: float, settings: ThresholdShedderSettings) -> None:
    """Relieve each broker at or above the average plus the threshold until it is below."""
    threshold = settings.broker_threshold_shedder_percentage / 100.0
    hot = [row for row in turn.taking_part if not usage[row] < average + threshold]
    for row in sorted(hot, key=lambda row: -usage[row]):
        excess = float(usage[row]) - average
        amount = turn.traffic(row, "throughput") * (excess - threshold + MARGIN)
        _relieve(
            turn, row, excess, f"smoothed {100 * usage[row]:.1f} points, average {100 * average:.1f}", amount, settings
        )


def _relieve_for_lowest(turn: ShedderRound, usage: FloatArray, settings: ThresholdShedderSettings) -> None:
    """Relieve the highest broker with more than one bundle if another is far below the average (#17456)."""
    average, threshold = _average(turn, usage), settings.broker_threshold_shedder_percentage / 100.0
    lowest = min(turn.taking_part, key=lambda row: float(usage[row]))
    giving = [row for row in turn.taking_part if usage[row] > average - threshold and turn.enough_bundles(row)]
    if not (giving and usage[lowest] < average - threshold):
        return
    highest = max(giving, key=lambda row: float(usage[row]))
    amount = turn.traffic(highest, "throughput") * threshold * LOWER_MARGIN
    least = f"{turn.snapshot.brokers.ids[lowest]} has {100 * usage[lowest]:.1f}, average {100 * average:.1f}"
    why = f"smoothed {100 * usage[highest]:.1f} points, {least}"
    _relieve(turn, highest, float(usage[highest] - usage[lowest]), why, amount, settings)


def _relieve(
    turn: ShedderRound, broker: int, above: float, why: str, amount: float, settings: ThresholdShedderSettings
) -> None:
    minimum = settings.bundle_unload_min_throughput_threshold * MIB
    turn.relieve(Demand(broker, 100 * above, why, "throughput", amount, minimum), at_least)
