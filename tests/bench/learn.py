"""What lbd calibrate chooses beside the default settings, on time that it was not chosen on.

    python -m tests.bench learn [--shape NAME]... [--seeds N] [--candidates N] [--full]

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
    PARTS,
    PRESENT,
    Choice,
    SettingsCandidate,
    candidates,
    choose,
    cost,
    halving,
    moves_per_day,
    product,
    shortlist,
    split,
    with_fewer_moves,
)
from lbd.learn.incidents import harms, times
from lbd.learn.replay import figures, pooled, recorded, replay
from lbd.learn.window import dealt
from lbd.load.estimate import CPU
from lbd.load.fit import fit
from lbd.load.samples import BrokerSamples, gather
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
OVER_POINTS = AvgShedderSettings().low_threshold


@dataclass(frozen=True)
class Line:
    """One history: what was recommended, and the last days under the defaults and under that, by the truth."""

    shape: str
    seed: int
    recommended: str | None
    why: str
    default: Figures
    calibrated: Figures


def _figures(window: Window, candidate: SettingsCandidate, model: LoadModel) -> Figures:
    course = replay(window, candidate.under(SETTINGS), model)
    return figures(course.since(float(window.at[WARM_MINUTES])), OVER_POINTS)


def learned(windows: Iterable[Window]) -> LoadModel:
    """The load model of all days."""
    parts = [gather(recorded(one.from_round(WARM_MINUTES))) for one in windows]
    brokers = sorted(set().union(*parts))
    return fit({name: _one([part[name] for part in parts if name in part]) for name in brokers})


def _one(parts: list[BrokerSamples]) -> BrokerSamples:
    keys = ("at", "carried", "used", "since_change")
    columns = (np.concatenate([getattr(one, key) for one in parts]) for key in keys)
    return BrokerSamples(*columns, parts[-1].hardware)


def line(shape: str, seed: int, tried: int, parts: Sequence[int]) -> Line:
    """Chosen on the first part of a history, judged on the rest."""
    found = week(shape, seed, DAYS)
    windows = {number: day(found.kept, number) for number in range(1, DAYS)}
    model = learned(windows.values())
    present = SettingsCandidate(PRESENT, AvgShedderSettings())
    drawn = candidates(present, float(np.median(model.noise[:, CPU])), tried, 1)
    by_name, numbers = {one.name: one for one in drawn}, list(windows)

    def replayed(names: Sequence[str], over: Sequence[int]) -> dict[str, dict[int, Figures]]:
        return {name: {at: _figures(windows[at], by_name[name], model) for at in over} for name in names}

    slower = with_fewer_moves(drawn)
    best = shortlist(halving(list(by_name), numbers, replayed, parts, slower), numbers, slower)
    again = _often(windows, [by_name[name] for name in (PRESENT, *best)], model) if best else {}
    finalists = [by_name[name] for name in again]
    choice = (
        choose(again, again, numbers, in_incidents(windows, finalists, model))
        if best
        else Choice((), PRESENT, None, NOBODY)
    )
    if model.unknown(SETTINGS.weights):
        choice = replace(choice, recommended=None, why="no sample shows how CPU follows traffic on some broker")
    last = {number: windows[number] for number in split(numbers)[1]}
    judged = [by_name[PRESENT], by_name[choice.recommended or PRESENT]]
    default, calibrated = (pooled(list(_often(last, [one], found.model)[one.name].values())) for one in judged)
    return Line(shape, seed, choice.recommended, choice.why, default, calibrated)


def in_incidents(
    windows: Mapping[int, Window], tried: Sequence[SettingsCandidate], model: LoadModel
) -> dict[str, dict[str, list[Harm]]]:
    """What each of them makes of each incident."""
    known = {one.name: one.under(SETTINGS) for one in tried}
    made: dict[str, dict[str, list[Harm]]] = {name: {} for name in known}
    for index, window in enumerate(windows.values()):
        for number, begins in times(window.at[WARM_MINUTES:], index, len(windows)):
            for name, incident, harm in harms(window, begins, number, known, model, OVER_POINTS):
                made[name].setdefault(incident, []).append(harm)
    return made


def _often(
    windows: Mapping[int, Window], tried: Sequence[SettingsCandidate], model: LoadModel
) -> dict[str, dict[int, Figures]]:
    """Figures over several deals of noise."""
    drawn = {number: [dealt(window, seed) for seed in range(DEALS)] for number, window in windows.items()}
    return {
        one.name: {number: pooled([_figures(own, one, model) for own in deals]) for number, deals in drawn.items()}
        for one in tried
    }


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
    parser.add_argument("--full", action="store_true", help="replay all of them in all windows to choose on")
    asked = parser.parse_args(sys.argv[2:])
    print("| shape | seed | recommended | moves a day | mean gap | p95 gap | moves x gap | cost |")
    print("|---|---|---|---|---|---|---|---|")
    found = []
    for shape in asked.shape or SHAPES:
        for seed in asked.seeds:
            found.append(line(shape, seed, asked.candidates, (1,) if asked.full else PARTS))
            print(_row(found[-1]), flush=True)
    print(_ratios("in all", found))
    print(_ratios("where the defaults move a bundle a day", [one for one in found if moves_per_day(one.default) >= 1]))
    print(_ratios("where something is recommended", [one for one in found if one.recommended]))
