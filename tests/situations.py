"""Situations of a small cluster with a live lbd: how each comes about, and what a person does about it."""

from __future__ import annotations

import shlex
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.clock import Timebase
from lbd.daemon.status import build_status
from lbd.remedy import NextStep
from lbd.simulate.answers import refused
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains
from lbd.store.status import write_status
from tests.api.conftest import lbd as command_of
from tests.api.conftest import listening, own_api, working
from tests.fake_pulsar import HOT, FakePulsar, hot_broker
from tests.test_turn import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.config import Settings
    from tests.api.conftest import Api


class Stand:
    """The three brokers of ``hot_broker``, an lbd with an API, and a clock that only the test moves on."""

    def __init__(self, pulsar: FakePulsar, folder: Path, clock: list[float], api: Api, chosen: Settings) -> None:
        self.pulsar, self.folder, self.clock, self.api, self.chosen = pulsar, folder, clock, api, chosen
        self._samples = 0

    def steps(self) -> list[NextStep]:
        """What a person should do now."""
        return msgspec.convert(self.api.get("/v1/status").json()["steps"], list[NextStep])

    def turns(self, number: int = 3) -> None:
        """So many turns, each with a new sample of every broker."""
        for _ in range(number):
            self._samples += 1
            for broker in self.pulsar.brokers:
                broker.cpu += 0.1 * (-1) ** self._samples
            self.clock[0] += 1.0
            record = self.api.turn()
            assert self.api.engine.wait(60)
            write_status(self.chosen.state_dir, build_status(self.api.engine, record, self._samples, None))

    def run(self, step: NextStep, *more: str) -> None:
        """The command of a step, as a person at another machine runs it."""
        assert step.command is not None
        name, *words = shlex.split(step.command)
        assert name == "lbd"
        with working(self.api):
            done = command_of(self.api, self.folder, *words, *more)
        assert done.exit_code == 0, done.output

    def set(self, section: str, **values: Any) -> None:
        """Change settings and reload them."""
        current = self.chosen.model_dump()
        current[section] = {**current[section], **values}
        self.api.engine.take(type(self.chosen).model_validate(current))

    def wait_until(self, step: NextStep) -> None:
        """Let the time pass that the step names."""
        assert step.ends_at is not None
        assert step.by_itself
        self.clock[0] = step.ends_at + 1


@dataclass(frozen=True)
class Situation:
    """How a reason comes about, and what a person does about it as the step says; None: nothing ends it here."""

    reason: str
    remedy: Callable[[Stand, NextStep], object] | None = None
    arrange: Callable[[Stand], object] = lambda _: None
    changes: dict[str, Any] = field(default_factory=dict)
    guardrails: dict[str, Any] = field(default_factory=dict)


def run(*more: str) -> Callable[[Stand, NextStep], object]:
    """The command as it stands, and ``more`` words that make it act."""
    return lambda stand, step: stand.run(step, *more)


def wait(stand: Stand, step: NextStep) -> None:
    """Nothing but time."""
    stand.wait_until(step)


def watch(stand: Stand, step: NextStep) -> None:
    """The same with a turn each quarter of a minute, and a sample of each broker every minute."""
    assert step.ends_at is not None
    while stand.clock[0] < step.ends_at:
        stand.turns(1)
        for _ in range(4):
            stand.clock[0] += 15
            stand.api.turn()


def change(section: str, **values: Any) -> Callable[[Stand, NextStep], object]:
    """The setting that the step names."""
    return lambda stand, _: stand.set(section, **values)


def own(*bundles: str, rate: float = 1000.0) -> Callable[[Stand], object]:
    """The hot broker has these bundles and no other."""

    def arrange(stand: Stand) -> None:
        for bundle in HOT:
            stand.pulsar.owners.pop(bundle)
        stand.pulsar.own(stand.pulsar.ids[0], dict.fromkeys(bundles, rate))

    return arrange


def paused(stand: Stand) -> None:
    Control(stand.chosen.state_dir, stand.api.engine.orders).pause(
        Pause(stand.clock[0], stand.clock[0] + 600, "tests", "ann")
    )


def paused_for_good(stand: Stand) -> None:
    Control(stand.chosen.state_dir, stand.api.engine.orders).pause(Pause(stand.clock[0], None, "tests", "ann"))


def shedding(value: str) -> Callable[..., object]:
    def arrange(stand: Stand, *_: object) -> None:
        stand.pulsar.dynamic = {"loadBalancerSheddingEnabled": value}

    return arrange


def leads(index: int | None) -> Callable[..., object]:
    def arrange(stand: Stand, *_: object) -> None:
        stand.pulsar.leader = None if index is None else stand.pulsar.ids[index]

    return arrange


def calm(stand: Stand) -> None:
    stand.pulsar.sample(12.0, 11.0, 10.0)


def full(stand: Stand) -> None:
    stand.pulsar.sample(96.0, 92.0, 88.0)


def nobody(stand: Stand) -> None:
    calm(stand)
    for bundle, owner in stand.pulsar.owners.items():
        stand.pulsar.owners[bundle] = stand.pulsar.ids[0] if owner == stand.pulsar.ids[2] else owner


