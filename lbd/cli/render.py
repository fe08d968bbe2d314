"""Text output that commands share: a turn, tables, bars, amounts, JSON, and progress of unloads."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import yaml
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.table import Table
from rich.text import Text

from lbd.cli.progress import passing
from lbd.load.summary import loads, summary
from lbd.model import Result, Skip
from lbd.redaction import redacted, redacted_json
from lbd.turn.record import brokers, outcome_record, pair_statuses, skips

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from lbd.model import Outcome, Pair, Unload
    from lbd.reason import Reason
    from lbd.store.status import BrokerStatus, HitStatus, PairStatus
    from lbd.store.turn_record import BrokerRecord
    from lbd.turn.parts import TurnResult
    from lbd.turn.record import BrokerRow

BAR_WIDTH = 20
WIDE = 500
"""Width outside a terminal; wide enough that long names (Kubernetes) are not cut."""


def json_out(value: object) -> None:
    """Print JSON on stdout."""
    sys.stdout.write(msgspec.json.format(redacted_json(msgspec.json.encode(value)), indent=2).decode() + "\n")


def plain(text: str) -> str:
    """One line without secrets and control characters: text from a file must not control the terminal."""
    return "".join(char if char.isprintable() else " " for char in redacted(text))


def shared_notes(reasons: Iterable[str]) -> dict[str, int]:
    """The notes that follow several reasons, each with the number of these reasons: the text says them once."""
    notes = Counter(note for reason in reasons for note in dict.fromkeys(_clauses(reason)[1:]))
    return {note: number for note, number in notes.items() if number > 1}


def without_notes(reason: str, shared: Container[str]) -> str:
    """A reason without the notes that are said once for several."""
    first, *notes = _clauses(reason)
    return "; ".join((first, *(note for note in notes if note not in shared)))


def _clauses(reason: str) -> list[str]:
    """The parts of a reason between its semicolons, without those within brackets."""
    clauses, depth = [""], 0
    for char in reason:
        depth += (char == "(") - (char == ")")
        if char == ";" and depth == 0:
            clauses.append("")
        else:
            clauses[-1] += char
    return [clause.strip() for clause in clauses]


def as_text(record: TurnResult, *, everything: bool) -> None:
    """Print the turn as text."""
    width = None if sys.stdout.isatty() else WIDE
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False, width=width)
    hot = {pair.source for pair in record.plan.pairs}
    console.print(broker_table(brokers(record), hot))
    pairs = record.plan.pairs
    if any(pair.destination is not None for pair in pairs):
        console.print(pair_table(pair_statuses(record, before=True), "samples before this turn"))
    if any(pair.destination is None for pair in pairs):
        console.print(_relieved_table(pairs))
    for (source, destination), unloads in _by_pair(record.plan.unloads).items():
        console.print(Text(f"{source} -> {destination or '(the broker chooses)'}", "bold"))
        console.print(_unload_table(record, unloads))
        for reason in _reasons(record, unloads) if everything else _reasons(record, unloads)[-1:]:
            console.print(Text(f"  {reason}", "dim"))
    _print_skips(console, record, everything=everything)
    if record.facts is not None and record.facts.slopes is not None and not record.acts:
        models = loads(record.facts.snapshot.brokers.ids, record.facts.slopes, {})
        console.print(Text(f"load model: {summary(models)}", "dim"))
    console.print(Text(record.sentence, style="bold"))


def _reasons(record: TurnResult, unloads: Sequence[Unload]) -> list[str]:
    """The reason of each move of a strategy that plans by points; the last one has the scores of both ends."""
    by_points = record.plan.decision is not None and record.plan.decision.comparison.summary
    return [unload.reason for unload in unloads] if by_points else []


def _by_pair(unloads: tuple[Unload, ...]) -> dict[tuple[str, str | None], list[Unload]]:
    by_pair: dict[tuple[str, str | None], list[Unload]] = {}
    for unload in unloads:
        by_pair.setdefault((unload.source, unload.destination), []).append(unload)
    return by_pair


def table(*columns: str) -> Table:
    """An empty table with these columns, each cell in one line; ``>`` before a name aligns its column to the right."""
    rows = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        rows.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    return rows


def broker_table(shown: Iterable[BrokerRow | BrokerRecord | BrokerStatus], hot: Container[str], end: str = "") -> Table:
    """A row for each broker, the most loaded first; ``hot`` ones are highlighted, ``end`` is cut from names."""
    rows = table("broker", ">score", "", "by", ">msg/s", ">MB/s", ">bundles")
    for row in sorted(shown, key=lambda row: -(row.score or 0.0)):
        style = "bold red" if row.id in hot else ""
        rows.add_row(
            Text(plain(row.id.removesuffix(end)), style),
            Text("?" if row.score is None else f"{row.score:.1f}", style),
            bar(row.score or 0.0, style or "green"),
            Text(plain(row.binding or "-").replace("_", " ")),
            amount(row.msg_rate),
            amount(row.throughput, 1e6, 1),
            str(row.bundles),
        )
    return rows


def yaml_text(value: object) -> str:
    """A value in one line, as it would stand in lbd.yaml."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip())


