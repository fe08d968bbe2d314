"""The admin API: one question at a time, over real HTTP against the fake, wrong answers translated."""

from __future__ import annotations

import gc
import inspect
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import requests
import responses

from lbd.errors import AdminError, ObserveError
from lbd.observe.parse import parse_report
from lbd.pulsar.admin import ASSIGNED, Admin, broker_at, error_reason, unsupported_versions
from lbd.pulsar.http import Response
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import Reply, ok, page, refused, text
from lbd.simulate.fake_cluster import heartbeats
from tests import fake_pulsar
from tests.daemon.test_service import eventually
from tests.pulsar.test_http import requested
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fake_pulsar import FakePulsar

DATA = Path(__file__).parents[1] / "data"
LOWER, UPPER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
SPLIT_AWAY = "t/n/0x00000000_0x40000000"
JAVA_TRACE = (
    "\n --- An unexpected error occurred in the server ---\n\nMessage: boom\n\nStacktrace:\n\njava.lang.X: boom\n"
)


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A cluster of its own for each test: broker 1 owns two bundles, broker 2 leads."""
    with fake_pulsar.started() as cluster:
        cluster.own(cluster.ids[0], {LOWER: 100.0, UPPER: 50.0})
        yield cluster


def admin(pulsar: FakePulsar, **changes: object) -> Admin:
    """The cluster's admin API, asked at its first broker first, with its brokers known."""
    found = Admin(PulsarSettings.model_validate({"admin_urls": pulsar.urls, **changes}))
    found.http.trust(pulsar.ids)
    return found


def _owned_of_first(asked: Admin) -> dict[str, bool]:
    return asked.owned(asked.settings.admin_urls[0].removeprefix("http://"))


class TestProcessCpu:
    def test_a_broker_tells_what_its_process_has_spent(self, pulsar: FakePulsar) -> None:
        """Seconds of CPU, and since its start."""
        first = pulsar.brokers[0]
        first.spent_seconds, first.up_seconds = 12.5, 60.25
        assert admin(pulsar).process_cpu(first.id) == (12.5, 60.25)

    def test_as_a_real_one_does(self, pulsar: FakePulsar) -> None:
        """Beans of 4.2.4."""
        pulsar.fault("/mbeans", ok(json.loads((DATA / "samples" / "mbeans-4.2.4.json").read_text())))
        assert admin(pulsar).process_cpu(pulsar.ids[0]) == (86.12, 231.388)

    @pytest.mark.parametrize(
        "beans",
        [
            [],
            [{"metrics": {"Uptime": 5}, "dimensions": {"MBean": "java.lang:type=Runtime"}}],
            [
                {"metrics": {"Uptime": 5}, "dimensions": {"MBean": "java.lang:type=Runtime"}},
                {"metrics": {"ProcessCpuTime": -1}, "dimensions": {"MBean": "java.lang:type=OperatingSystem"}},
            ],
            [
                {"metrics": {"Uptime": 5}, "dimensions": {"MBean": "java.lang:type=Runtime"}},
                {"metrics": {"ProcessCpuTime": "x"}, "dimensions": {"MBean": "java.lang:type=OperatingSystem"}},
            ],
        ],
        ids=["none", "one", "not supported", "no number"],
    )
    def test_a_jvm_that_does_not_tell(self, beans: list[object], pulsar: FakePulsar) -> None:
        """A line that says what was missing."""
        pulsar.fault("/mbeans", ok(beans))
        with pytest.raises(AdminError, match="no ProcessCpuTime or Uptime among the beans of this JVM"):
            admin(pulsar).process_cpu(pulsar.ids[0])


