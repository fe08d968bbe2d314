"""What traffic costs brokers, as one turn hands it on: plain columns, aligned with a snapshot's brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Slopes:
    """What traffic costs each broker (``load/linear.py``), float64 (B, 5): percent for each byte/s, NaN where unknown.

    CPU: for each message/s where ``measure`` is ``msg_rate``. ``noise``: deviation of a sample in percent, (B, 5).
    ``half_width``, (B, 5), is half of a slope's 95 % interval; ``background``, (B, 5), percent without traffic, NaN
    without a sample; ``sources`` tells where each broker's slope of CPU comes from, the value of a
    :class:`~lbd.load.linear.Source`. ``usual``, (B, 5), is percent used on average of the latest samples
    (``load/usual.py``), NaN where there is none, and ``samples``, (B,), how many they are. ``effect``, (B, 2), is what
    a broker's own moves told of a slope of CPU that nothing else tells, and the standard deviation of that, infinite
    without a move (``load/effects.py``). These six are None where nobody told them.
    """

    slope: FloatArray
    noise: FloatArray
    measure: Literal["throughput", "msg_rate"] = "throughput"
    half_width: FloatArray | None = None
    background: FloatArray | None = None
    sources: tuple[str, ...] | None = None
    usual: FloatArray | None = None
    samples: FloatArray | None = None
    effect: FloatArray | None = None
