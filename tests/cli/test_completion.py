"""Names are completed in a shell from what the last turn of lbd had, and nothing is printed where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete

from lbd.cli import COMMANDS, completion, main
from lbd.errors import ObserveError
from lbd.store.proposal import Proposal
from lbd.store.status import BrokerStatus, write_status
from lbd.store.turns import ReportedBundles, save_bundles
from tests.builders import state_begun
from tests.cli.test_doctor import status

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = ["broker-1:8080", "broker-2:8080"]
LOW, HIGH, OTHER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff", "u/n/0x00000000_0xffffffff"

NAMES = {
    ("apply", "name"): ["1f3a"],
    ("explain", "what"): [*BROKERS, "t/n", LOW, HIGH, "u/n", OTHER],
    ("unload", "what"): ["t/n", LOW, HIGH, "u/n", OTHER],
    ("unload", "destination"): BROKERS,
    ("place", "targets"): ["t/n", LOW, HIGH, "u/n", OTHER],
    ("split", "bundle"): [LOW, HIGH, OTHER],
    ("drain", "broker"): BROKERS,
    ("fill", "broker"): BROKERS,
    ("rollout", "brokers"): BROKERS,
    ("history", "bundle"): ["t/n", LOW, HIGH, "u/n", OTHER],
    ("history", "broker"): BROKERS,
}
"""Parameters that name something of the cluster, with what they complete."""

OPTIONS = {("unload", "destination"): "--to", ("history", "bundle"): "--bundle", ("history", "broker"): "--broker"}

NAME_NOTHING = {"file", "files", "scenario", "over", "broker_conf", "proposal"}
"""Arguments that are files, or no name of a cluster."""


@pytest.fixture(autouse=True)
def _a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer here than a person would wait."""
    monkeypatch.setattr(completion, "WITHIN_SECONDS", 60.0)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory whose lbd ended a turn."""
    folder = state_begun(tmp_path / "state").path
    monkeypatch.setenv("LBD_STATE_DIR", str(folder))
    brokers = [BrokerStatus(name, 10.0, "cpu", 1.0, 1.0, 1) for name in BROKERS]
    waiting = Proposal(id="1f3a", made_at=1.0, expires_at=2e9, unloads=[], expected={}, clients=0)
    write_status(folder, status(brokers=brokers, proposal=waiting))
    rows = np.array([0, 1, 0], dtype=np.int32), np.zeros(3, dtype=np.int8), np.zeros((3, 2))
    save_bundles(folder, ReportedBundles(1.0, tuple(BROKERS), [LOW, HIGH, OTHER], *rows))
    return folder


def completed(*words: str, incomplete: str = "") -> list[str]:
    """What the shell is offered after these words."""
    shell = ShellComplete(main, {}, "lbd", "_LBD_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), incomplete)]


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(("command", "parameter"), NAMES)
def test_each_parameter_completes_the_names_of_the_last_turn(command: str, parameter: str) -> None:
    """All of them, and those that begin as typed."""
    words = [command, *([OPTIONS[command, parameter]] if (command, parameter) in OPTIONS else [])]
    names = NAMES[command, parameter]
    assert completed(*words) == sorted(names)
    begin = names[-1][:3]
    assert completed(*words, incomplete=begin) == sorted(name for name in names if name.startswith(begin))


def test_no_parameter_that_names_something_is_left_out() -> None:
    """An argument, or an option that is called like one."""
    context, named = click.Context(main), {parameter for _, parameter in NAMES}
    found = set()
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Argument) or parameter.name in named - {"name"}:
                assert parameter.name is not None
                if parameter.name not in NAME_NOTHING:
                    found.add((name, parameter.name))
    assert found == NAMES.keys()


@pytest.mark.parametrize("broken", ["no state", "no settings", "a damaged status", "an API that is not there"])
def test_where_nothing_is_known_nothing_is_completed_or_printed(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shell would show it in the middle of the line that is typed."""
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path))
    words: list[Any] = ["drain"]
    if broken == "no settings":
        words = ["--config", tmp_path / "missing.yaml", "drain"]
    elif broken == "a damaged status":
        (tmp_path / "status.json").write_text("{")
    elif broken == "an API that is not there":
        words = ["drain", "--api", "http://127.0.0.1:1"]
    assert completed(*map(str, words)) == []
    assert capfd.readouterr() == ("", "")


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a host that does not answer."""
    released = threading.Event()
    monkeypatch.setattr(completion, "WITHIN_SECONDS", 0.01)

    def late(*_: object) -> Any:
        released.wait(60)
        raise ObserveError("too late")

    monkeypatch.setattr(completion, "_status", late)
    assert completed("drain") == []
    released.set()


@pytest.mark.parametrize(
    ("names", "offered"),
    [
        ([f"t/n/{number:04}" for number in range(200)], None),
        ([f"t{number % 2}/n/{number:04}" for number in range(201)], ["t0/", "t1/"]),
        ([f"t/n{number % 2}/{number:04}" for number in range(201)], ["t/n0/", "t/n1/"]),
        ([f"t/n/{number:04}" for number in range(201)], None),
    ],
    ids=["few", "several tenants", "several namespaces", "one namespace"],
)
def test_very_many_names_are_offered_by_tenant_or_namespace(names: list[str], offered: list[str] | None) -> None:
    """So that what a shell adds for them all is right."""
    assert completion.shortened(names) == (names if offered is None else offered)


def test_a_shell_gets_them(state: Path) -> None:
    """By click's own protocol, in a process of its own."""
    told = {"COMP_WORDS": "lbd drain br", "COMP_CWORD": "2", "_LBD_COMPLETE": "bash_complete"}
    program = "from lbd.cli import completion, main; completion.WITHIN_SECONDS = 60; main(prog_name='lbd')"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **told, "LBD_STATE_DIR": str(state)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (found.stdout.split(), found.stderr) == ([f"plain,{name}" for name in BROKERS], "")
