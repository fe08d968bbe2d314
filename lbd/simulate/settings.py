"""Settings of a simulated lbd: a turn for each fresh sample, then the scenario's, the user's own, and what is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lbd.config import Settings, problem
from lbd.documents import flat
from lbd.errors import UsageError
from lbd.permit.evidence import SAMPLE_INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.simulate.scenario import Scenario


def settled(scenario: Scenario, given: Settings, overrides: Mapping[str, object]) -> Settings:
    """The settings of a run; ``overrides`` have dotted keys, as ``avg_shedder.low_threshold``.

    Raises :class:`UsageError` with every problem: where it stands, key, value, and what would be right.
    """
    values: dict[str, Any] = {"interval_seconds": SAMPLE_INTERVAL_SECONDS}
    for source in (scenario.settings, given.model_dump(exclude_unset=True), *map(nested, overrides.items())):
        values = over(values, source)
    origins = dict.fromkeys(overrides, "--set") | {
        key: "scenario" for key, _ in flat(scenario.settings) if key not in overrides
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        told = (problem(item, origins) for item in error.errors())
        raise UsageError("\n".join(" ".join(line.split()) for line in told)) from error


def nested(override: tuple[str, object]) -> dict[str, Any]:
    """A value under its dotted key, section in section."""
    key, value = override
    *sections, last = key.split(".")
    found = {last: value}
    for section in reversed(sections):
        found = {section: found}
    return found


def over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, section by section; what stands above wins."""
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return found
