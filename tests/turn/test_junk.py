"""Whatever one broker answers makes that broker doubtful, never the round: each request of a live turn, each junk."""

from __future__ import annotations

import copy
import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lbd.config import Settings
from lbd.daemon.engine import Engine, engine
from lbd.observe import live_cpu
from lbd.simulate.answers import Reply, page
from tests import fake_pulsar, silence
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.turn.parts import TurnResult
    from tests.fake_pulsar import FakePulsar

HUGE = b"9" * 400
NESTED = b"[" * 100_000

JUNK = {
    "a huge number": Reply(200, HUGE),
    "a negative number": Reply(200, b"-1"),
    "NaN": Reply(200, b"NaN"),
    "a word": Reply(200, b'"word"'),
    "null": Reply(200, b"null"),
    "an empty object": Reply(200, b"{}"),
    "a list of lists": Reply(200, b"[[[]]]"),
    "nested too deep": Reply(200, NESTED),
    "half a JSON": fake_pulsar.HALF_A_JSON,
    "not UTF-8": Reply(200, b'{"\xff\xfe": "\xc3\x28"}'),
    "UTF-16": Reply(200, '{"cpu": {"usage": 1}}'.encode("utf-16")),
    "an empty body": Reply(200, b""),
    "204": Reply(204),
    "an HTML page": page(200),
    "400": page(400),
    "404": page(404),
    "500": page(500),
    "503": Reply(503, b"\xff" * 100),
    "no answer": fake_pulsar.SILENCE,
}
"""Whole bodies, for every request."""

VALUES = (
    "null",
    "true",
    '"\\u001b[31m\\nSTATUS=word"',
    '"NaN"',
    '"Infinity"',
    "-1",
    "1e308",
    "1e-320",
    HUGE.decode(),
    f"-{HUGE.decode()}",
    f'"{HUGE.decode()}"',
    "0",
    "[]",
    "{}",
    "[" * 2000 + "]" * 2000,
    f'"{"x" * 100_000}"',
)
"""JSON values in the place of a single field, where the rest is as usual."""

FEW_VALUES = ('"NaN"', "-1", "1e308", HUGE.decode(), "null")
"""Those for an answer of many fields: they can be read as numbers, and are none."""

REPORT = "/admin/v2/broker-stats/load-report"
RUNTIME = "/admin/v2/brokers/configuration/runtime"
BEANS = "/admin/v2/broker-stats/mbeans"
BROKERS = "/admin/v2/brokers/lab"
LEADER = "/admin/v2/brokers/leaderBroker"
READY = "/admin/v2/brokers/ready"
POLICIES = "/admin/v2/clusters/lab/namespaceIsolationPolicies"
GROUP = "/admin/v2/namespaces/t/n/antiAffinity"

REQUESTS = {
    REPORT: ("leads", "is one of many"),
    RUNTIME: ("is asked first", "leads", "is one of many"),
    BEANS: ("leads", "is one of many"),
    READY: ("leads",),
    BROKERS: ("is asked first",),
    LEADER: ("is asked first",),
    POLICIES: ("is asked first",),
}
"""What a live turn that moves nothing asks, and of whom: of each broker, or of the first that answers."""

NUMBER = {"is asked first": 0, "leads": 1, "is one of many": 2}

READ_SETTINGS = (
    "clusterName",
    "loadBalancerEnabled",
    "loadBalancerHostUsageCheckIntervalMinutes",
    "loadBalancerSheddingEnabled",
    "loadManagerClassName",
)

POLICY = {"namespaces": ["x/.*"], "primary": ["nobody"], "secondary": [], "auto_failover_policy": {"parameters": {}}}


@dataclass
class Turns:
    """A live lbd whose turns compare four brokers, of which the second leads, and whose counters never fire."""

    pulsar: FakePulsar
    balancer: Engine
    number: int = 0

    def turn(self) -> TurnResult:
        """One more turn, with new samples."""
        self.number += 1
        shift = self.number % 7 / 10
        self.pulsar.sample(80 + shift, 56 + shift, 32 + shift, 8 + shift)
        for broker in self.pulsar.brokers:
            broker.up_seconds += 60
            broker.spent_seconds += 6
        return self.balancer.turn()

    def trouble(self, path: str, reply: Reply, broker: str, *, harmless: bool = False) -> str:
        """What is wrong with a turn in which a broker answers so; empty where only that broker is doubtful.

        ``harmless``: nothing need be told of it.
        """
        self.pulsar.requests.clear()
        self.balancer.looking.admin._failed.clear()
        self.pulsar.fault(path, reply, broker=broker)
        record = self.turn()
        self.pulsar.faults.off()
        if record.error is not None:
            return f"the turn ended: {record.error}"
        others = set(self.pulsar.ids) - {broker}
        assert record.observation is not None
        assert record.facts is not None
        asked = any(one.broker == broker for one in self.pulsar.asked(path))
        ids, doubted = record.observation.snapshot.brokers.ids, record.facts.evidence.paired.tolist()
        compared = {one for one, doubt in zip(ids, doubted, strict=True) if not doubt}
        if others - compared:
            return f"{sorted(others - compared)} are not compared: {record.sentence}"
        skips = (f"{skip.what} {skip.detail}" for skip in record.skips)
        notes = "; ".join((record.sentence, *skips, *self.balancer.warnings))
        if record.plan.hold is not None and (broker != self.pulsar.leader or broker not in record.plan.hold[1]):
            return f"everything is held: {record.plan.hold[0].label}: {record.plan.hold[1]}"
        return "" if broker in notes or not asked or harmless else f"{broker} is not named: {notes}"

    def usual(self, path: str, broker: str) -> Any:
        """What the broker answers else."""
        with urllib.request.urlopen(f"http://{broker}{path}", timeout=LIMIT_SECONDS) as answer:
            return json.load(answer)


