"""What a broker carried at one moment: the measure by which bundles are weighed while it is being emptied. Pure.

A bundle is weighed by its share of its broker's traffic (``load/prediction.py``). Of a broker that is nearly empty the
last bundle has all of the traffic, and would be taken for all of the load; so the traffic of the beginning is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT

if TYPE_CHECKING:
    from lbd.model import FloatArray, Snapshot


@dataclass(frozen=True)
class Carried:
    """``score`` in points, ``msg_rate`` in messages/s and ``throughput`` in bytes/s, in + out; how many ``bundles``."""

    score: float
    msg_rate: float
    throughput: float
    bundles: int


def carried_by(snapshot: Snapshot, scores: FloatArray, broker: str, bundles: int) -> Carried:
    """What a broker of this round carries; ``scores`` is float64 (B,), ``bundles`` how many it owns."""
    at = snapshot.brokers.index()[broker]
    rates = snapshot.brokers.rates[at]
    messages, volume = float(rates[MSG_IN] + rates[MSG_OUT]), float(rates[BYTES_IN] + rates[BYTES_OUT])
    return Carried(float(scores[at]), messages, volume, bundles)


def as_it_was(snapshot: Snapshot, scores: FloatArray, broker: str, then: Carried) -> tuple[Snapshot, FloatArray]:
    """The round and its scores with one broker carrying what it did then.

    One that carried nothing gets one message and one byte a second: its bundles weigh nothing, and that is known.
    """
    at = snapshot.brokers.index()[broker]
    rates, found = snapshot.brokers.rates.copy(), scores.copy()
    rates[at] = 0.0
    rates[at, MSG_IN], rates[at, BYTES_IN] = then.msg_rate or 1.0, then.throughput or 1.0
    found[at] = then.score
    return replace(snapshot, brokers=replace(snapshot.brokers, rates=rates)), found
