"""Placements: which broker a bundle should go to. Value in, value out: no clock, no random, no I/O.

A placement is asked for one bundle at a time, among candidates that are already allowed (``picker.py``), and returns
what it will remember::

    place = build("least-long-term-message-rate")
    brokers, memory = look(snapshot, averages, weights), PlaceMemory()
    placed = place(bundle, candidates, brokers, memory)      # placed.broker, placed.reason
    memory = placed.memory                                # for the next bundle

Numbers of Pulsar's placements are Pulsar's defaults, and have Pulsar's names. The order of candidates is the caller's;
the answer among equally good brokers does not depend on it.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lbd.load import scoring
from lbd.model import MSG_IN, MSG_OUT
from lbd.text import duration_text, first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lbd.load.scoring import Weights
    from lbd.model import Averages, FloatArray, IntArray, Snapshot


# --- answer and memory


@dataclass(frozen=True)
class PlaceMemory:
    """State of placements from one answer to the next; each rule reads its own part.

    ``answered`` is the broker answered for each bundle since ``since`` (epoch seconds), ``counts`` how many each broker
    was given so, ``preallocated`` their long-term messages/s: no load report shows these yet. ``planned`` are
    destinations that a shedder chose. ``usage`` is each broker's moving average, a fraction. ``order`` and ``counter``
    are the round robin's.
    """

    since: float = 0.0
    answered: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    preallocated: Mapping[str, float] = field(default_factory=dict)
    planned: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    counter: int = 0

    def at(self, taken_at: float, keep_seconds: float = 0.0) -> PlaceMemory:
        """The memory for a snapshot of that time: answers that it shows, or that are old, are forgotten together."""
        if 0 <= taken_at - self.since <= keep_seconds:
            return self
        return replace(self, since=taken_at, answered={}, counts={}, preallocated={})

    def after(self, bundle: str, broker: str, msg_rate: float = 0.0) -> PlaceMemory:
        """The memory with one more answer; an earlier one for the same bundle is replaced."""
        counts = dict(self.counts)
        before = self.answered.get(bundle)
        if before is not None:
            counts[before] -= 1
        counts[broker] = counts.get(broker, 0) + 1
        preallocated = {**self.preallocated, broker: self.preallocated.get(broker, 0.0) + msg_rate}
        return replace(self, answered={**self.answered, bundle: broker}, counts=counts, preallocated=preallocated)


@dataclass(frozen=True)
class PlacementChoice:
    """The broker for a bundle, None where there is no candidate, and why that one.

    ``choices`` are the brokers that were as good, sorted: Pulsar draws among them, lbd takes one by the bundle's name.
    """

    broker: str | None
    reason: str
    memory: PlaceMemory
    choices: tuple[str, ...] = ()


# --- loads: one row per broker, computed once per snapshot and used for many bundles


@dataclass(frozen=True, eq=False)
class BrokerLoads:
    """The brokers of one round, as columns aligned with ``ids``.

    ``usage`` is float64 (B,), the highest weighted resource as a fraction; ``smoothed`` float64 (B,), its moving
    average where one is kept, NaN where there is no load data. ``long_rates`` and ``msg_rates`` are float64 (B, 2),
    messages/s in and out: long-term means of the broker's bundles, and its present totals. ``bundles`` is int32 (B,).

    ``age_seconds`` is how old the reports are. ``to_place`` is how many bundles are to be placed, with this one, and
    ``bundle_rates`` the long-term messages/s, in + out, of those that are known.
    """

    taken_at: float
    ids: tuple[str, ...]
    usage: FloatArray
    smoothed: FloatArray
    long_rates: FloatArray
    msg_rates: FloatArray
    bundles: IntArray
    age_seconds: float = 0.0
    to_place: int = 1
    bundle_rates: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each broker."""
        return {broker: at for at, broker in enumerate(self.ids)}


def broker_loads(snapshot: Snapshot, averages: Averages, weights: Weights, *, to_place: int = 1) -> BrokerLoads:
    """The loads of a round that placements need. ``averages`` are aligned with the snapshot's bundles.

    Source: LocalBrokerData.getMaxResourceUsageWithWeight, and TimeAverageBrokerData, which sums the long-term means of
    the bundles that a broker reports.
    """
    brokers, rows = snapshot.brokers, snapshot.rows
    with np.errstate(all="ignore"):
        usage: FloatArray = scoring.scores(brokers, weights) / 100.0
    owner = rows.owner()[rows.reported]
    long = averages.long[rows.bundle[rows.reported]]
    rates = np.zeros((len(brokers), 2))
    for column in (MSG_IN, MSG_OUT):
        rates[:, column] = np.bincount(owner, weights=long[:, column], minlength=len(brokers))
    totals = brokers.rates[:, [MSG_IN, MSG_OUT]]
    if snapshot.partial:  # smaller bundles are not reported, and must not count as no traffic
        rates = totals
    return BrokerLoads(
        snapshot.taken_at, brokers.ids, usage, usage, rates, totals, rows.count(rows.listed), to_place=to_place
    )


