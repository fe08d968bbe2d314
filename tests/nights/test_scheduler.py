"""Simulated threads and time: the library's own parts work on them, and one seed gives one order."""

from __future__ import annotations

import _thread
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.nights.scheduler import (
    BEGINS_AT,
    UP_SECONDS,
    DeadlockError,
    EndlessLoopError,
    Scheduler,
    TaskError,
    simulated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0


def run(main: Callable[[Scheduler], object], seed: int = 1) -> Scheduler:
    """Run to its end in simulated time."""
    with simulated(seed) as running:
        running.run(lambda: main(running))
        return running


def several(order: list[Any]) -> Callable[[Scheduler], None]:
    """Threads, a queue and a pool, which note in which order they came."""

    def produce(producer: int, items: queue.Queue[tuple[int, int]]) -> None:
        for number in range(4):
            items.put((producer, number))

    def consume(items: queue.Queue[tuple[int, int]]) -> None:
        while True:
            try:
                order.append(items.get(timeout=1.0))
            except queue.Empty:
                return

    def main(_: Scheduler) -> None:
        items: queue.Queue[tuple[int, int]] = queue.Queue(2)
        threads = [threading.Thread(target=produce, args=(producer, items)) for producer in range(3)]
        threads += [threading.Thread(target=consume, args=(items,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(order.append, number) for number in range(6)]
            wait(futures)

    return main


def test_one_seed_gives_one_order_and_another_seed_another():
    """All that the seed decides is which task is next; nothing is lost or done twice."""
    orders: list[list[Any]] = []
    for seed in (1, 1, 2):
        orders.append([])
        run(several(orders[-1]), seed)

    assert orders[0] == orders[1] != orders[2]
    assert sorted(map(str, orders[0])) == sorted(map(str, orders[2]))
    assert len(orders[0]) == 3 * 4 + 6


def test_time_moves_when_all_wait_and_only_then():
    """An hour of sleep takes no time; the clocks show it, and two sleeps beside one another overlap."""
    clocks: list[float] = []

    def main(running: Scheduler) -> None:
        for seconds in (HOUR, HOUR / 2):
            running.spawn(lambda seconds=seconds: time.sleep(seconds), "sleeper")
        clocks.extend((time.time(), time.monotonic()))
        time.sleep(HOUR)
        clocks.extend((time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC)))

    started_at = time.perf_counter()
    run(main)

    assert clocks == [BEGINS_AT, UP_SECONDS, BEGINS_AT + HOUR, UP_SECONDS + HOUR, UP_SECONDS + HOUR]
    assert time.perf_counter() - started_at < HOUR / 100


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        (lambda: threading.Event().wait(5.0), 5.0),
        (lambda: held().acquire(timeout=5.0), 5.0),
        (lambda: held().acquire(blocking=False), 0.0),
        (lambda: queue_of(0).get(timeout=5.0), 5.0),
        (lambda: queue_of(0).get_nowait(), 0.0),
        (lambda: threading.Semaphore(0).acquire(timeout=5.0), 5.0),
    ],
)
def test_a_wait_with_a_time_ends_by_it(waits: Callable[[], object], seconds: float):
    """In vain, after exactly that time."""
    took: list[float] = []

    def main(_: Scheduler) -> None:
        began_at = time.monotonic()
        with suppress(queue.Empty):
            assert not waits()
        took.append(time.monotonic() - began_at)

    run(main)

    assert took == [pytest.approx(seconds)]


