"""What settings choose for a turn: the strategy, its hit counts, and how long a silence it bears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.decide import build
from lbd.model import Hits

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.decide.avg_shedder.settings import AvgShedderSettings

SAMPLE_GAP_SECONDS = 3 * 60.0


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def effective(settings: Settings) -> AvgShedderSettings:
    """The strategy's settings with the profile applied."""
    return settings.avg_shedder.stock() if settings.profile == "stock" else settings.avg_shedder


def wanted_hits(settings: Settings) -> Hits:
    """Hit counts at which the strategy fires."""
    return Hits(settings.avg_shedder.hit_count_low, settings.avg_shedder.hit_count_high)


def strategy_of(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy; ``eager`` takes hit counts as reached."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights)
