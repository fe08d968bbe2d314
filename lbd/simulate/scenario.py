"""Scenarios: small YAML files that say which brokers there are, what they carry, and what happens to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lbd.config import read_yaml, yaml_problem
from lbd.errors import UsageError
from lbd.simulate.shapes import Shape, Steady

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIPPED = Path(__file__).parent / "scenarios"
KIB_PER_MIB = 1024.0


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Spell(_Part):
    """CPU that no bundle causes, for some minutes: garbage collection, compaction, a neighbour on the host."""

    at_minutes: float = Field(ge=0)
    minutes: float = Field(1, gt=0)
    points: float = Field(gt=0, le=100)


class BrokerPart(_Part):
    """A broker, or ``number`` alike ones named ``id-1``, ``id-2`` and so on."""

    id: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")
    number: int = Field(1, ge=1, le=1000)
    background: float = Field(0, ge=0, le=100, description="points of CPU without any traffic")
    capacity: float = Field(
        1, ge=0.001, le=1000, description="how much it carries for a point, relative to an ordinary broker"
    )
    joins_at_minutes: float | None = Field(None, gt=0, description="null: it is there from the beginning")
    leaves_at_minutes: float | None = Field(None, gt=0, description="null: it stays")
    bursts: tuple[Spell, ...] = ()

    def ids(self) -> tuple[str, ...]:
        """Names of its brokers, ``host:port``."""
        width = len(str(self.number))
        hosts = [f"{self.id}-{at + 1:0{width}}" for at in range(self.number)] if self.number > 1 else [self.id]
        return tuple(f"{host}:8080" for host in hosts)


class LoadPart(_Part):
    """Traffic in some bundles of one namespace, ``simulated/<name>``."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    bundles: int = Field(ge=1, le=100_000)
    mib_per_second: float = Field(ge=0, le=1e6, description="published, in all of its bundles together")
    spread: float = Field(0, ge=0, le=3, description="sigma of the log-normal sizes of its bundles; 0: all equal")
    fan_out: float = Field(1, ge=0, le=1000, description="how often each message is consumed")
    message_kib: float = Field(
        1, ge=0.01, le=1e6, description="1 in the published experiments, by their rates and throughputs"
    )
    brokers: tuple[str, ...] = Field((), description="ids of those that have it at first, at random; none: all of them")
    shape: Shape = Field(Steady(), description="of what is published and consumed")
    consumers: Shape = Field(Steady(), description="of what is consumed, on top of that")


class Scenario(_Part):
    """One scenario. ``about``, ``source`` and ``stock`` are for readers: what it is, where its numbers come from, and
    what Pulsar's own balancing did. ``settings`` are lbd's, below those of the user.
    """

    about: str = Field(min_length=1)
    source: str = ""
    stock: str = ""
    hours: float = Field(1, gt=0, le=24 * 366)
    points_per_mib: float = Field(
        0.33, ge=0, le=100, description="points of CPU for each MiB/s through an ordinary broker; 0.33: fit to #22946"
    )
    noise_points: float = Field(
        1, ge=0.01, le=20, description="standard deviation of a CPU sample; scores at rest vary by two points or so"
    )
    brokers: tuple[BrokerPart, ...]
    load: tuple[LoadPart, ...]
    settings: dict[str, Any] = Field({}, description="as in lbd.yaml")

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if not (self.brokers and self.load):
            raise ValueError(f"{'load' if self.brokers else 'brokers'}: empty; wanted at least one")
        _distinct("brokers", [broker for part in self.brokers for broker in part.ids()])
        _distinct("load", [load.name for load in self.load])
        self._somebody_stays()
        return self

    def _somebody_stays(self) -> None:
        """Somebody can own the bundles at any moment."""
        first = sorted(part.id for part in self.brokers if part.joins_at_minutes is None)
        if all(part.id not in first or part.leaves_at_minutes is not None for part in self.brokers):
            raise ValueError("brokers: all join or leave; wanted one that is there from the beginning to the end")
        for load in self.load:
            for unknown in sorted(set(load.brokers).difference(first)):
                told = f"{unknown} is not there at first; wanted some of {', '.join(first)}"
                raise ValueError(f"load.{load.name}.brokers: {told}")


def _distinct(key: str, names: list[str]) -> None:
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    if twice:
        raise ValueError(f"{key}: {twice[0]} is there twice")


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with lbd."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or a file of one's own.

    Raises :class:`UsageError` with every problem: the file, the key, the value, and what would be right.
    """
    path = SHIPPED / f"{name}.yaml" if name in shipped() else Path(name)
    try:
        found = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{name}: no such scenario ({why}); wanted a file, or one of {', '.join(shipped())}"
        ) from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply, or contains itself") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {yaml_problem(error)}") from error
    try:
        return Scenario.model_validate(found)
    except ValidationError as error:
        raise UsageError("\n".join(_problems(path, error))) from error


def _problems(path: Path, error: ValidationError) -> Iterable[str]:
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        shown = "" if isinstance(item["input"], dict | Scenario) else repr(item["input"])
        told = " ".join(item["msg"].removeprefix("Value error, ").split())
        yield ": ".join(filter(None, (str(path), key, shown, told)))
