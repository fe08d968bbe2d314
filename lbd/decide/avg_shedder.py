"""AvgShedder: pair the most with the least loaded broker, and level each pair by half of its difference in traffic.

Source: PIP-364, and Pulsar's AvgShedder.java (4.0.8 to 5.0.1). Pure: values in, a :class:`~lbd.model.Decision` out.

This is the rule alone, to the last bit, as ``profile: stock`` has it. ``profile: live`` adds the help of
``decide/live.py``, which every strategy has, and of ``decide/whole_plan.py``, which is for pairs.

A planned destination that is overloaded is replaced, as in Pulsar from 4.0.14, 4.2.5 and 5.0 on (#26246). Earlier
versions keep it; the guardrails refuse it then. Where Java's result depends on the order of a hash map (brokers of
equal score, bundles of equal traffic), lbd orders by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from lbd.decide.candidates import COLUMNS, UNITS, Measure
from lbd.decide.shedder import MOST_BYTES, MOST_HITS, MOST_MESSAGES, MOST_POINTS, HitSettings, progress, too_few
from lbd.load import scoring
from lbd.load.scoring import broker_conf
from lbd.model import Comparison, Decision, Hits, Memory, Pair, Skip
from lbd.reason import Reason
from lbd.score.gap import gap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.decide.candidates import Candidates, Offers
    from lbd.load.scoring import Weights
    from lbd.model import FloatArray, IntArray, Permission, Unload


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


# --- pairs of brokers, and hit counts of those that were too far apart
# Source: AvgShedder.findBrokerPairs. Counters belong to brokers, not to pairs; a broker keeps its count when its
# partner changes, and while it is away.


class BrokerPairs:
    """The pairs of one round; ``scores`` is float64 (B,) in points, ``hits`` are the counters, advanced by it."""

    def __init__(
        self,
        ids: tuple[str, ...],
        scores: FloatArray,
        permission: Permission,
        settings: AvgShedderSettings,
        hits: dict[str, Hits],
    ) -> None:
        self._ids, self._scores, self._permission, self._settings = ids, scores, permission, settings
        self.hits = hits

    def find(self) -> tuple[Pair, ...]:
        """Pairs at or above the low threshold, outermost first.

        With an odd count the middle broker is paired with itself, and counts on both sides, as in Pulsar. A round
        without pairs clears all counters, but for present brokers that gave no new evidence.
        """
        points = self._scores.tolist()
        ranked = sorted(np.flatnonzero(self._permission.paired == 0).tolist(), key=lambda row: points[row])
        outermost = zip(ranked[: (len(ranked) + 1) // 2], reversed(ranked), strict=False)
        pairs = tuple(pair for low, high in outermost if (pair := self._compare(low, high)) is not None)
        if not pairs:
            silent = {broker for broker, counts in zip(self._ids, self._permission.counts, strict=True) if not counts}
            self.hits = {broker: hits for broker, hits in self.hits.items() if broker in silent}
        return pairs

    def _compare(self, low: int, high: int) -> Pair | None:
        """The pair, with one more hit for each end that gives new evidence; None if it is close, which clears them.

        A difference equal to a threshold counts; one at the high threshold advances both counters.
        """
        permission, settings = self._permission, self._settings
        difference = float(self._scores[high]) - float(self._scores[low])
        evidence = [self._ids[row] for row in (low, high) if permission.counts[row]]
        if difference < settings.low_threshold:
            for broker in evidence:
                self.hits.pop(broker, None)
            return None
        settled = bool(permission.settled[low] and permission.settled[high])
        at_limit = permission.at_limit is not None and bool(permission.at_limit[high])
        at_high = not difference < settings.high_threshold or at_limit  # NaN is not below
        for broker in evidence if settled else ():
            self.hits[broker] = self.hits.get(broker, Hits()).one_more(high=at_high)
        return self._judge(self._ids[high], self._ids[low], difference, settled=settled, is_new=bool(evidence))

    def _judge(self, source: str, destination: str, difference: float, *, settled: bool, is_new: bool) -> Pair:
        """Fire when any of the four counters has reached its threshold by a new sample, or where none is needed.

        Firing clears all four in any case; a hold keeps them one below.
        """
        permission, limits = self._permission, self._settings.wanted_hits
        both = [self.hits.get(broker, Hits()) for broker in (source, destination)]
        hits = Hits(max(hit.low for hit in both), max(hit.high for hit in both))
        enough = (is_new and hits.reach(limits)) or destination in permission.joined or source in permission.goes_on
        fired = enough and settled and permission.hold is None
        for broker in (source, destination):
            if fired:
                self.hits.pop(broker, None)
            elif permission.hold is not None and broker in self.hits:
                self.hits[broker] = self.hits[broker].below(limits)
        return Pair(source, destination, difference, hits, limits, fired)


# --- levelling: the amount that a pair exchanges, and the bundles
# Source: AvgShedder.selectBundleForUnloading. Totals are those of the latest report, a bundle's traffic is its
# short-term average: the two can disagree, in Pulsar as here.


def fill(candidates: Candidates, amount: float, spare: float = 0.0) -> list[int]:
    """Positions of the candidates taken, in the order taken: by falling traffic, each while it fits into the remainder.

    No backtracking; amounts are subtracted one by one in double, so that an amount that fits exactly in Pulsar fits
    here too. Zero and NaN traffic never fits. Where costs differ, dearer bundles only fill the remainder of cheaper
    ones. Once one is taken and at most ``spare`` remains, that is enough; Pulsar goes on while anything fits.
    """
    taken = list[int]()
    order = candidates.by_falling_traffic()
    for index, traffic in zip(order, candidates.traffic[order].tolist(), strict=True):
        if 0 < traffic <= amount:
            taken.append(index)
            amount -= traffic
            if amount <= spare:
                break
    return taken


class Levelling:
    """Chooses bundles for the pairs of one round that fired, and explains every other bundle.

    ``verdicts`` is int8 (N,): a :class:`~lbd.reason.Reason` code per bundle, filled in for the sources that fired.
    ``scores``, float64 (B,) in points, and ``traffic``, by measure float64 (B,) in + out, are those of the reports.
    """

    def __init__(self, offers: Offers, settings: AvgShedderSettings, comparison: Comparison) -> None:
        snapshot, permission = offers.snapshot, offers.permission
        self.ids, self.permission, self.settings, self.offers = snapshot.brokers.ids, permission, settings, offers
        self.scores, self.binding = comparison.scores.copy(), comparison.binding
        with np.errstate(invalid="ignore", over="ignore"):  # reports may hold infinities
            self.traffic: dict[Measure, FloatArray] = {
                measure: snapshot.brokers.rates[:, columns].sum(axis=1) for measure, columns in COLUMNS.items()
            }
        self._position = snapshot.brokers.index()
        self._minimum: dict[Measure, float] = {
            "msg_rate": settings.min_unload_message,
            "throughput": settings.min_unload_message_throughput,
        }
        self.verdicts = permission.barred.copy()
        self.unloads: list[Unload] = []
        self.skips: list[Skip] = []

    def serve(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Serve the pairs; returns each with the amount to be moved, where there is one."""
        return tuple(self._serve(pair) for pair in pairs)

    def ends(self, pair: Pair) -> tuple[int, int]:
        """Positions of source and destination."""
        return self._position[pair.source], self._position[pair.destination or ""]

    def measures(self, source: int) -> tuple[Measure, ...]:
        """Order of the measures of traffic: messages, and bytes where messages are too few."""
        del source
        return ("msg_rate", "throughput")

    def refusal(self, pair: Pair) -> tuple[Reason, str] | None:
        """Reason to leave a pair alone whatever its hits; Pulsar has none."""
        del pair
        return None

    def sole(self, pair: Pair) -> tuple[Reason, str] | None:
        """Reason to keep the only bundle of the source; Pulsar moves it if it fits."""
        del pair
        return None

    def amount(self, pair: Pair, measure: Measure) -> float:
        """Amount to be moved; Python's floats do not warn of infinities."""
        hot, cold = self.ends(pair)
        more = float(self.traffic[measure][hot]) - float(self.traffic[measure][cold])
        return more * self.settings.max_unload_percentage

    def choose(self, pair: Pair, candidates: Candidates) -> tuple[list[int], str]:
        """Positions of the candidates to be moved, and words for their reason."""
        return fill(candidates, pair.wanted), ""

    def moved(self, pair: Pair, bundles: IntArray) -> None:
        """Take note of bundles, int32 (K,), that go; Pulsar judges each pair by the reports alone."""

    def level(self, pair: Pair) -> tuple[Pair, tuple[Reason, str] | None]:
        """Move the amount, in the first measure in which it is worth it."""
        amounts = dict[Measure, float]()
        for measure in self.measures(self.ends(pair)[0]):
            amount = amounts[measure] = self.amount(pair, measure)
            if amount > self._minimum[measure]:
                pair = replace(pair, measure=measure, wanted=amount)
                return pair, self.sole(pair) or self._unload(pair, measure)
        below = (_too_little(pair, measure, amount, self._minimum[measure]) for measure, amount in amounts.items())
        measure, amount = next(iter(amounts.items()))
        return replace(pair, measure=measure, wanted=amount), (Reason.BELOW_MINIMUM, "; ".join(below))

    def _serve(self, pair: Pair) -> Pair:
        skip = self.refusal(pair) if pair.fired else self._held(pair) or self.refusal(pair) or self._waiting(pair)
        if skip is None:
            pair, skip = self.level(pair)
        if skip is not None:
            self.skips.append(Skip(pair.ends, *skip))
        return pair

    def _held(self, pair: Pair) -> tuple[Reason, str] | None:
        """Hold on a pair that did not fire: present figures must not cause a move, or be judged."""
        (source, destination), counted = self.ends(pair), progress(pair.hits, pair.wanted_hits)
        if not (self.permission.settled[source] and self.permission.settled[destination]):
            return Reason.SETTLING, f"one of them was moved to, moved from or restarted lately; {counted}"
        return None if self.permission.hold is None else (self.permission.hold, counted)

    def _waiting(self, pair: Pair) -> tuple[Reason, str]:
        (source, destination), counted = self.ends(pair), progress(pair.hits, pair.wanted_hits)
        if not (self.permission.counts[source] or self.permission.counts[destination]):
            return Reason.NO_NEW_SAMPLE, f"neither has a new sample since the last turn; {counted}"
        return Reason.WAITING, counted

    def _unload(self, pair: Pair, measure: Measure) -> tuple[Reason, str] | None:
        broker = self._position[pair.source]
        candidates = self.offers.candidates(broker, measure, self.verdicts)
        candidates = candidates.without(self.verdicts[candidates.bundles] == Reason.MOVES.code)
        taken, words = self.choose(pair, candidates)
        sizes = [candidates.traffic > pair.wanted, candidates.traffic > 0]
        passed_over = np.select(sizes, [Reason.TOO_LARGE.code, Reason.NOT_NEEDED.code], Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = passed_over
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        if not taken:
            why = self.offers.none_fits(broker, candidates, self.verdicts)
            return Reason.NOTHING_FITS, f"{pair.wanted:,.0f} {UNITS[measure]} to move; {why}"
        choices = self._choices(pair)
        if choices:
            pair = replace(pair, destination=choices[0])
        bundles, ends, apart = candidates.bundles[taken], (pair.source, pair.destination), pair.apart
        for bundle, traffic in zip(bundles.tolist(), candidates.traffic[taken].tolist(), strict=True):
            reason = f"{apart}, {traffic:,.0f} {UNITS[measure]}{words}"
            self.unloads.append(self.offers.unload(bundle, ends, reason, choices))
        self.moved(pair, bundles)
        return None

    def _choices(self, pair: Pair) -> tuple[str, ...]:
        """Healthy brokers instead of a planned destination that is overloaded; Pulsar 5.0 draws one of them.

        Only brokers that take part in this round count as healthy.
        """
        limit = self.settings.broker_overloaded_threshold_percentage
        if not self.scores[self.ends(pair)[1]] > limit:
            return ()
        healthy = (self.permission.paired == 0) & self.permission.settled & (self.scores <= limit)
        healthy[list(self.ends(pair))] = False
        return tuple(self.ids[row] for row in np.flatnonzero(healthy).tolist())


def _too_little(pair: Pair, measure: Measure, amount: float, minimum: float) -> str:
    if amount > 0:
        return f"{amount:,.0f} {UNITS[measure]} to move, minimum {minimum:,.0f}"
    return f"{pair.source} carries no more {UNITS[measure]} than {pair.destination}: its load is not its traffic"


# --- decision


def decide(
    offers: Offers,
    memory: Memory,
    settings: AvgShedderSettings,
    weights: Weights,
    levelling: type[Levelling] = Levelling,
) -> Decision:
    """One round of AvgShedder.

    With fewer than two comparable brokers the rule is not applied, as in Pulsar. Counters advance only for brokers with
    new evidence (:attr:`~lbd.model.Permission.counts`); in stock rounds that is every broker.
    """
    snapshot, permission = offers.snapshot, offers.permission
    scores = scoring.scores(snapshot.brokers, weights)
    comparison = Comparison(scores, scoring.binding(snapshot.brokers, weights))
    compared = scores[permission.paired == 0]
    if (few := too_few(permission.paired)) is not None:
        return Decision((), (few,), memory, comparison, permission.barred.copy())
    brokers = BrokerPairs(snapshot.brokers.ids, scores, permission, settings, dict(memory.hits))
    pairs = brokers.find()
    plan = levelling(offers, settings, comparison)
    comparison = replace(comparison, pairs=plan.serve(pairs))
    if not pairs:
        apart = f"largest difference {gap(compared):.1f} points, low threshold {settings.low_threshold:g}"
        plan.skips.append(Skip("cluster", Reason.BALANCED, apart))
    return Decision(tuple(plan.unloads), tuple(plan.skips), Memory(brokers.hits), comparison, plan.verdicts)
