"""``python -m tests.nights.by_hand``: faults that are put into lbd for some nights, and which check sees each.

A fault takes the place of one function or number of lbd before its nights begin; they go on until one fails. The table
says after how many seeds that was. Exit code 1 if a fault was not seen, or another check than one of its own saw it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.nights.__main__ import begin_alike, nights, seeds
from tests.nights.scheduler import simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Change = tuple[Any, str, Any]
"""A module or a class, the name of its part, and what takes the place of that."""


@dataclass(frozen=True)
class ByHand:
    """A fault: in words, how it is put in, and the names of the checks that are to see it.

    ``unseen`` is why no night sees it, or only a few. ``minutes`` is how long other faults go on in its nights.
    """

    words: str
    put_in: Callable[[], Sequence[Change]]
    seen_by: str = ""
    minutes: float = 20.0
    unseen: str = ""


def _never(*_: object, **__: object) -> None:
    """Neither does anything, nor finds anything."""


def _no_words(*_: object, **__: object) -> str:
    return ""


# --- the journal


def _intent_after_the_request() -> Sequence[Change]:
    from lbd.store.shared import SharedJournal

    intend, conclude, waiting = SharedJournal.intend, SharedJournal.conclude, dict[str, Any]()

    def later(journal: Any, unload: Any, attempt: int) -> str:
        move: str = journal._next()[1]
        waiting[move] = unload, attempt
        return move

    def both(journal: Any, move: str, outcome: Any) -> None:
        conclude(journal, intend(journal, *waiting.pop(move)) if move in waiting else move, outcome)

    return (SharedJournal, "intend", later), (SharedJournal, "conclude", both)


def _split_without_intent() -> Sequence[Change]:
    from lbd.store.shared import SharedJournal

    return (
        (SharedJournal, "intend_split", lambda journal, _: journal._next()[1]),
        (SharedJournal, "conclude_split", _never),
    )


def _intent_for_itself() -> Sequence[Change]:
    from lbd.store.shared import SharedJournal

    return ((SharedJournal, "_acknowledged", _never),)


def _standby_without_journal() -> Sequence[Change]:
    from lbd.store.shared import SharedJournal

    return ((SharedJournal, "take", _never),)


def _write_that_failed_is_no_failure() -> Sequence[Change]:
    from lbd.errors import UsageError
    from lbd.store.database import Database

    write = Database.write

    def silent(store: Any, *arguments: Any, **options: Any) -> None:
        try:
            write(store, *arguments, **options)
        except UsageError:
            return

    return ((Database, "write", silent),)


def _attempts_forgotten() -> Sequence[Change]:
    from lbd.store import journal

    fold = journal._fold

    def forgets(state: Any, store: Any) -> None:
        fold(state, store)
        state.attempted_at.clear()

    return ((journal, "_fold", forgets),)


def _open_moves_stay_open() -> Sequence[Change]:
    from lbd.act.executor import Executor

    return ((Executor, "recover", _never),)


# --- limits and holds


def _limits_not_asked_at_sending() -> Sequence[Change]:
    from lbd.permit.limits import Ledger

    return ((Ledger, "sending_refusal", _never),)


def _limits_by_process() -> Sequence[Change]:
    from lbd.store.journal import Journal

    sent = Journal.sent.fget
    assert sent is not None

    def own(journal: Any) -> tuple[Any, ...]:
        moves = {request for move, request in journal._state.sent.items() if f"-{journal._run}-" in move}
        return tuple(request for request in sent(journal) if request in moves)

    return ((Journal, "sent", property(own)),)


def _third_attempt() -> Sequence[Change]:
    from lbd.act.executor import Executor

    attempt = Executor._attempt

    def again(executor: Any, run: Any, unload: Any, number: int, source: str) -> Any:
        outcome = attempt(executor, run, unload, number, source)
        for _ in range(2):
            if number == 1 or getattr(outcome, "owner", None) != source:
                break
            outcome = attempt(executor, run, unload, number, source)
        return outcome

    return ((Executor, "_attempt", again),)


def _holds_not_asked_at_sending() -> Sequence[Change]:
    from lbd.act.executor import Executor
    from lbd.act.fence import Fence

    return (Executor, "_hold_now", staticmethod(_never)), (Fence, "pass_on", lambda fence, _="": fence.check())


def _pause_holds_no_plan() -> Sequence[Change]:
    from lbd.daemon.wiring import Assembled

    return ((Assembled, "held", Assembled._quiet),)


def _quiet_hours_at_sending() -> Sequence[Change]:
    from lbd.daemon.wiring import Assembled

    return ((Assembled, "_quiet", _never),)


def _membership_holds_nothing() -> Sequence[Change]:
    from lbd.permit.membership import Membership

    return ((Membership, "unsettled", _no_words),)


def _beside_shedding() -> Sequence[Change]:
    from lbd.turn import assess

    return ((assess, "_shedding", _no_words),)


def _without_a_leading_broker() -> Sequence[Change]:
    """Without the turn's hold, any of the three questions to that broker, or the refusal to ask who is silent."""
    from lbd.act.unload import Unloader
    from lbd.pulsar.admin import Admin
    from lbd.pulsar.broker_health import BrokerHealth
    from lbd.turn import assess

    ready_at, version_at = Admin.ready_at, Admin.version_at

    def leads(admin: Any, base: str) -> bool:
        leader = admin.leader()
        return leader is not None and leader.base == base

    return (
        (assess, "_leaderless", _no_words),
        (Admin, "ready_at", lambda admin, base: leads(admin, base) or ready_at(admin, base)),
        (Admin, "version_at", lambda admin, base: "4.0.8" if leads(admin, base) else version_at(admin, base)),
        (Unloader, "_topics", lambda *_: {}),
        (BrokerHealth, "refuse", _never),
    )


