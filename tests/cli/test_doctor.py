"""``lbd doctor``: a checklist with what was seen, why it matters and what to do; nothing is changed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.model import Outcome, Result, Unload
from lbd.permit.evidence import Sample
from lbd.simulate.answers import Reply, ok, refused
from lbd.store.control import Control, Pause
from lbd.store.journal import Journal
from lbd.store.state import MEMORY, TAKE_OVER, TurnMemory
from lbd.store.status import Status, write_status
from lbd.store.turn_record import BrokerRecord, TurnRecord, Verdict
from lbd.store.turns import Turns
from tests import fake_pulsar
from tests.builders import put_value, state_begun
from tests.fake_pulsar import EXTENSIBLE, MODULAR, SIMPLE, FakePulsar
from tests.silence import LIMIT_SECONDS
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result as Ended

REPORTS = Path(__file__).parents[1] / "data" / "reports"
AVG_SHEDDER = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
SHEDS_WITH, PLACES_WITH = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
KEYS = {"level", "check", "seen", "why", "todo"}
Change = "Callable[[FakePulsar], None]"


def bundles(first: int, namespace: str = "t/n") -> list[str]:
    """Four of sixteen ranges."""
    ends = [(number << 28, min((number + 1) << 28, 0xFFFFFFFF)) for number in range(first, first + 4)]
    return [f"{namespace}/0x{lower:08x}_0x{upper:08x}" for lower, upper in ends]


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers of 4.2.4 with four bundles each and known network cards; the second one leads."""
    with fake_pulsar.started() as cluster:
        for number, (broker, rate) in enumerate(zip(cluster.brokers, (1000.0, 700.0, 400.0), strict=True)):
            cluster.own(broker.id, dict.fromkeys(bundles(4 * number), rate))
            broker.version = "4.2.4"
            usage = {"usage": 1000.0 + number, "limit": 1e6}
            broker.report = {"bandwidthIn": usage, "bandwidthOut": usage}
        cluster.sample(50.0, 45.0, 40.0)
        yield cluster


def run(pulsar: FakePulsar, folder: Path, *words: str, **settings: Any) -> Ended:
    """The command with these settings."""
    values = {
        "pulsar": {"admin_urls": pulsar.urls, "read_timeout_seconds": LIMIT_SECONDS},
        "state_dir": str(folder / "state"),
    }
    config = folder / "lbd.yaml"
    config.write_text(yaml.safe_dump({**values, **settings}))
    return CliRunner().invoke(main, ["doctor", "--config", str(config), *words])


