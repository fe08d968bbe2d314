"""A plan that waits for approval: its name, how long it stands, and what of it stays."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.clock import Timebase
from lbd.daemon.engine import engine
from lbd.daemon.proposals import Proposals
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.manual import Standing
from lbd.decide.strategies import build
from lbd.errors import UsageError
from lbd.fields import derived
from lbd.load.scoring import Weights
from lbd.model import Hits, Memory, Unload
from lbd.reason import Reason
from lbd.store.control import Control, Pause, PlannedMove, PlanRequest, RequestResult
from lbd.store.predictions import Predictions
from lbd.store.proposal import PLAN_SECONDS, plan_id
from lbd.turn.record import plan_document, proposal
from lbd.turn.turn import turn
from lbd.turn.verdict import sentence, verdict
from lbd.turn.waves import Rest
from tests import test_turn
from tests.builders import TAKEN_AT, bundle, first_averages, permission, report, snapshot, stats
from tests.fake_pulsar import HOT as BUNDLES
from tests.turn.records import COLD, HOT, altered, record, two

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.daemon.engine import Engine
    from lbd.store.proposal import Proposal
    from lbd.turn.parts import Parts, TurnResult
    from tests.fake_pulsar import FakePulsar


AT_ONCE = {"hit_count_low": 1, "hit_count_high": 1}
MOVES = [Unload(bundle(number), HOT, COLD, 1.0, 1.0) for number in range(3)]


def asked(after_seconds: float = 0.0, **changes: Any) -> TurnResult:
    """A turn that proposes."""
    chosen = {"settings": AT_ONCE, "acts": False, "approval": True, **changes}
    return record(two(), after_seconds=after_seconds, **chosen)


@pytest.mark.parametrize(
    ("others", "same"),
    [
        (MOVES, True),
        (MOVES[::-1], True),
        ([replace(move, msg_rate=2.0, reason="another") for move in MOVES], True),
        (MOVES[:2], False),
        ([replace(MOVES[0], destination="other:8080"), *MOVES[1:]], False),
        ([replace(MOVES[0], source="other:8080"), *MOVES[1:]], False),
        ([], False),
    ],
    ids=["itself", "order", "rates and reasons", "fewer", "destination", "source", "none"],
)
def test_the_name_is_that_of_the_moves(others: list[Unload], same: bool):
    """Bundle, source and destination make it, and nothing else."""
    assert (plan_id(MOVES) == plan_id(others)) is same
    assert len(plan_id(others)) == 8


def test_what_is_told_of_it():
    """Each move with its reason and clients, scores now and after, and the words of the turn."""
    seen = asked(expected={HOT: 60.0, COLD: 40.0})
    found = proposal(seen)
    first = found.unloads[0]
    assert (found.id, found.made_at, found.expires_at) == (
        plan_id(seen.plan.unloads),
        TAKEN_AT,
        TAKEN_AT + PLAN_SECONDS,
    )
    assert found.expected == {HOT: 60.0, COLD: 40.0}
    assert (first.bundle, first.reason, found.clients) == (
        seen.plan.unloads[0].bundle,
        seen.plan.unloads[0].reason,
        2 * len(seen.plan.unloads),
    )
    told = plan_document(seen, found, "", Predictions(), proposed=True)
    assert (told["proposed"], told["id"], len(told["unloads"])) == (True, found.id, len(seen.plan.unloads))
    number = len(seen.plan.unloads)
    assert sentence(seen) == f"Proposes to move {number} bundles (plan {found.id}): lbd apply {found.id}."
    assert (
        verdict(seen).words
        == f"held until a person approves the plan: {number} bundles would move: lbd apply {found.id}"
    )


def after(*turns: TurnResult) -> tuple[Proposals, Proposal | None]:
    """What waits after these turns, at the time of the last one."""
    found = Proposals()
    for one in turns:
        found.after(one)
    return found, found.at(_at(turns[-1]))


def _at(one: TurnResult) -> float:
    return one.observation.snapshot.taken_at if one.observation is not None else TAKEN_AT + 30


def test_a_proposal_that_another_one_replaced_can_be_applied_until_it_expires():
    """Noise makes plans of equal worth follow one another; they end together where a turn plans nothing."""
    found, last = after(FIRST, FEWER)
    assert last is not None
    first = plan_id(FIRST.plan.unloads)
    for name in (first, last.id):
        kept = found.find(name, TAKEN_AT + PLAN_SECONDS - 0.1)
        assert kept is not None
        assert kept.id == name
    over = TAKEN_AT + PLAN_SECONDS
    assert (found.find(first, over), found.find(last.id, over)) == (None, last)
    assert after(FIRST, FEWER, altered(FEWER, unloads=()))[0].find(last.id, TAKEN_AT + 60) is None


FIRST = asked()
FEWER = altered(asked(60.0), unloads=FIRST.plan.unloads[1:])
CARRIED = altered(asked(60.0, settings={"hit_count_low": 9, "hit_count_high": 9}), unloads=FIRST.plan.unloads)


@pytest.mark.parametrize(
    ("then", "stays", "expires_after"),
    [
        (asked(60.0), True, 60.0 + PLAN_SECONDS),
        (CARRIED, True, PLAN_SECONDS),
        (FEWER, False, 60.0 + PLAN_SECONDS),
        (altered(asked(60.0), unloads=()), None, 0.0),
        (record(two(30, 20), after_seconds=60.0), None, 0.0),
        (asked(60.0, hold=(Reason.PAUSED, "by ann")), True, PLAN_SECONDS),
        (asked(60.0, hold=(Reason.NOT_LEADER, "b leads")), None, 0.0),
        (altered(FIRST, observation=None, decision=None, unloads=()), True, PLAN_SECONDS),
        (asked(PLAN_SECONDS, hold=(Reason.PAUSED, "by ann")), None, 0.0),
    ],
    ids=["again", "no evidence", "others", "none", "balanced", "held", "not leader", "blind", "expired"],
)
def test_a_proposal_stands(then: TurnResult, stays: bool | None, expires_after: float):
    """Until a turn plans otherwise, or for ten minutes after the last turn that planned it; None: nothing waits."""
    _, found = after(FIRST, then)
    if stays is None:
        assert found is None
    else:
        assert found is not None
        assert (found.id == plan_id(FIRST.plan.unloads)) is stays
        assert found.made_at == (TAKEN_AT if stays else TAKEN_AT + 60)
        assert found.expires_at == TAKEN_AT + expires_after


@pytest.mark.parametrize(("later_seconds", "stands"), [(-1.0, True), (-3600.0, False), (PLAN_SECONDS, False)])
def test_a_clock_that_was_set_back_keeps_no_proposal(later_seconds: float, stands: bool):
    """By an hour: else what one person has approved could be begun an hour later, by what the next one approves."""
    found, last = after(FIRST)
    assert last is not None
    assert (found.find(last.id, TAKEN_AT + later_seconds) is not None) is stands
    if later_seconds < -PLAN_SECONDS:
        found.after(asked(later_seconds))
        renewed = found.at(TAKEN_AT + later_seconds)
        assert renewed is not None
        assert renewed.expires_at == TAKEN_AT + later_seconds + PLAN_SECONDS
        found.after(altered(asked(later_seconds), unloads=FEWER.plan.unloads))
        assert found.find(last.id, TAKEN_AT + PLAN_SECONDS - 1) is None


def test_a_proposal_that_is_applied_or_whose_settings_change_is_gone():
    """Nobody can apply it again."""
    found, _ = after(FIRST)
    found.drop()
    assert found.at(TAKEN_AT) is None


SECOND, MILD = "second:8080", "mild:8080"
STANDING = {(bundle(100), SECOND, MILD): "as before", (bundle(0), HOT, COLD): "as before"}


@pytest.mark.parametrize(
    ("fresh", "changes", "wanted"),
    [
        ((), {}, {SECOND, HOT}),
        ((HOT, COLD), {}, {SECOND, HOT}),
        ((HOT, COLD), {"barred": {bundle(100): Reason.COOL_DOWN}}, {HOT}),
        ((), {"hold": Reason.PAUSED}, set()),
        ((), {"settled": [True, True, True, False]}, {HOT}),
    ],
    ids=["no evidence", "of one pair", "barred", "held", "restarted"],
)
def test_what_nothing_new_is_known_of_stays(fresh: tuple[str, ...], changes: dict[str, Any], wanted: set[str]):
    """Pairs sample at different times: one that fires replaces its own moves only, and all are judged anew."""
    own = {bundle(number): stats(500.0) for number in range(8)}
    more = {bundle(100 + number): stats(500.0) for number in range(8)}
    reports = {HOT: report(90.0, own), SECOND: report(70.0, more), COLD: report(10.0), MILD: report(30.0)}
    seen = snapshot(reports)
    counts = np.array([broker in fresh for broker in seen.brokers.ids])
    allowed = replace(permission(seen, **changes), counts=counts)
    strategy = Standing(build(AvgShedderSettings(), Weights()), STANDING, Weights())
    found = strategy(seen, first_averages(seen), allowed, Memory({HOT: Hits(7, 1)}))
    assert {unload.source for unload in found.unloads} == wanted
    kept = [unload for unload in found.unloads if unload.reason == "as before"]
    assert {unload.source for unload in kept} == wanted - ({HOT} if fresh else set())
    assert not kept or kept[0] == found.unloads[0]


# --- live turns

OTHERS_ONLY = {"p": {"namespaces": ["x/.*"], "primary": ["127[.]0[.]0[.]3"], "secondary": []}}


@pytest.fixture
def balancer(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Engine]:
    """A live lbd that asks, with two hits in a row at the high threshold, as Pulsar has it."""
    with engine(test_turn.settings(pulsar, tmp_path, mode="approve", avg_shedder={})) as found:
        yield found


def sampled(found: Engine, pulsar: FakePulsar, *, by: float) -> TurnResult:
    """A turn with a new sample of each broker."""
    pulsar.sample(80.0 + by, 45.0 + by, 10.0 + by)
    return found.turn()


def hits(found: Engine) -> set[tuple[int, int]]:
    """The counters that are kept."""
    return {(one.low, one.high) for one in found._real.memory.load().memory.hits.values()}


def applied(found: Engine, shown: Proposal | None = None, by: str = "ann", name: str = "p0") -> RequestResult:
    """The answer to somebody who applies what waits, or what was shown before, once its moves have ended."""
    told: dict[str, RequestResult] = {}
    found.requests.deliver = told.__setitem__
    plan, now = shown or found.proposal, found.timebase.now()
    assert plan is not None
    moves = [derived(PlannedMove, move) for move in plan.unloads]
    found.requests.submit(PlanRequest(name, plan.id, moves, "tonight", by, now, now + 60))
    found.serve()
    found.wait()
    return told[name]


def test_turns_propose_and_hand_nothing_over(balancer: Engine, pulsar: FakePulsar):
    """Counters go on as under a hold, so that each new sample proposes anew; no broker is asked to do anything."""
    assert balancer.turn().sentence.startswith("No move: ")
    assert balancer.proposal is None
    first = sampled(balancer, pulsar, by=1)
    waiting = balancer.proposal
    assert waiting is not None
    assert first.sentence == f"Proposes to move 3 bundles (plan {waiting.id}): lbd apply {waiting.id}."
    assert (first.acts, len(waiting.unloads), hits(balancer)) == (False, 3, {(2, 1)})
    assert {one.used for one in first.plan.usage} == {0}
    unchanged = balancer.turn()
    assert (unchanged.sentence, balancer.proposal) == (first.sentence, waiting)
    again = sampled(balancer, pulsar, by=2)
    assert (again.sentence, hits(balancer)) == (first.sentence, {(3, 1)})
    assert balancer.proposal.expires_at > waiting.expires_at
    assert {one.method for one in pulsar.requests} == {"GET"}
    pulsar.sample(40.0, 41.0, 42.0)
    assert (balancer.turn().sentence.split(" (")[0], balancer.proposal) == ("No move: cluster: balanced", None)


def test_it_is_made_true_as_it_was_shown(balancer: Engine, pulsar: FakePulsar, tmp_path: Path):
    """Its moves and no other; who approved which plan is in the journal; the next turn tells how they ended."""
    balancer.turn()
    sampled(balancer, pulsar, by=1)
    waiting = balancer.proposal
    answer = applied(balancer)
    assert (answer.exit_code, answer.sentence) == (0, "3 moves: 3 landed.")
    assert {one.bundle: pulsar.owners[one.bundle] for one in waiting.unloads} == {
        one.bundle: one.destination for one in waiting.unloads
    }
    intents = [line for line in test_turn.journal(tmp_path) if line["event"] == "intent"]
    assert {line["reason"] for line in intents} == {f"plan {waiting.id}, ann: tonight"}
    assert balancer.proposal is None
    ended = sampled(balancer, pulsar, by=2)
    assert (ended.sentence, balancer.proposal) == ("Moved 3 of 3 bundles: 3 landed.", None)


@pytest.mark.parametrize(
    ("change", "number", "difference"),
    [
        (lambda pulsar: pulsar.owners.update({BUNDLES[0]: pulsar.ids[1]}), 1, "owner-changed: "),
        (lambda pulsar: pulsar.sample(81.0, 46.0, 84.0), 3, "destination-overloaded: "),
        (lambda pulsar: pulsar.sample(81.0, 46.0, 70.0), 2, "destination-overloaded: "),
        (lambda pulsar: pulsar.policies.isolation.update(OTHERS_ONLY), 3, "isolation-policy: "),
    ],
    ids=["owner", "overloaded", "too much of it", "policy"],
)
def test_what_is_not_possible_any_more_moves_nothing(
    change: Callable[[FakePulsar], object], number: int, difference: str, balancer: Engine, pulsar: FakePulsar
):
    """Refused as a whole, with each difference; the proposal stays until a turn has seen it."""
    balancer.turn()
    sampled(balancer, pulsar, by=1)
    waiting = balancer.proposal
    change(pulsar)
    answer = applied(balancer)
    words = f"Refused: plan {waiting.id}: {number} of 3 moves cannot be made now ({number} {difference.strip(': ')}); "
    assert (answer.exit_code, answer.sentence.startswith(words)) == (4, True), answer.sentence
    assert answer.sentence.endswith("; nothing was begun.")
    assert [one.detail.startswith(difference) for one in answer.placed] == [True] * number, answer
    assert (pulsar.asked("/unload"), balancer.proposal) == ([], waiting)


def test_a_pause_holds_it(balancer: Engine, pulsar: FakePulsar, tmp_path: Path):
    """As it holds an unload by hand; turns under it keep the proposal until it expires."""
    balancer.turn()
    sampled(balancer, pulsar, by=1)
    waiting = balancer.proposal
    Control(tmp_path / "state").pause(Pause(time.time(), None, "no", "bob"))
    assert (applied(balancer).exit_code, "paused: by bob" in applied(balancer).sentence) == (4, True)
    assert sampled(balancer, pulsar, by=2).sentence.startswith("No move: paused: by bob")
    assert (pulsar.asked("/unload"), balancer.proposal, hits(balancer)) == ([], waiting, {(3, 1)})


def test_a_second_one_finds_them_moved(balancer: Engine, pulsar: FakePulsar, tmp_path: Path):
    """It had seen the plan before the first one applied it."""
    balancer.turn()
    sampled(balancer, pulsar, by=1)
    waiting = balancer.proposal
    assert applied(balancer, waiting).exit_code == 0
    second = applied(balancer, waiting, name="p1")
    assert (second.exit_code, "3 of 3 moves cannot be made now (3 cool-down)" in second.sentence) == (4, True)
    assert {one.detail for one in second.placed} == {"cool-down: it was moved, or tried, a while ago"}
    assert len(test_turn.journal(tmp_path)) == 6


def test_a_restart_drops_it(pulsar: FakePulsar, tmp_path: Path):
    """Nothing of it is on disk but in the status; the counters are, so that the next new sample proposes again."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", avg_shedder={})
    with engine(chosen) as before:
        before.turn()
        sampled(before, pulsar, by=1)
        name = before.proposal.id
    with engine(chosen) as found:
        assert found.proposal is None
        assert found.turn().sentence.startswith("No move: ")
        sampled(found, pulsar, by=2)
        assert found.proposal.id == name


