"""``/v1/placement``: which broker a bundle, or the bundle of a topic, should go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from lbd.api.answers import answer
from lbd.api.problems import ProblemError
from lbd.api.reading import last_turn
from lbd.place import DEFAULT, PLACEMENTS

if TYPE_CHECKING:
    from lbd.api.backend import Backend

Strategy = Annotated[str, Query(max_length=100, description=f"one of {', '.join(PLACEMENTS)}")]
Part = Annotated[str, Path(min_length=1, max_length=500)]


def placement(backend: Backend) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    async def picked(text: str, strategy: str) -> Response:
        """What is known is answered here and now: another thread would be waited for."""
        last = last_turn(backend)
        found = backend.pick_at_once(text, strategy)
        return answer(found or await run_in_threadpool(backend.pick, last, text, strategy))

    @router.get("/placement")
    async def placement_of_topic(
        topic: Annotated[str, Query(max_length=2000, description="persistent://tenant/namespace/topic")],
        strategy: Strategy = DEFAULT,
    ) -> Response:
        """Where the bundle of a topic should go if nobody owned it, by lbd's picker, and why. It changes nothing."""
        if "://" not in topic:
            raise ProblemError(400, f"{topic!r:.200} is no topic; wanted persistent://tenant/namespace/topic")
        return await picked(topic, strategy)

    @router.get("/placement/{tenant}/{namespace}/{bundle}")
    async def placement_of_bundle(
        tenant: Part, namespace: Part, bundle: Part, strategy: Strategy = DEFAULT
    ) -> Response:
        """The same for a bundle, 0xLLLLLLLL_0xUUUUUUUU."""
        return await picked(f"{tenant}/{namespace}/{bundle}", strategy)

    return router
