"""docs/security-tests.md, from the tests marked ``security``. ``python -m tests.security_page`` writes it.

The marker goes on a test, a class or, as ``pytestmark``, on a module::

    @pytest.mark.security("a redirect to another host does not get the token")
    @pytest.mark.security("random bytes as the journal: refused, never an exception", cases=len(FILES))

Its sentence says what was tried and what holds. Tests of one file with the same sentence share a row. A row's cases
are the collected ones, times ``cases`` where one test runs many, or times the examples of a Hypothesis test.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "security-tests.md"

HEAD = """# Security tests

Made from the tests: `python -m tests.security_page`; a test fails while this page is not current. Each row is an
attack, a fault or a damaged input that a test tries, and what holds. All of them pass in CI; those marked *soak* take
long and are run by hand. A random test counts the examples that it draws in each run. What lbd does not protect against
is in [SECURITY.md](../SECURITY.md).
"""

AREAS = {
    "tests/pulsar": "What brokers send and where tokens go",
    "tests/observe": "What is seen of a cluster",
    "tests/act": "Unloads, placements and splits",
    "tests/permit": "Limits and policies",
    "tests/store": "Files in the state directory",
    "tests/daemon": "The daemon, its leader and its orders",
    "tests/api": "The HTTP API",
    "tests/cli": "Commands",
    "tests": "Configuration and whole turns",
    "tests/chaos": "Everything at once, on two lbds",
}
"""Headings by folder, in this order; other folders follow under their own names."""


class Row(NamedTuple):
    """One line of the page: tests of one file with one sentence."""

    file: str
    sentence: str
    soak: bool


class Collected:
    """Counts the cases of every test with the marker, as pytest collects them."""

    def __init__(self) -> None:
        self.cases: Counter[Row] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called once, with all tests of the given files."""
        for item in items:
            if marker := item.get_closest_marker("security"):
                sentence, cases = _arguments(*marker.args, **marker.kwargs)
                file = item.path.relative_to(ROOT).as_posix()
                soak = item.get_closest_marker("soak") is not None
                self.cases[Row(file, sentence, soak)] += cases or _examples(item)


def collect() -> Counter[Row]:
    """All rows with their cases. Only files that name the marker are imported."""
    name = "mark." + "security"  # not this file itself
    files = sorted(str(path) for path in TESTS.rglob("test_*.py") if name in path.read_text())
    plugin, output = Collected(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-qq", "-m", "", "-p", "no:cacheprovider", *files], plugins=[plugin])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests cannot be collected:\n{output.getvalue()}")
    return plugin.cases


def page(cases: Counter[Row]) -> str:
    """The whole page: a table for each area, rows by file and sentence."""
    areas: dict[str, list[Row]] = {}
    for row in sorted(cases):
        areas.setdefault(row.file.rpartition("/")[0], []).append(row)
    parts = [HEAD, f"{sum(cases.values()):,} cases in {len(cases)} rows.\n"]
    order = list(AREAS)
    for folder in sorted(areas, key=lambda name: (order.index(name) if name in order else len(order), name)):
        lines = [
            f"## {AREAS.get(folder, folder)}\n",
            "| what is tried, and what holds | cases | test |",
            "|---|--:|---|",
        ]
        parts.append("\n".join([*lines, *(_line(row, cases[row]) for row in areas[folder]), ""]))
    return "\n".join(parts)


def _arguments(sentence: str, *, cases: int = 0) -> tuple[str, int]:
    """As the marker takes them."""
    return sentence, cases


def _examples(item: pytest.Item) -> int:
    """How many examples Hypothesis draws for this test; 1 of any other one."""
    test: Any = getattr(item, "obj", None)
    if not getattr(test, "is_hypothesis_test", False):
        return 1
    return int(test._hypothesis_internal_use_settings.max_examples)


def _line(row: Row, cases: int) -> str:
    sentence = row.sentence.replace("|", "\\|")
    return f"| {sentence}{' (*soak*)' if row.soak else ''} | {cases:,} | [{Path(row.file).stem}](../{row.file}) |"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(collect()), end="")
    else:
        PAGE.write_text(page(collect()))
