"""The example strategy of CONTRIBUTING is a strategy, and a class has its name for itself."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbd.decide.strategies import RULES, STRATEGIES
from lbd.replay import replay, rounds

if TYPE_CHECKING:
    from lbd.replay import Replayed

ROOT = Path(__file__).parents[1]
CODE = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as a file, with its one line in the registry."""
    assert CODE is not None
    path = tmp_path / "even_count.py"
    path.write_text(CODE[1])
    found = runpy.run_path(str(path))
    monkeypatch.setitem(RULES, found["EvenCountSettings"], found["decide"])
    monkeypatch.setitem(STRATEGIES, "even-count", found["EvenCountSettings"])


def replayed(**settings: Any) -> list[Replayed]:
    """The example on the recorded hot broker, which has 24 of 32 bundles."""
    path = ROOT / "tests" / "data" / "hot-broker.jsonl"
    return list(replay(rounds(path), "even-count", settings, stock=False, placement="least-long-term-message-rate"))


@pytest.mark.usefixtures("registered")
def test_it_moves_one_bundle_a_round_to_another_broker():
    """The largest one that does not rest, from the broker with the most."""
    first = replayed()[0].decision

    (unload,) = first.unloads
    assert unload.source == "broker-1.example:8080" != unload.destination
    assert unload.reason.startswith("24 bundles, another 4, ")


@pytest.mark.usefixtures("registered")
def test_its_settings_are_its_own():
    """And what it says where nothing is to be done."""
    decision = replayed(apart=20)[0].decision

    assert decision.unloads == ()
    assert [skip.detail for skip in decision.skips] == ["4 to 24 bundles"]


def test_it_has_a_section(tmp_path: Path):
    """By that one line, which stands before settings are read."""
    assert CODE is not None
    (tmp_path / "even_count.py").write_text(CODE[1])
    (tmp_path / "registered.py").write_text(
        "import even_count\n"
        "from lbd.decide.strategies import RULES, STRATEGIES\n"
        "RULES[even_count.EvenCountSettings] = even_count.decide\n"
        "STRATEGIES['even-count'] = even_count.EvenCountSettings\n"
        "from lbd.config import Settings\n"
        "print(Settings(strategy='even-count', even_count={'apart': 7}).even_count.apart)\n"
    )
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(tmp_path / "registered.py")]
    assert subprocess.run(command, capture_output=True, text=True, env=path, check=True).stdout == "7\n"


def test_it_is_as_short_as_it_says():
    """Ten lines or so of rule."""
    assert CODE is not None
    rule = CODE[1].partition('most."""\n')[2]
    assert len(rule.strip().splitlines()) <= 11


def test_what_shares_a_thing_stays_on_one_worker(tmp_path: Path):
    """Tests of a group run on one of two workers, also where each has a name of its own."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-v", "-p", "no:cacheprovider", "tests/e2e/test_witness.py"]
    own = [f"--basetemp={tmp_path / 'own'}"]  # else it closes the folder of all tests to other users
    done = subprocess.run([*command, *own], capture_output=True, text=True, cwd=ROOT, check=False)
    workers = re.findall(r"^\[(gw\d)\] .* PASSED", done.stdout, re.MULTILINE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(workers) > 5
    assert len(set(workers)) == 1


def test_no_two_classes_have_one_name():
    """A name that is searched for leads to one place."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "lbd").rglob("*.py"))
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert len(names) > 500
    assert [name for name, number in names.items() if number > 1] == []
