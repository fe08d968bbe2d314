"""Which bundles of a drained broker are left where they are, for now or for good, whatever their load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.model import Skip
from lbd.permit.eligibility import left_alone
from lbd.permit.own_topic import kept_bundles
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.cycle import Parts
    from lbd.daemon.draining.planning import Pass
    from lbd.observe.observer import Observation


def resting(bundle: str, parts: Parts, asked: Pass, seen: Observation) -> Skip | None:
    """Why a bundle stays; None where it may move.

    One that the drain moved off before, and that Pulsar has placed there again, rests as the ``drain:`` section says;
    what changed hands without lbd does not rest at all, or what Pulsar places there would stay for half an hour.
    """
    alone = left_alone(bundle, parts.guardrails) or kept_bundles((bundle,), parts.leader_topic).get(bundle)
    if alone is not None:
        return Skip(bundle, alone, "")
    at = parts.attempted_at().get(bundle, 0.0)
    if at >= asked.begun_at:
        return Skip(bundle, Reason.COOL_DOWN, "it was tried in this pass, and is still there")
    ago = seen.snapshot.taken_at - at
    if at >= asked.since:
        left = asked.again_seconds - ago
        told = f"it was moved off {ago / 60:.0f} min ago; again in {left / 60:.0f} min (drain.again_minutes)"
        return Skip(bundle, Reason.COOL_DOWN, told) if left > 0 else None
    left = parts.guardrails.cool_down_minutes * 60 - ago
    if left <= 0 or asked.override:
        return None
    told = f"it rests {left / 60:.0f} min more (guardrails.cool_down_minutes); --override REASON passes this"
    return Skip(bundle, Reason.COOL_DOWN, told)
