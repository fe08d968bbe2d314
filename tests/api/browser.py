"""A real browser without a window, as a person's would be: Debian's chromium and its driver."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests import parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def browsing() -> Iterator[Chrome]:
    """A browser; skips the test where there is none."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        parts.do_without("browser", f"no {' and no '.join(missing)} on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(str(programs["chromedriver"])))
    try:
        yield found
    finally:
        found.quit()


def sized(browser: Chrome, width: int, height: int, scheme: str = "light") -> None:
    """A screen of this size, of somebody who likes it light or dark."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 400}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
