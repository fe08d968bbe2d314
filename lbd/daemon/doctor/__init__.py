"""What is wrong, or worth knowing, about a cluster and the lbd beside it: ``lbd doctor``. Nothing is changed.

``survey.py`` asks the cluster, once. Each of the other modules is a family of checks on what came back:

``rights.py``        what may be asked, and what was answered
``cluster.py``       leader and reports
``versions.py``      what the brokers' versions can and cannot do
``machines.py``      CPU, network cards, clocks
``samples.py``       reports that stand still
``configured.py``    what the brokers run with
``extensible.py``    where load data come from topics, and what they tell
``overrides.py``     dynamic settings that are stored and not taken
``traffic.py``       whether bundles and traffic can be levelled at all
``learned.py``       what lbd learned of brokers, and load that no bundle makes
``leader.py``        who of several lbds leads
``policies.py``      isolation, and destinations that a leader may still hold
``own_settings.py``  settings of lbd that cannot work together
``state_dir.py``     the running lbd and what it keeps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.daemon.doctor import (
    cluster,
    configured,
    extensible,
    leader,
    learned,
    machines,
    overrides,
    own_settings,
    policies,
    rights,
    samples,
    state_dir,
    traffic,
    versions,
)
from lbd.daemon.doctor.finding import Finding, Level
from lbd.daemon.doctor.survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.daemon.doctor.survey import Survey
    from lbd.observe.observer import Observation

__all__ = ["LEVELS", "Checkup", "Finding", "examine"]

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


def examine(settings: Settings) -> Checkup:
    """Ask the cluster (how often, stands at :func:`~lbd.daemon.doctor.survey.survey`), and look into ``state_dir``.

    Raises :class:`~lbd.errors.UsageError` for settings with which no request can be sent.
    """
    seen = survey(settings)
    of_leader, asked = leader.check(settings)
    found = sorted((*_checks(seen), *of_leader), key=lambda one: LEVELS.index(one.level))
    return Checkup(tuple(found), seen.observation is not None, seen.requests + asked)


def _checks(seen: Survey) -> Iterator[Finding]:
    past, of_journal = state_dir.journal(seen)
    yield from rights.check(seen)
    if seen.observation is not None:
        yield from cluster.check(seen, seen.observation)
    if seen.answered:
        yield from versions.check(seen)
        yield from configured.check(seen)
        yield from overrides.check(seen)
        yield from policies.check(seen)
    if seen.observation is not None:
        yield from _of_a_round(seen, seen.observation)
        yield from policies.notes(seen, seen.observation, past)
    yield from own_settings.check(seen)
    yield from state_dir.check(seen)
    yield from of_journal


def _of_a_round(seen: Survey, observation: Observation) -> Iterator[Finding]:
    yield from machines.check(seen, observation)
    yield from samples.check(seen, observation)
    yield from extensible.of_a_round(seen, observation)
    yield from traffic.check(seen, observation.snapshot)
    yield from learned.check(seen, observation.snapshot)
