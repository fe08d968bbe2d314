"""One unload against the fake: whatever the brokers do, it ends in one outcome that is true."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.act.fence import ARRIVES_WITHIN_SECONDS, HEIR_WAITS_SECONDS, SEND_WITHIN_SECONDS, Fence
from lbd.act.ownership import ActClock
from lbd.act.unload import Nudge, ReadyMove, Unloader, judged
from lbd.clock import boot_seconds
from lbd.errors import RefusedError
from lbd.model import Outcome, Result, Skip, Unload
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS, PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import Reply, page, refused, text
from tests import fake_pulsar
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fake_pulsar import FakePulsar

MOVED, OTHER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A cluster of its own for each test: broker 1 owns two bundles, broker 2 leads."""
    with fake_pulsar.started() as cluster:
        cluster.own(cluster.ids[0], {MOVED: 100.0, OTHER: 50.0})
        yield cluster


@dataclass
class Time:
    """A clock that only sleeping advances."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        """Pass without waiting."""
        self.now += seconds

    def clock(self) -> ActClock:
        """As acting knows it."""
        return ActClock(lambda: self.now, self.sleep)


def unloader(pulsar: FakePulsar, nudge: Nudge = "leader", time: Time | None = None) -> Unloader:
    """An unloader of this cluster."""
    settings = PulsarSettings(admin_urls=tuple(pulsar.urls), read_timeout_seconds=LIMIT_SECONDS)
    return Unloader(Admin(settings), (time or Time()).clock(), nudge)


def move(pulsar: FakePulsar, destination: int = 2, bundle: str = MOVED) -> Unload:
    """From broker 1 to the third one, unless said."""
    return Unload(bundle, pulsar.ids[0], pulsar.ids[destination], 200.0, 20_000.0)


def unloaded(mover: Unloader, wanted: Unload) -> Outcome:
    """Checked and sent."""
    ready = mover.check(wanted)
    assert not isinstance(ready, Skip), ready
    return mover.send(ready)


def split(pulsar: FakePulsar) -> None:
    """The bundle becomes two."""
    del pulsar.owners[MOVED]
    pulsar.own(pulsar.ids[0], {"t/n/0x00000000_0x40000000": 50.0, "t/n/0x40000000_0x80000000": 50.0})


def told(outcome: Outcome) -> tuple[Result, str | None, str | None]:
    """What an outcome comes down to: how, where, and what the leader may still have noted."""
    return outcome.result, outcome.owner, outcome.noted


class TestLanding:
    @pytest.mark.parametrize(("nudge", "left"), [("leader", False), ("destination", True)])
    @pytest.mark.parametrize("destination", [1, 2])
    def test_landed(self, nudge: Nudge, left: bool, destination: int, pulsar: FakePulsar) -> None:
        """The destination owns it. The leader's lookup consumes the affinity, the authoritative one leaves it."""
        wanted = pulsar.ids[destination]
        outcome = unloaded(unloader(pulsar, nudge), move(pulsar, destination))
        assert told(outcome) == (Result.LANDED, wanted, wanted if left else None)
        assert pulsar.owners == {MOVED: wanted, OTHER: pulsar.ids[0]}
        assert pulsar.affinity == ({MOVED: wanted} if left else {})

    def test_without_a_nudge_nobody_may_own_it(self, pulsar: FakePulsar) -> None:
        """204 is no proof: where no client comes, nobody owns the bundle, and the leader still holds the affinity."""
        time = Time()
        outcome = unloaded(unloader(pulsar, "none", time), move(pulsar))
        assert told(outcome) == (Result.UNOWNED, None, pulsar.ids[2])
        assert pulsar.affinity == {MOVED: pulsar.ids[2]}
        assert time.now >= 5.0

    def test_a_leaders_lookup_that_fails_is_made_up_for(self, pulsar: FakePulsar) -> None:
        """The destination is then asked itself, and takes the bundle."""
        pulsar.fault("/schemas/", Reply(503), broker=pulsar.ids[1])
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.LANDED, pulsar.ids[2], pulsar.ids[2])

    def test_both_lookups_fail(self, pulsar: FakePulsar) -> None:
        """Nobody owns it at the end, which is said."""
        pulsar.fault("/schemas/", Reply(503))
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.UNOWNED, None, pulsar.ids[2])
        assert "nobody owns it" in outcome.detail

    @pytest.mark.parametrize(("thief", "result"), [(0, Result.FAILED), (1, Result.ELSEWHERE)])
    def test_landed_elsewhere(self, thief: int, result: Result, pulsar: FakePulsar) -> None:
        """A client's lookup was first: who owns it now is said; back on its source it has failed."""
        pulsar.steals[MOVED] = [pulsar.ids[thief]]
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.result, outcome.owner, outcome.confirmed) == (result, pulsar.ids[thief], True)
        assert pulsar.ids[thief] in outcome.detail

    def test_a_204_without_effect_has_failed(self, pulsar: FakePulsar) -> None:
        """The source owns it as before: that is no landing anywhere."""
        pulsar.fault("/unload", Reply(204), broker=pulsar.ids[0])
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.result, outcome.owner) == (Result.FAILED, pulsar.ids[0])
        assert outcome.detail == f"the brokers answered 204, and {pulsar.ids[0]} owns it"

    def test_ownership_in_transit_is_waited_for(self, pulsar: FakePulsar) -> None:
        """A few errors while it changes hands are no outcome."""
        pulsar.fault("/topicHashPositions", refused(500, "bundle is being unloaded"), times=3, after_acting=True)
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.result, outcome.owner) == (Result.LANDED, pulsar.ids[2])

    def test_before_3_0_the_lookup_alone_places(self, pulsar: FakePulsar) -> None:
        """A plain unload, since a destination would be ignored, and the authoritative lookup at the destination."""
        for broker in pulsar.brokers:
            broker.version = "2.11.0"
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.LANDED, pulsar.ids[2], None)
        assert all("destinationBroker" not in one.query for one in pulsar.asked("/unload"))

    def test_another_broker_leads_between_the_check_and_the_request(self, pulsar: FakePulsar) -> None:
        """The one that led sends the request on; destination and lookup reach the new leader."""
        mover = unloader(pulsar)
        ready = mover.check(move(pulsar))
        assert not isinstance(ready, Skip)
        pulsar.leader = pulsar.ids[2]
        outcome = mover.send(ready)
        assert told(outcome) == (Result.LANDED, pulsar.ids[2], None)
        assert (pulsar.affinity, outcome.leader) == ({}, pulsar.ids[1])

    def test_the_leader_dies_between_the_check_and_the_request(self, pulsar: FakePulsar) -> None:
        """Whether the request reached anybody cannot be known; the bundle is where it was in the end."""
        mover = unloader(pulsar)
        ready = mover.check(move(pulsar))
        assert not isinstance(ready, Skip)
        pulsar.kill(pulsar.ids[1])
        outcome = mover.send(ready)
        assert (outcome.result, outcome.owner, outcome.noted) == (Result.FAILED, pulsar.ids[0], pulsar.ids[2])
        assert outcome.detail.startswith("PUT ")

    def test_the_source_dies_before_the_request(self, pulsar: FakePulsar) -> None:
        """Its session still lives, so it is named as owner and cannot be asked; when that ends, clients have it."""
        time = Time()

        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            if time.now > 30 and pulsar.ids[0] == source:
                pulsar.gone.add(source)
                pulsar.owners[MOVED] = leader

        source, leader = pulsar.ids[:2]
        mover = Unloader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls[1:]))), ActClock(lambda: time.now, sleep))
        ready = mover.check(move(pulsar))
        assert not isinstance(ready, Skip)
        pulsar.kill(source)
        outcome = mover.send(ready)
        assert (outcome.result, outcome.owner) == (Result.ELSEWHERE, leader)

    def test_the_time_it_took_is_told(self, pulsar: FakePulsar) -> None:
        """From the last look to the proof."""
        time = Time(now=1000.0)
        outcome = unloaded(unloader(pulsar, "none", time), move(pulsar))
        assert outcome.seconds == time.now - 1000.0


