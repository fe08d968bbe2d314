"""Number of brokers of the present kind that the load needs: the ``capacity:`` section, and peaks by hour. Pure.

A broker may be filled up to ``capacity.max_score`` points. Its *room* is the traffic that then fits beside its
background, of each resource that follows traffic; the *demand* is the use of all brokers together beyond their
backgrounds (``estimate.py`` separates background from traffic). The load needs as many brokers as it takes for their
rooms to hold the demand of every resource, with traffic spread evenly by lbd.

Unequal brokers: of fewer than the present number, those with the least room count, because a StatefulSet lets no
operator choose; each further one counts as the mean of the present ones, and brings their mean background.

The number is the highest need of any hour of the last day. It rises at once, and falls when the lower one was enough
for a whole day. With less than a day of history, it is no lower than the number of brokers then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from lbd.load.estimate import CPU, DRIVEN
from lbd.load.scoring import AT_LIMIT_POINTS, SCORED, percent
from lbd.model import RESOURCES
from lbd.section import Section
from lbd.text import HOUR_SECONDS, counted, duration_text, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, FloatArray, Slopes, Snapshot


class CapacitySettings(Section):
    """Fill limit of brokers at the peak of a day, for the number of brokers that lbd recommends."""

    max_score: float = Field(
        70,
        ge=10,
        le=100,
        description="Points that no broker is to exceed at the peak of the last day. lbd capacity and the metric "
        "lbd_brokers_wanted say how many brokers that takes. It moves nothing",
    )


FEWEST_BROKERS = 2
"""Lowest number: with one broker there is nothing to balance, and its restart is an outage."""

DAY_HOURS, WEEK_HOURS = 24, 168

LASTS_SECONDS = 180.0
"""Time that a load must last to count, at least two samples of CPU: a burst of reconnecting clients, or one noisy
sample, would otherwise require a broker for a day.
"""

NEARLY = 1e-9
"""Tolerance for rounding of sums."""

UNEQUAL_SHARE = 0.01
"""Share of the largest limit; machines of one kind differ by rounding only."""


@dataclass(frozen=True, eq=False)
class ClusterLoad:
    """Use of the brokers of one round, and the part of it that no traffic makes.

    ``brokers`` gave trusted reports; ``active`` is the number of all. ``used`` and ``background`` are in points of
    score, ``size`` is what a point is in the report's units, all float64 (B, R) for ``resources``. ``fixed``, float64
    (B,), are points of resources that follow no traffic. ``grounded``: a background of CPU was learned; else there is
    none, and all CPU counts as traffic's. ``saturated`` brokers may have more demand than they show.
    ``drained`` is how many of the ``active`` brokers are drained.
    """

    taken_at: float
    brokers: tuple[str, ...]
    active: int
    resources: tuple[str, ...]
    size: FloatArray
    background: FloatArray
    used: FloatArray
    fixed: FloatArray
    grounded: bool
    saturated: tuple[str, ...] = ()
    drained: int = 0

    @property
    def carried(self) -> FloatArray:
        """Use of each broker beyond its background, in the report's units, float64 (B, R)."""
        carried: FloatArray = np.maximum(self.used - self.background, 0.0) * self.size
        return carried

    @property
    def unreported(self) -> int:
        """Number of active brokers without a known load."""
        return max(self.active - len(self.brokers), 0)

    def without_background(self) -> ClusterLoad:
        """The same load, with all use counted as traffic's."""
        return replace(self, background=np.zeros_like(self.background), grounded=False)


