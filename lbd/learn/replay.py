"""Replay of a window of history, closed loop: the real strategy, whose moves change what it sees afterwards. Pure.

It decides with the planner of a live turn (``turn/plan.py``). The work of a live lbd between two rounds is left out:
every unload lands at its destination before the next round. So under the settings that history was
made with, without live CPU and with every sample stored (a ``HistoryWriter`` with step 0), it makes the moves of the
live lbd, each in its round; rates stored in steps let it differ by bundles that only just fit. History has no live CPU:
with ``load.live_cpu`` the samples are taken for it, and moves come within a minute of the live ones.

Slopes are the model's from the first round on, whereas a live least-moves learns them. The planner's facts lack what
history has not: policies and properties of namespaces, Pulsar's own topics, clients that are not back, moves by others,
orders of people, rounds in vain. A canary limits what lbd does now, and is left out; a plan is made anew each time
instead of going on in waves.

Rates of bundles are as recorded, and bundles are where the replay put them. A broker's usage is as recorded, plus its
slope times the traffic that it owns beyond that (:mod:`lbd.load.estimate`): noise, neighbours and bursts stay where
they were. The same holds for the broker's own traffic totals, because brokers of the extensible manager do not report
all their bundles.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.fields import derived
from lbd.learn.window import LONGEST_SILENCE_SECONDS
from lbd.load.estimate import CPU, carried, driving, fixed_model, scores
from lbd.load.samples import MOST_SAMPLES, MOST_SECONDS, NEVER, is_much, is_of_start_up, usual
from lbd.load.scoring import scores as points_of
from lbd.model import BYTES_IN, BYTES_OUT, Averages, Brokers, LiveCpu, Memory, Rows, Snapshot
from lbd.observe.averages import LONG_SAMPLES, SHORT_SAMPLES
from lbd.permit.budget import Sent
from lbd.permit.evidence import JOINED_SECONDS, SAMPLE_INTERVAL_SECONDS, Evidence
from lbd.permit.facts import Facts
from lbd.permit.membership import Membership
from lbd.permit.policies import Groups, Policies
from lbd.permit.rules import barred_by_name, current_holds
from lbd.reason import Reason
from lbd.score.gap import gap, gaps
from lbd.score.scorecard import thrashing
from lbd.store.calibration import CalibrateSettings
from lbd.text import DAY_SECONDS, HOUR_SECONDS
from lbd.turn.learning import slopes
from lbd.turn.plan import plan
from lbd.turn.strategy_config import effective, gap_seconds, planning_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lbd.config import Settings
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, CodeArray, FloatArray, IntArray, Unload


NOBODY = -1


class ReplayCluster:
    """The cluster of a window, round by round. ``model`` knows every broker of it.

    Of each bundle, int32 (K,) into the brokers, :data:`NOBODY` for none: ``recorded``, who reported it; ``owner``, who
    has it now; ``home``, who had it last. ``clients``, int32 (K,), are its producers and consumers; a bundle without
    known clients counts as one, because a record may lack them.
    """

    def __init__(self, window: Window, model: LoadModel) -> None:
        size = len(window.bundles)
        self._window, self._model = window, model.of(window.brokers)
        self._changes = window.changes()
        self.recorded: IntArray = np.full(size, NOBODY, dtype=np.int32)
        self.owner: IntArray = self.recorded.copy()
        self.home: IntArray = self.recorded.copy()
        self.rates: FloatArray = np.zeros((size, 4), order="F")
        self.clients: IntArray = np.ones(size, dtype=np.int32)
        self.used: FloatArray = window.used[0]
        self._gained: FloatArray = np.zeros((len(window.brokers), 4))

    def go_on(self, window: Window) -> None:
        """Go on with the window that follows; it has the same brokers and bundles."""
        self._window, self._changes = window, window.changes()

    def advance(self, number: int) -> None:
        """Go on to a round: what was recorded to change has changed, but not where the replay has moved something.

        A bundle that the record has moved stays, in the replay, where it is, while that broker is there. So does one
        that nobody tells of for a while: it is on its way from broker to broker, or is not among the largest.
        """
        window, own = self._window, self._changes[number]
        bundles = window.change_bundle[own]
        self.rates[bundles] = window.change_rates[own]
        self.clients[bundles] = np.maximum(window.change_clients[own], 1)
        self.recorded[bundles] = window.change_owner[own]
        lost = (self.home == NOBODY) | ~window.present[number][self.home]
        self.home[lost] = self.recorded[lost]
        self.owner = np.where(self.recorded == NOBODY, NOBODY, self.home)
        self._gained = self._beyond()
        self.used = window.used[number] + self._slope(number) * driving(self._gained, self._model.measure)

    def follow(self, number: int) -> None:
        """Go on to a round, and to where the record has bundles."""
        self.advance(number)
        self.home = np.where(self.recorded == NOBODY, self.home, self.recorded)
        self.owner, self._gained = self.home, np.zeros_like(self._gained)

    def clients_by_broker(self) -> FloatArray:
        """Clients that each broker serves, float64 (B,)."""
        return _sums(self.owner, self.clients.astype(np.float64), len(self._window.brokers))

    def move(self, bundle: int, broker: int) -> None:
        """The replay has moved a bundle."""
        self.owner[bundle] = self.home[bundle] = broker

    def snapshot(self, number: int, names: list[str], *, live: bool = False) -> Snapshot:
        """The round as the brokers would report it; ``names`` are the window's bundles. Brokers away have no report.

        ``live``: the CPU that was sampled is known to be that of the last minute.
        """
        window = self._window
        here = np.flatnonzero(window.present[number]).astype(np.int32)
        place = np.full(len(window.brokers) + 1, NOBODY, dtype=np.int32)
        place[here] = np.arange(here.size, dtype=np.int32)
        owner = place[self.owner]
        own = np.flatnonzero(owner != NOBODY).astype(np.int32)
        order = own[np.argsort(owner[own], kind="stable")]
        start = np.concatenate(([0], np.cumsum(np.bincount(owner[own], minlength=here.size)))).astype(np.int32)
        reported = np.ones(order.size, dtype=np.bool_)
        rows = Rows(start, order, self.rates[order], np.ones((order.size, 3), dtype=np.int64), reported, reported)
        brokers = self._brokers(number, here, owner)
        if live:
            seconds, still, not_asked = (np.full(here.size, value) for value in (SAMPLE_INTERVAL_SECONDS, 0.0, np.nan))
            brokers = replace(brokers, live=LiveCpu(brokers, seconds, still, not_asked))
        return Snapshot(float(window.at[number]), brokers, names, rows)

    def _brokers(self, number: int, here: IntArray, owner: IntArray) -> Brokers:
        used, totals = self.used[here], self._window.totals[number, here] + self._gained[here]
        served = np.where(owner == NOBODY, 0, owner)
        traffic = carried(np.where((owner == NOBODY)[:, None], 0.0, self.rates), served, here.size)
        return Brokers(
            ids=tuple(self._window.brokers[index] for index in here.tolist()),
            usage=np.where(np.isnan(used), -1.0, np.clip(used, 0.0, 100.0)),
            limit=np.where(np.isnan(used), -1.0, 100.0),
            rates=np.where(np.isfinite(totals), np.maximum(totals, 0.0), traffic),
            topics=np.bincount(served[owner != NOBODY], minlength=here.size).astype(np.int64),
            started_at=self._window.started_at[number, here],
            versions=("",) * here.size,
        )

    def _slope(self, number: int) -> FloatArray:
        """The model's, float64 (B, 5): traffic takes more percent of a CPU that has shrunk."""
        slope = self._model.slope.copy()
        slope[:, CPU] /= self._window.capacity[number]
        return slope

    def _beyond(self) -> FloatArray:
        """Traffic that each broker carries beyond the recorded, float64 (B, 4)."""
        moved = np.flatnonzero(self.owner != self.recorded)
        size = len(self._window.brokers)
        if not moved.size:
            return np.zeros((size, 4))
        mine, theirs = self.owner[moved], self.recorded[moved]
        gained = carried(self.rates[moved[mine != NOBODY]], mine[mine != NOBODY], size)
        lost = carried(self.rates[moved[theirs != NOBODY]], theirs[theirs != NOBODY], size)
        return gained - lost


