"""What goes wrong in a night. Each fault has a name, and happens when it is called."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.store.orders import DRAIN
from tests.nights.people import drains, moves, pauses, release, rolls_out
from tests.nights.stage import NAMESPACES
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.model import Unload
    from tests.nights.stage import Stage

Happening: TypeAlias = "tuple[str, Callable[[], None]]"
"""The name of a fault, and what makes it happen."""

AMID_STEPS = 80
"""So many changes of the running task at most lie between the request of a move and what happens amid it."""


# --- machines


def killed(stage: Stage, random: Random, machine: str = "") -> Happening:
    """Kill -9, and a start later."""
    machine = machine or random.choice(stage.machines)
    return f"{machine} is killed", partial(stage.kill, machine, random.uniform(1.0, 120.0))


def ends(stage: Stage, random: Random, machine: str = "") -> Happening:
    """SIGTERM, and a start later."""
    machine = machine or random.choice(stage.machines)
    seconds = random.uniform(1.0, 60.0)

    def happen() -> None:
        if machine in stage.lbds:
            stage.end(machine, seconds)

    return f"{machine} ends", happen


def stands_still(stage: Stage, random: Random, machine: str = "") -> Happening:
    """SIGSTOP, and SIGCONT later."""
    machine = machine or random.choice(stage.machines)
    seconds = random.choice((5.0, 20.0, 45.0, 90.0))

    def happen() -> None:
        stage.tell(f"{machine} stands still for {seconds:.0f} s")
        stage.running.stop(machine)
        stage.later(seconds, partial(stage.go_on, machine), f"{machine} goes on")

    return f"{machine} stands still", happen


def cut_off(stage: Stage, random: Random, machine: str = "") -> Happening:
    """No broker is reached, nor the topic."""
    machine = machine or random.choice(stage.machines)
    seconds = random.uniform(3.0, 90.0)

    def happen() -> None:
        stage.tell(f"{machine} reaches no broker for {seconds:.0f} s")
        stage.network.cut.add(machine)
        stage.later(seconds, lambda: stage.network.cut.discard(machine), f"{machine} reaches brokers again")

    return f"{machine} is cut off", happen


def clock_is_set(stage: Stage, random: Random) -> Happening:
    """By a minute or an hour."""
    machine, seconds = random.choice(stage.machines), random.choice((-3600.0, -60.0, 60.0, 3600.0))

    def happen() -> None:
        stage.tell(f"the clock of {machine} is set by {seconds:+.0f} s")
        stage.set_clock(machine, seconds)

    return f"the clock of {machine} is set", happen


# --- disks


def disk_is_full(stage: Stage, random: Random, machine: str = "") -> Happening:
    """For a while nothing can be written."""
    machine = machine or random.choice(stage.machines)
    return f"the disk of {machine} is full", partial(_fills, stage, machine, random.uniform(2.0, 120.0))


def _fills(stage: Stage, machine: str, seconds: float) -> None:
    stage.tell(f"the disk of {machine} is full for {seconds:.0f} s")
    stage.disk.full.add(machine)
    stage.later(seconds, lambda: stage.disk.full.discard(machine), f"the disk of {machine} has room again")


def disk_stays_full(stage: Stage, random: Random) -> Happening:
    """That of the lbd that leads then, for longer than any other fault lasts."""
    seconds, other = random.uniform(600.0, 1800.0), random.choice(stage.machines)
    return "the disk of the leader stays full", lambda: _fills(stage, stage.leader or other, seconds)


def commits_fail(stage: Stage, random: Random, machine: str = "") -> Happening:
    """The next ones, each for itself."""
    machine, number = machine or random.choice(stage.machines), random.randint(1, 4)

    def happen() -> None:
        stage.tell(f"the next {number} commits of {machine} fail")
        stage.disk.failing[machine] += number

    return f"commits of {machine} fail", happen


def disk_is_flaky(stage: Stage, random: Random) -> Happening:
    """That of the lbd that leads then: a third of what is to be written is refused, until the machine starts anew."""
    seconds, other, chance = random.uniform(120.0, 600.0), random.choice(stage.machines), Random(random.random())

    def happen() -> None:
        machine = stage.leader or other
        stage.tell(f"a third of the commits of {machine} fails, for {seconds:.0f} s")
        stage.disk.flaky[machine] = chance

        def over() -> None:
            stage.disk.flaky.pop(machine, None)
            stage.kill(machine, 5.0)

        stage.later(seconds, over, f"the disk of {machine} is mended")

    return "the disk of the leader is flaky", happen


def disk_is_slow(stage: Stage, random: Random) -> Happening:
    """Each commit and sync takes seconds."""
    machine, seconds, lasts = random.choice(stage.machines), random.uniform(0.2, 12.0), random.uniform(20.0, 120.0)

    def happen() -> None:
        stage.tell(f"each sync of {machine} takes {seconds:.1f} s, for {lasts:.0f} s")
        stage.disk.slow[machine] = seconds
        stage.later(lasts, lambda: stage.disk.slow.pop(machine, None), f"the disk of {machine} is fast again")

    return f"the disk of {machine} is slow", happen


# --- brokers


def broker_dies(stage: Stage, random: Random) -> Happening:
    """Kill -9, and a start later."""
    return _broker_ends(stage, random, stage.cluster.kill, "is killed", "dies")


def broker_leaves(stage: Stage, random: Random) -> Happening:
    """An orderly stop; later it joins again."""
    return _broker_ends(stage, random, stage.cluster.leave, "is stopped", "leaves")


def _broker_ends(stage: Stage, random: Random, end: Callable[[str], object], how: str, name: str) -> Happening:
    broker, seconds = random.choice(stage.cluster.brokers), random.uniform(5.0, 300.0)

    def happen() -> None:
        stage.tell(f"{broker} {how}")
        end(broker)
        stage.later(seconds, partial(_starts, stage, broker), f"{broker} starts")

    return f"{broker} {name}", happen


def _starts(stage: Stage, broker: str) -> None:
    """Its drain ends with that, as soon as a turn sees it: nothing is expected of it any more."""
    stage.cluster.start(broker)
    stage.observer.may_be_over(DRAIN + broker)


def broker_hangs(stage: Stage, random: Random) -> Happening:
    """It accepts connections, and answers nothing."""
    broker, seconds = random.choice(stage.cluster.brokers), random.uniform(5.0, 120.0)
    return f"{broker} hangs", partial(_hangs, stage, broker, seconds)


def _hangs(stage: Stage, broker: str, seconds: float) -> None:
    port = stage.network.ports[broker]
    stage.tell(f"{broker} hangs for {seconds:.0f} s")
    port.hung = True
    stage.later(seconds, lambda: setattr(port, "hung", False), f"{broker} answers again")


def leading_broker_hangs(stage: Stage, random: Random) -> Happening:
    """And the broker that owns most of the others becomes hot."""
    seconds, factor = random.uniform(180.0, 300.0), random.uniform(2.0, 3.0)

    def happen() -> None:
        leader = stage.cluster._book.leader
        if leader is not None:
            _hangs(stage, leader, seconds)
            stage.heat(stage.follower, factor)

    return "the leading broker hangs", happen


_WRONG = (
    *(Fault.NO_EFFECT, Fault.CONFLICT, Fault.CLOSES_LATE, Fault.NOT_ACTIVE, Fault.UNAVAILABLE, Fault.HTML),
    *(Fault.SLOW, Fault.SLOW, Fault.HALF_JSON, Fault.SILENT, Fault.NAN, Fault.LOST_TO_A_LOOKUP),
    *(Fault.NO_SUCH_BUNDLE, Fault.AFFINITY_LEFT, Fault.FROZEN_REPORT, Fault.CLOCK_SKEW, Fault.LEADER_CHANGES),
    *(Fault.TOPICS_DO_NOT_LOAD, Fault.CLIENTS_LEAVE),
)


def answers_wrongly(stage: Stage, random: Random) -> Happening:
    """Brokers refuse, hang up, lie, or answer late; some act on what they seem to refuse."""
    fault, acts = random.choice(_WRONG), random.random() < 0.5
    switch = Switch(fault, times=random.randint(1, 4), seconds=random.uniform(1.0, 40.0), acts=acts)

    def happen() -> None:
        stage.tell(f"brokers: {fault.value} ({switch.times} times, {switch.seconds:.0f} s, acts: {acts})")
        stage.cluster.faults.on(switch)

    return f"{fault.name}", happen


def unloads_are_slow(stage: Stage, random: Random) -> Happening:
    """Each broker that an unload comes to, the one that sends it on among them, takes its time."""
    acts, seconds = random.random() < 0.5, random.uniform(1.0, 25.0)
    switch = Switch(Fault.SLOW, part="/unload", times=random.randint(2, 6), seconds=seconds, acts=acts)

    def happen() -> None:
        stage.tell(f"brokers take {seconds:.0f} s for an unload ({switch.times} times, acts at once: {acts})")
        stage.cluster.faults.on(switch)

    return "unloads are slow", happen


def unloads_have_no_effect(stage: Stage, random: Random) -> Happening:
    """So many in a row that the attempts of a plan that are tried again are more than an hour may have."""
    times = random.randint(6, 20)

    def happen() -> None:
        stage.tell(f"brokers: {Fault.NO_EFFECT.value} ({times} times)")
        stage.cluster.faults.on(Switch(Fault.NO_EFFECT, times=times))

    return "unloads have no effect", happen


def the_next(stage: Stage, number: int, counter: str, meet: str) -> Happening:
    """What the next requests of a kind meet with; the network counts them down."""

    def happen() -> None:
        stage.tell(f"the next {number} {meet}")
        setattr(stage.network, counter, getattr(stage.network, counter) + number)

    return meet, happen


def answers_twice(stage: Stage, random: Random) -> Happening:
    """What is read from brokers is asked for a second time, later, as by a proxy that tries again."""
    return the_next(stage, random.randint(20, 200), "twice", "questions reach their brokers twice")


def changes_come_twice(stage: Stage, random: Random) -> Happening:
    """What lbds change reaches its broker a second time, seconds later."""
    return the_next(stage, random.randint(1, 6), "changes_twice", "changes reach their brokers twice")


def changes_are_answered_late(stage: Stage, random: Random) -> Happening:
    """They are made at once, and their answers come when nobody waits for these any more."""
    return the_next(stage, random.randint(1, 4), "late", "changes are answered late")


def redirects_are_slow(stage: Stage, random: Random) -> Happening:
    """Each broker that sends a request on takes its time for that."""
    seconds, lasts = random.uniform(0.5, 14.0), random.uniform(30.0, 300.0)

    return "redirects are slow", partial(_redirects_take, stage, seconds, lasts)


def _redirects_take(stage: Stage, seconds: float, lasts: float) -> None:
    stage.tell(f"each redirect takes {seconds:.1f} s, for {lasts:.0f} s")
    stage.network.redirect_seconds = seconds
    stage.later(lasts, lambda: setattr(stage.network, "redirect_seconds", 0.0), "redirects are fast again")


def leader_changes(stage: Stage, random: Random) -> Happening:
    """Another broker leads the brokers."""
    broker = random.choice(stage.cluster.brokers)

    def happen() -> None:
        if broker in stage.cluster.listed:
            stage.tell(f"{broker} leads the brokers")
            stage.cluster.lead(broker)

    return f"{broker} leads", happen


def brokers_shed(stage: Stage, random: Random) -> Happening:
    """An administrator turns the brokers' own shedding on, for a while."""
    seconds = random.uniform(90.0, 600.0)

    def happen() -> None:
        stage.tell(f"brokers are told to shed by themselves, for {seconds:.0f} s")
        stage.cluster.configuration.overrides[SHEDDING_ENABLED] = "true"
        over = partial(stage.cluster.configuration.delete, SHEDDING_ENABLED)
        stage.later(seconds, over, "brokers shed no more by themselves")

    return "brokers shed by themselves", happen


