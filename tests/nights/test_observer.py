"""Each rule of the observer can be broken, and a case beside it keeps it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.model import Outcome, Result, Skip, Unload
from lbd.permit.budget import Sent
from lbd.reason import Reason
from lbd.simulate.answers import Request
from lbd.simulate.fake_cluster import OwnershipChange
from lbd.store.orders import PAUSE
from tests.nights.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BUNDLE, OTHER = "t/n/0x00000000_0xffffffff", "t/o/0x00000000_0xffffffff"
HALF = "t/n/0x00000000_0x80000000"
MOVE = Unload(BUNDLE, "a:1", "b:1", 1.0, 1.0, order="drain")
BY_ITSELF = replace(MOVE, order="")
HISTORY = (OwnershipChange(0.0, BUNDLE, "a:1"), OwnershipChange(1010.0, BUNDLE, None))


class Night:
    """An observer at second 1000 of two machines, of which lbd-1 leads and moves a bundle."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.history: tuple[OwnershipChange, ...] = HISTORY
        self.observer = Observer(
            lambda: self.seconds,
            lambda: self.history,
            lambda _: None,
            per_hour=10,
            of_broker_per_hour=1,
            cool_down_seconds=60.0,
        )
        self.look("lbd-1")

    def look(self, writer: str, *full: str) -> None:
        """One of the looks of each second."""
        self.observer.look(["lbd-1"], writer, (), (), full)

    def sends(self, verb: str = "unload", move: Unload = MOVE, attempts: Sequence[float] = ()) -> None:
        """lbd-1 sends the request of its open move or split; by its journal it made ``attempts`` then, at others."""
        split = SimpleNamespace(cut=SimpleNamespace(bundle=move.bundle))
        others = tuple(Sent(at, OTHER, f"c{at}", f"d{at}") for at in attempts)
        journal = SimpleNamespace(open=((move.bundle, move),), open_splits=(("s", split),), sent=others)
        request: Any = Request("a:1", "PUT", f"/admin/v2/namespaces/{move.bundle}/{verb}", {}, b"", None)
        self.observer.leaves("lbd-1", SimpleNamespace(journal=journal), request)  # type: ignore[arg-type]

    def has_placed(self) -> None:
        """lbd-1 sends a request by which a broker takes a bundle."""
        request: Any = Request("a:1", "GET", "/admin/v2/schemas/t/n/x/schema", {}, b"", None)
        self.observer.leaves("lbd-1", SimpleNamespace(), request)  # type: ignore[arg-type]

    def brokers(self, *listed: str, leads: bool = True, sheds: bool = False) -> None:
        """One of the looks of each second at these."""
        self.observer.look_at_brokers(listed, leads=leads, sheds=sheds)

    def turns(self, number: int) -> None:
        """lbd-1 takes so many turns, each within a second."""
        for _ in range(number):
            self.seconds += 1.0
            self.observer.turned("lbd-1")

    def ends(self, result: Result, owner: str | None) -> None:
        """The move was sent, and lbd-1 says this of it 80 s later."""
        self.sends()
        self.seconds += 80.0
        self.observer.ended("lbd-1", Outcome(MOVE, result, owner))


def led_by(writer: str, seconds: float, verb: str = "unload") -> Callable[[Night], None]:
    """The request leaves so long after that machine came to write the topic."""

    def run(night: Night) -> None:
        night.look(writer)
        night.seconds += seconds
        night.sends(verb)

    return run


def placed_after(seconds: float) -> Callable[[Night], None]:
    """A bundle is placed so long after another machine came to write the topic."""

    def run(night: Night) -> None:
        night.look("lbd-2")
        night.seconds += seconds
        night.has_placed()

    return run


def woken(checked_at: float) -> Callable[[Night], None]:
    """lbd-1 stood still from second 1000 on, goes on at 1030, and sends; another machine leads since it stood still."""

    def run(night: Night) -> None:
        night.look("lbd-2")
        night.seconds = night.observer.excused_until["lbd-1"] = 1030.0
        night.observer.checked_at = lambda: checked_at
        night.sends()

    return run


def unanswered(*, unsent_at: float, sent_at: float = 0.0) -> Callable[[Night], None]:
    """Nobody answers who asked for a move at second 1000; when lbd-1 said that it does not send it, and sent it."""

    def run(night: Night) -> None:
        for seconds, happens in sorted([(unsent_at, "unsent"), (sent_at, "sent")]):
            night.seconds = seconds
            if happens == "unsent":
                night.observer.ended("lbd-1", Skip(BUNDLE, Reason.PAUSED))
            elif seconds:
                night.sends()
        night.observer.unanswered("lbd-1", BUNDLE, 1000.0)

    return run


