"""Pools of brokers, each balanced separately: a strategy runs once per pool, and sees no other. Pure.

Pairs across pools would need moves that isolation policies forbid (users' reports: apache/pulsar #16476, #16780).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lbd.model import Comparison, Decision, Memory, Skip, counter_key
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.model import Averages, BoolArray, Hits, Permission, Pool, Snapshot, UsualLoad


if TYPE_CHECKING:
    Rule = Callable[[Snapshot, Averages, Permission, Memory], Decision]

V = TypeVar("V")

FIRST_FOR_SECONDS = 60.0
"""Time for which a pool comes first. CPU is sampled once a minute: in each sample another pool does."""


@dataclass(frozen=True)
class Pooled:
    """A strategy that balances within the pools that its permission names."""

    rule: Rule

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """Join the decisions for the pools.

        A broker that gives or takes in one pool is left alone by later ones, because its report no longer shows its
        load. So another pool comes first each minute, or those that share brokers would starve.
        """
        if not permission.pools:
            return self.rule(snapshot, averages, permission, memory)
        busy = np.zeros(len(snapshot.brokers), dtype=np.bool_)
        answers: list[tuple[Pool, Decision]] = []
        for pool in _turned(permission.pools, snapshot.taken_at):
            narrowed = _within(pool, permission, busy)
            answer = self.rule(snapshot, averages, narrowed, _of_pool(memory, snapshot, pool))
            answers.append((pool, answer))
            touched = {end for unload in answer.unloads for end in (unload.source, unload.destination)}
            busy |= np.array([broker in touched for broker in snapshot.brokers.ids], dtype=np.bool_)
        return _joined(answers, permission)


def _turned(pools: tuple[Pool, ...], taken_at: float) -> tuple[Pool, ...]:
    first = int(taken_at // FIRST_FOR_SECONDS) % len(pools)
    return (*pools[first:], *pools[:first])


def _within(pool: Pool, permission: Permission, busy: BoolArray) -> Permission:
    """Permission for a pool's brokers and bundles alone."""
    paired = np.where(pool.brokers, permission.paired, np.int8(Reason.ISOLATION_POLICY.code)).astype(np.int8)
    barred = np.where(pool.bundles, permission.barred, np.int8(Reason.ISOLATION_POLICY.code)).astype(np.int8)
    return replace(
        permission,
        barred=barred,
        counts=permission.counts & pool.brokers,
        paired=paired,
        settled=permission.settled & ~busy,
        pools=(),
    )


def _of_pool(memory: Memory, snapshot: Snapshot, pool: Pool) -> Memory:
    """Memory of a pool's brokers, by broker; one that is away keeps its own."""
    outside = {broker for broker, own in zip(snapshot.brokers.ids, pool.brokers.tolist(), strict=True) if not own}
    return Memory(
        _without_pool(memory.hits, pool.name, outside),
        _without_pool(memory.loads, pool.name, outside),
        _without_pool(memory.unloaded_at, pool.name, outside),
    )


def _without_pool(values: Mapping[str, V], pool: str, outside: set[str]) -> dict[str, V]:
    ending = counter_key("", pool)
    own = {key.removesuffix(ending): value for key, value in values.items() if _in_pool(key, pool)}
    return {broker: value for broker, value in own.items() if broker not in outside}


def _with_pool(values: Mapping[str, V], pool: str) -> dict[str, V]:
    return {counter_key(broker, pool): value for broker, value in values.items()}


def _in_pool(key: str, pool: str) -> bool:
    broker, _, name = key.partition(" in ")
    return name == pool and bool(broker)


def _joined(answers: list[tuple[Pool, Decision]], permission: Permission) -> Decision:
    """All decisions as one. The memory of a pool that is gone is dropped: a broker that returns to it starts anew."""
    hits: dict[str, Hits] = {}
    loads: dict[str, UsualLoad] = {}
    unloaded_at: dict[str, float] = {}
    verdicts = permission.barred.copy()
    for pool, answer in answers:
        hits |= _with_pool(answer.memory.hits, pool.name)
        loads |= _with_pool(answer.memory.loads, pool.name)
        unloaded_at |= _with_pool(answer.memory.unloaded_at, pool.name)
        verdicts[pool.bundles] = answer.verdicts[pool.bundles]
    comparison = answers[0][1].comparison
    pairs = tuple(replace(pair, pool=pool.name) for pool, answer in answers for pair in answer.comparison.pairs)
    unloads = tuple(unload for _, answer in answers for unload in answer.unloads)
    ordered = sorted(answers, key=lambda each: (not each[1].comparison.pairs, not each[0].nobody))
    skips = tuple(_named(skip, pool) for pool, answer in ordered for skip in answer.skips)
    memory = Memory(hits, loads, unloaded_at)
    plans = "; ".join(
        f"{pool.name or 'others'}: {answer.comparison.summary}" for pool, answer in answers if answer.comparison.summary
    )
    each = [answer.comparison.compared for _, answer in answers if answer.comparison.compared is not None]
    compared = np.logical_or.reduce(each) if each else None
    return Decision(
        unloads, skips, memory, Comparison(comparison.scores, comparison.binding, pairs, plans, compared), verdicts
    )


def _named(skip: Skip, pool: Pool) -> Skip:
    """The skip with its pool; a pool without a possible broker has a reason of its own."""
    if pool.nobody and skip.reason is Reason.TOO_FEW_BROKERS:
        skip = replace(skip, reason=Reason.ISOLATION_POLICY, detail=pool.nobody)
    if skip.what != "cluster" or not pool.name:
        return skip
    return replace(skip, what=f"pool {pool.name}")
