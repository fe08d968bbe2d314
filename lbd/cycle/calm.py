"""What a turn learns of ownership changes, and of what the moves before it came to, before it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.cycle.holds import UNREPORTED_SECONDS
from lbd.load import scoring
from lbd.permit import ownership, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.cycle.parts import Parts
    from lbd.model import FloatArray, Snapshot, Unload
    from lbd.permit.evidence import Evidence
    from lbd.permit.ownership import Owners
    from lbd.record.state import Kept


class Watch:
    """Who owned what in the last round. A restart begins anew: the first look counts no change."""

    def __init__(self) -> None:
        self._owners: Owners | None = None

    def changes(self, snapshot: Snapshot) -> frozenset[str]:
        """The bundles whose owner changed since the last look."""
        self._owners, changed = ownership.look(self._owners, snapshot)
        return changed


def learned(parts: Parts, kept: Kept, snapshot: Snapshot, evidence: Evidence, unfinished: tuple[Unload, ...]) -> Kept:
    """What is kept, with the ownership changes and the judgement of moves that this round brings."""
    found = msgspec.structs.replace(kept, changed_at=_changed_at(parts, kept, snapshot))
    if unfinished:
        under_way = replace(kept.progress, moving_at=snapshot.taken_at)
        return msgspec.structs.replace(found, progress=under_way) if kept.progress.planned_at else found
    return msgspec.structs.replace(found, progress=_progress(parts, kept, snapshot, evidence))


def _changed_at(parts: Parts, kept: Kept, snapshot: Snapshot) -> dict[str, float]:
    now, attempted_at = snapshot.taken_at, parts.attempted_at()
    since = now - parts.guardrails.cool_down_minutes * 60
    known = {bundle: min(at, now) for bundle, at in kept.changed_at.items() if at > since}
    foreign = (
        bundle
        for bundle in parts.watch.changes(snapshot)
        if now - attempted_at.get(bundle, float("-inf")) > UNREPORTED_SECONDS
    )
    return {**known, **dict.fromkeys(foreign, now)} if now > since else {}


def _progress(parts: Parts, kept: Kept, snapshot: Snapshot, evidence: Evidence) -> progress.Progress:
    sent = any(one.at >= kept.progress.planned_at for one in parts.sent()) if kept.progress.planned_at else False
    scores = scoring.scores(snapshot.brokers, parts.weights)
    apart = _apart(snapshot, scores, evidence)
    return progress.judged(kept.progress, apart, sent=sent, now=snapshot.taken_at, guardrails=parts.guardrails)


def _apart(snapshot: Snapshot, scores: FloatArray, evidence: Evidence) -> Callable[[str, str], float | None]:
    """Points between two brokers that have settled and whose reports are trusted."""
    usable = evidence.settled & (evidence.paired == 0) & np.isfinite(scores)
    score = {snapshot.brokers.ids[at]: float(scores[at]) for at in np.flatnonzero(usable).tolist()}

    def apart(source: str, destination: str) -> float | None:
        return score[source] - score[destination] if source in score and destination in score else None

    return apart


def begun(
    kept: Kept, plan: tuple[Unload, ...], snapshot: Snapshot, scores: FloatArray, expected: Mapping[str, float]
) -> Kept:
    """What is kept before acting: how far apart the brokers of this plan are, and are ``expected`` to be.

    ``scores`` is float64 (B,), both are in points.
    """
    score = dict(zip(snapshot.brokers.ids, scores.tolist(), strict=True))
    found = progress.planned(kept.progress, plan, score, expected, snapshot.taken_at)
    return msgspec.structs.replace(kept, progress=found)
