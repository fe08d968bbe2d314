"""Real producers and consumers in a process of their own, steered from a test.

By hand: python -m tests.e2e.traffic --service-url URL --topic NAME=RATE … --seconds N
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.e2e.checker import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.e2e.cluster import Cluster

MESSAGE_BYTES = 256
START_TIMEOUT_SECONDS = 90.0
DRAIN_SECONDS = 60.0
_ROOT = Path(__file__).parents[2]
_LAUNCHER = Path(__file__).with_name("launcher.py")


class TrafficError(Exception):
    """The traffic process did not do what it was told; the message shows the end of its log."""


@dataclass(frozen=True)
class Plan:
    """What the traffic process shall do: topics with messages per second each, for so many separate clients."""

    service_url: str
    rates: dict[str, float]
    log: str
    clients: int = 1
    size: int = MESSAGE_BYTES
    token_file: str = ""
    ca_file: str = ""
    log_connections: bool = False


class Traffic:
    """A running load: every message of every topic is counted on both sides until `stop`.

    With several clients each one produces to and consumes from every topic, at the given rate each. With
    ``log_connections`` the clients' log names each producer and consumer that is connected, with its time.
    """

    def __init__(
        self, cluster: Cluster, rates: Mapping[str, float], *, clients: int = 1, log_connections: bool = False
    ) -> None:
        own, name = cluster.credentials, f"traffic-{time.monotonic_ns()}"
        self._log = cluster.work / f"{name}.log"
        self._plan = Plan(
            service_url=cluster.service_url,
            rates=dict(rates),
            log=str(cluster.work / f"{name}-client.log"),
            clients=clients,
            token_file=str(own.token_file or ""),
            ca_file=str(own.ca_file or ""),
            log_connections=log_connections,
        )
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def topics(self) -> list[str]:
        return list(self._plan.rates)

    @property
    def client_log(self) -> Path:
        """What the client library says."""
        return Path(self._plan.log)

    def start(self) -> Self:
        """Start the process; returns when every producer and consumer is connected and messages flow."""
        launcher = [sys.executable, "-S", "-E", str(_LAUNCHER), str(os.getpid()), "--"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*launcher, sys.executable, "-m", "tests.e2e.traffic", "--plan", json.dumps(asdict(self._plan))],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer(START_TIMEOUT_SECONDS)
        return self

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Change the rate of some topics, in messages per second."""
        self._tell({"rates": dict(rates)})

    def set_consuming(self, topics: Iterable[str], consuming: bool) -> None:
        """Stop or resume the consumers of some topics."""
        self._tell({"topics": list(topics), "consuming": consuming})

    def snapshot(self) -> Result:
        """The counts so far; messages under way may still count as lost."""
        return Result.from_json(self._tell({"snapshot": True}))

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> Result:
        """Stop sending, wait for what is under way, and return what became of every message."""
        answer = self._tell({"stop": drain_seconds}, drain_seconds + 30)
        self.kill(grace_seconds=10)
        return Result.from_json(answer)

    def kill(self, grace_seconds: float = 0.0) -> None:
        """End the process, whatever its state; no error when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes the pipes
            try:
                process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                process.kill()

    def _tell(self, command: Mapping[str, Any], timeout_seconds: float = 30.0) -> Any:
        if self._process is None or self._process.stdin is None:
            raise TrafficError("the traffic is not running; call start first")
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed("has ended") from error
        return self._answer(timeout_seconds)

    def _answer(self, timeout_seconds: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(timeout_seconds, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise self._failed(f"ended or gave no answer within {timeout_seconds:.0f} s")
        return json.loads(line)

    def _failed(self, what: str) -> TrafficError:
        lines = self._log.read_text(errors="replace").splitlines()[-10:]
        self.kill()
        return TrafficError(f"the traffic process {what}; last lines of {self._log}:\n  " + "\n  ".join(lines))


def main(arguments: list[str]) -> int:
    """Steered by JSON lines on standard input (--plan), or by hand for a number of seconds."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.traffic", description=__doc__)
    parser.add_argument("--plan", help="JSON of a plan; commands then come from standard input")
    parser.add_argument("--service-url")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME=RATE")
    parser.add_argument("--clients", type=int, default=1, help="separate clients, each with all topics")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    if options.plan:
        return _steered(Plan(**json.loads(options.plan)))
    if not options.service_url or not options.topic:
        parser.error("--service-url and at least one --topic are needed")
    pairs = (topic.rpartition("=") for topic in options.topic)
    rates = {name: float(rate) for name, _, rate in pairs}
    return by_hand(Plan(options.service_url, rates, "/dev/null", options.clients), options.seconds)


def by_hand(plan: Plan, seconds: float) -> int:
    """Run a plan for some time, in this process, and print the result; non-zero when a message was lost."""
    from tests.e2e.clients import Load

    load = Load(plan)
    load.start()
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
    result = load.finish(DRAIN_SECONDS)
    print(json.dumps(result.to_json(), indent=1))
    load.close()
    return 1 if result.lost else 0


def _steered(plan: Plan) -> int:
    from tests.e2e.clients import Load

    load = Load(plan)
    load.start()
    _say({"started": time.time()})
    for line in sys.stdin:
        command = json.loads(line)
        if "stop" in command:
            _say(load.finish(command["stop"]).to_json())
            break
        _say(_obey(load, command))
    load.close()
    os._exit(0)  # threads of the C++ client may wait for a dead broker


def _obey(load: Any, command: dict[str, Any]) -> Any:
    if "rates" in command:
        load.set_rates(command["rates"])
    elif "consuming" in command:
        load.set_consuming(command["topics"], command["consuming"])
    elif "snapshot" in command:
        return load.snapshot().to_json()
    return {}


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
