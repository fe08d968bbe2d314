"""Who works at the same time: few, as long as they are quick."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import ObserveError
from lbd.observe.observer import AT_ONCE, few_at_once
from lbd.threads import Threads
from tests.act.test_executor import no_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE_SECONDS = 60.0
THREADS = 8


def found(
    work: Callable[[int], Any], items: Sequence[int], most: int = THREADS, patience_seconds: float = PATIENCE_SECONDS
) -> list[Any]:
    """With a thread for each that may be at work."""
    with Threads(THREADS) as pool:
        return few_at_once(pool, most, work, items, patience_seconds)


@pytest.mark.parametrize("number", [0, 1, 3, 50])
def test_everything_is_worked_on_once_and_told_in_order(number: int):
    """Whatever ends first."""
    asked: Counter[int] = Counter()

    def work(item: int) -> int:
        asked[item] += 1
        threading.Event().wait(0.001 * (item % 3))
        return 10 * item

    assert found(work, range(number)) == [10 * item for item in range(number)]
    assert asked == Counter(range(number))


@pytest.mark.parametrize(("most", "wanted"), [(THREADS, AT_ONCE), (1, 1)])
def test_no_more_than_few_while_each_is_quick(most: int, wanted: int):
    """The others are not begun."""
    lock, counts = threading.Lock(), [0, 0]

    def work(_: int) -> None:
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        threading.Event().wait(0.01)
        with lock:
            counts[0] -= 1

    found(work, range(20), most)
    assert counts[0] == 0
    assert 1 <= counts[1] <= wanted


def test_where_all_wait_as_many_go_on_as_may():
    """Slow brokers, or some that hang: here each waits until so many are there."""
    together = threading.Barrier(THREADS, timeout=PATIENCE_SECONDS)
    assert found(lambda _: together.wait() >= 0, range(2 * THREADS), patience_seconds=0.01) == [True] * 2 * THREADS


def test_after_an_error_no_more_are_begun():
    """A token that is refused once is refused by all."""
    asked: list[int] = []

    def work(item: int) -> None:
        asked.append(item)
        if item == 0:
            raise PermissionError

    with pytest.raises(PermissionError):
        found(work, range(1000))
    assert len(asked) < 1000


def test_who_waits_is_told_that_the_pool_was_shut_down():
    """Also of what it had not begun: settings were read again while a broker was asked."""
    begun, over = threading.Event(), threading.Event()

    def work(_: int) -> None:
        begun.set()
        over.wait(PATIENCE_SECONDS)

    with Threads(1) as pool, Threads(1) as beside:
        asked = beside.submit(few_at_once, pool, 2, work, range(9))
        begun.wait(PATIENCE_SECONDS)
        pool.shutdown(wait=False, cancel_futures=True)
        try:
            with pytest.raises(ObserveError, match=r"not asked: .*; ask again"):
                asked.result(PATIENCE_SECONDS)
        finally:
            over.set()


def test_a_thread_that_could_not_be_had_is_no_bug(monkeypatch: pytest.MonkeyPatch):
    """The round ends with the reason, and the next one asks again."""
    no_thread(monkeypatch, "lbd-observe")
    with Threads(THREADS, "lbd-observe") as pool, pytest.raises(ObserveError, match="can't start new thread"):
        few_at_once(pool, THREADS, str, [1])
