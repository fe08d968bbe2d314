"""What the brokers of a simulated cluster report, as the columns that a turn reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import RESOURCES, Brokers, Rows, Snapshot

if TYPE_CHECKING:
    from lbd.model import FloatArray
    from lbd.simulate.cluster import Counted, State, World

DAY_SECONDS = 86_400.0
UNKNOWN_LIMIT = -1000.0
"""Of a virtual network card without a speed, as brokers report it: only CPU makes a score here."""


def snapshot(world: World, state: State, begun_at: float) -> Snapshot:
    """The load reports of the brokers that answer, taken now; the run began at ``begun_at`` (epoch seconds)."""
    up = np.flatnonzero(world.answering(state.seconds)).tolist()
    counted = [state.counted[at] for at in up]
    bundles, rows = _rows(world, counted)
    totals = np.array([one.rates.sum(axis=0) for one in counted]).reshape(-1, 4)
    started = np.maximum(world.membership.at(state.seconds).started_at[up], -DAY_SECONDS)
    usage, limit = _usage(state.cpu[up])
    brokers = Brokers(
        ids=tuple(world.brokers[at] for at in up),
        usage=usage,
        limit=limit,
        rates=totals,
        topics=np.array([world.topics[one.bundles].sum() for one in counted], dtype=np.int64),
        started_at=begun_at + started,
        versions=("simulated",) * len(up),
    )
    return Snapshot(begun_at + state.seconds, brokers, bundles, rows)


def _usage(cpu: FloatArray) -> tuple[FloatArray, FloatArray]:
    usage = np.zeros((cpu.size, len(RESOURCES)))
    limit = np.full((cpu.size, len(RESOURCES)), UNKNOWN_LIMIT)
    usage[:, RESOURCES.index("cpu")], limit[:, RESOURCES.index("cpu")] = cpu, 100.0
    return usage, limit


def _rows(world: World, counted: list[Counted]) -> tuple[list[str], Rows]:
    """A producer and a consumer for each topic; the statistics and the list change together."""
    reported = np.concatenate([one.bundles for one in counted])
    distinct, first, position = np.unique(reported, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    everywhere = np.ones(reported.size, dtype=np.bool_)
    start = np.concatenate(([0], np.cumsum([one.bundles.size for one in counted])))
    rows = Rows(
        start=start.astype(np.int32),
        bundle=rank[position],
        rates=np.concatenate([one.rates for one in counted]),
        counts=np.repeat(world.topics[reported][:, None], 3, axis=1),
        reported=everywhere,
        listed=everywhere,
    )
    return world.names[distinct[order]].tolist(), rows
