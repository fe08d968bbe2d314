"""What a drain, or a fill, would move now: one look at the cluster, judged by the guardrails. It changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.daemon.draining.judging import Judge
from lbd.daemon.draining.resting import resting
from lbd.daemon.situation import Situation, situation
from lbd.decide import drain as emptying
from lbd.decide import fill as filling
from lbd.errors import AdminError, ObserveError, RefusedError, UsageError
from lbd.load.carried import Carried, as_it_was, carried_by
from lbd.model import Unload, bundle_namespace
from lbd.permit.eligibility import BROKER_BUNDLE
from lbd.permit.unshown import borne, borne_lately
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.act.orders import Accepts
    from lbd.cycle import Hold, Parts
    from lbd.model import FloatArray, Skip, Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.policies import Policies
    from lbd.pulsar.admin import Admin


class UntoldError(ObserveError):
    """The broker itself, and nobody else, does not tell what it owns or carries."""


@dataclass(frozen=True)
class Pass:
    """What one pass over a broker's bundles goes by. Times are epoch seconds.

    ``since`` is when the drain began, ``begun_at`` when this pass did. ``carried`` is what the broker carried then,
    ``scores`` those of all brokers, in points; None and nothing in the first look.
    """

    broker: str
    begun_at: float
    since: float
    again_seconds: float
    override: bool = False
    carried: Carried | None = None
    scores: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class Look:
    """What is to move, what stays, and what keeps all of it from moving (``hold``).

    ``before`` and ``after`` are scores in points, now and once all of it has landed. ``owned`` is what the broker owns
    but for its own bundles, ``alone`` what of that is Pulsar's and left to it. ``by_name``: leaders know a destination
    by the bundle's full name. ``started_at`` is when the broker had started (epoch seconds), None where it does not
    tell. ``bundles`` is how many the cluster has.
    """

    observation: Observation
    hold: Hold | None
    plan: emptying.Plan
    before: Mapping[str, float]
    after: Mapping[str, float]
    carried: Carried
    accepts: Accepts
    by_name: bool
    owned: tuple[str, ...] = ()
    alone: tuple[Skip, ...] = ()
    started_at: float | None = None

    @property
    def bundles(self) -> int:
        """How many bundles the cluster has."""
        return len(self.observation.snapshot.bundles)


def look_to_drain(parts: Parts, admin: Admin, asked: Pass) -> Look:
    """Where what a broker owns would go. Raises :class:`UsageError` for one that is not there, and
    :class:`UntoldError` where it does not tell what it owns or carries.
    """
    owned = tuple(bundle for bundle in _owned(admin, asked.broker) if not BROKER_BUNDLE.match(bundle))
    now = _situation(parts, asked.broker, owned)
    drained = parts.drained() | {asked.broker}
    judge = Judge(parts, now, drained, {}, override=asked.override, untold=True)  # all of it has to go
    carried = asked.carried or carried_by(judge.snapshot, judge.scores, asked.broker, len(owned))
    seen, scores = as_it_was(judge.snapshot, judge.scores, asked.broker, carried)
    scores = _shown(scores, seen, parts, asked)
    staying = {bundle: skip for bundle in owned if (skip := resting(bundle, parts, asked, now.observation)) is not None}
    movable = [bundle for bundle in owned if bundle not in staying]
    unloads = emptying.wanted(movable, asked.broker, seen, now.averages, carried)
    ledger = judge.ledger(seen, scores, unloads, emptying.NOT_ITS_RULES)
    others = [broker for broker in judge.index if broker != asked.broker and broker not in judge.drained]
    before = {broker: float(scores[judge.index[broker]]) for broker in others}
    plan = emptying.plan(unloads, others, ledger)
    alone = tuple(skip for skip in staying.values() if skip.reason is Reason.SYSTEM_NAMESPACE)
    stay = tuple(skip for skip in staying.values() if skip.reason is not Reason.SYSTEM_NAMESPACE)
    started = float(judge.snapshot.brokers.started_at[judge.index[asked.broker]])
    return Look(
        now.observation,
        judge.hold(),
        replace(plan, stay=(*plan.stay, *stay)),
        before,
        {broker: ledger.predicted(broker) for broker in others},
        carried,
        ledger.accepts,
        judge.by_name,
        owned,
        alone,
        started if np.isfinite(started) else None,
    )


def look_to_fill(parts: Parts, admin: Admin, broker: str, *, override: bool = False) -> Look:
    """What a broker would be given. Raises as :func:`look_to_drain`, and :class:`RefusedError` for a drained one."""
    if broker in parts.drained():
        raise RefusedError(f"{broker} is being drained; lbd drain {broker} --release ends that")
    _owned(admin, broker)
    now = _situation(parts, broker, ())
    names = _movable(now.observation.snapshot.namespaces.names)
    now = replace(now, policies=_with_groups(now.policies, parts, names))
    judge = Judge(parts, now, parts.drained(), parts.attempted_at(), override=override)
    scores = judge.scores + borne_lately(parts.sent(), judge.snapshot, judge.scores)
    there = [at for at, code in enumerate(judge.evidence.paired.tolist()) if code == 0]
    before = {judge.snapshot.brokers.ids[at]: float(scores[at]) for at in there}
    unloads = _candidates(judge, now, there)
    ledger = judge.ledger(judge.snapshot, scores, unloads, frozenset())
    before.setdefault(broker, float(scores[judge.index[broker]]))
    plan = filling.plan(unloads, broker, before, ledger)
    expected = ledger.expected(plan.unloads)
    return Look(
        now.observation,
        judge.hold(),
        plan,
        before,
        {one: expected.get(one, score) for one, score in before.items()},
        carried_by(judge.snapshot, judge.scores, broker, 0),
        ledger.accepts,
        judge.by_name,
    )


def hold_of_fill(parts: Parts, broker: str, *, override: bool) -> Hold | None:
    """What keeps a fill from going on as it was planned. Raises as :func:`look_to_drain`."""
    return Judge(parts, _situation(parts, broker, ()), parts.drained(), {}, override=override).hold()


def _movable(namespaces: Sequence[str]) -> tuple[str, ...]:
    """Without those in which brokers keep a bundle of their own: they have no policies to ask for."""
    return tuple(name for name in namespaces if not BROKER_BUNDLE.match(f"{name}/0x"))


def _with_groups(policies: Policies, parts: Parts, namespaces: tuple[str, ...]) -> Policies:
    """The policies with the anti-affinity groups of these namespaces."""
    tenants = frozenset(name.partition("/")[0] for name in namespaces)
    return replace(policies, groups=parts.groups(namespaces, tenants))


def _owned(admin: Admin, broker: str) -> dict[str, bool]:
    active = admin.active_brokers()
    if broker not in active:
        raise UsageError(f"{broker!r} is no active broker; wanted one of {', '.join(sorted(active))}")
    try:
        return admin.owned(broker)
    except AdminError as error:
        raise UntoldError(f"{broker}: what it owns is not known: {error}") from error


def _situation(parts: Parts, broker: str, owned: Sequence[str]) -> Situation:
    """A round in which drained brokers count as any other: whether enough is known of a cluster has to do with all."""
    namespaces = tuple(dict.fromkeys(map(bundle_namespace, owned)))
    now = situation(replace(parts, drained=frozenset), namespaces)
    if broker not in now.observation.snapshot.brokers.ids:
        why = now.observation.missing.get(broker, "it gives no load report")
        raise UntoldError(f"{broker}: what it carries is not known: {why}")
    return now


def _shown(scores: FloatArray, seen: Snapshot, parts: Parts, asked: Pass) -> FloatArray:
    """Scores as reported or as predicted from those of the beginning, whichever is higher: reports lag behind."""
    if asked.scores is None:
        return scores + borne_lately(parts.sent(), seen, scores)
    begun = np.array([asked.scores.get(broker, -np.inf) for broker in seen.brokers.ids])
    return np.fmax(scores, begun + borne(parts.sent(), asked.begun_at, seen, scores))


def _candidates(judge: Judge, now: Situation, there: Sequence[int]) -> list[Unload]:
    """Each bundle that may move, from the trusted broker that reports it, to nobody yet."""
    rows, short = judge.snapshot.rows, now.averages.short.tolist()
    found = []
    for at in there:
        for bundle in rows.bundle[rows.of(at)].tolist():
            if judge.barred[bundle] == 0 and now.averages.samples[bundle] > 0:
                ends = judge.snapshot.bundles[bundle], judge.snapshot.brokers.ids[at], None
                inwards, outwards, bytes_in, bytes_out = short[bundle]
                found.append(Unload(*ends, inwards + outwards, bytes_in + bytes_out))
    return found
