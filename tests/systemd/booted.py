"""A Debian that systemd boots: a container of systemd-nspawn's, with this machine's network and nothing else of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.artifacts import Missing, cache_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGES = ("systemd", "systemd-sysv", "dbus", "sudo", "ca-certificates", "python3", "python3-venv")
PROGRAMS = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "nsenter": "util-linux"}
"""What this machine needs, and the package of Debian's that has it."""
SHARED = ("/usr/local/share/ca-certificates", "/etc/pip.conf")
"""How this machine reaches an index of packages, where it is told."""
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    output: str


@dataclass(frozen=True)
class Machine:
    """A booted one. ``leader`` is its first process, as this machine numbers it."""

    leader: int

    def run(self, line: str, user: str = "root") -> Done:
        """A line as a person types it in the checkout, and what it printed."""
        words = ["bash", "-c", f"cd /root/lbd 2>/dev/null; {line}"]
        if user != "root":
            words = ["runuser", "-u", user, "--", *words]
        environ = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
        inside = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--pid", *environ, *words]
        done = subprocess.run(
            inside, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return Done(done.returncode, done.stdout)

    def must(self, line: str, user: str = "root") -> str:
        """What a command printed that has to succeed."""
        done = self.run(line, user)
        assert done.code == 0, f"{line}\n{done.output}"
        return done.output

    def told(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.must(f"systemctl show --property {name} --value {unit}").strip()

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds."""
        wait(condition, lambda: f"{what}\n{self.run('journalctl --no-pager --lines 40').output}")


def wait(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    """Until it holds, for as long as a busy machine may take."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, told()
        time.sleep(0.3)


def tree() -> Path:
    """Debian 12 with what README takes for granted on a machine, made once. Raises :class:`Missing`."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise Missing(f"no {program} (Debian: {package})")
    if os.geteuid() != 0:
        raise Missing("only root boots a container")
    made = cache_root() / "debian-12"
    if not made.is_dir():
        fresh = made.with_name(f".debian-12-{os.getpid()}")
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(fresh)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise Missing(f"debootstrap: {done.stdout.splitlines()[-1]}")
        (fresh / "etc" / "apt" / "apt.conf.d" / "yes").write_text('APT::Get::Assume-Yes "true";\n')
        (fresh / "etc" / "hostname").write_text("localhost\n")
        (fresh / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        fresh.rename(made)
    return made


@contextmanager
def booted(checkout: Path, log: Path) -> Iterator[Machine]:
    """The machine, with ``checkout`` in root's home. What it changes of its own files is gone afterwards."""
    shared = [f"--bind-ro={path}" for path in SHARED if Path(path).exists()]
    words = ["--quiet", "--boot", "--register=no", "--keep-unit", "--volatile=overlay"]
    words += ["--capability=CAP_NET_ADMIN"]  # without it systemd cannot raise the loopback of a PrivateNetwork=
    command = ["systemd-nspawn", *words, f"--directory={tree()}", f"--bind={checkout}:/root/lbd", *shared]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        wait(lambda: process.poll() is not None or leader(process.pid) is not None, log.read_text)
        found = leader(process.pid)
        assert found is not None, log.read_text()
        machine = Machine(found)
        ready = ("running\n", "degraded\n")
        wait(lambda: machine.run("systemctl is-system-running").output in ready, log.read_text)
        machine.must("update-ca-certificates")
        yield machine
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def leader(supervisor: int) -> int | None:
    """The container's first process, once it is systemd."""
    try:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        systemd = [one for one in children if Path(f"/proc/{one}/comm").read_text() == "systemd\n"]
    except OSError:
        return None
    return int(systemd[0]) if systemd else None
