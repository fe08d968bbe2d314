"""What the documents say is what the code does: examples run, README's output is real, every command is told of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lbd.cli import COMMANDS
from lbd.config import load
from lbd.record.history.tables import COLUMNS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())


def lbd(*words: str) -> subprocess.CompletedProcess[str]:
    """Run lbd as a reader of the README would, in the checkout."""
    environ = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "lbd", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, check=False)


def test_the_run_command_prints_what_the_readme_shows():
    """The block after README's run command is that command's real output."""
    words = re.search(r"\.venv/bin/lbd (dry-run --recording \S+)", README)
    assert words is not None
    done = lbd(*words[1].split())
    shown = "\n".join(f"    {line}".rstrip() for line in done.stdout.splitlines())

    assert done.returncode == 0, done.stderr
    assert shown in README


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_works(path: Path):
    """Settings load, recordings replay, programs print what the README shows."""
    if path.suffix == ".yaml":
        assert load(path, {}).origins
    elif path.suffix == ".py":
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, env=os.environ)
        assert done.stdout
        assert "\n".join(f"    {line}".rstrip() for line in done.stdout.splitlines()) in README
    else:
        assert lbd("replay", str(path), "--profile", "live").returncode == 0


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_is_in_the_readme_and_has_help(command: str):
    """With an example in its help, where it is a command and not a group."""
    assert f"`lbd {command} " in README or f"`lbd {command}`" in README
    done = lbd(command, "--help")
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    assert "\\b" not in done.stdout


def test_every_setting_of_a_strategy_says_what_it_means():
    """No setting without a description."""
    from lbd.decide import RULES
    from lbd.load.scoring import Weights
    from lbd.permit.settings import Guardrails
    from lbd.record.history.settings import HistorySettings
    from lbd.split.settings import SplitSettings

    for model in (*RULES, Weights, Guardrails, SplitSettings, HistorySettings):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_every_column_of_history_is_documented():
    """With its type, as it is written."""
    text = (ROOT / "docs" / "history.md").read_text()
    rows = [f"| `{name}` | {kind} | {told} |" for own in COLUMNS.values() for name, (kind, told) in own.items()]
    assert [row for row in rows if row not in text] == []


@pytest.mark.parametrize("path", sorted((ROOT / "lbd").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_short(path: Path):
    """Under 300 lines each."""
    assert len(path.read_text().splitlines()) <= 300
