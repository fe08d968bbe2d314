"""Two lbds for one cluster, one of which leads; whoever that is, is asked, killed or stopped, and comes back."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.e2e import journal
from tests.e2e.daemon import Daemon
from tests.e2e.kills import ASKED_AGAIN_SECONDS, DELAYS_SECONDS, Hot

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.journal import Move

TOPIC = "persistent://pulsar/system/lbd-leader"
LED_SECONDS = 150.0
"""A stopped leader is missed after one or two keep-alives of 30 s, a dead broker's topic after its session."""

CLOSED_SECONDS = 150.0
SERVED_SECONDS = 240.0
REQUEST_SECONDS = 40.0
BEGINS = "leads"


@dataclass(frozen=True)
class TakeOver:
    """What was done to a leader, in how many seconds the other one led, and whether a move was open then."""

    how: str
    seconds: float
    open_then: bool


@dataclass
class Pair:
    """Two daemons, each with a state directory of its own; the topic may tell of moves from before ``since``."""

    cluster: Cluster
    daemons: tuple[Daemon, Daemon]
    take_overs: list[TakeOver] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    lapses: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.time)

    @classmethod
    def of(cls, cluster: Cluster, directory: Path, settings: Mapping[str, Any], topic: str = TOPIC) -> Self:
        """Not started yet."""
        own = dict(settings) | {"leader": {"enabled": True, "topic": topic}}
        found = []
        for name in ("first", "second"):
            (directory / name).mkdir()
            found.append(Daemon(cluster, directory / name, own))
        return cls(cluster, (found[0], found[1]))

    def __enter__(self) -> Self:
        for daemon in self.daemons:
            daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons:
            daemon.__exit__()

    # -- who leads

    def leader(self) -> Daemon:
        """The one that says so; waits until one does."""
        until(lambda: self._leading() is not None, LED_SECONDS, lambda: f"nobody leads:\n{self.last_lines()}")
        found = self._leading()
        assert found is not None
        return found

    def _leading(self) -> Daemon | None:
        return next((daemon for daemon in self.daemons if daemon.alive and _leads(daemon)), None)

    def none_leads(self) -> None:
        """Wait until both have noticed that the topic is gone."""
        until(lambda: self._leading() is None, LED_SECONDS, lambda: f"still led:\n{self.last_lines()}")

    def other(self, daemon: Daemon) -> Daemon:
        """The one beside it."""
        return self.daemons[1 - self.daemons.index(daemon)]

    # -- what is asked of it

    def serve(self, hot: Hot) -> None:
        """Ask the leader for moves until it makes one: brokers are trusted two minutes after their start."""
        deadline = time.monotonic() + SERVED_SECONDS
        while self.ask(self.leader(), hot) != 0:
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing is moved: {self.said}\n{self.last_lines()}")
            time.sleep(ASKED_AGAIN_SECONDS)

    def ask(self, daemon: Daemon, hot: Hot) -> int:
        """One move by hand, to its end; the exit code."""
        process = self._asking(daemon, hot)
        text, _ = process.communicate(timeout=REQUEST_SECONDS + 60)
        self._note(process.returncode, text)
        return process.returncode

    def strike(self, hot: Hot, how: str, number: int) -> TakeOver:
        """The leader is struck in the midst of a move by hand; ``number`` picks how long after the intent."""
        after_seconds = DELAYS_SECONDS[number % len(DELAYS_SECONDS)]
        return self.strike_at(lambda daemon: self._asking(daemon, hot), how, after_seconds)

    def strike_at(self, ask: Callable[[Daemon], subprocess.Popen[str]], how: str, after_seconds: float) -> TakeOver:
        """The leader is killed or stopped so long after the first intent of what is asked of it.

        Returns when the other one leads. A request that lbd refuses hits no move: another is made,
        until brokers are trusted, two minutes after their start.
        """
        leader = self.leader()
        heir = self.other(leader)
        written, before = _size(leader), _times_led(heir)
        process = ask(leader)
        deadline = time.monotonic() + SERVED_SECONDS
        while _size(leader) == written:
            if time.monotonic() > deadline:
                raise AssertionError(f"{how}: nothing is moved: {self.said}\n{self.last_lines()}")
            if process.poll() is not None:
                text, _ = process.communicate()
                self._note(process.returncode, text)
                process = ask(leader)
            time.sleep(0.001)
        time.sleep(after_seconds)
        struck = time.monotonic()
        if how == "kill -9":
            leader.kill()
        else:
            os.kill(leader.pid, signal.SIGSTOP)
        open_then = any(move.ended_at is None for move in leader.moves())
        until(lambda: _times_led(heir) > before, LED_SECONDS, lambda: f"{how}: no heir:\n{self.last_lines()}")
        found = TakeOver(how, time.monotonic() - struck, open_then)
        process.kill()
        process.communicate()
        self.take_overs.append(found)
        return found

    def bring_back(self, daemon: Daemon) -> None:
        """The one that was struck runs again."""
        if daemon.alive:
            os.kill(daemon.pid, signal.SIGCONT)
        else:
            daemon.start()

    def settle(self) -> None:
        """Until neither knows of an open move."""
        for daemon in self.daemons:
            self.settle_of(daemon)

    def settle_of(self, daemon: Daemon) -> None:
        """Until this one knows of no open move."""
        until(
            lambda: all(move.ended_at is not None for move in daemon.moves()),
            CLOSED_SECONDS,
            lambda: f"a move stays open:\n{self.last_lines()}",
        )

    def moves(self) -> list[Move]:
        """All moves of these two, of whichever, as either of them knows them."""
        told = journal.moves([line for daemon in self.daemons for line in daemon.journal()])
        return [move for move in told if move.asked_at >= self.since]

    def last_lines(self) -> str:
        """The ends of both logs."""
        return "\n--\n".join(daemon.last_lines(15) for daemon in self.daemons)

    def _asking(self, daemon: Daemon, hot: Hot) -> subprocess.Popen[str]:
        bundle = hot.bundle()
        others = [
            broker for at, broker in enumerate(self.cluster.brokers) if at != hot.index and self.cluster.alive(at)
        ]
        destination = others[len(self.take_overs) % len(others)]
        words = ("--to", destination, "--timeout", f"{REQUEST_SECONDS:.0f}", "--override", "a test of leadership")
        return daemon.background("unload", bundle, "--apply", *words)

    def _note(self, code: int, text: str) -> None:
        self.codes[code] += 1
        if code:
            self.said[(text.strip().splitlines() or [""])[-1][:160]] += 1