def held() -> threading.Lock:
    """A lock that is taken."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def queue_of(number: int) -> queue.Queue[int]:
    """A queue with so many entries."""
    made: queue.Queue[int] = queue.Queue()
    for entry in range(number):
        made.put(entry)
    return made


def test_a_deadlock_is_told_with_who_waits():
    """Two tasks take two locks in opposite order; each seed that lets them meet ends the simulation."""

    def main(running: Scheduler) -> None:
        first, second = threading.Lock(), threading.Lock()

        def take(one: threading.Lock, other: threading.Lock) -> None:
            with one:
                time.sleep(1.0)
                with other:
                    pass

        for name, locks in (("left", (first, second)), ("right", (second, first))):
            running.spawn(lambda locks=locks: take(*locks), name, "m")
        threading.Event().wait()

    with pytest.raises(DeadlockError, match=r"m/left waits: lock; m/right waits: lock; world/main waits: lock"):
        run(main)


def test_a_reentrant_lock_is_free_when_its_holder_has_given_back_all_of_it():
    """Others wait until then, or until its holder waits on a condition; only its holder may give it back."""
    came: list[str] = []

    def main(running: Scheduler) -> None:
        lock = threading.RLock()
        changed = threading.Condition(lock)

        def other() -> None:
            with pytest.raises(RuntimeError, match="un-acquired"):
                lock.release()
            came.append(f"free at once: {lock.acquire(blocking=False)}")
            with changed:
                came.append("other")
                changed.notify_all()

        with lock, lock:
            running.spawn(other, "other")
            time.sleep(1.0)
            came.append("holder")
            assert changed.wait(HOUR)
            came.append("holder again")
        with pytest.raises(RuntimeError, match="un-acquired"):
            lock.release()

    run(main)

    assert came == ["free at once: False", "holder", "other", "holder again"]


def test_a_race_is_found_by_some_seeds_and_repeats():
    """A check and an act that another task can come between: some seeds show it, the same ones each time."""

    def lost(seed: int) -> bool:
        counts = [0]

        def main(_: Scheduler) -> None:
            lock = threading.Lock()

            def add() -> None:
                with lock:
                    before = counts[0]
                with lock:
                    counts[0] = before + 1

            threads = [threading.Thread(target=add) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        run(main, seed)
        return counts[0] < 2

    found = [seed for seed in range(20) if lost(seed)]

    assert 0 < len(found) < 20
    assert all(lost(seed) for seed in found)


def test_a_killed_machine_runs_nothing_more_and_frees_what_it_held():
    """No ``finally`` of it runs; a lock of this process that it held is free for the machine that lives."""
    ran: list[str] = []

    def main(running: Scheduler) -> None:
        lock = threading.Lock()

        def work() -> None:
            try:
                with lock:
                    ran.append("holds")
                    time.sleep(HOUR)
            finally:
                ran.append("unwound")

        running.spawn(work, "work", "killed")
        time.sleep(1.0)
        running.kill("killed")
        with lock:
            ran.append("free")
        time.sleep(2 * HOUR)

    run(main)

    assert ran == ["holds", "free"]


def test_a_stopped_machine_stands_while_time_goes_on():
    """What was due meanwhile happens when it goes on."""
    times: list[float] = []

    def main(running: Scheduler) -> None:
        def tick() -> None:
            while True:
                time.sleep(1.0)
                times.append(running.seconds)

        running.spawn(tick, "ticks", "stopped")
        time.sleep(2.5)
        running.stop("stopped")
        time.sleep(60.0)
        running.go_on("stopped")
        time.sleep(1.5)

    run(main)

    assert times == [1.0, 2.0, 62.5, 63.5]


def test_a_lock_given_back_after_a_wait_in_vain_is_no_error():
    """A machine that stands still learns late that its time is over; the lock was given back in between."""
    taken: list[bool] = []

    def main(running: Scheduler) -> None:
        lock = held()
        running.spawn(lambda: taken.append(lock.acquire(timeout=1.0)), "waits", "stopped")
        time.sleep(0.5)
        running.stop("stopped")
        time.sleep(1.0)
        lock.release()
        lock.acquire()
        running.go_on("stopped")
        time.sleep(1.0)

    run(main)

    assert taken == [False]


def test_an_error_that_leaves_a_thread_ends_the_simulation():
    """With the task's name; a daemon would only have lost that thread."""

    def main(_: Scheduler) -> None:
        threading.Thread(target=lambda: 1 // 0, name="divides").start()
        time.sleep(1.0)

    with pytest.raises(TaskError, match="world/divides: ZeroDivisionError"):
        run(main)


def test_a_thread_from_before_sleeps_and_waits_as_ever():
    """As of a library that another test of this process has started: it is no task, and moves no time."""
    begins, ends = _thread.allocate_lock(), _thread.allocate_lock()
    waited = list[bool]()
    begins.acquire()
    ends.acquire()

    def outside() -> None:
        begins.acquire()
        time.sleep(0.001)
        waited.append(threading.Event().wait(0.001))
        ends.release()

    def main(running: Scheduler) -> None:
        begins.release()
        ends.acquire()
        assert (running.seconds, waited) == (0.0, [False])

    _thread.start_new_thread(outside, ())
    run(main)


def test_a_loop_that_waits_for_nothing_is_told():
    """It would never end, as no time passes for it."""

    def main(_: Scheduler) -> None:
        lock = threading.Lock()
        while time.monotonic() < UP_SECONDS + 1.0:
            with lock:
                pass

    with pytest.raises(EndlessLoopError, match="without time passing"):
        run(main)


def test_an_observer_sees_each_step_and_ends_the_simulation():
    """Its error is the simulation's."""
    seen: list[int] = []

    def main(running: Scheduler) -> None:
        def look() -> None:
            seen.append(running.steps)
            assert running.seconds < 3.0, "three seconds have passed"

        running.on_step = look
        while True:
            time.sleep(1.0)

    with pytest.raises(AssertionError, match="three seconds have passed"):
        run(main)
    assert seen == list(range(seen[0], seen[-1] + 1))


def test_a_thread_that_a_test_has_left_starts_a_real_one():
    """It is no task, and what it begins is none."""
    begin, ended = _thread.allocate_lock(), _thread.allocate_lock()
    begin.acquire()
    ended.acquire()

    def left() -> None:
        begin.acquire()
        threading.Thread(target=ended.release).start()

    threading.Thread(target=left).start()

    def main(running: Scheduler) -> None:
        begin.release()
        assert ended.acquire(timeout=60)
        assert len(running.tasks) == 1

    run(main)


def test_the_real_parts_are_back_after_a_simulation():
    """Nothing of it stays in the process."""
    before = (threading.Lock, threading.Thread.start, time.time, time.sleep, queue.SimpleQueue)

    run(several([]))

    assert (threading.Lock, threading.Thread.start, time.time, time.sleep, queue.SimpleQueue) == before
    thread = threading.Thread(target=time.sleep, args=(0,))
    thread.start()
    thread.join()
