"""Scenarios: small YAML files with brokers, their load, and events; and settings of the simulated lbd."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import yaml
from pydantic import Field, ValidationError, model_validator

from lbd.config import Settings, problem
from lbd.documents import complaint, compose_yaml, flat, read_yaml, text_of, yaml_problem
from lbd.errors import UsageError
from lbd.permit.evidence import SAMPLE_INTERVAL_SECONDS
from lbd.section import Section
from lbd.simulate.world import (
    LONGEST_HOURS,
    LONGEST_MINUTES,
    STEP_SECONDS,
    Lifetimes,
    Outage,
    Placement,
    Ramp,
    Shape,
    SilentBroker,
    Spike,
    Steady,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


SHIPPED = Path(__file__).parent / "scenarios"
KIB_PER_MIB = 1024.0


Ratio = Annotated[float, Field(ge=1, le=1e6)]


class Spell(Section):
    """CPU that no bundle causes, for some minutes: garbage collection, compaction, a neighbour on the host."""

    at_minutes: float = Field(ge=0, le=LONGEST_MINUTES)
    minutes: float = Field(1, ge=0.01, le=LONGEST_MINUTES)
    points: float = Field(ge=0.001, le=100)


class SilentSpell(Section):
    """The broker serves its clients and gives no load report: it is slow, or its HTTP threads are busy."""

    at_minutes: float = Field(ge=0, le=LONGEST_MINUTES)
    minutes: float = Field(1, ge=0.01, le=LONGEST_MINUTES)


class Restarts(Section):
    """Broker after broker of a part goes in an orderly way, and comes back with nothing."""

    first_at_minutes: float = Field(ge=0.01, le=LONGEST_MINUTES)
    every_minutes: float = Field(5, ge=0, le=LONGEST_MINUTES, description="between one broker of the part and the next")
    away_seconds: float = Field(
        30, ge=STEP_SECONDS, le=86_400, description="8 to 12 s until a broker is ready, and its host's work"
    )


class BrokerPart(Section):
    """A broker, or ``number`` alike ones named ``id-1``, ``id-2`` and so on."""

    id: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")
    number: int = Field(1, ge=1, le=1000)
    background: float = Field(0, ge=0, le=100, description="points of CPU without any traffic")
    capacity: float = Field(
        1, ge=0.001, le=1000, description="how much it carries for a point, relative to an ordinary broker"
    )
    joins_at_minutes: float | None = Field(
        None, ge=0.01, le=LONGEST_MINUTES, description="null: it is there from the beginning"
    )
    leaves_at_minutes: float | None = Field(None, ge=0.01, le=LONGEST_MINUTES, description="null: it stays")
    crashes_at_minutes: float | None = Field(
        None, ge=0.01, le=LONGEST_MINUTES, description="its bundles have no owner for 48 s"
    )
    back_after_minutes: float | None = Field(
        None, ge=0.1, le=LONGEST_MINUTES, description="of the crash; null: it does not come back"
    )
    restarts: Restarts | None = None
    bursts: tuple[Spell, ...] = ()
    silent: tuple[SilentSpell, ...] = ()

    def ids(self) -> tuple[str, ...]:
        """Names of its brokers, ``host:port``."""
        width = len(str(self.number))
        hosts = [f"{self.id}-{at + 1:0{width}}" for at in range(self.number)] if self.number > 1 else [self.id]
        return tuple(f"{host}:8080" for host in hosts)

    @property
    def is_there_first(self) -> bool:
        """Whether it is there from the beginning."""
        return self.joins_at_minutes is None

    @property
    def lives(self) -> tuple[float, float]:
        """From when to when it is there, in seconds of the run."""
        joins = -inf if self.joins_at_minutes is None else self.joins_at_minutes * 60
        return joins, inf if self.leaves_at_minutes is None else self.leaves_at_minutes * 60

    def away(self, number: int) -> Iterator[tuple[float, float, bool]]:
        """When the broker of this number (from 0) is away in between: from and to (seconds of the run), and whether it
        crashed.
        """
        if self.crashes_at_minutes is not None:
            begin = self.crashes_at_minutes * 60
            yield begin, inf if self.back_after_minutes is None else begin + self.back_after_minutes * 60, True
        if self.restarts is not None:
            begin = (self.restarts.first_at_minutes + number * self.restarts.every_minutes) * 60
            yield begin, begin + self.restarts.away_seconds, False


class LoadPart(Section):
    """Traffic in some bundles of one namespace, ``simulated/<name>``."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    bundles: int = Field(ge=1, le=100_000)
    topics: int | None = Field(None, ge=1, le=10_000_000, description="in all of its bundles; null: one in each")
    partitioned: bool = Field(False, description="its topics are the partitions of one topic, for spread.by: topic")
    mib_per_second: float = Field(ge=0, le=1e6, description="published, in all of its bundles together")
    spread: float = Field(0, ge=0, le=3, description="sigma of the log-normal sizes of its bundles; 0: all equal")
    zipf: float | None = Field(
        None, ge=0, le=3, description="instead: the n-th largest bundle has 1 / n ** zipf of the largest one's traffic"
    )
    fan_out: float = Field(1, ge=0, le=1000, description="how often each message is consumed")
    message_kib: float = Field(
        1, ge=0.01, le=1e6, description="1 in the published experiments, by their rates and throughputs"
    )
    brokers: tuple[str, ...] = Field((), description="ids of those that have it at first, at random; none: all of them")
    isolated_to: tuple[str, ...] = Field((), description="ids of brokers that an isolation policy keeps for it")
    shape: Shape = Field(Steady(), description="of what is published and consumed")
    consumers: Shape = Field(Steady(), description="of what is consumed, on top of that")

    @model_validator(mode="after")
    def _one_law(self) -> LoadPart:
        if self.zipf is not None and self.spread:
            raise ValueError(f"spread {self.spread:g} and zipf {self.zipf:g}: wanted one of them")
        return self


