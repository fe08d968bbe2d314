"""TransferShedder: bring the brokers' loads within a standard deviation, from the most to the least loaded broker.

Source: Pulsar's TransferShedder.java of the extensible load manager (4.0.8 to 5.0.1), over load reports of the modular
one, with the extensible manager's settings. Loads are running averages and count heap memory if it has a weight. It
fires when loads were uneven for some rounds in a row; after a broker gave, none gives for a while. For a bundle that is
too large to move alone Pulsar also moves smaller bundles of the destination the other way, from the less to the more
loaded broker. The guardrails never permit that, so only ``profile: stock`` plans it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.shedder import MOST_HITS, MOST_POINTS, StrategySettings, parameter, too_few
from lbd.load import scoring
from lbd.load.scoring import with_memory
from lbd.model import (
    BYTES_IN,
    BYTES_OUT,
    CLUSTER,
    MSG_IN,
    MSG_OUT,
    Comparison,
    Decision,
    Hits,
    Memory,
    Pair,
    Skip,
    UsualLoad,
)
from lbd.reason import Group, Reason
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lbd.decide.candidates import Offers
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, FloatArray, IntArray, Permission, Snapshot, Unload


class TransferShedderSettings(StrategySettings):
    """Numbers of ``strategy: transfer-shedder``."""

    name = "transfer-shedder"
    assumed = "running averages taken as having caught up, and enough samples as counted"
    is_section = False
    placed_by = "least-resource-usage-with-weight-extensible"

    broker_load_target_std: float = parameter(0.25, "loadBalancerBrokerLoadTargetStd", 10)
    """Target for the standard deviation of the brokers' loads, as a fraction."""
    shedding_condition_hit_count_threshold: int = parameter(
        3, "loadBalancerSheddingConditionHitCountThreshold", MOST_HITS
    )
    """Samples in a row above the target. One more sample fires."""
    broker_overloaded_threshold_percentage: float = parameter(
        85, "loadBalancerBrokerOverloadedThresholdPercentage", MOST_POINTS
    )
    """Score, in points, above which a broker is full."""
    max_number_of_broker_shedding_per_cycle: int = parameter(3, "loadBalancerMaxNumberOfBrokerSheddingPerCycle", 10_000)
    """Brokers that give bundles in one round."""
    max_number_of_bundles_in_bundle_load_report: int = parameter(
        10, "loadBalancerMaxNumberOfBundlesInBundleLoadReport", 1_000_000, least=1
    )
    """Number of a broker's largest bundles that are considered."""
    transfer_enabled: bool = parameter(True, "loadBalancerTransferEnabled")
    """Whether the strategy names the destination. If false, the placement names it."""
    shedding_delay_in_seconds: float = parameter(180, "loadBalanceSheddingDelayInSeconds", 86_400)
    """Seconds after a broker gave bundles in which no broker gives any."""
    history_resource_percentage: float = parameter(0.9, "loadBalancerHistoryResourcePercentage", 1)
    """Weight of the previous average in the new one, as a fraction."""

    def eager(self) -> TransferShedderSettings:
        """Settings as if the present had lasted."""
        return self.model_copy(update={"history_resource_percentage": 0.0, "shedding_condition_hit_count_threshold": 0})

    @property
    def wanted_hits(self) -> Hits:
        """The hit with which a round fires."""
        return Hits(self.shedding_condition_hit_count_threshold + 1, 0)


# --- loads: their spread, and the next source and destination
# Source: BrokerLoadData of the extensible manager and TransferShedder's LoadStats.


def smoothed(
    snapshot: Snapshot, permission: Permission, before: Mapping[str, UsualLoad], history: float, weights: Weights
) -> dict[str, UsualLoad]:
    """Running averages after this round; the first sample counts as it is.

    Brokers without new evidence keep their average, brokers without a report lose it. A broker that is left out of the
    round gets none.
    """
    usage, rates = with_memory(snapshot.brokers, weights).tolist(), snapshot.brokers.rates.tolist()
    averages: dict[str, UsualLoad] = {}
    for row, broker in enumerate(snapshot.brokers.ids):
        now, old = UsualLoad(usage[row], rates[row][BYTES_IN] + rates[row][BYTES_OUT]), before.get(broker)
        if old is None and permission.paired[row] == 0:
            averages[broker] = now
        elif old is not None:
            takes = permission.paired[row] == 0 and bool(permission.counts[row])
            averages[broker] = _mixed(old, now, history) if takes else old
    return averages


