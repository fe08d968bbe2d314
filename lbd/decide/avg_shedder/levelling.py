"""How much a pair should exchange, and which bundles make it up. Pure.

Source: AvgShedder.selectBundleForUnloading. Totals are those of the latest report, a bundle's traffic is its short-term
average: the two can disagree, in Pulsar as here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder.relays import portion
from lbd.decide.avg_shedder.selection import fill
from lbd.decide.candidates import COLUMNS, UNITS, Measure, Offers
from lbd.load.prediction import gap_left_at_best
from lbd.model import Skip, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.decide.candidates import Candidates
    from lbd.model import Averages, Facts, Pair, Permission, Snapshot

NEGLIGIBLE_PART = 0.4
"""No more than this of an amount is left, however small the amount: else a pair would need another round."""


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
        self._snapshot, self._permission = snapshot, permission
        self._offers = Offers(snapshot, averages, permission)
        self._settings, self._facts = settings, facts
        self._position = snapshot.brokers.index()
        self._scores: list[float] = facts.scores.tolist()
        self._compared: list[float] = sorted(facts.scores[permission.paired == 0].tolist())
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
            self.skips.append(Skip(pair.ends, *skip))
        return pair

    def _held(self, pair: Pair) -> tuple[Reason, str] | None:
        """What is seen now is not to be acted on, nor judged."""
        source, destination = self._ends(pair)
        if pair.fired:
            return None
        if not (self._permission.settled[source] and self._permission.settled[destination]):
            return Reason.SETTLING, f"one of them was moved to, moved from or restarted lately; {_hits(pair)}"
        return None if self._permission.hold is None else (self._permission.hold, _hits(pair))

    def _waiting(self, pair: Pair) -> tuple[Reason, str] | None:
        source, destination = self._ends(pair)
        if pair.fired:
            return None
        if not (self._permission.counts[source] or self._permission.counts[destination]):
            return Reason.NO_NEW_SAMPLE, f"neither has a new sample since the last turn; {_hits(pair)}"
        return Reason.WAITING, _hits(pair)

    def _background(self, pair: Pair) -> tuple[Reason, str] | None:
        """A gap that levelling the traffic would leave above the low threshold is not the bundles' doing."""
        if self._settings.background_load == "ignore":
            return None
        hot, cold = self._ends(pair)
        left = min(
            gap_left_at_best(
                (self._scores[hot], self._offers.traffic(hot, measure)),
                (self._scores[cold], self._offers.traffic(cold, measure)),
            )
            for measure in self._measures(hot)
        )
        if left < self._settings.low_threshold:
            return None
        carried = f"{self._offers.traffic(hot, 'msg_rate'):.0f} and {self._offers.traffic(cold, 'msg_rate'):.0f} msg/s"
        return Reason.BACKGROUND_LOAD, (
            f"{left:.1f} of {pair.difference:.1f} points would stay if their traffic ({carried}) were levelled: "
            f"load on {pair.source} that is not its bundles', or a weaker machine"
        )

    def _ends(self, pair: Pair) -> tuple[int, int]:
        """Positions of source and destination."""
        return self._position[pair.source], self._position[pair.destination or ""]

    def _measures(self, hot: int) -> tuple[Measure, ...]:
        """In which order traffic is measured; Pulsar takes messages, and bytes only where those are too few."""
        by_bandwidth = (self._facts.binding[hot] or "").startswith("bandwidth")
        if self._settings.measure == "binding-resource" and by_bandwidth:
            return ("throughput",)
        return ("msg_rate", "throughput")

    def _level(self, pair: Pair) -> tuple[Pair, tuple[Reason, str] | None]:
        """Move the wanted amount, in the first measure in which it is worth it."""
        portions = {measure: self._portion(pair, measure) for measure in self._measures(self._ends(pair)[0])}
        amounts = {measure: self._amount(pair, measure) * portion for measure, portion in portions.items()}
        for measure, amount in amounts.items():
            if amount > self._minimum[measure]:
                pair = replace(pair, measure=measure, wanted=amount)
                return pair, self._choose(pair, measure, amount, portions[measure])
        below = (_too_little(pair, measure, amount, self._minimum[measure]) for measure, amount in amounts.items())
        measure, amount = next(iter(amounts.items()))
        return replace(pair, measure=measure, wanted=amount), (Reason.BELOW_MINIMUM, "; ".join(below))

    def _amount(self, pair: Pair, measure: Measure) -> float:
        """How much the pair should exchange."""
        hot, cold = self._ends(pair)
        difference = self._offers.traffic(hot, measure) - self._offers.traffic(cold, measure)
        return difference * self._settings.max_unload_percentage

    def _portion(self, pair: Pair, measure: Measure) -> float:
        """How much of that its destination takes: all, unless it had to give it away again."""
        rise = self._rise(pair, measure) * self._settings.max_unload_percentage
        if self._settings.relays == "make" or not rise > 0:
            return 1.0
        return portion(self._scores[self._ends(pair)[1]], rise, self._compared, self._settings.low_threshold)

    def _rise(self, pair: Pair, measure: Measure) -> float:
        """Points by which their difference in traffic would lift the destination.

        A source at the end of its CPU shows 100 points however much it carries: what the usual busy broker has for its
        traffic counts where that is more.
        """
        hot, cold = self._ends(pair)
        first, second = COLUMNS[measure]
        rates = self._snapshot.brokers.rates
        with np.errstate(invalid="ignore", over="ignore"):  # what a report may hold
            carried = rates[:, first] + rates[:, second]
            more = carried - carried[cold]
            if not more[hot] > 0:
                return pair.difference
            busy = (self._permission.paired == 0) & (more > 0) & (more >= more[hot] / 2)
            usual = np.median((self._facts.scores[busy] - self._scores[cold]) / more[busy])
            return max(pair.difference, float(usual * more[hot]))

    def _choose(self, pair: Pair, measure: Measure, amount: float, filled: float) -> tuple[Reason, str] | None:
        broker = self._position[pair.source]
        candidates, own = self._offers.candidates(broker, measure, self.verdicts), self._offers.own(broker)
        if self._settings.sole_bundle == "stay" and own <= 1:
            self.verdicts[candidates.bundles] = Reason.SOLE_BUNDLE.code
            return Reason.SOLE_BUNDLE, f"{pair.source} has {own} bundle; split it, or its clients only change brokers"
        taken = fill(candidates, amount, self._negligible(pair, filled) * amount)
        sizes = [candidates.traffic > amount, candidates.traffic > 0]
        passed_over = np.select(sizes, [Reason.TOO_LARGE.code, Reason.NOT_NEEDED.code], Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = passed_over
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        told = f" {UNITS[measure]}{'; more would make its destination a source' if filled < 1 else ''}"
        self.unloads.extend(self._unload(candidates, at, pair, told) for at in taken)
        if taken:
            return None
        why = self._offers.none_fits(broker, candidates, self.verdicts)
        return Reason.NOTHING_FITS, f"{amount:.0f} {UNITS[measure]} to move; {why}"

    def _negligible(self, pair: Pair, filled: float) -> float:
        """What part of an amount may be left."""
        points = pair.difference * self._settings.max_unload_percentage * filled
        return min(self._settings.negligible_points / points, NEGLIGIBLE_PART) if points > 0 else 0.0

    def _unload(self, candidates: Candidates, at: int, pair: Pair, unit: str) -> Unload:
        choices = self._choices(pair)
        destination = choices[0] if choices else pair.destination
        told = f"{pair.difference:.1f} points apart, {candidates.traffic[at]:.0f}{unit}"
        return self._offers.unload(int(candidates.bundles[at]), (pair.source, destination), told, choices)

    def _choices(self, pair: Pair) -> tuple[str, ...]:
        """Healthy brokers instead of a planned destination that is overloaded; Pulsar 5.0 draws one of them.

        Only brokers that take part in this round can be called healthy.
        """
        limit = self._settings.broker_overloaded_threshold_percentage
        if self._settings.pulsar_version != "5.0" or not self._scores[self._ends(pair)[1]] > limit:
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
