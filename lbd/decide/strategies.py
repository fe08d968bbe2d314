"""The strategies by name. Value in, value out: no clock, no random, no I/O, no logger; import-linter checks it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from lbd.decide import (
    avg_shedder,
    least_moves,
    overload_shedder,
    threshold_shedder,
    transfer_shedder,
    uniform_load_shedder,
)
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.candidates import Offers
from lbd.decide.least_moves import LeastMovesSettings
from lbd.decide.live import ByLatestTraffic, HitsInContext
from lbd.decide.overload_shedder import OverloadShedderSettings
from lbd.decide.placement import PlacedStrategy
from lbd.decide.pools import Pooled
from lbd.decide.shedder import HitSettings
from lbd.decide.spread import SpreadStrategy
from lbd.decide.threshold_shedder import ThresholdShedderSettings
from lbd.decide.transfer_shedder import TransferShedderSettings
from lbd.decide.uniform_load_shedder import UniformLoadShedderSettings
from lbd.decide.whole_plan import WholePlan
from lbd.place import placements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.decide.shedder import StrategySettings
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Memory, Permission, Snapshot


class Strategy(Protocol):
    """One decision from columns and permissions, called by a turn."""

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision: ...


RULES: dict[type[StrategySettings], Callable[..., Decision]] = {
    AvgShedderSettings: avg_shedder.decide,
    ThresholdShedderSettings: threshold_shedder.decide,
    OverloadShedderSettings: overload_shedder.decide,
    UniformLoadShedderSettings: uniform_load_shedder.decide,
    TransferShedderSettings: transfer_shedder.decide,
    LeastMovesSettings: least_moves.decide,
}
"""The registry: the rule of each settings class."""

HELPED: dict[type[StrategySettings], Callable[..., Decision]] = {
    AvgShedderSettings: partial(avg_shedder.decide, levelling=WholePlan)
}
"""Rules that take more of the planner's help than ``decide/live.py`` gives to all, if they are not stock."""

STRATEGIES = {settings.name: settings for settings in RULES}
"""Settings class of each strategy, by the name that ``strategy:`` takes."""


def build(settings: StrategySettings, weights: Weights, placement: str | None = None) -> Strategy:
    """The rule for these settings, ready to be called; it balances within the pools of its permission.

    Its unloads without destination get one from ``placement``, a name of :data:`lbd.place.placements.PLACEMENTS`; None
    leaves them without. A strategy that is not stock has the planner's help, and applies the spread of its permission.
    """
    kind, is_stock = type(settings), settings.is_stock
    rule = RULES[kind] if is_stock else HELPED.get(kind, RULES[kind])
    strategy = _asked(rule, settings, weights)
    if isinstance(settings, HitSettings) and not is_stock:
        strategy = HitsInContext(strategy, weights)
    strategy = Pooled(strategy)
    if not is_stock:
        strategy = ByLatestTraffic(strategy)
    if placement is not None and settings.placed_by is not None:
        strategy = PlacedStrategy(strategy, placements.build(placement), weights)
    return strategy if is_stock else SpreadStrategy(strategy)


def _asked(rule: Callable[..., Decision], settings: StrategySettings, weights: Weights) -> Strategy:
    def strategy(snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        return rule(Offers(snapshot, averages, permission), memory, settings, weights)

    return strategy


def strategy_settings(name: str, values: Mapping[str, Any]) -> StrategySettings:
    """Validate settings of one strategy; KeyError for an unknown name, pydantic's ValidationError for values."""
    return STRATEGIES[name].model_validate(values)
