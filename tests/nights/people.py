"""What people order in a night: pauses, drains, fills, rollouts, moves, splits and approvals, at whichever lbd.

Somebody asks an lbd as its API does, in a task of its machine: when that is killed, the answer is lost.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lbd.errors import LbdError
from lbd.fields import derived
from lbd.store.control import (
    Control,
    DrainRequest,
    FillRequest,
    Pause,
    PlannedMove,
    PlanRequest,
    RolloutRequest,
    SplitRequest,
    UnloadRequest,
    new_id,
)
from lbd.store.drains import Drains
from lbd.store.orders import DRAIN, PAUSE
from lbd.store.rollouts import Rollouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.daemon.engine import Engine
    from lbd.store.control import Request, RequestResult
    from lbd.store.rollouts import Rollout
    from tests.nights.faults import Happening
    from tests.nights.stage import Stage

BY, REASON = "a person", "night"
ASKS_FOR_SECONDS = 60.0
"""How long a person waits for an answer."""

TRIES, AGAIN_SECONDS = 40, 15.0
"""So often, and with so long between, is an end repeated until an lbd accepts it."""

ROLLOUT_TRIES = 5
"""So often more is a rollout wanted that was refused."""


def _ask(
    stage: Stage,
    machine: str,
    make: Callable[[str, float], Request],
    then: Callable[[Request], None] = lambda _: None,
    refused: Callable[[], None] = lambda: None,
) -> None:
    """Hand a request to an lbd, and wait for what becomes of it; ``then`` is called where it was accepted."""

    def ask() -> None:
        lbd = stage.lbds.get(machine)
        if lbd is None:
            return
        name, now = new_id()
        request = make(name, now)
        words = f"{request.kind} by a person at {machine}"
        stage.observer.waits(name, machine, ASKS_FOR_SECONDS, words)
        result = _answer(stage, machine, request, words)
        stage.observer.answered(name)
        if result is not None:
            stage.tell(f"{words}: {result.sentence}")
            if result.exit_code == 0:
                then(request)
            else:
                refused()

    stage.running.spawn(ask, "a person asks", machine)


def _answer(stage: Stage, machine: str, request: Request, words: str) -> RequestResult | None:
    asked_at = stage.running.seconds
    try:
        result, withdrawn = stage.lbds[machine].engine.requests.ask(request, lambda: False)
    except LbdError as error:
        stage.tell(f"{words}: {error}")
        return None
    if result is None:
        stage.tell(f"{words}: {'withdrawn' if withdrawn else 'no answer'}")
        if isinstance(request, UnloadRequest) and not withdrawn:
            stage.observer.unanswered(machine, request.bundle, asked_at)
    return result


def _until_accepted(stage: Stage, what: str, end: Callable[[Engine], bool], key: str) -> None:
    """Have an order ended by whoever leads; as long as nobody says that it is over, nothing is expected of it."""

    def run(number: int) -> None:
        machine = stage.leader or next(iter(stage.lbds), None)
        if machine is not None:
            stage.running.spawn(partial(end_it, machine, number), what, machine)
        elif number:
            stage.later(AGAIN_SECONDS, partial(run, number - 1), f"{what}, once more")

    def end_it(machine: str, number: int) -> None:
        lbd = stage.lbds.get(machine)
        try:
            if lbd is not None and end(lbd.engine):
                stage.tell(f"{what}: accepted by {machine}")
                stage.observer.over(key)
                return
            stage.tell(f"{what}: there was none at {machine}")
        except LbdError as error:
            stage.tell(f"{what}: {machine} refuses: {error}")
            if number:
                stage.later(AGAIN_SECONDS, partial(run, number - 1), f"{what}, once more")

    stage.observer.may_be_over(key)
    run(TRIES)


# --- pause


def pauses(stage: Stage, random: Random, machine: str = "") -> Happening:
    """And resumes later, at whichever lbd leads then."""
    machine = machine or random.choice(stage.machines)
    seconds = random.uniform(60.0, 600.0)

    def pause() -> None:
        lbd = stage.lbds.get(machine)
        if lbd is None:
            return
        running, name = lbd.engine, new_id()[0]
        try:
            Control(running.settings.state_dir, running.orders).pause(
                Pause(running.timebase.now(), None, REASON, BY), name
            )
        except LbdError as error:
            stage.tell(f"{machine} refuses to pause: {error}")
            return
        stage.tell(f"{machine} has paused")
        order = running.orders.read().orders.get(name)
        if order is not None and order.born:
            stage.observer.given(name, PAUSE)
        else:
            stage.observer.given_here(PAUSE)
        stage.later(seconds, partial(resume, stage), "a person resumes")

    return f"a person pauses {machine}", lambda: _spawn(stage, machine, pause, "a person pauses")


def resume(stage: Stage) -> None:
    """End the pause."""

    def end(running: Engine) -> bool:
        Control(running.settings.state_dir, running.orders).resume()
        return True

    _until_accepted(stage, "a person resumes", end, PAUSE)


def _spawn(stage: Stage, machine: str, run: Callable[[], None], what: str) -> None:
    if machine in stage.lbds:
        stage.running.spawn(run, what, machine)


# --- drains, fills, rollouts


def drains(stage: Stage, random: Random, broker: str = "") -> Happening:
    """A broker is to own nothing; later it is released."""
    broker, machine = broker or random.choice(stage.cluster.brokers), random.choice(stage.machines)
    seconds, expires = random.uniform(60.0, 900.0), random.choice((None, 600.0))

    def make(name: str, now: float) -> DrainRequest:
        return DrainRequest(name, broker, expires, REASON, None, BY, now, now + ASKS_FOR_SECONDS)

    def accepted(request: Request) -> None:
        stage.observer.may_drain((broker,))
        if expires is None:
            stage.observer.given(request.id, DRAIN + broker)
        stage.later(seconds, partial(release, stage, broker), f"a person releases {broker}")

    def order() -> None:
        stage.observer.may_drain((broker,))
        _ask(stage, stage.leader or machine, make, accepted)

    return f"a person drains {broker}", order


def release(stage: Stage, broker: str) -> None:
    """End a drain."""

    def end(running: Engine) -> bool:
        is_over = Drains(running.settings.state_dir, running.orders).release(broker) is not None
        if is_over and _rollout_of(running) is None:
            stage.observer.drain_is_over(broker)
        return is_over

    _until_accepted(stage, f"the drain of {broker} is released", end, DRAIN + broker)


def fills(stage: Stage, random: Random) -> Happening:
    """A broker is to get its share."""
    broker, machine = random.choice(stage.cluster.brokers), random.choice(stage.machines)

    def make(name: str, now: float) -> FillRequest:
        return FillRequest(name, broker, None, BY, now, now + ASKS_FOR_SECONDS)

    return f"a person fills {broker}", lambda: _ask(stage, stage.leader or machine, make)


def rolls_out(stage: Stage, random: Random) -> Happening:
    """All brokers are to be restarted, which a person does who then goes home, or stops it before."""
    machine, away, chance = random.choice(stage.machines), random.uniform(5.0, 60.0), Random(random.random())
    stops_after, watches = random.choice((None, random.uniform(30.0, 900.0))), random.uniform(600.0, 2400.0)

    def make(name: str, now: float) -> RolloutRequest:
        return RolloutRequest(name, (), False, 600.0, REASON, BY, now, now + ASKS_FOR_SECONDS)

    def accepted(request: Request) -> None:
        stage.observer.may_drain(stage.cluster.brokers)
        work = partial(_restarts, stage, request.id, watches, away, chance)
        stage.running.spawn(work, "a person restarts brokers", "world")
        if stops_after is not None:
            stage.later(stops_after, partial(stop_rollout, stage), "a person stops the rollout")

    def order(tries: int) -> None:
        stage.observer.may_drain(stage.cluster.brokers)
        again = partial(stage.later, AGAIN_SECONDS, partial(order, tries - 1), "a person wants the rollout again")
        _ask(stage, stage.leader or machine, make, accepted, again if tries else lambda: None)

    return "a person rolls out", partial(order, ROLLOUT_TRIES)


def _restarts(stage: Stage, name: str, watches: float, away: float, chance: Random) -> None:
    """Look now and then which broker is to be restarted, ask whether it still is, and restart it.

    In every second look an administrator who knows nothing of the rollout has just given that broker a bundle.
    """
    ends_at = stage.running.seconds + watches
    while stage.running.seconds < ends_at:
        stage.running.sleep(10.0)
        machine = stage.leader
        if machine is not None:
            look = partial(_restarts_one, stage, machine, name, away, chance)
            _spawn(stage, machine, look, "a person looks at the rollout")


def _restarts_one(stage: Stage, machine: str, name: str, away: float, chance: Random) -> None:
    rollout = _rollout(stage, machine)
    if rollout is None or rollout.id != name or rollout.phase != "restart" or rollout.gone_at is not None:
        return
    broker = rollout.broker
    if chance.random() < 1 / 2:
        stage.give(_bundle(stage, chance.random()), broker)

    def make(own: str, now: float) -> RolloutRequest:
        times = now, now + ASKS_FOR_SECONDS
        return RolloutRequest(own, (), False, 600.0, REASON, BY, *times, restarts=broker, claim=name, target=name)

    def restart(_: Request) -> None:
        stage.tell(f"a person restarts {broker}")
        stage.observer.restarts(broker, stage.cluster._book.owned(broker))
        stage.cluster.leave(broker)
        stage.later(away, lambda: stage.cluster.start(broker), f"{broker} starts")

    _ask(stage, machine, make, restart)


def _rollout(stage: Stage, machine: str) -> Rollout | None:
    lbd = stage.lbds.get(machine)
    with suppress(LbdError):
        return _rollout_of(lbd.engine) if lbd is not None else None
    return None


def _rollout_of(running: Engine) -> Rollout | None:
    return Rollouts(running.settings.state_dir, running.orders).under_way()


def stop_rollout(stage: Stage) -> None:
    """End the rollout, at whichever lbd leads."""
    machine = stage.leader
    if machine is None:
        return

    def make(name: str, now: float) -> RolloutRequest:
        return RolloutRequest(name, (), False, 600.0, REASON, BY, now, now + ASKS_FOR_SECONDS, stop=True)

    _ask(stage, machine, make)


# --- single moves, splits, approvals


def moves(stage: Stage, random: Random) -> Happening:
    """A bundle by hand."""
    machine, chance = random.choice(stage.machines), random.random()
    destination = random.choice((None, *stage.cluster.brokers))

    def make(name: str, now: float) -> UnloadRequest:
        return UnloadRequest(name, _bundle(stage, chance), destination, None, BY, now, now + ASKS_FOR_SECONDS)

    return "a person moves a bundle", lambda: _ask(stage, stage.leader or machine, make)


def splits(stage: Stage, random: Random) -> Happening:
    """A bundle is cut in two."""
    machine, chance = random.choice(stage.machines), random.random()

    def make(name: str, now: float) -> SplitRequest:
        bundle = _bundle(stage, chance)
        low, high = (int(end, 16) for end in bundle.rpartition("/")[2].split("_"))
        cut = ("range_equally_divide", (low + (high - low) // 2,))
        owner = stage.cluster._book.owner(bundle) or stage.cluster.brokers[0]
        return SplitRequest(name, bundle, owner, *cut, None, BY, now, now + ASKS_FOR_SECONDS)

    return "a person splits a bundle", lambda: _ask(stage, stage.leader or machine, make)


def _bundle(stage: Stage, chance: float) -> str:
    bundles = sorted(stage.cluster._book.bundles)
    return bundles[int(chance * len(bundles))]


def approve(stage: Stage) -> None:
    """Where plans wait for it: approve the one that waits now, by the clock of the machine that leads."""
    machine = stage.leader
    if machine is not None:
        _spawn(stage, machine, partial(_approves, stage, machine), "a person looks at the plan")


def _approves(stage: Stage, machine: str) -> None:
    lbd = stage.lbds.get(machine)
    proposal = lbd.engine.proposal if lbd is not None else None
    if proposal is None or not proposal.unloads:
        return

    def make(name: str, now: float) -> PlanRequest:
        planned = [derived(PlannedMove, move) for move in proposal.unloads]
        return PlanRequest(name, proposal.id, planned, REASON, BY, now, now + ASKS_FOR_SECONDS)

    _ask(stage, machine, make)


KINDS = (*[pauses] * 3, *[drains] * 3, *[fills] * 2, *[rolls_out] * 2, *[moves] * 3, *[splits] * 2)


def go_home(stage: Stage) -> None:
    """All that people have ordered ends."""
    resume(stage)
    stop_rollout(stage)
    for broker in stage.cluster.brokers:
        release(stage, broker)