def policy_changes(stage: Stage, random: Random) -> Happening:
    """An administrator gives a namespace brokers of its own, for a while."""
    namespace, number = f"simulated/{random.choice(NAMESPACES)}", random.randint(1, 2)
    hosts = sorted(broker.partition(":")[0] for broker in random.sample(stage.cluster.brokers, number))
    seconds = random.uniform(120.0, 900.0)

    def happen() -> None:
        stage.tell(f"{namespace} may be on {', '.join(hosts)} only, and is alone there")
        stage.isolate(namespace, frozenset(hosts))
        stage.later(seconds, lambda: stage.isolate(namespace, None), f"{namespace} may be anywhere")

    return f"a policy for {namespace}", happen


# --- the leader topic


def topic_gone(stage: Stage, random: Random) -> Happening:
    """No broker has it for a while, and its writer loses it."""
    seconds = random.uniform(2.0, 60.0)

    def happen() -> None:
        stage.tell(f"no broker has the leader topic for {seconds:.0f} s")
        stage.topic.gone = True
        stage.topic.writer = None
        stage.later(seconds, lambda: setattr(stage.topic, "gone", False), "the leader topic is there again")

    return "the leader topic is gone", happen


def writer_expelled(stage: Stage, random: Random, machine: str = "") -> Happening:
    """The topic's broker ends the writer's connection, as when the topic moves: whoever comes first writes."""
    del random, machine

    def happen() -> None:
        if stage.topic.writer is not None:
            stage.tell(f"{stage.topic.writer.machine} loses the leader topic")
            stage.topic.writer = None

    return "the writer loses the leader topic", happen


