"""A plan that the limits of one turn cut off goes on in waves, one in each of the next turns. Pure.

A plan is made for the whole imbalance, on evidence of minutes. Each further wave goes when the one before has landed,
and only while that evidence holds: no hold came, every move landed, and no broker has more CPU load than was
predicted once its CPU stands still. Anything else ends the plan, and the next one needs evidence of its own. A source
that fell by less than predicted is still the broker to relieve: it ends a plan only if two waves in a row took bundles
off it and it has not fallen at all. A broker that was cold when the plan was made may have more for longer: it warms
up, and is waited for. What remains of a plan is kept in memory only: after a kill, a failover or a change of settings
the next turns make a new plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import estimate
from lbd.load.estimate import CPU
from lbd.load.scoring import AT_LIMIT_POINTS
from lbd.model import Decision, Result, Skip
from lbd.permit.eligibility import source_left_out
from lbd.permit.evidence import is_expected, is_still
from lbd.reason import Reason
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.decide.strategies import Strategy
    from lbd.model import Averages, FloatArray, Memory, Permission, Snapshot, Unload


GOES_LATER = frozenset({Reason.TURN_UNLOADS, Reason.TURN_TRAFFIC, Reason.SETTLING})
"""Bundles go in a later wave where a limit of one turn cut them off, or live CPU does not show their brokers yet."""

TOO_MUCH = frozenset({Reason.DESTINATION_OVERLOADED, Reason.DESTINATION_ABOVE_SOURCE})
"""Predictions that stand on what the destination has now: clients connect and catch up there after a move."""

LESS_ABOVE_POINTS = {"least-moves": 5.0}
"""Points that a broker may be above its prediction for a plan of this strategy to go on.

For others :data:`~lbd.permit.evidence.ABOVE_EXPECTED_POINTS`. least-moves plans by predicted points: where they are
wrong, the rest of the plan is, too. With 10 points for it, unlike machines took a tenth more moves in simulation. With
5 for AvgShedder, which levels traffic, a saturated broker was relieved a minute later.
"""

BY_POINTS = frozenset(LESS_ABOVE_POINTS)
"""Strategies whose plans also end because of a source that fell by less than predicted.

