"""What goes wrong around drains and fills of a live lbd: a pause in the middle, a broker that dies, a full disk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lbd.decide.drain import DrainMoves
from lbd.errors import RefusedError, UsageError
from lbd.model import Outcome, Result, Unload
from lbd.operations.drain import REPLACED, Job, abandoned, show_drain
from lbd.operations.drain_plan import UntoldError
from lbd.operations.place import ask_cluster, owned_bundles
from lbd.permit.eligibility import carries
from lbd.pulsar.settings import LeaderSettings
from lbd.reason import Reason
from lbd.store.control import Control, FillRequest, Pause
from lbd.store.database import STORE_NAME, value
from lbd.store.drains import Drain, Drains, Fill
from lbd.store.orders import ORDERS
from tests.builders import put_value
from tests.daemon.test_draining import asked, done, ended, give, moves, owned, settings
from tests.simulate import fakes
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.daemon.engine import Engine
    from lbd.simulate.fake_pulsar import FakePulsar
    from lbd.turn.parts import TurnResult
    from tests.simulate.fakes import Run


@pytest.fixture
def lbd(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A live lbd beside it."""
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as found:
        yield found


def begun(lbd: Run, request: Any, monkeypatch: pytest.MonkeyPatch, part: int = 4) -> None:
    """Asked for and begun, with so many moves in each part, of which the first has ended."""
    monkeypatch.setattr("lbd.operations.drain.PART", part)
    lbd.engine.requests.begun(request)
    draining, real = lbd.engine.draining, lbd.engine._real
    draining.begin(request, real.tools(real.parts()))
    lbd.engine.go_on()
    lbd.engine.wait(60)


