"""From recorded load data of a 4.0.8 cluster, and what each broker owned, to reports and a snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lbd.errors import ObserveError
from lbd.model import BYTES_IN, MSG_IN
from lbd.observe.parse import (
    build_snapshot,
    extensible_report,
    parse_broker_load,
    parse_round,
    parse_top_bundles,
    recordable,
)
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES

SAMPLES = Path(__file__).parents[1] / "data" / "extensible"
LOAD = json.loads((SAMPLES / "broker-load-data-4.0.8.json").read_text())
TOP = json.loads((SAMPLES / "top-bundles-load-data-4.0.8.json").read_text())
BROKER = "127.0.0.1:18080"


def told(found: dict[str, object], broker: str = BROKER) -> bytes:
    """A broker's value, as it came."""
    return json.dumps(found[broker]).encode()


def test_every_recorded_value_can_be_read():
    """A minute of real messages, those at the start of a broker among them."""
    lines = [json.loads(line) for line in (SAMPLES / "messages-4.0.8.jsonl").read_text().splitlines()]
    values = [(topic, key, value.encode()) for _, topic, key, value in lines if value]
    loads = [parse_broker_load(value, key) for topic, key, value in values if topic == BROKER_LOAD]
    tops = [parse_top_bundles(value, key) for topic, key, value in values if topic == TOP_BUNDLES]
    assert len(loads) + len(tops) == len(values) > 50
    assert all(load.cpu.limit == 200.0 for load in loads)
    assert {len(top) for top in tops} >= {0, 2, 7, 8}


def test_a_report_has_the_brokers_numbers():
    """Usages, limits and totals of BrokerLoadData under the names of a load report."""
    load = parse_broker_load(told(LOAD), BROKER)
    top = parse_top_bundles(told(TOP), BROKER)
    seen = build_snapshot(0.0, {BROKER: extensible_report(load, top, top)})
    assert seen.brokers.usage[0].tolist() == [1.7154663367284564e-07, 71.5352783203125, 16.0, 0.0, 0.0]
    assert seen.brokers.limit[0].tolist() == [200.0, 371.25, 256.0, -1000.0, -1000.0]
    assert seen.brokers.rates[0, MSG_IN] == 385.70537590120716
    assert seen.brokers.topics.tolist() == [12]
    assert np.isnan(seen.brokers.started_at).all()
    assert len(seen.bundles) == 10
    assert seen.rows.rates[seen.bundles.index("t/busy/0x60000000_0x70000000"), BYTES_IN] == 14110.578989747268


def test_what_is_owned_and_not_told_of_is_unknown():
    """It is listed without statistics, and the snapshot says that it tells the largest bundles only."""
    top = parse_top_bundles(told(TOP), BROKER)
    seen = build_snapshot(
        0.0, {BROKER: extensible_report(parse_broker_load(told(LOAD), BROKER), top, [*top, "t/n/0x0_0x1"])}
    )
    at = seen.bundles.index("t/n/0x0_0x1")
    assert seen.partial
    assert (seen.rows.listed[at], seen.rows.reported[at]) == (True, False)
    assert seen.rows.reported.sum() == 10


def test_what_was_given_away_is_dropped():
    """The statistics of a bundle that another broker owns by now are nobody's."""
    top = parse_top_bundles(told(TOP), BROKER)
    gone, *left = top
    report = extensible_report(parse_broker_load(told(LOAD), BROKER), top, left)
    assert gone not in report.last_stats
    assert sorted(report.last_stats) == report.bundles == sorted(left)


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b'{"cpu": 1}', b'{"topics": -1}', b"\xff", b"[" * 2000])
def test_junk_is_no_broker_load(value: bytes):
    """It is said of which broker, and how it begins."""
    with pytest.raises(ObserveError, match=r"broker load data of 127\.0\.0\.1:18080 cannot be read"):
        parse_broker_load(value, BROKER)


@pytest.mark.parametrize("value", [b"", b"7", b'{"topBundlesLoadData": 1}', b'{"topBundlesLoadData": [{"stats": {}}]}'])
def test_junk_is_no_list_of_bundles(value: bytes):
    """The same of the other topic."""
    with pytest.raises(ObserveError, match=r"top bundles load data of 127\.0\.0\.1:18080 cannot be read"):
        parse_top_bundles(value, BROKER)


@pytest.mark.parametrize("usage", [1.5, float("nan"), float("inf")])
def test_a_recording_gives_the_same_report(usage: float):
    """Numbers that JSON has not, too; that bundles are not told of stays known."""
    value = json.loads(told(LOAD)) | {"cpu": {"usage": str(usage), "limit": 200.0}}
    top = parse_top_bundles(told(TOP), BROKER)
    report = extensible_report(parse_broker_load(json.dumps(value).encode(), BROKER), top, [*top, "t/n/0x0_0x1"])
    line = b'{"t": 1.0, "reports": {"%s": %s}}' % (BROKER.encode(), recordable(report))
    again = build_snapshot(1.0, parse_round(line, "here").reports)
    first = build_snapshot(1.0, {BROKER: report})
    assert np.array_equal(again.brokers.usage, first.brokers.usage, equal_nan=True)
    assert (again.bundles, again.partial) == (first.bundles, True)
    assert np.array_equal(again.rows.reported, first.rows.reported)
