"""What lbd calibrate chooses beside the default settings, on time that it was not chosen on.

    python -m tests.bench learn

Each history is a simulated week under the defaults. The first part chooses; the last is replayed under the defaults and
under what was chosen, as ``lbd calibrate`` does, but without Spark.
"""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.config import Settings
from lbd.cycle.chosen import effective
from lbd.cycle.rounds import round_of
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.learn.candidates import PRESENT, candidates
from lbd.learn.choosing import choose, cost, moves_per_day
from lbd.learn.closed_loop import replay
from lbd.learn.pipeline import _snapshots
from lbd.learn.scoring import figures
from lbd.learn.window import after
from lbd.load.fit import fit
from lbd.load.linear import CPU
from lbd.load.samples import BrokerSamples, gather
from lbd.record.history.settings import HistorySettings
from lbd.record.history.writer import Writer
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario
from tests.learn.windows import read, window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.learn.choosing import Judged
    from lbd.learn.window import Window
    from lbd.load.linear import LoadModel

SETTINGS = Settings.model_validate({"interval_seconds": 60})
SEEDS = (1,)
TRIED = 16
DAY_SECONDS = 86_400
DAY_MINUTES = 1440


def _namespace(name: str, mib: float, bundles: int, **shape: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mib_per_second": mib,
        "bundles": bundles,
        "spread": 1.0,
        "shape": shape or {"kind": "steady"},
    }


def _wave(name: str, mib: float, peak: float, amplitude: float = 0.5, bundles: int = 150) -> dict[str, Any]:
    return _namespace(name, mib, bundles, kind="wave", amplitude=amplitude, peak_at_hours=peak)


def _ramp(name: str, mib: float, day: int, to: float) -> dict[str, Any]:
    return _namespace(name, mib, 12, kind="ramp", to=to, at_minutes=DAY_MINUTES * day, minutes=2 * DAY_MINUTES)


def _batch(at: int) -> dict[str, Any]:
    return _namespace(f"batch{at}", 25, 6, kind="on-off", on_minutes=20 + 7 * at, off_minutes=300 + 53 * at)


def _brokers(number: int, background: float = 8) -> list[dict[str, Any]]:
    return [{"id": "b", "number": number, "background": background}]


SHAPES: dict[str, dict[str, Any]] = {
    "wave": {
        "brokers": _brokers(12),
        "load": [_wave("eu", 500, 13), _wave("us", 500, 21), _wave("asia", 400, 5)],
    },
    "drift": {
        "brokers": _brokers(10),
        "load": [
            *(_ramp(f"up{day}", 50, day, 4) for day in range(6)),
            *(_ramp(f"down{day}", 90, day, 0.3) for day in range(6)),
            _wave("base", 400, 12, 0.3, 200),
        ],
    },
    "noisy": {"noise_points": 4, "brokers": _brokers(12, 10), "load": [_wave("n", 1200, 12, 0.15, 400)]},
    "spiky": {
        "brokers": _brokers(10),
        "load": [_wave("base", 700, 14, 0.3, 250), *(_batch(at) for at in range(8))],
    },
    "joins": {
        "brokers": [
            *_brokers(8),
            *({"id": f"j{at}", "joins_at_minutes": DAY_MINUTES * day, "background": 8}
              for at, day in enumerate((1.5, 3.4, 5.6), 1)),
        ],
        "load": [_wave("eu", 500, 13), _wave("us", 500, 21)],
    },
}  # fmt: skip
"""Waves that peak at different hours; namespaces that grow and shrink for days; steady with four points of noise;
batches that come and go at hours of their own; brokers that join."""


@dataclass(frozen=True)
class Line:
    """One history: what was recommended, and both on the held-out time."""

    shape: str
    seed: int
    recommended: str | None
    why: str
    default: Judged
    calibrated: Judged


def simulate(root: Path, shape: str, seed: int) -> None:
    """A week of this shape under the default settings, as the daemon would have kept it."""
    about = {"about": shape, "hours": 7 * 24, "noise_points": 1.5, **SHAPES[shape]}
    writer = Writer(root, HistorySettings())
    for turned in Simulation(Scenario.model_validate(about), SETTINGS, seed, time.perf_counter).turns():
        kept = round_of(turned.record, SETTINGS.strategy, effective(SETTINGS).model_dump_json())
        assert kept is not None
        writer.add(kept)
    writer.flush()


