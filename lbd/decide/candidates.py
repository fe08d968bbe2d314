"""Bundles that a broker could give away, and the traffic of each. Pure.

Source: LoadData.getBundleDataForLoadShedding and the shedders of ``loadbalance.impl``: candidates are the bundles that
the broker lists and that have an average; a bundle's traffic is its short-term average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.model import Averages, BoolArray, CodeArray, FloatArray, IntArray, Permission, Snapshot

Measure = Literal["msg_rate", "throughput"]
COLUMNS: dict[Measure, tuple[int, int]] = {"msg_rate": (MSG_IN, MSG_OUT), "throughput": (BYTES_IN, BYTES_OUT)}
UNITS: dict[Measure, str] = {"msg_rate": "msg/s", "throughput": "bytes/s"}


@dataclass(frozen=True, eq=False)
class Candidates:
    """Bundles of one broker: ``bundles`` int32 (C,) into ``names``, ``traffic`` float64 (C,) in the measure chosen.

    ``costs`` is float64 (C,), None where all cost the same.
    """

    bundles: IntArray
    traffic: FloatArray
    names: list[str]
    costs: FloatArray | None = None

    def without(self, left_out: BoolArray) -> Candidates:
        """All but these; ``left_out`` is bool (C,)."""
        costs = None if self.costs is None else self.costs[~left_out]
        return Candidates(self.bundles[~left_out], self.traffic[~left_out], self.names, costs)

    def by_falling_traffic(self) -> list[int]:
        """Positions, the cheapest first, among those the largest, then by name (Java: hash order).

        NaN counts as larger than all, as in Java's ``Double.compare``.
        """
        numbers = ~np.isnan(self.traffic)
        columns = [*([] if self.costs is None else [self.costs]), numbers, np.where(numbers, -self.traffic, 0.0)]
        order = np.lexsort(columns[::-1])
        ties = [column[order[1:]] == column[order[:-1]] for column in columns]
        if not np.logical_and.reduce(ties).any():
            return [*order.tolist()]
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        return sorted(order.tolist(), key=lambda index: (keys[index], self.names[self.bundles[index]]))


@dataclass(frozen=True, eq=False)
class Offers:
    """Bundles that the brokers of one round could give away."""

    snapshot: Snapshot
    averages: Averages
    permission: Permission

    def listed(self, broker: int) -> IntArray:
        """The broker's own list, int32, which may briefly differ from its statistics."""
        rows = self.snapshot.rows
        own = rows.of(broker)
        return rows.bundle[own][rows.listed[own]]

    def own(self, broker: int) -> int:
        """Number of its bundles that are not the broker's heartbeat or SLA bundles."""
        return int(np.count_nonzero(self.permission.barred[self.listed(broker)] != Reason.BROKER_BUNDLE.code))

    def traffic(self, broker: int, measure: Measure) -> float:
        """Latest total of a broker, in + out."""
        first, second = COLUMNS[measure]
        rates = self.snapshot.brokers.rates[broker]
        return float(rates[first]) + float(rates[second])

    def carried(self, bundles: IntArray, measure: Measure) -> float:
        """Sum of bundles, int32 (K,) positions: messages/s or bytes/s, in + out, short-term averages."""
        return float(self.averages.short[bundles][:, COLUMNS[measure]].sum())

    def candidates(self, broker: int, measure: Measure, verdicts: CodeArray) -> Candidates:
        """Listed bundles with an average, minus the barred ones.

        Those without an average are marked in ``verdicts``, int8 (N,) reason codes.
        """
        listed = self.listed(broker)
        has_average = self.averages.samples[listed] > 0
        verdicts[listed[~has_average & (verdicts[listed] == 0)]] = Reason.NO_STATISTICS.code
        allowed = listed[has_average & (self.permission.barred[listed] == 0)]
        first, second = COLUMNS[measure]
        traffic = self.averages.short[allowed, first] + self.averages.short[allowed, second]
        costs = self.permission.costs
        return Candidates(allowed, traffic, self.snapshot.bundles, None if costs is None else costs[allowed])

    def sole(self, broker: int, verdicts: CodeArray) -> tuple[Reason, str] | None:
        """Refusal to move a broker's only bundle, marked in ``verdicts``: its move only shifts the problem."""
        own, name = self.own(broker), self.snapshot.brokers.ids[broker]
        if own > 1:
            return None
        verdicts[self.candidates(broker, "throughput", verdicts).bundles] = Reason.SOLE_BUNDLE.code
        if not own:
            return Reason.NOTHING_FITS, f"{name} has no bundles: its load is not theirs"
        return Reason.SOLE_BUNDLE, f"{name} has 1 bundle; split it, or its clients only change brokers"

    def none_fits(self, broker: int, candidates: Candidates, verdicts: CodeArray) -> str:
        """Reason why no bundle fits: the bars on all, by ``verdicts`` (int8 (N,) reason codes), or their size."""
        listed = self.listed(broker)
        if not candidates.bundles.size:
            codes, numbers = np.unique(verdicts[listed], return_counts=True)
            bars = zip(codes.tolist(), numbers.tolist(), strict=True)
            words = ", ".join(f"{number} {Reason.of(code).label}" for code, number in bars if code)
            return f"none of {listed.size} bundles may move{words and f': {words}'}"
        positive = candidates.traffic[candidates.traffic > 0]
        smallest = f"the smallest carries {positive.min():,.0f}" if positive.size else "none carries traffic"
        return f"{candidates.bundles.size} candidates, {smallest}"

    def unload(self, bundle: int, ends: tuple[str, str | None], reason: str, choices: tuple[str, ...] = ()) -> Unload:
        """The unload of one bundle, with its short-term averages."""
        short: list[float] = self.averages.short[bundle].tolist()
        return Unload(
            bundle=self.snapshot.bundles[bundle],
            source=ends[0],
            destination=ends[1],
            msg_rate=short[MSG_IN] + short[MSG_OUT],
            throughput=short[BYTES_IN] + short[BYTES_OUT],
            reason=reason,
            choices=choices,
        )
