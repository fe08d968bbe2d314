"""What may be read: the last turn, what is kept of those before, and what happens now."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from lbd.api.answers import answer
from lbd.api.events import TooManyError
from lbd.api.problems import ProblemError
from lbd.api.shapes import Alive, Ready, StrategyTold
from lbd.api.snapshot import snapshot
from lbd.config import section_of
from lbd.record.control import Control
from lbd.record.drains import told_of
from lbd.record.journal import Following, History, history
from lbd.record.named import named
from lbd.record.status import document
from lbd.record.turns import FOLDER
from lbd.record.turns.reading import KeptTurns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.api.backend import Backend
    from lbd.api.board import Published
    from lbd.record.journal import Move

A_DAY_SECONDS = 86_400.0
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events as they happen.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
Last = Annotated[int, Query(ge=1, le=1000, description="so many, the newest first")]
Name = Annotated[str | None, Query(max_length=1000)]


def last_turn(backend: Backend) -> Published:
    """The turn that is shown. Raises :class:`ProblemError` before the first one has ended."""
    found = backend.board.last
    if found is None:
        raise ProblemError(503, "no turn has ended yet", {"retry-after": "1"})
    return found


def probes(backend: Backend) -> APIRouter:
    """Is it alive, is it of use: for orchestrators. They tell nothing of the cluster."""
    router = APIRouter(tags=["probes"])

    @router.get("/healthz")
    async def healthz() -> Response:
        """200 while turns or moves end; 503 once three turns are missing (at least a minute)."""
        silent, patience = backend.silent_seconds(), backend.patience_seconds()
        return answer(Alive(silent < patience, round(silent, 1), patience), 200 if silent < patience else 503)

    @router.get("/readyz")
    async def readyz() -> Response:
        """200 when the last turn has observed the cluster, and is not late."""
        last = backend.board.last
        late = last is None or last.status.late(backend.now())
        ready = not late and last is not None and last.record.observation is not None
        return answer(Ready(ready), 200 if ready else 503)

    return router


def reading(backend: Backend) -> APIRouter:
    """The rest of what may be read."""
    router = APIRouter(prefix="/v1", tags=["reading"])
    following = Following(backend.state_dir)

    @router.get("/status")
    def status() -> Response:
        """What the last turn saw, waits for and moves: the JSON of ``lbd status``."""
        last, now = last_turn(backend), backend.now()
        drains = told_of(backend.state_dir, now)
        return answer(document(last.status, last.status.pid, Control(backend.state_dir).paused(now), now, drains))

    @router.get("/snapshot")
    def last_snapshot(
        broker: Name = None, namespace: Name = None, last: Annotated[int, Query(ge=0, le=10_000)] = 100
    ) -> Response:
        """The load of the last round: every broker, and the bundles with most traffic, of one broker or namespace."""
        return answer(snapshot(last_turn(backend), broker, namespace, last))

    @router.get("/gaps")
    def gaps(since: Annotated[float, Query(allow_inf_nan=False)] = 0.0) -> Response:
        """Highest, lowest and mean score of each turn of this process, a day at most, the oldest first."""
        return answer(backend.board.gaps(since))

    @router.get("/strategy")
    async def strategy() -> Response:
        """Who decides what moves, with its settings: thresholds are points of score."""
        found = backend.settings
        settings = getattr(found, section_of(found.strategy)).model_dump(mode="json")
        return answer(StrategyTold(found.strategy, settings))

    @router.get("/decisions")
    def decisions(last: Last = 20) -> Response:
        """Turns as they are kept for ``lbd explain``; quiet ones that said the same count as one."""
        kept = KeptTurns(backend.state_dir / FOLDER)
        return answer([named(turn) for turn in islice(kept, last)])

    @router.get("/moves")
    def moves(last: Last = 100, bundle: Name = None, broker: Name = None) -> Response:
        """Moves of the journal, also those under way, the newest first."""
        if bundle is None and broker is None:
            return answer(following.newest(last))
        return answer(list(reversed(deque(_moves(history(backend.state_dir), bundle, broker), last))))

    @router.get("/events", responses=EVENTS)
    async def events() -> StreamingResponse:
        """Server-sent events: ``turn`` (the status) after each turn, ``move`` as each move ends, ``pause`` as one
        begins or ends, ``drain`` as the work on a broker goes on.
        """
        try:
            stream = backend.board.events.listen()
        except TooManyError:
            raise ProblemError(503, "too many listen already", {"retry-after": "30"}) from None
        return StreamingResponse(stream, headers={"cache-control": "no-store"}, media_type="text/event-stream")

    return router


def _moves(found: History, bundle: str | None, broker: str | None) -> Iterator[Move]:
    for move in found:
        if bundle in {None, move.bundle} and broker in {None, move.source, move.destination, move.owner}:
            yield move