# --- by hash of the bundle's name, where Pulsar draws at random


def by_hash(bundle: str, brokers: Iterable[str]) -> str:
    """CRC32 of the full bundle name, modulo the number of brokers, into the brokers sorted by name.

    ValueError when there is no broker.
    """
    ordered = sorted(brokers)
    if not ordered:
        raise ValueError("no broker to choose from")
    return ordered[zlib.crc32(bundle.encode()) % len(ordered)]


# --- round robin
# Source: RoundRobinBrokerSelector.java (4.0 to 5.0.1), which Pulsar also uses for namespaces that its shedder leaves
# alone. It counts through the candidates as it first saw them, in their own order, and reads them again when their
# number differs or the next one is gone.

HIGHEST = 2**31 - 1
"""The counter is a Java int, and begins again with 0 after its highest value."""


def round_robin(bundle: str, candidates: Sequence[str], loads: BrokerLoads, memory: PlaceMemory) -> PlacementChoice:
    """The next broker in turn; load is ignored."""
    del bundle, loads
    if not candidates:
        return PlacementChoice(None, "no candidate", memory)
    order, turn = memory.order, memory.counter % len(candidates)
    if len(order) != len(candidates) or order[turn] not in candidates:
        order = tuple(candidates)
    counter = 0 if memory.counter >= HIGHEST else memory.counter + 1
    reason = f"its turn, {turn + 1} of {len(order)}"
    return PlacementChoice(order[turn], reason, replace(memory, order=order, counter=counter))


# --- LeastLongTermMessageRate: the broker whose bundles have the lowest long-term message rate
# Source: LeastLongTermMessageRate.java (2.10 to 5.0.1), the default of the modular load manager. Bundles that were
# placed since the last round of reports count with their own long-term rates, so one broker does not get all of them.

UNSEEN_MSG_RATE = 100.0
"""Messages/s, in + out, of a bundle without a report: DEFAULT_MESSAGE_RATE, 50 each way."""


def least_message_rate(
    bundle: str,
    candidates: Sequence[str],
    loads: BrokerLoads,
    memory: PlaceMemory,
    broker_overloaded_threshold_percentage: float = 85,
) -> PlacementChoice:
    """The broker with the lowest rate below the overload threshold; if all are above it, one of all."""
    if not candidates:
        return PlacementChoice(None, "no candidate", memory)
    memory = memory.at(loads.taken_at)
    full = broker_overloaded_threshold_percentage
    rates = {broker: _rate(broker, loads, memory, full) for broker in candidates}
    least = min(rates.values())
    choices = tuple(sorted(broker for broker, rate in rates.items() if rate == least))
    broker = by_hash(bundle, choices)
    reason = f"lowest long-term rate, {least:,.0f} msg/s"
    if math.isinf(least):
        reason = f"every candidate is above {full:g} points: one by hash"
    own_rate = loads.bundle_rates.get(bundle, UNSEEN_MSG_RATE)
    return PlacementChoice(broker, reason, memory.after(bundle, broker, own_rate), choices)


def _rate(broker: str, loads: BrokerLoads, memory: PlaceMemory, full: float) -> float:
    """Messages/s, summed in Pulsar's order; infinite for a broker above ``full`` points, or without a report."""
    row = loads.index.get(broker)
    if row is None or loads.usage[row] > full / 100.0:
        return math.inf
    return memory.preallocated.get(broker, 0.0) + float(loads.long_rates[row, 0] + loads.long_rates[row, 1])


# --- LeastResourceUsageWithWeight: one of the brokers well below the average, by a moving average of their usage
# Source: LeastResourceUsageWithWeight.java of the modular manager (LB/impl) and of the extensible one
# (LB/extensions/strategy), 2.11 to 5.0.1. PIP-364 names its weakness: when no broker is well below the average, it
# draws among all, overloaded ones included.


def least_usage(
    bundle: str,
    candidates: Sequence[str],
    loads: BrokerLoads,
    memory: PlaceMemory,
    average_resource_usage_difference_threshold_percentage: float = 10,
    history_resource_percentage: float = 0.9,
) -> PlacementChoice:
    """The rule of the modular manager: averages advance once for each answer, and only those of the candidates."""
    reported = [broker for broker in candidates if broker in loads.index]
    usage = {broker: _advanced(broker, loads, memory, history_resource_percentage) for broker in reported}
    memory = replace(memory, usage={**memory.usage, **usage})
    below = average_resource_usage_difference_threshold_percentage
    return _pick_by_usage(bundle, candidates, usage, memory, below)


