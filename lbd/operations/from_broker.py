"""Convert a broker's configuration to lbd's: converted values, values left out, and differences of lbd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from lbd.config import Settings
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.overload_shedder import OverloadShedderSettings
from lbd.decide.threshold_shedder import ThresholdShedderSettings
from lbd.decide.transfer_shedder import TransferShedderSettings
from lbd.decide.uniform_load_shedder import UniformLoadShedderSettings
from lbd.decide.whole_plan import NEGLIGIBLE_POINTS
from lbd.documents import complaint
from lbd.load.scoring import Weights
from lbd.permit.settings import Guardrails
from lbd.pulsar.broker_configuration import (
    BALANCER_ENABLED,
    MODULAR_MANAGER,
    PLACES_WITH,
    SAMPLE_MINUTES,
    SHEDS_WITH,
    bandwidth_weight,
    is_extensible,
    is_on,
    load_manager_class,
    minutes,
    number,
    shedder_class,
    sheds,
)
from lbd.split.triggers import SplitSettings
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from lbd.decide.shedder import StrategySettings


SECTIONS: dict[str, type[BaseModel]] = {
    "avg_shedder": AvgShedderSettings,
    "weights": Weights,
    "guardrails": Guardrails,
    "split": SplitSettings,
}

OTHER_SHEDDERS: dict[str, tuple[str, type[StrategySettings]]] = {
    "ThresholdShedder": (
        "sheds brokers above the average, smoothed over many cycles, to wherever placement sends the bundles",
        ThresholdShedderSettings,
    ),
    "OverloadShedder": ("sheds brokers above the overload threshold, and no others", OverloadShedderSettings),
    "UniformLoadShedder": ("compares the traffic of two brokers, whatever their CPU", UniformLoadShedderSettings),
    "TransferShedder": (
        "moves from the most to the least loaded broker until they spread less",
        TransferShedderSettings,
    ),
}
"""Shedders beside AvgShedder: the rule of each, and its settings."""

OTHER_PLACEMENTS = {
    "LeastLongTermMessageRate": "least-long-term-message-rate",
    "LeastResourceUsageWithWeight": "least-resource-usage-with-weight",
    "RoundRobinBrokerSelector": "round-robin",
}
"""Placements of the modular manager beside AvgShedder, under lbd's names."""

AVG_SHEDDER_KEYS = "loadBalancerAvgShedder"


@dataclass(frozen=True)
class ConvertedSettings:
    """``settings`` as a configuration file has them, and notes, a sentence each.

    ``left_out`` are values that lbd does not accept, ``todo`` is what must be done before lbd moves anything,
    ``differences`` are changes from the brokers' present behaviour.
    """

    settings: dict[str, Any]
    left_out: tuple[str, ...]
    todo: tuple[str, ...]
    differences: tuple[str, ...]


def from_broker_conf(values: Mapping[str, str], *, stock: bool = False) -> ConvertedSettings:
    """Convert a broker's effective configuration to lbd's names.

    ``values`` come from a file (:func:`~lbd.pulsar.broker_conf.read_broker_conf`) or from ``configuration/runtime``.

    ``stock`` keeps values that Pulsar accepts and lbd's own profile does not, for the unchanged rule.
    """
    taken: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    left_out: list[str] = []
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            key = _broker_key(field)
            text = bandwidth_weight(values, key) if "Bandwidth" in key else values.get(key)
            if text is not None:
                _take(taken[section], model, name, (key, text), left_out)
    filled = {section: values for section, values in taken.items() if values}
    differences = tuple(_differences(values, _together(filled, left_out, stock=stock)))
    return ConvertedSettings(filled, tuple(dict.fromkeys(left_out)), tuple(_todo(values)), differences)


def _together(sections: dict[str, dict[str, Any]], left_out: list[str], *, stock: bool) -> Settings:
    """The settings; a section whose values are valid only one by one, and not together, is left out."""
    try:
        return Settings.model_validate({**sections, "profile": "stock"} if stock else sections)
    except ValidationError as error:
        left_out.extend(f"avg_shedder and weights: {complaint(item)}" for item in error.errors())
    for section in ("avg_shedder", "weights"):
        sections.pop(section, None)
    return Settings.model_validate(sections)


def _broker_key(field: FieldInfo) -> str:
    """The broker's key for this field; empty where there is none."""
    extra = field.json_schema_extra
    return str(extra["broker_conf"]) if isinstance(extra, dict) else ""


def _take(section: dict[str, Any], model: type[BaseModel], name: str, entry: tuple[str, str], notes: list[str]) -> None:
    key, text = entry
    value: Any = text
    if name == "excluded_namespaces":
        value = [part.strip() for part in text.strip("[]").split(",") if part.strip()]
    try:
        section[name] = model.model_validate({name: value}).model_dump(mode="json")[name]
    except ValidationError as error:
        notes.append(f"{key}={text}: {complaint(error.errors()[0])}")


def _todo(values: Mapping[str, str]) -> Iterator[str]:
    manager = load_manager_class(values)
    if is_extensible(values):
        yield f"the brokers run {manager}, which sends its load data on topics; lbd needs pulsar.service_url"
    elif manager != MODULAR_MANAGER:
        balanced = f"loadManagerClassName={MODULAR_MANAGER} or ExtensibleLoadManagerImpl"
        yield f"the brokers run {manager}; lbd balances with {balanced} only"
    if not is_on(values, BALANCER_ENABLED):
        off = f"{BALANCER_ENABLED}=false: the brokers publish no load reports"
        yield f"{off}; lbd moves nothing until they run with {BALANCER_ENABLED}=true (restart)"
    if sheds(values):
        yield "the brokers shed by themselves; lbd moves nothing until loadBalancerSheddingEnabled=false"


