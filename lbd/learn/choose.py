"""Settings to try (the current ones, the defaults, a seeded draw around the noise), and the choice among them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.config import strategy_section
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.least_moves import LeastMovesSettings
from lbd.learn.incidents import excess
from lbd.learn.prediction import DAYS_AHEAD, FEWEST_DAYS, days_that_may_differ, effect
from lbd.learn.replay import pooled
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lbd.config import Settings
    from lbd.learn.incidents import Harms
    from lbd.learn.prediction import PredictedEffect
    from lbd.learn.replay import Figures


if TYPE_CHECKING:
    Tunable = AvgShedderSettings | LeastMovesSettings

LOW_THRESHOLDS = (6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 22.0, 28.0)
HIGH_THRESHOLDS = (25.0, 30.0, 40.0, 50.0, 60.0)
LOW_HITS = (3, 5, 8, 12, 20, 30, 45)
HIGH_HITS = (2, 3, 5, 10)
SHARES = (0.2, 0.35, 0.5)
"""Values to draw: points, points, samples, samples, and fractions of a pair's difference in traffic. Traffic that
comes and goes within half an hour is gone before the longest of these waits is over."""

ALONE_SHARE = 0.5
"""Fraction of the number of candidates: at most that many of a strategy's differ from the base in one value. These show
what a single change does, and fewer of them are good by chance."""

AIMS = (2.0, 3.5, 5.0)
"""least-moves: points around the level within which a plan leaves its brokers. Its thresholds are from the level, which
is in the middle: half of those above, which are between brokers."""

MOVES_A_TURN = (2, 4)
"""Beside as many as are allowed now. Each move shows what it did before the next is chosen: two in a turn leave 0.65 of
moves x gap in the median of seven weeks (docs/decisions/0021-forecast.md)."""

NOISE_DEVIATIONS = 2.5
"""Lowest low threshold, in deviations of a difference of two samples: one sample in a hundred of a level
pair passes it, and hit counts want several in a row. Whether that moves too much is for the replays to say, which have
the recorded noise in them."""

PRESENT, DEFAULT = "present", "default"

TUNABLE: dict[str, type[Tunable]] = {kind.name: kind for kind in (AvgShedderSettings, LeastMovesSettings)}
"""Strategies whose settings are tried; the others' depend on what history does not hold, or have no thresholds."""


@dataclass(frozen=True)
class SettingsCandidate:
    """Settings of a strategy and the most moves of a turn (``guardrails.max_unloads_per_turn``), and their name."""

    name: str
    settings: Tunable
    moves_a_turn: int | None = None

    @property
    def values(self) -> dict[str, Any]:
        """As in lbd.yaml."""
        strategy = type(self.settings).name
        own = self.settings.model_dump(mode="json")
        return {"strategy": strategy, strategy_section(strategy): own, "guardrails": self.guardrails}

    @property
    def guardrails(self) -> dict[str, Any]:
        """As in lbd.yaml."""
        return {"max_unloads_per_turn": self.moves_a_turn}

    def under(self, settings: Settings) -> Settings:
        """The settings of a replay: everything else as given."""
        strategy = type(self.settings).name
        guardrails = settings.guardrails.model_copy(update=self.guardrails)
        changes = {"strategy": strategy, strategy_section(strategy): self.settings, "guardrails": guardrails}
        return settings.model_copy(update=changes)

    def slower(self, moves: int) -> SettingsCandidate:
        """The same with ``moves`` a turn. It waits no longer before it moves, and so holds in most incidents."""
        return SettingsCandidate(f"{self.name}, {counted(moves, 'move')} a turn", self.settings, moves)


