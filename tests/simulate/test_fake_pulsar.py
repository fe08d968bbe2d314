"""What fake brokers answer: what real ones were recorded to answer, and what the model says they carry."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.errors import AdminError
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.cluster import begin, snapshot
from lbd.simulate.fake_cluster import FakeClock
from lbd.simulate.fake_pulsar import FakePulsar
from tests.e2e.agreement import OTHER, THIRD, Call, Side, roles
from tests.silence import LIMIT_SECONDS
from tests.simulate.fakes import hot, run, settings
from tests.simulate.faulty import Fault, FaultyPulsar, Switch
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result as Ended

DATA = Path(__file__).parents[1] / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "samples" / "answers-4.0.8.json").read_text())
QUIET = "/admin/v2/namespaces/simulated/quiet"
BUNDLE, FREE = f"{QUIET}/0x00000000_0x20000000", f"{QUIET}/0x60000000_0x80000000"
NOWHERE = {"destinationBroker": "127.0.0.9:18080"}
CONFIGURATION = "/admin/v2/brokers/configuration"

SAID = {
    "unowned with destination": Call("PUT", f"{FREE}/unload", query={"destinationBroker": "{third}"}),
    "inactive destination 409": Call("PUT", f"{BUNDLE}/unload", query=NOWHERE),
    "inactive destination 409 asked non-leader": Call("PUT", f"{BUNDLE}/unload", OTHER, NOWHERE),
    "destination with scheme": Call("PUT", f"{FREE}/unload", query={"destinationBroker": "http://{third}"}),
    "destination host only": Call("PUT", f"{BUNDLE}/unload", query={"destinationBroker": "127.0.0.3"}),
    "destination broker service url": Call("PUT", f"{BUNDLE}/unload", query={"destinationBroker": "pulsar://{third}"}),
    "bad range (not a boundary)": Call("PUT", f"{QUIET}/0x01000000_0x02000000/unload"),
    "malformed range (no underscore)": Call("PUT", f"{QUIET}/0x01000000/unload"),
    "malformed range (not hex)": Call("PUT", f"{QUIET}/0xzz_0x02000000/unload"),
    "unknown namespace": Call("PUT", "/admin/v2/namespaces/simulated/no/0x00000000_0x20000000/unload"),
    "unknown tenant": Call("PUT", "/admin/v2/namespaces/no/quiet/0x00000000_0x20000000/unload"),
    "ownedNamespaces of unknown broker": Call("GET", "/admin/v2/brokers/c/127.0.0.9:18080/ownedNamespaces"),
    "ownedNamespaces with wrong cluster": Call("GET", "/admin/v2/brokers/nocluster/{leader}/ownedNamespaces"),
    "ownedNamespaces asked at another broker": Call("GET", "/admin/v2/brokers/c/{leader}/ownedNamespaces", THIRD),
    "brokers of unknown cluster": Call("GET", "/admin/v2/brokers/nocluster"),
    "dynamic config non-dynamic key": Call("POST", f"{CONFIGURATION}/loadBalancerEnabled/false"),
    "dynamic config unknown key": Call("POST", f"{CONFIGURATION}/nosuchkey/1"),
    "dynamic config bad value": Call("POST", f"{CONFIGURATION}/loadBalancerSheddingIntervalMinutes/abc"),
    "load-report 404 path": Call("GET", "/admin/v2/broker-stats/nope"),
    "leaderBroker": Call("GET", "/admin/v2/brokers/leaderBroker", OTHER),
    "topicHashPositions unowned": Call("GET", f"{FREE}/topicHashPositions"),
    "topicHashPositions bad range": Call("GET", f"{QUIET}/0x01000000_0x02000000/topicHashPositions"),
    "bundles": Call("GET", f"{QUIET}/bundles"),
    "unload GET (wrong method)": Call("GET", f"{BUNDLE}/unload"),
    "health": Call("GET", "/admin/v2/brokers/health"),
    "version": Call("GET", "/admin/v2/brokers/version"),
}
"""The calls of which ``answers-4.0.8.json`` keeps what real brokers answered; it was asked of 8 bundles of t/quiet."""


@contextmanager
def quiet(**options: Any) -> Iterator[FaultyPulsar]:
    """Three brokers and eight bundles without clients or traffic."""
    load = [{"name": "quiet", "mib_per_second": 0, "bundles": 8}]
    world, state = begun(brokers=[{"id": one} for one in "abc"], load=load)
    with FaultyPulsar(world, state, clients=0, cluster="c", **options) as cluster:
        yield cluster


@pytest.fixture
def pulsar() -> Iterator[FaultyPulsar]:
    """A hot broker, a second one that leads, and a cold one."""
    with hot() as cluster:
        yield cluster


def admin_of(cluster: FaultyPulsar) -> Admin:
    """lbd's own client."""
    found = Admin(PulsarSettings(admin_urls=cluster.admin_urls))
    found.active_brokers()
    return found


