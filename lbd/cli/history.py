"""``lbd history``: moves or splits of the journal; ``export`` and ``import`` convert between history and recordings."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from lbd.cli.completion import brokers, bundles_or_namespaces
from lbd.cli.options import duration, format_option, settings_options, settings_to_look
from lbd.cli.render import json_out, plain, shared_notes, without_notes
from lbd.cli.split import show_splits
from lbd.cli.status_text import common_end, console, room
from lbd.errors import UsageError
from lbd.model import Result, brokers_named
from lbd.permit.served import served_text
from lbd.store.explain import nearest
from lbd.store.history_round import HISTORY_FOLDER
from lbd.store.moves import history as moves_of
from lbd.store.moves import read_splits
from lbd.store.state import StateDir
from lbd.store.turns import load_bundles
from lbd.text import counted, local, zone_names

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from lbd.cli.options import Read
    from lbd.store.moves import MoveRecord


ALL_SECONDS = 3_660 * 86_400.0
"""Upper limit of the age of a history."""


HISTORY_HELP = "History directory.  [default: history in state_dir]"


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--since",
    "since_seconds",
    callback=duration,
    metavar="DURATION",
    help="How far to look back: 2h, 7d, ...  [default: all]",
)
@click.option("--history", "root", type=click.Path(path_type=Path), metavar="DIR", help=HISTORY_HELP)
@settings_options
def export(read: Read, file: Path, since_seconds: float | None, root: Path | None) -> None:
    """Write history as a recording, FILE (.jsonl or .jsonl.gz).

    lbd replay reads it. Rates of bundles are within 5 %.

    \b
    Example: lbd history export --since 1d monday.jsonl.gz
    """
    from lbd.operations.exchange import exported  # noqa: PLC0415 - pyarrow would make lbd history wait

    now = time.time()
    settings = read().settings
    rounds = exported(
        root or settings.state_dir / HISTORY_FOLDER, file, settings, now - (since_seconds or ALL_SECONDS), now
    )
    click.echo(f"{counted(rounds, 'round')} in {file}", err=True)


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--history", "root", type=click.Path(path_type=Path), metavar="DIR", help=HISTORY_HELP)
@settings_options
def import_(read: Read, files: tuple[Path, ...], root: Path | None) -> None:
    """Add recordings to history. Refused while lbd run writes there; name another DIR.

    \b
    Example: lbd history import --history ./history monday.jsonl.gz
    """
    from lbd.operations.exchange import imported  # noqa: PLC0415 - see export

    settings = read().settings
    rounds = imported(files, root or settings.state_dir / HISTORY_FOLDER, settings)
    click.echo(f"{counted(rounds, 'round')} in {root or settings.state_dir / HISTORY_FOLDER}", err=True)


# --- moves and splits


@click.group("history", invoke_without_command=True)
@click.option(
    "--last", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Number of moves to list."
)
@click.option(
    "--since",
    "since_seconds",
    callback=duration,
    metavar="DURATION",
    help="How far to look back: 90s, 15m, 2h, 1d, ...",
)
@click.option(
    "--bundle",
    shell_complete=bundles_or_namespaces,
    help="Only moves of this bundle, or of the bundles of this namespace or tenant.",
)
@click.option(
    "--broker",
    shell_complete=brokers,
    help="Only moves from or to this broker, or landed there (host:port, or the host alone).",
)
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
    """List moves, the newest last, with verified outcome and reason.

    \b
    Example: lbd history --since 1d --bundle public/default
    """
    if ctx.invoked_subcommand is not None:
        return
    state_dir = settings_to_look(read).state_dir
    if message := nothing_there(state_dir):
        click.echo(message, err=True)
    _refuse_unknown(state_dir, bundle, broker)
    earliest = time.time() - since_seconds if since_seconds is not None else 0.0
    if splits:
        moves = [
            split
            for split in read_splits(state_dir)
            if split.at >= earliest and _of_bundle(split.cut.bundle, bundle) and _of_broker((split.cut.owner,), broker)
        ]
        show_splits(moves[-last:], form)
        return
    shown: deque[MoveRecord] = deque(maxlen=last)
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


def _of_bundle(bundle: str, name: str | None) -> bool:
    """Whether the bundle is the wanted one, or in the wanted namespace or tenant."""
    return name is None or bundle == name or bundle.startswith(f"{name.rstrip('/')}/")


def _of_broker(brokers: Iterable[str | None], name: str | None) -> bool:
    return name is None or bool(brokers_named(name, filter(None, brokers)))


_COLOURS = {None: "cyan", Result.LANDED: "green"}
_BAD = "bold red"


@dataclass(frozen=True)
class _Row:
    """A move as text; ``why`` may be long and comes last."""

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


def show_moves(moves: Sequence[MoveRecord]) -> None:
    """Print a line for each move: whole in a file or pipe, fitted to the width on a terminal.

    Without room, the common end of broker names is omitted, and a long ``why`` gets a line of its own. The notes that
    several reasons share stand once below the moves.
    """
    out, columns, shared = console(), room(), shared_notes(move.reason for move in moves)
    end, rows = "", _rows(moves, "", shared)
    if sum(_widths(rows)) > columns:
        end = common_end(broker for move in moves for broker in (move.source, move.destination, move.owner) if broker)
        rows = _rows(moves, end, shared)
    widths = _widths(rows)
    for row in rows:
        out.print(_line(row, widths, columns))
    for note, number in shared.items():
        out.print(Text(plain(f"{number} of {counted(len(moves), 'move')}: {note}"), "dim"))
    if end:
        out.print(Text(f"brokers are named without {end}", "dim"))


def _rows(moves: Sequence[MoveRecord], end: str, shared: Container[str]) -> list[_Row]:
    zone = zone_names(move.at for move in moves)
    header = _Row(f"time ({zone})", "bundle", "source -> destination", "result", "s", "why", "dim")
    return [header, *(_row(move, end, shared) for move in moves)]


def _row(move: MoveRecord, end: str, shared: Container[str]) -> _Row:
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
        plain("; ".join(_remarks(move, end, shared))),
        _BAD if move.served == "no" else _COLOURS.get(move.result, _BAD),
    )


def _label(move: MoveRecord) -> str:
    return move.result.value if move.result is not None else "open"


def _remarks(move: MoveRecord, end: str, shared: Container[str]) -> Iterator[str]:
    """Remarks on the result, the unusual first."""
    if move.owner is not None and move.owner != move.destination:
        yield f"owner {move.owner.removesuffix(end)}"
    if move.attempt > 1:
        yield f"attempt {move.attempt}"
    clients = move.clients_before, move.clients_after
    service = served_text(move.served, move.reconnect_seconds, *clients) if move.served in {"yes", "no"} else ""
    lost = move.served_detail if move.served == "no" else ""
    yield from filter(None, (service, lost, move.detail, without_notes(move.reason, shared)))


GAP = "  "


def _widths(rows: Sequence[_Row]) -> list[int]:
    """The width of each column, with the gap after it."""
    return [max(map(len, column)) + len(GAP) for column in zip(*(row.cells for row in rows), strict=True)]


def _line(row: _Row, widths: list[int], columns: int) -> Text:
    """A row as one line; the result is coloured, the seconds are right-aligned."""
    base = "dim" if row.style == "dim" else ""
    *cells, result = [f"{cell:<{width}}" for cell, width in zip(row.cells[:-1], widths[:-1], strict=True)]
    line = Text("".join(cells), base).append(result, row.style)
    line.append(f"{row.seconds:>{widths[-1] - len(GAP)}}", base)
    if not row.why:
        return line
    fits = sum(widths) + len(row.why) <= columns
    return line.append(GAP if fits else f"\n{GAP}{GAP}").append(row.why, "dim")


def _refuse_unknown(state_dir: Path, bundle: str | None, broker: str | None) -> None:
    """Raise :class:`UsageError` for a name that neither a kept move or split nor the last reports have.

    Where no reports are kept, no name is unknown: lbd may not have seen it yet.
    """
    if (bundle is None and broker is None) or (reported := load_bundles(state_dir)) is None:
        return
    brokers, bundles = set(reported.brokers), set(reported.bundles)
    for move in moves_of(state_dir):
        brokers.update(filter(None, (move.source, move.destination, move.owner)))
        bundles.add(move.bundle)
    for split in read_splits(state_dir):
        brokers.add(split.cut.owner)
        bundles.add(split.cut.bundle)
    if broker is not None and not _of_broker(tuple(brokers), broker):
        raise UsageError(f"--broker {broker}: no such broker is known{nearest(broker, sorted(brokers))}")
    if bundle is not None and not any(_of_bundle(name, bundle) for name in bundles):
        near = nearest(bundle, sorted(bundles))
        raise UsageError(f"--bundle {bundle}: no such bundle, namespace or tenant is known{near}")


def nothing_there(state_dir: Path) -> str:
    """The message for a state directory without moves."""
    if not state_dir.is_dir():
        return f"There is no {state_dir}: wanted the state_dir of the lbd that moved them."
    lost = StateDir(state_dir).journal_lost
    return f"Warning: {lost}" if lost else ""


def moves_summary(counts: Counter[str], shown: int) -> str:
    """``57 moves: 55 landed, 1 landed-elsewhere, 1 open``."""
    total = counts.total()
    if total == 0:
        return "No moves."
    order = [*(result.value for result in Result), "open"]
    text = ", ".join(f"{counts[label]:,} {label}" for label in order if counts[label])
    return f"{counted(total, 'move')}: {text}" + (f"; the last {shown} are shown (--last N)" if shown < total else "")