def test_an_approval_outlives_its_lbd(pulsar: FakePulsar, tmp_path: Path):
    """It is an order: the second person may give theirs to the next lbd, once that proposes the plan again."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", approvers=2, avg_shedder={})
    with engine(chosen) as before:
        before.turn()
        sampled(before, pulsar, by=1)
        waiting = before.proposal
        assert "waits for another person" in applied(before).sentence
        assert applied(before).sentence == "This plan was ordered before, and is in force."
    with engine(chosen) as found:
        found.turn()
        sampled(found, pulsar, by=2)
        assert found.proposal.approved_by == ["ann"]
        found.serve()
        assert applied(found, by="bob", name="p1").sentence == "3 moves: 3 landed."
        found.serve()
        assert (found._real.plans.all(), found._dispatcher.trouble) == ([], "")
        again = applied(found, waiting)
        assert (again.exit_code, "under the same key, and is over" in again.sentence) == (4, True)
    intents = [line for line in test_turn.journal(tmp_path) if line["event"] == "intent"]
    assert {line["reason"] for line in intents} == {f"plan {waiting.id}, ann and bob: tonight"}


def test_an_approval_that_expired_while_no_lbd_ran_is_over(pulsar: FakePulsar, tmp_path: Path):
    """The next one proposes the same moves, an hour later: nobody has approved them at this load."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", approvers=2, avg_shedder={})
    with engine(chosen) as before:
        before.turn()
        sampled(before, pulsar, by=1)
        first = before.proposal
        assert "waits for another person" in applied(before).sentence
    with engine(chosen, timebase=Timebase(now=lambda: time.time() + 3600, boot=lambda: None)) as found:
        for number in range(2, 5):
            sampled(found, pulsar, by=number)
        assert found.proposal.id == first.id
        assert "is approved by bob and waits for another person" in applied(found, by="bob", name="p1").sentence
        assert (found.proposal.approved_by, pulsar.asked("/unload")) == (["bob"], [])