class TestNotSent:
    def refused(self, pulsar: FakePulsar, reason: Reason, words: str) -> None:
        """Refused for this reason, in these words, and no unload was sent."""
        skip = unloader(pulsar).check(move(pulsar))
        assert isinstance(skip, Skip)
        assert (skip.what, skip.reason) == (MOVED, reason)
        assert words in skip.detail
        assert pulsar.asked("/unload") == []

    def test_dead_leader(self, pulsar: FakePulsar) -> None:
        """A dead leader is still named for a session time-out, and every unload would be sent to it."""
        pulsar.kill(pulsar.ids[1])
        self.refused(pulsar, Reason.LEADER_UNREACHABLE, "does not answer")

    def test_no_leader(self, pulsar: FakePulsar) -> None:
        """Without one the destination would be lost."""
        pulsar.leader = None
        self.refused(pulsar, Reason.LEADER_UNREACHABLE, "no broker leads")

    @pytest.mark.parametrize("owner", [1, 2])
    def test_the_source_no_longer_owns_it(self, owner: int, pulsar: FakePulsar) -> None:
        """It moved between the plan and now."""
        pulsar.owners[MOVED] = pulsar.ids[owner]
        self.refused(pulsar, Reason.OWNER_CHANGED, f"{pulsar.ids[owner]} owns it")

    def test_nobody_owns_it(self, pulsar: FakePulsar) -> None:
        """An unload would leave an affinity behind and move nothing."""
        pulsar.owners[MOVED] = None
        self.refused(pulsar, Reason.OWNER_CHANGED, "nobody owns it")

    def test_it_was_split(self, pulsar: FakePulsar) -> None:
        """The range is no bundle any more."""
        rate = pulsar.rates.pop(MOVED)
        del pulsar.owners[MOVED]
        pulsar.own(pulsar.ids[0], {"t/n/0x00000000_0x40000000": rate, "t/n/0x40000000_0x80000000": rate})
        self.refused(pulsar, Reason.OWNER_CHANGED, "nobody owns it")

    def test_the_destination_is_not_active(self, pulsar: FakePulsar) -> None:
        """It left the cluster between the plan and now."""
        wanted = move(pulsar)
        pulsar.gone.add(pulsar.ids[2])
        skip = unloader(pulsar).check(wanted)
        told = f"{wanted.destination} is no longer active; not sent"
        assert skip == Skip(MOVED, Reason.DESTINATION_FORBIDDEN, told)
        assert pulsar.asked("/unload") == []

    def test_the_destination_is_not_ready(self, pulsar: FakePulsar) -> None:
        """It is listed and does not serve."""
        pulsar.fault("/brokers/ready", page(503), broker=pulsar.ids[2])
        self.refused(pulsar, Reason.DESTINATION_FORBIDDEN, "is not ready")

    def test_the_destination_is_dead_and_listed(self, pulsar: FakePulsar) -> None:
        """Killed a moment ago: its session still lives."""
        pulsar.kill(pulsar.ids[2])
        self.refused(pulsar, Reason.DESTINATION_FORBIDDEN, "is not ready")

    @pytest.mark.parametrize("bundle", ["t/n/0x0_0x80000000", "t/n/0x80000000_0x00000000"])
    def test_a_bundle_without_a_topic_for_the_lookup(self, bundle: str, pulsar: FakePulsar) -> None:
        """What could not be looked up after the unload is not unloaded."""
        pulsar.own(pulsar.ids[0], {bundle: 100.0})
        skip = unloader(pulsar).check(move(pulsar, bundle=bundle))
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.NOT_CHECKED
        assert "is no bundle" in skip.detail
        assert pulsar.asked("/unload") == []

    def test_no_destination(self, pulsar: FakePulsar) -> None:
        """A plan that names none is not sent: who takes it could not be proven right."""
        skip = unloader(pulsar).check(Unload(MOVED, pulsar.ids[0], None, 200.0, 20_000.0))
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.DESTINATION_FORBIDDEN
        assert pulsar.requests == []


