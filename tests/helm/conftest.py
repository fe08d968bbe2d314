"""Rendered charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import parts
from tests.e2e.artifacts import Missing
from tests.helm import rendering
from tests.helm.parts import command

if TYPE_CHECKING:
    from tests.helm.rendering import Chart


def pytest_configure() -> None:
    parts.check_names()


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, and the helm that renders it."""
    try:
        return rendering.Chart(command("helm"))
    except Missing as missing:
        parts.do_without("helm", str(missing))
