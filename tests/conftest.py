"""What holds for all tests."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.fake_pulsar import FakePulsar as HttpPulsar

settings.register_profile("lbd", deadline=None)
settings.load_profile("lbd")
"""How long one example takes says nothing on a machine that runs real brokers beside it."""

VALUES_ONLY = ("decide", "load", "permit", "place", "score", "split", "compare", "scenarios")
"""Folders of tests without a thread, a process or a socket: what fails there once is wrong."""

END_TO_END = (
    *("act", "api", "cli", "daemon", "demo", "docs", "helm", "package", "scenarios", "simulate", "systemd"),
    *("compare/test_side_by_side.py", "learn/test_closed_loop.py", "observe/test_reports.py"),
    *("pulsar/test_load_topics.py", "test_bad_input.py", "test_contributing.py", "test_docs.py"),
    *("test_extensible_turn.py", "test_guardrails.py", "test_turn.py"),
)
"""Tests with servers, processes or hours of a simulated cluster: marked ``e2e``, so that the others are fast."""

TESTS = Path(__file__).parent


COLLECTED_AFTER = gc.get_threshold()


def pytest_runtest_teardown() -> None:
    """An lbd in this process has garbage collected seldom; what a test leaves open is to be told beside it."""
    gc.set_threshold(*COLLECTED_AFTER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test of threads, processes or brokers that fails is tried once more, and told: two cores stop at times.

    What is end to end by where it stands is marked so.
    """
    path = item.path.relative_to(TESTS) if item.path.is_relative_to(TESTS) else Path()
    if not any(map(path.is_relative_to, VALUES_ONLY)):
        item.add_marker(pytest.mark.flaky(reruns=1))
    if any(map(path.is_relative_to, END_TO_END)):
        item.add_marker(pytest.mark.e2e)
    if item.get_closest_marker("soak"):
        item.add_marker(pytest.mark.timeout(0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The first failure is printed at once: it is to be understood also when the second try passes."""
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]
        print(f"\n{report.nodeid} failed and is tried once more:\n{report.longreprtext}")


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    """Three brokers; the first one has 14 bundles and 70 points, the others four and two."""
    from tests.simulate import fakes

    with fakes.hot() as found:
        yield found


@pytest.fixture
def pulsar() -> Iterator[HttpPulsar]:
    """Brokers on loopback: broker 1 is hot with eight equal bundles, broker 2 warm and broker 3 cold with one each."""
    from tests.fake_pulsar import hot_broker

    with hot_broker() as found:
        yield found