def lbd(cluster: FaultyPulsar, folder: Path, *words: str, **changes: Any) -> Ended:
    """A command with these settings."""
    config = folder / "lbd.yaml"
    values = {"pulsar": {"admin_urls": list(cluster.admin_urls)}, "state_dir": str(folder / "state"), **changes}
    config.write_text(yaml.safe_dump(values))
    return CliRunner().invoke(main, [*words, "--config", str(config)], catch_exceptions=False)


@pytest.mark.parametrize("case", SAID)
def test_answers_are_those_of_real_brokers(case: str) -> None:
    """Codes, redirects and words, as they were recorded of 4.0.8."""
    with quiet() as cluster, requests.Session() as session:
        assert cluster.leader is not None
        side = Side(roles(cluster.leader, cluster.brokers), {}, session)
        side.ask(Call("PUT", f"{FREE}/unload"))
        told = side.ask(SAID[case])
        recorded = RECORDED[case]
        assert [hop[:3] for hop in told.hops] == [str(status) for status, _ in recorded["chain"]]
        if isinstance(recorded["body"], dict) and set(recorded["body"]) == {"reason"}:
            assert told.body == {"reason": recorded["body"]["reason"].replace("t/quiet", "simulated/quiet")}
        elif isinstance(recorded["body"], dict):
            assert set(told.body) == set(recorded["body"])
        elif recorded["body"] == "HTML":
            assert told.body == "HTML"


@pytest.mark.parametrize("file", ["load-report-4.0.8-busy-broker1.json", "load-report-4.0.8-busy-broker2.json"])
def test_a_load_report_has_the_fields_of_real_ones(file: str, pulsar: FaultyPulsar) -> None:
    """Keys and JSON types, down to the statistics of a bundle."""

    def shape(found: Any) -> Any:
        if isinstance(found, dict):
            return {"bundle" if "/0x" in key else key: shape(value) for key, value in found.items()}
        return "number" if isinstance(found, int | float) else type(found)

    real = json.loads((DATA / "reports" / file).read_text())
    ours = json.loads(admin_of(pulsar).load_report(pulsar.brokers[0]).body)
    assert shape(ours) == shape(real)


def test_owned_bundles_have_the_fields_of_real_ones(pulsar: FaultyPulsar) -> None:
    """And the broker's own two, for its health check, are among them."""
    real = json.loads((DATA / "samples" / "ownedNamespaces-4.0.8-busy-broker2.json").read_text())
    broker = pulsar.brokers[1]
    url = f"http://{broker}/admin/v2/brokers/simulated/{broker}/ownedNamespaces"
    ours = requests.get(url, timeout=LIMIT_SECONDS).json()
    assert {frozenset(one) for one in ours.values()} == {frozenset(one) for one in real.values()}
    assert sum(name.startswith("pulsar/") for name in ours) == sum(name.startswith("pulsar/") for name in real) == 2