def choose_extensible(
    bundle: str,
    candidates: Sequence[str],
    loads: BrokerLoads,
    memory: PlaceMemory,
    average_resource_usage_difference_threshold_percentage: float = 10,
) -> PlacementChoice:
    """The rule of the extensible manager: averages are the brokers' own; one without load data is not preferred."""
    smoothed = {broker: float(loads.smoothed[loads.index[broker]]) for broker in candidates if broker in loads.index}
    usage = {broker: value for broker, value in smoothed.items() if not math.isnan(value)}
    below = average_resource_usage_difference_threshold_percentage
    return _pick_by_usage(bundle, candidates, usage, memory, below)


def _advanced(broker: str, loads: BrokerLoads, memory: PlaceMemory, history: float) -> float:
    """The moving average of usage; it starts anew for a broker without bundles or messages (restarted or idle)."""
    row = loads.index[broker]
    now, before = float(loads.usage[row]), memory.usage.get(broker)
    if before is None or loads.bundles[row] == 0 or not loads.msg_rates[row].any():
        return now
    return before * history + (1 - history) * now


def _pick_by_usage(
    bundle: str, candidates: Sequence[str], usage: Mapping[str, float], memory: PlaceMemory, below: float
) -> PlacementChoice:
    """One of the brokers at least ``below`` points below the average."""
    if not candidates:
        return PlacementChoice(None, "no candidate", memory)
    average = math.nan if not usage else sum(usage.values()) / len(usage)
    best = tuple(sorted(broker for broker, used in usage.items() if used + below / 100.0 <= average))
    below_average = f"{below:g} points below the average of {average * 100:.1f}"
    reason = f"one of {len(best)} at least {below_average}" if best else f"none is {below_average}: one of all by hash"
    choices = best or tuple(sorted(candidates))
    return PlacementChoice(by_hash(bundle, choices), reason, memory, choices)


# --- lbd's own picker: rendezvous hashing, weighted by free capacity, with bounded load
# Every broker draws a number for the bundle from both names, and the lowest wins, so the same bundle gets the same
# broker at any place and time. When a broker goes, only its bundles get new answers; a new one takes its share from all
# alike (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005). A broker that has more than
# ``1 + SLACK`` times its share of the recent answers passes the bundle on to the next best (Mirrokni, Thorup and
# Zadimoghaddam 2018), because load reports show none of these yet. A recent answer for a bundle holds while that broker
# is a candidate, and is not full while others are not.
#
# Free capacity is in points of score below ``FULL_AT``: two brokers of equal score have equal shares, whatever the size
# of their machines. If reports are too old, or a candidate has none, all brokers weigh the same and nothing is bound.


FULL_AT = 85.0
"""Score, in points, at which a broker has no free capacity."""

SLACK = 0.25
"""How far a broker may exceed its share of the recent answers, as a fraction of that share."""

STALE_SECONDS = 180.0
"""Age from which a report no longer counts for free capacity: three CPU samples."""

REMEMBER_SECONDS = 300.0
"""How long an answer counts, until the reports show it: two stats intervals, with a margin."""


def rendezvous(bundle: str, candidates: Sequence[str], loads: BrokerLoads, memory: PlaceMemory) -> PlacementChoice:
    """The first broker in the bundle's order of preference that has not had its share."""
    if not candidates:
        return PlacementChoice(None, "no candidate", memory)
    memory = memory.at(loads.taken_at, REMEMBER_SECONDS)
    before = memory.answered.get(bundle)
    free, why_plain = _free(candidates, loads)
    if before in candidates and (why_plain or before in free):
        return PlacementChoice(before, "the same as a moment ago", memory)
    if why_plain:
        broker = _ranked(bundle, dict.fromkeys(candidates, 1.0))[0]
        return PlacementChoice(broker, f"by hash alone: {why_plain}", memory.after(bundle, broker))
    placed = _Bounded(free, memory.counts, loads.to_place)
    ranked = _ranked(bundle, free)
    broker = next(name for name in ranked if placed.has_room(name))
    share = f"{free[broker]:.1f} points free below {FULL_AT:g}, {placed.share(broker):.0%} of all free points"
    reason = f"{_order(broker, ranked, placed)}; {share}"
    return PlacementChoice(broker, reason, memory.after(bundle, broker))


class _Bounded:
    """Shares of the recent answers and of those still to be given, among brokers with free capacity."""

    def __init__(self, free: Mapping[str, float], counts: Mapping[str, int], bundles: int) -> None:
        self._free, self._counts, self._free_of_all = free, counts, sum(free.values())
        self._allowed = (1 + SLACK) * max(sum(map(self.count, free)) + 1, bundles)

    def has_room(self, broker: str) -> bool:
        """Whether a broker may take one more. At least one always may: together they may take more than there is."""
        return self.count(broker) + 1 <= self.most(broker)

    def count(self, broker: str) -> int:
        """Recent answers that named this broker."""
        return self._counts.get(broker, 0)

    def share(self, broker: str) -> float:
        """Its part of all free capacity, a fraction."""
        return self._free[broker] / self._free_of_all

    def most(self, broker: str) -> int:
        """How many it may have."""
        return math.ceil(self._allowed * self.share(broker))


