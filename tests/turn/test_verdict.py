"""What a turn comes to: a table of situations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.errors import ObserveError
from lbd.load.scoring import Weights
from lbd.model import Hits, Outcome, Result, Skip, Snapshot, Unload
from lbd.observe.observer import Observation
from lbd.permit.evidence import Sample, judge
from lbd.permit.facts import Facts
from lbd.permit.membership import Membership
from lbd.permit.policies import Policies, parse_isolation
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from lbd.store.turn_record import Verdict
from lbd.turn.next_steps import next_steps
from lbd.turn.parts import TurnResult
from lbd.turn.plan import Chosen, Planning, plan
from lbd.turn.verdict import sentence, verdict
from tests.builders import TAKEN_AT, bundle, first_averages, report, snapshot, stats
from tests.turn.records import COLD, HOT, altered, record, two

if TYPE_CHECKING:
    from lbd.observe.parse import LoadReport
    from lbd.store.turn_record import Kind


AT_ONCE = {"hit_count_low": 1, "hit_count_high": 1}
PAUSED = (Reason.PAUSED, "by alice until lbd resume")
UNLOAD = Unload(bundle(0), HOT, COLD, 100.0, 1e4)


def told(found: Verdict) -> tuple[str, str | None]:
    """Kind and reason."""
    return found.kind, found.reason


@pytest.mark.parametrize(
    ("seen", "changes", "wanted"),
    [
        (two(30, 20), {}, ("balanced", None)),
        (two(), {}, ("waiting", "waiting")),
        (two(), {"settings": AT_ONCE}, ("moving", None)),
        (two(30, 20), {"unfinished": (UNLOAD,)}, ("moving", None)),
        (two(30, 20), {"hold": (Reason.MOVES_UNFINISHED, "1"), "unfinished": (UNLOAD,)}, ("moving", None)),
        (two(), {"hold": (Reason.MOVES_UNFINISHED, "a drain")}, ("waiting", "moves-unfinished")),
        (two(), {"hold": PAUSED}, ("blocked", "paused")),
        (two(), {"hold": (Reason.NOT_LEADER, "lbd-2 leads")}, ("held", "not-leader")),
        (two(), {"hold": (Reason.OBSERVE_ONLY, "")}, ("held", "observe-only")),
        (two(), {"settings": AT_ONCE, "acts": False}, ("held", "observe-only")),
        (two(), {"settings": AT_ONCE, "acts": False, "eager": True}, ("moving", None)),
        (two(30, 20), {"hold": PAUSED}, ("balanced", None)),
        (two(30, 20), {"hold": (Reason.MEMBERSHIP_CHANGED, "")}, ("held", "membership-changed")),
        (two(rates=(5000.0, 1.0)), {"settings": AT_ONCE, "permitted": {"barred": {bundle(1): Reason.COOL_DOWN}}},
         ("not-fixable", "too-large")),
        (two(), {"settings": AT_ONCE, "permitted": {"barred": {bundle(n): Reason.COOL_DOWN for n in range(8)}}},
         ("blocked", "cool-down")),
        (two(), {"settings": AT_ONCE, "permitted": {"barred": {bundle(n): Reason.POLICY_UNKNOWN for n in range(8)}}},
         ("not-fixable", "policy-unknown")),
        (two(rates=(5000.0,)), {"settings": AT_ONCE}, ("not-fixable", "sole-bundle")),
        (two(rates=(50.0,) * 8), {"settings": AT_ONCE}, ("not-fixable", "below-minimum")),
        (two(rates=(10.0,) * 8), {}, ("not-fixable", "background-load")),
        ({HOT: report(80.0)}, {}, ("unknown", "too-few-brokers")),
    ],
)  # fmt: skip
def test_each_situation_has_its_word(
    seen: dict[str, LoadReport], changes: dict[str, Any], wanted: tuple[str, str | None]
):
    """Balanced, waiting, moving, held by what, not fixable for what reason, unknown."""
    assert told(verdict(record(seen, **changes))) == wanted


@pytest.mark.parametrize(
    ("hits", "difference", "samples"),
    [
        (Hits(), 60.0, 1),
        (Hits(), 30.0, 7),
        (Hits(5, 0), 30.0, 2),
        (Hits(6, 0), 60.0, 1),
    ],
)
def test_how_many_samples_a_pair_waits_for(hits: Hits, difference: float, samples: int):
    """After this turn's: two at the high threshold, eight at the low one, whichever is nearer."""
    found = verdict(record(two(20.0 + difference, 20.0), hits={HOT: hits}))
    assert (found.kind, found.samples) == ("waiting", samples)
    assert found.words.startswith(f"waiting for {samples} more fresh sample")