def topic_broker(cluster: Cluster, topic: str = TOPIC) -> int:
    """The broker that carries the topic of leadership."""
    answer = cluster.session.get(f"{cluster.admin_urls[0]}/lookup/v2/topic/{topic.replace('://', '/')}", timeout=10)
    url = str(answer.json()["httpUrl"])
    return next(at for at, broker in enumerate(cluster.brokers) if broker in url)


def at_once(told: Iterable[Move]) -> list[str]:
    """Moves of one bundle that were under way at the same time: two lbds moved it."""
    found: list[str] = []
    ends: dict[str, Move] = {}
    for move in sorted(told, key=lambda move: move.asked_at):
        before = ends.get(move.bundle)
        if before is not None and move.asked_at < (before.ended_at or float("inf")):
            found.append(f"{move.bundle}: {before.id} and {move.id}")
        ends[move.bundle] = move
    return found


def _leads(daemon: Daemon) -> bool:
    """By the last word in its log on who leads, since its last start."""
    lines = daemon.lines()
    starts = [at for at, line in enumerate(lines) if line.get("pid") == daemon.pid]
    words = [str(line["event"]) for line in lines[starts[-1] if starts else 0 :] if "leader" in line]
    return bool(words) and words[-1] == BEGINS


def _times_led(daemon: Daemon) -> int:
    return sum(line.get("event") == BEGINS for line in daemon.lines())


def _size(daemon: Daemon) -> int:
    return len(journal.entries(daemon.state))


def until(condition: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    """Wait for a condition; ``why`` says what was there instead."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(why())
        time.sleep(0.05)
