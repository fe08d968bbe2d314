"""Which settings did best: chosen on the first part of the time, judged on the rest. Pure.

What one replay moves is partly chance, and the best of many is partly lucky. So a shortlist of those that did best in
one replay of each window is replayed several times, each with its noise dealt anew (:mod:`lbd.learn.dealt`). Who is
clearly better then, in sum and in most windows (:func:`_flaw`), may be chosen; the cheapest of them of which the same
holds on the part of the time that nothing was chosen on is recommended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.learn.candidates import PRESENT
from lbd.learn.scoring import pooled
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.learn.scoring import Figures

    Results = Mapping[str, Mapping[int, Figures]]

TRAINED_SHARE = 0.7
"""Of the windows, the first."""

FEWEST_WINDOWS = 4
"""Three to choose on and one to judge on are the least that deserves the name of evidence. One more comes before them:
what it ends with is what the first begins with."""

SLACK_POINTS = 0.5
"""Gaps that differ by less are the same."""

SLACK_SHARE = 0.2
"""So much of a gap, mean and 95th percentile, may be given for fewer moves: waiting for 18 points instead of 15 costs
eight waving regions a point of it, and saves two moves of five (docs/calibrate.md). A tenth ruled such settings out."""

GAIN = 0.05
"""A recommendation must cost less by this fraction in sum, on both parts of the time: a smaller gain is chance.

Of six simulated weeks a tenth found what is better by the truth in four, this in five, and nothing worse."""

CLOSER = 0.1
"""Whoever moves more must leave brokers closer by this fraction, beyond :data:`SLACK_POINTS`."""

WINDOWS_SHARE = 0.5
"""In so many windows at least it may not cost more: who is better in sum only was lucky on a day. In every one is too
much: what a day's moves are is mostly chance, and four of those five were worse on some day (docs/calibrate.md)."""

FINALISTS = 3
"""So many that did best in one replay of each window are replayed again, on both parts of the time."""

DEALS = 5
"""So often, beside the present settings: the window as it was recorded, and with its noise dealt anew four times."""

FREE_SHARE = 0.005
"""Of the bundles a day. Cost is moves times gap; without some moves that count for nothing, settings that move none
would be worth any gap, and those that move one a day for half of it worth less."""


NOBODY = (
    f"no other settings did clearly better than the present ones: at least {GAIN:.0%} less cost, and brokers at most "
    f"{SLACK_SHARE:.0%} and {SLACK_POINTS:g} points further apart"
)


@dataclass(frozen=True)
class Judged:
    """A candidate on both parts of the time. ``front``: on the first, none had both fewer moves and less gap."""

    name: str
    trained: Figures
    held_out: Figures
    front: bool


@dataclass(frozen=True)
class Choice:
    """``recommended`` is None where nothing is; ``why`` says so in words. ``best`` did best on the first part."""

    judged: tuple[Judged, ...]
    best: str | None
    recommended: str | None
    why: str


def moves_per_day(found: Figures) -> float:
    """Moves a day."""
    return found.moves / found.days if found.days else 0.0


def cost(found: Figures) -> float:
    """Points: the mean gap, once more for each half percent (:data:`FREE_SHARE`) of the bundles that is moved a day."""
    return found.mean_gap * (1.0 + moves_per_day(found) / (FREE_SHARE * max(found.bundles, 1)))