def test_a_pair_that_settles_waits_for_that_first():
    """A broker that needs two samples more counts the second of them as its first hit."""
    seen = two()
    before = {broker: Sample((0.0, 0.0, 0.0), -1.0, distinct=9) for broker in seen}
    found = record(seen, samples=before, permitted={"settled": [False, False]})
    assert found.facts is not None
    assert {sample.to_settle for sample in found.facts.evidence.samples.values()} == {2}
    assert (verdict(found).kind, verdict(found).reason, verdict(found).samples) == ("waiting", "settling", 9)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.TURN_TRAFFIC, "blocked"),
        (Reason.DESTINATION_OVERLOADED, "not-fixable"),
        (Reason.TOPIC_LIMIT, "not-fixable"),
        (Reason.ANTI_AFFINITY, "not-fixable"),
    ],
)
def test_a_plan_that_was_refused_as_a_whole(reason: Reason, kind: str):
    """By a limit, which lets go with time; or by what moving cannot mend."""
    found = record(two(), settings=AT_ONCE)
    refused = tuple(Skip(unload.bundle, reason, "why") for unload in found.plan.unloads)
    assert len(refused) > 1
    judged = verdict(altered(found, unloads=(), skips=refused))
    assert (judged.kind, judged.reason) == (kind, reason.label)
    assert f"{len(refused)} bundles chosen, the first: why" in judged.words


def test_of_several_pairs_the_one_that_something_will_come_of():
    """The outer pair has a sole bundle, the inner one waits."""
    seen = {
        "a:1": report(95.0, {bundle(0): two()[HOT].last_stats[bundle(0)]}),
        **{f"{name}:1": one for name, one in zip("bc", two(65, 30).values(), strict=True)},
        "d:1": report(5.0),
    }
    assert verdict(record(seen, settings={"hit_count_high": 1})).kind == "waiting"


FULL = "87 of 30 used, the next one in 50 min (guardrails.max_unloads_per_hour)"
ENDS = f"{HOT} -> {COLD}"
BLOCKED = {ENDS: Skip(ENDS, Reason.HOUR_UNLOADS, FULL)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocked": BLOCKED}, f"blocked by unloads-per-hour: {ENDS} 60.0 points apart; {FULL}"),
        ({"blocked": BLOCKED, "settings": AT_ONCE, "unloads": ()},
         f"blocked by unloads-per-hour: {ENDS} 60.0 points apart; {FULL}"),
        ({"blocked": BLOCKED, "settings": AT_ONCE}, "moving: 3 begun"),
        ({"blocked": BLOCKED, "unfinished": (Unload(bundle(9), "b:1", "c:1", 1.0, 1.0),)},
         f"moving: 1 under way; {ENDS} 60.0 points apart, blocked by unloads-per-hour: {FULL}"),
    ],
    ids=["while it waits", "when it fires", "its own moves are begun", "others are moved"],
)  # fmt: skip
def test_a_pair_that_can_move_nothing_at_present(changes: dict[str, Any], words: str):
    """Whether or not it would fire, a used-up budget or resting bundles block it."""
    assert verdict(record(two(), **changes)).words == words


def test_a_pair_that_moving_cannot_help_is_not_blocked():
    """More budget would not help it."""
    found = record(two(rates=(5000.0,)), settings=AT_ONCE, blocked=BLOCKED)
    assert told(verdict(found)) == ("not-fixable", "sole-bundle")


def test_the_headline_names_the_widest_pair_and_the_blocked_one():
    """Beside each other, in the sentence and in the verdict."""
    middle = {f"{name}:1": one for name, one in zip("bc", two(65, 30).values(), strict=True)}
    inner, full = "b:1 -> c:1", "2 of 2 used"
    seen = {"a:1": report(95.0, {bundle(100): two()[HOT].last_stats[bundle(0)]}), **middle, "d:1": report(5.0)}
    found = record(seen, settings={"hit_count_high": 2}, blocked={inner: Skip(inner, Reason.HOUR_UNLOADS, full)})
    widest = "a:1 -> d:1: {}waiting (low samples 1/8, high samples 1/2)"
    assert sentence(found) == (
        f"No move: {widest.format('')}; {inner} 35.0 points apart, blocked by unloads-per-hour: {full}."
    )
    assert verdict(found).words == (
        f"blocked by unloads-per-hour: {inner} 35.0 points apart; {full}; and waiting for 1 more fresh sample: "
        "a:1 -> d:1 90.0 points apart; low samples 1/8, high samples 1/2"
    )


