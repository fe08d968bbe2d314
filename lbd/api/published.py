"""Published state of the API: counters for ``/metrics``, events, and the last turn.

The last turn is one immutable value behind a reference that each turn replaces. Counters cover the life of the process,
and are cheap enough for the threads that turn and move.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from prometheus_client import Counter, Histogram

from lbd.model import Outcome, Result, Skip
from lbd.notify.events import NOT_SENT
from lbd.notify.sender import LOST, MESSAGES
from lbd.pulsar.http import ADMIN_SECONDS
from lbd.redaction import redacted_json
from lbd.store.scores import Scores
from lbd.turn.record import BrokerFacts, brokers, counts, fewest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from numpy.typing import NDArray
    from prometheus_client import Metric

    from lbd.config import Settings
    from lbd.model import BoolArray
    from lbd.permit.served import ServiceResult
    from lbd.store.status import Status
    from lbd.turn.parts import TurnResult


LANDING_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""An idle bundle lands in 0.13 to 0.2 s on 4.0.8, one of 1,250 topics in a second; a broker gives up after 60 s."""

ANSWER_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""A client is back some tenths of a second after its bundle has landed, and waits longer after each try in vain."""

TURN_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


VERDICTS = ("balanced", "partial", "waiting", "moving", "blocked", "held", "not-fixable", "unknown")


class Tally:
    """Thread-safe. Every label is of a closed set, so that nothing grows with the cluster or with who asks."""

    def __init__(self) -> None:
        self._turns = Counter("lbd_turns", "Turns ended, by what they came to.", ["result"], registry=None)
        self._unloads = Counter("lbd_unloads", "Moves ended, by their proven outcome.", ["outcome"], registry=None)
        words = "Ends put right later, by what they are now."
        self._amended = Counter("lbd_unloads_amended", words, ["outcome"], registry=None)
        words = "From an unload's request to the proof that it landed."
        self._landing = Histogram("lbd_unload_landing_seconds", words, buckets=LANDING_SECONDS, registry=None)
        words = "From an unload's request until the bundle's clients were back, by their topics' own times."
        self._reconnect = Histogram("lbd_move_reconnect_seconds", words, buckets=RECONNECT_SECONDS, registry=None)
        words = "Moves that landed, and whose clients did not come back."
        self._not_served = Counter("lbd_moves_not_served", words, registry=None)
        words = "What asking all brokers for their reports took."
        self._observing = Histogram("lbd_observe_seconds", words, buckets=TURN_SECONDS, registry=None)
        labels = ["method", "route", "code"]
        self._answers = Histogram(
            "lbd_api_request_seconds", "Requests to the API.", labels, buckets=ANSWER_SECONDS, registry=None
        )
        self._planned = Counter("lbd_planned_moves", "Moves that turns planned.", registry=None)
        words = "The fewest moves of any plans that get the highest broker as low."
        self._needed = Counter("lbd_needed_moves", words, registry=None)
        for result in (*VERDICTS, "error"):
            self._turns.labels(result)
        for outcome in (*(result.value for result in Result), NOT_SENT):
            self._unloads.labels(outcome)
        for end in Result:
            self._amended.labels(end.value)

    def turn(self, record: TurnResult, verdict: str) -> None:
        """A turn has ended."""
        if not record.approval:  # each turn tells of the same proposal
            self._planned.inc(len(record.plan.unloads))
            self._needed.inc(fewest(record))
        self._turns.labels("error" if record.error is not None else verdict).inc()
        if record.observation is not None:
            self._observing.observe(record.observation.seconds)

    def moved(self, end: Outcome | Skip) -> None:
        """A move has ended, or was not sent; an amended end is counted by itself, as nothing is counted back."""
        if isinstance(end, Skip):
            self._unloads.labels(NOT_SENT).inc()
        elif end.amended:
            self._amended.labels(end.result.value).inc()
        else:
            self._unloads.labels(end.result.value).inc()
            if end.result is Result.LANDED:
                self._landing.observe(end.seconds)

    def served(self, service: ServiceResult) -> None:
        """Count whether the clients of a landed move are back."""
        if service.served == "no" and not service.lifted:
            self._not_served.inc()
        if service.reconnect_seconds is not None:
            self._reconnect.observe(service.reconnect_seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request to the API was answered; ``route`` is its pattern, never what somebody sent."""
        self._answers.labels(method, route, str(status)).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """All counters, and those of this process's requests to brokers and to the webhook."""
        before = (self._turns, self._unloads, self._amended, self._landing, self._observing, self._answers)
        instruments = (*before, ADMIN_SECONDS, self._planned, self._needed, self._reconnect, self._not_served)
        for instrument in (*instruments, MESSAGES, LOST):
            yield from instrument.collect()


# --- server-sent events, sent to current listeners and not stored

LISTENERS = 32
"""More are refused: each costs a connection, and a dashboard left open in a browser asks for ever."""

WAITING_EVENTS = 64
"""A listener that is so far behind is let go; it comes back, and reads anew what it has missed."""

HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 3000


class TooManyError(Exception):
    """All places are taken."""


class _Listener:
    """One connection's queue. Events come from any thread, and are taken in the loop of the connection."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_EVENTS)
        self.is_over = False

    def put(self, event: bytes | None) -> None:
        """Queue an event, in the loop's own thread. A listener that lags is ended: it has missed something."""
        self.is_over = self.is_over or event is None or self.queue.full()
        if self.is_over:
            while not self.queue.empty():
                self.queue.get_nowait()
            event = None
        self.queue.put_nowait(event)


