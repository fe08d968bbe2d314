"""Topics and splits of the fake cluster: over HTTP, through lbd's commands, and by the daemon's own rule."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import requests

from lbd.model import bundle_namespace
from lbd.observe.observer import Observer
from lbd.operations.split import bundle_topics
from lbd.pulsar import paths
from lbd.simulate.cluster import points_at, rates_at
from lbd.split.plan import SPECIFIED, SplitResult
from lbd.store.moves import read_splits
from tests.silence import LIMIT_SECONDS
from tests.simulate.fakes import run, settings
from tests.simulate.faulty import Fault, FaultyPulsar, Switch
from tests.simulate.test_fake_pulsar import admin_of, lbd
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.pulsar.admin import Admin

BIG = "simulated/big/0x00000000_0xffffffff"
TOPICS = 40


@contextmanager
def big(topics: int = TOPICS, **options: Any) -> Iterator[FaultyPulsar]:
    """A broker with one bundle of 60 MiB/s, a second one that leads with six small ones, and one with nothing."""
    parts = [
        {"name": "big", "brokers": ["a"], "mib_per_second": 60, "bundles": 1, "topics": topics},
        {"name": "small", "brokers": ["b"], "mib_per_second": 6, "bundles": 6},
    ]
    world, state = begun(brokers=[{"id": one} for one in "abc"], load=parts)
    with FaultyPulsar(world, state, **options) as cluster:
        yield cluster


@pytest.fixture
def pulsar() -> Iterator[FaultyPulsar]:
    """The same, as its brokers have counted it."""
    with big() as cluster:
        yield cluster


def split_url(cluster: FaultyPulsar, bundle: str, at: int) -> str:
    """Where a split is asked for."""
    return f"http://{cluster.brokers[at]}{paths.split(bundle)}"


def reported(admin: Admin, cluster: FaultyPulsar) -> dict[str, float]:
    """Messages/s in of every user's bundle that brokers report."""
    observer = Observer(admin, cluster.now)
    seen = observer.observe().snapshot
    observer.close()
    rows = zip(seen.rows.bundle.tolist(), seen.rows.rates[:, 0].tolist(), strict=True)
    return {seen.bundles[at]: rate for at, rate in rows if seen.bundles[at].startswith("simulated/")}


def test_topics_make_up_their_bundle(pulsar: FaultyPulsar) -> None:
    """As many as the scenario says, each with a hash inside the range, and their rates are the bundle's."""
    admin, owner = admin_of(pulsar), pulsar.brokers[0]
    topics = bundle_topics(admin, BIG, owner)
    assert len({topic.name for topic in topics}) == TOPICS
    rates = [topic.msg_rate or 0.0 for topic in topics]
    assert sum(rates) == pytest.approx(2 * reported(admin, pulsar)[BIG])
    for bundle in (name for name, broker in pulsar.owners().items() if broker == pulsar.brokers[1]):
        assert len(bundle_topics(admin, bundle, pulsar.brokers[1])) == 1


def test_a_split_takes_topics_and_rates_along(pulsar: FaultyPulsar) -> None:
    """The whole is gone from the report at once; its parts are there with the next statistics, at the same owner."""
    admin, owner = admin_of(pulsar), pulsar.brokers[0]
    topics, before = bundle_topics(admin, BIG, owner), reported(admin, pulsar)[BIG]
    assert admin.split(BIG, SPECIFIED, (0x40000000, 0x80000000), f"http://{owner}").status == 204
    parts = [
        f"simulated/big/{span}" for span in ("0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xffffffff")
    ]
    assert admin.boundaries("simulated/big") == ["0x00000000", "0x40000000", "0x80000000", "0xffffffff"]
    assert [pulsar.owners()[part] for part in parts] == [owner] * 3
    assert not {BIG, *parts} & reported(admin, pulsar).keys()

    pulsar.forward(61)
    after, cut = reported(admin, pulsar), [bundle_topics(admin, part, owner) for part in parts]
    assert [topic.name for part in cut for topic in sorted(part, key=lambda one: one.position)] == [
        topic.name for topic in sorted(topics, key=lambda one: one.position)
    ]
    assert [after[part] for part in parts] == pytest.approx([before * len(part) / TOPICS for part in cut])
    assert pulsar.model()[0].topics.sum() == TOPICS + 6


