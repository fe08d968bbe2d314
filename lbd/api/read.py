"""Routes that read: the last turn, kept turns and moves, placements, and events."""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lbd.api.guard import WorkLimit
from lbd.api.problems import ProblemError
from lbd.api.published import TooManyError
from lbd.api.shapes import (
    Alive,
    MoveMark,
    Readiness,
    ScoreHistory,
    SnapshotBroker,
    SnapshotBundle,
    SnapshotResponse,
    StrategyResponse,
    answer,
)
from lbd.errors import UsageError
from lbd.fields import derived
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT
from lbd.place.placements import DEFAULT, PLACEMENTS
from lbd.store.control import Control
from lbd.store.drains import drains_in_force
from lbd.store.explain import Explainer
from lbd.store.history_round import HISTORY_FOLDER
from lbd.store.moves import MOST_MOVES, history, newest_moves
from lbd.store.scores import Scores, score_line
from lbd.store.status import document, in_force
from lbd.store.turns import KeptTurns, named
from lbd.text import DAY_SECONDS, HOUR_SECONDS
from lbd.turn.record import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.api.backend import Backend
    from lbd.api.published import Published
    from lbd.model import BoolArray, Snapshot
    from lbd.store.moves import MoveRecord
    from lbd.store.status import StatusResponse


Rows = Annotated[bool, Query(description="rows as arrays, as they are kept, and not by the names of their fields")]
KEPT_SECONDS = 366 * DAY_SECONDS
MoveCount = Annotated[int, Query(ge=1, le=1000, description="number of moves")]
Since = Annotated[float, Query(gt=0, le=KEPT_SECONDS, allow_inf_nan=False)]


def explaining(backend: Backend) -> APIRouter:
    """The route."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    def explained(what: str | None, last: int, since_seconds: float, *, rows: bool) -> Response:
        now = backend.now()
        rest = backend.settings.guardrails.cool_down_minutes * 60
        explainer = Explainer(
            backend.state_dir,
            now=now,
            since=now - since_seconds,
            last=last,
            cool_down_seconds=rest,
            steps=status_document(backend, backend.board.last).steps if backend.board.last is not None else (),
        )
        try:
            explanation = explainer.of(what)
            return answer(explanation if rows else named(explanation))
        except UsageError as error:
            raise ProblemError(404, str(error)) from error

    @router.get("/explain")
    def explain_last(last: MoveCount = 5, since_seconds: Since = DAY_SECONDS, *, rows: Rows = False) -> Response:
        """The last turn: the JSON of ``lbd explain``."""
        return explained(None, last, since_seconds, rows=rows)

    @router.get("/explain/{what:path}")
    def explain(
        what: Annotated[
            str, Path(max_length=1000, description="a broker, bundle, topic, namespace, or a turn by its number")
        ],
        last: MoveCount = 5,
        since_seconds: Since = DAY_SECONDS,
        *,
        rows: Rows = False,
    ) -> Response:
        """Why it moved or did not: the JSON of ``lbd explain WHAT``."""
        return explained(what or None, last, since_seconds, rows=rows)

    return router


def capacity(backend: Backend) -> APIRouter:
    """The route."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    @router.get("/capacity")
    def wanted_brokers() -> Response:
        """How many brokers the peak of the last day needs: the JSON of ``lbd capacity``."""
        current = last_turn(backend).record.capacity
        if current is None:
            raise ProblemError(503, "the last turn saw no load", {"retry-after": "15"})
        return answer(current.report)

    return router


# --- ``/v1/placement``: which broker a bundle, or the bundle of a topic, should go to

Strategy = Annotated[str, Query(max_length=100, description=f"one of {', '.join(PLACEMENTS)}")]
Part = Annotated[str, Path(min_length=1, max_length=500)]