class TestQuestions:
    def test_the_cluster_is_found_out(self, pulsar: FakePulsar) -> None:
        """Without pulsar.cluster, the broker that answers says to which it belongs; it is asked once."""
        asked = admin(pulsar)
        assert [asked.cluster, asked.cluster] == ["c", "c"]
        assert len(pulsar.requests) == 1

    @pytest.mark.parametrize("names", [["c"], ["c", "global"]])
    def test_the_only_cluster_is_taken(self, names: list[str], pulsar: FakePulsar) -> None:
        """Where a broker's configuration does not tell, the only name in the list does; global is none."""
        pulsar.fault("/configuration/runtime", ok({}))
        pulsar.fault("/v2/clusters", ok(names))
        assert admin(pulsar).cluster == "c"

    @pytest.mark.parametrize("names", [["east", "west"], [], ["global"]])
    def test_a_cluster_that_cannot_be_found_out(self, names: list[str], pulsar: FakePulsar) -> None:
        """The error names the setting and what the brokers know."""
        pulsar.fault("/configuration/runtime", ok({}))
        pulsar.fault("/v2/clusters", ok(names))
        with pytest.raises(ObserveError, match=r"pulsar\.cluster is not set"):
            admin(pulsar).cluster  # noqa: B018 - asking is what fails

    def test_a_configured_cluster_is_not_asked_for(self, pulsar: FakePulsar) -> None:
        """The path has the configured name."""
        assert admin(pulsar, cluster="mine").active_brokers() == sorted(pulsar.ids)
        assert [one.path for one in pulsar.requests] == ["/admin/v2/brokers/mine"]

    def test_one_admin_url_is_enough_to_reach_all_brokers(self, pulsar: FakePulsar) -> None:
        """Which ones there are is asked for before the first request to another one, and that goes to no stranger."""
        asked = Admin(PulsarSettings(admin_urls=(pulsar.urls[0],)))
        assert parse_report(asked.load_report(pulsar.ids[2]).body, "b").broker_version_string == "4.0.8"
        assert len(pulsar.asked("/brokers/c", "GET")) == 2  # the configuration has the name of the cluster
        stranger = Admin(PulsarSettings(admin_urls=(pulsar.urls[0],)))
        with pytest.raises(AdminError, match=r"127\.0\.0\.9:8080 is no broker of this cluster"):
            stranger.load_report("127.0.0.9:8080")

    def test_a_broker_that_left_is_no_longer_trusted(self, pulsar: FakePulsar) -> None:
        """Its address may belong to somebody else tomorrow."""
        asked = Admin(PulsarSettings(admin_urls=(pulsar.urls[0],)))
        asked.active_brokers()
        third = pulsar.ids[2]
        pulsar.gone.add(third)
        asked.active_brokers()
        with pytest.raises(AdminError, match="no broker of this cluster"):
            asked.load_report(third)

    def test_leader(self, pulsar: FakePulsar) -> None:
        """Id and address of who leads; None while nobody does."""
        asked = admin(pulsar)
        found = asked.leader()
        assert found is not None
        assert (found.broker, found.base) == (pulsar.ids[1], pulsar.urls[1])
        pulsar.leader = None
        assert asked.leader() is None

    def test_a_leader_of_an_old_version_has_an_address_only(self, pulsar: FakePulsar) -> None:
        """Before 3.0.3 there is no brokerId."""
        pulsar.fault("leaderBroker", ok({"serviceUrl": "http://127.0.0.2:8080/"}))
        found = admin(pulsar).leader()
        assert found is not None
        assert (found.broker, found.base) == (None, "http://127.0.0.2:8080")

    def test_owned(self, pulsar: FakePulsar) -> None:
        """What a broker owns, its own heartbeat bundles among it; nothing of one that is unknown."""
        asked = admin(pulsar)
        own = dict.fromkeys(heartbeats(fake_pulsar.CLUSTER, pulsar.ids[0]), True)
        assert asked.owned(pulsar.ids[0]) == {**own, LOWER: True, UPPER: True}
        third = pulsar.ids[2]
        pulsar.gone.add(third)
        assert asked.owned(third) == {}

    def test_owner_base(self, pulsar: FakePulsar) -> None:
        """Asked of the owner, of another broker, and of a bundle that nobody owns: nothing is assigned."""
        asked = admin(pulsar)
        pulsar.owners[UPPER] = pulsar.ids[2]
        assert (asked.owner_base(LOWER), asked.owner_base(UPPER)) == (pulsar.urls[0], pulsar.urls[2])
        pulsar.owners[LOWER] = None
        assert asked.owner_base(LOWER) is None
        assert pulsar.owners[LOWER] is None

    def test_ready(self, pulsar: FakePulsar) -> None:
        """A broker is ready when it says so; silence and refusal are a no."""
        asked = admin(pulsar)
        pulsar.fault("/brokers/ready", page(503), broker=pulsar.ids[1])
        pulsar.kill(pulsar.ids[2])
        assert [asked.ready(broker) for broker in pulsar.ids] == [True, False, False]

    def test_version_and_date(self, pulsar: FakePulsar) -> None:
        """The broker that is named tells both, the date by its own clock."""
        pulsar.brokers[1].version = "4.2.4"
        pulsar.faults.on(Switch(Fault.CLOCK_SKEW, pulsar.ids[1], seconds=3600))
        version, date = admin(pulsar).version_and_date(pulsar.ids[1])
        assert version == "4.2.4"
        assert parsedate_to_datetime(str(date)).timestamp() == pytest.approx(time.time() + 3600, abs=5)

    def test_isolation_policies(self, pulsar: FakePulsar) -> None:
        """404 means that there are none."""
        policies = {"p": {"namespaces": ["t/.*"], "primary": ["127.0.0.1"], "secondary": []}}
        assert admin(pulsar).isolation_policies() == {}
        pulsar.policies.isolation = policies
        assert admin(pulsar).isolation_policies() == policies

    def test_segments(self, pulsar: FakePulsar) -> None:
        """In the order of their keys, a migrated topic under its own name; None where there is no such topic."""
        legacy = {
            "segmentId": 7,
            "hashRange": {"start": 0, "end": 9},
            "state": "ACTIVE",
            "legacyTopicName": "persistent://t/n/o",
        }
        metadata = json.loads(fake_pulsar.scalable_topic({2: (0x8000, 0xFFFF), 1: (10, 0x7FFF)}).body)
        pulsar.fault("/scalable/t/n/orders", ok({**metadata, "segments": {**metadata["segments"], "7": legacy}}))
        names = ["persistent://t/n/o", "segment://t/n/orders/000a-7fff-1", "segment://t/n/orders/8000-ffff-2"]
        found = admin(pulsar).segments("topic://t/n/orders") or []
        assert [one.name for one in found if one.is_active] == names
        assert [one.name for one in found if not one.is_active] == ["segment://t/n/orders/0000-ffff-0"]
        assert found[-1].changed_at == 1795656153.482
        assert admin(pulsar).segments("topic://t/n/none") is None

    @pytest.mark.parametrize(
        ("reply", "expected"),
        [
            (Reply(200, b"Rack-a"), "rack-a"),
            (Reply(200, b'"rack-a"'), '"rack-a"'),
            (Reply(200, b"null"), None),
            (Reply(200, b""), None),
            (Reply(204), None),
            (refused(404, "Namespace policies do not exist"), None),
        ],
        ids=["text", "set with quotes", "null", "empty", "204", "404"],
    )
    def test_anti_affinity_group(self, reply: Reply, expected: str | None, pulsar: FakePulsar) -> None:
        """Pulsar sends a text as it is, without quotes; versions differ in how they say that there is none."""
        pulsar.fault("/antiAffinity", reply)
        assert admin(pulsar).anti_affinity_group("t/n") == expected

    def test_unload_reaches_the_owner_with_its_destination_on_the_leader(self, pulsar: FakePulsar) -> None:
        """Asked at a broker that neither leads nor owns: leader, then owner, 204."""
        answer = admin(pulsar).unload(LOWER, pulsar.ids[1], pulsar.urls[2])
        assert (answer.status, answer.base) == (204, pulsar.urls[0])
        assert [one.broker for one in pulsar.asked("/unload")] == [pulsar.ids[2], pulsar.ids[1], pulsar.ids[0]]
        assert pulsar.affinity == {LOWER: pulsar.ids[1]}

    @pytest.mark.parametrize(
        ("bundle", "destination", "status"),
        [
            (LOWER, "127.0.0.9:8080", 409),
            (SPLIT_AWAY, None, 412),
            ("t/other/0x00000000_0xffffffff", None, 404),
        ],
    )
    def test_a_refused_unload_is_an_answer(
        self, bundle: str, destination: str | None, status: int, pulsar: FakePulsar
    ) -> None:
        """Its status is for the caller to judge."""
        answer = admin(pulsar).unload(bundle, destination, pulsar.urls[0])
        assert answer.status == status
        assert pulsar.owners[LOWER] == pulsar.ids[0]

    @pytest.mark.parametrize(("authoritative", "owner"), [(True, 2), (False, 0)])
    def test_assign(self, authoritative: bool, owner: int, pulsar: FakePulsar) -> None:
        """Authoritative: who is asked takes the bundle. Plain: the leader hands it to the destination it remembers."""
        pulsar.owners[LOWER] = None
        pulsar.affinity[LOWER] = pulsar.ids[0]
        asked = admin(pulsar)
        topic = asked.topic_in(LOWER, pulsar.urls[2])
        assert asked.assign(topic, pulsar.urls[2], authoritative=authoritative).status in ASSIGNED
        assert pulsar.owners[LOWER] == pulsar.ids[owner]
        assert pulsar.affinity == ({LOWER: pulsar.ids[0]} if authoritative else {})

    @pytest.mark.parametrize("others", [0, 3], ids=["Pulsar's rule", "another rule"])
    def test_a_topic_is_in_the_bundle_by_the_brokers_own_rule(self, others: int, pulsar: FakePulsar) -> None:
        """The broker is asked for name after name, and nothing is assigned meanwhile."""
        pulsar.owners[LOWER] = None
        pulsar.fault("/bundle", text("0x80000000_0xffffffff"), times=others)
        topic = admin(pulsar).topic_in(LOWER, pulsar.urls[0])
        names = [one.path for one in pulsar.asked("/bundle")]
        assert names[-1] == f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
        assert len(set(names)) == len(names) > others
        assert pulsar.owners[LOWER] is None