A plan that levels traffic is as good as before. On three real brokers of 4.2.4 sources lost a third of what their share
of the traffic foretold, and stayed the highest brokers.
"""

WAIT_SECONDS = 75.0
"""A wave waits no longer until live CPU shows the wave before: the minute of a report, and a turn. It gets old."""

PAUSE_SECONDS = 9.0
"""Two turns of 5 s, or one of 10 s: a source that gave closes topics and has clients go for so long."""

WARM_UP_SECONDS = 120.0
"""Time in which a cold broker may exceed its prediction after a wave; 0.4 core takes a minute
(docs/results/comparison.md)."""

ROOM_POINTS = 10.0
"""Points below the mean of a plan's brokers at which one that warms up takes one more bundle: it then has twice as many
to its source. On three real brokers a second bundle cost 5 to 10 while the JVM compiled (docs/results/comparison.md).
Brokers of other pools say nothing of it."""


def scores_to_settle(plan: Iterable[Unload], at_most: Mapping[str, float], strategy_name: str) -> dict[str, float]:
    """Scores above which brokers of a plan have not settled though their CPU stands still, in points.

    A source settles at any score, unless the plan is one of :data:`BY_POINTS`: its CPU of now tells at once whether
    what remains is still apart.
    """
    if strategy_name in BY_POINTS:
        return dict(at_most)
    destinations = {unload.destination for unload in plan}
    return {broker: points for broker, points in at_most.items() if broker in destinations}


@dataclass(frozen=True)
class Rest:
    """The rest of a plan after ``waves`` of it; ``began_at`` is when the last of them began (epoch seconds).

    ``expected`` is the score, in points, that each broker has at most that the waves have touched, once their moves
    have landed, and ``above_points`` how much more it may have. ``cold`` are the brokers that were cold when the plan
    was made. Infinite: any score is as expected. ``before`` are the scores, in points, that a source had before each of
    the last two waves that took bundles off it; ``by_points``: the plan is one of :data:`BY_POINTS`.
    """

    plan: str
    unloads: tuple[Unload, ...]
    expected: Mapping[str, float]
    waves: int
    began_at: float
    above_points: float
    cold: frozenset[str] = frozenset()
    before: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    by_points: bool = False

    def after_wave(
        self, skips: Iterable[Skip], expected: Mapping[str, float], now: float, gave: Mapping[str, float]
    ) -> Rest | None:
        """The rest after one more wave, whose ``skips`` name the bundles that go later; None where none do.

        ``gave`` are the scores of its sources before it.
        """
        rest, expected = self.after_waiting(skips), {**self.expected, **expected}
        before = {source: (*self.before.get(source, ()), points)[-2:] for source, points in gave.items()}
        return rest and replace(
            rest, expected=expected, waves=self.waves + 1, began_at=now, before={**self.before, **before}
        )

    def after_waiting(self, skips: Iterable[Skip]) -> Rest | None:
        """The rest after a turn without a wave; None where no bundle goes later."""
        later = {skip.what for skip in skips if skip.reason in GOES_LATER}
        remaining = tuple(unload for unload in self.unloads if unload.bundle in later)
        return replace(self, unloads=remaining) if remaining else None

    def not_yet(self, skips: Iterable[Skip], snapshot: Snapshot) -> tuple[Skip, ...]:
        """These, but a destination of the waves that has too much while it is restless is waited for."""
        restless = self.restless(snapshot)
        destination = {unload.bundle: unload.destination for unload in self.unloads}
        return tuple(
            Skip(skip.what, Reason.SETTLING, f"{skip.detail}, and still changes")
            if skip.reason in TOO_MUCH and destination.get(skip.what) in restless
            else skip
            for skip in skips
        )

    def restless(self, snapshot: Snapshot) -> frozenset[str]:
        """Brokers that the waves have touched, and whose CPU does not stand still yet."""
        position = snapshot.brokers.index()
        return frozenset(broker for broker in self.expected if not is_still(snapshot.brokers, position[broker]))

    def not_shown(self, snapshot: Snapshot) -> frozenset[str]:
        """Brokers that the waves have touched, and whose live CPU does not show the effect yet.

        A source that was at the end of its CPU is not waited for, once it has had a pause: any score is as expected,
        and it answers late.
        """
        paused = snapshot.taken_at - self.began_at >= PAUSE_SECONDS
        waited_for = {broker for broker, points in self.expected.items() if points < math.inf or not paused}
        return frozenset(waited_for - snapshot.brokers.ids_where(snapshot.brokers.shows_live))

    def above(self, snapshot: Snapshot, scores: Mapping[str, float]) -> dict[str, str]:
        """Touched brokers whose live CPU shows more points than were expected, each with both numbers."""
        above = dict[str, str]()
        for broker in sorted(self.expected.keys() & scores.keys() - self.not_shown(snapshot)):
            score, expected = scores[broker], self.expected[broker]
            if not is_expected(score, expected, self.above_points):
                above[broker] = f"{score:.1f} points, at most {expected:.1f} were expected"
        return above

    def changing(self, snapshot: Snapshot, scores: Mapping[str, float]) -> dict[str, str]:
        """Those above whose CPU does not stand still yet: a source closes topics, clients connect and catch up.

        On real brokers of 0.4 core that takes half a minute.
        """
        restless = self.restless(snapshot)
        return {broker: points for broker, points in self.above(snapshot, scores).items() if broker in restless}

    def warms_up(self, snapshot: Snapshot, scores: Mapping[str, float]) -> dict[str, str]:
        """Those above that were cold and are still in time."""
        if not 0 <= snapshot.taken_at - self.began_at <= WARM_UP_SECONDS:
            return {}
        return {broker: points for broker, points in self.above(snapshot, scores).items() if broker in self.cold}

    def has_room(self, snapshot: Snapshot, scores: Mapping[str, float]) -> frozenset[str]:
        """Those that warm up and are so far below the mean of the plan, by twice ten seconds of CPU, that they may have
        one more bundle each.
        """
        live = snapshot.brokers.live
        if live is None:
            return frozenset()
        ends = {end for unload in self.unloads for end in (unload.source, unload.destination)}
        own = [score for broker, score in scores.items() if broker in ends | self.expected.keys()]
        mean = sum(own) / max(len(own), 1)
        warms_up = self.warms_up(snapshot, scores).keys() & snapshot.brokers.ids_where(np.isfinite(live.apart))
        return frozenset(broker for broker in warms_up if scores[broker] <= mean - ROOM_POINTS)

    def trusting(self, permission: Permission, snapshot: Snapshot, slow: Collection[str]) -> Permission:
        """The permission in which brokers that have joined, and that the waves have touched, take part.

        Their first bundle came by their CPU of now, and the waves go on by that; their first reports count for nothing.
        Without them the mean is that of their sources, none of whose bundles would be needed. A plan by points waits
        for a report: what it predicts by start-up work takes a tenth more moves, and no less time (simulated).
        """
        if self.by_points:
            return permission
        own = self.expected.keys() & permission.joined - frozenset(slow)
        rows = np.array([broker in own for broker in snapshot.brokers.ids], dtype=np.bool_)
        trusted = rows & (permission.paired == Reason.FIRST_SAMPLE.code)
        return replace(permission, paired=np.where(trusted, np.int8(0), permission.paired))

    def unready(self, snapshot: Snapshot, scores: Mapping[str, float]) -> dict[str, str]:
        """Brokers that the waves have touched and that no further move may touch yet, each with why."""
        hidden = {broker: f"live CPU does not show {broker} yet" for broker in sorted(self.not_shown(snapshot))}
        changing, cold = self.changing(snapshot, scores), self.warms_up(snapshot, scores)
        high = {broker: f"{broker} has {points}, and still changes" for broker, points in changing.items()}
        busy = {broker: f"{broker} warms up ({points})" for broker, points in cold.items()}
        room = self.has_room(snapshot, scores)
        waits = {**hidden, **high, **busy}
        return {broker: why for broker, why in waits.items() if broker not in room}

    def waits(self, snapshot: Snapshot, scores: Mapping[str, float]) -> str:
        """Why no move of the rest can begin in this turn; empty if one can."""
        unready = self.unready(snapshot, scores)
        if not all(unready.keys() & {unload.source, unload.destination} for unload in self.unloads):
            return ""
        return f"plan {self.plan} waits after wave {self.waves}: {', '.join(unready.values())}"

    def contradiction(
        self,
        hold: tuple[Reason, str] | None,
        finished: FinishedMoves,
        snapshot: Snapshot,
        scores: Mapping[str, float],
    ) -> str:
        """The reason against a further wave; empty while there is none.

        1. A hold, other than that moves are under way.
        2. A move that did not land.
        3. A destination with more CPU load than predicted, or a source whose load is not in its bundles
           (:meth:`in_vain`). One that warms up or whose CPU still changes is waited for.
        4. Evidence that is too old.
        """
        if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED:
            return hold[0].message(hold[1])
        if not_landed := _not_landed(finished):
            return not_landed
        if away := sorted(self.expected.keys() - scores.keys()):
            return f"{away[0]} gives no load report"
        waited_for = self.changing(snapshot, scores).keys() | self.warms_up(snapshot, scores).keys()
        for broker, points in self.above(snapshot, scores).items():
            if broker not in waited_for and (broker not in self.before or self.in_vain(broker, scores)):
                return f"{broker} has {points}"
        waited = snapshot.taken_at - self.began_at
        in_time = 0 <= waited <= (WARM_UP_SECONDS if self.cold & self.expected.keys() else WAIT_SECONDS)
        return "" if in_time else f"wave {self.waves + 1} could not begin within {duration_text(waited)}"

    def in_vain(self, source: str, scores: Mapping[str, float]) -> bool:
        """Whether two waves in a row took bundles off a source and it has not fallen at all, or, in a plan by points,
        whether one did and it has not fallen as predicted.
        """
        return self.by_points or (len(self.before[source]) > 1 and scores[source] >= self.before[source][0])

    def ended_text(self, why: str) -> str:
        """The words for the turn's sentence when the plan is given up."""
        return f"plan {self.plan} ends, {counted(len(self.unloads), 'bundle')} not moved: {why}"


