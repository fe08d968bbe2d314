"""OverloadShedder: a broker above the overload threshold gives bundles away until it is below, and no other does.

Source: Pulsar's OverloadShedder.java (4.0.8 to 5.0.1; weighted since 4.0, #22888). It has no memory. It moves load from
one overloaded broker to another where all are, and ignores an empty broker beside full ones (PIP-364).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lbd.decide.shedder import MOST_POINTS, Demand, ShedderRound, ShedderSettings, at_least, parameter
from lbd.load.scoring import fractions
from lbd.model import Memory

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.load.scoring import Weights
    from lbd.model import Decision

MARGIN = 0.05
"""Fraction added to the excess (ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""


class OverloadShedderSettings(ShedderSettings):
    """Numbers of ``strategy: overload-shedder``."""

    name = "overload-shedder"
    is_section = False

    broker_overloaded_threshold_percentage: float = parameter(
        85, "loadBalancerBrokerOverloadedThresholdPercentage", MOST_POINTS
    )
    """Score, in points, from which a broker sheds."""


def decide(offers: Offers, memory: Memory, settings: OverloadShedderSettings, weights: Weights) -> Decision:
    """One round of OverloadShedder, the most loaded broker first."""
    turn = ShedderRound(offers, settings, weights)
    if (few := turn.too_few(memory)) is not None:
        return few
    usage = fractions(offers.snapshot.brokers, weights)
    threshold = settings.broker_overloaded_threshold_percentage / 100.0
    hot = [row for row in turn.taking_part if usage[row] >= threshold]
    for row in sorted(hot, key=lambda row: -usage[row]):
        excess = float(usage[row]) - threshold
        why = f"{100 * usage[row]:.1f} points, overloaded from {settings.broker_overloaded_threshold_percentage:g}"
        amount = turn.traffic(row, "throughput") * (excess + MARGIN)
        turn.relieve(Demand(row, 100 * excess, why, "throughput", amount, minimum=-math.inf), at_least)
    highest = 100 * max(float(usage[row]) for row in turn.taking_part)
    return turn.decision(Memory(), f"highest {highest:.1f} points, overloaded from {100 * threshold:g}")