def load_namespace(load: LoadPart) -> str:
    """The namespace that a load is in."""
    return f"simulated/{load.name}"


class Scenario(Section):
    """One scenario. ``about``, ``source`` and ``stock`` are for readers: what it is, where its numbers come from, and
    what Pulsar's own balancing did. ``settings`` are lbd's, below those of the user.
    """

    about: str = Field(min_length=1)
    source: str = ""
    stock: str = ""
    hours: float = Field(1, ge=0.01, le=LONGEST_HOURS)
    points_per_mib: float = Field(
        0.33, ge=0, le=100, description="points of CPU for each MiB/s through an ordinary broker; 0.33: fit to #22946"
    )
    noise_points: float = Field(
        1, ge=0.01, le=20, description="standard deviation of a CPU sample; scores at rest vary by two points or so"
    )
    cold_times: float = Field(
        1,
        ge=1,
        le=100,
        description="how many times its usual CPU traffic costs a broker that has carried none since its start; 6 on"
        " 0.4 core (docs/results/comparison.md). It falls to 1 within a minute of traffic",
    )
    stats_interval_seconds: int = Field(
        60, ge=STEP_SECONDS, le=3600, multiple_of=STEP_SECONDS, description="statsUpdateFrequencyInSecs"
    )
    placement: Placement = Field(
        "random", description="of bundles without an owner: as AvgShedder does it, or LeastLongTermMessageRate"
    )
    first_ratio: tuple[Ratio, Ratio] | None = Field(
        None,
        description="at first the broker with most traffic has so many times that of the one with least, from the "
        "first number to the second: bundles are placed anew until it does; null: as it comes",
    )
    auto_bundle_split: bool = Field(
        False, description="loadBalancerAutoBundleSplitEnabled: brokers split by the defaults of broker.conf"
    )
    brokers: tuple[BrokerPart, ...]
    load: tuple[LoadPart, ...]
    settings: dict[str, Any] = Field({}, description="as in lbd.yaml")

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if not (self.brokers and self.load):
            raise ValueError(f"{'load' if self.brokers else 'brokers'}: empty; wanted at least one")
        if self.first_ratio is not None and self.first_ratio[0] > self.first_ratio[1]:
            least, most = self.first_ratio
            raise ValueError(f"first_ratio: from {least:g} to {most:g}; wanted the smaller one first")
        _distinct("brokers", [broker for part in self.brokers for broker in part.ids()])
        _distinct("load", [load.name for load in self.load])
        self._somebody_is_there()
        for load in self.load:
            self._has_brokers(load)
        return self

    @property
    def first_event_minutes(self) -> float | None:
        """When the first broker joins, leaves, fails or falters, or traffic first jumps; None: nothing is planned."""
        all_minutes = [load.shape.at_minutes for load in self.load if isinstance(load.shape, Ramp | Spike)]
        for part in self.brokers:
            alone = (part.joins_at_minutes, part.leaves_at_minutes, part.crashes_at_minutes)
            all_minutes += [minutes for minutes in alone if minutes is not None]
            all_minutes += [part.restarts.first_at_minutes] if part.restarts is not None else []
            all_minutes += [burst.at_minutes for burst in part.bursts]
            all_minutes += [spell.at_minutes for spell in part.silent]
        return min(all_minutes, default=None)

    def outages(self, brokers: tuple[str, ...]) -> Iterator[Outage]:
        """When each of the brokers, ``host:port``, is away; positions are those in ``brokers``."""
        for part in self.brokers:
            for number, broker in enumerate(part.ids()):
                for begin, end, crashed in part.away(number):
                    yield Outage(brokers.index(broker), begin, end, crashed)

    def silences(self, brokers: tuple[str, ...]) -> Iterator[SilentBroker]:
        """When each of the brokers answers nothing."""
        for part in self.brokers:
            for broker, spell in product(part.ids(), part.silent):
                begin = spell.at_minutes * 60
                yield SilentBroker(brokers.index(broker), begin, begin + spell.minutes * 60)

    def _somebody_is_there(self) -> None:
        """Somebody can own the bundles, and tell of them, at any moment."""
        brokers = tuple(broker for part in self.brokers for broker in part.ids())
        silences = tuple(self.silences(brokers))
        lives = np.array([part.lives for part in self.brokers for _ in part.ids()])
        membership = Lifetimes(lives[:, 0], lives[:, 1], tuple(self.outages(brokers)))
        moments = {0.0, *(silence.begin for silence in silences), *(time for time in membership.times if time > 0)}
        for now in sorted(moments):
            silent = {silence.broker for silence in silences if silence.begin <= now < silence.end}
            if set(np.flatnonzero(membership.at(now).present).tolist()) <= silent:
                raise ValueError(
                    f"brokers: none is there, or none answers, at minute {now / 60:g}; wanted one at any time"
                )

    def _has_brokers(self, load: LoadPart) -> None:
        """Check that the brokers named by a load exist, and that one that it may be on is there at first."""
        every = {part.id for part in self.brokers}
        first = {part.id for part in self.brokers if part.is_there_first}
        reserved = {broker for other in self.load for broker in other.isolated_to}
        for key, names, among in (("brokers", load.brokers, first), ("isolated_to", load.isolated_to, every)):
            for unknown in sorted(set(names) - among):
                there = "is not there at first" if key == "brokers" else "is not there"
                message = f"{unknown} {there}; wanted some of {', '.join(sorted(among))}"
                raise ValueError(f"load.{load.name}.{key}: {message}")
        able = (set(load.isolated_to) or every - reserved) & first & (set(load.brokers) or every)
        if not able:
            wanted_one = f"wanted one of {', '.join(sorted(first))}"
            raise ValueError(f"load.{load.name}: no broker that it may be on is there at first; {wanted_one}")


