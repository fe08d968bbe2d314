"""The dashboard in a real browser while turns end as fast as they can: whether a person sees it stutter."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from selenium.webdriver.support.ui import WebDriverWait

from tests.api.browser import browsing, sized
from tests.bench.load.asking import at_quantile

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.bench.load.stage import Stage

SECONDS = 30.0
START_SECONDS = 60

WATCH = """
window.watched = {tasks: [], frames: [], last: performance.now()};
new PerformanceObserver((found) => found.getEntries().forEach((one) => watched.tasks.push(one.duration)))
  .observe({type: "longtask"});
const frame = (now) => { watched.frames.push(now - watched.last); watched.last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
performance.setResourceTimingBufferSize(100000);
performance.clearResourceTimings();
"""
READ = """
const bytes = performance.getEntriesByType("resource").map((one) => [new URL(one.name).pathname, one.transferSize]);
return {...watched, bytes};
"""
WORK = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def measured(on: Stage, rounds: int) -> None:
    """A few lines for each round."""
    on.after(3)
    with browsing() as browser:
        sized(browser, 1180, 860)
        browser.get(on.url)
        WebDriverWait(browser, START_SECONDS).until(
            lambda one: one.execute_script("return document.querySelectorAll('#brokers tr').length") == 100
        )
        for _ in range(rounds):
            _look(browser, on)


def _look(browser: Chrome, on: Stage) -> None:
    turns, before = len(on.turns), _work(browser)
    browser.execute_script(WATCH)
    time.sleep(SECONDS)
    found: dict[str, Any] = browser.execute_script(READ)
    after, updates = _work(browser), sum(path == "/v1/status" for path, _ in found["bytes"])
    spent = ", ".join(f"{name} {1000 * (after[name] - before[name]) / updates:.1f}" for name in WORK)
    read = sum(size for _, size in found["bytes"]) / updates
    print(
        f"{updates} updates, {len(on.turns) - turns} turns in {SECONDS:g} s; each: {spent} ms, {read:,.0f} bytes read"
    )
    tasks, frames = found["tasks"], found["frames"]
    print(f"  tasks above 50 ms: {len(tasks)}, the longest {max(tasks, default=0):.0f} ms")
    middle, slow, slowest = (at_quantile(frames, part) for part in (0.5, 0.99, 1.0))
    told = f"p50 {middle:.1f}, p99 {slow:.1f}, max {slowest:.1f} ms"
    print(f"  {len(frames)} frames, from one to the next {told}", flush=True)


def _work(browser: Chrome) -> dict[str, float]:
    """Seconds of a processor that the page has taken so far, by kind."""
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    found = browser.execute_cdp_cmd("Performance.getMetrics", {})
    return {one["name"]: one["value"] for one in found["metrics"]}
