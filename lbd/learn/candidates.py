"""Settings worth trying: those in force, the defaults, and a seeded draw around what the noise allows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder.settings import AvgShedderSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

LOW_THRESHOLDS = (8.0, 10.0, 12.0, 15.0, 18.0, 22.0, 28.0)
HIGH_THRESHOLDS = (25.0, 30.0, 40.0, 50.0)
LOW_HITS = (3, 5, 8, 12)
HIGH_HITS = (2, 3)
SHARES = (0.2, 0.35, 0.5)
"""What is drawn from: points, points, samples, samples, and fractions of a pair's difference in traffic."""

NOISE_DEVIATIONS = 4.0
"""A low threshold is so many deviations of a difference of two samples at least: noise alone must move no bundle."""

PRESENT, DEFAULT = "present", "default"


@dataclass(frozen=True)
class Candidate:
    """Settings of AvgShedder, and what they are called."""

    name: str
    settings: AvgShedderSettings


def candidates(present: AvgShedderSettings, noise_points: float, number: int, seed: int) -> tuple[Candidate, ...]:
    """So many candidates, the present settings and the defaults first, none twice.

    ``noise_points`` is the standard deviation of one broker's samples: lower thresholds than it bears are not tried.
    """
    found = {_key(present): Candidate(PRESENT, present)}
    found.setdefault(_key(AvgShedderSettings()), Candidate(DEFAULT, AvgShedderSettings()))
    lows = [low for low in LOW_THRESHOLDS if low >= NOISE_DEVIATIONS * noise_points * 2**0.5] or [LOW_THRESHOLDS[-1]]
    grid = [
        {"low_threshold": low, "high_threshold": high, "hit_count_low": few, "hit_count_high": fewer,
         "max_unload_percentage": share}
        for low in lows for high in HIGH_THRESHOLDS if high > low
        for few in LOW_HITS for fewer in HIGH_HITS if fewer <= few for share in SHARES
    ]  # fmt: skip
    for at in np.random.default_rng(seed).permutation(len(grid)).tolist():
        if len(found) >= number:
            break
        settings = present.model_copy(update=grid[at])
        found.setdefault(_key(settings), Candidate(_name(grid[at]), settings))
    return tuple(found.values())[: max(number, 1)]


def _key(settings: AvgShedderSettings) -> str:
    return settings.model_dump_json()


def _name(values: Mapping[str, float]) -> str:
    """``low 15 x 8, high 40 x 2, 0.5``."""
    low, high = values["low_threshold"], values["high_threshold"]
    return (
        f"low {low:g} x {values['hit_count_low']}, high {high:g} x {values['hit_count_high']}, "
        f"{values['max_unload_percentage']:g}"
    )
