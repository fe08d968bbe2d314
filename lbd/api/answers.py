"""Answers on the wire: JSON by msgspec, which a large cluster needs, and without numbers that JSON has no word for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping


def json_bytes(found: object) -> bytes:
    """What was found; a NumPy number is a number, NaN and infinity are null."""
    return msgspec.json.encode(found, enc_hook=_number)


def _number(value: Any) -> object:  # noqa: ANN401 - anything that msgspec does not know
    if hasattr(value, "item"):
        plain = value.item()
        return plain if not isinstance(plain, float) or math.isfinite(plain) else None
    raise NotImplementedError(f"{type(value).__name__} has no JSON")


def answer(found: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that nobody may keep: it is out of date with the next turn."""
    return answer_with(json_bytes(found), status, headers)


def answer_with(content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The same of JSON that has been made before."""
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, media_type="application/json")
