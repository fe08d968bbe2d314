"""Settings from a YAML file, ``LBD_*`` environment variables and options, and where each value came from.

All problems are reported at once: where, key, value, and what would be right.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from lbd.api.settings import ApiSettings
from lbd.decide import RULES, STRATEGIES
from lbd.decide.drain_settings import DrainSettings
from lbd.documents import complaint, ends, flat, read_yaml, yaml_problem
from lbd.errors import UsageError
from lbd.load.scoring import Weights
from lbd.load.settings import LoadSettings
from lbd.permit.settings import Guardrails
from lbd.place import PLACEMENTS
from lbd.pulsar.settings import LeaderSettings, PulsarSettings
from lbd.record.history.settings import HistorySettings
from lbd.record.turns.settings import TurnsSettings
from lbd.split.settings import SplitSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic_core import ErrorDetails

    from lbd.decide.avg_shedder.settings import AvgShedderSettings

DEFAULT_PATH = Path("/etc/lbd/lbd.yaml")
PREFIX = "LBD_"
ENVIRONMENT, OPTIONS = "environment", "command line"
NOT_SETTINGS = re.compile(r"LBD_(CONFIG|REQUIRE_E2E|E2E_.*|PORT(_.*)?|SERVICE_(HOST|PORT)(_.*)?)")
"""Variables with our prefix that are no settings: an option, the tests' own, and what Kubernetes sets for a service."""


class LogSettings(BaseModel):
    """The ``log:`` section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else json")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least that is written")


def section_of(strategy: str) -> str:
    """The name of the section with a strategy's settings."""
    return strategy.replace("-", "_")


class _Common(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pulsar: PulsarSettings = PulsarSettings()
    interval_seconds: float = Field(
        15,
        gt=0,
        le=86_400,
        description="time between turns; brokers sample CPU once a minute, so a new sample is seen within this",
    )
    profile: Literal["live", "stock"] = Field(
        "live", description="stock: decide exactly as Pulsar does; guardrails hold in both"
    )
    strategy: str = Field("avg-shedder", description=f"who decides what moves: {', '.join(STRATEGIES)}")
    placement: str | None = Field(
        None,
        description="names destinations where the strategy names none (avg-shedder does, transfer-shedder unless its "
        f"transfer_enabled is false): {', '.join(PLACEMENTS)}; by default the one that goes with the strategy; in "
        "broker.conf loadBalancerLoadPlacementStrategy",
    )

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, name: str) -> str:
        return _one_of(name, STRATEGIES)

    @field_validator("placement")
    @classmethod
    def _known_placement(cls, name: str | None) -> str | None:
        return None if name is None else _one_of(name, PLACEMENTS)


if TYPE_CHECKING:

    class _Strategies(_Common):
        """A section for each strategy of the registry; code asks for those of the default by name."""

        avg_shedder: AvgShedderSettings = AvgShedderSettings()
else:
    _Strategies = create_model("_Strategies", __base__=_Common, **{section_of(one.name): (one, one()) for one in RULES})


class Settings(_Strategies):
    """All settings of lbd: those of all strategies, and what is the same for each."""

    weights: Weights = Weights()
    load: LoadSettings = LoadSettings()
    in_broker_shedding: Literal["refuse", "take-over"] = Field(
        "refuse",
        description="while the brokers' own shedder is on: refuse: lbd moves nothing and says so; take-over: lbd turns "
        "it off on all brokers and notes what was there, for lbd release",
    )
    restore_on_stop: bool = Field(
        False, description="with take-over: give the brokers' own shedding back at a plain stop, as lbd release does"
    )
    guardrails: Guardrails = Guardrails()
    split: SplitSettings = SplitSettings()
    drain: DrainSettings = DrainSettings()
    turns: TurnsSettings = TurnsSettings()
    history: HistorySettings = HistorySettings()
    state_dir: Path = Field(Path("/var/lib/lbd"), description="journal, counters, averages; one lbd at a time")
    api: ApiSettings = ApiSettings()
    leader: LeaderSettings = LeaderSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.leader.enabled and self.pulsar.service_url is None:
            raise ValueError("leader.enabled needs pulsar.service_url: pulsar://host:port, or pulsar+ssl://host:port")
        return self

    @field_validator("state_dir")
    @classmethod
    def _usable(cls, path: Path) -> Path:
        if "\0" in str(path):
            raise ValueError("wanted the path of a directory")
        return path


