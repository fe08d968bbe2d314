"""The files of a release, built once for all tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts
from tests.e2e.artifacts import Missing
from tests.helm.parts import command

ROOT = Path(__file__).parents[2]
PLAIN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C.UTF-8"}
COMMIT, EPOCH = "0123456789ab", 1_700_000_000
"""A commit and a time of the tests' own."""


def run(*words: str | Path, cwd: Path, **environ: str) -> str:
    """Standard output of a command that must succeed, in an environment that knows nothing of this checkout."""
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=PLAIN | environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that .ci/release made: ``files``, and ``venv`` with the wheel."""
    folder = tmp_path_factory.mktemp("release")
    try:
        environ = {"HELM": str(command("helm")), "PYTHON": sys.executable}
    except Missing as missing:
        parts.do_without("helm", str(missing))
    own = {"SOURCE_COMMIT": COMMIT, "SOURCE_DATE_EPOCH": str(EPOCH)}
    run(ROOT / ".ci" / "release", folder, cwd=folder, **environ, **own)
    return folder


@pytest.fixture(scope="session")
def lint() -> Path:
    """The actionlint command."""
    try:
        return command("actionlint")
    except Missing as missing:
        parts.do_without("helm", str(missing))
