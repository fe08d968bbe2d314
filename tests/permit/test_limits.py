"""How much of a plan may happen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.load.scoring import Weights, scores
from lbd.model import Snapshot, Unload
from lbd.observe.parse import TOP_BUNDLES_REPORT
from lbd.permit.limits import permit
from lbd.permit.policies import Groups, Isolation, Policies, parse_isolation
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from tests.builders import bundle, ledger_of, permission, report, snapshot, stats

FREE = Groups(frozenset({"t/n"}))
NAMES = [bundle(number) for number in range(40)]


def cluster(hot: float = 60, cold: float = 20, each: float = 25, count: int = 40) -> Snapshot:
    """A hot broker with ``count`` equal bundles of ``2 x each`` msg/s, and an empty cold one."""
    return snapshot({"a:80": report(hot, {name: stats(each) for name in NAMES[:count]}), "b:80": report(cold)})


def policies(seen: Snapshot, isolation: Isolation | None = None, groups: Groups = FREE) -> Policies:
    """What is known of the policies; all brokers are active."""
    return Policies(isolation or Isolation(), groups, seen.brokers.ids)


def unload(number: int, rate: float = 50, destination: str | None = "b:80") -> Unload:
    """A move of one bundle from the hot to the cold broker."""
    return Unload(NAMES[number], "a:80", destination, rate, rate * 100)


def outcome(seen: Snapshot, plan: list[Unload], isolation: Isolation | None = None, **guardrails: object) -> list[str]:
    """``moves`` or the reason, for each unload of a plan."""
    found = scores(seen.brokers, Weights())
    ledger = ledger_of(seen, found, policies(seen, isolation), Guardrails.model_validate(guardrails), plan)
    permitted = permit(plan, ledger)
    told = {skip.what: skip.reason.label for skip in permitted.skips}
    return [told.get(one.bundle, "moves") for one in plan]


@pytest.mark.parametrize(
    ("destination", "told"),
    [
        ("b:80", "moves"),
        ("gone:80", "destination-forbidden"),
        ("a:80", "destination-forbidden"),
        (None, "destination-forbidden"),
    ],
)
def test_a_destination_is_a_broker_that_reports(destination: str | None, told: str):
    """And never the source itself."""
    assert [told] == outcome(cluster(), [unload(0, destination=destination)])


def test_a_bundle_moves_once_in_a_plan():
    """A plan may name it twice, as where its broker is in two pools; nothing rests because of that."""
    assert outcome(cluster(), [unload(0), unload(0)]) == ["not-needed"] * 2


def test_primaries_of_a_policy_are_no_destination():
    """They are kept for the namespaces of that policy."""
    isolation = parse_isolation({"p": {"namespaces": ["x/y"], "primary": ["b"], "secondary": []}})

    assert ["isolation-policy"] == outcome(cluster(), [unload(0)], isolation)


def test_a_destination_stays_below_the_limit_with_all_moves_of_the_turn():
    """Each bundle adds 1.5 points: 20 + 1.5 n <= 30 lets six through."""
    told = outcome(
        cluster(), [unload(number) for number in range(10)], max_destination_score=30, max_traffic_per_turn=1
    )

    assert ["moves"] * 6 + ["destination-overloaded"] * 4 == told


def test_a_destination_stays_below_its_source():
    """Ten moves of 2 points would lift 45 above 60."""
    told = outcome(cluster(cold=45, each=25, count=30), [unload(n) for n in range(10)], max_traffic_per_turn=1)

    assert ["moves"] * 7 + ["destination-above-source"] * 3 == told


def test_topics_of_a_destination():
    """Its own and those that move to it."""
    seen = snapshot(
        {"a:80": report(60, {name: stats(10, topics=30) for name in NAMES}), "b:80": report(20, num_topics=50)}
    )
    told = outcome(seen, [unload(n, 20) for n in range(3)], max_topics_per_broker=100, max_traffic_per_turn=1)

    assert ["moves", "topic-limit", "topic-limit"] == told


def test_topics_of_a_bundle_that_is_not_told_of():
    """Its part of those that its broker has besides, and not none: 90 topics on three such bundles."""
    kind = {"load_report_type": TOP_BUNDLES_REPORT}
    told = {NAMES[3]: stats(10, topics=20)}
    hot = report(60, told, bundles=list(NAMES[:4]), num_topics=110, **kind)
    seen = snapshot({"a:80": hot, "b:80": report(20, num_topics=50, **kind)})
    found = outcome(seen, [unload(n, 2) for n in range(3)], max_topics_per_broker=100, max_traffic_per_turn=1)

    assert found == ["moves", "topic-limit", "topic-limit"]


def test_unloads_per_turn_are_ten_or_a_hundredth_of_the_bundles():
    """Forty bundles: ten."""
    assert ["moves"] * 10 + ["unloads-per-turn"] * 2 == outcome(cluster(), [unload(n, 1) for n in range(12)])


def test_traffic_per_turn_is_a_tenth():
    """2,000 msg/s in the cluster: 200 a turn."""
    assert ["moves"] * 4 + ["traffic-per-turn"] * 2 == outcome(cluster(), [unload(n) for n in range(6)])


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), 1.7e308, -1e300])
def test_a_total_that_cannot_be_lifts_no_limit(rate: float):
    """The cluster's traffic is that of the brokers whose totals are numbers that a broker can have."""
    reports = {"a:80": report(60, {name: stats(25) for name in NAMES}), "b:80": report(20)}
    seen = snapshot({**reports, "c:80": report(40, msg_rate_in=rate, msg_rate_out=rate, msg_throughput_in=rate)})
    assert ["moves"] * 4 + ["traffic-per-turn"] * 2 == outcome(seen, [unload(n) for n in range(6)])