# --- one move


def _destination_not_checked() -> Sequence[Change]:
    from lbd.act.unload import Unloader

    return ((Unloader, "_missing", _never),)


def _outcome_by_the_204() -> Sequence[Change]:
    from lbd.act.unload import Unloader
    from lbd.model import Outcome, Result

    return (
        (
            Unloader,
            "_place",
            lambda _, flight: Outcome(flight.move, Result.LANDED, flight.move.destination, noted=flight.noted),
        ),
    )


def _doubt_is_final() -> Sequence[Change]:
    from lbd.act.executor import Executor

    return ((Executor, "_doubt", _never),)


def _two_moves_of_a_range() -> Sequence[Change]:
    from lbd.act.executor import Pace

    return ((Pace, "keys", lambda _, unload: (unload.bundle,)),)


def _lane_dies() -> Sequence[Change]:
    from lbd.act.executor import Executor

    end = Executor._end

    def dies(executor: Any, unload: Any, outcome: Any, among: Any) -> None:
        if getattr(outcome, "owner", "") != unload.source:
            end(executor, unload, outcome, among)

    return ((Executor, "_end", dies),)


def _fence_without_an_end() -> Sequence[Change]:
    from lbd.act import fence
    from lbd.act.unload import Unloader
    from lbd.store import shared

    request = Unloader._request

    def endless(unloader: Any, flight: Any) -> Any:
        flight.fence.until = math.inf
        return request(unloader, flight)

    return (
        (fence, "SEND_WITHIN_SECONDS", math.inf),
        (Unloader, "_request", endless),
        (shared.SharedJournal, "_in_time", _never),
    )


# --- several lbds


def _heir_at_once() -> Sequence[Change]:
    from lbd.act import executor

    return ((executor, "HEIR_WAITS_SECONDS", 0.0),)


def _open_move_of_another_leader() -> Sequence[Change]:
    from lbd.store.shared import SharedJournal

    return ((SharedJournal, "confirm", _never),)


def _never_replaced() -> Sequence[Change]:
    from lbd.daemon.election import Leadership
    from tests.nights.topic import Connection

    return (Leadership, "_heard", _never), (Connection, "lost", lambda _: False)


def _leads_without_a_disk() -> Sequence[Change]:
    from lbd.daemon import election

    return ((election, "LEADS_UNWRITTEN_SECONDS", math.inf),)


# --- orders


def _ended_order_comes_back() -> Sequence[Change]:
    from lbd.store.orders import OrderList

    return ((OrderList, "_has_ended", lambda *_: False),)


