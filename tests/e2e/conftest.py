"""One running cluster at a time, shared by all tests that need the same kind, and stopped before the next starts.

A test asks for the fixture `cluster` and gets a whole, unthrottled cluster, once per Pulsar version. What else it
needs it says with a mark: `@pytest.mark.cluster(tokens=True, tls=True, settings={...}, versions=["4.0.8"], own=True)`.
A test on brokers has the marker `soak`, and runs on all of its versions there. Those marked `landing=True`
run at each landing, too: on the first version only, and all of them on one cluster that is started once.
Of the tests that share a cluster those marked `late=1`, `late=2`… come after the others, in this order: lbd trusts a
broker two minutes after its start, and a broker that a test kills is young again.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests import parts
from tests.e2e import artifacts, cgroups
from tests.e2e.cluster import Cluster
from tests.e2e.settings import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from _pytest.mark import ParameterSet

ONE_OF_WORKERS = "PYTEST_XDIST_WORKER" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster(**spec): what kind of cluster the test needs (fields of settings.Spec)")
    parts.check_names()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "_running" in metafunc.fixturenames:
        metafunc.parametrize("_running", _parameters(metafunc), indirect=True, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on clusters of the same kind stand side by side, so that each kind is started once, late ones at the end.

    They come last, but of a worker first: see `ONE_WORKER` in tests/conftest.py.
    """
    order = {spec: number for number, spec in enumerate(dict.fromkeys(_spec_of(item) for item in items))}

    def place(item: pytest.Item) -> tuple[bool, int, int, int]:
        spec = _spec_of(item)
        version = 0 if spec is None else artifacts.VERSIONS.index(spec.version)
        return (spec is None) is ONE_OF_WORKERS, version, order[spec], _wanted(item).get("late", 0)

    items.sort(key=place)


@pytest.fixture(scope="session")
def _running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    spec: Spec = request.param
    missing = _missing(spec.version)
    if missing:
        parts.do_without("brokers", missing)
    if spec.brokers == 0:
        yield Cluster(spec)
        return
    with Cluster(spec) as cluster:
        yield cluster


@pytest.fixture
def cluster(_running: Cluster) -> Cluster:
    """A running cluster with all its brokers, whatever the test before did to it."""
    _running.restore()
    return _running


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a measured figure also when the test passes; a worker's standard output goes nowhere."""
    stream = "stderr" if ONE_OF_WORKERS else "stdout"

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", file=getattr(sys, stream), flush=True)

    return show


@pytest.fixture
def no_cluster(_running: Cluster) -> str:
    """A Pulsar version, and all ports free: for tests marked `cluster(brokers=0)` that start a cluster themselves."""
    return _running.spec.version


@pytest.fixture
def quotas() -> None:
    """Asked for by tests that limit brokers' CPU: they are skipped where no control groups can be made."""
    hierarchy, reason = cgroups.find()
    if hierarchy is None:
        parts.do_without("skew", reason)


def _wanted(item: pytest.Item) -> dict[str, Any]:
    mark = item.get_closest_marker("cluster")
    return dict(mark.kwargs) if mark else {}


def _parameters(metafunc: pytest.Metafunc) -> list[ParameterSet]:
    wanted = _wanted(metafunc.definition)
    wanted.pop("late", None)
    landing = wanted.pop("landing", False)
    versions: Sequence[str] = wanted.pop("versions", artifacts.VERSIONS)
    if wanted.pop("own", False):
        wanted["own"] = metafunc.definition.nodeid
    settings = tuple(sorted((key, str(value)) for key, value in wanted.pop("settings", {}).items()))
    specs = [_one_object(Spec(version, settings=settings, **wanted)) for version in versions]
    return [
        pytest.param(spec, id=str(spec), marks=() if landing and spec is specs[0] else pytest.mark.soak)
        for spec in specs
    ]


@cache
def _one_object(spec: Spec) -> Spec:
    """The fixture is set up anew when its parameter is another object, so equal specs must be the same one."""
    return spec


def _spec_of(item: pytest.Item) -> Spec | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("_running")


@cache
def _missing(version: str) -> str:
    try:
        artifacts.ensure(version)
    except artifacts.Missing as missing:
        return str(missing)
    return ""
