"""Incidents: what settings do in an emergency that history did not have. Pure.

A stretch of history goes in, and the same with a disturbance in it comes out, which :mod:`lbd.learn.replay` replays as
any other. Settings that move little look good over calm days however long they would wait when a broker gets hot; so
those that are about to be proposed and the present ones go through the same incidents, each at the same times. Brokers
and bundles are drawn by a fixed seed for each time.

How much harder a broker works is what the load model says of the traffic that came or went. Traffic is never unserved:
bundles of a broker that is lost are on the others in the next round. A broker that joins is as the one whose background
is the median, and warm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.learn.replay import NOBODY, replay, stretch_means
from lbd.learn.window import LONGEST_SILENCE_SECONDS, OF_BROKERS, Window, dealt, renumbered
from lbd.load.estimate import CPU, background_as_recorded, carried, driving
from lbd.load.samples import YOUNG_SECONDS
from lbd.score.gap import gaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lbd.config import Settings
    from lbd.learn.replay import Course, Scale
    from lbd.load.estimate import LoadModel
    from lbd.model import FloatArray, IntArray

INCIDENT_SECONDS = 5400.0
"""Time for which an incident is followed: settings that wait for 45 samples have moved by then, twice."""

BEFORE_SECONDS = 7200.0
"""Time before it in which settings make their own placement. A day's moves are few, so most of it is as recorded."""

STORM_SECONDS = 600.0
"""Length of a storm. The present settings may have moved something by then; who moves more pays for it."""

GROWTH = 5.0
"""Factor by which the traffic of a bundle group grows in an incident."""

RISE_POINTS = 45.0
"""A group is so large that its growth takes its broker this much higher, if half of its bundles can: beyond the default
high threshold of 40, on an otherwise level cluster."""

LEFT_CAPACITY = 2 / 3
"""Share of its CPU that remains to the broker that loses a third."""

JOINED = "joined in an incident"
"""The name of a broker that joins."""

HOT_GROUP, LOST, JOINS, WEAKER, STORM = (
    "a bundle group that grows fivefold",
    "a broker lost",
    "a broker that joins",
    "a broker that loses a third of its CPU",
    "a storm that ends by itself",
)


@dataclass(frozen=True, eq=False)
class Incident:
    """A window in which something happens ``begins`` epoch seconds, and a model that knows its brokers."""

    name: str
    window: Window
    model: LoadModel
    begins: float


def cut(window: Window, begins: float) -> Window:
    """Cut a window to the hours before an incident, by which settings make their own placement, and the incident's own
    time.
    """
    first = int(np.searchsorted(window.at, begins - BEFORE_SECONDS))
    last = int(np.searchsorted(window.at, begins + INCIDENT_SECONDS))
    earlier = window.change_round < last
    changes = {name: getattr(window, name)[earlier] for name in _CHANGES}
    rounds = {name: getattr(window, name)[:last] for name in ("at", *OF_BROKERS)}
    return replace(window, **rounds, **changes).from_round(first)