def test_lbd_sees_what_the_model_says(pulsar: FaultyPulsar) -> None:
    """Brokers, scores, bundles and rates: over HTTP as in process."""
    for _ in range(5):
        pulsar.forward(37)
        world, state = pulsar.model()
        told = snapshot(world, state, pulsar.begun_at)
        observer = Observer(admin_of(pulsar), pulsar.now)
        seen = observer.observe()
        observer.close()
        assert (seen.cluster, seen.missing, seen.shedding_on) == ("simulated", {}, ())
        assert seen.snapshot.brokers.ids == told.brokers.ids[:3]
        assert np.array_equal(seen.snapshot.brokers.usage[:, 0], told.brokers.usage[:3, 0])
        assert np.allclose(seen.snapshot.brokers.rates, told.brokers.rates[:3])
        users = [name for name in seen.snapshot.bundles if name.startswith("simulated/")]
        assert sorted(users) == sorted(told.bundles)


def test_doctor_finds_nothing_wrong(pulsar: FaultyPulsar, tmp_path: Path) -> None:
    """But a clock that is ahead, when one is."""
    healthy = lbd(pulsar, tmp_path, "doctor")
    assert healthy.exit_code == 0, healthy.output
    assert "ok       clocks" in healthy.stdout
    pulsar.faults.on(Switch(Fault.CLOCK_SKEW, pulsar.brokers[2], seconds=600))
    told = f"warning  clocks: not this machine's time at {pulsar.brokers[2]} (+600 s)"
    assert told in lbd(pulsar, tmp_path, "doctor").stdout


def test_settings_can_be_taken_from_it(pulsar: FaultyPulsar) -> None:
    """``lbd config from-broker`` reads them."""
    done = CliRunner().invoke(main, ["config", "from-broker", "--admin-url", pulsar.admin_urls[0]])
    assert done.exit_code == 0, done.output
    assert "max_unload_percentage: 0.2" in done.stdout


