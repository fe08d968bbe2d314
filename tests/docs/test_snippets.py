"""Every snippet is run, compared or parsed; nothing stands in a document that is on none of the lists."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.config import load
from lbd.simulate import scenario
from tests.docs import tables
from tests.docs.snippets import ROOT, Snippet, documents, shapes, snippets, spans
from tests.docs.world import World, world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = [snippet for path in documents() for snippet in snippets(path)]


def commands(document: str) -> list[tuple[str, str]]:
    """What a reader is told to type, from top to bottom: where it stands, and the line."""
    mine = [snippet for snippet in ALL if snippet.document == document and snippet.kind == "shell"]
    blocks = [(f"{document}:{at}", line) for snippet in mine for at, line in snippet.commands]
    return blocks + [(f"{document}: in a sentence", line) for line in spans(document)]


TYPED = {name: found for path in documents() if (found := commands(name := str(path.relative_to(ROOT))))}


def of(kind: str) -> list[Snippet]:
    """Those of a kind."""
    return [snippet for snippet in ALL if snippet.kind == kind]


def listed(line: str, table: dict[str, str]) -> str | None:
    """What the table has of a line that begins so."""
    return next((told for begin, told in table.items() if line.startswith(begin)), None)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster for all documents."""
    with world(tmp_path_factory.mktemp("reader")) as found:
        yield found


@pytest.mark.parametrize("document", sorted(TYPED))
def test_every_command_does_what_it_says(document: str, reader: World):
    """In the order in which it is read, one after the other; what cannot be run here is read by bash."""
    reader.sit_down(document)
    for where, line in TYPED[document]:
        if listed(line, tables.CANNOT) or listed(line, tables.ELSEWHERE):
            assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0, where
            continue
        done = reader.run(line)
        assert done.code in tables.CODES.get(line, (0,)), f"{where}: {line}\n{reader.placed(line)}\n{done.output}"
        assert "Traceback" not in done.output, where


@pytest.mark.parametrize("snippet", of("yaml"), ids=lambda snippet: snippet.name)
def test_every_piece_of_settings_is_read(snippet: Snippet, tmp_path: Path):
    """As lbd.yaml, or as a scenario, by what would read it."""
    if listed(snippet.text, tables.SHOWN):
        return
    path = tmp_path / "read.yaml"
    path.write_text(snippet.text)
    if "brokers" in yaml.safe_load(snippet.text):
        assert scenario.load(str(path)).brokers
    else:
        assert load(path, {}).origins


@pytest.mark.parametrize("snippet", of("python"), ids=lambda snippet: snippet.name)
def test_every_program_runs(snippet: Snippet):
    """As it stands."""
    exec(compile(snippet.text, snippet.name, "exec"), {})


def test_no_snippet_is_of_another_kind():
    """What is shown is compared by a test that is named, and fences say what they hold."""
    known = {"shell", "yaml", "python"}
    assert [each.name for each in ALL if each.kind not in known and not listed(each.text, tables.SHOWN)] == []
    assert len(ALL) > 30


def test_the_lists_are_short_of_nothing_and_of_no_use_to_nobody():
    """Each entry is of a line that is there, and each test that it names is, too."""
    lines = {line for found in TYPED.values() for _, line in found}
    for begin in (*tables.CANNOT, *tables.ELSEWHERE, *tables.CODES):
        assert [line for line in lines if line.startswith(begin)], begin
    for begin in tables.SHOWN:
        assert [each for each in ALL if each.text.startswith(begin)], begin
    for named in {*tables.ELSEWHERE.values(), *tables.SHOWN.values()}:
        path, _, test = named.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text(), named


def test_the_loop_names_packages():
    """The verbs of the picture of the loop."""
    (loop,) = (each.text for each in ALL if each.text.startswith("observe ─► "))
    verbs = [re.match(r"\w+", part.strip())[0] for part in loop.split("─►")]  # type: ignore[index]
    assert [verb for verb in verbs if not (ROOT / "lbd" / verb).is_dir()] == []


def test_the_path_of_a_turn_names_files():
    """At most 25 modules, and each is there."""
    (path,) = (each.text for each in ALL if each.text.startswith(" daemon/service.py"))
    named = set(re.findall(r"\b[a-z_]+/[a-z_]+\.py\b", path))
    assert 15 < len(named) <= 25
    assert [name for name in named if not (ROOT / "lbd" / name).is_file()] == []


def test_the_files_of_the_flow_are_there():
    """Those that its README names, and no other."""
    (shown,) = (each.text for each in ALL if each.text.startswith("lbd.yaml   "))
    folder = ROOT / "examples" / "gitops"
    assert {line.split()[0] for line in shown.splitlines()} == {path.name for path in folder.iterdir()} - {"README.md"}


def test_history_lies_where_it_is_said_to_lie(reader: World):
    """Tables, days and parts, as the page draws them."""
    (shown,) = (each.text.strip() for each in ALL if each.text.startswith("history/v1/"))
    pattern = re.sub(r"<table>|\d{4}-\d\d-\d\d|…", "*", shown)
    assert list(reader.folder.glob(pattern))


@pytest.mark.parametrize("document", tables.OUTLINED)
def test_json_is_as_it_is_outlined(document: str, reader: World):
    """No key more and none less on the first level, and those that are told of within."""
    outlines = shapes(document)
    assert len(outlines) == len(tables.OUTLINED[document])
    for outline, line in zip(outlines, tables.OUTLINED[document], strict=True):
        reader.sit_down(document)
        found = json.loads(reader.run(line).stdout)
        found = found[0] if isinstance(found, list) else found
        assert set(found) == set(outline), line
        assert list(absent(outline, found)) == [], line


def absent(outline: Any, found: Any, above: str = "") -> Iterator[str]:
    """The keys that are told of and not there."""
    if isinstance(outline, list):
        yield from absent(outline[0], found[0], f"{above}[]")
    for key, inner in outline.items() if isinstance(outline, dict) else ():
        if key not in found:
            yield f"{above}.{key}"
        elif inner is not None and found[key] not in (None, []):
            yield from absent(inner, found[key], f"{above}.{key}")


def test_each_alert_says_what_to_type():
    """A command that the test above runs, or that is on a list."""
    text = (ROOT / "docs" / "runbook.md").read_text()
    typed = {line for _, line in TYPED["docs/runbook.md"]}
    for alert, column in re.findall(r"^\| `(Lbd\w+)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE):
        told = re.findall(r"`([^`]+)`", column)
        assert told, alert
        assert set(told) <= typed, alert


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", "examples/gitops/workflow.yml"])
def test_every_step_of_a_workflow_is_read_by_bash(path: str):
    """And the programs of the checkout that it calls are there."""
    jobs = yaml.safe_load((ROOT / path).read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert steps
    for step in steps:
        assert subprocess.run(["bash", "-n", "-c", step], check=False).returncode == 0, step
    called = {word for step in steps for word in step.split() if word.startswith(("./", ".ci/"))}
    folder = ROOT if path.startswith(".github") else (ROOT / path).parent
    assert [name for name in called if not os.access(folder / name, os.X_OK)] == []


def test_every_example_has_its_test():
    """No file is there that nothing loads or runs, and no test is named that is not there."""
    folder = ROOT / "examples"
    known = {path for pattern in tables.EXAMPLES for path in folder.glob(pattern)}
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files - known == set()
    for pattern, named in tables.EXAMPLES.items():
        path, _, test = named.partition("::")
        assert list(folder.glob(pattern)), pattern
        assert f"def {test}(" in (ROOT / path).read_text(), named
