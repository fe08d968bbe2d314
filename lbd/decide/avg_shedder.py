"""AvgShedder: pair the most with the least loaded broker, and level each pair by half of its difference in traffic.

Source: PIP-364, Pulsar's AvgShedder.java (4.0.8 to 5.0.1). Pure: values in, a :class:`~lbd.model.Decision` out.

``profile: stock`` is what Pulsar 5.0 does, to the last bit. ``profile: live`` differs in ten points:

- A broker's only bundle stays: its move only shifts the problem, and its clients, elsewhere.
- If bandwidth makes the source's score, bytes are moved. Pulsar prefers messages even if bytes are the problem.
- A gap that would stay above ``low_threshold`` even if all traffic were level is reported and left: moving bundles
  cannot close it.
- A bundle's traffic is at least that of its latest report. Its mean of ten samples knows a fifth of a jump that two
  samples have proven, and with it a pair exchanges twice as much as it should.
- A destination that would become so loaded that it had to give bundles to the next colder broker is filled to the
  average only, so that no bundle moves twice if most brokers are cold; where no bundle is so small, with the smallest.
- What that leaves goes to the next colder brokers in the same round: one plan for the whole imbalance.
- A pair may leave :data:`NEGLIGIBLE_POINTS` unexchanged.
- A source at :data:`~lbd.load.scoring.AT_LIMIT_POINTS` or more counts as far apart as ``high_threshold`` wants: its
  score cannot rise.
- A source that gave bundles within :data:`~lbd.permit.evidence.GOES_ON_SECONDS` goes on without new hits, where its
  present CPU is known and both brokers have settled. The rest of an imbalance, after limits cut a plan or a destination
  was full, needs no proof of its own.
- A broker that joined lately takes without hits, once its present CPU is known: it stays empty without moves.

``stock`` replaces a planned destination that is overloaded, as Pulsar does from 4.0.14, 4.2.5 and 5.0 on (#26246).
Earlier versions keep it; the guardrails refuse it then.
Where Java's result depends on the order of a hash map (brokers of equal score, bundles of equal traffic), lbd orders by
name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from lbd.decide.candidates import COLUMNS, UNITS, Measure, Offers
from lbd.decide.shedder import MOST_BYTES, MOST_HITS, MOST_MESSAGES, MOST_POINTS, HitSettings
from lbd.load import scoring
from lbd.load.estimate import smallest_gap
from lbd.load.scoring import AT_LIMIT_POINTS, broker_conf
from lbd.model import Comparison, Decision, Hits, Memory, Pair, Permission, Skip, Unload
from lbd.permit.evidence import gave_lately
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lbd.decide.candidates import Candidates
    from lbd.load.scoring import Weights
    from lbd.model import Averages, FloatArray, IntArray, Snapshot


class AvgShedderSettings(HitSettings):
    """Settings of ``strategy: avg-shedder``."""

    name = "avg-shedder"

    low_threshold: float = Field(
        15,
        ge=0,
        le=MOST_POINTS,
        **broker_conf(
            "loadBalancerAvgShedderLowThreshold",
            "Points between the brokers of a pair, needed for hit_count_low samples",
        ),
    )
    high_threshold: float = Field(
        40,
        ge=0,
        le=MOST_POINTS,
        **broker_conf(
            "loadBalancerAvgShedderHighThreshold",
            "Points between the brokers of a pair, needed for hit_count_high samples only",
        ),
    )
    hit_count_low: int = Field(
        8,
        ge=0,
        le=MOST_HITS,
        **broker_conf("loadBalancerAvgShedderHitCountLowThreshold", "Samples in a row at low_threshold"),
    )
    hit_count_high: int = Field(
        2,
        ge=0,
        le=MOST_HITS,
        **broker_conf("loadBalancerAvgShedderHitCountHighThreshold", "Samples in a row at high_threshold"),
    )
    max_unload_percentage: float = Field(
        0.5,
        ge=0,
        le=1,
        **broker_conf("maxUnloadPercentage", "Fraction of the difference to move. 0.2 before Pulsar 5.0"),
    )
    min_unload_message: float = Field(
        1000, ge=0, le=MOST_MESSAGES, **broker_conf("minUnloadMessage", "Minimum to move, in messages/s in + out")
    )
    min_unload_message_throughput: float = Field(
        1024 * 1024,
        ge=0,
        le=MOST_BYTES,
        **broker_conf("minUnloadMessageThroughput", "Minimum to move, in bytes/s in + out"),
    )
    broker_overloaded_threshold_percentage: float = Field(
        85,
        ge=0,
        le=MOST_POINTS,
        **broker_conf(
            "loadBalancerBrokerOverloadedThresholdPercentage",
            "Score, in points, above which Pulsar (4.0.14, 4.2.5, 5.0) replaces a planned destination",
        ),
    )


# --- fill: the bundles for an amount, the largest first, each only if it still fits
# Source: AvgShedder.selectBundleForUnloading. No backtracking; amounts are subtracted one by one in double, so that an
# amount that fits exactly in Pulsar fits here too. That a part may be left over is lbd's own: Pulsar goes on while
# anything fits.


def fill(candidates: Candidates, amount: float, spare: float = 0.0) -> list[int]:
    """Positions of the candidates taken, in the order taken: by falling traffic, each while it fits into the remainder.

    Once one is taken and at most ``spare`` remains, that is enough. Zero and NaN traffic never fits. Where costs
    differ, dearer bundles only fill the remainder of cheaper ones.
    """
    positive = np.flatnonzero(candidates.traffic > 0)
    if candidates.costs is None:
        return _filled(candidates, positive, amount, spare)[0]
    taken: list[int] = []
    for cost in np.unique(candidates.costs[positive]):
        if taken and amount <= spare:
            break
        more, amount = _filled(candidates, positive[candidates.costs[positive] == cost], amount, spare)
        taken.extend(more)
    return taken


def _filled(candidates: Candidates, among: NDArray[np.intp], remaining: float, spare: float) -> tuple[list[int], float]:
    """Positions taken from ``among``, and the remaining amount."""
    order = among[np.argsort(-candidates.traffic[among], kind="stable")]
    negated = (-candidates.traffic[order]).tolist()
    if _has_ties(negated):
        order = np.array(sorted(order.tolist(), key=lambda index: _by_name(candidates, index)), dtype=order.dtype)
    taken: list[int] = []
    start = 0
    while (start := bisect_left(negated, -remaining, lo=start)) < len(negated):
        taken.append(int(order[start]))
        remaining += negated[start]
        start += 1
        if remaining <= spare:
            break
    return taken, remaining


def _has_ties(ordered: list[float]) -> bool:
    return len(set(ordered)) < len(ordered)


def _by_name(candidates: Candidates, index: int) -> tuple[float, str]:
    return -float(candidates.traffic[index]), candidates.names[candidates.bundles[index]]


# --- relays: the part that a pair's destination takes if it would have to give it away again; lbd's own, not Pulsar's
# AvgShedder looks at two brokers at a time. The most and the least loaded one are levelled to their mean. If most
# brokers are cold, that mean is far above the rest: the destination is the source of a later pair, and its new bundles
# move twice. On three brokers of 4.2.4 one hot broker was levelled by fourteen moves, four and then ten, by way of the
# middle one. Less is taken only if the destination and the next colder broker would be too far apart afterwards:
# another round is needed in any case.


def portion(cold: float, rise: float, scores: Sequence[float], apart: float) -> float:
    """Part, above 0 and at most 1, that a destination takes of traffic that would lift it by ``rise`` points.

    ``scores`` are those of all compared brokers, ascending, and ``cold`` is the destination's. Lifted ``apart`` points
    or more above the next colder one that is not filled before it, it is lifted to the average of all instead: the rest
    is for the others.
    """
    following = bisect_left(scores, cold) + 1
    if following >= len(scores) or cold + rise - scores[following] < apart:
        return 1.0
    room = fmean(scores) - cold
    return min(room / rise, 1.0) if room > 0 else 1.0


def smallest(candidates: Candidates, amount: float) -> list[int]:
    """Position of the smallest of the cheapest candidates that fit into an amount; none where nothing fits.

    Where all bundles are larger than what lifts a destination to the average, a hot broker would stay hot for good.
    """
    fits = np.flatnonzero((candidates.traffic > 0) & (candidates.traffic <= amount))
    if not fits.size:
        return []
    costs = candidates.costs if candidates.costs is not None else np.zeros(len(candidates.traffic))
    order = {
        int(index): (costs[index], candidates.traffic[index], candidates.names[candidates.bundles[index]])
        for index in fits
    }
    return [min(order, key=order.__getitem__)]


# --- pairing: pairs of brokers, and hit counts of those that were too far apart


# Source: AvgShedder.findBrokerPairs. Counters belong to brokers, not to pairs; a broker keeps its count when its
# partner changes, and while it is away.


@dataclass(frozen=True, eq=False)
class PairingInput:
    """Input of pairing: ``scores`` is float64 (B,) in points, aligned with ``ids``. ``live`` brokers show their present
    CPU.
    """

    ids: tuple[str, ...]
    scores: FloatArray
    permission: Permission
    settings: AvgShedderSettings
    taken_at: float = 0.0
    live: frozenset[str] = frozenset()


def pair_up(pairing: PairingInput, memory: Memory) -> tuple[tuple[Pair, ...], Memory]:
    """Pairs at or above the low threshold, outermost first, and the counters after this round.

    With an odd count the middle broker is paired with itself, and counts on both sides, as in Pulsar. A round without
    pairs clears all counters, but for present brokers that gave no new evidence.
    """
    lately = {} if pairing.settings.is_stock else gave_lately(memory, pairing.taken_at)
    counters = Counters(dict(memory.hits), lately)
    ranked = _ranked(pairing)
    outer = zip(ranked[: (len(ranked) + 1) // 2], reversed(ranked), strict=False)
    pairs = tuple(pair for low, high in outer if (pair := _compare(pairing, low, high, counters)) is not None)
    if not pairs:
        silent = {broker for broker, counts in zip(pairing.ids, pairing.permission.counts, strict=True) if not counts}
        counters.hits = {broker: hits for broker, hits in counters.hits.items() if broker in silent}
    return pairs, Memory(counters.hits, unloaded_at=counters.unloaded_at)


@dataclass
class Counters:
    """State while a round is paired up: hits of brokers, and when each was last to give (epoch seconds)."""

    hits: dict[str, Hits]
    unloaded_at: dict[str, float]

    def clear(self, broker: str) -> None:
        """Clear the counters of a broker that is close to its partner."""
        self.hits.pop(broker, None)
        self.unloaded_at.pop(broker, None)


def _ranked(pairing: PairingInput) -> list[int]:
    """Positions of the brokers in pairing, by ascending score, then by name (Java: hash order)."""
    taking_part = [row for row in range(len(pairing.ids)) if pairing.permission.paired[row] == 0]
    points = pairing.scores.tolist()
    return sorted(taking_part, key=lambda row: points[row])


def _compare(pairing: PairingInput, low: int, high: int, counters: Counters) -> Pair | None:
    difference = float(pairing.scores[high]) - float(pairing.scores[low])
    evidence = [row for row in (low, high) if pairing.permission.counts[row]]
    if difference < pairing.settings.low_threshold:
        for row in evidence:
            counters.clear(pairing.ids[row])
        return None
    settled = bool(pairing.permission.settled[low] and pairing.permission.settled[high])
    at_limit = not pairing.settings.is_stock and bool(pairing.scores[high] >= AT_LIMIT_POINTS)
    at_high = not difference < pairing.settings.high_threshold or at_limit  # NaN is not below
    for row in evidence if settled else ():
        counters.hits[pairing.ids[row]] = counters.hits.get(pairing.ids[row], Hits()).one_more(high=at_high)
    ends = pairing.ids[high], pairing.ids[low]
    return _judge(pairing, *ends, difference, counters, settled=settled, is_new=bool(evidence))


def _judge(
    pairing: PairingInput,
    source: str,
    destination: str,
    difference: float,
    counters: Counters,
    *,
    settled: bool,
    is_new: bool,
) -> Pair:
    """Fire when any of the four counters has reached its threshold by a new sample; firing clears all four in any case.

    Unlike in Pulsar, a pair also fires without hits if its source may continue to give, for which the live CPU of the
    source is enough, because it shows the effect of the last moves; or if its destination has joined lately, because an
    empty broker stays empty, and its live CPU is known. A difference equal to a threshold counts; one at the high
    threshold advances both counters.
    """
    both = [counters.hits.get(broker, Hits()) for broker in (source, destination)]
    hits = Hits(max(hit.low for hit in both), max(hit.high for hit in both))
    limits = pairing.settings.wanted_hits
    joined, goes_on = destination in pairing.permission.joined, source in counters.unloaded_at
    enough = joined or (is_new and hits.reach(limits)) or (goes_on and source in pairing.live)
    fired = enough and settled and pairing.permission.hold is None
    for broker in (source, destination):
        if fired:
            counters.hits.pop(broker, None)
        elif pairing.permission.hold is not None and broker in counters.hits:
            counters.hits[broker] = counters.hits[broker].below(limits)
    if fired and not pairing.settings.is_stock:
        counters.unloaded_at[source] = pairing.taken_at
    return Pair(source, destination, difference, hits, limits, fired)


# --- exchange: the amount that a pair should move, and the bundles
# Source: AvgShedder.selectBundleForUnloading. Totals are those of the latest report, a bundle's traffic is its
# short-term average: the two can disagree, in Pulsar as here.

NEGLIGIBLE_POINTS = 3.0
"""Points that a pair may leave unexchanged once a bundle moves (stock: 0).

