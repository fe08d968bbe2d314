"""Load reports of real brokers, 2.11 to 5.0, and of broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.errors import ObserveError, UsageError
from lbd.model import Averages
from lbd.observe import averages
from lbd.observe.parse import BundleStats, LoadReport, build_snapshot, parse_report, parse_round
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


FIELDS = sorted({*LoadReport.__struct_encode_fields__, "new"})
NAMES = st.sampled_from(["usage", "limit", *BundleStats.__struct_encode_fields__])
NUMBERS = [0, -1, 2**53 + 1, 2**64, -(10**30), 10**400, 5e-324, 1e308, -1e308, "NaN", "-Infinity", "9" * 5000, True]
JSON = st.recursive(
    st.none() | st.sampled_from(NUMBERS) | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_value_in_any_field(values: dict[str, Any]):
    """Columns, or one line of words; no number that the columns cannot hold."""
    try:
        found = parse_report(json.dumps(values).encode(), "a:80")
    except ObserveError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - any other exception fails the test by itself
        return
    seen = build_snapshot(0, {"a:80": found})
    assert (seen.rows.counts >= 0).all()
    assert (seen.brokers.topics >= 0).all()
    assert np.isfinite(averages.update(Averages.empty(), seen, np.ones(1, dtype=np.bool_)).short).all()


@pytest.mark.parametrize("depth", [10, 5000, 1_000_000])
def test_brackets_in_brackets(depth: int):
    """However deep, and in a field that nobody reads: a report or an error of the broker."""
    body = b'{"new": ' + b"[" * depth + b"]" * depth + b"}"
    try:
        parse_report(body, "a:80")
    except ObserveError as error:
        assert depth > 10
        assert len(str(error)) < 300  # noqa: PT017
    with pytest.raises(UsageError, match="r:7: not a round"):
        parse_round(b'{"t": 1, "reports": ' + b"[" * depth, "r:7")


def test_a_negative_bundle_adds_no_sample():
    """Nor does it spoil the mean of what was right before and after; Pulsar takes every row."""
    right, wrong = (snapshot({"a:80": report(1, {bundle(1): stats(rate)})}) for rate in (100, -1e300))
    fresh = np.ones(1, dtype=np.bool_)
    before = averages.update(Averages.empty(), right, fresh)

    assert [100.0, 100.0, 10_000.0, 10_000.0] == averages.update(before, wrong, fresh).short[0].tolist()
    assert 0 > averages.update(before, wrong).short[0, 0]
    assert [0] == averages.update(Averages.empty(), wrong, fresh).samples.tolist()


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