def findings(pulsar: FakePulsar, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    """All findings; each has all keys and is in the words, too, and no request changed anything."""
    words = run(pulsar, folder, **settings)
    found = run(pulsar, folder, "--format", "json", **settings)
    told = json.loads(found.stdout)
    text = " ".join(words.stdout.split())
    levels = [one["level"] for one in told["findings"]]
    counts = {level: levels.count(level) for level in ("problem", "warning", "ok")}
    assert told["summary"] == {**counts, "observed": found.exit_code != 3, "requests": told["summary"]["requests"]}
    assert words.exit_code == found.exit_code in ({3} if found.exit_code == 3 else {4 if counts["problem"] else 0})
    assert {one.method for one in pulsar.requests} <= {"GET"}
    for one in told["findings"]:
        assert one.keys() == KEYS
        assert bool(one["todo"]) == (one["level"] != "ok"), one
        assert f"{one['level']} {one['check']}: " in text
        assert " ".join(one["todo"].split()) in text
    found_here: list[dict[str, Any]] = told["findings"]
    return found_here


def notable(pulsar: FakePulsar, folder: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    """What is not ok, by check, the usual first look at reports that stand still left out."""
    found = findings(pulsar, folder, **settings)
    return {one["check"]: one for one in found if one["level"] != "ok" and "one look cannot tell" not in one["seen"]}


def test_a_healthy_cluster(pulsar: FakePulsar, tmp_path: Path):
    """All is ok but what one look without a running lbd cannot tell; no state directory is made."""
    found = findings(pulsar, tmp_path)
    assert {one["check"] for one in found if one["level"] != "ok"} == ONE_LOOK
    assert {one["check"] for one in found if one["level"] == "ok"} == HEALTHY
    assert not (tmp_path / "state").exists()


ONE_LOOK = {"standing-reports", "slow-brokers", "lbd", "load-model"}
"""What only an lbd that has run can know."""

HEALTHY = {
    *("rights", "leader", "reports", "versions", "verified-versions", "named-destinations", "destination-key"),
    *("load-manager", "in-broker-shedding", "avg-shedder", "distribute-evenly", "auto-split"),
    *("sample-intervals", "unload-timeout", "requests", "live-cpu", "settings", "state-dir"),
    *("dynamic-values", "isolation-policies", "nic-speed", "cpu-source", "clocks", "minimums", "bundle-count"),
    *("large-bundles", "sole-bundles"),
}

UNANSWERED = {
    "brokers/version": {"rights", "versions", "verified-versions", "named-destinations", "destination-key"},
    "configuration/runtime": {
        *("rights", "configuration", "load-manager", "in-broker-shedding", "avg-shedder", "distribute-evenly"),
        *("auto-split", "sample-intervals", "unload-timeout", "requests"),
    },
    "configuration/values": {"rights", "dynamic-values"},
    "broker-stats/load-report": {"rights", "reports"},
    "broker-stats/mbeans": {"rights", "live-cpu"},
    "namespaceIsolationPolicies": {"rights", "isolation-policies"},
    "antiAffinity": {"answers"},
    "brokers/leaderBroker": {"rights", "leader"},
    "admin/v2/brokers/": {"rights", "observation"},
}
"""For each path that the doctor asks, what it cannot call ok where that is not answered."""


@pytest.mark.parametrize("reply", [refused(403, "no"), refused(500, "no"), ok("junk")], ids=["403", "500", "junk"])
@pytest.mark.parametrize("path", UNANSWERED)
def test_what_is_not_answered_is_not_ok(path: str, reply: Reply, pulsar: FakePulsar, tmp_path: Path):
    """By all brokers, or by the last one alone where each is asked; where no round can be had, nothing of it is ok."""
    healthy = findings(pulsar, tmp_path)
    asked = {re.sub(r"/+(\d.*)?$", "", request.path) for request in pulsar.requests}
    assert [one for one in asked if not any(part.strip("/") in one for part in UNANSWERED)] == []
    assert {one["check"] for one in healthy if one["level"] == "ok"} == HEALTHY
    each = len({request.broker for request in pulsar.requests if path in request.path}) == len(pulsar.brokers)
    for broker in (None, pulsar.ids[-1]) if each else (None,):
        pulsar.fault(path, reply, broker=broker)
        found = {one["check"] for one in findings(pulsar, tmp_path) if one["level"] == "ok"}
        pulsar.faults.off()
        assert not found & UNANSWERED[path], broker


@pytest.mark.parametrize(
    ("key", "value", "level"),
    [
        ("enableNonPersistentTopics", "false", "ok"),
        ("topicBundleAssignmentStrategy", "com.example.RoundRobin", "warning"),
    ],
)
@pytest.mark.parametrize("numbers", [(1,), (0, 1, 2)], ids=["one broker", "all"])
def test_a_setting_on_which_harmlessness_hangs(
    numbers: tuple[int, ...], key: str, value: str, level: str, pulsar: FakePulsar, tmp_path: Path
):
    """Named with its value and who has it; what lbd refuses because of it is a warning, what it goes round is not."""
    for number in numbers:
        pulsar.brokers[number].runtime[key] = value
    (found,) = [one for one in findings(pulsar, tmp_path) if one["check"] == "requests"]
    where = "all 3 brokers" if len(numbers) == 3 else pulsar.ids[1]
    assert (found["level"], found["seen"].startswith(f"{key}={value} at {where}: ")) == (level, True)


@pytest.mark.parametrize("seconds", [40, -40])
def test_a_clock_that_is_wrong(seconds: int, pulsar: FakePulsar, tmp_path: Path):
    """By how much is told, to the second of a Date header and the time that a busy broker takes to answer."""
    ahead(seconds)(pulsar)
    found = notable(pulsar, tmp_path)["clocks"]
    told = re.fullmatch(
        rf"not this machine's time at {pulsar.ids[2]} \(([+-]\d+) s\), by the Date of an answer", found["seen"]
    )
    assert found["level"] == "warning"
    assert told is not None, found
    assert int(told[1]) == pytest.approx(seconds, abs=2)


@pytest.mark.parametrize(
    ("version", "settings", "seen"),
    [
        ("4.2.4", {}, None),
        ("4.2.2", {}, "turns never move 1 of 12 bundles, which hold it (guardrails.topic_costs)"),
        (
            "4.2.2",
            {"guardrails": {"topic_costs": {"change-events": 10}}},
            "turns may move it: guardrails.topic_costs, or profile: stock",
        ),
        ("4.2.2", {"profile": "stock"}, "turns may move it: guardrails.topic_costs, or profile: stock"),
    ],
)
def test_readers_of_topic_policies_that_hang(
    version: str, settings: dict[str, Any], seen: str | None, pulsar: FakePulsar, tmp_path: Path
):
    """On an old broker: how many bundles never move for it, or that they may."""
    for broker in pulsar.brokers:
        broker.version = version
        broker.runtime = {"systemTopicEnabled": "true", "topicLevelPoliciesEnabled": "true"}
        broker.runtime |= {"allowAutoTopicCreationType": "partitioned"}
    finding = notable(pulsar, tmp_path, **settings).get("policy-readers")
    assert (finding and finding["seen"]) == seen


@pytest.mark.parametrize(
    ("reply", "level", "seen"),
    [
        (ok({"publishers": [{"producerName": "lbd-host-1-ab12"}]}), "ok", "lbd-host-1-ab12 leads, by persistent://"),
        (ok({"publishers": [{"producerName": "importer", "address": "/10.0.0.9:1"}]}), "problem", "no lbd can lead"),
        (ok({"publishers": []}), "warning", "nobody writes persistent://"),
        (refused(404, "Topic not found"), "warning", "is not there yet"),
        (refused(503, "no owner"), "problem", "HTTP 503 (no owner)"),
    ],
)
def test_who_of_several_lbds_leads(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, level: str, seen: str
):
    """By what the topic's broker says of who writes it."""
    pulsar.fault("/lbd-leader/stats", reply)
    monkeypatch.setenv("LBD_PULSAR__SERVICE_URL", "pulsar://127.0.0.1:6650")
    told = findings(pulsar, tmp_path, leader={"enabled": True})
    found = next(one for one in told if one["check"] == "leading-lbd")

    assert (found["level"], seen in found["seen"]) == (level, True), found


@pytest.mark.parametrize(
    ("path", "reply", "check", "level", "seen"),
    [
        ("namespaces/pulsar/system", ok({"message_ttl_in_seconds": 60}), "leader-topic-kept", "warning", "after 60 s"),
        ("namespaces/pulsar/system", ok({}), "leader-topic-kept", "ok", "for 2 days"),
        ("namespaces/pulsar/system", refused(403, "no"), "leader-topic-kept", "warning", "not checked: "),
        ("nothing", ok({}), "leader-topic-writers", "ok", "every client of the cluster"),
    ],
)
def test_what_the_leader_topic_is_kept_by(
    pulsar: FakePulsar,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    reply: Reply,
    check: str,
    level: str,
    seen: str,
):
    """Message TTL, and who may write it."""
    pulsar.fault("/lbd-leader/stats", ok({"publishers": []}))
    pulsar.fault("/lbd-leader/messageTTL", refused(405, "no policies of topics"))
    pulsar.fault(path, reply)
    monkeypatch.setenv("LBD_PULSAR__SERVICE_URL", "pulsar://127.0.0.1:6650")
    found = next(one for one in findings(pulsar, tmp_path, leader={"enabled": True}) if one["check"] == check)

    assert (found["level"], seen in found["seen"]) == (level, True), found


def test_the_text(pulsar: FakePulsar, tmp_path: Path):
    """The counts first, then problems, and ok in one line each; it fits a terminal."""
    pulsar.leader = None
    pulsar.faults.on(Switch(Fault.CLOCK_SKEW, pulsar.ids[0], seconds=60))
    lines = run(pulsar, tmp_path).stdout.splitlines()
    levels = [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert levels == sorted(levels, key=("problem", "warning", "ok").index)
    assert lines[1].startswith("problem  leader: no broker leads")
    assert lines[2].lstrip().startswith("why: only a leader")
    assert lines[0] == f"1 problem, 5 warnings, {levels.count('ok')} ok; 19 requests, nothing changed."
    assert max(len(line) for line in lines if "state-dir" not in line) <= 100


@pytest.mark.parametrize(
    ("properties", "reply", "level", "seen"),
    [
        ({}, None, "ok", "1 namespace read: none has a property that binds lbd"),
        (
            {"lbd.balance": "low", "lbd.quiet-hours": "22:00-06:00"},
            None,
            "ok",
            "1 namespace read: 0 off, 1 low, 1 with quiet hours",
        ),
        ({"lbd.balance": "of"}, None, "warning", "t/n: namespace property lbd.balance is 'of', wanted off, low or"),
        ({}, refused(403, "no"), "warning", "those of t/n cannot be read: GET "),
    ],
)
def test_properties_of_namespaces(
    pulsar: FakePulsar, tmp_path: Path, properties: dict[str, str], reply: Reply | None, level: str, seen: str
):
    """Where they bind, lbd names those that it does not understand, or cannot read."""
    pulsar.policies.properties = {"t/n": properties}
    if reply is not None:
        pulsar.fault("/properties", reply)
    told = findings(pulsar, tmp_path, guardrails={"namespace_properties": True})
    [found] = [one for one in told if one["check"] == "namespace-properties"]
    assert (found["level"], seen in found["seen"]) == (level, True), found


@pytest.mark.parametrize(
    ("namespaces", "level", "seen"),
    [("t/.*", "ok", "1 known, each with an active broker"), ("t/m", "warning", "p covers no namespace with loaded")],
)
def test_isolation_policies_without_a_namespace(
    pulsar: FakePulsar, tmp_path: Path, namespaces: str, level: str, seen: str
):
    """A misspelt pattern isolates nothing."""
    pulsar.policies.isolation = {"p": {"namespaces": [namespaces], "primary": [r"127\.0\.0\.1"], "secondary": []}}
    [found] = [one for one in findings(pulsar, tmp_path) if one["check"] == "isolation-policies"]
    assert (found["level"], seen in found["seen"]) == (level, True), found


def test_no_namespace_whose_properties_could_be_read(pulsar: FakePulsar, tmp_path: Path):
    """Nothing read is not that nothing binds."""
    pulsar.fault("broker-stats/load-report", refused(500, "no"))
    found = notable(pulsar, tmp_path, guardrails={"namespace_properties": True})
    assert found["namespace-properties"]["seen"] == "not checked: no namespace was read"


@pytest.mark.parametrize("brokers", [2, 3, 6])
def test_requests_are_bounded(brokers: int, tmp_path: Path):
    """Four for each broker, and no more than nine beside."""
    with fake_pulsar.started(brokers) as cluster:
        cluster.own(cluster.ids[0], dict.fromkeys(bundles(0), 1000.0))
        told = json.loads(run(cluster, tmp_path, "--format", "json").stdout)
        assert told["summary"]["requests"] == len(cluster.requests) <= 9 + 4 * brokers


@pytest.mark.parametrize(
    ("reply", "live_cpu", "level", "seen"),
    [
        (None, True, "ok", "3 brokers report the CPU of their process, within "),
        (refused(403, "no"), True, "warning", "HTTP 403 (no)"),
        (ok([]), True, "warning", "no ProcessCpuTime or Uptime"),
        (refused(403, "no"), False, None, ""),
    ],
    ids=["told", "refused", "unknown", "off"],
)
def test_whether_the_cpu_of_now_can_be_had(
    pulsar: FakePulsar, tmp_path: Path, reply: Reply | None, live_cpu: bool, level: str | None, seen: str
):
    """Where it is refused lbd works by reports, later: no problem, but to be known."""
    if reply is not None:
        pulsar.fault("/mbeans", reply)
    told = findings(pulsar, tmp_path, load={"live_cpu": live_cpu})
    found = next((one for one in told if one["check"] == "live-cpu"), {"level": None, "seen": ""})
    assert (found["level"], seen in found["seen"]) == (level, True), found
    assert bool(pulsar.asked("/mbeans")) == live_cpu


def runtime(*brokers: int, **values: str) -> Change:
    """These brokers (all, where none is named) run with this configuration."""

    def change(pulsar: FakePulsar) -> None:
        for at in brokers or range(len(pulsar.brokers)):
            pulsar.brokers[at].runtime = values

    return change


def version(*versions: str) -> Change:
    """The brokers' versions, the last one for the rest."""

    def change(pulsar: FakePulsar) -> None:
        for at, broker in enumerate(pulsar.brokers):
            broker.version = versions[min(at, len(versions) - 1)]

    return change


def both(*changes: Any) -> Change:
    """All of these."""

    def change(pulsar: FakePulsar) -> None:
        for one in changes:
            one(pulsar)

    return change


def reporting(at: int, **fields: Any) -> Change:
    """A broker's report with these fields."""
    return lambda pulsar: pulsar.brokers[at].report.update(fields)


def started_now(pulsar: FakePulsar) -> None:
    """The first broker; now is when the test runs, which may be minutes after the table below was made."""
    reporting(0, startTimestamp=int(time.time() * 1000))(pulsar)


def dynamic(**values: str) -> Change:
    """Overrides as they are stored."""
    return lambda pulsar: pulsar.dynamic.update(values)


def ahead(seconds: float) -> Change:
    """The third broker's clock."""
    return lambda pulsar: pulsar.faults.on(Switch(Fault.CLOCK_SKEW, pulsar.ids[2], seconds=seconds))


def leaderless(pulsar: FakePulsar) -> None:
    pulsar.leader = None


def silent(*brokers: int) -> Change:
    """No load report from these."""

    def change(pulsar: FakePulsar) -> None:
        for at in brokers:
            pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.brokers[at].id)

    return change


def forbidden(part: str, status: int = 401) -> Change:
    """A call for which the role has no right."""
    return lambda pulsar: pulsar.fault(part, refused(status, "no"))


def alone(at: int, points: float) -> Change:
    """A broker with one bundle only, and this CPU."""

    def change(pulsar: FakePulsar) -> None:
        mine = [name for name, owner in pulsar.owners.items() if owner == pulsar.brokers[at].id]
        for name in mine[1:]:
            del pulsar.owners[name]
        pulsar.brokers[at].cpu = points

    return change


def one_large(pulsar: FakePulsar) -> None:
    """A hot broker whose load is one bundle, beside three small ones."""
    pulsar.sample(90.0, 45.0, 40.0)
    pulsar.own(pulsar.brokers[0].id, dict(zip(bundles(0), (9000.0, 10.0, 10.0, 10.0), strict=True)))


def scaled(factor: float) -> Change:
    """The same traffic, times a factor."""
    return lambda pulsar: pulsar.rates.update({name: rate * factor for name, rate in pulsar.rates.items()})


def few_bundles(pulsar: FakePulsar) -> None:
    for name in [*bundles(0)[1:], *bundles(4)[2:], *bundles(8)[2:]]:
        del pulsar.owners[name]


def same_cpu(pulsar: FakePulsar) -> None:
    pulsar.sample(44.01, 44.0, 44.02)


NIC, FAST = {"usage": 0.0, "limit": -1000.0}, {"usage": 1.0, "limit": 1e7}
MANY, FEW = {"minUnloadMessage": "9"}, {"minUnloadMessage": "5"}
HALF = {SHEDS_WITH: AVG_SHEDDER}
FULL = {**HALF, PLACES_WITH: AVG_SHEDDER}
ONCE = {"loadBalancerPlacementStrategy": "leastLoadedServer"}


@pytest.mark.parametrize(
    ("change", "check", "level", "seen"),
    [
        (runtime(1, loadBalancerSheddingEnabled="true"), "in-broker-shedding", "problem", "on at 127.0.0.2:"),
        (runtime(loadBalancerSheddingEnabled="true"), "in-broker-shedding", "problem", "on at all 3 brokers"),
        (leaderless, "leader", "problem", "no broker leads"),
        (silent(1), "reports", "warning", "2 of 3 usable; 127.0.0.2:"),
        (silent(0, 1), "reports", "problem", "lbd wants 2"),
        (reporting(0, cpu={"usage": "NaN", "limit": 100.0}), "reports", "warning", "NaN, negative or absurd"),
        (started_now, "reports", "warning", "started lately"),
        (version("4.2.4", "4.2.4", "5.0.0"), "versions", "warning", "5.0.0 on 127.0.0.3:"),
        (version("2.11.4"), "named-destinations", "warning", "all 3 brokers (2.11.4)"),
        (version("4.0.8"), "destination-key", "warning", "by range at all 3 brokers (4.0.8)"),
        (version("4.2.0"), "destination-key", "warning", "4.2.0"),
        (version("4.1.3"), "destination-key", "warning", "4.1.3"),
        (version("2.11.4"), "cpu-source", "warning", "brokers report the whole host unless it has cgroup v1"),
        (same_cpu, "cpu-source", "warning", "nearly equal (44.0, 44.0, 44.0 points)"),
        (reporting(1, bandwidthIn=NIC, bandwidthOut=NIC), "nic-speed", "warning", "(limit -1000 Kbit/s)"),
        (reporting(1, bandwidthIn=FAST, bandwidthOut=FAST), "nic-speeds", "warning", "from 1 to 10 Gbit/s"),
        (runtime(loadBalancerEnabled="false"), "load-balancer-enabled", "warning", "false at all 3 brokers"),
        (runtime(loadBalancerDistributeBundlesEvenlyEnabled="true"), "distribute-evenly", "warning", "land by count"),
        (both(version("5.0.1"), runtime(**HALF)), "avg-shedder", "warning", "without planned destinations"),
        *[
            (both(version(*versions), runtime(**HALF)), "avg-shedder", "warning", seen)
            for versions, seen in (
                (("4.0.11",), "at its next start it is silently replaced"),
                (("4.2.2",), "at its next start it is silently replaced"),
                (("4.0.12",), "before 5.0 such a broker does not start"),
                (("4.2.3",), "before 5.0 such a broker does not start"),
                (("5.0.1", "4.2.5"), "before 5.0 such a broker does not start"),
                (("5.0.1", "4.2.5", "4.0.8"), "at its next start it is silently replaced"),
            )
        ],
        (version("5.1.0"), "verified-versions", "warning", "all 3 brokers (5.1.0): newer than 5.0.1, the last that"),
        (version("6.0.0-M1", "4.2.5"), "verified-versions", "warning", "redirects, fields of load reports, and where"),
        (version("5.1.0", "4.2.6"), "verified-versions", "warning", "newer than 4.2.5, 5.0.1, the last that was run"),
        (
            both(version("3.0.7"), runtime(**FULL, **ONCE)),
            "avg-shedder",
            "warning",
            "this version checks the wrong key",
        ),
        (runtime(loadBalancerHostUsageCheckIntervalMinutes="5"), "sample-intervals", "warning", "40 min at least"),
        (runtime(statsUpdateFrequencyInSecs="300"), "sample-intervals", "warning", "rates every 5 min"),
        (
            runtime(statsUpdateFrequencyInSecs="often"),
            "sample-intervals",
            "warning",
            "no number as statsUpdateFrequencyInSecs at all 3",
        ),
        (
            runtime(2, namespaceBundleUnloadingTimeoutMs=""),
            "unload-timeout",
            "warning",
            "no number as namespaceBundleUnloadingTimeoutMs",
        ),
        (runtime(namespaceBundleUnloadingTimeoutMs="120000"), "unload-timeout", "warning", "within 2 min"),
        (both(runtime(**MANY), runtime(1, **FEW)), "unequal-brokers", "warning", "minUnloadMessage: 5 at 127.0.0.2:"),
        (
            dynamic(loadBalancerSheddingEnabled="nonsense"),
            "dynamic-values",
            "warning",
            "=nonsense is stored, false runs",
        ),
        (dynamic(**{SHEDS_WITH: "false"}), "dynamic-values", "warning", "from their next start on"),
        (scaled(0.01), "minimums", "warning", "the minimums are 1,000 msg/s and 1.05 MB/s"),
        (few_bundles, "bundle-count", "warning", "5 bundles with traffic on 3 brokers"),
        (alone(0, 90.0), "sole-bundles", "warning", "one bundle alone loads 127.0.0.1:"),
        (one_large, "large-bundles", "warning", "t/n/0x00000000_0x10000000 carries 18,000.0 msg/s at 127.0.0.1:"),
        (lambda pulsar: pulsar.sample(99.0, 95.0, 96.0), "destinations", "problem", "the lowest has 95.0"),
        (forbidden("namespaceIsolationPolicies"), "rights", "problem", "namespaceIsolationPolicies want a superuser"),
        (forbidden("namespaceIsolationPolicies"), "isolation-policies", "problem", "cannot be read"),
        (forbidden("antiAffinity", 403), "rights", "problem", "antiAffinity want a tenant admin"),
        (forbidden("configuration/values"), "dynamic-values", "warning", "could not be read"),
        (
            both(dynamic(minUnloadMessage="5"), forbidden("configuration/runtime", 500)),
            "dynamic-values",
            "warning",
            "1 override of balancing, and no broker's values",
        ),
        (forbidden("configuration/values", 500), "answers", "warning", "HTTP 500 (no)"),
        (forbidden("brokers/version", 500), "versions", "warning", "not checked: no broker answered with its version"),
        (forbidden("brokers/version", 500), "clocks", "warning", "not checked: no answer carried a Date header"),
    ],
)
def test_what_is_wrong_with_the_cluster(
    change: Callable[[FakePulsar], None], check: str, level: str, seen: str, pulsar: FakePulsar, tmp_path: Path
):
    """Each is seen, with its level, and what to do; on the healthy cluster none of them is."""
    change(pulsar)
    found = notable(pulsar, tmp_path)[check]
    assert (found["level"], seen in found["seen"]) == (level, True), found


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (version("3.0.0"), "named-destinations"),
        (version("4.0.10"), "destination-key"),
        (version("4.2.1"), "destination-key"),
        (version("2.11.4"), "destination-key"),
        (version("3.3.6"), "cpu-source"),
        *[(version(one), "verified-versions") for one in ("2.11.0", "3.2.4", "4.0.14", "4.2.6", "5.0.1")],
        (ahead(3), "clocks"),
        (runtime(**FULL), "avg-shedder"),
        (both(version("3.0.8"), runtime(**FULL, **ONCE)), "avg-shedder"),
        (dynamic(loadBalancerSheddingEnabled="False"), "dynamic-values"),
        (runtime(minUnloadMessage="5"), "unequal-brokers"),
        (runtime(loadBalancerAutoBundleSplitEnabled="true"), "auto-split"),
        (alone(2, 40.0), "sole-bundles"),
        (lambda pulsar: pulsar.sample(90.0, 45.0, 40.0), "large-bundles"),
    ],
)
def test_what_is_not_wrong(change: Callable[[FakePulsar], None], check: str, pulsar: FakePulsar, tmp_path: Path):
    """The other side of each line."""
    change(pulsar)
    assert check not in notable(pulsar, tmp_path)


