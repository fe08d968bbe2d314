"""Random clusters under lbd for hundreds of turns: the rules that hold everywhere are never broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.config import Settings
from lbd.model import Result, bundle_namespace
from lbd.permit import evidence, membership
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import settled
from tests.simulate.worlds import scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.model import Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.simulate.run import Turned
    from lbd.turn.parts import TurnResult

SHAPES = st.one_of(
    st.just({"kind": "steady"}),
    st.fixed_dictionaries({"kind": st.just("wave"), "amplitude": st.floats(0, 1), "period_hours": st.floats(0.2, 3)}),
    st.fixed_dictionaries({"kind": st.just("ramp"), "to": st.floats(0, 4), "minutes": st.floats(0, 60)}),
    st.fixed_dictionaries(
        {"kind": st.just("spike"), "to": st.floats(0, 9), "at_minutes": st.floats(0, 90), "minutes": st.floats(1, 20)}
    ),
    st.fixed_dictionaries({"kind": st.just("on-off"), "on_minutes": st.floats(1, 9), "off_minutes": st.floats(0.5, 9)}),
)


FAULTS = st.one_of(
    st.just({}),
    st.just({}),
    st.fixed_dictionaries({"joins_at_minutes": st.integers(1, 60)}),
    st.fixed_dictionaries({"leaves_at_minutes": st.integers(10, 90)}),
    st.fixed_dictionaries({"crashes_at_minutes": st.floats(5, 90)}),
    st.fixed_dictionaries({"crashes_at_minutes": st.floats(5, 90), "back_after_minutes": st.floats(0.2, 20)}),
    st.fixed_dictionaries(
        {
            "restarts": st.fixed_dictionaries(
                {"first_at_minutes": st.floats(5, 90), "away_seconds": st.sampled_from([5, 30, 300])}
            )
        }
    ),
    st.fixed_dictionaries(
        {
            "silent": st.lists(
                st.fixed_dictionaries({"at_minutes": st.integers(0, 120), "minutes": st.sampled_from([0.5, 1, 5, 30])}),
                min_size=1,
                max_size=3,
            )
        }
    ),
)
"""What happens to a broker."""


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Two to eight brokers, some of which come, go, crash, restart or fall silent, under one to four loads that begin
    on one or two of them; sometimes two of the brokers are kept for one load.
    """
    brokers: list[dict[str, Any]] = [{"id": "stays", "background": draw(st.floats(0, 40))}]
    for at in range(draw(st.integers(1, 5))):
        part = {"background": draw(st.floats(0, 40)), "capacity": draw(st.sampled_from([0.5, 1, 1, 2]))}
        brokers.append({"id": f"b{at}", **part, **draw(FAULTS)})
    first = [part["id"] for part in brokers if "joins_at_minutes" not in part]
    loads: list[dict[str, Any]] = [
        {
            "name": f"n{at}",
            "brokers": draw(st.lists(st.sampled_from(first), max_size=2, unique=True)),
            "mib_per_second": draw(st.floats(0, 60)),
            "bundles": draw(st.integers(1, 30)),
            "spread": draw(st.floats(0, 2)),
            "shape": draw(SHAPES),
        }
        for at in range(draw(st.integers(1, 4)))
    ]
    if draw(st.booleans()):
        brokers += [{"id": "own-1", "background": draw(st.floats(0, 40))}, {"id": "own-2", **draw(FAULTS)}]
        loads.append(
            {
                "name": "apart",
                "brokers": ["own-1"],
                "isolated_to": ["own-1", "own-2"],
                "mib_per_second": draw(st.floats(0, 90)),
                "bundles": draw(st.integers(1, 30)),
                "shape": draw(SHAPES),
            }
        )
    return {
        "hours": 2.5,
        "noise_points": draw(st.sampled_from([0.1, 1, 5])),
        "stats_interval_seconds": draw(st.sampled_from([10, 60, 60, 180])),
        "placement": draw(st.sampled_from(["random", "least-message-rate"])),
        "brokers": brokers,
        "load": loads,
    }


