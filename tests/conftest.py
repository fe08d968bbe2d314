"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import re
import shlex
import threading
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest
from hypothesis import settings

from lbd import redaction
from lbd.act.executor import Executor
from lbd.pulsar.broker_health import BrokerHealth
from lbd.pulsar.http import Sessions
from lbd.store.database import Database
from tests import silence
from tests.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.fake_pulsar import FakePulsar as HttpPulsar

settings.register_profile("lbd", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=20)
settings.load_profile("lbd")
"""How long one example takes says nothing on a machine that runs real brokers beside it.

``tests/run fast`` takes a fifth of the examples, but of tests that say how many they need.
"""

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JAVA)
"""A Spark that lives for a minute spends most of its CPU on compiling what it runs once: 80 s of it against 37 s."""

END_TO_END = (
    *("act", "api", "cli", "daemon", "demo", "docs", "e2e", "helm", "package", "scenarios", "simulate", "systemd"),
    *(
        "chaos/test_chaos.py",
        "charts/test_drawn.py",
        "compare/test_side_by_side.py",
        "learn/test_closed_loop.py",
        "nights/test_nights.py",
        "observe/test_reports.py",
    ),
    *("learn/test_command.py", "learn/test_job.py", "learn/test_kubernetes.py", "learn/test_master.py"),
    *("pulsar/test_load_topics.py", "test_bad_input.py", "test_contributing.py", "test_docs.py"),
    *("test_extensible_turn.py", "test_guardrails.py", "test_turn.py"),
)
"""Tests with servers, processes or hours of a simulated cluster: marked ``e2e``, so that the others are fast."""

LANDING = (
    *("learn/test_calibrate.py", "learn/test_damaged.py", "learn/test_estimate.py", "learn/test_recorded.py"),
    *("test_deadlines.py", "turn/test_junk.py"),
)
"""Tests of one process that take seconds of CPU each: marked ``landing``, as others are where they stand."""

WAITING = ("pulsar/test_wire.py",)
"""A file whose tests wait for most of a minute in all: on one worker it alone would run for half of the fast tier."""

ONE_WORKER = {
    "brokers": ("e2e",),
    "spark": ("learn/test_job.py", "learn/test_command.py", "learn/test_master.py"),
    "documents": ("docs/test_snippets.py",),
    "site": ("docs/test_site.py",),
    "browser": ("api/test_dashboard.py", "charts/test_drawn.py", "docs/test_tour.py"),
    "package": ("package",),
    "helm": ("helm",),
}
"""Tests that share ports or what takes long to start, or that build on one another: one worker does them all.

They begin in this order and before what is shared out, so that no worker is left with a group in the end. Tests on
real brokers are first: they wait most of their time.
"""

TESTS = Path(__file__).parent

LONGER = {
    "e2e": (
        300,
        "a cluster is started, and lbd acts on no CPU sample of a broker's first two minutes",
    ),
    "learn": (300, "the first test that needs Spark starts a JVM"),
    "docs/test_snippets.py": (300, "one of the commands is a calibration by Spark"),
}
"""Seconds for tests of a folder or file that may take longer than pyproject.toml has it, and why they may."""


ALONE = (".venv/bin/python", "-m", "pytest")
"""How one test is run."""


def pytest_runtest_teardown() -> None:
    """Secrets of a test are forgotten after it: they are words of other tests' sentences."""
    redaction._KNOWN = redaction._Registry()


_open_files = OpenFiles()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid: str) -> None:
    """Open files are counted after each test, so that the check at the end can say since when they are."""
    _open_files.note(nodeid.partition("::")[0])


@pytest.fixture(autouse=True, scope="session")
def files_are_closed_in_the_end() -> Iterator[None]:
    """A worker that has run its tests has no files open but its own."""
    yield
    _open_files.check()


@pytest.fixture(autouse=True)
def nothing_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test opened and a process leaves to its end: threads, idle connections, stores.

    A thread that probes silent brokers, or checks doubtful outcomes, would send requests through the mocks of later
    tests. Idle connections of a whole run were over a thousand open files.
    """
    threads: list[Executor | BrokerHealth] = []
    files: WeakSet[Sessions | Database] = WeakSet()  # what is collected is closed, and a test may make thousands

    def note_file(made: Sessions | Database) -> None:
        if threading.current_thread() is threading.main_thread():  # threads of a module's daemon go on with theirs
            files.add(made)

    def noting(kind: type, note: Callable[[Any], None]) -> None:
        begin = kind.__init__

        def noted(made: Any, *args: Any, **named: Any) -> None:
            begin(made, *args, **named)
            note(made)

        monkeypatch.setattr(kind, "__init__", noted)

    for kind in (Executor, BrokerHealth):
        noting(kind, threads.append)
    for kind in (Sessions, Database):
        noting(kind, note_file)
    yield
    for made in (*threads, *files):
        made.close()


@pytest.fixture
def silence_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom no fake broker answers has no time left, whatever the settings allow."""
    silence.end_at_once(monkeypatch)


