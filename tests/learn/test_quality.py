"""Checks of a history: counts in, named checks with their shares out, and a history of which too much is bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lbd.errors import ObserveError
from lbd.learn.quality import QualityCheck, ReadCounts, day_check, file_checks, refuse_bad, row_checks, traffic_check

PAGE = Path(__file__).parents[2] / "docs" / "calibrate.md"
CLEAN = ReadCounts(
    samples_read=1000, samples_missing=0, samples_negative=0, samples_not_finite=0, samples_kept=1000,
    samples_doubted=0, rounds_read=200, rounds_kept=200, rounds_overtaken=0, rounds_apart=0, gaps=0,
    seconds_seen=12_000.0, seconds_silent=0.0,
)  # fmt: skip
HALF = "(50.0 % of the {}), at most 10 %"
NOTHING = ReadCounts(**dict.fromkeys(vars(CLEAN), 0))


def found(checks: tuple[QualityCheck, ...]) -> dict[str, tuple[int, float]]:
    """Count and share of the checks that found something."""
    return {one.name: (one.count, round(one.share, 4)) for one in checks if one.count or one.share}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, {}),
        ({"rounds_read": 250}, {"repeated-round": (50, 0.2)}),
        ({"rounds_kept": 190, "rounds_overtaken": 10}, {"clock-set-back": (10, 0.05)}),
        ({"rounds_apart": 1}, {"other-cluster": (1, 0.005)}),
        ({"samples_missing": 30}, {"missing-number": (30, 0.03)}),
        ({"samples_negative": 101}, {"negative-number": (101, 0.101)}),
        ({"samples_not_finite": 5}, {"not-a-number": (5, 0.005)}),
        ({"samples_kept": 800, "samples_doubted": 80}, {"untrusted-sample": (80, 0.1)}),
        ({"gaps": 2, "seconds_silent": 4_000.0}, {"silence": (2, 0.25)}),
    ],
    ids=[
        "clean",
        "read twice",
        "clock",
        "two clusters",
        "no number",
        "below zero",
        "NaN or infinite",
        "not trusted",
        "silence",
    ],
)
def test_rows_are_checked(counts: dict[str, float], expected: dict[str, tuple[int, float]]):
    """Each check counts its own kind alone, as a share of what it looked at."""
    assert found(row_checks(replace(CLEAN, **counts))) == expected


def test_files_are_checked():
    """By what is wrong with them, as a share of all."""
    assert found(file_checks(20, ["unreadable-file", "unreadable-page", "unreadable-file", "other-columns"])) == {
        "unreadable-file": (2, 0.1),
        "unreadable-page": (1, 0.05),
        "other-columns": (1, 0.05),
    }


@pytest.mark.parametrize(
    ("carried", "reported", "share"),
    [(100.0, 100.0, 0.0), (100.0, 25.0, 0.75), (100.0, 104.0, 0.0), (0.0, 0.0, 0.0)],
    ids=["all reported", "the largest alone", "by rounding", "no traffic"],
)
def test_traffic_of_unreported_bundles_is_a_share(carried: float, reported: float, share: float):
    """Never below zero: stored rates are rounded."""
    assert traffic_check(0, carried, reported).share == share


def test_an_empty_history_passes_all_checks():
    """Nothing of nothing is no share; that nothing is there is reported elsewhere."""
    refuse_bad("h", (*file_checks(0, ()), *row_checks(NOTHING), day_check(0, 0), traffic_check(0, 0.0, 0.0)))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"samples_negative": 100}, None),
        ({"samples_negative": 101}, "negative-number 101 (10.1 % of the samples), at most 10 %"),
        ({"rounds_read": 20_000}, None),
        ({"gaps": 1, "seconds_silent": 12_001.0}, "silence 1 (50.0 % of the time), at most 50 %"),
        (
            {"samples_missing": 500, "rounds_kept": 100, "rounds_overtaken": 100},
            f"clock-set-back 100 {HALF.format('rounds')}; missing-number 500 {HALF.format('samples')}",
        ),
    ],
    ids=["at the limit", "above it", "without a limit", "silence", "two"],
)
def test_bad_data_are_not_learned_from(counts: dict[str, float], message: str | None):
    """Above a limit the job ends with exit 3, in one line that names each check, its count, share and limit."""
    checks = row_checks(replace(CLEAN, **counts))
    if message is None:
        refuse_bad("/h", checks)
        return
    with pytest.raises(ObserveError) as refusal:
        refuse_bad("/h", checks)
    assert str(refusal.value) == f"/h: too much of the history is bad, nothing is learned from it: {message}"
    assert refusal.value.exit_code == 3


def test_each_check_and_its_limit_is_documented():
    """Names are stable: a table of docs/calibrate.md has each with what it is a share of, and its limit."""
    checks = (*file_checks(0, ()), *row_checks(NOTHING), day_check(0, 0), traffic_check(0, 0.0, 0.0))
    rows = [f"| `{one.name}` | {one.meaning} | {one.whole} | {one.limit_text} |" for one in checks]

    assert [line for line in PAGE.read_text().splitlines() if line in rows] == rows
