"""The topic of leadership, as the admin API makes and shows it, and a service address that nobody serves."""

from __future__ import annotations

import gc
import json
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import responses

from lbd.errors import AdminError, ObserveError, UsageError
from lbd.pulsar import client
from lbd.pulsar.client import SharedLog
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.pulsar.settings import LeaderSettings, PulsarSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BASE = "http://b1:8080"
TOPIC = "persistent://pulsar/system/lbd-leader"
AT = f"{BASE}/admin/v2/persistent/pulsar/system/lbd-leader"


@pytest.fixture
def broker() -> Iterator[responses.RequestsMock]:
    """One broker, which lists itself."""
    with responses.RequestsMock() as found:
        found.get(f"{BASE}/admin/v2/brokers/c", json=["b1:8080"])
        yield found


def topic() -> LeaderTopic:
    """The topic of a cluster of one broker."""
    return LeaderTopic(PulsarSettings(admin_urls=(BASE,), cluster="c"), TOPIC)


@pytest.mark.parametrize("status", [204, 409])
def test_the_topic_is_made_once_and_kept_from_its_first_line(broker: responses.RequestsMock, status: int):
    """409 says that it is there already, as it is for all but the first lbd."""
    broker.put(AT, status=status)
    kept = broker.put(f"{AT}/subscription/lbd-kept", status=status)
    topic().create()

    assert json.loads(kept.calls[0].request.body) == {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


def test_a_namespace_that_is_not_there_is_named(broker: responses.RequestsMock):
    """With what to do about it."""
    broker.put(AT, status=404, json={"reason": "Namespace not found"})
    with pytest.raises(ObserveError, match=r"there is no namespace pulsar/system; create it, or set leader.topic"):
        topic().create()


@pytest.mark.parametrize(("status", "fine"), [(204, True), (409, True), (500, False)])
def test_old_lines_are_let_go_of(status: int, fine: bool):
    """409: there are none, or others are at it."""
    with responses.RequestsMock() as found:
        found.post(f"{AT}/subscription/lbd-kept/expireMessages/60", status=status)
        if fine:
            topic().forget(60)
            return
        with pytest.raises(AdminError):
            topic().forget(60)


def test_who_is_connected_to_write(broker: responses.RequestsMock):
    """With the address and the time that the broker tells of each; what it does not tell is unknown."""
    told = {"producerName": "lbd-h-1-ab12", "address": "/10.0.0.1:4711", "connectedSince": "2026-07-01T10:00:00Z"}
    broker.get(f"{AT}/stats", json={"msgRateIn": 0.0, "publishers": [told, {"producerName": "odd\n"}]})

    assert [str(one) for one in topic().writers()] == [
        "'lbd-h-1-ab12' at /10.0.0.1:4711, connected since 2026-07-01T10:00:00Z",
        "'odd\ufffd' at an unknown address, connected since an unknown time",
    ]


TWO_DAYS = 172_800


@pytest.mark.security("a message TTL or subscription expiration that loses cool-downs of leader.topic: reported")
@pytest.mark.parametrize(
    ("own", "namespace", "default", "problem"),
    [
        (None, None, None, ""),
        (None, 0, 60, ""),
        (0, 60, 60, ""),
        (None, TWO_DAYS, None, ""),
        (TWO_DAYS, 60, None, ""),
        (None, TWO_DAYS - 1, None, "expire after 1 day 23 h"),
        (3600, None, None, "expire after 1 h"),
        (None, None, 7200, "expire after 2 h"),
        (3600, 0, 0, "expire after 1 h"),
    ],
)
def test_lines_that_expire_too_early(
    broker: responses.RequestsMock, own: int | None, namespace: int | None, default: int | None, problem: str
):
    """The topic's TTL goes before the namespace's, and that before the brokers' default; 0 is never."""
    policies(broker, {"message_ttl_in_seconds": namespace}, {"ttlDurationDefaultInSeconds": default}, own)
    found = topic().early_loss(TWO_DAYS)
    assert problem in found
    assert bool(found) is bool(problem)


@pytest.mark.parametrize(
    ("namespace", "default", "lost"),
    [(None, 0, False), (None, None, False), (0, 60, False), (None, 60, True), (5, 0, True)],
)
def test_a_subscription_that_expires(
    broker: responses.RequestsMock, namespace: int | None, default: int | None, lost: bool
):
    """The one that keeps the lines has no consumer, so its end is only a matter of time."""
    expiry = {"subscription_expiration_time_minutes": namespace}
    policies(broker, expiry, {"subscriptionExpirationTimeMinutes": default}, None)
    assert ("subscription 'lbd-kept'" in topic().early_loss(TWO_DAYS)) is lost


def policies(
    broker: responses.RequestsMock, namespace: dict[str, int | None], runtime: dict[str, int | None], own: int | None
) -> None:
    """What the broker answers of the topic's namespace, of itself, and of the topic."""
    settings = {key: str(value) for key, value in runtime.items() if value is not None}
    broker.get(f"{BASE}/admin/v2/namespaces/pulsar/system", json=namespace)
    broker.get(f"{BASE}/admin/v2/brokers/configuration/runtime", json=settings)
    if own is None:
        broker.get(f"{AT}/messageTTL", status=204)
    else:
        broker.get(f"{AT}/messageTTL", json=own)


@pytest.mark.parametrize("status", [404, 405])
def test_brokers_without_policies_of_topics(broker: responses.RequestsMock, status: int):
    """Then the namespace's holds."""
    broker.get(f"{BASE}/admin/v2/namespaces/pulsar/system", json={"message_ttl_in_seconds": 60})
    broker.get(f"{BASE}/admin/v2/brokers/configuration/runtime", json={})
    broker.get(f"{AT}/messageTTL", status=status, json={"reason": "Topic not found"})
    assert "expire after 60 s" in topic().early_loss(TWO_DAYS)


@pytest.mark.parametrize(
    ("granted", "roles"),
    [({}, []), ({"app": ["consume"], "etl": ["produce", "consume"], "bi": ["produce"]}, ["bi", "etl"])],
)
def test_which_roles_may_write(broker: responses.RequestsMock, granted: dict[str, list[str]], roles: list[str]):
    """Those that were granted to produce."""
    broker.get(f"{BASE}/admin/v2/brokers/configuration/runtime", json={"authorizationEnabled": "true"})
    broker.get(f"{AT}/permissions", json=granted)
    assert topic().producers_allowed() == roles


def test_without_authorization_all_may_write(broker: responses.RequestsMock):
    """Nobody is asked for more."""
    broker.get(f"{BASE}/admin/v2/brokers/configuration/runtime", json={"authorizationEnabled": "false"})
    assert topic().producers_allowed() is None


def test_a_service_address_that_nobody_serves(monkeypatch: pytest.MonkeyPatch):
    """It is told in a line that names the setting, after a while."""
    monkeypatch.setattr(client, "ACKNOWLEDGED_WITHIN_SECONDS", 1.0)
    with pytest.raises(ObserveError, match=r"cannot be read: .*; is pulsar.service_url right"):
        SharedLog(PulsarSettings(service_url="pulsar://127.0.0.1:1"), TOPIC, "me")


def test_a_closed_log_is_gone_at_once(monkeypatch: pytest.MonkeyPatch):
    """Its connection has threads and sockets of its own, and the next one is made a moment later."""
    connection = client.connected(client.library("here"), PulsarSettings(service_url="pulsar://127.0.0.1:1"))
    connection._client.close()
    connection._client = SimpleNamespace(create_reader=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(client, "connected", lambda *_, found=connection: found)
    log, gone = SharedLog(PulsarSettings(), TOPIC, "me"), weakref.ref(connection)
    monkeypatch.undo()
    gc.disable()
    try:
        log.close()
        del log, connection
        assert gone() is None
    finally:
        gc.enable()


def test_what_no_client_can_be_made_of(tmp_path: Path):
    """No address, one that is none, and a token that cannot be sent."""
    (tmp_path / "token").write_text("two words")
    with pytest.raises(UsageError, match=r"pulsar.service_url is not set"):
        SharedLog(PulsarSettings(), TOPIC, "me")
    with pytest.raises(ObserveError, match=r"pulsar.service_url nonsense"):
        SharedLog(PulsarSettings().model_copy(update={"service_url": "nonsense"}), TOPIC, "me")
    secret = PulsarSettings(service_url="pulsar://127.0.0.1:1", token_file=tmp_path / "token")
    with pytest.raises(UsageError, match=r"secret cannot be sent"):
        SharedLog(secret, TOPIC, "me")


@pytest.mark.parametrize("name", ["lbd-leader", "non-persistent://t/n/x", "persistent://t/n", "persistent://t/n/a b"])
def test_only_a_persistent_topic_will_do(name: str):
    """Its lines have to outlive a broker."""
    with pytest.raises(ValueError, match="topic"):
        LeaderSettings(enabled=True, topic=name)
