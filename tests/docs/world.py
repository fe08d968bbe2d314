"""A reader's machine: a simulated cluster, an lbd that runs, a folder to work in, and programs that documents name."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.testing import CliRunner

from lbd.cli import main
from tests import parts
from tests.docs import tables
from tests.docs.snippets import ROOT, snippets
from tests.e2e.artifacts import Missing
from tests.helm.parts import command

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 120.0
CLUSTER = Path(__file__).with_name("cluster.yaml")
OWN_PROCESS = frozenset({"run", "demo"})
"""Commands that end by a signal, or set up logging for a whole process."""

PULSAR_ADMIN = """#!{python}
import sys, urllib.request
match sys.argv[1:]:
    case ["brokers", "update-dynamic-config", "--config", key, "--value", value]:
        request = urllib.request.Request(f"{url}/admin/v2/brokers/configuration/{{key}}/{{value}}", method="POST")
    case ["brokers", "healthcheck"]:
        request = urllib.request.Request("{url}/admin/v2/brokers/health")
    case unknown:
        sys.exit(f"pulsar-admin: not known here: {{unknown}}")
urllib.request.urlopen(request, timeout=60)
"""
"""The requests that Pulsar's own command sends for these words; brokers refuse keys that cannot be set so."""

KUBECTL = """#!/bin/sh
test "$1 $3" = "exec --" || { echo "kubectl: not known here: $*"; exit 1; }
shift 3
exec "$@"
"""
"""What is typed in the pod, typed here: it is the same program, beside the same daemon."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    output: str
    stdout: str = ""


SCENARIOS = {"docs/simulate.md": "mine.yaml", "docs/calibrate.md": "week.yaml"}
"""Files that a document tells its reader to write, and shows."""


class World:
    """Where snippets are run. ``port`` is that of every simulated broker."""

    def __init__(self, folder: Path, told: str) -> None:
        self.folder, self.root = folder, folder / "root"
        self.port = re.search(r"http://127\.0\.0\.1:(\d+) and", told)[1]  # type: ignore[index]
        self.state_dir = Path(re.search(r"LBD_STATE_DIR=(\S+)", told)[1])  # type: ignore[index]
        self.admin_url = f"http://127.0.0.1:{self.port}"
        self.desk = folder
        self._programs()
        self.sit_down("at-first")
        kept = self.run(f"lbd history import --history {self.folder / 'history'} {tables.RECORDING}")
        assert kept.code == 0, kept.output

    def sit_down(self, document: str) -> None:
        """A folder of its own for each document, with the checkout's folders and the files that it takes for granted;
        what the document before has paused goes on, and what it has configured is gone.
        """
        shutil.rmtree(self.root / "etc" / "lbd", ignore_errors=True)
        self.desk = self.folder / re.sub(r"\W+", "-", document)
        self.desk.mkdir(exist_ok=True)
        for name in ("examples", "helm", "systemd", "docs"):
            if not (self.desk / name).exists():
                (self.desk / name).symlink_to(ROOT / name)
        self.run("lbd resume")
        if document == "docs/compare.md":
            shutil.copy(ROOT / "examples" / "moves.jsonl.gz", self.desk / "monday.jsonl.gz")
        if document in SCENARIOS:
            (described,) = (one.text for one in snippets(ROOT / document) if one.kind == "yaml")
            (self.desk / SCENARIOS[document]).write_text(described)

    def run(self, command: str) -> Done:
        """A line as it stands in a document, with this machine's names for the reader's."""
        line = self.placed(command)
        words = shlex.split(line, comments=True)
        if words[0] == "lbd" and words[1] not in OWN_PROCESS and not re.search(r"[|&;<>*$]", line.partition(" #")[0]):
            return self._here(words[1:])
        if words[0] == "helm":
            self._link_helm()
        if words in (["lbd", "run"], ["lbd", "run", "--observe"], ["lbd", "run", "--new-journal"]):
            return self._until_it_has_a_turn(words)
        done = subprocess.run(["bash", "-c", line], **self._around(words), timeout=PATIENCE_SECONDS, check=False)
        return Done(done.returncode, str(done.stdout))

    def placed(self, command: str) -> str:
        """The line with names that are there."""
        names = {"{port}": self.port, "{root}": str(self.root), "{history}": str(self.folder / "history")}
        for pattern, instead in tables.PLACEHOLDERS:
            command = re.sub(pattern, re.sub(r"{\w+}", lambda found: names[found[0]], instead), command)
        return command

    def environ(self, words: list[str]) -> dict[str, str]:
        """No settings but those of this world; an lbd that acts by itself keeps its own state."""
        own = words[:2] == ["lbd", "run"]
        config = self.root / "etc" / "lbd" / "lbd.yaml"
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            "LBD_PULSAR__ADMIN_URLS": f'["{self.admin_url}"]',
            "LBD_STATE_DIR": str(self.folder / "own" if own else self.state_dir),
            **({"LBD_API__ENABLED": "false"} if own else {}),
            **({"LBD_CONFIG": str(config)} if config.exists() else {}),
        }

    def _here(self, words: list[str]) -> Done:
        before = {name: None for name in os.environ if name.startswith("LBD_")}
        with contextlib.chdir(self.desk):
            done = CliRunner().invoke(main, words, env={**before, **self.environ(["lbd", *words])})
        assert done.exception is None or isinstance(done.exception, (SystemExit, click.ClickException)), done.exception
        return Done(done.exit_code, done.output, done.stdout)

    def _around(self, words: list[str]) -> dict[str, object]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return {"cwd": self.desk, "env": self.environ(words), **pipes}

    def _until_it_has_a_turn(self, words: list[str]) -> Done:
        """The daemon, ended as systemd ends it."""
        (self.folder / "own" / "status.json").unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-m", *words], **self._around(words))  # type: ignore[call-overload]
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until and process.poll() is None:
            if (self.folder / "own" / "status.json").exists():
                process.send_signal(signal.SIGTERM)
                break
            time.sleep(0.1)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return Done(process.returncode, output)

    def _link_helm(self) -> None:
        if not (self.folder / "bin" / "helm").exists():
            try:
                (self.folder / "bin" / "helm").symlink_to(command("helm"))
            except Missing as missing:
                parts.do_without("helm", str(missing))

    def _programs(self) -> None:
        (self.folder / "bin").mkdir()
        for name, text in {
            "lbd": f'#!/bin/sh\nexec "{sys.executable}" -m lbd "$@"\n',
            "sudo": '#!/bin/sh\nexec "$@"\n',
            "kubectl": KUBECTL,
            "pulsar-admin": PULSAR_ADMIN.format(python=sys.executable, url=self.admin_url),
        }.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """As ``lbd demo --serve`` makes it; all of it has ended afterwards."""
    said = folder / "said"
    command = [sys.executable, "-m", "lbd", "demo", "--serve", "--seconds", "1", "--scenario", str(CLUSTER)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    with said.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**clean, "PYTHONPATH": str(ROOT)})
    try:
        yield World(folder, _told(said, process))
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _told(said: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while "The log of its lbd" not in said.read_text():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < until, said.read_text()
        time.sleep(0.1)
    return said.read_text()