def group_of(nodeid: str) -> str:
    """Which of the groups a test is in; empty for most."""
    return _group_of_file(nodeid.partition("::")[0])


@cache
def _group_of_file(file: str) -> str:
    folders = ((name, TESTS.name / Path(folder)) for name, found in ONE_WORKER.items() for folder in found)
    return next((name for name, folder in folders if Path(file).is_relative_to(folder)), "")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no test end to end is wanted, their folders are not even read: they import what only they need."""
    wanted = config.option.markexpr
    left_out = ("not e2e" in wanted and _is_in(collection_path, END_TO_END)) or (
        "not landing" in wanted and _is_in(collection_path, LANDING)
    )
    return True if left_out else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is end to end, or long, by where it stands is marked so, and what may take longer has the time for it."""
    if _is_in(item.path, END_TO_END):
        item.add_marker(pytest.mark.e2e)
    if _is_in(item.path, LANDING):
        item.add_marker(pytest.mark.landing)
    seconds = 0 if item.get_closest_marker("soak") else _longer_seconds(item.path)
    if seconds is not None:
        item.add_marker(pytest.mark.timeout(seconds))


@cache
def _is_in(path: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(TESTS / folder) for folder in folders)


@cache
def _longer_seconds(path: Path) -> int | None:
    """Seconds for tests of this file if they may take longer; 5,000 tests ask for 300 files."""
    return next((seconds for folder, (seconds, _) in LONGER.items() if path.is_relative_to(TESTS / folder)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups come first where there are several workers, then those that wait."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = [*ONE_WORKER, ""]
        items.sort(key=lambda item: (order.index(group_of(item.nodeid)), not _is_in(item.path, WAITING)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: a collection of garbage that looked at them again took 0.4 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Tests of a group stay on one worker, and fast tests of a file: what takes long is shared out by test.

    The scheduler looks at all that it has given out after each test: 921 fast tests took 22.1 s of CPU one by one, and
    18.6 by file.
    pytest-xdist's marks for groups do nothing with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            by_test = _is_in(config.rootpath / file, (*END_TO_END, *LANDING, *WAITING))
            return group_of(nodeid) or (nodeid if by_test else file)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


def _cpu_seconds() -> float:
    """CPU of this process, and of those that it started and has waited for."""
    return sum(os.times()[:4])


_cpu_before = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a step of a test cost goes with its report, also from one worker to the summary."""
    global _cpu_before  # noqa: PLW0603
    report = yield
    now = _cpu_seconds()
    report.cpu_seconds = now - _cpu_before  # type: ignore[attr-defined]
    _cpu_before = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How a failed test is repeated alone; and where the time went, when durations are asked for."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    steps = [report for report in reports if isinstance(report, pytest.TestReport)]
    failed = {report.nodeid: "soak" in report.keywords for report in steps if report.failed}
    if failed:
        terminalreporter.section("to repeat one alone")
        for nodeid, is_soak in failed.items():
            terminalreporter.write_line(shlex.join([*ALONE, *(["-m", "soak"] if is_soak else []), nodeid]))
    if terminalreporter.config.getoption("durations") is None:
        return
    tests = Counter(_part(report) for report in steps if report.when == "call")
    spent, cpu = Counter[str](), Counter[str]()
    for report in steps:
        spent[_part(report)] += report.duration
        cpu[_part(report)] += getattr(report, "cpu_seconds", 0.0)
    terminalreporter.section("by part: seconds of a worker, seconds of CPU, tests")
    for part, seconds in spent.most_common():
        terminalreporter.write_line(f"{seconds:8.0f} s  {cpu[part]:8.0f} s  {tests[part]:5} tests  {part}")
    terminalreporter.write_line(f"{spent.total():8.0f} s  {cpu.total():8.0f} s  {tests.total():5} tests  all")


def _part(report: pytest.TestReport) -> str:
    """The group of a test, of those on brokers with the version; others end to end by folder."""
    group, folder = group_of(report.nodeid), report.nodeid.partition("::")[0].split("/")[1]
    if group == "brokers":
        version = re.search(r"\[(\d+\.\d+\.\d+(?:-M\d)?)", report.nodeid)
        return f"brokers {version[1]}" if version else "what tests on brokers are made of"
    return group or (f"{folder}, end to end" if "e2e" in report.keywords else "the fast part")


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    """Three brokers; the first one has 14 bundles and 70 points, the others four and two.

    No client looks a bundle up before lbd does and takes it elsewhere (#24884), as happens on a slow machine. What lbd
    makes of that race is tested where it is provoked: tests/simulate/test_fake_pulsar_faults.py.
    """
    from tests.simulate import fakes

    with fakes.hot(clients=0) as found:
        yield found


@pytest.fixture
def pulsar() -> Iterator[HttpPulsar]:
    """Brokers on loopback: broker 1 is hot with eight equal bundles, broker 2 warm and broker 3 cold with one each."""
    from tests.fake_pulsar import hot_broker

    with hot_broker() as found:
        yield found
