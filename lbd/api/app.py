"""The routes, put together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from lbd import __version__
from lbd.api.guard import Guard
from lbd.api.problems import ProblemError, add_handlers
from lbd.api.reading import probes, reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from lbd.api.backend import Backend

STATIC = Path(__file__).parent / "static"
PAGE = STATIC / "index.html"


def application(backend: Backend, seen: Callable[[Scope, int, float], None] = lambda *_: None) -> Guard:
    """The API of one lbd; ``seen`` hears of each request's scope, status and seconds."""
    app = FastAPI(title="lbd", version=__version__, openapi_url="/v1/openapi.json", docs_url=None, redoc_url=None)
    add_handlers(app)
    app.include_router(probes(backend))
    app.include_router(reading(backend))
    app.add_api_route("/", _page, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC))
    return Guard(app, backend.settings.api, seen)


async def _page() -> Response:
    """The dashboard."""
    if not PAGE.is_file():
        raise ProblemError(404, "this lbd has no dashboard; see /v1/openapi.json")
    return FileResponse(PAGE, headers={"cache-control": "no-cache"})