def _mixed(old: UsualLoad, now: UsualLoad, history: float) -> UsualLoad:
    return UsualLoad(
        old.usage * history + (1 - history) * now.usage,
        old.throughput * history + (1 - history) * now.throughput,
    )


@dataclass
class Stats:
    """Loads of the brokers that take part, and these ``ranked`` by them.

    ``low`` and ``high`` are the positions of the next destination and source, ``given`` the number of sources so far.
    """

    loads: Mapping[str, UsualLoad]
    settings: TransferShedderSettings

    def __post_init__(self) -> None:
        self.ranked = sorted(self.loads, key=lambda broker: (self.loads[broker].usage, broker))
        self.low, self.high, self.shed_brokers = 0, len(self.ranked) - 1, 0
        self._squares = self._sum(2)
        self.average = self._sum(1) / max(len(self.ranked), 1)
        self.deviation = self._deviation()

    def _sum(self, power: int) -> float:
        """Sum one by one, in the order of Java's sums."""
        total = 0.0
        for load in self.loads.values():
            total += load.usage if power == 1 else load.usage * load.usage
        return total

    def _deviation(self) -> float:
        return math.sqrt(abs(self._squares / max(len(self.ranked), 1) - self.average * self.average))

    @property
    def source(self) -> str:
        """The next source."""
        return self.ranked[self.high]

    @property
    def destination(self) -> str:
        """The next destination."""
        return self.ranked[self.low]

    @property
    def has_pair(self) -> bool:
        """Whether two more brokers remain between which bundles may move."""
        return self.shed_brokers < self.settings.max_number_of_broker_shedding_per_cycle and self.low < self.high

    def why(self) -> str:
        """Reason why the loads are uneven; empty where they are even enough."""
        target = self.settings.broker_load_target_std
        if self.deviation > target:
            return f"standard deviation {100 * self.deviation:.1f} points, target {100 * target:g}"
        if self._underloaded(target):
            return f"{self.destination} is underloaded"
        if self._overloaded(target):
            return f"{self.source} is overloaded"
        return ""

    def _underloaded(self, target: float) -> bool:
        part = min(0.5, max(0.0, target / 2.0))
        least, most = self.loads[self.destination], self.loads[self.source]
        return least.usage < self.average * part or least.throughput < most.throughput * part

    def _overloaded(self, target: float) -> bool:
        used = self.loads[self.source].usage
        return used > self.settings.broker_overloaded_threshold_percentage / 100.0 and used > self.average + target

    def moved(self, source: float, destination: float, moved: float) -> None:
        """Count a move of load between two brokers of these loads; the next destination follows."""
        self._squares -= source * source + destination * destination
        less, more = max(0.0, source - moved), destination + moved
        self._squares += less * less + more * more
        self.deviation = self._deviation()
        self.shed_brokers += 1
        self.low += 1


# --- reported bundles: the largest ones of a broker of the extensible manager, from its load report
# Source: TopKBundles and NamespaceBundleStats.compareTo: sizes are compared coarsely, bytes received before bytes
# sent. Cache sizes, the last criterion, are not in lbd's columns.

BYTES_RESOLUTION, MESSAGES_RESOLUTION, CONNECTIONS_RESOLUTION = 1e5, 100.0, 500
SYSTEM = "pulsar/system"

_LIMITS = [reason.code for reason in Reason if reason.group is Group.LIMIT]


def top_bundles(snapshot: Snapshot, permission: Permission, broker: int, most: int) -> IntArray:
    """Rows of a broker's largest bundles, int (K,), the smallest first.

    Resting bundles are included and skipped later. Bundles without traffic, of Pulsar's own namespaces, or that
    policies do not let move are excluded.
    """
    own = snapshot.rows.of(broker)
    rows = np.arange(own.start, own.stop)
    rates, codes = snapshot.rows.rates[rows], permission.barred[snapshot.rows.bundle[rows]]
    reported = snapshot.rows.reported[rows] & ((codes == 0) | np.isin(codes, _LIMITS))
    idle = rates[:, BYTES_IN] + rates[:, BYTES_OUT] == 0
    rows = rows[reported & ~idle & ~_of_system(snapshot)[snapshot.rows.bundle[rows]]]
    largest: IntArray = rows[_by_size(snapshot, rows)[-most:]].astype(np.int32)
    return largest


