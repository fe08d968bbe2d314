"""A turn as a person reads it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from lbd.cli.document import brokers, document, hits_before, skips
from lbd.model import Reason, Result, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import JustifyMethod

    from lbd.cycle import CycleRecord
    from lbd.model import Outcome, Unload

BAR_WIDTH = 20


def as_json(record: CycleRecord, *, everything: bool) -> None:
    """Print the turn as JSON on stdout."""
    found = msgspec.json.format(msgspec.json.encode(document(record, everything=everything)), indent=2)
    sys.stdout.write(found.decode() + "\n")


def as_text(record: CycleRecord, *, everything: bool) -> None:
    """Print the turn for a person."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(_broker_table(record))
    if record.decision is not None and record.decision.facts.pairs:
        console.print(_pair_table(record))
    for (source, destination), unloads in _by_pair(record.unloads).items():
        console.print(Text(f"{source} -> {destination or '(the broker chooses)'}", "bold"))
        console.print(_unload_table(record, unloads))
    _print_skips(console, record, everything=everything)
    console.print(Text(record.sentence, style="bold"))


def _by_pair(unloads: tuple[Unload, ...]) -> dict[tuple[str, str | None], list[Unload]]:
    found: dict[tuple[str, str | None], list[Unload]] = {}
    for unload in unloads:
        found.setdefault((unload.source, unload.destination), []).append(unload)
    return found


def _table(*columns: tuple[str, JustifyMethod]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    return table


def _broker_table(record: CycleRecord) -> Table:
    table = _table(
        ("broker", "left"),
        ("score", "right"),
        ("", "left"),
        ("by", "left"),
        ("msg/s", "right"),
        ("MB/s", "right"),
        ("bundles", "right"),
    )
    hot = {pair.source for pair in record.decision.facts.pairs} if record.decision else set()
    for row in sorted(brokers(record), key=lambda row: -(row["score"] or 0)):
        style = "bold red" if row["id"] in hot else ""
        table.add_row(
            Text(row["id"], style),
            Text("?" if row["score"] is None else f"{row['score']:.1f}", style),
            _bar(row["score"] or 0.0, style or "green"),
            str(row["binding"] or "-").replace("_", " "),
            _amount(row["msg_rate"]),
            _amount(row["throughput"], 1e6, 1),
            str(row["bundles"]),
        )
    return table


def _bar(score: float, style: str) -> Text:
    filled = round(min(max(score, 0.0), 100.0) / 100 * BAR_WIDTH)
    return Text("█" * filled, style).append("·" * (BAR_WIDTH - filled), "dim")


def _amount(value: float | None, unit: float = 1.0, digits: int = 0) -> str:
    return "?" if value is None else f"{value / unit:,.{digits}f}"


def _pair_table(record: CycleRecord) -> Table:
    assert record.decision is not None
    table = _table(("pair", "left"), ("apart", "right"), ("hits before this turn", "left"))
    for pair in record.decision.facts.pairs:
        hits = hits_before(record, pair)
        table.add_row(
            f"{pair.source} -> {pair.destination}",
            f"{pair.difference:.1f}",
            f"low {hits.low} of {record.wanted_hits.low}, high {hits.high} of {record.wanted_hits.high}",
        )
    return table


def _unload_table(record: CycleRecord, unloads: list[Unload]) -> Table:
    results = {outcome.unload.bundle: outcome for outcome in record.outcomes}
    table = _table(("  unload", "left"), ("msg/s", "right"), ("MB/s", "right"), ("", "left"))
    for unload in unloads:
        table.add_row(
            f"  {unload.bundle}",
            _amount(unload.msg_rate),
            _amount(unload.throughput, 1e6, 1),
            _result(results.get(unload.bundle), acted=bool(results)),
        )
    return table


def _result(outcome: Outcome | None, *, acted: bool) -> Text:
    if outcome is None:
        return Text("not tried" if acted else "planned", "dim")
    words = f"{outcome.result.value} in {outcome.seconds:.2f} s"
    if outcome.result is Result.LANDED:
        return Text(words, "green")
    return Text(f"{words}: {outcome.detail}", "bold red")


def _print_skips(console: Console, record: CycleRecord, *, everything: bool) -> None:
    told = list(skips(record, everything=everything)) if everything else _gathered(record.skips)
    for skip in told:
        detail = f", {skip.detail}" if skip.detail else ""
        console.print(Text(f"not moved: {skip.what}: {skip.reason.label}{detail}", "dim"))


def _gathered(told: tuple[Skip, ...]) -> list[Skip]:
    """Skips with the bundles of one reason told in one line; ``--all`` names each."""
    found: dict[Reason, list[Skip]] = {}
    for skip in told:
        found.setdefault(skip.reason, []).append(skip)
    return [line for reason, group in found.items() for line in _lines(reason, group)]


def _lines(reason: Reason, group: list[Skip]) -> list[Skip]:
    bundles = [skip for skip in group if "/0x" in skip.what]
    if len(bundles) < 3:
        return group
    others = [skip for skip in group if "/0x" not in skip.what]
    return [*others, Skip(f"{len(bundles)} bundles", reason, f"the first: {bundles[0].detail}")]


class Show:
    """Follows unloads with a progress bar."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task: Any = None

    def plan(self, unloads: tuple[Unload, ...]) -> None:
        """A plan is about to be worked off."""
        if self._progress is not None and unloads:
            self._task = self._progress.add_task("unloading", total=len(unloads))

    def outcome(self, outcome: Outcome) -> None:
        """One unload ended."""
        if self._progress is not None:
            told = f"{outcome.unload.bundle} {outcome.result.value}"
            self._progress.update(self._task, advance=1, description=told)


@contextmanager
def progress(*, enabled: bool) -> Iterator[Show]:
    """A progress bar on stderr while unloads run; nothing where stderr is no terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield Show(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Show(bar)
