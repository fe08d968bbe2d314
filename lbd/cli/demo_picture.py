"""The live picture of ``lbd demo``: brokers as bars, pairs with their hits, what lbd says, and its moves.

Every word and number in it is the daemon's own, of its last turn or of a move that has just ended. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lbd.cli.demo_text import ago, ends, gap_words, short, state_words
from lbd.cli.render import amount, plain
from lbd.demo.seen import SENT, WAITS, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import JustifyMethod, RenderableType

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
    low_threshold: float
    flying: frozenset[str] = frozenset()


def picture(frame: Frame, width: int, height: int) -> Group:
    """The picture in so many columns and lines; what has no room is counted instead."""
    turn = frame.seen.last
    parts: list[RenderableType] = [_title(frame, width)]
    if turn is None:
        return Group(*parts, Text("the brokers start; lbd's first turn comes", "dim"))
    room = max(height - 2, 10)
    spaced = room >= 26
    pairs = turn.pairs[: 3 if spaced else 2]
    brokers = max(min(len(turn.brokers), room - 12 - len(pairs)), 3)
    left = max(room - brokers - len(pairs) - (9 if spaced else 6), 2)
    said = min(len(frame.seen.said), max(left // 3, 1))
    sections: tuple[list[RenderableType], ...] = (
        [_brokers(frame, turn, width, brokers)],
        [_pairs(turn, pairs, width)] if turn.pairs else [],
        [_verdict(turn), *_said(frame, said, width)],
        _moves(frame, left - said, width),
    )
    for section in filter(None, sections):
        parts += [Text(), *section] if spaced else section
    return Group(*parts)


def _title(frame: Frame, width: int) -> Text:
    passed, left = ago(frame.now - frame.begun_at).strip(), f"{frame.left_seconds:.0f} s to go"
    found = Text("lbd demo", "bold")
    if width >= WIDE_ENOUGH:
        found.append(": the real lbd, a simulated cluster", "bold")
    found.append(f"  {passed} of its time at {frame.speed:g} x, {left}", "dim")
    if width >= WIDE_ENOUGH:
        found.append(f"\n{plain(frame.about)}", "dim")
    return _cut(found)


def _brokers(frame: Frame, turn: Turn, width: int, number: int) -> RenderableType:
    first = {one.id: one.score for one in frame.seen.first.brokers} if frame.seen.first is not None else {}
    longest = max((len(one.id) for one in turn.brokers), default=0)
    beside = longest + 9 + (18 if width >= NARROW else 0) + (20 if width >= WIDE_ENOUGH else 0)
    bar = min(max(width - beside, LEAST_BAR), LONGEST_BAR)
    found = _table(*_columns(width))
    shown, hidden = _most_telling(turn.brokers, number)
    sources = {pair.source for pair in turn.pairs}
    for one in shown:
        style = "bold red" if one.id in sources else "green"
        row = (
            Text(plain(one.id), style if one.id in sources else ""),
            Text(amount(one.score, digits=1), style if one.id in sources else ""),
            _bar(one.score or 0.0, first.get(one.id), bar, style),
            amount(one.throughput, 1e6, 1),
            str(one.bundles),
            Text(_remark(one), "dim"),
        )
        found.add_row(*row[: len(_columns(width))])
    more = f"… {hidden} more brokers between the most and the least loaded; " if hidden else ""
    return Group(found, _cut(Text(f"{more}{gap_words(frame.seen, frame.low_threshold)}", "bold")))


def _columns(width: int) -> list[tuple[str, JustifyMethod]]:
    found: list[tuple[str, JustifyMethod]] = [("broker", "left"), ("score", "right"), (LEGEND, "left")]
    if width >= NARROW:
        found += [("MB/s", "right"), ("bundles", "right")]
    if width >= WIDE_ENOUGH:
        found.append(("", "left"))
    return found


def _most_telling(brokers: Sequence[BrokerSeen], number: int) -> tuple[Sequence[BrokerSeen], int]:
    """All in the order of their names; of too many the most and the least loaded, and how many are left out."""
    if len(brokers) <= number:
        return brokers, 0
    ordered = sorted(brokers, key=lambda one: -(one.score or 0.0))
    lowest = number // 2
    return [*ordered[: number - lowest], *ordered[len(ordered) - lowest :]], len(brokers) - number


def _bar(score: float, first: float | None, width: int, style: str) -> Text:
    """Where the score is, and by how much that is less or more than at first."""
    now, then = (round(min(max(one, 0.0), 100.0) / 100 * width) for one in (score, score if first is None else first))
    found = Text("█" * min(now, then), style).append("▓" * (now - then), "cyan").append("░" * (then - now), "dim red")
    return found.append("·" * (width - max(now, then)), "dim")


def _remark(broker: BrokerSeen) -> str:
    if broker.doubt is not None:
        return plain(broker.doubt)
    return f"settling, {broker.to_settle} to come" if broker.to_settle else ""


def _pairs(turn: Turn, pairs: Sequence[PairSeen], width: int) -> RenderableType:
    found = _table(("pair", "left"), ("apart", "right"), ("low hits", "left"), ("high hits", "left"), ("", "left"))
    for pair in pairs:
        cells = width >= NARROW
        found.add_row(
            Text(ends(pair.source, pair.destination), "bold"),
            f"{pair.difference:.1f}",
            _hits(pair.low, pair.low_wanted, cells=cells),
            _hits(pair.high, pair.high_wanted, cells=cells),
            Text("fires" if pair.fired else pair.reason or "", "bold cyan" if pair.fired else "dim"),
        )
    more = len(turn.pairs) - len(pairs)
    return Group(found, Text(f"… {more} more pairs", "dim")) if more else found


def _hits(hits: int, wanted: int, *, cells: bool) -> Text:
    """How far a counter is filled."""
    filled = Text("■" * hits, "yellow").append("□" * (wanted - hits), "dim") if cells and wanted <= CELLS else Text()
    return filled.append(f"{' ' if filled else ''}{hits} of {wanted}")


def _verdict(turn: Turn) -> Text:
    style = VERDICT_STYLES.get(turn.verdict.kind, "bold")
    return _cut(Text("lbd  ", "dim").append(plain(short(turn.error or turn.verdict.words)), style))


def _said(frame: Frame, number: int, width: int) -> Iterator[Text]:
    """The last sentences of its turns, the latest at the bottom."""
    del width
    for one in frame.seen.said[len(frame.seen.said) - number :]:
        turns = f"  ({one.turns} turns)" if one.turns > 1 else ""
        yield _cut(Text(f"{ago(one.at - frame.begun_at)}  ", "dim").append(plain(short(one.sentence)) + turns))


def _moves(frame: Frame, number: int, width: int) -> list[RenderableType]:
    """What is under way first, then what ended last."""
    moves = frame.seen.moves
    if not moves:
        return []
    landed = sum(move.state == "landed" for move in moves)
    told = Text(f"moves: {len(moves)} planned, {landed} landed", "bold")
    found = _table(("", "left"), ("", "left"), ("", "left"))
    found.show_header, found.columns[0].no_wrap = False, False  # names of bundles are what may be cut
    shown = sorted(moves, key=lambda move: (move.ended, -move.at))[: max(number - 1, 1)]
    for move in shown:
        state = SENT if move.state == WAITS and move.bundle in frame.flying else move.state
        bundle = plain(move.bundle if width >= WIDE_ENOUGH else move.bundle.rpartition("/")[2])
        words = Text(plain(state_words(move, state)), STATE_STYLES.get(state, "bold red"))
        found.add_row(bundle, ends(move.source, move.destination), words)
    return [told, found]


def _table(*columns: tuple[str, JustifyMethod]) -> Table:
    found = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        found.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return found


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