def test_a_part_can_be_moved_and_cut_again(pulsar: FaultyPulsar) -> None:
    """It is a bundle like any other."""
    admin, (first, leader, third) = admin_of(pulsar), pulsar.brokers
    admin.split(BIG, "range_equally_divide", None, f"http://{first}")
    low, high = "simulated/big/0x00000000_0x7fffffff", "simulated/big/0x7fffffff_0xffffffff"
    assert admin.unload(low, third, f"http://{leader}").status == 204
    admin.assign(admin.topic_in(low, f"http://{third}"), f"http://{third}", authoritative=True)
    assert {part: pulsar.owners()[part] for part in (low, high)} == {low: third, high: first}
    assert admin.split(low, "topic_count_equally_divide", None, f"http://{third}").status == 204
    found = [name for name, owner in pulsar.owners().items() if owner == third]
    assert len(found) == 2
    halves = {len(bundle_topics(admin, name, third)) for name in found}
    assert max(halves) - min(halves) <= 1


@pytest.mark.parametrize(
    ("algorithm", "body", "status", "words"),
    [
        ("nosuch", None, 412, "Unsupported namespace bundle split algorithm"),
        (SPECIFIED, "[]", 412, "splitBoundaries must not be empty"),
        (SPECIFIED, "{x", 400, "Cannot deserialize"),
        (SPECIFIED, '["a"]', 400, "Cannot deserialize"),
        ("flow_or_qps_equally_divide", None, 500, "cannot be cast"),
    ],
)
def test_wrong_splits_are_refused_as_by_real_brokers(
    algorithm: str, body: str | None, status: int, words: str, pulsar: FaultyPulsar
) -> None:
    """Codes and words as on 4.0.8, and nothing is cut."""
    url, params = split_url(pulsar, BIG, 0), {"splitAlgorithmName": algorithm}
    json_body = {"Content-Type": "application/json"}
    answer = requests.put(url, params=params, data=body, headers=json_body, timeout=LIMIT_SECONDS)
    assert (answer.status_code, words in answer.text) == (status, True)
    assert admin_of(pulsar).boundaries("simulated/big") == ["0x00000000", "0xffffffff"]


@pytest.mark.parametrize(
    ("span", "status", "words"),
    [
        ("0x01000000_0x02000000", 412, "Cannot find bundle"),
        ("0x00000000_0x80000000", 412, "Invalid upper boundary"),
        ("0x01000000", 412, "Invalid bundle range: 0x01000000"),
        ("0xzz_0x02000000", 412, 'For input string: "zz" under radix 16'),
    ],
)
def test_what_is_no_bundle_is_not_split(span: str, status: int, words: str, pulsar: FaultyPulsar) -> None:
    """As real brokers say it."""
    answer = requests.put(split_url(pulsar, f"simulated/big/{span}", 0), timeout=LIMIT_SECONDS)
    assert (answer.status_code, words in answer.json()["reason"]) == (status, True)


def test_nothing_to_cut_is_answered_204() -> None:
    """One topic, or positions outside the range: brokers do nothing then, and lbd tells it."""
    with big(topics=1) as cluster:
        admin, base = admin_of(cluster), f"http://{cluster.brokers[0]}"
        for algorithm, positions in (("topic_count_equally_divide", None), (SPECIFIED, (5,))):
            assert admin.split(BIG, algorithm, positions, base).status == 204
        assert admin.boundaries("simulated/big") == ["0x00000000", "0xffffffff"]


def test_the_parts_may_be_unloaded(pulsar: FaultyPulsar) -> None:
    """With ``unload=true`` they find new owners by their clients' lookups."""
    params = {"splitAlgorithmName": "range_equally_divide", "unload": "true"}
    assert requests.put(split_url(pulsar, BIG, 0), params=params, timeout=LIMIT_SECONDS).status_code == 204
    pulsar.forward(30)
    changes = [one.owner for one in pulsar.history() if bundle_namespace(one.bundle) == "simulated/big"]
    assert changes.count(None) == 2
    assert None not in pulsar.owners().values()


