"""Whatever is sent, lbd has an answer that is in its OpenAPI document, and never a 500."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.conftest import PATIENCE_SECONDS, TOKEN, Api, working

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = 12
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def unlimited() -> Iterator[None]:
    """Brokers may be asked as often as it takes: an answer 429 would try nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lbd.api.guard.PREVIEWS_A_MINUTE", 10_000)
        yield


@pytest.fixture(scope="module")
def shared(unlimited: None, shared_api: Api) -> Iterator[Api]:  # noqa: ARG001 - set up before the server
    """One lbd for all that is sent."""
    with working(shared_api):
        yield shared_api


@pytest.fixture(scope="module")
def document(shared: Api) -> schemathesis.BaseSchema:
    """What lbd says of itself; a stream has no end, and is tried elsewhere."""
    assert shared.serving.url is not None
    return schemathesis.openapi.from_url(f"{shared.serving.url}/v1/openapi.json").exclude(path="/v1/events")


def test_every_answer_is_one_that_is_documented(document: schemathesis.BaseSchema):
    """Of all routes, whatever is asked: the status, the type and the shape."""
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=HEALTH, database=None)
        def asked(case: schemathesis.Case) -> None:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=PATIENCE_SECONDS)

        asked()


NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=20)
PATHS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=60)
KNOWN = st.sampled_from(
    [
        "/v1/explain/",
        "/v1/placement/",
        "/v1/plan/",
        "/v1/pause",
        "/v1/moves?",
        "/static/",
        "/static/../../",
        "/v1/snapshot?",
    ]
)


@pytest.mark.security("any bytes as method, path, head and body of an API request: no bug, no change")
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"]),
    start=st.one_of(st.just("/"), KNOWN),
    path=PATHS,
    headers=st.dictionaries(NAMES.filter(str.isalnum), st.binary(max_size=40), max_size=4),
    body=st.binary(max_size=200),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[*HEALTH, HealthCheck.function_scoped_fixture])
def test_junk_is_no_bug(shared: Api, method: str, start: str, path: str, headers: dict[str, bytes], body: bytes):
    """Headers, paths and bodies of any kind: an answer, and no 500."""
    if start + path.partition("?")[0] == "/v1/events":
        return
    assert _status(shared, method, start + path, headers, body) not in {500, None}


def _status(api: Api, method: str, path: str, headers: dict[str, bytes], body: bytes) -> int | None:
    assert api.serving.url is not None
    connection = http.client.HTTPConnection(urlsplit(api.serving.url).netloc, timeout=PATIENCE_SECONDS)
    clean = {name: bytes(one for one in value if one not in b"\r\n") for name, value in headers.items()}
    framing = {"host", "te", "connection", "upgrade", "expect"}
    try:
        connection.request(
            method,
            path,
            body,
            {"Authorization": f"Bearer {TOKEN}", **{n: v for n, v in clean.items() if n.lower() not in framing}},
        )
        return connection.getresponse().status
    except http.client.BadStatusLine:
        return 400  # it was no HTTP; the connection is closed without a word
    finally:
        connection.close()


def test_it_answers_after_all_of_that(shared: Api):
    """The loop of the server is alive."""
    assert requests.get(f"{shared.serving.url}/healthz", timeout=PATIENCE_SECONDS).status_code == 200
