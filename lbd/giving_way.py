"""Placements and probes first, then the turn beside short answers, then long ones: what can wait a moment does.

All threads of a process take turns on one interpreter. An answer that has read its request must get it back once more,
behind every thread of a turn that wants it; those that wait here do not.

And no thread is asked to give way that keeps letting go of it for microseconds, as numpy does to look up or sort a few
numbers: who waits is woken, comes too late, and waits anew, for a tenth of a second and more.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SECONDS = 0.01
"""An answer from memory is made in a millisecond or two. One that is not there after this is waited for no longer."""

LONG_SECONDS = 0.75
"""What takes long to put together waits for a turn no longer than this. A turn of 100 brokers and 65,000 bundles takes
half a second; one that waits for brokers which do not answer takes nothing from anybody."""

LATELY_SECONDS = 0.1
"""Whoever has just pressed will again: ten placements a second and more come first all the time. Longer than this, and
one probe a second would make each turn longer (``python -m tests.bench.load mix`` tells by how much)."""


class Answers:
    """Those under way for which a turn waits: told by the thread that makes them, heeded by all others. Thread-safe so.

    ``now`` is seconds of a clock that only goes on.
    """

    def __init__(self, now: Callable[[], float] = monotonic, let_come: Callable[[float], None] = sleep) -> None:
        self._now, self._let_come = now, let_come
        self._due: dict[object, float] = {}
        self._latest = self._again_at = 0.0
        self._pressed_at = -inf
        self._none = threading.Event()
        self._none.set()

    def begun(self, who: object) -> None:
        """What ``who`` asked for has begun to come."""
        now = self._now()
        self._latest = now + MOST_SECONDS
        self._due = {one: due for one, due in self._due.items() if due > now} | {who: self._latest}
        self._none.clear()

    def pressing(self) -> None:
        """What has begun to come is a placement or a probe, and more of them will."""
        self._pressed_at = self._now()

    def ended(self, who: object) -> None:
        """It has its answer, or can wait for it."""
        self._due.pop(who, None)
        if not self._due:
            self._none.set()

    def give_way(self) -> None:
        """Wait until no answer is under way, for ``MOST_SECONDS`` at most. Where there is none, but a
        placement or a probe was asked for lately, let whoever waits for the interpreter come first, which takes 0.1 ms.

        Whoever waited works for as long before anybody waits again, or lets others come: no number of questions makes a
        turn more than twice as long.
        """
        now = self._now()
        if now < self._again_at:
            return
        if self._none.is_set() or now >= self._latest:
            if now < self._pressed_at + LATELY_SECONDS:
                self._let_come(0.0)
            return
        self._none.wait(self._latest - now)
        ended = self._now()
        self._again_at = ended + (ended - now)


ANSWERS = Answers()
"""Of this process, as its interpreter."""


class Turn:
    """Entered while one is under way, by one thread at a time; others wait in an event loop for its end.

    Nobody looks again and again whether it has ended: each look would take the interpreter from it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] | None = None

    def __enter__(self) -> Self:
        with self._lock:
            self._waiting = {}
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting or {}, None
        for ended, loop in waiting.items():
            with suppress(RuntimeError):  # the loop has ended, too
                loop.call_soon_threadsafe(ended.set)

    async def over(self, most_seconds: float = LONG_SECONDS) -> None:
        """Wait for its end, or for so long."""
        ended = asyncio.Event()
        with self._lock:
            if self._waiting is None:
                return
            self._waiting[ended] = asyncio.get_running_loop()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), most_seconds)


TURN = Turn()
"""Of this process."""
