"""Responses of each route in the OpenAPI document: made from their types on the first request."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from fastapi import FastAPI

from lbd.api.shapes import (
    Alive,
    Applied,
    DrainPlan,
    DrainsResponse,
    Paused,
    PlacementResponse,
    Readiness,
    Released,
    Resumed,
    RolloutPlan,
    RolloutResponse,
    ScoreHistory,
    SnapshotResponse,
    Started,
    StrategyResponse,
    TopicBundles,
)
from lbd.load.capacity import CapacityReport
from lbd.split.plan import DueSplitsDocument, SplitDocument
from lbd.store.control import RequestResult
from lbd.store.explain import BrokerAnswer, BundleAnswer, NamespaceAnswer, TurnAnswer
from lbd.store.moves import MoveRecord
from lbd.store.status import StatusResponse
from lbd.store.turn_record import TurnRecord
from lbd.turn.record import PlanDocument


@cache
def as_named(kind: Any) -> Any:  # noqa: ANN401 - a type, as msgspec takes them
    """The type with every field under its name, as :func:`lbd.store.turns.named` tells values."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        fields = [(name, as_named(hints[name])) for name in kind.__struct_fields__]
        return msgspec.defstruct(f"{kind.__name__}Named", fields, namespace={"__doc__": kind.__doc__})
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return reduce(or_, map(as_named, parts))
    return origin[tuple(map(as_named, parts))] if origin in {list, dict} else kind


ABOUT_TURN = (as_named(TurnAnswer), TurnAnswer)
_ABOUT = (BrokerAnswer, BundleAnswer, NamespaceAnswer, TurnAnswer)
ABOUT = (*map(as_named, _ABOUT), *_ABOUT)
"""Answers in words, and as stored (``rows=true``)."""

ANSWERS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("get", "/healthz"): (Alive,),
    ("get", "/readyz"): (Readiness,),
    ("get", "/v1/status"): (StatusResponse,),
    ("get", "/v1/snapshot"): (SnapshotResponse,),
    ("get", "/v1/capacity"): (CapacityReport,),
    ("get", "/v1/history"): (ScoreHistory,),
    ("get", "/v1/strategy"): (StrategyResponse,),
    ("get", "/v1/decisions"): (list[as_named(TurnRecord)],),  # type: ignore[misc]
    ("get", "/v1/moves"): (list[MoveRecord],),
    ("get", "/v1/explain"): ABOUT_TURN,
    ("get", "/v1/explain/{what}"): ABOUT,
    ("get", "/v1/placement"): (PlacementResponse,),
    ("get", "/v1/placement/{tenant}/{namespace}/{bundle}"): (PlacementResponse,),
    ("get", "/v1/bundles"): (TopicBundles,),
    ("get", "/v1/plan"): (PlanDocument,),
    ("get", "/v1/drains"): (DrainsResponse,),
    ("get", "/v1/drain/{broker}"): (DrainPlan,),
    ("get", "/v1/fill/{broker}"): (DrainPlan,),
    ("get", "/v1/rollout"): (RolloutResponse,),
    ("get", "/v1/rollout/plan"): (RolloutPlan,),
    ("get", "/v1/unload/{tenant}/{namespace}/{bundle}"): (RequestResult,),
    ("get", "/v1/split"): (DueSplitsDocument,),
    ("get", "/v1/split/{tenant}/{namespace}/{bundle}"): (SplitDocument,),
    ("post", "/v1/plan/{name}/apply"): (Applied,),
    ("post", "/v1/pause"): (Paused,),
    ("post", "/v1/resume"): (Resumed,),
    ("post", "/v1/unload"): (RequestResult,),
    ("post", "/v1/place"): (RequestResult,),
    ("post", "/v1/split"): (RequestResult,),
    ("post", "/v1/drain"): (Started,),
    ("post", "/v1/fill"): (Started,),
    ("post", "/v1/release"): (Released,),
    ("post", "/v1/rollout"): (RequestResult,),
}
"""By method and path; more than one: it is one of these. What is not here is text."""

PROBES = frozenset({"/healthz", "/readyz"})
"""Answered alike with 503, which says that it is not so."""


class Documented(FastAPI):
    """The application whose document says what is answered with 200."""

    def openapi(self) -> dict[str, Any]:
        """The document."""
        is_described = self.openapi_schema is not None
        document = super().openapi()
        if not is_described:
            _describe(document)
        return document


def _describe(document: dict[str, Any]) -> None:
    kinds = [kind for answers in ANSWERS.values() for kind in answers]
    schemas, shared = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    document.setdefault("components", {}).setdefault("schemas", {}).update(shared)
    remaining = iter(schemas)
    for (method, path), answers in ANSWERS.items():
        alternatives = [next(remaining) for _ in answers]
        schema = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        responses = document["paths"][path][method]["responses"]
        responses["200"]["content"] = {"application/json": {"schema": schema}}
        if path in PROBES:
            responses["503"] = {**responses["200"], "description": "It is not."}