def _of_system(snapshot: Snapshot) -> BoolArray:
    """Whether each bundle is of Pulsar's own namespace, bool (N,)."""
    names = snapshot.namespaces
    system = names.names.index(SYSTEM) if SYSTEM in names.names else -1
    of_system: BoolArray = names.of == system
    return of_system


def _by_size(snapshot: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.intp]:
    """Positions, the smallest first; equally large bundles by name (Java: hash order)."""
    rates, counts = snapshot.rows.rates[rows], snapshot.rows.counts[rows]
    names = np.array([snapshot.bundles[row] for row in snapshot.rows.bundle[rows].tolist()], dtype=np.str_)
    return np.lexsort(
        (
            names,
            counts.sum(axis=1) // CONNECTIONS_RESOLUTION,
            _rounded((rates[:, MSG_IN] + rates[:, MSG_OUT]) / MESSAGES_RESOLUTION),
            _rounded(rates[:, BYTES_OUT] / BYTES_RESOLUTION),
            _rounded(rates[:, BYTES_IN] / BYTES_RESOLUTION),
        )
    )


def _rounded(values: FloatArray) -> FloatArray:
    """Java's ``Math.round``: halves upwards, 0 for NaN."""
    rounded: FloatArray = np.nan_to_num(np.floor(values + 0.5), nan=0.0)
    return rounded


# --- transfer: bundles from the most to the least loaded broker, and those swapped back for one that is too large
# Source: TransferShedder.findBundlesForUnloading, without its debug mode, in which a swap's way back counts in the
# total.

ROOM_FOR_SWAP = 0.75
"""Part of its former load below which the giving broker must be after a swap."""


@dataclass(frozen=True)
class Offered:
    """A large bundle of a broker: its position in the snapshot, last bytes/s in + out, and whether it rests."""

    bundle: int
    throughput: float
    rests: bool = False


@dataclass
class Exchange:
    """Exchange between two brokers. All numbers are bytes/s, in + out.

    ``had`` and ``has`` are the traffic of the most and the least loaded broker; ``amount`` is to be moved at most,
    ``moved`` is the sum of ``outgoing``. ``swap``: bundles of the least loaded one may come back (``returned``) for one
    that is too large to go alone. ``too_large`` is the bundle at which it ended.
    """

    had: float
    has: float
    amount: float
    swap: bool
    outgoing: list[Offered] = field(default_factory=list)
    returned: list[Offered] = field(default_factory=list)
    moved: float = 0.0
    too_large: Offered | None = None

    def make(self, offers: list[Offered], back: list[Offered]) -> None:
        """Choose among the largest bundles of both brokers, the smallest first; one always stays."""
        remaining, others = len(offers), iter(back)
        for offer in offers:
            if remaining <= 1:
                break
            if offer.rests:
                continue
            if self.moved + offer.throughput > self.amount:
                swapped = self._swapped(offer, others) if self.swap else None
                if swapped is None:
                    self.too_large = offer
                    break
                self.returned += swapped
            self.outgoing.append(offer)
            self.moved += offer.throughput
            remaining -= 1

    def _swapped(self, offer: Offered, others: Iterator[Offered]) -> list[Offered] | None:
        """Bundles that come back for one that is too large, until the other broker has no more than this one.

        A bundle that would lift either above the former load of the giving broker is skipped, and the walk goes on; it
        does not begin anew for the next bundle.
        """
        here = self.had - self.moved - offer.throughput
        there = self.has + self.moved + offer.throughput
        back: list[Offered] = []
        for other in others:
            if here + other.throughput < self.had and there - other.throughput < self.had:
                back.append(other)
                here, there = here + other.throughput, there - other.throughput
                if there <= here < self.had * ROOM_FOR_SWAP:
                    return back
        return None


# --- decision


