"""Numbers by size, counted for Prometheus. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass
class Histogram:
    """Numbers by size: ``counts`` has one more than ``bounds``, for all above."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Nothing is counted yet."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound, and how many are at or below it, as Prometheus wants them."""
        names = (*map(str, self.bounds), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))

    def copy(self) -> Histogram:
        """As it is now."""
        return Histogram(self.bounds, list(self.counts), self.total)