def recorded(stretches: Iterable[Window]) -> Iterator[Snapshot]:
    """The rounds as they were recorded, to learn from what brokers carry; ``stretches`` follow one another, with the
    same brokers and bundles.

    A bundle that no broker reports is listed where it was last. It may be missing because it is not among the largest
    there, as in a live round (:attr:`~lbd.model.Snapshot.partial`); brokers' own totals hold.
    """
    cluster: ReplayCluster | None = None
    names: list[str] = []
    for window in stretches:
        if cluster is None:
            nothing, names = np.zeros(len(window.brokers)), list(window.bundles)
            cluster = ReplayCluster(window, fixed_model(window.brokers, nothing, nothing))
        cluster.go_on(window)
        for number in range(window.at.size):
            cluster.follow(number)
            snapshot = cluster.snapshot(number, names)
            reported = cluster.recorded[snapshot.rows.bundle] != NOBODY
            yield replace(snapshot, rows=replace(snapshot.rows, reported=reported), partial=True)


# --- usual usage: the rule of a live turn (``load/samples.py``) over a window's samples
# A live turn recognizes new samples by their values and keeps each with its traffic; a window marks the new ones, and a
# replay has its slopes already. So only the newest few are kept here.

if TYPE_CHECKING:
    Sample = tuple[float, FloatArray, int]