def days(root: Path) -> dict[int, Window]:
    """Its windows of a day, by number."""
    samples = {(row["t"], row["broker"]): row for row in read(root, "broker_rounds")}
    reports: dict[int, list[dict[str, Any]]] = {}
    for one in read(root, "decisions"):
        number = int(one["t"].timestamp() // DAY_SECONDS)
        rows = ({**samples.get((one["t"], name), {}), "t": one["t"], "broker": name} for name in one["brokers"])
        reports.setdefault(number, []).extend(rows)
    bundles: dict[int, list[dict[str, Any]]] = {}
    for row in read(root, "bundle_rounds"):
        bundles.setdefault(int(row["t"].timestamp() // DAY_SECONDS), []).append(row)
    found = {number: window(own, bundles.get(number, [])) for number, own in sorted(reports.items())}
    return {number: own for number, own in found.items() if own.at.size > 1}


def learned(windows: Mapping[int, Window]) -> LoadModel:
    """The load model of all of it."""
    parts = [gather(_snapshots(own)) for own in windows.values()]
    return fit({name: _one([part[name] for part in parts if name in part]) for name in sorted(set().union(*parts))})


def _one(parts: list[BrokerSamples]) -> BrokerSamples:
    columns = (
        np.concatenate([getattr(one, key) for one in parts]) for key in ("at", "carried", "used", "since_change")
    )
    return BrokerSamples(*columns, parts[-1].hardware)


def line(root: Path, shape: str, seed: int) -> Line:
    """Chosen on the first part of the history, judged on the rest."""
    windows = days(root)
    model = learned(windows)
    tried = candidates(AvgShedderSettings(), float(np.median(model.noise[:, CPU])), TRIED, 1)
    numbers = list(windows)
    results: dict[str, dict[int, Any]] = {one.name: {} for one in tried}
    for before, number in pairwise(numbers):
        whole, begins = after(windows[before], windows[number]), float(windows[number].at[0])
        for one in tried:
            course = replay(whole, one.under(SETTINGS), model)
            results[one.name][number] = figures(course.since(begins), AvgShedderSettings().low_threshold)
    choice = choose(results, numbers[1:])
    judged = {one.name: one for one in choice.judged}
    return Line(shape, seed, choice.recommended, choice.why, judged[PRESENT], judged[choice.recommended or PRESENT])


def lines(folder: Path) -> Iterator[Line]:
    """All shapes and seeds."""
    for seed in SEEDS:
        for shape in SHAPES:
            root = folder / f"{shape}-{seed}"
            if not (root / "v1").is_dir():
                simulate(root, shape, seed)
            yield line(root, shape, seed)


def in_scratch() -> Iterator[Line]:
    """The lines, over histories that are gone afterwards."""
    with TemporaryDirectory() as folder:
        yield from lines(Path(folder))


def main() -> None:
    """Print the table."""
    print("| shape | seed | recommended | moves a day | mean gap | moves x gap | cost |")
    print("|---|---|---|---|---|---|---|")
    products, costs = [], []
    for one in in_scratch():
        was, now = one.default.held_out, one.calibrated.held_out
        pairs = [(moves_per_day(was), moves_per_day(now)), (was.mean_gap, now.mean_gap)]
        pairs += [(pairs[0][0] * was.mean_gap, pairs[0][1] * now.mean_gap), (cost(was), cost(now))]
        cells = " | ".join(f"{before:.1f} → {then:.1f}" for before, then in pairs)
        print(f"| {one.shape} | {one.seed} | {one.recommended or f'nothing: {one.why}'} | {cells} |", flush=True)
        with suppress(ZeroDivisionError):
            products.append(pairs[2][1] / pairs[2][0])
        costs.append(pairs[3][1] / pairs[3][0])
    told = f"moves x gap {statistics.median(products):.2f}, worst {max(products):.2f}; " if products else ""
    print(f"calibrated / default: {told}cost {statistics.median(costs):.2f}, worst {max(costs):.2f}")
