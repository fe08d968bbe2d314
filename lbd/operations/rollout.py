"""A rollout: brokers are restarted one after the other, each drained before. A sequence of drains, on disk.

The order and its progress are one order (``store/rollouts.py``), written before each step that it allows: after a kill,
this lbd or another one takes the same step again, and each step may be taken twice. lbd restarts no broker; a person, a
controller or the command line does, and lbd detects it by the start time in the broker's report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as changed

from lbd.act.override import SettingSwitch
from lbd.api.shapes import RolloutPlan, RolloutStep
from lbd.errors import AdminError, LbdError, RefusedError, UnpublishedError, UsageError
from lbd.load import scoring
from lbd.operations.drain import AWAY, ENDED, LOOK_AGAIN_SECONDS, Pacing, cannot_spare, estimate, first_pass
from lbd.operations.drain_plan import Guide, HeldError, bundles_to_drain, plan_drain_now, preview_drain
from lbd.operations.dry import Fixed, order_parts
from lbd.operations.parts import preview_observer
from lbd.operations.requests import rolling
from lbd.operations.split import CLOCK
from lbd.permit.evidence import same, young_seconds
from lbd.permit.served import reconnecting
from lbd.pulsar.broker_configuration import AUTO_SPLIT_ENABLED, splits
from lbd.pulsar.override_note import OFF
from lbd.reason import Reason
from lbd.store.control import FAILED, REFUSED, DrainRequest, FillRequest, RequestResult, ordered_by
from lbd.store.orders import UnreadableOrdersError
from lbd.store.rollouts import Rollout, Rollouts
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lbd.config import Settings
    from lbd.model import Brokers
    from lbd.observe.observer import Observer
    from lbd.operations.drain import Draining, Tools
    from lbd.operations.drain_plan import DrainView
    from lbd.permit.budget import Sent
    from lbd.permit.facts import Hold
    from lbd.pulsar.admin import Admin
    from lbd.pulsar.override_note import OverrideNote
    from lbd.store.control import RolloutRequest
    from lbd.store.drains import Drain, Work
    from lbd.store.orders import Orders
    from lbd.turn.parts import Parts, TurnResult


# --- the state machine: the next step, from the progress and the facts. Pure.

TRIES = 3
"""Attempts of a drain after a move failed or a bundle came back."""


@dataclass(frozen=True)
class RolloutInput:
    """Facts at one time, from the turn at ``seen_at``; times are epoch seconds.

    ``started`` is the start time of each broker that reports it. ``usable`` brokers give trusted reports; ``scores``
    are those of the settled ones, in points. ``drained``: the drain of the broker at work is in force. ``work`` is the
    last ordered drain or fill, None until it has ended. ``unhealthy`` is the failed health check of the broker at work,
    empty where it is well.
    """

    now: float
    active: frozenset[str]
    leader: str | None = None
    started: Mapping[str, float] = field(default_factory=dict)
    usable: frozenset[str] = frozenset()
    scores: Mapping[str, float] = field(default_factory=dict)
    most_points: float = 85.0
    drained: bool = False
    work: Work | None = None
    unhealthy: str = ""
    seen_at: float = 0.0


def next_broker(brokers: Iterable[str], done: Collection[str], leader: str | None) -> str:
    """The next broker, the leader last: each of its restarts elects another one. Empty when all are done."""
    rest = [broker for broker in brokers if broker not in done]
    return next((broker for broker in rest if broker != leader), rest[0] if rest else "")


def advance(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """The next state of a rollout by these facts; the same one while it waits."""
    trouble = rollout.stopping or _trouble(rollout, facts)
    if rollout.phase == "ended":
        return rollout
    if trouble:
        code = REFUSED if rollout.stopping else FAILED
        return _ended(rollout, facts.now, code, f"The rollout was stopped: {trouble}; {_so_far(rollout)}.")
    step = {"drain": _drain, "restart": _restart, "fill": _fill}[rollout.phase]
    return step(rollout, facts)


def _trouble(rollout: Rollout, facts: RolloutInput) -> str:
    """Reason why the cluster is in no state for a restart."""
    at_work = {rollout.broker} if rollout.phase != "fill" else set()
    gone = sorted(set(rollout.members) - facts.active - at_work)
    if gone:
        return f"{gone[0]} is no active broker any more"
    others = {broker: points for broker, points in facts.scores.items() if broker not in at_work}
    return too_hot(others, facts.most_points + TOLERANCE_POINTS) if rollout.phase != "fill" else ""


TOLERANCE_POINTS = 5.0
"""Tolerance: a drain may fill a broker up to the limit as predicted; samples are points off (docs/load-model.md).
"""


def too_hot(scores: Mapping[str, float], limit: float) -> str:
    """The broker farthest above the limit, in words; empty where none is. Both in points."""
    hot = max(scores, key=lambda broker: (scores[broker], broker), default="")
    if not hot or scores[hot] <= limit:
        return ""
    return f"{hot} has {scores[hot]:.1f} points, more than {limit:g} (guardrails.max_destination_score)"


def _drain(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """Proceed once the broker owns nothing or was restarted; else the drain goes on, or is ordered once more."""
    if rollout.started_at is None:  # its report was missing when its turn came
        rollout = changed(rollout, started_at=facts.started.get(rollout.broker))
    work = facts.work
    if _has_left(rollout, facts):
        return _phase(rollout, facts, "restart", gone_at=facts.now)
    if work is not None and facts.drained and rollout.begun:
        if not work.owned and work.owned is not None:
            return changed(_phase(rollout, facts, "restart", gone_at=None), tries=rollout.tries)
        if rollout.tries < TRIES:
            return changed(rollout, begun=False, tries=rollout.tries + 1)
        return _ended(rollout, facts.now, work.exit_code or FAILED, f"{work.sentence} {_stopped(rollout)}")
    if rollout.begun and not facts.drained:
        return _released(rollout, facts)
    return rollout


def _released(rollout: Rollout, facts: RolloutInput) -> Rollout:
    why = f"the drain of {rollout.broker} was released, or has expired"
    return _ended(rollout, facts.now, REFUSED, f"The rollout was stopped: {why}; {_so_far(rollout)}.")


def _restart(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """Proceed once the broker is back, healthy and reports; end after the timeout."""
    if is_back(rollout, facts) and not facts.unhealthy:
        done = (*rollout.done, rollout.broker)
        following = next_broker(rollout.brokers, done, facts.leader)
        if following:
            advanced = changed(rollout, done=done, broker=following, started_at=facts.started.get(following))
            return _phase(advanced, facts, "drain", gone_at=None)
        return _phase(changed(rollout, done=done), facts, "fill", gone_at=None)
    return _still_there(rollout, facts) if rollout.gone_at is None else _in_time(rollout, facts)


def _still_there(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """The broker is handed over to be restarted: note when it goes; without its drain nobody may restart it."""
    if _has_left(rollout, facts):
        return changed(rollout, gone_at=facts.now)
    if not facts.drained and _has_stayed(rollout, facts):
        return _released(rollout, facts)
    if rollout.waits:  # a hold has ended, in which nobody was let restart it
        return changed(rollout, phase_at=facts.now, waits="")
    return _in_time(rollout, facts)


def _in_time(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """End after the timeout; a clock that was set back begins it anew."""
    since = rollout.phase_at if rollout.executes else rollout.gone_at
    if since is not None and since > facts.now:
        return changed(rollout, phase_at=facts.now, gone_at=rollout.gone_at and facts.now)
    if since is not None and facts.now - since > rollout.timeout_seconds:
        why = f"{rollout.broker} did not come back within {duration_text(rollout.timeout_seconds)}"
        reason = f": {_missing(rollout, facts)}"
        return _ended(rollout, facts.now, FAILED, f"The rollout was stopped: {why}{reason}; {_so_far(rollout)}.")
    return rollout


def _missing(rollout: Rollout, facts: RolloutInput) -> str:
    """Missing condition of a broker that is not back."""
    if rollout.broker not in facts.active:
        return "it is no active broker"
    if rollout.gone_at is None:
        return "it was not restarted"
    return facts.unhealthy or "its load report is missing or not to be trusted yet, or it is slow"


def _fill(rollout: Rollout, facts: RolloutInput) -> Rollout:
    """End once the last broker is filled, with the evenness of all."""
    work = facts.work
    if work is None or work.ended_at is None:
        return rollout
    was_released = any(bundle.detail == ENDED for bundle in work.left)
    if work.exit_code and rollout.tries < TRIES and not was_released:
        return changed(rollout, tries=rollout.tries + 1)
    settled = facts.seen_at > work.ended_at and facts.scores.keys() >= set(rollout.members)
    if not settled and 0 <= facts.now - work.ended_at < SETTLED_WITHIN_SECONDS:
        return rollout
    took = duration_text(max(work.ended_at - rollout.begun_at, 0.0))
    number = len(rollout.brokers)
    words = f"{f'All {number} brokers were' if number > 1 else '1 broker was'} restarted in {took}"
    filled = f"; the last fill did not end well: {work.sentence}" if work.exit_code else ""
    return _ended(rollout, facts.now, 0, f"{words}; {evenness(facts.scores)}{filled}.")


SETTLED_WITHIN_SECONDS = 300.0
"""Longest wait at the end for reports that show the last moves and the evenness of the brokers."""


def evenness(scores: Mapping[str, float]) -> str:
    """Distance of the brokers from their mean, in words; scores in points."""
    if not scores:
        return "how even the brokers are is not known yet"
    mean = sum(scores.values()) / len(scores)
    far = max(scores, key=lambda broker: (abs(scores[broker] - mean), broker))
    return f"the mean is {mean:.1f} points, the farthest from it {far} with {scores[far]:.1f}"


def is_back(rollout: Rollout, facts: RolloutInput) -> bool:
    """Whether the broker at work was restarted, and its report is trusted again."""
    was_away = rollout.gone_at is not None and rollout.started_at is None
    return rollout.broker in facts.active & facts.usable and (was_away or _restarted(rollout, facts))


def _has_left(rollout: Rollout, facts: RolloutInput) -> bool:
    """Whether the broker at work is away, or was restarted since its turn began."""
    return rollout.broker not in facts.active or _restarted(rollout, facts)


def _has_stayed(rollout: Rollout, facts: RolloutInput) -> bool:
    """Whether the broker at work is known not to be restarted: a restart ends its drain, too."""
    return not _has_left(rollout, facts) and (rollout.started_at is None or rollout.broker in facts.started)


def _restarted(rollout: Rollout, facts: RolloutInput) -> bool:
    started, before = facts.started.get(rollout.broker), rollout.started_at
    return started is not None and before is not None and not same(started, before)


def _phase(rollout: Rollout, facts: RolloutInput, phase: str, gone_at: float | None) -> Rollout:
    return changed(rollout, phase=phase, phase_at=facts.now, begun=False, gone_at=gone_at, tries=0, waits="", claim="")


def _ended(rollout: Rollout, now: float, code: int, sentence: str) -> Rollout:
    return changed(rollout, phase="ended", phase_at=now, ended_at=now, exit_code=code, sentence=sentence, waits="")


def _so_far(rollout: Rollout) -> str:
    return f"{len(rollout.done)} of {len(rollout.brokers)} brokers were restarted"


def _stopped(rollout: Rollout) -> str:
    return f"The rollout was stopped: {_so_far(rollout)}."


# --- the rollout of a live lbd


class Rolling:
    """Continues the rollout on disk, if there is one, with the facts of each turn; used by one thread.

    ``held`` is the present order to wait or the other leader; ``sent`` are the requests of the last day.
    """

    def __init__(
        self,
        orders: Orders,
        draining: Draining,
        now: Callable[[], float],
        held: Callable[[], Hold | None],
        sent: Callable[[], Collection[Sent]],
    ) -> None:
        self._rollouts, self._draining, self._now, self._held = Rollouts(orders.state_dir, orders), draining, now, held
        self._sent = sent
        self._record: TurnResult | None = None
        self._health: tuple[TurnResult | None, str] = (None, "")
        self._judged: TurnResult | None = None
        self._again_at = 0.0
        self.trouble = ""
        self.on_change: Callable[[Rollout], None] = lambda _: None
        draining.guide = self.guide

    def hold(self) -> Hold | None:
        """Hold on the plans of turns, and on what people order beside it."""
        return rolling(self._rollouts)

    def guide(self) -> Guide | None:
        """Guide for the drains and the fill of the rollout."""
        rollout = self._rollouts.under_way()
        if rollout is None:
            return None
        moved = Counter(
            request.bundle
            for request in self._sent()
            if request.order and request.attempt == 1 and not request.failed and request.at >= rollout.begun_at
        )
        return Guide(frozenset(rollout.done), moved)

    def begin(self, request: RolloutRequest, tools: Tools) -> RequestResult:
        """Begin or stop a rollout. Raises :class:`LbdError` for a refusal; then nothing is changed."""
        if request.stop:
            return self._stop(request)
        rollout = self._rollouts.under_way()
        if request.restarts:
            return self._hand_over(_target(rollout, request), request, tools)
        if rollout is not None:
            if refusal := other_rollout(request.brokers, rollout):
                raise RefusedError(refusal)
            return RequestResult(0, f"It goes on: {self._look_again(rollout, tools).summary}.", id=rollout.id)
        rollout = order_rollout(request, self._draining.in_force(), self._now(), tools)
        switch = splitting_switch(tools.admin)
        rollout = changed(rollout, splitting=splitting_before(tools.admin, switch))
        self._rollouts.begin(rollout)
        try:
            stop_splitting(rollout, switch)
        except LbdError as error:  # the request may have had its effect: the next steps restore it
            self._save(rollout, changed(rollout, stopping=str(error)))
            raise
        self.on_change(rollout)
        order = f"{counted(len(rollout.brokers), 'broker')}, {rollout.broker} first"
        return RequestResult(0, f"The rollout has begun: {order}.")

    def _hand_over(self, rollout: Rollout, request: RolloutRequest, tools: Tools) -> RequestResult:
        """Hand a broker over to be restarted: it is due, no other command has it, and this lbd has just proven that it
        leads.

        Raises :class:`LbdError` otherwise.
        """
        hold, broker, claim = self._held(), request.restarts, request.claim or request.id
        if hold is not None:
            raise HeldError(hold)
        if rollout.broker == broker and rollout.claim not in {"", claim}:
            words = f"{broker} was handed over to another command"
            raise RefusedError(f"{words}; if that one has ended, restart the broker yourself")
        if rollout.phase == "restart" and rollout.broker == broker and self._drain_of(rollout) is None:
            raise RefusedError(f"{broker} is not to be restarted now: its drain is over")
        looked = self._look_again(rollout, tools, restarts=broker, claim=claim)
        if looked.phase != "restart" or looked.broker != broker or looked.gone_at is not None or looked.stopping:
            raise RefusedError(f"{broker} is not to be restarted now: {looked.stopping or looked.summary}")
        return RequestResult(0, f"{broker} is to be restarted now.", id=looked.id)

    def _look_again(self, rollout: Rollout, tools: Tools, restarts: str = "", claim: str = "") -> Rollout:
        """The rollout by the facts of now: the file may be older than a restart, and no broker is restarted twice.

        The broker that a command ``restarts`` now has its ``claim`` from now on, or is drained again where Pulsar has
        placed a bundle there since its drain. Raises :class:`RefusedError` where the rollout has changed meanwhile, and
        where this lbd no longer leads: it is written, and so published, in any case.
        """
        after, hold = rollout, self._held()
        if rollout.phase == "restart" and rollout.gone_at is None and (hold is None or hold[0] not in AWAY):
            fixed = Fixed(tools.parts.observer.observe())
            started = start_times(fixed.observation.snapshot.brokers)
            facts = RolloutInput(self._now(), frozenset(fixed.observation.active), started=started)
            if _has_left(rollout, facts):
                after = changed(rollout, gone_at=facts.now)
            elif restarts == rollout.broker:
                after = changed(rollout, claim=claim)
                if bundles_to_drain(replace(tools.parts, observer=fixed), tools.admin, restarts):
                    after = changed(_phase(rollout, facts, "drain", gone_at=None), tries=rollout.tries + 1)
        if not self._rollouts.amend(rollout, after):
            raise RefusedError("the rollout has changed meanwhile; repeat the command")
        if after != rollout:
            self.on_change(after)
        return after

    def _stop(self, request: RolloutRequest) -> RequestResult:
        hold = self._held()
        if hold is not None and hold[0] in AWAY:
            raise HeldError(hold)
        try:
            rollout = _target(self._rollouts.under_way(), request)
        except UnreadableOrdersError as error:
            self._rollouts.withdraw(self._now())
            words = f"check the override of {AUTO_SPLIT_ENABLED}, which it may have left"
            return RequestResult(0, f"The rollout is over, as it could not be read: {error}; {words}.")
        why = f"by {ordered_by(request)}"
        stopped = self._rollouts.stop(rollout.id, why, self._now())
        return RequestResult(0, f"The rollout is being stopped: {_so_far(_target(stopped, request))}.")

    def after(self, record: TurnResult) -> None:
        """Update the facts after a turn."""
        if record.observation is not None:
            self._record = record

    def step(self, tools: Callable[[], Tools]) -> None:
        """Take the next step, if there is a rollout and this lbd leads; one that failed is repeated after a pause."""
        if 0 < self._again_at - self._now() <= LOOK_AGAIN_SECONDS:
            return
        try:
            rollout = self._rollouts.under_way()
            if rollout is not None:
                self._step(rollout, tools)
            self.trouble = ""
        except LbdError as error:
            self.trouble, self._again_at = f"the rollout cannot go on: {error}", self._now() + LOOK_AGAIN_SECONDS

    def _step(self, rollout: Rollout, tools: Callable[[], Tools]) -> None:
        hold = self._held()
        if hold is not None and hold[0] in AWAY:
            return
        if hold is not None and not rollout.stopping:
            self._wait(rollout, *hold)
            return
        self._release(rollout)
        if self._record is None:
            return
        if rollout.phase == "restart" and self._judged is self._record and not (rollout.stopping or rollout.waits):
            return  # only a turn has newer facts, and a person may take hours
        self._judged = self._record
        after = advance(rollout, self._state(rollout, tools()))
        if not self._save(rollout, after):
            return  # a person has stopped it since this step began: the next one applies that
        if after.phase == "ended":
            self._release(after)
            self._give_splitting_back(after, splitting_switch(tools().admin))
        else:
            self._act(after, tools)

    def _give_splitting_back(self, rollout: Rollout, switch: SettingSwitch) -> None:
        """Restore splitting and end the rollout, whose note says first that this has begun; a failed step is repeated.

        An override of another owner is the operator's newest wish, and stays.
        """
        note = rollout.splitting
        if note is not None and note.lbds(switch.present()):
            releasing = changed(rollout, splitting=changed(note, phase="releasing"))
            if not self._save(rollout, releasing):
                return
            rollout = releasing
            switch.give_back(changed(note, phase="releasing"))
        self._rollouts.end(rollout, self._now())

    def _wait(self, rollout: Rollout, reason: Reason, detail: str) -> None:
        """Record a hold; its remaining time changes with each look, and is not recorded."""
        if not rollout.waits.startswith(reason.label):
            self._save(rollout, changed(rollout, waits=reason.message(detail)))

    def _save(self, before: Rollout, after: Rollout) -> bool:
        """Write the progress; False where the rollout is no longer as ``before``."""
        if after != before:
            if not self._rollouts.amend(before, after):
                return False
            self.on_change(after)
        return True

    def _act(self, rollout: Rollout, tools: Callable[[], Tools]) -> None:
        """Order the due step; a hold makes it wait, and any other refusal ends the rollout.

        What could not be written or published is no refusal: the next step does it.
        """
        try:
            ordered = self._order(rollout, tools)
            self._save(rollout, changed(rollout, begun=ordered, waits=""))
        except HeldError as error:
            self._again_at = self._now() + LOOK_AGAIN_SECONDS
            self._wait(rollout, *error.hold)
        except UnpublishedError:
            raise
        except RefusedError as error:
            self._save(rollout, changed(rollout, stopping=str(error)))

    def _order(self, rollout: Rollout, tools: Callable[[], Tools]) -> bool:
        """Begin the due drain or fill; returns whether the drain of this phase was ordered."""
        if self._draining.busy:
            return rollout.begun
        if rollout.phase == "drain" and not rollout.begun:
            if not rollout.done:
                stop_splitting(rollout, splitting_switch(tools().admin))  # a kill may have come before it
            if self._drain_of(rollout) is None or rollout.tries:
                self._draining.begin(self._drain_request(rollout), tools())
            return True
        if rollout.phase == "fill" and self._draining.works.of(_fill_id(rollout)) is None:
            self._draining.begin(self._fill_request(rollout), tools())
        return rollout.begun

    def _drain_of(self, rollout: Rollout) -> Drain | None:
        drain = self._draining.in_force().get(rollout.broker)
        return drain if drain is not None and drain.rollout == rollout.id else None

    def _release(self, rollout: Rollout) -> None:
        """Release drains of the rollout whose brokers are back, and all of them at its end."""
        at_work = {rollout.broker} if rollout.phase in {"drain", "restart"} else set()
        for broker, drain in self._draining.in_force().items():
            if drain.rollout == rollout.id and broker not in at_work:
                self._draining.release(broker)

    def _state(self, rollout: Rollout, tools: Tools) -> RolloutInput:
        assert self._record is not None
        facts = cluster_state(self._record, tools.parts, self._now())
        drain = self._drain_of(rollout)
        if rollout.phase in {"drain", "restart"} and drain is not None:
            work = self._draining.works.drains.get(rollout.broker)
            over = work is not None and work.ended_at is not None and work.ordered_at == drain.ordered_at
            facts = replace(facts, drained=True, work=work if over else None)
        if rollout.phase == "fill":
            work = self._draining.works.of(_fill_id(rollout))
            facts = replace(facts, work=work if work is not None and work.ended_at is not None else None)
        if rollout.phase == "restart" and is_back(rollout, facts):
            facts = replace(facts, unhealthy=self._unhealthy(rollout.broker, tools))
        return facts

    def _unhealthy(self, broker: str, tools: Tools) -> str:
        """Failed health check of a broker, requested once per turn, because the broker writes a message for it."""
        if self._health[0] is not self._record:
            try:
                tools.admin.check_health(broker)
                self._health = self._record, ""
            except AdminError as error:
                self._health = self._record, str(error)
        return self._health[1]

    def _drain_request(self, rollout: Rollout) -> DrainRequest:
        name = f"{rollout.id}-{len(rollout.done)}-{rollout.tries}"
        fields = (name, rollout.broker, None, "rollout", None, rollout.by)
        return DrainRequest(*fields, rollout.phase_at, float("inf"), rollout=rollout.id)

    def _fill_request(self, rollout: Rollout) -> FillRequest:
        fields = (_fill_id(rollout), rollout.broker, None, rollout.by, rollout.phase_at, float("inf"))
        return FillRequest(*fields, rollout=rollout.id)


def _target(rollout: Rollout | None, request: RolloutRequest) -> Rollout:
    """The rollout that a request is about. Raises :class:`RefusedError` where that is not under way."""
    if rollout is None:
        raise RefusedError("no rollout is under way")
    if request.target not in {"", rollout.id}:
        raise RefusedError("that rollout is over, and another one is under way")
    return rollout


def _fill_id(rollout: Rollout) -> str:
    return f"{rollout.id}-fill-{rollout.tries}"


def cluster_state(record: TurnResult, parts: Parts, now: float) -> RolloutInput:
    """Facts of a turn for a rollout."""
    observation, facts = record.observation, record.facts
    assert observation is not None
    assert facts is not None
    snapshot, points, paired = facts.snapshot, facts.scores, facts.evidence.paired
    ids = snapshot.brokers.ids
    untold = ~np.isfinite(snapshot.brokers.started_at)  # a restart would end a drain; here the rollout decides
    usable = (paired == 0) | ((paired == Reason.DRAINED.code) & untold)
    settled = facts.evidence.settled
    return RolloutInput(
        now,
        frozenset(observation.active),
        observation.leader.broker if observation.leader is not None else None,
        start_times(snapshot.brokers),
        snapshot.brokers.ids_where(usable),
        {ids[row]: float(points[row]) for row in np.flatnonzero(usable & settled & np.isfinite(points)).tolist()},
        parts.planning.guardrails.max_destination_score,
        seen_at=snapshot.taken_at,
    )


def start_times(brokers: Brokers) -> dict[str, float]:
    """Start times (epoch seconds) of the brokers that report them: 2.11 does not."""
    times = zip(brokers.ids, brokers.started_at.tolist(), strict=True)
    return {broker: started for broker, started in times if np.isfinite(started)}


# --- the brokers' own splitting: off during the rollout, and restored
# A bundle that is split meanwhile has new names, whose moves would be counted anew, and be two more each.


def splitting_switch(admin: Admin) -> SettingSwitch:
    """The override of automatic splitting."""
    return SettingSwitch(admin, CLOCK, AUTO_SPLIT_ENABLED, name="automatic splitting", again="lbd tries again")


def splitting_before(admin: Admin, switch: SettingSwitch) -> OverrideNote | None:
    """The note to restore splitting; None where no broker splits by itself. Raises :class:`AdminError`."""
    if not splits(admin.runtime_configuration()):
        return None
    return switch.note(switch.present(), switch.running())


def stop_splitting(rollout: Rollout, switch: SettingSwitch) -> None:
    """Turn it off where it is on, and read it back; the previous state is on disk by now."""
    if rollout.splitting is not None and switch.present() != OFF:
        switch.turn_off(splits)


# --- the order


def order_rollout(request: RolloutRequest, drained: Mapping[str, Drain], now: float, tools: Tools) -> Rollout:
    """The rollout to begin. Raises :class:`LbdError` where a broker is absent or cannot be spared."""
    fixed = Fixed(tools.parts.observer.observe())
    active = tuple(fixed.observation.active)
    brokers = chosen(request.brokers, active)
    parts = replace(tools.parts, observer=fixed)
    if refusal := cannot_begin(drained, fixed, parts):
        raise RefusedError(refusal)
    for broker in brokers:
        look = plan_drain_now(parts, tools.admin, first_pass(broker, None, now))
        if look.hold is not None:
            raise HeldError(look.hold)
        if refusal := refused(broker, look):
            raise RefusedError(refusal)
    leader = fixed.observation.leader
    first = next_broker(brokers, (), leader.broker if leader is not None else None)
    return Rollout(
        id=request.id,
        brokers=brokers,
        members=active,
        by=request.by,
        reason=request.reason,
        begun_at=now,
        phase_at=now,
        broker=first,
        started_at=start_times(fixed.observation.snapshot.brokers).get(first),
        timeout_seconds=request.back_within_seconds,
        executes=request.executes,
    )


def cannot_begin(drained: Collection[str], fixed: Fixed, parts: Parts) -> str:
    """Reason why no rollout may begin on a cluster, for any brokers; empty where one may.

    A drained broker that has left the cluster carries nothing, and prevents no restart.
    """
    there = sorted(set(drained) & set(fixed.observation.active))
    if there:
        return f"{there[0]} is drained; lbd drain {there[0]} --release ends that"
    hot = too_hot(cluster_scores(fixed, parts), parts.planning.guardrails.max_destination_score)
    return f"{hot}; let lbd balance first (lbd plan)" if hot else ""


def other_rollout(names: Collection[str], rollout: Rollout | None) -> str:
    """Reason why a rollout of these brokers (none: of all) may not begin beside the present one; empty without one."""
    if rollout is not None and rollout.ended_at is not None:
        return "the last rollout still gives automatic splitting back (lbd status says what keeps it from that)"
    if rollout is None or set(names or rollout.members) == set(rollout.brokers):
        return ""
    return f"{rollout.summary}; lbd rollout --stop ends it"


def chosen(names: Iterable[str], active: Sequence[str]) -> tuple[str, ...]:
    """The named brokers, each once, or all active ones. Raises :class:`UsageError` for one that is not active."""
    brokers = tuple(dict.fromkeys(names)) or tuple(active)
    unknown = sorted(set(brokers) - set(active))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no active broker; wanted some of {', '.join(sorted(active))}")
    return brokers


def cluster_scores(fixed: Fixed, parts: Parts) -> dict[str, float]:
    """The score of each broker of a round, in points."""
    brokers = fixed.observation.snapshot.brokers
    points = scoring.scores(brokers, parts.planning.weights).tolist()
    return {broker: score for broker, score in zip(brokers.ids, points, strict=True) if np.isfinite(score)}


def refused(broker: str, look: DrainView) -> str:
    """Reason why a broker cannot be restarted like this; empty where it can."""
    if look.unshown is not None and look.before:
        return ""  # its drain waits for reports that show the last moves, and is judged then
    stay = [skip for skip in look.plan.stay if skip.reason is not Reason.DESTINATION_OVERLOADED]
    first = f"{counted(len(stay), 'bundle')} of {broker} cannot go; the first: {stay[0].what}: " if stay else ""
    return cannot_spare(broker, look) or (first and first + stay[0].reason.message(stay[0].detail))


# --- plan only


def show_rollout(settings: Settings, names: Collection[str], daemons: Observer | None = None) -> RolloutPlan:
    """The order of a rollout, and the moves that the drain of each broker would make now. Raises :class:`LbdError`.

    Each is judged with all others present and unchanged: effects of the drains before it are unknown.
    """
    with preview_observer(settings, daemons) as observer:
        fixed = Fixed(observer.observe())
        parts = replace(order_parts(settings, observer), observer=fixed)
        brokers = chosen(names, fixed.observation.active)
        rollout = Rollouts(settings.state_dir).under_way() if settings.state_dir.is_dir() else None
        refusal = other_rollout(names, rollout) if rollout is not None else cannot_begin(parts.drained(), fixed, parts)
        leader = fixed.observation.leader
        steps: list[RolloutStep] = []
        while broker := next_broker(brokers, [step.broker for step in steps], leader.broker if leader else None):
            look = preview_drain(parts, observer.admin, first_pass(broker, None, fixed.observation.snapshot.taken_at))
            steps.append(_step_of(broker, look, settings))
    trusted = young_seconds(fixed.observation.sample_interval_seconds)
    moves_seconds = sum(step.eta_seconds for step in steps)
    return RolloutPlan(
        fixed.observation.snapshot.taken_at,
        steps,
        refusal or None,
        trusted,
        total_seconds=round(moves_seconds + trusted * len(steps), 1),
        bundles=sum(step.bundles for step in steps),
        clients=sum(step.clients for step in steps),
        moves_seconds=round(moves_seconds, 1),
    )


def _step_of(broker: str, look: DrainView, settings: Settings) -> RolloutStep:
    bundles = [unload.bundle for unload in look.plan.unloads]
    top = max(look.after, key=lambda broker: (look.after[broker], broker), default=None)
    hold = look.hold[0].message(look.hold[1]) if look.hold is not None else ""
    eta = estimate(bundles, Pacing(settings.drain.max_unloads_at_once, look.by_name))
    return RolloutStep(
        broker,
        len(bundles),
        round(eta, 1),
        sum(reconnecting(look.plan.unloads, look.observation.snapshot)),
        top,
        round(look.after[top], 3) if top is not None else None,
        refused(broker, look) or hold or None,
    )
