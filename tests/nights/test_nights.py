"""Nights hold, and go alike each time; what they would find is tried by hand (docs/results)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def nights(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run some in a process of their own, as a simulation replaces locks and clocks before lbd is imported."""
    command = [sys.executable, "-m", "tests.nights", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_a_night_goes_alike_each_time():
    """To the last line of its story."""
    stories = [nights("--seeds", "3", "--minutes", "1", "--trace").stdout for _ in range(2)]

    assert stories[0].splitlines()[:-1] == stories[1].splitlines()[:-1]
    assert len(stories[0].splitlines()) > 20


def test_nights_hold():
    """Whatever fails in them: the observer's rules (observer.py) at each step, and rest at the end."""
    done = nights("--seeds", "1-3", "--minutes", "6")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("failed: none\n")
