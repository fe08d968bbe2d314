"""What the documents say is what the code does: examples run, README's output is real, every command is told of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
import yaml

from lbd.cli import COMMANDS, main
from lbd.config import Settings, load
from lbd.replay import rounds
from lbd.store.history_tables import COLUMNS
from tests import security_page, settings_page

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for name in ("docs", "examples", "helm") for path in (ROOT / name).rglob("*.md")),
]
README = (ROOT / "README.md").read_text()
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text()
STRATEGIES = (ROOT / "docs" / "strategies.md").read_text()
DECISIONS = ROOT / "docs" / "decisions"
NO_DECISIONS = [9, 10, 11, 12, 14, 15, 16]
"""Numbers that docs/decisions/README.md says are not used."""

EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())


def lbd(*words: str) -> subprocess.CompletedProcess[str]:
    """Run lbd as a reader of the README would, in the checkout."""
    environ = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "lbd", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, check=False)


def test_the_dry_run_of_the_readme():
    """The command that a reader types first prints a plan, and README is short enough to be read to its end."""
    words = re.search(r"`lbd (dry-run --recording \S+)`", README)
    assert words is not None
    done = lbd(*words[1].split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Would move 6 bundles")
    assert len(README.splitlines()) <= 110


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_works(path: Path):
    """Settings load, recordings replay, programs print what docs/strategies.md shows."""
    if path.suffix == ".yaml":
        assert load(path, {}).origins
    elif path.suffix == ".py":
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, env=os.environ)
        assert done.stdout
        assert "\n".join(f"    {line}".rstrip() for line in done.stdout.splitlines()) in STRATEGIES
    else:
        assert lbd("replay", str(path), "--profile", "live").returncode == 0


def test_the_recording_of_the_examples_is_of_a_cluster_of_real_size():
    """Each broker carries hundreds of MB/s, in a file that a checkout does not feel."""
    path = ROOT / "examples" / "hot-broker.jsonl.gz"
    first = next(rounds(path))[2]
    carried = first.brokers.rates[:, 2:].sum(axis=1)
    assert (len(first.brokers), len(first.bundles)) == (8, 320)
    assert carried.min() > 100e6
    assert carried.max() > 400e6
    assert path.stat().st_size < 300_000


def test_the_first_settings_only_observe():
    """And leave no namespace out by accident; README's first hour begins so, too."""
    found = load(ROOT / "examples" / "lbd.yaml", {}).settings
    rails = found.guardrails
    assert (found.mode, rails.excluded_namespaces, rails.include_namespaces, rails.canary) == ("observe", (), (), None)
    assert README.index('echo "mode: observe" >> lbd.yaml') < README.index("lbd config check")


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_is_on_its_page_and_has_help(command: str):
    """With an example in its help, where it is a command and not a group."""
    assert f"`lbd {command} " in COMMANDS_PAGE or f"`lbd {command}`" in COMMANDS_PAGE
    done = lbd(command, "--help")
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    assert "\\b" not in done.stdout


def test_every_setting_says_what_it_means():
    """No setting without a description, in any section."""
    assert [name for name, field in settings_page.rows(Settings).items() if not field.description] == []


def test_the_page_and_the_file_of_all_settings_are_current():
    """As ``python -m tests.settings_page`` writes them; the file holds the defaults."""
    assert settings_page.PAGE.read_text() == settings_page.page()
    assert settings_page.FULL.read_text() == settings_page.full()
    assert load(settings_page.FULL, {}).settings == Settings()


