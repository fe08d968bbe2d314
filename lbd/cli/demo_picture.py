"""The live picture of ``lbd demo``: brokers as bars, pairs with their hits, what lbd says, and its moves.

Every word and number in it is the daemon's own, of its last turn or of a move that has just ended. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lbd.cli.demo_text import ago, ends, gap_words, rule, state_words
from lbd.cli.operate_text import common_end
from lbd.cli.render import amount, plain
from lbd.demo.seen import SENT, WAITS, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import JustifyMethod, RenderableType

    from lbd.config import Settings
    from lbd.record.turns.lines import BrokerSeen, PairSeen, Turn

NARROW, WIDE_ENOUGH = 60, 76
"""Columns below which numbers beside the bars are left out, and from which on each broker has room for a remark."""

LEAST_BAR, LONGEST_BAR = 13, 40
LEGEND = "░ less ▓ more"
"""Than at first."""

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
        [_brokers(frame, turn, width, rows.brokers)],
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
    brokers = min(len(turn.brokers), max(room - 4, 3))
    room = max(room - brokers, 2)
    said = min(len(frame.seen.said), max(room // 3, 1))
    return _Rows(brokers, pairs, said, room - said, spaced)


def _title(frame: Frame, width: int) -> Text:
    passed, wide = ago(frame.now - frame.begun_at).strip(), width >= WIDE_ENOUGH
    found = Text().append("lbd demo: the real lbd, a simulated cluster" if wide else "lbd demo", "bold")
    found.append(f"  {passed} of its time ({frame.speed:g} x), {frame.left_seconds:.0f} s left", "dim")
    if wide:
        found.append(f"\n{plain(frame.about)}\n{rule(frame.settings)}", "dim")
    return _cut(found)


def _brokers(frame: Frame, turn: Turn, width: int, number: int) -> RenderableType:
    first = {one.id: one.score for one in frame.seen.first.brokers} if frame.seen.first is not None else {}
    longest = max((len(one.id) for one in turn.brokers), default=0)
    beside = longest + 9 + (18 if width >= NARROW else 0) + (20 if width >= WIDE_ENOUGH else 0)
    bar = min(max(width - beside, LEAST_BAR), LONGEST_BAR)
    found = _table(*_columns(width))
    shown, gone_at = _most_telling(turn.brokers, number)
    sources = {pair.source for pair in turn.pairs}
    for at, one in enumerate(shown):
        if at == gone_at:
            found.add_row(f"… {len(turn.brokers) - len(shown)} more")
        hot = one.id in sources
        row = (
            Text(plain(one.id), "bold red" if hot else ""),
            Text(amount(one.score, digits=1), "bold red" if hot else ""),
            _bar(one.score or 0.0, first.get(one.id), bar, "bold red" if hot else "green"),
            amount(one.throughput, 1e6, 1),
            str(one.bundles),
            Text(_remark(one), "dim"),
        )
        found.add_row(*row[: len(_columns(width))])
    return Group(found, _cut(Text(gap_words(frame.seen, frame.settings), "bold")))


def _columns(width: int) -> list[tuple[str, JustifyMethod]]:
    found: list[tuple[str, JustifyMethod]] = [("broker", "left"), ("score", "right"), (LEGEND, "left")]
    if width >= NARROW:
        found += [("MB/s", "right"), ("bundles", "right")]
    if width >= WIDE_ENOUGH:
        found.append(("", "left"))
    return found


def _most_telling(brokers: Sequence[BrokerSeen], rows: int) -> tuple[Sequence[BrokerSeen], int | None]:
    """All in the order of their names; of too many the most and the least loaded, and where the others are left out."""
    if len(brokers) <= rows:
        return brokers, None
    ordered = sorted(brokers, key=lambda one: -(one.score or 0.0))
    highest, lowest = rows // 2, (rows - 1) // 2
    return [*ordered[:highest], *ordered[len(ordered) - lowest :]], highest


def _bar(score: float, first: float | None, width: int, style: str) -> Text:
    """Where the score is, and by how much that is less or more than at first."""
    now, then = (round(min(max(one, 0.0), 100.0) / 100 * width) for one in (score, score if first is None else first))
    found = (
        Text()
        .append("█" * min(now, then), style)
        .append("▓" * (now - then), "cyan")
        .append("░" * (then - now), "dim red")
    )
    return found.append("·" * (width - max(now, then)), "dim")


def _remark(broker: BrokerSeen) -> str:
    if broker.doubt is not None:
        return plain(broker.doubt)
    return f"settling, {broker.to_settle} to come" if broker.to_settle else ""


def _pairs(frame: Frame, turn: Turn, pairs: Sequence[PairSeen], width: int) -> RenderableType:
    wide, points = width >= WIDE_ENOUGH, frame.settings.avg_shedder
    low, high = points.low_threshold, points.high_threshold
    found = _table(("pair", "left"), ("apart", "right"), (f"hits {low:g}+", "left"), (f"hits {high:g}+", "left"))
    if wide:
        found.add_column(no_wrap=True)
    for pair in pairs:
        row = (
            Text(ends(pair.source, pair.destination, frame.end), "bold"),
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
    return _cut(Text().append("verdict  ", "dim").append(_short(frame, turn.error or turn.verdict.words), style))


def _said(frame: Frame, number: int) -> Iterator[Text]:
    """The last sentences of its turns, the latest at the bottom."""
    for one in frame.seen.said[len(frame.seen.said) - number :]:
        turns = f"  ({one.turns} turns)" if one.turns > 1 else ""
        yield _cut(Text(f"{ago(one.at - frame.begun_at)}  ", "dim").append(_short(frame, one.sentence) + turns))


def _short(frame: Frame, words: str) -> str:
    return plain(words.replace(frame.end, "") if frame.end else words)


def _moves(frame: Frame, number: int, width: int) -> list[RenderableType]:
    """What is under way first, then what ended last."""
    moves = frame.seen.moves
    if not moves:
        return []
    landed = sum(move.state == "landed" for move in moves)
    told = Text(f"moves: {len(moves)} planned, {landed} landed", "bold")
    found = _table(("", "left"), ("", "left"), ("", "left"))
    found.show_header, found.columns[2].no_wrap = False, False  # names of bundles are what may be cut
    for move in sorted(moves, key=lambda move: (move.ended, -move.at))[:number]:
        state = SENT if move.state == WAITS and move.bundle in frame.flying else move.state
        words = Text(plain(state_words(move, state)), STATE_STYLES.get(state, "bold red"))
        bundle = plain(move.bundle) if width >= NARROW else ""
        found.add_row(ends(move.source, move.destination, frame.end), words, bundle)
    return [told, found]


def _table(*columns: tuple[str, JustifyMethod]) -> Table:
    found = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        found.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return found


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
