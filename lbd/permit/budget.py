"""Unloads and traffic that may be sent within an hour and a day: in total, from one broker, and to one broker. Pure.

Budgets are asked when a plan is made, and again at each sending: a retry, or a move of somebody else, may have used up
what the plan had room for.

Counted are unloads that were really sent, from the journal, including retries and manual moves. Drains and fills have
a budget of their own (``decide/drain.py``), and count in none of these: they would keep turns from balancing for hours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import IMPOSSIBLE_NUMBER, Skip, Unload
from lbd.reason import Reason
from lbd.text import DAY_SECONDS, HOUR_SECONDS, counted, minutes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lbd.model import Snapshot
    from lbd.permit.settings import Guardrails

LEAST_PER_HOUR, LEAST_PER_DAY, LEAST_OF_EACH = 30, 100, 20
"""Relative defaults never go below these: a small cluster of large bundles must stay movable."""

PER_HOUR_OF_BROKER, PER_DAY_OF_BROKER = 5, 15
"""Nor below these for each broker: where brokers have few bundles each, a fifth of all would leave those that have just
joined half empty for an hour (docs/results/strategies.md, 5 to 10).
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """An unload that was asked for at ``at`` (epoch seconds): ``attempt`` 2 is the retry of a move that missed.

    ``failed``: the bundle is known to have stayed where it was. ``owner`` is the broker that was proven to own it when
    the move had ended, None while that is not known, and ``ended_at`` when that was (epoch seconds). ``msg_rate`` in
    messages/s, ``throughput`` in bytes/s. ``order`` is the unload's.
    """

    at: float
    bundle: str
    source: str
    destination: str | None
    attempt: int = 1
    msg_rate: float = 0.0
    throughput: float = 0.0
    failed: bool = False
    owner: str | None = None
    order: str = ""
    ended_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LastHour:
    """Unloads of the last hour, drains and orders by hand included.

    ``attempts`` are the unload requests, retries included; budgets count these, without those of drains and fills.
    ``moves`` are the moves that began, whatever came of them, and ``bundles`` the different bundles among the attempts.
    ``ordered`` are the attempts of drains and fills, which no budget counts.
    """

    moves: int = 0
    bundles: int = 0
    attempts: int = 0
    ordered: int = 0

    @property
    def words(self) -> str:
        """The same as text: ``12 moves of 11 bundles, 14 attempts, 4 of them for drains and fills``."""
        parts = f"{counted(self.moves, 'move')} of {counted(self.bundles, 'bundle')}, "
        ordered = f", {self.ordered:,} of them for drains and fills, which no budget counts" if self.ordered else ""
        return f"{parts}{counted(self.attempts, 'attempt')}{ordered}"


def last_hour(sent: Iterable[Sent], now: float) -> LastHour:
    """Counted from the requests of a journal; ``now`` is epoch seconds."""
    recent = [request for request in sent if request.at > now - HOUR_SECONDS]
    moves, bundles = sum(request.attempt == 1 for request in recent), len({request.bundle for request in recent})
    return LastHour(moves, bundles, len(recent), sum(bool(request.order) for request in recent))


@dataclass(frozen=True)
class Used:
    """How much of a limit is used: of one broker, ``of``, or of all where that is empty.

    ``name`` is the label of the reason that is given when it is used up; ``limit`` is None where there is none.
    """

    name: str
    of: str
    used: int
    limit: int | None

    @property
    def left(self) -> int | None:
        """Number that may still be sent, 0 where a lowered limit is overdrawn; None where there is no limit."""
        return None if self.limit is None else max(self.limit - self.used, 0)


