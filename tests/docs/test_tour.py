"""docs/tour.md shows what the commands print and the dashboard has, today."""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import TYPE_CHECKING

import pytest

from tests.api.browser import browsing
from tests.docs import tour

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a session that runs now. Each picture's texts were on the dashboard when it would be taken."""
    with browsing() as browser:
        return tour.page(tmp_path_factory.mktemp("tour"), browser)


def test_every_screen_is_what_is_printed_today(made: str):
    """Byte for byte."""
    page = tour.PAGE.read_text()
    different = unified_diff(page.splitlines(), made.splitlines(), "docs/tour.md", "now", n=0)
    assert made == page, "\n".join(("python -m tests.docs.tour writes the page anew:", *different))


def test_every_situation_has_a_chapter(made: str):
    """And a command in it."""
    chapters = made.split("\n## ")[1:]
    assert [chapter.partition("\n")[0] for chapter in chapters] == [
        "A hot broker at night",
        "A rolling restart",
        "A wrong command",
        "A lost broker",
        "A forgotten pause",
    ]
    assert all("\n$ lbd " in chapter for chapter in chapters)


def test_every_picture_is_there():
    """Those that the page shows and no other, each a PNG that loads soon."""
    named = re.findall(r"!\[[^\]]+\]\(tour/(\S+)\)", tour.PAGE.read_text())
    assert sorted(named) == sorted(path.name for path in tour.PICTURES.iterdir())
    assert [wrong for name in named if (wrong := trouble(tour.PICTURES / name))] == []


def trouble(picture: Path) -> str:
    """What is wrong with a picture, empty where nothing is."""
    content = picture.read_bytes()
    if not content.startswith(b"\x89PNG\r\n"):
        return f"{picture.name} is no PNG"
    return f"{picture.name} has {len(content)} bytes" if len(content) > MOST_BYTES else ""
