"""What befalls two lbds and their cluster: each function is one kind, which begins, lasts for a while and is mended."""

from __future__ import annotations

import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from tests.chaos import process
from tests.simulate.faulty import LOAD_REPORT, UNLOAD, Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.chaos.chaos import Chaos, Lbd

    Befalls: TypeAlias = Callable[[Chaos, Random], None]


class Over(Exception):  # noqa: N818 - no error
    """The fault has no place in what goes on, or the run ends before it could begin."""


SHEDDING = "loadBalancerSheddingEnabled"
SETTLED_SECONDS = 180.0
STEPS_SECONDS = (3700.0, -3700.0, 86_400.0, -86_400.0, 600.0, -600.0)


@contextmanager
def switched(chaos: Chaos, name: str, *switches: Switch) -> Iterator[None]:
    """A fault of the cluster, for as long as this lasts."""
    chaos.see("fault", detail=name)
    for switch in switches:
        chaos.see("switch", broker=switch.broker or "", detail=f"{switch}")
        chaos.cluster.faults.on(switch)
    yield
    for switch in switches:
        chaos.cluster.faults.off(switch)
    chaos.see("switch", detail=f"{name} is over")


@contextmanager
def taken(chaos: Chaos, chance: Random, name: str) -> Iterator[Lbd]:
    """An lbd to which nothing else is done meanwhile, the one that leads more often.

    Raises :class:`Over` when there is none before the run ends.
    """
    with chaos.taking:
        chaos.taking.wait_for(lambda: not all(one.busy for one in chaos.lbds))
        if chaos.ending.is_set():
            raise Over
        free = sorted((one for one in chaos.lbds if not one.busy), key=lambda one: one.who != chaos.writer)
        found = free[0] if chance.random() < 0.7 else free[-1]
        found.busy = True
    chaos.see("fault", who=found.who, detail=name)
    try:
        yield found
    finally:
        with chaos.taking:
            found.busy = False
            chaos.taking.notify_all()


@contextmanager
def rarely(chaos: Chaos) -> Iterator[None]:
    """Brokers come and go one at a time, and not so often that lbd waits for them to settle all the time."""
    with chaos.brokers_change:
        if chaos.now() < chaos.brokers_changed_at + SETTLED_SECONDS and not chaos.once:
            raise Over
        yield
        chaos.brokers_changed_at = chaos.now()


def slow_leader(chaos: Chaos, chance: Random) -> None:
    leader, seconds = chaos.cluster.leader, chance.uniform(3, 40) * chaos.pace
    slow = Switch(Fault.SLOW, leader, UNLOAD, seconds=seconds, acts=chance.random() < 0.5)
    with switched(chaos, "the leader answers unloads slowly", slow):
        chaos.lasts(40)


def slow_owner(chaos: Chaos, chance: Random) -> None:
    seconds, acts = chance.uniform(3, 40) * chaos.pace, chance.random() < 0.5
    with switched(
        chaos, "an owner is slow", Switch(Fault.SLOW, _broker(chaos, chance), UNLOAD, seconds=seconds, acts=acts)
    ):
        chaos.lasts(40)


def closes_late(chaos: Chaos, chance: Random) -> None:
    late = Switch(Fault.CLOSES_LATE, times=2, seconds=chance.uniform(1, 40) * chaos.pace)
    with switched(chaos, "an unload acts after it was refused", late):
        chaos.lasts(30)


def drips(chaos: Chaos, chance: Random) -> None:
    part = chance.choice(["", UNLOAD, LOAD_REPORT, "/topicHashPositions", "/lookup"])
    with switched(chaos, "a broker drips", Switch(Fault.DRIPS, _broker(chaos, chance), part, seconds=0.3)):
        chaos.lasts(20)


def silent(chaos: Chaos, chance: Random) -> None:
    with switched(chaos, "a broker is silent", Switch(Fault.SILENT, _broker(chaos, chance))):
        chaos.lasts(20)


def spoilt_reports(chaos: Chaos, chance: Random) -> None:
    fault, broker = chance.choice([Fault.NAN, Fault.HTML, Fault.HALF_JSON, Fault.UNAVAILABLE]), _broker(chaos, chance)
    with switched(chaos, "reports are broken", Switch(fault, broker, LOAD_REPORT)):
        chaos.see("spoilt", broker=broker, detail=fault.name)
        chaos.lasts(30)
        chaos.see("sound", broker=broker)