def test_the_page_of_security_tests_is_current():
    """As ``python -m tests.security_page`` writes it: a process of its own collects the tests that it lists."""
    command = [sys.executable, "-m", "tests.security_page", "--print"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == security_page.PAGE.read_text()


@pytest.mark.parametrize("path", sorted(DOCUMENTS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_is_dead(path: Path):
    """Files that are linked to are there, and so are the headings."""
    text = re.sub(r"^    [^\n]*$|```.*?```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, heading = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        assert not heading or heading in anchors(found.read_text()), target


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ("low_threshold: 12", 0, "  -  low_threshold: 15.0\n  +  low_threshold: 12.0\n"),
        ("low_treshold: 12", 2, "no such setting; did you mean low_threshold?"),
    ],
)
def test_settings_in_a_repository_are_checked(change: str, code: int, told: str, tmp_path: Path):
    """The example's script, as CI runs it: the first mistake ends it; without one it tells what changes."""
    (tmp_path / "lbd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lbd "$@"\n')
    (tmp_path / "lbd").chmod(0o755)
    gitops = ROOT / "examples" / "gitops"
    changed = tmp_path / "lbd.yaml"
    changed.write_text((gitops / "lbd.yaml").read_text().replace("low_threshold: 12", change))
    before = ROOT / "examples" / "small.yaml"
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["sh", str(gitops / "check.sh"), str(changed), str(before), str(ROOT / "examples" / "hot-broker.jsonl.gz")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environ, check=False)

    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert (f"with {changed}:\n  Would move" in done.stdout) == (code == 0)


def test_every_column_of_history_is_documented():
    """With its type, as it is written."""
    text = (ROOT / "docs" / "history-tables.md").read_text()
    rows = [f"| `{name}` | {kind} | {told} |" for own in COLUMNS.values() for name, (kind, told) in own.items()]
    assert [row for row in rows if row not in text] == []


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, those of groups included."""
    context = click.Context(main)
    waiting: list[tuple[str, click.Command]] = [("lbd", main)]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        if isinstance(command, click.Group):
            names = command.list_commands(context)
            waiting.extend((f"{name} {each}", command.get_command(context, each)) for each in names)  # type: ignore[misc]


def test_every_file_that_a_command_names_is_there():
    """Of what is installed from the checkout, patterns included; and what CI of others runs."""
    installed = README + (ROOT / "docs" / "operating.md").read_text()
    blocks = "\n".join(re.findall(r"^    .*$", installed, re.MULTILINE))
    named = set(re.findall(r"(?<![\w/.])((?:systemd|helm|examples)/[\w./*-]*\w)", blocks))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]

    assert len(named) >= 4
    assert [name for name in sorted(named) if not list(ROOT.glob(f"{name}*"))] == []
    assert ".ci/run" in steps
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_option_is_told_of():
    """In README or a page of docs/."""
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    options = {(name, each) for name, command in commands() for one in command.params for each in one.opts}
    assert [(name, one) for name, one in options if one[:2] == "--" and not re.search(rf"{one}\b", text)] == []


def test_every_command_line_in_the_documents_is_one():
    """Its command is there, and has the options that are shown."""
    known = dict(commands())
    shown = {line for path in DOCUMENTS for line in command_lines(path.read_text())}

    assert len(shown) > 40
    for line in sorted(shown):
        words = line.split()
        while words[1:] and " ".join(words[:2]) in known:
            words[:2] = [" ".join(words[:2])]
        options = {each for one in (*known[words[0]].params, *main.params) for each in one.opts} | {"--help"}
        assert {word for word in words[1:] if word.startswith("--")} <= options, line
        assert words[0] != "lbd" or words[1:2] in ([], ["--version"], ["--help"]), line


def command_lines(text: str) -> Iterator[str]:
    """What stands after a prompt-less ``lbd`` in blocks of code and in code within a sentence."""
    blocks = re.findall(r"^(?: {4}){1,2}(?!- )(\S.*)$", text, re.MULTILINE)
    for code in (*blocks, *re.findall(r"`([^`\n]+)`", text)):
        for part in re.split(r"&&|[|;>#,]|\s/\s", code):
            found = re.match(r"\s*(?:\S*/bin/)?lbd((?: [^\s:]\S*)*)\s*$", part)
            if found and not re.match(r" \S+:( |$)", found[1]):  # a line of output
                yield f"lbd{found[1]}".strip()


def test_the_index_of_decisions_is_current():
    """Each record by its number and title, and each number that has none."""
    index = (DECISIONS / "README.md").read_text()
    titles = [(path.name, path.read_text().splitlines()[0]) for path in sorted(DECISIONS.glob("0*.md"))]
    rows = [f"| [{title[2:].partition('. ')[0]}]({name}) | {title.partition('. ')[2]} |" for name, title in titles]
    numbers = [int(name[:4]) for name, _ in titles]
    gaps = [number for number in range(1, max(numbers)) if number not in numbers]

    assert re.findall(r"^\| \[.*$", index, re.MULTILINE) == rows
    assert [title for name, title in titles if not title.startswith(f"# {int(name[:4])}. ")] == []
    assert gaps == NO_DECISIONS