def deaf(stage: Stage, random: Random, machine: str = "") -> Happening:
    """The topic's broker is not reached, and hears nothing; the other brokers are."""
    machine = machine or random.choice(stage.machines)
    seconds, at_once = random.uniform(10.0, 150.0), random.random() < 0.5

    def happen() -> None:
        stage.tell(f"{machine} does not reach the leader topic for {seconds:.0f} s")
        stage.topic.deaf.add(machine)
        if at_once:
            stage.topic.expel(machine)
        stage.later(seconds, lambda: stage.topic.deaf.discard(machine), f"{machine} reaches the leader topic again")

    return f"{machine} does not reach the leader topic", happen


# --- amid a move


def _any(*_: object) -> bool:
    return True


def _at_source(_: str, unload: Unload, broker: str) -> bool:
    """A broker that closes the bundle, and sends nothing on."""
    return broker == unload.source


def _is_sent_on(_: str, unload: Unload, broker: str) -> bool:
    return broker != unload.source


_AMID = (killed, stands_still, cut_off, ends, writer_expelled, deaf, disk_is_full, commits_fail)


def amid_a_move(stage: Stage, random: Random) -> Happening:
    """What happens to the lbd that sends the next unload, some steps later: before its answer, or just after."""
    kind, steps = random.choice(_AMID), random.randrange(AMID_STEPS)

    def happen(machine: str, _: Unload) -> None:
        stage.at_step.append((stage.running.steps + steps, kind(stage, random, machine)[1]))

    return f"{kind.__name__} at the next unload", lambda: stage.at_unload.append((_any, happen))


