"""What a running lbd says of itself, as a person reads it."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lbd.cli.drain_words import drain_words, work_words
from lbd.cli.render import WIDE, amount, broker_table, hits_words, plain, table
from lbd.cli.times import spoken, zoned
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table

    from lbd.record.control import Pause
    from lbd.record.drains import Drain, Work
    from lbd.record.status import BudgetStatus, Status

LABEL_WIDTH = 10

MOVES = 10
"""Moves under way that are shown; a drain has dozens at a time."""

BROKER_COLUMNS, PAIR_COLUMNS, MOVE_COLUMNS = 60, 35, 75
"""Room that lines need beside the names of brokers in them."""


_END = re.compile(r"\.(?=[^\d.])|:")
"""A domain or a port; the last number of an IP address is no domain."""


_VERDICT_STYLES = {"balanced": "green", "moving": "cyan", "waiting": ""}


def console() -> Console:
    """Prints on stdout, and cuts nothing."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False, width=WIDE)


def room() -> int:
    """Columns that fit: those of the terminal; a file has room for everything, so that a search finds whole names."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def common_end(names: Iterable[str]) -> str:
    """What all broker names end in, from a dot or colon on: the domain and port that say nothing."""
    reversed_names = [name[::-1] for name in set(names)]
    columns = takewhile(lambda column: len(set(column)) == 1, zip(*reversed_names, strict=False))
    shared = "".join(column[0] for column in columns)[::-1]
    start = _END.search(shared) if len(reversed_names) > 1 else None
    return shared[start.start() :] if start else ""


def pause_words(pause: Pause, now: float, *, in_force: bool = True) -> str:
    """Until when, by whom, since when, and why; ``in_force``: it goes on, so how long is told."""
    since = ""
    if pause.since and now - pause.since >= 1:
        since = f" since {zoned(pause.since)} ({spoken(now - pause.since)})"
    reason = f": {pause.reason}" if pause.reason else ""
    return plain(f"{_until(pause, now, in_force=in_force)}, by {pause.by}{since}{reason}")


def _until(pause: Pause, now: float, *, in_force: bool) -> str:
    if pause.until is None:
        return "until lbd resume"
    left = pause.until - now
    if left <= 0:
        return f"until {zoned(pause.until)} (ended {spoken(-left)} ago)"
    return f"until {zoned(pause.until)}" + (f" (ends in {spoken(left)})" if in_force else "")


def freshness(status: Status, pid: int | None, now: float) -> str:
    """How old the last turn is, and when another one comes or why none does."""
    age = now - status.at
    if age < -1:
        return f"last turn {spoken(-age)} ahead of this clock: was the clock set back?"
    told = f"last turn {spoken(age)} ago"
    if pid is None:
        return f"{told}, by process {status.pid}"
    if pid != status.pid:
        told += f", by process {status.pid}: process {pid or '?'} has ended none yet"
    if status.late(now):
        return f"{told}, wanted every {spoken(status.interval_seconds)}"
    return told + (f", next in {spoken(status.next_turn_at - now)}" if status.next_turn_at is not None else "")


def show_status(
    status: Status, pid: int | None, pause: Pause | None, now: float, drains: Sequence[tuple[Drain, Work | None]] = ()
) -> None:
    """The whole status on stdout; brokers are named without their common end where lines would not fit."""
    out, end = console(), _too_long(status)
    for label, words, style in _lines(status, pid, pause, now, drains):
        out.print(Text(f"{label:<{LABEL_WIDTH}} ", "dim").append(plain(words.replace(end, "")), style))
    if end:
        out.print(Text(f"\nbrokers are named without {end}", "dim"))
    if status.brokers:
        out.print()
        out.print(broker_table(status.brokers, {pair.source for pair in status.pairs}, end))
    if any(pair.destination is not None for pair in status.pairs):
        out.print()
        out.print(_pair_table(status, end))


def _too_long(status: Status) -> str:
    """The common end of the brokers' names, empty where there is room for it."""
    names = [broker.id for broker in status.brokers]
    longest = max(map(len, names), default=0)
    needed = (
        longest + BROKER_COLUMNS,
        2 * longest + PAIR_COLUMNS if status.pairs else 0,
        2 * longest + MOVE_COLUMNS if status.unfinished else 0,
    )
    return common_end(names) if max(needed) > room() else ""


