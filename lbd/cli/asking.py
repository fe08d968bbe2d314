"""How a command asks a running lbd for something, and who asks."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lbd.cli.render import plain
from lbd.cli.times import spoken
from lbd.errors import UsageError
from lbd.files import user_name
from lbd.record.asking import asked, new_id
from lbd.record.control import FAILED, Answer, Control
from lbd.record.status import running

__all__ = ["by", "handing", "new_id", "one_line", "process", "reason_of", "say"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.config import Settings
    from lbd.record.control import Request


def _asked(state_dir: Path, request: Request, pid: int) -> Answer:
    """The running lbd's answer, or that none came in time. What it has not taken by then is withdrawn."""
    seconds = request.expires_at - request.at
    waiting = f"Asked {process(pid)}; waiting up to {spoken(seconds)} for its answer."
    answer, untouched = asked(Control(state_dir), request, lambda: click.echo(waiting, err=True))
    if answer is not None:
        return answer
    so_far = "withdrew the request, nothing was done" if untouched else "it is under way, see lbd history"
    return Answer(FAILED, f"No answer from {process(pid)} in {spoken(seconds)}: {so_far}.", id=request.id)


@contextmanager
def handing(settings: Settings) -> Iterator[Callable[[Request], Answer]]:
    """What hands one request over after the other and waits for each answer: to the running lbd, else to this process.

    Raises :class:`~lbd.errors.RefusedError` when another lbd has taken the state directory meanwhile.
    """
    pid = running(settings.state_dir)
    if pid is not None:
        yield lambda request: _asked(settings.state_dir, request, pid)
        return
    from lbd.daemon import byhand  # noqa: PLC0415 - a running lbd is asked without the parts that act

    with byhand.working(settings) as work:
        yield work


def reason_of(override: str | None) -> str | None:
    """Why limits may be passed, in one line. Raises :class:`UsageError` for an empty reason."""
    reason = one_line(override) if override is not None else None
    if reason == "":
        raise UsageError("--override: the reason is empty; say why limits may be passed")
    return reason


def say(form: str, sentence: str) -> None:
    """Words go to stderr where stdout carries JSON."""
    click.echo(plain(sentence), err=form == "json")


def one_line(words: str) -> str:
    """Words without line ends and control characters."""
    return " ".join(plain(words).split())


def by() -> str:
    """Who asks: behind sudo, the person."""
    return one_line(os.environ.get("SUDO_USER") or user_name(os.getuid()))


def process(pid: int) -> str:
    """The running lbd, in words; 0 is one that has not said its id yet."""
    return f"lbd (process {pid or '?'})"
