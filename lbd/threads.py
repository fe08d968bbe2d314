"""The one place where threads start; none of them holds the process.

A system that has no thread left is no bug, and gives one later: each caller tries again, or says that it did not begin.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from lbd.errors import ThreadError

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def begin(work: Callable[[], object], name: str) -> Thread:
    """Start a thread. Raises :class:`ThreadError`."""
    thread = Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise ThreadError(str(error)) from error
    return thread


def begin_after(seconds: float, work: Callable[[], object], name: str) -> Event:
    """Start a thread that works after a pause; setting the event cancels it. Raises :class:`ThreadError`."""
    cancelled = Event()
    begin(lambda: cancelled.wait(seconds) or work(), name)
    return cancelled


class Threads(ThreadPoolExecutor):
    """Threads that work off a queue."""

    is_closed = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work."""
        self.is_closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)

    def submit(
        self, work: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Queue work. Raises :class:`ThreadError`, and CancelledError once the pool is shut down."""
        try:
            return super().submit(work, *args, **kwargs)
        except RuntimeError as error:
            raise (CancelledError if self.is_closed else ThreadError)(str(error)) from error
