"""How people steer lbd through its state directory: a pause, and what else is asked for by hand.

::

    control/pause.json            nothing moves until it ends or is removed
    control/requests/<id>.json    asked for, not yet taken
    control/taken/<id>.json       under way
    control/answers/<id>.json     answered, not yet read

A request goes from one folder to the next by a rename, and is removed only when its answer is on disk: a daemon that
is killed at any point neither loses an answer nor does a request twice.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.files import FRESH, decoded, make_directory, put, sync, telling
from lbd.record.requested import (
    FAILED,
    REFUSED,
    Answer,
    DrainRequest,
    FillRequest,
    PlacedBundle,
    PlaceRequest,
    PlannedMove,
    PlanRequest,
    Request,
    SplitRequest,
    UnloadRequest,
    decoded_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "FAILED",
    "REFUSED",
    "Answer",
    "Control",
    "DrainRequest",
    "FillRequest",
    "Pause",
    "PlaceRequest",
    "PlacedBundle",
    "PlanRequest",
    "PlannedMove",
    "Request",
    "SplitRequest",
    "UnloadRequest",
]

POLL_SECONDS = 0.1
ANSWERS_ARE_KEPT_SECONDS = 86_400.0


class Pause(msgspec.Struct, frozen=True):
    """lbd observes and counts, and moves nothing. Times are epoch seconds; ``until`` None: until ``lbd resume``.

    ``since`` is 0 where a pause file cannot be read and nobody knows.
    """

    since: float
    until: float | None
    reason: str
    by: str


EXPIRED = "Refused: expired; lbd took the request {late:.0f} s after whoever asked had stopped waiting."
RESTARTED = "lbd was restarted while it was under way; see lbd history"


class Control:
    """The control files of a state directory. A daemon keeps one for its whole life: it knows what it has taken.

    Every method raises :class:`UsageError`, and nothing else, where a file cannot be read or written. ``broken`` is how
    many requests were set aside because they could not be read.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._root = state_dir / "control"
        self._pause, self._requests, self._taken, self._answers = (
            self._root / name for name in ("pause.json", "requests", "taken", "answers")
        )
        self._mine: set[str] = set()
        self.broken = 0

    def pause(self, pause: Pause) -> Pause | None:
        """Pause, from now on also over restarts; returns the pause that this one replaces."""
        replaced = self.paused(pause.since)
        self._make_directories()
        put(self._pause, pause)
        return replaced

    def resume(self) -> Pause | None:
        """End the pause; returns what was there, which may be a pause that had ended by itself."""
        found = self._found_pause()
        with telling(self._pause):
            self._pause.unlink(missing_ok=True)
            if found is not None:
                sync(self._root)  # or a power cut brings the pause back
        return found

    def paused(self, now: float) -> Pause | None:
        """The pause in force. When in doubt lbd does not move: a file that cannot be read is a pause without end."""
        found = self._found_pause()
        return None if found is None or (found.until is not None and found.until <= now) else found

    def _found_pause(self) -> Pause | None:
        try:
            return decoded(self._pause, Pause)
        except UsageError as error:
            return Pause(_modified_at(self._pause), None, f"{error}; lbd resume removes it", "unknown")

    def ask(self, request: Request) -> None:
        """Leave a request for the daemon."""
        self._make_directories()
        put(self._file(self._requests, request.id), request)

    def wait(
        self,
        request_id: str,
        timeout_seconds: float,
        sleep: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> Answer | None:
        """The answer, which is cleaned up with that; None when there is none in time."""
        path = self._file(self._answers, request_id)
        deadline = monotonic() + timeout_seconds
        while (found := decoded(path, Answer)) is None:
            if monotonic() >= deadline:
                return None
            sleep(POLL_SECONDS)
        with suppress(OSError):
            path.unlink()
        return found

    def withdraw(self, request_id: str) -> bool:
        """Take a request back; False when the daemon has taken it already, and may act on it."""
        path = self._file(self._requests, request_id)
        with telling(path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def take(self, now: float) -> Request | None:
        """The oldest request, to be worked off now; it is owed an :meth:`answer`. The others may still be withdrawn.

        What an earlier process took and did not answer, and what has expired, is answered here.
        """
        self._make_directories()
        self._remove_old(now)
        self._answer_for_the_killed()
        asked = [self._asked(path, now) for path in self._requests.glob("*.json")]
        for request in sorted((one for one in asked if one is not None), key=lambda one: (one.at, one.id)):
            if self._taken_over(request):
                return request
        return None

    def answer(self, request_id: str, answer: Answer) -> None:
        """Tell what became of a request that was taken; only then is it gone."""
        self._make_directories()
        put(self._file(self._answers, request_id), msgspec.structs.replace(answer, id=request_id))
        path = self._file(self._taken, request_id)
        with telling(path):
            path.unlink(missing_ok=True)
        self._mine.discard(request_id)

    def _answer_for_the_killed(self) -> None:
        """A process that was killed may or may not have moved the bundle: the journal knows, and nobody asks twice."""
        for path in self._taken.glob("*.json"):
            if path.stem in self._mine:
                continue
            if self._file(self._answers, path.stem).exists():
                with telling(path):
                    path.unlink(missing_ok=True)
            else:
                self.answer(path.stem, Answer(FAILED, RESTARTED))

    def _asked(self, path: Path, now: float) -> Request | None:
        """None for one that was withdrawn meanwhile, cannot be read, or has expired."""
        try:
            request = decoded_request(path)
        except UsageError:
            self._set_aside(path)
            return None
        if request is None:
            return None
        if request.id != path.stem:
            self._set_aside(path)
            return None
        if now >= request.expires_at:
            self._refuse(path, now - request.expires_at)
            return None
        return request

    def _taken_over(self, request: Request) -> bool:
        """False when whoever asked was faster and has withdrawn the request."""
        to = self._file(self._taken, request.id)
        with telling(to):
            try:
                self._file(self._requests, request.id).rename(to)
            except FileNotFoundError:
                return False
            sync(self._taken)
            sync(self._requests)
        self._mine.add(to.stem)
        return True

    def _refuse(self, path: Path, late_seconds: float) -> None:
        """The answer first: a kill in between lets it be refused again."""
        put(self._file(self._answers, path.stem), Answer(REFUSED, EXPIRED.format(late=late_seconds), id=path.stem))
        with telling(path):
            path.unlink(missing_ok=True)

    def _set_aside(self, path: Path) -> None:
        with telling(path), suppress(FileNotFoundError):
            path.rename(path.with_suffix(".broken"))
            self.broken += 1

    def _remove_old(self, now: float) -> None:
        """Answers that nobody fetched, and what a killed writer left behind."""
        left = [*self._answers.glob("*.json"), *self._root.rglob(f".*{FRESH}")]
        for path in left:
            if now - _modified_at(path) > ANSWERS_ARE_KEPT_SECONDS:
                with telling(path):
                    path.unlink(missing_ok=True)

    def _make_directories(self) -> None:
        with telling(self._state_dir):
            self._state_dir.mkdir(parents=True, exist_ok=True)
        for path in (self._root, self._requests, self._taken, self._answers):
            make_directory(path, self._state_dir)

    @staticmethod
    def _file(folder: Path, request_id: str) -> Path:
        return folder / f"{os.path.basename(request_id)}.json"  # noqa: PTH119 - an id is a name, never a path


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
