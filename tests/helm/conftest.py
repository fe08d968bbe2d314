"""Rendered charts."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import parts
from tests.e2e.artifacts import Missing
from tests.helm import rendering
from tests.helm.parts import definitions, helm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helm.rendering import Chart


def pytest_configure() -> None:
    parts.check_names()


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, and the helm that renders it."""
    try:
        return rendering.Chart(helm())
    except (Missing, subprocess.TimeoutExpired) as missing:
        parts.do_without("helm", str(missing))


@pytest.fixture(scope="session")
def operator() -> Path:
    """The definitions of Prometheus' operator."""
    try:
        return definitions()
    except (Missing, subprocess.TimeoutExpired) as missing:
        parts.do_without("helm", str(missing))