def _one_of(name: str, known: Iterable[str]) -> str:
    if name not in known:
        near = _nearest(name, list(known))
        raise ValueError(f"{near and f'did you mean {near}? '}wanted one of {', '.join(known)}")
    return name


@dataclass(frozen=True)
class Loaded:
    """Settings, and for each dotted key that is not a default, where it was set."""

    settings: Settings
    origins: Mapping[str, str]

    @property
    def files(self) -> frozenset[str]:
        """The files that say something: by their paths."""
        none = f"{ENVIRONMENT} {PREFIX}"
        return frozenset(one for one in self.origins.values() if one != OPTIONS and not one.startswith(none))


def load(path: Path | None, environ: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Loaded:
    """Defaults, then the file, then the environment, then options. Raises :class:`UsageError` with every problem."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    for origin, source in _sources(path, environ, options or {}, problems):
        for key, value in flat(source):
            _put(values, key.split("."), value)
            origins = {old: where for old, where in origins.items() if not old.startswith(f"{key}.")}
            origins[key] = origin
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems.extend(problem(item, origins) for item in error.errors())
    if problems:
        raise UsageError("\n".join(" ".join(problem.split()) for problem in problems))
    return Loaded(settings, origins)


def _sources(
    path: Path | None, environ: Mapping[str, str], options: Mapping[str, Any], problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    chosen = path or (DEFAULT_PATH if os.access(DEFAULT_PATH, os.F_OK) else None)
    if chosen is not None:
        yield str(chosen), _file(chosen)
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and not NOT_SETTINGS.fullmatch(name):
            source = _variable(name, text, problems)
            if source is not None:
                yield f"{ENVIRONMENT} {name}", source
    yield OPTIONS, dict(options)


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: configuration cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    try:
        found = read_yaml(text)
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply, or contains itself") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {yaml_problem(error)}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{path}: the file is a {type(found).__name__}, wanted keys and values")
    return found


def _variable(name: str, text: str, problems: list[str]) -> dict[str, Any] | None:
    """``LBD_AVG_SHEDDER__LOW_THRESHOLD=20`` as nested values; lists and objects are given as JSON."""
    keys = name[len(PREFIX) :].lower().split("__", 8)  # more levels than settings have
    if keys[0] not in Settings.model_fields:
        near = _nearest(keys[0], list(Settings.model_fields))
        problems.append(f"environment {name}: no such setting{near and f'; did you mean {PREFIX}{near.upper()}?'}")
        return None
    value: Any = text
    if text[:1] in {"[", "{"} or text == "null":
        try:
            value = json.loads(text)
            ends(value)
        except (ValueError, RecursionError) as error:
            problems.append(f"environment {name}: not JSON: {error}")
            return None
    for key in reversed(keys):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _put(values: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    values[keys[-1]] = value


def problem(item: ErrorDetails, origins: Mapping[str, str]) -> str:
    """One problem of settings: where it stands by ``origins``, key, value, and what would be right."""
    if not item["loc"]:
        return f"configuration: {complaint(item)}"
    key = ".".join(str(part) for part in item["loc"])
    where = next(
        (
            origin
            for name, origin in origins.items()
            if name == key or name.startswith(f"{key}.") or key.startswith(f"{name}.")
        ),
        "configuration",
    )
    if item["type"] == "extra_forbidden":
        near = _nearest(str(item["loc"][-1]), _known(item["loc"][:-1]))
        return f"{where}: {key or repr('')}: no such setting{near and f'; did you mean {near}?'}"
    shown = "" if isinstance(item["input"], dict) or key.startswith("pulsar") else f" {item['input']!r}:"
    return f"{where}: {key}:{shown} {complaint(item)}"


def _known(path: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in (part for part in path if not isinstance(part, int)):
        annotation = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next((option for option in options if hasattr(option, "model_fields")), None)
        if model is None:
            return []
    return list(model.model_fields)


def _nearest(name: str, known: list[str]) -> str:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), "")


def environment() -> dict[str, str]:
    """The process's ``LBD_*`` variables."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
