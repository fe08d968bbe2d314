"""Why a turn may not fire at all, and what it has to say of data, holds and unloads that were not asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Reason, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cycle.parts import Parts
    from lbd.model import Outcome, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.permit.settings import Guardrails
    from lbd.record.state import Kept


def counting_holds(parts: Parts, observation: Observation, evidence: Evidence, kept: Kept) -> Iterator[Reason]:
    """Holds that count in this kind of turn, the gravest first."""
    found = _holds(observation, evidence, kept, parts.guardrails)
    return (reason for reason in found if reason not in parts.ignored_holds)


def _holds(observation: Observation, evidence: Evidence, kept: Kept, guardrails: Guardrails) -> Iterator[Reason]:
    """Why nothing may fire in this turn, the gravest first."""
    usable = int(np.count_nonzero(evidence.paired == 0))
    if observation.shedding_on:
        yield Reason.IN_BROKER_SHEDDING
    if observation.leader is None:
        yield Reason.LEADER_UNREACHABLE
    if observation.snapshot.taken_at - kept.members_since < guardrails.membership_settle_seconds:
        yield Reason.MEMBERSHIP_CHANGED
    if usable < max(2, (len(observation.active) + 1) // 2):
        yield Reason.TOO_FEW_BROKERS


_DATA_DETAIL = {
    Reason.REPORT_EMPTY: "had bundles in the last turn and reports none now: read in the middle of a stats run",
    Reason.FIRST_SAMPLE: "samples of a broker's first minutes hold its start-up work",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def data_skips(observation: Observation, evidence: Evidence) -> Iterator[Skip]:
    """Brokers without a report, and those whose report is no ground to move on."""
    for broker, why in observation.missing.items():
        yield Skip(broker, Reason.REPORT_MISSING, why)
    for broker, code in zip(observation.snapshot.brokers.ids, evidence.paired.tolist(), strict=True):
        if code:
            yield Skip(broker, Reason.of(code), _DATA_DETAIL[Reason.of(code)])


UNREPORTED_SECONDS = 300.0
"""A moved bundle shows up within two stats intervals, which are a minute by default."""


def unreported(parts: Parts, snapshot: Snapshot) -> Iterator[Skip]:
    """Bundles that were moved lately and are on no report yet: brokers count rates once a stats interval."""
    lately = {name: at for name, at in parts.attempted_at().items() if snapshot.taken_at - at < UNREPORTED_SECONDS}
    for bundle in sorted(lately.keys() - set(snapshot.bundles)) if lately else ():
        ago = snapshot.taken_at - lately[bundle]
        yield Skip(bundle, Reason.ON_NO_REPORT, f"asked to move {ago:.0f} s ago, no broker reports it yet")


def ignored(parts: Parts, observation: Observation, evidence: Evidence, kept: Kept) -> Iterator[Skip]:
    """Holds that a turn which cannot act passes over, and a live turn would not."""
    for reason in _holds(observation, evidence, kept, parts.guardrails):
        if reason in parts.ignored_holds:
            yield Skip("cluster", reason, "lbd run would move nothing")


def stopped(plan: tuple[Unload, ...], outcomes: tuple[Outcome, ...]) -> Iterator[Skip]:
    """Planned and not attempted, because the round was stopped. Without outcomes nothing was attempted on purpose."""
    if outcomes:
        tried = {outcome.unload.bundle for outcome in outcomes}
        for unload in plan:
            if unload.bundle not in tried:
                yield Skip(
                    unload.bundle, Reason.ROUND_STOPPED, "not asked for: two misses in a row, or lbd was stopped"
                )
