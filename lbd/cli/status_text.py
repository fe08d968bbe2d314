"""The status of a running lbd as text, with its drains and pause."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import takewhile
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lbd.cli.render import WIDE, broker_table, pair_table, plain
from lbd.load.summary import known_text
from lbd.permit.settings import canary_text
from lbd.store.status import steps_now
from lbd.text import counted, duration_text, zoned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lbd.store.control import Pause
    from lbd.store.drains import Drain, RemainingBundle, Work
    from lbd.store.status import BudgetStatus, Status


def drain_text(drain: Drain, now: float) -> str:
    """One line on a drain: by whom, since when, until when, and why."""
    since = f" since {zoned(drain.since)} ({duration_text(now - drain.since)})" if drain.since else ""
    until = f" until {zoned(drain.until)}" if drain.until is not None else " until it is released"
    reason = f": {drain.reason}" if drain.reason else ""
    return plain(f"{drain.broker}, by {drain.by}{since}{until}{reason}")


def progress_text(work: Work) -> str:
    """One line on the progress of a drain or a fill."""
    if work.ended_at is not None:
        return plain(work.sentence)
    if work.held and not work.total:
        return plain(f"waits: {work.held}")
    held = f"; waits: {work.held}" if work.held else ""
    eta = f", about {duration_text(work.eta_seconds)} left" if work.eta_seconds is not None and not work.held else ""
    failed = f", {work.failed} failed" if work.failed else ""
    return plain(f"{work.tried:,} of {counted(work.total, 'bundle')}{failed}{eta}{held}")


def remaining_text(bundle: RemainingBundle) -> str:
    """One line on a bundle that stays."""
    return plain(f"left: {bundle.bundle}: {bundle.reason}{bundle.detail and f': {bundle.detail}'}")


# --- status

LABEL_WIDTH = 10

Line = tuple[str, str, str]
"""Label, text, style; a line without a label continues the one before."""

RESUMED_SECONDS = 3600.0
"""How long the end of a pause or a hold is shown."""

MOVES = 10
"""Number of moves in flight that are shown; a drain has dozens at a time."""

BROKER_COLUMNS, PAIR_COLUMNS, MOVE_COLUMNS = 60, 35, 75
"""Columns that lines need beside broker names."""


MODES = {
    "auto": "auto: lbd moves bundles by itself",
    "approve": "approve: each plan waits for a person",
    "observe": "observe: lbd says what it would move, and moves nothing",
}

_END = re.compile(r"\.(?=[^\d.])|:")
"""Matches a domain or a port; the last number of an IP address is no domain."""


_VERDICT_STYLES = {"balanced": "green", "partial": "yellow", "moving": "cyan", "waiting": "", "blocked": "bold red"}


def console() -> Console:
    """A console on stdout that truncates nothing."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False, width=WIDE)


