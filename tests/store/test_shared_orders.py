"""Orders of people as several lbds have them: who leads tells them, the others obey, and none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lbd.errors import ObserveError, UsageError
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains
from lbd.store.rollouts import Rollout, Rollouts
from lbd.store.shared import ENDS_ARE_KEPT_SECONDS, Ordered, SharedOrders, decoded

if TYPE_CHECKING:
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


class Lbd:
    """One of several, with a clock of its own."""

    def __init__(self, folder: Path, topic: list[bytes], ahead_seconds: float = 0.0) -> None:
        self.folder, self._topic, self.now = folder, topic, NOW + ahead_seconds
        folder.mkdir(exist_ok=True)
        self.control, self.drains = Control(folder), Drains(folder)
        self.restart()

    def restart(self) -> None:
        """What it had in memory is gone."""
        self.orders = SharedOrders(self.folder, lambda: self.now)

    def follow(self) -> list[str]:
        """Read the topic, from its first line on."""
        found = [decoded(line) for line in self._topic]
        return self.orders.take(one for one in found if isinstance(one, Ordered))

    def lead(self, *, everything: bool = False) -> None:
        """Read on to the end, then tell."""
        self.follow()
        self.orders.publish(self._topic.append, everything=everything)

    @property
    def stands(self) -> tuple[Pause | None, list[Drain]]:
        """What it obeys."""
        return self.control.paused(self.now), list(self.drains.in_force(self.now).values())


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


def test_what_is_ordered_at_the_leader_stands_everywhere(one: Lbd, two: Lbd):
    """And is told there in words; nothing is told twice."""
    one.control.pause(PAUSE)
    one.drains.begin(DRAIN)
    one.lead()
    told = len(one._topic)
    one.lead()
    assert len(one._topic) == told == 2
    said = two.follow()
    assert sorted(said) == [
        "a:80 is drained, as the leader was told, by ann",
        "paused, as the leader was told, by ann: upgrade",
    ]
    assert two.follow() == []
    assert two.stands == one.stands == (PAUSE, [DRAIN])


def test_a_drain_that_is_asked_for_again_lasts_longer_and_is_no_news(one: Lbd, two: Lbd):
    """Nothing that is told of it has changed; another person's order is told."""
    one.drains.begin(DRAIN)
    one.lead()
    two.follow()
    longer = msgspec.structs.replace(DRAIN, until=NOW + 7200)
    one.drains.begin(longer)
    one.lead()
    assert (two.follow(), two.stands[1]) == ([], [longer])
    one.drains.begin(msgspec.structs.replace(longer, by="bob"))
    one.lead()
    assert two.follow() == ["a:80 is drained, as the leader was told, by bob"]


def test_its_end_ends_it_everywhere_by_whatever_clock(one: Lbd, two: Lbd):
    """An lbd that was away reads both lines, in their order; the clock of who ended it is an hour late."""
    one.control.pause(PAUSE)
    one.lead()
    two.follow()
    two.control.resume()
    two.lead()
    one.restart()
    assert one.follow() == ["over, as the leader was told: pause"]
    assert one.stands == two.stands == (None, [])


def test_what_was_ordered_at_a_standby_stays_there_until_it_leads(one: Lbd, two: Lbd):
    """The end of another pause does not end it: when in doubt lbd does not move."""
    one.control.pause(PAUSE)
    one.lead()
    two.control.pause(OTHER)
    two.follow()
    assert two.stands[0] == OTHER
    one.control.resume()
    one.lead()
    two.follow()
    assert (one.stands[0], two.stands[0]) == (None, OTHER)
    two.lead()
    one.follow()
    assert one.stands[0] == OTHER


