"""Leader and reports, as a turn would see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.daemon.doctor.finding import NAMED, Check, named, whose
from lbd.permit.evidence import judge
from lbd.reason import Reason
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.observe.observer import Observation

LEADER = Check("leader", "only a leader remembers a destination, so without one lbd moves nothing")
REPORTS = Check("reports", "a broker without a usable report is neither relieved nor given anything")
SIZE = Check("cluster-size", "balancing wants two brokers at least")

DOUBTS = {
    Reason.FIRST_SAMPLE: "started lately, or CPU not sampled yet",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def check(seen: Survey, observation: Observation) -> Iterator[Finding]:
    """One round."""
    yield _leader(observation)
    yield _reports(seen, observation)
    if len(observation.active) < 2:
        told = f"{counted(len(observation.active), 'active broker')}: {named(observation.active)}"
        yield SIZE.warning(told, "nothing, if that is all there is")


def _leader(observation: Observation) -> Finding:
    if observation.leader is None:
        told = "no broker leads, or the one that is named does not answer"
        then = f"restart {observation.silent[0]} if it leads" if observation.silent else "look at the metadata store"
        return LEADER.problem(told, f"wait a metadata session time-out (30 s); then {then}")
    return LEADER.ok(f"{observation.leader.broker or observation.leader.base} leads")


def _todo(observation: Observation) -> str:
    if observation.silent:
        first = observation.silent[0]
        return f"keep a thread dump of {first} (jstack) for who mends it, then restart it: such a broker stays listed"
    return "after a start, wait 3 minutes; else see that broker's log"


def _reports(seen: Survey, observation: Observation) -> Finding:
    """Lbd acts on no fewer than half of the brokers, and never on fewer than two."""
    evidence = judge({}, observation.snapshot, seen.settings.weights, observation.sample_interval_seconds)
    doubts = {why: [broker] for broker, why in observation.missing.items()}
    for broker, code in zip(observation.snapshot.brokers.ids, evidence.paired.tolist(), strict=True):
        if code:
            doubts.setdefault(DOUBTS.get(Reason.of(code), Reason.of(code).label), []).append(broker)
    usable, wanted = int(np.count_nonzero(evidence.paired == 0)), max(2, (len(observation.active) + 1) // 2)
    told = f"{usable} of {len(observation.active)} usable"
    if not doubts:
        return REPORTS.ok(told)
    words = [f"{whose(brokers, observation.active)}: {why}" for why, brokers in doubts.items()]
    told = "; ".join([told, *words[:NAMED], *([f"and {len(words) - NAMED} more"] if len(words) > NAMED else [])])
    todo = _todo(observation)
    if usable < wanted:
        return REPORTS.problem(f"{told}; lbd wants {wanted}", todo)
    return REPORTS.warning(told, todo)