def _not_landed(finished: FinishedMoves) -> str:
    """The first move that did not land, or was not sent; empty when all have landed."""
    failed = next((outcome for outcome in finished.outcomes if outcome.result is not Result.LANDED), None)
    if failed is not None:
        return f"{failed.unload.bundle}: {failed.result.value}"
    return f"{finished.skips[0].what}: {finished.skips[0].reason.label}" if finished.skips else ""


@dataclass(frozen=True)
class NextWave:
    """The rest of a plan instead of moves of the strategy, whose counters advance as under a hold."""

    strategy: Strategy
    rest: Rest

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The moves that can still be made and bring their source closer to the mean, of the highest source first.

        Sources at the end of their CPU are equally high.
        """
        held = replace(permission, hold=Reason.MOVES_UNFINISHED)
        decision = self.strategy(snapshot, averages, held, memory)
        verdicts, unloads, skips = decision.verdicts.copy(), [], []
        index = snapshot.positions_of({unload.bundle for unload in self.rest.unloads})
        sources = {unload.source for unload in self.rest.unloads} & set(snapshot.brokers.ids)
        reported = {broker: snapshot.reported_by(broker) for broker in sources}
        scores, position = decision.comparison.scores, snapshot.brokers.index()
        score = dict(zip(snapshot.brokers.ids, scores.tolist(), strict=True))
        unready = self.rest.unready(snapshot, score)
        at_limit = snapshot.brokers.ids_where(scores >= AT_LIMIT_POINTS)
        means = self._means(snapshot, permission, score, unready)
        others_wait = any(pair.source not in sources for pair in decision.comparison.pairs)
        restless = frozenset[str]() if others_wait else self.rest.restless(snapshot)
        for unload in sorted(self.rest.unloads, key=lambda move: -min(score.get(move.source, 0.0), AT_LIMIT_POINTS)):
            waits_for = unready.keys() & {unload.source, unload.destination}
            if (left_out := source_left_out(unload, position, permission)) is not None:
                skips.append(left_out)
            elif waits_for:
                skips.append(Skip(unload.bundle, Reason.SETTLING, unready[min(waits_for)]))
            elif unload.bundle not in reported.get(unload.source, ()):
                skips.append(Skip(unload.bundle, Reason.OWNER_CHANGED, f"{unload.source} had it when it was planned"))
            elif permission.barred[row := index[unload.bundle]]:
                skips.append(Skip(unload.bundle, Reason.of(int(permission.barred[row]))))
            elif (
                score[unload.source] - (points := estimate.points(unload, snapshot.brokers, scores, position)) / 2
                < means[row]
            ):
                skips.append(self._near_mean(unload, float(means[row]), at_limit, restless))
            else:
                score[unload.source] -= points
                unloads.append(unload)
                verdicts[row] = Reason.MOVES.code
        skips.extend(self._waiting_pairs(decision, unloads, skips))
        return Decision(tuple(unloads), tuple(skips), decision.memory, decision.comparison, verdicts)

    def _waiting_pairs(self, decision: Decision, wave: Iterable[Unload], skips: Iterable[Skip]) -> list[Skip]:
        """Skips for the pairs for which the wave moves nothing: they wait for the plan, which may wait itself."""
        served = {unload.source for unload in wave}
        first = next((skip for skip in skips if skip.reason in GOES_LATER), None)
        why = f"plan {self.rest.plan} comes first"
        if first is not None and not served:
            why = f"plan {self.rest.plan} waits after wave {self.rest.waves}: {first.detail}"
        pairs = (pair for pair in decision.comparison.pairs if pair.source not in served)
        return [Skip(pair.ends, Reason.SETTLING, why) for pair in pairs]

    @staticmethod
    def _near_mean(unload: Unload, mean: float, at_limit: Collection[str], restless: frozenset[str]) -> Skip:
        """Why the bundle of a source so near the mean waits, or stays once that is sure.

        A source at the end of its CPU hides what else it has to do; and what is ``restless`` is at the mean for a
        moment. That is not waited for where a pair of another source waits for this plan: it has more to gain.
        """
        source, near = unload.source, f"{unload.source} is near the mean, {mean:.1f} points"
        if source in at_limit:
            detail = f"{source} is at the end of its CPU, which hides what else it has to do"
            return Skip(unload.bundle, Reason.SETTLING, detail)
        if changes := restless & {source, unload.destination}:
            return Skip(unload.bundle, Reason.SETTLING, f"{near}, and {min(changes)} still changes")
        return Skip(unload.bundle, Reason.NOT_NEEDED, near)

    def _means(
        self, snapshot: Snapshot, permission: Permission, score: Mapping[str, float], unready: Collection[str]
    ) -> FloatArray:
        """The mean of the brokers that take part in each bundle's pool, in points, float64 (N,).

        A broker that is not ready counts as was expected, if that is known: it does not show what it has yet, or does
        more than that for some seconds.
        """
        expected = {broker: self.rest.expected[broker] for broker in unready if self.rest.expected[broker] < math.inf}
        points = np.array([expected.get(broker, points) for broker, points in score.items()])
        compared, limit = permission.paired == 0, snapshot.brokers.limit[:, CPU]
        means = np.full(len(snapshot.bundles), _mean(points[compared], limit[compared]))
        for pool in permission.pools:
            own = compared & pool.brokers
            means[pool.bundles] = _mean(points[own], limit[own])
        return means


def _mean(points: FloatArray, limit: FloatArray) -> float:
    """The mean of some brokers: a larger one counts as many times as it has CPU."""
    return float(np.average(points, weights=limit if (limit > 0).all() else None)) if points.size else 0.0
