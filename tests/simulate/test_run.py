"""Whole runs: the real turn on the simulated cluster."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lbd.config import Settings
from lbd.errors import LbdError
from lbd.reason import Reason
from lbd.simulate import run as running
from lbd.simulate.run import Simulation, Turned
from lbd.simulate.scenario import settled
from lbd.turn.parts import TurnResult
from tests.simulate.worlds import scenario

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK: dict[str, Any] = {"guardrails.max_traffic_per_turn": 1.0}


def simulated(
    overrides: dict[str, Any] | None = None, seed: int = 1, **changes: Any
) -> tuple[Simulation, list[Turned]]:
    """A run to its end. Broker a has 60 points, b none."""
    found = scenario(**{"hours": 0.5, **changes})
    simulation = Simulation(found, settled(found, Settings(), {**QUICK, **(overrides or {})}), seed)
    return simulation, list(simulation.turns())


def test_half_of_the_difference_moves_after_two_samples():
    """Three of six bundles go, land, rest, and that is all."""
    simulation, turns = simulated()
    begun = [turned for turned in turns if turned.record.plan.unloads]
    assert [(turned.seconds, len(turned.record.plan.unloads)) for turned in begun] == [(60, 3)]
    ended = [outcome for turned in turns for outcome in turned.record.moves.outcomes]
    assert [outcome.owner for outcome in ended] == ["b:8080"] * 3
    trace = simulation.trace()
    assert [move.destination for move in trace.moves] == ["b:8080"] * 3
    assert trace.truths[-1].points.tolist() == pytest.approx([30, 30])
    assert trace.fewest_moves == 3


def test_turns_come_at_the_interval():
    """From the beginning to the end, both included."""
    _, turns = simulated({"interval_seconds": 15})
    assert [turned.seconds for turned in turns] == [15.0 * at for at in range(121)]


def test_a_turn_without_a_fresh_sample_only_observes():
    """With a turn each five seconds as many samples are counted as with one a minute."""
    for interval in (5, 60):
        _, turns = simulated({"interval_seconds": interval})
        assert next(turned.seconds for turned in turns if turned.record.plan.unloads) <= 60


def test_what_moved_settles_first():
    """Source and destination take no hit until their second fresh sample after the landing."""
    _, turns = simulated({"avg_shedder.max_unload_percentage": 0.2, "avg_shedder.hit_count_low": 1})
    reasons = {turned.seconds: {skip.reason for skip in turned.record.skips} for turned in turns}
    assert Reason.SETTLING in reasons[120]


def test_cool_downs_hold_in_simulated_time():
    """All that may move has moved within the half hour, and rests."""
    _, turns = simulated({"avg_shedder.hit_count_high": 1, "guardrails.max_unloads_per_turn": 1})
    moved = [unload.bundle for turned in turns for unload in turned.record.plan.unloads]
    assert len(moved) == len(set(moved)) == 3


def test_budgets_hold_in_simulated_time():
    """Two an hour: two in the first hour, and the third when the first is an hour old."""
    _, turns = simulated({"guardrails.max_unloads_per_hour": 2}, hours=2)
    at = [turned.seconds for turned in turns for _ in turned.record.plan.unloads]
    assert at[:2] == [60, 60]
    assert at[2] >= 3660
    assert len(at) == 3


def test_a_broker_that_joins_is_waited_for():
    """Nothing moves to it before the membership has settled and its samples can be trusted."""
    parts = [{"id": "a"}, {"id": "b", "joins_at_minutes": 5}]
    _, turns = simulated(brokers=parts)
    first = next(turned for turned in turns if turned.record.plan.unloads)
    assert 420 <= first.seconds <= 600
    held = {turned.record.plan.hold[0] for turned in turns if turned.record.plan.hold}
    assert Reason.MEMBERSHIP_CHANGED in held


def test_where_a_broker_left_no_bound_is_told():
    """What became of its bundles was not lbd's doing."""
    parts = [{"id": "a"}, {"id": "b"}, {"id": "c", "leaves_at_minutes": 5}]
    simulation, _ = simulated(brokers=parts)
    assert simulation.trace().fewest_moves is None


def test_a_plan_for_a_broker_that_left_is_not_sent():
    """It is told as not asked for."""
    parts = [{"id": "a"}, {"id": "b", "leaves_at_minutes": 1.1}, {"id": "c", "background": 5}]
    rails = {"guardrails.unload_spacing_seconds": 10}
    _, turns = simulated(rails, brokers=parts)
    refused = [skip for turned in turns for skip in turned.record.moves.skips]
    assert refused
    assert {skip.reason for skip in refused} <= {Reason.DESTINATION_FORBIDDEN, Reason.MEMBERSHIP_CHANGED}


