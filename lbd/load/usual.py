"""What a broker usually uses: the mean of its latest samples, as far as they tell the same. Pure.

A sample at rest differs by a point or more, which is what a plan made on one of them is off by; of five that is half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.load.samples import IS_SAMPLED
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import FloatArray

MOST_SAMPLES = 5
"""Of more the noise is hardly less, and load that drifts is long past."""

MOST_SECONDS = 600.0

SAME_POINTS = 4.0
"""Samples of one load are seldom further apart (deviations of a point to a point and a half); what is, is a change of
load, and of that the newest sample tells."""


def usual(newest_first: Sequence[FloatArray]) -> tuple[FloatArray, int]:
    """The mean of these usages, each float64 (5,) in percent, up to the first that is unlike the newest, and how many
    they are; NaN of none, and of memory: it is read anew for each report, and a heap that is emptied is no other load.
    """
    if not newest_first:
        return np.full(len(RESOURCES), np.nan), 0
    seen = np.where(IS_SAMPLED, np.array(newest_first), np.nan)
    apart = np.nan_to_num(np.abs(seen - seen[0])).max(axis=1) > SAME_POINTS
    alike = [*apart.tolist(), True].index(True)
    return seen[:alike].mean(axis=0), alike