class TestDynamicConfiguration:
    KEY = "loadBalancerSheddingEnabled"

    def test_set_read_and_deleted(self, pulsar: FakePulsar) -> None:
        """One override for all brokers; deleting what is not there is no error."""
        asked = admin(pulsar)
        assert asked.dynamic_configuration() == {}
        asked.set_dynamic(self.KEY, "true")
        assert asked.dynamic_configuration() == {self.KEY: "true"}
        assert {asked.runtime_configuration(broker)[self.KEY] for broker in pulsar.ids} == {"true"}
        asked.delete_dynamic(self.KEY)
        asked.delete_dynamic(self.KEY)
        assert asked.dynamic_configuration() == {}

    def test_nonsense_is_stored_as_it_is(self, pulsar: FakePulsar) -> None:
        """Pulsar answers 200 to it, so this does not raise: only the running value tells. Nothing of it is a path."""
        admin(pulsar).set_dynamic(self.KEY, "a b?c")
        assert admin(pulsar).dynamic_configuration() == {self.KEY: "a b?c"}

    @pytest.mark.parametrize(
        ("method", "change"),
        [
            ("POST", lambda asked: asked.set_dynamic("loadBalancerEnabled", "false")),
            ("DELETE", lambda asked: asked.delete_dynamic("loadBalancerEnabled")),
        ],
    )
    def test_a_setting_that_is_not_dynamic(
        self, method: str, change: Callable[[Admin], None], pulsar: FakePulsar
    ) -> None:
        """412 is told with the key and what helps."""
        told = (
            rf"{method} http://.*/loadBalancerEnabled.*: HTTP 412 \(Can't .* non-dynamic .*\).* only from broker\.conf"
        )
        with pytest.raises(AdminError, match=told) as found:
            change(admin(pulsar))
        assert found.value.status == 412

    def test_another_broker_is_asked_when_one_is_dead(self, pulsar: FakePulsar) -> None:
        """The change is the same whoever makes it."""
        asked = admin(pulsar)
        pulsar.kill(pulsar.ids[0])
        asked.set_dynamic(self.KEY, "true")
        asked.delete_dynamic(self.KEY)
        assert [one.broker for one in pulsar.asked(self.KEY)] == [pulsar.ids[1]] * 2

    @pytest.mark.parametrize("status", [401, 404])
    def test_a_change_that_is_refused(self, status: int, pulsar: FakePulsar) -> None:
        """No other broker is asked: it would say the same."""
        pulsar.fault(self.KEY, refused(status, "no"))
        with pytest.raises(AdminError, match=f"HTTP {status}"):
            admin(pulsar).set_dynamic(self.KEY, "true")
        assert len(pulsar.asked(self.KEY)) == 1


