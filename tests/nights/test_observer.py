"""Each rule of the observer can be broken, and a case beside it keeps it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.model import Outcome, Result, Unload
from lbd.simulate.fake_cluster import OwnershipChange
from lbd.simulate.faults import Request
from lbd.store.orders import PAUSE
from tests.nights.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

BUNDLE = "t/n/0x00000000_0xffffffff"
MOVE = Unload(BUNDLE, "a:1", "b:1", 1.0, 1.0, order="drain")
HISTORY = (OwnershipChange(0.0, BUNDLE, "a:1"), OwnershipChange(1010.0, BUNDLE, None))


class Night:
    """An observer at second 1000 of two machines, of which lbd-1 leads and moves a bundle."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.observer = Observer(
            lambda: self.seconds, lambda: HISTORY, lambda _: None, per_hour=10, cool_down_seconds=60.0
        )
        self.look("lbd-1")

    def look(self, writer: str, *full: str) -> None:
        """One of the looks of each second."""
        self.observer.look(["lbd-1"], writer, (), (), full)

    def sends(self, verb: str = "unload") -> None:
        """lbd-1 sends the request of its open move or split."""
        split = SimpleNamespace(cut=SimpleNamespace(bundle=BUNDLE))
        journal = SimpleNamespace(open=(("m", MOVE),), open_splits=(("s", split),))
        request: Any = Request("a:1", "PUT", f"/admin/v2/namespaces/{BUNDLE}/{verb}", {}, b"", None)
        self.observer.leaves("lbd-1", SimpleNamespace(journal=journal), request)  # type: ignore[arg-type]

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
        (paused, "HOLD"),
        (released, "ORDERS"),
        (drained_again, ""),
        (full_for(100.0), ""),
        (full_for(200.0), "LEADERS"),
        (says(Result.UNOWNED, None), ""),
        (says(Result.FAILED, "a:1"), "OUTCOME"),
        (says(Result.LANDED, "b:1"), "OUTCOME"),
        (says(Result.UNKNOWN, None), ""),
        (says(Result.GONE, None), "OUTCOME"),
        (says(Result.GONE, None, is_bundle=False), ""),
    ],
)
def test_a_rule_is_broken(run: Callable[[Night], None], broken: str):
    """By its name; empty where all holds."""
    night = Night()
    run(night)
    assert night.observer.violation.partition(" ")[0] == broken