@pytest.mark.parametrize(("own", "level"), [(False, None), (True, "warning")])
def test_brokers_that_split_beside_split_enabled(own: bool, level: str | None, pulsar: FakePulsar, tmp_path: Path):
    """lbd splits nothing then, and the override that would change it is told."""
    runtime(loadBalancerAutoBundleSplitEnabled="true")(pulsar)
    found = notable(pulsar, tmp_path, split={"enabled": own}).get("auto-split", {})
    assert found.get("level") == level
    assert ("so lbd splits none although split.enabled" in found.get("seen", "")) is own


def test_overrides_that_are_no_balancing_are_not_shown(pulsar: FakePulsar, tmp_path: Path):
    """Some dynamic settings of brokers are secrets."""
    pulsar.dynamic = {"brokerClientAuthenticationParameters": "token:abc"}
    assert "abc" not in run(pulsar, tmp_path).output
    assert notable(pulsar, tmp_path).keys() <= ONE_LOOK


@pytest.mark.parametrize("brokers", [["4.0.8-busy"], ["2.11.0"], ["3.3.6-traffic"], ["5.0.0-M1-traffic"]])
def test_real_reports(brokers: list[str], pulsar: FakePulsar, tmp_path: Path):
    """Reports of running brokers: unknown cards from 3.3 on, and a 2.11 that tells its host's CPU."""
    (kind,) = brokers
    for number, broker in enumerate(pulsar.brokers, start=1):
        report = json.loads((REPORTS / f"load-report-{kind}-broker{number}.json").read_text())
        broker.report = {**report, "webServiceUrl": broker.base}
        broker.version = report["brokerVersionString"]
    found = notable(pulsar, tmp_path)
    assert ("nic-speed" in found, "cpu-source" in found) == (kind != "2.11.0", kind == "2.11.0")
    assert ("destination-key" in found) == kind.startswith(("3.3.6", "4.0.8"))
    assert "minimums" in found or kind == "4.0.8-busy"


