"""In simulated clusters no broker is called slow that is well, and a sick one is within minutes."""

from __future__ import annotations

import pytest

from lbd.simulate.scenario import load
from tests.scenarios.clusters import cluster
from tests.scenarios.slow import run

CLUSTERS = {
    "demo": lambda: load("demo"),
    "scale-out": lambda: load("scale-out"),
    "losing": lambda: cluster("losing", 0),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_false_alarm(name: str):
    """With pauses of a garbage collector, hot brokers and brokers that have just started."""
    found = run(CLUSTERS[name](), seed=1)
    assert (found.turns > 20, found.wrong) == (True, 0)


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_sick_broker_is_avoided_within_minutes(name: str):
    """Turns are a minute apart here; three slow checks of five are needed."""
    found = run(CLUSTERS[name](), seed=1, sick=1.0)
    assert found.until in {3, 4, 5}
    assert (found.after, found.wrong) == (0, 0)
