"""What holds for all tests of the daemon."""

from __future__ import annotations

import pytest

from lbd.operations import drain


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two moves of a drain."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
