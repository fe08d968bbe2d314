"""No test leans on the pace of the machine: whoever has to meet a limit has 30 s for it, or the list says why not.

``tests/soak`` and the tests marked ``soak`` are not run at a landing; ``tests/nights`` has its own clock.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
OTHER_CLOCKS = ("bench", "chaos", "e2e", "nights", "soak")

SHORTEST_SECONDS = 30
"""Least limit for a peer that answers at all; the machine may stop for seconds, with a fifth of a core between."""

WAITS = frozenset({"wait", "join", "result", "exception", "communicate"})
CLOCKS = frozenset({"monotonic", "perf_counter", "boot_seconds"})

MAY_LEAN = re.compile(rf"timeout|\b({'|'.join(WAITS | CLOCKS)})\(")
"""Files without any of these need no look."""

SHORT = {
    ("api/test_planning.py", "timeout_seconds: 1"): "nobody works requests off",
    ("observe/test_health_checks.py", "read_timeout_seconds: 0.5"): "no request of this test is bound by it",
    ("pulsar/test_http.py", "read_timeout_seconds=0.4"): "the answer takes 50 s",
    ("pulsar/test_http.py", "read_timeout_seconds=0.5"): "the peer is silent, and time runs once it has the request",
    ("pulsar/test_oauth2.py", "read_timeout_seconds=0.3"): "the issuer hangs",
    ("pulsar/test_oauth2.py", "read_timeout_seconds=0.5"): "the issuer hangs",
    ("pulsar/test_wire.py", "read_timeout_seconds=1.0"): "no address accepts a connection",
    ("systemd/test_booted.py", "time.monotonic() - begun < 90"): "marked soak",
    ("test_turn.py", "read_timeout_seconds: 1"): "the issuer hangs, and no broker is asked anything",
}
"""Limits that are shorter, by file and text, with the reason why no peer has to meet them."""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each limit that a peer may miss, and of each upper bound on the time that something took."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword | ast.Dict):
            yield from _limits(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in WAITS and node.args and _is_short(node.args[0], least=1.0):
                yield node.lineno, f"{node.func.attr}({ast.unparse(node.args[0])})"
        elif isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare) and _bounds_a_duration(part):
                    yield part.lineno, ast.unparse(part)


def _limits(node: ast.keyword | ast.Dict) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.keyword):
        if _is_limit(node.arg) and _is_short(node.value):
            yield node.value.lineno, ast.unparse(node)
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and _is_limit(key.value) and _is_short(value):
            yield value.lineno, f"{key.value}: {ast.unparse(value)}"


def _is_limit(name: object) -> bool:
    return isinstance(name, str) and (name == "timeout" or name.endswith("timeout_seconds"))


def _is_short(node: ast.expr, least: float = 0.0) -> bool:
    """Whether it is a number of seconds below the shortest; a wait below a second is a step of a loop."""
    value = node.value if isinstance(node, ast.Constant) else None
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and max(least, 1e-9) <= value < SHORTEST_SECONDS
    )


def _bounds_a_duration(node: ast.Compare) -> bool:
    """Whether it is ``clock() - begun < seconds``."""
    duration = node.left
    return (
        isinstance(node.ops[0], ast.Lt | ast.LtE)
        and isinstance(duration, ast.BinOp)
        and isinstance(duration.op, ast.Sub)
        and isinstance(duration.left, ast.Call)
        and ast.unparse(duration.left.func).rpartition(".")[2] in CLOCKS
    )


def test_no_test_leans_on_the_pace_of_the_machine() -> None:
    """Each short limit is in the list, and the list has none that is gone."""
    sources = {
        str(path.relative_to(TESTS)): path.read_text(encoding="utf-8")
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in {*OTHER_CLOCKS, Path(__file__).name}
    }
    found = {
        (name, text): f"tests/{name}:{line}: {text}"
        for name, source in sources.items()
        if MAY_LEAN.search(source)
        for line, text in findings(source)
    }
    faults = [words for key, words in found.items() if key not in SHORT]
    assert not faults, "give the peer 30 s, or see tests/silence.py:\n" + "\n".join(faults)
    assert SHORT.keys() - found.keys() == set()


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("settings(read_timeout_seconds=2)", ["read_timeout_seconds=2"]),
        ("get(url, timeout=30)", []),
        ("{'connect_timeout_seconds': 0.5, 'interval_seconds': 0.5}", ["connect_timeout_seconds: 0.5"]),
        ("assert executor.wait(10)", ["wait(10)"]),
        ("while not done.wait(0.02): pass", []),
        ("assert time.monotonic() - begun < 2", ["time.monotonic() - begun < 2"]),
        ("assert time.monotonic() - begun >= 0.3", []),
        ("while time.monotonic() < deadline: pass", []),
    ],
)
def test_a_short_limit_is_named(source: str, texts: list[str]) -> None:
    """Each form of it, and none that only looks like it."""
    assert [text for _, text in findings(source)] == texts
