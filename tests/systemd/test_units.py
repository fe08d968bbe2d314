"""The units: what systemd's own tools say of them, and the daemon under what they promise it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from lbd.config import load
from lbd.store.calibration import CALIBRATION_FOLDER
from lbd.store.history_round import HISTORY_FOLDER
from tests.daemon.test_service import Notified, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_pulsar import FakePulsar

UNITS = Path(__file__).parents[2] / "systemd"
UNIT = (UNITS / "lbd.service").read_text()
NO_NEW_CODE = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""What MemoryDenyWriteExecute= does, on kernels that know it (6.3 and newer); others take no notice."""


def setting(name: str) -> str:
    """The one value of a key."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(found)


def analyzed(folder: Path, unit: str, *words: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze over a unit, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    for path in (*UNITS.glob("*.service"), *UNITS.glob("*.timer")):
        (folder / path.name).write_text(path.read_text().replace("/opt/lbd/bin/lbd", sys.executable))
    command = ["systemd-analyze", *words, str(folder / unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["lbd.service", "lbd-calibrate.service", "lbd-calibrate.timer"])
def test_systemd_has_nothing_to_say_of_it(name: str, tmp_path: Path):
    """No unknown key, no value that is ignored."""
    found = analyzed(tmp_path, name, "verify", "--man=no")
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(("name", "most"), [("lbd.service", 1.5), ("lbd-calibrate.service", 1.5)])
def test_exposure_is_low(name: str, most: float, tmp_path: Path):
    """What is left: one speaks to brokers, the other makes code as it runs; and all may read their state."""
    found = analyzed(tmp_path, name, "security", "--offline=true", "--no-pager")
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", found.stdout)
    assert level is not None, found.stderr
    assert float(level[1]) <= most


def test_calibration_reads_the_daemons_history_and_writes_beside_it():
    """The same user; of the daemon's directory it may write to its own folder alone, and no network is there."""
    unit = (UNITS / "lbd-calibrate.service").read_text()
    assert f"StateDirectory=lbd/{CALIBRATION_FOLDER}\n" in unit
    assert "ReadWritePaths" not in unit
    assert {"User=lbd", "ProtectSystem=strict", "PrivateNetwork=yes"} <= set(unit.splitlines())
    assert f"ConditionPathIsDirectory={load(None, {}).settings.state_dir / HISTORY_FOLDER}\n" in unit


def test_the_command_of_calibration_makes_a_new_directory_each_time(tmp_path: Path):
    """As systemd hands it to the shell: its percent and dollar signs undone, and a program that shows its words."""
    (line,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", (UNITS / "lbd-calibrate.service").read_text(), re.MULTILINE)
    shown = line.replace("%%", "%").replace("$$", "$").replace("exec /opt/lbd/bin/lbd", "echo")
    done = subprocess.run(
        ["/bin/sh", "-c", shown], capture_output=True, text=True, check=True, env={"STATE_DIRECTORY": str(tmp_path)}
    )
    assert re.fullmatch(rf"calibrate --explain --out {tmp_path}/\d{{8}}T\d{{6}}Z\n", done.stdout)


class Unit:
    """The daemon as the unit starts it: its command, its environment, and no memory both writable and executable."""

    def __init__(self, folder: Path, pulsar: FakePulsar) -> None:
        self.folder, self.notified = folder, Notified(folder)
        self.config = folder / "lbd.yaml"
        self.config.write_text(yaml.safe_dump(settings_for(pulsar, folder)))
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        program, *words = setting("ExecStart").split()
        assert program == "/opt/lbd/bin/lbd"
        environ = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NOTIFY_SOCKET": str(self.notified.path),
            "WATCHDOG_USEC": str(int(setting("WatchdogSec")) * 1_000_000),
        }
        command = [sys.executable, "-c", NO_NEW_CODE, "-m", "lbd", *words, "--config", str(self.config)]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def end(self) -> int:
        """Exit code after SIGTERM, within systemd's time-out."""
        self.process.terminate()
        return self.process.wait(float(setting("TimeoutStopSec")))


@pytest.fixture
def unit(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Unit]:
    """Ended whatever happened."""
    found = Unit(tmp_path, pulsar)
    yield found
    found.process.kill()
    found.process.wait()
    found.notified.close()


