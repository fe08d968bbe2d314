"""Cost of traffic for the mean broker of a history, and slopes for brokers that are gone or hardly known. Pure.

A live turn moves nothing to a broker whose slope is not known. A calibration compares settings over days, to which a
broker adds little that came for an hour, or whose CPU was not known; and one that is gone is no part of the next week.
Neither is a reason to end without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.estimate import CPU, DRIVEN, Source, driving
from lbd.load.fit import CONFIDENT_SHARE, line
from lbd.load.settings import UNIT
from lbd.store.calibration import OUTGROWN, CalibratedCpu

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lbd.load.estimate import LoadModel, Measure
    from lbd.load.samples import BrokerSamples
    from lbd.model import FloatArray


SPAN_SECONDS = 120.0
"""Each broker samples at least once within it."""

SMOOTH_SECONDS = 900.0
"""A mean over it has little of the noise of samples, and a history of hours has enough of them."""

BUSY = 0.95
"""Quantile of the busy means: the very highest is a peak that may not come again."""

EXTREME_SHARE = 0.01
"""Share of the spans at each end that are not a history's usual range."""


def cpu_by_traffic(samples: Mapping[str, BrokerSamples], measure: Measure) -> CalibratedCpu | None:
    """CPU of the mean broker by its traffic; None where it is not known, or hardly changes with traffic."""
    sampled_at = np.concatenate([own.at for own in samples.values()])
    traffic = np.concatenate([driving(own.carried, measure)[:, CPU] for own in samples.values()]) / UNIT[measure]
    used = np.concatenate([own.used[:, CPU] for own in samples.values()])
    finite = np.isfinite(used)
    sampled_at, traffic, used = sampled_at[finite], traffic[finite], used[finite]
    quarter = sampled_at // SMOOTH_SECONDS
    smooth_traffic, smooth_used = _means(quarter, traffic), _means(quarter, used)
    fitted = line([(smooth_traffic, smooth_used)])
    if fitted.slope <= 0 or fitted.half_width > CONFIDENT_SHARE * fitted.slope:
        return None
    idle = float(np.median(smooth_used - fitted.slope * smooth_traffic))
    least = float(np.quantile(smooth_traffic, BUSY)) / OUTGROWN
    spans, usages = _means(sampled_at // SPAN_SECONDS, traffic), _means(sampled_at // SPAN_SECONDS, used)
    busy = spans >= least
    shares = usages[busy] / (idle + fitted.slope * spans[busy])
    lowest, highest = np.quantile(shares, (EXTREME_SHARE, 1 - EXTREME_SHARE)).tolist()
    return CalibratedCpu(measure, idle, fitted.slope, least, lowest, highest)


def _means(group: FloatArray, values: FloatArray) -> FloatArray:
    """The mean of the values of each group, in the order of groups."""
    _, index = np.unique(group, return_inverse=True)
    means: FloatArray = np.bincount(index, values) / np.bincount(index)
    return means


# --- brokers that are gone or hardly known

HARDLY_SHARE = 0.1
"""A broker is hardly known with fewer samples than a tenth of the median broker's."""


@dataclass(frozen=True)
class Borrowed:
    """A ``broker`` that is ``gone``, or has few ``samples`` of its own: its unknown slopes are those of the others."""

    broker: str
    samples: int
    gone: bool

    @property
    def text(self) -> str:
        """One sentence, without its full stop."""
        why = "is gone, and its traffic showed no slope" if self.gone else f"is hardly known ({self.samples:,} samples)"
        return f"{self.broker} {why}: what traffic costs there is taken from the others"


def with_borrowed(model: LoadModel, there: Collection[str]) -> tuple[LoadModel, tuple[Borrowed, ...]]:
    """The model with the median slope and background of the others for each broker that is hardly known, or not among
    those that are ``there`` still, wherever its own samples show none; and the brokers that this changed.
    """
    few = model.samples < HARDLY_SHARE * np.median(model.samples)
    gone = ~np.isin(model.brokers, list(there))
    arrays = {
        name: getattr(model, name).copy()
        for name in ("slope", "half_width", "noise", "background", "background_half_width")
    }
    sources = [list(own) for own in model.sources]
    changed = set()
    for column in DRIVEN:
        others = [row for row in np.flatnonzero(~few).tolist() if model.sources[row][column] is not Source.UNKNOWN]
        for row in np.flatnonzero(few | gone).tolist():
            if others and model.sources[row][column] is Source.UNKNOWN:
                changed.add(row)
                sources[row][column] = _shared_source(model, others, column)
                for values in arrays.values():
                    values[row, column] = np.median(values[others, column])
    for row in changed:
        unknown = np.isnan(arrays["background"][row])
        arrays["background"][row, unknown] = np.median(arrays["background"][~few], axis=0)[unknown]
    borrowed = tuple(
        Borrowed(model.brokers[row], int(model.samples[row]), bool(gone[row] and not few[row]))
        for row in sorted(changed)
    )
    return replace(model, **arrays, sources=tuple(map(tuple, sources))), borrowed


def _shared_source(model: LoadModel, others: Sequence[int], column: int) -> Source:
    """Where the others have no limit of a resource, it makes no score there either."""
    unlimited = sum(model.sources[row][column] is Source.UNLIMITED for row in others)
    return Source.UNLIMITED if unlimited > len(others) / 2 else Source.POOLED