class TestFallingOver:
    def test_a_dead_first_address_is_passed_over(self, pulsar: FakePulsar) -> None:
        """The second admin URL answers, and is asked first from then on."""
        asked = admin(pulsar)
        pulsar.kill(pulsar.ids[0])
        asked.active_brokers()
        before = asked.http.sent
        asked.active_brokers()
        assert asked.http.sent - before == 1

    def test_a_broker_that_is_gone_is_forgotten(self, pulsar: FakePulsar) -> None:
        """Those that are asked first, and those of the cluster, are asked again."""
        asked = admin(pulsar)
        asked._failed = dict.fromkeys([pulsar.urls[0], f"http://{pulsar.ids[1]}", "http://gone:8080"], (0.0, "no"))
        asked.active_brokers()
        assert asked._failed.keys() <= {pulsar.urls[0], f"http://{pulsar.ids[1]}"}

    def test_all_dead(self, pulsar: FakePulsar) -> None:
        """Every address is named with what went wrong there."""
        asked = admin(pulsar)
        for broker in list(pulsar.ids):
            pulsar.kill(broker)
        with pytest.raises(AdminError) as caught:
            asked.active_brokers()
        assert all(url in str(caught.value) for url in pulsar.urls)

    def test_a_refusal_is_not_asked_elsewhere(self, pulsar: FakePulsar) -> None:
        """401 is an answer: every broker would give it."""
        pulsar.authorization = "Bearer right"
        with pytest.raises(AdminError, match="401"):
            admin(pulsar).active_brokers()
        assert len(pulsar.requests) == 1


class TestWrongAnswers:
    @pytest.mark.parametrize("token", [None, "wrong"])
    def test_401_says_token(self, token: str | None, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Without or with a wrong token: the setting is named, the token is not."""
        pulsar.authorization = "Bearer right"
        (tmp_path / "token").write_text(token or "", encoding="utf-8")
        settings = {"token_file": tmp_path / "token"} if token else {}
        with pytest.raises(AdminError, match=r"HTTP 401 \(Unauthorized\).*pulsar\.token_file") as caught:
            admin(pulsar, **settings).active_brokers()
        assert caught.value.status == 401
        assert "wrong, or" in str(caught.value)
        assert "Bearer" not in str(caught.value)

    @pytest.mark.parametrize(
        ("reply", "complaint"),
        [
            (Reply(204), r"204.*NoopLoadManager"),
            (
                refused(500, "java.lang.UnsupportedOperationException\n\tat x"),
                "extensible load manager, and others the modular one",
            ),
            (refused(500, JAVA_TRACE), r"HTTP 500 \(Message: boom\)"),
            (refused(503, "starting"), r"HTTP 503 \(starting\)"),
            (Reply(404, fake_pulsar.HTML, content_type="text/html"), "HTTP 404, wanted 200"),
            (Reply(401, fake_pulsar.HTML, content_type="text/html"), "HTTP 401.*token"),
        ],
        ids=["noop", "extensible", "500", "503", "html", "401"],
    )
    def test_load_report(self, reply: Reply, complaint: str, pulsar: FakePulsar) -> None:
        """Each known way not to give a report is told in words that say what to do."""
        pulsar.fault("load-report", reply)
        with pytest.raises(ObserveError, match=complaint):
            admin(pulsar).load_report(pulsar.ids[0])

    @pytest.mark.parametrize("reply", [fake_pulsar.HTML_PAGE, Reply(200, b""), Reply(200, b"\xff\xfe"), Reply(204)])
    def test_no_json(self, reply: Reply, pulsar: FakePulsar) -> None:
        """Something else listens there: its first bytes are shown, or its status."""
        pulsar.fault("/admin/v2/brokers/c", reply)
        with pytest.raises(AdminError, match=r"is this a broker's web address|HTTP 204"):
            admin(pulsar).active_brokers()

    @pytest.mark.parametrize(
        ("path", "ask", "bodies"),
        [
            ("/v2/brokers/c", Admin.active_brokers, [None, 5, "x", {"a": 1}, [1], [["a"]], [None]]),
            ("leaderBroker", Admin.leader, [None, 5, "x", [], {}, {"serviceUrl": None}, {"brokerId": "b:1"}]),
            ("runtime", Admin.runtime_configuration, [None, 5, "x", ["a"], {"a": 1}, {"a": {"b": "c"}}]),
            ("ownedNamespaces", _owned_of_first, [None, 5, "x", ["a"], {"a": 1}, {"a": {"is_active": "yes"}}]),
            ("/v2/clusters", Admin._only_cluster, [None, 5, "x", {"c": 1}, [1]]),
            ("IsolationPolicies", Admin.isolation_policies, [None, 5, "x", ["a"]]),
        ],
        ids=["brokers", "leader", "runtime", "owned", "clusters", "isolation"],
    )
    def test_json_of_another_shape(
        self, path: str, ask: Callable[[Admin], object], bodies: list[object], pulsar: FakePulsar
    ) -> None:
        """A proxy, another service, a version to come: an error of the request, never a bug in lbd."""
        asked = admin(pulsar, cluster="c")
        for body in bodies:
            pulsar.faults.off()
            pulsar.fault(path, ok(body))
            with pytest.raises(AdminError, match="is this a broker's web address") as caught:
                ask(asked)
            assert pulsar.urls[0] in str(caught.value)

    def test_a_configuration_with_a_null_is_readable(self, pulsar: FakePulsar) -> None:
        """A key without a value is as good as absent."""
        pulsar.fault("/configuration/runtime", ok({"a": "1", "b": None}))
        assert admin(pulsar).runtime_configuration() == {"a": "1"}

    def test_half_a_json(self, pulsar: FakePulsar) -> None:
        """A connection that breaks in the middle of a report gives no report."""
        pulsar.fault("load-report", fake_pulsar.HALF_A_JSON)
        with pytest.raises(AdminError):
            admin(pulsar).load_report(pulsar.ids[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"reason": "Namespace not found"}', " (Namespace not found)"),
        (JAVA_TRACE.encode(), ""),
        (refused(500, JAVA_TRACE).body, " (Message: boom)"),
        (refused(500, "x" * 500).body, f" ({'x' * 200})"),
        (fake_pulsar.HTML, ""),
        (b"", ""),
        (b'{"reason": null}', ""),
        (b'{"reason": ""}', ""),
        (b'["reason"]', ""),
        (b"\xff", ""),
    ],
)
def test_reason_of(body: bytes, expected: str) -> None:
    """The first line of Pulsar's reason; nothing for HTML, an empty body, or anything else."""
    assert error_reason(Response(500, body, "http://b1:8080/x")) == expected


def test_closed_it_keeps_no_connection(pulsar: FakePulsar) -> None:
    """Whichever thread asked, and though that one still lives; who asks on is answered."""
    admin, before = Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), set(threading.enumerate())

    def serving() -> int:
        return sum("process_request" in thread.name for thread in set(threading.enumerate()) - before)

    with ThreadPoolExecutor(1) as pool:
        found = [admin.active_brokers(), pool.submit(admin.active_brokers).result()]
        assert serving() == 1
        admin.close()
        eventually(lambda: serving() == 0)
        assert [admin.active_brokers(), pool.submit(admin.active_brokers).result()] == found
    admin.close()


