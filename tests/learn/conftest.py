"""What several tests learn from: one history, and what the command makes of it as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.learn.histories import CALM, NEIGHBOUR, settled, simulated

if TYPE_CHECKING:
    from pathlib import Path

SKEWED = {"load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b", "noisy"]}, {**NEIGHBOUR["load"][0], "name": "m",
          "mib_per_second": 40, "brokers": ["c"]}]}  # fmt: skip


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six hours in which nothing was moved."""
    root = tmp_path_factory.mktemp("skewed") / "history"
    simulated(root, settled(**CALM), hours=6, **SKEWED)
    return root


def calibrated(history: Path | str, out: Path, master: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, as a person would run it, to its end."""
    words = ("--history", str(history), "--out", str(out), "--master", master, "--candidates", "3", "--explain")
    command = [sys.executable, "-m", "lbd", "calibrate", *words, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(("Recommended: ", "Nothing is recommended: "))
    return done


@pytest.fixture(scope="session")
def proposed(history: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """What the command writes of that history with a Spark of its own, and what it says."""
    out = tmp_path_factory.mktemp("proposed") / "calibration"
    return out, calibrated(history, out, "local[1]")
