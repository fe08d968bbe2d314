"""The checklist of ``lbd doctor``: problems of a cluster and of the lbd beside it. Nothing is changed.

``survey.py`` reads the cluster once. Each of the other modules has families of checks on the result:

``brokers.py``    leader and reports, versions, machines, effective and dynamic settings, the extensible load manager,
                  isolation policies, properties of namespaces, permissions, stale reports
``traffic.py``    whether bundles and traffic can be levelled by moves
``own_state.py``  settings of lbd that cannot work together, the state directory, files with secrets, the leader among
                  several lbds, what lbd has learned of brokers, the webhook
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.doctor import brokers, own_state, traffic
from lbd.doctor.requests import check_requests
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
    """All findings, problems first; ``observed`` is False without a round of load reports."""

    findings: tuple[Finding, ...]
    observed: bool
    requests: int

    def count(self, level: Level) -> int:
        """Number of findings of this level."""
        return sum(finding.level == level for finding in self.findings)


def examine(settings: Settings, *, notify: bool = False) -> Checkup:
    """Survey the cluster (:func:`~lbd.doctor.survey.survey` limits the requests), and examine ``state_dir``.

    ``notify``: send the webhook a test message.

    Raises :class:`~lbd.errors.UsageError` for settings with which no request can be sent.
    """
    cluster = survey(settings, time.time)
    of_leader, leader_requests = own_state.check_leader(settings)
    of_webhook = own_state.check_notify(settings, send=notify)
    findings = sorted((*_checks(cluster), *of_leader, *of_webhook), key=lambda finding: LEVELS.index(finding.level))
    return Checkup(tuple(findings), cluster.observation is not None, cluster.requests + leader_requests)


def _checks(survey: Survey) -> Iterator[Finding]:
    past, of_journal = own_state.journal(survey)
    yield from brokers.check_rights(survey)
    if survey.observation is not None:
        yield from brokers.check_cluster(survey, survey.observation)
    if survey.answered:
        yield from brokers.check_versions(survey)
        yield from brokers.check_configuration(survey)
        yield from check_requests(survey)
        yield from brokers.check_overrides(survey)
        yield from brokers.check_policies(survey)
        yield from brokers.check_properties(survey)
    if survey.observation is not None:
        yield from _of_a_round(survey, survey.observation)
        yield from brokers.notes(survey, survey.observation, past)
    yield from own_state.check_own_settings(survey)
    yield from own_state.check_secret_files(survey)
    yield from own_state.check_state_dir(survey)
    yield from of_journal


def _of_a_round(survey: Survey, observation: Observation) -> Iterator[Finding]:
    yield from brokers.check_machines(survey, observation)
    yield from brokers.check_samples(survey, observation)
    yield from brokers.of_a_round(survey, observation)
    yield from brokers.check_live_cpu(survey)
    yield from brokers.check_health_checks(survey, observation)
    yield from traffic.check_traffic(survey, observation.snapshot)
    yield from own_state.check_learned(survey, observation.snapshot)
