"""A report in a real browser: every chart draws, and says what the pointer is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from lbd.compare.report import page
from lbd.compare.side_by_side import Compared
from lbd.simulate.run import Run
from tests.api.browser import browsing, sized
from tests.simulate.test_trace import ran

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

PAINTED = """
  const [canvas, name] = arguments;
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim().slice(1);
  const wanted = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let at = 0; at < data.length; at += 4) found += wanted.every((value, part) => data[at + part] === value);
  return found;
"""
"""How many pixels of a canvas have a colour of the page's palette."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A page of two runs, opened as a file."""
    first, second = ran(), ran(load=[{"name": "n", "brokers": ["a"], "mib_per_second": 30, "bundles": 6}])
    runs = tuple(
        Run(label, one.card, one.trace, one.sentence) for label, one in (("avg-shedder", first), ("other", second))
    )
    path: Path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(page([Compared("a test", runs, (15.0, 40.0))]), encoding="utf-8")
    with browsing() as found:
        found.get(path.as_uri())
        yield found


def pointed(browser: Chrome, chart: int, left: int, top: int) -> str:
    """The tooltip when the pointer is so far from the left edge of a chart, and at so much of its height in percent."""
    over = browser.find_elements(By.CSS_SELECTOR, ".u-over")[chart]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)  # a test before may have scrolled
    width, height = over.size["width"], over.size["height"]
    move = ActionChains(browser, duration=0)
    for aside in (1, 0):
        move.move_to_element_with_offset(over, left + aside - width // 2, height * top // 100 - height // 2)
    move.perform()
    tooltip = over.find_element(By.CSS_SELECTOR, ".tooltip")
    WebDriverWait(browser, 10).until(lambda _: tooltip.is_displayed())
    return tooltip.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_draws(browser: Chrome, width: int, scheme: str):
    """A blue line in each, in the blue of the scheme, no wider than the screen, and no error."""
    sized(browser, width, 900, scheme)
    canvases = browser.find_elements(By.CSS_SELECTOR, "figure.chart canvas")
    assert len(canvases) == 3
    WebDriverWait(browser, 10).until(lambda _: all(one.size["width"] <= width for one in canvases))
    WebDriverWait(browser, 10).until(
        lambda _: all(browser.execute_script(PAINTED, one, "blue") > 100 for one in canvases)
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def test_the_pointer_is_told_what_it_is_on(browser: Chrome):
    """A line by its name, with value and time; a mark by its text."""
    sized(browser, 1280, 900)
    gap = pointed(browser, 0, 900, 1)
    assert gap.splitlines()[0] == "had nothing moved"
    assert gap.splitlines()[1] == "60 points"
    assert gap.endswith("minutes since the beginning")
    place = browser.execute_script("return document.querySelectorAll('.u-over')[1].clientWidth")
    assert "a:8080 to b:8080: 3 bundles" in pointed(browser, 1, round(place * (0.01 + 1 / 30) / 1.02), 40)


def test_a_name_in_the_legend_hides_its_line(browser: Chrome):
    """And the pointer is not told of it; again, and it is back."""
    sized(browser, 1280, 900)
    button = browser.find_element(By.XPATH, "//figure[1]//button[contains(., 'had nothing moved')]")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert pointed(browser, 0, 900, 1).splitlines()[0] != "had nothing moved"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert pointed(browser, 0, 900, 1).splitlines()[0] == "had nothing moved"
