"""The topic of leadership, as the admin API makes and shows it, and a service address that nobody serves."""

from __future__ import annotations

import json
import time
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


@pytest.mark.parametrize(
    ("publishers", "leader"), [([], None), ([{"producerName": "lbd-host-1", "accessMode": "Exclusive"}], "lbd-host-1")]
)
def test_who_leads_is_who_writes(broker: responses.RequestsMock, publishers: list[dict[str, str]], leader: str | None):
    """By the name it gave."""
    broker.get(f"{AT}/stats", json={"msgRateIn": 0.0, "publishers": publishers})
    assert topic().leader() == leader


def test_a_service_address_that_nobody_serves(monkeypatch: pytest.MonkeyPatch):
    """It is told in a line that names the setting, after a while."""
    monkeypatch.setattr(client, "ACKNOWLEDGED_WITHIN_SECONDS", 1.0)
    begun = time.monotonic()
    with pytest.raises(ObserveError, match=r"cannot be read: .*; is pulsar.service_url right"):
        SharedLog(PulsarSettings(service_url="pulsar://127.0.0.1:1"), TOPIC, "me")
    assert time.monotonic() - begun < 60


def test_what_no_client_can_be_made_of(tmp_path: Path):
    """No address, one that is none, and a token that cannot be sent."""
    (tmp_path / "token").write_text("two words")
    with pytest.raises(UsageError, match=r"pulsar.service_url is not set"):
        SharedLog(PulsarSettings(), TOPIC, "me")
    with pytest.raises(ObserveError, match=r"pulsar.service_url nonsense"):
        SharedLog(PulsarSettings(service_url="nonsense"), TOPIC, "me")
    secret = PulsarSettings(service_url="pulsar://127.0.0.1:1", token_file=tmp_path / "token")
    with pytest.raises(UsageError, match=r"secret cannot be sent"):
        SharedLog(secret, TOPIC, "me")


@pytest.mark.parametrize("name", ["lbd-leader", "non-persistent://t/n/x", "persistent://t/n", "persistent://t/n/a b"])
def test_only_a_persistent_topic_will_do(name: str):
    """Its lines have to outlive a broker."""
    with pytest.raises(ValueError, match="topic"):
        LeaderSettings(enabled=True, topic=name)
