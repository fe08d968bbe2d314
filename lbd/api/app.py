"""The application: all routes, put together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from lbd import __version__
from lbd.api.change import ChangeLog, Runner, changing, commands, draining, drains, planning, previews, rollouts
from lbd.api.guard import Guard
from lbd.api.metrics import registry
from lbd.api.problems import RESPONSES, ProblemError, add_handlers
from lbd.api.read import capacity, explaining, placement, probes, reading, scoring
from lbd.api.schemas import Documented

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from starlette.types import Scope

    from lbd.api.backend import Backend

STATIC = Path(__file__).parent / "static"
PAGE = STATIC / "index.html"
TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Text exposition.",
        "content": {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")},
    }
}
STREAM = "/v1/events"
"""It lasts as long as somebody listens, which says nothing of the API."""

METHODS = frozenset({"GET", "POST"})
"""A label for any other would be a word that somebody sent."""


def application(backend: Backend, ending: threading.Event, *, local: bool) -> Guard:
    """The API of one lbd, until it is ``ending``; ``local``: on its socket, whose file says who may."""
    app = Documented(
        title="lbd",
        version=__version__,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses=RESPONSES,
    )
    add_handlers(app)
    app.include_router(probes(backend))
    changes = ChangeLog(backend)
    runner = Runner(backend, changes, ending)
    read = (
        placement(backend),
        reading(backend),
        scoring(backend),
        explaining(backend),
        capacity(backend),
        drains(backend),
        previews(backend),
    )
    change = (changing(backend, changes), commands(runner), draining(backend, changes, runner))
    for router in (
        *read,
        *change,
        *rollouts(backend, runner),
        planning(backend, changes, runner),
    ):  # looked through in this order
        app.include_router(router)
    app.add_api_route("/metrics", _metrics(registry(backend)), tags=["probes"], responses=TEXT, response_class=Response)
    app.add_api_route("/", _page, include_in_schema=False)
    app.mount("/static", _Static(directory=STATIC, packages=[("lbd.charts", "static")]))

    def count(scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", None) or "none"
        if route != STREAM:
            method = scope["method"] if route != "none" and scope["method"] in METHODS else "ANY"
            backend.board.tally.answered(method, route, status, seconds)

    return Guard(app, backend.settings.api, count, local=local)


def _metrics(collected: CollectorRegistry) -> Callable[[Request], Response]:
    def metrics(request: Request) -> Response:
        """Gauges of the last turn and counters of this process, for Prometheus."""
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(collected), media_type=media_type)

    return metrics


class _Static(StaticFiles):
    """Browsers ask whether a file has changed, and do not guess how long it may be the same."""

    def file_response(self, *args: Any, **changes: Any) -> Response:  # noqa: ANN401 - starlette's signature
        response = super().file_response(*args, **changes)
        response.headers["cache-control"] = "no-cache"
        return response


async def _page() -> Response:
    """The dashboard."""
    if not PAGE.is_file():
        raise ProblemError(404, "this lbd has no dashboard; see /v1/openapi.json")
    return FileResponse(PAGE, headers={"cache-control": "no-cache"})
