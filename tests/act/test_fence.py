"""The fence of a move: until when a request may begin, what a proof extends, and what stops it."""

from __future__ import annotations

import pytest

from lbd.act.fence import RENEW_WITHIN_SECONDS, SEND_WITHIN_SECONDS, Fence
from lbd.errors import AdminError, RefusedError, UsageError
from lbd.reason import Reason

BEGUN = 1000.0


class Boot:
    """A boot clock that a test sets, and an lbd that leads until it does not; ``proofs`` are those that were asked."""

    def __init__(self) -> None:
        self.now, self.leads, self.held = BEGUN, True, False
        self.proofs: list[bool] = []

    def prove(self, again: bool) -> None:
        """As the journal does."""
        self.proofs.append(again)
        if not self.leads:
            raise RefusedError("this lbd leads no more")

    def fence(self) -> Fence:
        """Of a move that was checked at BEGUN."""
        held = lambda: (Reason.PAUSED, "by ann") if self.held else None  # noqa: E731
        return Fence(BEGUN, lambda: self.now, self.prove, held)


@pytest.mark.parametrize(("seconds", "begins"), [(0.0, True), (15.0, True), (15.01, False), (100.0, False)])
def test_a_request_begins_within_fifteen_seconds_of_the_checks_or_not_at_all(seconds: float, begins: bool):
    """By a clock that goes on while the machine is suspended."""
    boot = Boot()
    fence = boot.fence()
    boot.now += seconds
    if begins:
        fence.pass_on()
        assert (boot.proofs, fence.until) == ([False], BEGUN + SEND_WITHIN_SECONDS)
        return
    for begin in (fence.pass_on, fence.check):
        with pytest.raises(AdminError, match=rf"^{seconds:.0f} s after its checks, wanted 15 at most; not sent$"):
            begin()


def test_a_hold_that_cannot_be_read_stops_a_request():
    """It is known that nothing was sent, as under a hold."""

    def unread() -> None:
        raise UsageError("lbd.db: disk I/O error")

    with pytest.raises(AdminError, match=r"^lbd\.db: disk I/O error; not sent$") as stopped:
        Fence(held=unread).pass_on()
    assert not stopped.value.sent


@pytest.mark.parametrize(
    ("left", "proofs"),
    [(RENEW_WITHIN_SECONDS, [False]), (RENEW_WITHIN_SECONDS - 0.01, [True, False]), (-60.0, [True, False])],
    ids=["enough", "nearly over", "long over"],
)
def test_what_ends_a_move_proves_anew_that_it_leads_when_the_time_is_nearly_over(left: float, proofs: list[bool]):
    """And has fifteen seconds more then; with five seconds left it needs no other proof."""
    boot = Boot()
    fence = boot.fence()
    boot.now = fence.until - left
    fence.renew()
    extended = boot.now + SEND_WITHIN_SECONDS if True in proofs else BEGUN + SEND_WITHIN_SECONDS
    assert (boot.proofs, fence.until) == (proofs, extended)


@pytest.mark.parametrize(
    ("change", "stopped"),
    [({"leads": False}, {"pass_on", "check", "renew"}), ({"held": True}, {"pass_on"})],
    ids=["another lbd leads", "a person pauses it"],
)
def test_what_stops_a_request(change: dict[str, bool], stopped: set[str]):
    """A pause holds what is not begun; what ends a move that was begun is only for another leader to stop."""
    boot = Boot()
    fence = boot.fence()
    vars(boot).update(change)
    raised = set()
    for name in ("pass_on", "check", "renew"):
        try:
            getattr(fence, name)()
        except AdminError as error:
            assert str(error).endswith("; not sent")  # noqa: PT017 - each of the three is tried
            assert error.sent is False  # noqa: PT017
            raised.add(name)
    assert raised == stopped