def spoilt(document: Any) -> Iterator[tuple[str, bytes]]:
    """The document with junk values in the place of each of its fields; of many bundles the first."""
    every = list(places(document))
    for place in every:
        for value in VALUES if len(every) <= 12 else FEW_VALUES:
            yield f"{'.'.join(place)} = {value[:20]}", replaced(document, place, value)


def places(document: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each value in a document."""
    if above:
        yield above
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(document, dict):
        bundles = above == ("lastStats",)
        items = list(document.items())[: 1 if bundles else None]
    elif isinstance(document, list):
        items = enumerate(document[:2])
    for name, value in items:
        yield from places(value, (*above, str(name)))


def replaced(document: Any, place: tuple[str, ...], value: str) -> bytes:
    """The document as JSON, with this text in this place."""
    mark = "the place"
    document = copy.deepcopy(document)
    part = document
    for name in place[:-1]:
        part = part[int(name)] if isinstance(part, list) else part[name]
    part[int(place[-1]) if isinstance(part, list) else place[-1]] = mark
    return json.dumps(document).replace(f'"{mark}"', value).encode()


@pytest.fixture
def turns(running: Turns) -> Turns:
    """The same brokers as before the last test: all of them answer, and are compared."""
    running.balancer.looking.admin.http.silences._silent.clear()
    for _ in range(5):
        record = running.turn()
        if record.facts is not None and not record.facts.evidence.paired.any() and record.error is None:
            return running
    raise AssertionError(f"the brokers are not compared again: {record.sentence}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turns]:
    """Four brokers that have settled, one hot, so that their CPU of now is asked for."""
    folder = tmp_path_factory.mktemp("junk")
    with fake_pulsar.started(4) as pulsar:
        names = [f"t/n/0x{number << 28:08x}_0x{min((number + 1) << 28, 0xFFFFFFFF):08x}" for number in range(16)]
        for number, broker in enumerate(pulsar.ids):
            pulsar.broker(broker).runtime["clusterName"] = "lab"
            pulsar.own(broker, dict.fromkeys(names[number * 4 : number * 4 + 4], 1000.0 - 300 * number))
        pulsar.policies.isolation = {"p": POLICY}
        chosen = Settings.model_validate(
            {
                "pulsar": {"admin_urls": pulsar.urls, "read_timeout_seconds": LIMIT_SECONDS},
                "state_dir": folder / "state",
                "avg_shedder": {"hit_count_high": 1000, "hit_count_low": 1000},
                "guardrails": {"membership_settle_seconds": 0, "avoid_slow_brokers": False},
            }
        )
        with pytest.MonkeyPatch.context() as patch, engine(chosen) as balancer:
            silence.end_at_once(patch)
            patch.setattr(live_cpu._ProcessHistory, "is_due", lambda *_: True)
            turns = Turns(pulsar, balancer)
            for _ in range(3):
                assert turns.turn().error is None
            yield turns


@pytest.mark.parametrize(("path", "who"), [(path, who) for path, brokers in REQUESTS.items() for who in brokers])
@pytest.mark.security("a broker that answers a turn's request with junk: only that broker is doubtful", cases=19)
def test_a_whole_answer_of_junk(path: str, who: str, turns: Turns) -> None:
    """The turn names the broker and compares the others; only where the leader tells nothing is everything held."""
    broker = turns.pulsar.ids[NUMBER[who]]
    harmless = path == READY
    wrong = {name: turns.trouble(path, reply, broker, harmless=harmless) for name, reply in JUNK.items()}
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize(("path", "who"), [(path, brokers[-1]) for path, brokers in REQUESTS.items() if path != READY])
def test_junk_in_one_field(path: str, who: str, turns: Turns) -> None:
    """The rest of the answer is as usual."""
    broker = turns.pulsar.ids[NUMBER[who]]
    usual = turns.usual(path, broker)
    if path == POLICIES:  # a pattern that cannot be read is a policy that people have set
        usual = {"p": {**POLICY, "namespaces": [], "primary": []}}
    if path == RUNTIME:
        usual = {key: usual[key] for key in READ_SETTINGS}
    wrong = {name: turns.trouble(path, Reply(200, body), broker, harmless=True) for name, body in spoilt(usual)}
    assert {name: why for name, why in wrong.items() if why} == {}


def test_all_requests_of_a_turn_are_tried(turns: Turns) -> None:
    """A new request has its row above."""
    turns.pulsar.requests.clear()
    turns.turn()
    assert {one.path for one in turns.pulsar.requests} == REQUESTS.keys()


def test_one_that_is_too_slow(turns: Turns) -> None:
    """It costs its own time-out, and is doubtful as one that answers nothing."""
    for path in (REPORT, BEANS):
        assert turns.trouble(path, Reply(silent=True), turns.pulsar.ids[2]) == ""