def test_shedding_is_taken_over_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned off on all brokers before the first move; ``lbd release`` deletes the override."""
    with hot(runtime={"loadBalancerSheddingEnabled": "true"}) as cluster:
        admin, folder = admin_of(cluster), tmp_path / "state"
        changes = {"in_broker_shedding": "take-over"}
        with run(cluster, folder, monkeypatch, settings(cluster, folder, **changes)) as running:
            running.until_tried()
            assert admin.dynamic_configuration() == {"loadBalancerSheddingEnabled": "false"}
            assert {admin.runtime_configuration(one)["loadBalancerSheddingEnabled"] for one in cluster.brokers} == {
                "false"
            }
        done = lbd(cluster, tmp_path, "release", **changes)
        assert done.exit_code == 0, done.output
        assert admin.dynamic_configuration() == {}


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("loadBalancerSheddingEnabled", "TRUE", "true"),
        ("loadBalancerSheddingEnabled", "yes", "false"),
        ("loadBalancerSheddingIntervalMinutes", "7", "7"),
        ("loadBalancerSheddingIntervalMinutes", "abc", "1"),
    ],
)
def test_an_override_is_stored_whatever_it_is(key: str, value: str, wanted: str, pulsar: FaultyPulsar) -> None:
    """Brokers run with what they can read of it; deleted, they are as before."""
    admin = admin_of(pulsar)
    before = admin.runtime_configuration()[key]
    admin.set_dynamic(key, value)
    assert (admin.dynamic_configuration(), admin.runtime_configuration()[key]) == ({key: value}, wanted)
    admin.delete_dynamic(key)
    assert (admin.dynamic_configuration(), admin.runtime_configuration()[key]) == ({}, before)


def test_a_dead_broker_refuses_connections(pulsar: FaultyPulsar) -> None:
    """And one that comes back answers at the same address."""
    admin, broker = admin_of(pulsar), pulsar.brokers[2]
    assert admin.ready(broker)
    pulsar.kill(broker)
    with pytest.raises(AdminError, match="connection refused"):
        admin.load_report(broker)
    pulsar.start(broker)
    assert admin.ready(broker)


def test_a_bundle_that_is_being_closed(pulsar: FaultyPulsar) -> None:
    """Its owner still has it, not actively; another unload and lookups are answered 500 until it is free."""
    pulsar.unload_seconds = 2.0
    bundle, (owner, leader, _) = next(iter(pulsar.owners())), pulsar.brokers
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(admin_of(pulsar).unload, bundle, None, f"http://{owner}")
        admin, deadline = admin_of(pulsar), time.monotonic() + 1.9
        while admin.owned(owner)[bundle] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert admin.owned(owner)[bundle] is False
        assert admin.unload(bundle, None, f"http://{leader}").status == 500
        topic = admin.topic_in(bundle, f"http://{leader}")
        assert admin.assign(topic, f"http://{leader}", authoritative=False).status == 500
        assert first.result().status == 204
    assert bundle not in admin.owned(owner)


def test_who_watches_sees_each_request_and_its_answer_faults_included(pulsar: FaultyPulsar) -> None:
    """Also one that a fault answers, with the token that it came with."""
    seen: list[object] = []
    pulsar.on_request = lambda asked: seen.append((asked.broker, asked.authorization))
    pulsar.on_reply = lambda _, reply: seen.append(reply.status)
    pulsar.faults.on(Switch(Fault.UNAVAILABLE, part="/ready"))
    broker = pulsar.brokers[0]
    token = {"Authorization": "Bearer secret"}
    requests.get(f"http://{broker}/admin/v2/brokers/ready", headers=token, timeout=LIMIT_SECONDS)
    assert seen == [(broker, "Bearer secret"), 503]


def test_bundles_are_scaled_and_split(pulsar: FaultyPulsar) -> None:
    """Traffic is what it was so many times over; the halves of a bundle are its owner's, and it is none any more."""
    bundle, owner = next((name, owner) for name, owner in pulsar.owners().items() if owner is not None)
    world, _ = pulsar.model()
    before = world.rates[world.bundles.index(bundle)]
    pulsar.scale({bundle: 3.0})
    scaled = pulsar.model()[0]
    assert scaled.rates[scaled.bundles.index(bundle)].tolist() == pytest.approx((before * 3).tolist())
    assert scaled.rates.sum() == pytest.approx(world.rates.sum() + 2 * before.sum())

    parts = pulsar.split(bundle)
    assert [pulsar.owners()[part] for part in parts] == [owner, owner]
    assert bundle not in pulsar.owners()
    cut = pulsar.model()[0]
    assert sum(cut.rates[cut.bundles.index(part)].sum() for part in parts) == pytest.approx(3 * before.sum())


def test_brokers_sample_as_often_as_the_world_says() -> None:
    """Every five seconds here."""
    world, _ = begun(brokers=[{"id": "a"}, {"id": "b"}])
    often = replace(world, cpu_interval_seconds=5, cpu_second=np.zeros(2, dtype=np.int32))
    with FaultyPulsar(often, begin(often, np.zeros(len(world.bundles), dtype=np.int32))) as cluster:
        samples = set()
        for _ in range(4):
            cluster.forward(5.0)
            samples.add(float(cluster.model()[1].cpu[0]))
    assert len(samples) == 4
    assert min(samples) == pytest.approx(60, abs=1)


def test_an_answer_drips_from_its_head_on(pulsar: FaultyPulsar) -> None:
    """Byte by byte: after a while there is a part of the first line."""
    host, _, port = pulsar.brokers[0].rpartition(":")
    pulsar.faults.on(Switch(Fault.DRIPS, seconds=0.01))
    with socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS) as connection:
        connection.sendall(b"GET /admin/v2/brokers/ready HTTP/1.1\r\nHost: a\r\n\r\n")
        found = [connection.recv(4096) for _ in range(5)]
    assert b"HTTP/1.1 200".startswith(b"".join(found))


