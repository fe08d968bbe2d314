"""What is compared: a strategy with some settings of its own, and the settings of its runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lbd.config import Settings, problem, section_of
from lbd.decide import STRATEGIES
from lbd.documents import flat
from lbd.errors import UsageError
from lbd.permit.evidence import SAMPLE_INTERVAL_SECONDS
from lbd.simulate.settings import nested, over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.record.recording import Header
    from lbd.simulate.scenario import Scenario


@dataclass(frozen=True)
class Candidate:
    """A strategy and settings by dotted keys; ``label`` is how it was asked for."""

    label: str
    strategy: str
    settings: Mapping[str, object]


@dataclass(frozen=True)
class Below:
    """Settings that belong to what is run over, and ``where`` they stand."""

    where: str
    settings: Mapping[str, Any]


def candidate(text: str, assignment: Callable[[str, str], tuple[str, object]]) -> Candidate:
    """Of ``NAME`` or ``NAME:KEY=VALUE,KEY=VALUE``; a key without a dot is one of the strategy's own settings, or
    ``profile``: ``stock`` is Pulsar's own rule.

    Raises :class:`UsageError` for a strategy that nobody knows.
    """
    name, _, values = text.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"--strategy {text}: {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    section = section_of(name)
    pairs = [assignment(part, f"--strategy {name}:") for part in values.split(",")] if values else []
    shared = ("profile",)
    return Candidate(
        text, name, {key if "." in key or key in shared else f"{section}.{key}": value for key, value in pairs}
    )


def settings_for(chosen: Candidate, below: Below, given: Settings, overrides: Mapping[str, object]) -> Settings:
    """The settings of a run: those of what it runs over, the user's, what is tried with all, the candidate's own.

    Raises :class:`UsageError` with every problem.
    """
    own = {"strategy": chosen.strategy, **chosen.settings}
    values: dict[str, Any] = {}
    for source in (
        below.settings,
        given.model_dump(exclude_unset=True),
        *map(nested, [*overrides.items(), *own.items()]),
    ):
        values = over(values, source)
    origins = dict.fromkeys(own, f"--strategy {chosen.label}") | dict.fromkeys(overrides.keys() - own.keys(), "--set")
    origins |= {key: below.where for key, _ in flat(below.settings) if key not in origins}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        told = (problem(item, origins) for item in error.errors())
        raise UsageError("\n".join(" ".join(line.split()) for line in told)) from error


def of_scenario(scenario: Scenario) -> Below:
    """A scenario's settings; a turn for each sample."""
    return Below("scenario", {"interval_seconds": SAMPLE_INTERVAL_SECONDS, **scenario.settings})


def of_recording(header: Header) -> Below:
    """What a recording says of the settings that it was made under.

    Raises :class:`UsageError` for a strategy that nobody knows.
    """
    name = header.strategy or "avg-shedder"
    if name not in STRATEGIES:
        raise UsageError(f"{header.where}: strategy {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    settings = {
        "interval_seconds": header.interval_s,
        "guardrails": {"cool_down_minutes": header.grace_s / 60},
        "weights": dict(header.weights),
        section_of(name): dict(header.settings),
    }
    return Below(header.where, settings)