def _distinct(key: str, names: list[str]) -> None:
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    if twice:
        raise ValueError(f"{key}: {twice[0]} is there twice; wanted each once")


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with lbd."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or a file of one's own.

    Raises :class:`UsageError` with every problem: the file and its line, the key, the value, and what would be right.
    """
    if not name:
        raise UsageError(f"no name of a scenario; wanted a file, or one of {', '.join(shipped())}")
    path = SHIPPED / f"{name}.yaml" if name in shipped() else Path(name)
    try:
        text = text_of(path)
        document = read_yaml(text)
    except UsageError as error:
        why = str(error).removeprefix(f"{path}: ")
        raise UsageError(
            f"{name}: no such scenario ({why}); wanted a file, or one of {', '.join(shipped())}"
        ) from error
    except RecursionError as error:
        raise UsageError(f"{path}: contains itself") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {yaml_problem(error)}") from error
    if not isinstance(document, dict):
        kind = "empty" if document is None else f"a {type(document).__name__}"
        raise UsageError(f"{path}: the file is {kind}, wanted keys and values")
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise UsageError("\n".join(_problems(path, text, error))) from error


def _problems(path: Path, text: str, error: ValidationError) -> Iterable[str]:
    document = compose_yaml(text)
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        shown = "" if isinstance(item["input"], dict | Scenario) else repr(item["input"])
        message = " ".join(complaint(item).split())
        yield ": ".join(filter(None, (f"{path}:{_line(document, item['loc'])}", key, shown, message)))


def _line(node: yaml.Node | None, keys: Iterable[int | str]) -> int:
    """The line, from 1, on which a key stands, or the innermost around it that is there."""
    line = 1
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == str(key):
                    line, node = name.start_mark.line + 1, value
                    break
    return line


# --- settings: a turn per fresh sample, overridden by the scenario, the user's settings, and ``--set``, in that order


def settled(scenario: Scenario, settings: Settings, overrides: Mapping[str, object]) -> Settings:
    """The settings of a run; ``overrides`` have dotted keys, as ``avg_shedder.low_threshold``.

    Raises :class:`UsageError` with every problem: where it stands, key, value, and what would be right.
    """
    return layered(Below.of(scenario), settings, overrides, dict.fromkeys(overrides, "--set"))


@dataclass(frozen=True)
class Below:
    """Settings that belong to what is run over, and ``where`` they stand."""

    where: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, scenario: Scenario) -> Below:
        """A scenario's settings; a turn for each sample."""
        return cls("scenario", {"interval_seconds": SAMPLE_INTERVAL_SECONDS, **scenario.settings})


def layered(below: Below, settings: Settings, overrides: Mapping[str, object], origins: Mapping[str, str]) -> Settings:
    """Settings from three sources, each overriding those before it: ``below``, the user's, and the ``overrides``.

    ``origins`` is where each of these stands. Raises as :func:`settled`.
    """
    values: dict[str, Any] = {}
    for source in (below.settings, settings.model_dump(exclude_unset=True), *map(nested, overrides.items())):
        values = over(values, source)
    origins = {**origins, **{key: below.where for key, _ in flat(below.settings) if key not in origins}}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        messages = (problem(item, origins) for item in error.errors())
        raise UsageError("\n".join(" ".join(line.split()) for line in messages)) from error


def nested(override: tuple[str, object]) -> dict[str, Any]:
    """A value under its dotted key, section in section."""
    key, value = override
    *sections, last = key.split(".")
    values = {last: value}
    for section in reversed(sections):
        values = {section: values}
    return values


def over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both merged, section by section; ``above`` wins."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