def test_of_a_nested_refusal_nothing_is_built() -> None:
    """Garbage would be collected where the stack is at its end, and a connection in it could not be closed.

    Other threads of the process collect theirs meanwhile.
    """
    collected_by: list[int] = []
    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(lambda *_: collected_by.append(threading.get_ident()))
    gc.set_threshold(100)
    try:
        assert error_reason(Response(500, b'{"cpu": ' + b"[" * 100_000, "http://b1:8080/x")) == ""
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()
    assert threading.get_ident() not in collected_by


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("http://b1:8080", "b1:8080"),
        ("https://b2:8443", "b2:8080"),
        ("https://b1:8443", "b1:8080"),
        ("http://b3:8080", None),
        ("http://same:1", "same:1"),
        ("http://same:3", None),
    ],
)
def test_broker_of(base: str, expected: str | None) -> None:
    """By address, else by host where only one broker has it."""
    known = ["b1:8080", "b2:8080", "same:1", "same:2"]
    assert broker_at(base, known, {"b2:8080": "https://b2:8443"}) == expected


class TestTls:
    SECURE = "https://b1:8443"
    REPORT = f"{SECURE}/admin/v2/broker-stats/load-report"
    FIRST: ClassVar = {"webServiceUrl": "http://b1:8080", "webServiceUrlTls": "https://b1:8443"}
    SECOND: ClassVar = {"webServiceUrl": "http://b2:8080", "webServiceUrlTls": "https://b2:8443"}

    def known(self, *urls: str) -> Admin:
        """Its brokers b1 and b2 are listed."""
        found = Admin(PulsarSettings(admin_urls=urls or (self.SECURE,), cluster="c"))
        found.transfers = False
        found._active = ["b1:8080", "b2:8080"]
        found.http.trust(found._active, found._learn)
        return found

    def test_a_broker_is_found_on_its_own_host_with_a_port_of_the_settings(self) -> None:
        """Its id has the plain port. Also behind an address of several brokers it is not asked what it owns."""
        asked = self.known("https://all-brokers.example:8443")
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", json=self.SECOND)
            assert [asked.base("b2:8080"), asked.base("b2:8080")] == ["https://b2:8443"] * 2
            assert len(requested(mock)) == 1

    def test_on_another_port_it_is_found_by_a_redirect(self) -> None:
        """Another broker redirects a request about it, once."""
        asked = self.known()
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", body=requests.ConnectionError("refused"))
            mock.get(self.REPORT, json=self.FIRST)
            owned = f"{self.SECURE}/admin/v2/brokers/c/b2:8080/ownedNamespaces"
            mock.get(owned, status=307, headers={"Location": "https://b2:9443/admin/v2/x"})
            assert [asked.base("b2:8080"), asked.base("b2:8080")] == ["https://b2:9443"] * 2
            assert len(requested(mock)) == 3

    def test_a_broker_without_tls_is_not_spoken_to(self) -> None:
        """A token is not sent in the clear."""
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", body=requests.ConnectionError("refused"))
            mock.get(self.REPORT, json=self.FIRST)
            owned = f"{self.SECURE}/admin/v2/brokers/c/b2:8080/ownedNamespaces"
            mock.get(owned, status=307, headers={"Location": "http://b2:8080/admin/v2/x"})
            with pytest.raises(ObserveError, match="wanted https"):
                self.known().base("b2:8080")

    @pytest.mark.parametrize("url", ["https://pulsar.example", "https://10.0.0.1:8443"])
    def test_a_broker_that_is_an_admin_url_is_not_asked_what_it_owns(self, url: str) -> None:
        """By whatever name: while it takes bundles over that can hang it, and its load report tells as well."""
        port = ":8443" if url.endswith(":8443") else ""
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            for nobody in ("https://dead:8443", "https://b1:8443", f"https://b1{port}"):
                mock.get(f"{nobody}/admin/v2/broker-stats/load-report", status=503)
            mock.get(f"{url}/admin/v2/broker-stats/load-report", json=self.FIRST)
            assert self.known("https://dead:8443", url).base("b1:8080") == self.SECURE

    def test_nor_is_one_that_does_not_tell_who_it_is(self) -> None:
        """It may be that very broker: the other one redirects, and where there is none that is an error."""
        with responses.RequestsMock() as mock:
            mock.get(self.REPORT, status=503)
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", json=self.SECOND)
            owned = "https://b2:8443/admin/v2/brokers/c/b1:8080/ownedNamespaces"
            mock.get(owned, status=307, headers={"Location": "https://b1:8443/admin/v2/x"})
            assert self.known(self.SECURE, "https://b2:8443").base("b1:8080") == self.SECURE
        with responses.RequestsMock() as mock:
            mock.get(self.REPORT, status=503)
            with pytest.raises(
                AdminError, match=r"b1:8080 is reached over https cannot be found out: .*HTTP 503"
            ) as no:
                self.known().base("b1:8080")
        assert no.value.status == 503

    def test_who_answers_is_asked_once_for_all_brokers(self) -> None:
        """A load report may be large."""
        asked = self.known()
        with responses.RequestsMock() as mock:
            mock.get(self.REPORT, json=self.FIRST)
            for broker in ("b2", "b3"):
                mock.get(f"https://{broker}:8443/admin/v2/broker-stats/load-report", status=503)
                owned = f"{self.SECURE}/admin/v2/brokers/c/{broker}:8080/ownedNamespaces"
                mock.get(owned, status=307, headers={"Location": f"https://{broker}:9443/admin/v2/x"})
            bases = [asked.base(f"{broker}:8080") for broker in ("b1", "b2", "b3")]
            assert bases == [self.SECURE, "https://b2:9443", "https://b3:9443"]
            assert len(requested(mock)) == 5

    def test_a_redirect_to_a_broker_whose_address_was_not_needed_yet(self) -> None:
        """An unload goes from the leader to an owner that nobody has asked: its address is found out first."""
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", json=self.SECOND)
            mock.put(f"{self.SECURE}/x", status=307, headers={"Location": "https://b2:8443/x"})
            mock.put("https://b2:8443/x", status=204)
            assert self.known().http.send("PUT", f"{self.SECURE}/x").status == 204

    @pytest.mark.parametrize("other", ["https://b2:9443", "https://b3:8443"])
    def test_a_redirect_to_another_address_than_the_broker_has(self, other: str) -> None:
        """Another port of its host is somebody else; so is a host that is not listed."""
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", json=self.SECOND)
            mock.put(f"{self.SECURE}/x", status=307, headers={"Location": f"{other}/x"})
            with pytest.raises(AdminError, match=r"b\d:\d443 is no broker of this cluster"):
                self.known().http.send("PUT", f"{self.SECURE}/x")
            assert not [call for call in mock.calls if str(call.request.url).startswith(other)]

    def test_an_address_on_another_host_is_not_the_brokers_own(self) -> None:
        """Whoever tells it."""
        asked = self.known()
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/broker-stats/load-report", status=503)
            mock.get(self.REPORT, json=self.FIRST)
            owned = f"{self.SECURE}/admin/v2/brokers/c/b2:8080/ownedNamespaces"
            mock.get(owned, status=307, headers={"Location": "https://evil.example:8443/admin/v2/x"})
            with pytest.raises(AdminError, match=r"evil\.example:8443 is no broker"):
                asked.load_report("b2:8080")

    def test_a_leader_of_an_old_version_that_tells_https(self) -> None:
        """Before 3.0.3 only serviceUrl is, and that is https where TLS ports are open: its load report proves it."""
        asked = Admin(PulsarSettings(admin_urls=("http://b1:8080",), cluster="c"))
        asked._active = ["b1:8080"]
        asked.http.trust(asked._active, asked._learn)
        with responses.RequestsMock() as mock:
            mock.get("http://b1:8080/admin/v2/broker-stats/load-report", json=self.FIRST)
            mock.get(f"{self.SECURE}/admin/v2/brokers/ready", body="ok")
            assert asked.ready_at(self.SECURE)
            assert not asked.ready_at("https://b1:9443")

    def test_under_the_extensible_manager_a_broker_is_known_by_its_host(self) -> None:
        """No load report tells the address: one that answers for the broker at the broker's own host is its own."""
        asked = Admin(PulsarSettings(admin_urls=("https://b2:8443",), cluster="c"))
        asked.http.trust(["b2:8080"])
        with responses.RequestsMock() as mock:
            mock.get("https://b2:8443/admin/v2/brokers/c/b2:8080/ownedNamespaces", json={})
            runtime = {"loadManagerClassName": fake_pulsar.EXTENSIBLE}
            mock.get("https://b2:8443/admin/v2/brokers/configuration/runtime", json=runtime)
            assert asked.base("b2:8080") == "https://b2:8443"