@pytest.mark.parametrize("waits", [0, 8000], ids=["while its own lasts", "when its own has run out"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_shorter_pause_of_its_own_does_not_end_that_of_the_leader(one: Lbd, two: Lbd, waits: int, killed: bool):
    """What the leader was told holds whoever leads next, also where another pause stood when it was told."""
    two.control.pause(OTHER)
    one.control.pause(PAUSE)
    one.lead()
    two.follow()
    assert two.stands[0] == OTHER
    two.now = OTHER.since + waits
    if killed:
        two.restart()
    two.lead()
    one.follow()
    assert one.stands[0] == two.stands[0] == PAUSE
    two.control.resume()
    two.lead()
    one.follow()
    assert one.stands[0] == two.stands[0] is None


def test_a_resume_at_a_standby_does_not_end_a_pause_given_after_it(one: Lbd, two: Lbd):
    """It was of the pause before."""
    one.control.pause(PAUSE)
    one.lead()
    two.follow()
    two.control.resume()
    one.control.pause(OTHER)
    one.lead()
    two.follow()
    assert two.stands[0] == OTHER


def test_who_comes_new_is_told_what_has_stood_for_long(one: Lbd, two: Lbd):
    """The topic forgets lines after two days; a leader tells everything again, and nobody takes it for new."""
    one.drains.begin(msgspec.structs.replace(DRAIN, until=None))
    one.lead()
    first = one._topic.pop()
    one.now += 3 * 86_400
    one.lead(everything=True)
    assert one._topic == [first]
    two.follow()
    assert two.stands == one.stands


def test_what_had_run_out_before_it_was_read_is_no_news(one: Lbd, two: Lbd):
    """Nobody is told of a pause that is over."""
    one.control.pause(OTHER)
    one.drains.begin(DRAIN)
    one.lead()
    two.now = NOW + 86_400
    assert (two.follow(), two.stands, two.drains.all()) == ([], (None, []), [])


def test_ends_are_forgotten_only_when_no_line_of_them_can_be_there(one: Lbd):
    """An old line that is read once more is known to be old."""
    one.control.pause(PAUSE)
    one.lead()
    one.control.resume()
    one.now += 10
    one.lead()
    one.restart()
    assert one.follow() == []
    one.now += ENDS_ARE_KEPT_SECONDS + 1
    one._topic.clear()
    one.drains.begin(msgspec.structs.replace(DRAIN, until=None))
    one.lead()
    assert b'"pause"' not in (one.folder / "control" / "shared.json").read_bytes()


def test_what_could_not_be_told_is_told_by_the_next_try(one: Lbd):
    """Nothing counts as told that was not stored."""

    def broken(line: bytes) -> None:
        raise ObserveError(f"no acknowledgement of {line[:9]!r}")

    one.control.pause(PAUSE)
    with pytest.raises(ObserveError):
        one.orders.publish(broken)
    one.lead()
    assert len(one._topic) == 1


@pytest.mark.parametrize("order", ["pause", "drain"])
def test_what_could_not_be_obeyed_is_taken_again_and_never_ended(
    one: Lbd, two: Lbd, order: str, monkeypatch: pytest.MonkeyPatch
):
    """A full disk at a standby: by the time it leads it obeys the order, and tells nobody that this has ended."""

    def full(*_: object) -> None:
        raise UsageError("No space left on device")

    if order == "pause":
        one.control.pause(PAUSE)
    else:
        one.drains.begin(DRAIN)
    one.lead()
    with monkeypatch.context() as disk:
        disk.setattr(Control, "pause", full)
        disk.setattr(Drains, "begin", full)
        with pytest.raises(UsageError):
            two.follow()
    assert two.stands == (None, [])
    two.lead()
    assert two.stands == one.stands != (None, [])
    assert len(one._topic) == 1


def test_a_note_that_cannot_be_read_is_no_note(one: Lbd, two: Lbd):
    """What stands is told again."""
    one.control.pause(PAUSE)
    one.lead()
    (one.folder / "control" / "shared.json").write_text("{")
    one.restart()
    one.lead()
    two.follow()
    assert two.stands[0] == PAUSE


STEPS = st.lists(st.sampled_from(["pause 0", "pause 1", "resume 0", "resume 1", "lead 0", "lead 1", "kill 0"]))


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_all_agree_in_the_end(tmp_path_factory: pytest.TempPathFactory, steps: list[str]):
    """Whoever orders, leads and is killed: once each has led and read everything, all obey the same."""
    topic: list[bytes] = []
    folder = tmp_path_factory.mktemp("orders")
    lbds = [Lbd(folder / "0", topic), Lbd(folder / "1", topic, -3600)]
    for number, step in enumerate(steps):
        what, at = step.split()
        here = lbds[int(at)]
        if what == "pause":
            here.control.pause(Pause(NOW + number, None, str(number), "ann"))
        elif what == "resume":
            here.control.resume()
        elif what == "lead":
            here.lead()
        else:
            here.restart()
    for here in (*lbds, *lbds):
        here.lead()
    assert lbds[0].follow() == lbds[1].follow() == []
    assert lbds[0].stands == lbds[1].stands


def test_a_rollout_goes_on_where_another_one_leads(one: Lbd, two: Lbd):
    """How far it is is told with each step; whoever leads next writes on, and its end ends it everywhere."""
    steps = [ROLLOUT, replace(ROLLOUT, phase="restart", begun=False), replace(ROLLOUT, broker="b:80", done=("a:80",))]
    for step in steps:
        Rollouts(one.folder).save(step)
        one.lead()
        two.follow()
        assert Rollouts(two.folder).under_way() == step
    further = replace(steps[-1], phase="restart")
    Rollouts(two.folder).save(further)
    two.lead()
    one.follow()
    assert Rollouts(one.folder).under_way() == further
    Rollouts(two.folder).end(replace(further, phase="ended", ended_at=NOW))
    two.lead()
    one.follow()
    assert Rollouts(one.folder).under_way() is None