KINDS = (
    *[killed] * 3,
    *[amid_a_move] * 10,
    ends,
    *[stands_still] * 3,
    *[cut_off] * 2,
    *[clock_is_set] * 2,
    *(disk_is_full, commits_fail, disk_is_slow),
    *[disk_is_flaky] * 2,
    *[broker_dies] * 2,
    broker_leaves,
    *[broker_hangs] * 2,
    *[answers_wrongly] * 5,
    *[unloads_are_slow] * 2,
    *[unloads_have_no_effect] * 2,
    *(answers_twice, changes_come_twice, changes_are_answered_late, redirects_are_slow),
    leader_changes,
    *[brokers_shed] * 2,
    *[policy_changes] * 2,
    *(topic_gone, writer_expelled, deaf),
)


# --- scenes: what is under way when something changes of which it has to take notice


def paused_amid_a_move(stage: Stage, random: Random) -> Happening:
    """A person pauses the lbd that sends the next unload while that is on its way, and others are to follow."""
    seconds = random.uniform(3.0, 8.0)

    def happen(machine: str, _: Unload) -> None:
        _redirects_take(stage, seconds, 3 * seconds)
        pause = pauses(stage, random, machine)[1]
        stage.later(seconds / 2, pause, "somebody wants a pause")

    return "a person pauses amid the next unload", lambda: stage.at_unload.append((_any, happen))