def candidates(
    present: SettingsCandidate, noise_points: float, number: int, seed: int, others: Sequence[str] = ()
) -> tuple[SettingsCandidate, ...]:
    """``number`` candidates, none twice: first the present settings, the defaults, and both with fewer moves a turn.

    ``noise_points`` is the standard deviation of one broker's samples; thresholds too low for it are not tried.
    ``others`` are strategies to try beside the present one, keys of :data:`TUNABLE`; each gets an equal share.
    """
    allowed, name_now = present.moves_a_turn, type(present.settings).name
    fewer = [moves for moves in MOVES_A_TURN if allowed is None or moves < allowed]
    strategies = [name_now, *(name for name in others if name != name_now)]
    defaults = [
        SettingsCandidate(DEFAULT if name == name_now else f"{name}, {DEFAULT}", TUNABLE[name](), allowed)
        for name in strategies
    ]
    first = (present, *defaults)
    by_key: dict[str, SettingsCandidate] = {}
    for candidate in (*first, *(full.slower(moves) for moves in fewer for full in first)):
        by_key.setdefault(_key(candidate), candidate)
    random = np.random.default_rng(seed)
    for index, name in enumerate(strategies):
        base = present.settings if name == name_now else TUNABLE[name]()
        until = len(by_key) + (number - len(by_key)) // (len(strategies) - index)
        grid = list(_grid(name, NOISE_DEVIATIONS * noise_points * 2**0.5))
        for changes, moves in _drawn(base, grid, fewer, until, random):
            if len(by_key) >= until:
                break
            drawn = SettingsCandidate(_name(name, changes), base.model_copy(update=changes), allowed)
            drawn = drawn.slower(moves) if moves else drawn
            by_key.setdefault(_key(drawn), drawn)
    return tuple(by_key.values())[: max(number, 1)]


def _drawn(
    base: Tunable, grid: list[dict[str, float]], fewer: Sequence[int], number: int, random: np.random.Generator
) -> Iterator[tuple[dict[str, float], int]]:
    """Those that differ from the base in one value, as many as :data:`ALONE_SHARE` allows, and then any, each with its
    moves a turn: one of ``fewer``, or 0 for as many as now.
    """
    order = [grid[row] for row in random.permutation(len(grid)).tolist()]
    moves = random.choice([0, *fewer], len(order)).tolist()
    alone = [drawn for drawn in order if sum(getattr(base, key) != value for key, value in drawn.items()) == 1]
    yield from ((drawn, 0) for drawn in alone[: round(number * ALONE_SHARE)])
    yield from zip(order, moves, strict=True)


_GRIDS: dict[str, tuple[int, str, Sequence[float]]] = {
    AvgShedderSettings.name: (1, "max_unload_percentage", SHARES),
    LeastMovesSettings.name: (2, "aim_points", AIMS),
}
"""By strategy: the part of a gap between brokers that its thresholds are, as a divisor, and the setting beside them."""


def _grid(strategy: str, least_points: float) -> Iterator[dict[str, float]]:
    part, key, values = _GRIDS[strategy]
    lows = [low / part for low in LOW_THRESHOLDS if low >= least_points] or [LOW_THRESHOLDS[-1] / part]
    return (
        {"low_threshold": low, "high_threshold": high / part, "hit_count_low": few, "hit_count_high": fewer, key: value}
        for low in lows for high in HIGH_THRESHOLDS if high / part > low
        for few in LOW_HITS for fewer in HIGH_HITS if fewer <= few for value in values if value < low
    )  # fmt: skip


def _key(candidate: SettingsCandidate) -> str:
    return f"{type(candidate.settings).name} {candidate.moves_a_turn} {candidate.settings.model_dump_json()}"


def _name(strategy: str, values: Mapping[str, float]) -> str:
    """``low 15 x 8, high 40 x 2, share 0.5``."""
    low, high = values["low_threshold"], values["high_threshold"]
    text = f"low {low:g} x {values['hit_count_low']}, high {high:g} x {values['hit_count_high']}"
    if strategy == LeastMovesSettings.name:
        return f"{strategy}, {text}, aim {values['aim_points']:g}"
    return f"{text}, share {values['max_unload_percentage']:g}"


