"""Windows of the week in which nothing is moved, in a time zone of their own. Pure: the time is an argument.

The zone's rules are read with the settings; nothing here reads a file or a clock afterwards.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from math import inf
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_serializer, model_validator

from lbd.section import Section
from lbd.text import zoned

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60


def _minutes(value: object) -> object:
    """Minutes since midnight of ``HH:MM``."""
    if isinstance(value, str) and CLOCK.fullmatch(value):
        return int(value[:2]) * 60 + int(value[3:])
    raise ValueError('wanted a time such as "22:00"; midnight at the end of a day is "24:00"')


def _zone(value: object) -> object:
    """The rules of a time zone; UTC needs none of the system's files."""
    if isinstance(value, tzinfo):
        return value
    if value == "UTC":
        return UTC
    try:
        return ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(_unknown_zone()) from error


def _unknown_zone() -> str:
    try:
        ZoneInfo("Etc/UTC")
    except (ZoneInfoNotFoundError, OSError):
        return (
            "this system has no time zones: install the package tzdata (apt install tzdata, or pip install tzdata), "
            "or use UTC"
        )
    return "no such time zone; wanted a name such as Europe/Berlin or UTC"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


Minutes = Annotated[int, BeforeValidator(_minutes)]
Zone = Annotated[tzinfo, BeforeValidator(_zone)]


class QuietHours(Section):
    """One window; ``days`` are those on which it begins, so that Saturday's may end on Sunday morning.

    ``begins`` and ``ends`` (``from`` and ``to``) are minutes since local midnight.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    begins: Minutes = Field(alias="from")
    ends: Minutes = Field(alias="to")
    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    zone: Zone = UTC

    @model_validator(mode="after")
    def _last(self) -> QuietHours:
        if self.begins in {self.ends, DAY_MINUTES}:
            raise ValueError('wanted a beginning before midnight and another end; a whole day is "00:00" to "24:00"')
        return self

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        ends = {"from": _clock(self.begins), "to": _clock(self.ends)}
        return {**ends, "days": list(self.days), "zone": str(self.zone)}

    def __str__(self) -> str:
        days = f"{', '.join(self.days)} " if self.days else ""
        return f"{days}{_clock(self.begins)}-{_clock(self.ends)} {self.zone}"

    def end(self, at: float) -> float | None:
        """End of the window that contains ``at`` (both epoch seconds); None outside of a window.

        Where a clock is set back or forward, the window is the longer one of those that can be meant.
        """
        midnight = datetime.fromtimestamp(at, self.zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
        for day in (midnight, midnight - timedelta(days=1)):
            begin, end = self._on(day)
            if min(self._epochs(begin)) <= at < max(self._epochs(end)) and self._begins_on(day):
                return max(self._epochs(end))
        return None

    def _begins_on(self, day: datetime) -> bool:
        return not self.days or DAYS[day.weekday()] in self.days

    def _on(self, day: datetime) -> tuple[datetime, datetime]:
        over_midnight = DAY_MINUTES if self.ends < self.begins else 0
        return day + timedelta(minutes=self.begins), day + timedelta(minutes=self.ends + over_midnight)

    def _epochs(self, wall: datetime) -> tuple[float, float]:
        """A time that a change of clocks repeats or leaves out is meant either way."""
        first = wall.replace(tzinfo=self.zone)
        return first.timestamp(), first.replace(fold=1).timestamp()


MOST_CHARACTERS = 500
FORM = "wanted windows such as 'sat sun 22:00-06:00 Europe/Berlin', several of them with ; between"


def parse_windows(text: str) -> tuple[QuietHours, ...]:
    """The windows of a text, in the form in which ``str`` gives each, with ``;`` between them.

    A window is the days on which it begins (every day where there are none), the times, and the zone (UTC where there
    is none). Raises ValueError, which says what would be right.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"more than {MOST_CHARACTERS} characters, {FORM}")
    return tuple(map(_parse_window, text.split(";")))


def _parse_window(text: str) -> QuietHours:
    words = text.replace(",", " ").split()
    times = [index for index, word in enumerate(words) if ":" in word]
    if len(times) != 1 or words[times[0]].count("-") != 1 or len(words) > times[0] + 2:
        raise ValueError(FORM)
    begins, ends = words[times[0]].split("-")
    fields: dict[str, object] = {"from": begins, "to": ends, "days": tuple(words[: times[0]])}
    if zone := words[times[0] + 1 :]:
        fields["zone"] = zone[0]
    try:
        return QuietHours.model_validate(fields)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


WEEK_SECONDS = 7 * 86_400


def quiet_until(windows: Sequence[QuietHours], at: float) -> tuple[float, str] | None:
    """When it is quiet no more (epoch seconds), and the window that holds ``at`` in words; None outside of all.

    Of several that overlap, the one that ends last is named. Those that begin before it is over prolong it; windows
    that leave no time of a week have no end, which is infinite.
    """
    current = [(end, window) for window in windows if (end := window.end(at)) is not None]
    if not current:
        return None
    until, window = max(current, key=lambda ending: ending[0])
    while until < at + WEEK_SECONDS and (ends := [end for other in windows if (end := other.end(until)) is not None]):
        until = max(ends)
    if until < at + WEEK_SECONDS:
        return until, f"{window}, until {zoned(until, window.zone)}"
    return inf, f"{window}, and no time of the week is left"