def split(windows: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The windows to choose on and those to judge on, in the order of time."""
    ordered = tuple(sorted(windows))
    first = min(round(len(ordered) * TRAINED_SHARE), len(ordered) - 1)
    return ordered[:first], ordered[first:]


def shortlist(results: Results, windows: Sequence[int]) -> tuple[str, ...]:
    """Those worth a closer look, the cheapest first: clearly better than the present on the first part."""
    if len(windows) < FEWEST_WINDOWS:
        return ()
    trained = _pooled(results, split(windows)[0])
    present = trained.pop(PRESENT)
    better = (name for name, own in trained.items() if not _apart(own, present) and _clearly(own, present))
    return tuple(sorted(better, key=lambda name: (cost(trained[name]), name))[:FINALISTS])


def choose(results: Results, again: Results, windows: Sequence[int]) -> Choice:
    """The choice out of the figures of each candidate in each window; the present settings must be among them.

    ``again`` has the figures of those on the shortlist, and of the present settings, over several deals of noise; it is
    empty where none is.
    """
    if len(windows) < FEWEST_WINDOWS:
        told = f"{counted(len(windows), 'window')} of history after the first, at least {FEWEST_WINDOWS} are wanted"
        return Choice((), None, None, f"the history is too short: {told}")
    first, last = split(windows)
    known = {**results, **again}
    trained, held_out = _pooled(known, first), _pooled(known, last)
    alone = _pooled(results, first)
    judged = tuple(Judged(name, trained[name], held_out[name], _on_front(name, alone)) for name in results)
    finalists = sorted((name for name in again if name != PRESENT), key=lambda name: (cost(trained[name]), name))
    if not finalists:
        return Choice(judged, PRESENT, None, NOBODY)
    sure = [name for name in finalists if not _flaw(again, name, first)]
    if not sure:
        why = f"the best of the others, {finalists[0]}, {_flaw(again, finalists[0], first)}"
        return Choice(judged, finalists[0], None, why)
    held = next((name for name in sure if not _flaw(again, name, last)), None)
    if held is None:
        why = f"on the last part of the time the best of the others, {sure[0]}, {_flaw(again, sure[0], last)}"
        return Choice(judged, sure[0], None, why)
    why = "it did better than the present settings also on the part of the time that it was not chosen on"
    return Choice(judged, held, held, why)


def _flaw(results: Results, name: str, windows: Sequence[int]) -> str:
    """Why a candidate is not clearly better than the present settings in these windows; empty where it is."""
    pooled = _pooled(results, windows)
    own, present = pooled[name], pooled[PRESENT]
    apart = _apart(own, present)
    if apart:
        return apart
    if not _cheaper(own, present):
        return f"cost {cost(own):.1f} points, the present {cost(present):.1f}: {GAIN:.0%} less is wanted"
    if not _clearly(own, present):
        moves = f"made {moves_per_day(own):.1f} moves a day, the present {moves_per_day(present):.1f}"
        return f"{moves}, and left brokers hardly closer: {own.mean_gap:.1f} points, {present.mean_gap:.1f}"
    worse = sum(cost(results[name][window]) > cost(results[PRESENT][window]) for window in windows)
    if worse > (1 - WINDOWS_SHARE) * len(windows):
        return f"did worse than the present in {counted(worse, 'window')} of {len(windows)}"
    return ""


def _clearly(own: Figures, present: Figures) -> bool:
    """Cheaper by more than chance; and who moves more must leave brokers clearly closer for it."""
    closer = own.mean_gap <= (1 - CLOSER) * present.mean_gap - SLACK_POINTS
    return _cheaper(own, present) and (closer or product(own) <= product(present))


def _cheaper(own: Figures, present: Figures) -> bool:
    return cost(own) <= (1 - GAIN) * cost(present)


def product(found: Figures) -> float:
    """Moves a day times the mean gap in points: what a person looks at."""
    return moves_per_day(found) * found.mean_gap


def _pooled(results: Results, windows: Sequence[int]) -> dict[str, Figures]:
    return {name: pooled([found[window] for window in windows]) for name, found in results.items()}


def _apart(found: Figures, present: Figures) -> str:
    """Which gap is larger than the slack allows, in words; empty where none is."""
    gaps = (
        (found.mean_gap, present.mean_gap, "on average"),
        (found.p95_gap, present.p95_gap, "(95th percentile)"),
    )
    told = (
        f"left brokers {gap:.1f} points apart {which}, the present {now:.1f}"
        for gap, now, which in gaps
        if gap > now * (1 + SLACK_SHARE) + SLACK_POINTS
    )
    return next(told, "")


def _on_front(name: str, trained: Mapping[str, Figures]) -> bool:
    moves, gap = trained[name].moves, trained[name].p95_gap
    others = ((other.moves, other.p95_gap) for other in trained.values())
    return not any(fewer <= moves and less <= gap and (fewer, less) != (moves, gap) for fewer, less in others)
