"""A bundle of a simulated cluster is cut into parts, each with the traffic of its topics. Pure.

On 4.0.8 the owner's report drops the whole at once, and has the parts with the next statistics: rates are counted for
each topic, so theirs are of a whole interval.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.world import Counted
from lbd.split.plan import parts_of
from lbd.split.topic_hash import range_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lbd.model import FloatArray
    from lbd.simulate.world import State, World
    from lbd.split.algorithms import Topic


def split(
    world: World, state: State, at: int, positions: Sequence[int], topics: Sequence[Topic]
) -> tuple[World, State]:
    """The same cluster with a bundle cut at ``positions``, which rise inside its range; ``topics`` are the bundle's.

    The lowest part stands in its place, the others behind all bundles. They belong to its owner.
    """
    parts, counts = parts_of(world.bundles[at], positions), _counts(positions, topics)
    rows = np.append(np.arange(len(world.bundles)), np.full(len(parts) - 1, at))
    own = np.append(at, np.arange(len(world.bundles), rows.size))
    shares = _shares(world.bundles[at], positions, counts)
    number, rates, passed = world.topics[rows], world.rates[rows], state.passed[rows]
    number[own], rates[own], passed[own] = counts, rates[own] * shares, passed[own] * shares
    bundles = (*world.bundles[:at], parts[0], *world.bundles[at + 1 :], *parts[1:])
    return replace(
        world, bundles=bundles, rates=rates, topics=number, load=world.load[rows], origin=world.origin[rows]
    ), replace(
        state,
        owner=state.owner[rows],
        counted=tuple(_without(at, one) for one in state.counted),
        passed=passed,
        placed_from=state.placed_from[rows],
        served_from=state.served_from[rows],
        missed=state.missed[rows],
    )


def released(state: State, bundles: NDArray[np.intp]) -> State:
    """Nobody owns these bundles any more, and they may be placed from now on."""
    placed_from, passed = state.placed_from.copy(), state.passed.copy()
    placed_from[bundles], passed[bundles] = state.seconds, 0.0
    return replace(state, placed_from=placed_from, passed=passed, disturbed=True)


def _counts(positions: Sequence[int], topics: Sequence[Topic]) -> NDArray[np.int64]:
    """How many topics fall into each part, int64 (parts,)."""
    edges = np.searchsorted(sorted(topic.position for topic in topics), positions)
    return np.diff(np.concatenate([[0], edges, [len(topics)]])).astype(np.int64)


def _shares(bundle: str, positions: Sequence[int], counts: NDArray[np.int64]) -> FloatArray:
    """What part of the traffic each part has, (parts, 1): by topics, or by width where there are none."""
    lower, upper = range_of(bundle)
    widths = np.array([end - begin for begin, end in pairwise((lower, *positions, upper))], dtype=np.float64)
    weights = counts if counts.any() else widths
    found: FloatArray = (weights / weights.sum())[:, None]
    return found


def _without(at: int, counted: Counted) -> Counted:
    kept = counted.bundles != at
    return Counted(counted.bundles[kept], counted.rates[kept])
