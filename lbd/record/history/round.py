"""One round as history keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import BoolArray, FloatArray, Snapshot


@dataclass(frozen=True, eq=False)
class Round:
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