def _differences(values: Mapping[str, str], settings: Settings) -> Iterator[str]:
    strategy = shedder_class(values)
    if strategy == "AvgShedder":
        yield from _from_avg_shedder(values, settings)
    else:
        yield from _from_another(values, settings, strategy)
    yield from _from_any(values, settings)


def _from_another(values: Mapping[str, str], settings: Settings, strategy: str) -> Iterator[str]:
    """Consequences of a change of strategy, and how to keep the old one."""
    chosen = settings.avg_shedder
    rule = (
        f"lbd pairs the most with the least loaded broker, and moves half way when they are {chosen.low_threshold:g} "
        f"points apart for {chosen.hit_count_low} CPU samples, or {chosen.high_threshold:g} for {chosen.hit_count_high}"
    )
    if not strategy:
        yield f"{SHEDS_WITH} is not set: brokers shed with ThresholdShedder before 5.0, with AvgShedder since; {rule}."
        return
    how, kind = OTHER_SHEDDERS.get(strategy, ("is none of the modular load manager's own", None))
    share = f"{chosen.max_unload_percentage:.0%} of their difference in traffic"
    yield f"The brokers shed with {strategy}, which {how}; {rule.replace('half way', share)}."
    if kind is not None:
        placement = OTHER_PLACEMENTS.get(values.get(PLACES_WITH, "").rpartition(".")[2])
        and_place = f" and placement: {placement}" if placement is not None else ""
        yield f"To decide by the brokers' own rule, set strategy: {kind.name}{and_place}."
        yield from _other_numbers(values, kind)
    if any(key.startswith(AVG_SHEDDER_KEYS) for key in values):
        yield "The thresholds and counts below stood in the brokers' configuration, and were never in force there."


def _other_numbers(values: Mapping[str, str], kind: type[StrategySettings]) -> Iterator[str]:
    """Numbers of the brokers' rule that differ from lbd's, which are fixed."""
    for name, field in kind.model_fields.items():
        key, own = _broker_key(field), dict[str, Any]()
        _take(own, kind, name, (key, values.get(key, "")), [])
        if own and own[name] != field.default:
            fixed = str(field.default).lower()
            yield f"The brokers have {key}={values[key]}; {kind.name} of lbd always decides with {fixed}."


def _from_avg_shedder(values: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Differences for the same rule: ``profile: live``, and how lbd observes."""
    yield from _hits(values, settings)
    yield "A broker's only bundle stays; the brokers move it if it fits."
    if settings.weights.bandwidth_in or settings.weights.bandwidth_out:
        yield "Where bandwidth makes the score, bytes are levelled; brokers count messages first."
    yield (
        "A destination that would have to give away again what levelling gives it is filled to the average only; "
        "the brokers level each pair. A source gives a broker that has just joined only what brings it to the average."
    )
    yield (
        f"The bundles that would close the last {NEGLIGIBLE_POINTS:g} points of a pair stay; the brokers go on while "
        "any fits."
    )
    yield (
        "A gap that level traffic would not close is left alone. If lbd is to decide as the brokers do in all of these "
        "points, set profile: stock."
    )
    if is_on(values, "loadBalancerDistributeBundlesEvenlyEnabled"):
        yield (
            "Each bundle goes to the other broker of its pair; with loadBalancerDistributeBundlesEvenlyEnabled=true "
            "brokers drop that one for a random one where it has more bundles of the namespace."
        )
    if settings.guardrails.excluded_namespaces:
        yield "Excluded namespaces are left out before bundles are chosen; brokers choose first, and then move less."


def _hits(values: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Differences of hit counters: one per cycle on a broker, one per new CPU sample in lbd."""
    cycle = minutes(values, "loadBalancerSheddingIntervalMinutes")
    sample = minutes(values, SAMPLE_MINUTES)
    hits = settings.avg_shedder.hit_count_low
    if cycle != sample:
        yield (
            f"lbd counts each new CPU sample above a threshold, one every {duration_text(sample * 60)}; brokers "
            f"count every cycle of {duration_text(cycle * 60)}, new sample or not: {hits} take "
            f"{duration_text(hits * sample * 60)} here, {duration_text(hits * cycle * 60)} there."
        )


def _from_any(values: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Differences from every shedder of the brokers."""
    guardrails = settings.guardrails
    yield (
        f"A turn moves at most {guardrails.max_traffic_per_turn:.0%} of the traffic and a limited number of bundles "
        "(guardrails.max_traffic_per_turn, max_unloads_*); brokers move all they have chosen at once."
    )
    yield (
        f"A bundle rests {duration_text(guardrails.cool_down_minutes * 60)} after every attempt, by hand or failed, "
        "too; brokers count their own unloads that succeeded (guardrails.cool_down_minutes)."
    )
    yield (
        f"A destination must stay at or below {guardrails.max_destination_score:g} points, and below its source, as "
        "predicted after the move; brokers look at what it has now (guardrails.max_destination_score)."
    )
    yield "Each landing is proven by asking who owns the bundle; brokers take the end of an unload for success."
    if number(values, "loadBalancerMemoryResourceWeight"):
        yield "weights.memory is carried over and counts for nothing, as in brokers since 3.0."
