"""UniformLoadShedder: the broker with the most traffic gives some away when it is far above the one with the least.

Source: Pulsar's UniformLoadShedder.java (4.2.4 to 5.0.1; 4.0.8 also takes a bundle that exceeds the rest by up to
1000). Messages come first, bytes only where those are level. CPU is not looked at: on unequal machines it can relieve
the idle one (PIP-364). Quantities are Java's ints, and cut off to whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.candidates import UNITS
from lbd.decide.shedder import MOST_BYTES, MOST_MESSAGES, Demand, ShedderRound, ShedderSettings, parameter
from lbd.model import Memory

if TYPE_CHECKING:
    from lbd.decide.candidates import Measure, Offers
    from lbd.load.scoring import Weights
    from lbd.model import Decision, FloatArray

MAX_INT = 2**31 - 1
ALMOST_NOTHING = 1e-6
"""A least loaded broker with no more traffic than this counts as one with 1 msg/s or byte/s (EPS)."""


class UniformLoadShedderSettings(ShedderSettings):
    """Numbers of ``strategy: uniform-load-shedder``."""

    name = "uniform-load-shedder"
    is_section = False

    msg_rate_difference_shedder_threshold: float = parameter(50, "loadBalancerMsgRateDifferenceShedderThreshold", 1e6)
    """Percent by which the highest message rate must exceed the lowest. 0 means off."""
    msg_throughput_multiplier_difference_shedder_threshold: float = parameter(
        4, "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold", 1e6
    )
    """Factor by which the highest throughput must exceed the lowest. 0 means off."""
    max_unload_percentage: float = parameter(0.5, "maxUnloadPercentage", 1)
    """Fraction of the difference to move. 0.2 before Pulsar 5.0."""
    min_unload_message: float = parameter(1000, "minUnloadMessage", MOST_MESSAGES)
    """Minimum to move, in messages/s in + out."""
    min_unload_message_throughput: float = parameter(1024 * 1024, "minUnloadMessageThroughput", MOST_BYTES)
    """Minimum to move, in bytes/s in + out."""
    max_unload_bundle_num_per_shedding: int = parameter(-1, "maxUnloadBundleNumPerShedding", 1_000_000, least=-1)
    """Bundles in one round. -1 means no limit."""


def decide(offers: Offers, memory: Memory, settings: UniformLoadShedderSettings, weights: Weights) -> Decision:
    """One round of UniformLoadShedder: one broker gives at most."""
    turn = ShedderRound(offers, settings, weights)
    if (few := turn.too_few(memory)) is not None:
        return few
    messages, volume = _spread(turn, "msg_rate"), _spread(turn, "throughput")
    calm = f"{messages.percent_more:.0f} % between most and least msg/s, {volume.times:.1f} times between bytes/s"
    percent_more = settings.msg_rate_difference_shedder_threshold
    times = settings.msg_throughput_multiplier_difference_shedder_threshold
    if messages.percent_more > percent_more > 0:
        _relieve(turn, messages, settings, settings.min_unload_message)
    elif volume.times > times > 0:
        _relieve(turn, volume, settings, settings.min_unload_message_throughput)
    return turn.decision(Memory(), calm)


@dataclass(frozen=True)
class _Spread:
    """The most and the least of one measure; ``broker`` has the most, None where none has a number."""

    measure: Measure
    broker: int | None
    most: float
    least: float

    @property
    def percent_more(self) -> float:
        return (self.most - self.least) * 100 / self.least

    @property
    def times(self) -> float:
        return self.most / self.least


def _spread(turn: ShedderRound, measure: Measure) -> _Spread:
    """Spread of a measure. Java begins with the largest int for the least, and -1 for the most; NaN is neither."""
    traffic = {row: turn.traffic(row, measure) for row in turn.taking_part}
    numbers = {row: carried for row, carried in traffic.items() if carried > -1}
    highest = max(numbers, key=numbers.__getitem__, default=None)
    least = float(min((carried for carried in traffic.values() if carried < MAX_INT), default=MAX_INT))
    least = 1.0 if abs(least) <= ALMOST_NOTHING else least
    return _Spread(measure, highest, -1.0 if highest is None else numbers[highest], least)


def _relieve(turn: ShedderRound, spread: _Spread, settings: UniformLoadShedderSettings, minimum: float) -> None:
    assert spread.broker is not None
    unit = UNITS[spread.measure]
    why = f"{spread.most:,.0f} {unit} against {spread.least:,.0f} where it is least"
    amount = _whole((spread.most - spread.least) * settings.max_unload_percentage)
    above = float(turn.scores[spread.broker] - turn.scores[turn.taking_part].min())
    cap = settings.max_unload_bundle_num_per_shedding

    def choose(traffic: FloatArray, amount: float) -> list[int]:
        return _fill(traffic, int(amount), cap if cap >= 0 else MAX_INT)

    turn.relieve(Demand(spread.broker, above, why, spread.measure, amount, minimum, at_most=True), choose)


def _fill(traffic: FloatArray, remaining: int, cap: int) -> list[int]:
    """Positions, the largest first, that fit into the remaining amount; each size is truncated to a whole number."""
    taken: list[int] = []
    for index, carried in enumerate(traffic.tolist()):
        if len(taken) >= cap:
            break
        if carried <= remaining:
            taken.append(index)
            remaining -= _whole(carried)
    return taken


def _whole(number: float) -> int:
    """Java's cast to int: towards zero, at most the largest int, 0 for NaN."""
    return 0 if np.isnan(number) else int(min(max(number, -MAX_INT - 1), MAX_INT))
