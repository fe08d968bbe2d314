"""The live picture of ``lbd demo``: brokers as bars, pairs with their hits, what lbd says, and its moves.

Every word and number in it is the daemon's own, of its last turn or of a move that has just ended. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from lbd.cli.demo_bars import NARROW, WIDE_ENOUGH, brokers, cut, grid
from lbd.cli.demo_text import ago, ends, rule, state_words
from lbd.cli.operate_text import common_end
from lbd.cli.render import plain
from lbd.demo.seen import SENT, WAITS, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from lbd.config import Settings
    from lbd.record.turns.lines import PairSeen, Turn

CELLS = 12
"""Hits wanted above it are numbers without cells."""

VERDICT_STYLES = {"balanced": "bold green", "moving": "bold cyan", "held": "bold yellow", "not-fixable": "bold yellow"}
STATE_STYLES = {WAITS: "dim", SENT: "cyan", "landed": "green"}


@dataclass(frozen=True)
class Frame:
    """One moment. ``now`` and ``begun_at`` are the cluster's time (epoch seconds), which runs at ``speed``.

    ``left_seconds`` of this machine are to go. ``flying`` are the bundles whose unload was sent and has no outcome yet.
    """

    seen: Seen
    now: float
    begun_at: float
    speed: float
    left_seconds: float
    about: str
    settings: Settings
    flying: frozenset[str] = frozenset()

    @property
    def end(self) -> str:
        """What the names of all brokers end in; they are whole in their own table."""
        return common_end(one.id for one in self.seen.last.brokers) if self.seen.last is not None else ""


@dataclass(frozen=True)
class _Rows:
    """How many rows each part may have."""

    brokers: int
    pairs: int
    said: int
    moves: int
    spaced: bool


def picture(frame: Frame, width: int, height: int) -> Group:
    """The picture in so many columns and lines; what has no room is counted instead."""
    turn = frame.seen.last
    parts: list[RenderableType] = [_title(frame, width)]
    if turn is None:
        return Group(*parts, Text("the brokers start; lbd's first turn comes", "dim"))
    rows = _rows(frame, turn, height - 1 - (3 if width >= WIDE_ENOUGH else 1))
    sections: tuple[list[RenderableType], ...] = (
        [brokers(frame, turn, width, rows.brokers)],
        [_pairs(frame, turn, turn.pairs[: rows.pairs], width)] if turn.pairs else [],
        [_verdict(frame, turn), *_said(frame, rows.said)],
        _moves(frame, rows.moves, width),
    )
    for section in filter(None, sections):
        parts += [Text(), *section] if rows.spaced else section
    return Group(*parts)


def _rows(frame: Frame, turn: Turn, room: int) -> _Rows:
    """Brokers first, then the widest pairs; the rest is shared by sentences and moves."""
    spaced = room >= 26
    pairs = min(len(turn.pairs), 3 if spaced else 2)
    headings = 4 + (1 if pairs else 0) + (1 if len(turn.pairs) > pairs else 0) + (4 if spaced else 0)
    room = max(room - headings - pairs, 6)
    bars = min(len(turn.brokers), max(room - 4, 3))
    room = max(room - bars, 2)
    said = min(len(frame.seen.said), max(room // 3, 1))
    return _Rows(bars, pairs, said, room - said, spaced)


def _title(frame: Frame, width: int) -> Text:
    passed, wide = ago(frame.now - frame.begun_at).strip(), width >= WIDE_ENOUGH
    found = Text().append("lbd demo: the real lbd, a simulated cluster" if wide else "lbd demo", "bold")
    found.append(f"  {passed} of its time ({frame.speed:g} x), {frame.left_seconds:.0f} s left", "dim")
    if wide:
        found.append(f"\n{plain(frame.about)}\n{rule(frame.settings)}", "dim")
    return cut(found)


def _pairs(frame: Frame, turn: Turn, pairs: Sequence[PairSeen], width: int) -> RenderableType:
    wide, points = width >= WIDE_ENOUGH, frame.settings.avg_shedder
    low, high = points.low_threshold, points.high_threshold
    found = grid(("pair", "left"), ("apart", "right"), (f"hits {low:g}+", "left"), (f"hits {high:g}+", "left"))
    if wide:
        found.add_column(no_wrap=True)
    for pair in pairs:
        row = (
            Text(ends(pair.source, pair.destination or "", frame.end), "bold"),
            f"{pair.difference:.1f}",
            _hits(pair.low, pair.low_wanted, cells=wide),
            _hits(pair.high, pair.high_wanted, cells=wide),
            Text("fires" if pair.fired else pair.reason or "", "bold cyan" if pair.fired else "dim"),
        )
        found.add_row(*row[: 5 if wide else 4])
    more = len(turn.pairs) - len(pairs)
    return Group(found, Text(f"… {more} more pairs", "dim")) if more else found


def _hits(hits: int, wanted: int, *, cells: bool) -> Text:
    """How far a counter is filled."""
    filled = (
        Text().append("■" * hits, "yellow").append("□" * (wanted - hits), "dim")
        if cells and wanted <= CELLS
        else Text()
    )
    return filled.append(f"{' ' if filled else ''}{hits} of {wanted}")


def _verdict(frame: Frame, turn: Turn) -> Text:
    style = VERDICT_STYLES.get(turn.verdict.kind, "bold")
    return cut(Text().append("verdict  ", "dim").append(_short(frame, turn.error or turn.verdict.words), style))


def _said(frame: Frame, number: int) -> Iterator[Text]:
    """The last sentences of its turns, the latest at the bottom."""
    for one in frame.seen.said[len(frame.seen.said) - number :]:
        turns = f"  ({one.turns} turns)" if one.turns > 1 else ""
        yield cut(Text(f"{ago(one.at - frame.begun_at)}  ", "dim").append(_short(frame, one.sentence) + turns))


def _short(frame: Frame, words: str) -> str:
    return plain(words.replace(frame.end, "") if frame.end else words)


def _moves(frame: Frame, number: int, width: int) -> list[RenderableType]:
    """What is under way first, then what ended last."""
    moves = frame.seen.moves
    if not moves:
        return []
    landed = sum(move.state == "landed" for move in moves)
    told = Text(f"moves: {len(moves)} planned, {landed} landed", "bold")
    found = grid(("", "left"), ("", "left"), ("", "left"))
    found.show_header, found.columns[2].no_wrap = False, False  # names of bundles are what may be cut
    for move in sorted(moves, key=lambda move: (move.ended, -move.at))[:number]:
        state = SENT if move.state == WAITS and move.bundle in frame.flying else move.state
        words = Text(plain(state_words(move, state)), STATE_STYLES.get(state, "bold red"))
        bundle = plain(move.bundle) if width >= NARROW else ""
        found.add_row(ends(move.source, move.destination, frame.end), words, bundle)
    return [told, found]