def placement(backend: Backend) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1", tags=["reading"])
    limit = WorkLimit(at_once=8, waiting=40)

    async def picked(request: Request, text: str, strategy: str) -> Response:
        """Answer from facts in hand without a wait for another thread; else ask brokers in a worker thread."""
        last = last_turn(backend)
        advice = backend.pick_at_once(text, strategy)
        if advice is None:
            async with limit.place(
                request.state.counted_as
            ):  # a broker that does not answer must not take the threads of all other requests
                advice = await run_in_threadpool(backend.pick, last, text, strategy)
        return answer(advice)

    @router.get("/placement")
    async def placement_of_topic(
        request: Request,
        topic: Annotated[
            str,
            Query(
                max_length=2000,
                description="persistent://tenant/namespace/topic, or segment://tenant/namespace/topic/0000-ffff-0",
            ),
        ],
        strategy: Strategy = DEFAULT,
    ) -> Response:
        """Where the bundle of a topic should go if nobody owned it, by lbd's picker, and why. It changes nothing."""
        if "://" not in topic:
            raise ProblemError(400, f"{topic!r:.200} is no topic; wanted persistent://tenant/namespace/topic")
        return await picked(request, topic, strategy)

    @router.get("/placement/{tenant}/{namespace}/{bundle}")
    async def placement_of_bundle(
        request: Request, tenant: Part, namespace: Part, bundle: Part, strategy: Strategy = DEFAULT
    ) -> Response:
        """The same for a bundle, 0xLLLLLLLL_0xUUUUUUUU."""
        return await picked(request, f"{tenant}/{namespace}/{bundle}", strategy)

    return router


# --- the last turn, earlier ones, and events

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events as they happen.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
Last = Annotated[int, Query(ge=1, le=1000, description="so many, the newest first")]
Name = Annotated[str | None, Query(max_length=1000)]


def last_turn(backend: Backend) -> Published:
    """The turn that is shown. Raises :class:`ProblemError` before the first one has ended."""
    published = backend.board.last
    if published is None:
        raise ProblemError(503, "no turn has ended yet", {"retry-after": "1"})
    return published


def status_document(backend: Backend, last: Published) -> StatusResponse:
    """The status at this moment."""
    now = backend.now()
    status, pause = in_force(last.status, Control(backend.state_dir), now)
    return document(status, status.pid, pause, now, drains_in_force(backend.state_dir, now))


def probes(backend: Backend) -> APIRouter:
    """Is it alive, is it of use: for orchestrators. They tell nothing of the cluster, and keep no connection open."""
    close = {"connection": "close"}
    router = APIRouter(tags=["probes"])

    @router.get("/healthz")
    async def healthz() -> Response:
        """200 while turns or moves end; 503 once three turns are missing (at least a minute)."""
        silent, patience = backend.silent_seconds(), backend.patience_seconds()
        return answer(Alive(silent < patience, round(silent, 1), patience), 200 if silent < patience else 503, close)

    @router.get("/readyz")
    async def readyz() -> Response:
        """200 when the last turn has observed the cluster, and is not late."""
        last = backend.board.last
        late = last is None or last.status.late(backend.now())
        ready = not late and last is not None and last.record.observation is not None
        return answer(Readiness(ready), 200 if ready else 503, close)

    return router