def forbidden(since: float, *, redirected_at: float | None = None) -> Callable[[Night], None]:
    """A destination is forbidden since then, at second 1012; the request may have been sent on before."""

    def run(night: Night) -> None:
        night.observer.forbidden = lambda _, __: since
        if redirected_at is not None:
            night.seconds = redirected_at
            night.observer.redirected(Request("c:1", "PUT", f"/admin/v2/namespaces/{BUNDLE}/unload", {}, b"", None))
        night.seconds = 1012.0
        night.sends()

    return run


def paused(night: Night) -> None:
    """A split begins in a pause."""
    night.observer.given("p", PAUSE)
    night.seconds += 1.0
    night.sends("split")


def released(night: Night) -> None:
    """A drain goes on that a person has ended."""
    night.observer.drain_is_over("a:1")
    night.seconds += 5.0
    night.sends()


def drained_again(night: Night) -> None:
    """As above, and it was ordered anew."""
    night.observer.drain_is_over("a:1")
    night.observer.may_drain(("a:1",))
    night.seconds += 5.0
    night.sends()


def quiet(seconds: float, verb: str = "unload") -> Callable[[Night], None]:
    """The clock of lbd-1 shows quiet hours for so long."""

    def run(night: Night) -> None:
        night.observer.quiet_since = lambda _: night.seconds - seconds
        night.sends(verb)

    return run


def leaderless(seconds: float) -> Callable[[Night], None]:
    """No broker that answers leads for so long."""

    def run(night: Night) -> None:
        night.brokers(leads=False)
        night.seconds += seconds
        night.sends()

    return run


def shedding(turns: int, seconds: float) -> Callable[[Night], None]:
    """Brokers shed by themselves, and after these turns so many seconds pass."""

    def run(night: Night) -> None:
        night.brokers(sheds=True)
        night.turns(turns)
        night.seconds += seconds
        night.sends()

    return run


def members(
    before: str, after: str, seconds: float, *, turns: int = 2, move: Unload = BY_ITSELF, clock: bool = False
) -> Callable[[Night], None]:
    """Brokers, a letter each, come or go; after these turns so many seconds pass, and a clock may be set."""

    def run(night: Night) -> None:
        night.brokers(*before)
        night.brokers(*after)
        night.turns(turns)
        night.seconds += seconds
        if clock:
            night.observer.clock_set_at["lbd-1"] = night.seconds
        night.sends(move=move)

    return run


def back_again(night: Night) -> None:
    """A broker that left, which lbd-1 has seen, is back for a minute."""
    night.brokers(*"ab")
    night.brokers(*"a")
    night.turns(3)
    night.brokers(*"ab")
    night.turns(2)
    night.seconds += 60.0
    night.sends(move=BY_ITSELF)


def twice_from_a_broker(order: str) -> Callable[[Night], None]:
    """Two bundles leave a broker within the hour, of which one may."""

    def run(night: Night) -> None:
        for bundle in (BUNDLE, OTHER):
            night.sends(move=replace(MOVE, bundle=bundle, order=order))

    return run


def after(number: int, *, apart: float) -> Callable[[Night], None]:
    """The journal of lbd-1 has that number of attempts, each so many seconds after the one before."""
    return lambda night: night.sends(attempts=[apart * at for at in range(number)], move=replace(MOVE, order=""))


def in_doubt(result: Result, *able: str, again: Result | None = None) -> Callable[[Night], None]:
    """The first word on a move; ``able`` could ask the brokers afterwards, and perhaps lbd-1 says something else."""

    def run(night: Night) -> None:
        night.ends(result, None)
        for seconds in (0.0, 80.0):
            night.seconds += seconds
            if again is not None:
                night.observer.ended("lbd-1", Outcome(MOVE, again, None, amended=True))
            night.observer.look_at_doubts(able)

    return run


def split_before(night: Night) -> None:
    """A bundle has an owner, that was split before its move was sent."""
    night.history = (HISTORY[0], OwnershipChange(900.0, HALF, "a:1"))
    night.observer.is_bundle = lambda bundle: bundle == HALF
    night.ends(Result.FAILED, "a:1")


