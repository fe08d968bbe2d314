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
from lbd.permit.eligibility import barred, carries, outside_canary
from lbd.permit.policies import Isolation
from lbd.reason import Reason
from lbd.split.triggers import too_large, within_namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.config import Settings
    from lbd.model import Averages, BoolArray, Snapshot
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
    """What would be split, with what it exceeds, and what is left, the furthest above a limit first.

    It is one bundle in a turn: the next reports show the effect of a split, so one is enough until then.
    """

    chosen: tuple[Due, SplitPlan] | None = None
    left: tuple[UnsplitBundle, ...] = ()


@dataclass(frozen=True, eq=False)
class SplitRound:
    """What the rule is asked about. ``usable`` is bool (B,): the broker's numbers are new and to be trusted.

    ``attempted_at`` is when each bundle was last moved, split, or came out of a split (epoch seconds), ``hour`` is how
    many splits there were within the last hour.
    """

    snapshot: Snapshot
    averages: Averages
    usable: BoolArray
    attempted_at: Mapping[str, float]
    hour: int = 0


class SplitView(Protocol):
    """Where bundles are looked at, and could be split."""

    def number_of_bundles(self, namespace: str) -> int:
        """How many a namespace has. Raises :class:`LbdError` where that cannot be told."""

    def look(self, bundle: str, settings: SplitSettings) -> SplitPlan:
        """Where it would be cut. Raises :class:`RefusedError` where it cannot be, or as ``number_of_bundles``."""


def split_round(record: TurnResult, attempted_at: Mapping[str, float], hour: int) -> SplitRound | None:
    """What a turn saw, with new numbers; None where it saw none, was held, or planned moves."""
    seen, averages, evidence = record.observation, record.averages, record.evidence
    quiet = record.hold is None and record.error is None and not record.unloads and not record.unfinished
    if seen is None or averages is None or evidence is None or not quiet or not evidence.fresh.any():
        return None
    return SplitRound(seen.snapshot, averages, evidence.fresh & (evidence.paired == 0), attempted_at, hour)


def choose(cluster: SplitView, settings: Settings, seen: SplitRound) -> SplitChoice:
    """The splits that this round asks for, one in a turn and within the limit for an hour."""
    due, left = _permitted(settings, seen, too_large(seen.snapshot, seen.averages, settings.split))
    due, beyond = due[:LOOKED_AT], due[LOOKED_AT:]
    due, full = within_namespaces(due, _bundles(cluster, due), settings.split)
    limit = f"its namespace has split.max_bundles_per_namespace {settings.split.max_bundles_per_namespace} bundles"
    left += [UnsplitBundle(one.bundle, limit) for one in full]
    chosen: tuple[Due, SplitPlan] | None = None
    for one in due:
        why = _no_room(settings, seen.hour, chosen)
        found = UnsplitBundle(one.bundle, why) if why else _planned(cluster, settings, one)
        if isinstance(found, UnsplitBundle):
            left.append(found)
        else:
            chosen = one, found
    left += [
        UnsplitBundle(one.bundle, f"not looked at: {LOOKED_AT} others are further above their limits") for one in beyond
    ]
    return SplitChoice(chosen, tuple(left))


def _permitted(settings: Settings, seen: SplitRound, due: Sequence[Due]) -> tuple[tuple[Due, ...], list[UnsplitBundle]]:
    """Those with numbers to be trusted that may be touched: what must not be moved is not split either."""
    if not due:
        return (), []
    codes = barred(seen.snapshot, seen.attempted_at, Isolation(), settings.guardrails)
    codes = outside_canary(codes, seen.snapshot, settings.guardrails.canary)
    at, position = seen.snapshot.positions_of({one.bundle for one in due}), seen.snapshot.brokers.index()
    allowed: list[Due] = []
    left: list[UnsplitBundle] = []
    for one in due:
        code = int(codes[at[one.bundle]])
        if code or carries(one.bundle, settings.leader.kept_topic):
            left.append(UnsplitBundle(one.bundle, Reason.of(code).label if code else Reason.LEADER_TOPIC.label))
        elif not seen.usable[position[one.broker]]:
            left.append(UnsplitBundle(one.bundle, f"{one.broker}: {Reason.NO_NEW_SAMPLE.label}"))
        else:
            allowed.append(one)
    return tuple(allowed), left


def _bundles(cluster: SplitView, due: Sequence[Due]) -> dict[str, int]:
    """How many bundles each namespace has; one that cannot be read is left out, and not split then."""
    found: dict[str, int] = {}
    for namespace in dict.fromkeys(bundle_namespace(one.bundle) for one in due):
        with suppress(LbdError):
            found[namespace] = cluster.number_of_bundles(namespace)
    return found


def _no_room(settings: Settings, hour: int, chosen: object) -> str:
    if chosen is not None:
        return "one split a turn: the next reports show its effect"
    if 0 < settings.split.max_splits_per_hour <= hour:
        return f"split.max_splits_per_hour {settings.split.max_splits_per_hour} is used"
    return ""


def _planned(cluster: SplitView, settings: Settings, due: Due) -> SplitPlan | UnsplitBundle:
    """Unlike Pulsar, lbd by itself cuts off no part without topics: that helps nobody, and cannot be taken back."""
    try:
        found = cluster.look(due.bundle, settings.split)
    except RefusedError as error:
        return UnsplitBundle(due.bundle, str(error).removeprefix(f"{due.bundle}: "))
    except LbdError as error:
        return UnsplitBundle(due.bundle, f"cannot be looked at: {error}")
    if found.empty:
        return UnsplitBundle(
            due.bundle, f"{found.empty[0]} would have no topics; topic_count_equally_divide cuts between them"
        )
    return found


def all_usable(snapshot: Snapshot) -> BoolArray:
    """Every broker's numbers, for a plan that is only shown: bool (B,)."""
    return np.ones(len(snapshot.brokers), dtype=np.bool_)