@dataclass(frozen=True)
class _Cap:
    """One limit. ``key`` is what an unload counts for, ``limit`` how many may be sent for that, by how many were; 0 is
    no limit.

    ``times`` are the seconds at which they were sent, by key. Below ``least`` the limit need not be computed.
    """

    reason: Reason
    setting: str
    window_seconds: float
    key: Callable[[Unload | Sent], str]
    limit: Callable[[str, int], int]
    least: int
    times: dict[str, list[float]] = field(default_factory=dict)

    def used(self, key: str) -> int:
        return len(self.times.get(key, ()))

    def is_used_up(self, key: str) -> bool:
        used = self.used(key)
        return used >= self.least and 0 < self.limit(key, used) <= used

    def count(self, move: Unload | Sent, at: float) -> None:
        self.times.setdefault(self.key(move), []).append(at)

    def frees_at(self, key: str) -> float:
        """When there will be more of a used-up limit (epoch seconds); one may shrink while what was sent grows old."""
        used = self.used(key)
        within = next(number for number in range(used - 1, -1, -1) if number < self.limit(key, number))
        return sorted(self.times[key])[used - within - 1] + self.window_seconds

    def detail(self, key: str, now: float) -> str:
        """How much of the limit is used, and when there will be more."""
        used = self.used(key)
        limit = self.limit(key, used)
        whose = f" of {key}" if key else ""
        wait = minutes_text(self.frees_at(key) - now)
        return f"{used} of {limit} used{whose}, the next one in {wait} (guardrails.{self.setting})"

    def most_used(self) -> Iterator[Used]:
        """The key with the most unloads; none of a limit for single brokers that has counted no unload."""
        if self.times or self.key is _everything:
            key = max(self.times, key=lambda name: (self.used(name), name), default="")
            used = self.used(key)
            yield Used(self.reason.label, key, used, self.limit(key, used) or None)


def cluster_traffic(snapshot: Snapshot) -> tuple[float, float]:
    """Messages/s and bytes/s of all brokers, in and out; what cannot be is left out."""
    rates = snapshot.brokers.rates
    messages_in, messages_out, bytes_in, bytes_out = np.where((rates > 0) & (rates <= IMPOSSIBLE_NUMBER), rates, 0).sum(
        axis=0
    )
    return float(messages_in + messages_out), float(bytes_in + bytes_out)


class TrafficShare:
    """A share of the cluster's traffic, used up by moves. The first bundle may always move, however much it carries."""

    def __init__(self, snapshot: Snapshot, share: float) -> None:
        messages, size = cluster_traffic(snapshot)
        self.msg_rate_left, self.throughput_left = messages * share, size * share
        self._bundles = 0

    def refuses(self, unload: Unload) -> bool:
        """Whether the unload would exceed it."""
        more = unload.msg_rate > self.msg_rate_left or unload.throughput > self.throughput_left
        return self._bundles > 0 and more

    def take(self, unload: Unload | Sent) -> None:
        """Count an unload."""
        self.msg_rate_left -= unload.msg_rate
        self.throughput_left -= unload.throughput
        self._bundles += 1

    @property
    def text(self) -> str:
        """The traffic that may still move."""
        return f"{max(self.msg_rate_left, 0):,.0f} msg/s and {max(self.throughput_left, 0) / 1e6:.1f} MB/s left"


