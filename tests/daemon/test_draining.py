"""Drains and fills of a live lbd on a simulated cluster: nothing twice, nothing to a drained broker, and proof."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from lbd.doctor.own_state import drains as doctors_drains
from lbd.fields import derived
from lbd.model import Outcome, Result, Unload
from lbd.operations import drain as draining
from lbd.operations.drain import Job
from lbd.permit.settings import Canary
from lbd.simulate.cluster import cluster as built
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import load
from lbd.store.control import Control, DrainRequest, FillRequest, Pause, PlaceRequest, RequestResult, UnloadRequest
from lbd.store.drains import Drain, Drains
from lbd.store.explain import Explainer
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.config import Settings
    from lbd.operations.drain_plan import DrainView
    from lbd.store.drains import Work
    from tests.simulate.fakes import Run


def settings(cluster: FakePulsar, folder: Path, **drain: Any) -> Settings:
    """A strategy that wants nothing by itself."""
    return fakes.settings(cluster, folder, drain=drain, avg_shedder={"low_threshold": 95, "high_threshold": 99})


@pytest.fixture
def lbd(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A live lbd beside it."""
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as found:
        yield found


def asked(broker: str, name: str = "r1", **changes: Any) -> DrainRequest:
    """A drain of a broker."""
    values = {"seconds": None, "reason": "new disk", "override": None, "by": "ann", "at": 0.0, "expires_at": 9e9}
    return DrainRequest(name, broker, **{**values, **changes})


def done(lbd: Run, request: Any) -> tuple[RequestResult, Work | None]:
    """A request to its end, the answer to its beginning, and what came of it."""
    answers: dict[str, RequestResult] = {}
    lbd.engine.requests.deliver = answers.__setitem__
    lbd.engine.by_hand(request)
    return answers[request.id], lbd.engine.draining.works.of(request.id)


def ended(lbd: Run, request: Any) -> Work:
    """The same of one that was begun."""
    answer, work = done(lbd, request)
    assert answer.exit_code == 0, answer
    assert work is not None
    return work


def owned(cluster: FakePulsar, broker: str) -> list[str]:
    """What a broker owns, by the cluster's own book."""
    return sorted(bundle for bundle, owner in cluster.owners().items() if owner == broker)


def give(cluster: FakePulsar, bundle: str, broker: str) -> None:
    """As a client's lookup does."""
    with cluster._lived():
        cluster._book.free(bundle)
        cluster._book.acquire(bundle, broker)


def moves(cluster: FakePulsar, broker: str) -> Counter[str]:
    """How often each bundle left a broker."""
    left: Counter[str] = Counter()
    before: dict[str, str | None] = {}
    for change in cluster.history():
        if before.get(change.bundle) == broker and change.owner != broker:
            left[change.bundle] += 1
        before[change.bundle] = change.owner
    return left


