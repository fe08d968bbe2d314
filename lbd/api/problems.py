"""Errors as RFC 9457 problem details: one JSON shape for all of them, and never a traceback."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lbd.api.shapes import json_bytes
from lbd.errors import AdminError, LbdError, NotLeaderError, ObserveError, RefusedError, UsageError
from lbd.foreign import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.requests import Request

MEDIA_TYPE = "application/problem+json"
STATUS_OF = {AdminError: 502, ObserveError: 503, RefusedError: 409, UsageError: 400}
"""HTTP status of each of lbd's errors; anything else is a bug."""


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": words,
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "required": ["title", "status", "detail"],
                    "properties": {
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                    },
                }
            }
        },
    }
    for status, words in (
        ("4XX", "The request is wrong, is not allowed, or names what is not there."),
        ("5XX", "lbd cannot answer now."),
    )
}
"""For the OpenAPI document."""


class ProblemError(Exception):
    """Problem document that replaces the answer; ``more`` are members of its own."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.more = status, detail, dict(headers or {}), more


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> Response:
    """The answer."""
    body: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json_bytes(body), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error of a route, or of the search for it, with a problem document."""
    app.add_exception_handler(ProblemError, _own)
    app.add_exception_handler(LbdError, _lbd)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _bug)


def _own(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.detail, error.headers, **error.more)


def _lbd(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in STATUS_OF.items() if isinstance(error, kind)), None)
    if status is None:
        return _bug(request, error)
    if isinstance(error, NotLeaderError):
        return problem(status, str(error), leader=error.leader, leader_url=error.leader_url)
    return problem(status, str(error))


def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), error.headers)


def _invalid(_: Request, error: Exception) -> Response:
    """Name the fields and their faults, printable, without the values: one may be a token in the wrong place."""
    assert isinstance(error, RequestValidationError)
    invalid = [{"where": printable(".".join(map(str, fault["loc"]))), "what": fault["msg"]} for fault in error.errors()]
    return problem(422, "; ".join(f"{fault['where']}: {fault['what']}" for fault in invalid), errors=invalid)


def _bug(request: Request, error: Exception) -> Response:
    structlog.get_logger().error(
        "bug in lbd, please report it", failure=repr(error), method=request.method, path=request.url.path
    )
    return problem(500, "a bug in lbd; its log says more")
