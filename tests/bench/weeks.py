"""Weeks of simulated clusters as windows of history, with the truth beside them.

The cluster is :mod:`lbd.simulate`'s, a sample of each broker a minute. What the default settings make of it is told by
one closed-loop replay of the whole week under the true load model: that is the history; the daemon's own turns, at a
minute of processor time a week, would say the same (``tests/learn/test_closed_loop.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.config import Settings
from lbd.learn.replay import replay
from lbd.learn.window import OF_BROKERS, Window
from lbd.load.estimate import CPU, fixed_model
from lbd.model import RESOURCES
from lbd.simulate.cluster import cluster, noisy, points_at, rates_at
from lbd.simulate.run import BEGUN_AT
from lbd.simulate.scenario import Scenario
from lbd.simulate.world import MIB

if TYPE_CHECKING:
    from lbd.learn.replay import Course
    from lbd.load.estimate import LoadModel
    from lbd.model import BoolArray, FloatArray
    from lbd.simulate.world import ClusterState, World

SETTINGS = Settings.model_validate({"interval_seconds": 60})
DAY_MINUTES = 1440
WARM_MINUTES = 360
STEP = 0.05
"""Rates are stored when they have changed by so much, as ``history.step``."""

LASTING = 0.98
"""Share of a bundle's scatter that is still there a minute later: it is gone after an hour or so."""

CLIENTS = 10
"""Of each bundle: the simulation has none of its own."""

START_MINUTES = 2
"""So long the samples of a broker that has come are not trusted."""


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


def _batch(at: int, mib: float = 25) -> dict[str, Any]:
    return _namespace(f"batch{at}", mib, 6, kind="on-off", on_minutes=20 + 7 * at, off_minutes=300 + 53 * at)


def _job(name: str, peak_mib: float, minutes: int, every: int) -> dict[str, Any]:
    """Eight bundles of a tenant that carry nothing but for some minutes of so many, when they carry ``peak_mib``."""
    shape = {"kind": "on-off", "on_minutes": minutes, "off_minutes": every - minutes}
    return _namespace(name, peak_mib * minutes / every, 8, **shape)


def _brokers(number: int, background: float = 8) -> list[dict[str, Any]]:
    return [{"id": "b", "number": number, "background": background}]


def _beside(name: str, first: int, every: int, minutes: int, points: float) -> dict[str, Any]:
    """A broker with a neighbour on its host that works at fixed times."""
    times = range(first, 7 * DAY_MINUTES, every)
    bursts = [{"at_minutes": at, "minutes": minutes, "points": points} for at in times]
    return {"id": name, "background": 8, "bursts": bursts}


