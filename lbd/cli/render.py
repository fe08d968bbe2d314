"""A turn as a person reads it, and what other commands print in the same way."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.table import Table
from rich.text import Text

from lbd.cli.stages import passing
from lbd.cycle.document import hits_before, skips
from lbd.daemon.telling import broker_statuses
from lbd.load.told import loads, summary
from lbd.model import Result, Skip

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from rich.console import JustifyMethod
    from rich.progress import Progress, TaskID

    from lbd.cycle import CycleRecord
    from lbd.model import Outcome, Pair, Unload
    from lbd.reason import Reason
    from lbd.record.status import BrokerStatus

BAR_WIDTH = 20
WIDE = 500
"""Names stay whole, as long as those are in Kubernetes: a terminal wraps, a file does not."""


def json_out(found: object) -> None:
    """Print JSON on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")


def plain(text: str) -> str:
    """One line without control characters: what stands in a file must not steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def as_text(record: CycleRecord, *, everything: bool) -> None:
    """Print the turn for a person."""
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
    hot = {pair.source for pair in record.decision.facts.pairs} if record.decision is not None else set()
    console.print(broker_table(broker_statuses(record), hot))
    pairs = record.decision.facts.pairs if record.decision is not None else ()
    if any(pair.destination is not None for pair in pairs):
        console.print(_pair_table(record))
    if any(pair.destination is None for pair in pairs):
        console.print(_relieved_table(pairs))
    for (source, destination), unloads in _by_pair(record.unloads).items():
        console.print(Text(f"{source} -> {destination or '(the broker chooses)'}", "bold"))
        console.print(_unload_table(record, unloads))
        for told in _reasons(record, unloads) if everything else _reasons(record, unloads)[-1:]:
            console.print(Text(f"  {told}", "dim"))
    _print_skips(console, record, everything=everything)
    if record.slopes is not None and record.observation is not None and not record.acts:
        known = loads(record.observation.snapshot.brokers.ids, record.slopes, {})
        console.print(Text(f"load model: {summary(known)}", "dim"))
    console.print(Text(record.sentence, style="bold"))


def _reasons(record: CycleRecord, unloads: Sequence[Unload]) -> list[str]:
    """Why each of these moves is there, of a strategy that plans by points; the last tells where both ends will be."""
    return [one.reason for one in unloads] if record.decision is not None and record.decision.facts.told else []


def _by_pair(unloads: tuple[Unload, ...]) -> dict[tuple[str, str | None], list[Unload]]:
    found: dict[tuple[str, str | None], list[Unload]] = {}
    for unload in unloads:
        found.setdefault((unload.source, unload.destination), []).append(unload)
    return found


def table(*columns: tuple[str, JustifyMethod]) -> Table:
    """An empty table with these columns."""
    found = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        found.add_column(name, justify=justify, no_wrap=True)
    return found


def broker_table(brokers: Iterable[BrokerStatus], hot: Container[str], end: str = "") -> Table:
    """A row for each broker, the most loaded first; ``hot`` ones stand out, and all are named without ``end``."""
    found = table(
        ("broker", "left"),
        ("score", "right"),
        ("", "left"),
        ("by", "left"),
        ("msg/s", "right"),
        ("MB/s", "right"),
        ("bundles", "right"),
    )
    for row in sorted(brokers, key=lambda row: -(row.score or 0.0)):
        style = "bold red" if row.id in hot else ""
        found.add_row(
            Text(plain(row.id.removesuffix(end)), style),
            Text("?" if row.score is None else f"{row.score:.1f}", style),
            bar(row.score or 0.0, style or "green"),
            Text(plain(row.binding or "-").replace("_", " ")),
            amount(row.msg_rate),
            amount(row.throughput, 1e6, 1),
            str(row.bundles),
        )
    return found


def bar(score: float, style: str) -> Text:
    """A score of 0 to 100 points as a bar."""
    filled = round(min(max(score, 0.0), 100.0) / 100 * BAR_WIDTH)
    return Text("█" * filled, style).append("·" * (BAR_WIDTH - filled), "dim")


def amount(value: float | None, unit: float = 1.0, digits: int = 0) -> str:
    """A number in a unit; a question mark where it is not known."""
    return "?" if value is None else f"{value / unit:,.{digits}f}"


def _pair_table(record: CycleRecord) -> Table:
    assert record.decision is not None
    found = table(("pair", "left"), ("apart", "right"), ("hits before this turn", "left"))
    for pair in record.decision.facts.pairs:
        hits, wanted = hits_before(record, pair), record.wanted_hits
        words = hits_words((hits.low, wanted.low), (hits.high, wanted.high))
        found.add_row(pair.ends, f"{pair.difference:.1f}", words)
    return found


def _relieved_table(pairs: Iterable[Pair]) -> Table:
    """The brokers that a strategy without pairs would relieve."""
    found = table(("to be relieved", "left"), ("because it has", "left"))
    for pair in pairs:
        if pair.destination is None:
            found.add_row(pair.source, pair.why)
    return found


def hits_words(low: tuple[int, int], high: tuple[int, int]) -> str:
    """Hits so far, and how many fire; of a strategy that counts one thing only, that one."""
    told = f"{low[0]} of {low[1]}"
    return f"low {told}, high {high[0]} of {high[1]}" if any(high) else told


def _unload_table(record: CycleRecord, unloads: list[Unload]) -> Table:
    results = {outcome.unload.bundle: outcome for outcome in record.outcomes}
    found = table(("  unload", "left"), ("msg/s", "right"), ("MB/s", "right"), ("", "left"))
    for unload in unloads:
        found.add_row(
            f"  {unload.bundle}",
            amount(unload.msg_rate),
            amount(unload.throughput, 1e6, 1),
            _result(results.get(unload.bundle), acted=bool(results)),
        )
    return found


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

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def plan(self, unloads: tuple[Unload, ...]) -> None:
        """A plan is about to be worked off."""
        if unloads:
            self._task = self._progress.add_task("unloading", total=len(unloads))

    def ended(self, ended: Outcome | Skip) -> None:
        """One unload ended, or was not sent; an inherited one may end before there is a plan."""
        if self._task is not None:
            self._progress.update(self._task, advance=1, description=_told(ended))


def _told(ended: Outcome | Skip) -> str:
    if isinstance(ended, Skip):
        return f"{ended.what} not sent"
    return f"{ended.unload.bundle} {ended.result.value}"


@contextmanager
def progress(*, enabled: bool) -> Iterator[Show]:
    """A progress bar on stderr while unloads run; nothing where stderr is no terminal."""
    with passing(MofNCompleteColumn(), enabled=enabled) as bar:
        yield Show(bar)
