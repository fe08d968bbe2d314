"""Moves asked for by hand, one after the other, while lbd, the leading broker and others are killed in the midst.

lbd moves a bundle only to a broker that will stay below its source, also by hand. So one broker is made hot by a burner
beside it; a third of the bundles leave it through lbd, and the test itself brings them back. For some minutes lbd
counts each where it sent it last, by its share of what the broker has left: half of them would carry all of its points.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.e2e import journal, placing, probe, settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.e2e.cluster import Cluster
    from tests.e2e.daemon import Daemon

Victim = Literal["lbd", "leader", "broker"]

REQUEST_SECONDS = 30.0
ASKED_AGAIN_SECONDS = 8.0
"""A request is a process, and what brokers say of their CPU changes once a minute."""

OWNED_AGAIN_SECONDS = 90.0
INTENT_SECONDS = 30.0
CLOSED_SECONDS = 120.0
"""A move that was killed before anything happened stays open for as long as a broker may take for an unload."""

DELAYS_SECONDS = (0.03, 0.06, 0.09, 0.12, 0.0)
"""From the intent to the kill, by turns: what is sent, being closed, unowned, just landed, or not sent yet."""
SERVED_SECONDS = 240.0
"""lbd trusts a broker two minutes after its start, and sees the burner with the CPU sample after that."""

TRUSTED_SECONDS = 135.0
REPORTED_SECONDS = 2.0 * settings.STATS_SECONDS
HOT_CORES = 0.8
BRING_BACK_TRIES = 3
LAST_LEFT = 2
"""Of those that leave: then they are brought back."""

REQUESTS_WHILE_DEAD = 2
"""So many moves are asked for while a broker is dead, before it is started again."""


def schedule(moves: int, lbd: int, leader: int, broker: int) -> dict[int, Victim]:
    """From which request on who dies: so many times each, evenly over the moves. Two brokers are never dead at once."""
    found: dict[int, Victim] = {}
    kinds: list[tuple[Victim, int, int]] = [("leader", leader, 2), ("broker", broker, 2), ("lbd", lbd, 0)]
    for victim, times, apart in kinds:
        room = apart * REQUESTS_WHILE_DEAD
        for number in range(times):
            at = (2 * number + 1) * moves // (2 * times)
            while found.keys() & set(range(at - room, at + room + 1)):
                at += 1
            found[at] = victim
    return found


@dataclass
class Hot:
    """The broker that bundles leave. ``brought_back``: when the test itself moved a bundle."""

    cluster: Cluster
    bundles: Sequence[str]
    index: int = -1
    brought_back: dict[str, float] = field(default_factory=dict)
    _given: int = 0

    @property
    def broker(self) -> str:
        return self.cluster.brokers[self.index]

    def heat(self, index: int) -> None:
        """From now on it is this one."""
        if self.index >= 0:
            self.cluster.quench(self.index)
            self.cluster.set_quota(self.index, None)
        self.index = index
        self.cluster.set_quota(index, HOT_CORES)
        self.cluster.burn(index)

    def bundle(self) -> str:
        """One of every third, that is on the hot broker, by turns; when few are left there, all are brought back."""
        here = self._here()
        alive = all(self.cluster.alive(index) for index in range(len(self.cluster.brokers)))
        if len(here & self._leaving) <= LAST_LEFT and alive:
            for bundle in self.bundles:
                if bundle not in here:
                    self._bring_back(bundle)
            time.sleep(REPORTED_SECONDS)
            here = self._here()
        self._given += 1
        leaving = sorted(here & self._leaving)
        return leaving[self._given % len(leaving)] if leaving else self.bundles[0]

    @property
    def _leaving(self) -> set[str]:
        return set(self.bundles[::3])

    def _bring_back(self, bundle: str) -> None:
        """Clients may win the race for it; then it stays where it is until the next time."""
        for _ in range(BRING_BACK_TRIES):
            if _wait_owned(self.cluster, bundle) == {self.broker}:
                return
            placing.unload(self.cluster, bundle, self.broker)
            placing.nudge(self.cluster, bundle, self.index)
            self.brought_back[bundle] = time.time()
        _wait_owned(self.cluster, bundle)

    def _here(self) -> set[str]:
        owned = probe.owned(self.cluster, self.index)
        return {bundle for bundle in self.bundles if bundle in owned}


@dataclass
class Storm:
    """Drives the moves. ``lies`` are exit codes that the brokers deny; ``mid_move`` kills of lbd that hit a move."""

    cluster: Cluster
    daemon: Daemon
    hot: Hot
    victims: Mapping[int, Victim]
    words: Sequence[str] = ("--override", "a test that moves bundles while processes are killed")
    codes: Counter[int] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    mid_move: int = 0
    _asked: int = 0
    _dead: dict[int, int] = field(default_factory=dict)
    _born: dict[int, float] = field(default_factory=dict)

    def run(self, moves: int) -> None:
        """Ask until so many moves are in the journal, and bring back who is dead by then.

        A request that lbd refuses hits no move: who was to die then dies in the next one.
        """
        self._renew()
        while self._asked < 6 * moves and (len(self.daemon.moves()) < moves or self.killed.total() < len(self.victims)):
            self._bring_back(self._asked)
            due = [victim for at, victim in sorted(self.victims.items()) if at <= self._asked]
            self._request(next(iter(due[self.killed.total() :]), None))
            self._asked += 1
        self._bring_back(None)

    def _renew(self) -> None:
        """Make a broker hot that does not lead, and wait until lbd moves bundles away from it."""
        leader = self._leader()
        self.hot.heat(next(index for index in self._alive() if index != leader))
        deadline = time.monotonic() + SERVED_SECONDS
        while self._request(None) == 4:
            if time.monotonic() > deadline:
                raise AssertionError(f"lbd moves nothing: {self.said}; its log ends with\n{self.daemon.last_lines()}")
            time.sleep(ASKED_AGAIN_SECONDS)

    def _request(self, victim: Victim | None) -> int:
        if victim not in (None, "lbd"):
            self._make_ready_for_a_death(victim)
        bundle, destination = self.hot.bundle(), self._destination()
        written, asked = self._written(), time.time()
        command = [
            *self.daemon.command("unload", bundle, "--apply", "--to", destination),
            "--timeout",
            f"{REQUEST_SECONDS:.0f}",
        ]
        process = subprocess.Popen([*command, *self.words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if victim is not None and self._wait_for_intent(written, process):
            self._strike(victim)
        text, _ = process.communicate(timeout=REQUEST_SECONDS + 60)
        self._note(process.returncode, text, bundle, destination)
        if process.returncode == 0 and victim is None and self._denied(bundle, destination, asked):
            self.lies.append(f"{bundle}: exit 0, but the journal or the brokers deny that it is on {destination}")
        return process.returncode

    def _destination(self) -> str:
        """By turns, the one that has lived longer when the other has just been started."""
        others = [index for index in self._alive() if index != self.hot.index]
        old = [index for index in others if time.time() - self._born.get(index, 0.0) > TRUSTED_SECONDS] or others
        return self.cluster.brokers[old[self._asked % len(old)]]

    def _note(self, code: int, text: str, bundle: str, destination: str) -> None:
        self.codes[code] += 1
        last = (text.strip().splitlines() or [""])[-1]
        if code:
            self.said[last[:160]] += 1
        line = {"at": time.time(), "bundle": bundle, "destination": destination, "code": code, "said": last}
        with (self.daemon.directory / "requests.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")

    def _denied(self, bundle: str, destination: str, asked: float) -> bool:
        told = [move for move in self.daemon.moves() if move.bundle == bundle and (move.ended_at or 0) >= asked]
        landed = bool(told) and told[-1].result == "landed" and told[-1].owner == destination
        return not landed or placing.owner(self.cluster, bundle) != {destination}

    def _wait_for_intent(self, written: int, process: subprocess.Popen[str]) -> bool:
        """Until the intent is on disk, and a bit more; False if there is none."""
        deadline = time.monotonic() + INTENT_SECONDS
        while self._written() == written and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        if self._written() == written:
            return False
        time.sleep(DELAYS_SECONDS[self.killed.total() % len(DELAYS_SECONDS)])
        return True

    def _strike(self, victim: Victim) -> None:
        self.killed[victim] += 1
        if victim == "lbd":
            before = sum(move.found_open for move in self.daemon.moves())
            self.daemon.restart()
            self.mid_move += self._closed_after(before)
            return
        leader = self._leader()
        others = (index for index in self._alive() if index not in (leader, self.hot.index))
        index = leader if victim == "leader" else next(others)
        self.cluster.kill_broker(index, signal.SIGKILL)
        self._dead[index] = self._asked + REQUESTS_WHILE_DEAD

    def _make_ready_for_a_death(self, victim: Victim | None) -> None:
        """All brokers trusted, so that a destination is left; and the leader is not the hot one."""
        young = max(self._born.values(), default=0.0) + TRUSTED_SECONDS - time.time()
        time.sleep(max(0.0, young))
        if victim == "leader" and self._leader() == self.hot.index:
            self._renew()

    def _closed_after(self, before: int) -> bool:
        """Whether the daemon that was started found a move open; it may take a turn to say what came of it."""
        deadline = time.monotonic() + CLOSED_SECONDS
        while any(move.ended_at is None for move in self.daemon.moves()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return sum(move.found_open for move in self.daemon.moves()) > before

    def _bring_back(self, asked: int | None) -> None:
        for index, until in list(self._dead.items()):
            if asked is None or asked >= until:
                del self._dead[index]
                self.cluster.start_broker(index)
                self._born[index] = time.time()

    def _leader(self) -> int:
        return self.cluster.brokers.index(probe.leader(self.cluster, self._alive()[0]))

    def _alive(self) -> list[int]:
        return [index for index in range(len(self.cluster.brokers)) if self.cluster.alive(index)]

    def _written(self) -> int:
        return len(journal.entries(self.daemon.state))


def _wait_owned(cluster: Cluster, bundle: str) -> set[str]:
    """After a broker's death clients need a session time-out and their back-off until a bundle is owned again."""
    deadline = time.monotonic() + OWNED_AGAIN_SECONDS
    while len(seen := placing.owner(cluster, bundle)) != 1:
        if time.monotonic() > deadline:
            raise AssertionError(f"{bundle} is on {seen or 'no broker'} for {OWNED_AGAIN_SECONDS:.0f} s")
        time.sleep(0.1)
    return seen
