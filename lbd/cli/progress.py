"""Stages of a long task on stderr: a bar on a terminal, a line each elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import ProgressColumn, TaskID


if TYPE_CHECKING:
    Counted = Callable[[], tuple[int, int]]

LOOK_SECONDS = 0.5


@contextmanager
def stages(counted: Counted) -> Iterator[Callable[[str], None]]:
    """A context whose callable starts each stage. ``counted`` returns how many parts of the stage are done, and how
    many there are.
    """
    if not sys.stderr.isatty():
        yield lambda text: click.echo(f"{text} ...", err=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = _Bar(progress, counted)
        try:
            yield bar.begin
        finally:
            bar.end()


def passing(*columns: ProgressColumn, enabled: bool = True) -> Progress:
    """A bar on stderr with these columns, removed at the end; nothing if stderr is no terminal."""
    shown = TextColumn("{task.description}"), BarColumn(), *columns
    return Progress(*shown, console=Console(stderr=True), transient=True, disable=not (enabled and sys.stderr.isatty()))


class _Bar:
    """A line for each stage; the last one moves."""

    def __init__(self, progress: Progress, counted: Counted) -> None:
        self._progress, self._counted = progress, counted
        self._task: TaskID | None = None
        self._over = Event()
        self._thread = Thread(target=self._look, name="progress", daemon=True)
        self._thread.start()

    def begin(self, text: str) -> None:
        """Start a stage; the one before is done."""
        self._full()
        self._task = self._progress.add_task(text, total=None)

    def end(self) -> None:
        """Stop drawing. The last stage is not marked as done, because it may have failed."""
        self._over.set()
        self._thread.join()

    def _full(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, total=1, completed=1)
            self._progress.stop_task(self._task)

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            done, total = self._counted()
            if self._task is not None and total:
                self._progress.update(self._task, total=total, completed=done)