class TestDrain:
    def test_it_owns_nothing_in_the_end_and_no_bundle_moved_twice(self, lbd: Run, cluster: FakePulsar):
        """Proven by the broker itself; the journal tells each move, and the cluster's own book agrees."""
        work = ended(lbd, asked(cluster.brokers[0]))
        assert (work.exit_code, work.total, work.landed, work.owned) == (0, 14, 14, 0), work
        assert owned(cluster, cluster.brokers[0]) == []
        assert set(moves(cluster, cluster.brokers[0]).values()) == {1}
        told = lbd.true_moves()
        assert {move.result for move in told} == {Result.LANDED}
        assert {move.destination for move in told} == set(cluster.brokers[1:])
        assert told[0].reason == f"drain of {cluster.brokers[0]}, by hand, ann: new disk"
        assert {one.order for one in lbd.engine.journal.sent} == {"drain"}
        assert all(move.clients_before is not None and move.clients_before.connected for move in told)

    def test_a_canary_holds_no_drain(self, lbd: Run, cluster: FakePulsar):
        """Neither by its namespaces nor by its pace: it limits what lbd does by itself."""
        rails = lbd.engine.settings.guardrails.model_copy(update={"canary": Canary(namespaces=("x/y",))})
        lbd.engine.take(lbd.engine.settings.model_copy(update={"guardrails": rails}))
        work = ended(lbd, asked(cluster.brokers[0]))
        assert (work.exit_code, work.total, work.landed, work.owned) == (0, 14, 14, 0), work

    def test_only_the_drained_broker_is_asked_for_all_that_it_owns(self, lbd: Run, cluster: FakePulsar):
        """Before the order, before the first move and after the last: one that takes bundles over can hang by it."""
        ended(lbd, asked(cluster.brokers[0]))
        listed = [request.broker for request in cluster.requests if "ownedNamespaces" in request.path]
        assert listed == [cluster.brokers[0]] * 3

    def test_nothing_goes_to_a_drained_broker(self, lbd: Run, cluster: FakePulsar):
        """Not by a turn, by hand, or by a placement; and it is in no pair."""
        target = cluster.brokers[0]
        ended(lbd, asked(target))
        record = lbd.turn()
        assert record.plan.decision is not None
        assert not [pair for pair in record.plan.decision.comparison.pairs if target in {pair.source, pair.destination}]
        cluster.forward(120)
        lbd.turn()
        bundle = owned(cluster, cluster.brokers[1])[0]
        hand = UnloadRequest("r2", bundle, target, "because", "ann", 0.0, 1e12)
        answer, _ = done(lbd, hand)
        assert (answer.exit_code, "drained" in answer.sentence) == (4, True), answer
        with cluster._lived():
            cluster._book.free(bundle)
        answer, _ = done(lbd, PlaceRequest("r3", [bundle], "rendezvous", "ann", 0.0, 1e12))
        assert isinstance(answer.placed, list)
        assert answer.placed[0].answer != target

    def test_what_is_placed_there_later_is_moved_off_once_in_a_while(self, lbd: Run, cluster: FakePulsar):
        """The brokers know nothing of a drain. Ten minutes after the first time, not before."""
        target = cluster.brokers[0]
        bundle = owned(cluster, target)[0]
        ended(lbd, asked(target))
        give(cluster, bundle, target)
        lbd.turns(2)
        self.go_on(lbd)
        assert owned(cluster, target) == [bundle]
        cluster.forward(601)
        lbd.turns(2)
        self.go_on(lbd)
        assert owned(cluster, target) == []
        assert moves(cluster, target)[bundle] == 2

    def go_on(self, lbd: Run) -> None:
        """As the daemon does twice a second, until nothing is at work."""
        lbd.engine.go_on()
        lbd.engine.draining.to_the_end(lbd.engine.go_on)

    def test_a_second_drain_goes_on(self, lbd: Run, cluster: FakePulsar):
        """It keeps its beginning and its reason, and says who owns what once more."""
        target = cluster.brokers[0]
        ended(lbd, asked(target))
        first = lbd.engine.draining.in_force()[target]
        again, work = done(lbd, asked(target, "r2", reason="", by="bob"))
        drain = lbd.engine.draining.in_force()[target]
        assert "goes on: 0 bundles" in again.sentence
        assert work is not None
        assert (work.exit_code, work.sentence) == (0, f"{target} owns nothing, and needed no move.")
        assert (drain.since, drain.reason, drain.by, drain.carried) == (first.since, "new disk", "bob", first.carried)

    def test_it_ends_with_a_release_an_end_and_a_restart(self, lbd: Run, cluster: FakePulsar, tmp_path: Path):
        """After each the broker is one among the others."""
        target, drains = cluster.brokers[0], Drains(tmp_path)
        ended(lbd, asked(target, seconds=60.0))
        cluster.forward(61)
        lbd.turn()
        assert (lbd.engine.draining.drained(), drains.all()) == (frozenset(), [])
        ended(lbd, asked(target, "r2", override="again"))
        assert drains.release(target) is not None
        assert lbd.engine.draining.drained() == frozenset()
        ended(lbd, asked(target, "r3", override="again"))
        cluster.leave(target)
        lbd.turn()
        assert lbd.engine.draining.drained() == {target}
        cluster.start(target)
        cluster.forward(300)
        lbd.turn()
        assert lbd.engine.draining.drained() == frozenset()

    def test_a_release_in_the_middle_begins_no_further_move(self, lbd: Run, cluster: FakePulsar, tmp_path: Path):
        """What was moved stays where it is."""
        target = cluster.brokers[0]
        answers: dict[str, RequestResult] = {}
        lbd.engine.requests.deliver = answers.__setitem__
        lbd.engine.draining.begin(asked(target), lbd.engine._real.tools(lbd.engine._real.parts()))
        Drains(tmp_path).release(target)
        self.go_on(lbd)
        assert len(owned(cluster, target)) == 14
        work = lbd.engine.draining.works.of("r1")
        assert work is not None
        assert (work.exit_code, work.owned, work.sentence[:12]) == (4, None, "The drain of")

    @pytest.mark.parametrize("shown", [True, False], ids=["goes on", "its reports show the broker only now"])
    def test_a_release_while_lbd_looks_at_the_cluster_stands(
        self, lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shown: bool
    ):
        """The order was read before the look: it is not written back after it, and no move of it is requested."""
        target, drains, look = cluster.brokers[0], Drains(tmp_path), draining.plan_drain_now
        lbd.engine.draining.begin(asked(target), lbd.engine._real.tools(lbd.engine._real.parts()))
        if not shown:
            drains.begin(replace(drains.all()[0], carried=draining.NOT_SHOWN))

        def released_meanwhile(*arguments: Any) -> DrainView:
            view = look(*arguments)
            drains.release(target)
            return view

        monkeypatch.setattr(draining, "plan_drain_now", released_meanwhile)
        self.go_on(lbd)
        assert (len(owned(cluster, target)), drains.all()) == (14, [])
        assert lbd.engine.draining.works.drains[target].exit_code == 4

    def test_a_pause_holds_it(self, lbd: Run, cluster: FakePulsar, tmp_path: Path):
        """Refused before it begins; and a reason passes it."""
        Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
        answer, _ = done(lbd, asked(cluster.brokers[0]))
        assert (answer.exit_code, answer.sentence) == (4, "Refused: paused: by bob until lbd resume: look")
        assert lbd.engine.draining.drained() == frozenset()
        assert ended(lbd, asked(cluster.brokers[0], "r2", override="I paused it")).owned == 0

    def test_a_later_pause_holds_it_whatever_was_overridden(self, lbd: Run, cluster: FakePulsar, tmp_path: Path):
        """Who pauses lbd means all of it; once it is over, the drain goes on."""
        target = cluster.brokers[0]
        lbd.engine.draining.begin(asked(target, override="now"), lbd.engine._real.tools(lbd.engine._real.parts()))
        Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
        for _ in range(3):
            lbd.engine.go_on()
        assert len(owned(cluster, target)) == 14
        assert "paused: by bob" in (lbd.engine.draining.hold() or ("", ""))[1]
        Control(tmp_path).resume()
        cluster.forward(6)
        self.go_on(lbd)
        assert owned(cluster, target) == []

    def test_who_repeats_it_does_not_move_its_end(self, lbd: Run, cluster: FakePulsar):
        """Only a new --for does."""
        target = cluster.brokers[0]
        ends = []
        for name, changes in (("r1", {"seconds": 600.0}), ("r2", {"override": "x"}), ("r3", {"seconds": 60.0})):
            ended(lbd, asked(target, name, **changes))
            ends.append((lbd.engine.draining.in_force()[target].until or 0.0) - cluster.now())
        assert all(wanted - 60 < left <= wanted for wanted, left in zip((600, 600, 60), ends, strict=True)), ends

    @pytest.mark.parametrize(
        ("request_of", "code", "words"),
        [
            (lambda _: asked("nobody:1"), 2, "no active broker"),
            (lambda _: FillRequest("r1", "nobody:1", None, "ann", 0.0, 1e12), 2, "no active broker"),
        ],
        ids=["drain", "fill"],
    )
    def test_who_is_not_there(self, lbd: Run, request_of: Callable[[Any], Any], code: int, words: str):
        """Told with those that are."""
        answer, work = done(lbd, request_of(lbd))
        assert (answer.exit_code, words in answer.sentence, work) == (code, True, None)

    def test_a_turn_waits_for_it(self, lbd: Run, cluster: FakePulsar):
        """And says for what."""
        lbd.engine.draining.begin(asked(cluster.brokers[0]), lbd.engine._real.tools(lbd.engine._real.parts()))
        lbd.engine.go_on()
        record = lbd.engine.turn()
        self.go_on(lbd)
        assert record.plan.hold is not None
        assert record.plan.hold[0].label == "moves-unfinished"

    def test_status_explain_and_doctor_tell_of_it(self, lbd: Run, cluster: FakePulsar, tmp_path: Path):
        """Who, since when, why, and what came of it; after four hours doctor warns."""
        target = cluster.brokers[0]
        ended(lbd, asked(target))
        lbd.turn()
        now = cluster.now()
        explained = Explainer(tmp_path, now=now, since=now - 3600, last=5, cool_down_seconds=0).of(target)
        assert any("ann drains it" in why for why in explained.because), explained  # type: ignore[union-attr]
        assert any("owns nothing" in why for why in explained.because)  # type: ignore[union-attr]
        looks = (60, [target]), (5 * 3600, [target]), (60, ["b:1"]), (60, [])
        soon, late, gone, unknown = (next(iter(doctors_drains(tmp_path, now + later, there))) for later, there in looks)
        assert (soon.level, late.level, gone.level, unknown.level) == ("ok", "warning", "warning", "warning")
        assert "; it is no active broker" in gone.seen
        assert f"{target} by ann since" in late.seen