def frozen_reports(chaos: Chaos, chance: Random) -> None:
    with switched(chaos, "reports stand still", Switch(Fault.FROZEN_REPORT, _broker(chaos, chance))):
        chaos.lasts(30)


def refused(chaos: Chaos, chance: Random) -> None:
    fault = chance.choice([Fault.CONFLICT, Fault.NOT_ACTIVE, Fault.NO_EFFECT, Fault.NO_SUCH_BUNDLE, Fault.UNAVAILABLE])
    with switched(chaos, "unloads are refused", Switch(fault, None, UNLOAD, times=3, acts=chance.random() < 0.5)):
        chaos.lasts(30)


def lost_to_lookups(chaos: Chaos, chance: Random) -> None:
    with switched(chaos, "lookups take bundles elsewhere", Switch(Fault.LOST_TO_A_LOOKUP, times=chance.randint(1, 4))):
        chaos.lasts(30)


def notes_stay(chaos: Chaos, chance: Random) -> None:
    del chance
    with switched(chaos, "notes of leaders stay", Switch(Fault.AFFINITY_LEFT)):
        chaos.lasts(30)


def led_away(chaos: Chaos, chance: Random) -> None:
    away = Switch(Fault.LED_AWAY, None, times=2, location=f"{chance.choice(chaos.strangers)}/admin/v2/unload")
    with switched(chaos, "redirects lead away", away):
        chaos.lasts(30)


def another_leader(chaos: Chaos, chance: Random) -> None:
    chaos.see("fault", detail="another broker leads")
    chaos.cluster.lead(chance.choice(chaos.up()))


def leader_changes_midway(chaos: Chaos, chance: Random) -> None:
    del chance
    with switched(chaos, "another broker leads in the middle of an unload", Switch(Fault.LEADER_CHANGES, times=1)):
        chaos.lasts(30)


def broker_dies(chaos: Chaos, chance: Random) -> None:
    """Longer than its session lives, most of the time."""
    with rarely(chaos):
        broker = _broker(chaos, chance)
        chaos.see("fault", broker=broker, detail="a broker dies")
        chaos.see("broker", broker=broker, detail="kill")
        chaos.cluster.kill(broker)
        chaos.lasts(chance.uniform(5, 60))
        chaos.see("broker", broker=broker, detail="start")
        chaos.cluster.start(broker)


def broker_leaves(chaos: Chaos, chance: Random) -> None:
    with rarely(chaos):
        broker = _broker(chaos, chance)
        chaos.see("fault", broker=broker, detail="a broker leaves")
        chaos.see("broker", broker=broker, detail="leave")
        chaos.cluster.leave(broker)
        chaos.lasts(chance.uniform(15, 40))
        chaos.see("broker", broker=broker, detail="start")
        chaos.cluster.start(broker)


def split(chaos: Chaos, chance: Random) -> None:
    """Of a bundle that is under way, where there is one; its name is gone."""
    owners = chaos.cluster.owners()
    bundle = next((one for one in reversed(chaos.flying) if one in owners), chance.choice(sorted(owners)))
    parts = chaos.cluster.split(bundle)
    chaos.see("fault", bundle=bundle, detail="a bundle is split")
    chaos.see("owner", bundle=bundle, broker="(no bundle)", detail=f"now {', '.join(parts)}")


def clock_step(chaos: Chaos, chance: Random) -> None:
    with taken(chaos, chance, "a clock is set") as lbd:
        seconds = chance.choice(STEPS_SECONDS)
        chaos.see("clock", who=lbd.who, detail=f"{seconds:+.0f} s")
        process.set_clock(lbd.clock, seconds)
        chaos.lasts(chance.uniform(10, 40))
        process.set_clock(lbd.clock, 0.0)
        chaos.see("clock", who=lbd.who, detail="set back to where it was")


def killed(chaos: Chaos, chance: Random) -> None:
    with taken(chaos, chance, "kill -9 of an lbd") as lbd:
        lbd.end()
        chaos.lasts(chance.uniform(0, 15))
        lbd.start()


def ended(chaos: Chaos, chance: Random) -> None:
    with taken(chaos, chance, "an lbd is restarted") as lbd:
        lbd.end(signal.SIGTERM)
        lbd.start()


def stopped(chaos: Chaos, chance: Random) -> None:
    with taken(chaos, chance, "an lbd stands still") as lbd:
        chaos.see("stop", who=lbd.who)
        lbd.tell(signal.SIGSTOP)
        chaos.lasts(chance.choice([3, 12, 30, 70]))
        chaos.see("continue", who=lbd.who)
        lbd.tell(signal.SIGCONT)