def stands_by(
    says: bool | None, *, ended: bool, hears: float = 100.0, asked_after: float = 100.0
) -> Callable[[Night], None]:
    """An lbd that has heard the topic for so long is asked for an order, so long after it was given or ended."""

    def run(night: Night) -> None:
        night.turns(1)
        night.look("lbd-2")
        night.seconds += hears - asked_after
        night.observer.given("p", PAUSE)
        if ended:
            night.observer.over(PAUSE)
        night.seconds += asked_after
        orders: Any = SimpleNamespace(read=lambda: SimpleNamespace(stands=lambda _: says))
        night.observer.stands_by("lbd-1", SimpleNamespace(orders=orders))  # type: ignore[arg-type]

    return run


def full_for(seconds: float) -> Callable[[Night], None]:
    """The leader's disk is full for so long."""

    def run(night: Night) -> None:
        night.look("lbd-1", "lbd-1")
        night.seconds += seconds
        night.look("lbd-1", "lbd-1")

    return run


def says(result: Result, owner: str | None, *, is_bundle: bool = True) -> Callable[[Night], None]:
    """What lbd-1 says of its move, of a bundle that nobody owns since second 1010."""

    def run(night: Night) -> None:
        night.observer.is_bundle = lambda _: is_bundle
        night.ends(result, owner)

    return run


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        (led_by("lbd-1", 30.0), ""),
        (led_by("lbd-2", 30.0), "HOLD"),
        (led_by("lbd-2", 30.0, "split"), "HOLD"),
        (led_by("lbd-2", 5.0), ""),
        (placed_after(30.0), "HOLD"),
        (placed_after(5.0), ""),
        (woken(1000.0), ""),
        (woken(1030.0), "HOLD"),
        (unanswered(unsent_at=1010.0), "WAITS"),
        (unanswered(unsent_at=990.0), ""),
        (unanswered(unsent_at=1010.0, sent_at=1020.0), ""),
        (forbidden(1000.0), ""),
        (forbidden(990.0), "DESTINATION"),
        (forbidden(1000.0, redirected_at=1011.0), "DESTINATION"),
        (forbidden(1011.5, redirected_at=1011.0), ""),
        (paused, "HOLD"),
        (quiet(1.0), ""),
        (quiet(5.0), "HOLD"),
        (quiet(5.0, "split"), "HOLD"),
        (leaderless(10.0), ""),
        (leaderless(30.0), "HOLD"),
        (shedding(1, 100.0), ""),
        (shedding(2, 10.0), ""),
        (shedding(2, 20.0), "HOLD"),
        (members("ab", "ab", 60.0), ""),
        (members("ab", "a", 60.0, turns=1), ""),
        (members("ab", "a", 60.0), "HOLD"),
        (members("ab", "a", 60.0, move=MOVE), ""),
        (members("ab", "a", 60.0, clock=True), ""),
        (members("ab", "a", 120.0), ""),
        (members("a", "ab", 20.0), "HOLD"),
        (members("a", "ab", 60.0), ""),
        (back_again, "HOLD"),
        (twice_from_a_broker(""), "LIMITS"),
        (twice_from_a_broker("drain"), ""),
        (after(11, apart=300.0), "LIMITS"),
        (after(10, apart=300.0), ""),
        (after(11, apart=400.0), ""),
        (stands_by(True, ended=True), "ORDERS"),
        (stands_by(True, ended=True, asked_after=30.0), ""),
        (stands_by(True, ended=True, hears=30.0), ""),
        (stands_by(False, ended=True), ""),
        (stands_by(None, ended=False), "ORDERS"),
        (stands_by(True, ended=False), ""),
        (released, "ORDERS"),
        (drained_again, ""),
        (full_for(100.0), ""),
        (full_for(200.0), "LEADERS"),
        (says(Result.UNOWNED, None), ""),
        (says(Result.FAILED, "a:1"), "OUTCOME"),
        (says(Result.LANDED, "b:1"), "OUTCOME"),
        (says(Result.UNKNOWN, None), ""),
        (in_doubt(Result.UNKNOWN, "lbd-1"), "OUTCOME"),
        (in_doubt(Result.UNKNOWN, "lbd-1", again=Result.UNOWNED), ""),
        (in_doubt(Result.UNKNOWN, "lbd-2"), ""),
        (in_doubt(Result.UNOWNED, "lbd-1"), ""),
        (split_before, "OUTCOME"),
        (says(Result.GONE, None), "OUTCOME"),
        (says(Result.GONE, None, is_bundle=False), ""),
    ],
)
def test_a_rule_is_broken(run: Callable[[Night], None], broken: str):
    """By its name; empty where all holds."""
    night = Night()
    run(night)
    assert night.observer.violation.partition(" ")[0] == broken
