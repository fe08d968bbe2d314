"""The parts of a turn that settings choose: strategy, hit counts, and how long a missing report is tolerated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lbd.config import strategy_section
from lbd.decide.strategies import build
from lbd.turn.learning import Learning
from lbd.turn.parts import Parts
from lbd.turn.plan import Chosen, Planning

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.decide.shedder import StrategySettings
    from lbd.decide.strategies import Strategy
    from lbd.model import Slopes, Snapshot
    from lbd.turn.parts import Actuator, PolicySource, RoundSource, SentUnloads, Store


SAMPLE_GAP_SECONDS = 3 * 60.0


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def effective(settings: Settings) -> StrategySettings:
    """The strategy's settings with the profile applied."""
    chosen = settings.strategy_settings
    return chosen.stock() if settings.profile == "stock" else chosen


def counting_rule(settings: Settings) -> str:
    """The settings that say which brokers are too far apart, as text: hits are evidence under these alone."""
    numbers = effective(settings).model_dump(mode="json")
    thresholds = {key: value for key, value in numbers.items() if "threshold" in key}
    return f"{settings.profile} {settings.strategy} {thresholds} {settings.weights.model_dump(mode='json')}"


DECIDING = (
    "interval_seconds",
    "profile",
    "mode",
    "strategy",
    "placement",
    "weights",
    "load",
    "in_broker_shedding",
    "guardrails",
    "spread",
    "split",
)
"""Settings on which it depends what a turn moves or splits by itself, beside the section of its strategy."""


def deciding(settings: Settings) -> dict[str, Any]:
    """All settings that decide, by their keys in lbd.yaml; the strategy's with the profile applied."""
    section = strategy_section(settings.strategy)
    return {**settings.model_dump(mode="json", include=set(DECIDING)), section: effective(settings).model_dump()}


def slope_learner(settings: Settings) -> Callable[[Snapshot], Slopes | None]:
    """The learner of slopes if the strategy in force uses them; otherwise it returns None."""
    return Learning(settings.load) if settings.strategy_settings.wants_slopes else lambda _: None


def configured_strategy(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy, with the placement beside it; ``eager`` assumes what it would otherwise wait for."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights, settings.placement or chosen.placed_by)


def planning_of(settings: Settings, *, eager: bool = False) -> Planning:
    """How a turn plans under these settings; ``eager`` as in :func:`configured_strategy`."""
    chosen = settings.strategy_settings
    return Planning(
        strategy=configured_strategy(settings, eager=eager),
        weights=settings.weights,
        guardrails=settings.guardrails,
        chosen=Chosen(
            settings.strategy, chosen.wanted_hits, eager, chosen.assumed if eager else "", counting_rule(settings)
        ),
        topic_costs=settings.topic_costs_in_force,
    )


def parts_of(
    settings: Settings,
    observer: RoundSource,
    policies: PolicySource,
    past: SentUnloads,
    store: Store,
    actuator: Actuator,
    *,
    eager: bool = False,
) -> Parts:
    """The parts of a turn under these settings; ``eager`` as in :func:`configured_strategy`, with endless memory."""
    return Parts(
        observer=observer,
        planning=planning_of(settings, eager=eager),
        policies=policies,
        past=past,
        store=store,
        actuator=actuator,
        gap_seconds=float("inf") if eager else gap_seconds(settings),
        heeds_properties=settings.guardrails.namespace_properties,
    )
