"""How far a drain or a fill has come, as it goes: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lbd.cli.drain_words import work_words
from lbd.cli.render import plain
from lbd.cli.times import spoken

if TYPE_CHECKING:
    from lbd.record.drains import Work

LINE_EVERY_SECONDS = 10.0


class Shown:
    """Follows one work from ``with`` to its end; on stderr, so that stdout holds what is asked for."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(stderr=True, highlight=False),
        )
        self._terminal = sys.stderr.isatty()
        self._task = self._bar.add_task("", total=None, told="", visible=False)
        self._told_at, self._told = -LINE_EVERY_SECONDS, ""

    def __enter__(self) -> Self:
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._bar.stop()

    def __call__(self, work: Work) -> None:
        """It has come so far; its end is told by who waits for it."""
        if self._terminal:
            eta = f"{spoken(work.eta_seconds)} left" if work.eta_seconds is not None else ""
            told = plain(f"waits: {work.held}" if work.held else eta)
            about = f"{work.kind} {plain(work.broker)}"
            self._bar.update(
                self._task, total=work.total, completed=work.tried, told=told, description=about, visible=True
            )
        elif work.ended_at is None and self._due(work):
            self._told_at, self._told = time.monotonic(), work.held
            click.echo(work_words(work), err=True)

    def _due(self, work: Work) -> bool:
        """A line now and then, and at once when it begins or ceases to wait."""
        return work.held != self._told or time.monotonic() - self._told_at >= LINE_EVERY_SECONDS
