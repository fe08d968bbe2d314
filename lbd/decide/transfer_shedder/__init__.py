"""TransferShedder: brings the brokers' loads within a standard deviation, from the most to the least loaded broker.

Source: Pulsar's TransferShedder.java of the extensible load manager (4.0.8 to 5.0.1), over load reports of the modular
one. Loads are running averages and count heap memory, where it has a weight. It fires when the loads were uneven for
some rounds in a row, and nobody gives anything for a while after a broker gave.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.decide.candidates import Offers
from lbd.decide.transfer_shedder.exchange import Exchange, Offered
from lbd.decide.transfer_shedder.stats import Stats, smoothed
from lbd.decide.transfer_shedder.top_bundles import top_bundles
from lbd.load import scoring
from lbd.model import BYTES_IN, BYTES_OUT, CLUSTER, Decision, Facts, Hits, Memory, Pair, Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.decide.transfer_shedder.settings import TransferShedderSettings
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Permission, Snapshot, Unload


def decide(
    snapshot: Snapshot,
    averages: Averages,
    permission: Permission,
    memory: Memory,
    settings: TransferShedderSettings,
    weights: Weights,
) -> Decision:
    """One round of TransferShedder.

    A hit is counted, and anything moved, when the most loaded broker has new evidence
    (:attr:`~lbd.model.Permission.counts`): in a live turn so often as a leader counts rounds, once a minute.
    """
    loads = smoothed(snapshot, permission, memory.loads, settings.history_resource_percentage, weights)
    part = {broker: loads[broker] for at, broker in enumerate(snapshot.brokers.ids) if permission.paired[at] == 0}
    turn = _Round(Offers(snapshot, averages, permission), settings, Stats(part, settings))
    hits = turn.ask(memory)
    kept = Memory({CLUSTER: Hits(hits)} if hits else {}, loads, turn.unloaded_at(memory))
    facts = Facts(
        scoring.scores(snapshot.brokers, weights), scoring.binding(snapshot.brokers, weights), tuple(turn.pairs)
    )
    return Decision(tuple(turn.unloads), tuple(turn.skips), kept, facts, turn.verdicts)


class _Round:
    """One round, and what it finds."""

    def __init__(self, offers: Offers, settings: TransferShedderSettings, stats: Stats) -> None:
        self._offers, self._settings, self._stats = offers, settings, stats
        self._snapshot, self._permission = offers.snapshot, offers.permission
        self._position = self._snapshot.brokers.index()
        self.verdicts = self._permission.barred.copy()
        self.unloads: list[Unload] = []
        self.skips: list[Skip] = []
        self.pairs: list[Pair] = []

    def ask(self, memory: Memory) -> int:
        """The rule; returns the hits after this round."""
        stats, hits = self._stats, memory.hits.get(CLUSTER, Hits()).low
        if len(stats.ranked) < 2:
            told = f"{len(stats.ranked)} of {len(self._snapshot.brokers)} reports can be compared"
            self.skips.append(Skip("cluster", Reason.TOO_FEW_BROKERS, told))
            return hits
        why, delay = stats.why(), self._delay(memory)
        if not why:
            target = f"target {100 * self._settings.broker_load_target_std:g}"
            told = f"standard deviation {100 * stats.deviation:.1f} points, {target}"
            self.skips.append(Skip("cluster", Reason.BALANCED, told))
            return hits if delay else 0
        if delay:
            self._tell(self._pair(why, hits), Reason.SETTLING, delay)
            return hits
        return self._count(why, hits)

    def unloaded_at(self, memory: Memory) -> dict[str, float]:
        """When brokers last gave, where that still delays the next round."""
        recent = {broker: at for broker, at in memory.unloaded_at.items() if self._too_early(at)}
        return {**recent, **{unload.source: self._snapshot.taken_at for unload in self.unloads}}

    def _too_early(self, at: float) -> bool:
        return self._snapshot.taken_at - at < self._settings.shedding_delay_in_seconds

    def _delay(self, memory: Memory) -> str:
        """What delays the whole round; empty where nothing does."""
        early = [broker for broker in self._stats.ranked if self._too_early(memory.unloaded_at.get(broker, -math.inf))]
        if not early:
            return ""
        ago = self._snapshot.taken_at - memory.unloaded_at[early[0]]
        return f"{early[0]} gave bundles {ago:.0f} s ago, shedding_delay_in_seconds is {self._delay_seconds}"

    @property
    def _delay_seconds(self) -> str:
        return f"{self._settings.shedding_delay_in_seconds:g}"

    def _count(self, why: str, hits: int) -> int:
        """One hit more, where there is new evidence; enough of them fire, and are forgotten if anything moves."""
        settled = self._settled(self._stats.source, self._stats.destination)
        fresh = bool(self._permission.counts[self._position[self._stats.source]])
        hits, wanted = hits + (settled and fresh), self._settings.wanted_hits.low
        if self._permission.hold is not None:
            hits = min(hits, wanted - 1)
        pair = self._pair(why, hits)
        if not settled:
            self._tell(pair, Reason.SETTLING, "one of them was moved to, moved from or restarted lately")
        elif self._permission.hold is not None:
            self._tell(pair, self._permission.hold, f"hits {hits}/{wanted}")
        elif not fresh:
            self._tell(pair, Reason.NO_NEW_SAMPLE, f"{pair.source} has no new sample; hits {hits}/{wanted}")
        elif hits < wanted:
            self._tell(pair, Reason.WAITING, f"hits {hits}/{wanted}")
        else:
            self._level(hits)
        return 0 if self.unloads else hits

    def _settled(self, *brokers: str) -> bool:
        return all(self._permission.settled[self._position[broker]] for broker in brokers)

    def _pair(self, why: str, hits: int, *, fired: bool = False) -> Pair:
        """The most and the least loaded broker that are left."""
        source, destination = self._stats.source, self._stats.destination
        apart = 100 * (self._stats.loads[source].usage - self._stats.loads[destination].usage)
        named = destination if self._settings.transfer_enabled else None
        told = f"{apart:.1f} points apart, {why}"
        return Pair(source, named, apart, Hits(hits), self._settings.wanted_hits, fired=fired, why=told)

    def _tell(self, pair: Pair, reason: Reason, detail: str) -> None:
        self.pairs.append(pair)
        self.skips.append(Skip(pair.ends, reason, detail))

    def _level(self, hits: int) -> None:
        """Pair after pair, until the loads are even enough, or enough brokers have given."""
        stats = self._stats
        while stats.left and (why := stats.why()):
            pair, destination = self._pair(why, hits, fired=True), stats.destination
            stats.high -= 1
            if self._settled(pair.source, destination):
                self._exchange(pair, destination)
            else:
                self._tell(pair, Reason.SETTLING, "one of them was moved to, moved from or restarted lately")

    def _exchange(self, pair: Pair, destination: str) -> None:
        """Move bundles between two brokers, or say why none moves."""
        stats, source = self._stats, pair.source
        high, low = stats.loads[source].usage, stats.loads[destination].usage
        had, has = (self._offers.traffic(self._position[end], "throughput") for end in (source, destination))
        wanted = had * ((high - low) / 2) / high if high > 0 else 0.0
        pair = replace(pair, measure="throughput", wanted=wanted)
        offers = self._top(source)
        if not wanted > 0:
            self._tell(pair, Reason.NO_TRAFFIC, f"{source} has no load that bundles could take along")
            return
        if len(offers) < 2:
            self._tell(pair, *self._too_few(offers))
            return
        swap = self._settings.swap == "plan" and self._settings.transfer_enabled
        made = Exchange(had, has, wanted, swap)
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
        return [Offered(one, rate, bool(self.verdicts[one])) for one, rate in zip(bundles, rates, strict=True)]

    def _too_few(self, offers: list[Offered]) -> tuple[Reason, str]:
        if not offers:
            return Reason.NOTHING_FITS, "none of its bundles carries traffic and may move"
        self.verdicts[offers[0].bundle] = Reason.SOLE_BUNDLE.code
        return Reason.SOLE_BUNDLE, "one bundle carries all its traffic; split it"

    def _note(self, pair: Pair, destination: str, offers: list[Offered], made: Exchange) -> None:
        for one in offers:
            if not one.rests:
                self.verdicts[one.bundle] = Reason.NOT_NEEDED.code
        if made.too_large is not None:
            self.verdicts[made.too_large.bundle] = Reason.TOO_LARGE.code
        named = destination if self._settings.transfer_enabled else None
        self._take(made.given, (pair.source, named), pair)
        self._take(made.returned, (destination, pair.source), pair)
        if made.given:
            self.pairs.append(pair)
        else:
            size = f"the smallest of {len(offers)} carries {offers[0].throughput:.0f}"
            self._tell(pair, Reason.NOTHING_FITS, f"{pair.wanted:.0f} bytes/s to move; {size}")

    def _take(self, taken: list[Offered], ends: tuple[str, str | None], pair: Pair) -> None:
        for one in taken:
            self.verdicts[one.bundle] = Reason.MOVES.code
            self.unloads.append(self._offers.unload(one.bundle, ends, f"{pair.apart}, {one.throughput:.0f} bytes/s"))
