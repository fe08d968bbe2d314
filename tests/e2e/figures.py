"""What a run of the daemon came to, in figures: moves, gaps, stalled producers, and how soon a sample was acted on."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.e2e import journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.e2e.checker import Gap, Result
    from tests.e2e.daemon import Daemon
    from tests.e2e.journal import Move
    from tests.e2e.meters import Meters
    from tests.e2e.own_shedder import OwnShedder
    from tests.e2e.skew import Skew

THRESHOLD = 15.0
SETTLE_SECONDS = 3.0
"""Clients of a moved bundle may reconnect that long after its outcome."""


def row(
    daemon: Daemon | OwnShedder, meters: Meters, running: Skew, result: Result, time_span: tuple[float, float]
) -> dict[str, Any]:
    """One row. Seconds count from the beginning of the span."""
    begun, ended = time_span
    moves = daemon.moves()
    batches = journal.batches(moves)
    below = meters.last_above(THRESHOLD, begun, ended)
    return {
        "moves of turns after s": [round(batch[0].asked_at - begun) for batch in batches],
        "moves": len(moves),
        "moves per turn": [len(batch) for batch in batches],
        "bundles": len({move.bundle for move in moves}),
        "pairs": Counter(f"{move.source} -> {move.destination}" for move in moves),
        "results": Counter(move.result for move in moves),
        "true gap first, last": [round(meters.true_gap(begun + 30), 1), round(meters.true_gap(ended), 1)],
        "true gap each minute": [round(meters.true_gap(begun + at)) for at in range(30, int(ended - begun), 60)],
        "below 15 for good from s": None if below is not None and below > ended - begun - 30 else round(below or 0),
        "s from sample to intent": sample_to_intent(batches, meters),
        **stalls(moves, batches, running, result),
        "longest gaps: after s, s, topic": longest(result, begun),
        "publish ms": result.latency_ms,
        "lost": result.lost,
        "duplicates": result.duplicates,
        "sent": result.sent,
        "seconds": round(ended - begun),
        "background-load named: turns, from s, to s": named("background-load", daemon.turns(), begun),
        "said": said(daemon.turns(), begun),
    }


def sample_to_intent(batches: Iterable[Sequence[Move]], meters: Meters) -> list[float | None]:
    """Seconds between the newest CPU sample of either end of the first move, as seen in the report, and its intent."""
    found: list[float | None] = []
    for first, *_ in batches:
        at = meters.newest({first.source, first.destination or ""}, first.asked_at)
        found.append(None if at is None else round(first.asked_at - at, 1))
    return found


def stalls(moves: Sequence[Move], batches: Sequence[Sequence[Move]], running: Skew, result: Result) -> dict[str, Any]:
    """Publish gaps above 100 ms while something was moved: of what was moved just then, and of the others.

    A broker at its quota makes gaps of its own; those of the rest of the time are counted for comparison.
    """
    mine: set[Gap] = set()
    theirs: set[Gap] = set()
    for batch in batches:
        until = max(move.ended_at or move.asked_at for move in batch) + SETTLE_SECONDS
        during = [gap for gap in result.gaps if gap.at + gap.seconds >= batch[0].asked_at and gap.at <= until]
        topics = {running.topics[move.bundle] for move in batch if move.bundle in running.topics}
        mine.update(gap for gap in during if gap.topic in topics)
        theirs.update(gap for gap in during if gap.topic not in topics)
    rest = set(result.gaps) - mine - theirs
    took = [move.ended_at - move.asked_at for move in moves if move.ended_at is not None]
    return {
        "gaps of moved topics: n, p50, max ms": summary(gap.seconds for gap in mine),
        "gaps of bystanders meanwhile": summary(gap.seconds for gap in theirs),
        "gaps of all at other times": summary(gap.seconds for gap in rest),
        "ms from intent to outcome: n, p50, max": summary(took),
    }


def longest(result: Result, begun: float, count: int = 3) -> list[tuple[int, float, str]]:
    """The longest publish gaps of all, to look for in the clients' log."""
    found = sorted(result.gaps, key=lambda gap: -gap.seconds)[:count]
    return [(round(gap.at - begun), round(gap.seconds, 1), gap.topic) for gap in found]


def summary(seconds: Iterable[float]) -> tuple[int, int, int]:
    """Number, median and largest, in milliseconds."""
    found = [round(1000 * one) for one in seconds]
    return (len(found), round(statistics.median(found)), max(found)) if found else (0, 0, 0)


def said(turns: Iterable[dict[str, Any]], since: float) -> dict[str, int]:
    """How often lbd said what since a moment, without the figures and names in it."""
    late = (turn for turn in turns if _at(turn) >= since)
    told = (str(turn.get("event", "")) for turn in late)
    shapes = Counter(re.sub(r"\(.*|\d+(\.\d+)+:\d+|[\d.,]*\d", "…", text) for text in told)
    return dict(shapes.most_common(12))


def named(reason: str, turns: Iterable[dict[str, Any]], since: float) -> tuple[int, int, int] | None:
    """In how many turns since a moment this reason was told, in the sentence or beside it, first and last."""
    found = [round(_at(turn) - since) for turn in turns if reason in json.dumps(turn) and _at(turn) >= since]
    return (len(found), found[0], found[-1]) if found else None


def _at(turn: dict[str, Any]) -> float:
    return datetime.fromisoformat(turn["timestamp"]).timestamp()
