"""A picture of the dashboard, as docs/dashboard.png was made from ``lbd demo --serve``.

python -m tests.api.picture http://127.0.0.1:8085 docs/dashboard.png
"""

from __future__ import annotations

import sys

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.api.browser import browsing, sized


def main(url: str, file: str) -> None:
    """Save the page, whole, once it shows something."""
    with browsing() as browser:
        sized(browser, 1280, 1060)
        browser.get(url)
        WebDriverWait(browser, 30).until(lambda one: one.find_element(By.ID, "balance").text not in {"", "…"})
        WebDriverWait(browser, 30).until(lambda one: one.find_elements(By.CSS_SELECTOR, "#gap canvas"))
        browser.save_screenshot(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