class TestNoRound:
    """The cluster cannot be observed: exit 3, and all that can be told all the same."""

    def test_without_rights(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Each call that was refused, and the right that it needs."""
        pulsar.authorization = "Bearer other"
        found = notable(pulsar, tmp_path)
        told = "brokers of the cluster, leaderBroker, configuration/runtime, namespaceIsolationPolicies"
        assert found["rights"]["seen"] == f"refused with 401 or 403: {told}, configuration/values want a superuser"
        assert "HTTP 401" in found["observation"]["seen"]
        assert run(pulsar, tmp_path).exit_code == 3

    def test_without_the_right_to_load_reports(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The one call is named; what needs none of it is checked."""
        pulsar.fault("load-report", refused(401, "no"))
        found = notable(pulsar, tmp_path)
        assert found.keys() == {"rights", "observation", "lbd"}
        assert found["rights"]["seen"] == "refused with 401 or 403: load-report want a superuser"

    def test_another_load_manager(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It is named, with the key that mends it."""
        runtime(loadManagerClassName=SIMPLE)(pulsar)
        found = notable(pulsar, tmp_path)
        assert found["load-manager"]["seen"] == "SimpleLoadManagerImpl at all 3 brokers"
        assert MODULAR in found["load-manager"]["todo"]

    def test_the_extensible_load_manager_without_an_address(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its load data come from topics: the setting is named, and how seldom they may come."""
        runtime(loadManagerClassName=EXTENSIBLE)(pulsar)
        found = notable(pulsar, tmp_path)
        assert found["load-data"]["level"] == "problem"
        assert found["load-data"]["seen"] == "pulsar.service_url is not set"
        assert found["load-data-interval"]["seen"].startswith("up to 15 min apart at all 3 brokers")
        assert "loadBalancerReportUpdateMaxIntervalMinutes --value 1" in found["load-data-interval"]["todo"]
        assert "load-manager" not in found

    @pytest.mark.parametrize(("minutes", "often"), [("9" * 5000, False), ("", False), ("01", True), ("0", True)])
    def test_how_often_load_data_come_is_read_off_any_text(
        self, minutes: str, often: bool, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Brokers keep dynamic settings as they were given: a number of thousands of digits, too."""
        runtime(loadManagerClassName=EXTENSIBLE, loadBalancerReportUpdateMaxIntervalMinutes=minutes)(pulsar)
        assert ("load-data-interval" not in notable(pulsar, tmp_path)) is often

    def test_avg_shedder_silently_replaced(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The simple manager's reports are no reports to lbd; the doctor knows the cause by version and keys."""
        both(version("3.3.2"), runtime(**FULL, **ONCE))(pulsar)
        pulsar.fault("load-report", Reply(200, b'{"loadReportType": "LoadReport"}'))
        found = notable(pulsar, tmp_path)
        assert "wanted 'LocalBrokerData'" in found["observation"]["seen"]
        assert found["avg-shedder"]["level"] == "problem"
        assert found["avg-shedder"]["seen"].startswith("all 3 brokers: this version checks the wrong key; silently")
        assert "loadBalancerPlacementStrategy" in found["avg-shedder"]["todo"]

    def test_nobody_answers(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One problem, and no list of what follows from it; settings and state are checked."""
        for broker in pulsar.ids:
            pulsar.kill(broker)
        words = run(pulsar, tmp_path)
        assert words.exit_code == 3
        assert words.stdout.count("problem  ") == 1
        assert "connection refused" in " ".join(words.stdout.split())
        assert "ok       settings: go together" in words.stdout


@pytest.mark.parametrize(
    ("settings", "level", "seen"),
    [
        ({"avg_shedder": {"low_threshold": 120, "high_threshold": 120}}, "problem", "no score passes 100 points"),
        ({"avg_shedder": {"max_unload_percentage": 0}}, "problem", "nothing is ever to be moved"),
        ({"avg_shedder": {"max_unload_percentage": 0.8}}, "warning", "swaps sides"),
        (
            {"strategy": "overload-shedder", "avg_shedder": {"low_threshold": 120, "hit_count_low": 0}},
            "warning",
            "avg_shedder is set, and strategy is overload-shedder",
        ),
        ({"avg_shedder": {"hit_count_low": 1}}, "warning", "hit_count_low=1: one CPU sample"),
        ({"profile": "stock", "avg_shedder": {"hit_count_low": 0}}, "warning", "hit_count_low=0: one CPU sample"),
        ({"avg_shedder": {"hit_count_high": 1}}, "warning", "hit_count_high=1: one CPU sample"),
        ({"avg_shedder": {"low_threshold": 0}}, "warning", "level brokers count as apart"),
        ({"profile": "stock", "avg_shedder": {"low_threshold": 50}}, "warning", "above high_threshold=40"),
        ({"avg_shedder": {"hit_count_low": 2, "hit_count_high": 4}}, "warning", "acts no sooner"),
        ({"guardrails": {"cool_down_minutes": 1}}, "warning", "on its old rates"),
        ({"weights": {"memory": 1}}, "warning", "no score counts heap"),
        ({"restore_on_stop": True}, "warning", "nothing is taken"),
        ({"interval_seconds": 300}, "warning", "8 samples above the threshold take 40 min"),
        ({"guardrails": {"excluded_namespaces": ["t/n", "t/m"]}}, "warning", "excluded_namespaces: t/m names no"),
        ({"guardrails": {"include_namespaces": ["t/*", "x/*"]}}, "warning", "include_namespaces: x/* names no"),
        ({"guardrails": {"canary": {"namespaces": ["t/m"]}}}, "warning", "canary.namespaces: t/m names no"),
        ({"guardrails": {"move_costs": {"t/n": 2, "t/m": "never"}}}, "warning", "move_costs: t/m names no"),
        ({"guardrails": {"quiet_hours": [{"from": "00:00", "to": "24:00"}]}}, "problem", "leave no time of the week"),
        (
            {"guardrails": {"quiet_hours": [{"from": "08:00", "to": "07:00"}, {"from": "06:30", "to": "08:30"}]}},
            "problem",
            "leave no time of the week",
        ),
    ],
)
def test_settings_that_do_not_go_together(
    settings: dict[str, Any], level: str, seen: str, pulsar: FakePulsar, tmp_path: Path
):
    """Each right by itself, with the values and what would be right."""
    found = [one for one in findings(pulsar, tmp_path, **settings) if one["check"] == "settings"]
    assert [one["level"] for one in found if seen in one["seen"]] == [level], found


def test_a_canary(pulsar: FakePulsar, tmp_path: Path):
    """What moves, at what pace, and how to widen it; nothing without one."""
    rails = {"canary": {"namespaces": ["t/n", "u/*"], "max_moves_per_hour": 2}}
    (found,) = [one for one in findings(pulsar, tmp_path, guardrails=rails) if one["check"] == "canary"]
    assert (found["level"], found["seen"]) == ("warning", "only bundles of t/n, u/* move, at most 2 an hour")
    assert found["todo"] == "remove guardrails.canary to widen"
    assert "canary" not in {one["check"] for one in findings(pulsar, tmp_path)}


def test_shedding_that_lbd_takes_over(pulsar: FakePulsar, tmp_path: Path):
    """With ``take-over`` it is lbd's next turn that mends it."""
    runtime(loadBalancerSheddingEnabled="true")(pulsar)
    found = notable(pulsar, tmp_path, in_broker_shedding="take-over")["in-broker-shedding"]
    assert (found["level"], "take-over turns it off" in found["todo"]) == ("warning", True)


def test_a_stored_value_with_a_blank_or_brackets(pulsar: FakePulsar, tmp_path: Path):
    """Java prints what it read; the same value in another spelling is taken."""
    runtime(loadBalancerSheddingExcludedNamespaces="[t/a, t/b]", maxUnloadPercentage="0.20")(pulsar)
    pulsar.dynamic = {"loadBalancerSheddingExcludedNamespaces": "t/a,t/b", "maxUnloadPercentage": "0.2"}
    assert "dynamic-values" not in notable(pulsar, tmp_path)


def journal(folder: Path) -> Journal:
    """The journal of an lbd that ran here."""
    (folder / "state").mkdir(exist_ok=True)
    return Journal(folder / "state" / "lbd.db", time.time)


def noted(pulsar: FakePulsar, folder: Path, leader: str | None) -> None:
    """A move after which the leader may still hold its destination."""
    lines = journal(folder)
    unload = Unload(bundles(0)[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0)
    outcome = Outcome(unload, Result.FAILED, pulsar.ids[0], noted=pulsar.ids[2], leader=leader)
    lines.conclude(lines.intend(unload, 1), outcome)
    lines.close()


class TestNotes:
    """A leader's left-over whose destination may not be used any more."""

    def test_one_that_does_no_harm(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The noted broker is active and free for all."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        assert "leader-notes" not in notable(pulsar, tmp_path)

    @pytest.mark.parametrize(("leader", "found"), [(1, 1), (None, 1), (0, 0)], ids=["leads", "unknown", "led once"])
    def test_the_destination_left(self, leader: int | None, found: int, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It matters as long as the leader is the one that noted it."""
        noted(pulsar, tmp_path, None if leader is None else pulsar.ids[leader])
        pulsar.gone.add(pulsar.ids[2])
        told = [one for one in findings(pulsar, tmp_path) if one["check"] == "leader-notes" and one["level"] != "ok"]
        assert len(told) == found
        assert all("has left the cluster" in one["seen"] and bundles(0)[0] in one["seen"] for one in told)

    def test_nobody_leads(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whether the note is still held is not known."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        pulsar.leader = None
        assert notable(pulsar, tmp_path)["leader-notes"]["seen"].startswith("not checked: 1 destination may be left")

    def test_an_older_destination(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing proves that the leader got the request to note another one instead."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        lines, left = journal(tmp_path), pulsar.ids[2]
        source, leader, _ = pulsar.ids
        unload = Unload(bundles(0)[0], source, leader, 1.0, 1.0)
        found = Outcome(unload, Result.FAILED, source, noted=leader, leader=leader, older_note=True)
        lines.conclude(lines.intend(unload, 1), found)
        lines.close()
        pulsar.gone.add(left)
        assert f"to {left}, which has left the cluster" in notable(pulsar, tmp_path)["leader-notes"]["seen"]

    @pytest.mark.parametrize(
        ("namespaces", "primary"), [("t/n", "127[.]0[.]0[.]1"), ("x/.*", "127[.]0[.]0[.]3")], ids=["bound", "reserved"]
    )
    def test_the_destination_became_forbidden(
        self, namespaces: str, primary: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """An isolation policy came after the move."""
        noted(pulsar, tmp_path, pulsar.ids[1])
        pulsar.policies.isolation = {"p": {"namespaces": [namespaces], "primary": [primary], "secondary": []}}
        assert "isolation policies forbid to t/n" in notable(pulsar, tmp_path)["leader-notes"]["seen"]


class TestStandingReports:
    """Two looks tell, when they are further apart than a CPU sample."""

    @pytest.mark.parametrize(
        ("ago", "usage", "level", "seen"),
        [
            (300, 50.0, "warning", r"are those of 5 min( \d+ s)? ago"),
            (300, 49.0, "ok", "changed since lbd's last round"),
            (20, 50.0, "warning", r"not checked: lbd's last round is only [2-5]\d s old"),
        ],
    )
    def test_against_the_kept_samples(
        self, ago: float, usage: float, level: str, seen: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """CPU and bandwidth that are the same to the last digit stand still."""
        self.compare(Sample((usage, 1000.0, 1000.0), 1.7e9), ago, level, seen, pulsar, tmp_path)

    def test_a_broker_without_an_earlier_report(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Of this one nothing can be said, however the others changed."""
        kept = dict.fromkeys(pulsar.ids[:2], Sample((1.0, 1.0, 1.0), 1.7e9))
        state_begun(tmp_path / "state").save(TurnMemory(written_at=time.time() - 300, samples=kept))
        seen = notable(pulsar, tmp_path)["standing-reports"]["seen"]
        assert seen == f"not checked: no earlier report of {pulsar.ids[2]} is known, all others changed"

    def test_a_number_that_is_none_does_not_change(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A card that gives NaN gives it again: that is no new sample."""
        pulsar.brokers[0].report["bandwidthIn"] = {"usage": "NaN", "limit": 1e6}
        sample = Sample((50.0, float("nan"), 1000.0), 1.7e9)
        self.compare(sample, 300, "warning", r"are those of 5 min( \d+ s)? ago", pulsar, tmp_path)

    @staticmethod
    def compare(sample: Sample, ago: float, level: str, seen: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The first broker's report with what was kept of it so long ago."""
        kept = {**dict.fromkeys(pulsar.ids, Sample((1.0, 1.0, 1.0), 1.7e9)), pulsar.ids[0]: sample}
        state_begun(tmp_path / "state").save(TurnMemory(written_at=time.time() - ago, samples=kept))
        (found,) = (one for one in findings(pulsar, tmp_path) if one["check"] == "standing-reports")
        assert found["level"] == level, found
        assert re.search(seen, found["seen"]), found


def status(age_seconds: float = 1.0, **changes: Any) -> Status:
    """What a daemon wrote."""
    told: dict[str, Any] = {
        "pid": 1,
        "version": "0.1.0",
        "at": time.time() - age_seconds,
        "interval_seconds": 15.0,
        "next_turn_at": None,
        "turns": 3,
        "cluster": "c",
        "sentence": "No move.",
    }
    return Status(**{**told, **changes})


BLOCKED = Verdict("blocked", "unloads-per-hour", "a -> b 35.0 points apart; 87 of 30 used")


class TestDaemon:
    """The lbd that runs on the state directory, or should."""

    @pytest.mark.parametrize(
        ("told", "level", "seen"),
        [
            ({}, "ok", "runs; last turn "),
            ({"observe_only": True}, "ok", "runs, observing only"),
            ({"age_seconds": 600}, "problem", "wanted every 15 s"),
            ({"error": "bug"}, "problem", "(bug)"),
            ({"version": "0.0.9"}, "warning", "version 0.0.9"),
            ({"verdict": BLOCKED}, "problem", "by unloads-per-hour: a -> b 35.0 points apart; 87 of 30 used"),
            ({"verdict": BLOCKED, "hold": "quiet-hours"}, "warning", "by unloads-per-hour: a -> b"),
            ({"verdict": Verdict("blocked", "canary", "a -> b")}, "warning", "by canary: a -> b"),
            ({"warnings": ["the disk hums"]}, "warning", "it says: the disk hums"),
        ],
    )
    def test_while_it_runs(
        self, told: dict[str, Any], level: str, seen: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Late, broken, of another version, or well."""
        state = state_begun(tmp_path / "state")
        with state.locked():
            write_status(state.path, status(**told))
            found = [one for one in findings(pulsar, tmp_path) if one["check"] in {"lbd", "blocked"}]
        assert [one["level"] for one in found if seen in one["seen"]] == [level], found

    def test_one_that_has_ended_no_turn_yet(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It has just begun: no file is to be mended, and nothing is wrong."""
        state = state_begun(tmp_path / "state")
        with state.locked():
            found = [one for one in findings(pulsar, tmp_path) if one["check"] == "lbd"]
        assert [(one["level"], "remove that file" in one["todo"]) for one in found] == [("warning", False)], found

    def test_a_pause_that_blocks(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """There is no setting to change: the pause is to be ended, in the words of lbd status."""
        state = state_begun(tmp_path / "state")
        with state.locked():
            Control(state.path).pause(Pause(time.time(), None, "upgrade", "ann"))
            write_status(state.path, status(verdict=BLOCKED, hold="paused"))
            todo = notable(pulsar, tmp_path)["blocked"]["todo"]
        assert todo == "When the work is done, let lbd go on: `lbd resume`"

    def test_one_that_ended(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It ran here once, and nothing moves now."""
        write_status(state_begun(tmp_path / "state").path, status(3600))
        found = notable(pulsar, tmp_path)["lbd"]
        assert found["level"] == "warning"
        assert re.fullmatch(r"none runs; last turn 1 h ago: No move\.", found["seen"]), found
        assert found["todo"].startswith("Read why lbd ended, then start its service"), found

    @pytest.mark.parametrize(
        ("age_seconds", "seen"),
        [
            (-3600, "last turn 1 h ahead of this clock (was it set back?): No move."),
            (-5, "last turn 0 s ago: No move."),
        ],
        ids=["set back", "a turn ended as doctor looked"],
    )
    def test_one_whose_last_turn_is_yet_to_come(
        self, age_seconds: float, seen: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """By the clock of this machine, and in the words of lbd status."""
        state = state_begun(tmp_path / "state")
        with state.locked():
            write_status(state.path, status(age_seconds))
            (found,) = (one for one in findings(pulsar, tmp_path) if one["check"] == "lbd")
        assert seen in found["seen"], found

    def test_a_pause(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """By whom, until when, and why."""
        state = state_begun(tmp_path / "state").path
        write_status(state, status())
        Control(state).pause(Pause(time.time(), None, "upgrade", "ann"))
        assert notable(pulsar, tmp_path)["pause"]["seen"] == "by ann without end: upgrade"


class TestLostBrokers:
    """A broker that lbd's own record has, and the cluster has not."""

    @pytest.mark.parametrize(("minutes", "there", "wanted"), [(5, False, True), (90, False, False), (5, True, False)])
    def test_one_that_left_within_the_hour(
        self, minutes: int, there: bool, wanted: bool, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """It is named, with when it had its last report, unless it is back or that is long ago."""
        broker = pulsar.ids[0] if there else "127.0.1.1:80"
        state, at = state_begun(tmp_path / "state").path, time.time() - 60 * minutes
        facts = BrokerRecord(broker, 50.0, "cpu", 1.0, 1.0, 1)
        turns = Turns(state)
        turns.keep(TurnRecord(at=at, sentence="No move.", verdict=Verdict("balanced"), brokers=[facts]))
        finding = notable(pulsar, tmp_path).get("lost-brokers")
        assert (finding is not None) == wanted
        if finding is not None:
            assert finding["level"] == "warning"
            assert re.fullmatch(rf"{broker} left after \S+ \(5 min ago\) and has not come back", finding["seen"])


class TestState:
    """What lbd keeps."""

    def test_moves_without_an_outcome(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """While no lbd runs that would close them."""
        lines = journal(tmp_path)
        lines.intend(Unload(bundles(0)[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0), 1)
        lines.close()
        assert bundles(0)[0] in notable(pulsar, tmp_path)["journal"]["seen"]

    @pytest.mark.parametrize("name", ["status.json", TAKE_OVER, MEMORY])
    def test_a_broken_file(self, name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A problem that names it, and the other checks go on."""
        state_begun(tmp_path / "state")
        if name in {MEMORY, TAKE_OVER}:
            put_value(tmp_path / "state", name, b"{")
        else:
            (tmp_path / "state" / name).write_text("{")
        problems = [one for one in findings(pulsar, tmp_path) if one["level"] == "problem"]
        assert len(problems) == 1
        assert f"{name}{':' if name == 'status.json' else ''} cannot be read" in problems[0]["seen"]

    def test_a_directory_that_everybody_may_write(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whoever can write there can order unloads."""
        (tmp_path / "state").mkdir()
        (tmp_path / "state").chmod(0o777)
        assert "writable for everybody" in notable(pulsar, tmp_path)["state-dir"]["seen"]

    @pytest.mark.parametrize(("mode", "there"), [(0o555, True), (0o755, False)], ids=["read-only", "no parent"])
    def test_one_that_cannot_be_written(self, mode: int, there: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing could be noted there, so nothing would be moved."""
        blocked = tmp_path / "file"
        blocked.touch()
        state = tmp_path / "state" if there else blocked / "state"
        if there:
            state.mkdir(mode)
        found = notable(pulsar, tmp_path, state_dir=str(state))["state-dir"]
        assert ("which may not write it" in found["seen"]) is there, found
        assert ("may not make it in" in found["seen"]) is not there, found

    def test_a_take_over_that_the_brokers_contradict(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The note says that shedding is off."""
        (tmp_path / "state").mkdir()
        note = {"cluster": "c", "phase": "taken", "before": None, "ran": {}, "at": 1e9, "asked_at": 1e9, "seen_at": 1e9}
        put_value(tmp_path / "state", TAKE_OVER, json.dumps(note).encode())
        runtime(1, loadBalancerSheddingEnabled="true")(pulsar)
        found = notable(pulsar, tmp_path, in_broker_shedding="take-over")["take-over"]
        assert f"on again at {pulsar.ids[1]}" in found["seen"]

    def test_a_take_over(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Since when, and when it was last seen off; one that was not finished is a warning."""
        (tmp_path / "state").mkdir()
        times = {"at": 1e9, "asked_at": 1e9, "seen_at": 1e9 + 60}
        note = {"cluster": "c", "phase": "taken", "before": None, "ran": {}, **times}
        put_value(tmp_path / "state", TAKE_OVER, json.dumps(note).encode())
        (taken,) = (one for one in findings(pulsar, tmp_path) if one["check"] == "take-over")
        put_value(tmp_path / "state", TAKE_OVER, json.dumps({**note, "phase": "taking"}).encode())
        words = "shedding off since 2001-09-09T01:46:40Z by lbd, last seen off 2001-09-09T01:47:40Z"
        assert (taken["level"], taken["seen"]) == ("ok", f"{words}; lbd release gives it back")
        assert notable(pulsar, tmp_path)["take-over"]["level"] == "warning"
