"""Orders of people as several lbds have them: the leader publishes them, none is lost, and none comes back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lbd.errors import LbdError, NotLeaderError, ObserveError, RefusedError, UsageError
from lbd.load.estimate import Carried
from lbd.store.control import Control, Pause, PlannedMove, PlanRequest
from lbd.store.database import STORE_NAME, value
from lbd.store.drains import Drain, Drains, Fill
from lbd.store.orders import ORDERS, OrderList, Orders
from lbd.store.proposal import AppliedPlans
from lbd.store.rollouts import Rollout, Rollouts
from lbd.store.shared import NewerOrders, SharedOrders, decoded
from tests.builders import put_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NOW = 1_800_000_000.0
PAUSE = Pause(NOW, None, "upgrade", "ann")
OTHER = Pause(NOW + 1, NOW + 7200, "tests", "bob")
DRAIN = Drain("a:80", NOW, NOW + 3600, "ann", "new disk", started_at=NOW - 0.125)
ROLLOUT = Rollout(
    id="r",
    brokers=("a:80", "b:80"),
    members=("a:80", "b:80", "c:80"),
    by="ann",
    begun_at=NOW,
    phase_at=NOW,
    broker="a:80",
    timeout_seconds=900.0,
    begun=True,
)
FURTHER = replace(ROLLOUT, phase="restart", begun=False)


class KilledError(Exception):
    """The process ends here."""


class Lbd:
    """One of several on a topic, with a clock of its own."""

    def __init__(self, folder: Path, topic: list[bytes], ahead_seconds: float = 0.0) -> None:
        self.folder, self.topic, self.now = folder, topic, NOW + ahead_seconds
        folder.mkdir(exist_ok=True)
        self.restart()

    def restart(self) -> None:
        """What it had in memory is gone; nobody is known to lead."""
        self.orders = SharedOrders(self.folder, lambda: self.now)
        self.control, self.drains = Control(self.folder, self.orders), Drains(self.folder, self.orders)
        self.rollouts = Rollouts(self.folder, self.orders)
        self.plans = AppliedPlans(self.folder, self.orders)

    def follow(self) -> list[str]:
        """Read the topic, from its first line on; it stands by."""
        self.orders.resign()
        self.orders.elsewhere = lambda: NotLeaderError("the other one leads", "other")
        return self._read()

    def lead(self, publish: Callable[[bytes], None] | None = None) -> None:
        """Read on to the end, then publish."""
        self._read()
        self.orders.lead(publish or self.topic.append)

    def _read(self) -> list[str]:
        lists = [entry for line in self.topic if isinstance(entry := decoded(line), OrderList)]
        return self.orders.take(lists)

    @property
    def stands(self) -> tuple[Pause | None, list[Drain], Rollout | None]:
        """What it obeys."""
        in_force = list(self.drains.in_force(self.now).values())
        return self.control.paused(self.now), in_force, self.rollouts.under_way()


@pytest.fixture
def topic() -> list[bytes]:
    """All lines."""
    return []


@pytest.fixture
def one(tmp_path: Path, topic: list[bytes]) -> Lbd:
    """The first one."""
    return Lbd(tmp_path / "one", topic)


@pytest.fixture
def two(tmp_path: Path, topic: list[bytes]) -> Lbd:
    """The second one, whose clock is an hour late."""
    return Lbd(tmp_path / "two", topic, -3600)


def test_a_fill_goes_on_at_the_next_leader_and_stays_ended(one: Lbd, two: Lbd):
    """As every other order; one of a rollout ends with that."""
    fill = Fill("f", "c:80", NOW + 3600, "ann", NOW)
    one.lead()
    one.drains.begin_fill(fill)
    assert two.follow() == ["c:80 is filled, as the leader was told, by ann: no reason was given"]
    two.lead()
    assert two.drains.fill(NOW) == fill
    assert two.drains.fill(NOW + 3600) is None
    two.drains.end_fill("f")
    one.follow()
    one.lead()
    assert (one.drains.fill(NOW), two.drains.fill(NOW)) == (None, None)

    one.rollouts.begin(ROLLOUT)
    one.drains.begin_fill(replace(fill, request="g", rollout="r"))
    one.rollouts.stop("r", "by ann", NOW)
    assert one.drains.fill(NOW) is None
    with pytest.raises(RefusedError, match="the rollout was stopped meanwhile"):
        one.drains.begin_fill(replace(fill, request="h", rollout="r"))


def test_what_is_ordered_at_the_leader_stands_everywhere(one: Lbd, two: Lbd):
    """And is shown there as text; progress is no news."""
    one.lead()
    one.control.pause(PAUSE)
    one.drains.begin(DRAIN)
    one.rollouts.begin(ROLLOUT)
    assert sorted(two.follow()) == [
        "a:80 is drained, as the leader was told, by ann: new disk",
        "pause is in force, as the leader was told, by ann: upgrade",
        "rollout is in force, as the leader was told, by ann: no reason was given",
    ]
    assert two.stands == one.stands == (PAUSE, [DRAIN], ROLLOUT)
    one.rollouts.amend(ROLLOUT, FURTHER)
    assert (two.follow(), two.stands[2]) == ([], FURTHER)
    one.control.resume()
    assert two.follow() == ["over, as the leader was told: pause"]


def test_an_answer_is_true_before_it_is_given(one: Lbd, two: Lbd):
    """A leader that is killed right after it answered has lost no order, and no end of one."""
    one.lead()
    one.control.pause(PAUSE)
    two.follow()
    assert two.stands[0] == PAUSE
    one.control.resume()
    two.follow()
    assert two.stands[0] is None


@pytest.mark.parametrize("publishes", [True, False])
def test_what_could_not_be_published_is_no_answer(one: Lbd, two: Lbd, *, publishes: bool):
    """Whether it holds is what the topic has; nothing of it is written here before that is read."""

    def broken(line: bytes) -> None:
        if publishes:
            one.topic.append(line)
        raise ObserveError("no acknowledgement")

    one.lead()
    one.orders.lead(lambda _: None)
    one.orders._publish = broken
    with pytest.raises(RefusedError, match="could not be published to the other lbds, and may hold: no ack"):
        one.control.pause(PAUSE)
    assert one.stands[0] is None
    for here in (one, two):
        here.follow()
        assert here.stands[0] == (PAUSE if publishes else None)


def test_what_was_published_is_in_force_though_it_cannot_be_written_here(
    one: Lbd, two: Lbd, monkeypatch: pytest.MonkeyPatch
):
    """Of a leader whose disk is full: it would go on with an order of which a person was told that it failed."""

    def full(*_: object) -> None:
        raise UsageError("lbd.db: database or disk is full")

    one.lead()
    with monkeypatch.context() as patched:
        patched.setattr(Orders, "_change", full)
        one.drains.begin(DRAIN)
    two.follow()
    assert one.stands == two.stands == (None, [DRAIN], None)
    one.control.pause(PAUSE)
    one.restart()
    assert one.stands == (PAUSE, [DRAIN], None)


def test_a_pause_that_is_given_while_a_list_is_on_its_way_is_kept(one: Lbd, two: Lbd):
    """By a command on the leader's machine: it is published next, and so are all changes before it."""

    def slow(line: bytes) -> None:
        Control(one.folder, Orders(one.folder, shared=True)).pause(PAUSE)
        one.orders._publish = one.topic.append
        one.topic.append(line)

    one.lead()
    one.orders._publish = slow
    one.drains.begin(DRAIN)
    assert one.stands == (PAUSE, [DRAIN], None)
    one.orders.publish()
    two.follow()
    assert two.stands == (PAUSE, [DRAIN], None)
    one.control.resume()
    two.follow()
    assert one.stands == two.stands == (None, [DRAIN], None)


