"""Putting a bundle that nobody owns on a named broker: what is checked before, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.act.ownership import ActClock
from lbd.act.place import AlreadyOwned, Placer
from lbd.model import Outcome, Result, Skip
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import page, refused
from tests import fake_pulsar
from tests.fake_pulsar import HOT, SILENCE
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.model import Unload
    from tests.fake_pulsar import FakePulsar

BUNDLE = HOT[0]


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers; nobody owns one bundle."""
    with fake_pulsar.hot_broker() as cluster:
        cluster.owners[BUNDLE] = None
        yield cluster


def place(pulsar: FakePulsar, broker: str = "", forbids: Skip | None = None) -> Outcome | Skip:
    """The bundle on a broker, the third unless it is named."""
    wanted = broker or pulsar.ids[2]

    def asked(move: Unload, *, planned: bool) -> Skip | None:
        assert (move.bundle, move.source, move.destination, planned) == (BUNDLE, "", wanted, True)
        return forbids

    settings = PulsarSettings(admin_urls=pulsar.urls, read_timeout_seconds=LIMIT_SECONDS)
    admin = Admin(settings)
    admin.active_brokers()
    return Placer(admin, ActClock(time.monotonic, time.sleep), asked).place(BUNDLE, wanted, "by hand")


def test_it_is_placed_and_proven(pulsar: FakePulsar):
    """One authoritative lookup at the destination; nothing is unloaded."""
    found = place(pulsar)
    assert isinstance(found, Outcome)
    assert (found.result, found.owner, found.unload.reason) == (Result.LANDED, pulsar.ids[2], "by hand")
    assert pulsar.owners[BUNDLE] == pulsar.ids[2]
    assert [one.broker for one in pulsar.asked("/schemas/")] == [pulsar.ids[2]]
    assert pulsar.asked("/unload") == []


def test_what_somebody_owns_by_now_is_left_alone(pulsar: FakePulsar):
    """A client was faster than the answer: no lookup is sent."""
    pulsar.owners[BUNDLE] = pulsar.ids[1]
    found = place(pulsar)
    assert (found, pulsar.asked("/schemas/")) == (
        AlreadyOwned(BUNDLE, Reason.OWNER_CHANGED, f"{pulsar.ids[1]} owns it by now; left alone", pulsar.ids[1]),
        [],
    )


@pytest.mark.parametrize("fault", ["gone", "not ready", "forbidden", "silent"])
def test_what_may_not_be_is_not_asked_for(pulsar: FakePulsar, fault: str):
    """Each check ends in a skip, and nobody owns the bundle after it."""
    third, forbids = pulsar.ids[2], None
    if fault == "gone":
        pulsar.gone.add(third)
    elif fault == "not ready":
        pulsar.fault("/brokers/ready", page(503), broker=third)
    elif fault == "forbidden":
        forbids = Skip(BUNDLE, Reason.ISOLATION_POLICY, "p; not sent")
    else:
        pulsar.fault("topicHashPositions", SILENCE)
    found = place(pulsar, third, forbids)
    assert isinstance(found, Skip)
    assert pulsar.owners[BUNDLE] is None
    assert pulsar.asked("/schemas/") == []


def test_a_lookup_that_fails_is_judged_by_who_owns_the_bundle(pulsar: FakePulsar):
    """Answered with an error after it was done: it is placed all the same."""
    pulsar.fault("/schemas/", refused(500, "later"), then=lambda: pulsar.owners.update({BUNDLE: pulsar.ids[2]}))
    found = place(pulsar)
    assert isinstance(found, Outcome)
    assert found.result is Result.LANDED


def test_nobody_takes_it(pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch):
    """The request was refused: unowned, with what the broker answered."""
    monkeypatch.setattr("lbd.act.place.PROOF_SECONDS", 0.2)
    pulsar.fault("/schemas/", refused(503, "no"))
    found = place(pulsar)
    assert isinstance(found, Outcome)
    assert (found.result, found.owner) == (Result.UNOWNED, None)
    assert found.detail.startswith("the request to take it was answered HTTP 503; nobody owns it")


def test_a_client_that_is_faster_has_it(pulsar: FakePulsar):
    """Elsewhere, and told so."""
    pulsar.fault("/schemas/", refused(500, "later"), then=lambda: pulsar.owners.update({BUNDLE: pulsar.ids[1]}))
    found = place(pulsar)
    assert isinstance(found, Outcome)
    assert (found.result, found.owner) == (Result.ELSEWHERE, pulsar.ids[1])
    assert f"{pulsar.ids[1]} has it, wanted {pulsar.ids[2]}" in found.detail


def test_who_has_it_cannot_be_asked(pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch):
    """Unknown, with what was answered to the request and to the question."""
    monkeypatch.setattr("lbd.act.place.PROOF_SECONDS", 0.2)
    asleep = refused(500, "asleep")
    pulsar.fault("/schemas/", refused(503, "no"), then=lambda: pulsar.fault("topicHashPositions", asleep))
    found = place(pulsar)
    assert isinstance(found, Outcome)
    assert (found.result, found.owner) == (Result.UNKNOWN, None)
    assert found.detail.startswith("the request to take it was answered HTTP 503; ")
    assert "asleep" in found.detail