def test_brokers_join_and_leave_by_the_time_table() -> None:
    """Each at its own time, with its port; an orderly one leaves nothing behind."""
    parts = [{"id": "a"}, {"id": "b", "leaves_at_minutes": 2}, {"id": "c", "joins_at_minutes": 1}]
    world, state = begun(brokers=parts, load=[{"name": "n", "brokers": ["b"], "mib_per_second": 1, "bundles": 9}])
    with FaultyPulsar(world, state) as cluster:
        first, second, third = (f"http://{broker}" for broker in cluster.brokers)
        assert cluster.admin_urls == (first, second)
        cluster.forward(61)
        assert cluster.admin_urls == (first, second, third)
        assert admin_of(cluster).ready(cluster.brokers[2])
        cluster.forward(60)
        assert admin_of(cluster).active_brokers() == sorted([cluster.brokers[0], cluster.brokers[2]])
        cluster.forward(1)
        assert set(cluster.owners().values()) <= {cluster.brokers[0], cluster.brokers[2]}


def test_nothing_is_left_of_it() -> None:
    """No thread and no port, though a client has not hung up."""
    before, sockets = set(threading.enumerate()), own_sockets()
    with hot() as cluster, requests.Session() as session:
        assert session.get(f"{cluster.admin_urls[0]}/admin/v2/brokers/ready", timeout=LIMIT_SECONDS).text == "ok"
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()
    assert own_sockets() <= sockets


def test_who_asks_after_its_end_opens_no_port_again() -> None:
    """An answer that was under way as little as whoever looks at what came of it."""
    sockets = own_sockets()
    with hot() as cluster:
        owners = cluster.owners()
    assert cluster.owners() == owners
    assert own_sockets() <= sockets


def test_a_port_that_is_taken_is_told() -> None:
    """And what was taken before it is given back."""
    with hot() as cluster:
        port = int(cluster.brokers[2].rpartition(":")[2])
        world, state = begun(
            brokers=[{"id": one} for one in "abc"], load=[{"name": "n", "mib_per_second": 1, "bundles": 1}]
        )
        before = own_sockets()
        with pytest.raises(OSError, match="in use"):
            FaultyPulsar(world, state, port=port)
        assert own_sockets() <= before


def own_sockets() -> set[str]:
    """The sockets of this process, as the kernel numbers them."""
    found = set[str]()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder that is read is one of them, and others may be closed meanwhile
            found.add(str(each.readlink()))
    return {target for target in found if target.startswith("socket:")}


def test_a_port_has_one_cluster_before_it_listens() -> None:
    """Two demos that were begun in the same moment both had the port, until the second one listened, and died."""
    world, state = begun(
        brokers=[{"id": one} for one in "abc"], load=[{"name": "n", "mib_per_second": 1, "bundles": 1}]
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = FaultyPulsar(world, state, port=port)
    with pytest.raises(OSError, match="in use"):
        FaultyPulsar(world, state, port=port)
    with first, pytest.raises(OSError, match="in use"):
        FaultyPulsar(world, state, port=port)
    with FaultyPulsar(world, state, port=port):
        pass


def test_the_clock() -> None:
    """It runs as fast as it is told, does not jump when that changes, and never goes back."""
    clock = FakeClock(1000.0, begun_at=0.0)
    time.sleep(0.02)
    clock.speed = 0.001
    shown = clock.now()
    assert 20 <= shown < 20_000
    assert clock.now() - shown < 0.1
    clock.forward(60)
    assert clock.now() - shown == pytest.approx(60, abs=0.1)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="wanted"):
            clock.speed = wrong
    with pytest.raises(ValueError, match="wanted 0 or more"):
        clock.forward(-1)


def test_the_documents_example_runs() -> None:
    """What docs/simulated-http.md shows is what works, and the leader that it kills owns nothing in the end."""
    text = (Path(__file__).parents[2] / "docs" / "simulated-http.md").read_text()
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(compile(example[1], "docs/simulated-http.md", "exec"), names)
    assert isinstance(names["pulsar"], FakePulsar)