class TestRefusedByTheBroker:
    @pytest.mark.parametrize(
        ("reply", "words"),
        [
            (
                refused(409, "Not allowed unload namespace bundle to inactive destination broker"),
                "HTTP 409 (Not allowed",
            ),
            (refused(412, f"Cannot find bundle {MOVED} in the bundles list"), "HTTP 412 (Cannot find bundle"),
            (refused(500, "Namespace bundle t/n is not active"), "HTTP 500 (Namespace bundle t/n is not active)"),
            (refused(503, "busy"), "HTTP 503 (busy)"),
            (Reply(503, fake_pulsar.HTML, content_type="text/html"), "HTTP 503"),
            (Reply(401, b""), "HTTP 401"),
            (Reply(200, b"{}"), "HTTP 200"),
        ],
        ids=["409", "412", "500", "503", "503 in HTML", "401", "200"],
    )
    def test_failed(self, reply: Reply, words: str, pulsar: FakePulsar) -> None:
        """Its source still owns it; status, reason and what the leader has noted are told; nothing else is sent."""
        pulsar.fault("/unload", reply, broker=pulsar.ids[0])
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.FAILED, pulsar.ids[0], pulsar.ids[2])
        assert pulsar.affinity == {MOVED: pulsar.ids[2]}
        assert [one.broker for one in pulsar.asked("/unload", "PUT")] == [pulsar.ids[1], pulsar.ids[0]]
        assert outcome.detail.startswith(words)
        assert pulsar.owners[MOVED] == pulsar.ids[0]

    def test_split_while_it_was_asked(self, pulsar: FakePulsar) -> None:
        """412 from its owner, and from then on that range is no bundle: nothing of it is placed by lbd."""
        pulsar.fault("/unload", refused(412, "Cannot find bundle"), broker=pulsar.ids[0], then=lambda: split(pulsar))
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.GONE, None, pulsar.ids[2])
        assert outcome.detail.endswith("the bundle is no more: it was split")
        assert pulsar.asked("/schemas/") == []

    @pytest.mark.parametrize("reply", [Reply(204), refused(500, "boom"), refused(404, "Namespace not found")])
    @pytest.mark.parametrize(
        ("end", "words"),
        [(split, "it was split"), (lambda one: one.owners.clear(), "its namespace was deleted")],
        ids=["split", "deleted"],
    )
    def test_a_bundle_that_is_no_more(
        self, end: Callable[[FakePulsar], None], words: str, reply: Reply, pulsar: FakePulsar
    ) -> None:
        """Whatever the broker answered: no client's lookup will assign it."""
        pulsar.fault("/unload", reply, broker=pulsar.ids[0], then=lambda: end(pulsar))
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert outcome.result is Result.GONE
        assert outcome.detail.endswith(f"the bundle is no more: {words}")

    def test_where_no_broker_tells_the_bundles_it_is_unowned(self, pulsar: FakePulsar) -> None:
        """Nobody owns it is known, that it is gone is not."""
        pulsar.fault("/schemas/", Reply(503))
        pulsar.fault("/bundles", Reply(503))
        assert unloaded(unloader(pulsar), move(pulsar)).result is Result.UNOWNED

    def test_a_circle_of_redirects(self, pulsar: FakePulsar) -> None:
        """Leader and owner send each other the request: judged by who owns it."""
        pulsar.fault("/unload", Reply(307, location=f"{pulsar.urls[1]}{'/x' * 3}/unload"))
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.result, outcome.owner) == (Result.FAILED, pulsar.ids[0])
        assert "still redirected" in outcome.detail

    def test_a_redirect_out_of_the_cluster(self, pulsar: FakePulsar) -> None:
        """Nothing is sent there."""
        pulsar.fault("/unload", Reply(307, location="http://evil.example:8080/unload"))
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.result, outcome.owner) == (Result.FAILED, pulsar.ids[0])
        assert "evil.example:8080 is no broker of this cluster" in outcome.detail