SHAPES: dict[str, dict[str, Any]] = {
    "wave": {
        "brokers": _brokers(12),
        "load": [_wave("eu", 500, 13), _wave("us", 500, 21), _wave("asia", 400, 5)],
    },
    "calm": {
        "brokers": _brokers(9),
        "load": [_wave("eu", 350, 13, bundles=80), _wave("us", 350, 21, bundles=80), _wave("asia", 350, 5, bundles=80)],
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
    "batches": {
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
    "regions": {
        "brokers": _brokers(12),
        "load": [_wave(f"r{at}", 170, 3.0 * at, 0.9, 30) for at in range(8)],
    },
    "cron": {
        "brokers": _brokers(10),
        "load": [
            _wave("base", 700, 14, 0.3, 250),
            _job("nightly", 150, 30, DAY_MINUTES), _job("report", 120, 25, 240), _job("hourly", 100, 6, 60),
        ],
    },
    "neighbours": {
        "brokers": [
            *_brokers(6),
            *({"id": name, "number": 2, "background": 8, "capacity": size} for name, size in (("s", 0.6), ("l", 1.6))),
            _beside("backup", 120, DAY_MINUTES, 45, 25), _beside("compaction", 540, DAY_MINUTES // 2, 25, 20),
        ],
        "load": [_wave("eu", 400, 13), _wave("us", 400, 21)],
    },
}  # fmt: skip
"""Waves that peak at different hours, and the same on fewer brokers; namespaces that grow and shrink for days; steady
with four points of noise;
batches that come and go at hours of their own; brokers that join; eight regions of few large bundles that hardly carry
anything by night; one tenant's jobs of half an hour by the clock; two weak and two strong machines, and two whose hosts
do other work for three quarters of an hour a day."""


@dataclass(frozen=True)
class Week:
    """``true`` is the cluster as nobody balanced it, with its ``model``; ``kept`` the history under some settings."""

    true: Window
    model: LoadModel
    kept: Window


def week(
    shape: str,
    seed: int,
    days: int = 7,
    noise_points: float = 1.5,
    scatter: float = 0.0,
    settings: Settings = SETTINGS,
) -> Week:
    """A week of this shape under these settings, whose samples have so much noise unless it has its own.

    ``scatter`` is the deviation of the logarithm of each bundle's rates around the shape of its namespace.
    """
    about = {"about": shape, "hours": days * 24, "noise_points": noise_points, **SHAPES[shape]}
    world, state = cluster(Scenario.model_validate(about), seed)
    true = _unbalanced(world, state, days * DAY_MINUTES, scatter)
    model = fixed_model(world.brokers, world.background, world.points_per_mib / world.capacity / 2 / MIB)
    course = replay(true, settings, model)
    return Week(true, model, _with(true, course))


def day(whole: Window, number: int) -> Window:
    """A day of it, with the hours before it that warm a replay up."""
    last = (number + 1) * DAY_MINUTES
    known = whole.change_round < last
    rows = {name: getattr(whole, name)[:last] for name in ("at", *OF_BROKERS)}
    rows |= {name: getattr(whole, name)[known] for name in _CHANGES}
    return replace(whole, **rows).from_round(number * DAY_MINUTES - WARM_MINUTES)


_CHANGES = ("change_round", "change_bundle", "change_owner", "change_rates", "change_clients")


def _unbalanced(world: World, state: ClusterState, minutes: int, scatter: float) -> Window:
    random = np.random.default_rng(len(world.bundles))
    apart = random.standard_normal(len(world.bundles))
    shape = (minutes, len(world.brokers))
    used, present = np.full((*shape, len(RESOURCES)), np.nan), np.zeros(shape, dtype=np.bool_)
    stored: FloatArray = np.zeros((len(world.bundles), 4))
    changed: list[tuple[int, BoolArray, FloatArray]] = []
    for minute in range(minutes):
        apart = LASTING * apart + (1 - LASTING**2) ** 0.5 * random.standard_normal(apart.size)
        rates = rates_at(world, minute * 60 - 30) * np.exp(scatter * apart - scatter**2 / 2)[:, None]
        used[minute, :, CPU] = noisy(world, points_at(world, state.owner, rates, minute * 60 - 30), minute * 60)
        present[minute] = world.present(minute * 60)
        new = (np.abs(rates - stored) > np.maximum(np.abs(stored) * STEP, 1e-9)).any(axis=1)
        stored[new] = rates[new]
        changed.append((minute, np.flatnonzero(new), rates[new]))
    bundle = np.concatenate([own for _, own, _ in changed]).astype(np.int32)
    began = np.where(np.isfinite(world.joins_at), world.joins_at, -30 * 86_400)
    young = np.arange(minutes)[:, None] * 60 - began < START_MINUTES * 60
    return Window(
        brokers=world.brokers,
        bundles=world.bundles,
        at=BEGUN_AT + 60.0 * np.arange(minutes),
        used=used,
        totals=np.full((*shape, 4), np.nan),
        present=present,
        fresh=present.copy(),
        doubted=present & young,
        started_at=np.broadcast_to(BEGUN_AT + began, shape).copy(),
        capacity=np.ones(shape),
        change_round=np.repeat(np.arange(minutes, dtype=np.int32), [own.size for _, own, _ in changed]),
        change_bundle=bundle,
        change_owner=state.owner[bundle].astype(np.int32),
        change_rates=np.concatenate([rates for _, _, rates in changed]).astype(np.float32),
        change_clients=np.full(bundle.size, CLIENTS, dtype=np.int32),
    )


def _with(true: Window, course: Course) -> Window:
    """The history of a run: bundles are where its moves left them, and brokers were as busy as it says."""
    owner, broker = true.change_owner.copy(), {name: at for at, name in enumerate(true.brokers)}
    index = {name: at for at, name in enumerate(true.bundles)}
    rows: dict[str, list[Any]] = {name: [] for name in _CHANGES}
    for one in course.moves:
        at, bundle = int(np.searchsorted(true.at, one.at)) + 1, index[one.bundle]
        own = true.change_bundle == bundle
        if at < true.at.size:
            last = np.flatnonzero(own & (true.change_round <= at))[-1]
            values = (at, bundle, broker[one.destination], true.change_rates[last], CLIENTS)
            for name, value in zip(_CHANGES, values, strict=True):
                rows[name].append(value)
        owner[own & (true.change_round >= at)] = broker[one.destination]
    values = {name: getattr(true, name) for name in _CHANGES} | {"change_owner": owner}
    if course.moves:
        values = {name: np.concatenate([own, np.array(rows[name], dtype=own.dtype)]) for name, own in values.items()}
    order = np.argsort(values["change_round"], kind="stable")
    used = true.used.copy()
    used[:, :, CPU] = course.points
    return replace(true, used=used, **{name: own[order] for name, own in values.items()})
