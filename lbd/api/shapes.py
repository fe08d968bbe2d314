"""Responses on the wire: JSON by msgspec, which large clusters need, and without NaN and infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec
from starlette.responses import Response

from lbd.bundles import TopicBundle
from lbd.redaction import redacted_json
from lbd.store.control import Pause, PlacedBundle
from lbd.store.drains import Drain, DrainStatus, Fill, RemainingBundle, Work
from lbd.store.rollouts import Rollout
from lbd.store.scores import ScoreLine
from lbd.turn.record import BrokerRow, LeftOut, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.observer import Observation
    from lbd.place.picker import PlacementAdvice
    from lbd.store.proposal import Proposal


def json_bytes(value: object) -> bytes:
    """A value as JSON, without secrets; a NumPy number is a number, NaN and infinity are null."""
    return redacted_json(msgspec.json.encode(value, enc_hook=_number))


def _number(value: Any) -> object:  # noqa: ANN401 - anything that msgspec does not know
    if hasattr(value, "item"):
        plain = value.item()
        return plain if not isinstance(plain, float) or math.isfinite(plain) else None
    raise NotImplementedError(f"{type(value).__name__} has no JSON")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that nobody may keep: it is out of date with the next turn."""
    return answer_with(json_bytes(value), status, headers)


