"""Skips of a turn for data that it does not trust, and for bundles that are in no report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.model import Skip
from lbd.reason import Reason
from lbd.text import duration_text, minutes_text
from lbd.turn.assess import UNREPORTED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.permit.facts import Facts


_DATA_DETAIL = {
    Reason.NO_NEW_SAMPLE: "CPU and bandwidth in its report have stood still for {lasts}",
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
            lasts = minutes_text(facts.now - evidence.samples[broker].fresh_at)
            slow = code == Reason.SLOW_BROKER.code
            detail = evidence.health.text(broker) if slow else _DATA_DETAIL[Reason.of(code)].format(lasts=lasts)
            yield Skip(broker, Reason.of(code), detail)


def unreported(facts: Facts) -> Iterator[Skip]:
    """Bundles that were moved lately and are in no report yet: brokers count rates once a stats interval."""
    lately = {name: at for name, at in facts.attempted_at.items() if facts.now - at < UNREPORTED_SECONDS}
    for bundle in sorted(lately.keys() - set(facts.snapshot.bundles)) if lately else ():
        ago = duration_text(facts.now - lately[bundle])
        yield Skip(bundle, Reason.ON_NO_REPORT, f"asked to move {ago} ago, no broker reports it yet")
