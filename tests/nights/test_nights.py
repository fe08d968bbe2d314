"""Nights hold, and go alike each time; what they find of faults that are put in by hand: docs/results/nights.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def nights(*arguments: str, module: str = "tests.nights") -> subprocess.CompletedProcess[str]:
    """Run some in a process of their own, as a simulation replaces locks and clocks before lbd is imported."""
    command = [sys.executable, "-m", module, *arguments]
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


def test_a_fault_that_is_put_in_by_hand_is_seen():
    """By its own check, and the table says after how many nights (docs/results/nights.md)."""
    done = nights("the intent is written", "--seeds", "1-2", "--minutes", "6", module="tests.nights.by_hand")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "| the intent is written after the request | INTENT | 1 |\n" in done.stdout