class Budget:
    """The budgets at ``now`` (epoch seconds; None: of the round), advanced by each unload that is let through.

    ``sent`` is what was sent within the last day. What has a reason in ``ignored`` is counted and not refused.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        sent: Iterable[Sent],
        guardrails: Guardrails,
        ignored: frozenset[Reason] = frozenset(),
        now: float | None = None,
    ) -> None:
        self._now, self._ignored = snapshot.taken_at if now is None else now, ignored
        self._caps = _caps(_Sizes(snapshot), guardrails)
        self._traffic = TrafficShare(snapshot, guardrails.max_traffic_per_hour)
        self._traffic_frees_at = inf
        for request in sent:
            for cap in self._caps if not request.order else ():
                if request.at > self._now - cap.window_seconds:
                    cap.count(request, request.at)
            if not request.order and request.at > self._now - HOUR_SECONDS:
                self._traffic.take(request)
                self._traffic_frees_at = min(self._traffic_frees_at, request.at + HOUR_SECONDS)

    def refusal(self, unload: Unload) -> Skip | None:
        """The first budget that this unload would exceed; None when it is within all."""
        for cap in self._caps:
            key = cap.key(unload)
            if cap.reason not in self._ignored and cap.is_used_up(key):
                return Skip(unload.bundle, cap.reason, cap.detail(key, self._now), until=cap.frees_at(key))
        if Reason.HOUR_TRAFFIC not in self._ignored and self._traffic.refuses(unload):
            frees_at = min(self._traffic_frees_at, self._now + HOUR_SECONDS)
            detail = self._traffic_detail(unload, frees_at)
            return Skip(unload.bundle, Reason.HOUR_TRAFFIC, detail, until=frees_at)
        return None

    def _traffic_detail(self, unload: Unload, frees_at: float) -> str:
        traffic = f"{unload.msg_rate:,.0f} msg/s and {unload.throughput / 1e6:.1f} MB/s"
        wait = minutes_text(frees_at - self._now)
        return f"{traffic}, {self._traffic.text}, more in {wait} (guardrails.max_traffic_per_hour)"

    def take(self, unload: Unload) -> None:
        """Count an unload that will happen."""
        for cap in self._caps:
            cap.count(unload, self._now)
        self._traffic.take(unload)

    def usage(self) -> tuple[Used, ...]:
        """Each budget; of the budgets for single brokers the most used one."""
        return tuple(used for cap in self._caps for used in cap.most_used())


class _Sizes:
    """Numbers of bundles to which relative limits refer."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._position = snapshot.brokers.index()
        self._rows = np.diff(snapshot.rows.start)
        self.all, self.brokers = len(snapshot.bundles), len(self._position)

    def of_broker(self, broker: str) -> int:
        return int(self._rows[self._position[broker]]) if broker in self._position else 0

    @property
    def of_average_broker(self) -> int:
        return self.all // max(self.brokers, 1)


def _caps(sizes: _Sizes, rails: Guardrails) -> tuple[_Cap, ...]:
    hour = max(LEAST_PER_HOUR, PER_HOUR_OF_BROKER * sizes.brokers, sizes.all // 5)
    day = max(LEAST_PER_DAY, PER_DAY_OF_BROKER * sizes.brokers, sizes.all // 2)
    per_hour = _fixed(rails.max_unloads_per_hour, hour)
    per_day = _fixed(rails.max_unloads_per_day, day)
    source = _sized(
        rails.max_unloads_per_broker_per_hour,
        lambda broker, used: (sizes.of_broker(broker) + used) // 2,  # half of what it had an hour ago
    )
    destination = _sized(rails.max_unloads_per_broker_per_hour, lambda *_: sizes.of_average_broker)
    hourly, of_each = HOUR_SECONDS, "max_unloads_per_broker_per_hour"
    return (
        *_canary_cap(rails),
        _Cap(Reason.HOUR_UNLOADS, "max_unloads_per_hour", hourly, _everything, *per_hour),
        _Cap(Reason.DAY_UNLOADS, "max_unloads_per_day", DAY_SECONDS, _everything, *per_day),
        _Cap(Reason.SOURCE_UNLOADS, of_each, hourly, _source, *source),
        _Cap(Reason.DESTINATION_UNLOADS, of_each, hourly, _destination, *destination),
    )


def _canary_cap(rails: Guardrails) -> Iterator[_Cap]:
    if rails.canary is not None:
        limit = rails.canary.max_moves_per_hour
        yield _Cap(
            Reason.CANARY_UNLOADS, "canary.max_moves_per_hour", HOUR_SECONDS, _everything, lambda *_: limit, limit
        )


def _fixed(chosen: int | None, default: int) -> tuple[Callable[[str, int], int], int]:
    limit = default if chosen is None else chosen
    return (lambda *_: limit), limit


def _sized(chosen: int | None, size: Callable[[str, int], int]) -> tuple[Callable[[str, int], int], int]:
    """The chosen number, else the size. The size is only computed once the least number is reached."""
    if chosen is not None:
        return _fixed(chosen, chosen)
    return (lambda key, used: max(LEAST_OF_EACH, size(key, used))), LEAST_OF_EACH


def _everything(_: Unload | Sent) -> str:
    return ""


def _source(move: Unload | Sent) -> str:
    return move.source


def _destination(move: Unload | Sent) -> str:
    return move.destination or ""