def test_a_plan_whose_lbd_was_killed_is_over(pulsar: FakePulsar, tmp_path: Path):
    """What it has left was judged with what was made: nobody goes on with it, and the next lbd says so."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", avg_shedder={})
    with engine(chosen) as before:
        before.turn()
        sampled(before, pulsar, by=1)
        plan, now = before.proposal, time.time()
        moves = [derived(PlannedMove, move) for move in plan.unloads]
        before._real.plans.begin(PlanRequest("p0", plan.id, moves, "", "ann", now, now + 60), now)
    with engine(chosen) as found:
        again = applied(found, plan)
        assert (again.exit_code, "under the same key, and is over" in again.sentence) == (4, True), again
        assert (found._real.plans.all(), pulsar.asked("/unload")) == ([], [])
        why = "was under way when its lbd ended: lbd history shows which of its 3 moves were made"
        assert f"plan {plan.id}, applied by ann, {why}" in found.warnings


def test_an_approval_that_nobody_joins_expires(pulsar: FakePulsar, tmp_path: Path):
    """With the plan."""
    now = time.time()
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", approvers=2)
    with engine(chosen, timebase=Timebase(now=lambda: now, boot=lambda: None)) as found:
        found._real.plans.approve(PlanRequest("p0", "1f3a9c2e", [], "", "ann", now, now + 60), now, now + 60)
        for seconds, names in ((59.0, ["ann"]), (1.0, [])):
            now += seconds
            found.serve()
            assert found._real.plans.approved_by("1f3a9c2e") == names


def test_an_approval_ends_with_its_plan(pulsar: FakePulsar, tmp_path: Path):
    """The load had fallen, and rises again: the same moves are another plan, of which the first person has not read."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve", approvers=2, avg_shedder={})
    with engine(chosen) as found:
        found.turn()
        sampled(found, pulsar, by=1)
        name = found.proposal.id
        assert "waits for another person" in applied(found).sentence
        found._real.proposals.after(altered(asked(), unloads=()))
        found.serve()
        assert found._real.plans.approved_by(name) == []


