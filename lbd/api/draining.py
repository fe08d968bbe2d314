"""``/v1/drain``, ``/v1/fill`` and ``/v1/release``: what they would do, how they are begun, and how far they are."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from lbd.api.answers import answer
from lbd.api.changing import LONGEST_PAUSE_SECONDS, Changes, Key, Line, Who
from lbd.api.handing import STATUS_OF, handed, unanswered
from lbd.api.problems import ProblemError
from lbd.api.shapes import Begun, Drained, DrainsTold, Released
from lbd.record.asking import new_id
from lbd.record.control import DrainRequest, FillRequest
from lbd.record.drains import Drains, DrainTold, told_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.api.backend import Backend

Broker = Annotated[Line, Field(min_length=1, max_length=300, description="host:port, as brokers are listed")]
Override = Annotated[
    Line | None,
    Field(min_length=1, max_length=500, description="why limits may be passed, a pause among them; null: they hold"),
]
Timeout = Annotated[float, Field(ge=1, le=600, description="wait so long until it has begun")]
Named = Annotated[str, Path(min_length=1, max_length=300, description="host:port")]


class ReleaseBody(Who):
    """A drain that is to end."""

    broker: Broker


class FillBody(Who):
    """A broker that is to get its share."""

    broker: Broker
    override: Override = None
    timeout_seconds: Timeout = 120


class DrainBody(FillBody):
    """A broker that is to own nothing."""

    for_seconds: float | None = Field(
        None, ge=1, le=LONGEST_PAUSE_SECONDS, description="it ends by itself then; null: after drain.expires_hours"
    )


def draining(backend: Backend, changes: Changes, ending: threading.Event) -> APIRouter:
    """The routes. One drain or fill is begun at a time; once lbd is ``ending``, its answer is no longer waited for."""
    router = APIRouter(prefix="/v1", tags=["changing"])
    beginning = threading.Lock()

    def begun(request: Request, key: str | None, body: FillBody, asked: DrainRequest | FillRequest) -> Response:
        def change() -> tuple[str, Response]:
            if not beginning.acquire(blocking=False):
                raise ProblemError(409, "another drain or fill is being begun; ask again when it has")
            try:
                return _begun(backend, asked, body.timeout_seconds, ending)
            finally:
                beginning.release()

        return changes.make(request, key, body, change)

    @router.post("/drain")
    def drain(request: Request, body: DrainBody, key: Key = None) -> Response:
        """Begin to move everything off a broker, and keep it empty; ``GET /v1/drains`` and events tell how far it is.

        Where the others cannot do without it nothing is begun (409). A drain that is in force goes on.
        """
        name, _ = new_id()
        now = backend.now()
        words = (body.for_seconds, body.reason, body.override, body.owner)
        asked = DrainRequest(name, body.broker, *words, now, now + body.timeout_seconds)
        return begun(request, key, body, asked)

    @router.post("/fill")
    def fill(request: Request, body: FillBody, key: Key = None) -> Response:
        """Begin to bring a broker up to the mean, by a slice of each one above it."""
        name, _ = new_id()
        now = backend.now()
        asked = FillRequest(name, body.broker, body.override, body.owner, now, now + body.timeout_seconds)
        return begun(request, key, body, asked)

    @router.post("/release")
    def release(request: Request, body: ReleaseBody, key: Key = None) -> Response:
        """End a drain; ``released`` is null where there was none. What was moved stays where it is."""
        return changes.make(request, key, body, lambda: _released(backend, body.broker))

    return router


def drains(backend: Backend) -> APIRouter:
    """What may be read: the drains in force, and what one would do."""
    router = APIRouter(prefix="/v1", tags=["reading"])
    looking = asyncio.Lock()

    @router.get("/drains")
    def in_force() -> Response:
        """The drains in force with how far each has come, and the last fill."""
        return answer(_told(backend))

    async def shown(look: Callable[[], object]) -> Response:
        """One look at the cluster at a time: each asks every broker. Who waits for it keeps no thread from others."""
        async with looking:
            return await run_in_threadpool(lambda: answer(look()))

    @router.get("/drain/{broker}")
    async def show_drain(broker: Named) -> Response:
        """Whether the others can do without a broker, and where its bundles would go; brokers are asked for it."""
        return await shown(lambda: backend.show_drain(broker))

    @router.get("/fill/{broker}")
    async def show_fill(broker: Named) -> Response:
        """What a broker would be given; brokers are asked for it."""
        return await shown(lambda: backend.show_fill(broker))

    return router


def _told(backend: Backend) -> DrainsTold:
    found = [DrainTold(drain, work) for drain, work in told_of(backend.state_dir, backend.now())]
    return DrainsTold(found, Drains(backend.state_dir).works().fill)


def _begun(
    backend: Backend, asked: DrainRequest | FillRequest, seconds: float, ending: threading.Event
) -> tuple[str, Response]:
    found, untouched = handed(backend, asked, ending)
    if found is None:
        return unanswered(seconds, ending, "/v1/drains", untouched=untouched)
    if found.exit_code:
        raise ProblemError(STATUS_OF.get(found.exit_code, 500), found.sentence)
    drain = Drains(backend.state_dir).in_force(backend.now()).get(asked.broker)
    told = Begun(asked.broker, found.sentence, asked.at, drain if isinstance(asked, DrainRequest) else None)
    return found.sentence, answer(told)


def _released(backend: Backend, broker: str) -> tuple[str, Response]:
    found = Drains(backend.state_dir).release(broker)
    backend.board.events.tell("drain", Drained(broker, None, found))
    words = f"released {broker}" if found is not None else f"{broker} is not drained"
    return words, answer(Released(found))
