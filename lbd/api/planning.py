"""``/v1/plan``: what a turn would begin, and how exactly that is begun."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from lbd.api.answers import answer, answer_with
from lbd.api.changing import Changes, Key, Who
from lbd.api.handing import STATUS_OF, handed, unanswered
from lbd.api.problems import ProblemError, problem
from lbd.api.reading import last_turn
from lbd.api.shapes import Applied
from lbd.record.asking import new_id
from lbd.record.control import FAILED, PlanRequest

if TYPE_CHECKING:
    from lbd.api.backend import Backend
    from lbd.api.shapes import Plan


Skips = Annotated[bool, Query(description="false: without what is not moved, which may be a line for each bundle")]


class ApplyBody(Who):
    """A plan that is to be made true."""

    timeout_seconds: float = Field(120, ge=1, le=600, description="wait so long for the end of its moves")


def planning(backend: Backend, changes: Changes, ending: threading.Event) -> APIRouter:
    """The routes. One plan is applied at a time; once lbd is ``ending``, its answer is no longer waited for."""
    router = APIRouter(prefix="/v1")
    applying = threading.Lock()

    @router.get("/plan", tags=["reading"])
    def plan(*, skips: Skips = True) -> Response:
        """The JSON of ``lbd dry-run`` by the round of the last turn, with the plan's ``id``."""
        found = backend.plan(last_turn(backend))
        return answer_with(found.content if skips else found.brief)

    @router.post("/plan/{name}/apply", tags=["changing"])
    def apply(
        request: Request,
        name: Annotated[str, Path(max_length=100, description="the plan's id")],
        body: ApplyBody,
        key: Key = None,
    ) -> Response:
        """Begin exactly the moves of that plan, and tell how each ended. Where one of them cannot be made any more,
        nothing is begun (409), and these are named.
        """

        def change() -> tuple[str, Response]:
            found = backend.planned(name)
            if found is None:
                raise ProblemError(404, f"no plan {name!r:.100} is known; the last few of GET /v1/plan are")
            if not applying.acquire(blocking=False):
                raise ProblemError(409, "another plan is being applied; ask again when it has ended")
            try:
                return _applied(backend, found, body, ending)
            finally:
                applying.release()

        return changes.make(request, key, body, change)

    return router


def _applied(backend: Backend, plan: Plan, body: ApplyBody, ending: threading.Event) -> tuple[str, Response]:
    """What was begun is answered, also where it failed: the same key does not begin it again."""
    if not plan.moves:
        return "nothing to move", answer(Applied(0, "The plan has no moves.", []))
    name, _ = new_id()
    now = backend.now()
    asking = (list(plan.moves), body.reason, body.owner, now, now + body.timeout_seconds)
    found, untouched = handed(backend, PlanRequest(name, plan.id, *asking), ending)
    if found is None:
        return unanswered(body.timeout_seconds, ending, "/v1/moves", untouched=untouched)
    moves = found.placed or []
    if found.exit_code == 0:
        return found.sentence, answer(Applied(0, found.sentence, moves))
    if found.exit_code == FAILED:
        return found.sentence, problem(STATUS_OF[FAILED], found.sentence, moves=moves)
    raise ProblemError(STATUS_OF.get(found.exit_code, 500), found.sentence, moves=moves)
