"""Which settings did best: chosen on the first part of the time, judged on the rest. Pure.

A candidate is eligible when it left brokers hardly further apart than the present settings did (:data:`SLACK_SHARE`);
of those the one that costs least is chosen (:func:`cost`). It is recommended when it costs clearly less than the
present settings on the part of the time that it was not chosen on, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.learn.candidates import PRESENT
from lbd.learn.scoring import pooled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.learn.scoring import Figures

TRAINED_SHARE = 0.7
"""Of the windows, the first."""

FEWEST_WINDOWS = 4
"""Three to choose on and one to judge on are the least that deserves the name of evidence. One more comes before them:
what it ends with is what the first begins with."""

SLACK_POINTS = 0.5
"""Gaps that differ by less are the same."""

SLACK_SHARE = 0.1
"""So much of a gap, mean and 95th percentile, may be given for fewer moves: patience halves the moves of clusters whose
traffic comes and goes, and costs a point of gap."""

GAIN = 0.05
"""A recommendation must cost less by this fraction: a smaller gain is chance."""

CONFIRMING = 5
"""From so many beginnings the best and the present settings are replayed over the last part once more: what one run
moves depends on chance, and the best of many on a day is partly lucky."""

FREE_SHARE = 0.005
"""Of the bundles a day. Cost is moves times gap; without some moves that count for nothing, settings that move none
would be worth any gap, and those that move one a day for half of it worth less."""


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


def choose(results: Mapping[str, Mapping[int, Figures]], windows: Sequence[int]) -> Choice:
    """The choice out of the figures of each candidate in each window; the present settings must be among them."""
    if len(windows) < FEWEST_WINDOWS:
        told = f"{len(windows)} windows of history after the first, at least {FEWEST_WINDOWS} are wanted"
        return Choice((), None, None, f"the history is too short: {told}")
    first, last = split(windows)
    trained = {name: pooled([found[window] for window in first]) for name, found in results.items()}
    held_out = {name: pooled([found[window] for window in last]) for name, found in results.items()}
    judged = tuple(Judged(name, trained[name], held_out[name], _on_front(name, trained)) for name in results)
    present = trained[PRESENT]
    eligible = [name for name in results if _no_worse(trained[name], present)]
    best = min(eligible, key=lambda name: (cost(trained[name]), name != PRESENT, name))
    return Choice(judged, best, *_recommended(best, trained, held_out))


def confirmed(choice: Choice, held_out: Mapping[str, Figures]) -> Choice:
    """The choice, judged by the figures of the best and the present settings from several beginnings."""
    if choice.best is None:
        return choice
    judged = tuple(replace(one, held_out=held_out.get(one.name, one.held_out)) for one in choice.judged)
    trained = {one.name: one.trained for one in judged}
    recommended, why = _recommended(choice.best, trained, {one.name: one.held_out for one in judged})
    return Choice(judged, choice.best, recommended, why)


def _recommended(best: str, trained: Mapping[str, Figures], held_out: Mapping[str, Figures]) -> tuple[str | None, str]:
    if best == PRESENT or cost(trained[best]) > (1 - GAIN) * cost(trained[PRESENT]):
        return None, "no other settings did clearly better than the present ones"
    if not _no_worse(held_out[best], held_out[PRESENT]):
        gap, now = held_out[best].p95_gap, held_out[PRESENT].p95_gap
        told = f"{gap:.1f} points apart (95th percentile), the present {now:.1f}"
        return None, f"on the last part of the time the best left brokers {told}"
    if cost(held_out[best]) > (1 - GAIN) * cost(held_out[PRESENT]):
        return None, "what did best on the first part of the time did not do clearly better on the last"
    return best, "it did better than the present settings also on the part of the time that it was not chosen on"


def _no_worse(found: Figures, present: Figures) -> bool:
    gaps = ((found.mean_gap, present.mean_gap), (found.p95_gap, present.p95_gap))
    return all(gap <= now * (1 + SLACK_SHARE) + SLACK_POINTS for gap, now in gaps)


def _on_front(name: str, trained: Mapping[str, Figures]) -> bool:
    moves, gap = trained[name].moves, trained[name].p95_gap
    others = ((other.moves, other.p95_gap) for other in trained.values())
    return not any(fewer <= moves and less <= gap and (fewer, less) != (moves, gap) for fewer, less in others)
