"""How ``lbd demo`` shows what it sees: as a picture on a terminal, as lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.live import Live

from lbd.cli import demo_text
from lbd.cli.demo_picture import Frame, picture

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lbd.demo.seen import Seen
    from lbd.demo.stage import Stage
    from lbd.record.turns.lines import Turn

PICTURES_A_SECOND = 8


class Picture:
    """A picture that follows the stage until it is closed; the last one stays on the screen."""

    def __init__(self, stage: Stage, console: Console, about: str, ends_at: float) -> None:
        self._stage, self._console, self._about, self._ends_at = stage, console, about, ends_at
        self._live = Live(get_renderable=self._drawn, console=console, refresh_per_second=PICTURES_A_SECOND)
        self._live.start(refresh=True)

    def close(self) -> None:
        """Draw it for the last time."""
        self._live.stop()

    def _drawn(self) -> RenderableType:
        cluster = self._stage.cluster
        frame = Frame(
            seen=self._stage.seen,
            now=cluster.now(),
            begun_at=cluster.begun_at,
            speed=cluster.speed,
            left_seconds=max(self._ends_at - time.monotonic(), 0.0),
            about=self._about,
            settings=self._stage.settings,
            flying=self._stage.flying,
        )
        return picture(frame, self._console.width, self._console.height)


class Lines:
    """A line for each turn and each end of a move, from now on. Where nobody reads them any more the stage ends."""

    def __init__(self, stage: Stage, about: str = "") -> None:
        self._stage, self._begun_at = stage, stage.cluster.begun_at
        if about:
            self._say(demo_text.opening(about, stage.cluster))
        stage.on_turn, stage.on_move = self._turned, self._moved

    def close(self) -> None:
        """Say no more."""
        self._stage.on_turn, self._stage.on_move = (lambda _: None), (lambda _: None)

    def _turned(self, turn: Turn) -> None:
        self._say(demo_text.turn_line(turn, self._begun_at))

    def _moved(self, seen: Seen) -> None:
        self._say(demo_text.move_line(seen.moves[-1], self._begun_at))

    def _say(self, line: str) -> None:
        try:
            click.echo(line)
        except OSError:
            self.close()
            self._stage.end()
