"""Few threads at once where many would only wait for each other: they all take turns on one interpreter.

Sixteen that take in reports at the same time are done no sooner than two are, and whoever else has something to do, as
an answer of the API, stands in line behind all of them, each time that it has read or sent anything.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, TypeVar

from lbd.giving_way import MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

AT_ONCE = 2
"""One waits for a broker while the other takes in what came."""

PATIENCE_SECONDS = 0.005 + MOST_SECONDS
"""A broker nearby has answered within this, also where what it sent gives way to an answer of the API: that is no slow
broker. Those that have not answered wait, and more of that keeps nobody from working."""

LOOK_SECONDS = 0.5
"""How soon it is seen that the pool was shut down, which tells nobody who waits."""

Item = TypeVar("Item")
Found = TypeVar("Found")


def few_at_once(
    pool: Executor,
    most: int,
    work: Callable[[Item], Found],
    items: Sequence[Item],
    patience_seconds: float = PATIENCE_SECONDS,
) -> list[Found]:
    """What ``work`` finds of each item, in their order.

    Two are worked on at once, and twice as many, up to ``most``, whenever none has ended for ``patience_seconds``: so
    slow brokers, and one that hangs, hold up nobody. Raises what ``work`` raises, and begins no more then; RuntimeError
    or CancelledError once the pool is shut down.
    """
    waiting, begun, flying = deque(items), list[Future[Found]](), set[Future[Found]]()
    at_once = min(AT_ONCE, most)
    while waiting or flying:
        while waiting and len(flying) < at_once:
            begun.append(pool.submit(work, waiting.popleft()))
            flying.add(begun[-1])
        more = bool(waiting) and at_once < most
        ended, flying = wait(flying, patience_seconds if more else LOOK_SECONDS, FIRST_COMPLETED)
        for one in (*ended, *(left for left in flying if left.cancelled())):
            one.result()
        if more and not ended:
            at_once = min(2 * at_once, most)
    return [one.result() for one in begun]
