"""What lbd calibrate chooses beside the default settings, on time that it was not chosen on.

    python -m tests.bench learn [--shape NAME]... [--seeds N] [--candidates N]

Each history is a simulated week under the defaults (``weeks.py``). Its first part chooses, its last judges, as ``lbd
calibrate`` does, but without Spark. What is printed is then told by the truth, which the choice does not know: the
last days are replayed with the simulation's own slopes, under the defaults and under what was recommended.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.learn.choose import (
    DEALS,
    NOBODY,
    PRESENT,
    Choice,
    SettingsCandidate,
    candidates,
    choose,
    cost,
    moves_per_day,
    product,
    shortlist,
    split,
    with_fewer_moves,
)
from lbd.learn.incidents import harms, times
from lbd.learn.replay import Apart, figures, pooled, recorded, replay
from lbd.learn.window import dealt
from lbd.load.estimate import CPU
from lbd.load.fit import fit
from lbd.load.samples import BrokerSamples, gather
from lbd.text import DAY_SECONDS
from tests.bench.weeks import SETTINGS, SHAPES, WARM_MINUTES, day, week

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.learn.incidents import Harm
    from lbd.learn.replay import Figures
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel

SEEDS = 3
TRIED = 24
DAYS = 7
APART = Apart(AvgShedderSettings().low_threshold, AvgShedderSettings().high_threshold)


@dataclass(frozen=True)
class Line:
    """One history: what was recommended, and the last days under the defaults and under that, by the truth."""

    shape: str
    seed: int
    recommended: str | None
    why: str
    default: Figures
    calibrated: Figures


def _figures(kept: Window, candidate: SettingsCandidate, model: LoadModel, days: Sequence[int]) -> dict[int, Figures]:
    """The figures of each day, out of one replay of all of it."""
    course = replay(kept, candidate.under(SETTINGS), model)
    begins = float(kept.at[0])
    return {
        number: figures(course.since(begins + number * DAY_SECONDS, begins + (number + 1) * DAY_SECONDS), APART)
        for number in days
    }


def learned(windows: Iterable[Window]) -> LoadModel:
    """The load model of all days."""
    parts = [gather(recorded([one.from_round(WARM_MINUTES)])) for one in windows]
    brokers = sorted(set().union(*parts))
    return fit({name: _one([part[name] for part in parts if name in part]) for name in brokers})


def _one(parts: list[BrokerSamples]) -> BrokerSamples:
    keys = ("at", "carried", "used", "since_change")
    columns = (np.concatenate([getattr(one, key) for one in parts]) for key in keys)
    return BrokerSamples(*columns, parts[-1].hardware)


def line(shape: str, seed: int, tried: int) -> Line:
    """Chosen on the first part of a history, judged on the rest."""
    found = week(shape, seed, DAYS)
    windows = {number: day(found.kept, number) for number in range(1, DAYS)}
    model = learned(windows.values())
    present = SettingsCandidate(PRESENT, AvgShedderSettings())
    drawn = candidates(present, float(np.median(model.noise[:, CPU])), tried, 1)
    by_name, numbers = {one.name: one for one in drawn}, list(windows)
    results = {name: _figures(found.kept, one, model, numbers) for name, one in by_name.items()}
    best = shortlist(results, numbers, with_fewer_moves(drawn))
    again = _often(found.kept, [by_name[name] for name in (PRESENT, *best)], model, numbers) if best else {}
    finalists = [by_name[name] for name in again]
    choice = (
        choose(results, again, numbers, in_incidents(windows, finalists, model))
        if best
        else Choice((), PRESENT, None, NOBODY)
    )
    if model.unknown(SETTINGS.weights):
        choice = replace(choice, recommended=None, why="no sample shows how CPU follows traffic on some broker")
    last = split(numbers)[1]
    judged = [by_name[PRESENT], by_name[choice.recommended or PRESENT]]
    often = [_often(found.kept, [one], found.model, last)[one.name] for one in judged]
    default, calibrated = (pooled(list(by_day.values())) for by_day in often)
    return Line(shape, seed, choice.recommended, choice.why, default, calibrated)


def in_incidents(
    windows: Mapping[int, Window], tried: Sequence[SettingsCandidate], model: LoadModel
) -> dict[str, dict[str, list[Harm]]]:
    """What each of them makes of each incident."""
    known = {one.name: one.under(SETTINGS) for one in tried}
    made: dict[str, dict[str, list[Harm]]] = {name: {} for name in known}
    for index, window in enumerate(windows.values()):
        for number, begins in times((window.at[WARM_MINUTES], window.at[-1]), index, len(windows)):
            for name, incident, harm in harms(window, begins, number, known, model, APART.low):
                made[name].setdefault(incident, []).append(harm)
    return made


def _often(
    kept: Window, tried: Sequence[SettingsCandidate], model: LoadModel, days: Sequence[int]
) -> dict[str, dict[int, Figures]]:
    """Figures over several deals of noise."""
    drawn = [dealt(kept, seed) for seed in range(DEALS)]
    found: dict[str, dict[int, Figures]] = {}
    for one in tried:
        deals = [_figures(window, one, model, days) for window in drawn]
        found[one.name] = {number: pooled([deal[number] for deal in deals]) for number in days}
    return found


def _row(one: Line) -> str:
    was, now = one.default, one.calibrated
    pairs = [(moves_per_day(was), moves_per_day(now)), (was.mean_gap, now.mean_gap), (was.p95_gap, now.p95_gap)]
    pairs += [(product(was), product(now)), (cost(was), cost(now))]
    cells = " | ".join(f"{before:.1f} → {then:.1f}" for before, then in pairs)
    return f"| {one.shape} | {one.seed} | {one.recommended or f'nothing: {one.why}'} | {cells} |"


def _ratios(label: str, lines: Sequence[Line]) -> str:
    """Medians and the worst. Where neither moves anything, nothing changes."""
    told = []
    for name, of in (("moves x gap", product), ("cost", cost)):
        ratios = [_ratio(of(one.default), of(one.calibrated)) for one in lines] or [math.nan]
        told.append(f"{name} {statistics.median(ratios):.2f} in the median, {max(ratios):.2f} at worst")
    return f"calibrated / default, {len(lines)} {label}: {'; '.join(told)}"


def _ratio(was: float, now: float) -> float:
    if now == was:
        return 1.0
    return now / was if was else math.inf


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench learn")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="again for more; none: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, SEEDS + 1)))
    parser.add_argument("--candidates", type=int, default=TRIED)
    asked = parser.parse_args(sys.argv[2:])
    print("| shape | seed | recommended | moves a day | mean gap | p95 gap | moves x gap | cost |")
    print("|---|---|---|---|---|---|---|---|")
    found = []
    for shape in asked.shape or SHAPES:
        for seed in asked.seeds:
            found.append(line(shape, seed, asked.candidates))
            print(_row(found[-1]), flush=True)
    print(_ratios("in all", found))
    print(_ratios("where the defaults move a bundle a day", [one for one in found if moves_per_day(one.default) >= 1]))
    print(_ratios("where something is recommended", [one for one in found if one.recommended]))