def test_the_widest_pair_is_named_though_all_its_bundles_were_refused():
    """Not the next one, that only waits."""
    found = record(two(), settings=AT_ONCE, unloads=())
    refused = Skip(found.plan.decision.unloads[0].bundle, Reason.DESTINATION_OVERLOADED, "cold would reach 90")
    narrow = Skip("a:1 -> b:1", Reason.WAITING, "low samples 1/8")
    assert sentence(altered(found, skips=(narrow, refused))).startswith(f"No move: {ENDS}: destination-overloaded (")


def test_a_hold_is_told_with_the_widest_pair():
    """In the sentence, too."""
    told = sentence(record(two(), hold=PAUSED))
    assert told == f"No move: paused: by alice until lbd resume; {ENDS} are 60.0 points apart."


def test_a_turn_that_saw_nothing_is_unknown_and_says_why():
    """With the error's own line."""
    found = verdict(TurnResult(error=ObserveError("GET http://b:8080: connection refused")))
    assert found.words == "unknown: GET http://b:8080: connection refused"


def test_the_words_a_person_reads():
    """Head, then detail with names and numbers."""
    held = verdict(record(two(), hold=PAUSED))
    assert (
        held.words == f"blocked while lbd is paused: by alice until lbd resume; {HOT} -> {COLD} are 60.0 points apart"
    )
    assert verdict(record(two(30, 20))).words == "balanced: largest difference 10.0 points, low threshold 15"


@pytest.mark.parametrize(
    ("kind", "reason", "wanted"),
    [
        ("blocked", Reason.COOL_DOWN, "blocked by cool-down"),
        ("blocked", Reason.PAUSED, "blocked while lbd is paused"),
        ("blocked", Reason.MEMBERSHIP_CHANGED, "blocked after a change of brokers"),
        ("blocked", Reason.STATE_LOST, "blocked because the state directory is lost"),
        ("held", Reason.NOT_LEADER, "held because this lbd does not lead"),
        ("held", Reason.APPROVAL_REQUIRED, "held until a person approves the plan"),
    ],
)
def test_a_thing_blocks_and_a_state_is_a_clause(kind: Kind, reason: Reason, wanted: str):
    """A label such as paused is no noun: ``by paused`` would be no sentence."""
    assert Verdict(kind, reason.label).words == wanted


def test_a_turn_that_was_waited_for_says_how_its_moves_ended():
    """Two of three were asked for, one landed; nothing is under way any more."""
    found = record(two(80, 20), hits={HOT: Hits(8, 1)})
    moves = found.plan.unloads
    ended = altered(
        found,
        outcomes=(Outcome(moves[0], Result.LANDED, COLD), Outcome(moves[1], Result.ELSEWHERE, "third:8080")),
        refused=tuple(Skip(move.bundle, Reason.ROUND_STOPPED) for move in moves[2:]),
    )
    assert len(moves) == 3
    assert verdict(found).words == "moving: 3 begun"
    assert verdict(ended).words == "moving: 1 landed, 1 landed-elsewhere, 1 not sent"


def test_balance_among_those_that_are_seen():
    """A broker that gives no report may be the one that burns."""
    found = record(two(30, 20))
    assert found.observation is not None
    seen = replace(found.observation, active=(COLD, HOT, "silent:8080"), missing={"silent:8080": "HTTP 500"})
    assert verdict(replace(found, observation=seen)).words == (
        "partial: 2 of 3 brokers are compared, largest difference 10.0 points, low threshold 15; "
        "not compared: silent:8080 (report-missing: HTTP 500)"
    )


def test_balance_among_those_that_are_trusted():
    """So may one whose report is not to be trusted."""
    seen = {**two(30, 20), "frozen:8080": report(95)}
    before = record(seen).facts
    assert before is not None
    samples = {"frozen:8080": before.evidence.samples["frozen:8080"]}
    out = np.array([0, Reason.NO_NEW_SAMPLE.code, 0], dtype=np.int8)
    assert verdict(record(seen, after_seconds=301, samples=samples, permitted={"paired": out})).words == (
        "partial: 2 of 3 brokers are compared, largest difference 10.0 points, low threshold 15; "
        "not compared: frozen:8080 (no-new-sample)"
    )