def test_a_pause_in_the_middle_is_waited_for(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However long: after it the drain goes on and comes to its end."""
    target = cluster.brokers[0]
    begun(lbd, asked(target), monkeypatch)
    Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
    for _ in range(6):
        cluster.forward(6)
        lbd.engine.go_on()
        assert lbd.engine.draining.busy
    Control(tmp_path).resume()
    cluster.forward(6)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)

    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.owned, work.landed) == (0, 0, 14), work


def test_what_others_move_off_meanwhile_ends_no_drain(lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch):
    """Part after part is of bundles that another lbd or a person has moved: the rest is moved all the same."""
    target = cluster.brokers[0]
    begun(lbd, asked(target), monkeypatch, part=2)
    moved = lbd.engine.journal.attempted_at
    for bundle in [bundle for bundle in owned(cluster, target) if bundle not in moved][:-2]:
        give(cluster, bundle, cluster.brokers[1])
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.owned, work.left) == (0, 0, []), work


@pytest.mark.parametrize(("failures", "code", "left"), [(1, 0, 0), (2, 5, 1)])
def test_a_bundle_that_could_not_be_moved_is_tried_once_more(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch, failures: int, code: int, left: int
):
    """A person wants the broker empty; but each try may disconnect its clients, so after two the end names it."""
    target = cluster.brokers[0]
    bundle = owned(cluster, target)[0]
    cluster.faults.on(Switch(Fault.NOT_ACTIVE, part=f"{bundle}/unload", times=failures))
    begun(lbd, asked(target), monkeypatch)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)

    tries = Counter(sent.bundle for sent in lbd.engine.journal.sent)
    assert tries.pop(bundle) == 2
    assert set(tries.values()) == {1}, tries
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.total, work.owned, len(work.left)) == (code, 14, left, left), work


def test_what_another_lbd_could_not_move_meanwhile_does_not_rest(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """The leader was killed amid a move while this lbd, which stood by, had begun its pass already."""
    target = cluster.brokers[0]
    begun(lbd, asked(target), monkeypatch)
    other = Unload(owned(cluster, target)[-1], target, cluster.brokers[1], 1.0, 1.0)
    journal = lbd.engine.journal
    journal.conclude(journal.intend(other, 1), Outcome(other, Result.FAILED, target))
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.owned, work.left) == (0, 0, []), work


def test_while_it_waits_for_people_or_another_lbd_the_brokers_are_not_asked(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A standby with a drain of its own would else read the whole cluster every five seconds."""
    begun(lbd, asked(cluster.brokers[0]), monkeypatch)
    Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
    looks: list[object] = []
    monkeypatch.setattr("lbd.operations.drain.plan_drain_now", lambda *found: looks.append(found))
    for _ in range(3):
        cluster.forward(6)
        lbd.engine.go_on()

    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (looks, work.held) == ([], "paused: by bob until lbd resume: look")


def test_a_clock_that_is_set_back_while_it_waits_does_not_make_it_wait_longer(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would look again in an hour, and nothing is balanced until it has ended."""
    begun(lbd, asked(cluster.brokers[0]), monkeypatch)
    Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
    lbd.engine.go_on()
    Control(tmp_path).resume()
    monkeypatch.setattr(lbd.engine.draining, "_now", lambda: cluster.now() - 3600)
    lbd.engine.go_on()

    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert work.held == ""


def test_a_broker_that_leaves_in_the_middle_holds_nobody(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """It has nothing left to give; the rest of the cluster is balanced again at once, and the order stands."""
    target = cluster.brokers[0]
    begun(lbd, asked(target), monkeypatch)
    cluster.leave(target)
    cluster.forward(6)
    for _ in range(3):
        lbd.engine.go_on()

    assert lbd.engine.draining.hold() is None
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, "is no active broker" in work.sentence) == (4, True), work
    assert lbd.engine.draining.drained() == {target}


def test_brokers_that_went_are_waited_for_where_no_turn_has_seen_it_yet(lbd: Run, cluster: FakePulsar):
    """And for no longer than from the first look on, also where no daemon turns."""
    warm = cluster.brokers[1]
    lbd.turn()
    cluster.leave(cluster.brokers[2])
    first, _ = done(lbd, asked(warm))
    cluster.forward(130)
    second, work = done(lbd, asked(warm, "r2", override="it has to go"))
    assert (first.exit_code, first.sentence[:27]) == (4, "Refused: membership-changed")
    assert second.exit_code == 0, second
    assert work is not None


def test_a_broker_that_went_in_the_middle_is_waited_for_once_where_no_turn_runs(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """A drain of a command line goes on with its next part once the others have settled."""
    begun(lbd, asked(cluster.brokers[1], override="it has to go"), monkeypatch, part=1)
    cluster.leave(cluster.brokers[2])
    cluster.forward(6)
    lbd.engine.go_on(alone=True)
    assert "membership-changed" in str(lbd.engine.draining.hold())
    for _ in range(4):
        cluster.forward(60)
        lbd.engine.go_on(alone=True)
        lbd.engine.wait(60)
    assert "membership-changed" not in str(lbd.engine.draining.hold())


def test_brokers_that_shed_in_the_middle_of_a_fill_stop_it(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """Its next part waits until they do not; what was planned before is moved then."""
    cold, admin = cluster.brokers[2], lbd.engine.looking.admin
    begun(lbd, FillRequest("r1", cold, None, "ann", 0.0, 1e12), monkeypatch, part=1)
    had = owned(cluster, cold)
    admin.set_dynamic("loadBalancerSheddingEnabled", "true")
    for _ in range(3):
        cluster.forward(6)
        lbd.engine.go_on()
        lbd.engine.wait(60)
    assert owned(cluster, cold) == had
    assert "in-broker-shedding" in str(lbd.engine.draining.hold())
    admin.set_dynamic("loadBalancerSheddingEnabled", "false")
    cluster.forward(6)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert work.landed == work.total > 1


def test_a_fill_that_waited_is_planned_anew(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was planned hours ago stands on scores of then: by now its broker may be the hottest."""
    cold = cluster.brokers[2]
    begun(lbd, FillRequest("r1", cold, None, "ann", 0.0, 1e12), monkeypatch, part=1)
    had = owned(cluster, cold)
    Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
    cluster.forward(6)
    lbd.engine.go_on()
    monkeypatch.setattr("lbd.operations.drain_plan.plan_fill", lambda *_: DrainMoves((), ()))
    Control(tmp_path).resume()
    cluster.forward(6)
    for _ in range(2):
        lbd.engine.go_on()
    assert owned(cluster, cold) == had
    assert not lbd.engine.draining.busy


def test_what_a_pause_kept_from_being_sent_is_filled_in_later(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It comes as the first move has landed, in the midst of a part: the rest of that part is not given up."""
    cold = cluster.brokers[2]
    lbd.engine.on_end = lambda _: Control(tmp_path).pause(Pause(cluster.now(), None, "look", "bob"))
    begun(lbd, FillRequest("r1", cold, None, "ann", 0.0, 1e12), monkeypatch, part=60)
    lbd.engine.go_on()
    held = lbd.engine.draining.works.of("r1")
    assert held is not None
    assert (held.ended_at, held.held, held.landed < held.total) == (None, "paused: by bob until lbd resume: look", True)
    lbd.engine.on_end = lambda _: None
    Control(tmp_path).resume()
    cluster.forward(60)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)

    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.landed, work.left) == (0, work.total, []), work
    assert work.landed > held.landed


@pytest.mark.parametrize("sheds", [False, True], ids=["a turn that fails", "a turn that sees brokers shed"])
def test_a_turn_beside_a_fill_gives_none_of_it_up(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch, sheds: bool
):
    """It has nothing to say of moves that it has not planned: a fill looks for itself before each part."""
    cold, admin = cluster.brokers[2], lbd.engine.looking.admin
    turns: list[TurnResult] = []

    def turn(_: object) -> None:
        if turns:
            return
        if sheds:
            admin.set_dynamic("loadBalancerSheddingEnabled", "true")
        else:
            cluster.faults.on(Switch(Fault.UNAVAILABLE, part="load-report", times=len(cluster.brokers)))
        turns.append(lbd.engine.turn())
        admin.set_dynamic("loadBalancerSheddingEnabled", "false")

    lbd.engine.on_end = turn
    begun(lbd, FillRequest("r1", cold, None, "ann", 0.0, 1e12), monkeypatch, part=60)
    cluster.forward(6)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert turns[0].error is not None or turns[0].plan.hold is not None
    assert work is not None
    assert (work.exit_code, work.landed, work.left) == (0, work.total, []), work


def test_a_full_destination_of_another_plan_gives_nothing_of_a_fill_up(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """The plan that goes there is at its end, as one of a former leader may be beside a fill, and no other."""
    executor = lbd.engine._real.executor
    lbd.engine.on_end = lambda _: executor.halt(Reason.DESTINATION_OVERLOADED, "another has 97.0 points by now")
    begun(lbd, FillRequest("r1", cluster.brokers[2], None, "ann", 0.0, 1e12), monkeypatch, part=60)
    cluster.forward(6)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.landed, work.left) == (0, work.total, []), work


def test_the_leader_topics_bundle_stays(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever the namespace, shown or done: its move would cut off the one who makes it."""
    target, topic = cluster.brokers[0], "persistent://simulated/n0/lbd-leader"
    kept = next(bundle for bundle in owned(cluster, target) if carries(bundle, topic))
    chosen = settings(cluster, tmp_path)
    told = chosen.model_copy(update={"leader": LeaderSettings(enabled=True, topic=topic)})
    with fakes.run(cluster, tmp_path, monkeypatch, chosen) as lbd:
        lbd.turn()
        monkeypatch.setattr(lbd.engine._real, "settings", told)
        shown = show_drain(told, target)
        work = ended(lbd, asked(target))
    assert [(skip.what, skip.reason) for skip in shown.look.plan.stay] == [(kept, Reason.LEADER_TOPIC)]
    assert owned(cluster, target) == [kept]
    assert [(left.bundle, left.reason) for left in work.left] == [(kept, "leader-topic")]


def test_a_broker_that_takes_bundles_over_is_not_asked_what_it_owns(lbd: Run, cluster: FakePulsar, tmp_path: Path):
    """That can hang it for good, and who only looks must not; it is said, and the others may be looked at.

    Who owns a bundle of a namespace is asked bundle by bundle, which harms no broker.
    """
    healthy, target = cluster.brokers[:2]
    bundle = owned(cluster, healthy)[0]
    lbd.engine.journal.intend(Unload(bundle, healthy, target, 1.0, 1.0), 1)
    chosen = settings(cluster, tmp_path)
    cluster.requests.clear()
    with pytest.raises(RefusedError, match=f"{target}: .* takes over 1 bundle now, the first: {bundle}"):
        show_drain(chosen, target)
    assert owned_bundles(chosen, "simulated/n0")[bundle] == healthy
    assert ask_cluster(chosen, ["simulated/n0"], "rendezvous").unknown == {}
    assert not any("ownedNamespaces" in request.path for request in cluster.requests)
    assert len(show_drain(chosen, healthy).look.owned) == 14


def test_a_broker_that_is_filled_is_not_drained_meanwhile(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """Or bundles would go to a drained broker."""
    target = cluster.brokers[2]
    begun(lbd, FillRequest("r1", target, None, "ann", 0.0, 1e12), monkeypatch, part=1)
    answer, _ = done(lbd, asked(target, "r2"))
    assert (answer.exit_code, f"a fill of {target} is at work" in answer.sentence) == (4, True), answer
    assert lbd.engine.draining.drained() == frozenset()


def test_a_fill_that_nobody_goes_on_with_yet_is_in_force(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its lbd was killed, and the next one is asked for a drain or another fill before its first step: refused."""
    target, other = cluster.brokers[2], cluster.brokers[1]
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as first:
        begun(first, FillRequest("r1", target, None, "ann", 0.0, 1e12), monkeypatch, part=1)
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as second:
        second.turn()
        draining, real = second.engine.draining, second.engine._real
        for request in (asked(target, "r2"), asked(other, "r3"), FillRequest("r4", other, None, "ann", 0.0, 1e12)):
            with pytest.raises(RefusedError, match=f"a fill of {target} is in force"):
                draining.begin(request, real.tools(real.parts()))
        assert draining.drained() == frozenset()
        cluster.forward(6)
        second.engine.go_on()
        draining.to_the_end(second.engine.go_on)
        work = draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.ended_at is None) == (0, False), work


def read_again(engine: Engine) -> None:
    """Settings are."""
    engine.take(engine.settings)


def led_again(engine: Engine) -> None:
    """Another one may have led since, as ``Role.serve`` has it."""
    engine._real.executor.halt(Reason.ROUND_STOPPED, REPLACED)
    engine.journal.term = 1


@pytest.mark.parametrize("happens", [read_again, led_again])
def test_what_stops_all_plans_takes_nothing_from_a_fill(
    happens: Callable[[Engine], None], lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """In the midst of a part: the rest of that part is planned anew, by new settings, and by what others moved."""
    cold = cluster.brokers[2]
    lbd.engine.on_end = lambda _: happens(lbd.engine)
    begun(lbd, FillRequest("r1", cold, None, "ann", 0.0, 1e12), monkeypatch, part=60)
    lbd.engine.on_end = lambda _: None
    cluster.forward(60)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)

    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.landed, work.left) == (0, work.total, []), work
    assert work.landed > 1


def test_a_later_pause_holds_a_drain_though_the_clock_was_set_back_before_it(
    lbd: Run, cluster: FakePulsar, tmp_path: Path
):
    """A reason passes the pause of when it was given, and no other one; clocks of two leaders differ, too."""
    target = cluster.brokers[0]
    lbd.engine.draining.begin(asked(target, override="now"), lbd.engine._real.tools(lbd.engine._real.parts()))
    Control(tmp_path).pause(Pause(cluster.now() - 3600, None, "look", "bob"))
    for _ in range(3):
        lbd.engine.go_on()
        lbd.engine.wait(60)
    assert len(owned(cluster, target)) == 14
    assert "paused: by bob" in (lbd.engine.draining.hold() or ("", ""))[1]


def test_a_clock_that_is_set_back_does_not_keep_lbd_from_looking_at_a_drained_broker(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """What Pulsar places there is moved off ten minutes later, and not an hour and ten minutes later."""
    target = cluster.brokers[0]
    bundle = owned(cluster, target)[0]
    ended(lbd, asked(target))
    give(cluster, bundle, target)
    monkeypatch.setattr(lbd.engine.draining, "_now", lambda: cluster.now() - 3600)
    cluster.forward(601)
    lbd.turns(2)
    for _ in range(60):
        cluster.forward(11)
        lbd.engine.go_on()
        lbd.engine.wait(60)
    assert owned(cluster, target) == []


def test_the_only_broker_that_is_left_is_not_drained(lbd: Run, cluster: FakePulsar):
    """There is nobody who could bear its bundles; nothing is begun."""
    for at, broker in enumerate(cluster.brokers[1:]):
        ended(lbd, asked(broker, f"r{at}", override="all of them"))
    answer, _ = done(lbd, asked(cluster.brokers[0], "last"))
    assert (answer.exit_code, "cannot do without" in answer.sentence) == (4, True), answer
    assert lbd.engine.draining.drained() == set(cluster.brokers[1:])


def test_an_end_that_could_not_be_written_is_written_later(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Who watches reads it from the disk, which was full."""
    target, save = cluster.brokers[0], Drains.save
    begun(lbd, asked(target), monkeypatch, part=60)

    def full(*_: object) -> None:
        raise UsageError("lbd.db: No space left on device")

    monkeypatch.setattr(Drains, "save", full)
    lbd.engine.go_on()
    assert any("No space left" in one for one in lbd.engine.draining.warnings)
    monkeypatch.setattr(Drains, "save", save)
    cluster.forward(6)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    lbd.engine.go_on()

    told = Drains(tmp_path).works().drains[target]
    assert (told.exit_code, told.owned, told.request) == (0, 0, "r1"), told
    assert set(moves(cluster, target).values()) == {1}


@pytest.mark.parametrize("kind", ["drain", "fill"])
def test_orders_that_could_not_be_read_for_a_moment_end_nothing(
    lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """A disk that fails to read, in the midst of a part, shows no order; nobody has ended it."""
    target = cluster.brokers[0 if kind == "drain" else 2]
    request = asked(target) if kind == "drain" else FillRequest("r1", target, None, "ann", 0.0, 1e12)
    kept: list[bytes] = []

    def unreadable(_: object) -> None:
        kept.append(value(tmp_path / STORE_NAME, ORDERS) or b"")
        put_value(tmp_path, ORDERS, b"{")

    lbd.engine.on_end = unreadable
    begun(lbd, request, monkeypatch, 60)
    lbd.engine.on_end = lambda _: None
    for _ in range(2):
        cluster.forward(6)
        lbd.engine.go_on()
    assert any("cannot go on: " in one and "orders cannot be read" in one for one in lbd.engine.draining.warnings)
    put_value(tmp_path, ORDERS, kept[0])
    cluster.forward(60)
    lbd.engine.draining.to_the_end(lbd.engine.go_on)
    work = lbd.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.left, work.landed) == (0, [], work.total), work


def test_a_clock_that_is_set_back_waits_no_longer_for_a_silent_broker():
    """All others would wait for their balance for that hour."""
    job, error = Job("drain", "a:1", "r1", 0.0, Drain("a:1", 0.0, None, "ann")), UntoldError("a:1: not known")
    assert [abandoned(job, error, now) is None for now in (5000.0, 1400.0, 1459.0, 1460.0)] == [True, True, True, False]


def test_a_fill_goes_on_after_a_kill(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is an order as a drain is: the next lbd plans anew, until the broker has its share."""
    target = cluster.brokers[2]
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as first:
        begun(first, FillRequest("r1", target, None, "ann", 0.0, 1e12), monkeypatch, part=1)
    had = owned(cluster, target)
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as second:
        second.turn()
        second.engine.go_on()
        assert f"{target} is being filled" in str(second.engine.draining.hold())
        cluster.forward(6)
        second.engine.draining.to_the_end(second.engine.go_on)
        work = second.engine.draining.works.of("r1")
    assert work is not None
    assert (work.exit_code, work.ended_at is None) == (0, False), work
    assert len(owned(cluster, target)) > len(had)
    assert Drains(tmp_path).fill(cluster.now()) is None


@pytest.mark.parametrize("begins", ["before a kill", "before its end"])
def test_a_person_ends_a_fill(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str):
    """No further move is made of it, and who watches is told; also where it was ended while no lbd ran."""
    target = cluster.brokers[2]
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as first:
        begun(first, FillRequest("r1", target, None, "ann", 0.0, 1e12), monkeypatch, part=1)
        if begins == "before its end":
            assert isinstance(Drains(tmp_path, first.engine.orders).release_by_name(target), Fill)
            had = owned(cluster, target)
            first.engine.go_on()
            first.engine.go_on()
            assert not first.engine.draining.busy
    if begins == "before a kill":
        assert Drains(tmp_path).release_by_name("another:80") is None
        assert isinstance(Drains(tmp_path).release_by_name(target.partition(":")[0]), Fill)
        had = owned(cluster, target)
        with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as second:
            second.engine.go_on()
            assert not second.engine.draining.busy
    fill = Drains(tmp_path).works().fill
    assert fill is not None
    assert (fill.exit_code, fill.ended_at is None, "ended before it had come to its end" in str(fill.left)) == (
        4,
        False,
        True,
    ), fill
    assert owned(cluster, target) == had


def test_what_did_not_move_before_a_kill_is_tried_by_the_next_lbd(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Only a bundle that has left the drained broker, and came back, rests there."""
    target, destination = cluster.brokers[:2]
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as first:
        begun(first, asked(target, override="a test"), monkeypatch, part=1)
        journal = first.engine._real.journal
        for bundle in owned(cluster, target)[:3]:
            unload = Unload(bundle, target, destination, 1.0, 1.0, order="drain")
            journal.conclude(journal.intend(unload, 1), Outcome(unload, Result.FAILED, target))
    with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as second:
        second.engine.go_on()
        second.engine.draining.to_the_end(second.engine.go_on)
    assert owned(cluster, target) == []


def test_an_order_that_another_lbd_was_given_is_a_new_one(lbd: Run, cluster: FakePulsar):
    """As after a failover: this one has ended its pass, the order was repeated at the leader, which was killed."""
    target = cluster.brokers[0]
    ended(lbd, asked(target))
    draining = lbd.engine.draining
    (drain,) = draining.in_force().values()
    for bundle in sorted(cluster.owners())[:3]:
        give(cluster, bundle, target)
    cluster.forward(30)
    lbd.engine.go_on()
    assert not draining.busy
    draining._drains.begin(msgspec.structs.replace(drain, ordered_at=draining._now()), "repeated")
    lbd.engine.go_on()
    draining.to_the_end(lbd.engine.go_on)
    assert owned(cluster, target) == []


def test_a_drained_broker_that_is_away_is_asked_for_now_and_then(
    lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
):
    """It may be away for hours; the daemon goes by here twice a second."""
    target, admin = cluster.brokers[0], lbd.engine.looking.admin
    ended(lbd, asked(target))
    cluster.leave(target)
    cluster.forward(700)
    questions: list[None] = []
    ask = admin.active_brokers
    monkeypatch.setattr(admin, "active_brokers", lambda: questions.append(None) or ask())
    for _ in range(4):
        lbd.engine.go_on()
    assert len(questions) == 1
    cluster.forward(6)
    lbd.engine.go_on()
    assert len(questions) == 2