class TestWhatStays:
    def test_a_policy_keeps_a_bundle_there_and_the_exit_code_says_so(self, lbd: Run, cluster: FakePulsar):
        """One namespace is bound to the broker, the others go."""
        target = cluster.brokers[0]
        cluster.policies.isolation["own"] = {
            "namespaces": ["simulated/n0"],
            "primary": [target.rpartition(":")[0]],
            "secondary": [],
            "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1"}},
        }
        give(cluster, owned(cluster, cluster.brokers[1])[0], target)
        lbd.turns(10)
        work = ended(lbd, asked(target))
        assert (work.exit_code, work.landed, work.owned) == (4, 1, 14)
        assert {left.reason for left in work.left} == {"isolation-policy"}
        assert "still owns 14 bundles" in work.sentence

    def test_a_cluster_that_cannot_do_without_it_says_so(self, cluster: FakePulsar, tmp_path: Path, monkeypatch: Any):
        """Nothing is moved; with a reason what fits is, never above the limit."""
        chosen = settings(cluster, tmp_path)
        rails = chosen.guardrails.model_copy(update={"max_destination_score": 40})
        chosen = chosen.model_copy(update={"guardrails": rails})
        with fakes.run(cluster, tmp_path, monkeypatch, chosen) as lbd:
            answer, _ = done(lbd, asked(cluster.brokers[0]))
            assert (answer.exit_code, "cannot do without" in answer.sentence) == (4, True)
            assert (len(owned(cluster, cluster.brokers[0])), lbd.engine.draining.drained()) == (14, frozenset())
            work = ended(lbd, asked(cluster.brokers[0], "r2", override="half of it helps"))
            assert work.exit_code == 4
            assert 0 < work.landed < 14
            assert {left.reason for left in work.left} == {"destination-overloaded"}

    def test_the_hour_has_a_limit_of_its_own(self, cluster: FakePulsar, tmp_path: Path, monkeypatch: Any):
        """Five an hour: the others are named with what passes it."""
        monkeypatch.setattr(draining, "most_per_hour", lambda _: 5)
        with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as lbd:
            work = ended(lbd, asked(cluster.brokers[0]))
        assert (work.exit_code, work.landed, work.owned) == (4, 5, 9)
        assert "5 of 5 used within the hour; --override REASON passes this" in work.sentence

    @pytest.mark.parametrize("respect_rest", [False, True])
    def test_a_bundle_that_rests_stays_only_where_rests_are_to_be_respected(
        self, lbd: Run, cluster: FakePulsar, *, respect_rest: bool
    ):
        """It was moved there by hand a moment ago; before a restart its rest protects nobody."""
        bundle = owned(cluster, cluster.brokers[1])[0]
        hand = UnloadRequest("r0", bundle, cluster.brokers[2], None, "ann", 0.0, 1e12)
        assert done(lbd, hand)[0].exit_code == 0
        cluster.forward(120)
        lbd.turn()
        work = ended(lbd, asked(cluster.brokers[2], respect_rest=respect_rest))
        stays = [(bundle, "cool-down")] if respect_rest else []
        assert [(left.bundle, left.reason) for left in work.left] == stays
        assert (work.exit_code, work.owned) == ((4, 1) if respect_rest else (0, 0))