class TestSilence:
    @pytest.mark.parametrize(
        ("acts", "thieves", "result", "owner"),
        [
            (True, [2], Result.LANDED, 2),
            (True, [1], Result.ELSEWHERE, 1),
            (True, [0], Result.FAILED, 0),
            (True, [], Result.LANDED, 2),
            (False, [], Result.FAILED, 0),
        ],
        ids=["landed", "landed elsewhere", "came back", "nobody came", "never acted"],
    )
    def test_judged_by_who_owns_it(
        self, acts: bool, thieves: list[int], result: Result, owner: int, pulsar: FakePulsar
    ) -> None:
        """The connection broke after the request: what happened is asked, not guessed, and no unload is sent again.

        A source that owns it still may be closing its topics, so it is watched as long as that may take; what nobody
        owns is placed where it was meant to go.
        """
        pulsar.steals[MOVED] = [pulsar.ids[thief] for thief in thieves]
        pulsar.fault("/unload", fake_pulsar.SILENCE, broker=pulsar.ids[0], after_acting=acts)
        time = Time()
        outcome = unloaded(unloader(pulsar, time=time), move(pulsar))
        assert (outcome.result, outcome.owner) == (result, pulsar.ids[owner])
        assert (time.now >= 70) == (result is Result.FAILED)
        assert [one.broker for one in pulsar.asked("/unload", "PUT")].count(pulsar.ids[0]) == 1
        assert outcome.detail.startswith("PUT ")

    def test_it_acts_long_after_the_connection_broke(self, pulsar: FakePulsar) -> None:
        """Topics take up to a minute to close: the outcome is the one at the end."""
        time = Time()

        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            if time.now > 50:
                pulsar.owners[MOVED] = pulsar.ids[2]

        pulsar.fault("/unload", fake_pulsar.SILENCE, broker=pulsar.ids[0])
        mover = Unloader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), ActClock(lambda: time.now, sleep))
        outcome = unloaded(mover, move(pulsar))
        assert (outcome.result, outcome.owner) == (Result.LANDED, pulsar.ids[2])

    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_no_answer_in_time(self, pulsar: FakePulsar) -> None:
        """An unload that is carried out and not answered has landed."""
        pulsar.steals[MOVED] = [pulsar.ids[2]]
        pulsar.fault("/unload", Reply(silent=True), broker=pulsar.ids[0], after_acting=True)
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.LANDED, pulsar.ids[2], None)
        assert "no answer in time" in outcome.detail

    def test_nobody_can_be_asked(self, pulsar: FakePulsar) -> None:
        """Every witness fails after the request: UNKNOWN, and said why."""
        pulsar.fault(
            "/unload",
            fake_pulsar.SILENCE,
            broker=pulsar.ids[0],
            then=lambda: pulsar.fault("/topicHashPositions", refused(500, "no")),
        )
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.UNKNOWN, None, pulsar.ids[2])
        assert "HTTP 500 (no)" in outcome.detail

    def test_nothing_can_be_asked_before(self, pulsar: FakePulsar) -> None:
        """No broker answers at all: nothing is sent, and that is said, not raised."""
        settings = PulsarSettings(admin_urls=(pulsar.urls[0],))
        asked, wanted = Unloader(Admin(settings), Time().clock()), move(pulsar)
        for broker in list(pulsar.ids):
            pulsar.kill(broker)
        skip = asked.check(wanted)
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.NOT_CHECKED
        assert "connection refused" in skip.detail
        assert skip.detail.endswith("not sent")


class TestNotes:
    """What a leader may still have noted is told. Only another unload could change it, so lbd sends none for that."""

    @pytest.mark.parametrize("thief", [0, 1, 2])
    def test_one_unload_is_sent_whatever_is_left_noted(self, thief: int, pulsar: FakePulsar) -> None:
        """Of the leader, of the source, or of a third broker that owns the bundle in the end."""
        pulsar.leader = pulsar.ids[1]
        pulsar.steals[MOVED] = [pulsar.ids[thief]]
        outcome = unloaded(unloader(pulsar), move(pulsar, destination=1 if thief != 1 else 2))
        assert outcome.owner == pulsar.owners[MOVED] == pulsar.ids[thief]
        assert (outcome.noted, outcome.older_note) == (pulsar.ids[1 if thief != 1 else 2], True)
        assert [one.broker for one in pulsar.asked("/unload", "PUT")] == [pulsar.ids[1], pulsar.ids[0]]

    def test_a_page_instead_of_an_answer_leaves_what_was_noted_before(self, pulsar: FakePulsar) -> None:
        """The unload did not reach the leader: it has the older destination, and lbd says it may."""
        pulsar.affinity[MOVED] = pulsar.ids[1]
        pulsar.fault("/unload", fake_pulsar.HTML_PAGE)
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.FAILED, pulsar.ids[0], pulsar.ids[2])
        assert (outcome.older_note, pulsar.affinity) == (True, {MOVED: pulsar.ids[1]})

    def test_what_a_lookup_used_up_leaves_nothing_older(self, pulsar: FakePulsar) -> None:
        """The leader has replaced the older destination, and used up the new one."""
        pulsar.affinity[MOVED] = pulsar.ids[1]
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert (outcome.noted, outcome.older_note, pulsar.affinity) == (None, False, {})


