"""How long the clients of moved bundles stood still, by their own clocks: publish gaps, and their log of reconnects."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.e2e.checker import Gap

BELONGS_SECONDS = 10.0
"""A gap that began so long after the unload or earlier, and was not over before it, belongs to the move."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d [\d:]+\.\d{3}")
_CREATED = re.compile(r"\[(persistent://[^,]+), ([^]]+)\] Created \w+ on broker \[.* -> (\S+)\]")
"""A line of the C++ client's log: the topic, the producer's name or the consumer's subscription, and the address."""

Connected = tuple[float, str, str]
"""When a producer or a consumer was connected (epoch seconds), its name, and the broker's address."""


@dataclass(frozen=True)
class Moved:
    """One unload of the bundle of a topic, with when it was asked for (epoch seconds).

    ``host`` is that of its new owner, empty where it is not known: a client may still connect to the old one.
    """

    topic: str
    asked_at: float
    host: str = ""


@dataclass(frozen=True)
class Stood:
    """What one move was to its clients, in seconds from the unload.

    ``gap`` is the longest of its producers' publish gaps (0: none above 0.1 s). ``first`` and ``last`` are when the
    first and the last of its producers and consumers were connected again, None where none of them says so.
    """

    moved: Moved
    gap: float
    first: float | None
    last: float | None


def created(log: Path) -> dict[str, list[Connected]]:
    """When producers and consumers of each topic were connected, by the clients' log."""
    found: dict[str, list[Connected]] = defaultdict(list)
    at = 0.0
    with log.open(errors="replace") as lines:
        for line in lines:
            if (time := _TIME.match(line)) is not None:  # the client's threads tear some lines: then it is that before
                at = datetime.fromisoformat(time[0]).timestamp()
            if (match := _CREATED.search(line)) is not None:
                found[match[1]].append((at, match[2], match[3]))
    return {topic: sorted(times) for topic, times in found.items()}


def stood(moves: Iterable[Moved], gaps: Iterable[Gap], connected: Mapping[str, Sequence[Connected]]) -> list[Stood]:
    """Each move with what its clients say: the first reconnect of each of them before the topic's next move.

    ``moves`` must be all of a topic's. Else a client whose line is torn would count as back by the next one's.
    """
    own: dict[str, list[Gap]] = defaultdict(list)
    for gap in gaps:
        own[gap.topic].append(gap)
    ordered, following = sorted(moves, key=lambda move: move.asked_at), dict[Moved, float]()
    latest: dict[str, Moved] = {}
    for move in ordered:
        if move.topic in latest:
            following[latest[move.topic]] = move.asked_at
        latest[move.topic] = move
    found: list[Stood] = []
    for move in ordered:
        until = following.get(move, float("inf"))
        mine = [
            gap.seconds
            for gap in own[move.topic]
            if gap.at < min(move.asked_at + BELONGS_SECONDS, until) and gap.at + gap.seconds > move.asked_at
        ]
        back: dict[str, float] = {}
        for at, name, broker in connected.get(move.topic, ()):
            if move.asked_at <= at < until and broker.startswith(move.host):
                back.setdefault(name, at - move.asked_at)
        ends = (min(back.values()), max(back.values())) if back else (None, None)
        found.append(Stood(move, max(mine, default=0.0), *ends))
    return found


def stuck(connected: Mapping[str, Sequence[Connected]]) -> list[tuple[str, str, float]]:
    """Producers and consumers that believe to be connected to another broker than most of their topic: a fault of the
    C++ client (docs/results/comparison.md). Topic, name, and since when.
    """
    found: list[tuple[str, str, float]] = []
    for topic, times in connected.items():
        last = {name: (broker, at) for at, name, broker in times}
        owner = Counter(broker for broker, _ in last.values()).most_common(1)[0][0]
        found += [(topic, name, at) for name, (broker, at) in last.items() if broker != owner]
    return found


def p50_p99_max(seconds: Iterable[float | None]) -> str:
    """Of those that are known, in seconds."""
    known = sorted(value for value in seconds if value is not None)
    if not known:
        return "none"
    return f"{statistics.median(known):.2f} / {p99(known):.2f} / {known[-1]:.2f}"


def p99(seconds: Iterable[float]) -> float:
    """What 99 of a hundred do not exceed."""
    known = sorted(seconds)
    return known[int(0.99 * (len(known) - 1))]


def row(found: Sequence[Stood]) -> str:
    """Moves; gaps; first and last client back: p50 / p99 / max, in seconds."""
    columns = ((one.gap for one in found), (one.first for one in found), (one.last for one in found))
    return " | ".join([str(len(found)), *map(p50_p99_max, columns)])