def change_table(changes: Iterable[tuple[str, object, object]], before: str = "now") -> Table:
    """A row for each setting that would change: its key, its value ``before``, and the proposed one; ``-`` for none."""
    rows = table("setting", before, "proposed")
    for key, *values in changes:
        rows.add_row(Text(plain(key)), *(Text("-" if value is None else plain(yaml_text(value))) for value in values))
    return rows


def bar(score: float, style: str) -> Text:
    """A score of 0 to 100 points as a bar."""
    filled = round(min(max(score, 0.0), 100.0) / 100 * BAR_WIDTH)
    return Text("█" * filled, style).append("·" * (BAR_WIDTH - filled), "dim")


def amount(value: float | None, unit: float = 1.0, digits: int = 0) -> str:
    """A number in a unit; a question mark if it is unknown."""
    return "?" if value is None else f"{value / unit:,.{digits}f}"


def pair_table(pairs: Iterable[PairStatus], hits_title: str, end: str = "") -> Table:
    """A row for each pair of two brokers; ``end`` is cut from names."""
    rows = table("pair", ">apart", hits_title)
    for pair in pairs:
        if pair.destination is not None:
            ends = f"{pair.source.removesuffix(end)} -> {pair.destination.removesuffix(end)}"
            rows.add_row(Text(plain(ends)), amount(pair.difference, digits=1), _hits_text(pair.hits))
    return rows


def _relieved_table(pairs: Iterable[Pair]) -> Table:
    """The brokers that a strategy without pairs would relieve."""
    rows = table("to be relieved", "because it has")
    for pair in pairs:
        if pair.destination is None:
            rows.add_row(pair.source, pair.why)
    return rows


def _hits_text(hits: HitStatus) -> str:
    """Hits so far and the hits to fire; one number for a strategy with one counter."""
    low = f"{hits.low} of {hits.low_wanted}"
    return f"low {low}, high {hits.high} of {hits.high_wanted}" if hits.high or hits.high_wanted else low


def _unload_table(record: TurnResult, unloads: list[Unload]) -> Table:
    results = {outcome.unload.bundle: outcome for outcome in record.moves.outcomes}
    rows = table("  unload", ">msg/s", ">MB/s", "")
    for unload in unloads:
        rows.add_row(
            f"  {unload.bundle}",
            amount(unload.msg_rate),
            amount(unload.throughput, 1e6, 1),
            _result(results.get(unload.bundle), acted=bool(results)),
        )
    return rows


def _result(outcome: Outcome | None, *, acted: bool) -> Text:
    if outcome is None:
        return Text("not tried" if acted else "planned", "dim")
    return Text(outcome_record(outcome).words, "green" if outcome.result is Result.LANDED else "bold red")


def _print_skips(console: Console, record: TurnResult, *, everything: bool) -> None:
    lines = list(skips(record, everything=everything)) if everything else _gathered(record.skips)
    for skip in lines:
        detail = f", {skip.detail}" if skip.detail else ""
        console.print(Text(f"not moved: {skip.what}: {skip.reason.label}{detail}", "dim"))


def _gathered(skips: tuple[Skip, ...]) -> list[Skip]:
    """Skips with one line per reason; ``--all`` lists each bundle."""
    by_reason: dict[Reason, list[Skip]] = {}
    for skip in skips:
        by_reason.setdefault(skip.reason, []).append(skip)
    return [line for reason, group in by_reason.items() for line in _lines(reason, group)]


def _lines(reason: Reason, group: list[Skip]) -> list[Skip]:
    bundles = [skip for skip in group if "/0x" in skip.what]
    if len(bundles) < 3:
        return group
    others = [skip for skip in group if "/0x" not in skip.what]
    return [*others, Skip(f"{len(bundles)} bundles", reason, f"the first: {bundles[0].detail}")]


class Show:
    """Follows unloads with a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def plan(self, unloads: tuple[Unload, ...]) -> None:
        """Start: a plan is about to be executed."""
        if unloads:
            self._task = self._progress.add_task("unloading", total=len(unloads))

    def ended(self, end: Outcome | Skip) -> None:
        """One unload ended, or was not sent; an inherited one may end before there is a plan."""
        if self._task is not None:
            self._progress.update(self._task, advance=1, description=_result_text(end))


def _result_text(end: Outcome | Skip) -> str:
    if isinstance(end, Skip):
        return f"{end.what} not sent"
    return f"{end.unload.bundle} {end.result.value}"


@contextmanager
def progress(*, enabled: bool) -> Iterator[Show]:
    """A progress bar on stderr while unloads run; nothing if stderr is no terminal."""
    with passing(MofNCompleteColumn(), enabled=enabled) as bar:
        yield Show(bar)
