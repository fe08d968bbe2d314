"""What may be changed: each change needs the token, and leaves a line in the log: who, why, and what came of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import structlog
from fastapi import APIRouter, Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from lbd.api.answers import answer
from lbd.api.once import Once
from lbd.api.problems import ProblemError
from lbd.api.shapes import Paused, Resumed
from lbd.errors import LbdError
from lbd.record.control import Control, Pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.api.backend import Backend

LONGEST_PAUSE_SECONDS = 366 * 86_400.0
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="asked again, done once; kept for a day"),
]


def _one_line(text: str) -> str:
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if text and not line:
        raise ValueError("wanted words")
    return line


Line = Annotated[str, AfterValidator(_one_line)]
"""Words in one line: they are shown on terminals and in logs."""


class Who(BaseModel):
    """Who asks for a change, and why: for the log, and for whoever meets it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    owner: Line = Field(min_length=1, max_length=100, description="a person or program")
    reason: Line = Field("", max_length=500)


class PauseBody(Who):
    """Nothing is moved until this ends."""

    for_seconds: float | None = Field(
        None, ge=1, le=LONGEST_PAUSE_SECONDS, description="it ends by itself then; null: until it is resumed"
    )


class Changes:
    """Makes changes one way: once for each key, and each with its line in the log."""

    def __init__(self) -> None:
        self._once = Once(time.monotonic)
        self._log = structlog.get_logger()

    def make(self, request: Request, key: str | None, who: Who, change: Callable[[], tuple[str, Response]]) -> Response:
        """``change`` returns its result in words, and the answer."""
        asked = f"{request.url.path}\n{who.model_dump_json()}".encode()
        return self._once.answer(key, asked, lambda: self._audited(request, who, change))

    def _audited(self, request: Request, who: Who, change: Callable[[], tuple[str, Response]]) -> Response:
        try:
            result, found = change()
        except (LbdError, ProblemError) as error:
            status = error.status if isinstance(error, ProblemError) else "refused"
            self._tell(request, who, f"{status}: {error}")
            raise
        self._tell(request, who, result)
        return found

    def _tell(self, request: Request, who: Who, result: str) -> None:
        came_from = request.client.host if request.client is not None else None
        asked = who.model_dump(exclude={"owner", "reason"}, exclude_none=True)
        facts = {"by": who.owner, "why": who.reason, "asked": asked, "result": result, "address": came_from}
        self._log.info("change asked for over the API", what=request.url.path, **facts)


def changing(backend: Backend, changes: Changes) -> APIRouter:
    """A pause, and its end."""
    router = APIRouter(prefix="/v1", tags=["changing"])

    @router.post("/pause")
    def pause(request: Request, body: PauseBody, key: Key = None) -> Response:
        """Keep lbd from moving anything, also over restarts; it goes on observing and counting.

        What is in flight is brought to its end. A pause that was there is replaced, and told.
        """

        def change() -> tuple[str, Response]:
            now = backend.now()
            until = now + body.for_seconds if body.for_seconds is not None else None
            wanted = Pause(now, until, body.reason, body.owner)
            replaced = Control(backend.state_dir).pause(wanted)
            found = Paused(wanted, replaced, os.getpid())
            backend.board.events.tell("pause", found)
            lasts = f"for {body.for_seconds:g} s" if body.for_seconds is not None else "until it is resumed"
            return f"paused {lasts}", answer(found)

        return changes.make(request, key, body, change)

    @router.post("/resume")
    def resume(request: Request, body: Who, key: Key = None) -> Response:
        """End a pause; ``ended`` is null where none was in force."""

        def change() -> tuple[str, Response]:
            control = Control(backend.state_dir)
            ended = control.paused(backend.now())
            control.resume()
            found = Resumed(ended, os.getpid())
            backend.board.events.tell("pause", {"paused": None, "replaced": ended})
            return "ended a pause" if ended is not None else "nothing was paused", answer(found)

        return changes.make(request, key, body, change)

    return router
