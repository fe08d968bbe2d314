"""``lbd history``: the moves of the journal or its splits, and under it what turns recordings into history and back."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from lbd.cli.history import export, import_
from lbd.cli.operate_text import common_end, console, room
from lbd.cli.options import format_option, settings_options
from lbd.cli.render import json_out, plain
from lbd.cli.split_text import show_splits
from lbd.cli.times import duration, local, zone_name
from lbd.model import Result
from lbd.record.journal import history as moves_of
from lbd.record.journal import splits_of
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lbd.cli.options import Read
    from lbd.record.journal import Move


@click.group("history", invoke_without_command=True)
@click.option("--last", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Show so many moves.")
@click.option(
    "--since", "since_seconds", callback=duration, metavar="DURATION", help="Moves of the last 90s, 15m, 2h, 1d, ..."
)
@click.option("--bundle", help="Moves of this bundle, or of the bundles of this namespace or tenant.")
@click.option("--broker", help="Moves from or to this broker, or landed there (host:port, or the host alone).")
@click.option("--splits", is_flag=True, help="List splits instead of moves.")
@format_option
@settings_options
@click.pass_context
def history(
    ctx: click.Context,
    read: Read,
    form: str,
    last: int,
    since_seconds: float | None,
    bundle: str | None,
    broker: str | None,
    *,
    splits: bool,
) -> None:
    """List moves, the newest last: how each was proven to have ended, and why it was made.

    \b
    Example: lbd history --since 1d --bundle public/default
    """
    if ctx.invoked_subcommand is not None:
        return
    state_dir = read().settings.state_dir
    if told := nothing_there(state_dir):
        click.echo(told, err=True)
    earliest = time.time() - since_seconds if since_seconds is not None else 0.0
    if splits:
        found = [
            one
            for one in splits_of(state_dir)
            if one.at >= earliest and _of_bundle(one.cut.bundle, bundle) and _of_broker((one.cut.owner,), broker)
        ]
        show_splits(found[-last:], form)
        return
    shown: deque[Move] = deque(maxlen=last)
    counts: Counter[str] = Counter()
    for move in moves_of(state_dir):
        ends = move.source, move.destination, move.owner
        if move.at >= earliest and _of_bundle(move.bundle, bundle) and _of_broker(ends, broker):
            shown.append(move)
            counts[_label(move)] += 1
    if form == "json":
        json_out([msgspec.to_builtins(move) for move in shown])
    elif shown:
        show_moves(shown)
    click.echo(moves_summary(counts, len(shown)), err=form == "json")


history.add_command(export)
history.add_command(import_)


def _of_bundle(bundle: str, wanted: str | None) -> bool:
    """Whether it is the bundle, or of the namespace or tenant, that was asked for."""
    return wanted is None or bundle == wanted or bundle.startswith(f"{wanted.rstrip('/')}/")


def _of_broker(brokers: Iterable[str | None], wanted: str | None) -> bool:
    """Whether one of them is the broker that was asked for, by ``host:port`` or the host alone."""
    return wanted is None or any(wanted in {one, one.rpartition(":")[0]} for one in brokers if one is not None)


_COLOURS = {None: "cyan", Result.LANDED: "green"}
_BAD = "bold red"


@dataclass(frozen=True)
class _Row:
    """A move in words; ``why`` may be long and stands last."""

    time: str
    bundle: str
    ends: str
    result: str
    seconds: str
    why: str
    style: str

    @property
    def cells(self) -> tuple[str, ...]:
        return self.time, self.bundle, self.ends, self.result, self.seconds


def show_moves(moves: Sequence[Move]) -> None:
    """A line for each move, whole where a search reads it; on a terminal it is made to fit.

    Where there is no room brokers lose their common end, and a long ``why`` goes to a line of its own.
    """
    out, columns = console(), room()
    end, rows = "", _rows(moves, "")
    if sum(_widths(rows)) > columns:
        end = common_end(broker for move in moves for broker in (move.source, move.destination, move.owner) if broker)
        rows = _rows(moves, end)
    widths = _widths(rows)
    for row in rows:
        out.print(_line(row, widths, columns))
    if end:
        out.print(Text(f"brokers are named without {end}", "dim"))


def _rows(moves: Sequence[Move], end: str) -> list[_Row]:
    header = _Row(f"time ({zone_name()})", "bundle", "source -> destination", "result", "s", "why", "dim")
    return [header, *(_row(move, end) for move in moves)]


def _row(move: Move, end: str) -> _Row:
    source, destination = (
        (move.source or "(nobody)").removesuffix(end),
        (move.destination or "(the broker chooses)").removesuffix(end),
    )
    return _Row(
        local(move.at),
        plain(move.bundle),
        plain(f"{source} -> {destination}"),
        _label(move),
        f"{move.seconds:.2f}" if move.result is not None else "-",
        plain("; ".join(_why(move, end))),
        _COLOURS.get(move.result, _BAD),
    )


def _label(move: Move) -> str:
    return move.result.value if move.result is not None else "open"


def _why(move: Move, end: str) -> Iterator[str]:
    """What is worth telling beside the result, the unusual first."""
    if move.owner is not None and move.owner != move.destination:
        yield f"owner {move.owner.removesuffix(end)}"
    if move.attempt > 1:
        yield f"attempt {move.attempt}"
    yield from (part for part in (move.detail, move.reason) if part)


GAP = "  "


def _widths(rows: Sequence[_Row]) -> list[int]:
    """Of each column, with the gap after it."""
    return [max(map(len, column)) + len(GAP) for column in zip(*(row.cells for row in rows), strict=True)]


def _line(row: _Row, widths: list[int], columns: int) -> Text:
    """All cells of a row: the result is coloured, the seconds stand to the right."""
    base = "dim" if row.style == "dim" else ""
    *left, result = [f"{cell:<{width}}" for cell, width in zip(row.cells[:-1], widths[:-1], strict=True)]
    line = Text("".join(left), base).append(result, row.style)
    line.append(f"{row.seconds:>{widths[-1] - len(GAP)}}", base)
    if not row.why:
        return line
    fits = sum(widths) + len(row.why) <= columns
    return line.append(GAP if fits else f"\n{GAP}{GAP}").append(row.why, "dim")


def nothing_there(state_dir: Path) -> str:
    """What is to be known of a state directory without a line in it."""
    return "" if state_dir.is_dir() else f"There is no {state_dir}: wanted the state_dir of the lbd that moved them."


def moves_summary(counts: Counter[str], shown: int) -> str:
    """``57 moves: 55 landed, 1 landed-elsewhere, 1 open``."""
    total = counts.total()
    if total == 0:
        return "No moves."
    order = [*(result.value for result in Result), "open"]
    told = ", ".join(f"{counts[label]:,} {label}" for label in order if counts[label])
    return f"{counted(total, 'move')}: {told}" + (f"; the last {shown} are shown (--last N)" if shown < total else "")