def test_what_was_planned_before_another_one_may_have_led_is_gone(
    balancer: Engine, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """The lead was lost and regained between two turns: neither the rest of a plan goes on, nor a proposal."""
    rest = Rest("p", tuple(MOVES), {}, 1, time.time(), 10.0)
    begun: list[Rest | None] = []

    def with_rest(parts: Parts) -> TurnResult:
        begun.append(parts.rest)
        made = turn(replace(parts, rest=None))
        return replace(made, plan=replace(made.plan, rest=rest))

    monkeypatch.setattr("lbd.daemon.engine.turn", with_rest)
    sampled(balancer, pulsar, by=1)
    sampled(balancer, pulsar, by=2)
    assert balancer.proposal is not None
    Control(balancer.settings.state_dir).pause(Pause(time.time(), None, "", "ann"))
    balancer.turn()
    assert balancer.proposal is not None
    monkeypatch.setattr(balancer.journal, "term", 1)
    balancer.turn()
    assert balancer.proposal is None
    assert begun == [None, rest, rest, None]


def test_other_settings_drop_it(balancer: Engine, pulsar: FakePulsar):
    """They may plan otherwise, or need no approval: then the next new sample moves. Observing wants a restart."""
    balancer.turn()
    sampled(balancer, pulsar, by=1)
    with pytest.raises(UsageError, match="mode: a change from or to observe takes effect with a restart"):
        balancer.take(balancer.settings.model_copy(update={"mode": "observe"}))
    balancer.take(balancer.settings.model_copy(update={"mode": "auto"}))
    assert balancer.proposal is None
    assert sampled(balancer, pulsar, by=2).sentence == "Begins to move 3 bundles."
    balancer.wait()


def test_once(pulsar: FakePulsar, tmp_path: Path):
    """``lbd run --once`` proposes, too, and ends."""
    chosen = test_turn.settings(pulsar, tmp_path, mode="approve")
    assert test_turn.once(chosen).sentence.startswith("Proposes to move 3 bundles (plan ")
    assert pulsar.asked("/unload") == []