class Events:
    """All listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._number = 0

    def tell(self, name: str, data: Any) -> None:  # noqa: ANN401 - whatever msgspec encodes
        """Send to all listeners, from any thread; costs next to nothing while nobody listens."""
        with self._lock:
            self._number += 1
            self._listeners -= {listener for listener in self._listeners if listener.is_over}  # also an unread end
            listeners, number = tuple(self._listeners), self._number
        if listeners:
            event = b"id: %d\nevent: %s\ndata: %s\n\n" % (
                number,
                name.encode(),
                redacted_json(msgspec.json.encode(data)),
            )
            self._hand(listeners, event)

    @property
    def listening(self) -> int:
        """How many listen."""
        with self._lock:
            return len(self._listeners)

    def close(self) -> None:
        """End every stream."""
        with self._lock:
            listeners = tuple(self._listeners)
        self._hand(listeners, None)

    def listen(self) -> AsyncIterator[bytes]:
        """The stream of one connection. Raises :class:`TooManyError`."""
        listener = _Listener()
        with self._lock:
            if len(self._listeners) >= LISTENERS:
                raise TooManyError
            self._listeners.add(listener)
        return self._stream(listener)

    async def _stream(self, listener: _Listener) -> AsyncIterator[bytes]:
        try:
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS
            while True:
                try:
                    event = await asyncio.wait_for(listener.queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)

    @staticmethod
    def _hand(listeners: tuple[_Listener, ...], event: bytes | None) -> None:
        for listener in listeners:
            try:
                listener.loop.call_soon_threadsafe(listener.put, event)
            except RuntimeError:  # its loop has ended, and the stream with it
                continue


# --- the last turn

SCORED_TURNS = 5760
"""Turns whose scores are kept in memory: a day of them at the default interval, 5 MB of 100 brokers."""

SAME_SECONDS = 60.0
"""The first and the last of turns with the same scores within this time are kept: brokers sample CPU once a minute."""


@dataclass(frozen=True, eq=False)
class Published:
    """One turn, as it is shown: nothing in it changes any more."""

    status: Status
    record: TurnResult
    settings: Settings

    @cached_property
    def brokers(self) -> list[BrokerFacts]:
        """Facts of the turn on each broker."""
        return brokers(self.record)

    @property
    def verdict(self) -> str:
        """The turn's verdict, in one word."""
        return self.status.verdict.kind if self.status.verdict is not None else "unknown"


class Board:
    """Written by the daemon's threads, read by the API's. Readers take :attr:`last` once and go on with that."""

    def __init__(self) -> None:
        self.last: Published | None = None
        self.events = Events()
        self.tally = Tally()
        self._scored: deque[_ScoredTurn] = deque(maxlen=SCORED_TURNS)
        self._lock = threading.Lock()

    def publish(self, published: Published) -> None:
        """A turn has ended."""
        with self._lock:
            turn = _scored(published.status, self._scored[-1].brokers if self._scored else ())
            if len(self._scored) > 1 and turn.repeats(self._scored[-1]) and turn.repeats(self._scored[-2]):
                self._scored.pop()
            self._scored.append(turn)
        self.tally.turn(published.record, published.verdict)
        self.last = published
        self.events.tell("turn", published.status)

    def again(self, status: Status) -> Published:
        """The last turn with a status that tells more than it did when it ended."""
        assert self.last is not None
        self.last = replace(self.last, status=status)
        self.events.tell("turn", status)
        return self.last

    def moved(self, end: Outcome | Skip, move: dict[str, Any]) -> None:
        """A move has ended; ``move`` is how the log tells it."""
        self.tally.moved(end)
        self.events.tell("move", move)

    def served(self, service: ServiceResult, move: dict[str, Any]) -> None:
        """Publish whether a move's clients are back; ``move`` are the fields of the log line."""
        self.tally.served(service)
        self.events.tell("move", move)

    def scores(self, since: float) -> Scores:
        """Scores in the turns of this process from a time on (epoch seconds), a day at most."""
        with self._lock:
            turns = [turn for turn in self._scored if turn.at >= since]
        brokers = tuple(dict.fromkeys(broker for names in {turn.brokers for turn in turns} for broker in names))
        columns = {names: [brokers.index(broker) for broker in names] for names in {turn.brokers for turn in turns}}
        points = np.full((len(turns), len(brokers)), np.nan)
        counted = np.ones(points.shape, dtype=np.bool_)
        for row, turn in enumerate(turns):
            points[row, columns[turn.brokers]] = turn.points
            counted[row, columns[turn.brokers]] = turn.counted
        return Scores(np.array([turn.at for turn in turns], dtype=np.float64), brokers, points, counted)


@dataclass(frozen=True, eq=False)
class _ScoredTurn:
    """``points`` float32 (B,) of ``brokers``; NaN: not known. ``counted`` bool (B,)."""

    at: float
    brokers: tuple[str, ...]
    points: NDArray[np.float32]
    counted: BoolArray

    def repeats(self, before: _ScoredTurn) -> bool:
        """Whether it shows what a turn ``before`` has shown, not long ago."""
        is_same = self.brokers == before.brokers and np.array_equal(self.counted, before.counted)
        recent = 0 <= self.at - before.at < SAME_SECONDS
        return is_same and recent and np.array_equal(self.points, before.points, equal_nan=True)


def _scored(status: Status, before: tuple[str, ...]) -> _ScoredTurn:
    """A turn's scores; where its brokers are those of the turn ``before``, their names are kept once."""
    names = tuple(row.id for row in status.brokers)
    points = np.array([np.nan if row.score is None else row.score for row in status.brokers], dtype=np.float32)
    counted = np.array([counts(row) for row in status.brokers], dtype=np.bool_)
    return _ScoredTurn(status.at, before if names == before else names, points, counted)
