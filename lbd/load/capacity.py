"""How many brokers of the present kind the load needs: the ``capacity:`` section, peaks by hour, and the number. Pure.

A broker may be filled up to ``capacity.max_score`` points. Its *room* is the traffic that then fits beside its
background, of each resource that follows traffic; the *demand* is what all brokers together use beyond their
backgrounds (``estimate.py`` tells background from traffic). As many brokers are needed as it takes for their rooms to
hold the demand of every resource, with traffic spread evenly, which is what lbd is there for.

Unequal brokers: of fewer than there are, those with the least room count, because a StatefulSet does not ask which one
is to go; each further one counts as the mean of those that are there, and brings their mean background.

The number is steady by what it is made of: the most that any hour of the last day needed. It rises at once, and falls
when the lower one was enough for a whole day. While less than that is known, it is no lower than what was there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from lbd.load.estimate import CPU, DRIVEN
from lbd.load.scoring import AT_LIMIT_POINTS, SCORED, percent
from lbd.model import RESOURCES
from lbd.text import HOUR_SECONDS, counted, duration_text, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, FloatArray, Slopes, Snapshot


class CapacitySettings(BaseModel):
    """How full brokers may be at the peak of a day, for the number of brokers that lbd wants."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_score: float = Field(
        70,
        ge=10,
        le=100,
        description="Points that no broker is to exceed at the peak of the last day. lbd capacity and the metric "
        "lbd_brokers_wanted say how many brokers that takes. It moves nothing",
    )


FEWEST_BROKERS = 2
"""Never fewer are wanted: with one broker there is nothing to balance, and its restart is an outage."""

DAY_HOURS, WEEK_HOURS = 24, 168

LASTS_SECONDS = 180.0
"""A load counts once it has lasted so long, which is two samples of CPU at least: a burst of reconnecting clients, or
one noisy sample, would otherwise want a broker for a day."""

NEARLY = 1e-9
"""Rounding of sums is no broker."""

UNEQUAL_SHARE = 0.01
"""Of the largest limit; machines of one kind differ by rounding only."""


@dataclass(frozen=True, eq=False)
class ClusterLoad:
    """What the brokers of one round use, and what of it is no traffic's.

    ``brokers`` gave reports that are trusted; ``active`` is how many there are. ``used`` and ``background`` are in
    points of score, ``size`` is what a point is in the report's units, all float64 (B, R) for ``resources``.
    ``fixed``, float64 (B,), are points of resources that follow no traffic. ``grounded``: a background of CPU was
    learned; else there is none, and all CPU counts as traffic's. ``saturated`` brokers may have had more to do.
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

    @property
    def carried(self) -> FloatArray:
        """What each broker uses beyond its background, in the report's units, float64 (B, R)."""
        carried: FloatArray = np.maximum(self.used - self.background, 0.0) * self.size
        return carried

    @property
    def untold(self) -> int:
        """Active brokers whose load is not known."""
        return max(self.active - len(self.brokers), 0)

    def without_background(self) -> ClusterLoad:
        """The same where all that brokers use counts as traffic's."""
        return replace(self, background=np.zeros_like(self.background), grounded=False)


def cluster_load(
    snapshot: Snapshot, trusted: BoolArray, active: int, known: Slopes | None, weights: Weights
) -> ClusterLoad | None:
    """The load of a round, of the brokers that are ``trusted``, bool (B,); None where no resource counts.

    A resource counts where it has a weight and every broker knows its limit. Where a background was not learned, the
    median of the others' counts, and none where nobody's was.
    """
    brokers, rows = snapshot.brokers.as_reported(), np.flatnonzero(trusted)
    weight = weights.row()
    columns = [at for at in DRIVEN if weight[at] > 0 and rows.size and (brokers.limit[rows, at] > 0).all()]
    if not columns:
        return None
    points = np.where(weight > 0, percent(brokers)[rows], 0.0) * weight  # what does not count may be infinite
    background, grounded = _backgrounds(known, rows, columns)
    fixed = [at for at in SCORED if at not in DRIVEN and weight[at] > 0]
    full = points[:, columns].max(axis=1) >= AT_LIMIT_POINTS
    ids = tuple(brokers.ids[row] for row in rows.tolist())
    return ClusterLoad(
        taken_at=snapshot.taken_at,
        brokers=ids,
        active=max(active, len(ids)),
        resources=tuple(RESOURCES[at] for at in columns),
        size=brokers.limit[rows][:, columns] / (100.0 * weight[columns]),
        background=background * weight[columns],
        used=points[:, columns],
        fixed=points[:, fixed].max(axis=1) if fixed else np.zeros(rows.size),
        grounded=grounded,
        saturated=tuple(one for one, is_full in zip(ids, full.tolist(), strict=True) if is_full),
    )


