"""Reasons for which a turn may not fire at all, and its notes on data and on holds that are overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Skip
from lbd.permit.progress import standing_still
from lbd.permit.quiet_hours import quiet_until
from lbd.reason import Reason
from lbd.turn.assess import UNREPORTED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lbd.permit.facts import Facts, Hold
    from lbd.permit.settings import Guardrails


def current_holds(facts: Facts, guardrails: Guardrails) -> Iterator[Hold]:
    """Why nothing may fire in this turn, the gravest first."""
    evidence, active = facts.evidence, facts.members.active
    there = len(active) - int(np.count_nonzero(evidence.paired == Reason.DRAINED.code))
    usable, wanted = int(np.count_nonzero(evidence.paired == 0)), max(2, (there + 1) // 2)
    if facts.shedding:
        yield Reason.IN_BROKER_SHEDDING, facts.shedding
    if facts.ordered_hold is not None:
        yield facts.ordered_hold
    quiet = quiet_until(guardrails.quiet_hours, facts.now)
    if quiet is not None:
        yield Reason.QUIET_HOURS, quiet[1]
    if facts.leaderless:
        yield Reason.LEADER_UNREACHABLE, facts.leaderless
    if unsettled := facts.members.unsettled(facts.now, guardrails.membership_settle_seconds):
        yield Reason.MEMBERSHIP_CHANGED, unsettled
    if usable < wanted:
        yield Reason.TOO_FEW_BROKERS, f"{usable} of {there} reports are usable, wanted {wanted}"
    if not facts.policies.isolation.known:
        yield Reason.POLICY_UNKNOWN, f"{facts.policies.isolation.problem}; a named destination bypasses them"
    tried = standing_still(facts.progress, facts.now, guardrails)
    if tried is not None:
        yield Reason.NO_IMPROVEMENT, tried
    if facts.unfinished:
        yield Reason.MOVES_UNFINISHED, f"{len(facts.unfinished)} under way"


_DATA_DETAIL = {
    Reason.NO_NEW_SAMPLE: "CPU and bandwidth in its report have stood still for {minutes:.0f} min",
    Reason.REPORT_EMPTY: "had bundles in the last turn and reports none now: read in the middle of a stats run",
    Reason.FIRST_SAMPLE: "samples of a broker's first minutes hold its start-up work",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.DRAINED: "in no pair, average or destination until lbd drain --release, its end or the broker's restart",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def data_skips(missing: Mapping[str, str], facts: Facts) -> Iterator[Skip]:
    """Brokers without a report (``missing``, with why), and those whose report is not trusted enough to move on."""
    for broker, why in missing.items():
        yield Skip(broker, Reason.REPORT_MISSING, why)
    evidence = facts.evidence
    for broker, code in zip(facts.snapshot.brokers.ids, evidence.paired.tolist(), strict=True):
        if code:
            minutes = (facts.now - evidence.samples[broker].fresh_at) / 60
            slow = code == Reason.SLOW_BROKER.code
            detail = evidence.health.text(broker) if slow else _DATA_DETAIL[Reason.of(code)].format(minutes=minutes)
            yield Skip(broker, Reason.of(code), detail)


def unreported(facts: Facts) -> Iterator[Skip]:
    """Bundles that were moved lately and are in no report yet: brokers count rates once a stats interval."""
    lately = {name: at for name, at in facts.attempted_at.items() if facts.now - at < UNREPORTED_SECONDS}
    for bundle in sorted(lately.keys() - set(facts.snapshot.bundles)) if lately else ():
        ago = facts.now - lately[bundle]
        yield Skip(bundle, Reason.ON_NO_REPORT, f"asked to move {ago:.0f} s ago, no broker reports it yet")


PASSED_OVER = "lbd run would move nothing"


def ignored(holds: Iterable[Hold], passed_over: Collection[Reason]) -> Iterator[Skip]:
    """Holds that this turn ignores because it cannot act; a live turn would obey them."""
    for reason, detail in holds:
        if reason in passed_over:
            yield Skip("cluster", reason, f"{PASSED_OVER}: {detail}")