def paused_amid_a_check(stage: Stage, random: Random) -> Happening:
    """Some people want moves, a broker takes its time for the check before the first that may be, and one pauses."""
    seconds, wanted = random.uniform(5.0, 7.0), [moves(stage, random)[1] for _ in range(4)]

    def happen() -> None:
        stage.tell(f"a broker takes {seconds:.0f} s to say of which bundle a topic is")
        stage.cluster.faults.on(Switch(Fault.SLOW, part="/lookup/v2/topic", times=1, seconds=seconds))
        for move in wanted:
            move()
        stage.later(2.5, pauses(stage, random, stage.leader or "")[1], "somebody wants a pause")

    return "a person pauses amid a check", happen


def quiet_amid_a_move(stage: Stage, random: Random) -> Callable[[], None]:
    """While the next unload is on its way, its lbd's clock is set to the beginning of quiet hours."""
    seconds = random.uniform(4.0, 10.0)

    def happen(machine: str, _: Unload) -> None:
        _redirects_take(stage, seconds, 3 * seconds)
        stage.later(1.0, partial(stage.make_quiet, machine), f"the clock of {machine} is set to quiet hours")

    return lambda: stage.at_unload.append((_any, happen))


def last_of_an_hour(stage: Stage) -> Callable[[], None]:
    """The next unload that is the last that the limits of an hour allow has no effect: it would be tried again."""

    def is_last(machine: str, unload: Unload, _: str) -> bool:
        return not unload.order and stage.observer.left(stage.lbds[machine].engine) == 0

    def no_effect(*_: object) -> None:
        stage.tell(f"the limits of an hour allow no more; brokers: {Fault.NO_EFFECT.value} (twice)")
        stage.cluster.faults.on(Switch(Fault.NO_EFFECT, times=2))

    return lambda: stage.at_unload.append((is_last, no_effect))


def released_amid_its_drain(stage: Stage, random: Random) -> Happening:
    """A person drains a broker, and releases it while its first bundle is on its way."""
    seconds = random.uniform(4.0, 10.0)

    def amid(_: str, unload: Unload) -> None:
        _redirects_take(stage, seconds, 3 * seconds)
        stage.later(1.0, partial(release, stage, unload.source), f"a person releases {unload.source}")

    def happen() -> None:
        drains(stage, random, stage.follower)[1]()
        stage.at_unload.append((lambda _, unload, __: unload.order == "drain", amid))

    return "a person releases a broker amid its drain", happen


