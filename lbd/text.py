"""Numbers with units, durations and times as text. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import tzinfo


NAMED = 3
"""Things that a sentence names; the others are counted."""


def counted(number: int, noun: str) -> str:
    """``1 broker``, ``1,300 brokers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_names(names: Sequence[str]) -> str:
    """``a, b, c and 4 more``: the first of them, and the number of others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def first_clauses(clauses: Sequence[str]) -> str:
    """``a; b; c; and 4 more``: as :func:`first_names`, for texts that have commas of their own."""
    more = (f"and {len(clauses) - NAMED} more",) if len(clauses) > NAMED else ()
    return "; ".join((*clauses[:NAMED], *more))


def utc(epoch_seconds: float) -> str:
    """A time, to the second."""
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# --- durations and times

HOUR_SECONDS, DAY_SECONDS = 3600, 86_400

_UNITS = (("day", DAY_SECONDS), ("h", HOUR_SECONDS), ("min", 60), ("s", 1))


def duration_text(seconds: float) -> str:
    """The two largest units of a duration: ``1 h 12 min``, ``2 days 3 h``; seconds alone up to two minutes.

    A number of a broker's configuration may be infinite.
    """
    if not isfinite(seconds):
        return f"{seconds} s"
    whole = max(round(seconds), 0)
    for (name, size), (smaller, smaller_size) in pairwise(_UNITS):
        if whole >= size and whole >= 120:
            first = counted(whole // size, name) if name == "day" else f"{whole // size} {name}"
            rest = whole % size // smaller_size
            return f"{first} {rest} {smaller}" if rest else first
    return f"{whole} s"


def minutes_text(seconds: float) -> str:
    """An approximate duration: whole minutes from two on."""
    return duration_text(round(seconds / 60) * 60 if 120 <= seconds < inf else seconds)


SHOWN_CHARACTERS = 100


def shown(text: str) -> str:
    """A person's text, in quotes, cut short where it is long."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def local(epoch_seconds: float, zone: tzinfo | None = None) -> str:
    """A time of this machine's clock in ISO seconds; a number that is no time is shown as it is."""
    return _formatted(epoch_seconds, zone, lambda time: time.strftime("%Y-%m-%dT%H:%M:%S"))


def zoned(epoch_seconds: float, zone: tzinfo | None = None) -> str:
    """The same with its distance from UTC, for a sentence; a table names the zone in its heading."""
    return _formatted(epoch_seconds, zone, lambda time: time.isoformat(timespec="seconds").replace("+00:00", "Z"))


def weekday(epoch_seconds: float, zone: tzinfo | None = None) -> str:
    """``Monday, 2026-11-23``; a number that is no time is shown as it is."""
    return _formatted(epoch_seconds, zone, lambda time: time.strftime("%A, %Y-%m-%d"))


def _formatted(epoch_seconds: float, zone: tzinfo | None, text: Callable[[datetime], str]) -> str:
    try:
        return text(datetime.fromtimestamp(epoch_seconds, UTC).astimezone(zone))
    except (OverflowError, ValueError, OSError):
        return f"{epoch_seconds:g}"


def zone_names(times: Iterable[float]) -> str:
    """Names of this machine's time zone at these times: ``CEST, CET`` where summer time ends between them."""
    names = (_formatted(time, None, lambda time: time.tzname() or "local time") for time in times)
    return ", ".join(dict.fromkeys(names))
