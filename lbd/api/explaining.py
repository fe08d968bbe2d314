"""``/v1/explain``: why something moved or did not, from what is kept of turns and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from lbd.api.answers import answer
from lbd.api.problems import ProblemError
from lbd.errors import UsageError
from lbd.record.explain import Explainer
from lbd.record.named import named

if TYPE_CHECKING:
    from lbd.api.backend import Backend

A_DAY_SECONDS = 86_400.0
Rows = Annotated[bool, Query(description="rows as arrays, as they are kept, and not by the names of their fields")]
KEPT_SECONDS = 366 * A_DAY_SECONDS


def explaining(backend: Backend) -> APIRouter:
    """The route."""
    router = APIRouter(prefix="/v1", tags=["reading"])

    def told(what: str | None, last: int, since_seconds: float, *, rows: bool) -> Response:
        now = backend.now()
        rest = backend.settings.guardrails.cool_down_minutes * 60
        explainer = Explainer(backend.state_dir, now=now, since=now - since_seconds, last=last, cool_down_seconds=rest)
        try:
            found = explainer.of(what)
            return answer(found if rows else named(found))
        except UsageError as error:
            raise ProblemError(404, str(error)) from error

    @router.get("/explain")
    def explain_last(
        last: Annotated[int, Query(ge=1, le=1000, description="tell of so many moves")] = 5,
        since_seconds: Annotated[float, Query(gt=0, le=KEPT_SECONDS, allow_inf_nan=False)] = A_DAY_SECONDS,
        *,
        rows: Rows = False,
    ) -> Response:
        """The last turn: the JSON of ``lbd explain``."""
        return told(None, last, since_seconds, rows=rows)

    @router.get("/explain/{what:path}")
    def explain(
        what: Annotated[str, Path(max_length=1000, description="a broker, bundle or topic, or a turn by its number")],
        last: Annotated[int, Query(ge=1, le=1000, description="tell of so many moves")] = 5,
        since_seconds: Annotated[float, Query(gt=0, le=KEPT_SECONDS, allow_inf_nan=False)] = A_DAY_SECONDS,
        *,
        rows: Rows = False,
    ) -> Response:
        """Why it moved or did not: the JSON of ``lbd explain WHAT``."""
        return told(what or None, last, since_seconds, rows=rows)

    return router