def stands_still_at_its_intent(stage: Stage, random: Random) -> Happening:
    """The lbd that writes the next intent stands still before it hears that it is written, and another one leads."""
    seconds = random.uniform(25.0, 90.0)

    def happen(machine: str) -> None:
        stage.tell(f"{machine} stands still for {seconds:.0f} s, and loses the leader topic")
        stage.topic.expel(machine)
        stage.later(seconds, partial(stage.go_on, machine), f"{machine} goes on")
        stage.running.stop(machine)

    return "an lbd stands still at its intent", lambda: stage.topic.at_intent.append(happen)


def succeeded_amid_a_move(stage: Stage, random: Random) -> Happening:
    """The broker of the next unload takes its time, and meanwhile another lbd leads."""
    seconds, chance = random.uniform(26.0, 45.0), Random(random.random())

    def happen(machine: str, unload: Unload) -> None:
        stage.tell(f"{unload.source} takes {seconds:.0f} s for an unload")
        switch = Switch(Fault.SLOW, unload.source, "/unload", times=1, seconds=seconds, acts=chance.random() < 0.5)
        stage.cluster.faults.on(switch)
        stage.tell(f"{machine} does not reach the leader topic for {2 * seconds:.0f} s")
        stage.topic.deaf.add(machine)
        stage.topic.expel(machine)
        stage.later(2 * seconds, lambda: stage.topic.deaf.discard(machine), f"{machine} reaches the leader topic again")

    return "another lbd leads amid the next unload", lambda: stage.at_unload.append((_at_source, happen))


def closed_late(stage: Stage, random: Random) -> Happening:
    """The broker of the next unload refuses it, and does it all the same, later."""
    seconds = random.uniform(3.0, 45.0)

    def happen(_: str, unload: Unload) -> None:
        stage.tell(f"{unload.source} refuses an unload, and closes the bundle after {seconds:.0f} s")
        stage.cluster.faults.on(Switch(Fault.CLOSES_LATE, unload.source, times=1, seconds=seconds))

    return "the next unload is refused and done", lambda: stage.at_unload.append((_at_source, happen))


def forbidden_amid_a_move(stage: Stage, random: Random) -> Happening:
    """While the next unload is sent on to its bundle's owner, its destination becomes another namespace's own."""
    seconds, lasts = random.uniform(4.0, 14.0), random.uniform(120.0, 600.0)

    def happen(_: str, unload: Unload) -> None:
        _redirects_take(stage, seconds, 3 * seconds)
        own = f"simulated/{random.choice([name for name in NAMESPACES if f'/{name}/' not in unload.bundle])}"
        host = (unload.destination or "").partition(":")[0]
        stage.tell(f"{own} may be on {host} only, and is alone there")
        stage.isolate(own, frozenset({host}))
        stage.later(lasts, lambda: stage.isolate(own, None), f"{own} may be anywhere")

    return "a policy amid the next unload", lambda: stage.at_unload.append((_is_sent_on, happen))


def unwritten_and_killed(stage: Stage, random: Random) -> Happening:
    """The disk of the lbd that leads is full while a broker gets hot. If it sends an unload, it dies."""
    seconds, factor = random.uniform(200.0, 400.0), random.uniform(2.0, 3.0)
    other, steps, back = random.choice(stage.machines), random.randrange(AMID_STEPS), random.uniform(1.0, 60.0)

    def dies(machine: str, _: Unload) -> None:
        stage.disk.full.discard(machine)
        stage.at_step.append((stage.running.steps + steps, partial(stage.kill, machine, back)))

    def happen() -> None:
        _fills(stage, stage.leader or other, seconds)
        stage.heat(stage.follower, factor)
        stage.at_unload.append((lambda machine, *_: machine in stage.disk.full, dies))

    return "a leader with a full disk is killed if it unloads", happen


SCENES = (
    paused_amid_a_move,
    paused_amid_a_check,
    rolls_out,
    released_amid_its_drain,
    stands_still_at_its_intent,
    succeeded_amid_a_move,
    closed_late,
    disk_stays_full,
    leading_broker_hangs,
    forbidden_amid_a_move,
    unwritten_and_killed,
)