def test_one_bundle_a_turn_may_exceed_the_traffic():
    """Otherwise a small cluster of large bundles would never be balanced."""
    seen = cluster(each=100, count=4)

    assert ["moves", "traffic-per-turn"] == outcome(seen, [unload(0, 200), unload(1, 200)])


@settings(max_examples=100, deadline=None)
@given(
    scores_=st.lists(st.floats(0, 120), min_size=2, max_size=5),
    plan=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 4), st.integers(0, 5), st.floats(0, 400)), max_size=40),
    cap=st.integers(1, 8),
    share=st.floats(0.01, 1),
)
def test_no_limit_is_ever_broken(scores_: list[float], plan: list[tuple[int, int, int, float]], cap: int, share: float):
    """Whatever a strategy answers: caps hold, and no destination is planned above 85 or its source."""
    reports = {
        f"b{at}:80": report(score, {NAMES[at * 8 + n]: stats(25) for n in range(8)}) for at, score in enumerate(scores_)
    }
    seen = snapshot(reports)
    moves = [
        Unload(NAMES[number], f"b{source % len(scores_)}:80", f"b{destination}:80", rate, rate * 100)
        for number, source, destination, rate in plan
    ]
    found = scores(seen.brokers, Weights())
    guardrails = Guardrails(max_unloads_per_turn=cap, max_traffic_per_turn=share)
    allowed = permit(moves, ledger_of(seen, found, policies(seen), guardrails, moves)).unloads
    position = seen.brokers.index()

    assert len(allowed) <= cap
    assert sum(one.msg_rate for one in allowed[1:]) <= share * len(scores_) * 400 + 1e-6
    for one in allowed:
        assert one.destination in position
        assert found[position[one.destination]] < found[position[one.source]]
        assert found[position[one.destination]] <= 85


def test_where_a_bundle_may_stay():
    """A third broker with room keeps a bundle that landed there, a full one does not."""
    seen = snapshot(
        {
            "a:80": report(60, {NAMES[0]: stats(100), NAMES[1]: stats(100)}),
            "b:80": report(20),
            "c:80": report(25),
            "d:80": report(59),
        }
    )
    ledger = ledger_of(seen, scores(seen.brokers, Weights()), policies(seen), Guardrails(), [unload(0)])

    assert ledger.may_stay(unload(0, 20), "c:80")
    assert not ledger.may_stay(unload(0, 200), "d:80")
    assert (
        Reason.DESTINATION_FORBIDDEN is (ledger.refusal(unload(0, destination="z:80")) or pytest.fail("allowed")).reason
    )


def test_a_group_holds_back_where_it_is_not_known_or_not_even():
    """One bundle of the group may go to the empty broker, a second one would crowd it no more than its source."""
    seen = cluster()
    found = scores(seen.brokers, Weights())
    members = {"g": frozenset({"t/n"})}
    for groups, told in (
        (Groups(grouped={"t/n": "g"}), "policy-unknown"),
        (Groups(), "policy-unknown"),
        (Groups(grouped={"t/n": "g"}, members={"g": frozenset({"t/m"})}), "policy-unknown"),
        (Groups(grouped={"t/n": "g"}, members=members), None),
    ):
        permitted = permit(
            [unload(0)], ledger_of(seen, found, policies(seen, groups=groups), Guardrails(), [unload(0)])
        )

        assert ([told] if told else []) == [skip.reason.label for skip in permitted.skips]