def joined(stand: Stand) -> None:
    stand.pulsar.gone.add(stand.pulsar.ids[2])
    stand.turns(1)
    stand.pulsar.gone.clear()


def silent(stand: Stand) -> None:
    calm(stand)
    stand.pulsar.fault("load-report", refused(503, "busy"), broker=stand.pulsar.ids[2])


def two_silent(stand: Stand) -> None:
    calm(stand)
    for broker in stand.pulsar.ids[1:]:
        stand.pulsar.fault("load-report", refused(503, "busy"), broker=broker)


def drained(stand: Stand) -> None:
    stand.pulsar.sample(30.0, 22.0, 1.0)
    empty = stand.pulsar.ids[2]
    for bundle, owner in stand.pulsar.owners.items():
        stand.pulsar.owners[bundle] = stand.pulsar.ids[1] if owner == empty else owner
    now = stand.clock[0]
    Drains(stand.chosen.state_dir, stand.api.engine.orders).begin(Drain(empty, now, now + 3600, "ann", "disk"))


AT_ONCE = {"hit_count_low": 1, "hit_count_high": 1}
SLOWLY = {"avg_shedder": {"hit_count_low": 8, "hit_count_high": 6}}

SITUATIONS = [
    Situation("waiting", watch, changes=SLOWLY),
    Situation("paused", run(), paused),
    Situation("paused", wait, paused),
    Situation("in-broker-shedding", shedding("false"), shedding("true")),
    Situation("leader-unreachable", leads(1), leads(None)),
    Situation("approval-required", run(), changes={"mode": "approve"}),
    Situation("membership-changed", wait, joined, guardrails={"membership_settle_seconds": 300}),
    Situation("unloads-per-hour", wait, guardrails={"max_unloads_per_hour": 1, "cool_down_minutes": 0}),
    Situation(
        "unloads-per-hour",
        change("guardrails", max_unloads_per_hour=None),
        guardrails={"max_unloads_per_hour": 1, "cool_down_minutes": 0},
    ),
    Situation(
        "canary",
        change("guardrails", canary=None),
        guardrails={"canary": {"namespaces": ["other/*"], "max_moves_per_hour": 1}},
    ),
    Situation(
        "excluded-namespace",
        change("guardrails", excluded_namespaces=()),
        guardrails={"excluded_namespaces": ["t/n"]},
    ),
    Situation("sole-bundle", run("--apply"), own("t/n/0x00000000_0x80000000", rate=8000.0)),
    Situation("below-minimum", change("avg_shedder", min_unload_message=1, min_unload_message_throughput=1),
              changes={"avg_shedder": {"hit_count_low": 1, "hit_count_high": 1, "min_unload_message": 1_000_000,
                                       "min_unload_message_throughput": 10**12}}),
    Situation("report-missing", lambda stand, _: stand.pulsar.faults.off(), silent),
    Situation("empty-broker", run("--apply"), nobody),
    Situation("balanced", arrange=calm),
    Situation("observe-only", changes={"mode": "observe"}),
    Situation("drained and empty", arrange=drained),
    Situation("quiet-hours", guardrails={"quiet_hours": [{"from": "00:00", "to": "24:00"}]}),
    Situation("no leader and calm", arrange=lambda stand: (calm(stand), leads(None)(stand))),
    Situation("two brokers silent", arrange=two_silent),
    Situation("least-moves", changes={"strategy": "least-moves", "least_moves": AT_ONCE}),
    Situation("bundles rest", guardrails={"cool_down_minutes": 30}),
    Situation("paused", run(), paused_for_good),
    Situation(
        "not-included", change("guardrails", include_namespaces=()), guardrails={"include_namespaces": ["other/*"]}
    ),
    Situation("too-large", arrange=own("t/n/0x00000000_0x80000000", "t/n/0x80000000_0xc0000000", rate=8000.0)),
    Situation("unloads-per-day", guardrails={"max_unloads_per_day": 1, "cool_down_minutes": 0}),
    Situation("all brokers full", arrange=full),
    Situation("observe-only and calm", arrange=calm, changes={"mode": "observe"}),
    Situation("approval and calm", arrange=calm, changes={"mode": "approve"}),
]  # fmt: skip


def named(situation: Situation) -> str:
    """The reason, and whether time alone is waited for."""
    return f"{situation.reason}{', waited for' if situation.remedy in {wait, watch} else ''}"


@contextmanager
def arranged(situation: Situation, folder: Path) -> Iterator[Stand]:
    """The situation, as the last of some turns saw it."""
    with hot_broker() as pulsar:
        chosen = settings(pulsar, folder, api=own_api(folder), guardrails=situation.guardrails, **situation.changes)
        clock = [time.time()]
        with listening(chosen, Timebase(lambda: clock[0], lambda: 1.0)) as api:
            stand = Stand(pulsar, folder, clock, api, chosen)
            stand.turns(1) if situation.arrange is joined else None
            situation.arrange(stand)
            stand.turns()
            yield stand
