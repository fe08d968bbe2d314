"""What the page says, by its own functions under Node.js: no browser is started, and nothing is drawn."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from importlib.resources import files
from typing import Any

import pytest

NODE = shutil.which("node")
PAGE = str(files("lbd.api") / "static" / "app.js")
HARNESS = """
const vm = require("vm"), nodes = {};
const node = () => new Proxy({ textContent: "", dataset: {} }, {
  get: (own, key) => (key in own ? own[key] : key === Symbol.toPrimitive ? () => "" : () => node()),
  set: (own, key, value) => { own[key] = value; return true; },
});
const [page, calls, answer] = [process.argv[1], process.argv[2], JSON.parse(process.argv[3])];
const nothing = () => {}, planned = Promise.resolve({ ok: true, status: 200, json: async () => answer });
const found = { getElementById: (id) => (nodes[id] ??= node()), querySelectorAll: () => [] };
const context = vm.createContext({
  document: { ...found, createElement: node, addEventListener: nothing, body: node() },
  performance, AbortSignal, Intl, location: { hash: "" },
  addEventListener: nothing, setInterval: nothing, setTimeout: nothing,
  matchMedia: () => ({ addEventListener: nothing }), EventSource: class { addEventListener() {} },
  fetch: (path) => (path.endsWith("/plan") ? planned : new Promise(nothing)),
});
vm.runInContext(require("fs").readFileSync(page, "utf8"), context);
vm.runInContext(calls, context);
const texts = () => Object.fromEntries(Object.entries(nodes).map(([id, one]) => [id, one.textContent]));
setTimeout(() => console.log(JSON.stringify(texts())), 50);
"""

pytestmark = pytest.mark.skipif(NODE is None, reason="no node")


def said(calls: str, answer: object = None) -> dict[str, Any]:
    """The texts of the page's elements, by their ids, after these calls; ``answer`` is that of each plan."""
    command = [str(NODE), "-e", HARNESS, PAGE, calls, json.dumps(answer)]
    done = subprocess.run(command, env={"TZ": "UTC"}, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("days", "has_day"), [(0.1, False), (3, True)], ids=["today", "in three days"])
def test_the_end_of_a_pause_names_its_day(days: float, has_day: bool):
    """A time of day alone is taken for one of today, and the pause for over."""
    now = time.time()
    status = {"at": now, "age_seconds": 0, "paused": {"by": "ann", "reason": "new disks", "until": now + days * 86_400}}
    seen = json.dumps(status | {"warnings": []})
    told = said(f"seen.at = performance.now(); seen.status = {seen}; showBanners(seen.status)")["paused"]
    ends = time.gmtime(now + days * 86_400)
    assert told.startswith("Paused by ann, until ")
    assert [time.strftime(part, ends) in told for part in ("%a", "%b")] == [has_day, has_day]


def test_a_rollout_that_would_be_refused_is_called_so():
    """As lbd rollout --dry-run does; the steps of its brokers say nothing of it."""
    step = {"broker": "a:8080", "refused": None}
    plan = {"steps": [step], "refused": "b:8080 is drained", "bundles": 4, "clients": 8, "total_seconds": 60}
    assert "b:8080 is drained" in said("openRollout()", plan)["steer-about"]