class TestListeners:
    """From 5.0 on a request to the port of an advertised listener is redirected to the same listener of another broker
    (#25851), whose address differs from the broker's id.
    """

    def asked_of(self, url: str, target: str, *, listeners: object, broker: str = "http://b2:8080") -> int:
        """The status of a request to ``url`` that is redirected to ``target``, with what b2 says of its listeners."""
        secure = broker.startswith("https")
        found = Admin(PulsarSettings(admin_urls=(url,), cluster="c"))
        found.transfers = False
        found._active = ["b1:8080", "b2:8080"]
        found._bases = {"b2:8080": broker} if secure else {}
        found.http.trust(found._active, found._learn)
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
            report = {"webServiceUrl": "http://b2:8080", "webServiceUrlTls": None, "advertisedListeners": listeners}
            mock.get(f"{broker}/admin/v2/broker-stats/load-report", json=report)
            mock.put(f"{url}/x", status=307, headers={"Location": f"{target}/x"})
            mock.put(f"{target}/x", status=204)
            return found.http.send("PUT", f"{url}/x").status

    def test_one_on_the_brokers_own_host_is_followed(self) -> None:
        """The broker itself gives the address, over plain HTTP or TLS."""
        plain = {"external": {"brokerServiceUrl": "pulsar://b2:6651", "brokerHttpUrl": "http://b2:8081"}}
        assert self.asked_of("http://b1:8081", "http://b2:8081", listeners=plain) == 204
        tls = {"external": {"brokerHttpsUrl": "https://b2:9443"}}
        secure = "https://b2:8443"
        assert self.asked_of("https://b1:9443", "https://b2:9443", listeners=tls, broker=secure) == 204

    @pytest.mark.parametrize(
        ("target", "listeners"),
        [
            ("http://b2.example:8081", {"external": {"brokerHttpUrl": "http://b2.example:8081"}}),
            ("http://b1:9", {"external": {"brokerHttpUrl": "http://b1:9"}}),
            ("http://b2:8082", {"external": {"brokerHttpUrl": "http://b2:8081"}}),
            ("http://b2:8081", {}),
            ("http://b2:8081", None),
        ],
    )
    @pytest.mark.security("a redirect to an advertised listener on another host, or that no broker gave: gets no token")
    def test_any_other_is_not(self, target: str, listeners: object) -> None:
        """Another host's address is not a broker's own, whoever tells it; the operator can vouch for it."""
        with pytest.raises(AdminError, match=r"is no broker of this cluster.*name it in pulsar\.admin_urls"):
            self.asked_of("http://b1.example:8081", target, listeners=listeners)

    def test_one_that_the_operator_named_is_followed(self) -> None:
        """With each broker's listener in ``admin_urls``, on whatever host."""
        urls = "http://b1.example:8081", "http://b2.example:8081"
        found = Admin(PulsarSettings(admin_urls=urls, cluster="c"))
        with responses.RequestsMock() as mock:
            mock.get(f"{urls[0]}/x", status=307, headers={"Location": f"{urls[1]}/x"})
            mock.get(f"{urls[1]}/x", body="here")
            assert found.http.send("GET", f"{urls[0]}/x").body == b"here"