# --- choice: on the first part of the time, evaluated on the rest
# All are replayed once, over all of the history in one go. Those that were clearly better on the first part of the time
# go through incidents (:mod:`lbd.learn.incidents`), the cheapest first, until enough have held. The moves of one replay
# are partly chance, and the best of many is partly lucky. So this shortlist is replayed several times, each with
# resampled noise (:mod:`lbd.learn.window`). Settings that are then clearly better, in sum and in most windows
# (:func:`_flaw`), also on the part of the time that nothing was chosen on, may be proposed. Of these the cheapest is.

if TYPE_CHECKING:
    Results = Mapping[str, Mapping[int, Figures]]

TRAINED_SHARE = 0.7
"""Share of the windows, the first ones, that settings are chosen on."""

FEWEST_WINDOWS = 4
"""Three to choose on and one to judge on are the least that deserves the name of evidence. One more comes before them:
what it ends with is what the first begins with."""

SLACK_POINTS = 0.5
"""Gaps that differ by less are the same."""

SLACK_SHARE = 0.2
"""Share of a gap, mean and 95th percentile, that may be given for fewer moves.

Waiting for 18 points instead of 15 costs eight waving regions a point and saves two moves of five
(docs/results/calibrate.md). A tenth ruled such settings out."""

GAIN = 0.05
"""A recommendation must cost less by this fraction in sum, on both parts of the time: a smaller gain is chance.

Of six simulated weeks a tenth found what is better by the truth in four, this in five, and nothing worse."""

WINDOWS_SHARE = 0.5
"""Share of the windows in which better settings may not cost more: settings better only in sum had a lucky day.

Every window would be too much: the moves of a day are mostly chance, and four of those five settings were worse on some
day (docs/results/calibrate.md)."""

FINALISTS = 3
"""Most settings that are replayed again: the cheapest in one replay, on the first part of the time, that hold in
incidents."""

MOST_IN_INCIDENTS = 12
"""Most settings that go through incidents. The cheapest move least, and are the first to be refused there."""

DEALS = 5
"""Fewest replays of these and of the present settings: with noise as it was recorded, and dealt anew four times."""

NOBODY = (
    f"no other settings did clearly better than the present ones: at least {100 * GAIN:.0f} % less cost to clients, "
    f"and brokers at most {SLACK_SHARE:.0%} and {SLACK_POINTS:g} points further apart"
)


@dataclass(frozen=True)
class Judged:
    """A candidate on both parts of the time.

    ``held_out`` is None where it was not on the shortlist. ``front``: of all candidates none had both fewer moves and
    less gap in the one replay of the first part.
    """

    name: str
    trained: Figures
    held_out: Figures | None
    front: bool


@dataclass(frozen=True)
class Choice:
    """``recommended`` is None where nothing is; ``why`` says so in words. ``best`` did best on the first part.

    ``effects`` are those of ``best`` on the next week, by what they are on (:data:`MEASURES`), as far as it was on the
    shortlist. ``incidents`` is what they made of the present settings and of others, by name, and ``refused`` says of
    those that an incident rules out how they were worse.
    """

    judged: tuple[Judged, ...]
    best: str | None
    recommended: str | None
    why: str
    incidents: Mapping[str, Harms] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[str, PredictedEffect] = field(default_factory=dict)


def moves_per_day(figures: Figures) -> float:
    """Moves a day."""
    return figures.moves / figures.days if figures.days else 0.0


def cost(figures: Figures) -> float:
    """Client-minutes a day: those without a connection, and a share of those on overloaded brokers
    (:class:`~lbd.learn.replay.Scale`).
    """
    return figures.cost_minutes / figures.days if figures.days else 0.0


def cost_text(figures: Figures) -> str:
    """The cost in words: ``5.1 client-minutes a day (4.9 without a connection, 12 on overloaded brokers)``."""
    days = figures.days or 1.0
    lost, hot = figures.lost_minutes / days, figures.hot_minutes / days
    parts = f"{lost:,.1f} without a connection, {hot:,.0f} on overloaded brokers"
    return f"{cost(figures):,.1f} client-minutes a day ({parts})"


