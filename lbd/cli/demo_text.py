"""What ``lbd demo`` tells in lines: turns and moves where nobody watches a terminal, and the words of its picture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lbd.cli.render import plain
from lbd.demo.seen import gap

if TYPE_CHECKING:
    from lbd.demo.seen import Move, Seen
    from lbd.record.turns.lines import Turn

_LOOPBACK = re.compile(r"\b127\.0\.0\.1(?=:\d)")


def short(words: str) -> str:
    """Brokers of the demo differ in their ports alone."""
    return _LOOPBACK.sub("", words)


def ends(source: str, destination: str) -> str:
    """From where to where."""
    return plain(f"{short(source)} -> {short(destination) or '(the broker chooses)'}")


def ago(seconds: float) -> str:
    """Minutes and seconds since the beginning."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def gap_words(seen: Seen, low_threshold: float) -> str:
    """How far apart the brokers were at first, and are now."""
    gaps = seen.gaps
    if gaps is None:
        return "fewer than two brokers have a score"
    return f"highest - lowest: {gaps[0]:.1f} points at first, {gaps[1]:.1f} now (balanced below {low_threshold:g})"


def state_words(move: Move, state: str) -> str:
    """Where a move is, or how it ended."""
    return f"{state} {move.detail}" if move.ended else state


def turn_line(turn: Turn, begun_at: float) -> str:
    """One turn."""
    apart = gap(turn)
    told = "no scores" if apart is None else f"{apart:.1f} apart"
    return plain(f"{ago(turn.at - begun_at)}  {told:>10}  {turn.sentence}")


def move_line(move: Move, begun_at: float) -> str:
    """One move's end."""
    words = state_words(move, move.state)
    return plain(f"{ago(move.at - begun_at)}  {'':>10}  {move.bundle} {move.source} -> {move.destination}: {words}")
