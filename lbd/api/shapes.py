"""What the API answers with where nothing that is kept has that shape already."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.api.answers import json_bytes
from lbd.record.control import Pause, PlacedBundle
from lbd.record.drains import Drain, DrainTold, Left, Work
from lbd.record.status import HitStatus
from lbd.record.turns.lines import Verdict

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


class Alive(msgspec.Struct, frozen=True):
    """Whether turns and moves end: the last of them did so many seconds ago."""

    alive: bool
    silent_seconds: float
    patience_seconds: float


class Ready(msgspec.Struct, frozen=True):
    """Whether the last turn observed the cluster, and is not late."""

    ready: bool


class StrategyTold(msgspec.Struct, frozen=True):
    """Who decides, and its settings by their names."""

    name: str
    settings: dict[str, Any]


class Paused(msgspec.Struct, frozen=True):
    """The pause in force now, the one that it replaced, and lbd's process id."""

    paused: Pause
    replaced: Pause | None
    running: int


class Resumed(msgspec.Struct, frozen=True):
    """The pause that was ended, null where none was in force, and lbd's process id."""

    ended: Pause | None
    running: int


class Applied(msgspec.Struct, frozen=True):
    """A plan that was made true: what came of each of its moves."""

    exit_code: int
    sentence: str
    moves: list[PlacedBundle]


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker: score in points, usage in percent by resource (null: its limit is not known), traffic in + out."""

    id: str
    score: float | None
    binding: str | None
    usage: dict[str, float | None]
    msg_rate: float | None
    throughput: float | None
    bundles: int


class SeenBroker(BrokerRow, frozen=True):
    """The same with how far its report is to be trusted: ``doubt`` is why it is no ground to move on."""

    fresh: bool
    doubt: str | None


class SeenBundle(msgspec.Struct, frozen=True):
    """A bundle as its broker reported it: messages/s and bytes/s; null where the broker does not tell of it."""

    bundle: str
    broker: str
    msg_rate_in: float | None
    msg_rate_out: float | None
    throughput_in: float | None
    throughput_out: float | None
    topics: int | None
    producers: int | None
    consumers: int | None


class SnapshotTold(msgspec.Struct, frozen=True):
    """The load of one round; ``bundles_all`` is how many bundles there were to choose from."""

    taken_at: float | None
    cluster: str
    brokers: list[SeenBroker]
    bundles: list[SeenBundle]
    bundles_all: int


class PlanPair(msgspec.Struct, frozen=True):
    """A pair, with its hits before the round."""

    source: str
    destination: str
    difference: float | None
    hits: HitStatus
    pool: str = ""


class PlannedUnload(msgspec.Struct, frozen=True):
    """An unload of a plan, and why."""

    bundle: str
    source: str
    destination: str | None
    msg_rate: float | None
    throughput: float | None
    reason: str


class BrokerBackground(msgspec.Struct, frozen=True):
    """What is known of a broker's load: points without traffic."""

    id: str
    state: str
    background: float | None


class PlanTold(msgspec.Struct, frozen=True):
    """The JSON of ``lbd dry-run`` with a name; ``skipped`` counts bundles that stay, by reason."""

    id: str
    taken_at: float
    cluster: str
    strategy: str
    brokers: list[BrokerRow]
    pairs: list[PlanPair]
    unloads: list[PlannedUnload]
    skipped: dict[str, int]
    verdict: Verdict
    summary: str
    skips: list[LeftOut] | msgspec.UnsetType = msgspec.UNSET
    load: list[BrokerBackground] | msgspec.UnsetType = msgspec.UNSET
