"""The strategy ``least-moves``: brokers to the level at which their pool would be even, with as few moves as it takes.

lbd's own. A broker that is too far from the level for some samples in a row is relieved, or filled, in one turn and by
as many others as it takes. A bundle is sized in points: those that it takes off its source, and those that it puts on
its destination, which on unequal brokers are not the same. Pure.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.candidates import Offers
from lbd.decide.least_moves.counting import Far, count
from lbd.decide.least_moves.foreseen import Foreseen
from lbd.decide.least_moves.ground import survey
from lbd.decide.least_moves.level import brokers_missing, water_level
from lbd.decide.least_moves.planning import Band, Plan
from lbd.decide.least_moves.telling import fewest, nothing_fits
from lbd.load import scoring
from lbd.model import Decision, Facts, Hits, Memory, Pair, Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.decide.least_moves.planning import Move
    from lbd.decide.least_moves.settings import LeastMovesSettings
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Permission, Snapshot, Unload

MOST_MOVES = 2000
"""Of one plan: more take longer than the reports that it stands on are true."""

NEAR_POINTS = 3.0
"""So near above its aim a broker is left: a move for less costs as much, and is for little."""

MOST_NEAR_SHARE = 0.85
"""Of the low threshold, beyond which no broker is left: what fires is too high whatever the settings."""

NEAR_SHARE = 0.75
"""Of the low threshold: so near the level a broker may end as one that takes; noise does not make it far again."""


def decide(
    snapshot: Snapshot,
    averages: Averages,
    permission: Permission,
    memory: Memory,
    settings: LeastMovesSettings,
    weights: Weights,
) -> Decision:
    """One round of least-moves.

    Brokers that have not settled are left out of it: neither is their level to be trusted, nor do they take.
    """
    turn = _Round(snapshot, averages, permission, settings, weights)
    if turn.too_few():
        return turn.decision(memory)
    above, among = turn.above, turn.among
    far, counters = count(snapshot.brokers.ids, above, among, permission, memory, settings)
    return turn.decision(Memory(turn.remembered(counters, far, turn.answer(far))))


class _Round:
    """One round, and what it finds."""

    def __init__(
        self,
        snapshot: Snapshot,
        averages: Averages,
        permission: Permission,
        settings: LeastMovesSettings,
        weights: Weights,
    ) -> None:
        self._snapshot, self._permission, self._settings = snapshot, permission, settings
        self._offers, self._ids = Offers(snapshot, averages, permission), snapshot.brokers.ids
        self._scores = scoring.scores(snapshot.brokers, weights)
        self._binding = scoring.binding(snapshot.brokers, weights)
        self.verdicts = permission.barred.copy()
        self.among = (permission.paired == 0) & permission.settled
        self._ground = survey(snapshot, averages, permission, weights, self.verdicts)
        self._level = water_level(self._ground, self.among) if self.among.any() else 0.0
        self.above = np.where(self.among, self._ground.scores - self._level, 0.0)
        self.estimated = self._ground.estimated
        foreseen = Foreseen(self._offers, self._scores, weights)
        self._plan = Plan(self._ground, snapshot.bundles, self._band(), self.among, foreseen)
        self._unloads: list[Unload] = []
        self._skips: list[Skip] = []
        self._pairs: list[Pair] = []
        self._told = ""
        self._is_full = False
        self._along: set[int] = set()

    def too_few(self) -> bool:
        """Whether there are fewer than two brokers to compare; it is said then."""
        seen, settled = int((self._permission.paired == 0).sum()), int(self.among.sum())
        if settled >= 2:
            return False
        if seen < 2:
            told = f"{seen} of {len(self._ids)} reports can be compared"
            self._skips.append(Skip("cluster", Reason.TOO_FEW_BROKERS, told))
        else:
            told = f"{seen - settled} of {seen} brokers were moved to, moved from or restarted lately"
            self._skips.append(Skip("cluster", Reason.SETTLING, told))
        return True

    def answer(self, far: list[Far]) -> set[int]:
        """Plan for all that are too far, once one of them has fired; say of the others what they wait for.

        Returns the brokers that something moves off or to.
        """
        if not far:
            self._skips.append(Skip("cluster", Reason.BALANCED, self._balanced()))
        far = self._with_others(far) if any(one.fired for one in far) else far
        plan = list(islice(self._moves(far), MOST_MOVES))
        self._is_full = len(plan) == MOST_MOVES
        low = {one.broker for one in far if one.fired and one.points < 0}
        needed = {move.candidate: move for move in self._plan.needed([move for _, move in plan], low)}
        plan = [(at, needed[move.candidate]) for at, move in plan if move.candidate in needed]
        moves: dict[int, list[Move]] = {}
        for at, move in plan:
            moves.setdefault(at, []).append(move)
        fired_first = sorted(far, key=lambda one: not one.fired)
        served = {one.broker for one in fired_first if self._serves(one, moves.get(one.broker, []))}
        made = [move for at, move in plan if at in served]
        self._unloads = [self._unload(move) for move in made]
        if made:
            self._told = fewest(self._ground, len(made), self._plan.scores_after(made), self.among)
        return served | {end for move in made for end in (move.source, move.destination)}

    def _moves(self, far: list[Far]) -> Iterator[tuple[int, Move]]:
        """Each move of the plan, with the broker that it is for."""
        own = [one.broker for one in far if one.relieved and one.broker not in self._along]
        for move in self._plan.relieve(own, self._along):
            yield move.source, move
        for one in far:
            if one.fired and one.points < 0:
                yield from ((one.broker, move) for move in self._plan.fill(one.broker))

    def remembered(self, counters: dict[str, Hits], far: list[Far], served: set[int]) -> dict[str, Hits]:
        """The counters; of brokers that fired in vain none, unless it was for want of room in the plan."""
        found = dict(counters)
        for one in far:
            if one.fired and one.broker not in served:
                found.pop(self._ids[one.broker], None)
                if self._is_full:
                    found[self._ids[one.broker]] = one.hits.below(self._settings.wanted_hits)
        return found

    def _with_others(self, far: list[Far]) -> list[Far]:
        """Those above the band go along with one to be relieved: else the highest of them is what a plan comes to.

        With one that is only to be filled go those that are too far above, whatever they still wait for.
        """
        known = {one.broker for one in far if one.fired}
        relieves = any(one.relieved for one in far)
        least = self._band().near - self._level if relieves else self._settings.low_threshold
        along = (self.above > least).nonzero()[0].tolist()
        hits = {one.broker: one.hits for one in far}
        others = [Far(at, float(self.above[at]), hits.get(at, Hits()), fired=True) for at in along if at not in known]
        self._along = added = {one.broker for one in others}
        return sorted([one for one in far if one.broker not in added] + others, key=lambda one: -abs(one.points))

    def decision(self, memory: Memory) -> Decision:
        """The answer."""
        facts = Facts(self._scores, self._binding, tuple(self._pairs), self._told)
        return Decision(tuple(self._unloads), tuple(self._skips), memory, facts, self.verdicts)

    def _band(self) -> Band:
        low = self._settings.low_threshold
        aim = min(self._settings.aim_points, low)
        far = max(aim, NEAR_SHARE * low)
        near = max(aim, min(aim + NEAR_POINTS, MOST_NEAR_SHARE * low))
        level = self._level
        return Band(level - low, level - far, level, level + aim, level + far, level + near)

    def _balanced(self) -> str:
        furthest, settings = float(np.abs(self.above).max()), self._settings
        number = int(self.among.sum())
        of = f" of {number} settled brokers" if number < len(self._ids) else ""
        told = f"furthest from the level of {self._level:.1f} points{of}: {furthest:.1f}"
        wanted = f", low threshold {settings.low_threshold:g}"
        if furthest >= settings.low_threshold:
            apart = float(np.ptp(self.above[self.among]))
            side = "above" if self.above.max() >= furthest else "below"
            wanted = f" {side} it, and moved for once all are {settings.gap_points:g} points apart, {apart:.1f} now"
        return f"{told}{wanted}{self._full()}"

    def _full(self) -> str:
        """That moving can only share out what is too much; empty where it is not."""
        if self._level <= self._settings.full_points:
            return ""
        missing = brokers_missing(self._ground, self.among, self._settings.full_points)
        number = "1 broker" if missing == 1 else f"{missing} brokers"
        return f"; the cluster is full: add {number} of the mean capacity for a level of {self._settings.full_points:g}"

    def _serves(self, far: Far, moves: list[Move]) -> bool:
        """Whether these moves are to be made for a broker; its pair, and why not, are noted.

        Nothing is to be said of a low one that got enough from those that were too high, nor of who still waits where
        the other end of its pair fired.
        """
        if far.fired and not moves and self._plan.is_within(far.broker):
            return False
        pair = self._pair(far)
        told = [one.fired for one in self._pairs if one.ends == pair.ends]
        if not told:
            self._pairs.append(pair)
        elif told[0] and not far.fired:
            return False
        skip = self._waits(far) if not far.fired else self._too_little(far, moves)
        if skip is not None:
            self._skips.append(Skip(pair.ends, *skip))
        elif (left := self._left(far)) is not None:
            self._skips.append(Skip(pair.ends, *left))
        return skip is None

    def _left(self, far: Far) -> tuple[Reason, str] | None:
        """Why a broker is still too far off after its moves; None where it is not."""
        after, band = self._plan.score(far.broker), self._band()
        if band.floor <= after <= max(band.limit, band.near):
            return None
        why, told = nothing_fits(self._ground, self._offers, self._plan, self.verdicts, far, band)
        return why, f"then still at {after:.1f} points: {told}"

    def _pair(self, far: Far) -> Pair:
        """A high broker with the lowest, a low one with the highest; how far it is from the level is said beside."""
        side = "above" if far.points > 0 else "below"
        usual = self._ground.scores
        lowest = int(np.where(self.among, usual, np.inf).argmin())
        highest = int(np.where(self.among, usual, -np.inf).argmax())
        source, destination = (far.broker, lowest) if far.points > 0 else (highest, far.broker)
        told = f"{self._ids[far.broker]} is {abs(far.points):.1f} points {side} the level of {self._level:.1f}"
        return Pair(
            self._ids[source],
            self._ids[destination],
            float(usual[source] - usual[destination]),
            far.hits,
            self._settings.wanted_hits,
            far.fired,
            why=f"{told}{self._full()}",
        )

    def _waits(self, far: Far) -> tuple[Reason, str]:
        wanted = self._settings.wanted_hits
        told = f"low hits {far.hits.low}/{wanted.low}, high hits {far.hits.high}/{wanted.high}"
        if self._permission.hold is not None:
            return self._permission.hold, told
        if not self._permission.counts[far.broker]:
            return Reason.NO_NEW_SAMPLE, f"no new sample since the last turn; {told}"
        return Reason.WAITING, told

    def _too_little(self, far: Far, moves: list[Move]) -> tuple[Reason, str] | None:
        """Why what was found is not worth it; None where it is."""
        if not moves and self._is_full:
            return Reason.TURN_UNLOADS, f"{MOST_MOVES} moves are planned for others; it comes next"
        if not moves:
            return nothing_fits(self._ground, self._offers, self._plan, self.verdicts, far, self._band())
        bundles = self._ground.bundles[[move.candidate for move in moves]]
        messages, volume = (self._offers.carried(bundles, measure) for measure in ("msg_rate", "throughput"))
        least = self._settings
        if messages <= least.min_unload_message and volume <= least.min_unload_message_throughput:
            told = f"{messages:.0f} msg/s to move, minimum {least.min_unload_message:.0f}"
            least_bytes = f"{volume:.0f} bytes/s to move, minimum {least.min_unload_message_throughput:.0f}"
            return Reason.BELOW_MINIMUM, f"{told}; {least_bytes}"
        points, noise = sum(move.taken for move in moves), float(self._ground.noise[far.broker])
        if points < noise:
            return Reason.BELOW_MINIMUM, f"{points:.1f} points to move, and samples differ by {noise:.1f} by themselves"
        return None

    def _unload(self, move: Move) -> Unload:
        ends = (self._ids[move.source], self._ids[move.destination])
        bundle = int(self._ground.bundles[move.candidate])
        self.verdicts[bundle] = Reason.MOVES.code
        how = "about " if self._ground.estimated else ""
        told = (
            f"all even at {self._level:.1f}; {how}{move.taken:.1f} points off, {ends[0]} then {move.source_after:.1f}"
        )
        return self._offers.unload(bundle, ends, f"{told}, {ends[1]} {move.destination_after:.1f}{self._back(move)}")

    def _back(self, move: Move) -> str:
        """What the destination would give back, once this has landed there."""
        if move.back is None:
            return ""
        name = self._snapshot.bundles[int(self._ground.bundles[move.back])]
        return f"; too large alone, {name} is to go the other way when it has landed"
