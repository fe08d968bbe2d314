"""Which modules start threads, read a clock or sleep, and that nothing waits in a way that a simulation cannot replace.

A simulation (``tests/nights``) replaces the standard library's locks, threads, clocks and sleep. So a module that waits
otherwise, or takes the time from elsewhere, would leave simulated time.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(__file__).parents[1] / "lbd"

STARTS = {"threading.Thread", "threading.Timer", "concurrent.futures.ThreadPoolExecutor"}
SLEEPS = {"time.sleep"}
READS = {f"time.{name}" for name in ("time", "monotonic", "monotonic_ns", "perf_counter", "thread_time")} | {
    "time.clock_gettime"
}
UNREPLACED = {
    *("datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.date.today"),
    *("asyncio", "apscheduler", "multiprocessing", "selectors", "select", "subprocess", "uvicorn", "_thread", "pulsar"),
}
"""Clocks and waits of C code, of other processes, and of libraries that bring their own threads."""

OWN_PROCESS = ("lbd.cli.", "lbd.doctor.", "lbd.demo", "lbd.simulate.", "lbd.learn.")
"""Parts of no daemon: commands that a person waits for, and fake brokers. They may read the clock and sleep."""

SLEEPING = {
    "lbd.api.client": "polls for the end of a change, in the process of a command",
    "lbd.daemon.take_over": "hands the pause between two looks to an ActClock",
    "lbd.operations.split": "hands the pause between two looks to an ActClock",
    "lbd.pulsar.http": "as long as a busy broker asks (Retry-After)",
    "lbd.store.state": "another process holds the lock of the state directory",
}
"""The only modules of a daemon that sleep."""

READING = {
    "lbd.clock": "the one place for clocks",
}
"""The only modules that are meant to read a clock."""

STILL_READING = {
    *("lbd.api.change", "lbd.daemon.election", "lbd.daemon.recorder", "lbd.daemon.service", "lbd.daemon.take_over"),
    *("lbd.notify.sender", "lbd.operations.drain", "lbd.operations.dry", "lbd.operations.parts"),
    *("lbd.operations.place", "lbd.operations.requests", "lbd.operations.split", "lbd.pulsar.broker_health"),
    *("lbd.pulsar.client", "lbd.pulsar.http", "lbd.pulsar.oauth2", "lbd.store.control", "lbd.store.drains"),
}
"""Modules of a daemon that read the time themselves, and should be given a clock: this list only becomes shorter."""

OUTSIDE = {
    "lbd.api.connection": {"asyncio", "uvicorn"},
    "lbd.api.guard": {"asyncio"},
    "lbd.api.published": {"asyncio"},
    "lbd.api.server": {"select", "uvicorn"},
    "lbd.cli.rollout": {"subprocess"},
    "lbd.daemon.schedule": {"apscheduler", "datetime.datetime.now"},
    "lbd.learn.spark": {"subprocess"},
    "lbd.pulsar.client": {"pulsar"},
    "lbd.simulate.fake_pulsar": {"selectors"},
}
"""What stays outside of simulated time, by module: the API's event loops, the client library of Pulsar, commands."""


def uses(source: str) -> Iterator[str]:
    """The full names that a module's source imports, or takes from a module that it imports."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)  # a type uses nothing
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(one.asname or one.name).split(".")[0]: one.name.split(".")[0] for one in node.names}
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
    for node in ast.walk(tree):
        first, _, rest = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        if first in names:
            yield f"{names[first]}.{rest}"


@cache
def used() -> Mapping[str, set[str]]:
    """What each module of the package uses."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): set(
            uses(path.read_text(encoding="utf-8"))
        )
        for path in PACKAGE.rglob("*.py")
    }


def users(wanted: set[str]) -> Mapping[str, set[str]]:
    """What of ``wanted`` each module of the package uses; a library's name stands for all that it has."""
    of_each = {
        module: {*names, *(name.partition(".")[0] for name in names)} & wanted for module, names in used().items()
    }
    return {module: names for module, names in of_each.items() if names}


def in_daemon(modules: Mapping[str, set[str]]) -> set[str]:
    """Without the modules of commands."""
    return {module for module in modules if not module.startswith(OWN_PROCESS)}


def test_one_module_starts_threads():
    """Where the system has none left is one place's to say."""
    assert set(users(STARTS)) == {"lbd.threads"}


def test_only_these_modules_sleep():
    """As above; a wait that others can end is no sleep."""
    assert in_daemon(users(SLEEPS)) == set(SLEEPING)


def test_only_these_modules_read_a_clock():
    """As above; all others are given the time."""
    assert in_daemon(users(READS)) == {*READING, *STILL_READING}


def test_a_clock_is_read_by_the_name_of_its_module():
    """``from time import time`` keeps a clock that a test or a simulation has put in its place meanwhile."""
    taken = {path.name for path in PACKAGE.rglob("*.py") if "from time import" in path.read_text(encoding="utf-8")}
    assert taken == set()


def test_nothing_waits_outside_of_simulated_time_but_these():
    """A wait, a clock or a thread that a simulation cannot replace is in the table."""
    assert users(UNREPLACED) == OUTSIDE


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import time\ntime.sleep(1)", "time.sleep"),
        ("import time as t\nt.sleep(1)", "time.sleep"),
        ("from time import sleep as rest\nrest(1)", "time.sleep"),
        ("def now(read=time.time): ...\nimport time", "time.time"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures.ThreadPoolExecutor"),
        ("def run():\n    import asyncio", "asyncio"),
        ("from apscheduler.jobstores.base import JobLookupError", "apscheduler.jobstores.base"),
    ],
)
def test_a_use_is_recognized_however_it_is_written(source: str, name: str):
    """Under another name, as a default, within a function."""
    assert name in set(uses(source))