def test_the_same_seed_is_the_same_run():
    """To the last number; another seed is another run."""

    def sentences(seed: int) -> list[str]:
        return [turned.record.sentence for turned in simulated(seed=seed, noise_points=2)[1]]

    assert sentences(1) == sentences(1)
    assert sentences(1) != sentences(2)


def test_a_run_starts_no_thread_and_reads_no_clock(monkeypatch: pytest.MonkeyPatch):
    """Else its numbers would depend on this machine: lbd reads present CPU and the names of topics in threads."""

    def here(real: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*words: Any) -> Any:
            if threading.current_thread() is threading.main_thread():  # threads of tests before may still end
                raise AssertionError("a simulation depends on this machine")
            return real(*words)

        return asked

    monkeypatch.setattr(threading.Thread, "start", here(threading.Thread.start))
    for name in ("time", "monotonic", "perf_counter", "clock_gettime", "sleep"):
        monkeypatch.setattr(time, name, here(getattr(time, name)))
    simulation, turns = simulated({"spread.by": "topic"}, hours=0.1)

    assert simulation.settings.asks_live_cpu
    assert any(turned.record.plan.unloads for turned in turns)


def test_a_turn_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    """A run with a bug in it has no scorecard."""
    monkeypatch.setattr(running, "turn", lambda _: TurnResult(error=LbdError("broken")))
    found = scenario()
    with pytest.raises(LbdError, match="broken"):
        list(Simulation(found, settled(found, Settings(), {}), 1).turns())


def test_a_broker_that_crashed_is_missing_and_nobody_leads():
    """Until its session ends it is among the active ones; then it is gone, and another leads."""
    parts = [{"id": "a", "crashes_at_minutes": 5.2}, {"id": "b"}, {"id": "c"}]
    _, turns = simulated({"interval_seconds": 15}, brokers=parts, hours=0.2)
    seen = {turned.seconds: turned.record.observation for turned in turns if turned.record.observation is not None}
    assert {at for at, one in seen.items() if one.missing} == {315, 330}
    assert {at for at, one in seen.items() if one.leader is None} == {315, 330}
    assert [one.active for one in seen.values()][-1] == ("b:8080", "c:8080")


def test_what_nobody_owns_is_not_asked_for():
    """A plan for bundles of a broker that crashed meanwhile is not sent."""
    parts = [{"id": "a", "crashes_at_minutes": 1.2}, {"id": "b"}, {"id": "c", "background": 5}]
    _, turns = simulated({"guardrails.unload_spacing_seconds": 20}, brokers=parts)
    refused = [skip for turned in turns for skip in turned.record.moves.skips]
    assert any(skip.reason is Reason.OWNER_CHANGED and skip.detail == "nobody owns it; not sent" for skip in refused)


def test_a_rolling_restart_is_waited_out():
    """From the second broker on nothing moves until the last one is back."""
    restarts = {"first_at_minutes": 10, "every_minutes": 5, "away_seconds": 30}
    load = [{"name": "n", "mib_per_second": 150, "bundles": 60}]
    _, turns = simulated(brokers=[{"id": "r", "number": 5, "restarts": restarts}], load=load, hours=1.5)
    at = [turned.seconds / 60 for turned in turns if turned.record.plan.unloads]
    assert not [minute for minute in at if 15 < minute < 30.5]
    assert [minute for minute in at if minute > 30.5]
    held = [turned.record.plan.hold[1] for turned in turns if turned.record.plan.hold]
    assert any("(some went 5 times within the hour)" in detail for detail in held)


def test_pairs_that_a_cap_left_out_are_served_in_the_next_turns():
    """One bundle a turn, of four pairs that are equally far apart: one pair after the other, none waits anew."""
    hot = ["hot-1", "hot-2", "hot-3", "hot-4"]
    parts = [*({"id": one} for one in hot), {"id": "new", "number": 4}]
    load = [{"name": one, "brokers": [one], "mib_per_second": 60, "bundles": 6} for one in hot]
    _, turns = simulated({"guardrails.max_unloads_per_turn": 1}, brokers=parts, load=load, hours=0.1)
    begun = [(turned.seconds, unload.source) for turned in turns for unload in turned.record.plan.unloads][:4]
    assert [seconds for seconds, _ in begun] == [60, 120, 180, 240]
    assert len({source for _, source in begun}) == 4
