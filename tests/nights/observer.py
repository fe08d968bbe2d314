"""What must hold at each step of a night, whatever fails: one named check each (:class:`Check`).

The observer knows the truth; the lbds do not know of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from lbd.act.executor import AMEND_EVERY_SECONDS, AMEND_FOR_SECONDS, DOUBTFUL
from lbd.act.fence import ARRIVES_WITHIN_SECONDS, HEIR_WAITS_SECONDS, SEND_WITHIN_SECONDS
from lbd.model import Outcome, Result, bundle_namespace, bundle_range
from lbd.permit.membership import JOIN_SETTLE_SECONDS
from lbd.store.orders import DRAIN, PAUSE
from tests.nights.topic import NOTICED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lbd.daemon.engine import Engine
    from lbd.model import Skip, Unload
    from lbd.permit.budget import Sent
    from lbd.simulate.answers import Request
    from lbd.simulate.fake_cluster import OwnershipChange

HOUR_SECONDS = 3600.0
SLACK_SECONDS = 2.0
"""Limits and cool-downs are measured by the journal's times, which are taken a moment before a request leaves."""

REPORTED_SECONDS = 60.0
"""So long after the look at its end an outcome is reported at most: a slow disk and the leader topic take time."""

UNWRITTEN_SECONDS = 180.0
"""How long an lbd whose disk is full may lead: it notices that in a turn, and turns among silent brokers are long."""

ATTEMPTS = 2
"""A miss is tried once more."""

UNSENT = 3
"""So many intents of an hour may have come to no request."""

LEADERS_SECONDS = 10.0
"""How long an lbd that reaches the topic may believe that it leads while another one does: it looks each second."""

LOOK_SECONDS = 1.0
"""Who leads is looked at so often."""

ANSWERED_SECONDS = 5.0
"""How much longer than a request lasts its caller may wait."""

SETTLES_SECONDS = 120.0
"""Nothing moves for so long after a broker has left (``membership_settle_seconds``)."""

QUIET_LATELY_SECONDS = 600.0
"""A hot broker that could not be relieved then may be hot now."""

SHARED_SECONDS = 60.0
"""An lbd that has heard the topic for so long knows the orders of before."""

AMENDED_SECONDS = 2 * AMEND_EVERY_SECONDS
"""So long after the last look at a doubtful outcome it is true, where the brokers could be asked for as long."""


class Check(Enum):
    """What is checked. The value is the rule."""

    INTENT = "no request that can disconnect anybody without its intent in the journal"
    HOLD = (
        "no unload and no split while lbd is paused, in quiet hours, or by an lbd that another one has replaced; no "
        "unload while no broker leads, brokers shed by themselves, or have just come or gone; none is placed by one "
        "that another one has replaced"
    )
    DESTINATION = "no unload to a broker that is drained, or that policies forbid"
    LIMITS = "no more unloads within an hour than the limits, of all and of a broker, none within a bundle's cool-down"
    RANGE = "no two unloads of a bundle, or of a hash range, at the same time"
    HEIR = "two lbds never at work on one move: an heir begins when its predecessor has ended for sure"
    OUTCOME = (
        "an outcome says who has owned the bundle just before, nobody among them, or that it is no bundle; where that "
        "could not be known at first, the last word says it"
    )
    FORGOTTEN = "after a kill an lbd knows each unload that it has sent"
    ORDERS = "no order is in force that a person ended, and none is lost, at the leader or at an lbd that stands by"
    LEADERS = "two lbds do not lead for long, nor does one that cannot hear the topic's broker or write its disk"
    RESTART = "a rollout has a broker restarted that owns nothing"
    WAITS = "every wait of a person ends, and with an answer where it is known that nothing will be sent"
    BUGS = "no lbd reports a bug in itself"
    REST = "once nothing fails, one lbd leads, all take their turns, and no move and no order of a person stays open"
    RELIEF = "once nothing fails, a hot broker is relieved"


