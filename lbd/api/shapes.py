"""What the API answers with where nothing that is kept has that shape already."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.api.answers import json_bytes

if TYPE_CHECKING:
    from lbd.observe.observer import Observation
    from lbd.place.answers import Answer
    from lbd.record.control import PlannedMove


class LeftOut(msgspec.Struct, frozen=True):
    """A broker that may not have the bundle, and why."""

    what: str
    reason: str
    detail: str


class Placement(msgspec.Struct, frozen=True):
    """Where a bundle should go if nobody owned it; ``answer`` is None where no broker may have it.

    ``owner`` is who had it in the round that was ``taken_at`` (epoch seconds), ``age_seconds`` before the answer.
    ``choices`` are brokers that were as good.
    """

    bundle: str
    owner: str | None
    answer: str | None
    reason: str
    strategy: str
    taken_at: float
    age_seconds: float
    sample_interval_seconds: float
    choices: tuple[str, ...]
    candidates: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def of(cls, found: Answer, observation: Observation, age_seconds: float, strategy: str) -> Placement:
        """The picker's answer on the wire."""
        left_out = tuple(LeftOut(skip.what, skip.reason.label, skip.detail) for skip in found.candidates.left_out)
        placed = found.placed
        judged = (placed.broker, placed.reason, strategy, observation.snapshot.taken_at, round(age_seconds, 3))
        return cls(
            found.bundle,
            found.owner,
            *judged,
            observation.sample_interval_seconds,
            placed.choices,
            found.candidates.brokers,
            left_out,
        )


@dataclass(frozen=True)
class Plan:
    """What a turn would begin: ``id`` is a hash of plan and round, ``told`` the JSON of ``lbd dry-run``."""

    id: str
    told: dict[str, Any]
    moves: tuple[PlannedMove, ...]

    @cached_property
    def content(self) -> bytes:
        """The JSON of both: a megabyte and a half where twenty brokers of 750 bundles have fired."""
        return json_bytes({"id": self.id, **self.told})

    @cached_property
    def brief(self) -> bytes:
        """The same without a line for each bundle that stays."""
        return json_bytes({"id": self.id, **{key: value for key, value in self.told.items() if key != "skips"}})
