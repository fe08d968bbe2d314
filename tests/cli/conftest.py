"""What several commands' tests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def nobody_elses_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is in /etc of the machine that runs the tests."""
    path = tmp_path / "lbd.yaml"
    path.write_text("{}")
    monkeypatch.setenv("LBD_CONFIG", str(path))
