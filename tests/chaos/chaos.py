"""Two lbds on a fake cluster while everything goes wrong, and an observer beside them.

python -m tests.chaos.chaos --minutes 60 --seed 1 [--folder DIRECTORY]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import yaml

from lbd.errors import LbdError
from lbd.simulate.cluster import begin, points_at, rates_at
from tests import journals
from tests.chaos import observer, process, topic
from tests.chaos.faults import FAULTS, Over
from tests.chaos.observer import Event, Limits, Record, Truth
from tests.simulate.faulty import FaultyPulsar
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.simulate.answers import Reply, Request
    from tests.chaos.faults import Befalls

BROKERS = 6
BUNDLES = 10
PLAIN = tuple(f"n{at}" for at in range(5))
GROUP = ("twin-1", "twin-2")
NAMESPACES = tuple(f"simulated/{name}" for name in (*PLAIN, *GROUP))
SAMPLE_SECONDS = 5
SURGE, SURGE_SECONDS = 3.0, 20.0
TICK_SECONDS = 0.2
FIRST_MOVE_SECONDS, EVERY_SECONDS, CALM_SECONDS = 30.0, 6.0, 10.0
ROOT = Path(__file__).parents[2]
MIB = 1024.0 * 1024.0


def limits(minutes: float) -> Limits:
    """Small enough to be met within the run, for most of its bundles, brokers and namespaces."""
    most = max(12, int(2.5 * minutes))
    each = max(6, most // 5)
    group = frozenset(f"simulated/{name}" for name in GROUP)
    return Limits(
        cool_down_seconds=45,
        settle_seconds=12,
        per_hour=most,
        per_broker_per_hour=each,
        topics=80,
        group=group,
    )


class Lbd:
    """One of the two: its folder, and the process that runs there now."""

    def __init__(self, name: str, folder: Path, chaos: Chaos) -> None:
        self.name, self.folder, self._chaos = name, folder / name, chaos
        self.state, self.config, self.clock = self.folder / "state", self.folder / "lbd.yaml", self.folder / "clock"
        self._starts = count(1)
        self.who = ""
        self.busy = False
        self._twin: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        process.set_clock(self.clock, 0.0)
        self.start()

    def start(self) -> None:
        """A new process."""
        self.who = f"{self.name}{next(self._starts)}"
        self.process = self._started(self.who, self.config)

    def wait(self) -> None:
        """Until it has a journal, or does not come up."""
        deadline = time.monotonic() + 30
        while not (self.state / "lbd.db").exists() and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)

    def start_twin(self) -> None:
        """A second process on the same state directory."""
        self._twin = self._started(f"{self.name}{next(self._starts)}", self.folder / "twin.yaml")

    def end_twin(self) -> None:
        """End it, if there is one."""
        if self._twin is not None:
            self._twin.kill()
            self._twin.wait()

    def _started(self, who: str, config: Path) -> subprocess.Popen[bytes]:
        """Each process has a token of its own, by which its requests are known."""
        token = config.with_suffix(".token")
        token.write_text(f"{who}-{self._chaos.secret}\n")
        config.write_text(yaml.safe_dump(self._settings(token)))
        own = {topic.ADDRESS: str(self._chaos.topic.port), topic.OWN: who, process.CLOCK: str(self.clock)}
        self._chaos.see("start", who=who)
        command = [sys.executable, "-m", "tests.chaos.process", "run", "--config", str(config)]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, env=_environment() | own, cwd=ROOT, stdout=log, stderr=log)

    def tell(self, number: int) -> None:
        """Send it."""
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End the process, and wait for it as long as systemd does."""
        if self.process.poll() is None:
            self.tell(signal.SIGCONT)
            self.tell(number)
        try:
            code = self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code not in {0, -number}:
            self._chaos.see("bug", who=self.who, detail=f"exit code {code}")
        self._chaos.see("end", who=self.who)

    def command(self, *words: str) -> bool:
        """What a person asks for on its machine; whether it was done."""
        told = [sys.executable, "-m", "lbd", *words, "--config", str(self.config)]
        return subprocess.run(told, env=_environment(), cwd=ROOT, capture_output=True, check=False).returncode == 0

    def _settings(self, token: Path) -> dict[str, Any]:
        chosen = self._chaos.limits
        urls = [f"http://{broker}" for broker in self._chaos.cluster.brokers]
        return {
            "state_dir": str(self.state),
            "interval_seconds": 1,
            "pulsar": {
                "admin_urls": urls,
                "token_file": str(token),
                "service_url": "pulsar://127.0.0.1:1",
                "read_timeout_seconds": 2,
            },
            "leader": {"enabled": True},
            "api": {"enabled": False},
            "avg_shedder": {"low_threshold": 8, "high_threshold": 20, "hit_count_high": 1, "hit_count_low": 1},
            "guardrails": {
                "cool_down_minutes": chosen.cool_down_seconds / 60,
                "membership_settle_seconds": chosen.settle_seconds,
                "max_topics_per_broker": chosen.topics,
                "max_unloads_per_turn": 4,
                "max_traffic_per_turn": 1,
                "max_unloads_per_hour": chosen.per_hour,
                "max_unloads_per_day": 0,
                "max_unloads_per_broker_per_hour": chosen.per_broker_per_hour,
                "max_moves_per_bundle": 0,
                "ping_pong_window_hours": 0,
                "stand_still_minutes": 0,
                "unload_spacing_seconds": 0.2,
            },
        }