def reading(backend: Backend) -> APIRouter:
    """The rest of what may be read."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    @router.get("/status")
    def status() -> Response:
        """Status after the last turn: facts, waits and moves, as the JSON of ``lbd status``."""
        return answer(status_document(backend, last_turn(backend)))

    @router.get("/snapshot")
    def last_snapshot(
        broker: Name = None, namespace: Name = None, last: Annotated[int, Query(ge=0, le=10_000)] = 100
    ) -> Response:
        """The load of the last round: every broker, and the bundles with most traffic, of one broker or namespace."""
        return answer(snapshot(last_turn(backend), broker, namespace, last))

    @router.get("/strategy")
    async def strategy() -> Response:
        """Strategy that decides the moves, with its settings: thresholds are points of score."""
        in_force = backend.settings
        settings = in_force.strategy_settings.model_dump(mode="json")
        return answer(StrategyResponse(in_force.strategy, settings))

    @router.get("/decisions")
    def decisions(last: Last = 20) -> Response:
        """Turns as they are kept for ``lbd explain``; quiet ones that said the same count as one."""
        turns = KeptTurns(backend.state_dir)
        return answer([named(turn) for turn in islice(turns, last)])

    @router.get("/moves")
    def moves(last: Last = 100, bundle: Name = None, broker: Name = None) -> Response:
        """Moves of the journal, also those under way, the newest first."""
        if bundle is None and broker is None:
            return answer(newest_moves(backend.state_dir, last))
        return answer(list(reversed(deque(_moves(history(backend.state_dir), bundle, broker), last))))

    @router.get("/events", responses=EVENTS)
    async def events() -> StreamingResponse:
        """Server-sent events: ``turn`` (the status) after each turn, ``move`` as each move ends and when it is known
        whether its clients are back, ``pause`` as one begins or ends, ``drain`` as the work on a broker goes on.
        """
        try:
            stream = backend.board.events.listen()
        except TooManyError:
            raise ProblemError(503, "too many listen already", {"retry-after": "30"}) from None
        return StreamingResponse(stream, headers={"cache-control": "no-store"}, media_type="text/event-stream")

    return router


def _moves(moves: Iterable[MoveRecord], bundle: str | None, broker: str | None) -> Iterator[MoveRecord]:
    for move in moves:
        if bundle in {None, move.bundle} and broker in {None, move.source, move.destination, move.owner}:
            yield move


# --- scores over time

RANGES_SECONDS = {"1h": HOUR_SECONDS, "24h": DAY_SECONDS, "7d": 7 * DAY_SECONDS}

WARM_SECONDS = 900.0
"""Seconds before the range at which reading begins, so that each broker has a sample at its start."""


def scoring(backend: Backend) -> APIRouter:
    """The route."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    @router.get("/history")
    def score_history(
        range_: Annotated[Literal["1h", "24h", "7d"], Query(alias="range")] = "1h", broker: Name = None
    ) -> Response:
        """Scores over time, thinned to a few hundred points, with the moves: of all brokers, and of one.

        404 for a broker that is not in the cluster and has no score and no move within the range.
        """
        until = backend.now()
        since = until - RANGES_SECONDS[range_]
        moves = [
            derived(MoveMark, move, destination=move.owner or move.destination)
            for move in _moves(newest_moves(backend.state_dir, MOST_MOVES), None, broker)
            if move.at >= since
        ]
        try:
            lines = _score_history(backend, since, until, broker, moves)
        except UsageError as error:
            raise ProblemError(503, str(error)) from error
        if broker is not None and not _is_known(backend, broker, lines):
            raise ProblemError(404, f"{broker}: no broker of the cluster, and no score or move of it in {range_}")
        return answer(lines)

    return router


def _is_known(backend: Backend, broker: str, history: ScoreHistory) -> bool:
    """Whether there is such a broker, or was within the range; true where the last turn could not see the cluster.

    Raises :class:`ProblemError` where no turn has ended that could say so.
    """
    if history.moves or (history.broker is not None and any(point is not None for point in history.broker.points)):
        return True
    observation = last_turn(backend).record.observation
    return observation is None or broker in observation.active


def _score_history(
    backend: Backend, since: float, until: float, broker: str | None, moves: list[MoveMark]
) -> ScoreHistory:
    """From the files of history, and from memory where the turns of this process begin. Raises :class:`UsageError`."""
    own = backend.board.scores(since - WARM_SECONDS)
    memory_since, root = min([until, *own.at[:1].tolist()]), backend.state_dir / HISTORY_FOLDER
    stored: Iterable[Scores] = ()
    if memory_since > since and root.is_dir():
        from lbd.store.history import scores  # noqa: PLC0415 - pyarrow is loaded where it is needed

        stored = scores(root, since - WARM_SECONDS, memory_since)
    lines = [(part.at, part.gap(), part.mean(), part.of(broker or "")) for part in chain(stored, (own,))]
    times, gap, mean, score = (np.concatenate(values) for values in zip(*lines, strict=True))
    order = np.argsort(times, kind="stable")  # a clock may have been set back
    shown = order[times[order] >= since]
    return ScoreHistory(
        since,
        until,
        score_line(times[shown], gap[shown]),
        score_line(times[shown], mean[shown]),
        score_line(times[shown], score[shown]) if broker is not None else None,
        moves,
    )


