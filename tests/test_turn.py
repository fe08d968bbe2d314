"""Whole turns against a fake Pulsar over real HTTP: what a person sees, what is moved, and what is kept."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lbd.act.ownership import ActClock
from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon import wiring as live
from lbd.daemon.engine import engine
from lbd.errors import AdminError, LbdError, ObserveError, RefusedError, UsageError
from lbd.model import Hits, Outcome, Result, Unload
from lbd.operations.dry import dry_run
from lbd.reason import Reason
from lbd.simulate.answers import Reply, ok, refused
from lbd.store.journal import Journal, read
from lbd.store.state import AVERAGES, MEMORY, StateDir, TurnMemory
from tests import fake_pulsar, journals
from tests.builders import put_value, state_begun
from tests.daemon.test_service import eventually
from tests.fake_pulsar import COLD, EXTENSIBLE, HOT, WARM, FakePulsar
from tests.fake_pulsar import HOT as HOT_BUNDLES
from tests.pulsar.issuer import issuing, key_file
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.turn.parts import TurnResult


def settings(cluster: FakePulsar, folder: Path, **changes: Any) -> Settings:
    """Settings with which one hit is enough, and a turn may move much."""
    values: dict[str, Any] = {
        "pulsar": {"admin_urls": cluster.urls, "read_timeout_seconds": LIMIT_SECONDS},
        "state_dir": folder / "state",
        "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1},
    }
    usual = {"max_traffic_per_turn": 1.0, "membership_settle_seconds": 0, "unload_spacing_seconds": 0}
    guardrails = {**usual, **changes.pop("guardrails", {})}
    return Settings.model_validate({**values, "guardrails": guardrails, **changes})


def once(chosen: Settings) -> TurnResult:
    """One live turn, as ``lbd run --once`` makes it."""
    with engine(chosen) as balancer:
        return balancer.once()


def patient(pulsar: FakePulsar, folder: Path) -> Settings:
    """The same with Pulsar's own hit counts: two in a row at the high threshold."""
    return settings(pulsar, folder, avg_shedder={})


def journal(folder: Path) -> list[dict[str, Any]]:
    """Every intent and outcome of the journal."""
    return [entry for entry in journals.entries(folder / "state") if entry["event"] in {"intent", "outcome"}]


def reasons(record: TurnResult) -> dict[str, Reason]:
    """Why each thing that was named did not move."""
    return {skip.what: skip.reason for skip in record.skips}


def held_by(record: TurnResult) -> Reason | None:
    """The hold of a turn."""
    return record.plan.hold[0] if record.plan.hold is not None else None


def unmoved(pulsar: FakePulsar, record: TurnResult, told: str = "No move") -> None:
    """Nothing was asked of any broker that changes something, and the turn said so in one sentence."""
    assert [one for one in pulsar.requests if one.method != "GET" or "/schemas/" in one.path] == []
    assert record.moves.outcomes == ()
    assert record.sentence.startswith(told)
    assert record.sentence.count("\n") == 0


