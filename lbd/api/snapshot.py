"""The load of a round as a program reads it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.api.shapes import SeenBroker, SeenBundle, SnapshotTold
from lbd.cycle.document import number
from lbd.errors import UsageError
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.api.board import Published
    from lbd.cycle import CycleRecord
    from lbd.model import BoolArray, Snapshot


def snapshot(published: Published, broker: str | None, namespace: str | None, last: int) -> SnapshotTold:
    """Brokers, and so many (``last``) bundles with most bytes/s, of one broker or namespace where one is named.

    Raises :class:`UsageError` for a broker that gave no report.
    """
    record = published.record
    if record.observation is None or record.decision is None:
        return SnapshotTold(None, published.status.cluster, [], [], 0)
    seen = record.observation.snapshot
    chosen = _chosen(seen, broker, namespace)
    return SnapshotTold(
        taken_at=seen.taken_at,
        cluster=record.observation.cluster,
        brokers=_brokers(published, record),
        bundles=_bundles(seen, _largest(seen, chosen, last)),
        bundles_all=int(chosen.sum()),
    )


def _brokers(published: Published, record: CycleRecord) -> list[SeenBroker]:
    """Each with how far its report is to be trusted: as kept turns tell it."""
    rows, evidence = published.brokers, record.evidence
    if evidence is None:
        return [SeenBroker(**row, fresh=False, doubt=None) for row in rows]
    codes = [int(code) for code in evidence.paired]
    doubts = [Reason.of(code).label if code else None for code in codes]
    return [SeenBroker(**row, fresh=bool(evidence.fresh[at]), doubt=doubts[at]) for at, row in enumerate(rows)]


def _chosen(seen: Snapshot, broker: str | None, namespace: str | None) -> BoolArray:
    """Rows, bool (R,); where brokers tell of their largest bundles only, the others are there, too."""
    chosen: BoolArray = seen.rows.reported | (seen.rows.listed if seen.partial else False)
    if broker is not None:
        at = seen.brokers.index().get(broker)
        if at is None:
            raise UsageError(f"{broker}: no such broker in this round; there are {', '.join(seen.brokers.ids[:5])}")
        chosen &= seen.rows.owner() == at
    if namespace is not None:
        names = np.array([name == namespace for name in seen.namespaces.names], dtype=np.bool_)
        chosen &= names[seen.namespaces.of[seen.rows.bundle]]
    return chosen


def _largest(seen: Snapshot, chosen: BoolArray, last: int) -> list[int]:
    """Rows, at most ``last``, the most bytes/s first; among equals as the brokers report them."""
    rows = np.flatnonzero(chosen)
    weight = np.nan_to_num(seen.rows.rates[rows, BYTES_IN] + seen.rows.rates[rows, BYTES_OUT])
    if 0 < last < rows.size:  # to sort them all takes thirty times as long
        rows = rows[weight >= np.partition(weight, -last)[-last]]
        weight = np.nan_to_num(seen.rows.rates[rows, BYTES_IN] + seen.rows.rates[rows, BYTES_OUT])
    found: list[int] = rows[np.argsort(-weight, kind="stable")][:last].tolist()
    return found


def _bundles(seen: Snapshot, rows: list[int]) -> list[SeenBundle]:
    names, owner = seen.rows.bundle[rows].tolist(), seen.rows.owner()[rows].tolist()
    told = seen.rows.reported[rows]
    carried = np.where(told[:, None], seen.rows.rates[rows], np.nan).tolist()
    counts = [own if known else [None] * 3 for own, known in zip(seen.rows.counts[rows].tolist(), told, strict=True)]
    return [
        SeenBundle(
            bundle=seen.bundles[name],
            broker=seen.brokers.ids[broker],
            msg_rate_in=number(rates[MSG_IN]),
            msg_rate_out=number(rates[MSG_OUT]),
            throughput_in=number(rates[BYTES_IN]),
            throughput_out=number(rates[BYTES_OUT]),
            topics=topics,
            producers=producers,
            consumers=consumers,
        )
        for name, broker, rates, (topics, producers, consumers) in zip(names, owner, carried, counts, strict=True)
    ]