class Latest:
    """The newest samples of each broker of a window: when, percent used, and how many came since its bundles changed.

    A broker has none while its newest sample is of its start-up or lacks a resource that is limited.
    """

    def __init__(self, window: Window) -> None:
        size = len(window.brokers)
        self._window = window
        self._before: tuple[BoolArray, FloatArray] | None = None
        self._limited: BoolArray = np.logical_or.reduce(np.isfinite(window.used), axis=0)
        self._samples: list[deque[Sample]] = [deque(maxlen=MOST_SAMPLES) for _ in range(size)]
        self._since_change: IntArray = np.full(size, NEVER, dtype=np.int32)
        self._shown: BoolArray = np.zeros(size, dtype=np.bool_)
        self._owner: IntArray = np.full(len(window.bundles), -1, dtype=np.int32)
        self._bytes: FloatArray = np.zeros(len(window.bundles))

    def go_on(self, window: Window) -> None:
        """Go on with the window that follows; it has the same brokers and bundles."""
        self._window = window
        self._limited |= np.logical_or.reduce(np.isfinite(window.used), axis=0)

    def take(self, number: int, owner: IntArray, rates: FloatArray, used: FloatArray) -> None:
        """Add a later round: owners of bundles, int32 (K,), their rates, (K, 4), and percent brokers use, (B, 5)."""
        changed, fresh = self._changed(owner, rates), self._window.fresh[number]
        self._forget_restarted(number)
        self._since_change[fresh] += 1
        self._since_change[changed] = 0
        for broker in np.flatnonzero(fresh).tolist():
            self._keep(number, broker, np.clip(used[broker], 0.0, 100.0))
        self._since_change[changed] = -1
        np.minimum(self._since_change, NEVER, out=self._since_change)
        self._before = self._window.present[number], self._window.started_at[number]

    def usual(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Percent that each broker with a report used on average lately, float64 (B, 5), and of how many samples."""
        here, since = np.flatnonzero(self._window.present[number]).tolist(), self._window.at[number] - MOST_SECONDS
        averages = [usual(self._newest(broker, since)) for broker in here]
        return np.array([used for used, _ in averages]), np.array([float(samples) for _, samples in averages])

    def _newest(self, broker: int, since: float) -> list[FloatArray]:
        if not self._shown[broker]:
            return []
        newest = takewhile(lambda sample: sample[2] > 0 and sample[0] >= since, reversed(self._samples[broker]))
        return [used for _, used, _ in newest]

    def _keep(self, number: int, broker: int, used: FloatArray) -> None:
        time = float(self._window.at[number])
        young = is_of_start_up(time - self._window.started_at[number, broker], used[CPU])
        usable = not young and bool(np.isfinite(used[self._limited[broker]]).all())
        self._shown[broker] = usable
        if usable:
            self._samples[broker].append((time, used, int(self._since_change[broker])))

    def _forget_restarted(self, number: int) -> None:
        """Forget the samples of brokers that started anew; without reported start times a broker is the same."""
        if self._before is None:
            return
        (was_present, before), now = self._before, self._window.started_at[number]
        both = was_present & self._window.present[number]
        other: BoolArray = both & (before != now) & ~(np.isnan(before) & np.isnan(now))
        for broker in np.flatnonzero(other).tolist():
            self._samples[broker].clear()
            self._since_change[broker] = NEVER

    def _changed(self, owner: IntArray, rates: FloatArray) -> BoolArray:
        """Brokers whose bundles are not those of the round before, bool (B,); a change of few bytes does not count."""
        size, carried = len(self._samples), rates[:, BYTES_IN] + rates[:, BYTES_OUT]
        was, carried_then = self._owner, self._bytes
        self._owner, self._bytes = owner.copy(), carried
        moved = np.flatnonzero(owner != was)
        if self._before is None or not moved.size:
            return np.zeros(size, dtype=np.bool_)
        came, gone = _sums(owner[moved], carried[moved], size), _sums(was[moved], carried_then[moved], size)
        before, now = _sums(was, carried_then, size), _sums(owner, carried, size)
        changed: BoolArray = is_much(came + gone, before, now) & self._before[0]
        return changed


def _sums(owner: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sum over each broker's bundles, float64 (B,); owner -1 is nobody."""
    sums: FloatArray = np.bincount(owner + 1, values, size + 1)[1:].astype(np.float64)
    return sums


# --- closed loop

SETTLED_AFTER = 2
"""A broker that a move touched counts again with its second new sample after the round that saw the move end, or with
the first where its CPU of now is known: half a minute of that is enough."""


@dataclass(frozen=True, eq=False)
class Course:
    """Result of a replay: ``at`` float64 (T,), ``points`` float64 (T, B), NaN of brokers away, and its moves.

    ``bundles`` is how many there were, ``clients``, float64 (T, B), how many each broker served, and ``disconnected``,
    int32 (M,), those of each move.
    """

    at: FloatArray
    points: FloatArray
    moves: tuple[Sent, ...]
    bundles: int
    clients: FloatArray
    disconnected: IntArray

    def since(self, at: float, until: float = np.inf) -> Course:
        """The part from then on, and before ``until``, in epoch seconds."""
        first, end = np.searchsorted(self.at, (at, until)).tolist()
        times = [move.at for move in self.moves]
        begin, last = bisect_left(times, at), bisect_left(times, until)
        rounds, moved = slice(first, end), slice(begin, last)
        return Course(
            self.at[rounds],
            self.points[rounds],
            self.moves[moved],
            self.bundles,
            self.clients[rounds],
            self.disconnected[moved],
        )


class _Replay:
    """One trajectory: from the placement that is recorded first, over windows that follow one another."""

    def __init__(self, window: Window, settings: Settings, model: LoadModel) -> None:
        self._window, self._settings = window, settings
        self._cluster, self._model = ReplayCluster(window, model), model
        self._latest = Latest(window) if effective(settings).wants_slopes else None
        self._planning = replace(planning_of(settings), guardrails=settings.guardrails.without_canary)
        self._memory = Memory()
        self._before: tuple[float, BoolArray] | None = None
        self._at: list[FloatArray] = []
        self._points: list[FloatArray] = []
        self._clients: list[FloatArray] = []
        self._disconnected: list[int] = []
        self._names = list(window.bundles)
        size = len(self._names)
        self._index = {name: index for index, name in enumerate(self._names)}
        self._short, self._long = (np.zeros((size, 4), order="F") for _ in range(2))
        self._samples: IntArray = np.zeros(size, dtype=np.int32)
        self._live = settings.asks_live_cpu
        self._settled_after = 1 if self._live else SETTLED_AFTER
        self._since_touched: IntArray = np.full(len(window.brokers), SETTLED_AFTER, dtype=np.int32)
        self._joined_at, self._members = np.full(len(window.brokers), -np.inf), Membership()
        self._ending: list[int] = []
        self._sent: list[Sent] = []
        self._barred_by_name: CodeArray | None = None
        self._calm_below = _idle_gap(settings)
        self._groups = Groups(frozenset(name.rpartition("/")[0] for name in self._names))

    @property
    def course(self) -> Course:
        """The course so far."""
        return Course(
            np.concatenate(self._at),
            np.concatenate(self._points),
            tuple(self._sent),
            len(self._names),
            np.concatenate(self._clients),
            np.array(self._disconnected, dtype=np.int32),
        )

    def run(self, window: Window) -> None:
        """Go on over a window, later than those before, with the same brokers and bundles."""
        self._window = window
        self._cluster.go_on(window)
        if self._latest is not None:
            self._latest.go_on(window)
        points, most_seconds = np.full(window.present.shape, np.nan), gap_seconds(self._settings)
        clients = np.zeros(window.present.shape)
        for number in range(window.at.size):
            self._cluster.advance(number)
            if self._before is not None and window.at[number] - self._before[0] > most_seconds:
                self._memory = Memory()
            self._learn(number)
            self._see_who_came(number)
            here = window.present[number]
            clients[number] = self._cluster.clients_by_broker()
            points[number, here] = scores(self._cluster.used, self._settings.weights)[here]
            if window.fresh[number].any():
                self._decide(number, gap(points[number, here]))
            self._before = float(window.at[number]), here
        self._at.append(window.at)
        self._points.append(np.clip(points, 0.0, 100.0))
        self._clients.append(clients)

    def _learn(self, number: int) -> None:
        """Averages as the live ones: one sample for each new one of a bundle's broker."""
        owner, fresh = self._cluster.owner, self._window.fresh[number]
        if self._latest is not None:
            self._latest.take(number, owner, self._cluster.rates, self._cluster.used)
        sampled = (owner >= 0) & fresh[owner]
        np.minimum(self._samples + sampled, LONG_SAMPLES, out=self._samples)
        for mean, most in ((self._short, SHORT_SAMPLES), (self._long, LONG_SAMPLES)):
            # divided by infinity where there is no sample: several times as fast as to pick those that have one
            n = np.where(sampled, np.minimum(self._samples, most), np.inf)
            mean[:] += (self._cluster.rates - mean) / n[:, None]
        self._since_touched += fresh
        self._since_touched[self._ending] = 0
        self._ending = []

    def _see_who_came(self, number: int) -> None:
        """Brokers that joined settle, and take bundles without hits unless one left within the hour, as live."""
        here, now = self._window.present[number], self._window.at[number]
        was = self._before[1] if self._before is not None else np.zeros_like(here)
        if np.array_equal(was, here):
            return
        self._members = self._members.updated(self._active(number), float(now))
        if self._before is not None:
            came = here & ~was & (now - self._window.started_at[number] < JOINED_SECONDS)
            self._joined_at[came], self._since_touched[came] = now, 0

    def _active(self, number: int) -> tuple[str, ...]:
        return tuple(self._window.brokers[at] for at in np.flatnonzero(self._window.present[number]).tolist())

    def _decide(self, number: int, gap: float) -> None:
        """Ask the strategy, unless the gap is below all that it minds: then its counters begin anew, as they would."""
        if gap < self._calm_below:
            self._memory = Memory()
            return
        case = self._planning.case(self._facts(number))
        if self._barred_by_name is None:
            self._barred_by_name = barred_by_name(case)
        planned = plan(self._planning, case, tuple(current_holds(case)), by_name=self._barred_by_name)
        self._memory = planned.memory
        self._act(case.facts.now, planned.unloads)

    def _facts(self, number: int) -> Facts:
        """The facts of a turn, as far as history has them. Scores show at once what has moved."""
        snapshot = self._cluster.snapshot(number, self._names, live=self._live)
        here = np.flatnonzero(self._window.present[number])
        fresh, settled = self._window.fresh[number, here], self._since_touched[here] >= self._settled_after
        joined = self._live & (snapshot.taken_at - self._joined_at[here] < JOINED_SECONDS)
        doubt = np.where(self._window.doubted[number, here] & ~joined, Reason.FIRST_SAMPLE.code, 0).astype(np.int8)
        points = points_of(snapshot.brokers, self._settings.weights)
        self._members = members = self._members.updated(snapshot.brokers.ids, snapshot.taken_at)
        return Facts(
            snapshot,
            Averages(self._names, self._short, self._long, self._samples),
            Evidence({}, fresh, fresh & settled, doubt, settled, points),
            Policies(groups=self._groups, active=snapshot.brokers.ids),
            members=members,
            memory=self._memory,
            attempted_at={move.bundle: move.at for move in self._sent},
            sent=[move for move in self._sent if move.at > snapshot.taken_at - DAY_SECONDS],
            slopes=slopes(self._model, snapshot, self._latest.usual(number)) if self._latest is not None else None,
            joined=frozenset() if members.departures else frozenset(snapshot.brokers.ids_where(joined)),
        )

    def _act(self, now: float, unloads: tuple[Unload, ...]) -> None:
        position = {broker: index for index, broker in enumerate(self._window.brokers)}
        for unload in unloads:
            assert unload.destination is not None
            self._disconnected.append(int(self._cluster.clients[self._index[unload.bundle]]))
            self._cluster.move(self._index[unload.bundle], position[unload.destination])
            self._sent.append(derived(Sent, unload, at=now))
            self._ending += [position[unload.source], position[unload.destination]]


def _idle_gap(settings: Settings) -> float:
    """The gap below which no counter of the strategy goes up: all are then at nought, and it need not be asked.

    Nought for all but AvgShedder: least-moves goes by the mean of the latest samples, which stays apart for a while.
    """
    chosen = effective(settings)
    return chosen.low_threshold if isinstance(chosen, AvgShedderSettings) else 0.0


def replay(window: Window, settings: Settings, model: LoadModel) -> Course:
    """The course of this window under these settings: the moves of lbd, and the scores that brokers would have had."""
    (course,) = replays([window], [settings], model)
    return course


def replays(stretches: Iterable[Window], tried: Sequence[Settings], model: LoadModel) -> list[Course]:
    """The course under each of these settings, in one go over windows that follow one another. No two of these need be
    in memory together; they have the same brokers and bundles.
    """
    running: list[_Replay] = []
    for window in stretches:
        running = running or [_Replay(window, settings, model) for settings in tried]
        for trajectory in running:
            trajectory.run(window)
    return [trajectory.course for trajectory in running]


def as_recorded(window: Window, weights: Weights) -> FloatArray:
    """Recorded scores, float64 (T, B), NaN where a broker was away."""
    points = np.array([scores(used, weights) for used in window.used]).reshape(window.present.shape)
    return np.where(window.present, points, np.nan)


# --- figures of a replay, by which settings are chosen

STRETCH_SECONDS = 600.0
"""Gaps are between means of ten minutes: the range of single samples of twelve brokers is three deviations of their
noise wherever the bundles are, and no settings mend that."""


@dataclass(frozen=True)
class Figures:
    """One replay, or several pooled. Gaps are between the highest and the lowest mean score of ten minutes
    (:data:`STRETCH_SECONDS`), in points, over the rounds of the window.

    ``days`` is the time that was seen: of a silence only its beginning counts. ``worst_hour_gap`` is the
    largest mean of an hour. ``minutes_over`` is how long the gap was at or above the present low threshold,
    ``minutes_over_high`` at or above the high one.
    ``moved_twice`` are bundles moved more than once, of ``bundles`` in all. ``thrashing`` is a fraction
    (:func:`lbd.score.scorecard.thrashing`). ``replays`` are how many these figures are of; gaps are then means of those
    of each replay, weighed by its time.

    Client-minutes are minutes times producers and consumers. ``lost_minutes`` are those without a connection, of the
    clients of moved bundles until they are back; ``hot_minutes`` those on overloaded brokers, which are at least as far
    above the lowest as the high threshold; and ``cost_minutes`` is what both amount to (:class:`Scale`).
    """

    days: float
    moves: int
    bundles: int
    mean_gap: float
    p95_gap: float
    worst_hour_gap: float
    minutes_over: float
    minutes_over_high: float
    moved_twice: int
    thrashing: float
    lost_minutes: float = 0.0
    hot_minutes: float = 0.0
    cost_minutes: float = 0.0
    replays: int = 1


RECONNECT_SECONDS = 2.0
"""Time until the clients of a moved bundle are back, where no move of the history was measured."""


@dataclass(frozen=True)
class Scale:
    """The scale that replays are measured by. Brokers count as far apart from ``low`` and ``high`` points on, which are
    the thresholds of the present settings. The clients of a moved bundle are back after ``reconnect_seconds``.
    ``overload_minutes`` on an overloaded broker weigh as much as one minute without a connection
    (``calibrate.overload_minutes``).
    """

    low: float
    high: float
    reconnect_seconds: float = RECONNECT_SECONDS
    overload_minutes: float = CalibrateSettings().overload_minutes


def figures(course: Course, scale: Scale) -> Figures:
    """The figures of a replay."""
    moved = Counter(move.bundle for move in course.moves)
    lost = float(course.disconnected.sum()) * scale.reconnect_seconds / 60
    hot = _hot_minutes(course, scale.high)
    return Figures(
        moves=len(course.moves),
        bundles=course.bundles,
        moved_twice=sum(number > 1 for number in moved.values()),
        lost_minutes=lost,
        hot_minutes=hot,
        cost_minutes=lost + hot / scale.overload_minutes,
        replays=1,
        **gap_figures(course.at, course.points, scale),
    )


def _hot_minutes(course: Course, high: float) -> float:
    """Client-minutes on brokers that are at least ``high`` points above the lowest."""
    comparable = np.isfinite(course.points).sum(axis=1) > 1
    times, points = course.at[comparable], course.points[comparable]
    if not times.size:
        return 0.0
    means, stretch = stretch_means(times, points, STRETCH_SECONDS)
    hot = np.nan_to_num(means - np.nanmin(means, axis=1, keepdims=True)) >= high
    clients = np.where(hot[stretch], course.clients[comparable], 0.0).sum(axis=1)
    return float((clients * _lasts(times)).sum()) / 60


def _lasts(times: FloatArray) -> FloatArray:
    """Seconds that each round lasts; of a silence only its beginning counts."""
    lasts: FloatArray = np.minimum(np.diff(times, append=times[-1]), LONGEST_SILENCE_SECONDS)
    return lasts


_OF_GAPS = ("days", "mean_gap", "p95_gap", "worst_hour_gap", "minutes_over", "minutes_over_high", "thrashing")


def gap_figures(times: FloatArray, points: FloatArray, scale: Scale) -> dict[str, float]:
    """The figures that follow from scores alone."""
    comparable = np.isfinite(points).sum(axis=1) > 1
    times, points = times[comparable], points[comparable]
    if not times.size:
        return dict.fromkeys(_OF_GAPS, 0.0)
    means, stretch = stretch_means(times, points, STRETCH_SECONDS)
    gap = gaps(means)[stretch]
    lasts = _lasts(times)
    hours = ((times - times[0]) // HOUR_SECONDS).astype(np.int64)
    hourly = np.bincount(hours, gap) / np.maximum(np.bincount(hours), 1)
    return {
        "days": float(lasts.sum()) / DAY_SECONDS,
        "mean_gap": float(gap.mean()),
        "p95_gap": float(np.quantile(gap, 0.95)),
        "worst_hour_gap": float(hourly.max()),
        "minutes_over": float(lasts[gap >= scale.low].sum()) / 60,
        "minutes_over_high": float(lasts[gap >= scale.high].sum()) / 60,
        "thrashing": thrashing(means) if len(means) > 1 else 0.0,
    }


def stretch_means(at: FloatArray, points: FloatArray, seconds: float) -> tuple[FloatArray, NDArray[np.int64]]:
    """Mean scores of each stretch of ``seconds``, (S, B), NaN of brokers away; and each round's stretch, (T,)."""
    number = ((at - at[0]) // seconds).astype(np.int64)
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    present = np.isfinite(points)
    total = np.add.reduceat(np.where(present, points, 0.0), begins, axis=0)
    count = np.add.reduceat(present.astype(np.int64), begins, axis=0)
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means, np.searchsorted(begins, np.arange(at.size), side="right") - 1


def pooled(windows: Sequence[Figures]) -> Figures:
    """Several windows as one: times and moves added up, gaps weighed by their time, the worst of the worst."""
    weights = np.array([max(window.days, 1e-9) for window in windows])
    gaps_of = ([window.mean_gap for window in windows], [window.p95_gap for window in windows])
    mean, p95 = (float(np.average(values, weights=weights)) for values in gaps_of)
    return Figures(
        days=sum(window.days for window in windows),
        moves=sum(window.moves for window in windows),
        bundles=max(window.bundles for window in windows),
        mean_gap=mean,
        p95_gap=p95,
        worst_hour_gap=max(window.worst_hour_gap for window in windows),
        minutes_over=sum(window.minutes_over for window in windows),
        minutes_over_high=sum(window.minutes_over_high for window in windows),
        moved_twice=sum(window.moved_twice for window in windows),
        thrashing=max(window.thrashing for window in windows),
        lost_minutes=sum(window.lost_minutes for window in windows),
        hot_minutes=sum(window.hot_minutes for window in windows),
        cost_minutes=sum(window.cost_minutes for window in windows),
        replays=sum(window.replays for window in windows),
    )
