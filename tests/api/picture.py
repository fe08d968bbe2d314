"""Pictures of the dashboard, as docs/dashboard.png and docs/dashboard-broker.png were made from ``lbd demo --serve``.

python -m tests.api.picture http://127.0.0.1:8085 docs/dashboard.png
python -m tests.api.picture http://127.0.0.1:8085/#broker/127.0.0.1:28080 docs/dashboard-broker.png
"""

from __future__ import annotations

import sys

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.api.browser import browsing, sized

WIDTH = 1280


def main(url: str, file: str) -> None:
    """Save the page, whole, once it shows something."""
    with browsing() as browser:
        sized(browser, WIDTH, 900)
        browser.get(url)
        WebDriverWait(browser, 30).until(
            lambda one: any(canvas.is_displayed() for canvas in one.find_elements(By.TAG_NAME, "canvas"))
        )
        sized(browser, WIDTH, browser.execute_script("return document.documentElement.scrollHeight"))
        browser.save_screenshot(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