def topic_gone(chaos: Chaos, chance: Random) -> None:
    chaos.see("fault", detail="the topic is gone")
    chaos.topic.gone = True
    chaos.lasts(chance.uniform(1, 20))
    chaos.topic.gone = False


def topic_slow(chaos: Chaos, chance: Random) -> None:
    chaos.see("fault", detail="the topic is slow")
    chaos.topic.acknowledged_after_seconds = chance.choice([2.0, 8.0, 12.0])
    chaos.lasts(15)
    chaos.topic.acknowledged_after_seconds = 0.0


def paused(chaos: Chaos, chance: Random) -> None:
    """At both, as people pause a cluster whatever leads."""
    with chaos.state_change:
        chaos.see("fault", detail="a pause")
        done = [one.command("pause") for one in chaos.lbds]
        if all(done):
            chaos.see("pause", detail="ordered at both")
    chaos.lasts(chance.uniform(8, 16))
    with chaos.state_change:
        chaos.see("resume")
        for one in chaos.lbds:
            one.command("resume")


def shedding(chaos: Chaos, chance: Random) -> None:
    chaos.see("fault", detail="brokers shed by themselves")
    chaos.cluster.configuration.overrides[SHEDDING] = "true"
    chaos.see("shedding")
    chaos.lasts(chance.uniform(15, 25))
    chaos.see("no shedding")
    chaos.cluster.configuration.overrides.pop(SHEDDING, None)


def policy(chaos: Chaos, chance: Random) -> None:
    """A namespace may be on three brokers only, which it has for itself."""
    namespace, brokers = chance.choice(chaos.namespaces), chance.sample(chaos.cluster.brokers, 3)
    hosts = [broker.partition(":")[0] for broker in brokers]
    chaos.see("fault", detail="a policy comes")
    chaos.see("policy", detail=f"{namespace} may be on {', '.join(brokers)}")
    chaos.cluster.policies.isolation = {"kept": {"namespaces": [namespace], "primary": hosts}}
    chaos.lasts(chance.uniform(20, 40))
    chaos.cluster.policies.isolation = {}
    chaos.see("policy", detail="none")


def state_removed(chaos: Chaos, chance: Random) -> None:
    """Under a running lbd; a second one is started there, and in the end both begin anew."""
    with taken(chaos, chance, "a state directory is removed") as lbd, chaos.state_change:
        lbd.wait()
        chaos.see("state", who=lbd.who, detail="removed")
        shutil.rmtree(lbd.state.rename(lbd.folder / f"removed-{lbd.who}"))  # no file comes while it goes
        if chance.random() < 0.5 or chaos.once:
            chaos.lasts(2)
            lbd.start_twin()
        chaos.lasts(15)
        _begin_anew(lbd)


def journal_replaced(chaos: Chaos, chance: Random) -> None:
    with taken(chaos, chance, "a journal is replaced") as lbd, chaos.state_change:
        lbd.wait()
        file, how = lbd.state / "lbd.db", chance.choice(["removed", "emptied", "older", "garbled"])
        before = file.read_bytes()
        chaos.see("state", who=lbd.who, detail=f"journal {how}")
        file.unlink()
        if how != "removed":
            content = {"emptied": b"", "older": before, "garbled": b"\x00" * 4096}
            file.write_bytes(content[how])
        chaos.lasts(15)
        _begin_anew(lbd)


def _begin_anew(lbd: Lbd) -> None:
    """As a person does who sees that its state is lost: the topic knows the moves."""
    lbd.end(signal.SIGTERM)
    lbd.end_twin()
    shutil.rmtree(lbd.state, ignore_errors=True)
    lbd.start()


def _broker(chaos: Chaos, chance: Random) -> str:
    return chance.choice(chaos.up())


FAULTS: tuple[Befalls, ...] = (
    *(slow_leader, slow_owner, closes_late, drips, refused, led_away, lost_to_lookups, notes_stay, split),
    *(another_leader, leader_changes_midway, clock_step, silent, spoilt_reports, frozen_reports, policy),
    *(topic_slow, killed, stopped, ended, topic_gone, shedding, broker_dies, broker_leaves, paused),
    *(state_removed, journal_replaced),
)
"""Those that keep lbd from moving anything come last."""
