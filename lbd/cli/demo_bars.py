"""The brokers of a demo as bars: where each score is, and by how much that is less or more than at first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lbd.cli.demo_text import gap_words
from lbd.cli.render import amount, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import JustifyMethod, RenderableType

    from lbd.cli.demo_picture import Frame
    from lbd.record.turns.lines import BrokerSeen, Turn

NARROW, WIDE_ENOUGH = 60, 76
"""Columns below which numbers beside the bars are left out, and from which on each broker has room for a remark."""

LEAST_BAR, LONGEST_BAR = 13, 40
LEGEND = "░ less ▓ more"
"""Than at first."""


def brokers(frame: Frame, turn: Turn, width: int, number: int) -> RenderableType:
    """A bar for each broker, for at most so many, and how far apart the brokers are."""
    first = {one.id: one.score for one in frame.seen.first.brokers} if frame.seen.first is not None else {}
    longest = max((len(one.id) for one in turn.brokers), default=0)
    beside = longest + 9 + (18 if width >= NARROW else 0) + (20 if width >= WIDE_ENOUGH else 0)
    bar = min(max(width - beside, LEAST_BAR), LONGEST_BAR)
    found = grid(*_columns(width))
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
    return Group(found, cut(Text(gap_words(frame.seen, frame.settings), "bold")))


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


def grid(*columns: tuple[str, JustifyMethod]) -> Table:
    """An empty table whose cells stay in one line."""
    found = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        found.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return found


def cut(text: Text) -> Text:
    """The text in lines that end where the terminal does."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