NON_PERSISTENT, ASSIGNER = "enableNonPersistentTopics", "topicBundleAssignmentStrategy"


class TestUnusualBrokers:
    """A request that has a bundle assigned does nothing else, whatever settings the brokers have."""

    @pytest.mark.parametrize("nudge", ["leader", "destination"])
    @pytest.mark.parametrize("setting", [NON_PERSISTENT, "allowAutoTopicCreation", "enablePersistentTopics"])
    def test_a_bundle_that_was_moved_can_be_placed_again(self, setting: str, nudge: Nudge, pulsar: FakePulsar) -> None:
        """By its next client, after each release: the leader has learnt nothing of it that is not so."""
        for broker in pulsar.brokers:
            broker.runtime[setting] = "false"
        outcome = unloaded(unloader(pulsar, nudge), move(pulsar))
        assert (outcome.result, pulsar.barred) == (Result.LANDED, {})
        assert [one for one in pulsar.requests if "non-persistent" in one.path] == []
        pulsar.affinity.clear()
        assert pulsar.place(MOVED) in pulsar.ids

    def test_brokers_with_a_rule_of_their_own_are_asked_for_it(self, pulsar: FakePulsar) -> None:
        """The first name that both leader and destination put into the bundle, by whatever rule, serves."""
        for number in (0, 1):
            pulsar.fault("/lookup/", text("0x80000000_0xffffffff"), broker=pulsar.ids[1], times=number)
        assert unloaded(unloader(pulsar), move(pulsar)).result is Result.LANDED

    @pytest.mark.parametrize("broker", [1, 2], ids=["leader", "destination"])
    def test_a_bundle_without_a_topic_by_the_rule_of_a_broker_is_not_unloaded(
        self, broker: int, pulsar: FakePulsar
    ) -> None:
        """No broker could be made to take it; broker and setting are named."""
        pulsar.fault("/lookup/", text("0x80000000_0xffffffff"), broker=pulsar.ids[broker])
        skip = unloader(pulsar).check(move(pulsar))
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.NOT_CHECKED
        assert pulsar.urls[broker] in skip.detail
        assert ASSIGNER in skip.detail
        assert (pulsar.asked("/unload"), pulsar.asked("/schemas/")) == ([], [])


class TestADestinationThatHangs:
    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_what_it_does_not_take_is_given_back_and_it_is_left_alone(self, pulsar: FakePulsar) -> None:
        """Its load reports may come for minutes more, so it is known by the lookup that it did not answer."""
        source, destination = pulsar.ids[0], pulsar.ids[2]
        mover, wanted = unloader(pulsar, "destination"), move(pulsar)
        ready = mover.check(wanted)
        assert not isinstance(ready, Skip)
        pulsar.fault("/schemas", Reply(silent=True), broker=destination)
        outcome = mover.send(ready)
        assert (outcome.result, outcome.owner) == (Result.FAILED, source)
        assert pulsar.owners[MOVED] == source
        again = mover.check(wanted)
        assert isinstance(again, Skip)
        assert (again.reason, "is not ready" in again.detail) == (Reason.DESTINATION_FORBIDDEN, True)

    def test_one_that_has_died_is_not_left_alone_once_it_is_back(self, pulsar: FakePulsar) -> None:
        """It refuses connections: the bundle is given back, and a restarted broker is no silent one."""
        source, destination = pulsar.ids[0], pulsar.ids[2]
        admin = Admin(PulsarSettings(admin_urls=tuple(pulsar.urls), read_timeout_seconds=LIMIT_SECONDS))
        mover = Unloader(admin, Time().clock(), "destination")
        ready = mover.check(move(pulsar))
        assert not isinstance(ready, Skip)
        pulsar.kill(destination)
        outcome = mover.send(ready)
        assert (outcome.result, outcome.owner) == (Result.FAILED, source)
        assert admin.silent_since(destination) is None


