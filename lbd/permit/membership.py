"""Brokers that come and go: how long to wait after a change. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

REMEMBERED_SECONDS = 3600.0
MOST_TIMES = 5
"""Ten minutes by default: longer than a broker of a rolling restart takes, short enough for an unstable one."""

JOIN_SETTLE_SECONDS = 30.0
"""After brokers have only joined, so that several are seen together. All bundles keep their owners: nothing but the new
broker has to settle, and that is judged by its own CPU.
"""


@dataclass(frozen=True)
class Membership:
    """The active brokers, and which ``joined`` and ``departed`` last, ``since`` when (epoch seconds; 0: not known).

    ``departures`` are the times at which brokers went within the last hour.
    """

    active: tuple[str, ...] = ()
    since: float = 0.0
    joined: tuple[str, ...] = ()
    departed: tuple[str, ...] = ()
    departures: tuple[float, ...] = ()

    def updated(self, active: tuple[str, ...], now: float) -> Membership:
        """The membership when these brokers are active ``now``; the first round counts as no change."""
        departed = tuple(sorted(set(self.active) - set(active)))
        gone = departures(self.departures, now, went=bool(departed))
        if self.active == active:
            return replace(self, departures=gone)
        if not self.active:
            return Membership(active, 0.0, (), (), gone)
        return Membership(active, now, tuple(sorted(set(active) - set(self.active))), departed, gone)

    def unsettled(self, now: float, settle_seconds: float) -> str:
        """The brokers that came or went, and how long lbd still waits; empty once the membership has settled."""
        remaining = settled_at(self.since, self.departures, settle_seconds) - now
        if remaining <= 0:
            return ""
        changes = (self.departed, "left"), (self.joined, "joined")
        who = ", ".join(f"{first_names(brokers)} {what}" for brokers, what in changes if brokers)
        often = f" (some went {len(self.departures)} times within the hour)" if len(self.departures) > 1 else ""
        return f"{who or 'brokers came or went'}{often}, {remaining:.0f} s to wait"


def departures(before: Iterable[float], now: float, *, went: bool) -> tuple[float, ...]:
    """When brokers went within the last hour (epoch seconds); ``went``: a broker of the last round is away."""
    lately = tuple(min(at, now) for at in before if now - REMEMBERED_SECONDS < at)
    return (*lately, now) if went else lately


def settled_at(changed_at: float, lately: Collection[float], settle_seconds: float) -> float:
    """When a membership that last changed at ``changed_at`` may be taken for settled.

    Where nobody went within the hour, brokers have only joined: :data:`JOIN_SETTLE_SECONDS` at most. Where brokers went
    more than once, each time makes it longer: what is moved to a broker in the middle of a rolling restart is scattered
    again by the next one (users' reports: apache/pulsar #6772, #12160).
    """
    if not lately:
        return changed_at + min(settle_seconds, JOIN_SETTLE_SECONDS)
    return changed_at + settle_seconds * min(len(lately), MOST_TIMES)
