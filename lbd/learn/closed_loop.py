"""The real deciding over a window of history, closed loop: what it moves changes what it sees afterwards. Pure.

It decides with the strategy, the limits and the evidence rules of a live turn. What a live lbd does between two rounds
is left out: every unload lands where it should, before the next round. So under the settings that history was made
with, and with every sample stored (``history.step: 0``), it makes the moves of the live lbd, each in its round; rates
stored in steps let it differ by bundles that only just fit. Slopes are the model's from the first round on, where a
live least-moves learns them. Isolation policies, anti-affinity groups and move costs are not in history, and count for
nothing; nor does who else moved a bundle. Nothing holds a replay: neither quiet hours, brokers that came or went, nor
rounds in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.cycle.asking import ROUNDS, sent_back
from lbd.cycle.capped import memory_after
from lbd.cycle.chosen import effective, gap_seconds, strategy_of
from lbd.cycle.learning import slopes
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.decide.least_moves.settings import LeastMovesSettings
from lbd.learn.cluster import Cluster
from lbd.learn.latest import Latest
from lbd.load.linear import scores
from lbd.load.scoring import scores as points_of
from lbd.model import Averages, Memory, Permission
from lbd.observe.averages import LONG_SAMPLES, SHORT_SAMPLES
from lbd.permit.budget import DAY_SECONDS, Sent
from lbd.permit.eligibility import bar_more, barred
from lbd.permit.limits import Ledger, Permitted, permit
from lbd.permit.ping_pong import Trips
from lbd.permit.policies import Groups, Isolation, Policies
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.config import Settings
    from lbd.learn.window import Window
    from lbd.load.linear import LoadModel
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, CodeArray, Decision, FloatArray, IntArray, Snapshot, Unload

SETTLED_AFTER = 2
"""A broker that a move touched counts again with its second new sample after the round that saw the move end."""


@dataclass(frozen=True, eq=False)
class Course:
    """What a replay came to: ``at`` float64 (T,), ``points`` float64 (T, B), NaN of brokers away, and its moves.

    ``bundles`` is how many there were.
    """

    at: FloatArray
    points: FloatArray
    moves: tuple[Sent, ...]
    bundles: int

    def since(self, at: float) -> Course:
        """What came of it from then on, in epoch seconds."""
        first = int(np.searchsorted(self.at, at))
        moves = tuple(one for one in self.moves if one.at >= at)
        return Course(self.at[first:], self.points[first:], moves, self.bundles)


class _Replay:
    def __init__(self, window: Window, settings: Settings, model: LoadModel) -> None:
        self._window, self._settings = window, settings
        self._cluster, self._model = Cluster(window, model), model
        self._latest = Latest(window) if effective(settings).wants_slopes else None
        self._strategy, self._memory = strategy_of(settings), Memory()
        self._names = list(window.bundles)
        size = len(self._names)
        self._index = {name: at for at, name in enumerate(self._names)}
        self._short, self._long = np.zeros((size, 4)), np.zeros((size, 4))
        self._samples: IntArray = np.zeros(size, dtype=np.int32)
        self._since_touched: IntArray = np.full(len(window.brokers), SETTLED_AFTER, dtype=np.int32)
        self._ending: list[int] = []
        self._sent: list[Sent] = []
        self._barred: CodeArray | None = None
        self._calm_below = _calm_below(settings)
        self._groups = Groups(frozenset(name.rpartition("/")[0] for name in self._names))

    def run(self) -> Course:
        points = np.full(self._window.present.shape, np.nan)
        silent = np.diff(self._window.at, prepend=self._window.at[:1]) > gap_seconds(self._settings)
        for number in range(self._window.at.size):
            self._cluster.advance(number)
            if silent[number]:
                self._memory = Memory()
            self._learn(number)
            here = self._window.present[number]
            points[number, here] = scores(self._cluster.used, self._settings.weights)[here]
            if self._window.fresh[number].any():
                self._decide(number, float(np.ptp(points[number, here])) if here.sum() > 1 else 0.0)
        return Course(self._window.at, np.clip(points, 0.0, 100.0), tuple(self._sent), len(self._names))

    def _learn(self, number: int) -> None:
        """Averages as the live ones: one sample for each new one of a bundle's broker."""
        owner, fresh = self._cluster.owner, self._window.fresh[number]
        if self._latest is not None:
            self._latest.take(number, owner, self._cluster.rates, self._cluster.used)
        told = (owner >= 0) & fresh[owner]
        # where all of them have a sample, as often, slices are several times as fast as positions
        taken = slice(None) if told.all() else np.flatnonzero(told)
        count = self._samples[taken] = np.minimum(self._samples[taken] + 1, LONG_SAMPLES)
        rates = self._cluster.rates[taken]
        for mean, most in ((self._short, SHORT_SAMPLES), (self._long, LONG_SAMPLES)):
            n = np.minimum(count, most).astype(np.float64)[:, None]
            mean[taken] += (rates - mean[taken]) / n
        self._since_touched += fresh
        self._since_touched[self._ending] = 0
        self._ending = []

    def _decide(self, number: int, gap: float) -> None:
        """Ask the strategy, unless the gap is below all that it minds: then its counters begin anew, as they would."""
        if gap < self._calm_below:
            self._memory = Memory()
            return
        snapshot = self._cluster.snapshot(number, self._names)
        lately = [one for one in self._sent if one.at > snapshot.taken_at - DAY_SECONDS]
        trips = Trips(lately, snapshot.taken_at, self._settings.guardrails)
        permission = self._permission(number, snapshot, trips)
        decision = self._asked(snapshot, permission, trips)
        permitted = self._permitted(snapshot, decision, permission, lately)
        self._memory = memory_after(self._memory, decision, permitted)
        self._act(snapshot.taken_at, permitted.unloads)

    def _asked(self, snapshot: Snapshot, permission: Permission, trips: Trips) -> Decision:
        """Asked again with what it would send straight back barred, as in a live turn."""
        averages = Averages(self._names, self._short, self._long, self._samples)
        for _ in range(ROUNDS):
            decision = self._strategy(snapshot, averages, permission, self._memory)
            back = sent_back(snapshot, decision, trips) if decision.unloads else {}
            if not back:
                break
            permission = replace(permission, barred=bar_more(permission.barred, snapshot, back))
        return decision

    def _permission(self, number: int, snapshot: Snapshot, trips: Trips) -> Permission:
        here = np.flatnonzero(self._window.present[number])
        fresh, settled = self._window.fresh[number, here], self._since_touched[here] >= SETTLED_AFTER
        doubt = np.where(self._window.doubted[number, here], Reason.FIRST_SAMPLE.code, 0).astype(np.int8)
        known = slopes(self._model, snapshot, self._latest.usual(number)) if self._latest is not None else None
        bars = self._bars(snapshot, doubt == 0, trips)
        return Permission(
            bars,
            counts=fresh & settled,
            paired=doubt,
            settled=settled,
            slopes=known,
            max_destination_score=self._settings.guardrails.max_destination_score,
        )

    def _bars(self, snapshot: Snapshot, compared: BoolArray, trips: Trips) -> CodeArray:
        """What may not move at all, and what moved lately while others can go instead: as in a live turn."""
        if self._barred is None:
            self._barred = barred(snapshot, {}, Isolation(), self._settings.guardrails)
        found, since = self._barred.copy(), snapshot.taken_at - self._settings.guardrails.cool_down_minutes * 60
        cooling = [one.bundle for one in self._sent if one.at >= since]
        self._bar(found, trips.tired, Reason.PING_PONG)
        self._bar(found, cooling, Reason.COOL_DOWN)
        points, able = points_of(snapshot.brokers, self._settings.weights), np.isin(found, (0, Reason.COOL_DOWN.code))
        self._bar(found, trips.moved(snapshot, points, compared, able), Reason.PING_PONG)
        return found

    def _bar(self, codes: CodeArray, bundles: Iterable[str], reason: Reason) -> None:
        codes[[self._index[bundle] for bundle in bundles]] = reason.code

    def _permitted(self, snapshot: Snapshot, decision: Decision, permission: Permission, sent: list[Sent]) -> Permitted:
        plan, points = decision.unloads, decision.facts.scores
        if not plan:
            return Permitted((), ())
        policies = Policies(groups=self._groups, active=snapshot.brokers.ids)
        rails, weights = self._settings.guardrails, self._settings.weights
        ledger = Ledger(snapshot, points, policies, rails, plan, sent=sent, permission=permission, weights=weights)
        return permit(plan, ledger)

    def _act(self, now: float, unloads: tuple[Unload, ...]) -> None:
        position = {broker: at for at, broker in enumerate(self._window.brokers)}
        for one in unloads:
            assert one.destination is not None
            self._cluster.move(self._index[one.bundle], position[one.destination])
            ends = (one.source, one.destination)
            self._sent.append(Sent(now, one.bundle, *ends, 1, one.msg_rate, one.throughput))
            self._ending += [position[end] for end in ends]


def _calm_below(settings: Settings) -> float:
    """The gap below which no counter goes up: all are then at nought, and the strategy need not be asked. The level
    that least-moves looks at lies between the lowest and the highest, so none is further from it than they are apart.
    """
    chosen = effective(settings)
    return chosen.low_threshold if isinstance(chosen, AvgShedderSettings | LeastMovesSettings) else 0.0


def replay(window: Window, settings: Settings, model: LoadModel) -> Course:
    """What lbd would have done in this window under these settings, and how even the brokers would have been."""
    return _Replay(window, settings, model).run()


def as_recorded(window: Window, weights: Weights) -> FloatArray:
    """Scores that were really seen, float64 (T, B), NaN of brokers away."""
    found = np.array([scores(used, weights) for used in window.used]).reshape(window.present.shape)
    return np.where(window.present, found, np.nan)