def answer_with(content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The same of JSON that has been made before."""
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, media_type="application/json")


# --- response types without a stored record of the same shape


class TopicBundles(msgspec.Struct, frozen=True):
    """The bundle of a topic; of a scalable topic one for each active segment."""

    topics: list[TopicBundle]


class PlacementResponse(msgspec.Struct, frozen=True):
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
    def of(
        cls, advice: PlacementAdvice, observation: Observation, age_seconds: float, strategy: str
    ) -> PlacementResponse:
        """The picker's answer on the wire."""
        placed = advice.placed
        judged = (placed.broker, placed.reason, strategy, observation.snapshot.taken_at, round(age_seconds, 3))
        return cls(
            advice.bundle,
            advice.owner,
            *judged,
            observation.sample_interval_seconds,
            placed.choices,
            advice.candidates.brokers,
            tuple(map(left_out, advice.candidates.left_out)),
        )


@dataclass(frozen=True)
class PlanResponse:
    """Plan that waits for approval, or that a turn would begin; ``fields`` are those of the JSON of both."""

    plan: Proposal
    fields: dict[str, Any]

    @cached_property
    def content(self) -> bytes:
        """The JSON of both: a megabyte and a half where twenty brokers of 750 bundles have fired."""
        return json_bytes(self.fields)

    @cached_property
    def brief(self) -> bytes:
        """The same without a line for each bundle that stays."""
        return json_bytes({key: value for key, value in self.fields.items() if key != "skips"})


class Predicted(msgspec.Struct, frozen=True):
    """A broker's score in points, now and once all of it has landed."""

    id: str
    score: float
    predicted: float


class WouldMove(msgspec.Struct, frozen=True):
    """An unload that is shown: messages/s and bytes/s in + out, and the producers and consumers that reconnect."""

    bundle: str
    source: str
    destination: str | None
    msg_rate: float
    throughput: float
    clients: int = 0


class Held(msgspec.Struct, frozen=True):
    """The hold that keeps all of it from moving."""

    reason: str
    detail: str


class DrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Preview of a drain or a fill: the JSON of ``lbd drain BROKER``. ``taken_at`` is epoch seconds.

    ``stay`` are bundles that could not go, ``last`` those that turns would never move and that go after all others
    (``guardrails.topic_costs``), ``left_to_pulsar`` those of Pulsar's own, ``cannot_spare`` why the cluster
    cannot do without the broker, ``at_once`` how many moves would be in flight, ``drain`` the one in force. Reports
    show the last moves in ``shown_in_seconds`` at most, which a first move waits for.
    """

    taken_at: float
    brokers: list[Predicted]
    unloads: list[WouldMove]
    stay: list[RemainingBundle]
    left_to_pulsar: list[str]
    hold: Held | None
    cannot_spare: str | None
    eta_seconds: float
    at_once: int
    drain: Drain | None
    shown_in_seconds: float = 0.0
    last: list[str] = []


class DrainsResponse(msgspec.Struct, frozen=True):
    """All drains in force, and the last fill with the number of its ended moves, ``fill_tried``."""

    drains: list[DrainStatus]
    fill: Work | None
    fill_tried: int = 0


class Started(msgspec.Struct, frozen=True):
    """A drain or a fill that has begun; ``at`` is when it was asked for, epoch seconds by the daemon's clock.

    ``id`` is that of the order; the work of a fill has it as its ``request``.
    """

    broker: str
    sentence: str
    at: float
    drain: Drain | None
    id: str


class Released(msgspec.Struct, frozen=True):
    """The drain that was ended, null where there was none, or else the fill of that broker."""

    released: Drain | None
    filled: Fill | None = None

    @classmethod
    def of(cls, order: Drain | Fill | None) -> Self:
        """The response for the ended order; None where there was none."""
        return cls(None, order) if isinstance(order, Fill) else cls(order)

    @property
    def broker(self) -> str:
        """Full name of the order's broker; empty where nothing was ended."""
        order = self.released or self.filled
        return order.broker if order is not None else ""


class Drained(msgspec.Struct, frozen=True):
    """An event: how far the work on a broker has come, or that its drain was ended."""

    broker: str
    work: Work | None = None
    released: Drain | None = None


class RolloutStep(msgspec.Struct, frozen=True):
    """Moves that the drain of one broker of a rollout would make now.

    ``clients`` are producers and consumers of its ``bundles``, as far as reports tell. ``top`` would be the broker with
    the highest score then, ``peak`` in points. ``refused`` is why it cannot be restarted so, null where it can.
    """

    broker: str
    bundles: int
    eta_seconds: float
    clients: int
    top: str | None
    peak: float | None
    refused: str | None


class RolloutPlan(msgspec.Struct, frozen=True):
    """The brokers of a rollout in their order, and what each drain would do: the JSON of ``lbd rollout --dry-run``.

    ``bundles``, ``clients`` and ``moves_seconds`` are the sums over all steps; a bundle may move twice.
    ``refused`` is why it would not begin, whatever its brokers; null where it would. ``total_seconds`` is about how
    long it takes without the restarts themselves: the moves, and for each broker ``trusted_after_seconds`` from its
    start until its reports count.
    """

    taken_at: float
    steps: list[RolloutStep]
    refused: str | None = None
    trusted_after_seconds: float = 0.0
    total_seconds: float = 0.0
    bundles: int = 0
    clients: int = 0
    moves_seconds: float = 0.0


class RolloutResponse(msgspec.Struct, frozen=True):
    """The rollout under way, else the last one (null: there was none), in one sentence, and its drain or fill."""

    rollout: Rollout | None
    summary: str
    work: Work | None


class Alive(msgspec.Struct, frozen=True):
    """Whether turns and moves end: the last of them did ``silent_seconds`` ago."""

    alive: bool
    silent_seconds: float
    patience_seconds: float


class Readiness(msgspec.Struct, frozen=True):
    """Whether the last turn observed the cluster, and is not late."""

    ready: bool


class StrategyResponse(msgspec.Struct, frozen=True):
    """The strategy that decides, and its settings by their names."""

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
    """Result of an order to apply a plan, and of each of its moves."""

    exit_code: int
    sentence: str
    moves: list[PlacedBundle] = []


class MoveMark(msgspec.Struct, frozen=True):
    """A move as charts mark it; ``destination`` is who owned the bundle in the end, where that is known."""

    at: float
    bundle: str
    source: str
    destination: str | None
    result: str | None


class ScoreHistory(msgspec.Struct, frozen=True):
    """Scores between two times (epoch seconds): the gap between the highest and the lowest, the mean, and the line of
    the broker that was named, null where none was.

    ``moves`` are those in this time, of that broker, the newest 1,000 at most, the newest first.
    """

    since: float
    until: float
    gap: ScoreLine
    mean: ScoreLine
    broker: ScoreLine | None
    moves: list[MoveMark]


class SnapshotBroker(BrokerRow, frozen=True):
    """A broker with how far its report is to be trusted: ``doubt`` is why it is no ground to move on."""

    fresh: bool
    doubt: str | None


class SnapshotBundle(msgspec.Struct, frozen=True):
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


class SnapshotResponse(msgspec.Struct, frozen=True):
    """The load of one round; ``bundles_all`` is how many bundles there were to choose from."""

    taken_at: float | None
    cluster: str
    brokers: list[SnapshotBroker]
    bundles: list[SnapshotBundle]
    bundles_all: int
