"""How much of a drain or a fill is sent next, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.act.orders import Orders, Pace
from lbd.daemon.requests import OVERRIDDEN_HOLDS
from lbd.model import Skip
from lbd.permit.budget import HOUR_SECONDS
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.cycle import Hold
    from lbd.daemon.draining.beginning import Tools
    from lbd.daemon.draining.job import Job, Pacing
    from lbd.daemon.draining.planning import Look
    from lbd.model import Unload

PART = 60
"""Moves after which the cluster is looked at anew: a quarter of a minute or so."""


def within(
    plan: tuple[Unload, ...], look: Look, job: Job, tools: Tools, now: float
) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
    """The next part of a plan, and what the hour has no room for. ``now`` is epoch seconds."""
    most = tools.settings.drain.most_per_hour(look.bundles)
    if most is None or job.override is not None:
        return plan[:PART], ()
    ends = ((one.at, one.source if job.kind == "drain" else one.destination) for one in tools.parts.sent())
    used = sum(at > now - HOUR_SECONDS and broker == job.broker for at, broker in ends)
    told, room = f"{used} of {most} used within the hour (drain.max_unloads_per_hour)", max(most - used, 0)
    reason = Reason.SOURCE_UNLOADS if job.kind == "drain" else Reason.DESTINATION_UNLOADS
    return plan[: min(room, PART)], tuple(Skip(one.bundle, reason, told) for one in plan[room:])


def orders_of(job: Job, pacing: Pacing, tools: Tools, held: Callable[[], Hold | None]) -> Orders:
    """How the executor is to work a part off. ``held`` is what people have ordered, which a reason passes."""
    from_each = pacing.at_once if job.kind == "drain" else 1
    pace = Pace(pacing.spacing_seconds, pacing.at_once, from_each, pacing.by_name)
    if job.override is None:
        return Orders(tools.unloader, pace, held, frozenset({Reason.NO_IMPROVEMENT}))
    return Orders(tools.unloader, pace, passes=OVERRIDDEN_HOLDS)
