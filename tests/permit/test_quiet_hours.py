"""Windows in which nothing is moved: over midnight, on some days, and where clocks are set back and forward."""

from __future__ import annotations

import zoneinfo
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.config import load
from lbd.errors import UsageError
from lbd.permit.quiet_hours import DAYS, QuietHours, parse_windows, quiet_until
from lbd.permit.settings import Guardrails

NIGHT = {"from": "22:00", "to": "06:00"}


def window(**changes: Any) -> QuietHours:
    """22:00 to 06:00 UTC every day, unless said."""
    return QuietHours.model_validate({**NIGHT, **changes})


def at(text: str, zone: str = "UTC", fold: int = 0) -> float:
    """Epoch seconds of a local time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def until(found: QuietHours, moment: float) -> str | None:
    """When quiet hours end, in their own zone; None outside of them."""
    end = found.end(moment)
    return None if end is None else datetime.fromtimestamp(end, found.zone).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("changes", "moment", "end"),
    [
        ({}, "2026-11-20 21:59:59", None),
        ({}, "2026-11-20 22:00", "2026-11-21 06:00"),
        ({}, "2026-11-21 00:00", "2026-11-21 06:00"),
        ({}, "2026-11-21 05:59:59", "2026-11-21 06:00"),
        ({}, "2026-11-21 06:00", None),
        ({"from": "09:00", "to": "17:30"}, "2026-11-20 17:29", "2026-11-20 17:30"),
        ({"from": "09:00", "to": "17:30"}, "2026-11-20 17:30", None),
        ({"from": "00:00", "to": "24:00", "days": ["sat"]}, "2026-11-21 23:59", "2026-11-22 00:00"),
        ({"from": "00:00", "to": "24:00", "days": ["sat"]}, "2026-11-22 00:00", None),
        ({"from": "12:00", "to": "00:00"}, "2026-11-20 23:59", "2026-11-21 00:00"),
        ({"days": ["sat"]}, "2026-11-20 23:00", None),
        ({"days": ["sat"]}, "2026-11-21 03:00", None),
        ({"days": ["sat"]}, "2026-11-21 23:00", "2026-11-22 06:00"),
        ({"days": ["sat"]}, "2026-11-22 03:00", "2026-11-22 06:00"),
        ({"days": ["sat"]}, "2026-11-22 22:00", None),
    ],
)
def test_when_it_is_quiet(changes: dict[str, Any], moment: str, end: str | None):
    """The beginning belongs to the window, the end does not; days are those on which it begins."""
    assert until(window(**changes), at(moment)) == end


@pytest.mark.parametrize(
    ("zone", "moment", "end"),
    [
        ("Europe/Berlin", "2026-07-01 19:59", None),
        ("Europe/Berlin", "2026-07-01 20:00", "2026-07-02 06:00"),
        ("Europe/Berlin", "2026-12-01 20:59", None),
        ("Europe/Berlin", "2026-12-01 21:00", "2026-12-02 06:00"),
        ("America/New_York", "2026-12-01 03:00", "2026-12-01 06:00"),
        ("Asia/Kathmandu", "2026-12-01 16:15", "2026-12-02 06:00"),
    ],
)
def test_a_zone_of_its_own(zone: str, moment: str, end: str | None):
    """Moments are in UTC, the end in local time: Berlin is two hours ahead in summer, one in winter."""
    assert until(window(zone=zone), at(moment)) == end


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        (("22:00", "06:00"), [("2026-03-28 22:00", 0), ("2026-03-29 05:59", 0)], [("2026-03-29 06:00", 0)]),
        (("02:30", "04:00"), [("2026-03-29 03:30", 0), ("2026-03-29 03:59", 0)], [("2026-03-29 04:00", 0)]),
        (("01:00", "02:30"), [("2026-03-29 01:59", 0), ("2026-03-29 03:29", 0)], [("2026-03-29 03:30", 0)]),
        (
            ("01:00", "02:30"),
            [("2026-10-25 02:29", 0), ("2026-10-25 02:45", 0), ("2026-10-25 02:29", 1)],
            [("2026-10-25 02:30", 1)],
        ),
        (("02:30", "05:00"), [("2026-10-25 02:30", 0), ("2026-10-25 02:00", 1)], [("2026-10-25 02:29", 0)]),
    ],
    ids=["a night of seven hours", "begins in the gap", "ends in the gap", "ends twice", "begins twice"],
)
def test_where_clocks_are_set(hours: tuple[str, str], inside: list[tuple[str, int]], outside: list[tuple[str, int]]):
    """In Berlin 02:00 to 03:00 is left out on 2026-03-29 and comes twice on 2026-10-25: the longer window holds."""
    found = window(**{"from": hours[0], "to": hours[1]}, zone="Europe/Berlin")
    assert all(found.end(at(moment, "Europe/Berlin", fold)) is not None for moment, fold in inside)
    assert all(found.end(at(moment, "Europe/Berlin", fold)) is None for moment, fold in outside)


@given(
    begins=st.integers(0, 1439),
    length=st.integers(1, 1439),
    moment=st.floats(1.7e9, 1.9e9),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]),
)
def test_the_end_is_ahead_and_quiet_until_then(begins: int, length: int, moment: float, zone: str):
    """Within a window the end is at most a day and a change of clocks away, and the window holds until it."""
    ends = (begins + length) % 1440
    clocks = [f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in (begins, ends)]
    found = window(**{"from": clocks[0], "to": clocks[1]}, zone=zone)
    end = found.end(moment)
    if end is not None:
        assert moment < end <= moment + 25 * 3600
        assert found.end(end - 0.001) == end


def test_of_several_the_one_that_ends_last_is_told():
    """In words: which, and until when in its own zone."""
    windows = (window(), window(zone="Europe/Berlin", days=["fri", "sat"]), window(**{"from": "23:00", "to": "23:30"}))
    told = quiet_until(windows, at("2026-11-20 23:10"))
    assert told == (at("2026-11-21 06:00"), "22:00-06:00 UTC, until 2026-11-21T06:00:00Z")
    assert quiet_until(windows[1:2], at("2026-11-20 23:10")) == (
        at("2026-11-21 05:00"),
        "fri, sat 22:00-06:00 Europe/Berlin, until 2026-11-21T06:00:00+01:00",
    )
    assert quiet_until(windows, at("2026-11-20 12:00")) is None
    assert quiet_until((), 0.0) is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"from": 1320}, 'quiet_hours.0.from: 1320: wanted a time such as "22:00"; midnight'),
        ({"from": "9:00"}, "wanted a time such as"),
        ({"to": "25:00"}, "wanted a time such as"),
        ({"to": "22:00"}, "wanted a beginning before midnight and another end"),
        ({"from": "24:00"}, "wanted a beginning before midnight"),
        ({"days": ["caturday"]}, "quiet_hours.0.days.0: 'caturday'"),
        ({"zone": "Europe/Bonn"}, "quiet_hours.0.zone: 'Europe/Bonn': no such time zone; wanted a name such as"),
        ({"zone": "../etc/passwd"}, "no such time zone"),
        ({"until": "05:00"}, "quiet_hours.0.until: no such setting"),
    ],
)
def test_what_cannot_be_meant(changes: dict[str, Any], complaint: str):
    """One line: which setting, the value, and what would be right."""
    with pytest.raises(UsageError) as caught:
        load(None, {}, {"guardrails": {"quiet_hours": [{**NIGHT, **changes}]}})
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_system_without_time_zones(monkeypatch: pytest.MonkeyPatch):
    """The package is named; UTC goes without."""

    def missing(key: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr("lbd.permit.quiet_hours.ZoneInfo", missing)
    with pytest.raises(ValueError, match="install the package tzdata"):
        window(zone="Europe/Berlin")
    assert until(window(), at("2026-11-20 23:00")) == "2026-11-21 06:00"


def test_as_it_is_written_it_is_read():
    """What ``lbd config show`` prints is what a file may say."""
    found = Guardrails(quiet_hours=(window(days=["sat"], zone="Europe/Berlin"), window(to="24:00")))
    shown = found.model_dump(mode="json")["quiet_hours"]
    assert shown[0] == {"from": "22:00", "to": "06:00", "days": ["sat"], "zone": "Europe/Berlin"}
    assert Guardrails.model_validate({"quiet_hours": shown}) == found


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("22:00-06:00", [{}]),
        (" 22:00-06:00  Europe/Berlin ", [{"zone": "Europe/Berlin"}]),
        ("sat, sun 22:00-06:00 UTC", [{"days": ["sat", "sun"]}]),
        ("22:00-06:00; sat sun 00:00-24:00", [{}, {"from": "00:00", "to": "24:00", "days": ["sat", "sun"]}]),
    ],
)
def test_windows_of_a_text(text: str, windows: list[dict[str, Any]]):
    """Days before the times, the zone after them, semicolons between windows."""
    assert parse_windows(text) == tuple(window(**changes) for changes in windows)


@given(
    st.lists(st.sampled_from(DAYS), unique=True),
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_a_window_is_read_as_it_is_written(days: list[str], begins: int, ends: int, zone: str):
    """What lbd shows of a window is what an application team may write."""
    begin, end = (f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in (begins, ends if ends != begins else 1440))
    written = window(**{"from": begin, "to": end, "days": days, "zone": zone})
    assert parse_windows(str(written)) == (written,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted windows such as"),
        ("22:00", "wanted windows such as"),
        ("22:00-06:00 Europe/Berlin now", "wanted windows such as"),
        ("22:00-06:00;", "wanted windows such as"),
        ("22:00-25:00", "wanted a time such as"),
        ("22:00-22:00", "another end"),
        ("22:00-06:00 Mars", "no such time zone"),
        ("caturday 22:00-06:00", "Input should be 'mon'"),
        ("22:00-06:00; " * 100, "more than 500 characters"),
    ],
)
def test_what_is_no_window(text: str, message: str):
    """The error says what would be right."""
    with pytest.raises(ValueError, match=message):
        parse_windows(text)
