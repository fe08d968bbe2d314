"""A turn in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lbd.model import Reason, Result

if TYPE_CHECKING:
    from lbd.cycle.parts import CycleRecord
    from lbd.model import Skip


def sentence(record: CycleRecord) -> str:
    """What happened, in one sentence."""
    if record.error is not None and not record.outcomes:
        return f"No move: {record.error}"
    if record.error is not None:
        return f"Stopped after {len(record.outcomes)} of {_bundles(len(record.unloads))}: {record.error}"
    if record.outcomes:
        results = Counter(outcome.result.value for outcome in record.outcomes)
        told = ", ".join(f"{number} {result}" for result, number in results.items())
        return f"Moved {results[Result.LANDED.value]} of {len(record.unloads)} bundles: {told}."
    if record.unloads:
        lasting = " if the imbalance lasts (hit counts taken as reached)" if record.eager else ""
        return f"Would move {_bundles(len(record.unloads))}{lasting}."
    if record.hold is not None:
        return f"No move: {record.hold.label}{_hold_detail(record)}."
    reasons = [skip for skip in record.skips if skip.what == "cluster" or " -> " in skip.what] or list(record.skips)
    return f"No move: {_told(reasons[0])}." if reasons else "No move."


def _bundles(number: int) -> str:
    return "1 bundle" if number == 1 else f"{number} bundles"


def _told(skip: Skip) -> str:
    detail = f" ({skip.detail})" if skip.detail else ""
    return f"{skip.what}: {skip.reason.label}{detail}"


def _hold_detail(record: CycleRecord) -> str:
    if record.hold is Reason.IN_BROKER_SHEDDING and record.observation is not None:
        names = ", ".join(record.observation.shedding_on)
        return f": {names} shed by themselves; set loadBalancerSheddingEnabled=false (dynamic) before lbd may move"
    return ""