class TestMoving:
    def test_a_hot_broker_unloads_to_its_partner(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Half of the difference goes from the most to the least loaded broker, lands there, and is in the journal."""
        record = once(settings(pulsar, tmp_path))
        first, second, third = pulsar.ids
        moved = sorted(bundle for bundle in HOT if pulsar.owners[bundle] == third)
        assert record.error is None
        assert sorted(outcome.unload.bundle for outcome in record.moves.outcomes) == moved
        assert {(outcome.result, outcome.owner) for outcome in record.moves.outcomes} == {(Result.LANDED, third)}
        assert len(moved) == 3
        assert record.sentence == "Moved 3 of 3 bundles: 3 landed."
        assert (pulsar.owners[WARM], pulsar.owners[COLD]) == (second, third)
        lines = journal(tmp_path)
        assert [line["event"] for line in lines] == ["intent", "outcome"] * 3
        assert {line["bundle"] for line in lines if line["event"] == "intent"} == set(moved)
        assert {(line["source"], line["destination"]) for line in lines if line["event"] == "intent"} == {
            (first, third)
        }
        assert {line["result"] for line in lines if line["event"] == "outcome"} == {"landed"}

    def test_the_plan_and_each_outcome_are_told_as_they_come(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """For a progress bar: first the plan, then the outcomes."""
        told: list[Any] = []
        with engine(settings(pulsar, tmp_path)) as balancer:
            balancer.on_end = told.append
            record = balancer.once(told.append)
        assert told == [record.plan.unloads, *record.moves.outcomes]

    def test_what_was_moved_rests(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """In the next turn the cool-down bars the bundles that were moved."""
        once(settings(pulsar, tmp_path))
        pulsar.sample(81.0, 46.0, 11.0)
        record = once(settings(pulsar, tmp_path))
        assert record.plan.counts[Reason.COOL_DOWN.label] == 3

    def test_touched_brokers_settle_first(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Source and destination of a move take part again with their second fresh sample after it."""
        eager = {"hit_count_high": 1, "hit_count_low": 1}
        chosen = settings(pulsar, tmp_path, avg_shedder=eager)
        once(chosen)
        moved = dict(pulsar.owners)
        pulsar.sample(82.0, 47.0, 12.0)
        assert set(reasons(once(chosen)).values()) == {Reason.SETTLING}
        assert pulsar.owners == moved
        pulsar.sample(83.0, 48.0, 13.0)
        assert Reason.SETTLING not in reasons(once(chosen)).values()

    def test_landed_elsewhere(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Two in a row that a client pulled to the third broker stop the round; what was not tried is named."""
        for bundle in HOT:
            pulsar.steals[bundle] = [pulsar.ids[1]] * 2
        record = once(settings(pulsar, tmp_path))
        assert [outcome.result for outcome in record.moves.outcomes] == [Result.ELSEWHERE] * 2
        assert len(record.plan.unloads) == 3
        assert [what for what, reason in reasons(record).items() if reason is Reason.ROUND_STOPPED] == [
            record.plan.unloads[2].bundle
        ]
        assert record.sentence == "Moved 0 of 3 bundles: 2 landed-elsewhere, 1 not asked for."

    def test_a_leader_that_dies_after_the_reports(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing is sent, nothing counts as attempted; why is said of each bundle."""

        def die() -> None:
            pulsar.fault("/brokers/ready", Reply(503), broker=pulsar.ids[1])

        pulsar.fault("/antiAffinity", Reply(204), times=1, then=die)
        record = once(settings(pulsar, tmp_path))
        assert record.moves.outcomes == ()
        assert [skip.reason for skip in record.moves.skips] == [Reason.LEADER_UNREACHABLE] * 3
        assert record.sentence == "Moved 0 of 3 bundles: 3 not asked for."
        assert pulsar.asked("/unload") == []
        assert journal(tmp_path) == []

    def test_caps_hold(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One unload a turn: the first is made, the others are named with the limit."""
        guardrails = {"max_unloads_per_turn": 1, "max_traffic_per_turn": 1.0}
        record = once(settings(pulsar, tmp_path, guardrails=guardrails))
        assert [outcome.result for outcome in record.moves.outcomes] == [Result.LANDED]
        assert list(reasons(record).values()).count(Reason.TURN_UNLOADS) == 2

    def test_a_destination_that_fills_up_while_a_plan_waits(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Between two unloads may be an hour: what is left of the plan is not sent to a broker that has too much."""
        with engine(settings(pulsar, tmp_path, guardrails={"unload_spacing_seconds": 3600})) as balancer:
            balancer.turn()
            eventually(lambda: len(balancer.unfinished) == 2)
            pulsar.sample(80.5, 45.5, 97.0)
            balancer.turn()
            assert balancer.wait(LIMIT_SECONDS)
            record = balancer.turn()
        assert {skip.reason for skip in record.moves.skips} == {Reason.DESTINATION_OVERLOADED}
        assert len(pulsar.asked("/unload", "PUT")) == 2  # of one unload, at the leader and at the owner

    def test_an_excluded_namespace_stays(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its bundles are barred, each with that reason."""
        guardrails = {"excluded_namespaces": ["t/n"], "membership_settle_seconds": 0}
        record = once(settings(pulsar, tmp_path, guardrails=guardrails))
        unmoved(pulsar, record)
        assert record.plan.counts[Reason.EXCLUDED_NAMESPACE.label] == 10

    def test_a_namespace_alone_on_its_broker_stays(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A forced destination would bypass the policy; the sentence names the pool."""
        pulsar.policies.isolation = {"p": {"namespaces": ["t/.*"], "primary": ["127[.]0[.]0[.]1"], "secondary": []}}
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert record.sentence == "No move: pool p: too-few-brokers (1 of 3 reports can be compared)."

    def test_bundles_move_within_their_pool(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Broker 3 is the coldest, and not for this namespace: broker 2 takes the bundles."""
        pulsar.policies.isolation = {"p": {"namespaces": ["t/n"], "primary": ["127[.]0[.]0[.][12]"], "secondary": []}}
        record = once(settings(pulsar, tmp_path))
        assert {(one.result, one.owner) for one in record.moves.outcomes} == {(Result.LANDED, pulsar.ids[1])}
        assert [pair.pool for pair in record.plan.decision.comparison.pairs] == ["p"]

    def test_a_policy_that_comes_after_the_plan(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It is read once more before each request, and nothing is sent against it."""
        forbidding = {"p": {"namespaces": ["x/.*"], "primary": ["127[.]0[.]0[.]3"], "secondary": []}}
        with engine(settings(pulsar, tmp_path)) as balancer:
            record = balancer.once(on_plan=lambda _: pulsar.policies.isolation.update(forbidding))
        unmoved(pulsar, record, "Moved 0 of 3 bundles: 3 not asked for")
        assert {skip.reason for skip in record.moves.skips} == {Reason.ISOLATION_POLICY}
        assert "primary of an isolation policy for others; not sent" in record.moves.skips[0].detail

    def test_a_group_that_comes_after_the_plan(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Where the rest of the group is was not looked at when the move was planned."""
        with engine(settings(pulsar, tmp_path)) as balancer:
            record = balancer.once(on_plan=lambda _: pulsar.policies.groups.update({"t/n": "rack-a"}))
        unmoved(pulsar, record, "Moved 0 of 3 bundles: 3 not asked for")
        assert {skip.reason for skip in record.moves.skips} == {Reason.ANTI_AFFINITY}

    def test_an_anti_affinity_group_is_kept_apart(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The cold broker has another namespace of the group, the warm one has none."""
        pulsar.own(pulsar.ids[2], {"u/other/0x00000000_0xffffffff": 10.0})
        pulsar.policies.groups = {"t/n": "rack-a", "u/other": "rack-a"}
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert record.plan.counts[Reason.ANTI_AFFINITY.label] > 0

    def test_a_group_whose_members_cannot_be_read(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What is not known is not taken for absent."""
        pulsar.policies.groups = {"t/n": "rack-a"}
        pulsar.fault("antiAffinity/rack-a", refused(500, "no"))
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert record.plan.counts[Reason.POLICY_UNKNOWN.label] == 10

    def test_unknown_policies_bind_everything(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What cannot be read is not taken for absent."""
        pulsar.fault("namespaceIsolationPolicies", refused(500, "no"))
        unmoved(pulsar, once(settings(pulsar, tmp_path)))


NOT_UNDERSTOOD = (
    "namespace property lbd.balance is 'of', wanted off, low or normal; its bundles stay until that is corrected"
)


class TestNamespaceProperties:
    """What an application team notes at its namespace, where ``guardrails.namespace_properties`` is on."""

    @staticmethod
    def chosen(pulsar: FakePulsar, folder: Path, **changes: Any) -> Settings:
        """Settings in which they bind."""
        return settings(pulsar, folder, guardrails={"namespace_properties": True}, **changes)

    @staticmethod
    def with_another(pulsar: FakePulsar, properties: dict[str, str]) -> set[str]:
        """The hot broker's largest bundles are of a namespace of their own, s/n, with these properties."""
        largest = {f"s/n/0x{at:08x}_0x{at + 1:08x}": 2000.0 for at in range(4)}
        pulsar.own(pulsar.ids[0], largest)
        pulsar.policies.properties = {"s/n": properties}
        return set(largest)

    def test_they_do_not_bind_by_default(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing is read, and the bundles move."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "off"}}
        record = once(settings(pulsar, tmp_path))
        assert record.sentence == "Moved 3 of 3 bundles: 3 landed."
        assert pulsar.asked("/properties", "GET") == []

    @pytest.mark.parametrize(
        ("properties", "reason", "detail"),
        [
            ({"lbd.balance": "off"}, Reason.BALANCE_OFF, "namespace property lbd.balance=off"),
            (
                {"lbd.quiet-hours": "00:00-12:00; 12:00-24:00"},
                Reason.NAMESPACE_QUIET,
                "namespace property lbd.quiet-hours=",
            ),
            ({"lbd.balance": "of"}, Reason.PROPERTY_NOT_UNDERSTOOD, NOT_UNDERSTOOD),
        ],
    )
    def test_others_move_in_place_of_a_namespace_that_stays(
        self, properties: dict[str, str], reason: Reason, detail: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Its bundles would be the first; each of the two namespaces is asked for its properties once."""
        stay = self.with_another(pulsar, properties)
        record = once(self.chosen(pulsar, tmp_path))
        assert {pulsar.owners[bundle] for bundle in stay} == {pulsar.ids[0]}
        assert {one.result for one in record.moves.outcomes} == {Result.LANDED}
        assert {one.unload.bundle for one in record.moves.outcomes} <= set(HOT)
        assert record.plan.counts[reason.label] == len(stay)
        [skip] = [one for one in record.skips if one.what == "s/n"]
        assert skip.reason is reason
        assert skip.detail.startswith(detail)
        assert len(pulsar.asked("/properties", "GET")) == 2

    @pytest.mark.parametrize("balance", ["low", "normal"])
    def test_low_balance_comes_after_all_others(self, balance: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Without the property the largest bundles would move."""
        largest = self.with_another(pulsar, {"lbd.balance": balance})
        record = once(self.chosen(pulsar, tmp_path))
        moved = {one.unload.bundle for one in record.moves.outcomes}
        assert moved
        assert (moved & largest == set()) is (balance == "low")
        assert (reasons(record).get("s/n") is Reason.BALANCE_LOW) is (balance == "low")

    def test_low_balance_moves_where_nothing_else_can(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """All bundles of the hot broker are of such a namespace."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "low"}}
        record = once(self.chosen(pulsar, tmp_path))
        assert record.sentence == "Moved 3 of 3 bundles: 3 landed."
        assert "t/n" not in reasons(record)

    def test_properties_that_cannot_be_read(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Balancing goes on as without them, and the turn and the status say so."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "off"}}
        pulsar.fault("t/n/properties", refused(403, "no"))
        with engine(self.chosen(pulsar, tmp_path)) as balancer:
            record = balancer.once()
            assert any("properties of t/n cannot be read: GET" in one for one in balancer.warnings)
        assert record.sentence == "Moved 3 of 3 bundles: 3 landed."
        assert reasons(record)["t/n"] is Reason.PROPERTY_UNREAD

    def test_a_property_that_is_not_understood_is_a_warning_of_the_status(
        self, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """By namespace and value, with what would be right."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "of"}}
        with engine(self.chosen(pulsar, tmp_path)) as balancer:
            balancer.once()
            [warning] = [one for one in balancer.warnings if "lbd.balance" in one]
        assert warning == f"t/n: {NOT_UNDERSTOOD}"

    def test_namespaces_read_in_a_turn_are_bounded(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bundles of the others stay in this turn, as nothing is known of them."""
        monkeypatch.setattr("lbd.operations.parts.PROPERTIES_A_TURN", 2)
        pulsar.own(None, dict.fromkeys(HOT, 0.0))
        pulsar.own(pulsar.ids[0], {f"m/{number}/0x00000000_0xffffffff": 1500.0 for number in range(8)})
        record = once(self.chosen(pulsar, tmp_path))
        assert len(pulsar.asked("/properties", "GET")) == 2
        assert len({one.unload.bundle for one in record.moves.outcomes}) == 2
        assert record.plan.counts[Reason.POLICY_UNKNOWN.label] > 0

    def test_a_dry_run_heeds_them(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It says what would keep the bundles."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "off"}}
        record = dry_run(self.chosen(pulsar, tmp_path))
        assert record.plan.unloads == ()
        assert reasons(record)["t/n"] is Reason.BALANCE_OFF


class TestHolds:
    @pytest.mark.parametrize(
        ("runtime", "held"),
        [
            ({"loadBalancerSheddingEnabled": "true"}, True),
            ({"loadBalancerSheddingEnabled": "true", "loadBalancerEnabled": "false"}, False),
            ({"loadBalancerSheddingEnabled": "false"}, False),
        ],
        ids=["on", "on, but the load balancer is off", "off"],
    )
    def test_in_broker_shedding(self, runtime: dict[str, str], held: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One broker that sheds by itself is enough: lbd and it never act together."""
        pulsar.brokers[1].runtime = runtime
        record = once(settings(pulsar, tmp_path))
        assert (held_by(record) is Reason.IN_BROKER_SHEDDING) is held
        assert bool(record.moves.outcomes) is not held
        if held:
            unmoved(pulsar, record)
            assert pulsar.ids[1] in record.sentence
            assert "loadBalancerSheddingEnabled=false" in record.sentence

    def test_a_broker_that_sheds_and_gives_no_report(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its configuration says so, whatever else it does not tell."""
        pulsar.brokers[1].runtime = {"loadBalancerSheddingEnabled": "true"}
        pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.ids[1])
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert held_by(record) is Reason.IN_BROKER_SHEDDING

    def test_a_leader_that_does_not_tell_whether_it_sheds(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The leader is who would."""
        pulsar.fault("configuration/runtime", refused(500, "boom"), broker=pulsar.leader)
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert held_by(record) is Reason.LEADER_UNREACHABLE
        assert "does not report whether it sheds" in record.sentence

    def test_no_leader(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Without a leader a destination is lost: hold, and say so."""
        pulsar.leader = None
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert held_by(record) is Reason.LEADER_UNREACHABLE
        assert record.sentence.startswith("No move: leader-unreachable: no broker leads")

    def test_a_hold_keeps_the_counters_one_below_their_limit(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """After it, one more sample is seen before anything is moved."""
        chosen = patient(pulsar, tmp_path)
        pulsar.leader = None
        for extra in range(4):
            pulsar.sample(80.0 + extra, 45.0 + extra, 10.0 + extra)
            unmoved(pulsar, once(chosen))
        assert StateDir(chosen.state_dir).load().hits[pulsar.ids[0]].high == 1
        pulsar.leader = pulsar.ids[1]
        pulsar.sample(79.0, 44.0, 9.0)
        assert once(chosen).moves.outcomes != ()

    def test_a_broker_that_joined(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Sit out until the membership has not changed for a while; half a minute where none left within the hour."""
        chosen = settings(pulsar, tmp_path, guardrails={"membership_settle_seconds": 60})
        state_begun(chosen.state_dir).save(
            TurnMemory(written_at=time.time(), members=sorted(pulsar.ids[:2]), members_since=1.0)
        )
        record = once(chosen)
        unmoved(pulsar, record)
        assert held_by(record) is Reason.MEMBERSHIP_CHANGED
        assert record.sentence.startswith(f"No move: membership-changed: {pulsar.ids[2]} joined, 30 s to wait")

    def test_brokers_that_left(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """They are named, at most three of them, also when the process that saw them leave has ended."""
        chosen = settings(pulsar, tmp_path, guardrails={"membership_settle_seconds": 60})
        gone = [f"127.0.1.{number}:80" for number in range(5)]
        before = TurnMemory(written_at=time.time(), members=sorted([*pulsar.ids, *gone]), members_since=1.0)
        state_begun(chosen.state_dir).save(before)
        told = f"No move: membership-changed: {', '.join(gone[:3])} and 2 more left, "
        assert [once(chosen).sentence.startswith(told) for _ in range(2)] == [True, True]

    def test_membership_that_settled(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The same set for long enough holds nothing."""
        chosen = settings(pulsar, tmp_path, guardrails={"max_traffic_per_turn": 1.0, "membership_settle_seconds": 60})
        since = time.time() - 61
        state_begun(chosen.state_dir).save(
            TurnMemory(written_at=time.time(), members=sorted(pulsar.ids), members_since=since)
        )
        assert once(chosen).plan.hold is None


class TestData:
    def test_one_report_is_missing(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The others still count; the broker and why it gave none are named."""
        pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.ids[1])
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[pulsar.ids[1]] is Reason.REPORT_MISSING
        assert "HTTP 500 (boom)" in next(skip.detail for skip in record.skips if skip.what == pulsar.ids[1])
        assert {outcome.result for outcome in record.moves.outcomes} == {Result.LANDED}

    @pytest.mark.parametrize(
        "reply", [fake_pulsar.HTML_PAGE, fake_pulsar.HALF_A_JSON, ok([1]), ok({"cpu": "high"}), Reply(200, b"")]
    )
    def test_a_report_that_is_none(self, reply: Reply, pulsar: FakePulsar, tmp_path: Path) -> None:
        """HTML, half a JSON, something else: missing, not a bug."""
        pulsar.fault("load-report", reply, broker=pulsar.ids[2])
        record = once(settings(pulsar, tmp_path))
        assert record.error is None
        assert reasons(record)[pulsar.ids[2]] is Reason.REPORT_MISSING

    def test_too_few_reports(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One broker alone cannot be compared."""
        for broker in pulsar.ids[1:]:
            pulsar.fault("load-report", refused(500, "boom"), broker=broker)
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert held_by(record) is Reason.TOO_FEW_BROKERS

    @pytest.mark.parametrize("minutes", ["1", "600"])
    def test_a_broker_that_samples_seldom_makes_the_reports_of_others_no_newer(
        self, minutes: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """What one broker has in its configuration is about that broker: theirs have been the same for too long."""
        pulsar.brokers[1].runtime["loadBalancerHostUsageCheckIntervalMinutes"] = minutes
        now = [time.time()]
        with engine(settings(pulsar, tmp_path, avg_shedder={}), timebase=Timebase(lambda: now[0])) as balancer:
            balancer.turn()
            now[0] += 1200
            record = balancer.turn()
        assert record.facts is not None
        assert record.facts.evidence.paired.tolist() == [Reason.NO_NEW_SAMPLE.code] * 3

    def test_no_report_at_all(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """An error for exit 3, and still a sentence."""
        pulsar.fault("load-report", refused(500, "boom"))
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert isinstance(record.error, ObserveError)
        assert "and 2 more" in record.sentence

    def test_a_dead_broker_that_is_still_listed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Refused connections: missing, and never a destination."""
        third = pulsar.ids[2]
        pulsar.kill(third)
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[third] is Reason.REPORT_MISSING
        assert all(outcome.unload.destination != third for outcome in record.moves.outcomes)

    def test_the_first_sample_after_a_start(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker that started a moment ago stays out of pairing; the others are compared."""
        pulsar.brokers[0].started_at = time.time() - 10
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[pulsar.ids[0]] is Reason.FIRST_SAMPLE
        assert all(outcome.unload.source != pulsar.ids[0] for outcome in record.moves.outcomes)

    @pytest.mark.parametrize("usage", ["NaN", -5.0, 5000.0])
    def test_an_impossible_number(self, usage: object, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It never moves a bundle."""
        pulsar.brokers[0].report = {"cpu": {"usage": usage, "limit": 100.0}}
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[pulsar.ids[0]] is Reason.IMPOSSIBLE_NUMBER
        assert all(outcome.unload.source != pulsar.ids[0] for outcome in record.moves.outcomes)

    def test_2_11_keeps_its_memory(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A report without a start time is readable in the next turn, too, and counts on."""
        chosen = patient(pulsar, tmp_path)
        for broker in pulsar.brokers:
            broker.report = {"startTimestamp": "NaN"}
        assert once(chosen).error is None
        pulsar.sample(81.0, 46.0, 11.0)
        record = once(chosen)
        assert record.error is None
        assert record.moves.outcomes != ()


class TestMemory:
    def test_hits_add_up_over_turns(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Two in a row at the high threshold: the first turn counts, the second one moves."""
        chosen = patient(pulsar, tmp_path)
        first = once(chosen)
        unmoved(pulsar, first)
        assert set(reasons(first).values()) == {Reason.WAITING}
        assert StateDir(chosen.state_dir).load().hits[pulsar.ids[0]] == Hits(1, 1)
        pulsar.sample(81.0, 46.0, 11.0)
        assert {outcome.result for outcome in once(chosen).moves.outcomes} == {Result.LANDED}
        assert StateDir(chosen.state_dir).load().hits == {}

    def test_one_sample_counts_once(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """However often lbd polls, a sample that was seen is no new evidence."""
        chosen = patient(pulsar, tmp_path)
        for _ in range(4):
            record = once(chosen)
        unmoved(pulsar, record)
        assert set(reasons(record).values()) == {Reason.NO_NEW_SAMPLE}
        assert StateDir(chosen.state_dir).load().hits[pulsar.ids[0]] == Hits(1, 1)

    def test_a_gap_begins_the_count_anew(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Hits in a row are none over an hour."""
        chosen = patient(pulsar, tmp_path)
        once(chosen)
        state = StateDir(chosen.state_dir)
        state.save(msgspec.structs.replace(state.load(), written_at=time.time() - 3600))
        pulsar.sample(81.0, 46.0, 11.0)
        unmoved(pulsar, once(chosen))
        assert state.load().hits[pulsar.ids[0]] == Hits(1, 1)

    def test_a_restarted_broker_settles_first(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its start time changed: it takes no hit until its second fresh sample."""
        chosen = settings(pulsar, tmp_path, avg_shedder={"hit_count_high": 2})
        once(chosen)
        pulsar.brokers[0].started_at += 1000
        pulsar.sample(81.0, 46.0, 11.0)
        record = once(chosen)
        unmoved(pulsar, record)
        assert Reason.SETTLING in reasons(record).values()

    def test_averages_are_kept(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Each fresh sample adds one."""
        chosen = patient(pulsar, tmp_path)
        once(chosen)
        pulsar.rates.update(dict.fromkeys(HOT, 3000.0))
        pulsar.sample(81.0, 46.0, 11.0)
        record = once(chosen)
        assert record.facts is not None
        at = record.facts.averages.bundles.index(record.plan.unloads[0].bundle)
        assert record.facts.averages.short[at, :2].sum() == (2000.0 + 6000.0) / 2

    def test_an_open_intent_of_a_killed_lbd_is_closed_first(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The journal has its outcome before anything new is planned, and the bundle rests."""
        chosen = settings(pulsar, tmp_path)
        opened = Journal(state_begun(chosen.state_dir).store, lambda: time.time() - 100)
        opened.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[2], 2000.0, 200_000.0), 1)
        opened.close()
        record = once(chosen)
        assert journal(tmp_path)[1]["result"] == "failed"
        assert read(chosen.state_dir / "lbd.db").open == ()
        assert HOT[0] not in {unload.bundle for unload in record.plan.unloads}

    def test_a_second_lbd_is_refused(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One works on a state directory; the cluster is not even asked."""
        chosen = settings(pulsar, tmp_path)
        with StateDir(chosen.state_dir).locked(), pytest.raises(RefusedError, match="another lbd"):
            once(chosen)
        assert pulsar.requests == []

    @pytest.mark.parametrize("name", [MEMORY, AVERAGES])
    def test_a_damaged_value_never_raises_out_of_a_turn(self, name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Counters that cannot be read stop the turn in words; averages are done without."""
        chosen = settings(pulsar, tmp_path)
        put_value(chosen.state_dir, name, b"PK\x03\x04 half\n")
        record = once(chosen)
        assert "bug" not in record.sentence
        assert (record.error is not None) is (name == MEMORY)


class TestErrors:
    def test_a_bug_in_a_strategy_ends_in_a_sentence(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A turn never raises; the bug is told by its type and text, with exit code 1."""

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("half of nothing")

        monkeypatch.setattr("lbd.turn.strategy_config.configured_strategy", lambda *_, **__: broken)
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert record.sentence == "No move: bug in lbd, please report it: ZeroDivisionError: half of nothing"
        assert type(record.error) is LbdError
        assert record.error.exit_code == 1

    @pytest.mark.parametrize(
        ("manager", "named"),
        [
            ("org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl", "SimpleLoadManagerImpl"),
            ("org.apache.pulsar.broker.loadbalance.NoopLoadManager", "NoopLoadManager"),
        ],
    )
    def test_another_load_manager(self, manager: str, named: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Recognised, named, and what to do about it; exit 3."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": manager}
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert isinstance(record.error, ObserveError)
        assert f"runs {named}, which lbd does not support yet" in record.sentence
        assert "set loadManagerClassName=" in record.sentence

    def test_the_extensible_load_manager_without_an_address(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its load data come by another protocol: the setting is named."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": EXTENSIBLE}
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert isinstance(record.error, ObserveError)
        assert "pulsar.service_url is not set; wanted pulsar://host:6650" in record.sentence

    def test_401(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The setting is named."""
        pulsar.authorization = "Bearer right"
        record = once(settings(pulsar, tmp_path))
        unmoved(pulsar, record)
        assert isinstance(record.error, AdminError)
        assert "pulsar.token_file" in record.sentence

    def test_401_of_one_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A token that only some brokers know is told, not taken for a missing report."""
        pulsar.fault("load-report", refused(401, "Unauthorized"), broker=pulsar.ids[1])
        assert "pulsar.token_file" in once(settings(pulsar, tmp_path)).sentence

    def test_with_the_token(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Every request carries it, over every redirect."""
        pulsar.authorization = "Bearer right"
        (tmp_path / "token").write_text("right\n", encoding="utf-8")
        reach = {"admin_urls": pulsar.urls[:1], "token_file": tmp_path / "token"}
        record = once(settings(pulsar, tmp_path, pulsar=reach))
        assert {outcome.result for outcome in record.moves.outcomes} == {Result.LANDED}
        assert {one.authorization for one in pulsar.requests} == {"Bearer right"}
        assert "right" not in json.dumps(journal(tmp_path)).replace("right now", "")

    def test_with_an_access_token(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One token of the issuer is enough for all requests of a turn; neither it nor the secret is stored."""
        pulsar.authorization = "Bearer access-token-1"
        with issuing() as issuer:
            client = {"issuer_url": issuer.url, "private_key_file": key_file(tmp_path / "key.json")}
            record = once(settings(pulsar, tmp_path, pulsar={"admin_urls": pulsar.urls[:1], "oauth2": client}))
        assert {outcome.result for outcome in record.moves.outcomes} == {Result.LANDED}
        assert {one.authorization for one in pulsar.requests} == {"Bearer access-token-1"}
        assert issuer.issued == 1
        kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
        assert issuer.token.encode() not in kept
        assert issuer.secret.encode() not in kept

    def test_with_an_issuer_that_hangs(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The turn waits for one answer of it, not for one for each request, and says whose fault it is."""
        with issuing(hanging=threading.Event()) as issuer:
            client = {"issuer_url": issuer.url, "private_key_file": key_file(tmp_path / "key.json")}
            reach = {"admin_urls": pulsar.urls, "oauth2": client, "read_timeout_seconds": 1}
            record = once(settings(pulsar, tmp_path, pulsar=reach))
            assert len(issuer.paths) == 1
        unmoved(pulsar, record)
        assert f"{issuer.url}: no access token" in record.sentence

    def test_nobody_there(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A cluster that is down is an error in words."""
        chosen = settings(pulsar, tmp_path)
        for broker in list(pulsar.ids):
            pulsar.kill(broker)
        record = once(chosen)
        assert isinstance(record.error, AdminError)
        assert "connection refused" in record.sentence


class TestDryRun:
    def test_it_says_what_would_be_moved(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Hit counts are taken as reached; the plan is that of the turn that would act."""
        chosen = patient(pulsar, tmp_path)
        record = dry_run(chosen)
        assert record.sentence.startswith("Would move 3 bundles")
        pulsar.requests.clear()
        acted = once(settings(pulsar, tmp_path))
        assert record.plan.unloads == acted.plan.unloads

    def test_it_changes_nothing(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Only GETs, no lookup, and no state directory."""
        owners = dict(pulsar.owners)
        dry_run(settings(pulsar, tmp_path))
        assert {one.method for one in pulsar.requests} == {"GET"}
        assert pulsar.asked("/schemas/") == []
        assert pulsar.owners == owners
        assert list(tmp_path.iterdir()) == []

    def test_it_answers_although_the_brokers_shed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """In-broker shedding would only hide the answer."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadBalancerSheddingEnabled": "true"}
        assert len(dry_run(settings(pulsar, tmp_path)).plan.unloads) == 3

    def test_it_reads_a_daemons_memory_and_leaves_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Hit counts so far and cool-downs are shown; the files stay as they were."""
        chosen = patient(pulsar, tmp_path)
        once(chosen)
        before = {path: path.read_bytes() for path in chosen.state_dir.rglob("*") if path.is_file()}
        record = dry_run(chosen)
        assert record.turn_memory is not None
        assert record.turn_memory.hits[pulsar.ids[0]] == Hits(1, 1)
        assert {path: path.read_bytes() for path in chosen.state_dir.rglob("*") if path.is_file()} == before

    def test_a_broken_memory_is_done_without(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It belongs to somebody else."""
        chosen = settings(pulsar, tmp_path)
        put_value(chosen.state_dir, MEMORY, b"half")
        assert dry_run(chosen).sentence.startswith("Would move 3 bundles")


TWO_NAMES = "t/c/n/0x00000000_0xffffffff"
"""A bundle of a namespace of Pulsar's first version: ``tenant/cluster/namespace``."""


class FullDisk:
    """A store on a disk that is full after so many entries."""

    def __init__(self, store: Any, entries: int) -> None:
        self._store, self._left = store, entries

    def write(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        """Write, while there is room."""
        if self._left == 0:
            raise UsageError("lbd.db: store cannot be read or written: database or disk is full")
        self._left -= 1
        self._store.write(statement, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TestReports:
    def test_2_11_counts_a_sample_once(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Without a start time, too, a second look at the same reports is no second hit."""
        chosen = patient(pulsar, tmp_path)
        for broker in pulsar.brokers:
            broker.report = {"startTimestamp": "NaN"}
        unmoved(pulsar, once(chosen))
        second = once(chosen)
        unmoved(pulsar, second)
        assert set(reasons(second).values()) == {Reason.NO_NEW_SAMPLE}
        assert StateDir(chosen.state_dir).load().hits[pulsar.ids[0]] == Hits(1, 1)

    @pytest.mark.parametrize("secure", [False, True], ids=["plain address", "both addresses"])
    def test_a_report_of_another_broker(self, secure: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Whoever answers must be who was asked: another broker's report is not used, and whose it is is said.

        Were it the leader, nothing would move: what it runs with would be the other one's, too.
        """
        first, second, third = pulsar.ids
        pulsar.leader = third
        other = {
            "webServiceUrl": f"http://{third}",
            **({"webServiceUrlTls": "https://127.0.0.3:8443"} if secure else {}),
        }
        pulsar.broker(second).report = other
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[second] is Reason.REPORT_MISSING
        assert third in next(skip.detail for skip in record.skips if skip.what == second)
        assert {(one.unload.source, one.unload.destination) for one in record.moves.outcomes} == {(first, third)}

    def test_a_report_of_another_broker_is_never_a_ground_to_move(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """An address before several brokers shows the hot one twice: nothing goes to or from who was not heard."""
        first, _, third = pulsar.ids
        pulsar.broker(third).report = {"webServiceUrl": f"http://{first}"}
        record = once(settings(pulsar, tmp_path))
        assert reasons(record)[third] is Reason.REPORT_MISSING
        assert third not in {unload.destination for unload in record.plan.unloads}


class TestAddresses:
    def test_another_name_of_the_owner(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """An admin URL that is no broker's id reaches the owner itself: its bundles move, and each is proven."""
        first, _, third = pulsar.ids
        reach = {"admin_urls": [f"http://localhost:{first.rpartition(':')[2]}"]}
        record = once(settings(pulsar, tmp_path, pulsar=reach))
        assert record.error is None
        assert [(one.result, one.owner) for one in record.moves.outcomes] == [(Result.LANDED, third)] * 3
        assert {pulsar.owners[one.unload.bundle] for one in record.moves.outcomes} == {third}

    def test_a_leader_that_tells_its_secure_address(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The leader's https address is of no use to an lbd that talks http: it is reached by its id."""
        leader = {"serviceUrl": "https://127.0.0.2:8443", "brokerId": pulsar.leader}
        pulsar.fault("leaderBroker", ok(leader))
        record = once(settings(pulsar, tmp_path))
        assert {one.result for one in record.moves.outcomes} == {Result.LANDED}


class TestDeadLeader:
    def test_it_is_a_hold(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A dead leader is named for a session time-out: nothing fires, nothing is attempted, nothing rests for it."""
        chosen = patient(pulsar, tmp_path)
        second = pulsar.ids[1]
        pulsar.kill(second)
        for extra in range(4):
            for broker, usage in ((0, 80.0), (2, 10.0)):
                pulsar.brokers[broker].cpu = usage + extra
            record = once(chosen)
            unmoved(pulsar, record)
            assert record.error is None
            assert held_by(record) is Reason.LEADER_UNREACHABLE
        assert StateDir(chosen.state_dir).load().hits[pulsar.ids[0]].high == 1
        assert read(chosen.state_dir / "lbd.db").attempted_at == {}

    def test_the_next_leader_ends_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """As soon as another broker leads, the next sample moves."""
        chosen = patient(pulsar, tmp_path)
        pulsar.kill(pulsar.ids[1])
        for extra in range(3):
            pulsar.brokers[0].cpu = 80.0 + extra
            unmoved(pulsar, once(chosen))
        pulsar.leader = pulsar.ids[0]
        pulsar.brokers[0].cpu = 85.0
        assert {one.result for one in once(chosen).moves.outcomes} == {Result.LANDED}


class TestWhatIsGone:
    def test_an_open_intent_on_a_namespace_that_was_deleted(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody owns what is gone: the intent is closed, this turn goes on, and so do all that follow."""
        now = [0.0]
        monkeypatch.setattr(
            live, "CLOCK", ActClock(lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds))
        )
        chosen = settings(pulsar, tmp_path)
        gone = Unload("gone/ns/0x00000000_0xffffffff", pulsar.ids[0], pulsar.ids[2], 2000.0, 200_000.0)
        opened = Journal(state_begun(chosen.state_dir).store, time.time)
        opened.intend(gone, 1)
        opened.close()
        record = once(chosen)
        assert record.error is None
        assert journal(tmp_path)[1]["result"] == "gone"
        assert read(chosen.state_dir / "lbd.db").open == ()
        assert {one.result for one in record.moves.outcomes} == {Result.GONE}
        lines = len(journal(tmp_path))
        pulsar.sample(81.0, 46.0, 11.0)
        assert once(chosen).error is None
        assert len(journal(tmp_path)) >= lines
        assert [line for line in journal(tmp_path)[2:] if line.get("bundle") == gone.bundle] == []


class TestFullDisk:
    def test_what_was_done_is_told(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The journal takes the first move and not the second: the turn ends there, and tells the first one."""
        with engine(settings(pulsar, tmp_path)) as balancer:
            balancer._real.journal._store = FullDisk(balancer._real.journal._store, entries=2)
            record = balancer.once()
        assert [(one.result, one.owner) for one in record.moves.outcomes] == [(Result.LANDED, pulsar.ids[2])]
        assert isinstance(record.error, LbdError)
        assert "disk is full" in str(record.error)
        assert not record.sentence.startswith("No move")
        assert len(pulsar.asked("/unload", "PUT")) == 2
        assert [line["event"] for line in journal(tmp_path)] == ["intent", "outcome"]

    def test_nothing_is_sent_without_an_intent(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A disk that is full from the beginning: no unload, and an error that names the journal."""
        with engine(settings(pulsar, tmp_path)) as balancer:
            balancer._real.journal._store = FullDisk(balancer._real.journal._store, entries=0)
            record = balancer.once()
        unmoved(pulsar, record)
        assert "lbd.db" in str(record.error)


class TestManyNamespaces:
    def test_requests_for_groups_are_bounded(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two namespaces a turn here: the bundles of the others stay in it, as their groups are not known."""
        monkeypatch.setattr("lbd.turn.turn.NAMESPACES_A_TURN", 2)
        spread = {f"m/{number}/0x00000000_0xffffffff": 1500.0 for number in range(8)}
        pulsar.own(None, dict.fromkeys(HOT, 0.0))
        pulsar.own(pulsar.ids[0], spread)
        record = once(settings(pulsar, tmp_path))
        assert len(pulsar.asked("/antiAffinity", "GET")) == 2 + 2 * len(record.moves.outcomes)
        assert {one.result for one in record.moves.outcomes} == {Result.LANDED}
        assert record.plan.counts[Reason.POLICY_UNKNOWN.label] > 0


class TestBarredFirst:
    def test_a_grouped_namespace_does_not_stand_in_the_way(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its largest bundle is passed over before choosing, so the others fill the amount in this very turn."""
        grouped = "g/x/0x00000000_0xffffffff"
        first, _, third = pulsar.ids
        pulsar.own(first, {grouped: 7500.0})
        pulsar.own(third, {"g/y/0x00000000_0xffffffff": 1.0})
        pulsar.policies.groups = {"g/x": "rack-a", "g/y": "rack-a"}
        record = once(settings(pulsar, tmp_path))
        assert pulsar.owners[grouped] == first
        assert record.plan.counts[Reason.ANTI_AFFINITY.label] == 1
        assert {(one.result, one.owner) for one in record.moves.outcomes} == {(Result.LANDED, third)}
        assert len(record.moves.outcomes) == 7
        assert {one.unload.bundle for one in record.moves.outcomes} <= set(HOT)

    def test_a_bundle_of_the_first_version_stays(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A name with a cluster in it is not asked about and not moved: its policies cannot be told."""
        pulsar.own(pulsar.ids[0], {TWO_NAMES: 1500.0})
        record = once(settings(pulsar, tmp_path))
        assert record.error is None
        assert record.plan.counts[Reason.NAME_WITH_CLUSTER.label] == 1
        assert pulsar.owners[TWO_NAMES] == pulsar.ids[0]
        assert {one.result for one in record.moves.outcomes} == {Result.LANDED}

    @pytest.mark.parametrize("excluded", [True, False])
    def test_what_moved_lately_rests_for_others_that_can_go_only(
        self, excluded: bool, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Most of the traffic is of another namespace; where that may not be touched the rest goes once more."""
        monkeypatch.setattr("lbd.permit.ping_pong.SECOND_MOVE_POINTS", 1000)
        chosen = settings(
            pulsar,
            tmp_path,
            guardrails={
                "excluded_namespaces": ["x/y"] if excluded else [],
                "max_destination_score": 100,
            },
        )
        first, second, _ = pulsar.ids
        pulsar.own(first, {"x/y/0x00000000_0xffffffff": 100_000.0})
        past = Journal(state_begun(chosen.state_dir).store, lambda: time.time() - 3600)
        for bundle in HOT:
            unload = Unload(bundle, second, first, 1.0, 1.0)
            past.conclude(past.intend(unload, 1), Outcome(unload, Result.LANDED, first))
        past.close()
        record = once(chosen)
        assert (Reason.PING_PONG.label in record.plan.counts) != excluded, record.plan.counts
        assert any(one.unload.bundle in HOT for one in record.moves.outcomes) == excluded


class TestDryRunMore:
    @pytest.mark.parametrize("mode", ["refuse", "take-over"])
    def test_beside_brokers_that_shed(self, pulsar: FakePulsar, tmp_path: Path, mode: str) -> None:
        """What would move, and that it could not be moved now; with take-over lbd would turn their shedding off."""
        for broker in pulsar.brokers:
            broker.runtime["loadBalancerSheddingEnabled"] = "true"
        told = dry_run(settings(pulsar, tmp_path, in_broker_shedding=mode)).sentence
        assert told.startswith("Would move 3 bundles if the imbalance lasts")
        assert ("but not now: in-broker-shedding" in told) == (mode == "refuse")

    def test_a_memory_that_cannot_be_looked_at(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A state directory below a file, or with a name that no file system takes, is done without."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        for folder in (tmp_path / "file" / "state", tmp_path / ("x" * 300)):
            record = dry_run(settings(pulsar, tmp_path, state_dir=folder))
            assert record.error is None
            assert record.sentence.startswith("Would move 3 bundles")

    def test_in_broker_shedding_is_said(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The plan is shown all the same, and beside it why lbd would not act on it."""
        pulsar.brokers[1].runtime = {"loadBalancerSheddingEnabled": "true"}
        record = dry_run(settings(pulsar, tmp_path))
        assert len(record.plan.unloads) == 3
        assert Reason.IN_BROKER_SHEDDING in reasons(record).values()

    def test_an_unreadable_averages_row_never_moves(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A bundle whose rate was NaN once is planned by its good samples afterwards."""
        chosen = patient(pulsar, tmp_path)
        stats = pulsar.report(pulsar.ids[0])["lastStats"]
        stats[HOT[0]]["msgRateIn"] = "NaN"
        pulsar.brokers[0].report["lastStats"] = stats
        once(chosen)
        pulsar.brokers[0].report.clear()
        pulsar.sample(81.0, 46.0, 11.0)
        record = once(chosen)
        assert HOT[0] in {unload.bundle for unload in record.plan.unloads}


PATIENT = {"hit_count_low": 3, "hit_count_high": 1000}


@pytest.mark.parametrize(
    ("before", "moves"),
    [
        ({"avg_shedder": {"low_threshold": 15, **PATIENT}}, True),
        ({"avg_shedder": {"low_threshold": 15, "hit_count_low": 30, "hit_count_high": 1000}}, True),
        ({"avg_shedder": {"low_threshold": 1, **PATIENT}}, False),
        ({"strategy": "least-moves", "least_moves": {"low_threshold": 1, **PATIENT}}, False),
        ({"weights": {"cpu": 5}, "avg_shedder": {"low_threshold": 15, **PATIENT}}, False),
    ],
    ids=["the same", "another number of hits", "a lower threshold", "another strategy", "another weight"],
)
def test_hits_are_evidence_of_the_settings_that_counted_them(before: dict[str, Any], moves: bool, tmp_path: Path):
    """Whoever raises a threshold wants bundles to move for less no more: it begins to count with the next sample."""
    with fake_pulsar.started() as cluster:
        cluster.own(cluster.ids[0], dict.fromkeys(HOT_BUNDLES, 1000.0))
        for more in (0.1, 0.2):
            cluster.sample(*((80 + more, 45, 10) if moves else (30 + more, 25 + more, 20 + more)))
            assert once(settings(cluster, tmp_path, **before)).plan.unloads == ()
        cluster.sample(80.3, 45.3, 10.3)
        after = settings(cluster, tmp_path, avg_shedder={"low_threshold": 15, **PATIENT})
        assert bool(once(after).plan.unloads) is moves