def _lines(
    status: Status, pid: int | None, pause: Pause | None, now: float, drains: Sequence[tuple[Drain, Work | None]]
) -> Iterator[tuple[str, str, str]]:
    yield "lbd", *_life(status, pid, now)
    if pause is not None:
        yield "PAUSED", pause_words(pause, now), "bold yellow"
    for drain, work in drains:
        yield "DRAINED", f"{drain_words(drain, now)}{'; ' + work_words(work) if work is not None else ''}", "yellow"
    if status.observe_only:
        yield "observing", "only: lbd says what it would move, and moves nothing", "yellow"
    if status.leader is not None:
        yield "leader", status.leader, ""
    if status.hold is not None:
        yield "hold", f"{status.hold}: nothing new is moved while it lasts", "yellow"
    yield "last turn", status.sentence, "bold"
    if status.verdict is not None:
        yield "verdict", status.verdict.words, _VERDICT_STYLES.get(status.verdict.kind, "yellow")
    if status.error is not None:
        yield "error", status.error, "bold red"
    for warning in status.warnings:
        yield "warning", warning, "yellow"
    yield "last hour", counted(status.moves_last_hour, "move"), ""
    if status.budgets:
        yield "budgets", "; ".join(map(budget_words, status.budgets)), ""
    yield "turns", f"{status.turns:,}; the last one made {status.requests:,} requests in {status.seconds:.2f} s", ""
    yield from _under_way(status, pid, now)


def _under_way(status: Status, pid: int | None, now: float) -> Iterator[tuple[str, str, str]]:
    """Moves without an outcome; those of an lbd that has ended are for the next one to look at."""
    for move in status.unfinished[:MOVES]:
        ends = f"{move.source} -> {move.destination or '(the broker chooses)'}"
        since = f"for {spoken(now - move.since)}" if move.since else "waits for its turn"
        if pid is None:
            yield "left open", f"{move.bundle} {ends}: lbd's next start tells what came of it", "yellow"
        else:
            yield "under way", f"{move.bundle} {ends}, {since}", "cyan"
    if (more := len(status.unfinished) - MOVES) > 0:
        yield "", f"and {counted(more, 'move')} more", "cyan"


def _life(status: Status, pid: int | None, now: float) -> tuple[str, str]:
    told = f"cluster {status.cluster or '?'}: {freshness(status, pid, now)}"
    if pid is None:
        return f"NOT RUNNING; {told} (version {status.version})", "bold red"
    style = "bold red" if status.late(now) else "green"
    return f"running, process {pid or '?'}, version {status.version}, {told}", style


def budget_words(budget: BudgetStatus) -> str:
    """``unloads-per-hour 12 of 30, 18 left``."""
    name = f"{budget.name} ({budget.of})" if budget.of else budget.name
    if budget.limit is None:
        return f"{name} {budget.used:,}, no limit"
    return f"{name} {budget.used:,} of {budget.limit:,}, {budget.left:,} left"


def _pair_table(status: Status, end: str) -> Table:
    found = table(("pair", "left"), ("apart", "right"), ("hits", "left"))
    for pair in status.pairs:
        if pair.destination is None:
            continue
        hits = pair.hits
        found.add_row(
            Text(plain(f"{pair.source.removesuffix(end)} -> {pair.destination.removesuffix(end)}")),
            amount(pair.difference, digits=1),
            hits_words((hits.low, hits.low_wanted), (hits.high, hits.high_wanted)),
        )
    return found