class TestOneAfterTheOther:
    """Every broker of the demo's cluster is drained and released: a restart of all of them."""

    @pytest.mark.soak
    @pytest.mark.parametrize("turns", [0, 2])
    def test_each_ends_empty(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int):
        """What was moved to the next broker goes on at once, and no budget of turns has counted it."""
        world, state = built(load("demo"), 1)
        with FakePulsar(world, state) as cluster, fakes.run(cluster, tmp_path, monkeypatch) as lbd:
            lbd.turn()
            for number, broker in enumerate(cluster.brokers):
                answer, work = done(lbd, asked(broker, f"r{number}"))
                assert (answer.exit_code, work and (work.exit_code, work.owned)) == (0, (0, 0)), (answer, work)
                assert Drains(tmp_path).release(broker) is not None
                lbd.turns(turns)
            assert [used.used for used in lbd.turn().plan.usage if used.name == "unloads-per-hour"] == [
                len([move for move in lbd.moves() if not move.reason.startswith("drain of ")])
            ]


class TestReports:
    def test_a_fill_waits_for_a_report_that_shows_the_last_moves(self, lbd: Run, cluster: FakePulsar):
        """Just emptied, it is still shown with all that it carried: nothing would seem to be missing there."""
        target = cluster.brokers[0]
        lbd.turns(4)
        ended(lbd, asked(target))
        Drains(lbd.folder).release(target)
        before = cluster.now()
        answer, work = done(lbd, FillRequest("r2", target, None, "ann", 0.0, 1e12))
        assert "first it waits: reports show the last moves in" in answer.sentence
        assert cluster.now() - before > 60
        assert work is not None
        assert (work.exit_code, work.landed > 3) == (0, True), work

    def test_a_broker_that_waits_is_weighed_by_what_it_carries_then(self, lbd: Run, cluster: FakePulsar):
        """The order is written down before its report shows what it carries."""
        first, second = cluster.brokers[1], cluster.brokers[2]
        ended(lbd, asked(first))
        Drains(lbd.folder).release(first)
        answer, work = done(lbd, asked(second, "r2"))
        assert ("first it waits" in answer.sentence, work and work.exit_code) == (True, 0), (answer, work)
        assert lbd.engine.draining.in_force()[second].carried.msg_rate > 0


