"""Bookkeeping of sequence-checked traffic: what was acknowledged, what arrived, what was lost, where it stalled."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

GAP_SECONDS = 0.1


@dataclass(frozen=True)
class Gap:
    """A time in which a producer had a message under way and got no acknowledgement."""

    topic: str
    client: int
    at: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """What became of a run. `lost` were acknowledged to the producer and never reached a consumer."""

    sent: int
    acknowledged: int
    unanswered: int
    received: int
    duplicates: int
    lost: int
    misrouted: int
    send_errors: dict[str, int]
    gaps: list[Gap]
    latency_ms: dict[str, int]
    seconds: float
    sent_by_topic: dict[str, int]
    lost_by_topic: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Result:
        return cls(**values | {"gaps": [Gap(**gap) for gap in values["gaps"]]})

    def gaps_on(self, topics: set[str]) -> list[Gap]:
        return [gap for gap in self.gaps if gap.topic in topics]


@dataclass
class Stream:
    """Everything one producer sent to one topic, and which of it each consumer has seen.

    One byte per message and purpose: a single store into a byte array needs no lock, whatever thread does it.
    """

    topic: str
    client: int
    consumers: int
    acknowledged: bytearray = field(default_factory=bytearray)
    seen: list[bytearray] = field(default_factory=list)
    answered: int = 0
    duplicates: list[int] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    latencies_ms: Counter[int] = field(default_factory=Counter)
    last_answer: float = 0.0

    def __post_init__(self) -> None:
        self.seen = [bytearray() for _ in range(self.consumers)]
        self.duplicates = [0] * self.consumers

    @property
    def sent(self) -> int:
        return len(self.acknowledged)

    def next_number(self) -> int:
        """The sequence number of the next message; room for its marks is made before it can arrive."""
        for marks in self.seen:
            marks.append(0)
        self.acknowledged.append(0)
        return len(self.acknowledged) - 1

    def on_answer(self, number: int, sent_at: float, now: float, wall: float, error: str | None) -> None:
        """The producer heard about a message: acknowledged, or failed with an error."""
        stalled = now - max(sent_at, self.last_answer)
        self.last_answer = now
        self.answered += 1
        if stalled > GAP_SECONDS:
            self.gaps.append(Gap(self.topic, self.client, wall - stalled, stalled))
        if error is None:
            self.acknowledged[number] = 1
            self.latencies_ms[round(1000 * (now - sent_at))] += 1
        else:
            self.errors[error] += 1

    def on_message(self, consumer: int, number: int) -> None:
        """A consumer got a message."""
        marks = self.seen[consumer]
        if marks[number]:
            self.duplicates[consumer] += 1
        marks[number] = 1

    def received(self) -> int:
        return sum(marks.count(1) for marks in self.seen)

    def lost(self) -> int:
        """Messages acknowledged to the producer and missing at a consumer, counted per consumer."""
        acknowledged = int.from_bytes(self.acknowledged, "big")
        return sum((acknowledged & ~int.from_bytes(marks, "big")).bit_count() for marks in self.seen)


def summarise(streams: list[Stream], misrouted: int, seconds: float) -> Result:
    """One result out of all streams."""
    sent_by_topic: Counter[str] = Counter()
    lost_by_topic: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    latencies_ms: Counter[int] = Counter()
    for stream in streams:
        sent_by_topic[stream.topic] += stream.sent
        lost_by_topic[stream.topic] += stream.lost()
        errors.update(dict(stream.errors))  # copies: the client's threads may be counting on
        latencies_ms.update(dict(stream.latencies_ms))
    return Result(
        sent=sent_by_topic.total(),
        acknowledged=sum(stream.acknowledged.count(1) for stream in streams),
        unanswered=sum(stream.sent - stream.answered for stream in streams),
        received=sum(stream.received() for stream in streams),
        duplicates=sum(sum(stream.duplicates) for stream in streams),
        lost=lost_by_topic.total(),
        misrouted=misrouted,
        send_errors=dict(errors),
        gaps=sorted((gap for stream in streams for gap in stream.gaps), key=lambda gap: gap.at),
        latency_ms=_quantiles(latencies_ms),
        seconds=seconds,
        sent_by_topic=dict(sent_by_topic),
        lost_by_topic={topic: count for topic, count in lost_by_topic.items() if count},
    )


def _quantiles(counts: Counter[int]) -> dict[str, int]:
    ordered = sorted(counts)
    upto = list(itertools.accumulate(counts[latency] for latency in ordered))
    picks = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0} if ordered else {}
    return {name: ordered[bisect.bisect_left(upto, part * upto[-1])] for name, part in picks.items()}