# --- what is claimed of the next week

COST, MOVES, OVER_LOW, OVER_HIGH, P95, WORST_HOUR = (
    "client-minutes a day",
    "moves a day",
    "minutes a day above the low threshold",
    "minutes a week above the high threshold",
    "points of the gap's 95th percentile",
    "points of the worst hour's gap",
)

MEASURES: Mapping[str, Callable[[Figures], float]] = {
    COST: cost,
    MOVES: moves_per_day,
    OVER_LOW: lambda figures: figures.minutes_over / figures.days if figures.days else 0.0,
    OVER_HIGH: lambda figures: 7 * figures.minutes_over_high / figures.days if figures.days else 0.0,
    P95: lambda figures: figures.p95_gap,
    WORST_HOUR: lambda figures: figures.worst_hour_gap,
}
"""Figures that settings are compared by, window by window."""

CLAIMED = COST, MOVES, OVER_LOW, OVER_HIGH
"""The effects on the next week that the answer names, in its first line."""

MANY = 10.0
"""Amounts from here on are written without a fraction."""

HARMS = OVER_HIGH, P95, WORST_HOUR
"""None of these may be more at the lower end of its interval, gaps by more than the slack."""

HARMLESS_MINUTES = 7.0
"""Most minutes a week, in the mean, that brokers may be longer above the high threshold, however wide the interval."""


WHOLE_SHARE = 0.5
"""Least time of a window, as a share of the longest: a day that has just begun would count its minutes as a day."""


def effects(deals: Sequence[Results], name: str, windows: Sequence[int], tried: int = 1) -> dict[str, PredictedEffect]:
    """Differences of settings, the best of those ``tried``, from the present ones: by measure, with intervals for the
    next week.

    Windows with less than :data:`WHOLE_SHARE` of the longest do not count.
    """
    days = {window: deals[0][PRESENT][window].days for window in windows}
    whole = [window for window in windows if days[window] >= WHOLE_SHARE * max(days.values())]
    pairs = [[(deal[name][window], deal[PRESENT][window]) for window in whole] for deal in deals]
    return {
        measure: effect(
            np.array([[of(own) - of(present) for own, present in deal] for deal in pairs], np.float64), tried
        )
        for measure, of in MEASURES.items()
    }


def over_deals(deals: Sequence[Results]) -> dict[str, dict[int, Figures]]:
    """The figures of each candidate in every window, over all deals of noise."""
    return {
        name: {window: pooled([deal[name][window] for deal in deals]) for window in by_window}
        for name, by_window in (deals[0] if deals else {}).items()
    }


def _unsure(claims: Mapping[str, PredictedEffect], by_window: Sequence[Figures]) -> str:
    """Why these effects are no reason for a change; empty where they are. ``by_window`` are the figures of the present
    settings, whose worst hour is, as in the effects, that of each window, and not of all.
    """
    present = pooled(by_window)
    present = replace(present, worst_hour_gap=sum(own.worst_hour_gap for own in by_window) / len(by_window))
    days = present.days * len(by_window) / present.replays
    if round(days) < FEWEST_DAYS:
        return f"was seen on {days:.1f} days only; of fewer than {FEWEST_DAYS} nothing is claimed of another week"
    slack = {
        OVER_HIGH: 0.0,
        **{name: SLACK_SHARE * MEASURES[name](present) + SLACK_POINTS for name in (P95, WORST_HOUR)},
    }
    for measure in HARMS:
        harm = claims[measure]
        if harm.low > slack[measure] or (measure == OVER_HIGH and harm.mean > HARMLESS_MINUTES):
            return f"{effect_text(harm, measure)} next week"
    if claims[COST].high >= 0:
        return f"may save nothing next week: it {effect_text(claims[COST], COST)}"
    if -claims[COST].mean <= claims[COST].luck:
        return (
            f"may be the best by luck: it {effect_text(claims[COST], COST)}, and of all that were tried one would save "
            f"{claims[COST].luck:,.1f} by chance in {claims[COST].days:.0f} independent days"
        )
    return ""


