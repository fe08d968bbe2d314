"""Works plans off on a simulated cluster, at the pace and with the journal's rules of the real executor.

Every unload lands where it should: misses are what tests on real brokers are for.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.act.orders import Ended, brokers_of
from lbd.model import Outcome, Result, Skip, Unload
from lbd.record.journal import KEEP_SECONDS
from lbd.record.journal.lines import Ended as Concluded
from lbd.record.journal.lines import Intent, SplitEnded, SplitIntent
from lbd.record.journal.past import State
from lbd.record.journal.splits import within_hour
from lbd.split.cut import SplitResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lbd.act.orders import Accepts, Pace
    from lbd.permit.budget import Sent
    from lbd.reason import Reason
    from lbd.split.plan import Plan

UNLOAD_SECONDS = 0.15
"""From the request until the new owner serves: 0.13 to 0.2 s on 4.0.8 under 3,000 msg/s, a topic in the bundle."""

TOPIC_SECONDS = 0.0007
"""More for each further topic: a second for 1,250 (apache/pulsar #359)."""

COLD_SECONDS = 1.3
"""Of the first unload towards a broker that has owned nothing yet, on 4.2.4."""


def unload_seconds(topics: int, *, cold: bool) -> float:
    """How long a bundle is served by nobody when it moves to a broker that has owned bundles before, or is ``cold``."""
    return max(UNLOAD_SECONDS + TOPIC_SECONDS * (topics - 1), COLD_SECONDS if cold else 0.0)


@dataclass(frozen=True)
class _Flight:
    """One unload of a plan: when it is asked for (epoch seconds), and how long it takes."""

    asked_at: float
    seconds: float
    move: str
    unload: Unload

    @property
    def lands_at(self) -> float:
        return self.asked_at + self.seconds


class Moving:
    """An actuator whose moves take simulated time. ``refuses`` is the check before each request, ``takes`` how many
    seconds a bundle is served by nobody.
    """

    acts = True

    def __init__(
        self,
        pace: Pace,
        now: Callable[[], float],
        refuses: Callable[[Unload], Skip | None],
        takes: Callable[[Unload], float] = lambda _: UNLOAD_SECONDS,
    ) -> None:
        self._pace, self._now, self._refuses, self._takes = pace, now, refuses, takes
        self._journal, self._number = State(), 0
        self._waiting: deque[_Flight] = deque()
        self._flying: list[_Flight] = []
        self._outcomes: list[Outcome] = []
        self._skips: list[Skip] = []
        self._touched: set[str] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is in flight."""
        return not (self._waiting or self._flying)

    @property
    def flying(self) -> frozenset[str]:
        """Bundles whose unload was asked for and has not ended."""
        return frozenset(flight.unload.bundle for flight in self._flying)

    @property
    def attempted_at(self) -> Mapping[str, float]:
        """The last attempt on each bundle."""
        return self._journal.attempted_at

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What was sent within the last day."""
        return self._journal.in_order()

    @property
    def split_or_attempted_at(self) -> Mapping[str, float]:
        """The last attempt on each bundle, or when it came out of a split."""
        return self._journal.past().split_or_attempted_at

    @property
    def splits_within_hour(self) -> int:
        """How many splits of lbd's there were."""
        return within_hour(self._journal.splits.all(), self._now())

    def was_split(self, found: Plan, reason: str) -> None:
        """Journal a split of lbd's, which took no time."""
        self._number += 1
        now, split, parts = self._now(), str(self._number), tuple(part.bundle for part in found.parts)
        asked = (found.bundle, found.owner, found.algorithm, found.positions, reason)
        self._journal.take(SplitIntent(now, split, *asked), b"")
        self._journal.take(SplitEnded(now, split, SplitResult.SPLIT, found.bundle, parts, found.owner), b"")

    def landed(self) -> list[tuple[Unload, float]]:
        """Let time pass until now: what was asked for is journaled, what landed since the last call is told, with the
        seconds that it took.
        """
        now = self._now()
        while self._waiting and self._waiting[0].asked_at <= now:
            self._ask(self._waiting.popleft())
        ended = [flight for flight in self._flying if flight.lands_at <= now]
        self._flying = [flight for flight in self._flying if flight.lands_at > now]
        for flight in ended:
            self._conclude(flight)
        return [(flight.unload, flight.seconds) for flight in ended]

    def collect(self) -> Ended:
        """What ended since the last call, as the executor tells it."""
        self._journal.settle(self._now(), KEEP_SECONDS)
        unfinished = tuple(flight.unload for flight in (*self._flying, *self._waiting))
        self._touched |= brokers_of(unfinished, self._outcomes)
        ended = Ended(tuple(self._outcomes), tuple(self._skips), None, unfinished, frozenset(self._touched))
        self._outcomes, self._skips = [], []
        return ended

    def settled(self) -> None:
        """What was touched so far has been noted; what is under way is told again."""
        self._touched.clear()

    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None:
        """One in flight for each source, ``spacing_seconds`` between two of them, ``at_once`` in all."""
        del accepts
        free, lanes = [self._now()] * self._pace.at_once, dict[str, float]()
        for unload in plan:
            asked_at = max(heapq.heappop(free), lanes.get(unload.source, 0.0))
            self._number += 1
            flight = _Flight(asked_at, self._takes(unload), str(self._number), unload)
            heapq.heappush(free, flight.lands_at)
            lanes[unload.source] = flight.lands_at + self._pace.spacing_seconds
            self._waiting.append(flight)
        self._waiting = deque(sorted(self._waiting, key=lambda flight: flight.asked_at))

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no more of what was handed over."""
        self._skips += [Skip(flight.unload.bundle, reason, detail) for flight in self._waiting]
        self._waiting.clear()

    def _ask(self, flight: _Flight) -> None:
        refusal = self._refuses(flight.unload)
        if refusal is not None:
            self._skips.append(refusal)
            return
        one = flight.unload
        rates = (one.msg_rate, one.throughput)
        intent = Intent(flight.asked_at, flight.move, one.bundle, one.source, one.destination, 1, *rates, one.reason)
        self._journal.take(intent, b"")
        self._flying.append(flight)

    def _conclude(self, flight: _Flight) -> None:
        owner, bundle = flight.unload.destination, flight.unload.bundle
        self._journal.take(Concluded(flight.lands_at, flight.move, Result.LANDED, owner, bundle), b"")
        self._outcomes.append(Outcome(flight.unload, Result.LANDED, owner, seconds=flight.seconds))
