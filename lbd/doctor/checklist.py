"""The checklist of ``lbd doctor``: problems of a cluster and of the lbd beside it. Nothing is changed.

``survey.py`` reads the cluster once. Each of the other modules has families of checks on the result:

``brokers.py``    leader and reports, versions, machines, effective and dynamic settings, the extensible load manager,
                  isolation policies, permissions, stale reports
``traffic.py``    whether bundles and traffic can be levelled by moves
``own_state.py``  settings of lbd that cannot work together, the state directory, files with secrets, the leader among
                  several lbds, what lbd has learned of brokers, the webhook
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.doctor import brokers, own_state, traffic
from lbd.doctor.survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.doctor.findings import Finding, Level
    from lbd.doctor.survey import Survey
    from lbd.observe.observer import Observation


LEVELS: tuple[Level, ...] = ("problem", "warning", "ok")


@dataclass(frozen=True)
class Checkup:
    """All findings, problems first; ``observed`` is False when no round of load reports could be had."""

    findings: tuple[Finding, ...]
    observed: bool
    requests: int

    def count(self, level: Level) -> int:
        """How many findings have this level."""
        return sum(found.level == level for found in self.findings)


def examine(settings: Settings, *, notify: bool = False) -> Checkup:
    """Ask the cluster (how often, stands at :func:`~lbd.doctor.survey.survey`), and look into ``state_dir``.

    ``notify``: send the webhook a test message.

    Raises :class:`~lbd.errors.UsageError` for settings with which no request can be sent.
    """
    seen = survey(settings)
    of_leader, asked = own_state.check_leader(settings)
    of_webhook = own_state.check_notify(settings, send=notify)
    found = sorted((*_checks(seen), *of_leader, *of_webhook), key=lambda one: LEVELS.index(one.level))
    return Checkup(tuple(found), seen.observation is not None, seen.requests + asked)


def _checks(seen: Survey) -> Iterator[Finding]:
    past, of_journal = own_state.journal(seen)
    yield from brokers.check_rights(seen)
    if seen.observation is not None:
        yield from brokers.check_cluster(seen, seen.observation)
    if seen.answered:
        yield from brokers.check_versions(seen)
        yield from brokers.check_configuration(seen)
        yield from brokers.check_overrides(seen)
        yield from brokers.check_policies(seen)
    if seen.observation is not None:
        yield from _of_a_round(seen, seen.observation)
        yield from brokers.notes(seen, seen.observation, past)
    yield from own_state.check_own_settings(seen)
    yield from own_state.check_secret_files(seen)
    yield from own_state.check_state_dir(seen)
    yield from of_journal


def _of_a_round(seen: Survey, observation: Observation) -> Iterator[Finding]:
    yield from brokers.check_machines(seen, observation)
    yield from brokers.check_samples(seen, observation)
    yield from brokers.of_a_round(seen, observation)
    yield from brokers.check_live_cpu(seen)
    yield from traffic.check_traffic(seen, observation.snapshot)
    yield from own_state.check_learned(seen, observation.snapshot)
