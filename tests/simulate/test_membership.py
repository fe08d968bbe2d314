"""Brokers that come, go, restart and crash, and who is believed to be there."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from lbd.simulate.cluster import snapshot, step
from lbd.simulate.world import STEP_SECONDS, Lifetimes, Outage
from tests.simulate.worlds import begun, later

ALWAYS, NEVER = np.full(3, -inf), np.full(3, inf)
CRASHED = Outage(0, 100, inf, crashed=True)
KILLED = Outage(0, 100, 110, crashed=True)
RESTARTED = Outage(1, 200, 230)


@pytest.mark.parametrize(
    ("outages", "seconds", "present", "listed", "leader"),
    [
        ((), 0, "abc", "abc", "a"),
        ((CRASHED,), 99, "abc", "abc", "a"),
        ((CRASHED,), 100, "bc", "abc", None),
        ((CRASHED,), 129, "bc", "abc", None),
        ((CRASHED,), 130, "bc", "bc", "b"),
        ((KILLED,), 109, "bc", "abc", None),
        ((KILLED,), 110, "abc", "abc", "b"),
        ((RESTARTED,), 200, "ac", "ac", "a"),
        ((CRASHED, RESTARTED), 215, "c", "c", "c"),
        ((CRASHED, RESTARTED), 230, "bc", "bc", "c"),
    ],
)
def test_who_is_there(outages: tuple[Outage, ...], seconds: float, present: str, listed: str, leader: str | None):
    """A crashed broker is listed, and leads, for a session time-out; the one that is up longest follows it."""
    found = Lifetimes(ALWAYS, NEVER, outages).at(seconds)
    assert "".join(np.array(list("abc"))[found.present]) == present
    assert "".join(np.array(list("abc"))[found.listed]) == listed
    assert ("abc"[found.leader] if found.leads else None) == leader


def test_joins_and_leaves():
    """From the moment of joining to the one before leaving."""
    membership = Lifetimes(np.array([-inf, 60.0]), np.array([120.0, inf]))
    assert [membership.at(at).present.tolist() for at in (0, 59, 60, 119, 120)] == [
        [True, False],
        [True, False],
        [True, True],
        [True, True],
        [False, True],
    ]
    assert [membership.lost_any(at) for at in (60, 119, 120)] == [False, False, True]


THREE: list[dict[str, Any]] = [{"id": "a"}, {"id": "b"}, {"id": "c"}]


def crashing(**changes: Any) -> list[dict[str, Any]]:
    """The broker that owns everything at first crashes after two minutes."""
    return [{**THREE[0], "crashes_at_minutes": 2, **changes}, *THREE[1:]]


def test_bundles_of_a_crashed_broker_are_served_by_nobody_for_a_while():
    """The session ends after 30 s, and clients are back 18 s later; six bundles are unserved for as long."""
    world, state = begun(brokers=crashing())
    state = later(world, state, 165)
    assert not state.owned.any()
    assert (state.owner == 0).all()
    state = later(world, state, 60)
    assert state.owned.all()
    assert set(state.owner.tolist()) <= {1, 2}
    assert state.unserved_bundle_seconds == pytest.approx(6 * 48, abs=6 * STEP_SECONDS)


def test_clients_catch_up():
    """What was not published meanwhile is published on top, as fast again, and then it is as before."""
    world, state = begun(brokers=crashing())
    most = 0.0
    while state.seconds < 420:
        state = step(world, state)
        most = max(most, float(state.missed.max()))
    assert most == pytest.approx(48, abs=STEP_SECONDS)
    assert state.missed.max() == 0
    assert not state.disturbed
    assert snapshot(world, state, 0.0).brokers.rates[:, 2].sum() == pytest.approx(60 * 1024 * 1024)


def test_catching_up_shows_in_the_load():
    """The new owners carry up to twice as much for a minute."""
    world, state = begun(brokers=crashing())
    highest = 0.0
    state = later(world, state, 170)
    for _ in range(180 // STEP_SECONDS):
        state = step(world, state)
        highest = max(highest, float(state.cpu[1:].sum()))
    assert highest > 75
    assert later(world, state, 120).cpu[1:].sum() == pytest.approx(60, abs=1)


def test_a_crashed_broker_that_comes_back_has_nothing():
    """Its bundles wait for the end of its session all the same, and its report is that of a new broker."""
    world, state = begun(brokers=crashing(back_after_minutes=0.2))
    back = later(world, state, 140)
    assert not back.owned.any()
    found = snapshot(world, back, 1000.0)
    assert (found.brokers.ids[0], found.brokers.started_at[0]) == ("a:8080", 1000.0 + 132)
    assert found.rows.count(found.rows.listed).tolist()[0] == 0
    assert found.brokers.usage[0, 0] < 1e-5
    assert later(world, back, 60).owned.all()


def test_brokers_of_a_part_restart_in_turn():
    """Each is away for as long as it takes, and owns nothing afterwards until it is given something."""
    restarts = {"first_at_minutes": 1, "every_minutes": 2, "away_seconds": 30}
    load = [{"name": "n", "mib_per_second": 60, "bundles": 30}]
    world, state = begun(brokers=[{"id": "r", "number": 3, "restarts": restarts}], load=load)
    assert [(one.begin, one.end) for one in world.outages] == [(60, 90), (180, 210), (300, 330)]
    state = later(world, state, 60)
    assert world.present(state.seconds).tolist() == [False, True, True]
    state = later(world, state, 400)
    assert world.present(state.seconds).all()
    assert (state.owner == 2).sum() == 0


def test_a_silent_broker_serves_and_gives_no_report():
    """Its bundles are on no report, and flow."""
    silent = [{"id": "a", "silent": [{"at_minutes": 1, "minutes": 2}]}, {"id": "b"}]
    world, state = begun(brokers=silent)
    state = later(world, state, 90)
    assert snapshot(world, state, 0.0).brokers.ids == ("b:8080",)
    state = later(world, state, 120)
    assert snapshot(world, state, 0.0).brokers.rates[0, 2] == pytest.approx(60 * 1024 * 1024)
    assert state.unserved_bundle_seconds == 0
