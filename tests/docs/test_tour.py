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
    """The first chapter number for number, but for the seconds that an unload took on this machine; of the others all
    that is typed, and the words of all lines but those that tell of the state of the cluster: moves of a rollout that
    run at once differ by some tenths of a point.
    """
    shown, now = tour.PAGE.read_text().partition(AFTER), made.partition(AFTER)
    assert differences(unmeasured(shown[0]), unmeasured(now[0])) == [], ANEW
    assert differences(typed(shown[2]), typed(now[2])) == [], ANEW
    assert differences(wordings(shown[2]), wordings(now[2])) == [], ANEW


AFTER, ANEW = "## A rolling restart", "python -m tests.docs.tour writes the page anew"
STATE = (
    r"last turn|verdict|to do| {11}|gap|cluster |load model|budgets|pair|127\.|simulated/|"
    r"\d{4}-|\d+ of \d+|waits: | +are \d"
)


def differences(shown: list[str], now: list[str]) -> list[str]:
    """Lines of the page and of today that are not the same."""
    return [*unified_diff(shown, now, "docs/tour.md", "now", n=0)]


def unmeasured(page: str) -> list[str]:
    """The lines of the page without measured seconds."""
    return re.sub(r"(?<= landed) +\d+\.\d\d ", " … ", page).splitlines()


def typed(page: str) -> list[str]:
    """All that is typed."""
    return [line for line in page.splitlines() if line.startswith("$ ")]


def wordings(page: str) -> list[str]:
    """The different lines without their numbers, whether one or more of a thing, and the widths of columns."""
    lines = (re.sub(r"\d[\d.,:TZ-]*", "N", line) for line in page.splitlines() if not re.match(STATE, line))
    return sorted({re.sub(r" +", " ", re.sub(r"N (bundle|move|client)s?\b", r"N \1", line)) for line in lines})


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
