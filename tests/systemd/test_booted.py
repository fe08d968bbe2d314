"""README's way to a service, typed on a Debian that systemd booted, beside a cluster over HTTP."""

from __future__ import annotations

import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from tests import fake_pulsar
from tests.daemon.test_service import settings_for
from tests.docs.snippets import ROOT, snippets
from tests.e2e.artifacts import Missing
from tests.systemd.booted import booted, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar
    from tests.systemd.booted import Machine

pytestmark = pytest.mark.soak
TOKEN = "sesame"
CREDENTIAL = "/run/credentials/lbd.service/token"


@pytest.fixture(scope="module")
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker with eight bundles and two cold ones."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def checkout(pulsar: FakePulsar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this one, with an lbd.yaml for the cluster."""
    folder = tmp_path_factory.mktemp("booted") / "lbd"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "tests", "__pycache__"))
    settings = settings_for(pulsar, folder)
    del settings["state_dir"], settings["api"]
    (folder / "lbd.yaml").write_text(yaml.safe_dump(settings))
    return folder


@pytest.fixture(scope="module")
def machine(checkout: Path) -> Iterator[Machine]:
    """One on which README's lines for the service were typed, and on which somebody is on call."""
    try:
        tree()
    except Missing as missing:
        pytest.skip(str(missing))
    with booted(checkout, checkout.parent / "console") as found:
        found.must("useradd --create-home oncall && systemctl is-active systemd-journald")
        for line in lines("README.md", "## As a service", "Tokens, reload, stop, weekly"):
            found.must(line)
        yield found


def lines(page: str, begin: str, end: str) -> list[str]:
    """The lines for a shell between two places of a page."""
    text = (ROOT / page).read_text()
    first, last = (text.count("\n", 0, text.index(place)) for place in (begin, end))
    shown = [one for one in snippets(ROOT / page) if one.kind == "shell" and first < one.line < last]
    return [line for one in shown for _, line in one.commands]


def settled(machine: Machine) -> str:
    """The process of the daemon, once systemd says that it is ready and a turn has ended."""
    machine.eventually(lambda: machine.told("lbd", "ActiveState") == "active", "lbd is not active")
    machine.eventually(lambda: machine.told("lbd", "StatusText") != "", "no turn has ended")
    return machine.told("lbd", "MainPID")


def test_it_runs_and_anybody_sees_what_it_does(machine: Machine, pulsar: FakePulsar):
    """The bundles move, `systemctl status` shows the last sentence, and a user without rights asks and cannot order."""
    settled(machine)
    machine.eventually(lambda: len({*pulsar.owners.values()}) > 1 and pulsar.asked("/unload", "PUT") != [], "no unload")

    assert "Status:" in machine.must("systemctl status lbd --no-pager")
    for command in ("lbd status", "lbd explain", "lbd history"):
        assert machine.must(command, "oncall")
    refused = machine.run("lbd pause", "oncall")
    assert (refused.code, refused.output.count("\n")) == (2, 1), refused.output
    assert machine.run("touch /var/lib/lbd/mine", "oncall").code != 0


def test_a_reload_takes_new_settings(machine: Machine):
    """The same process, and its log says so."""
    process = settled(machine)
    machine.must("sed -i 's/^interval_seconds: .*/interval_seconds: 0.3/' /etc/lbd/lbd.yaml && systemctl reload lbd")
    machine.eventually(lambda: "reload" in machine.must("journalctl -u lbd -n 50").lower(), "no reload in the log")
    assert machine.told("lbd", "MainPID") == process


def test_it_is_started_again_after_a_kill(machine: Machine):
    """By Restart=, as a new process."""
    process, before = settled(machine), int(machine.told("lbd", "NRestarts"))
    machine.must("systemctl kill --signal KILL lbd")
    machine.eventually(lambda: int(machine.told("lbd", "NRestarts")) > before, "not started again")
    assert settled(machine) != process


def test_it_is_started_again_when_it_hangs(machine: Machine):
    """A process that stands still feeds no watchdog."""
    process, before = settled(machine), int(machine.told("lbd", "NRestarts"))
    machine.must("systemctl kill --signal STOP --kill-who main lbd")
    machine.eventually(lambda: int(machine.told("lbd", "NRestarts")) > before, "not started again")
    assert settled(machine) != process
    assert "Watchdog timeout" in machine.must("journalctl --no-pager -u lbd")


def test_the_token_is_for_the_service_alone(machine: Machine, pulsar: FakePulsar):
    """Brokers ask for one, lbd has it from systemd, and nobody else reads it."""
    pulsar.authorization = f"Bearer {TOKEN}"
    machine.must(f"install -m 600 /dev/null /etc/lbd/token && echo {TOKEN} > /etc/lbd/token")
    machine.must("install -D -m 644 systemd/token.conf /etc/systemd/system/lbd.service.d/token.conf")
    machine.must("systemctl daemon-reload && systemctl restart lbd")
    settled(machine)
    machine.eventually(lambda: machine.run("lbd status", "oncall").code == 0, "it cannot observe")

    assert pulsar.requests[-1].authorization == f"Bearer {TOKEN}"
    for path in ("/etc/lbd/token", CREDENTIAL):
        assert machine.run(f"cat {path}", "oncall").code != 0
        assert machine.must(f"cat {path}").strip() == TOKEN
    assert TOKEN not in machine.must("journalctl --no-pager -u lbd")


def test_bad_settings_end_it_for_good(machine: Machine):
    """Exit 2 is not tried again; a mended file starts it."""
    machine.must("cp /etc/lbd/lbd.yaml /tmp/good && echo 'intervall_seconds: 1' >> /etc/lbd/lbd.yaml")
    assert machine.run("systemctl restart lbd").code != 0
    machine.eventually(lambda: machine.told("lbd", "ActiveState") == "failed", "it is tried again")
    assert (machine.told("lbd", "NRestarts"), machine.told("lbd", "ExecMainStatus")) == ("0", "2")
    assert "interval_seconds" in machine.must("journalctl --no-pager -u lbd -n 20")
    machine.must("cp /tmp/good /etc/lbd/lbd.yaml && systemctl start lbd")
    settled(machine)


def test_calibration_runs_by_its_timer(machine: Machine):
    """The timer waits for Sunday; what it starts reads history without a network and writes a proposal of its own."""
    for line in lines("docs/operating.md", "Weekly calibration", "## Approving plans"):
        machine.must(line)
    timers = machine.must("systemctl list-timers --no-pager")
    assert re.search(r" lbd-calibrate\.timer +lbd-calibrate\.service$", timers, re.MULTILINE)
    machine.must("systemctl stop lbd && lbd history import examples/moves.jsonl.gz && chown -R lbd: /var/lib/lbd")
    machine.must("systemctl start lbd lbd-calibrate.service")
    assert machine.told("lbd-calibrate", "Result") == "success"
    assert "report.html" in machine.must("ls /var/lib/lbd/calibration/*/", "oncall")


def test_a_stop_ends_in_time(machine: Machine):
    """Well within TimeoutStopSec=, with nothing killed."""
    settled(machine)
    begun = time.monotonic()
    machine.must("systemctl stop lbd")
    assert time.monotonic() - begun < 90
    assert (machine.told("lbd", "Result"), machine.told("lbd", "ExecMainStatus")) == ("success", "0")
