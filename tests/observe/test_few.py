"""Who works at the same time: few, as long as each of them is quick."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lbd.observe.few import Few

PATIENCE_SECONDS = 30.0
THREADS = 6


def test_no_more_than_so_many_at_once():
    """Whoever comes stands in line."""
    few, lock, counts = Few(at_once=2, patience_seconds=PATIENCE_SECONDS), threading.Lock(), [0, 0]

    def work() -> None:
        with few.at_work():
            with lock:
                counts[0] += 1
                counts[1] = max(counts)
            threading.Event().wait(0.01)
            with lock:
                counts[0] -= 1

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for _ in range(20)]:
            done.result()
    assert counts[0] == 0
    assert 1 <= counts[1] <= 2


def test_where_each_of_them_waits_all_go_on():
    """A slow broker, or one that hangs, keeps nobody from asking the others: here each waits until all are there."""
    few, together = Few(at_once=1, patience_seconds=0.01), threading.Barrier(THREADS, timeout=PATIENCE_SECONDS)

    def work() -> None:
        with few.at_work():
            together.wait()

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for _ in range(THREADS)]:
            done.result()


def test_a_place_is_given_back_after_an_error():
    """The next one has it at once: nobody waits here, or it would take a minute."""
    few = Few(at_once=1, patience_seconds=PATIENCE_SECONDS)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), few.at_work():
            _ = 1 / 0