def cluster_load(
    snapshot: Snapshot, trusted: BoolArray, active: int, slopes: Slopes | None, weights: Weights
) -> ClusterLoad | None:
    """Load of a round, of the brokers that are ``trusted``, bool (B,); None where no resource counts.

    A resource counts where it has a weight and every broker has a limit of it. A background that was not learned is the
    median of the learned ones, or 0.
    """
    brokers, rows = snapshot.brokers.as_reported(), np.flatnonzero(trusted)
    weight = weights.row()
    columns = [
        column for column in DRIVEN if weight[column] > 0 and rows.size and (brokers.limit[rows, column] > 0).all()
    ]
    if not columns:
        return None
    points = np.where(weight > 0, percent(brokers)[rows], 0.0) * weight  # resources without a weight may be infinite
    background, grounded = _backgrounds(slopes, rows, columns)
    fixed = [column for column in SCORED if column not in DRIVEN and weight[column] > 0]
    full = points[:, columns].max(axis=1) >= AT_LIMIT_POINTS
    ids = tuple(brokers.ids[row] for row in rows.tolist())
    return ClusterLoad(
        taken_at=snapshot.taken_at,
        brokers=ids,
        active=max(active, len(ids)),
        resources=tuple(RESOURCES[column] for column in columns),
        size=brokers.limit[rows][:, columns] / (100.0 * weight[columns]),
        background=background * weight[columns],
        used=points[:, columns],
        fixed=points[:, fixed].max(axis=1) if fixed else np.zeros(rows.size),
        grounded=grounded,
        saturated=tuple(broker for broker, is_full in zip(ids, full.tolist(), strict=True) if is_full),
    )


def _backgrounds(slopes: Slopes | None, brokers: Iterable[int], columns: list[int]) -> tuple[FloatArray, bool]:
    """Percent of each limit that no traffic uses, float64 (B, R), and whether that of CPU, if it counts, is learned."""
    rows = list(brokers)
    if slopes is None or slopes.background is None:
        return np.zeros((len(rows), len(columns))), CPU not in columns
    background = np.where(np.isfinite(slopes.slope), slopes.background, np.nan)[rows][:, columns]
    learned = np.isfinite(background)
    for column in range(len(columns)):
        others = background[learned[:, column], column]
        background[~learned[:, column], column] = np.median(others) if others.size else 0.0
    return np.maximum(background, 0.0), CPU not in columns or bool(learned[:, columns.index(CPU)].any())


# --- the number that a demand needs


