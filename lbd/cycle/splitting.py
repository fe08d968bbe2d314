"""Which bundles lbd would split now, and where: the leader's rule within lbd's limits; and of each other one, why not.

A look at a bundle of a real cluster costs four requests or so, thus the first few are looked at, and the others are
counted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lbd.errors import LbdError, RefusedError
from lbd.model import bundle_namespace
from lbd.permit.eligibility import barred
from lbd.permit.own_topic import carries
from lbd.permit.policies import Isolation
from lbd.reason import Reason
from lbd.split.triggers import too_large, within_namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.model import Averages, BoolArray, Snapshot
    from lbd.split.plan import Plan
    from lbd.split.settings import SplitSettings
    from lbd.split.triggers import Due

LOOKED_AT = 20
"""Bundles above a limit that are looked at in one turn, those furthest above it."""


@dataclass(frozen=True)
class Left:
    """A bundle above a limit that is not split, and why."""

    bundle: str
    why: str


@dataclass(frozen=True)
class Chosen:
    """What would be split, with what it exceeds, and what is left, the furthest above a limit first."""

    plans: tuple[tuple[Due, Plan], ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, eq=False)
class Round:
    """What the rule is asked about. ``usable`` is bool (B,): the broker's numbers are new and to be trusted.

    ``attempted_at`` is when each bundle was last moved, split, or came out of a split (epoch seconds), ``hour`` is how
    many splits there were within the last hour.
    """

    snapshot: Snapshot
    averages: Averages
    usable: BoolArray
    attempted_at: Mapping[str, float]
    hour: int = 0


class Cluster(Protocol):
    """Where bundles are looked at, and could be split."""

    def number_of_bundles(self, namespace: str) -> int:
        """How many a namespace has. Raises :class:`LbdError` where that cannot be told."""

    def look(self, bundle: str, settings: SplitSettings) -> Plan:
        """Where it would be cut. Raises :class:`RefusedError` where it cannot be, or as ``number_of_bundles``."""


def round_of(record: CycleRecord, attempted_at: Mapping[str, float], hour: int) -> Round | None:
    """What a turn saw, with new numbers; None where it saw none, was held, or planned moves."""
    seen, averages, evidence = record.observation, record.averages, record.evidence
    quiet = record.hold is None and record.error is None and not record.unloads and not record.unfinished
    if seen is None or averages is None or evidence is None or not quiet or not evidence.fresh.any():
        return None
    return Round(seen.snapshot, averages, evidence.fresh & (evidence.paired == 0), attempted_at, hour)


def choose(cluster: Cluster, settings: Settings, seen: Round) -> Chosen:
    """The splits that this round asks for, within the limits for a turn and an hour."""
    due, left = _permitted(settings, seen, too_large(seen.snapshot, seen.averages, settings.split))
    due, beyond = due[:LOOKED_AT], due[LOOKED_AT:]
    due, full = within_namespaces(due, _bundles(cluster, due), settings.split)
    limit = f"its namespace has split.max_bundles_per_namespace {settings.split.max_bundles_per_namespace} bundles"
    left += [Left(one.bundle, limit) for one in full]
    plans: list[tuple[Due, Plan]] = []
    for one in due:
        why = _no_room(settings, seen.hour, len(plans))
        found = Left(one.bundle, why) if why else _planned(cluster, settings, one)
        if isinstance(found, Left):
            left.append(found)
        else:
            plans.append((one, found))
    left += [Left(one.bundle, f"not looked at: {LOOKED_AT} others are further above their limits") for one in beyond]
    return Chosen(tuple(plans), tuple(left))


def _permitted(settings: Settings, seen: Round, due: Sequence[Due]) -> tuple[tuple[Due, ...], list[Left]]:
    """Those with numbers to be trusted that may be touched: what must not be moved is not split either."""
    if not due:
        return (), []
    codes = barred(seen.snapshot, seen.attempted_at, Isolation(), settings.guardrails)
    at, position = seen.snapshot.positions_of({one.bundle for one in due}), seen.snapshot.brokers.index()
    allowed: list[Due] = []
    left: list[Left] = []
    for one in due:
        code = int(codes[at[one.bundle]])
        if code or carries(one.bundle, settings.leader.kept_topic):
            left.append(Left(one.bundle, Reason.of(code).label if code else Reason.LEADER_TOPIC.label))
        elif not seen.usable[position[one.broker]]:
            left.append(Left(one.bundle, f"{one.broker}: {Reason.NO_NEW_SAMPLE.label}"))
        else:
            allowed.append(one)
    return tuple(allowed), left


def _bundles(cluster: Cluster, due: Sequence[Due]) -> dict[str, int]:
    """How many bundles each namespace has; one that cannot be read is left out, and not split then."""
    found: dict[str, int] = {}
    for namespace in dict.fromkeys(bundle_namespace(one.bundle) for one in due):
        with suppress(LbdError):
            found[namespace] = cluster.number_of_bundles(namespace)
    return found


def _no_room(settings: Settings, hour: int, planned: int) -> str:
    limits = settings.split
    if planned >= limits.max_splits_per_turn:
        return f"split.max_splits_per_turn {limits.max_splits_per_turn} is used"
    if 0 < limits.max_splits_per_hour <= hour + planned:
        return f"split.max_splits_per_hour {limits.max_splits_per_hour} is used"
    return ""


def _planned(cluster: Cluster, settings: Settings, due: Due) -> Plan | Left:
    """Unlike Pulsar, lbd by itself cuts off no part without topics: that helps nobody, and cannot be taken back."""
    try:
        found = cluster.look(due.bundle, settings.split)
    except RefusedError as error:
        return Left(due.bundle, str(error).removeprefix(f"{due.bundle}: "))
    except LbdError as error:
        return Left(due.bundle, f"cannot be looked at: {error}")
    if found.empty:
        return Left(due.bundle, f"{found.empty[0]} would have no topics; topic_count_equally_divide cuts between them")
    return found


def all_usable(snapshot: Snapshot) -> BoolArray:
    """Every broker's numbers, for a plan that is only shown: bool (B,)."""
    return np.ones(len(snapshot.brokers), dtype=np.bool_)
