"""Where a bundle landed instead: ledger, unloader and executor together, each of which asks whether it may stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.act.executor import Execution, Executor, FinishedMoves, Pace
from lbd.act.ownership import ActClock
from lbd.act.unload import Unloader
from lbd.model import Skip, Unload
from lbd.permit.limits import Ledger, permit
from lbd.permit.policies import Groups, Policies
from lbd.permit.settings import Guardrails
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import Reply
from lbd.store.journal import Journal
from lbd.store.moves import history
from tests import builders, fake_pulsar
from tests.builders import ledger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

BUNDLES = [builders.bundle(number, f"t/{number}") for number in range(4)]


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Four brokers: the first owns four bundles of 10 points each, the second leads."""
    with fake_pulsar.started(4) as cluster:
        cluster.own(cluster.ids[0], dict.fromkeys(BUNDLES, 100.0))
        yield cluster


def ledger(pulsar: FakePulsar, third_points: float, plan: list[Unload], **limits: Any) -> Ledger:
    """The plan let through, with so many points on the second and the fourth broker."""
    reports = {
        pulsar.ids[0]: builders.report(40, {name: builders.stats(100) for name in BUNDLES}),
        pulsar.ids[1]: builders.report(third_points),
        pulsar.ids[2]: builders.report(5),
        pulsar.ids[3]: builders.report(third_points),
    }
    seen = builders.snapshot(reports, time.time())
    groups = Groups(free=frozenset(f"t/{number}" for number in range(4)))
    policies = Policies(groups=groups, active=seen.brokers.ids)
    scores = np.array([40.0, third_points, 5.0, third_points])
    rails = {"max_traffic_per_turn": 1, "max_traffic_per_hour": 1, "max_destination_score": 40, **limits}
    judge = ledger_of(seen, scores, policies, Guardrails.model_validate(rails), plan)
    assert not permit(plan, judge).skips
    return judge


class Cluster:
    """A live executor whose policies forbid the planned destination once the first unload was sent."""

    def __init__(self, pulsar: FakePulsar, state: Path) -> None:
        self.pulsar, self.forbidden, self._offset = pulsar, set[str](), 0.0
        state.mkdir()
        self.journal = Journal(state / "lbd.db", time.time)
        clock = ActClock(self._now, self._sleep, boot=self._now)
        self.unloader = Unloader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), clock, forbids=self._forbids)

    def _now(self) -> float:
        return time.monotonic() + self._offset

    def _sleep(self, seconds: float) -> None:
        self._offset += seconds

    def _forbids(self, move: Unload, *, planned: bool) -> Skip | None:
        del planned
        kept = move.destination in self.forbidden
        return Skip(move.bundle, Reason.ISOLATION_POLICY, "reserved for others") if kept else None

    def forbid(self, *brokers: int) -> Callable[[], None]:
        """Forbid these from the next unload on, after policies that were read before have become old."""

        def come() -> None:
            self.forbidden |= {self.pulsar.ids[number] for number in brokers}
            self._sleep(3)

        return come

    def execute(self, plan: list[Unload], limits: Ledger) -> FinishedMoves:
        """Hand the plan over and wait for it."""
        executor = Executor(self.journal, time.time)
        executor.start(plan, limits, Execution(self.unloader, Pace()))
        assert executor.wait(60)
        executor.close()
        ended = executor.collect()
        assert ended.failure is None
        return ended


def moves(pulsar: FakePulsar, *numbers: int) -> list[Unload]:
    """Unloads of these bundles from the first broker to the third."""
    return [Unload(BUNDLES[number], pulsar.ids[0], pulsar.ids[2], 200.0, 20_000.0) for number in numbers]


@pytest.mark.parametrize(("points", "attempts"), [(5.0, 1), (28.0, 1), (32.0, 2)])
def test_a_bundle_that_a_client_took_elsewhere(
    points: float, attempts: int, pulsar: FakePulsar, tmp_path: Path
) -> None:
    """It stays on a broker that has room for it once, and is tried again from one that has none."""
    plan = moves(pulsar, 0)
    judge = ledger(pulsar, points, plan)
    pulsar.steals[BUNDLES[0]] = [pulsar.ids[3]]
    (outcome,) = Cluster(pulsar, tmp_path / "state").execute(plan, judge).outcomes
    assert (outcome.attempts, outcome.owner) == (attempts, pulsar.ids[3 if attempts == 1 else 2])
    landed = points + (10.0 if attempts == 1 else 0.0)
    assert judge.predicted(pulsar.ids[3]) == pytest.approx(landed)