def _typical(load: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Size and background of a broker of the present kind, float64 (R,) each: the means of the present ones."""
    size: FloatArray = load.size.mean(axis=0)
    background: FloatArray = (load.background * load.size).sum(axis=0) / load.size.sum(axis=0)
    return size, background


def _room(size: FloatArray, background: FloatArray, max_score: float) -> FloatArray:
    return np.maximum(max_score - background, 0.0) * size


def needed(demand: Mapping[str, float], load: ClusterLoad, max_score: float) -> float:
    """Number of brokers, a fraction, that hold this demand, by resource in the report's units, below ``max_score``."""
    return max(needed_by_resource(demand, load, max_score).values())


def needed_by_resource(demand: Mapping[str, float], load: ClusterLoad, max_score: float) -> dict[str, float]:
    """Number of brokers, a fraction, that each resource alone needs.

    Where background leaves no room no number is enough, and the result is the present number.
    """
    typical = _room(*_typical(load), max_score)
    rooms = np.vstack([_room(load.size, load.background, max_score), np.tile(typical, (load.unreported, 1))])
    return {
        name: _brokers(demand.get(name, 0.0), np.sort(rooms[:, column]), float(typical[column]))
        for column, name in enumerate(load.resources)
    }


def _brokers(demand: float, rooms: FloatArray, further: float) -> float:
    """Number of these rooms, float64 (A,), the smallest first, and then of ``further`` ones, that hold a demand."""
    if demand <= 0:
        return 0.0
    held = np.cumsum(rooms)
    if demand <= held[-1]:
        whole = int(np.searchsorted(held, demand))
        return whole + float((demand - (held[whole - 1] if whole else 0.0)) / rooms[whole])
    return rooms.size + (demand - float(held[-1])) / further if further > 0 else float(rooms.size)


# --- the highest score that a demand makes


def highest_score(
    demand: Mapping[str, float], load: ClusterLoad, brokers: int | None = None, without: str | None = None
) -> float:
    """Points of the most loaded broker, with this demand spread over all as evenly as their backgrounds allow.

    ``brokers`` is their number, at least all active ones (None); ``without`` names one that is away.
    """
    present = np.array([broker != without for broker in load.brokers], dtype=np.bool_)
    further = max((load.active if brokers is None else brokers) - len(load.brokers), 0)
    size, background = _typical(load)
    sizes = np.vstack([load.size[present], np.tile(size, (further, 1))])
    backgrounds = np.vstack([load.background[present], np.tile(background, (further, 1))])
    levels = [
        _level(demand.get(name, 0.0), sizes[:, column], backgrounds[:, column])
        for column, name in enumerate(load.resources)
    ]
    return max(*levels, float(backgrounds.max()), float(load.fixed[present].max(initial=0.0)))


def _level(demand: float, size: FloatArray, background: FloatArray) -> float:
    """Points at which brokers, one at least, hold a demand together; those with a higher background get none of it."""
    order = np.argsort(background)
    size, background = size[order], background[order]
    levels = (demand + np.cumsum(background * size)) / np.cumsum(size)
    return float(levels[np.argmax(levels <= np.append(background[1:], np.inf))])


# --- peaks: the highest need of each hour


@dataclass(frozen=True)
class Peak:
    """Load of an hour with the highest need. ``hour`` counts from the epoch, ``at`` is epoch seconds.

    ``needed`` brokers, a fraction, held ``demand`` (by resource, in the report's units) below ``max_score`` points;
    ``brokers`` is the highest number of active ones. ``grounded`` is that of the :class:`ClusterLoad`. ``at_least``: a
    broker was saturated, or did not report its load, so that the need may be higher.
    """

    hour: int
    at: float
    needed: float
    demand: dict[str, float]
    brokers: int
    max_score: float
    grounded: bool = True
    at_least: bool = False

    @property
    def number(self) -> int:
        """The need in whole brokers."""
        return math.ceil(self.needed - NEARLY)


@dataclass(frozen=True)
class Peaks:
    """Peaks of the hours of a week, the oldest first; ``recent`` are rounds of the last minutes, not yet counted."""

    hours: tuple[Peak, ...] = ()
    recent: tuple[Peak, ...] = field(default=(), compare=False)


def hour_of(at: float) -> int:
    """Hour of a time (epoch seconds), counted from the epoch."""
    return int(at // HOUR_SECONDS)


def with_round(peaks: Peaks, load: ClusterLoad, max_score: float) -> Peaks:
    """Peaks with one more, later round; earlier entries with a later time, from a wrong clock, are dropped.

    The lowest need within :data:`LASTS_SECONDS` counts. Hours judged by another ``max_score`` are judged anew.
    """
    now = load.taken_at
    demand = dict(zip(load.resources, load.carried.sum(axis=0).tolist(), strict=True))
    missing = bool(load.saturated or load.unreported)
    number = needed(demand, load, max_score)
    this = Peak(hour_of(now), now, number, demand, load.active, max_score, load.grounded, missing)
    before = [_judged(peak, load, max_score) for peak in peaks.recent if peak.at < now]
    older = [peak for peak in before if peak.at <= now - LASTS_SECONDS]
    window = [*(peak for peak in before if peak.at > now - LASTS_SECONDS), this]
    hours = {peak.hour: _judged(peak, load, max_score) for peak in peaks.hours}
    if older:
        lasting = min(window, key=lambda peak: peak.needed)
        last = hours.get(this.hour, replace(lasting, hour=this.hour))
        highest = lasting if lasting.needed > last.needed else last
        hours[this.hour] = replace(highest, hour=this.hour, brokers=max(last.brokers, load.active))
    week = range(this.hour - WEEK_HOURS, this.hour + 1)
    return Peaks(tuple(hours[hour] for hour in sorted(hours) if hour in week), (*older[-1:], *window))


def _judged(peak: Peak, load: ClusterLoad, max_score: float) -> Peak:
    if peak.max_score == max_score:
        return peak
    return replace(peak, needed=needed(peak.demand, _as_then(load, peak), max_score), max_score=max_score)


def _as_then(load: ClusterLoad, peak: Peak) -> ClusterLoad:
    """The load as judged then: a background unknown then is part of the demand, and must not count twice."""
    return load if peak.grounded else load.without_background()


def target_brokers(hours: Iterable[Peak], now: float, active: int) -> int:
    """Recommended number of brokers: the need of the last day, and with less history at least the number then."""
    day = [peak for peak in hours if hour_of(now) - DAY_HOURS <= peak.hour <= hour_of(now)]
    most = max((peak.number for peak in day), default=0)
    there = max((peak.brokers for peak in day), default=active) if known_hours(day, now) < DAY_HOURS else 0
    return max(most, there, FEWEST_BROKERS)


def known_hours(hours: Iterable[Peak], now: float) -> int:
    """Number of the 24 whole hours before this one that have a peak."""
    return len({peak.hour for peak in hours} & set(range(hour_of(now) - DAY_HOURS, hour_of(now))))


# --- the report


@dataclass(frozen=True)
class PeakReport:
    """Time of the highest need, ``at`` epoch seconds: ``needed`` brokers, a fraction, because of ``resource``.

    ``score`` is the predicted score of the most loaded broker then, in points. ``at_least``: it may be more.
    """

    at: float
    needed: float
    resource: str
    score: float
    at_least: bool


@dataclass(frozen=True)
class BrokerAway:
    """A broker: its ``score`` now, and the highest of the others at the day's peak ``without`` it, in points."""

    id: str
    score: float
    without: float
    can_go: bool


@dataclass(frozen=True)
class CapacityReport:
    """Recommended number of brokers, and the reason: the JSON of ``lbd capacity``. ``taken_at`` is epoch seconds.

    ``day`` and ``week`` are the peaks of the last 24 hours and seven days, None before the first is known;
    ``known_hours`` counts the hours of the 24 with a peak. ``score`` is the highest, in points, at the day's peak with
    the ``active`` brokers (``drained`` ones included), ``one_less`` and ``one_more`` with one less, whichever goes, and
    with one more. ``easiest`` is the broker without which the others have the least load, None where none can go.
    """

    taken_at: float
    active: int
    drained: int
    wanted: int
    max_score: float
    summary: str
    known_hours: int
    day: PeakReport | None
    week: PeakReport | None
    score: float | None
    one_less: float | None
    one_more: float | None
    brokers: tuple[BrokerAway, ...]
    easiest: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Capacity:
    """A round, and the peaks that include it.

    The report is made on demand: for a thousand brokers it takes most of a second.
    """

    peaks: Peaks
    load: ClusterLoad
    max_score: float

    @property
    def target_brokers(self) -> int:
        """Recommended number of brokers."""
        return target_brokers(self.peaks.hours, self.load.taken_at, self.load.active)

    @cached_property
    def report(self) -> CapacityReport:
        """The report of this round."""
        return report(self.peaks, self.load, self.max_score)


def report(peaks: Peaks, load: ClusterLoad, max_score: float) -> CapacityReport:
    """The report of a round that is part of these peaks."""
    now = load.taken_at
    number, hours = target_brokers(peaks.hours, now, load.active), known_hours(peaks.hours, now)
    top = _highest(peaks.hours, now, DAY_HOURS)
    brokers = _away(top, load, max_score, number)
    able = [row for row, broker in enumerate(brokers) if broker.can_go]
    busy = (load.used - load.background).max(axis=1)
    easiest = min(able, key=lambda row: (round(brokers[row].without, 1), float(busy[row])), default=None)
    day = _peak_report(top, load)
    return CapacityReport(
        taken_at=now,
        active=load.active,
        drained=load.drained,
        wanted=number,
        max_score=max_score,
        summary=_summary(load, number, day, hours, max_score),
        known_hours=hours,
        day=day,
        week=_peak_report(_highest(peaks.hours, now, WEEK_HOURS), load),
        score=_predicted(top, load, load.active),
        one_less=max((broker.without for broker in brokers), default=None),
        one_more=_predicted(top, load, load.active + 1),
        brokers=brokers,
        easiest=None if easiest is None else brokers[easiest].id,
        notes=tuple(_notes(load, day, max_score)),
    )


def _highest(hours: Iterable[Peak], now: float, last_hours: int) -> Peak | None:
    recent = [peak for peak in hours if hour_of(now) - last_hours <= peak.hour <= hour_of(now)]
    return max(recent, key=lambda peak: peak.needed, default=None)


def _away(top: Peak | None, load: ClusterLoad, max_score: float, number: int) -> tuple[BrokerAway, ...]:
    if top is None or load.active < FEWEST_BROKERS:
        return ()
    then = _as_then(load, top)
    away = []
    for row, broker in enumerate(load.brokers):
        highest = highest_score(top.demand, then, without=broker)
        now = max(float(load.used[row].max()), float(load.fixed[row]))
        can_go = number < load.active and highest <= max_score
        away.append(BrokerAway(broker, round(now, 1), round(highest, 1), can_go))
    return tuple(away)


def _peak_report(peak: Peak | None, load: ClusterLoad) -> PeakReport | None:
    if peak is None:
        return None
    then = _as_then(load, peak)
    each = needed_by_resource(peak.demand, then, peak.max_score)
    points = highest_score(peak.demand, then)
    return PeakReport(peak.at, round(peak.needed, 2), max(each, key=each.__getitem__), round(points, 1), peak.at_least)


def _predicted(peak: Peak | None, load: ClusterLoad, brokers: int) -> float | None:
    if peak is None:
        return None
    return round(highest_score(peak.demand, _as_then(load, peak), brokers), 1)


def _summary(load: ClusterLoad, wanted_brokers: int, day: PeakReport | None, hours: int, max_score: float) -> str:
    """One sentence; with less than a day of history, a second one."""
    drained = f" ({load.drained} of them drained)" if load.drained else ""
    are = "is" if load.active == 1 else "are"
    there = f"{counted(load.active, 'broker')} {are} active{drained}, {wanted_brokers} are wanted"
    if day is None:
        return f"{there}: nothing is known yet, the load of the first {duration_text(LASTS_SECONDS)} does not count"
    least = "at least " if day.at_least else ""
    number = f"{least}{day.needed:.1f} brokers of {max_score:g} points"
    why = f"{day.resource.replace('_', ' ')} needed {number} at {utc(day.at)}"
    if hours >= DAY_HOURS:
        few = f"; never fewer than {FEWEST_BROKERS}" if day.needed <= FEWEST_BROKERS - 1 else ""
        return f"{there}: {why}, the peak of the last day{few}"
    span = duration_text(hours * HOUR_SECONDS) if hours else "less than an hour"
    return f"{there}: {why}. History covers {span}: until it covers a day, the number never falls"


def _notes(load: ClusterLoad, day: PeakReport | None, max_score: float) -> Iterator[str]:
    """Effects that the recommended number leaves out."""
    if day is not None and day.at_least:
        yield "at the peak a broker was saturated, or did not report its load: more may be needed"
    if load.saturated:
        yield f"{load.saturated[0]} has {AT_LIMIT_POINTS:g} points or more: further work does not show in its score"
    if load.unreported:
        yield f"the load of {counted(load.unreported, 'active broker')} is not known now, and counts as none"
    if not load.grounded:
        yield (
            "the part of the CPU that no traffic makes is not learned yet, so all CPU counts as traffic's: one more"
            " broker helps less than computed"
        )
    own = np.maximum(load.background.max(axis=1), load.fixed)
    if (full := np.flatnonzero(own >= max_score)).size:
        row = int(full[0])
        yield f"{load.brokers[row]} has {own[row]:.0f} points that no traffic makes: more brokers do not lower that"
    if (np.ptp(load.size, axis=0) > UNEQUAL_SHARE * load.size.max(axis=0)).any():
        yield "the brokers are unequal: of fewer those with the least room count, of more the mean of these"