def test_start_reload_kill_restart_stop(unit: Unit):
    """READY, RELOADING at SIGHUP, a start after kill -9 as Restart= does it, and an end well within the time-out."""
    unit.notified.wait_for("READY=1")
    unit.notified.wait_for("STATUS=Moved")
    assert "-HUP $MAINPID" in setting("ExecReload")
    unit.process.send_signal(signal.SIGHUP)
    unit.notified.wait_for("RELOADING=1")
    unit.notified.wait_for("READY=1")
    unit.process.kill()
    unit.process.wait()
    unit.process = unit.start()
    unit.notified.wait_for("READY=1")
    unit.notified.wait_for("STATUS=")
    assert unit.end() == 0
    assert "Traceback" not in (unit.folder / "log").read_text()


def test_bad_settings_are_not_tried_again(unit: Unit):
    """Exit 2, which the unit does not restart after."""
    unit.end()
    unit.config.write_text("interval_seconds: soon\n")
    assert unit.start().wait(60) == 2
    assert "2" in setting("RestartPreventExitStatus").split()


def test_the_environment_file_names_real_settings():
    """Each line of it, without its comment sign."""
    lines = re.findall(r"^#(LBD_\w+)=(.*)$", (UNITS / "lbd.env").read_text(), re.MULTILINE)
    assert len(load(None, dict(lines)).origins) == len(lines) == 3


def test_the_token_is_where_the_settings_look_for_it():
    """The credential's name is the file's."""
    found = (UNITS / "token.conf").read_text()
    assert "LoadCredential=token:/etc/lbd/token" in found
    assert "Environment=LBD_PULSAR__TOKEN_FILE=%d/token" in found
    assert load(None, {"LBD_PULSAR__TOKEN_FILE": "/run/credentials/lbd.service/token"}).settings.pulsar.token_file


def test_the_credentials_of_an_oauth2_client_are_where_the_settings_look_for_them():
    """The rest of ``pulsar.oauth2`` stands in the settings file."""
    found = (UNITS / "oauth2.conf").read_text()
    assert "LoadCredential=oauth2.json:/etc/lbd/oauth2.json" in found
    assert "Environment=LBD_PULSAR__OAUTH2__PRIVATE_KEY_FILE=%d/oauth2.json" in found
    given = {
        "LBD_PULSAR__OAUTH2__ISSUER_URL": "https://issuer.example",
        "LBD_PULSAR__OAUTH2__PRIVATE_KEY_FILE": "/run/credentials/lbd.service/oauth2.json",
    }
    assert load(None, given).settings.pulsar.oauth2


def test_commands_beside_the_service_read_the_settings_that_its_credentials_ask_for(tmp_path: Path):
    """Any user may run lbd status: what stands in the settings file must be whole without the unit's environment."""
    comment, _, _ = (UNITS / "oauth2.conf").read_text().partition("[Service]")
    given = {
        "issuer_url": "https://issuer.example",
        "audience": "urn:pulsar",
        "private_key_file": "/etc/lbd/oauth2.json",
    }
    path = tmp_path / "lbd.yaml"
    path.write_text(yaml.safe_dump({"pulsar": {"oauth2": {name: given[name] for name in given if name in comment}}}))
    assert load(path, {}).settings.pulsar.oauth2


OF_PROC = """
from prometheus_client import ProcessCollector
from lbd.clock import boot_name
print(boot_name(), sorted(metric.name for metric in ProcessCollector(registry=None).collect()))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_what_it_reads_of_proc_is_there():
    """The name of the machine's start, by which rests outlast a restart and a set clock, and metrics of the process."""
    options = "subset=pid" if "ProcSubset=pid" in UNIT.splitlines() else "defaults"
    shown = ["mount", "-t", "proc", "-o", options, "proc", "/proc"]
    script = 'command=$1; shift; "$@" && exec "$0" -c "$command"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script]
    command = [*words, sys.executable, OF_PROC, *shown]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [subprocess.run(command, env=environ, capture_output=True, text=True, check=False) for _ in range(2)]
    if "unshare:" in runs[0].stderr or "mount:" in runs[0].stderr:
        pytest.skip(runs[0].stderr)
    assert runs[0].stdout == runs[1].stdout  # of two processes
    assert "process_resident_memory_bytes" in runs[0].stdout
