"""What settings choose for a turn: the strategy, its hit counts, and how long a silence it bears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.config import section_of
from lbd.cycle.learning import Learning
from lbd.decide import build
from lbd.decide.settings import StrategySettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.model import Hits, Slopes, Snapshot

SAMPLE_GAP_SECONDS = 3 * 60.0


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def configured(settings: Settings) -> StrategySettings:
    """The section of the strategy in force."""
    found = getattr(settings, section_of(settings.strategy))
    assert isinstance(found, StrategySettings)
    return found


def effective(settings: Settings) -> StrategySettings:
    """The strategy's settings with the profile applied."""
    chosen = configured(settings)
    return chosen.stock() if settings.profile == "stock" else chosen


def wanted_hits(settings: Settings) -> Hits:
    """Hit counts at which the strategy fires."""
    return configured(settings).wanted_hits


def learner_of(settings: Settings) -> Callable[[Snapshot], Slopes | None]:
    """What learns slopes turn by turn, where the strategy in force wants them."""
    return Learning(settings.load) if configured(settings).wants_slopes else lambda _: None


def strategy_of(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy, with the placement beside it; ``eager`` takes as given what it would wait for."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights, settings.placement or chosen.placed_by)
