"""How long to sit out after brokers came or went. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

REMEMBERED_SECONDS = 3600.0
MOST_TIMES = 5
"""Ten minutes by default: longer than a broker of a rolling restart takes, short enough for an unstable one."""


def departures(before: Iterable[float], now: float, *, went: bool) -> list[float]:
    """When brokers went within the last hour (epoch seconds); ``went``: one is away that was there a round ago."""
    lately = [at for at in before if now - REMEMBERED_SECONDS < at <= now]
    return [*lately, now] if went else lately


def settled_at(changed_at: float, lately: Collection[float], settle_seconds: float) -> float:
    """When a membership that last changed at ``changed_at`` may be taken for settled.

    Where brokers went more than once within the hour, each time makes it longer: what is moved to a broker in the
    middle of a rolling restart is scattered again by the next one (users' reports: apache/pulsar #6772, #12160).
    """
    return changed_at + settle_seconds * min(max(len(lately), 1), MOST_TIMES)
