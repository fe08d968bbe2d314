"""When a drain ends by itself: it expires, or its broker is started again, which is what it was drained for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.permit.evidence import same

if TYPE_CHECKING:
    from lbd.cycle import CycleRecord
    from lbd.record.drains import Drain, Drains


def forget_ended(drains: Drains, record: CycleRecord, now: float) -> None:
    """Release what is over. Raises :class:`~lbd.errors.UsageError` for an order that cannot be removed."""
    for drain in drains.all():
        if (drain.until is not None and drain.until <= now) or _restarted(drain, record):
            drains.release(drain.broker)


def _restarted(drain: Drain, record: CycleRecord) -> bool:
    """Whether the broker's report tells of another start; 2.11 tells of none."""
    if record.observation is None or drain.started_at is None:
        return False
    brokers = record.observation.snapshot.brokers
    at = brokers.index().get(drain.broker)
    if at is None:
        return False
    started = float(brokers.started_at[at])
    return started == started and not same(started, drain.started_at)  # noqa: PLR0124 - NaN where it is not told
