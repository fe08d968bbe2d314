"""A turn as history keeps it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.cycle.verdict import verdict
from lbd.load.scoring import percent
from lbd.reason import Reason
from lbd.record.history.round import Round

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cycle.parts import CycleRecord


def round_of(record: CycleRecord, strategy: str, settings: str) -> Round | None:
    """What is kept of a turn; None of one that saw nothing. ``settings`` are those of its strategy, as JSON."""
    if record.observation is None or record.decision is None or record.evidence is None:
        return None
    snapshot, evidence = record.observation.snapshot, record.evidence
    used = percent(snapshot.brokers)
    return Round(
        snapshot,
        evidence.fresh,
        np.where(snapshot.brokers.limit > 0, used, np.nan),
        record.decision.facts.scores,
        record.decision.facts.binding,
        tuple(Reason.of(code).label if code else None for code in evidence.paired.tolist()),
        _decision(record, strategy, settings),
        tuple(_moves(record)),
    )


def _decision(record: CycleRecord, strategy: str, settings: str) -> dict[str, object]:
    return {
        "turn": record.number,
        "strategy": strategy,
        "settings": settings,
        "sentence": record.sentence,
        "verdict": verdict(record).kind,
        "hold": record.hold[0].label if record.hold is not None else None,
        "acts": record.acts,
        "planned": len(record.unloads),
        "skipped": msgspec.json.encode(dict(record.counts)).decode(),
    }


def _moves(record: CycleRecord) -> Iterator[dict[str, object]]:
    for outcome in record.outcomes:
        unload = outcome.unload
        yield {
            "turn": record.number,
            "bundle": unload.bundle,
            "source": unload.source,
            "destination": unload.destination,
            "owner": outcome.owner,
            "result": outcome.result.value,
            "attempts": outcome.attempts,
            "seconds": outcome.seconds,
            "msg_rate": unload.msg_rate,
            "throughput": unload.throughput,
            "reason": unload.reason,
            "detail": outcome.detail,
        }
