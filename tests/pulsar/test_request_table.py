"""The table of requests: whatever lbd can send is in it, with what it changes and what guards it, and nothing else."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lbd.errors import LbdError
from lbd.pulsar.admin import Admin
from lbd.pulsar.http import Http, Response
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.pulsar.request_table import CLIENT_CALLS, EFFECTS, OTHER, REQUESTS, endpoint
from lbd.pulsar.settings import PulsarSettings

if TYPE_CHECKING:
    from lbd.pulsar.admin import AdminClient
PACKAGE = Path(__file__).parents[2] / "lbd"
TOPIC, BUNDLE, BROKER = "persistent://t/n/a", "t/n/0x00000000_0x80000000", "127.0.0.1:8080"
ARGUMENTS: dict[str, Any] = {
    "algorithm": "range_equally_divide",
    "at": "http://127.0.0.1:8080",
    "authoritative": True,
    "base": "http://127.0.0.1:8080",
    "broker": BROKER,
    "bundle": BUNDLE,
    "destination": BROKER,
    "group": "g",
    "key": "loadBalancerSheddingEnabled",
    "namespace": "t/n",
    "positions": None,
    "retention_seconds": 60,
    "seconds": 60,
    "tenant": "t",
    "value": "false",
}
"""What to call the methods with; a new parameter is to be named here."""

ANSWERS = {
    "/brokers/configuration/runtime": {"authorizationEnabled": "true", "failureDomainsEnabled": "true"},
    "/brokers/c": [BROKER],
    "/clusters": ["c"],
    "/namespaces/t/n": {"message_ttl_in_seconds": 9, "subscription_expiration_time_minutes": 0},
}
"""What else is answered than ``{}``, where a method sends another request after it."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Method and path of each request; none reaches a broker."""
    requests: list[tuple[str, str]] = []

    def send(_: Http, method: str, url: str, **__: object) -> Response:
        path = "/" + url.split("/", 3)[3].partition("?")[0]
        requests.append((method, path))
        answer = next((answer for end, answer in ANSWERS.items() if path.endswith(end)), {})
        return Response(200 if method == "GET" else 204, msgspec.json.encode(answer), url)

    monkeypatch.setattr(Http, "send", send)
    return requests


def call_all(client: AdminClient) -> None:
    """Call every public method and property of a client, those of several ways in each of them."""
    for name, member in inspect.getmembers(type(client)):
        if isinstance(member, property) and not name.startswith("_"):
            with suppress(LbdError):
                getattr(client, name)
        elif inspect.isfunction(member) and not name.startswith("_"):
            parameters = inspect.signature(member).parameters.values()
            own = ARGUMENTS | {"topic": "topic://t/n/a" if name == "segments" else TOPIC}
            needed = [each.name for each in parameters if each.name != "self" and each.default is each.empty]
            with suppress(LbdError):
                member(client, **{each: own[each] for each in needed})


def test_every_request_that_can_be_sent_is_in_the_table(sent: list[tuple[str, str]]):
    """Each method that sends requests is called; the table has those and no others."""
    settings = PulsarSettings(admin_urls=("http://127.0.0.1:8080",))
    call_all(Admin(settings))
    call_all(LeaderTopic(settings, TOPIC))
    Admin(settings).anti_affinity_group("pulsar/c/127.0.0.1:8080")
    assert [path for _, path in sent if endpoint(path) == OTHER] == []
    table = {(row.method, endpoint(f"/admin/v2/{row.path}" if row.path[0] != "/" else row.path)) for row in REQUESTS}
    assert {(method, endpoint(path)) for method, path in sent} == table
    assert [path for _, path in sent if "non-persistent" in path] == []


def test_nothing_else_of_lbd_sends_requests_to_brokers():
    """Only the clients of this package hold the connection, so their methods are all that can be sent."""
    senders = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bhttp\.send\(|\._any\(|\._first\(self\._urls|session\.request\(", path.read_text())
    }
    assert senders == {"pulsar/admin.py", "pulsar/leader_topic.py"}


def test_every_call_of_the_client_library_that_reaches_brokers_is_in_the_table():
    """Readers, producers and consumers are made in one file."""
    made = {
        (str(path.relative_to(PACKAGE)), call)
        for path in PACKAGE.rglob("*.py")
        for call in re.findall(r"_client\.(create_\w+|subscribe\w*|get_\w+)\(", path.read_text())
    }
    assert made == {("pulsar/client.py", row.method) for row in CLIENT_CALLS}


def test_what_changes_something_says_what_and_what_guards_it():
    """A row for a method that writes has an effect, and each effect a guard; what hangs on a setting names it."""
    writing = [row for row in REQUESTS if row.method != "GET"]
    assert [row.path for row in writing if not row.changes] == []
    rows = (*REQUESTS, *CLIENT_CALLS)
    assert [row.path for row in rows if (row.changes or row.more) and not row.guard] == []
    assert {effect for row in rows for effect in row.effects} == set(EFFECTS)
    assert [row.path for row in rows if row.effects and not row.more] == []