def _environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    return {**clean, "PYTHONPATH": str(ROOT)}


@contextmanager
def _strangers(hosts: Sequence[str], chaos: Chaos) -> Iterator[tuple[str, ...]]:
    """Web addresses that belong to nobody of the cluster: whoever asks there is noted."""

    class Stranger(BaseHTTPRequestHandler):
        """Answers everything as if it were done."""

        def _serve(self) -> None:
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ").partition("-")[0]
            chaos.see("stray", who=token, broker=f"{self.server.server_address}", detail=self.path)
            self.send_response(204)
            self.end_headers()

        do_GET = do_PUT = do_POST = _serve  # noqa: N815 - the parent's names

        def log_message(self, *_: object) -> None:
            """The observer is told."""

    servers = [ThreadingHTTPServer((host, 0), Stranger) for host in hosts]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tuple(f"http://{host}:{one.server_address[1]}" for host, one in zip(hosts, servers, strict=True))
    for server in servers:
        server.shutdown()
        server.server_close()


class Chaos:
    """The stage: cluster, topic, lbds and the record of what they do.

    Faults come for so many ``minutes``, several at a time; ``once``: each of them once, in their order.
    """

    def __init__(self, folder: Path, seed: int, minutes: float, *, once: bool = False) -> None:
        self.minutes, self.once = minutes, once
        self.random = random.Random(seed)
        self.folder, self.limits = folder, limits(minutes)
        self.secret = f"{self.random.randrange(1 << 64):016x}"
        self.record = Record()
        self.topic = topic.Topic()
        self.cluster = _cluster(seed)
        self._known: set[tuple[object, ...]] = set()
        self._requests = count()
        self._numbers: dict[int, int] = {}
        self._moves: dict[str, str] = {}
        self._hot: tuple[str, ...] = ()
        self._surge_at = 0.0
        self._owned = 0
        self._listed = frozenset[str]()
        self._told: dict[str, int] = Counter()
        self._done, self.ending = threading.Event(), threading.Event()
        self.pace = min(1.0, minutes / 3)
        self.brokers_changed_at = float("-inf")
        self.writer, self.flying = "", list[str]()
        self.namespaces = NAMESPACES
        self.taking, self.brokers_change, self.state_change = threading.Condition(), threading.Lock(), threading.Lock()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.cluster.on_request, self.cluster.on_reply = self._requested, self._replied
        self.topic.on_line, self.topic.on_writer = self._lined, self._writes
        self._open.enter_context(self.topic)
        self._open.enter_context(self.cluster)
        self.begun_at = self.cluster.now()
        self.strangers = self._open.enter_context(_strangers(["127.0.0.1", "127.0.9.9"], self))
        self.lbds = [Lbd(name, self.folder, self) for name in "ab"]
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        for lbd in self.lbds:
            lbd.end()
            lbd.end_twin()
        self._done.set()
        self._watcher.join()
        self._open.close()
        self._search_files()

    # -- what is seen

    def now(self) -> float:
        """Seconds of the run, by a clock that nobody sets."""
        return self.cluster.now() - self.begun_at

    def see(self, kind: str, at: float | None = None, **known: Any) -> None:
        """Something happened now."""
        self.record.add(Event(self.now() if at is None else at, kind, **known))

    def _requested(self, asked: Request) -> None:
        who = (asked.authorization or "").removeprefix("Bearer ").partition("-")[0]
        parts = asked.path.split("/")
        number = self._numbers[id(asked)] = next(self._requests)
        own = {"who": who, "broker": asked.broker, "line": {"request": number, "event": ""}}
        if parts[-1] == "unload":
            destination = asked.query.get("destinationBroker", "").removeprefix("http://")
            bundle = "/".join(parts[4:7])
            on_disk = "" if self._on_disk(who, bundle) else "no intent on disk"
            self.see("unload", bundle=bundle, destination=destination, detail=on_disk, **own)
        elif parts[-1] == "topicHashPositions":
            self.see("ownership", bundle="/".join(parts[4:7]), **own)
        elif parts[1] == "lookup":
            self.see("lookup", detail=f"{asked.path} {dict(asked.query)}", **own)
        elif parts[-1] == "load-report":
            self.see("report", **own)

    def _replied(self, asked: Request, reply: Reply) -> None:
        parts, number = asked.path.split("/"), self._numbers.pop(id(asked))
        if parts[-1] == "unload":
            who = (asked.authorization or "").removeprefix("Bearer ").partition("-")[0]
            told = "none" if reply.silent else f"{reply.status}{' ' if reply.location else ''}{reply.location or ''}"
            line = {"request": number, "event": ""}
            self.see("answer", who=who, broker=asked.broker, bundle="/".join(parts[4:7]), detail=told, line=line)

    def _on_disk(self, who: str, bundle: str) -> bool:
        """Whether the journal of this process holds the last intent for the bundle, now."""
        try:
            entries = journals.entries(self.folder / who[:1] / "state")
        except LbdError:
            return False
        return any(entry["event"] == "intent" and entry["move"] == self._moves.get(bundle) for entry in entries)

    def _lined(self, who: str, line: bytes) -> None:
        told = json.loads(line)
        kind = "retold" if _outcome(told) in self._known else "line"
        self._known |= {_outcome(told)} if "move" in told else set()
        if kind == "line" and told["event"] == "intent":
            self.flying.append(told["bundle"])
            self._moves[told["bundle"]] = told["move"]
        self.see(kind, who=who, bundle=str(told.get("bundle", "")), line=told)

    def _writes(self, who: str | None) -> None:
        self.writer = who or ""
        self.see("writer", who=self.writer)

    def _watch(self) -> None:
        second = 0.0
        try:
            while not self._done.wait(TICK_SECONDS):
                self._read_journals()
                self._read_owners()
                if self.now() >= second:
                    second = self.now() + 1
                    self._look()
        except Exception as error:  # noqa: BLE001 - who sees nothing any more finds nothing wrong
            self.see("bug", detail=f"of the test, which sees no more: {error!r}")

    def _read_journals(self) -> None:
        for lbd in self.lbds:
            with suppress(LbdError):  # as of a store that was garbled
                entries = journals.entries(lbd.state)
                number = self._told[lbd.name] if self._told[lbd.name] <= len(entries) else 0
                self._told[lbd.name] = len(entries)
                for told in entries[number:]:
                    if told["event"] == "outcome" and _outcome(told) not in self._known:
                        self._known.add(_outcome(told))
                        self.see("journal", who=lbd.who, bundle=str(told.get("bundle", "")), line=told)

    def _read_owners(self) -> None:
        changes = self.cluster.history()
        zero = self.cluster.begun_at - self.begun_at
        for one in changes[self._owned :]:
            self.see("owner", one.seconds + zero, bundle=one.bundle, broker=one.owner or observer.NOBODY)
        self._owned = len(changes)

    def _look(self) -> None:
        """The cluster as it is: what a perfect lbd would know."""
        listed = self.cluster.listed
        for broker in sorted(listed ^ self._listed) if self._listed else ():
            self.see("listed", broker=broker, detail=f"{broker} {'came' if broker in listed else 'went'}")
        self._listed = listed
        world, state = self.cluster.model()
        rates = rates_at(world, state.seconds)
        points = points_at(world, state.owner, rates, state.seconds).tolist()
        rise = world.points_per_mib * (rates[:, 2] + rates[:, 3]) / 2 / MIB
        owners = {bundle: owner or observer.NOBODY for bundle, owner in self.cluster.owners().items()}
        self.record.truths.append(
            Truth(
                at=self.now(),
                owners=owners,
                points=dict(zip(world.brokers, points, strict=True)),
                rise=dict(zip(world.bundles, rise.tolist(), strict=True)),
                topics=dict(zip(world.bundles, world.topics.tolist(), strict=True)),
                up=frozenset(self.up()),
                allowed=self.allowed(),
            )
        )

    def allowed(self) -> dict[str, frozenset[str]]:
        """Brokers of each namespace by the isolation policy that stands now."""
        kept = {one["namespaces"][0]: frozenset(one["primary"]) for one in self.cluster.policies.isolation.values()}
        hosts = {broker: broker.partition(":")[0] for broker in self.cluster.brokers}
        others = frozenset(hosts.values()).difference(*kept.values())
        return {
            name: frozenset(broker for broker, host in hosts.items() if host in kept.get(name, others))
            for name in NAMESPACES
        }

    def _search_files(self) -> None:
        """Secrets, and words about bugs, in what the lbds wrote."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.suffix != ".token":
                content = path.read_bytes()
                if self.secret.encode() in content:
                    self.see("secret", detail=str(path.relative_to(self.folder)))
                for line in content.splitlines():
                    if path.name == "log" and (b"bug in lbd" in line or b"Traceback" in line):
                        self.see("bug", who=path.parent.name, detail=line.decode(errors="replace")[:300])

    # -- what is done

    def run(self) -> None:
        """Fault after fault, once something was moved, and a calm at the end."""
        while not self.flying and self.now() < FIRST_MOVE_SECONDS:
            self._go_on(self.now() + TICK_SECONDS)
        number = len(FAULTS) if self.once else int(self.minutes * 60 / EVERY_SECONDS)
        rounds = range(0, number, len(FAULTS))
        shuffled = (fault for _ in rounds for fault in self.random.sample(FAULTS, len(FAULTS)))
        kinds = FAULTS if self.once else [*shuffled][:number]
        begin, threads = self.now(), []
        for at, fault in enumerate(kinds, 1):
            self._go_on(begin + at * self.minutes * 60 / (number + 1))
            chance = random.Random(self.random.random())
            threads.append(threading.Thread(target=self._befall, args=(fault, chance), daemon=True))
            threads[-1].start()
        if not self.once:
            self.ending.set()
        for thread in threads:
            thread.join()
        self.cluster.faults.off()
        self._go_on(self.now() + CALM_SECONDS)

    def _go_on(self, until: float) -> None:
        while self.now() < until:
            self.surge()
            time.sleep(TICK_SECONDS)

    def _befall(self, fault: Befalls, chance: random.Random) -> None:
        try:
            fault(self, chance)
        except Over:
            return
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            self.see("bug", detail=f"of the test, in {fault.__name__}: {error!r}")

    def up(self) -> list[str]:
        """Brokers that answer."""
        return [url.removeprefix("http://") for url in self.cluster.admin_urls]

    def lasts(self, seconds: float) -> None:
        """Leave it so for a while, shorter where all is short, or until the run ends."""
        self.ending.wait(seconds * self.pace)

    def surge(self) -> None:
        """Now and then bundles of other brokers carry three times what they did, and those of before what they did."""
        if self.now() < self._surge_at:
            return
        self._surge_at = self.now() + SURGE_SECONDS
        owners = self.cluster.owners()
        there = {bundle for bundle in self._hot if bundle in owners}
        chosen = self.random.sample(self.cluster.brokers, 2)
        self._hot = tuple(bundle for bundle, owner in owners.items() if owner in chosen)
        factors = dict.fromkeys(there, 1 / SURGE)
        for bundle in self._hot:
            factors[bundle] = factors.get(bundle, 1.0) * SURGE
        self.cluster.scale(factors)


def _outcome(line: dict[str, Any]) -> tuple[object, ...]:
    """What tells a line from all others; lines of the topic stand in each journal, too."""
    return tuple(line.get(key) for key in ("event", "move", "result", "at"))


def _cluster(seed: int) -> FaultyPulsar:
    """Six brokers of 25 points each, a point for each MiB/s; CPU is sampled, and bundles are counted, every 5 s."""
    ids = [f"b{at}" for at in range(BROKERS)]
    load = [
        {"name": name, "mib_per_second": 25, "bundles": BUNDLES, "topics": 4 * BUNDLES, "spread": 0.3} for name in PLAIN
    ] + [{"name": name, "mib_per_second": 8, "bundles": 3, "topics": 12} for name in GROUP]
    parts: dict[str, Any] = {"brokers": [{"id": one, "background": 3} for one in ids], "load": load}
    world, state = begun(seed, **parts, noise_points=0.5, stats_interval_seconds=SAMPLE_SECONDS)
    world = replace(world, cpu_interval_seconds=SAMPLE_SECONDS, cpu_second=np.zeros(BROKERS, dtype=np.int32))
    found = FaultyPulsar(world, begin(world, state.owner))
    found.policies.groups = {f"simulated/{name}": "twins" for name in GROUP}
    return found


def main(words: Sequence[str]) -> int:
    """Print the report; non-zero when a rule was broken, or what was told was not so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="each fault once")
    parser.add_argument("--folder", type=Path, help="where state, logs and settings are left; default: nowhere")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with Chaos(folder, chosen.seed, chosen.minutes, once=chosen.once) as chaos:
            chaos.run()
        found = observer.violations(chaos.record, chaos.limits)
        (folder / "events.txt").write_text("\n".join(map(str, chaos.record.events)))
        print(observer.report(chaos.record, found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
