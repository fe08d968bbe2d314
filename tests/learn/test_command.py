"""``lbd calibrate`` as a person runs it, and what it says before Spark is started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.cli.calibrate import new_calibration
from lbd.learn.document import CalibrationDocument
from tests import calibrate_schema
from tests.learn.test_job import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def lbd(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would."""
    command = [sys.executable, "-m", "lbd", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environ}, check=False, timeout=300
    )


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_the_command(history: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """From history to files that lbd accepts, and to JSON of the published schema alone on stdout; Java says nothing.
    In this process, whose Java the other tests of Spark use, too.
    """
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    out = tmp_path / "calibration"
    small = [word for key, value in SMALL.items() for word in ("--conf", f"{key}={value}")]
    words = ("--history", str(history), "--out", str(out), "--master", "local[1]", "--candidates", "3")
    done = CliRunner().invoke(main, ["calibrate", *words, *small, "--format", "json"])
    stdout, stderr = done.stdout, done.stderr

    assert done.exit_code == 0, stderr
    assert capfd.readouterr() == ("", "")
    result = json.loads(stdout)
    calibrate_schema.validator(CalibrationDocument).validate(result)
    assert result["evidence"][0] == result["caveats"][0]
    assert result["evidence"][1].startswith("0.2 days of history in windows of ")
    assert result["answer"].startswith(("Recommended: ", "Nothing is recommended: "))
    assert result["summary"] == json.loads((out / "summary.json").read_bytes())
    names = ["proposal.yaml", "broker.conf", "report.html", "candidates.parquet", "quality.parquet", "summary.json"]
    assert {path.name for path in out.iterdir()} == set(names)  # no settings get as far as incidents
    assert "replaying 3 settings over all of it" in stderr
    main(
        ["config", "check", "--config", str(out / "proposal.yaml"), "--admin-url", "http://127.0.0.1:8080"],
        standalone_mode=False,
    )


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_what_can_be_resumed(history: Path, tmp_path: Path, number: signal.Signals):
    """As at Ctrl-C, or of a unit that is stopped: no word of Java's and no process; the same command goes on."""
    out = tmp_path / "calibration"
    words = ("calibrate", "--history", str(history), "--out", str(out), "--master", "local[1]", "--candidates", "3")
    with subprocess.Popen([sys.executable, "-m", "lbd", *words], stderr=subprocess.PIPE, text=True) as begun:
        assert begun.stderr is not None
        for line in begun.stderr:
            if line.startswith("replaying"):
                begun.send_signal(number)
                break
        told = begun.stderr.read()  # until Java, which has it, too, is gone

    assert begun.returncode == -number
    assert told == f"\nInterrupted: {out} keeps what was computed; the same command goes on with it.\n"
    again = lbd(*words)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith(f"{out} has what an earlier run computed; this one goes on with it\n")
    assert not (out / "unfinished").exists()


@pytest.mark.spark
@pytest.mark.soak
def test_a_java_that_is_killed_is_told(history: Path, tmp_path: Path):
    """As by the kernel where memory is short: one line at the end, and no call of lbd's; PySpark's threads speak."""
    words = ("calibrate", "--history", str(history), "--out", str(tmp_path / "calibration"), "--master", "local[1]")
    with subprocess.Popen([sys.executable, "-m", "lbd", *words], stderr=subprocess.PIPE, text=True) as begun:
        assert begun.stderr is not None
        for line in begun.stderr:
            if line.startswith("replaying"):
                subprocess.run(["pkill", "-9", "-P", str(begun.pid), "java"], check=True)
                break
        told = begun.stderr.read()

    assert begun.returncode == 2
    last = told.splitlines()[-1]
    assert last.startswith("Error: --master local[1]: Spark could not finish: its Java does not answer (")
    assert "lbd/learn" not in told


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for programs, alone on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def old_java(tools: Path) -> None:
    java = tools / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)


def no_pyspark(tools: Path) -> None:
    (tools / "pyspark").mkdir()
    (tools / "pyspark" / "__init__.py").write_text("raise ImportError('no pyspark')\n")
    java = shutil.which("java")
    assert java is not None
    (tools / "java").symlink_to(java)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, "no java on the PATH; Spark needs Java 17 or newer"),
        (old_java, "is Java 8; Spark needs Java 17 or newer, for instance: apt-get install default-jre-headless"),
        (no_pyspark, "PySpark is missing: in a checkout of lbd, pip install '.[learn]'"),
    ],
    ids=["no Java", "Java too old", "no PySpark"],
)
def test_what_is_missing_is_told(tools: Path, tmp_path: Path, make: Any, told: str):
    """In one line, with exit 2, and nothing is left behind."""
    make(tools)
    out = tmp_path / "calibration"
    found = os.pathsep.join((str(tools), os.environ.get("PYTHONPATH", "")))
    done = lbd("calibrate", "--out", str(out), PATH=str(tools), PYTHONPATH=found, JAVA_HOME="")

    one_line(done, told)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "{}"], "exists already and is not empty; name a new directory"),
        (["--out", "{}/file/calibration"], "cannot be written: Not a directory"),
        (["--out", "{}/empty", "--history", "{}/none"], "none/v1/decisions: no history of version 1 there"),
        (["--out", "{}/new", "--history", "{}/none"], "none/v1/decisions: no history of version 1 there"),
        (["--out", "{}/new", "--history", "{}", "--master", "nonsense"], "--master nonsense: no Spark session"),
    ],
    ids=["out is there", "out is no place", "out was left by a kill", "no history", "no master"],
)
def test_what_is_wrong_is_told(tmp_path: Path, words: Sequence[str], told: str):
    """In one line, with exit 2; a directory is left only where something is in it."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    done = lbd("calibrate", "--master", "local[1]", *(word.format(tmp_path) for word in words))

    one_line(done, told)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("unfinished", [True, False], ids=["with what was computed", "at its beginning"])
def test_two_at_once_in_one_directory(tmp_path: Path, *, unfinished: bool):
    """The second ends at once: it would go on with what the first computes, and lose it when that ends."""
    out = tmp_path / "calibration"
    with new_calibration(out):
        if unfinished:
            (out / "unfinished").mkdir()
        done = CliRunner().invoke(main, ["calibrate", "--out", str(out)])

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: --out {out}: another lbd calibrate works there; name a new directory\n"
    assert out.exists() == unfinished


def test_a_scheduled_run_removes_what_one_that_was_killed_computed(tmp_path: Path):
    """No later run goes on in its folder; another one that works, or that a person began elsewhere, keeps its own."""
    killed, works, mine, out = (tmp_path / name for name in ("20261115T031700Z", "20261116T031700Z", "mine", NEW))
    with new_calibration(works):
        for run in (killed, works, mine):
            (run / "unfinished" / "part").mkdir(parents=True)
        (killed / "report.html").touch()
        with new_calibration(out):
            assert sorted(path.name for path in killed.iterdir()) == ["report.html"]
            assert (works / "unfinished" / "part").is_dir()
            assert (mine / "unfinished" / "part").is_dir()

    (killed / "report.html").unlink()
    (killed / "unfinished").mkdir()
    with new_calibration(tmp_path / "other"):
        assert (killed / "unfinished").is_dir()
    with new_calibration(out):
        assert not killed.exists()


NEW = "20261122T031700Z"
"""A folder as the unit names it."""


def one_line(done: subprocess.CompletedProcess[str], told: str) -> None:
    """One error, the last line, and no trace."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert told in done.stderr.splitlines()[-1]
    assert sum(line.startswith("Error: ") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
