"""Stages of a long task on stderr: a bar on a terminal, a line each elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import ProgressColumn, TaskID

    Counted = Callable[[], tuple[int, int, str]]

LOOK_SECONDS, LINE_SECONDS = 0.5, 60.0


@contextmanager
def stages(counted: Counted) -> Iterator[Callable[[str], None]]:
    """A context whose callable starts each stage. ``counted`` returns how many parts of the stage are done, how many
    there are, and both in words: these are a line a minute where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        lines = _Lines(counted)
        with _again_and_again(lines.look):
            yield lines.begin
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}")
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
    bar = _Bar(progress, counted)
    with progress, _again_and_again(bar.look):
        yield bar.begin


def passing(*columns: ProgressColumn, enabled: bool = True) -> Progress:
    """A bar on stderr with these columns, removed at the end; nothing if stderr is no terminal."""
    shown = TextColumn("{task.description}"), BarColumn(), *columns
    return Progress(*shown, console=Console(stderr=True), transient=True, disable=not (enabled and sys.stderr.isatty()))


@contextmanager
def _again_and_again(look: Callable[[], None]) -> Iterator[None]:
    """Look how far the stage is. The last one is not marked as done, because it may have failed."""
    over = Event()

    def until_over() -> None:
        while not over.wait(LOOK_SECONDS):
            look()

    thread = begin(until_over, "progress")
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Lines:
    """A line for each stage, and one a minute."""

    def __init__(self, counted: Counted) -> None:
        self._counted, self._shown, self._next = counted, "", time.monotonic() + LINE_SECONDS

    def begin(self, text: str) -> None:
        """Start a stage."""
        self._next = time.monotonic() + LINE_SECONDS
        click.echo(f"{text} ...", err=True)

    def look(self) -> None:
        """Say how far it is, if that is due and has changed."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            _, total, words = self._counted()
            if total and words != self._shown:
                self._shown = words
                click.echo(f"  {words}", err=True)


class _Bar:
    """A bar for each stage; the last one moves."""

    def __init__(self, progress: Progress, counted: Counted) -> None:
        self._progress, self._counted = progress, counted
        self._task: TaskID | None = None

    def begin(self, text: str) -> None:
        """Start a stage; the one before is done."""
        if self._task is not None:
            self._progress.update(self._task, total=1, completed=1, words="")
            self._progress.stop_task(self._task)
        self._task = self._progress.add_task(text, total=None, words="")

    def look(self) -> None:
        """Move the bar."""
        done, total, words = self._counted()
        if self._task is not None and total:
            self._progress.update(self._task, total=total, completed=done, words=words)
