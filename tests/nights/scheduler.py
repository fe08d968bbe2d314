"""Simulated threads and time: one task runs at a time, the seed chooses the next, time moves when all tasks wait.

Threads stay real, and so do thread-locals, stacks and the standard library's own ``Condition``, ``Event``, ``Queue``
and thread pools. Only what these are made of is replaced: locks, the start and end of threads, sleep and the clocks. A
task runs until it takes a lock, waits or sleeps; the next task is chosen there, and nowhere else.

A machine is a set of tasks that die or freeze together. A killed task never runs again: nothing of it is unwound.
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread
import heapq
import os
import queue
import random
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import _base
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Self, cast
from unittest import mock
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BEGINS_AT = 1_790_000_000.0
"""Epoch seconds at which simulated time begins."""

UP_SECONDS = 100_000.0
"""How long the simulated machines are up by then."""

SWITCHES = (0.2, 0.05, 0.01)
"""Share of free locks at which another task may run first. A seed has one of them: some faults need many changes of the
running task in a row, others a few at the right places of a long time."""

TOO_MANY_STEPS = 200_000
"""So many steps in which no time passes are a loop that waits for nothing."""

_real_lock = _thread.allocate_lock
_real_start = _thread.start_new_thread
_real_thread_start = threading.Thread.start
_real_time, _real_monotonic, _real_sleep = time.time, time.monotonic, time.sleep


class DeadlockError(Exception):
    """All tasks wait, and none of them for a time."""


class EndlessLoopError(Exception):
    """Tasks go on and on while no time passes."""


class TaskError(Exception):
    """A task raised an error that nobody in it caught."""


@dataclass(eq=False, repr=False)
class Task:
    """One thread of a machine. ``waits`` says what for; empty while it could run."""

    name: str
    machine: str
    run: Callable[[], object]
    baton: Any = field(default_factory=_real_lock)
    waits: str = ""
    wait_number: int = 0
    timed_out: bool = False
    dead: bool = False
    ended: Lock | None = None

    def __str__(self) -> str:
        return f"{self.machine}/{self.name}"


@dataclass(eq=False)
class _Worker:
    """A real thread that runs task after task: starting one takes as long as ten switches."""

    begin: Any = field(default_factory=_real_lock)
    task: Task | None = None


class Scheduler:
    """Runs tasks of several machines by a seed.

    ``on_step`` is called before each choice of the next task, and must only look. What it raises ends the simulation.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(f"schedule {seed}")
        self._switches = self._random.choice(SWITCHES)
        self.locks_until_switch = 0
        self.chance = Random(f"names {seed}")
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, int, Task]] = []
        self.numbers = iter(range(sys.maxsize))
        self._over = _real_lock()
        self._idle: list[_Worker] = []
        self.threads: set[int] = set()
        self._home = _thread.get_ident()
        self._stopped: set[str] = set()
        self._still_steps = 0
        self.current: Task | None = None
        self.tasks: set[Task] = set()
        self.seconds = 0.0
        self.steps = 0
        self.skew: dict[str, float] = {}
        self.failure: BaseException | None = None
        self.on_step: Callable[[], None] = lambda: None

    def run(self, main: Callable[[], object], name: str = "main", machine: str = "world") -> None:
        """Run ``main`` as the first task until it returns; other tasks never run again then.

        Raises what ``on_step`` raised, :class:`TaskError` for an error that left a task, :class:`DeadlockError` and
        :class:`EndlessLoopError`.
        """
        self._over.acquire()
        self.spawn(partial(self._first, main), name, machine)
        self._give_baton(self._next())
        self._over.acquire()
        if self.failure is not None:
            raise self.failure

    def spawn(self, run: Callable[[], object], name: str, machine: str | None = None) -> Task:
        """Add a task, of the running task's machine unless another one is named."""
        if machine is None:
            assert self.current is not None
            machine = self.current.machine
        task = Task(name, machine, run)
        task.ended = Lock(f"end of {name}")
        task.ended.owner = task
        task.baton.acquire()
        worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker(task=task)
            worker.begin.acquire()
            _real_start(self._work, (worker,))
        else:
            worker.task = task
            worker.begin.release()
        self.tasks.add(task)
        self._ready.append(task)
        return task

    def kill(self, machine: str) -> None:
        """Kill -9: no task of the machine runs again, and none of its locks is held."""
        for task in [task for task in self.tasks if task.machine == machine]:
            task.dead = True
            self.tasks.discard(task)
        self._ready = [task for task in self._ready if not task.dead]
        self._stopped.discard(machine)
        if self.current is not None and self.current.dead:
            self._leave()

    def stop(self, machine: str) -> None:
        """SIGSTOP: its tasks stand still, and time goes on."""
        self._stopped.add(machine)
        if self.current is not None and self.current.machine == machine:
            self.pause(always=True)

    def go_on(self, machine: str) -> None:
        """SIGCONT."""
        self._stopped.discard(machine)

    def is_stopped(self, machine: str) -> bool:
        """Whether its tasks stand still."""
        return machine in self._stopped

    def now(self) -> float:
        """Epoch seconds, as the running task's machine has them."""
        return BEGINS_AT + self.seconds + (self.skew.get(self.current.machine, 0.0) if self.current else 0.0)

    def up(self) -> float:
        """Seconds since the start of the machines; nobody sets this clock."""
        return UP_SECONDS + self.seconds

    def pause(self, *, always: bool = False) -> None:
        """Let another task run first, if the seed says so."""
        if not always and self.locks_until_switch > 0:
            self.locks_until_switch -= 1
            return
        me = self.current
        assert me is not None
        if not always:
            self.locks_until_switch = int(self._random.expovariate(self._switches))
        self._ready.append(me)
        self._switch(me)

    def wait(self, why: str, seconds: float | None = None) -> bool:
        """Stand until :meth:`wake`, or for so long: whether the task was woken."""
        me = self.current
        assert me is not None
        me.waits, me.wait_number, me.timed_out = why, next(self.numbers), False
        if seconds is not None:
            ends_at = self.seconds + seconds if seconds > 0 else self.seconds
            heapq.heappush(self._timers, (ends_at, next(self.numbers), me.wait_number, me))
        self._switch(me)
        return not me.timed_out

    def wake(self, task: Task) -> None:
        """End the wait of a task."""
        if task.waits and not task.dead:
            task.waits, task.wait_number = "", 0
            self._ready.append(task)

    @property
    def runs_here(self) -> bool:
        """Whether the thread that asks is one of a task."""
        return _thread.get_ident() in self.threads

    @property
    def is_foreign(self) -> bool:
        """Whether the thread that asks is one from before the simulation, as py4j's, or one that a test has left."""
        return not self.runs_here and _thread.get_ident() != self._home

    def sleep(self, seconds: float) -> None:
        """Stand for so long."""
        self.wait("sleep", seconds)

    def story(self) -> str:
        """Where each task stands."""
        lines = (f"{task} {f'waits: {task.waits}' if task.waits else 'could run'}" for task in self.tasks)
        return "; ".join(sorted(lines))

    # -- how it goes on

    def _first(self, main: Callable[[], object]) -> None:
        main()
        self._end(None)

    def _work(self, worker: _Worker) -> None:
        self.threads.add(_thread.get_ident())
        while True:
            task, worker.task = worker.task, None
            assert task is not None
            task.baton.acquire()
            try:
                task.run()
            except SystemExit:
                pass
            except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to; the simulation ends by it
                failure = TaskError(f"{task}: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._end(failure)
            task.dead = True
            self.tasks.discard(task)
            assert task.ended is not None
            task.ended.release()
            self._idle.append(worker)
            self._count_step()
            self._give_baton(self._next())
            worker.begin.acquire()

    def _switch(self, me: Task) -> None:
        self._count_step()
        chosen = self._next()
        if chosen is me:
            return
        self._give_baton(chosen)
        me.baton.acquire()

    def _leave(self) -> None:
        """The running task is dead: it hands on, and stands for ever."""
        self._count_step()
        self._give_baton(self._next())
        _stand_for_ever()

    def _give_baton(self, task: Task) -> None:
        self.current = task
        task.baton.release()

    def _count_step(self) -> None:
        self.steps += 1
        self._still_steps += 1
        me, self.current = self.current, None
        try:
            self.on_step()
        except BaseException as error:  # noqa: BLE001 - whatever an observer says ends the simulation
            self._end(error)
        self.current = me
        if self._still_steps > TOO_MANY_STEPS:
            self._end(EndlessLoopError(f"{TOO_MANY_STEPS} steps without time passing: {self.story()}"))

    def _next(self) -> Task:
        """The task to run next, with the time moved on where none could run."""
        while True:
            ready = self._ready
            if not self._stopped:
                number = len(ready)
                if number > 1:
                    return ready.pop(int(self._random.random() * number))
                if number:
                    return ready.pop()
            elif able := [task for task in ready if task.machine not in self._stopped]:
                chosen = able[0] if len(able) == 1 else able[int(self._random.random() * len(able))]
                ready.remove(chosen)
                return chosen
            if not self._timers:
                self._end(DeadlockError(f"all tasks wait, none of them for a time: {self.story()}"))
            self._move_time()

    def _move_time(self) -> None:
        self._still_steps = 0
        self.seconds = max(self.seconds, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.seconds:
            _, _, number, task = heapq.heappop(self._timers)
            if task.waits and task.wait_number == number and not task.dead:
                task.timed_out = True
                self.wake(task)

    def _end(self, failure: BaseException | None) -> None:
        """The simulation is over; the calling thread stands from now on."""
        self.failure = self.failure or failure
        self.current = None
        self._over.release()
        _stand_for_ever()


def _stand_for_ever() -> None:
    """Leave the thread behind; it ends with the process. Unwinding would run code that a killed process never ran."""
    for_ever = _real_lock()
    for_ever.acquire()
    for_ever.acquire()


# --- what the standard library makes its threads and waits of

_scheduler: Scheduler | None = None


def scheduler() -> Scheduler:
    """The simulation of this process. Raises :class:`RuntimeError` where there is none."""
    if _scheduler is None:
        raise RuntimeError("no simulation runs")
    return _scheduler


class Lock:
    """In place of ``threading.Lock``. Outside of tasks, where nothing else runs, it is only taken and given back.

    A lock that is left by a killed machine is free for others: it is of this process, and not of theirs. A thread from
    before the simulation gets real ones.
    """

    def __new__(cls, name: str = "lock") -> Self:
        """Make one, for whoever asks."""
        del name
        foreign = _scheduler is not None and _scheduler.is_foreign
        return cast("Self", _real_lock()) if foreign else super().__new__(cls)

    def __init__(self, name: str = "lock") -> None:
        self.name = name
        self.owner: object | None = None
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of the library."""
        running = _scheduler
        if running is None or running.current is None:
            if not self._free:
                raise RuntimeError("a lock is held by a task, and asked for by none")
            self.owner = self
            return True
        if running.locks_until_switch > 0:
            running.locks_until_switch -= 1
        else:
            running.pause()
        me = running.current
        if self.owner is None:
            self.owner = me
            return True
        deadline = running.seconds + timeout if timeout > 0 else None
        while not self._free:
            if not blocking or (deadline is not None and running.seconds >= deadline):
                return False
            self._waiting.append(me)
            running.wait(self.name, None if deadline is None else deadline - running.seconds)
            with suppress(ValueError):  # who gave the lock back has taken all that waited from the list
                self._waiting.remove(me)
        self.owner = me
        return True

    def release(self) -> None:
        """As of the library: any task may."""
        if self.owner is None:
            raise RuntimeError("release unlocked lock")
        self.owner = None
        while self._waiting:
            scheduler().wake(self._waiting.popleft())

    @property
    def _free(self) -> bool:
        return self.owner is None or (isinstance(self.owner, Task) and self.owner.dead)

    def locked(self) -> bool:
        """As of the library."""
        return not self._free

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.__init__(self.name)  # type: ignore[misc]


class RLock(Lock):
    """In place of ``threading.RLock``: the library's own one in Python is made of a lock, and twice as slow."""

    def __new__(cls) -> Self:
        """As of a lock."""
        foreign = _scheduler is not None and _scheduler.is_foreign
        return cast("Self", _thread.RLock()) if foreign else object.__new__(cls)

    def __init__(self) -> None:
        super().__init__()
        self._times = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of the library."""
        if self._is_owned():
            self._times += 1
            return True
        if super().acquire(blocking, timeout):
            self._times = 1
            return True
        return False

    def release(self) -> None:
        """As of the library: who holds it may."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._times -= 1
        if not self._times:
            super().release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    # -- as ``threading.Condition`` calls it

    def _is_owned(self) -> bool:
        return self.owner is not None and self.owner is ((_scheduler and _scheduler.current) or self)

    def _release_save(self) -> int:
        times, self._times = self._times, 0
        super().release()
        return times

    def _acquire_restore(self, times: int) -> None:
        super().acquire()
        self._times = times

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


class _Future(_base.Future):  # type: ignore[type-arg]
    """The order of sets of futures, and that in which the library locks several, are their ages and not addresses."""

    def __init__(self) -> None:
        super().__init__()
        self._number = next(scheduler().numbers)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _AcquireFutures(_base._AcquireFutures):  # type: ignore[name-defined, misc]
    def __init__(self, futures: Iterable[_Future]) -> None:
        self.futures = sorted(futures, key=hash)


def _age(thread: threading.Thread) -> int:
    """In place of ``Thread.__hash__``: pools join their sets of threads."""
    number: int = vars(thread).setdefault("_number", next(scheduler().numbers))
    return number


def _start(thread: threading.Thread) -> None:
    """In place of ``Thread.start``; a foreign thread starts real ones."""
    running = scheduler()
    if running.is_foreign:
        _real_thread_start(thread)
        return
    if running.current is None:
        raise RuntimeError(f"{thread.name} is started outside of tasks")
    if thread._started.is_set():  # type: ignore[attr-defined]
        raise RuntimeError("threads can only be started once")

    def run() -> None:
        ident = _thread.get_ident()
        before, threading._active[ident] = threading._active.get(ident), thread  # type: ignore[attr-defined]
        thread._set_ident()  # type: ignore[attr-defined]
        try:
            thread.run()
        finally:
            threading._active[ident] = before  # type: ignore[attr-defined]
            if before is None:
                del threading._active[ident]  # type: ignore[attr-defined]

    thread._task = running.spawn(run, thread.name)  # type: ignore[attr-defined]
    thread._ident = id(thread)  # type: ignore[attr-defined]
    thread._started.set()  # type: ignore[attr-defined]
    running.pause()


def _join(thread: threading.Thread, timeout: float | None = None) -> None:
    """In place of ``Thread.join``."""
    task: Task | None = getattr(thread, "_task", None)
    if task is None:
        raise RuntimeError("cannot join thread before it is started")
    assert task.ended is not None
    if task.ended.acquire(timeout=-1 if timeout is None else max(timeout, 1e-9)):
        task.ended.release()


def _is_alive(thread: threading.Thread) -> bool:
    """In place of ``Thread.is_alive``."""
    task: Task | None = getattr(thread, "_task", None)
    return task is not None and task in scheduler().tasks


def _now() -> float:
    """In place of ``time.time``."""
    return _real_time() if _scheduler is None else _scheduler.now()


def _up() -> float:
    """In place of ``time.monotonic``, ``time.perf_counter``, and ``time.clock_gettime`` of the boot clock."""
    return _real_monotonic() if _scheduler is None else _scheduler.up()


def _sleep(seconds: float) -> None:
    """In place of ``time.sleep``; a foreign thread sleeps as ever."""
    if scheduler().runs_here:
        scheduler().sleep(seconds)
    else:
        _real_sleep(seconds)


def _random_bytes(number: int) -> bytes:
    """In place of ``os.urandom``: names and terms are the same in each run of a seed."""
    return scheduler().chance.randbytes(number)


def _host_name() -> str:
    """In place of ``socket.gethostname``: each machine has its own name."""
    current = scheduler().current
    return "world" if current is None else current.machine


def _replacements() -> Iterator[tuple[object, str, object]]:
    """Each replaced attribute, with what stands there in a simulation: functions that know any simulation by then."""
    for name in ("Lock", "_allocate_lock"):
        yield threading, name, Lock
    yield threading, "RLock", RLock
    yield threading, "_time", _up
    yield threading.Thread, "__hash__", _age
    yield threading.Thread, "start", _start
    yield threading.Thread, "join", _join
    yield threading.Thread, "is_alive", _is_alive
    yield queue, "SimpleQueue", queue._PySimpleQueue  # type: ignore[attr-defined]
    yield queue, "time", _up
    yield concurrent.futures.thread, "_global_shutdown_lock", Lock()
    yield concurrent.futures.thread, "_threads_queues", WeakKeyDictionary()  # at its end the process waits for these
    yield _base, "Future", _Future
    yield _base, "_AcquireFutures", _AcquireFutures
    yield time, "time", _now
    yield time, "time_ns", lambda: int(_now() * 1e9)
    for name in ("monotonic", "perf_counter"):
        yield time, name, _up
        yield time, f"{name}_ns", lambda: int(_up() * 1e9)
    yield time, "clock_gettime", lambda _: _up()
    for name in ("thread_time", "process_time"):
        yield time, name, lambda: 0.0
    yield time, "sleep", _sleep
    for module, name in ((os, "urandom"), (random, "_urandom")):
        yield module, name, _random_bytes
    yield os, "getpid", lambda: 4242
    yield socket, "gethostname", _host_name


@contextmanager
def simulated(seed: int) -> Iterator[Scheduler]:
    """Replace threads, locks and clocks in this process until its end; tasks run only within :meth:`Scheduler.run`.

    What was made of the real ones before (locks, functions bound to a name) stays real. So code under simulation is
    imported within one; it may be another one of the same process.
    """
    global _scheduler  # noqa: PLW0603 - one simulation in a process
    if _scheduler is not None:
        raise RuntimeError("a simulation runs in this process already")
    with ExitStack() as replaced:
        running = Scheduler(seed)
        for target, name, value in tuple(_replacements()):
            replaced.enter_context(mock.patch.object(target, name, value))
        _scheduler = running
        try:
            yield running
        finally:
            _scheduler = None