class TestWitnesses:
    def test_nobody_is_asked_for_all_that_it_owns(self, pulsar: FakePulsar) -> None:
        """A broker that is asked that while it takes bundles over can hang for good."""
        mover, wanted = unloader(pulsar), move(pulsar)
        ready = mover.check(wanted)
        assert not isinstance(ready, Skip)
        assert mover.send(ready).result is Result.LANDED
        assert pulsar.asked("/topicHashPositions") != []
        assert pulsar.asked("/ownedNamespaces") == []

    def test_an_owner_that_cannot_tell_is_told_with_what_it_answered(self, pulsar: FakePulsar) -> None:
        """That it does not own the bundle is not what it said."""
        pulsar.fault("/topicHashPositions", refused(500, "no"), broker=pulsar.ids[0])
        skip = unloader(pulsar).check(move(pulsar))
        assert isinstance(skip, Skip)
        assert (skip.reason, "HTTP 500 (no)" in skip.detail) == (Reason.NOT_CHECKED, True), skip.detail

    def test_an_owner_that_does_not_own_it_actively_is_none(self, pulsar: FakePulsar) -> None:
        """One broker names another, which does not say so itself: ownership is in transit, and nothing is sent."""
        pulsar.fault("/topicHashPositions", Reply(307, location=f"http://{pulsar.ids[0]}/x"))
        skip = unloader(pulsar).check(move(pulsar))
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.NOT_CHECKED
        assert pulsar.asked("/unload") == []

    def test_the_owner_is_no_active_broker(self, pulsar: FakePulsar) -> None:
        """Its ownership outlives it for a session time-out."""
        pulsar.owners[MOVED] = pulsar.ids[2]
        wanted = move(pulsar, destination=1)
        pulsar.gone.add(pulsar.ids[2])
        skip = unloader(pulsar).check(wanted)
        assert isinstance(skip, Skip)
        assert "none of the active brokers" in skip.detail
        assert pulsar.asked("/unload") == []

    @pytest.mark.parametrize(
        ("owner", "expected"),
        [
            ("b:80", Result.LANDED),
            ("a:80", Result.FAILED),
            ("c:80", Result.ELSEWHERE),
            (None, Result.UNOWNED),
        ],
    )
    def test_judged(self, owner: str | None, expected: Result) -> None:
        """What an unload from a to b came to, seen from who owns the bundle."""
        assert judged(Unload(MOVED, "a:80", "b:80", 1.0, 1.0), owner) is expected


class TestBeforeItWasSent:
    @pytest.mark.parametrize(
        ("part", "reply", "broker"),
        [
            ("/topicHashPositions", refused(500, "no"), None),
            ("leaderBroker", refused(500, "no"), None),
            ("/brokers/version", refused(500, "no"), 1),
            ("/brokers/version", fake_pulsar.SILENCE, 1),
        ],
        ids=["owner", "leader", "version", "version breaks off"],
    )
    def test_an_error_is_no_doubt(self, part: str, reply: Reply, broker: int | None, pulsar: FakePulsar) -> None:
        """Nothing was asked for yet, so nothing can have happened: not sent, and no destination noted."""
        pulsar.fault(part, reply, broker=None if broker is None else pulsar.ids[broker])
        skip = unloader(pulsar).check(move(pulsar))
        assert isinstance(skip, Skip)
        assert skip.reason is Reason.NOT_CHECKED
        assert skip.detail.endswith("not sent")
        assert pulsar.asked("/unload") == []
        assert pulsar.owners[MOVED] == pulsar.ids[0]


class TestAfterARefusal:
    def test_500_although_it_was_unloaded(self, pulsar: FakePulsar) -> None:
        """The broker closed the bundle and failed then: nobody owns it, so it is placed where it was meant to go."""
        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0], after_acting=True)
        outcome = unloaded(unloader(pulsar), move(pulsar))
        assert told(outcome) == (Result.LANDED, pulsar.ids[2], None)
        assert outcome.detail.startswith("HTTP 500 (boom)")

    def test_500_and_it_landed_all_the_same(self, pulsar: FakePulsar) -> None:
        """Who owns it decides, not the status."""
        pulsar.steals[MOVED] = [pulsar.ids[2]]
        pulsar.fault("/unload", refused(500, "boom"), broker=pulsar.ids[0], after_acting=True)
        assert told(unloaded(unloader(pulsar), move(pulsar)))[:2] == (Result.LANDED, pulsar.ids[2])


def test_an_admin_address_that_is_no_id(pulsar: FakePulsar) -> None:
    """Asked by another name, the owner is still told by its id, before and after the move."""
    settings = PulsarSettings(admin_urls=(f"http://localhost:{pulsar.ids[0].rpartition(':')[2]}",))
    outcome = unloaded(Unloader(Admin(settings), Time().clock()), move(pulsar))
    assert told(outcome) == (Result.LANDED, pulsar.ids[2], None)


