"""Slopes for brokers that have hardly a sample in a history: those of the other brokers. Pure.

A live turn moves nothing to a broker whose slope is not known. A calibration compares settings over days, to which a
broker adds little that came for an hour, or whose CPU was not known: it is no reason to end without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.estimate import DRIVEN, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.load.estimate import LoadModel


HARDLY_SHARE = 0.1
"""A broker is hardly known with fewer samples than a tenth of the median broker's."""


@dataclass(frozen=True)
class Borrowed:
    """A ``broker`` with few ``samples`` of its own, whose unknown slopes are those of the others."""

    broker: str
    samples: int

    @property
    def text(self) -> str:
        """One sentence, without its full stop."""
        few = f"{self.broker} is hardly known ({self.samples:,} samples)"
        return f"{few}: what traffic costs there is taken from the others"


def with_borrowed(model: LoadModel) -> tuple[LoadModel, tuple[Borrowed, ...]]:
    """The model with the median slope and background of the others for each broker that is hardly known, wherever its
    own samples show none; and the brokers that this changed.
    """
    few = model.samples < HARDLY_SHARE * np.median(model.samples)
    arrays = {
        name: getattr(model, name).copy()
        for name in ("slope", "half_width", "noise", "background", "background_half_width")
    }
    sources = [list(own) for own in model.sources]
    changed = set()
    for column in DRIVEN:
        others = [row for row in np.flatnonzero(~few).tolist() if model.sources[row][column] is not Source.UNKNOWN]
        for row in np.flatnonzero(few).tolist():
            if others and model.sources[row][column] is Source.UNKNOWN:
                changed.add(row)
                sources[row][column] = _shared_source(model, others, column)
                for values in arrays.values():
                    values[row, column] = np.median(values[others, column])
    for row in changed:
        unknown = np.isnan(arrays["background"][row])
        arrays["background"][row, unknown] = np.median(arrays["background"][~few], axis=0)[unknown]
    borrowed = tuple(Borrowed(model.brokers[row], int(model.samples[row])) for row in sorted(changed))
    return replace(model, **arrays, sources=tuple(map(tuple, sources))), borrowed


def _shared_source(model: LoadModel, others: Sequence[int], column: int) -> Source:
    """Where the others have no limit of a resource, it makes no score there either."""
    unlimited = sum(model.sources[row][column] is Source.UNLIMITED for row in others)
    return Source.UNLIMITED if unlimited > len(others) / 2 else Source.POOLED
