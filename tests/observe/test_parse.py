"""Load reports of real brokers, 2.11 to 5.0, and of broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.errors import ObserveError
from lbd.observe.parse import build_snapshot, parse_report
from tests.builders import bundle, report, snapshot, stats

REPORTS = sorted((Path(__file__).parents[1] / "data" / "reports").glob("*.json"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem.removeprefix("load-report-"))
def test_reports_of_every_version_are_read(path: Path):
    """Totals, bundles and usages are those of the JSON."""
    raw = json.loads(path.read_text())
    seen = build_snapshot(0, {"a:80": parse_report(path.read_bytes(), "a:80")})

    assert sorted(set(raw["bundles"]) | set(raw["lastStats"])) == sorted(seen.bundles)
    assert [raw["msgRateIn"], raw["msgRateOut"], raw["msgThroughputIn"], raw["msgThroughputOut"]] == seen.brokers.rates[
        0
    ].tolist()
    assert [
        raw[name]["usage"] for name in ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
    ] == seen.brokers.usage[0].tolist()
    rates = {seen.bundles[at]: seen.rows.rates[row].tolist() for row, at in enumerate(seen.rows.bundle)}
    for name, one in raw["lastStats"].items():
        assert [one["msgRateIn"], one["msgRateOut"], one["msgThroughputIn"], one["msgThroughputOut"]] == rates[name]


def test_a_busy_4_0_8_report_in_columns():
    """Topics, producers and consumers, and the start time in seconds."""
    path = next(path for path in REPORTS if path.stem == "load-report-4.0.8-busy-broker2")
    seen = build_snapshot(0, {"a:80": parse_report(path.read_bytes(), "a:80")})

    assert [[1, 0, 0], [1, 1, 1], [1, 1, 1]] == seen.rows.counts.tolist()
    assert 1795240605.835 == seen.brokers.started_at[0]
    assert ("4.0.8",) == seen.brokers.versions


def test_2_11_has_no_start_time():
    """A missing field is optional."""
    path = next(path for path in REPORTS if "2.11.0" in path.stem)

    assert np.isnan(build_snapshot(0, {"a:80": parse_report(path.read_bytes(), "a:80")}).brokers.started_at[0])


def test_numbers_that_jackson_writes_as_strings():
    """``"NaN"`` and ``"Infinity"`` are numbers."""
    body = b'{"cpu": {"usage": "NaN", "limit": 100.0}, "msgRateIn": "Infinity", "msgRateOut": "-Infinity"}'
    found = parse_report(body, "a:80")

    assert np.isnan(found.cpu.usage)
    assert (float("inf"), float("-inf")) == (found.msg_rate_in, found.msg_rate_out)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "cannot be read"),
        (b"<html>Not Found</html>", "it begins with b'<html>Not Found</html>'"),
        (b'{"cpu": {"usage": 1', "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"cpu": {"usage": "much"}}', "Expected `float`"),
        (b'{"loadReportType": "LoadReport"}', "loadReportType 'LoadReport', wanted 'LocalBrokerData'"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_no_load_report_is_said_in_one_line(body: bytes, told: str):
    """Broker, value seen and value wanted, no stack trace."""
    with pytest.raises(ObserveError) as caught:
        parse_report(body, "a:80")

    assert "a:80" in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_junk_is_an_observe_error_or_a_report(body: bytes):
    """Nothing else is ever raised."""
    try:
        parse_report(body, "a:80")
    except ObserveError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any other exception fails the test by itself


def test_a_moved_bundle_may_be_on_two_reports():
    """Two rows, one bundle."""
    seen = snapshot(
        {"a:80": report(1, {bundle(1): stats(1)}), "b:80": report(1, {bundle(1): stats(2), bundle(2): stats(3)})}
    )

    assert [bundle(1), bundle(2)] == seen.bundles
    assert [0, 0, 1] == seen.rows.bundle.tolist()
    assert [0, 1, 1] == seen.rows.owner().tolist()


def test_list_and_statistics_may_differ():
    """What is listed without statistics, and the other way round, keeps its own mark."""
    seen = snapshot({"a:80": report(1, {bundle(1): stats(1)}, bundles=[bundle(2)])})

    assert [bundle(1), bundle(2)] == seen.bundles
    assert [True, False] == seen.rows.reported.tolist()
    assert [False, True] == seen.rows.listed.tolist()