def test_lbd_split_shows_and_splits(pulsar: FaultyPulsar, tmp_path: Path) -> None:
    """What ``lbd split`` foretells is what is there after ``--apply``; the history tells it."""
    shown = lbd(pulsar, tmp_path, "split", BIG, "--algorithm", "topic_count_equally_divide")
    assert shown.exit_code == 0, shown.output
    assert "20" in shown.stdout
    done = lbd(pulsar, tmp_path, "split", BIG, "--algorithm", "topic_count_equally_divide", "--apply")
    assert done.exit_code == 0, done.output
    found = read_splits(tmp_path / "state")[0]
    assert found.end is not None
    assert {bundle for bundle in pulsar.owners() if "/big/" in bundle} == set(found.end.parts)
    told = lbd(pulsar, tmp_path, "history", "--splits")
    assert BIG in told.stdout


@pytest.mark.usefixtures("silence_ends_at_once")
@pytest.mark.parametrize(
    ("switch", "code", "result"),
    [
        (Switch(Fault.NO_EFFECT, part="/split"), 5, "not-split"),
        (Switch(Fault.UNAVAILABLE, part="/split"), 5, "not-split"),
        (Switch(Fault.NOT_ACTIVE, part="/split", acts=True), 0, "split"),
        (Switch(Fault.SILENT, part="/split"), 5, "unknown"),
        (Switch(Fault.SILENT, part="/split", acts=True), 0, "split"),
        (Switch(Fault.HALF_JSON, part="/topics"), 3, None),
        (Switch(Fault.HTML, part="/bundles"), 3, None),
        (Switch(Fault.BROKER_DIES, part="/split"), 5, "unknown"),
    ],
    ids=lambda one: f"{one.fault.name}{'-acts' if one.acts else ''}" if isinstance(one, Switch) else None,
)
def test_a_split_that_goes_wrong_is_told_as_it_is(
    switch: Switch, code: int, result: str | None, pulsar: FaultyPulsar, tmp_path: Path
) -> None:
    """By the exit code, in one line, and in the journal; what was not sent is not in it."""
    pulsar.faults.on(replace(switch))
    reached = {"admin_urls": list(pulsar.admin_urls[1:]), "read_timeout_seconds": LIMIT_SECONDS}
    found = lbd(pulsar, tmp_path, "split", BIG, "--apply", pulsar=reached)
    assert found.exit_code == code, found.output
    assert [one.end.result.value for one in read_splits(tmp_path / "state") if one.end] == [result] * (
        result is not None
    )
    assert (BIG in pulsar.owners()) == (result != "split")


def test_lbd_split_auto_finds_the_bundle(pulsar: FaultyPulsar, tmp_path: Path) -> None:
    """The leader's rule, with its limit on bandwidth."""
    found = lbd(pulsar, tmp_path, "split", "--auto", split={"max_bandwidth_mbytes": 50, "max_msg_rate": 1e6})
    assert found.exit_code == 0, found.output
    assert BIG in found.stdout
    assert "exceeds split.max_bandwidth_mbytes 50" in " ".join(found.stdout.split())


@pytest.mark.parametrize("enabled", [False, True])
def test_the_daemon_splits_what_is_too_big_to_move(
    *, enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own rule, and moves the parts then, by true outcomes; without it the broker stays as it is."""
    with big() as cluster:
        chosen = settings(cluster, tmp_path, split={"enabled": enabled, "max_msg_rate": 70_000})
        with run(cluster, tmp_path, monkeypatch, chosen) as running:
            before = gap(cluster)
            if not enabled:
                running.turns(60)
                assert (read_splits(tmp_path), running.moves(), gap(cluster)) == ([], [], before)
                return
            running.until(lambda: gap(cluster) < before / 2, most=400)
            running.true_moves()
        made = [split.end for split in read_splits(tmp_path) if split.end is not None]
        assert {one.result for one in made} == {SplitResult.SPLIT}
        assert {part for one in made for part in one.parts} >= {name for name in cluster.owners() if "/big/" in name}


def gap(cluster: FaultyPulsar) -> float:
    """Points between the brokers with the most and the least load, in truth."""
    world, state = cluster.model()
    points = points_at(world, state.owner, rates_at(world, state.seconds), state.seconds)[:-1]
    return float(points.max() - points.min())