class TestOnItsWay:
    """A leader that sends the request on late: what was checked before it is looked at again, and a deadline holds."""

    def ready(self, pulsar: FakePulsar, mover: Unloader, **fence: Any) -> ReadyMove:
        """Checked, with this fence."""
        found = mover.check(move(pulsar))
        assert isinstance(found, ReadyMove)
        return replace(found, fence=Fence(**fence))

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda one: one.owners.update({MOVED: one.ids[1]}), "owns it, not"),
            (lambda one: one.gone.add(one.ids[2]), "is no longer active"),
            (lambda one: one.fault("/brokers/ready", page(503), broker=one.ids[2]), "is not ready"),
        ],
        ids=["another owner", "the destination left", "the destination is not ready"],
    )
    def test_what_changed_meanwhile_stops_it(
        self, change: Callable[[FakePulsar], None], words: str, pulsar: FakePulsar
    ) -> None:
        """No broker after the first one is asked."""
        mover, source = unloader(pulsar), pulsar.ids[0]
        ready = self.ready(pulsar, mover)
        self.slowly(pulsar, lambda: change(pulsar))
        outcome = mover.send(ready)
        assert outcome.result is not Result.LANDED
        assert words in outcome.detail
        assert self.reached(pulsar, source) == 0

    @pytest.mark.parametrize("by", ["hold", "leader", "policy", "time"])
    def test_what_came_meanwhile_stops_it(self, by: str, pulsar: FakePulsar) -> None:
        """A pause, another lbd that leads, a policy, and a process or machine that stood still: nothing is unloaded."""
        came, source = threading.Event(), pulsar.ids[0]

        def leads(_: bool) -> None:
            if by == "leader" and came.is_set():
                raise RefusedError("this lbd leads no more")

        def forbids(wanted: Unload, *, planned: bool) -> Skip | None:
            del planned
            kept = by == "policy" and came.is_set() and wanted.destination == pulsar.ids[2]
            return Skip(MOVED, Reason.ISOLATION_POLICY, "reserved for others") if kept else None

        admin = Admin(PulsarSettings(admin_urls=tuple(pulsar.urls)))
        mover = Unloader(admin, Time().clock(), forbids=forbids)
        ready = self.ready(
            pulsar,
            mover,
            leads=leads,
            held=lambda: (Reason.PAUSED, "by ann") if by == "hold" and came.is_set() else None,
            clock=lambda: boot_seconds() + (100 if by == "time" and came.is_set() else 0),
        )
        self.slowly(pulsar, came.set)
        outcome = mover.send(ready)
        wanted = {"hold": "by ann", "leader": "leads no more", "policy": "reserved", "time": "after its checks"}[by]
        assert (outcome.result, outcome.owner) == (Result.FAILED, source)
        assert wanted in outcome.detail
        assert self.reached(pulsar, source) == 0

    @staticmethod
    def slowly(pulsar: FakePulsar, then: Callable[[], object]) -> None:
        """The leader sends an unload on to the source; what happens until then."""
        path = f"{pulsar.urls[0]}/admin/v2/namespaces/{MOVED}/unload"
        pulsar.fault("/unload", Reply(307, location=path), broker=pulsar.leader, then=then, times=1)

    @staticmethod
    def reached(pulsar: FakePulsar, broker: str) -> int:
        """How many unloads came to a broker."""
        return sum(one.broker == broker for one in pulsar.asked("/unload", "PUT"))

    def test_nothing_is_sent_when_the_intent_took_too_long(self, pulsar: FakePulsar) -> None:
        """The deadline runs from the last checks on, by a clock that goes on in a suspended machine."""
        mover = unloader(pulsar)
        found = mover.check(move(pulsar))
        assert isinstance(found, ReadyMove)
        assert found.checked_at is not None
        late = replace(found, checked_at=found.checked_at - SEND_WITHIN_SECONDS - 1)
        outcome = mover.send(late)
        assert told(outcome) == (Result.FAILED, pulsar.ids[0], None)
        assert re.search(r"\b\d+ s after its checks, wanted 15 at most; not sent", outcome.detail)
        assert pulsar.asked("/unload") == []

    def test_an_old_leader_sends_no_longer_than_its_heir_waits(self) -> None:
        """With the time that a request may need to arrive, and whatever the settings are."""
        assert SEND_WITHIN_SECONDS + ARRIVES_WITHIN_SECONDS <= HEIR_WAITS_SECONDS
        assert SEND_WITHIN_SECONDS > ACKNOWLEDGED_WITHIN_SECONDS

    @pytest.mark.parametrize("leads", [True, False])
    def test_what_ends_a_slow_move_needs_a_proof_that_it_still_leads(self, leads: bool, pulsar: FakePulsar) -> None:
        """A source that closed topics for a minute: the bundle is placed only by one that proves it anew."""
        later, asked = [0.0], []

        def proven(again: bool) -> None:
            asked.append(again)
            if again and not leads:
                raise RefusedError("this lbd leads no more")

        mover = unloader(pulsar)
        ready = self.ready(pulsar, mover, clock=lambda: boot_seconds() + later[0], leads=proven)
        slow = {"after_acting": True, "then": lambda: later.__setitem__(0, 60.0)}
        pulsar.fault("/unload", Reply(204), broker=pulsar.ids[0], **slow)
        outcome = mover.send(ready)
        assert True in asked
        assert outcome.result is (Result.LANDED if leads else Result.UNOWNED)
        assert bool(pulsar.asked("/schemas/")) is leads


