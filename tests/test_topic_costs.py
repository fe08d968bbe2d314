"""Whole turns, orders of people and drains where bundles hold Pulsar's own topics, against a fake Pulsar over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.model import Result
from lbd.reason import Reason
from lbd.store.explain import Explainer
from tests.daemon.alone import done as handed
from tests.daemon.test_by_hand import request
from tests.daemon.test_by_hand import settings as by_hand_settings
from tests.daemon.test_draining import asked, done, owned
from tests.daemon.test_draining import settings as drain_settings
from tests.simulate import fakes
from tests.test_turn import HOT, once, settings

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.simulate.fake_pulsar import FakePulsar as SimulatedPulsar
    from tests.fake_pulsar import FakePulsar

ON = {"systemTopicEnabled": "true", "topicLevelPoliciesEnabled": "true"}
ONE_PARTITION = ON | {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "1"}
DEAR = HOT[2]
"""Where persistent://t/n/__change_events-partition-0 falls: 0x294017db."""


def moved_with(pulsar: FakePulsar, folder: Path, version: str, **rails: Any) -> list[str]:
    """What one turn moves off the hot broker, which has eight equal bundles, where the brokers keep topic policies."""
    for broker in pulsar.brokers:
        broker.runtime, broker.version = ONE_PARTITION, version
    record = once(settings(pulsar, folder, guardrails=rails))
    assert {outcome.result for outcome in record.moves.outcomes} <= {Result.LANDED}
    return sorted(outcome.unload.bundle for outcome in record.moves.outcomes)


@pytest.mark.parametrize(
    ("version", "costs", "expected"),
    [
        ("4.2.4", {"change-events": 0}, [HOT[0], HOT[1], HOT[2]]),
        ("4.2.4", {}, [HOT[0], HOT[1], HOT[3]]),
        ("4.0.8", {}, [HOT[0], HOT[1], HOT[3]]),
    ],
)
def test_of_equal_bundles_others_go(
    version: str, costs: dict[str, Any], expected: list[str], pulsar: FakePulsar, tmp_path: Path
):
    """As many as without a cost, and the one with ``__change_events`` is not among them."""
    assert expected == moved_with(pulsar, tmp_path, version, topic_costs=costs)


@pytest.mark.parametrize(("version", "expected"), [("4.2.4", [DEAR]), ("4.0.8", [])])
def test_a_dear_bundle_goes_where_no_cheaper_one_fits(
    version: str, expected: list[str], pulsar: FakePulsar, tmp_path: Path
):
    """A cost is a cost; never is never."""
    for other in HOT:
        del pulsar.owners[other], pulsar.rates[other]
    pulsar.own(pulsar.ids[0], {HOT[0]: 8000.0, DEAR: 1000.0})
    assert expected == moved_with(pulsar, tmp_path, version)


def test_a_person_is_told_and_may_pass_it(pulsar: FakePulsar, tmp_path: Path):
    """Without a reason it is refused, with what passes it; with one it moves."""
    for broker in pulsar.brokers:
        broker.runtime = ONE_PARTITION
    chosen = by_hand_settings(pulsar, tmp_path)
    refused = handed(chosen, request(pulsar, 2))
    assert refused.exit_code == 4
    assert refused.sentence.startswith("Refused: topic-cost: a topic of Pulsar's own in it never moves")
    assert "--override REASON passes this" in refused.sentence
    assert handed(chosen, request(pulsar, 2, override="a disk fails", id="again")).exit_code == 0
    assert pulsar.owners[DEAR] == pulsar.ids[2]


def test_it_is_explained(pulsar: FakePulsar, tmp_path: Path):
    """What is in the bundle, what follows, and the setting; of other bundles nothing."""
    moved_with(pulsar, tmp_path, "4.0.8")
    explainer = Explainer(tmp_path / "state", now=2e9, since=0.0, last=5, cool_down_seconds=0)
    why = explainer.of(DEAR).because  # type: ignore[union-attr]
    assert why[:2] == [
        "topic-cost: guardrails.topic_costs says never for a topic of Pulsar's own in it",
        (
            "__change_events-partition-0 of its namespace: all brokers with a bundle of the namespace read topic "
            "policies there; cost of a move: never by a turn (guardrails.topic_costs)"
        ),
    ]
    assert not any("topic_costs" in one for one in explainer.of(HOT[5]).because)  # type: ignore[union-attr]


@pytest.mark.landing
def test_a_drain_moves_it_last_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A broker that is to be restarted must own nothing, whatever turns would do."""
    with fakes.hot(clients=0, runtime=ON) as cluster:
        never = topic_holder(cluster)
        with fakes.run(cluster, tmp_path, monkeypatch, drain_settings(cluster, tmp_path, max_unloads_at_once=1)) as lbd:
            told, work = done(lbd, asked(cluster.brokers[0]))
            moves = [move.bundle for move in sorted(lbd.true_moves(), key=lambda move: move.at)]
    assert "1 bundle last that turns never move (guardrails.topic_costs)" in told.sentence
    assert work is not None
    assert (work.exit_code, work.landed, work.owned, moves[-1]) == (0, 14, 0, never)


def topic_holder(cluster: SimulatedPulsar) -> str:
    """The bundle of broker 1 that persistent://simulated/n0/__change_events falls into: 0x561675ba."""
    return next(
        one for one in owned(cluster, cluster.brokers[0]) if int(one[-21:-11], 16) <= 0x561675BA < int(one[-10:], 16)
    )


def test_nothing_costs_where_brokers_keep_no_such_topics(pulsar: FakePulsar, tmp_path: Path):
    """Policies off: the turn counts no bundle as dear, on whatever version."""
    record = once(settings(pulsar, tmp_path))
    assert (record.plan.dear_kinds, record.plan.counts.get(Reason.TOPIC_COST.label)) == ((), None)
