"""Durations and times as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import tzinfo

_UNITS_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,9}}){unit})?" for unit in _UNITS_SECONDS))
_SPOKEN = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
LONGEST_SECONDS = 3650 * 86_400


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A click callback: seconds of ``90s``, ``15m``, ``2h``, ``1d`` or ``1h30m``; anything else is wrong usage."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value)
    parts = found.groupdict("0") if found else {}
    seconds = sum(int(number) * _UNITS_SECONDS[unit] for unit, number in parts.items())
    if not 0 < seconds <= LONGEST_SECONDS:
        wanted = "wanted 90s, 15m, 2h, 1d, 1h30m or the like, above 0 and up to 3650d"
        raise click.BadParameter(f"{value!r} is no duration; {wanted}", ctx, param)
    return float(seconds)


def spoken(seconds: float) -> str:
    """The two largest units of a duration: ``1 h 12 min``; seconds alone up to two minutes."""
    left = max(round(seconds), 0)
    for (name, size), (smaller, smaller_size) in pairwise(_SPOKEN):
        if left >= size and left >= 120:
            rest = left % size // smaller_size
            return f"{left // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


def local(at: float, zone: tzinfo | None = None) -> str:
    """A time of this machine's clock in ISO seconds; a number that is no time is shown as it is."""
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def zoned(at: float, zone: tzinfo | None = None) -> str:
    """The same with its distance from UTC, for a sentence; a table names the zone in its heading."""
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def zone_name() -> str:
    """Name of this machine's time zone."""
    return datetime.now(UTC).astimezone().tzname() or "local time"