class TestUnknownIsNeverNo:
    QUESTIONS: ClassVar[dict[str, tuple[str, Callable[[Admin, str], object], object]]] = {
        "owner": ("topicHashPositions", lambda admin, _: admin.owner_base(LOWER), None),
        "owns": ("topicHashPositions", lambda admin, broker: admin.owns(broker, LOWER), False),
        "topics of a bundle": ("topicHashPositions", lambda admin, broker: admin.topics_in(broker, LOWER), None),
        "owned": ("ownedNamespaces", lambda admin, broker: admin.owned(broker), {}),
        "leader": ("leaderBroker", lambda admin, _: admin.leader(), None),
        "boundaries": ("/bundles", lambda admin, _: admin.boundaries("t/n"), None),
        "isolation": ("IsolationPolicies", lambda admin, _: admin.isolation_policies(), {}),
        "group": ("/antiAffinity", lambda admin, _: admin.anti_affinity_group("t/n"), None),
        "properties": ("/properties", lambda admin, _: admin.namespace_properties("t/n"), {}),
        "clients": ("/stats", lambda admin, broker: admin.connected_since(broker, "persistent://t/n/x"), None),
        "scalable": ("/scalable/", lambda admin, _: admin.scalable_topics("t/n"), []),
        "segments": ("/scalable/", lambda admin, _: admin.segments("topic://t/n/x"), None),
    }
    """Each method to which a 404 is an answer: its request, the call, and what it returns then."""
    SINCE_5: ClassVar[set[str]] = {"scalable", "segments"}

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_a_404_is_a_no_only_with_a_reason(self, question: str, pulsar: FakePulsar) -> None:
        """Pulsar says what there is not. A page comes from a proxy, or from a broker that lacks the endpoint; of what
        came with 5.0 only, such a broker has none.
        """
        part, call, no = self.QUESTIONS[question]
        pulsar.fault(part, refused(404, "There is none"))
        assert call(admin(pulsar), pulsar.ids[0]) == no
        pulsar.faults.off()
        pulsar.fault(part, page(404))
        if question in self.SINCE_5:
            assert call(admin(pulsar), pulsar.ids[0]) == no
            return
        with pytest.raises(AdminError, match=r"GET http://127\.0\.0\.1:.*: HTTP 404, wanted 200"):
            call(admin(pulsar), pulsar.ids[0])

    def test_the_table_has_every_404(self) -> None:
        """A new method that takes a 404 for an answer stands in the table above."""
        methods = {name for name, method in vars(Admin).items() if callable(method) and _takes_404(method)}
        assert methods == {
            *("owner_base", "owns", "topics_in", "owned", "leader", "boundaries", "isolation_policies"),
            *("anti_affinity_group", "namespace_properties", "connected_since", "scalable_topics", "segments"),
            "failure_domains",
        }

    def test_a_broker_that_is_too_old_is_named_with_its_version(self, pulsar: FakePulsar) -> None:
        """It has no topicHashPositions: nobody knows who owns what."""
        pulsar.brokers[0].version = "2.10.4"
        pulsar.fault("topicHashPositions", page(404))
        with pytest.raises(AdminError) as caught:
            admin(pulsar).owner_base(LOWER)
        assert str(caught.value) == unsupported_versions({pulsar.ids[0]: "2.10.4"})

    @pytest.mark.parametrize(
        ("versions", "refusal"),
        [
            ({"a:1": "2.11.0", "b:1": "5.0.1", "c:1": "", "d:1": "unknown"}, ""),
            ({"a:1": "2.11.0", "b:1": "2.10.6"}, "b:1 runs Pulsar 2.10.6; wanted 2.11 or newer: "),
            ({"a:1": "2.9.2", "b:1": "2.8.3.1.0.11"}, "a:1, b:1 run Pulsar 2.8.3.1.0.11, 2.9.2; wanted 2.11 or newer"),
        ],
    )
    def test_versions(self, versions: dict[str, str], refusal: str) -> None:
        """One sentence that names the brokers and what would be right."""
        said = unsupported_versions(versions)
        assert bool(said) == bool(refusal)
        assert said.startswith(refusal)