def test_the_last_result_is_the_last_whatever_the_clock_shows(one: Lbd, two: Lbd):
    """A clock was set back between two times that a person resumed lbd."""
    one.lead()
    one.control.go_on(NOW)
    one.control.pause(PAUSE)
    one.orders.change(lambda orders: orders.end("pause", NOW - 7200, {"by": "the second"}))
    two.follow()
    for here in (one, two):
        assert here.orders.read().results["pause"].body == {"by": "the second"}


def test_an_order_that_is_given_again_under_its_id_stands(one: Lbd, two: Lbd):
    """Its leader was killed before it noted that, as of a rollout's second drain: the next one orders it again."""
    again = replace(DRAIN, by="again", ordered_at=NOW + 30)
    one.lead()
    one.drains.begin(DRAIN, "r-0-1")
    two.lead()
    two.drains.begin(again, "r-0-1")
    one.follow()
    assert two.stands == one.stands == (None, [again], None)
    two.drains.release("a:80")
    one.follow()
    assert two.stands == one.stands == (None, [], None)


def test_orders_of_another_version_go_on(one: Lbd, two: Lbd):
    """Its lbd led before: fields that only one of both versions has keep no drain and no rollout from its next step."""
    one.lead()
    one.drains.begin(DRAIN)
    one.rollouts.begin(ROLLOUT)

    def of_another(orders: OrderList) -> OrderList:
        others = {}
        for name, order in orders.orders.items():
            body = {field: value for field, value in order.body.items() if field not in {"waits", "respect_rest"}}
            others[name] = replace(order, body={**body, "later": 1}, version=order.version + 1)
        return replace(orders, orders=others)

    one.orders.change(of_another)
    two.lead()
    assert two.stands == (None, [DRAIN], ROLLOUT)
    carries = replace(DRAIN, carried=Carried(9.0, 1.0, 1.0, 3))
    assert two.drains.amend(DRAIN, carries)
    assert two.rollouts.amend(ROLLOUT, FURTHER)
    one.follow()
    assert one.stands == two.stands == (None, [carries], FURTHER)
    assert {order.body["later"] for order in one.orders.read().orders.values()} == {1}