def incidents(window: Window, begins: float, model: LoadModel, seed: int) -> Iterator[Incident]:
    """Each incident in this window (:func:`cut`). None of those for which it has too few brokers or bundles."""
    number = int(np.searchsorted(window.at, begins))
    model = model.of(window.brokers)
    if number >= window.at.size:
        return
    recorded = _OwnersByRound(window)
    owner, _ = recorded.in_round(number)
    random = np.random.default_rng(seed)
    bundles = np.bincount(owner[owner != NOBODY], minlength=len(window.brokers))
    able = np.flatnonzero(window.present[number:].all(axis=0) & (bundles > 1))
    if able.size < 2:
        return
    hot, storm, weaker, lost = np.resize(random.permutation(able), 4).tolist()

    def incident(name: str, changed: Window, load_model: LoadModel = model) -> Incident:
        return Incident(name, changed, load_model, begins)

    grown = _group(recorded, model, number, hot, random)
    yield incident(HOT_GROUP, _grown(recorded, model, number, window.at.size, grown))
    ends = int(np.searchsorted(window.at, begins + STORM_SECONDS))
    yield incident(STORM, _grown(recorded, model, number, ends, _group(recorded, model, number, storm, random)))
    yield incident(WEAKER, _weaker(window, number, weaker))
    if able.size > 2:
        heirs = random.choice(able[able != lost], len(window.bundles)).astype(np.int32)
        yield incident(LOST, _without(recorded, model, number, lost, heirs))
    like = int(able[np.argsort(model.background[able, CPU])[able.size // 2]])
    yield incident(JOINS, _with_another(recorded, model, number, like), _twice(model, like))


# --- what happens: each makes another window

_CHANGES = ("change_round", "change_bundle", "change_owner", "change_rates", "change_clients")


class _OwnersByRound:
    """A window, and the owner and the rates of each bundle in a round."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._changes = window.changes()

    def in_round(self, number: int) -> tuple[IntArray, FloatArray]:
        """Owners, int32 (K,) into the brokers, :data:`NOBODY` for none, and rates, float64 (K, 4)."""
        return next(self.rounds(number))

    def rounds(self, first: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """The same of each round from this one on; the next one changes it."""
        size = len(self.window.bundles)
        owner, rates = np.full(size, NOBODY, dtype=np.int32), np.zeros((size, 4))
        for number, own in enumerate(self._changes):
            bundles = self.window.change_bundle[own]
            owner[bundles], rates[bundles] = self.window.change_owner[own], self.window.change_rates[own]
            if number >= first:
                yield owner, rates


def _group(
    recorded: _OwnersByRound, model: LoadModel, number: int, broker: int, random: np.random.Generator
) -> IntArray:
    """Bundles of a broker that together make it hot when they grow, half of its bundles at most."""
    owner, rates = recorded.in_round(number)
    own = random.permutation(np.flatnonzero(owner == broker))
    rise = (GROWTH - 1) * model.slope[broker, CPU] * driving(rates[own], model.measure)[:, CPU]
    enough = int(np.searchsorted(np.cumsum(rise), RISE_POINTS)) + 1
    return np.sort(own[: max(min(enough, own.size // 2), 1)]).astype(np.int32)


def _grown(recorded: _OwnersByRound, model: LoadModel, first: int, last: int, group: IntArray) -> Window:
    """Multiply the traffic of these bundles by :data:`GROWTH` from one round to another, wherever they are."""
    window = recorded.window
    more = np.zeros((window.at.size, len(window.brokers), 4))
    for number, (owner, rates) in zip(range(first, last), recorded.rounds(first), strict=False):
        served = group[owner[group] != NOBODY]
        more[number] = carried((GROWTH - 1) * rates[served], owner[served], len(window.brokers))
    during = (window.change_round >= first) & (window.change_round < last) & np.isin(window.change_bundle, group)
    grown: Any = np.where(during[:, None], GROWTH * window.change_rates, window.change_rates).astype(np.float32)
    window = replace(window, change_rates=grown)
    window = _changed(window, recorded, first, group, factor=GROWTH)
    if last < window.at.size:
        window = _changed(window, recorded, last, group, factor=1.0)
    return _busier(window, model, more)


def _without(recorded: _OwnersByRound, model: LoadModel, first: int, lost: int, heirs: IntArray) -> Window:
    """A broker is gone from a round on; each of its bundles is on its heir, int32 (K,)."""
    window = recorded.window
    more = np.zeros((window.at.size, len(window.brokers), 4))
    for number, (owner, rates) in zip(range(first, window.at.size), recorded.rounds(first), strict=True):
        own = np.flatnonzero(owner == lost)
        more[number] = carried(rates[own], heirs[own], len(window.brokers))
    owner, _ = recorded.in_round(first)
    moved = (window.change_round >= first) & (window.change_owner == lost)
    owners = np.where(moved, heirs[window.change_bundle], window.change_owner).astype(np.int32)
    gone = _changed(
        replace(window, change_owner=owners), recorded, first, np.flatnonzero(owner == lost).astype(np.int32), heirs
    )
    columns = {name: getattr(window, name).copy() for name in OF_BROKERS}
    for name, values in columns.items():
        values[first:, lost] = OF_BROKERS[name]
    return _busier(replace(gone, **columns), model, more)


def _weaker(window: Window, first: int, broker: int) -> Window:
    """A broker has less CPU from a round on: the same work takes more of it."""
    used, capacity = window.used.copy(), window.capacity.copy()
    used[first:, broker, CPU] /= LEFT_CAPACITY
    capacity[first:, broker] *= LEFT_CAPACITY
    return replace(window, used=used, capacity=capacity)


def _with_another(recorded: _OwnersByRound, model: LoadModel, first: int, like: int) -> Window:
    """One more broker from a round on, as another one would be without its bundles."""
    window = recorded.window
    wider = Window(
        (*window.brokers, JOINED), window.bundles, **renumbered(window, (*window.brokers, JOINED), window.bundles, 0)
    )
    column, used = len(window.brokers), wider.used
    for number, (owner, rates) in zip(range(first, window.at.size), recorded.rounds(first), strict=True):
        own = np.flatnonzero(owner != NOBODY)
        traffic = carried(rates[own], owner[own], len(window.brokers))
        used[number, column] = np.maximum(background_as_recorded(model, window.used[number], traffic)[like], 0.0)
    wider.totals[first:, column] = 0.0
    wider.present[first:, column] = window.present[first:, like]
    wider.fresh[first:, column] = window.fresh[first:, like]
    wider.started_at[first:, column] = window.at[first]
    wider.doubted[first:, column] = window.at[first:] - window.at[first] < YOUNG_SECONDS
    return wider


def _twice(model: LoadModel, like: int) -> LoadModel:
    """The model with one more broker that is as another one."""
    row = model.of((model.brokers[like],))
    arrays = {name: np.concatenate([getattr(model, name), getattr(row, name)]) for name in _OF_MODEL}
    values: dict[str, Any] = {"brokers": (*model.brokers, JOINED), "sources": model.sources + row.sources, **arrays}
    return replace(model, **values)


_OF_MODEL = ("background", "slope", "half_width", "background_half_width", "noise", "samples")


def _busier(window: Window, model: LoadModel, more: FloatArray) -> Window:
    """Add traffic, float64 (T, B, 4), and the load that it causes to those of brokers in each round."""
    drives = np.array([driving(traffic, model.measure) for traffic in more]).reshape(window.used.shape)
    return replace(window, used=window.used + model.slope * drives, totals=window.totals + more)


def _changed(
    window: Window,
    recorded: _OwnersByRound,
    number: int,
    bundles: IntArray,
    owners: IntArray | None = None,
    factor: float = 1.0,
) -> Window:
    """Repeat the record of these bundles in this round, with other owners, int32 (K,), or ``factor`` times the traffic,
    until they change again.
    """
    owner, rates = recorded.in_round(number)
    again = ~np.isin(bundles, window.change_bundle[window.change_round == number])
    own = bundles[again]
    values = {
        "change_round": np.full(own.size, number, dtype=np.int32),
        "change_bundle": own,
        "change_owner": (owner if owners is None else owners)[own],
        "change_rates": (factor * rates[own]).astype(np.float32),
        "change_clients": _clients(recorded.window, number)[own],
    }
    rows = {name: np.concatenate([getattr(window, name), values[name]]) for name in _CHANGES}
    order = np.argsort(rows["change_round"], kind="stable")
    ordered: dict[str, Any] = {name: rows[name][order] for name in _CHANGES}
    return replace(window, **ordered)


def _clients(window: Window, number: int) -> IntArray:
    """Producers and consumers of each bundle in a round, int32 (K,)."""
    clients: IntArray = np.zeros(len(window.bundles), dtype=np.int32)
    earlier = window.change_round <= number
    clients[window.change_bundle[earlier]] = window.change_clients[earlier]
    return clients


# --- what became of it

OVERLOADED_POINTS = 85.0
"""From here on a broker counts as overloaded: Pulsar's ``loadBalancerBrokerOverloadedThresholdPercentage``."""

STRETCH_SECONDS = 180.0
"""Gaps and scores are means of this time, three samples. Over ten minutes, as in the other figures of a replay, waiting
for two samples and for eight would look the same."""


@dataclass(frozen=True)
class Harm:
    """Harm of an incident under settings. ``minutes_apart``: the highest and the lowest broker were at least as far
    apart as the present settings' low threshold; ``minutes_far_apart``: as their high one. ``minutes_overloaded``: some
    broker had 85 points or more. ``clients`` are the producers and consumers of the bundles that ``moves`` moved.
    """

    minutes_apart: float
    minutes_far_apart: float
    minutes_overloaded: float
    moves: int
    clients: int


def harm(course: Course, incident: Incident, scale: Scale) -> Harm:
    """Measure a replay of an incident, from its begin on."""
    course = course.since(incident.begins)
    comparable = np.isfinite(course.points).sum(axis=1) > 1
    round_times, points = course.at[comparable], course.points[comparable]
    clients = int(course.disconnected.sum())
    if not round_times.size:
        return Harm(0.0, 0.0, 0.0, len(course.moves), clients)
    means, stretch = stretch_means(round_times, points, STRETCH_SECONDS)
    lasts = np.minimum(np.diff(round_times, append=round_times[-1]), LONGEST_SILENCE_SECONDS) / 60
    gap = gaps(means)
    harmed = gap >= scale.low, gap >= scale.high, np.nanmax(means, axis=1) >= OVERLOADED_POINTS
    apart, far_apart, overloaded = (float(lasts[own[stretch]].sum()) for own in harmed)
    return Harm(apart, far_apart, overloaded, len(course.moves), clients)


# --- the same incidents for several settings

TIMES = 8
"""Times that each incident happens, spread evenly over the windows, each time with other noise, brokers and bundles."""


def times(rounds: FloatArray, index: int, windows: int) -> Iterator[tuple[int, float]]:
    """Times of incidents in the window at this index among ``windows``: number and begin, epoch seconds.

    ``rounds`` are when it had one: an incident begins with one of them, for nothing is known of the time between two
    that are far apart, and so early that the window has all of it.
    """
    early = rounds[rounds <= max(rounds[-1] - INCIDENT_SECONDS, rounds[0])]
    for number in range(TIMES):
        where = (number + 0.5) * windows / TIMES
        if int(where) == index:
            yield number, float(early[int((where - index) * early.size)])


def harms(
    window: Window, begins: float, number: int, tried: Mapping[str, Settings], model: LoadModel, scale: Scale
) -> Iterator[tuple[str, str, Harm]]:
    """The harm of each incident at one time under each of these settings: settings, incident, harm."""
    around = dealt(cut(window, begins), number)
    for incident in incidents(around, begins, model, number):
        for name, settings in tried.items():
            yield name, incident.name, harm(replay(incident.window, settings, incident.model), incident, scale)


# --- who is worse than the present settings by more than noise
# What one replay of an incident comes to is partly chance: single samples, and which broker it is. Settings go through
# the same incidents, so that the differences of pairs count, and not how bad each time was.

NOISE_ERRORS = 3.0
"""Standard errors of the mean difference that are noise. Five incidents with five figures each are 25 comparisons:
with eight pairs, chance alone exceeds three in one comparison of a hundred, two in one of twenty-four, which would
refuse half of all settings that are no worse."""

RESOLUTION = {
    "minutes_apart": STRETCH_SECONDS / 60,
    "minutes_far_apart": STRETCH_SECONDS / 60,
    "minutes_overloaded": STRETCH_SECONDS / 60,
    "moves": 1.0,
    "clients": 1.0,
}
"""Smaller mean differences are none, however sure."""

EFFORT = "moves", "clients"
"""Figures that may be worse where brokers come closer sooner: the cost of relief."""

_CLAUSES = {
    "minutes_apart": "had brokers too far apart for {0:.0f} minutes, the present for {1:.0f}",
    "minutes_far_apart": "had brokers above the high threshold for {0:.0f} minutes, the present for {1:.0f}",
    "minutes_overloaded": "had a broker above 85 points for {0:.0f} minutes, the present for {1:.0f}",
    "moves": "made {0:.1f} moves, the present {1:.1f}",
    "clients": "disconnected {0:,.0f} clients, the present {1:,.0f}",
}

if TYPE_CHECKING:
    Harms = Mapping[str, Sequence[Harm]]
    """By incident, in the order of time."""


def excess(own: Harms, present: Harms) -> str:
    """In which incident settings are worse than the present ones by more than noise, as a clause of a sentence; empty
    if in none. Who brings brokers closer sooner may make more moves for it.
    """
    for name in present:
        more = {measure: _values(own[name], measure) - _values(present[name], measure) for measure in RESOLUTION}
        paid_for = _beyond_noise(-more["minutes_apart"], "minutes_apart")
        for measure in RESOLUTION:
            if _beyond_noise(more[measure], measure) and not (paid_for and measure in EFFORT):
                means = (mean(harms_of[name])[measure] for harms_of in (own, present))
                return f"{_CLAUSES[measure].format(*means)}, in the incident {name!r}"
    return ""


def _beyond_noise(differences: FloatArray, measure: str) -> bool:
    return float(differences.mean()) > noise(differences, RESOLUTION[measure])


def noise(differences: FloatArray, resolution: float) -> float:
    """How much the mean of such differences, float64 (n,), may be by chance."""
    error = differences.std(ddof=1) / differences.size**0.5 if differences.size > 1 else np.inf
    return max(NOISE_ERRORS * float(error), resolution)


def mean(repeats: Sequence[Harm]) -> dict[str, float]:
    """The mean of each figure."""
    return {measure: float(_values(repeats, measure).mean()) for measure in RESOLUTION}


def _values(repeats: Sequence[Harm], measure: str) -> FloatArray:
    return np.array([getattr(repeat, measure) for repeat in repeats], dtype=np.float64)
