"""Whether lbd may ask what it asks, and whether all calls were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.doctor.finding import Check
from lbd.daemon.doctor.survey import OBSERVING, ROLES, SUPERUSER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey

RIGHTS = Check(
    "rights", "what lbd may not read it must take for forbidden, and without unload rights it can do nothing"
)
ROUND = Check("observation", "without a round of load reports lbd knows nothing and moves nothing")
ANSWERS = Check("answers", "what is not answered was not checked")


TURN_TO = "mend what it names, or give other brokers' web addresses as pulsar.admin_urls; nothing else was checked"


def check(seen: Survey) -> Iterator[Finding]:
    """Refused calls with the right that each needs, and other calls without a usable answer."""
    if seen.refused:
        told = "; ".join(f"{', '.join(calls)} want a {role}" for role, calls in _by_role(seen.refused).items())
        todo = "give lbd a superuser's token (pulsar.token_file), password (pulsar.basic) or certificate (pulsar.tls)"
        yield RIGHTS.problem(f"refused with 401 or 403: {told}", todo)
    elif seen.observation is not None:
        yield RIGHTS.ok(f"every read is allowed; unload wants a {SUPERUSER}, too, and was not tried")
    if seen.observation is None:
        todo = "mend that first: leader, reports, machines and traffic were not checked"
        yield ROUND.problem(str(seen.failed[OBSERVING]), todo if seen.answered else TURN_TO)
    missing = seen.observation.missing if seen.observation is not None else {}
    told_elsewhere = {OBSERVING, *seen.refused, *(f"version of {broker}" for broker in missing)}
    for call, error in seen.failed.items():
        if call not in told_elsewhere:
            yield ANSWERS.warning(f"{call}: {error}", "see that the broker answers, and run lbd doctor again")


def _by_role(calls: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for call in calls:
        found.setdefault(ROLES[call], []).append(call)
    return found