def fenced(_: bytes) -> None:
    """The topic lets this lbd write no more."""
    raise ObserveError("fenced")


ENDS: dict[str, Callable[[Lbd], object]] = {
    "resume": lambda lbd: lbd.control.resume(),
    "resume a running lbd": lambda lbd: lbd.control.go_on(NOW),
    "release": lambda lbd: lbd.drains.release("a:80"),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_to_end_is_no_answer_of_a_leader_that_was_replaced(end: str, one: Lbd, two: Lbd):
    """It believes that it leads and knows of no order; the next leader was given one, which goes on."""
    one.lead()
    one.orders._publish = fenced
    two.lead()
    two.control.pause(PAUSE)
    two.drains.begin(DRAIN)
    with pytest.raises(RefusedError, match="could not be published to the other lbds"):
        ENDS[end](one)
    one.follow()
    assert one.stands == two.stands == (PAUSE, [DRAIN], None)


def test_a_leader_that_was_replaced_hands_no_broker_over(one: Lbd, two: Lbd):
    """It reads the rollout as it was, and writes that once more before it says that a broker is due."""
    one.lead()
    one.rollouts.begin(FURTHER)
    assert one.rollouts.amend(FURTHER, FURTHER)
    two.lead()
    two.rollouts.stop(FURTHER.id, "by ann", NOW)
    one.orders._publish = fenced
    with pytest.raises(RefusedError, match="could not be published to the other lbds"):
        one.rollouts.amend(FURTHER, FURTHER)


class TestComingBack:
    """An lbd that was away leads again, from what its files had: what a person ended meanwhile stays ended."""

    @pytest.mark.parametrize("topic_forgets", [False, True])
    @pytest.mark.parametrize("published", [False, True])
    def test_a_rollout_whose_leader_was_killed_at_a_write(
        self, one: Lbd, two: Lbd, *, published: bool, topic_forgets: bool
    ):
        """Before or after the next phase was published: the other one goes on with it, and ends it."""

        def killed(line: bytes) -> None:
            if published:
                one.topic.append(line)
            raise KilledError

        one.lead()
        one.rollouts.begin(ROLLOUT)
        one.drains.begin(replace(DRAIN, rollout="r"))
        one.orders._publish = killed
        with pytest.raises(KilledError):
            one.rollouts.amend(ROLLOUT, FURTHER)
        two.lead()
        state = two.rollouts.under_way()
        assert state == (FURTHER if published else ROLLOUT)
        two.rollouts.end(replace(state, phase="ended", ended_at=NOW, sentence="Over."), NOW)
        weeks_later(one, two, topic_forgets=topic_forgets)
        assert one.stands == two.stands == (None, [], None)
        assert (one.rollouts.last() or ROLLOUT).sentence == "Over."

    @pytest.mark.parametrize("topic_forgets", [False, True])
    def test_a_drain_that_was_released_at_the_next_leader(self, one: Lbd, two: Lbd, *, topic_forgets: bool):
        """Also where what the broker carried was written after all."""
        one.lead()
        one.drains.begin(DRAIN)
        two.lead()
        two.drains.release("a:80")
        with pytest.raises(LbdError):
            late(one, lambda: one.drains.amend(DRAIN, replace(DRAIN, by="late")))
        weeks_later(one, two, topic_forgets=topic_forgets)
        assert one.stands == two.stands == (None, [], None)

    @pytest.mark.parametrize("topic_forgets", [False, True])
    def test_a_backup_of_last_week(self, one: Lbd, two: Lbd, *, topic_forgets: bool):
        """What its store says is older than what the topic says, whatever the clocks show."""
        one.lead()
        one.control.pause(PAUSE)
        backup = value(one.folder / STORE_NAME, ORDERS)
        assert backup is not None
        one.control.resume()
        one.drains.begin(DRAIN)
        two.follow()
        put_value(one.folder, ORDERS, backup)
        one.now -= 7 * 86_400
        one.restart()
        weeks_later(one, two, topic_forgets=topic_forgets)
        assert one.control.paused(one.now) is two.control.paused(two.now) is None
        assert one.drains.all() == two.drains.all() == [DRAIN]

    def test_an_order_that_was_given_here_before_and_was_ended_by_the_next_leader(self, one: Lbd, two: Lbd):
        """It was published, and its lbd was killed before it had noted that: the id of the order says that it ended."""
        Control(one.folder, Orders(one.folder, shared=True)).pause(PAUSE)

        def killed(line: bytes) -> None:
            one.topic.append(line)
            raise KilledError

        with pytest.raises(KilledError):
            one.lead(killed)
        two.lead()
        assert two.stands[0] == PAUSE
        two.control.resume()
        weeks_later(one, two, topic_forgets=True)
        assert one.stands[0] is two.stands[0] is None


def late(lbd: Lbd, act: Callable[[], object]) -> None:
    """An lbd that was stopped goes on, and believes that it leads: the topic's broker knows better."""

    def fenced(_: bytes) -> None:
        raise ObserveError("the topic cannot be written: fenced")

    lbd.orders._publish = fenced
    act()


def weeks_later(one: Lbd, two: Lbd, *, topic_forgets: bool) -> None:
    """The first one starts again, follows, and leads; old lines may be gone, but the leader has published since."""
    if topic_forgets:
        one.topic.clear()
    two.orders.publish(everything=True) if two.orders._publish else two.lead()
    one.restart()
    one.follow()
    one.lead()
    two.follow()


class TestStandby:
    """Only who leads takes orders."""

    @pytest.mark.parametrize(
        "order",
        [
            lambda lbd: lbd.control.pause(OTHER),
            lambda lbd: lbd.control.resume(),
            lambda lbd: lbd.drains.begin(replace(DRAIN, broker="b:80")),
            lambda lbd: lbd.drains.release("a:80"),
            lambda lbd: lbd.drains.amend(DRAIN, replace(DRAIN, by="bob")),
            lambda lbd: lbd.rollouts.stop("r", "by bob", NOW),
            lambda lbd: lbd.rollouts.amend(ROLLOUT, FURTHER),
            lambda lbd: lbd.rollouts.end(ROLLOUT, NOW),
        ],
        ids=["pause", "resume", "drain", "release", "carried", "stop", "progress", "end"],
    )
    def test_no_order_is_changed(self, order: Callable[[Lbd], object], one: Lbd, two: Lbd):
        """The refusal says who leads; the next failover ends nothing."""
        one.lead()
        one.control.pause(PAUSE)
        one.drains.begin(DRAIN)
        one.rollouts.begin(ROLLOUT)
        two.follow()
        with pytest.raises(RefusedError, match="the other one leads"):
            order(two)
        two.lead()
        one.follow()
        assert one.stands == two.stands == (PAUSE, [DRAIN], ROLLOUT)

    def test_a_lost_store_ends_nothing(self, one: Lbd, two: Lbd):
        """Neither here, nor at the next failover; also where the leader has lost it."""
        one.lead()
        one.control.pause(PAUSE)
        one.drains.begin(DRAIN)
        two.follow()
        (two.folder / STORE_NAME).unlink()
        two.restart()
        two.lead()
        (two.folder / STORE_NAME).unlink()
        assert two.stands == (PAUSE, [DRAIN], None)
        two.drains.release("a:80")
        one.follow()
        assert one.stands == two.stands == (PAUSE, [], None)

    def test_a_pause_while_nobody_leads_holds_here_and_then_everywhere(self, one: Lbd, two: Lbd):
        """It is the only order that is taken then."""
        one.control.pause(PAUSE)
        with pytest.raises(RefusedError, match="no lbd leads now, so none moves anything; try again"):
            one.drains.begin(DRAIN)
        two.lead()
        one.follow()
        assert (one.stands[0], two.stands[0]) == (PAUSE, None)
        one.lead()
        two.follow()
        assert one.stands[0] == two.stands[0] == PAUSE

    @pytest.mark.parametrize(("here", "holds"), [(PAUSE, PAUSE), (OTHER, PAUSE), (replace(PAUSE, by="bob"), PAUSE)])
    @pytest.mark.parametrize("killed", [False, True])
    def test_of_two_pauses_the_longer_one_holds(self, here: Pause, holds: Pause, one: Lbd, two: Lbd, *, killed: bool):
        """One was given where nobody led; of two without end that of the leader."""
        two.control.pause(here)
        one.lead()
        one.control.pause(PAUSE)
        two.follow()
        if killed:
            two.restart()
        two.lead()
        one.follow()
        assert one.stands[0] == two.stands[0] == holds
        two.control.resume()
        one.follow()
        assert one.stands[0] is two.stands[0] is None

    def test_nothing_is_written_past_the_lbd_that_leads(self, one: Lbd):
        """By a command where no lbd runs: what is published stands, and a pause is added to it."""
        one.lead()
        one.control.pause(OTHER)
        alone = Control(one.folder, Orders(one.folder, shared=True))
        with pytest.raises(RefusedError, match="share their orders"):
            alone.resume()
        alone.pause(PAUSE)
        assert alone.paused(NOW) == PAUSE
        alone.pause(replace(OTHER, until=NOW + 60))
        assert alone.paused(NOW) == OTHER
        assert alone.paused(NOW + 7300) is None


def test_who_comes_new_is_told_what_has_stood_for_long(one: Lbd, two: Lbd):
    """The topic forgets lines after two days; a leader publishes everything again, and nobody takes it for new."""
    one.lead()
    one.drains.begin(replace(DRAIN, until=None))
    two.follow()
    one.topic.clear()
    one.now += 3 * 86_400
    one.orders.publish()
    assert one.topic == []
    one.orders.publish(everything=True)
    assert (two.follow(), two.stands) == ([], one.stands)
    new = Lbd(one.folder.parent / "new", one.topic)
    new.follow()
    assert new.stands == one.stands


def test_orders_that_cannot_be_read_are_a_pause_until_a_person_resumes(one: Lbd, two: Lbd):
    """Such an lbd may lead, and moves nothing; what the others know is not forgotten."""
    one.lead()
    one.drains.begin(DRAIN)
    two.follow()
    put_value(two.folder, ORDERS, b"{")
    two.restart()
    two.lead()
    doubtful = two.control.paused(NOW)
    assert doubtful is not None
    assert "the orders cannot be read" in doubtful.reason
    with pytest.raises(UsageError):
        two.drains.release("a:80")
    assert two.control.resume() == doubtful
    assert two.stands == (None, [DRAIN], None)


def test_orders_of_a_newer_lbd_are_not_obeyed_by_halves():
    """The format says so, whatever else is in the line."""
    newer = msgspec.json.encode({"event": "orders", "format": 2, "orders": 7})
    assert decoded(newer) == NewerOrders("orders", 2)
    assert decoded(msgspec.json.encode(OrderList({}))) == OrderList({})
    assert decoded(newer[:-3]) is None


STEPS = st.lists(
    st.sampled_from([f"{what} {who}" for what in ("pause", "resume", "lead", "kill", "killed after") for who in (0, 1)])
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_all_agree_on_what_the_last_leader_answered(tmp_path_factory: pytest.TempPathFactory, steps: list[str]):
    """Whoever leads and is killed, at whichever write: in force is what was answered last."""
    topic: list[bytes] = []
    folder = tmp_path_factory.mktemp("orders")
    lbds = [Lbd(folder / "0", topic), Lbd(folder / "1", topic, -3600)]
    lbds[0].lead()
    lbds[1].follow()
    answered: Pause | None = None
    for number, step in enumerate(steps):
        what, _, who = step.rpartition(" ")
        here, there = lbds[int(who)], lbds[1 - int(who)]
        pause = Pause(NOW + number, None, str(number), "ann")
        try:
            if what == "pause":
                here.control.pause(pause)
                answered = pause
            elif what == "resume":
                here.control.resume()
                answered = None
            elif what == "lead":
                there.follow()
                here.lead()
            else:
                if what == "killed after" and here.orders._publish is not None:
                    topic.append(msgspec.json.encode(here.orders.read().published(10**13 + number, NOW)))
                here.restart()
                here.follow()
        except RefusedError:
            assert here.orders._publish is None
    for here in lbds:
        here.follow()
        assert here.stands[0] == answered


PART = replace(DRAIN, rollout="r")
PLAN = PlanRequest("p", "1f3a9c2e", [PlannedMove("t/n/0", "a:80", "b:80")], "", "ann", NOW, NOW + 60)
LIVES: dict[str, list[Callable[[Lbd], object]]] = {
    "pause": [lambda lbd: lbd.control.pause(OTHER), lambda lbd: lbd.control.pause(PAUSE)],
    "drain": [lambda lbd: lbd.drains.begin(DRAIN), lambda lbd: lbd.drains.amend(DRAIN, replace(DRAIN, by="carried"))],
    "plan": [
        lambda lbd: lbd.plans.approve(PLAN, NOW, NOW + 600),
        lambda lbd: lbd.plans.approve(replace(PLAN, id="q", by="bob"), NOW, NOW + 600),
        lambda lbd: lbd.plans.begin(replace(PLAN, id="q", by="bob"), NOW),
    ],
    "rollout": [
        lambda lbd: lbd.rollouts.begin(ROLLOUT),
        lambda lbd: lbd.drains.begin(PART),
        lambda lbd: lbd.rollouts.amend(ROLLOUT, FURTHER),
        lambda lbd: lbd.drains.amend(PART, replace(PART, by="carried")),
        lambda lbd: lbd.drains.release("a:80"),
        lambda lbd: lbd.rollouts.amend(FURTHER, replace(FURTHER, broker="b:80", done=("a:80",), phase="drain")),
    ],
}
"""What the leader writes of an order of each kind, one write after the other."""


@pytest.mark.landing
@pytest.mark.security("a leader that ends at a write of an order, and leads again after a person ended it")
@pytest.mark.parametrize("person_ends", [True, False], ids=["ended by a person", "still in force"])
@pytest.mark.parametrize("how", ["killed before", "killed between", "killed after", "stopped", "cut off"])
@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, life in LIVES.items() for step in range(len(life))])
def test_whatever_ends_a_leader_at_whichever_write(
    kind: str, step: int, how: str, one: Lbd, two: Lbd, *, person_ends: bool
):
    """The other one leads meanwhile, and the topic forgets its old lines: nothing ended comes back, nothing is lost."""
    one.lead()
    for act in LIVES[kind][:step]:
        act(one)
    answered = one.stands, one.plans.all()

    def publish(line: bytes) -> None:
        if how == "killed before":
            raise KilledError
        if how in {"stopped", "cut off"}:
            raise ObserveError("the topic cannot be written: fenced")
        one.topic.append(line)
        if how == "killed between":
            raise KilledError

    if how == "stopped":  # it goes on at this write once the other one has led, and ended the order
        two.lead()
        end_all(two) if person_ends else None
    one.orders._publish = publish
    with suppress(KilledError, RefusedError):
        LIVES[kind][step](one)
        answered = one.stands, one.plans.all()
    two.lead()
    end_all(two) if person_ends else None
    weeks_later(one, two, topic_forgets=True)
    assert (one.stands, one.plans.all()) == (two.stands, two.plans.all())
    if person_ends:
        assert (one.stands, one.plans.all()) == ((None, [], None), [])
    elif how != "killed between":  # then nobody was answered, and both are right
        assert (one.stands, one.plans.all()) == answered


def end_all(lbd: Lbd) -> None:
    """A person ends whatever is in force."""
    pause, drains, rollout = lbd.stands
    if pause is not None:
        lbd.control.resume()
    for drain in drains:
        lbd.drains.release(drain.broker)
    if rollout is not None:
        lbd.rollouts.stop(rollout.id, "by ann", lbd.now)
        lbd.rollouts.end(rollout, lbd.now)
    for plan in lbd.plans.all():
        lbd.plans.end(plan.plan, lbd.now)
