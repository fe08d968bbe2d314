"""A real Pulsar cluster on 127.0.0.1, .2, .3 …: one ZooKeeper, one bookie, and as many brokers as wanted.

By hand: python -m tests.e2e.cluster up | load | status | down
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import requests

from tests.e2e import artifacts, cgroups, processes, security, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

START_TIMEOUT_SECONDS = 300.0
SETUP_TIMEOUT_SECONDS = 60.0
DUMP_SECONDS = 2.0
_BURNER = "while True: pass"


class ClusterError(Exception):
    """The cluster could not be brought into the wanted state; the message names the process and shows its log."""


class Cluster:
    """One running cluster. Brokers are named by their position in `brokers`; everything ends with `stop`."""

    def __init__(self, spec: settings.Spec, *, outlive: bool = False) -> None:
        self.spec = spec
        self.outlive = outlive
        self.work = Path()
        self.processes: dict[str, processes.Process] = {}
        self.quotas: list[float | None] = [None] * spec.brokers
        self.groups: list[cgroups.Group] = []
        self.lib = Path()
        self.kills: list[tuple[float, str]] = []

    # -- what a client needs to know

    @property
    def brokers(self) -> list[str]:
        """The brokers' ids, as Pulsar lists them."""
        return [settings.broker_id(index, tls_only=self.spec.tls_only) for index in range(self.spec.brokers)]

    @property
    def admin_urls(self) -> list[str]:
        """The admin address of each broker, with https when the cluster has TLS."""
        scheme, port = ("https", settings.WEB_TLS_PORT) if self.spec.tls else ("http", settings.WEB_PORT)
        return [f"{scheme}://{settings.address(index)}:{port}" for index in range(self.spec.brokers)]

    @property
    def service_url(self) -> str:
        """The address for clients; it names every broker, so one dead broker keeps nobody out."""
        scheme, port = ("pulsar+ssl", settings.BROKER_TLS_PORT) if self.spec.tls else ("pulsar", settings.BROKER_PORT)
        return f"{scheme}://" + ",".join(f"{settings.address(index)}:{port}" for index in range(self.spec.brokers))

    @property
    def credentials(self) -> security.Credentials:
        return security.credentials(self.work, self.spec)

    @cached_property
    def session(self) -> requests.Session:
        """A session with the administrator's credentials, for the second observer."""
        session, own = requests.Session(), self.credentials
        session.trust_env = False
        if own.token is not None:
            session.headers["Authorization"] = f"Bearer {own.token}"
        if own.ca_file is not None:
            session.verify = str(own.ca_file)
        return session

    # -- life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything and wait until each broker is ready and knows the others."""
        self.lib = artifacts.ensure(self.spec.version)
        _check_ports(self.spec)
        owner = "hand" if self.outlive else str(os.getpid())
        _sweep()
        self.work = Path(tempfile.mkdtemp(prefix=f"{cgroups.PREFIX}{owner}-"))
        try:
            self._start()
        except BaseException:
            self.stop(keep_files=True)
            raise
        return self

    def stop(self, *, keep_files: bool = False) -> None:
        """End every process at once, whatever its state, and remove what the cluster left."""
        if "session" in self.__dict__:
            self.__dict__.pop("session").close()  # the next start makes new credentials
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
        self.processes.clear()
        for group in self.groups:
            group.remove()
        self.groups.clear()
        self.quotas = [None] * self.spec.brokers
        if not keep_files and self.work != Path():
            shutil.rmtree(self.work, ignore_errors=True)

    def _start(self) -> None:
        settings.write_files(self.work, self.spec, security.prepare(self.work, self.spec))
        if self.spec.java:
            artifacts.compile_java(self.lib, Path(__file__).parent / "java" / self.spec.java, self.work / "classes")
        self.make_groups()
        self._launch("zookeeper", settings.zookeeper(self.work))
        self._wait(lambda: _listens("127.0.0.1", settings.ZOOKEEPER_PORT), "ZooKeeper to listen")
        self._launch("metadata-setup", settings.metadata_setup())
        self._finish("metadata-setup", SETUP_TIMEOUT_SECONDS)
        self._launch("bookie", settings.bookie(self.work))
        for index in range(self.spec.brokers):
            self._launch_broker(index)
        self.wait_ready()
        self._wait(lambda: _listens("127.0.0.1", settings.BOOKIE_PORT), "the bookie to listen")

    def make_groups(self) -> None:
        """A control group for each broker, where this process may make them (no error when they are there)."""
        hierarchy, _ = cgroups.find()
        for index in range(self.spec.brokers if hierarchy is not None else 0):
            assert hierarchy is not None
            self.groups.append(cgroups.Group(hierarchy, f"{self.work.name}-{index}").create())

    def _launch(self, name: str, how: settings.How, join: Iterable[Path] = ()) -> None:
        full_jit = self.spec.full_jit and name.startswith("broker-")
        command = settings.java_command(artifacts.java(), self.lib, self.work, full_jit=full_jit, how=how)
        log = self.work / f"{name}.log"
        self.processes[name] = processes.start(name, command, log, [*join], outlive=self.outlive)

    def _launch_broker(self, index: int) -> None:
        join = self.groups[index].process_files if self.groups else []
        self._launch(_name(index), settings.broker(self.work, index), join)

    def _finish(self, name: str, timeout_seconds: float) -> None:
        process = self.processes[name]
        try:
            process.wait(timeout_seconds)
        except TimeoutError as error:
            raise ClusterError(f"{error}; {process.last_lines()}") from error
        del self.processes[name]  # not before: an interrupted start must find it
        if process.exit_code != 0:
            raise ClusterError(f"{name} ended with code {process.exit_code}; {process.last_lines()}")

    def _wait(self, condition: Callable[[], bool], what: str, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            for process in self.processes.values():
                if not process.alive():
                    raise ClusterError(f"{process.name} ended while waiting for {what}; {process.last_lines()}")
            if time.monotonic() > deadline:
                logs = "\n".join(process.last_lines(4) for process in self.processes.values())
                raise ClusterError(f"waited {timeout_seconds:.0f} s in vain for {what}\n{logs}")
            time.sleep(0.1)

    # -- states

    def alive(self, index: int) -> bool:
        """Whether the broker's process runs."""
        return _name(index) in self.processes and self.processes[_name(index)].alive()

    def ready(self) -> bool:
        """Whether each running broker answers `ok` and lists all running brokers."""
        running = [index for index in range(self.spec.brokers) if self.alive(index)]
        return all(self._answers(index, "/admin/v2/brokers/ready") == "ok" for index in running) and all(
            self._lists(index) >= {self.brokers[each] for each in running} for index in running
        )

    def wait_ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Wait until the cluster is ready; an ended process ends the wait with an error."""
        self._wait(self.ready, "every broker to be ready and listed", timeout_seconds)

    def _answers(self, index: int, path: str) -> str | None:
        with suppress(requests.ConnectionError, requests.Timeout):  # not yet up is the expected case here
            answer = self.session.get(self.admin_urls[index] + path, timeout=10)
            return answer.text.strip() if answer.ok else None
        return None

    def _lists(self, index: int) -> set[str]:
        return set(json.loads(self._answers(index, f"/admin/v2/brokers/{settings.CLUSTER}") or "[]"))

    # -- faults and limits

    def kill_broker(self, index: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a broker; after one that ends it, wait until it is gone."""
        process = self.processes[_name(index)]
        process.signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(60)
            del self.processes[_name(index)]
            self.kills.append((time.time(), self.brokers[index]))

    def start_broker(self, index: int, *, wait: bool = True) -> None:
        """Start a broker that was ended, with the address it had; its quota is lifted until it is ready."""
        if self.alive(index):
            raise ClusterError(f"broker {self.brokers[index]} is running already; kill it first")
        quota = self.quotas[index]
        self._lift(index)
        self._launch_broker(index)
        if wait:
            self.wait_ready()
        if quota is not None:
            self.set_quota(index, quota)

    def restore(self) -> None:
        """A whole cluster for the next test; one that does not come back, as with a hung broker, is started anew."""
        try:
            self._mend()
        except ClusterError as error:
            self.leave_thread_dumps()
            print(f"the cluster is started anew, the logs of the old one stay in {self.work}: {error}")
            self.stop(keep_files=True)
            self.start()

    def _mend(self) -> None:
        """Bring back ended brokers, lift quotas and end burners."""
        for name in [name for name in self.processes if name.startswith("burner-")]:
            self.processes.pop(name).kill()
        for index in range(self.spec.brokers):
            self._lift(index)
            if self.alive(index):
                self.kill_broker(index, signal.SIGCONT)
            else:
                self.processes.pop(_name(index), None)
                self.start_broker(index, wait=False)
        self.wait_ready()

    def leave_thread_dumps(self) -> None:
        """What hangs in a broker is in its log then."""
        for name in [name for name in self.processes if name.startswith("broker-")]:
            self.processes[name].signal(signal.SIGQUIT)
        time.sleep(DUMP_SECONDS)

    def set_quota(self, index: int, cores: float | None) -> None:
        """Limit a broker to so many cores; None lifts the limit."""
        if not self.groups:
            raise artifacts.Missing(cgroups.find()[1])
        self.groups[index].set_quota(cores)
        self.quotas[index] = cores

    def _lift(self, index: int) -> None:
        if self.quotas[index] is not None:
            self.set_quota(index, None)

    def burn(self, index: int) -> processes.Process:
        """Start a process that eats CPU in the broker's control group, as a noisy neighbour would."""
        if not self.groups:
            raise artifacts.Missing(cgroups.find()[1])
        name = f"burner-{index}"
        command = [sys.executable, "-S", "-E", "-c", _BURNER]
        join = self.groups[index].process_files
        burner = processes.start(name, command, self.work / f"{name}.log", join, outlive=self.outlive)
        self.processes[name] = burner
        return burner

    def quench(self, index: int) -> None:
        """End the burner of a broker."""
        self.processes.pop(f"burner-{index}").kill()


def _name(index: int) -> str:
    return f"broker-{settings.address(index)}"


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def _check_ports(spec: settings.Spec) -> None:
    wanted = [("127.0.0.1", settings.ZOOKEEPER_PORT), ("127.0.0.1", settings.BOOKIE_PORT)]
    ports = [settings.WEB_PORT, settings.BROKER_PORT]
    ports += [settings.WEB_TLS_PORT, settings.BROKER_TLS_PORT] if spec.tls else []
    wanted += [(settings.address(index), port) for index in range(spec.brokers) for port in ports]
    taken = [f"{address}:{port}" for address, port in wanted if _listens(address, port)]
    if taken:
        advice = "end the cluster that holds them (python -m tests.e2e.cluster down, or another test run)"
        raise ClusterError(f"ports already taken: {', '.join(taken)}; {advice}")


def _sweep() -> None:
    """Remove work directories whose test run is gone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{cgroups.PREFIX}*"):
        maker = re.match(rf"{cgroups.PREFIX}(\d+)-", directory.name)
        if maker is not None and not Path(f"/proc/{maker[1]}").exists():
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    from tests.e2e import by_hand

    sys.exit(by_hand.main(sys.argv[1:]))
