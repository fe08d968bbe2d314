"""A turn as a person or a program reads it."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from lbd.load.scoring import percent
from lbd.model import RESOURCES, Hits, Reason, Result, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cycle import CycleRecord
    from lbd.model import Outcome, Pair, Unload

BAR_WIDTH = 30
SHOWN_SKIPS = 12


class HitCounts(Protocol):
    """What rendering needs of a strategy's settings."""

    @property
    def hit_count_low(self) -> int: ...
    @property
    def hit_count_high(self) -> int: ...
    @property
    def low_threshold(self) -> float: ...


def document(record: CycleRecord, settings: HitCounts, *, everything: bool) -> dict[str, Any]:
    """The JSON shape of a turn."""
    assert record.observation is not None
    assert record.decision is not None
    taken_at = record.observation.snapshot.taken_at
    found: dict[str, Any] = {
        "taken_at": taken_at,
        "cluster": record.observation.cluster,
        "strategy": "avg-shedder",
        "brokers": brokers(record),
        "pairs": [_pair(record, pair, settings) for pair in record.decision.facts.pairs],
        "unloads": [_unload(unload) for unload in record.unloads],
        "skips": [_skip(skip) for skip in _skips(record, everything=everything)],
        "skipped": dict(record.counts),
        "summary": record.sentence,
    }
    if record.outcomes:
        found["outcomes"] = [_outcome(outcome) for outcome in record.outcomes]
    return found


def as_json(record: CycleRecord, settings: HitCounts, *, everything: bool) -> None:
    """Print the turn as JSON on stdout."""
    found = msgspec.json.format(msgspec.json.encode(document(record, settings, everything=everything)), indent=2)
    sys.stdout.write(found.decode() + "\n")


def brokers(record: CycleRecord) -> list[dict[str, Any]]:
    """Each broker's score, usage in percent (null: limit unknown), traffic in + out, and number of bundles."""
    assert record.observation is not None
    assert record.decision is not None
    snapshot = record.observation.snapshot
    used, table = percent(snapshot.brokers), snapshot.brokers
    listed = np.diff(np.concatenate(([0], np.cumsum(snapshot.rows.listed)))[snapshot.rows.start])
    return [
        {
            "id": broker,
            "score": _number(record.decision.facts.scores[at]),
            "binding": record.decision.facts.binding[at],
            "usage": {
                resource: _number(used[at, column]) if table.limit[at, column] > 0 else None
                for column, resource in enumerate(RESOURCES)
            },
            "msg_rate": _number(table.rates[at, 0] + table.rates[at, 1]),
            "throughput": _number(table.rates[at, 2] + table.rates[at, 3]),
            "bundles": int(listed[at]),
        }
        for at, broker in enumerate(table.ids)
    ]


def _number(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None


def _pair(record: CycleRecord, pair: Pair, settings: HitCounts) -> dict[str, Any]:
    hits = _hits(record, pair)
    return {
        "source": pair.source,
        "destination": pair.destination,
        "difference": _number(pair.difference),
        "hits": {
            "low": hits.low,
            "low_wanted": settings.hit_count_low,
            "high": hits.high,
            "high_wanted": settings.hit_count_high,
        },
    }


def _hits(record: CycleRecord, pair: Pair) -> Hits:
    """Counters before this turn: a dry-run counts nothing, and a firing turn has cleared them."""
    known = record.kept.hits if record.kept is not None else {}
    both = [known.get(pair.source, Hits()), known.get(pair.destination, Hits())]
    return Hits(max(hit.low for hit in both), max(hit.high for hit in both))


def _unload(unload: Unload) -> dict[str, Any]:
    return {
        "bundle": unload.bundle,
        "source": unload.source,
        "destination": unload.destination,
        "msg_rate": _number(unload.msg_rate),
        "throughput": _number(unload.throughput),
        "reason": unload.reason,
    }


def _skip(skip: Skip) -> dict[str, str]:
    return {"what": skip.what, "reason": skip.reason.label, "detail": skip.detail}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "bundle": outcome.unload.bundle,
        "result": outcome.result.value,
        "owner": outcome.owner,
        "attempts": outcome.attempts,
        "seconds": _number(outcome.seconds),
        "detail": outcome.detail,
    }


def _skips(record: CycleRecord, *, everything: bool) -> Iterator[Skip]:
    """What was said in words, then the bundles of fired sources (or of all brokers) by their code."""
    yield from record.skips
    assert record.observation is not None
    assert record.decision is not None
    snapshot, verdicts = record.observation.snapshot, record.decision.verdicts
    sources = {pair.source for pair in record.decision.facts.pairs if pair.fired}
    for at, broker in enumerate(snapshot.brokers.ids):
        if everything or broker in sources:
            for bundle in snapshot.rows.bundle[snapshot.rows.of(at)].tolist():
                reason = Reason.of(int(verdicts[bundle]))
                if reason is not Reason.MOVES:
                    yield Skip(snapshot.bundles[bundle], reason)


def as_text(record: CycleRecord, settings: HitCounts, *, everything: bool) -> None:
    """Print the turn for a person."""
    console = Console(highlight=False)
    console.print(_broker_table(record))
    if record.decision is not None and record.decision.facts.pairs:
        console.print(_pair_table(record, settings))
    if record.unloads:
        console.print(_unload_table(record))
    _print_skips(console, record, everything=everything)
    console.print(Text(record.sentence, style="bold"))


def _broker_table(record: CycleRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (
        ("broker", "left"),
        ("score", "right"),
        ("", "left"),
        ("by", "left"),
        ("msg/s", "right"),
        ("MB/s", "right"),
        ("bundles", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    rows = sorted(brokers(record), key=lambda row: -(row["score"] or 0))
    hot = {pair.source for pair in record.decision.facts.pairs} if record.decision else set()
    for row in rows:
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


def _pair_table(record: CycleRecord, settings: HitCounts) -> Table:
    assert record.decision is not None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pair", "points apart", "hits so far"):
        table.add_column(name)
    for pair in record.decision.facts.pairs:
        hits = _hits(record, pair)
        table.add_row(
            f"{pair.source} → {pair.destination}",
            f"{pair.difference:.1f}",
            f"low {hits.low}/{settings.hit_count_low}, high {hits.high}/{settings.hit_count_high}",
        )
    return table


def _unload_table(record: CycleRecord) -> Table:
    results = {outcome.unload.bundle: outcome for outcome in record.outcomes}
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (
        ("unload", "left"),
        ("from", "left"),
        ("to", "left"),
        ("msg/s", "right"),
        ("MB/s", "right"),
        ("result", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for unload in record.unloads:
        table.add_row(
            unload.bundle,
            unload.source,
            unload.destination or "(the broker chooses)",
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
    told = list(_skips(record, everything=everything)) if everything else list(record.skips)
    for skip in told if everything else told[:SHOWN_SKIPS]:
        console.print(Text(f"not moved  {skip.what}: {skip.reason.label}", "dim"), Text(skip.detail, "dim"))
    if not everything and len(told) > SHOWN_SKIPS:
        console.print(Text(f"           and {len(told) - SHOWN_SKIPS} more (--format json, or --all)", "dim"))


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
