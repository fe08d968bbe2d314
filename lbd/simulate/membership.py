"""Which brokers are there at each moment of a run, and who still takes one that has gone for alive. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.model import BoolArray, FloatArray

SESSION_SECONDS = 30.0
"""metadataStoreSessionTimeoutMillis: for so long a broker that crashed is listed, leads and owns; 31.3 s on 4.0.8."""

CLIENTS_RETURN_SECONDS = 18.0
"""From then until its bundles are owned again: clients had backed off meanwhile and came together, on 4.0.8."""


@dataclass(frozen=True)
class Outage:
    """A broker is away from ``begin`` until ``end``, in seconds of the run; inf: for good.

    ``crashed``: it handed nothing over, and the others learn of it when its session times out.
    """

    broker: int
    begin: float
    end: float
    crashed: bool = False

    @property
    def unlisted_from(self) -> float:
        """When the others know that it is away."""
        return self.begin + SESSION_SECONDS if self.crashed else self.begin

    @property
    def placed_from(self) -> float:
        """When its bundles are placed anew."""
        return self.unlisted_from + CLIENTS_RETURN_SECONDS if self.crashed else self.begin


@dataclass(frozen=True, eq=False)
class Members:
    """What is so of each broker between two moments at which somebody comes or goes; arrays are of shape (B,).

    ``present``: it is up. ``listed``: it is among the active brokers. ``started_at`` is -inf where that was before the
    run. ``placed_from`` is when bundles that it owned are placed elsewhere, inf where it is up. ``leader`` is the
    position of the broker that leads by name, ``leads`` whether it is up.
    """

    present: BoolArray
    listed: BoolArray
    started_at: FloatArray
    placed_from: FloatArray
    leader: int
    leads: bool


class Membership:
    """The members at any moment; ``times`` are the seconds at which something changes."""

    def __init__(self, joins_at: FloatArray, leaves_at: FloatArray, outages: Sequence[Outage] = ()) -> None:
        away = [*_before(joins_at), *_after(leaves_at), *outages]
        times = {time for one in away for time in (one.begin, one.end, one.unlisted_from) if isfinite(time)}
        self.times = sorted(times)
        self._members = [_members(joins_at.size, away, begun) for begun in (-inf, *self.times)]

    def at(self, seconds: float) -> Members:
        """The members then."""
        return self._members[bisect_right(self.times, seconds)]

    def changed(self, since: float, until: float) -> bool:
        """Whether somebody came or went after ``since``, and not after ``until``."""
        return bisect_right(self.times, since) != bisect_right(self.times, until)

    def lost_any(self, until: float) -> bool:
        """Whether some broker went within the run so far."""
        seen = self._members[bisect_right(self.times, 0) : bisect_right(self.times, until) + 1]
        return any((before.present & ~after.present).any() for before, after in pairwise(seen))


def _before(joins_at: FloatArray) -> Iterator[Outage]:
    return (Outage(at, -inf, seconds) for at, seconds in enumerate(joins_at.tolist()) if seconds > -inf)


def _after(leaves_at: FloatArray) -> Iterator[Outage]:
    return (Outage(at, seconds, inf) for at, seconds in enumerate(leaves_at.tolist()) if seconds < inf)


def _members(brokers: int, outages: Sequence[Outage], now: float) -> Members:
    present, listed = np.ones(brokers, dtype=np.bool_), np.ones(brokers, dtype=np.bool_)
    started_at, placed_from = np.full(brokers, -inf), np.full(brokers, inf)
    for one in outages:
        if one.begin <= now < one.end:
            present[one.broker] = False
            placed_from[one.broker] = one.placed_from
        if one.unlisted_from <= now < one.end:
            listed[one.broker] = False
        if one.end <= now:
            started_at[one.broker] = max(started_at[one.broker], one.end)
    leader = int(np.argmin(np.where(listed, started_at, inf)))
    return Members(present, listed, started_at, placed_from, leader, bool(present[leader]))
