"""History before it is written: the ``history:`` section, and the values of one round.

Nothing depends on history: a kill loses up to ten minutes of it, and what cannot be stored is reported. This module
loads without pyarrow, which the daemon needs only where it writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import BoolArray, FloatArray, Snapshot


HISTORY_FOLDER = "history"


class HistorySettings(Section):
    """Content of ``history/``, and how long it is kept."""

    enabled: bool = Field(
        True, description="Store load reports, decisions and moves as Parquet files, for lbd calibrate"
    )
    retention_days: int = Field(
        30, ge=1, le=3_660, description="Whole days (UTC) that are kept. Older days are removed"
    )
    max_bytes: int = Field(
        10 << 30,
        ge=1 << 20,
        le=1 << 49,
        description="Disk space for history. The oldest day is removed first, whatever its age",
    )


@dataclass(frozen=True, eq=False)
class HistoryRound:
    """One round for history.

    ``fresh`` is bool (B,): brokers with a new sample. ``used`` is float64 (B, 5) in percent, ``scores`` float64 (B,) in
    points, NaN where not known. ``decision`` and ``moves`` are rows of their tables, by column.
    """

    snapshot: Snapshot
    fresh: BoolArray
    used: FloatArray
    scores: FloatArray
    binding: tuple[str | None, ...]
    doubts: tuple[str | None, ...]
    decision: Mapping[str, object]
    moves: Sequence[Mapping[str, object]] = ()

    @property
    def is_news(self) -> bool:
        """Whether anything is to be stored: new samples, something decided, or something that ended."""
        return bool(self.fresh.any()) or bool(self.moves) or bool(self.decision.get("planned"))