def _takes_404(method: Callable[..., object]) -> bool:
    source = inspect.getsource(method)
    return (
        "404" in source
        or "OWNERSHIP_STATUSES" in source
        or "self._read_optional" in source
        or "self._read_since_5" in source
    )


class TestAddresses:
    def test_a_leader_with_a_secure_address_is_reached_by_its_id(self, pulsar: FakePulsar) -> None:
        """With TLS ports open, leaderBroker tells https, whoever asks; the id leads to the plain port."""
        second = pulsar.ids[1]
        pulsar.fault("leaderBroker", ok({"serviceUrl": "https://127.0.0.2:8443", "brokerId": second}))
        found = admin(pulsar).leader()
        assert found is not None
        assert (found.broker, found.base) == (second, f"http://{second}")

    def test_another_name_of_the_owner(self, pulsar: FakePulsar) -> None:
        """Asked at an address that is no id, the owner's address is its own all the same."""
        asked = Admin(PulsarSettings(admin_urls=(f"http://localhost:{pulsar.ids[0].rpartition(':')[2]}",)))
        assert asked.owner_base(LOWER) == pulsar.urls[0]

    def test_a_namespace_that_is_gone_has_no_owner(self, pulsar: FakePulsar) -> None:
        """Pulsar's own 404 is as good as 412: nobody owns what is not there."""
        assert admin(pulsar).owner_base("gone/ns/0x00000000_0xffffffff") is None

    def test_an_owner_without_an_address_of_this_kind_is_not_nobody(self, pulsar: FakePulsar) -> None:
        """5.0 answers 412 then, too, in plain text; taken for nobody's, the bundle would be placed once more."""
        words = b"No https URL configured for broker b2:8080 on web service listener `external`"
        pulsar.fault("topicHashPositions", Reply(412, words, content_type="text/plain"))
        with pytest.raises(AdminError, match=f"where the owner of {LOWER} is reached: 'No https URL"):
            admin(pulsar).owner_base(LOWER)

    @pytest.mark.parametrize("status", [500, 502, 503])
    def test_an_address_that_answers_5xx_is_passed_over(self, status: int, pulsar: FakePulsar) -> None:
        """A broker that is ill, or a proxy before a dead one, is no reason to see nothing: the second one is asked."""
        pulsar.fault("/v2/brokers/c", refused(status, "ill"), broker=pulsar.ids[0])
        asked = admin(pulsar, cluster="c")
        assert asked.active_brokers() == sorted(pulsar.ids)
        assert [one.broker for one in pulsar.asked("/v2/brokers/c")] == pulsar.ids[:2]

    @pytest.mark.parametrize(("answers", "wanted"), [((503, 200), []), ((503, 503, 200), [2]), ((429, 200), [2])])
    def test_a_busy_address_is_waited_for_where_no_other_is_left(
        self, answers: tuple[int, ...], wanted: list[float], pauses: list[float]
    ) -> None:
        """Of two, the second is asked at once after a 503, and the last one again; 429 is waited out."""
        asked = Admin(PulsarSettings(admin_urls=("http://b1:8080", "http://b2:8080"), cluster="c"))
        with responses.RequestsMock() as mock:
            for at, status in enumerate(answers):
                base = "http://b2:8080" if at and answers[0] == 503 else "http://b1:8080"
                mock.get(f"{base}/admin/v2/brokers/c", status=status, json=["b1:8080"], headers={"Retry-After": "2"})
            assert asked.active_brokers() == ["b1:8080"]
        assert pauses == wanted

    def test_every_address_answers_5xx(self, pulsar: FakePulsar) -> None:
        """Then each of them is named."""
        pulsar.fault("/v2/brokers/c", refused(503, "ill"))
        with pytest.raises(AdminError, match=r"HTTP 503 \(ill\)") as caught:
            admin(pulsar, cluster="c").active_brokers()
        assert all(url in str(caught.value) for url in pulsar.urls)

    @pytest.mark.parametrize("base", ["http://pulsar-01:8080", "http://PULSAR-01:8080", "https://pulsar-01:8443"])
    def test_capital_letters_in_an_advertised_name(self, base: str) -> None:
        """Names of hosts are compared without regard to case, and told as the cluster writes them."""
        assert broker_at(base, ["PULSAR-01:8080", "PULSAR-02:8080"], {}) == "PULSAR-01:8080"

    def test_brokers_with_capital_letters_are_reached(self, pulsar: FakePulsar) -> None:
        """A list of brokers in capital letters makes their addresses trusted."""
        port = pulsar.ids[0].rpartition(":")[2]
        pulsar.fault("/v2/brokers/c", ok([f"LOCALHOST:{port}"]))
        asked = Admin(PulsarSettings(admin_urls=(pulsar.urls[0],), cluster="c"))
        assert asked.active_brokers() == [f"LOCALHOST:{port}"]
        assert asked.ready(f"LOCALHOST:{port}")
