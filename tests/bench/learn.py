"""What lbd calibrate claims of the next week, against what that week was like.

    python -m tests.bench learn [--week SHAPE:SEED]... [--days N] [--candidates N] [--present JSON] [--jobs N]
                                [--plot FILE.svg]

A simulated cluster under the present settings (``weeks.py``), whose bundles' rates scatter: a history of some days, and
a week. From the history settings are chosen as ``lbd calibrate`` does, but without Spark. The week, which nothing has
seen, is then replayed from the placement with which the present settings began it, by the simulation's own slopes,
under them and under those that were about to be proposed: a replay makes the moves of a simulated lbd
(``tests/learn/test_closed_loop.py``). Each line is of settings on the shortlist: claimed with its interval, and found.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.learn.choose import (
    CLAIMED,
    COST,
    DEALS,
    MEASURES,
    MOVES,
    OVER_HIGH,
    OVER_LOW,
    PRESENT,
    SettingsCandidate,
    candidates,
    choose,
    clearly_better,
    effects,
    shortlist,
    through_incidents,
)
from lbd.learn.incidents import harms, times
from lbd.learn.replay import Scale, figures, pooled, recorded, replay
from lbd.learn.window import OF_BROKERS, OF_BUNDLES, dealt
from lbd.load.estimate import CPU
from lbd.load.fit import fit
from lbd.load.samples import BrokerSamples, gather
from lbd.text import DAY_SECONDS
from tests.bench.weeks import DAY_MINUTES, SETTINGS, SHAPES, WARM_MINUTES, day, week

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lbd.learn.incidents import Harm
    from lbd.learn.prediction import PredictedEffect
    from lbd.learn.replay import Figures
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel

SEEDS = 2
TRIED = 24
DAYS = 7
"""Days of a history, where no others are asked for, and of the week after it."""
SCATTER = 0.2


@dataclass(frozen=True)
class Claim:
    """Settings on the shortlist of a history. ``gap`` is found, as a share of that under the present ones."""

    shape: str
    seed: int
    name: str
    recommended: bool
    claimed: Mapping[str, PredictedEffect]
    present: Mapping[str, float]
    found: Mapping[str, float]
    gap: float

    def difference(self, measure: str) -> float:
        """Found more than under the present settings."""
        return self.found[measure] - self.present[measure]

    def holds(self, measure: str) -> bool:
        """Whether what is found lies in the interval."""
        return self.claimed[measure].low <= self.difference(measure) <= self.claimed[measure].high


@dataclass(frozen=True)
class Week:
    """A history: what was made of it."""

    shape: str
    seed: int
    why: str
    present: Mapping[str, float]
    claims: tuple[Claim, ...]


def _days(
    kept: Window, candidate: SettingsCandidate, model: LoadModel, days: Sequence[int], scale: Scale
) -> dict[int, Figures]:
    """The figures of each day, out of one replay of all of it."""
    course = replay(kept, candidate.under(SETTINGS), model)
    begins = float(kept.at[0])
    return {
        number: figures(course.since(begins + number * DAY_SECONDS, begins + (number + 1) * DAY_SECONDS), scale)
        for number in days
    }


def learned(windows: Iterable[Window]) -> LoadModel:
    """The load model of all days."""
    parts = [gather(recorded([window.from_round(WARM_MINUTES)])) for window in windows]
    brokers = sorted(set().union(*parts))
    return fit({name: _joined([part[name] for part in parts if name in part]) for name in brokers})


def _joined(parts: list[BrokerSamples]) -> BrokerSamples:
    keys = ("at", "carried", "used", "since_change")
    columns = (np.concatenate([getattr(part, key) for part in parts]) for key in keys)
    return BrokerSamples(*columns, parts[-1].hardware)


def chosen(shape: str, seed: int, tried: int, days: int, in_force: AvgShedderSettings) -> Week:
    """Settings chosen by these days, and found in the week after them."""
    present = SettingsCandidate(PRESENT, in_force, SETTINGS.guardrails.max_unloads_per_turn)
    scale = Scale(in_force.low_threshold, in_force.high_threshold)
    both = week(shape, seed, days + DAYS, scatter=SCATTER, settings=present.under(SETTINGS))
    end = days * DAY_MINUTES
    known = both.kept.change_round < end
    rounds = {name: getattr(both.kept, name)[:end] for name in ("at", *OF_BROKERS)}
    history = replace(both.kept, **rounds, **{name: getattr(both.kept, name)[known] for name in OF_BUNDLES})
    windows = {number: day(history, number) for number in range(1, days)}
    model = learned(windows.values())
    drawn = candidates(present, float(np.median(model.noise[:, CPU])), tried, 1)
    by_name, numbers = {candidate.name: candidate for candidate in drawn}, list(windows)
    results = {name: _days(history, candidate, model, numbers, scale) for name, candidate in by_name.items()}
    harms_of = through_incidents(
        clearly_better(results, numbers),
        lambda some: in_incidents(windows, [by_name[name] for name in some], model, scale),
    )
    names = shortlist(harms_of)
    finalists = [by_name[name] for name in (PRESENT, *names)] if names else []
    again = [
        {candidate.name: _days(dealt(history, seed), candidate, model, numbers, scale) for candidate in finalists}
        for seed in range(DEALS if names else 0)
    ]
    choice = choose(results, again, numbers, harms_of)
    why = choice.why
    if model.unknown(SETTINGS.weights):
        choice = replace(choice, recommended=None)
        why = "no sample shows how CPU follows traffic on some broker"
    following = both.kept.from_round(end)
    found = {
        name: pooled(list(_days(following, by_name[name], both.model, range(DAYS), scale).values()))
        for name in (PRESENT, *names)
    }
    measured = {name: {measure: of(own) for measure, of in MEASURES.items()} for name, own in found.items()}
    claims = (
        Claim(
            shape,
            seed,
            name,
            name == choice.recommended,
            effects(again, name, numbers),
            measured[PRESENT],
            measured[name],
            found[name].mean_gap / found[PRESENT].mean_gap,
        )
        for name in names
    )
    return Week(shape, seed, why, measured[PRESENT], tuple(claims))


def in_incidents(
    windows: Mapping[int, Window], tried: Sequence[SettingsCandidate], model: LoadModel, scale: Scale
) -> dict[str, dict[str, list[Harm]]]:
    """What each of them makes of each incident."""
    known = {candidate.name: candidate.under(SETTINGS) for candidate in tried}
    made: dict[str, dict[str, list[Harm]]] = {name: {} for name in known}
    for index, window in enumerate(windows.values()):
        for number, begins in times(window.at[WARM_MINUTES:], index, len(windows)):
            for name, incident, harm in harms(window, begins, number, known, model, scale):
                made[name].setdefault(incident, []).append(harm)
    return made


def _rows(own: Week) -> list[str]:
    begin = f"| {own.shape} | {own.seed} |"
    if not own.claims:
        present = " | ".join(f"{own.present[measure]:.1f} | | " for measure in CLAIMED)
        return [f"{begin} nothing: {own.why} | {present} |"]
    rows = []
    for claim in own.claims:
        cells = []
        for measure in CLAIMED:
            expected, found = claim.claimed[measure], f"{claim.difference(measure):+.1f}"
            ends = f"{expected.mean:+.1f} ({expected.low:+.1f} to {expected.high:+.1f})"
            cells += [f"{claim.present[measure]:.1f}", ends, found if claim.holds(measure) else f"**{found}**"]
        name = f"*{claim.name}*" if claim.recommended else claim.name
        rows.append(f"{begin} {name} | {' | '.join(cells)} |")
    return [*rows, *([] if any(claim.recommended for claim in own.claims) else [f"{begin} nothing: {own.why} |"])]


def _binomial(held: int, number: int) -> tuple[float, float]:
    """The interval of a share, at nine of ten (Wilson, 1927)."""
    z = statistics.NormalDist().inv_cdf(0.95)
    middle = (held + z**2 / 2) / (number + z**2)
    half = z * (held * (number - held) / number + z**2 / 4) ** 0.5 / (number + z**2)
    return middle - half, middle + half


def _summary(weeks: Sequence[Week]) -> list[str]:
    """How many claims held, with a binomial interval for nine of ten, and what proposals did."""
    claims = [claim for own in weeks for claim in own.claims]
    proposed = [claim for claim in claims if claim.recommended]
    lines = []
    for label, those in (("on the shortlist", claims), ("proposed", proposed)):
        for measure in CLAIMED:
            held = sum(claim.holds(measure) for claim in those)
            if those:
                low, high = _binomial(held, len(those))
                lines.append(f"{label}, {measure}: {held} of {len(those)} ({low:.0%} to {high:.0%})")
    worse = [claim for claim in proposed if claim.difference(OVER_HIGH) > 0]
    shares = [
        claim.gap * (claim.found[MOVES] / claim.present[MOVES] if claim.present[MOVES] else 1.0) for claim in proposed
    ]
    dear = [claim for claim in proposed if claim.difference(COST) > 0]
    lines.append(
        f"{len(proposed)} proposals of {len(weeks)} weeks; more minutes above the high threshold: {len(worse)}"
    )
    lines.append(f"proposals that cost more client-minutes than the present settings: {len(dear)}")
    if shares:
        lines.append(f"moves x gap: {statistics.median(shares):.2f} in the median, {max(shares):.2f} at worst")
    return lines


def drawn(claims: Sequence[Claim]) -> str:
    """A panel for each measure, a line for each claim: its interval and mean, and a dot where the next week was."""
    height = ROW_PIXELS * (len(claims) + 3)
    panels = [
        f'<g transform="translate({NAME_PIXELS + at * PANEL_PIXELS} 0)">{"".join(_panel(measure, claims))}</g>'
        for at, measure in enumerate((COST, MOVES, OVER_LOW))
    ]
    names = [
        _text(0, row, f"{claim.shape} {claim.seed}: {claim.name}{' (proposed)' if claim.recommended else ''}")
        for row, claim in enumerate(claims)
    ]
    width = NAME_PIXELS + 3 * PANEL_PIXELS + WORDS_PIXELS
    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {box}><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([svg, *names, *panels, "</svg>", ""])


NAME_PIXELS, PANEL_PIXELS, ROW_PIXELS = 350, 200, 18
WORDS_PIXELS = 90
"""What the heading of the last panel takes beyond it."""


def _text(x: float, row: int, words: str) -> str:
    return f'<text x="{x:.0f}" y="{ROW_PIXELS * (row + 2) + 4}">{escape(words)}</text>'


def _panel(measure: str, claims: Sequence[Claim]) -> Iterator[str]:
    """Nothing is at the dashed line: left of it is less than under the present settings."""
    most = max((abs(end) for claim in claims for end in _ends(claim, measure)), default=0.0) or 1.0
    bottom, middle, scale = ROW_PIXELS * (len(claims) + 2), PANEL_PIXELS / 2, (PANEL_PIXELS / 2 - 10) / most
    yield _text(10, -1, f"{measure}, to ±{most:.0f}")
    yield f'<path d="M{middle} {ROW_PIXELS}V{bottom}" stroke="#999" stroke-dasharray="3"/>'
    for row, claim in enumerate(claims):
        (low, high, found), y = _ends(claim, measure), ROW_PIXELS * (row + 2)
        begin, end, mean = (middle + scale * value for value in (low, high, claim.claimed[measure].mean))
        yield f'<path d="M{begin:.1f} {y}H{end:.1f}M{mean:.1f} {y - 4}v8" stroke="#333" fill="none"/>'
        colour = "#0a0" if claim.holds(measure) else "#d00"
        yield f'<circle cx="{middle + scale * found:.1f}" cy="{y}" r="3.5" fill="{colour}"/>'


def _ends(claim: Claim, measure: str) -> tuple[float, float, float]:
    return claim.claimed[measure].low, claim.claimed[measure].high, claim.difference(measure)


def main() -> None:
    """Print the table, week by week."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench learn")
    parser.add_argument("--week", action="append", metavar="SHAPE:SEED", help="again for more; none: all shapes")
    parser.add_argument("--days", type=int, default=DAYS, metavar="N", help="days of the history")
    parser.add_argument("--candidates", type=int, default=TRIED, metavar="N")
    parser.add_argument("--present", default="{}", metavar="JSON", help="settings of AvgShedder in force")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="claimed and found, as a picture")
    asked = parser.parse_args(sys.argv[2:])
    wanted = asked.week or [f"{shape}:{seed}" for seed in range(1, SEEDS + 1) for shape in SHAPES]
    heads = " | ".join(f"{measure}: present | claimed | found" for measure in CLAIMED)
    print(f"| shape | seed | settings | {heads} |")
    print("|---|---|---|" + "---|---|---|" * len(CLAIMED))
    weeks, in_force = [], AvgShedderSettings.model_validate_json(asked.present)
    with ProcessPoolExecutor(asked.jobs) as processes:
        parts = [(shape, int(seed)) for shape, _, seed in (name.partition(":") for name in wanted)]
        running = [
            processes.submit(chosen, shape, seed, asked.candidates, asked.days, in_force) for shape, seed in parts
        ]
        for ended in running:
            weeks.append(ended.result())
            print("\n".join(_rows(weeks[-1])), flush=True)
            print("\n".join(f"    {line}" for line in _summary(weeks)), file=sys.stderr, flush=True)
            if asked.plot:
                asked.plot.write_text(drawn([claim for own in weeks for claim in own.claims]))
    print("\n".join(_summary(weeks)))