def _order_unknown_to_standbys() -> Sequence[Change]:
    from lbd.store.shared import SharedOrders

    return ((SharedOrders, "take", lambda *_: []),)


def _order_answered_before_it_is_published() -> Sequence[Change]:
    from lbd.store.orders import Orders
    from lbd.store.shared import SharedOrders

    return ((SharedOrders, "change", Orders.change),)


def _released_drain_goes_on() -> Sequence[Change]:
    from lbd.operations.drain import Draining

    return ((Draining, "_stands", Draining._ordered),)


def _released_drain_never_ends() -> Sequence[Change]:
    from lbd.operations.drain import Draining

    return ((Draining, "_over", _never),)


def _restart_with_bundles() -> Sequence[Change]:
    from lbd.operations import rollout

    return ((rollout, "bundles_to_drain", lambda *_: ()),)


def _answer_that_nobody_gets() -> Sequence[Change]:
    from lbd.operations.requests import Requests

    ended = Requests.ended

    def silent(requests: Any, end: Any) -> None:
        if not hasattr(end, "reason"):
            ended(requests, end)

    return ((Requests, "ended", silent),)


# --- the daemon


def _turns_by_the_wall_clock() -> Sequence[Change]:
    from lbd.daemon.service import Service

    return ((Service, "_follow_clock", _never),)


def _traffic_without_a_limit() -> Sequence[Change]:
    from lbd.permit.budget import TrafficShare

    return ((TrafficShare, "refuses", lambda *_: False),)


def _client_never_lost() -> Sequence[Change]:
    from lbd.pulsar.client import SharedLog

    return ((SharedLog, "lost", lambda _: False),)


FAULTS = (
    ByHand("the intent is written after the request", _intent_after_the_request, "INTENT"),
    ByHand("a split has no intent", _split_without_intent, "INTENT"),
    ByHand("an intent stays on its own disk", _intent_for_itself, "INTENT HEIR LIMITS ORDERS HOLD"),
    ByHand("a standby does not keep the leader's journal", _standby_without_journal, "INTENT LIMITS RANGE REST"),
    ByHand("what could not be written counts as written", _write_that_failed_is_no_failure, "LEADERS FORGOTTEN ORDERS"),
    ByHand("attempts are forgotten at a start", _attempts_forgotten, "FORGOTTEN"),
    ByHand("an open move is never closed", _open_moves_stay_open, "REST RELIEF"),
    ByHand("limits are not asked at sending", _limits_not_asked_at_sending, "LIMITS", 60.0),
    ByHand("limits of an hour count from the start of the process", _limits_by_process, "LIMITS", 60.0),
    ByHand("a move that came back is tried again and again", _third_attempt, "LIMITS"),
    ByHand("holds are asked neither before a request nor at a redirect", _holds_not_asked_at_sending, "HOLD"),
    ByHand("a pause does not hold the rest of a plan", _pause_holds_no_plan, "HOLD"),
    ByHand("quiet hours do not hold the rest of a plan", _quiet_hours_at_sending, "HOLD"),
    ByHand("brokers that come and go hold nothing", _membership_holds_nothing, "HOLD"),
    ByHand("lbd balances beside the brokers' own shedding", _beside_shedding, "HOLD"),
    ByHand("a leading broker that hangs holds nothing", _without_a_leading_broker, "HOLD"),
    ByHand("the destination is not checked at sending", _destination_not_checked, "DESTINATION"),
    ByHand("an outcome is taken from the 204", _outcome_by_the_204, "OUTCOME"),
    ByHand("a doubtful outcome is never looked at again", _doubt_is_final, "OUTCOME"),
    ByHand("two moves of one range at once", _two_moves_of_a_range, "RANGE"),
    ByHand("the lane of a bundle that stayed dies", _lane_dies, "REST WAITS RELIEF"),
    ByHand("a leader that stood still sends when it wakes", _fence_without_an_end, "HOLD HEIR"),
    ByHand("an heir does not wait", _heir_at_once, "HEIR"),
    ByHand("a move goes on though another one has led since", _open_move_of_another_leader, "HOLD HEIR"),
    ByHand("a leader does not notice that it leads no more", _never_replaced, "LEADERS HOLD"),
    ByHand("a leader whose disk is full goes on to lead", _leads_without_a_disk, "LEADERS"),
    ByHand("an order that was ended comes back by an older copy", _ended_order_comes_back, "ORDERS REST"),
    ByHand("standbys do not hear of orders", _order_unknown_to_standbys, "ORDERS"),
    ByHand("an order is accepted before it is published", _order_answered_before_it_is_published, "ORDERS RELIEF"),
    ByHand(
        "a drain that was released goes on",
        _released_drain_goes_on,
        "ORDERS",
        unseen="the next step halts it a second later: few nights release one within a redirect of it",
    ),
    ByHand("a drain that was released never ends", _released_drain_never_ends, "REST RELIEF"),
    ByHand("a rollout hands over a broker that has bundles again", _restart_with_bundles, "RESTART"),
    ByHand("who asked for a move that is not sent gets no answer", _answer_that_nobody_gets, "WAITS"),
    ByHand("a clock that is set back stops the turns", _turns_by_the_wall_clock, "REST"),
    ByHand(
        "the traffic of an hour has no limit",
        _traffic_without_a_limit,
        unseen="the share is one of load reports, which the observer does not read",
    ),
    ByHand(
        "the client of the leader topic never says that it is lost",
        _client_never_lost,
        unseen="a night has another client in its place",
    ),
)


