"""What the API answers with where nothing that is kept has that shape already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.record.drains import Drain, Left, Work

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


class Predicted(msgspec.Struct, frozen=True):
    """A broker's score in points, now and once all of it has landed."""

    id: str
    score: float
    predicted: float


class WouldMove(msgspec.Struct, frozen=True):
    """An unload that is shown: messages/s and bytes/s in + out."""

    bundle: str
    source: str
    destination: str | None
    msg_rate: float
    throughput: float


class Held(msgspec.Struct, frozen=True):
    """What keeps all of it from moving."""

    reason: str
    detail: str


class DrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a drain or a fill would do: the JSON of ``lbd drain BROKER``. ``taken_at`` is epoch seconds.

    ``stay`` are bundles that could not go, ``left_to_pulsar`` those of Pulsar's own, ``cannot_spare`` why the cluster
    cannot do without the broker, ``at_once`` how many moves would be in flight, ``drain`` the one in force.
    """

    taken_at: float
    brokers: list[Predicted]
    unloads: list[WouldMove]
    stay: list[Left]
    left_to_pulsar: list[str]
    hold: Held | None
    cannot_spare: str | None
    eta_seconds: float
    at_once: int
    drain: Drain | None


class DrainTold(msgspec.Struct, frozen=True):
    """A drain in force, and how far it has come; ``work`` is null before its first look."""

    drain: Drain
    work: Work | None


class DrainsTold(msgspec.Struct, frozen=True):
    """All drains in force, and the last fill."""

    drains: list[DrainTold]
    fill: Work | None


class Begun(msgspec.Struct, frozen=True):
    """A drain or a fill that has begun; ``at`` is when it was asked for, epoch seconds by the daemon's clock."""

    broker: str
    sentence: str
    at: float
    drain: Drain | None


class Released(msgspec.Struct, frozen=True):
    """The drain that was ended, null where there was none."""

    released: Drain | None


class Drained(msgspec.Struct, frozen=True):
    """An event: how far the work on a broker has come, or that its drain was ended."""

    broker: str
    work: Work | None = None
    released: Drain | None = None
