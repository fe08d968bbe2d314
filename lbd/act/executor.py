"""Works a plan off, one unload at a time, with the journal: intent before the request, outcome after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lbd.act.unloader import judged
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Unload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lbd.act.unloader import Unloader

MISSES_THAT_STOP = 2
"""Two unloads in a row from one source that did not land: something is wrong there that a third would not mend."""


class Journal(Protocol):
    """What the executor needs of the journal."""

    def intend(self, unload: Unload, attempt: int) -> str: ...
    def conclude(self, move: str, outcome: Outcome) -> None: ...


class OpenJournal(Journal, Protocol):
    """A journal that may hold intents without an outcome, from a process that was killed."""

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]: ...


def close_open(journal: OpenJournal, unloader: Unloader) -> None:
    """Give every open intent its outcome, by asking who owns the bundle now; one that cannot be asked stays open."""
    for move, unload in journal.open:
        try:
            owner = unloader.owner(unload.bundle)
        except AdminError:
            continue
        journal.conclude(
            move, Outcome(unload, judged(unload, owner), owner, "found open after a restart", affinity_left=True)
        )


class Accepts(Protocol):
    """Whether a bundle may stay on the broker where it landed instead; its load counts there then."""

    def __call__(self, unload: Unload, owner: str) -> bool: ...


class Executor:
    """Executes plans. One unload in flight, so never two of one range or one source."""

    def __init__(
        self, unloader: Unloader, journal: Journal, accepts: Accepts, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._unloader = unloader
        self._stopping = stopping
        self._failure: LbdError | None = None
        self._journal = journal
        self._accepts = accepts

    def run(self, plan: Iterable[Unload]) -> Iterator[Outcome]:
        """Each unload's outcome as it ends. Two misses in a row from one source, or a stop, end the round early.

        Raises :class:`LbdError` when an intent cannot be written (nothing was sent then), and after an outcome that
        could not be.
        """
        misses: Counter[str] = Counter()
        for unload in plan:
            if self._stopping():
                return
            outcome = self._attempts(unload)
            misses[unload.source] = 0 if outcome.result is Result.LANDED else misses[unload.source] + 1
            yield outcome
            if self._failure is not None:
                raise self._failure
            if misses[unload.source] >= MISSES_THAT_STOP:
                return

    def _attempts(self, unload: Unload) -> Outcome:
        """The second attempt starts from where the first one ended: nobody else can unload it."""
        outcome = self._attempt(unload, 1)
        if self._failure is not None or self._stopping() or not self._worth_another(outcome):
            return outcome
        return self._attempt(replace(unload, source=outcome.owner or unload.source), 2)

    def _attempt(self, unload: Unload, attempt: int) -> Outcome:
        move = self._journal.intend(unload, attempt)
        outcome = replace(self._unloader.unload(unload), attempts=attempt)
        try:
            self._journal.conclude(move, outcome)
        except LbdError as error:
            self._failure = error
        return outcome

    def _worth_another(self, outcome: Outcome) -> bool:
        """Once more when it came back to its source, or landed where it must not stay; else a miss is accepted."""
        if outcome.result is not Result.ELSEWHERE or outcome.owner is None:
            return False
        return outcome.owner == outcome.unload.source or not self._accepts(outcome.unload, outcome.owner)
