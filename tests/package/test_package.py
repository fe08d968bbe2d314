"""What is installed: the built sdist and wheel, by the image's own steps, on every Python that is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from lbd.store.state import StateDir
from lbd.store.status import write_status
from tests.cli.test_doctor import status
from tests.package.conftest import COMMIT, PLAIN, ROOT, run

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = [pytest.param(one, marks=[pytest.mark.soak] if one != OWN else []) for one in ("3.11", "3.12", "3.13")]
"""Of this one the release has the installation already; CI runs on the oldest and on the newest."""
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def python(version: str) -> str | None:
    """An interpreter of this version: this one, one on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    installed = sorted(str(path) for path in pyenv.glob(f"{version}.*/bin/python3"))
    for command in (sys.executable, *([named] if named else []), *installed):
        asked = [command, "-c", "import sys, venv, ensurepip, pip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return command
    return None


def test_the_wheel_holds_the_package_and_nothing_else(release: Path):
    """Every file of lbd/, the commit, the licence; the sdist has what makes a wheel of it."""
    (wheel,), (sdist,) = release.glob("files/*.whl"), release.glob("files/*.tar.gz")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tree = {str(path.relative_to(ROOT)) for path in (ROOT / "lbd").rglob("*") if path.is_file()}

    assert inside == {name for name in tree if "__pycache__" not in name} | {"lbd/commit.txt"}
    assert "lbd/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert top >= {"lbd", "pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE"}
    assert "tests" not in top


@pytest.fixture(scope="session", params=PYTHONS)
def installed(request: pytest.FixtureRequest, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a bare virtual environment, made as the image is made: the release's own, else of its sdist."""
    if request.param == OWN:
        return release / "venv" / "bin"
    interpreter = python(request.param)
    if interpreter is None:
        pytest.skip(f"no Python {request.param}")
    folder = tmp_path_factory.mktemp(f"installed-{request.param}")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{interpreter}" "$@"\n')
    (folder / "bin" / "python3").chmod(0o755)
    (sdist,) = release.glob("files/*.tar.gz")
    path = f"{folder / 'bin'}:{PLAIN['PATH']}"
    run("sh", ROOT / "docker" / "install.sh", sdist, folder / "venv", cwd=folder, PATH=path)
    return folder / "venv" / "bin"


def test_an_installed_lbd_works(installed: Path, tmp_path: Path):
    """It knows its commit, is typed, helps, and decides on a recording, with this checkout out of sight."""
    lbd, interpreter = installed / "lbd", installed / "python"

    assert run(lbd, "--version", cwd=tmp_path) == f"lbd 0.1.0 (commit {COMMIT})\n"
    assert "Exit codes" in run(lbd, "--help", cwd=tmp_path)
    where = Path(run(interpreter, "-c", "import lbd; print(lbd.__file__)", cwd=tmp_path).strip())
    assert where.is_relative_to(installed.parent)
    assert (where.parent / "py.typed").is_file()
    planned = run(lbd, "dry-run", "--recording", ROOT / "examples" / "hot-broker.jsonl.gz", cwd=tmp_path)
    assert "Would move 6 bundles" in planned


def test_what_is_installed_is_what_is_locked(installed: Path):
    """Each with its hash, lbd itself among them; no installer is left behind, and no test tool came along."""
    lock = (installed.parent / "lock.txt").read_text().splitlines()
    names = {line.partition("==")[0].lower().replace("_", "-") for line in lock}

    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lock)
    assert names >= {"lbd", "numpy", "click"}
    assert not names & {"pytest", "pyspark", "pip", "hatchling"}
    assert not (installed / "pip").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str, tmp_path: Path):
    """As README tells to set it up."""
    lbd = (sys.executable, "-c", "from lbd.cli import main; main(prog_name='lbd')")
    words = {"COMP_WORDS": "lbd dry", "COMP_CWORD": "dry" if shell == "fish" else "1", "PYTHONPATH": str(ROOT)}

    assert "_LBD_COMPLETE" in run(*lbd, cwd=tmp_path, _LBD_COMPLETE=f"{shell}_source", **words)
    assert "dry-run" in run(*lbd, cwd=tmp_path, _LBD_COMPLETE=f"{shell}_complete", **words)


def test_a_checkout_says_so(tmp_path: Path):
    """Where there is no built commit, none is guessed."""
    assert run(sys.executable, "-m", "lbd", "--version", cwd=tmp_path, PYTHONPATH=str(ROOT)) == (
        "lbd 0.1.0 (from a checkout)\n"
    )


def test_the_dockerfile_has_no_fault():
    """By hadolint, which reads the shell in it, too."""
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_container_is_healthy_whatever_its_settings_file_has_by_now(tmp_path: Path):
    """A daemon goes on with the settings that it has; an orchestrator would end it for a slip of the pen."""
    command = json.loads(re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[0])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "LBD_STATE_DIR": str(tmp_path / "state"), "LBD_CONFIG": str(tmp_path / "lbd.yaml")}
    healthy = []
    for content in ("interval_seconds: 30\n", "interval_seconds: [\n"):
        (tmp_path / "lbd.yaml").write_text(content)
        with StateDir(tmp_path / "state").locked():
            write_status(tmp_path / "state", status())
            healthy.append(subprocess.run(command, env=environ, capture_output=True, check=False).returncode)
    ended = subprocess.run(command, env=environ, capture_output=True, check=False).returncode

    assert (healthy, ended) == ([0, 0], 3)


def test_the_image_is_made_by_the_steps_that_are_tested_here():
    """The one program that installs; files that it needs are not ignored; a user without rights, the chart's."""
    assert re.findall(r"^RUN (docker/\S+.*)", DOCKERFILE, re.MULTILINE) == [
        "docker/install.sh . /opt/lbd",
        "docker/install.sh . /opt/lbd learn",
    ]
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for line in copied for name in line.split()} == kept
    values = yaml.safe_load((ROOT / "helm" / "lbd" / "values.yaml").read_text())
    user = values["podSecurityContext"]["runAsUser"]
    assert DOCKERFILE.count(f"USER {user}:{user}\n") == 2
    assert f"groupadd --gid {user} lbd " in DOCKERFILE
    assert f"useradd --uid {user} --gid lbd " in DOCKERFILE
    assert DOCKERFILE.count('ARG SOURCE_COMMIT=""\nRUN docker/install.sh') == 2
    assert DOCKERFILE.rindex("\nFROM") == DOCKERFILE.index("\nFROM runtime AS lbd\n")
