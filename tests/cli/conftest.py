"""What several commands' tests have in common."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lbd.config import Settings


def lbd(*arguments: object) -> Result:
    """One call in this process. What is no SystemExit would be a stack trace, and fails the test."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def written(chosen: Settings, folder: Path) -> Path:
    """The settings as a file: what was set of them."""
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump(json.loads(chosen.model_dump_json(exclude_unset=True))), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have settings of an lbd in the environment."""
    for name in [name for name in os.environ if name.startswith("LBD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def nobody_elses_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is in /etc of the machine that runs the tests."""
    path = tmp_path / "lbd.yaml"
    path.write_text("{}")
    monkeypatch.setenv("LBD_CONFIG", str(path))
