"""A drain, what has become of it, and what stays, each in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.cli.render import plain
from lbd.cli.times import spoken, zoned
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.record.drains import Drain, Left, Work


def drain_words(drain: Drain, now: float) -> str:
    """Who drains it, since when, until when, and why."""
    since = f" since {zoned(drain.since)} ({spoken(now - drain.since)})" if drain.since else ""
    until = f" until {zoned(drain.until)}" if drain.until is not None else " until it is released"
    reason = f": {drain.reason}" if drain.reason else ""
    return plain(f"{drain.broker}, by {drain.by}{since}{until}{reason}")


def work_words(work: Work) -> str:
    """How far a drain or a fill has come."""
    if work.ended_at is not None:
        return plain(work.sentence)
    held = f"; waits: {work.held}" if work.held else ""
    eta = f", about {spoken(work.eta_seconds)} left" if work.eta_seconds is not None and not work.held else ""
    failed = f", {work.failed} failed" if work.failed else ""
    return plain(f"{work.tried:,} of {counted(work.total, 'bundle')}{failed}{eta}{held}")


def left_words(left: Left) -> str:
    """A bundle that stays."""
    return plain(f"left: {left.bundle}: {left.reason}{left.detail and f': {left.detail}'}")
