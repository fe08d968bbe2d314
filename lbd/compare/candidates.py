"""What is compared: a strategy with some settings of its own, and the settings of its runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lbd.config import Settings, problem
from lbd.decide import STRATEGIES
from lbd.errors import UsageError
from lbd.simulate.settings import nested, over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.record.recording import Header


@dataclass(frozen=True)
class Candidate:
    """A strategy and settings by dotted keys; ``label`` is how it was asked for."""

    label: str
    strategy: str
    settings: Mapping[str, object]


def candidate(text: str, assignment: Callable[[str], tuple[str, object]]) -> Candidate:
    """Of ``NAME`` or ``NAME:KEY=VALUE,KEY=VALUE``; a key without a dot is one of the strategy's own settings.

    Raises :class:`UsageError` for a strategy that nobody knows.
    """
    name, _, values = text.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"--strategy {text}: {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    section = name.replace("-", "_")
    pairs = [assignment(part) for part in values.split(",")] if values else []
    return Candidate(text, name, {key if "." in key else f"{section}.{key}": value for key, value in pairs})


def settings_for(
    chosen: Candidate, below: Mapping[str, Any], given: Settings, overrides: Mapping[str, object]
) -> Settings:
    """The settings of a run: those that belong to what it runs over, the user's, what is tried, the candidate's own.

    Raises :class:`UsageError` with every problem.
    """
    own = {"strategy": chosen.strategy, **chosen.settings}
    values: dict[str, Any] = {}
    for source in (below, given.model_dump(exclude_unset=True), *map(nested, [*overrides.items(), *own.items()])):
        values = over(values, source)
    origins = dict.fromkeys(overrides, "--set") | dict.fromkeys(own, f"--strategy {chosen.label}")
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        told = (problem(item, origins) for item in error.errors())
        raise UsageError("\n".join(" ".join(line.split()) for line in told)) from error


def of_header(header: Header) -> dict[str, Any]:
    """What a recording says of the settings it was made under."""
    section = (header.strategy or "avg-shedder").replace("-", "_")
    return {
        "interval_seconds": header.interval_s,
        "guardrails": {"cool_down_minutes": header.grace_s / 60},
        "weights": dict(header.weights),
        section: dict(header.settings),
    }