def effect_text(predicted: PredictedEffect, measure: str) -> str:
    """``saves 4.2 moves a day (1.1 to 7.3)``: the mean and the ends of the interval; minus is the other direction."""
    return " ".join(_verb_and_amount(predicted, measure))


def claim_text(claims: Mapping[str, PredictedEffect]) -> str:
    """The claims for the next week: all that settings save, then all that they cost."""
    texts = [_verb_and_amount(claims[measure], measure) for measure in CLAIMED]
    by_verb = {verb: [amount for own, amount in texts if own == verb] for verb in (SAVES, COSTS, UNKNOWN)}
    return "; ".join(f"{verb} {', '.join(amounts)}" for verb, amounts in by_verb.items() if amounts)


SAVES, COSTS, UNKNOWN = "saves", "costs", "unknown:"


def _verb_and_amount(predicted: PredictedEffect, measure: str) -> tuple[str, str]:
    ends = predicted.mean, predicted.low, predicted.high
    if not all(map(isfinite, ends)):
        may = days_that_may_differ(predicted.days)
        return UNKNOWN, f"{measure} (no day differed; up to {may} of the next {DAYS_AHEAD} may)"
    digits = 0 if max(map(abs, ends)) >= MANY else 1
    mean, low, high = (round(value, digits) + 0.0 for value in ends)  # a zero without a sign
    if mean < 0:
        return SAVES, f"{-mean:,.{digits}f} {measure} ({0.0 - high:,.{digits}f} to {-low:,.{digits}f})"
    return COSTS, f"{mean:,.{digits}f} {measure} ({low:,.{digits}f} to {high:,.{digits}f})"


