"""One plan for the whole imbalance, where a rule looks at two brokers at a time. Pure; lbd's own, not Pulsar's.

The most and the least loaded broker of a pair are levelled to their mean. If most brokers are cold, that mean is far
above the rest: the destination is the source of a later pair, and its new bundles move twice. On three brokers of 4.2.4
one hot broker was levelled by fourteen moves, four and then ten, by way of the middle one. And a gap that traffic does
not make is not closed by moving it. In ``profile: live`` the planner changes six things of a pair:

- A gap that would stay above the low threshold even if all traffic were level is reported and left.
- A broker's only bundle stays: its move only shifts the problem, and its clients, elsewhere.
- If bandwidth makes the source's score, bytes are moved. Pulsar prefers messages even if bytes are the problem.
- A destination that would become so loaded that it had to give bundles to the next colder broker is filled to the
  average only; where no bundle is so small, with the smallest. The rest goes to the next colder brokers in the same
  round.
- A source gives a broker that has joined only what brings it to the average. Half of the difference would make it one
  of the coldest; the next source gives the rest.
- The small bundles that would exchange the last :data:`NEGLIGIBLE_POINTS` stay.

Figures: docs/decisions/results/0007-simulated-cluster.md, docs/results/strategies.md (a broker that joins).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import Levelling, fill
from lbd.load.estimate import smallest_gap
from lbd.model import Pair
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lbd.decide.avg_shedder import AvgShedderSettings
    from lbd.decide.candidates import Candidates, Measure, Offers
    from lbd.model import Comparison, FloatArray, IntArray

NEGLIGIBLE_POINTS = 3.0
"""Points that a pair may leave unexchanged once a bundle moves.

The pair is then far below the threshold, and the small bundles that would fill the rest have clients, too. A simulated
day of waves took 48 moves instead of 103."""

NEGLIGIBLE_PART = 0.4
"""Largest part of an amount that may stay, however small the amount: else a pair would need another round."""

MORE_TO_COME, TO_AVERAGE = "; more would make its destination a source", "; its source is at the average then"
JOINED, GOES_ON = "; its destination has joined lately", "; follows up on its last moves"
"""Words for why no more of a bundle's pair moves, and why the pair waited for no hits."""


def portion(cold: float, rise: float, scores: Sequence[float], apart: float) -> float:
    """Part, above 0 and at most 1, that a destination takes of traffic that would lift it by ``rise`` points.

    ``scores`` are those of all compared brokers, ascending, and ``cold`` is the destination's. Lifted ``apart`` points
    or more above the next colder one that is not filled before it, it is lifted to the average of all instead: the rest
    is for the others. Otherwise another round is needed in any case.
    """
    following = bisect_left(scores, cold) + 1
    if following >= len(scores) or cold + rise - scores[following] < apart:
        return 1.0
    room = fmean(scores) - cold
    return min(room / rise, 1.0) if room > 0 else 1.0


def to_average(hot: float, rise: float, scores: Sequence[float]) -> float:
    """Part, above 0 and at most 1, that a source gives of traffic worth ``rise`` points to be at the average of all.

    A source that is not above the average gives all of it: it is a source for a far colder one.
    """
    above = hot - fmean(scores)
    return min(above / rise, 1.0) if above > 0 else 1.0


