"""What several commands' tests have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


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
