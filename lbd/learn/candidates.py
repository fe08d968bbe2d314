"""Settings worth trying: those in force, the defaults, and a seeded draw around what the noise allows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.config import section_of
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.decide.least_moves.settings import LeastMovesSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lbd.config import Settings

    Tunable = AvgShedderSettings | LeastMovesSettings

LOW_THRESHOLDS = (6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 22.0, 28.0)
HIGH_THRESHOLDS = (25.0, 30.0, 40.0, 50.0, 60.0)
LOW_HITS = (3, 5, 8, 12, 20, 30, 45)
HIGH_HITS = (2, 3, 5, 10)
SHARES = (0.2, 0.35, 0.5)
"""What is drawn from: points, points, samples, samples, and fractions of a pair's difference in traffic. Traffic that
comes and goes within half an hour is gone before the longest of these waits is over."""

ALONE_SHARE = 0.5
"""Of what is drawn, so many settings at most differ from the base in one value: what one change does is told apart from
the others, and fewer of them are good by chance."""

AIMS = (2.0, 3.5, 5.0)
"""least-moves: points around the level within which a plan leaves its brokers. Its thresholds are from the level, which
is in the middle: half of those above, which are between brokers."""

NOISE_DEVIATIONS = 2.5
"""A low threshold is so many deviations of a difference of two samples at least: one sample in a hundred of a level
pair passes it, and hit counts want several in a row. Whether that moves too much is for the replays to say, which have
the recorded noise in them."""

PRESENT, DEFAULT = "present", "default"

TUNABLE: dict[str, type[Tunable]] = {one.name: one for one in (AvgShedderSettings, LeastMovesSettings)}
"""Strategies whose settings are tried; the others' depend on what history does not hold, or have no thresholds."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a strategy, and what they are called."""

    name: str
    settings: Tunable

    @property
    def values(self) -> dict[str, Any]:
        """As in lbd.yaml."""
        strategy = type(self.settings).name
        return {"strategy": strategy, section_of(strategy): self.settings.model_dump(mode="json")}

    def under(self, settings: Settings) -> Settings:
        """The settings of a replay: everything else as given."""
        return settings.model_copy(
            update={"strategy": type(self.settings).name, section_of(type(self.settings).name): self.settings}
        )


def candidates(
    present: Tunable, noise_points: float, number: int, seed: int, others: Sequence[str] = ()
) -> tuple[Candidate, ...]:
    """So many candidates, the present settings and the defaults first, none twice.

    ``noise_points`` is the standard deviation of one broker's samples: lower thresholds than it bears are not tried.
    ``others`` are strategies to try beside the present one, keys of :data:`TUNABLE`; each gets an equal share.
    """
    strategies = [type(present).name, *(name for name in others if name != type(present).name)]
    found = {_key(present): Candidate(PRESENT, present)}
    for name in strategies:
        default = TUNABLE[name]()
        found.setdefault(_key(default), Candidate(DEFAULT if name == strategies[0] else f"{name}, {DEFAULT}", default))
    random = np.random.default_rng(seed)
    for at, name in enumerate(strategies):
        base = present if name == type(present).name else TUNABLE[name]()
        until = len(found) + (number - len(found)) // (len(strategies) - at)
        for changes in _drawn(base, list(_GRIDS[name](NOISE_DEVIATIONS * noise_points * 2**0.5)), until, random):
            if len(found) >= until:
                break
            settings = base.model_copy(update=changes)
            found.setdefault(_key(settings), Candidate(_name(name, changes), settings))
    return tuple(found.values())[: max(number, 1)]


def _drawn(
    base: Tunable, grid: list[dict[str, float]], number: int, random: np.random.Generator
) -> Iterator[dict[str, float]]:
    """Those that differ from the base in one value, as many as :data:`ALONE_SHARE` allows, and then any."""
    order = [grid[at] for at in random.permutation(len(grid)).tolist()]
    alone = [one for one in order if sum(getattr(base, key) != value for key, value in one.items()) == 1]
    yield from alone[: round(number * ALONE_SHARE)]
    yield from order


def _avg_shedder(least_points: float) -> Iterator[dict[str, float]]:
    lows = [low for low in LOW_THRESHOLDS if low >= least_points] or [LOW_THRESHOLDS[-1]]
    return (
        {"low_threshold": low, "high_threshold": high, "hit_count_low": few, "hit_count_high": fewer,
         "max_unload_percentage": share}
        for low in lows for high in HIGH_THRESHOLDS if high > low
        for few in LOW_HITS for fewer in HIGH_HITS if fewer <= few for share in SHARES
    )  # fmt: skip


def _least_moves(least_points: float) -> Iterator[dict[str, float]]:
    lows = [low / 2 for low in LOW_THRESHOLDS if low >= least_points] or [LOW_THRESHOLDS[-1] / 2]
    return (
        {"low_threshold": low, "high_threshold": high / 2, "hit_count_low": few, "hit_count_high": fewer,
         "aim_points": aim}
        for low in lows for high in HIGH_THRESHOLDS if high / 2 > low
        for few in LOW_HITS for fewer in HIGH_HITS if fewer <= few for aim in AIMS if aim < low
    )  # fmt: skip


_GRIDS = {AvgShedderSettings.name: _avg_shedder, LeastMovesSettings.name: _least_moves}


def _key(settings: Tunable) -> str:
    return f"{type(settings).name} {settings.model_dump_json()}"


def _name(strategy: str, values: Mapping[str, float]) -> str:
    """``low 15 x 8, high 40 x 2, share 0.5``."""
    low, high = values["low_threshold"], values["high_threshold"]
    text = f"low {low:g} x {values['hit_count_low']}, high {high:g} x {values['hit_count_high']}"
    if strategy == LeastMovesSettings.name:
        return f"{strategy}, {text}, aim {values['aim_points']:g}"
    return f"{text}, share {values['max_unload_percentage']:g}"