def test_the_sentence_names_who_was_not_compared():
    """Two that burn alike beside an empty one that has just joined are no balanced cluster."""
    seen = {**two(95.2, 95), "joined:8080": report(12)}
    out = np.array([0, 0, 0], dtype=np.int8)
    ids = record(seen).observation.snapshot.brokers.ids  # type: ignore[union-attr]
    out[ids.index("joined:8080")] = Reason.FIRST_SAMPLE.code
    found = record(seen, permitted={"paired": out})
    assert found.facts is not None
    found = replace(found, facts=replace(found.facts, evidence=replace(found.facts.evidence, paired=out)))
    compared = "2 of 3 brokers are compared, largest difference 0.2 points, low threshold 15"
    left = "not compared: joined:8080 (first-sample)"
    assert verdict(found).words == f"partial: {compared}; {left}"
    assert sentence(found) == f"No move: {compared}; {left}."


def test_pools_of_one_broker_are_the_policies_doing():
    """Each namespace may be on one broker alone: no move can mend that."""
    seen = two()
    found = record(seen)
    assert found.plan.decision is not None
    few = Skip("pool gold", Reason.TOO_FEW_BROKERS, "1 of 2 reports can be compared")
    alone = replace(found.plan.decision, skips=(few,), comparison=replace(found.plan.decision.comparison, pairs=()))
    judged = verdict(altered(found, decision=alone))
    assert judged.words == "no move possible, isolation-policy: pool gold: 1 of 2 reports can be compared"


ONE_POOL = {"gold": {"namespaces": ["t/.*"], "primary": ["hot|cold"]}}


TWO_POOLS = {"p": {"namespaces": ["p/n"], "primary": ["[ab]"]}, "q": {"namespaces": ["q/n"], "primary": ["[ac]"]}}


def pooled_turn(
    seen: Snapshot, policies: dict[str, Any], doubted: str = "", samples: int = 2, excluded: str = "", **known: Any
) -> TurnResult:
    """A turn within the pools of these policies; the report of ``doubted`` is not trusted."""
    evidence = judge({}, seen, Weights())
    doubts = [Reason.NO_NEW_SAMPLE.code if broker == doubted else 0 for broker in seen.brokers.ids]
    evidence = replace(evidence, paired=np.array(doubts, dtype=np.int8))
    allowed = Policies(parse_isolation(policies), active=seen.brokers.ids)
    facts = Facts(seen, first_averages(seen), evidence, allowed, Membership(seen.brokers.ids), **known)
    rails = Guardrails(excluded_namespaces=(excluded,) if excluded else ())
    rule = AvgShedderSettings(hit_count_high=samples)
    planning = Planning(build(rule, Weights()), Weights(), rails, Chosen(wanted_hits=rule.wanted_hits))
    observed, found = Observation(seen, "c", seen.brokers.ids, None), plan(planning, planning.case(facts))
    return TurnResult(observation=observed, facts=facts, plan=found, chosen=planning.chosen)


def test_a_pool_whose_reports_are_doubted_is_not_the_policies_doing():
    """Its two brokers could exchange bundles if both reports could be trusted: no person has to change a policy."""
    seen = snapshot({**two(85, 10), "spare:8080": report(5)})
    judged = verdict(found := pooled_turn(seen, ONE_POOL, doubted=COLD))
    assert (judged.kind, judged.reason) == ("unknown", "too-few-brokers")
    assert f"pool gold: 2 of 3 brokers are compared; not compared: {COLD} (no-new-sample)" in judged.detail
    assert "ns-isolation-policy" not in str(next_steps(found, Guardrails())[0].command)


@pytest.mark.parametrize(
    ("resting", "excluded", "wanted"),
    [
        ("p/n", "", ("blocked", "cool-down", "2 of 2 bundles with traffic may not move, the first one may in 25 min")),
        ("q/n", "p/n", ("not-fixable", "excluded-namespace", "none of 7 bundles may move")),
    ],
    ids=["its own rest", "those of the other pool rest"],
)
def test_bundles_of_another_pool_are_no_reason_of_a_pair(resting: str, excluded: str, wanted: tuple[str, str, str]):
    """Broker a is in two pools, and only p is uneven: q's bundles neither free its pair nor hold it."""
    own = {bundle(at, "p/n"): stats(3000) for at in range(2)} | {bundle(at, "q/n"): stats(500) for at in range(10, 15)}
    seen = snapshot(
        {
            "a:80": report(80, own),
            "b:80": report(20, {bundle(60, "p/n"): stats(10)}),
            "c:80": report(79, {bundle(50, "q/n"): stats(5000)}),
        }
    )
    attempted = {name: TAKEN_AT - 300 for name in own if name.startswith(resting)}
    samples = 1 if excluded else 2
    found = pooled_turn(seen, TWO_POOLS, samples=samples, excluded=excluded, attempted_at=attempted)
    judged = verdict(found)
    assert (judged.kind, judged.reason) == wanted[:2]
    assert wanted[2] in judged.detail