The pair is then far below the threshold, and the small bundles that would fill the rest have clients, too. A simulated
day of waves took 48 moves instead of 103 (docs/decisions/results/0007-simulated-cluster.md)."""

NEGLIGIBLE_PART = 0.4
"""Largest part of an amount that may stay, however small the amount: else a pair would need another round."""


class Levelling:
    """Chooses bundles for the fired pairs of one round, and explains every other bundle.

    ``verdicts`` is int8 (N,): a :class:`~lbd.reason.Reason` code per bundle, filled in for the sources that fired.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        averages: Averages,
        permission: Permission,
        settings: AvgShedderSettings,
        comparison: Comparison,
    ) -> None:
        self._snapshot, self._permission = snapshot, permission
        self._offers = Offers(snapshot, averages, permission)
        self._settings, self._comparison, self._is_stock = settings, comparison, settings.is_stock
        self._position = snapshot.brokers.index()
        self._scores = comparison.scores.copy()
        self._compared: list[float] = sorted(self._scores[permission.paired == 0].tolist())
        with np.errstate(invalid="ignore", over="ignore"):  # reports may hold infinities
            self._traffic: dict[Measure, FloatArray] = {
                measure: snapshot.brokers.rates[:, columns].sum(axis=1) for measure, columns in COLUMNS.items()
            }
        self._idle = (permission.paired == 0) & permission.settled
        self._minimum: dict[Measure, float] = {
            "msg_rate": settings.min_unload_message,
            "throughput": settings.min_unload_message_throughput,
        }
        self.verdicts = permission.barred.copy()
        self.unloads: list[Unload] = []
        self.skips: list[Skip] = []
        self._partly_served = deque[Pair]()

    def serve(self, pair: Pair) -> Pair:
        """Serve one pair; returns it with the amount to be moved, where there is one."""
        skip = self._held(pair) or self._background(pair) or self._waiting(pair)
        if skip is None:
            pair, skip = self._level(pair)
        if skip is not None:
            self.skips.append(Skip(pair.ends, *skip))
        return pair

    def _held(self, pair: Pair) -> tuple[Reason, str] | None:
        """Hold on the pair: present figures must not cause a move, or be judged."""
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
        """Reason why bundles do not cause the gap: levelling the traffic would leave it above the low threshold."""
        if self._is_stock:
            return None
        hot, cold = self._ends(pair)
        remaining_gap = min(
            smallest_gap(
                (float(self._scores[hot]), float(self._traffic[measure][hot])),
                (float(self._scores[cold]), float(self._traffic[measure][cold])),
            )
            for measure in self._measures(hot)
        )
        if remaining_gap < self._settings.low_threshold:
            return None
        messages = self._traffic["msg_rate"]
        carried = f"{messages[hot]:,.0f} and {messages[cold]:,.0f} msg/s"
        return Reason.BACKGROUND_LOAD, (
            f"{remaining_gap:.1f} of {pair.difference:.1f} points would stay if their traffic ({carried}) were "
            f"levelled: load on {pair.source} that is not its bundles', or a weaker machine"
        )

    def _ends(self, pair: Pair) -> tuple[int, int]:
        """Positions of source and destination."""
        return self._position[pair.source], self._position[pair.destination or ""]

    def _measures(self, hot: int) -> tuple[Measure, ...]:
        """Order of the measures of traffic; Pulsar takes messages, and bytes only where messages are too few."""
        if not self._is_stock and (self._comparison.binding[hot] or "").startswith("bandwidth"):
            return ("throughput",)
        return ("msg_rate", "throughput")

    def _level(self, pair: Pair) -> tuple[Pair, tuple[Reason, str] | None]:
        """Move the amount, in the first measure in which it is worth it."""
        amounts: dict[Measure, float] = {}
        for measure in self._measures(self._ends(pair)[0]):
            rise = self._rise(pair, measure)
            filled = self._portion(pair, rise)
            most = self._more(pair, measure) * self._settings.max_unload_percentage
            amount = amounts[measure] = most * filled
            if amount > self._minimum[measure]:
                pair = replace(pair, measure=measure, wanted=amount)
                return pair, self._choose(pair, measure, amount, filled, rise)
        below = (_too_little(pair, measure, amount, self._minimum[measure]) for measure, amount in amounts.items())
        measure, amount = next(iter(amounts.items()))
        return replace(pair, measure=measure, wanted=amount), (Reason.BELOW_MINIMUM, "; ".join(below))

    def serve_rest(self) -> None:
        """Move the excess of one destination to the next colder idle ones: each takes from one source.

        Not in Pulsar, and not in stock.
        """
        while self._partly_served and self._idle.any():
            pair = self._partly_served.popleft()
            cold, hot = int(np.where(self._idle, self._scores, np.inf).argmin()), self._position[pair.source]
            further = replace(
                pair,
                destination=self._snapshot.brokers.ids[cold],
                difference=float(self._scores[hot] - self._scores[cold]),
            )
            if further.difference >= self._settings.low_threshold and self._background(further) is None:
                self._level(further)

    def _count(self, pair: Pair, measure: Measure, rise: float, bundles: IntArray) -> None:
        """Update scores and traffic of both ends as if these bundles had moved."""
        hot, cold = self._ends(pair)
        points = rise * self._offers.carried(bundles, measure) / self._more(pair, measure)
        self._scores[hot] -= points
        self._scores[cold] += points
        self._compared = sorted(self._scores[self._permission.paired == 0].tolist())
        for each, per_broker in self._traffic.items():
            moved = self._offers.carried(bundles, each)
            per_broker[hot] = float(per_broker[hot]) - moved
            per_broker[cold] = float(per_broker[cold]) + moved

    def _more(self, pair: Pair, measure: Measure) -> float:
        """Excess traffic of the source over the destination; Python's floats do not warn of infinities."""
        hot, cold = self._ends(pair)
        return float(self._traffic[measure][hot]) - float(self._traffic[measure][cold])

    def _portion(self, pair: Pair, rise: float) -> float:
        """Part of that which its destination takes: all, unless it would have to give it away again."""
        rise *= self._settings.max_unload_percentage
        if self._is_stock or not rise > 0:
            return 1.0
        cold = float(self._scores[self._ends(pair)[1]])
        return portion(cold, rise, self._compared, self._settings.low_threshold)

    def _rise(self, pair: Pair, measure: Measure) -> float:
        """Points by which their difference in traffic would lift the destination.

        A source at the end of its CPU shows 100 points whatever it carries: the usual points per traffic of busy
        brokers count where those are more.
        """
        hot, cold = self._ends(pair)
        with np.errstate(invalid="ignore", over="ignore"):  # reports may hold infinities
            more = self._traffic[measure] - self._traffic[measure][cold]
            if not more[hot] > 0:
                return pair.difference
            busy = (self._permission.paired == 0) & (more > 0) & (more >= more[hot] / 2)
            usual = _median((self._scores[busy] - self._scores[cold]) / more[busy])
            return max(pair.difference, usual * float(more[hot]))

    def _choose(
        self, pair: Pair, measure: Measure, amount: float, filled: float, rise: float
    ) -> tuple[Reason, str] | None:
        broker = self._position[pair.source]
        candidates, own = self._offers.candidates(broker, measure, self.verdicts), self._offers.own(broker)
        candidates = candidates.without(self.verdicts[candidates.bundles] == Reason.MOVES.code)
        if own <= 1 and not self._is_stock:
            self.verdicts[candidates.bundles] = Reason.SOLE_BUNDLE.code
            return Reason.SOLE_BUNDLE, f"{pair.source} has {own} bundle; split it, or its clients only change brokers"
        taken = fill(candidates, amount, self._negligible(pair, filled) * amount)
        if not taken and filled < 1:
            taken = smallest(candidates, amount / filled)
        fitting = np.where(candidates.traffic > 0, Reason.NOT_NEEDED.code, Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = np.where(candidates.traffic > amount, Reason.TOO_LARGE.code, fitting)
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        unit = f" {UNITS[measure]}{'; more would make its destination a source' if filled < 1 else ''}"
        if not pair.hits.reach(pair.wanted_hits):
            joined = pair.destination in self._permission.joined
            unit += "; its destination has joined lately" if joined else "; goes on with what it gave lately"
        unloads = self._unloads(candidates, taken, pair, unit)
        self.unloads.extend(unloads)
        if unloads:
            self._idle[[broker, self._position[unloads[0].destination or ""]]] = False
            if not self._is_stock:
                self._count(pair, measure, rise, candidates.bundles[taken])
            if filled < 1:
                self._partly_served.append(pair)
            return None
        why = self._offers.none_fits(broker, candidates, self.verdicts)
        return Reason.NOTHING_FITS, f"{amount:,.0f} {UNITS[measure]} to move; {why}"

    def _negligible(self, pair: Pair, filled: float) -> float:
        """Part of an amount that may stay."""
        points = pair.difference * self._settings.max_unload_percentage * filled
        if self._is_stock or not points > 0:
            return 0.0
        return min(NEGLIGIBLE_POINTS / points, NEGLIGIBLE_PART)

    def _unloads(self, candidates: Candidates, taken: Sequence[int], pair: Pair, unit: str) -> list[Unload]:
        choices = self._choices(pair)
        ends = pair.source, choices[0] if choices else pair.destination
        return [
            self._offers.unload(
                int(candidates.bundles[index]),
                ends,
                f"{pair.difference:.1f} points apart, {candidates.traffic[index]:,.0f}{unit}",
                choices,
            )
            for index in taken
        ]

    def _choices(self, pair: Pair) -> tuple[str, ...]:
        """Healthy brokers instead of a planned destination that is overloaded; Pulsar 5.0 draws one of them.

        Only brokers that take part in this round count as healthy.
        """
        limit = self._settings.broker_overloaded_threshold_percentage
        if not self._scores[self._ends(pair)[1]] > limit:
            return ()
        takes_part = (self._permission.paired == 0) & self._permission.settled
        healthy = zip(self._snapshot.brokers.ids, self._scores.tolist(), takes_part.tolist(), strict=True)
        ends = (pair.source, pair.destination)
        return tuple(broker for broker, score, part in healthy if part and score <= limit and broker not in ends)


def _median(values: FloatArray) -> float:
    """Median of at least one value; numpy's own takes ten times as long for short arrays."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _hits(pair: Pair) -> str:
    hits, limits = pair.hits, pair.wanted_hits
    return f"low samples {hits.low}/{limits.low}, high samples {hits.high}/{limits.high}"


def _too_little(pair: Pair, measure: Measure, amount: float, minimum: float) -> str:
    if amount > 0:
        return f"{amount:,.0f} {UNITS[measure]} to move, minimum {minimum:,.0f}"
    return f"{pair.source} carries no more {UNITS[measure]} than {pair.destination}: its load is not its traffic"


# --- decision


def decide(
    snapshot: Snapshot,
    averages: Averages,
    permission: Permission,
    memory: Memory,
    settings: AvgShedderSettings,
    weights: Weights,
) -> Decision:
    """One round of AvgShedder.

    With fewer than two comparable brokers the rule is not applied, as in Pulsar. Counters advance only for brokers with
    new evidence (:attr:`~lbd.model.Permission.counts`); in stock rounds that is every broker.
    """
    scores = scoring.scores(snapshot.brokers, weights)
    binding = scoring.binding(snapshot.brokers, weights)
    comparable = int((permission.paired == 0).sum())
    if comparable < 2:
        few = Skip(
            "cluster", Reason.TOO_FEW_BROKERS, f"{comparable} of {len(snapshot.brokers)} reports can be compared"
        )
        return Decision((), (few,), memory, Comparison(scores, binding), permission.barred.copy())
    brokers = snapshot.brokers
    live = brokers.ids_where(brokers.shows_live)
    pairing = PairingInput(brokers.ids, scores, permission, settings, snapshot.taken_at, live)
    pairs, remembered = pair_up(pairing, memory)
    comparison = Comparison(scores, binding, pairs)
    levelling = Levelling(snapshot, averages, permission, settings, comparison)
    comparison = replace(comparison, pairs=tuple(levelling.serve(pair) for pair in pairs))
    levelling.serve_rest()
    skips = tuple(levelling.skips) if pairs else (Skip("cluster", Reason.BALANCED, _balanced(pairing)),)
    return Decision(tuple(levelling.unloads), skips, remembered, comparison, levelling.verdicts)


def _balanced(pairing: PairingInput) -> str:
    points = pairing.scores[pairing.permission.paired == 0]
    gap = float(points.max() - points.min())
    return f"largest difference {gap:.1f} points, low threshold {pairing.settings.low_threshold:g}"