class TestFill:
    def test_slices_of_the_hot_ones_come_to_the_cold_one(self, lbd: Run, cluster: FakePulsar):
        """The third broker has a few points; in the end none of the three is above the mean that was not before."""
        work = ended(lbd, FillRequest("r1", cluster.brokers[2], None, "ann", 0.0, 1e12))
        assert work.exit_code == 0, work
        assert work.landed == work.total > 0
        assert len(owned(cluster, cluster.brokers[2])) == 2 + work.total
        assert lbd.engine.draining.drained() == frozenset()

    def test_the_hottest_gets_nothing(self, lbd: Run, cluster: FakePulsar):
        """It is above the mean."""
        work = ended(lbd, FillRequest("r1", cluster.brokers[0], None, "ann", 0.0, 1e12))
        assert (work.total, work.exit_code) == (0, 0)

    def test_of_the_brokers_own_namespaces_nothing_is_asked(self, lbd: Run, cluster: FakePulsar):
        """Each broker has a heartbeat's, of which a cluster knows no policies."""
        ended(lbd, FillRequest("r1", cluster.brokers[2], None, "ann", 0.0, 1e12))
        asked_about = {one.path.removesuffix("/antiAffinity") for one in cluster.requests if "antiAffinity" in one.path}
        assert asked_about == {f"/admin/v2/namespaces/simulated/n{at}" for at in range(3)}

    def test_a_drained_broker_is_not_filled(self, lbd: Run, cluster: FakePulsar):
        """Both cannot be meant."""
        ended(lbd, asked(cluster.brokers[2]))
        answer, _ = done(lbd, FillRequest("r2", cluster.brokers[2], None, "ann", 0.0, 1e12))
        assert (answer.exit_code, "is being drained" in answer.sentence) == (4, True)


def test_an_amended_outcome_is_no_other_move():
    """A bundle whose move was unknown, and then found back at its broker, is tried once more."""
    job = Job("drain", "a:80", "request", 0.0, Drain("a:80", 0.0, None, "ann"))
    job.hand(["t/n/0x00000000_0x80000000"])
    unknown = Outcome(Unload("t/n/0x00000000_0x80000000", "a:80", "b:80", 1.0, 1.0), Result.UNKNOWN, None)
    job.ended(unknown)
    job.ended(derived(Outcome, unknown, result=Result.FAILED, owner="a:80", amended=True))
    assert (job.settled, job.attempted) == (1, frozenset())
