"""The OpenAPI document: each answer is described, and has nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tests import fake_pulsar
from tests.api.conftest import serving
from tests.fake_pulsar import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.conftest import Api

TEXT = {"/metrics": "text/plain", "/v1/events": "text/event-stream"}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An lbd that has moved something, so that nothing of what it tells is empty."""
    with fake_pulsar.hot_broker() as pulsar, serving(pulsar, tmp_path_factory.mktemp("busy")) as found:
        pulsar.topic_names = {"persistent://t/n/x"}
        found.turn()
        pulsar.sample(81, 46, 11)
        found.turn()
        assert found.engine.wait(60)
        found.turn()
        yield found


def closed(schema: Any) -> Any:
    """The schema that lets no member pass which it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(one) for name, one in schema.items()}
    if "properties" in found and found.get("type") == "object":
        found["additionalProperties"] = False
    return found


def described(document: dict[str, Any], path: str, method: str = "get") -> dict[str, Any]:
    """The schema of a route's 200."""
    content = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]
    return {**content["schema"], "components": document["components"]}


def test_every_route_is_on_its_page(api: Api):
    """docs/endpoints.md has the method and the path of each, and no other but the dashboard's."""
    page = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text()
    listed = {
        (method, path.partition("?")[0])
        for cells in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for method, paths in re.findall(r"`(GET|POST) (.*)", cells)
        for path in re.findall(r"(/[^`,\s]*)", paths)
    }
    routes = api.get("/v1/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in routes.items() for method in methods} == listed - {("GET", "/")}


def test_every_route_says_what_it_answers(api: Api):
    """With a schema that asks for something; text where it is text."""
    document = api.get("/v1/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, found in methods.items():
            content = found["responses"]["200"]["content"]
            kind = TEXT.get(path, "application/json")
            assert content[kind]["schema"], (method, path)
            assert kind == "application/json" or content[kind]["schema"] == {"type": "string"}
            assert found["responses"]["4XX"]["content"].keys() == {"application/problem+json"}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/healthz", "/healthz"),
        ("/readyz", "/readyz"),
        ("/v1/status", "/v1/status"),
        ("/v1/snapshot", "/v1/snapshot?last=3"),
        ("/v1/history", "/v1/history?range=24h"),
        ("/v1/strategy", "/v1/strategy"),
        ("/v1/decisions", "/v1/decisions"),
        ("/v1/moves", "/v1/moves"),
        ("/v1/explain", "/v1/explain"),
        ("/v1/explain", "/v1/explain?rows=true"),
        ("/v1/explain/{what}", f"/v1/explain/{HOT[0]}"),
        ("/v1/explain/{what}", "/v1/explain/1?rows=true"),
        ("/v1/placement", "/v1/placement?topic=persistent://t/n/x"),
        ("/v1/bundles", "/v1/bundles?topic=persistent://t/n/x"),
        ("/v1/plan", "/v1/plan"),
        ("/v1/drains", "/v1/drains"),
    ],
)
def test_nothing_is_told_that_is_not_described(busy: Api, path: str, asked: str):
    """Of an lbd that has moved bundles: every member is in the document, and all that it names are there."""
    found = busy.get(asked)
    assert found.status_code == 200, found.text
    jsonschema.validate(found.json(), closed(described(busy.get("/v1/openapi.json").json(), path)))


def test_a_broker_is_told_as_it_is_described(busy: Api):
    """And what is changed, too."""
    broker = busy.get("/v1/status").json()["brokers"][0]["id"]
    document = busy.get("/v1/openapi.json").json()
    for path, answer in (
        ("/v1/explain/{what}", busy.get(f"/v1/explain/{broker}")),
        ("/v1/pause", busy.post("/v1/pause", {"owner": "ann", "for_seconds": 60})),
        ("/v1/resume", busy.post("/v1/resume", {"owner": "ann"})),
        ("/v1/release", busy.post("/v1/release", {"owner": "ann", "broker": "b:1"})),
    ):
        method = "get" if "{" in path else "post"
        jsonschema.validate(answer.json(), closed(described(document, path, method)))