@dataclass(frozen=True)
class Seen:
    """What became of a fault: after how many nights which check saw it, with its words; or it was not seen."""

    fault: ByHand
    nights: int
    failure: str = ""

    @property
    def check(self) -> str:
        """The name of the check, or of the error that ended the night; empty where there was none."""
        found = re.search(r"ViolationError: (\w+)", self.failure) or re.match(r"(\w*Error)", self.failure)
        return found[1] if found is not None else ""

    @property
    def is_expected(self) -> bool:
        """Whether a check of its own saw it, or none where nights cannot."""
        return self.check in self.fault.seen_by.split() if self.check else bool(self.fault.unseen)


def lived(faults: Sequence[ByHand], chosen: Sequence[int], minutes: float | None, at_once: int) -> Iterator[Seen]:
    """Each fault, as soon as a night has failed with it or all of them held."""
    for fault in faults:
        seen = Seen(fault, 0)
        with ExitStack() as put_in:
            for target, name, value in fault.put_in():
                put_in.enter_context(mock.patch.object(target, name, value))
            for begin in range(0, len(chosen), at_once):
                for night in nights(chosen[begin : begin + at_once], minutes or fault.minutes, at_once):
                    if not seen.failure:
                        seen = replace(seen, nights=seen.nights + 1, failure=night.failure)
                if seen.failure:
                    break
        yield seen


def main() -> int:
    """Put in the faults that the command line names, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights.by_hand", description=(__doc__ or "").split("\n")[2])
    parser.add_argument("words", nargs="*", help="faults whose words contain one of these (default: all)")
    parser.add_argument("--seeds", type=seeds, default=range(1, 31), help="such as 7, or 1-30 (default)")
    parser.add_argument("--minutes", type=float, help="how long faults go on in each night (default: 20 or 60)")
    parser.add_argument("--at-once", type=int, default=1, help="nights at the same time")
    asked = parser.parse_args()
    begin_alike("tests.nights.by_hand")
    with simulated(0):
        from tests.nights import night  # noqa: F401 - locks and clocks of lbd are made within one
    faults = [fault for fault in FAULTS if not asked.words or any(word in fault.words for word in asked.words)]
    print("| fault | seen by | after nights |\n|---|---|---|", flush=True)
    strange = []
    for seen in lived(faults, asked.seeds, asked.minutes, asked.at_once):
        after = f"{seen.nights}" if seen.check else f"not in {seen.nights}"
        print(f"| {seen.fault.words} | {seen.check or '-'} | {after} |", flush=True)
        print(f"    {seen.failure}", file=sys.stderr, flush=True)
        strange += [] if seen.is_expected else [seen]
    for seen in strange:
        wanted = seen.fault.seen_by or f"nothing ({seen.fault.unseen})"
        print(f"{seen.fault.words}: wanted {wanted}, found {seen.failure or 'nothing'}")
    return 1 if strange else 0


if __name__ == "__main__":
    sys.exit(main())
