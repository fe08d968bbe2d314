"""Bundles that lbd would split now, by the leader's rule and within lbd's limits, and why not each other one.

Reading a bundle of a real cluster costs about four requests, so only the first few are read; the others are counted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lbd.errors import LbdError, RefusedError
from lbd.model import bundle_namespace
from lbd.permit.facts import Facts
from lbd.permit.policies import Policies
from lbd.permit.rule import Case
from lbd.permit.rules import barred
from lbd.reason import Reason
from lbd.split.triggers import too_large, within_namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.config import Settings
    from lbd.model import BoolArray, Snapshot
    from lbd.split.plan import SplitPlan
    from lbd.split.triggers import Due, SplitSettings
    from lbd.turn.parts import TurnResult


LOOKED_AT = 20
"""Bundles above a limit that are looked at in one turn, those furthest above it."""


@dataclass(frozen=True)
class UnsplitBundle:
    """A bundle above a limit that is not split, and why."""

    bundle: str
    why: str


@dataclass(frozen=True)
class SplitChoice:
    """The bundle to split, with the limit it exceeds, and the other bundles above a limit, the furthest above it first.

    It is one bundle in a turn: the next reports show the effect of a split, so one is enough until then.
    """

    chosen: tuple[Due, SplitPlan] | None = None
    unsplit: tuple[UnsplitBundle, ...] = ()


@dataclass(frozen=True, eq=False)
class SplitRound:
    """The input of the rule. ``usable`` is bool (B,): the broker's numbers are new and trusted.

    ``attempted_at`` of the facts is when each bundle was last moved, split, or came out of a split (epoch seconds),
    ``hour`` is how many splits there were within the last hour.
    """

    facts: Facts
    usable: BoolArray
    hour: int = 0


class SplitView(Protocol):
    """The cluster as the choice of splits reads it."""

    def number_of_bundles(self, namespace: str) -> int:
        """How many bundles a namespace has. Raises :class:`LbdError` where that cannot be read."""

    def look(self, bundle: str, settings: SplitSettings) -> SplitPlan:
        """Where it would be cut. Raises :class:`RefusedError` where it cannot be, or as ``number_of_bundles``."""


def split_round(record: TurnResult, attempted_at: Mapping[str, float], hour: int) -> SplitRound | None:
    """The facts of a turn with new numbers; None where it observed none, was held, or planned moves."""
    facts, plan = record.facts, record.plan
    quiet = plan.hold is None and record.error is None and not plan.unloads and not record.moves.unfinished
    if facts is None or not quiet or not facts.evidence.fresh.any():
        return None
    usable = facts.evidence.fresh & (facts.evidence.paired == 0)
    policies = Policies(unserved=facts.policies.unserved)
    inputs = Facts(facts.snapshot, facts.averages, facts.evidence, policies, attempted_at=attempted_at)
    return SplitRound(inputs, usable, hour)


def choose(cluster: SplitView, settings: Settings, inputs: SplitRound) -> SplitChoice:
    """The splits that this round asks for, one in a turn and within the limit for an hour."""
    due, unsplit = _permitted(settings, inputs, too_large(inputs.facts.snapshot, inputs.facts.averages, settings.split))
    due, beyond = due[:LOOKED_AT], due[LOOKED_AT:]
    due, full = within_namespaces(due, _bundles(cluster, due), settings.split)
    limit = f"its namespace has split.max_bundles_per_namespace {settings.split.max_bundles_per_namespace} bundles"
    unsplit += [UnsplitBundle(candidate.bundle, limit) for candidate in full]
    chosen: tuple[Due, SplitPlan] | None = None
    for candidate in due:
        why = _no_room(settings, inputs.hour, chosen)
        plan = UnsplitBundle(candidate.bundle, why) if why else _planned(cluster, settings, candidate)
        if isinstance(plan, UnsplitBundle):
            unsplit.append(plan)
        else:
            chosen = candidate, plan
    why = f"not looked at: {LOOKED_AT} others are further above their limits"
    unsplit += [UnsplitBundle(candidate.bundle, why) for candidate in beyond]
    return SplitChoice(chosen, tuple(unsplit))


def _permitted(
    settings: Settings, inputs: SplitRound, due: Sequence[Due]
) -> tuple[tuple[Due, ...], list[UnsplitBundle]]:
    """Bundles with trusted numbers that may be split: what must not be moved is not split either."""
    if not due:
        return (), []
    codes, snapshot = barred(Case(inputs.facts, settings.guardrails, settings.leader.kept_topic)), inputs.facts.snapshot
    index, position = snapshot.positions_of({candidate.bundle for candidate in due}), snapshot.brokers.index()
    allowed: list[Due] = []
    unsplit: list[UnsplitBundle] = []
    for candidate in due:
        code = int(codes[index[candidate.bundle]])
        if code:
            unsplit.append(UnsplitBundle(candidate.bundle, Reason.of(code).label))
        elif not inputs.usable[position[candidate.broker]]:
            unsplit.append(UnsplitBundle(candidate.bundle, f"{candidate.broker}: {Reason.NO_NEW_SAMPLE.label}"))
        else:
            allowed.append(candidate)
    return tuple(allowed), unsplit


def _bundles(cluster: SplitView, due: Sequence[Due]) -> dict[str, int]:
    """Number of bundles of each namespace. One that cannot be read is left out, and its bundles are not split."""
    counts: dict[str, int] = {}
    for namespace in dict.fromkeys(bundle_namespace(candidate.bundle) for candidate in due):
        with suppress(LbdError):
            counts[namespace] = cluster.number_of_bundles(namespace)
    return counts


def _no_room(settings: Settings, hour: int, chosen: object) -> str:
    if chosen is not None:
        return "one split a turn: the next reports show its effect"
    if 0 < settings.split.max_splits_per_hour <= hour:
        return f"split.max_splits_per_hour {settings.split.max_splits_per_hour} is used"
    return ""


def _planned(cluster: SplitView, settings: Settings, due: Due) -> SplitPlan | UnsplitBundle:
    """The plan of one split. Unlike Pulsar, lbd cuts off no part without topics: it does not help, and is final."""
    try:
        plan = cluster.look(due.bundle, settings.split)
    except RefusedError as error:
        return UnsplitBundle(due.bundle, str(error).removeprefix(f"{due.bundle}: "))
    except LbdError as error:
        return UnsplitBundle(due.bundle, f"cannot be looked at: {error}")
    if plan.empty:
        return UnsplitBundle(
            due.bundle, f"{plan.empty[0]} would have no topics; topic_count_equally_divide cuts between them"
        )
    return plan


def all_usable(snapshot: Snapshot) -> BoolArray:
    """Every broker's numbers, for a plan that is only shown: bool (B,)."""
    return np.ones(len(snapshot.brokers), dtype=np.bool_)
