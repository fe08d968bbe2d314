"""The load reports of a simulated cluster as brokers would send them, for a recording. Pure."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.model import RESOURCES
from lbd.observe.parse import BundleStats, LoadReport, Usage

if TYPE_CHECKING:
    from lbd.model import Snapshot

RATES = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
"""Fields of a report for the columns of :attr:`lbd.model.Brokers.rates`."""


def load_reports(snapshot: Snapshot) -> dict[str, bytes]:
    """The report of each broker as JSON: parsed, they are the snapshot again."""
    return {broker: msgspec.json.encode(_report(snapshot, at)) for at, broker in enumerate(snapshot.brokers.ids)}


def estimated_bytes(snapshot: Snapshot, rounds: int, *, packed: bool) -> int:
    """About how long a recording of so many rounds like this one becomes; ``packed``: with gzip.

    A round packs worse by itself than after others, so that a small cluster's becomes shorter than this.
    """
    line = b",".join(load_reports(snapshot).values())
    return rounds * len(gzip.compress(line) if packed else line)


def _report(snapshot: Snapshot, at: int) -> LoadReport:
    brokers = snapshot.brokers
    usages = map(Usage, brokers.usage[at].tolist(), brokers.limit[at].tolist())
    columns: dict[str, Any] = dict(zip((*RESOURCES, *RATES), (*usages, *brokers.rates[at].tolist()), strict=True))
    statistics, listed = _bundles(snapshot, at)
    return LoadReport(
        **columns,
        last_stats=statistics,
        bundles=listed,
        num_topics=int(brokers.topics[at]),
        broker_version_string=brokers.versions[at],
        start_timestamp=float(brokers.started_at[at]) * 1000,
        web_service_url=f"http://{brokers.ids[at]}",
    )


def _bundles(snapshot: Snapshot, at: int) -> tuple[dict[str, BundleStats], list[str]]:
    """Statistics by bundle, and the list of bundles."""
    rows, own = snapshot.rows, snapshot.rows.of(at)
    names = [snapshot.bundles[bundle] for bundle in rows.bundle[own].tolist()]
    rates, counts = rows.rates[own].tolist(), rows.counts[own].tolist()
    known = zip(names, rates, counts, rows.reported[own].tolist(), strict=True)
    statistics = {name: BundleStats(*rate, *count) for name, rate, count, reported in known if reported}
    return statistics, [name for name, listed in zip(names, rows.listed[own].tolist(), strict=True) if listed]