class WholePlan(Levelling):
    """Levels pairs, and counts each move for the next: scores and traffic are as if all moves so far had landed."""

    def __init__(self, offers: Offers, settings: AvgShedderSettings, comparison: Comparison) -> None:
        super().__init__(offers, settings, comparison)
        self._compared = self.permission.paired == 0
        self._idle = self._compared & self.permission.settled
        self._ascending: list[float] = sorted(self.scores[self._compared].tolist())
        self._partly_served = deque[Pair]()
        self._rise = self._part = 1.0
        self._leaves_rest = False

    def serve(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Serve the pairs, then move what one destination left to the next colder idle ones, each from one source."""
        served = super().serve(pairs)
        while self._partly_served and self._idle.any():
            pair = self._partly_served.popleft()
            cold, hot = int(np.where(self._idle, self.scores, np.inf).argmin()), self.ends(pair)[0]
            difference = float(self.scores[hot] - self.scores[cold])
            further = replace(pair, destination=self.ids[cold], difference=difference)
            if difference >= self.settings.low_threshold and self.refusal(further) is None:
                self.level(further)
        return served

    def measures(self, source: int) -> tuple[Measure, ...]:
        """Bytes alone if bandwidth makes the score of the source."""
        is_bandwidth = (self.binding[source] or "").startswith("bandwidth")
        return ("throughput",) if is_bandwidth else super().measures(source)

    def refusal(self, pair: Pair) -> tuple[Reason, str] | None:
        """Reason why bundles do not cause the gap: levelling the traffic would leave it above the low threshold."""
        hot, cold = self.ends(pair)
        (hot_score, cold_score), remaining = self.scores[[hot, cold]].tolist(), list[float]()
        for measure in self.measures(hot):
            hot_traffic, cold_traffic = self.traffic[measure][[hot, cold]].tolist()
            remaining.append(smallest_gap((hot_score, hot_traffic), (cold_score, cold_traffic)))
        if min(remaining) < self.settings.low_threshold:
            return None
        messages = self.traffic["msg_rate"]
        carried = f"{messages[hot]:,.0f} and {messages[cold]:,.0f} msg/s"
        return Reason.BACKGROUND_LOAD, (
            f"{min(remaining):.1f} of {pair.difference:.1f} points would stay if their traffic ({carried}) were "
            f"levelled: load on {pair.source} that is not its bundles', or a weaker machine"
        )

    def sole(self, pair: Pair) -> tuple[Reason, str] | None:
        """The only bundle of the source stays."""
        return self.offers.sole(self.ends(pair)[0], self.verdicts)

    def amount(self, pair: Pair, measure: Measure) -> float:
        """Amount that moves: all, unless the destination would have to give it away again, or the source be cold."""
        self._rise = self._points(pair, measure)
        rise = self._rise * self.settings.max_unload_percentage
        destination_part = source_part = 1.0
        if rise > 0:
            hot, cold = self.scores[list(self.ends(pair))].tolist()
            destination_part = portion(cold, rise, self._ascending, self.settings.low_threshold)
            if pair.destination in self.permission.joined:
                source_part = to_average(hot, rise, self._ascending)
        self._part = min(destination_part, source_part)
        self._leaves_rest = self._part == destination_part < 1
        return super().amount(pair, measure) * self._part

    def _points(self, pair: Pair, measure: Measure) -> float:
        """Points by which their difference in traffic would lift the destination.

        A source at the end of its CPU shows 100 points whatever it carries: the usual points per traffic of busy
        brokers count where those are more.
        """
        hot, cold = self.ends(pair)
        with np.errstate(invalid="ignore", over="ignore"):  # reports may hold infinities
            more = self.traffic[measure] - self.traffic[measure][cold]
            if not more[hot] > 0:
                return pair.difference
            busy = self._compared & (more > 0) & (more >= more[hot] / 2)
            usual = _median((self.scores[busy] - self.scores[cold]) / more[busy])
            return max(pair.difference, usual * float(more[hot]))

    def choose(self, pair: Pair, candidates: Candidates) -> tuple[list[int], str]:
        """Positions of the candidates that fill the amount but for what is negligible, and words for their reason."""
        points = pair.difference * self.settings.max_unload_percentage * self._part
        spare = min(NEGLIGIBLE_POINTS / points, NEGLIGIBLE_PART) if points > 0 else 0.0
        taken, words = fill(candidates, pair.wanted, spare * pair.wanted), ""
        if self._part < 1:
            taken = taken or _smallest(candidates, pair.wanted / self._part)
            words = MORE_TO_COME if self._leaves_rest else TO_AVERAGE
        if not pair.hits.reach(pair.wanted_hits):
            words += JOINED if pair.destination in self.permission.joined else GOES_ON
        return taken, words

    def moved(self, pair: Pair, bundles: IntArray) -> None:
        """Update scores and traffic of both ends as if these bundles had moved."""
        hot, cold = self.ends(pair)
        carried = {str(measure): self.offers.carried(bundles, measure) for measure in self.traffic}
        lifts = self._rise * self.settings.max_unload_percentage * self._part
        points = lifts * carried[pair.measure] / pair.wanted
        self.scores[[hot, cold]] += (-points, points)
        self._ascending = sorted(self.scores[self._compared].tolist())
        for measure, traffic in self.traffic.items():
            traffic[[hot, cold]] += (-carried[measure], carried[measure])
        self._idle[[hot, cold]] = False
        if self._leaves_rest:
            self._partly_served.append(pair)


def _smallest(candidates: Candidates, amount: float) -> list[int]:
    """Position of the smallest of the cheapest candidates that fit into an amount; none where nothing fits.

    Where all bundles are larger than what lifts a destination to the average, a hot broker would stay hot for good.
    """
    traffic = candidates.traffic
    costs = candidates.costs if candidates.costs is not None else np.zeros(traffic.size)
    fits = [index for index in candidates.by_falling_traffic() if 0 < traffic[index] <= amount]
    return [min(fits, key=lambda index: (costs[index], traffic[index]))] if fits else []


def _median(values: FloatArray) -> float:
    """Median of at least one value; numpy's own takes ten times as long for short arrays."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