def test_a_bundle_that_was_placed_elsewhere_may_stay(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Unloader and executor both ask for one landing, on a broker with room for one bundle: it is not tried again."""
    plan = moves(pulsar, 0)
    judge, cluster = ledger(pulsar, 28.0, plan), Cluster(pulsar, tmp_path / "state")
    come = cluster.forbid(0, 2)
    pulsar.fault("/unload", Reply(204), broker=pulsar.ids[0], after_acting=True, then=come, times=1)
    (outcome,) = cluster.execute(plan, judge).outcomes
    assert (outcome.result.value, outcome.owner, outcome.attempts) == ("landed-elsewhere", pulsar.ids[1], 1)
    assert [one.attempt for one in history(tmp_path / "state")] == [1]
    assert judge.predicted(pulsar.ids[1]) == pytest.approx(38.0)


def test_landings_of_one_plan_count_together(pulsar: FakePulsar, tmp_path: Path) -> None:
    """A third broker with room for one bundle keeps the first; the second is moved on."""
    plan = moves(pulsar, 0, 1)
    judge = ledger(pulsar, 21.0, plan)
    pulsar.steals |= {name: [pulsar.ids[3]] for name in BUNDLES[:2]}
    outcomes = Cluster(pulsar, tmp_path / "state").execute(plan, judge).outcomes
    assert {(one.owner, one.attempts) for one in outcomes} == {(pulsar.ids[3], 1), (pulsar.ids[2], 2)}


def test_asking_changes_no_answer(pulsar: FakePulsar) -> None:
    """Every question may be asked twice; what was counted decides the next answer."""
    (move,) = plan = moves(pulsar, 0)
    judge, third = ledger(pulsar, 28.0, plan), pulsar.ids[1]
    other = Unload(BUNDLES[1], pulsar.ids[0], third, 200.0, 20_000.0)
    asked = [(judge.may_stay(move, third), judge.refusal(other), judge.predicted(third)) for _ in range(3)]
    assert asked == [(True, None, 28.0)] * 3
    judge.take_landing(move, third)
    assert (judge.may_stay(move, third), judge.predicted(third)) == (False, pytest.approx(38.0))


CANARY = {"namespaces": ["t/0"], "max_moves_per_hour": 1}


@pytest.mark.parametrize(
    "limits",
    [
        {"max_unloads_per_turn": 1},
        {"max_unloads_per_hour": 1},
        {"max_unloads_per_day": 1},
        {"max_unloads_per_broker_per_hour": 1},
        {"canary": CANARY},
        {"max_traffic_per_turn": 0.3},
        {"max_traffic_per_hour": 0.3},
    ],
    ids=lambda limits: next(iter(limits)),
)
def test_a_retry_is_one_more_request(limits: dict[str, Any], pulsar: FakePulsar, tmp_path: Path) -> None:
    """A bundle that came back to its source is not tried again where that would pass a limit."""
    plan = moves(pulsar, 0)
    judge = ledger(pulsar, 5.0, plan, **limits)
    pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
    (outcome,) = Cluster(pulsar, tmp_path / "state").execute(plan, judge).outcomes
    assert (outcome.result.value, outcome.attempts) == ("failed", 1)
    assert [one.attempt for one in history(tmp_path / "state")] == [1]


def test_a_retry_within_all_limits_is_sent(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Two of two."""
    plan = moves(pulsar, 0)
    judge = ledger(pulsar, 5.0, plan, max_unloads_per_turn=2, max_unloads_per_hour=2, max_unloads_per_broker_per_hour=2)
    pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
    (outcome,) = Cluster(pulsar, tmp_path / "state").execute(plan, judge).outcomes
    assert (outcome.result.value, outcome.attempts) == ("landed", 2)


def test_what_others_sent_meanwhile_counts(pulsar: FakePulsar, tmp_path: Path) -> None:
    """The plan had room for two in this hour; a move by hand has used one up before they were sent."""
    plan = moves(pulsar, 0, 1)
    judge, cluster = ledger(pulsar, 5.0, plan, max_unloads_per_hour=2), Cluster(pulsar, tmp_path / "state")
    cluster.journal.intend(Unload(BUNDLES[3], pulsar.ids[1], pulsar.ids[2], 1.0, 1.0), 1)
    ended = cluster.execute(plan, judge)
    assert [one.unload.bundle for one in ended.outcomes] == [BUNDLES[0]]
    assert [(skip.what, skip.reason) for skip in ended.skips] == [(BUNDLES[1], Reason.HOUR_UNLOADS)]
