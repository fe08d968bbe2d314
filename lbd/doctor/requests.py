"""Settings of brokers that give one of lbd's requests more effect than intended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.doctor.findings import Check, broker_names, of_all
from lbd.pulsar.request_table import EFFECTS
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.doctor.findings import Finding
    from lbd.doctor.survey import Survey

REQUESTS = Check("requests", "under some settings of a broker a request does more, so lbd sends others, or refuses")


def check_requests(survey: Survey) -> Iterator[Finding]:
    """Each setting on which the harmlessness of a request depends, with the brokers that have an unusual value."""
    yield from of_all(_effects(survey), survey.runtime, survey.active, "the configuration")


def _effects(survey: Survey) -> Iterator[Finding]:
    """A broker whose version has no such setting behaves as with its harmless value."""
    usual = True
    for effect in EFFECTS:
        values = {broker: runtime.get(effect.key, effect.harmless) for broker, runtime in survey.runtime.items()}
        for value in sorted(set(values.values()) - {effect.harmless}):
            usual = False
            brokers = broker_names([broker for broker in values if values[broker] == value], survey.runtime)
            message = f"{effect.key}={value} at {brokers}: {effect.effect}"
            yield REQUESTS.warning(message, effect.advice) if effect.advice else REQUESTS.ok(message)
    if usual:
        yield REQUESTS.ok(f"the settings that matter to them are usual on {counted(len(survey.runtime), 'broker')}")
