"""Settings of lbd that cannot work, or not together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.config import section_of
from lbd.cycle.chosen import configured
from lbd.daemon.doctor.finding import Check
from lbd.decide.avg_shedder.settings import AvgShedderSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey

SETTINGS = Check("settings", "settings that are right one by one can forbid every move, or allow too many")
DEFAULT_STATS_SECONDS = 60.0
AVG_SHEDDER = AvgShedderSettings.name


def check(seen: Survey) -> Iterator[Finding]:
    """Each combination that does not work, with the values; one line when there is none."""
    found = [*_never(seen.settings), *_too_soon(seen), *_without_effect(seen)]
    yield from found
    if not found:
        yield SETTINGS.ok("go together")


def _never(settings: Settings) -> Iterator[Finding]:
    """What keeps lbd from ever moving anything."""
    weights = settings.weights
    scored = (weights.cpu, weights.direct_memory, weights.bandwidth_in, weights.bandwidth_out)
    if not any(scored):
        yield SETTINGS.problem("all weights are 0: every broker scores 0 points", "set weights.cpu to 1")
    elif settings.strategy == AVG_SHEDDER and settings.avg_shedder.low_threshold >= 100 * max(scored):
        low = settings.avg_shedder.low_threshold
        told = f"avg_shedder.low_threshold={low:g}, and no score passes {100 * max(scored):g} points"
        yield SETTINGS.problem(told, "lower it (default 15)")
    if getattr(configured(settings), "max_unload_percentage", 1) == 0:
        name = f"{section_of(settings.strategy)}.max_unload_percentage"
        yield SETTINGS.problem(f"{name}=0: nothing is ever to be moved", "set it to 0.5")


def _too_soon(seen: Survey) -> Iterator[Finding]:
    """What makes lbd move on too little evidence, or too much at once."""
    if seen.settings.strategy == AVG_SHEDDER:
        yield from _too_soon_for_pairs(seen.settings.avg_shedder)
    guardrails = seen.settings.guardrails
    stats = _stats_seconds(seen)
    if guardrails.cool_down_minutes * 60 < 2 * stats:
        told = f"guardrails.cool_down_minutes={guardrails.cool_down_minutes:g}, brokers renew rates every {stats:.0f} s"
        yield SETTINGS.warning(
            f"{told}: a bundle may move again on its old rates", "set it to 30, or 2 intervals at least"
        )


def _too_soon_for_pairs(chosen: AvgShedderSettings) -> Iterator[Finding]:
    for name, hits in (("hit_count_low", chosen.hit_count_low), ("hit_count_high", chosen.hit_count_high)):
        if hits <= 1:
            told = f"avg_shedder.{name}={hits}: one CPU sample is enough to move"
            yield SETTINGS.warning(told, "give it 2 or more: a single sample may be a spike")
    if chosen.low_threshold <= 0:
        told = f"avg_shedder.low_threshold={chosen.low_threshold:g}: level brokers count as apart"
        yield SETTINGS.warning(told, "raise it (default 15)")
    if chosen.max_unload_percentage > 0.5:
        told = f"avg_shedder.max_unload_percentage={chosen.max_unload_percentage:g}: a pair swaps sides above 0.5"
        yield SETTINGS.warning(told, "set it to 0.5 or less")


def _stats_seconds(seen: Survey) -> float:
    told = [runtime.get("statsUpdateFrequencyInSecs", "") for runtime in seen.runtime.values()]
    return max((float(text) for text in told if text.isdecimal()), default=DEFAULT_STATS_SECONDS)


def _without_effect(seen: Survey) -> Iterator[Finding]:
    """What looks set and does nothing."""
    settings = seen.settings
    if settings.strategy == AVG_SHEDDER:
        yield from _without_effect_on_pairs(settings.avg_shedder)
    elif settings.avg_shedder != AvgShedderSettings():
        yield SETTINGS.warning(
            f"avg_shedder is set, and strategy is {settings.strategy}", f"set {section_of(settings.strategy)}"
        )
    if settings.weights.memory:
        yield SETTINGS.warning(
            f"weights.memory={settings.weights.memory:g}: no score counts heap, as in Pulsar since 3.0", "leave it out"
        )
    if settings.restore_on_stop and settings.in_broker_shedding == "refuse":
        yield SETTINGS.warning(
            "restore_on_stop=true with in_broker_shedding=refuse: nothing is taken, nothing is given back",
            "set in_broker_shedding: take-over, or leave restore_on_stop out",
        )
    sample = seen.observation.sample_interval_seconds if seen.observation is not None else 60.0
    if settings.interval_seconds > sample:
        told = f"interval_seconds={settings.interval_seconds:g}, a new CPU sample comes every {sample:g} s"
        hits = configured(settings).wanted_hits.low
        minutes = hits * settings.interval_seconds / 60
        yield SETTINGS.warning(f"{told}: {hits} hits take {minutes:.0f} min", f"set it below {sample:g}")


def _without_effect_on_pairs(chosen: AvgShedderSettings) -> Iterator[Finding]:
    if chosen.low_threshold > chosen.high_threshold:
        told = f"avg_shedder.low_threshold={chosen.low_threshold:g} is above high_threshold={chosen.high_threshold:g}"
        yield SETTINGS.warning(f"{told}: every pair that is apart counts high at once", "lower low_threshold")
    if chosen.hit_count_high > chosen.hit_count_low:
        told = f"avg_shedder.hit_count_high={chosen.hit_count_high} is above hit_count_low={chosen.hit_count_low}"
        yield SETTINGS.warning(
            f"{told}: a wide gap acts no sooner than a small one", "lower hit_count_high (default 2)"
        )
