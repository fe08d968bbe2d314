"""Where this lbd stands among several: alone, which is the default, or one of those that agree on a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lbd.daemon.leading import leadership
from lbd.errors import UsageError
from lbd.record.journal import Journal
from lbd.record.journal.shared import SharedJournal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.act.executor import Executor
    from lbd.config import Settings
    from lbd.cycle import Hold
    from lbd.daemon.splitting import Splitting

LED_WITHIN_SECONDS = 15.0
"""How long a command waits to lead, where no other lbd does."""


class Standing(Protocol):
    """Whether this lbd may move. ``on_change`` hears of it in words, ``words`` says it at any time.

    ``on_words`` is called whenever these are others than before.
    """

    on_change: Callable[[str], None]
    on_words: Callable[[], None]

    @property
    def leading(self) -> bool: ...
    @property
    def words(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    def hold(self) -> Hold | None: ...
    def wait(self, seconds: float) -> bool: ...
    def serve(self, executor: Executor, splitting: Splitting) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Alone:
    """No other lbd is to be reckoned with: the lock of the state directory keeps those of this machine apart."""

    leading, words, warnings = True, "", ()

    def __init__(self) -> None:
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_words: Callable[[], None] = lambda: None

    def hold(self) -> None:
        """Nothing holds it."""

    def wait(self, seconds: float) -> bool:
        """It leads."""
        del seconds
        return True

    def serve(self, executor: Executor, splitting: Splitting) -> None:
        """What the journal has open is its own."""

    def start(self) -> None:
        """There is nobody to follow."""

    def stop(self) -> None:
        """There is nobody to leave it to."""


def standing(
    settings: Settings, path: Path, now: Callable[[], float], *, observe_only: bool
) -> tuple[Journal, Standing]:
    """The journal at ``path``, and where its lbd stands; one that only observes needs not agree with anybody."""
    if observe_only or not settings.leader.enabled:
        return Journal(path, now), Alone()
    journal = SharedJournal(path, now)
    return journal, leadership(settings, journal, now)


def refuse_changes(before: Settings, settings: Settings) -> None:
    """Raises :class:`UsageError` for what a reload cannot change."""
    if settings.state_dir != before.state_dir:
        raise UsageError(f"state_dir: {settings.state_dir} takes effect with a restart, not with a reload")
    if settings.leader != before.leader:
        raise UsageError("leader: another value takes effect with a restart, not with a reload")