class TestAPolicyThatComesLate:
    """While a source closes its topics: the bundle is not put where it must not be, and no note leads there."""

    def mover(self, pulsar: FakePulsar, forbidden: list[str], boot: Callable[[], float] = boot_seconds) -> Unloader:
        """One whose policies forbid these brokers."""

        def forbids(wanted: Unload, *, planned: bool) -> Skip | None:
            del planned
            kept = wanted.destination in forbidden
            return Skip(MOVED, Reason.ISOLATION_POLICY, "reserved for others") if kept else None

        admin = Admin(PulsarSettings(admin_urls=tuple(pulsar.urls)))
        return Unloader(admin, replace(Time().clock(), boot=boot), forbids=forbids)

    @pytest.mark.parametrize(
        ("also", "may_stay", "owner", "result"),
        [
            ([], False, 0, Result.FAILED),
            ([0], True, 1, Result.ELSEWHERE),
            ([0], False, None, Result.UNOWNED),
            ([0, 1], True, None, Result.UNOWNED),
        ],
        ids=["back to its source", "to a third", "no third has room", "nobody may have it"],
    )
    def test_it_is_placed_where_it_may_be(
        self, also: list[int], may_stay: bool, owner: int | None, result: Result, pulsar: FakePulsar
    ) -> None:
        """Its source first, then another broker that has room for it."""
        forbidden: list[str] = []
        now = [boot_seconds()]

        def come() -> None:
            now[0] += 3
            forbidden.extend([pulsar.ids[2], *(pulsar.ids[number] for number in also)])

        mover = self.mover(pulsar, forbidden, lambda: now[0])
        ready = mover.check(move(pulsar))
        assert isinstance(ready, ReadyMove)
        pulsar.fault("/unload", Reply(204), broker=pulsar.ids[0], after_acting=True, then=come, times=1)
        outcome = mover.send(replace(ready, may_stay=lambda _: may_stay))
        assert (outcome.result, outcome.owner) == (result, None if owner is None else pulsar.ids[owner])
        assert "reserved for others" in outcome.detail
        assert (outcome.noted, pulsar.affinity) == (None, {})
        assert len(pulsar.asked("/unload", "PUT")) == 2

    @pytest.mark.parametrize("leads", ["the destination", "another broker by now"])
    def test_a_note_that_may_be_left_is_told(self, leads: str, pulsar: FakePulsar) -> None:
        """With who leads by now: one that is the destination would take the bundle, one of before proves nothing."""
        forbidden: list[str] = []
        now = [boot_seconds()]
        destination = 1 if leads == "the destination" else 2

        def come() -> None:
            now[0] += 3
            forbidden.append(pulsar.ids[destination])
            pulsar.leader = pulsar.ids[1 if leads == "the destination" else 0]

        mover = self.mover(pulsar, forbidden, lambda: now[0])
        ready = mover.check(move(pulsar, destination))
        assert isinstance(ready, ReadyMove)
        pulsar.fault("/unload", Reply(204), broker=pulsar.ids[0], after_acting=True, then=come, times=1)
        outcome = mover.send(ready)
        assert told(outcome) == (Result.FAILED, pulsar.ids[0], pulsar.ids[destination])
        assert outcome.leader == pulsar.leader


class TestTheExtensibleManager:
    """Brokers hand bundles over themselves: no lookup helps, and no leader notes anything."""

    @pytest.fixture
    def extensible(self, pulsar: FakePulsar) -> FakePulsar:
        """The same cluster under that manager."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": fake_pulsar.EXTENSIBLE}
        return pulsar

    def test_a_move_lands_and_leaves_nothing_behind(self, extensible: FakePulsar) -> None:
        """The destination is asked for, the owner proves it, and nobody is nudged."""
        outcome = unloaded(unloader(extensible), move(extensible))
        assert (outcome.result, outcome.owner, outcome.noted) == (Result.LANDED, extensible.ids[2], None)
        assert [one.query["destinationBroker"] for one in extensible.asked("unload")] == [extensible.ids[2]] * 2
        assert extensible.asked("schemas") == []

    def test_an_owner_that_lets_go_for_nobody_is_told(self, extensible: FakePulsar) -> None:
        """A lookup would place the bundle anywhere: lbd leaves that to the clients."""
        extensible.fault("unload", Reply(204), then=lambda: extensible.owners.update({MOVED: None}))
        outcome = unloaded(unloader(extensible), move(extensible))
        assert (outcome.result, outcome.noted) == (Result.UNOWNED, None)
        assert extensible.asked("schemas") == []

    def test_a_refusal_leaves_no_note(self, extensible: FakePulsar) -> None:
        """What a broker refused stays where it was, and no other namespace's range is in its way."""
        extensible.fault("unload", refused(500, "cannot be transfer to same broker"))
        outcome = unloaded(unloader(extensible), move(extensible))
        assert (outcome.result, outcome.owner, outcome.noted) == (Result.FAILED, extensible.ids[0], None)

    def test_a_move_found_open_leaves_no_note(self, extensible: FakePulsar) -> None:
        """As a killed process leaves it: landed, and its destination not ready any more."""
        extensible.owners[MOVED] = extensible.ids[2]
        extensible.fault("/brokers/ready", page(503), broker=extensible.ids[2])
        outcome = unloader(extensible).finish(move(extensible, 2), 1.0)
        assert outcome is not None
        assert (outcome.result, outcome.noted) == (Result.LANDED, None)

    def test_nor_does_one_of_which_nothing_can_be_told(self, extensible: FakePulsar) -> None:
        """Nobody answers who owns it until the patience is over: no leader has its destination either."""
        mover = unloader(extensible)
        assert isinstance(mover.check(move(extensible)), ReadyMove)
        extensible.fault("/topicHashPositions", refused(500, "no"))
        outcome = mover.finish(move(extensible), 1e6)
        assert outcome is not None
        assert (outcome.result, outcome.noted, outcome.older_note) == (Result.UNKNOWN, None, False)

    def test_where_nobody_tells_which_manager_it_is_it_may_be_noted(self, pulsar: FakePulsar) -> None:
        """In doubt a note is kept: it goes when it is known to be gone."""
        pulsar.fault("/", refused(500, "no"))
        outcome = unloader(pulsar).finish(move(pulsar), 1e6)
        assert outcome is not None
        assert told(outcome) == (Result.UNKNOWN, None, pulsar.ids[2])