def _backgrounds(known: Slopes | None, rows: Iterable[int], columns: list[int]) -> tuple[FloatArray, bool]:
    """Percent of each limit that no traffic uses, float64 (B, R), and whether that of CPU, if it counts, is learned."""
    at = list(rows)
    if known is None or known.background is None:
        return np.zeros((len(at), len(columns))), CPU not in columns
    background = np.where(np.isfinite(known.slope), known.background, np.nan)[at][:, columns]
    learned = np.isfinite(background)
    for column in range(len(columns)):
        others = background[learned[:, column], column]
        background[~learned[:, column], column] = np.median(others) if others.size else 0.0
    return np.maximum(background, 0.0), CPU not in columns or bool(learned[:, columns.index(CPU)].any())


# --- the number that a demand needs


def _typical(load: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Size and background of a broker of the present kind, float64 (R,) each: the means of those that are there."""
    size: FloatArray = load.size.mean(axis=0)
    background: FloatArray = (load.background * load.size).sum(axis=0) / load.size.sum(axis=0)
    return size, background


def _room(size: FloatArray, background: FloatArray, max_score: float) -> FloatArray:
    return np.maximum(max_score - background, 0.0) * size


def needed(demand: Mapping[str, float], load: ClusterLoad, max_score: float) -> float:
    """How many brokers hold this demand, by resource in the report's units, below so many points; a fraction."""
    return max(needed_by_resource(demand, load, max_score).values())


def needed_by_resource(demand: Mapping[str, float], load: ClusterLoad, max_score: float) -> dict[str, float]:
    """The same for each resource alone.

    Where background leaves no room no number is enough, and the answer is how many there are.
    """
    typical = _room(*_typical(load), max_score)
    rooms = np.vstack([_room(load.size, load.background, max_score), np.tile(typical, (load.untold, 1))])
    return {
        name: _brokers(demand.get(name, 0.0), np.sort(rooms[:, at]), float(typical[at]))
        for at, name in enumerate(load.resources)
    }


def _brokers(demand: float, rooms: FloatArray, further: float) -> float:
    """How many of these rooms, float64 (A,), the smallest first, and then of ``further`` ones, hold a demand."""
    if demand <= 0:
        return 0.0
    held = np.cumsum(rooms)
    if demand <= held[-1]:
        at = int(np.searchsorted(held, demand))
        return at + float((demand - (held[at - 1] if at else 0.0)) / rooms[at])
    return rooms.size + (demand - float(held[-1])) / further if further > 0 else float(rooms.size)


# --- the highest score that a demand makes


def highest_score(
    demand: Mapping[str, float], load: ClusterLoad, brokers: int | None = None, without: str | None = None
) -> float:
    """Points of the most loaded broker, with this demand spread over all as evenly as their backgrounds allow.

    ``brokers`` is how many there are, at least as many as are active (None); ``without`` names one that is away.
    """
    present = np.array([one != without for one in load.brokers], dtype=np.bool_)
    further = max((load.active if brokers is None else brokers) - len(load.brokers), 0)
    size, background = _typical(load)
    sizes = np.vstack([load.size[present], np.tile(size, (further, 1))])
    backgrounds = np.vstack([load.background[present], np.tile(background, (further, 1))])
    levels = [_level(demand.get(name, 0.0), sizes[:, at], backgrounds[:, at]) for at, name in enumerate(load.resources)]
    return max(*levels, float(backgrounds.max()), float(load.fixed[present].max(initial=0.0)))


def _level(demand: float, size: FloatArray, background: FloatArray) -> float:
    """Points at which brokers, one at least, hold a demand together: those with a higher background get nothing."""
    order = np.argsort(background)
    size, background = size[order], background[order]
    levels = (demand + np.cumsum(background * size)) / np.cumsum(size)
    return float(levels[np.argmax(levels <= np.append(background[1:], np.inf))])


# --- peaks: the most that was needed in each hour


@dataclass(frozen=True)
class Peak:
    """The load of an hour that needed most. ``hour`` counts from the epoch, ``at`` is epoch seconds.

    ``needed`` brokers, a fraction, held ``demand`` (by resource, in the report's units) below ``max_score`` points;
    ``brokers`` is how many were active at most. ``grounded`` is that of the :class:`ClusterLoad`. ``at_least``: a
    broker was saturated, or did not report its load, so that more may have been needed.
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
        """Whole brokers."""
        return math.ceil(self.needed - NEARLY)


@dataclass(frozen=True)
class Peaks:
    """Peaks of the hours of a week, the oldest first; ``recent`` are rounds of the last minutes, not counted yet."""

    hours: tuple[Peak, ...] = ()
    recent: tuple[Peak, ...] = field(default=(), compare=False)


def hour_of(at: float) -> int:
    """The hour of a moment (epoch seconds), counted from the epoch."""
    return int(at // HOUR_SECONDS)


def with_round(peaks: Peaks, load: ClusterLoad, max_score: float) -> Peaks:
    """The peaks with one more round, later than those before; what a clock put later than it is dropped.

    The least that was needed within :data:`LASTS_SECONDS` counts. Hours judged by another ``max_score`` are judged
    anew.
    """
    now = load.taken_at
    demand = dict(zip(load.resources, load.carried.sum(axis=0).tolist(), strict=True))
    missing = bool(load.saturated or load.untold)
    number = needed(demand, load, max_score)
    this = Peak(hour_of(now), now, number, demand, load.active, max_score, load.grounded, missing)
    before = [_judged(one, load, max_score) for one in peaks.recent if one.at < now]
    older = [one for one in before if one.at <= now - LASTS_SECONDS]
    window = [*(one for one in before if one.at > now - LASTS_SECONDS), this]
    hours = {one.hour: _judged(one, load, max_score) for one in peaks.hours}
    if older:
        lasting = min(window, key=lambda one: one.needed)
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
    """Background that was not known then is part of the demand, and must not count twice."""
    return load if peak.grounded else load.without_background()


def wanted(hours: Iterable[Peak], now: float, active: int) -> int:
    """How many brokers are wanted: what the last day needed, and at least what was there until a day is known."""
    day = [one for one in hours if hour_of(now) - DAY_HOURS <= one.hour <= hour_of(now)]
    most = max((one.number for one in day), default=0)
    there = max((one.brokers for one in day), default=active) if known_hours(day, now) < DAY_HOURS else 0
    return max(most, there, FEWEST_BROKERS)


def known_hours(hours: Iterable[Peak], now: float) -> int:
    """Of the 24 whole hours before this one, how many are known."""
    return len({one.hour for one in hours} & set(range(hour_of(now) - DAY_HOURS, hour_of(now))))


# --- the report


@dataclass(frozen=True)
class PeakReport:
    """When most was needed, ``at`` epoch seconds: ``needed`` brokers, a fraction, because of ``resource``.

    ``score`` is what the most loaded of the present brokers would have then, in points. ``at_least``: it may be more.
    """

    at: float
    needed: float
    resource: str
    score: float
    at_least: bool


@dataclass(frozen=True)
class BrokerAway:
    """A broker: its ``score`` now, and the highest one of the others at the day's peak ``without`` it, in points."""

    id: str
    score: float
    without: float
    can_go: bool


@dataclass(frozen=True)
class CapacityReport:
    """How many brokers are wanted, and why: the JSON of ``lbd capacity``. ``taken_at`` is epoch seconds.

    ``day`` and ``week`` are the peaks of the last 24 hours and seven days, None before the first is known;
    ``known_hours`` is how many of the 24 are. ``score`` is the highest one, in points, at the day's peak with the
    ``active`` brokers, ``one_less`` and ``one_more`` with one less, whichever goes, and with one more. ``easiest`` is
    the broker without which the others have least, None where none can go.
    """

    taken_at: float
    active: int
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
    def wanted(self) -> int:
        """How many brokers are wanted."""
        return wanted(self.peaks.hours, self.load.taken_at, self.load.active)

    @cached_property
    def report(self) -> CapacityReport:
        """The report of this round."""
        return report(self.peaks, self.load, self.max_score)


def report(peaks: Peaks, load: ClusterLoad, max_score: float) -> CapacityReport:
    """The report of a round that is part of these peaks."""
    now = load.taken_at
    number, known = wanted(peaks.hours, now, load.active), known_hours(peaks.hours, now)
    top = _highest(peaks.hours, now, DAY_HOURS)
    brokers = _away(top, load, max_score, number)
    able = [at for at, one in enumerate(brokers) if one.can_go]
    busy = (load.used - load.background).max(axis=1)
    easiest = min(able, key=lambda at: (round(brokers[at].without, 1), float(busy[at])), default=None)
    day = _peak_report(top, load)
    return CapacityReport(
        taken_at=now,
        active=load.active,
        wanted=number,
        max_score=max_score,
        summary=_summary(load.active, number, day, known, max_score),
        known_hours=known,
        day=day,
        week=_peak_report(_highest(peaks.hours, now, WEEK_HOURS), load),
        score=_predicted(top, load, load.active),
        one_less=max((one.without for one in brokers), default=None),
        one_more=_predicted(top, load, load.active + 1),
        brokers=brokers,
        easiest=None if easiest is None else brokers[easiest].id,
        notes=tuple(_notes(load, day, max_score)),
    )


def _highest(hours: Iterable[Peak], now: float, last_hours: int) -> Peak | None:
    recent = [one for one in hours if hour_of(now) - last_hours <= one.hour <= hour_of(now)]
    return max(recent, key=lambda one: one.needed, default=None)


def _away(top: Peak | None, load: ClusterLoad, max_score: float, number: int) -> tuple[BrokerAway, ...]:
    if top is None or load.active < FEWEST_BROKERS:
        return ()
    then = _as_then(load, top)
    away = []
    for at, broker in enumerate(load.brokers):
        highest = highest_score(top.demand, then, without=broker)
        now = max(float(load.used[at].max()), float(load.fixed[at]))
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


def _summary(active: int, wanted_brokers: int, day: PeakReport | None, known: int, max_score: float) -> str:
    """One sentence; where the day is not known yet, a second one."""
    there = f"{counted(active, 'broker')} {'is' if active == 1 else 'are'} active, {wanted_brokers} are wanted"
    if day is None:
        return f"{there}: nothing is known yet, the load of the first {duration_text(LASTS_SECONDS)} does not count"
    least = "at least " if day.at_least else ""
    number = f"{least}{day.needed:.1f} brokers of {max_score:g} points"
    why = f"{day.resource.replace('_', ' ')} needed {number} at {utc(day.at)}"
    if known >= DAY_HOURS:
        few = f"; never fewer than {FEWEST_BROKERS}" if day.needed <= FEWEST_BROKERS - 1 else ""
        return f"{there}: {why}, the peak of the last day{few}"
    span = f"{known} of the last {DAY_HOURS} h" if known else "less than an hour"
    return f"{there}: {why}; only {span} are known, and until all are, no fewer are wanted than there were"


def _notes(load: ClusterLoad, day: PeakReport | None, max_score: float) -> Iterator[str]:
    """What the number of wanted brokers does not take into account."""
    if day is not None and day.at_least:
        yield "at the peak a broker was saturated, or did not report its load: more may be needed"
    if load.saturated:
        yield f"{load.saturated[0]} has {AT_LIMIT_POINTS:g} points or more: further work does not show in its score"
    if load.untold:
        yield f"the load of {counted(load.untold, 'active broker')} is not known now, and counts as none"
    if not load.grounded:
        yield (
            "the part of the CPU that no traffic makes is not learned yet, so all CPU counts as traffic's: one more"
            " broker helps less than computed"
        )
    own = np.maximum(load.background.max(axis=1), load.fixed)
    if (full := np.flatnonzero(own >= max_score)).size:
        at = int(full[0])
        yield f"{load.brokers[at]} has {own[at]:.0f} points that no traffic makes: more brokers do not lower that"
    if (np.ptp(load.size, axis=0) > UNEQUAL_SHARE * load.size.max(axis=0)).any():
        yield "the brokers are unequal: of fewer those with the least room count, of more the mean of these"