@dataclass
class Watcher:
    """What has happened so far, told anew from outside: by what brokers reported and what was begun."""

    settings: Settings
    apart: bool = False
    moved_at: dict[str, list[float]] = field(default_factory=dict)
    came_from: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    seen_since_move: dict[str, int] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    changed_at: float = float("-inf")
    went_at: float = float("-inf")
    started: dict[str, float] = field(default_factory=dict)
    planned: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()

    def look(self, turned: Turned) -> None:
        """Check one turn, then remember it."""
        record = turned.record
        assert record.observation is not None
        self._check_state(record, record.observation)
        self._members(turned.seconds, record.observation.active)
        self._sampled(record.observation.snapshot)
        under_way = {unload.bundle for unload in record.moves.unfinished}
        for bundle in self.begun - under_way - {outcome.unload.bundle for outcome in record.moves.outcomes}:
            self.moved_at[bundle].pop()  # not asked for, as its destination had gone
        if record.moves.unfinished:
            assert not record.plan.unloads
        self._check_plan(turned.seconds, record)
        for unload in record.plan.unloads:
            self.moved_at.setdefault(unload.bundle, []).append(turned.seconds)
            self.came_from[unload.bundle] = unload.source
            self.seen_since_move.update({unload.source: 0, unload.destination or "": 0})
        self.begun = frozenset(under_way | {unload.bundle for unload in record.plan.unloads})
        rest = record.plan.rest.unloads if record.plan.rest is not None else ()
        self.planned = frozenset(unload.bundle for unload in rest)

    def _members(self, seconds: float, active: tuple[str, ...]) -> None:
        if self.active and set(self.active) != set(active):
            self.changed_at = seconds
        if set(self.active) - set(active):
            self.went_at = seconds
        self.active = active

    def _sampled(self, snapshot: Snapshot) -> None:
        brokers = snapshot.brokers
        both = zip(brokers.usage[:, 0].tolist(), brokers.started_at.tolist(), strict=True)
        for broker, (cpu, started) in zip(brokers.ids, both, strict=True):
            if self.started.setdefault(broker, started) != started:
                self.started[broker], self.seen_since_move[broker] = started, -1
            known = self.samples.setdefault(broker, [])
            if known[-1:] != [cpu]:
                known.append(cpu)
                self.seen_since_move[broker] = self.seen_since_move.get(broker, 9) + 1

    def _check_state(self, record: TurnResult, observation: Observation) -> None:
        """Rules 2, 3 and 8: nothing begins without a leader or beside moves under way; what landed is where it says."""
        if record.moves.unfinished or observation.leader is None:
            assert not record.plan.unloads
        for outcome in record.moves.outcomes:
            assert outcome.result is Result.LANDED
            assert outcome.owner == outcome.unload.destination
        begun = [unload.bundle for unload in (*record.plan.unloads, *record.moves.unfinished)]
        assert len(begun) == len(set(begun))

    def _check_plan(self, seconds: float, record: TurnResult) -> None:
        """Rules 1, 5, 8 and the guardrails, for everything that one turn begins."""
        if not record.plan.unloads:
            return
        assert record.observation is not None
        assert record.plan.decision is not None
        snapshot, rails = record.observation.snapshot, self.settings.guardrails
        usable = len(snapshot.brokers.ids)
        assert usable >= max(2, (len(record.observation.active) + 1) // 2)
        reported = {snapshot.bundles[at]: 0 for at in snapshot.rows.bundle.tolist()}
        for at in snapshot.rows.bundle.tolist():
            reported[snapshot.bundles[at]] += 1
        score = dict(zip(snapshot.brokers.ids, record.plan.decision.comparison.scores.tolist(), strict=True))
        went_lately = seconds - self.went_at < membership.REMEMBERED_SECONDS
        assert seconds - self.changed_at >= min(
            rails.membership_settle_seconds, inf if went_lately else membership.JOIN_SETTLE_SECONDS
        )
        assert len(record.plan.unloads) <= max(10, len(snapshot.bundles) // 100)
        assert sum(one.throughput for one in record.plan.unloads[1:]) <= 0.1 * snapshot.brokers.rates[:, 2:].sum() + 1
        for unload in record.plan.unloads:
            assert unload.destination in score
            assert unload.destination != unload.source
            assert reported[unload.bundle] == 1
            self._check_pool(unload)
            assert record.plan.expected[unload.destination] <= rails.max_destination_score
            assert record.plan.expected[unload.destination] < score[unload.source]
            self._check_rest(seconds, unload)

    def _check_pool(self, unload: Unload) -> None:
        """Rule 1: brokers that a policy keeps for a load have that and nothing else, and it goes nowhere else."""
        own = {broker.startswith("own-") for broker in (unload.source, unload.destination or "")}
        assert own == {unload.bundle.startswith("simulated/apart/")} or not self.apart

    def _check_rest(self, seconds: float, unload: Unload) -> None:
        """Bundles rest, do not go straight back, nor move a third time; brokers show two samples first, or one between
        waves of a plan.
        """
        before = self.moved_at.get(unload.bundle, [])
        assert len(before) < self.settings.guardrails.max_moves_per_bundle
        assert not before or seconds - before[-1] > self.settings.guardrails.cool_down_minutes * 60
        assert self.came_from.get(unload.bundle) != unload.destination
        samples = 1 if unload.bundle in self.planned else 2
        assert min(self.seen_since_move[unload.source], self.seen_since_move[unload.destination or ""]) >= samples


EAGER = {"avg_shedder": {"hit_count_low": 2, "hit_count_high": 1, "low_threshold": 5, "min_unload_message": 10}}


def watched(
    found: dict[str, Any], seed: int, see: Callable[[Turned], None], tried: dict[str, Any] | None = None
) -> int:
    """How many bundles a run with an eager lbd began to move; each of its turns is shown."""
    chosen = scenario(points_per_mib=0.5, **found)
    chosen_settings = settled(chosen, Settings.model_validate(EAGER), tried or {})
    begun = 0
    for turned in Simulation(chosen, chosen_settings, seed).turns():
        see(turned)
        begun += len(turned.record.plan.unloads)
    return begun


@settings(deadline=None, max_examples=6)
@given(scenarios(), st.integers(0, 1000))
def test_no_rule_is_ever_broken(found: dict[str, Any], seed: int):
    """With thresholds so low that it moves as often as it may."""
    apart = any(load["name"] == "apart" for load in found["load"])
    watched(found, seed, Watcher(settled(scenario(), Settings(), {}), apart).look)


def canary_watcher(namespaces: list[str], most: int) -> Callable[[Turned], None]:
    """Check that only bundles of these namespaces move, and no more than so many within any hour."""
    begun: list[float] = []

    def see(turned: Turned) -> None:
        for unload in turned.record.plan.unloads:
            namespace = bundle_namespace(unload.bundle)
            assert {namespace, f"{namespace.partition('/')[0]}/*"} & set(namespaces)
            begun.append(turned.seconds)
            assert sum(at > turned.seconds - 3600 for at in begun) <= most

    return see


@settings(deadline=None, max_examples=4)
@given(scenarios(), st.integers(0, 1000), st.sampled_from(["simulated/n0", "simulated/*", "x/y"]), st.integers(1, 3))
def test_a_canary_is_never_left(found: dict[str, Any], seed: int, namespace: str, most: int):
    """However eager lbd is, and whatever happens to the brokers; where nothing is in the canary nothing moves."""
    canary = {"namespaces": [namespace], "max_moves_per_hour": most}
    begun = watched(found, seed, canary_watcher([namespace], most), {"guardrails.canary": canary})
    assert begun == 0 or namespace != "x/y"


SKEWED: dict[str, Any] = {
    "hours": 2.5,
    "noise_points": 1,
    "brokers": [{"id": "a"}, {"id": "b"}, {"id": "c", "joins_at_minutes": 20}],
    "load": [
        {
            "name": "n",
            "brokers": ["a"],
            "mib_per_second": 90,
            "bundles": 60,
            "spread": 1,
            "shape": {"kind": "on-off", "on_minutes": 9, "off_minutes": 9},
        }
    ],
}


def test_such_clusters_make_it_move():
    """So that the rules are put to the test: one of them alone makes for dozens of moves."""
    assert watched(SKEWED, 1, lambda _: None) >= 20


def test_a_canary_moves_at_its_pace():
    """Two in each hour of the run, as there is always something to move; more of them would be noticed."""
    canary: dict[str, Any] = {"namespaces": ["simulated/n"], "max_moves_per_hour": 2}
    see = canary_watcher(canary["namespaces"], 2)
    assert watched(SKEWED, 1, see, {"guardrails.canary": canary}) in {4, 5, 6}
    for namespaces, most in ((["simulated/m"], 99), (["simulated/*"], 1)):
        with pytest.raises(AssertionError):
            watched(SKEWED, 1, canary_watcher(namespaces, most))


@pytest.mark.parametrize(
    "tried",
    [
        {"cool_down_minutes": 0, "max_moves_per_bundle": 0, "ping_pong_window_hours": 0},
        {"membership_settle_seconds": 0, "max_unloads_per_turn": 1},
        {"max_traffic_per_turn": 1},
    ],
    ids=lambda tried: next(iter(tried)),
)
def test_a_rule_that_is_off_is_noticed(tried: dict[str, float]):
    """The watcher knows of the defaults only; with this seed something moves as the third broker joins."""
    steady = {**SKEWED["load"][0], "name": "m", "shape": {"kind": "steady"}}
    watcher = Watcher(settled(scenario(), Settings(), {}))
    with pytest.raises(AssertionError):
        watched(
            {**SKEWED, "load": [*SKEWED["load"], steady]},
            2,
            watcher.look,
            {f"guardrails.{key}": value for key, value in tried.items()},
        )


def test_a_broker_that_does_not_settle_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """It fires again with its first sample after a move."""
    monkeypatch.setattr(evidence, "SAMPLES_TO_SETTLE", 0)
    watcher = Watcher(settled(scenario(), Settings(), {}))
    with pytest.raises(AssertionError):
        watched(SKEWED, 1, watcher.look, {"guardrails.max_unloads_per_turn": 1, "interval_seconds": 15})
