"""How much a pair should exchange, and which bundles make it up. Pure.

Source: AvgShedder.selectBundleForUnloading. Totals are those of the latest report, a bundle's traffic is its short-term
average: the two can disagree, in Pulsar as here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from lbd.decide.avg_shedder.selection import Candidates, fill
from lbd.load.prediction import gap_left_at_best
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, Skip, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.model import Averages, Facts, IntArray, Pair, Permission, Snapshot

Measure = Literal["msg_rate", "throughput"]
COLUMNS: dict[Measure, tuple[int, int]] = {"msg_rate": (MSG_IN, MSG_OUT), "throughput": (BYTES_IN, BYTES_OUT)}
UNITS: dict[Measure, str] = {"msg_rate": "msg/s", "throughput": "bytes/s"}


class Levelling:
    """Chooses bundles for the fired pairs of one round, and says of everything else why not.

    ``verdicts`` is int8 (N,): a :class:`~lbd.model.Reason` code per bundle, filled in for the sources that fired.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        averages: Averages,
        permission: Permission,
        settings: AvgShedderSettings,
        facts: Facts,
    ) -> None:
        self._snapshot, self._averages, self._permission = snapshot, averages, permission
        self._settings, self._facts = settings, facts
        self._position = snapshot.brokers.index()
        self._scores: list[float] = facts.scores.tolist()
        self._minimum: dict[Measure, float] = {
            "msg_rate": settings.min_unload_message,
            "throughput": settings.min_unload_message_throughput,
        }
        self.verdicts = permission.barred.copy()
        self.unloads: list[Unload] = []
        self.skips: list[Skip] = []

    def serve(self, pair: Pair) -> Pair:
        """Everything that one pair leads to; the pair, with how much was to be moved where it was asked for."""
        skip = self._held(pair) or self._background(pair) or self._waiting(pair)
        if skip is None:
            pair, skip = self._level(pair)
        if skip is not None:
            self.skips.append(Skip(f"{pair.source} -> {pair.destination}", *skip))
        return pair

    def _held(self, pair: Pair) -> tuple[Reason, str] | None:
        """What is seen now is not to be acted on, nor judged."""
        source, destination = self._position[pair.source], self._position[pair.destination]
        if pair.fired:
            return None
        if not (self._permission.settled[source] and self._permission.settled[destination]):
            return Reason.SETTLING, f"one of them was moved to, moved from or restarted lately; {_hits(pair)}"
        return None if self._permission.hold is None else (self._permission.hold, _hits(pair))

    def _waiting(self, pair: Pair) -> tuple[Reason, str] | None:
        source, destination = self._position[pair.source], self._position[pair.destination]
        if pair.fired:
            return None
        if not (self._permission.counts[source] or self._permission.counts[destination]):
            return Reason.NO_NEW_SAMPLE, f"neither has a new sample since the last turn; {_hits(pair)}"
        return Reason.WAITING, _hits(pair)

    def _background(self, pair: Pair) -> tuple[Reason, str] | None:
        """A gap that levelling the traffic would leave above the low threshold is not the bundles' doing."""
        if self._settings.background_load == "ignore":
            return None
        hot, cold = self._position[pair.source], self._position[pair.destination]
        left = min(
            gap_left_at_best(
                (self._scores[hot], self._traffic(hot, measure)), (self._scores[cold], self._traffic(cold, measure))
            )
            for measure in self._measures(hot)
        )
        if left < self._settings.low_threshold:
            return None
        carried = f"{self._traffic(hot, 'msg_rate'):.0f} and {self._traffic(cold, 'msg_rate'):.0f} msg/s"
        return Reason.BACKGROUND_LOAD, (
            f"{left:.1f} of {pair.difference:.1f} points would stay if their traffic ({carried}) were levelled: "
            f"load on {pair.source} that is not its bundles', or a weaker machine"
        )

    def _measures(self, hot: int) -> tuple[Measure, ...]:
        """In which order traffic is measured; Pulsar takes messages, and bytes only where those are too few."""
        by_bandwidth = (self._facts.binding[hot] or "").startswith("bandwidth")
        if self._settings.measure == "binding-resource" and by_bandwidth:
            return ("throughput",)
        return ("msg_rate", "throughput")

    def _traffic(self, broker: int, measure: Measure) -> float:
        """The broker's latest total, in + out."""
        first, second = COLUMNS[measure]
        rates = self._snapshot.brokers.rates[broker]
        return float(rates[first]) + float(rates[second])

    def _level(self, pair: Pair) -> tuple[Pair, tuple[Reason, str] | None]:
        """Move the wanted amount, in the first measure in which it is worth it."""
        amounts = self._amounts(pair)
        for measure, amount in amounts.items():
            if amount > self._minimum[measure]:
                return replace(pair, measure=measure, wanted=amount), self._choose(pair, measure, amount)
        below = (_too_little(pair, measure, amount, self._minimum[measure]) for measure, amount in amounts.items())
        measure, amount = next(iter(amounts.items()))
        return replace(pair, measure=measure, wanted=amount), (Reason.BELOW_MINIMUM, "; ".join(below))

    def _amounts(self, pair: Pair) -> dict[Measure, float]:
        """How much the pair should exchange in each measure that counts."""
        hot, cold = self._position[pair.source], self._position[pair.destination]
        return {
            measure: (self._traffic(hot, measure) - self._traffic(cold, measure)) * self._settings.max_unload_percentage
            for measure in self._measures(hot)
        }

    def _choose(self, pair: Pair, measure: Measure, amount: float) -> tuple[Reason, str] | None:
        listed = self._listed(self._position[pair.source])
        candidates = self._candidates(listed, measure)
        own = int(np.count_nonzero(self._permission.barred[listed] != Reason.BROKER_BUNDLE.code))
        if self._settings.sole_bundle == "stay" and own <= 1:
            self.verdicts[candidates.bundles] = Reason.SOLE_BUNDLE.code
            return Reason.SOLE_BUNDLE, f"{pair.source} has {own} bundle; split it, or its clients only change brokers"
        taken = fill(candidates, amount)
        sizes = [candidates.traffic > amount, candidates.traffic > 0]
        passed_over = np.select(sizes, [Reason.TOO_LARGE.code, Reason.NOT_NEEDED.code], Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = passed_over
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        self.unloads.extend(self._unload(candidates, at, pair, measure) for at in taken)
        return None if taken else (Reason.NOTHING_FITS, self._nothing(candidates, listed, measure, amount))

    def _nothing(self, candidates: Candidates, listed: IntArray, measure: Measure, amount: float) -> str:
        """Why no bundle fits: which bar them all, or how large the smallest is."""
        told = f"{amount:.0f} {UNITS[measure]} to move"
        if not candidates.bundles.size:
            codes, numbers = np.unique(self.verdicts[listed], return_counts=True)
            bars = zip(codes.tolist(), numbers.tolist(), strict=True)
            words = ", ".join(f"{number} {Reason.of(code).label}" for code, number in bars if code)
            return f"{told}; none of {listed.size} bundles may move{words and f': {words}'}"
        positive = candidates.traffic[candidates.traffic > 0]
        smallest = f"the smallest carries {positive.min():.0f}" if positive.size else "none carries traffic"
        return f"{told}; {candidates.bundles.size} candidates, {smallest}"

    def _listed(self, broker: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The broker's own list, int32: it can differ from its statistics for moments."""
        rows = self._snapshot.rows
        own = rows.of(broker)
        listed: np.ndarray[tuple[int], np.dtype[np.int32]] = rows.bundle[own][rows.listed[own]]
        return listed

    def _candidates(self, listed: np.ndarray[tuple[int], np.dtype[np.int32]], measure: Measure) -> Candidates:
        """Listed bundles with an average, minus the barred ones."""
        known = self._averages.samples[listed] > 0
        self.verdicts[listed[~known & (self.verdicts[listed] == 0)]] = Reason.NO_STATISTICS.code
        allowed = listed[known & (self._permission.barred[listed] == 0)]
        first, second = COLUMNS[measure]
        traffic = self._averages.short[allowed, first] + self._averages.short[allowed, second]
        costs = self._permission.costs
        return Candidates(allowed, traffic, self._snapshot.bundles, None if costs is None else costs[allowed])

    def _unload(self, candidates: Candidates, at: int, pair: Pair, measure: Measure) -> Unload:
        bundle = int(candidates.bundles[at])
        short: list[float] = self._averages.short[bundle].tolist()
        choices = self._choices(pair)
        return Unload(
            bundle=self._snapshot.bundles[bundle],
            source=pair.source,
            destination=choices[0] if choices else pair.destination,
            msg_rate=short[MSG_IN] + short[MSG_OUT],
            throughput=short[BYTES_IN] + short[BYTES_OUT],
            reason=f"{pair.difference:.1f} points apart, {candidates.traffic[at]:.0f} {UNITS[measure]}",
            choices=choices,
        )

    def _choices(self, pair: Pair) -> tuple[str, ...]:
        """Healthy brokers instead of a planned destination that is overloaded; Pulsar 5.0 draws one of them.

        Only brokers that take part in this round can be called healthy.
        """
        limit = self._settings.broker_overloaded_threshold_percentage
        if self._settings.pulsar_version != "5.0" or not self._scores[self._position[pair.destination]] > limit:
            return ()
        takes_part = (self._permission.paired == 0) & self._permission.settled
        healthy = zip(self._snapshot.brokers.ids, self._scores, takes_part.tolist(), strict=True)
        ends = (pair.source, pair.destination)
        return tuple(broker for broker, score, part in healthy if part and score <= limit and broker not in ends)


def _hits(pair: Pair) -> str:
    hits, wanted = pair.hits, pair.wanted_hits
    return f"low hits {hits.low}/{wanted.low}, high hits {hits.high}/{wanted.high}"


def _too_little(pair: Pair, measure: Measure, amount: float, minimum: float) -> str:
    if amount > 0:
        return f"{amount:.0f} {UNITS[measure]} to move, minimum {minimum:.0f}"
    return f"{pair.source} carries no more {UNITS[measure]} than {pair.destination}: its load is not its traffic"