def room() -> int:
    """Columns of the terminal; unlimited in a file, so that a search finds whole names."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def fitted(text: str, width: int, inside: int | None = None) -> str:
    """The text with long lines folded between words; no command, path or name is broken.

    The rest of a line begins at column ``inside``, or two further in than the line. Outside a terminal (:data:`WIDE`)
    lines stay whole, so that a search finds them.
    """
    if width >= WIDE:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        rest = " " * (len(line) - len(line.lstrip()) + 2 if inside is None else inside)
        lines += wrap(line, width, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def common_end(names: Iterable[str]) -> str:
    """The common end of all broker names, from a dot or colon on: domain and port."""
    reversed_names = [name[::-1] for name in set(names)]
    columns = takewhile(lambda column: len(set(column)) == 1, zip(*reversed_names, strict=False))
    shared = "".join(column[0] for column in columns)[::-1]
    start = _END.search(shared) if len(reversed_names) > 1 else None
    return shared[start.start() :] if start else ""


def pause_text(pause: Pause, now: float, *, in_force: bool = True) -> str:
    """One line on a pause: until when, by whom, since when, and why; with its duration if ``in_force``."""
    since = ""
    if pause.since and now - pause.since >= 1:
        since = f" since {zoned(pause.since)} ({duration_text(now - pause.since)})"
    reason = f": {pause.reason}" if pause.reason else ""
    return plain(f"{_until(pause, now, in_force=in_force)}, by {pause.by}{since}{reason}")


def _until(pause: Pause, now: float, *, in_force: bool) -> str:
    if pause.until is None:
        return "until lbd resume"
    seconds = pause.until - now
    if seconds <= 0:
        return f"until {zoned(pause.until)} (ended {duration_text(-seconds)} ago)"
    return f"until {zoned(pause.until)}" + (f" (ends in {duration_text(seconds)})" if in_force else "")


def freshness(status: Status, pid: int | None, now: float) -> str:
    """The age of the last turn, and when the next one is due or why none is."""
    text = status.age_text(now)
    if status.at > now and status.late(now):
        return text
    if pid is None:
        return f"{text}, by process {status.pid}"
    if pid != status.pid:
        text += f", by process {status.pid}: process {pid or '?'} has ended none yet"
    if status.late(now):
        return f"{text}, wanted every {duration_text(status.interval_seconds)}"
    if status.next_turn_at is None:
        return text
    seconds = status.next_turn_at - now
    next_turn = f"in {duration_text(seconds)}" if seconds >= 0 else f"due {duration_text(-seconds)} ago"
    return f"{text}, next {next_turn}"


def show_status(
    status: Status, pid: int | None, pause: Pause | None, now: float, drains: Sequence[tuple[Drain, Work | None]] = ()
) -> None:
    """Print the whole status. The common end of broker names is omitted if lines would not fit."""
    out, end = console(), _too_long(status)
    print_lines(out, _lines(status, pid, pause, now, drains), end)
    if end:
        out.print(Text(f"\nbrokers are named without {end}", "dim"))
    if status.brokers:
        out.print()
        out.print(broker_table(status.brokers, {pair.source for pair in status.pairs}, end))
    if any(pair.destination is not None for pair in status.pairs):
        out.print()
        out.print(pair_table(status.pairs, "samples", end))


def print_lines(out: Console, lines: Iterable[Line], end: str) -> None:
    """Print each line after its label; ``end`` is cut from broker names."""
    for label, words, style in lines:
        out.print(Text(f"{label:<{LABEL_WIDTH}} ", "dim").append(plain(words.replace(end, "")), style))


def _too_long(status: Status) -> str:
    """The common end of broker names if there is no room for it, else empty."""
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
) -> Iterator[Line]:
    yield "lbd", *_life(status, pid, now)
    yield "mode", MODES[status.mode], "" if status.mode == "auto" else "yellow"
    if pause is not None:
        yield "PAUSED", pause_text(pause, now), "bold yellow"
    elif (resumed := status.resumed) is not None and 0 <= now - resumed.time < RESUMED_SECONDS:
        why = resumed.reason and f": {resumed.reason}"
        yield "resumed", f"{duration_text(now - resumed.time)} ago by {resumed.by or 'somebody'}{why}", ""
    for drain, work in drains:
        yield "DRAINED", f"{drain_text(drain, now)}{'; ' + progress_text(work) if work is not None else ''}", "yellow"
    yield from _limited(status)
    if status.leader is not None:
        yield "leader", status.leader, ""
    if status.hold is not None:
        yield "hold", f"{status.hold}: nothing new is moved while it lasts", "yellow"
    yield "last turn", status.sentence, "bold"
    if status.verdict is not None:
        yield "verdict", status.verdict.words, _VERDICT_STYLES.get(status.verdict.kind, "yellow")
    for index, step in enumerate(steps_now(status, pid, pause, now, drains)):
        yield "" if index else "to do", step.text(now), "bold" if step.do else ""
    yield from _troubles(status)
    yield from _brokers(status)
    yield "last hour", status.last_hour.words, ""
    if status.budgets:
        yield "budgets", "; ".join(map(budget_text, status.budgets)), ""
    yield "turns", f"{status.turns:,}; the last one made {status.requests:,} requests in {status.seconds:.2f} s", ""
    if status.calibration is not None:
        yield "settings", status.calibration, "cyan"
    yield from _under_way(status, pid, now)


def _troubles(status: Status) -> Iterator[Line]:
    """The error of the turn, and the warnings that last."""
    if status.error is not None:
        yield "error", status.error, "bold red"
    for warning in status.warnings:
        yield "warning", warning, "yellow"


def _brokers(status: Status) -> Iterator[Line]:
    """How even the brokers are, and what is known of them."""
    if status.gap_points is not None:
        yield "gap", f"{status.gap_points:.1f} points between the highest and the lowest score", ""
    if models := [row.load for row in status.brokers if row.load is not None]:
        yield "load model", known_text(models), ""


def _limited(status: Status) -> Iterator[Line]:
    """Limits that the settings put on this lbd's own moves."""
    if (canary := status.canary) is not None:
        words = canary_text(canary.namespaces, canary.max_moves_per_hour)
        if canary.held:
            words += f"; it holds {canary.held} of {counted(canary.planned, 'bundle')} of the last turn's plan"
        yield "canary", f"{words}; remove guardrails.canary to widen", "yellow"


def _under_way(status: Status, pid: int | None, now: float) -> Iterator[Line]:
    """The plan that waits, and moves without an outcome; the next lbd resolves those of an ended one."""
    if (waiting := status.proposal) is not None:
        names = f", approved by {', '.join(waiting.approved_by)}" if waiting.approved_by else ""
        words = f"plan {waiting.id}{names}, until {zoned(waiting.expires_at)}: lbd apply {waiting.id}"
        yield "proposal", words, "cyan"
    for move in status.unfinished[:MOVES]:
        ends = f"{move.source} -> {move.destination or '(the broker chooses)'}"
        since = f"for {duration_text(now - move.since)}" if move.since else "waits for its turn"
        if pid is None:
            yield "left open", f"{move.bundle} {ends}: the next start of lbd resolves it", "yellow"
        else:
            yield "under way", f"{move.bundle} {ends}, {since}", "cyan"
    if (more := len(status.unfinished) - MOVES) > 0:
        yield "", f"and {counted(more, 'move')} more", "cyan"


def _life(status: Status, pid: int | None, now: float) -> tuple[str, str]:
    text = f"cluster {status.cluster or '?'}: {freshness(status, pid, now)}"
    if pid is None:
        return f"NOT RUNNING; {text} (version {status.version})", "bold red"
    state, style = ("LATE", "bold red") if status.late(now) else ("running", "green")
    return f"{state}, process {pid or '?'}, version {status.version}, {text}", style


def budget_text(budget: BudgetStatus) -> str:
    """``unloads-per-hour 12 of 30, 18 left``."""
    name = f"{budget.name} ({budget.of})" if budget.of else budget.name
    if budget.limit is None:
        return f"{name} {budget.used:,}, no limit"
    return f"{name} {budget.used:,} of {budget.limit:,}, {budget.left:,} left"