@pytest.mark.parametrize("reason", [Reason.UNKNOWN_RESOURCES, Reason.IMPOSSIBLE_NUMBER, Reason.FIRST_SAMPLE])
def test_a_destination_whose_report_cannot_be_trusted_is_forbidden(reason: Reason):
    """Its score says nothing: neither is a bundle sent there, nor may one that landed there stay."""
    seen = cluster()
    doubted = np.array([0, reason.code], dtype=np.int8)
    found = scores(seen.brokers, Weights())
    plain = ledger_of(seen, found, policies(seen), Guardrails(), [unload(0)])
    ledger = ledger_of(
        seen, found, policies(seen), Guardrails(), [unload(0)], permission=permission(seen, paired=doubted)
    )
    refusal = ledger.refusal(unload(0))

    assert refusal is not None
    assert Reason.DESTINATION_FORBIDDEN is refusal.reason
    assert (True, False) == (plain.may_stay(unload(0), "b:80"), ledger.may_stay(unload(0), "b:80"))


def test_a_source_whose_report_is_trusted_moves_past_a_doubted_bystander():
    """Only the destination's own report counts."""
    seen = snapshot({"a:80": report(60, {NAMES[0]: stats(25)}), "b:80": report(20), "c:80": report(10)})
    doubted = np.array([0, 0, Reason.FIRST_SAMPLE.code], dtype=np.int8)
    ledger = ledger_of(
        seen,
        scores(seen.brokers, Weights()),
        policies(seen),
        Guardrails(),
        [unload(0)],
        permission=permission(seen, paired=doubted),
    )

    assert ledger.refusal(unload(0, 5)) is None


def test_what_the_brokers_are_expected_to_come_to():
    """Four of forty equal bundles are a tenth of the source's 60 points, taken there and added here."""
    seen, plan = cluster(), [unload(number) for number in range(4)]
    ledger = ledger_of(seen, scores(seen.brokers, Weights()), policies(seen), Guardrails(max_traffic_per_turn=1), plan)
    permitted = permit(plan, ledger)
    assert len(permitted.unloads) == 4
    assert ledger.expected(permitted.unloads) == pytest.approx({"a:80": 54.0, "b:80": 26.0})
    assert ledger.expected_at_most(permitted.unloads, 0.0) == pytest.approx({"a:80": 57.6, "b:80": 26.0})
    assert ledger.expected_at_most(permitted.unloads, 2.0) == pytest.approx({"a:80": 55.6, "b:80": 26.0})
    assert ledger.expected_at_most(permitted.unloads, 5.0) == pytest.approx({"a:80": 54.0, "b:80": 26.0})
    hot = ledger_of(seen, np.array([90.0, 20.0]), policies(seen), Guardrails(max_traffic_per_turn=1), plan)
    assert hot.expected_at_most(permitted.unloads, 5.0)["a:80"] == np.inf
    assert ledger.expected(()) == ledger.expected_at_most((), 5.0) == {}


def test_a_landing_that_the_group_forbids_is_not_accepted():
    """Seen from before the plan, which had counted the bundle where it was to go."""
    names = [bundle(0, "g/0"), bundle(1, "g/1"), bundle(2, "g/2")]
    seen = snapshot(
        {
            "a:80": report(60, {name: stats(10) for name in names[:2]}),
            "b:80": report(20),
            "c:80": report(20, {names[2]: stats(10)}),
        }
    )
    groups = Groups(grouped={f"g/{at}": "g" for at in range(3)}, members={"g": frozenset(f"g/{at}" for at in range(3))})
    move = Unload(names[0], "a:80", "b:80", 20, 2000)
    ledger = ledger_of(
        seen, scores(seen.brokers, Weights()), policies(seen, groups=groups), Guardrails(max_traffic_per_turn=1), [move]
    )

    assert permit([move], ledger).unloads == (move,)
    assert not ledger.may_stay(move, "c:80")


def test_a_source_without_traffic_says_nothing_of_what_its_bundles_weigh():
    """Its report may be older than its bundle; then nothing is moved, and the words hold no infinity."""
    seen = snapshot({"a:80": report(60, {NAMES[0]: stats(0)}), "b:80": report(20)})
    refusal = ledger_of(seen, scores(seen.brokers, Weights()), policies(seen), Guardrails(), [unload(0)]).refusal(
        unload(0)
    )

    assert refusal is not None
    assert refusal.reason is Reason.DESTINATION_OVERLOADED
    assert refusal.detail == "the load that it would add to b:80 is not known: a:80 reports no traffic"