def split(windows: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The windows to choose on and those to judge on, in the order of time."""
    ordered = tuple(sorted(windows))
    first = min(round(len(ordered) * TRAINED_SHARE), len(ordered) - 1)
    return ordered[:first], ordered[first:]


def clearly_better(results: Results, windows: Sequence[int]) -> tuple[str, ...]:
    """Settings that cost clearly less than the present ones on the first part of the time, and leave brokers no further
    apart: the cheapest first.
    """
    if len(windows) < FEWEST_WINDOWS:
        return ()
    trained = _pooled(results, split(windows)[0])
    present = trained.pop(PRESENT)
    better = (name for name, own in trained.items() if not _gap_excess(own, present) and _cheaper(own, present))
    return tuple(sorted(better, key=lambda name: (cost(trained[name]), name)))


def through_incidents(
    better: Sequence[str], replayed: Callable[[Sequence[str]], Mapping[str, Harms]]
) -> Mapping[str, Harms]:
    """Harm in incidents under the present settings and the first of these, by name: of no more than it takes until
    :data:`FINALISTS` hold. ``replayed`` makes the replays of some.
    """
    harms: dict[str, Harms] = {}
    for begin in range(0, min(len(better), MOST_IN_INCIDENTS), FINALISTS):
        part = better[begin : begin + FINALISTS]
        harms |= replayed(part if harms else (PRESENT, *part))
        if len(shortlist(harms)) == FINALISTS:
            break
    return harms


def shortlist(harms: Mapping[str, Harms]) -> tuple[str, ...]:
    """Those worth a closer look: the first that no incident refuses."""
    refused = _refused(harms)
    return tuple(name for name in harms if name != PRESENT and name not in refused)[:FINALISTS]


def _refused(harms: Mapping[str, Harms]) -> dict[str, str]:
    """How settings were worse than the present ones in an incident, for those that were."""
    return {name: clause for name, own in harms.items() if (clause := excess(own, harms[PRESENT]))}


def choose(results: Results, deals: Sequence[Results], windows: Sequence[int], harms: Mapping[str, Harms]) -> Choice:
    """The choice out of the figures of each candidate in every window; the present settings must be among them.

    ``deals`` have the figures of those on the shortlist, and of the present settings, in each deal of noise. ``harms``
    is what incidents made of these and of those that they refuse, by name.
    """
    if len(windows) < FEWEST_WINDOWS:
        shortage = f"{counted(len(windows), 'window')} of history after the first, at least {FEWEST_WINDOWS} are wanted"
        return Choice((), None, None, f"the history is too short: {shortage}")
    first, last = split(windows)
    again = over_deals(deals)
    replayed, refused = {**results, **again}, _refused(harms)
    trained, held_out, alone = _pooled(replayed, first), _pooled(again, last), _pooled(results, first)
    judged = tuple(Judged(name, trained[name], held_out.get(name), _on_front(name, alone)) for name in results)
    finalists = sorted((name for name in again if name != PRESENT), key=lambda name: (cost(trained[name]), name))
    claims = {name: effects(deals, name, (*first, *last), len(results) - 1) for name in finalists}

    def nothing(best: str, flaw: str, begin: str = "") -> Choice:
        why = f"{begin}the best of the others, {best}, {flaw}"
        return Choice(judged, best, None, why, harms, refused, claims.get(best, {}))

    if not finalists and not refused:
        return Choice(judged, PRESENT, None, NOBODY)
    if not finalists:
        return nothing(*next(iter(refused.items())))
    present = list(again[PRESENT].values())
    demands: tuple[tuple[Callable[[str], str], str], ...] = (
        (lambda name: _flaw(again, name, first), ""),
        (lambda name: _flaw(again, name, last), "on the last part of the time "),
        (lambda name: _unsure(claims[name], present), ""),
    )
    held = finalists
    for flaw_of, begin in demands:
        flaws = {name: flaw_of(name) for name in held}
        if all(flaws.values()):
            return nothing(held[0], flaws[held[0]], begin)
        held = [name for name in held if not flaws[name]]
    why = "it did better than the present settings also on the part of the time that it was not chosen on"
    return Choice(judged, held[0], held[0], why, harms, refused, claims[held[0]])


# --- what is clearly better


def _flaw(results: Results, name: str, windows: Sequence[int]) -> str:
    """Why a candidate is not clearly better than the present settings in these windows; empty where it is."""
    by_name = _pooled(results, windows)
    own, present = by_name[name], by_name[PRESENT]
    apart = _gap_excess(own, present)
    if apart:
        return apart
    if not _cheaper(own, present):
        less = f"at least {100 * GAIN:.0f} % less is wanted"
        return f"cost {cost_text(own)}, the present {cost_text(present)}; {less}"
    worse = sum(cost(results[name][window]) > cost(results[PRESENT][window]) for window in windows)
    if worse > (1 - WINDOWS_SHARE) * len(windows):
        return f"did worse than the present in {counted(worse, 'window')} of {len(windows)}"
    return ""


def _cheaper(own: Figures, present: Figures) -> bool:
    return cost(own) < cost(present) and cost(own) <= (1 - GAIN) * cost(present)


def _pooled(results: Results, windows: Sequence[int]) -> dict[str, Figures]:
    return {name: pooled([by_window[window] for window in windows]) for name, by_window in results.items()}


def _gap_excess(figures: Figures, present: Figures) -> str:
    """The gap that is larger than the slack allows, as a clause of a sentence; empty if none is."""
    gaps = (
        (figures.mean_gap, present.mean_gap, "on average"),
        (figures.p95_gap, present.p95_gap, "(95th percentile)"),
    )
    excesses = (
        f"left brokers {gap:.1f} points apart {which}, the present {now:.1f}"
        for gap, now, which in gaps
        if gap > now * (1 + SLACK_SHARE) + SLACK_POINTS
    )
    return next(excesses, "")


def _on_front(name: str, trained: Mapping[str, Figures]) -> bool:
    moves, gap = trained[name].moves, trained[name].p95_gap
    others = ((other.moves, other.p95_gap) for other in trained.values())
    return not any(fewer <= moves and less <= gap and (fewer, less) != (moves, gap) for fewer, less in others)