# --- the load of a round as JSON


def snapshot(published: Published, broker: str | None, namespace: str | None, last: int) -> SnapshotResponse:
    """Brokers, and the ``last`` bundles with most bytes/s, of one broker or namespace where one is named.

    Raises :class:`ProblemError` (404) for a broker that gave no report.
    """
    record = published.record
    if record.observation is None or record.plan.decision is None:
        return SnapshotResponse(None, published.status.cluster, [], [], 0)
    observed = record.observation.snapshot
    chosen = _selected_rows(observed, broker, namespace)
    return SnapshotResponse(
        taken_at=observed.taken_at,
        cluster=record.observation.cluster,
        brokers=[derived(SnapshotBroker, facts) for facts in published.brokers],
        bundles=_bundles(observed, _largest(observed, chosen, last)),
        bundles_all=int(chosen.sum()),
    )


def _selected_rows(observed: Snapshot, broker: str | None, namespace: str | None) -> BoolArray:
    """Selected rows, bool (R,); where brokers report their largest bundles only, the listed others too."""
    chosen: BoolArray = observed.rows.reported | (observed.rows.listed if observed.partial else False)
    if broker is not None:
        row = observed.brokers.index().get(broker)
        if row is None:
            there = ", ".join(observed.brokers.ids[:5])
            raise ProblemError(404, f"{broker}: no such broker in this round; there are {there}")
        chosen &= observed.rows.owner() == row
    if namespace is not None:
        names = np.array([name == namespace for name in observed.namespaces.names], dtype=np.bool_)
        chosen &= names[observed.namespaces.of[observed.rows.bundle]]
    return chosen


def _largest(observed: Snapshot, chosen: BoolArray, last: int) -> list[int]:
    """Rows, at most ``last``, the most bytes/s first; among equals as the brokers report them."""
    rows = np.flatnonzero(chosen)
    weight = np.nan_to_num(observed.rows.rates[rows, BYTES_IN] + observed.rows.rates[rows, BYTES_OUT])
    if 0 < last < rows.size:  # to sort them all takes thirty times as long
        rows = rows[weight >= np.partition(weight, -last)[-last]]
        weight = np.nan_to_num(observed.rows.rates[rows, BYTES_IN] + observed.rows.rates[rows, BYTES_OUT])
    largest: list[int] = rows[np.argsort(-weight, kind="stable")][:last].tolist()
    return largest


def _bundles(observed: Snapshot, rows: list[int]) -> list[SnapshotBundle]:
    names, owner = observed.rows.bundle[rows].tolist(), observed.rows.owner()[rows].tolist()
    reported = observed.rows.reported[rows]
    carried = np.where(reported[:, None], observed.rows.rates[rows], np.nan).tolist()
    counts = [
        own if valid else [None] * 3 for own, valid in zip(observed.rows.counts[rows].tolist(), reported, strict=True)
    ]
    return [
        SnapshotBundle(
            bundle=observed.bundles[name],
            broker=observed.brokers.ids[broker],
            msg_rate_in=number(rates[MSG_IN]),
            msg_rate_out=number(rates[MSG_OUT]),
            throughput_in=number(rates[BYTES_IN]),
            throughput_out=number(rates[BYTES_OUT]),
            topics=topics,
            producers=producers,
            consumers=consumers,
        )
        for name, broker, rates, (topics, producers, consumers) in zip(names, owner, carried, counts, strict=True)
    ]