class ViolationError(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Sending:
    """The first request of an attempt to move a bundle; ``order`` is that of a person, else empty."""

    seconds: float
    machine: str
    move: str
    bundle: str
    order: str
    source: str = ""
    destination: str = ""


@dataclass
class _Doubt:
    """An outcome that is looked at again ``until`` then; ``able_since``: its lbd could ask all brokers."""

    machine: str
    outcome: Outcome
    until: float
    able_since: float | None = None


@dataclass(frozen=True)
class _Members:
    """The brokers that are listed ``since`` then; ``left``: some left at that time."""

    listed: frozenset[str]
    since: float
    left: bool = False


@dataclass(frozen=True)
class _Given:
    """An order that an lbd has accepted; ``ended_at`` is when a person was told that it is over."""

    key: str
    given_at: float
    ended_at: float | None = None


@dataclass(frozen=True)
class _Wait:
    machine: str
    until: float
    what: str


class Observer:
    """Checks requests when they leave, outcomes when they are reported, and journals when they are opened again.

    ``now`` is seconds of the night, ``history`` the true owners, ``tell`` takes a line of the story.
    """

    def __init__(
        self,
        now: Callable[[], float],
        history: Callable[[], Sequence[OwnershipChange]],
        tell: Callable[[str], None],
        *,
        per_hour: int,
        of_broker_per_hour: int,
        cool_down_seconds: float,
    ) -> None:
        self._now, self._history, self._tell = now, history, tell
        self._per_hour, self._of_broker_per_hour = per_hour, of_broker_per_hour
        self._cool_down_seconds = cool_down_seconds
        self.sendings: list[Sending] = []
        self.paused_since: float | None = None
        self.drained_since: dict[str, float] = {}
        self.forbidden: Callable[[str, str], float | None] = lambda _bundle, _broker: None
        """Since when policies forbid a broker for a bundle; None where they do not."""
        self.excused_until: dict[str, float] = {}
        """Machines that stood still between a check and its request; nothing can prevent that request."""
        self.checked_at: Callable[[], float] = lambda: -inf
        """When the task that sends a request has made its last check."""
        self.is_bundle: Callable[[str], bool] = lambda _bundle: True
        """Whether there is a bundle of that name."""
        self.quiet_since: Callable[[str], float | None] = lambda _machine: None
        """Since when a machine's clock shows quiet hours; None outside of these."""
        self.clock_set_at: dict[str, float] = {}
        """When the clock of a machine was set last."""
        self._quiet_at = -HOUR_SECONDS
        """When it was quiet somewhere."""
        self._leaderless_since: float | None = None
        self._shedding_since: float | None = None
        self._members: tuple[_Members, ...] = ()
        """The last two."""
        self._turns: dict[str, list[float]] = {}
        """When turns without an error ended, since the start of each lbd."""
        self._doubts: dict[str, _Doubt] = {}
        self._writer: tuple[str | None, float] = None, 0.0
        """The machine that may write the leader topic, and since when."""
        self._released: dict[str, float] = {}
        """Drains of brokers that a person ended, and when, where none was ordered since."""
        self._orders: dict[str, _Given] = {}
        self._waits: dict[str, _Wait] = {}
        self._redirected: dict[str, float] = {}
        """When an unload of a bundle was redirected last."""
        self._unsent: dict[tuple[str, str], float] = {}
        """When a machine said last that it does not send the move of a bundle."""
        self._acts: dict[str, tuple[float, str]] = {}
        """The last request of each move that changes something: when, and by which machine."""
        self._several_since: float | None = None
        self._leads_since: dict[str, float] = {}
        self._unheard_since: dict[str, float] = {}
        self._full_since: dict[str, float] = {}
        self._hears_since: dict[str, float] = {}
        self.violation = ""

    def step(self) -> None:
        """Raise what was seen since the last step: an error in a task of an lbd would be caught there."""
        if self.violation:
            raise ViolationError(self.violation)

    # -- requests

    def leaves(self, machine: str, engine: Engine, request: Request) -> Unload | None:
        """A request leaves a machine, to be called in the task that sends it; returns the move where it unloads."""
        if request.method == "PUT" and request.path.endswith("/unload"):
            return self._unloads(machine, engine, request)
        if request.path.endswith("/schema"):
            self._may_lead(machine, f"has {request.path} placed")
        elif request.method == "PUT" and request.path.endswith("/split"):
            bundle = _bundle(request)
            self._tell(f"{machine} sends the split of {bundle} to {request.broker}")
            self._may_act(machine, f"splits {bundle}")
            self._forget_doubts(bundle)
            if bundle not in {split.cut.bundle for _, split in engine.journal.open_splits}:
                self._violates(Check.INTENT, f"{machine} splits {bundle}")
        return None

    def _unloads(self, machine: str, engine: Engine, request: Request) -> Unload | None:
        bundle = _bundle(request)
        self._tell(f"{machine} sends the unload of {bundle} to {request.broker} {dict(request.query)}")
        moves = [(move, unload) for move, unload in engine.journal.open if unload.bundle == bundle]
        if not moves:
            self._violates(Check.INTENT, f"{machine} unloads {bundle}")
            return None
        if len(moves) > 1:
            self._violates(Check.RANGE, f"{machine} has two open moves of {bundle}: {moves}")
        span = bundle_range(bundle)
        alike = {unload.bundle for _, unload in engine.journal.open if bundle_range(unload.bundle) == span} - {bundle}
        if alike:
            self._violates(Check.RANGE, f"{machine} unloads {bundle} while {alike} are under way (#25518)")
        move, unload = moves[-1]
        self._goes(machine, unload, request)
        self._may_move(machine, unload)
        self._forget_doubts(bundle)
        self._comes_late_enough(machine, move, bundle)
        if self._now() > self._excused(machine):
            self._acts[move] = self._now(), machine
        if move not in {sending.move for sending in self.sendings}:
            ends = unload.source, unload.destination or ""
            if not unload.order and self.left(engine) < 0:
                words = f"{machine} unloads {bundle}, though the limits of an hour were used up by its own journal"
                self._violates(Check.LIMITS, words)
            self._sends(Sending(self._now(), machine, move, bundle, unload.order, *ends))
        return unload

    def _excused(self, machine: str) -> float:
        """Until when nothing could prevent the request of now: its machine stood still after the last check."""
        until = self.excused_until.get(machine, 0.0)
        return until if self.checked_at() < until else 0.0

    def _goes(self, machine: str, unload: Unload, request: Request) -> None:
        """Where to, and whether anything may go there now."""
        bundle, now = unload.bundle, self._now()
        destination = request.query.get("destinationBroker", unload.destination) or ""
        if destination != unload.destination:
            self._violates(
                Check.INTENT, f"{machine} unloads {bundle} to {destination}, intended was {unload.destination}"
            )
        self._may_act(machine, f"unloads {bundle}")
        released = self._released.get(unload.source) if unload.order == "drain" else None
        if released is not None and now > max(released + SLACK_SECONDS, self._excused(machine)):
            words = f"{machine} drains {unload.source} of {bundle}, which was released at {released:.3f}"
            self._violates(Check.ORDERS, words)
        redirected = self._redirected.get(bundle, -inf)
        for since, checked, why in (
            (self.drained_since.get(destination), False, "is drained"),
            (self.forbidden(bundle, destination), True, "is forbidden by policies"),
        ):
            patience = 0.0 if checked and since is not None and since < redirected else HEIR_WAITS_SECONDS
            if since is not None and now > max(since + patience, self._excused(machine)):
                words = f"{machine} unloads {bundle} to {destination}, which {why} since {since:.3f}"
                self._violates(Check.DESTINATION, words)

    def redirected(self, request: Request) -> None:
        """A machine is told to send a request to another broker: an unload is checked again before that."""
        if request.path.endswith("/unload"):
            self._redirected[_bundle(request)] = self._now()

    def _may_act(self, machine: str, what: str) -> None:
        """Neither a pause nor quiet hours nor another leader hold this machine."""
        now, excused = self._now(), self._excused(machine)
        if self.paused_since is not None and now > max(self.paused_since, excused):
            self._violates(Check.HOLD, f"{machine} {what}, paused since {self.paused_since:.3f}")
        self._may_lead(machine, what)
        quiet = self.quiet_since(machine)
        if quiet is not None and now > max(quiet + SLACK_SECONDS, excused):
            self._violates(Check.HOLD, f"{machine} {what}, in quiet hours since {quiet:.0f}")

    def _may_lead(self, machine: str, what: str) -> None:
        """No other machine has led for so long that it may be at work on what this one began."""
        writer, since = self._writer
        if writer not in {None, machine} and self._now() > max(since + HEIR_WAITS_SECONDS, self._excused(machine)):
            self._violates(Check.HOLD, f"{machine} {what}, {writer} leads since {since:.0f}")

    def _may_move(self, machine: str, unload: Unload) -> None:
        """Nothing that this machine has seen of the brokers holds it."""
        now, words = self._now(), f"{machine} unloads {unload.bundle}"
        if now <= self._excused(machine):
            return
        leaderless, shedding = self._leaderless_since, self._shedding_since
        if leaderless is not None and now > leaderless + HEIR_WAITS_SECONDS:
            self._violates(Check.HOLD, f"{words}, no broker that answers leads since {leaderless:.0f}")
        if shedding is not None and self._is_known(machine, shedding):
            self._violates(Check.HOLD, f"{words}, brokers shed by themselves since {shedding:.0f}")
        members = self._members[-1] if self._members else None
        if unload.order or members is None or not self._is_known(machine, members.since):
            return
        before = self._members[0]
        left = members.left or (before.left and self._seen_at(machine, before.since) < members.since)
        settles = members.since + (SETTLES_SECONDS if left else JOIN_SETTLE_SECONDS) - SLACK_SECONDS
        since = before.since if left and not members.left else members.since
        if now < settles and self.clock_set_at.get(machine, -inf) < since:
            self._violates(Check.HOLD, f"{words}, brokers came or went at {members.since:.0f}")

    def _is_known(self, machine: str, since: float) -> bool:
        """Whether a turn has seen what is so ``since`` then, and nothing is on its way that was begun before that."""
        return self._now() > self._seen_at(machine, since) + SEND_WITHIN_SECONDS

    def _seen_at(self, machine: str, since: float) -> float:
        """When the first turn ended that began after that: the second one that ended; infinite where none has."""
        later = [ended_at for ended_at in self._turns.get(machine, ()) if ended_at > since]
        return later[1] if len(later) > 1 else inf

    def _comes_late_enough(self, machine: str, move: str, bundle: str) -> None:
        """A request or an outcome of a move that another lbd began: that one sends nothing more of it."""
        seconds, before = self._acts.get(move, (0.0, machine))
        if before == machine:
            return
        gap, leads_for = self._now() - seconds, self._now() - self._leads_since.get(machine, 0.0)
        if gap < ARRIVES_WITHIN_SECONDS:
            words = f"{machine} takes {bundle} over {gap:.3f} s after a request of {before}"
            self._violates(Check.HEIR, f"{words}, wanted {ARRIVES_WITHIN_SECONDS:.0f} s at least")
        if leads_for < HEIR_WAITS_SECONDS - LOOK_SECONDS:
            words = f"{machine} takes {bundle} of {before} over {leads_for:.0f} s after it became the leader"
            self._violates(Check.HEIR, f"{words}, wanted {HEIR_WAITS_SECONDS:.0f} s at least")

    def left(self, engine: Engine) -> int:
        """How many more unloads of turns an hour allows by an lbd's own journal, of all and of each broker.

        Attempts that came to no request count there, too.
        """
        own = [request for request in engine.journal.sent if not request.order]
        begin = max((request.at for request in own), default=0.0) - HOUR_SECONDS + SLACK_SECONDS
        return self._left_beside([request for request in own if request.at > begin])

    def _left_beside(self, hour: Collection[Sending | Sent]) -> int:
        of_each = Counter(end for one in hour for end in (f"from {one.source}", f"to {one.destination}"))
        return min(self._per_hour - len(hour), self._of_broker_per_hour - max(of_each.values(), default=0))

    def _sends(self, sending: Sending) -> None:
        """An attempt begins: it counts among those of the last hour, and of its bundle's rest.

        What a person has ordered counts, and is not limited.
        """
        self.sendings.append(sending)
        if sending.order:
            return
        hour = [one for one in self.sendings if one.seconds > sending.seconds - HOUR_SECONDS + SLACK_SECONDS]
        unordered = [one for one in hour if not one.order]
        if len(unordered) > self._per_hour:
            self._violates(Check.LIMITS, f"{len(unordered)} unloads within an hour, wanted {self._per_hour} at most")
        for end in ("source", "destination"):
            of_broker = [one for one in unordered if getattr(one, end) == getattr(sending, end)]
            if len(of_broker) > self._of_broker_per_hour:
                words = f"{len(of_broker)} unloads with {end} {getattr(sending, end)} within an hour"
                self._violates(Check.LIMITS, f"{words}, wanted {self._of_broker_per_hour} at most")
        rest = sending.seconds - self._cool_down_seconds + SLACK_SECONDS
        before = [one for one in self.sendings if one.bundle == sending.bundle and one.seconds > rest]
        if len(before) > ATTEMPTS:
            self._violates(Check.LIMITS, f"{sending.bundle} is unloaded {len(before)} times within its cool-down")
        if {one.machine for one in before} != {sending.machine}:
            others = sorted({one.machine for one in before})
            self._violates(Check.LIMITS, f"{sending.bundle} is unloaded by {' and '.join(others)} within its cool-down")

    # -- outcomes

    def ended(self, machine: str, end: Outcome | Skip) -> None:
        """An lbd reports how a move ended."""
        if not isinstance(end, Outcome):
            self._tell(f"{machine} did not send: {end.what}: {end.reason.value}: {end.detail}")
            self._unsent[machine, end.what] = self._now()
            return
        bundle, owner = end.unload.bundle, end.owner
        self._tell(f"{machine} says {bundle}: {end.result.value}, owner {owner} {end.detail}")
        self._doubts_of(machine, end)
        last = next((one for one in reversed(self.sendings) if one.bundle == bundle), None)
        if last is not None and not end.amended:
            self._comes_late_enough(machine, last.move, bundle)
        if end.result is Result.GONE and self.is_bundle(bundle):
            self._violates(Check.OUTCOME, f"{machine} says that there is no {bundle}, and there is")
        if end.result in {Result.GONE, Result.UNKNOWN} or (end.result is Result.FAILED and owner is None):
            return
        sent_at = 0.0 if last is None else last.seconds
        stood = self.excused_until.get(machine, 0.0) >= sent_at
        since = sent_at - SLACK_SECONDS if stood else max(sent_at - SLACK_SECONDS, self._now() - REPORTED_SECONDS)
        if (ceased_at := self._ceased_at(bundle)) is not None and ceased_at < since and owner is not None:
            self._violates(
                Check.OUTCOME, f"{machine} says that {bundle} is at {owner}; it was split at {ceased_at:.3f}"
            )
        changes = [change for change in self._history() if change.bundle == bundle]
        before = [change.owner for change in changes if change.seconds < since]
        owners = {*before[-1:], *(change.owner for change in changes if change.seconds >= since)}
        if owner not in owners:
            words = f"{machine} says that {bundle} is at {owner}; since {since:.3f} it was at {owners}"
            self._violates(Check.OUTCOME, words)

    def _ceased_at(self, bundle: str) -> float | None:
        """When a bundle was split; None where it is one."""
        if self.is_bundle(bundle):
            return None
        namespace, (low, high) = bundle_namespace(bundle), _ends(bundle)
        parts = (
            change.seconds
            for change in self._history()
            if bundle_namespace(change.bundle) == namespace and change.bundle != bundle
            for ends in (_ends(change.bundle),)
            if low <= ends[0] and ends[1] <= high
        )
        return min(parts, default=None)

    def _doubts_of(self, machine: str, end: Outcome) -> None:
        """An outcome that its lbd will look at again, or what that look came to."""
        bundle = end.unload.bundle
        if not end.amended:
            self._doubts.pop(bundle, None)
            if end.result in DOUBTFUL:
                self._doubts[bundle] = _Doubt(machine, end, self._now() + AMEND_FOR_SECONDS)
        elif (doubt := self._doubts.get(bundle)) is not None and doubt.machine == machine:
            doubt.outcome = end

    def _forget_doubts(self, bundle: str) -> None:
        """Another request for its range begins: what comes of it is that one's."""
        span = bundle_range(bundle)
        self._doubts = {other: doubt for other, doubt in self._doubts.items() if bundle_range(other) != span}

    def look_at_doubts(self, able: Collection[str]) -> None:
        """Each second: of the machines that are ``able`` to ask all brokers, the last word on each move is true."""
        now = self._now()
        for bundle, doubt in list(self._doubts.items()):
            doubt.able_since = None if doubt.machine not in able else doubt.able_since or now
            if now <= doubt.until + AMENDED_SECONDS:
                continue
            del self._doubts[bundle]
            since, outcome = doubt.until - AMENDED_SECONDS, doubt.outcome
            changes = [change for change in self._history() if change.bundle == bundle]
            if doubt.able_since is None or doubt.able_since > since or changes[-1].seconds > since:
                continue
            known = outcome.result is not Result.UNKNOWN and outcome.owner == changes[-1].owner
            if not known and self.is_bundle(bundle):
                words = f"{doubt.machine} leaves it at that {bundle} is {outcome.result.value}, owner {outcome.owner}"
                self._violates(Check.OUTCOME, f"{words}; since {changes[-1].seconds:.3f} it is at {changes[-1].owner}")

    def opens(self, machine: str, engine: Engine) -> None:
        """An lbd has opened its journal again: it knows each unload that it has ever sent."""
        known = engine.journal.attempted_at
        for sending in self.sendings:
            if sending.machine == machine and sending.bundle not in known:
                self._violates(Check.FORGOTTEN, f"{machine} sent an unload of {sending.bundle}")

    # -- orders of people

    def waits(self, name: str, machine: str, seconds: float, what: str) -> None:
        """Somebody waits for the answer to a request."""
        self._waits[name] = _Wait(machine, self._now() + seconds + ANSWERED_SECONDS, what)

    def answered(self, name: str) -> None:
        """The wait has ended."""
        self._waits.pop(name, None)

    def unanswered(self, machine: str, bundle: str, asked_at: float) -> None:
        """A machine has taken up what somebody asked for, a move of this bundle, and has not answered in time."""
        sent = (sending.seconds for sending in self.sendings if sending.bundle == bundle)
        unsent_at = self._unsent.get((machine, bundle), -inf)
        if unsent_at > max(sent, default=asked_at) and unsent_at > asked_at:
            words = f"{machine} does not send the move of {bundle} since {unsent_at:.3f}"
            self._violates(Check.WAITS, f"{words}, and has not said so to who asked for it at {asked_at:.3f}")

    def given(self, name: str, key: str) -> None:
        """An lbd has accepted an order, in place of the one with its key."""
        self.over(key)
        self._orders[name] = _Given(key, self._now())
        if key == PAUSE:
            self.paused_since = self._now()
        elif key.startswith(DRAIN):
            self.drained_since.setdefault(key.removeprefix(DRAIN), self._now())

    def given_here(self, key: str) -> None:
        """An lbd has accepted an order while nobody led: it holds there, and the others will hear of it."""
        self.over(key)

    def restarts(self, broker: str, owned: Sequence[str]) -> None:
        """A person has been told to restart a broker, which owns these bundles."""
        if owned:
            self._violates(Check.RESTART, f"{broker} owns {', '.join(owned)}")

    def may_be_over(self, key: str) -> None:
        """Orders of this key may have ended, or may not: nothing is expected of them any more."""
        self._orders = {name: order for name, order in self._orders.items() if order.key != key}
        self._free(key)

    def over(self, key: str) -> None:
        """An lbd has told a person that orders of this key are over."""
        for name, order in self._orders.items():
            if order.key == key and order.ended_at is None:
                self._orders[name] = _Given(key, order.given_at, self._now())
        self._free(key)

    def _free(self, key: str) -> None:
        if key == PAUSE:
            self.paused_since = None
        elif key.startswith(DRAIN):
            self.drained_since.pop(key.removeprefix(DRAIN), None)

    def drain_is_over(self, broker: str) -> None:
        """An lbd has told a person that a broker is drained no more, nor by a rollout."""
        self._released[broker] = self._now()

    def may_drain(self, brokers: Collection[str]) -> None:
        """An lbd may have accepted a drain of these."""
        for broker in brokers:
            self._released.pop(broker, None)

    def leads(self, machine: str, engine: Engine) -> None:
        """The leader knows all orders, to be called in a task of its machine.

        One that has stood still since then is about to see that it leads no more.
        """
        read = engine.orders.read()
        woken = self._now() <= self.excused_until.get(machine, 0.0) + LOOK_SECONDS
        if woken or not engine.leading.leading:
            return
        for name, order in self._orders.items():
            stands = read.stands(name)
            if stands is None and order.ended_at is None:
                self._violates(Check.ORDERS, f"{machine} leads, and does not know of {order.key}, given as {name}")
            if stands is False and order.ended_at is None and order.key == PAUSE:
                self._violates(Check.ORDERS, f"{machine} leads, and has ended the pause {name}, which nobody has")
            if stands and order.ended_at is not None:
                words = f"{machine} leads, and {order.key}, given as {name}, is in force; it was ended"
                self._violates(Check.ORDERS, f"{words} at {order.ended_at:.3f}")

    def stands_by(self, machine: str, engine: Engine) -> None:
        """An lbd that could hear the topic and write for a while has the orders of before; called as :meth:`leads`."""
        read, since = engine.orders.read(), self._now() - SHARED_SECONDS
        if self._hears_since.get(machine, inf) > since:
            return
        for name, order in self._orders.items():
            stands = read.stands(name)
            if order.ended_at is None and order.given_at < since and stands is None:
                self._violates(Check.ORDERS, f"{machine} stands by, and does not know of {order.key}, given as {name}")
            if order.ended_at is not None and order.ended_at < since and stands:
                words = f"{machine} stands by, and says that {order.key}, given as {name}, is in force; it was ended"
                self._violates(Check.ORDERS, f"{words} at {order.ended_at:.3f}")

    # -- each second

    def turned(self, machine: str) -> None:
        """A turn has ended without an error."""
        self._turns.setdefault(machine, []).append(self._now())

    def look_at_brokers(self, listed: Collection[str], *, leads: bool, sheds: bool) -> None:
        """The brokers: which are listed, whether one that answers leads them, and whether any sheds by itself."""
        now = self._now()
        self._leaderless_since = None if leads else self._leaderless_since or now
        self._shedding_since = None if not sheds else self._shedding_since or now
        before = self._members[-1] if self._members else _Members(frozenset(listed), -HOUR_SECONDS)
        if before.listed != set(listed):
            self._members = before, _Members(frozenset(listed), now, left=not before.listed <= set(listed))
        elif not self._members:
            self._members = (before,)

    def look(
        self,
        leaders: Collection[str],
        writer: str | None,
        stopped: Collection[str],
        unheard: Collection[str],
        full: Collection[str],
    ) -> None:
        """Who leads, by their own account and by the topic's (``writer``), and who waits.

        ``stopped`` stand still, ``unheard`` and the topic's broker do not hear each other, ``full`` have full disks.
        """
        now, silent = self._now(), {*stopped, *unheard}
        self._leads_since = {machine: self._leads_since.get(machine, now) for machine in leaders}
        if writer != self._writer[0]:
            self._writer = writer, now
        several = set(leaders) - silent
        if len(several) < 2:
            self._several_since = None
        elif self._several_since is None:
            self._several_since = now
        elif now - self._several_since > LEADERS_SECONDS:
            self._violates(Check.LEADERS, f"{sorted(several)} lead since {self._several_since:.0f}")
        alone = {machine for machine in leaders if machine in unheard and machine not in stopped}
        self._unheard_since = {machine: self._unheard_since.get(machine, now) for machine in sorted(alone)}
        for machine, since in self._unheard_since.items():
            if now - since > NOTICED_SECONDS + LEADERS_SECONDS:
                self._violates(Check.LEADERS, f"{machine} leads, and has not heard the topic since {since:.0f}")
        hearing = self._turns.keys() - silent - set(full)
        self._hears_since = {machine: self._hears_since.get(machine, now) for machine in hearing}
        if any(self.quiet_since(machine) is not None for machine in self._turns):
            self._quiet_at = now
        self._look_at_disks({machine for machine in leaders if machine in full and machine not in stopped})
        self._look_at_waits(silent)

    def _look_at_disks(self, unable: Collection[str]) -> None:
        """Which leaders have full disks."""
        now = self._now()
        self._full_since = {machine: self._full_since.get(machine, now) for machine in sorted(unable)}
        for machine, since in self._full_since.items():
            if now - since > UNWRITTEN_SECONDS:
                self._violates(Check.LEADERS, f"{machine} leads, and its disk is full since {since:.0f}")

    def _look_at_waits(self, silent: Collection[str]) -> None:
        """Who waits; of a machine that stands still or hears nothing, that does not count."""
        now = self._now()
        for name, wait in list(self._waits.items()):
            if wait.machine in silent:
                self._waits[name] = _Wait(wait.machine, max(wait.until, now + ANSWERED_SECONDS), wait.what)
            elif now > wait.until:
                self._violates(Check.WAITS, f"{wait.what} waits at {wait.machine} since before {wait.until:.0f}")

    def gone(self, machine: str) -> None:
        """A machine was killed: who waited there sees the connection break."""
        self._waits = {name: wait for name, wait in self._waits.items() if wait.machine != machine}
        self._doubts = {bundle: doubt for bundle, doubt in self._doubts.items() if doubt.machine != machine}
        self._turns.pop(machine, None)

    def says(self, machine: str, event: str) -> None:
        """A line of an lbd's log."""
        if "bug in lbd" in event:
            self._violates(Check.BUGS, f"{machine}: {event}")

    # -- the end

    def idle_for(self) -> float:
        """Seconds since the last unload was sent."""
        return self._now() - max((sending.seconds for sending in self.sendings), default=0.0)

    @property
    def budget(self) -> int:
        """How many more unloads turns may send now, at least: attempts that came to no request count, too.

        None where it was quiet lately. What was sent before a clock was set back counts for as much longer.
        """
        if self._now() - self._quiet_at < QUIET_LATELY_SECONDS:
            return 0
        counts_seconds = 2 * HOUR_SECONDS if self.clock_set_at else HOUR_SECONDS
        return self._left_beside([one for one in self.sendings if one.seconds > self._now() - counts_seconds]) - UNSENT

    def require(self, check: Check, wrong: Sequence[str]) -> None:
        """Raises :class:`ViolationError` where anything is ``wrong``."""
        if wrong:
            raise ViolationError(f"{check.name} ({check.value}): {'; '.join(wrong)}")

    def report(self, check: Check, what: str) -> None:
        """Something does not hold, as somebody else has seen."""
        self._violates(check, what)

    def _violates(self, check: Check, what: str) -> None:
        self._tell(f"VIOLATION: {check.name}: {what}")
        self.violation = self.violation or f"{check.name} ({check.value}): {what}"


def _bundle(request: Request) -> str:
    """``tenant/namespace/range`` of a request for a bundle."""
    return "/".join(request.path.split("/")[4:-1])


def _ends(bundle: str) -> tuple[int, int]:
    """The lower and the upper end of a bundle's range."""
    low, high = bundle_range(bundle).split("_")
    return int(low, 16), int(high, 16)