def decide(offers: Offers, memory: Memory, settings: TransferShedderSettings, weights: Weights) -> Decision:
    """One round of TransferShedder.

    A hit counts, and bundles move, only when the most loaded broker has new evidence
    (:attr:`~lbd.model.Permission.counts`): in a live turn once a minute, as often as a leader counts rounds.
    """
    snapshot, permission = offers.snapshot, offers.permission
    loads = smoothed(snapshot, permission, memory.loads, settings.history_resource_percentage, weights)
    part = {broker: loads[broker] for row, broker in enumerate(snapshot.brokers.ids) if permission.paired[row] == 0}
    turn = _TransferRound(offers, settings, Stats(part, settings))
    hits = turn.ask(memory)
    remembered = Memory({CLUSTER: Hits(hits)} if hits else {}, loads, turn.unloaded_at(memory))
    comparison = Comparison(
        scoring.scores(snapshot.brokers, weights), scoring.binding(snapshot.brokers, weights), tuple(turn.pairs)
    )
    return Decision(tuple(turn.unloads), tuple(turn.skips), remembered, comparison, turn.verdicts)


class _TransferRound:
    """State and result of one round."""

    def __init__(self, offers: Offers, settings: TransferShedderSettings, stats: Stats) -> None:
        self._offers, self._settings, self._stats = offers, settings, stats
        self._snapshot, self._permission = offers.snapshot, offers.permission
        self._position = self._snapshot.brokers.index()
        self.verdicts = self._permission.barred.copy()
        self.unloads: list[Unload] = []
        self.skips: list[Skip] = []
        self.pairs: list[Pair] = []

    def ask(self, memory: Memory) -> int:
        """Apply the rule; returns the hits after this round."""
        stats, hits = self._stats, memory.hits.get(CLUSTER, Hits()).low
        if (skip := too_few(self._permission.paired)) is not None:
            self.skips.append(skip)
            return hits
        why, delay = stats.why(), self._delay(memory)
        if not why:
            target = f"target {100 * self._settings.broker_load_target_std:g}"
            message = f"standard deviation {100 * stats.deviation:.1f} points, {target}"
            self.skips.append(Skip("cluster", Reason.BALANCED, message))
            return hits if delay else 0
        if delay:
            self._tell(self._pair(why, hits), Reason.SETTLING, delay)
            return hits
        return self._count(why, hits)

    def unloaded_at(self, memory: Memory) -> dict[str, float]:
        """Times at which brokers last gave, where that still delays the next round."""
        recent = {broker: time for broker, time in memory.unloaded_at.items() if self._too_early(time)}
        return {**recent, **{unload.source: self._snapshot.taken_at for unload in self.unloads}}

    def _too_early(self, at: float) -> bool:
        return self._snapshot.taken_at - at < self._settings.shedding_delay_in_seconds

    def _delay(self, memory: Memory) -> str:
        """Reason for a delay of the whole round; empty without one."""
        early = [broker for broker in self._stats.ranked if self._too_early(memory.unloaded_at.get(broker, -math.inf))]
        if not early:
            return ""
        ago = self._snapshot.taken_at - memory.unloaded_at[early[0]]
        return f"{early[0]} gave bundles {duration_text(ago)} ago, shedding_delay_in_seconds is {self._delay_seconds}"

    @property
    def _delay_seconds(self) -> str:
        return f"{self._settings.shedding_delay_in_seconds:g}"

    def _count(self, why: str, hits: int) -> int:
        """Count a hit, where there is new evidence; enough of them fire, and are reset if anything moves."""
        settled = self._settled(self._stats.source, self._stats.destination)
        fresh = bool(self._permission.counts[self._position[self._stats.source]])
        hits, limit = hits + (settled and fresh), self._settings.wanted_hits.low
        if self._permission.hold is not None:
            hits = min(hits, limit - 1)
        pair = self._pair(why, hits)
        if not settled:
            self._tell(pair, Reason.SETTLING, "one of them was moved to, moved from or restarted lately")
        elif self._permission.hold is not None:
            self._tell(pair, self._permission.hold, f"samples {hits}/{limit}")
        elif not fresh:
            self._tell(pair, Reason.NO_NEW_SAMPLE, f"{pair.source} has no new sample; samples {hits}/{limit}")
        elif hits < limit:
            self._tell(pair, Reason.WAITING, f"samples {hits}/{limit}")
        else:
            self._level(hits)
        return 0 if self.unloads else hits

    def _settled(self, *brokers: str) -> bool:
        return all(self._permission.settled[self._position[broker]] for broker in brokers)

    def _pair(self, why: str, hits: int, *, fired: bool = False) -> Pair:
        """The most and the least loaded of the remaining brokers."""
        source, destination = self._stats.source, self._stats.destination
        apart = 100 * (self._stats.loads[source].usage - self._stats.loads[destination].usage)
        named = destination if self._settings.transfer_enabled else None
        distance = f"{apart:.1f} points apart, {why}"
        return Pair(source, named, apart, Hits(hits), self._settings.wanted_hits, fired=fired, why=distance)

    def _tell(self, pair: Pair, reason: Reason, detail: str) -> None:
        self.pairs.append(pair)
        self.skips.append(Skip(pair.ends, reason, detail))

    def _level(self, hits: int) -> None:
        """Exchange pair after pair, until the loads are even enough, or enough brokers have given."""
        stats = self._stats
        while stats.has_pair and (why := stats.why()):
            pair, destination = self._pair(why, hits, fired=True), stats.destination
            stats.high -= 1
            if self._settled(pair.source, destination):
                self._exchange(pair, destination)
            else:
                self._tell(pair, Reason.SETTLING, "one of them was moved to, moved from or restarted lately")

    def _exchange(self, pair: Pair, destination: str) -> None:
        """Move bundles between two brokers, or note why none moves."""
        stats, source = self._stats, pair.source
        high, low = stats.loads[source].usage, stats.loads[destination].usage
        had, has = (self._offers.traffic(self._position[end], "throughput") for end in (source, destination))
        amount = had * ((high - low) / 2) / high if high > 0 else 0.0
        pair = replace(pair, measure="throughput", wanted=amount)
        offers = self._top(source)
        if not amount > 0:
            self._tell(pair, Reason.NO_TRAFFIC, f"{source} has no load that bundles could take along")
            return
        if len(offers) < 2:
            self._tell(pair, *self._too_few(offers))
            return
        swap = self._settings.is_stock and self._settings.transfer_enabled
        made = Exchange(had, has, amount, swap)
        made.make(offers, self._top(destination) if swap else [])
        self._note(pair, destination, offers, made)
        if made.moved > 0:
            stats.moved(high, low, made.moved * high / had)

    def _top(self, broker: str) -> list[Offered]:
        most = self._settings.max_number_of_bundles_in_bundle_load_report
        rows = top_bundles(self._snapshot, self._permission, self._position[broker], most)
        columns = self._snapshot.rows
        rates = (columns.rates[rows, BYTES_IN] + columns.rates[rows, BYTES_OUT]).tolist()
        bundles = columns.bundle[rows].tolist()
        return [Offered(bundle, rate, bool(self.verdicts[bundle])) for bundle, rate in zip(bundles, rates, strict=True)]

    def _too_few(self, offers: list[Offered]) -> tuple[Reason, str]:
        if not offers:
            return Reason.NOTHING_FITS, "none of its bundles carries traffic and may move"
        self.verdicts[offers[0].bundle] = Reason.SOLE_BUNDLE.code
        return Reason.SOLE_BUNDLE, "one bundle carries all its traffic; split it"

    def _note(self, pair: Pair, destination: str, offers: list[Offered], made: Exchange) -> None:
        for offer in offers:
            if not offer.rests:
                self.verdicts[offer.bundle] = Reason.NOT_NEEDED.code
        if made.too_large is not None:
            self.verdicts[made.too_large.bundle] = Reason.TOO_LARGE.code
        named = destination if self._settings.transfer_enabled else None
        self._take(made.outgoing, (pair.source, named), pair)
        self._take(made.returned, (destination, pair.source), pair)
        if made.outgoing:
            self.pairs.append(pair)
        else:
            size = f"the smallest of {len(offers)} carries {offers[0].throughput:.0f}"
            self._tell(pair, Reason.NOTHING_FITS, f"{pair.wanted:.0f} bytes/s to move; {size}")

    def _take(self, taken: list[Offered], ends: tuple[str, str | None], pair: Pair) -> None:
        for offer in taken:
            self.verdicts[offer.bundle] = Reason.MOVES.code
            self.unloads.append(
                self._offers.unload(offer.bundle, ends, f"{pair.apart}, {offer.throughput:.0f} bytes/s")
            )