def _free(candidates: Sequence[str], loads: BrokerLoads) -> tuple[dict[str, float], str]:
    """Points of free capacity of the candidates that have some, or why it is not known."""
    if loads.age_seconds > STALE_SECONDS:
        return {}, f"reports are {duration_text(loads.age_seconds)} old"
    points = {broker: float(loads.usage[loads.index[broker]]) * 100 for broker in candidates if broker in loads.index}
    unknown = [broker for broker in candidates if not math.isfinite(points.get(broker, math.nan))]
    if unknown:
        return {}, f"{min(unknown)} gives no usable report"
    free = {broker: FULL_AT - used for broker, used in points.items() if used < FULL_AT}
    return free, "" if free else f"every candidate is at {FULL_AT:g} points or above"


def _ranked(bundle: str, weights: Mapping[str, float]) -> list[str]:
    """The brokers in the order in which this bundle prefers them."""
    return sorted(weights, key=lambda broker: (_draw(bundle, broker) / weights[broker], broker))


def _draw(bundle: str, broker: str) -> float:
    """Exponentially distributed, and always the same for the same two names.

    Of such numbers divided by weights the lowest falls on each broker in proportion to its weight.
    """
    digest = blake2b(f"{bundle}\n{broker}".encode(), digest_size=8).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / (2**64 + 1))


def _order(broker: str, ranked: Sequence[str], placed: _Bounded) -> str:
    passed = ranked[: ranked.index(broker)]
    if not passed:
        return "first choice by hash"
    full = first_names([f"{name} has {placed.count(name)} of at most {placed.most(name)} bundles" for name in passed])
    return f"choice {len(passed) + 1} by hash, as {full}"


# --- AvgShedder: the destination that its shedding side planned, else by hash
# Source: AvgShedder.selectBroker (3.0.6 to 5.0.1) and PIP-364. Pulsar hashes a random number here ("hash mapping a
# random number to broker", to spread bundles when many are placed at once, as after a restart): the same question gets
# another answer each time. lbd hashes the bundle's full name with the same CRC32, over the same sorted candidates:
# bundles spread as evenly, and an answer can be predicted, repeated and checked.


def avg_shedder(bundle: str, candidates: Sequence[str], loads: BrokerLoads, memory: PlaceMemory) -> PlacementChoice:
    """The planned destination if it is a candidate, else one by hash; load is ignored."""
    del loads
    planned = memory.planned.get(bundle)
    if planned in candidates:
        return PlacementChoice(planned, "planned when the bundle was unloaded", memory)
    if not candidates:
        return PlacementChoice(None, "no candidate", memory)
    gone = f", for {planned}, planned when it was unloaded, is no candidate" if planned is not None else ""
    reason = f"CRC32 of the bundle's name over {len(candidates)} candidates{gone}"
    return PlacementChoice(by_hash(bundle, candidates), reason, memory, tuple(sorted(candidates)))


# --- placements by name


class Placement(Protocol):
    """A rule that chooses a broker for one bundle."""

    def __call__(
        self, bundle: str, candidates: Sequence[str], loads: BrokerLoads, memory: PlaceMemory
    ) -> PlacementChoice: ...


PLACEMENTS: dict[str, Callable[..., PlacementChoice]] = {
    "rendezvous": rendezvous,
    "avg-shedder": avg_shedder,
    "least-long-term-message-rate": least_message_rate,
    "least-resource-usage-with-weight": least_usage,
    "least-resource-usage-with-weight-extensible": choose_extensible,
    "round-robin": round_robin,
}
"""Rule of each placement, by the name that ``--strategy`` takes; the first one is lbd's own."""

DEFAULT = "rendezvous"

PICKS = {
    "rendezvous": "the hash of a bundle's name picks its broker, in proportion to free capacity",
    "avg-shedder": "the hash of a bundle's name picks its broker, whatever the load",
    "least-long-term-message-rate": "the broker with the lowest long-term message rate",
    "least-resource-usage-with-weight": "one of the brokers whose usage is well below the average",
    "least-resource-usage-with-weight-extensible": "one of the brokers whose own average is well below that of all",
    "round-robin": "one broker after the other, whatever the load",
}
"""How each placement picks a broker, for people who read its name."""


def build(name: str) -> Placement:
    """The placement of that name; KeyError for an unknown one."""
    return PLACEMENTS[name]
