"""What the documents show: blocks of code, paragraph by paragraph, each of one kind."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    *("lbd", ".venv/bin/lbd", "python", "python3", "pip", "sudo", "docker", "helm", "kubectl", "git", "pulsar-admin"),
    *("systemctl", "journalctl", "spark-submit", "export", "curl", "promtool", "lbd-env/bin/venv-pack", "cosign", "gh"),
    *("tests/run", "tests/setup", "tests/soak"),
)
"""A paragraph that begins with one of these is for a shell."""


@dataclass(frozen=True)
class Snippet:
    """One paragraph of a block."""

    document: str
    line: int
    kind: str
    """shell, yaml, python, promql… as the fence says; of an indented block shell, yaml or shown."""
    text: str

    @property
    def name(self) -> str:
        """Where it stands."""
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[tuple[int, str]]:
        """The lines for a shell, each with its number; those that end in a backslash go on with the next."""
        found: list[tuple[int, str]] = []
        waiting = ""
        for at, line in enumerate(self.text.splitlines(), self.line):
            waiting += line
            if waiting.endswith("\\"):
                waiting = f"{waiting[:-1].rstrip()} "
            else:
                found.append((at, " ".join(waiting.split())))
                waiting = ""
        return found


def documents() -> list[Path]:
    """All of them but the changelog, which tells of what was."""
    folders = ("docs", "examples", "helm", "systemd")
    found = [*ROOT.glob("*.md"), *(path for name in folders for path in (ROOT / name).rglob("*.md"))]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def snippets(path: Path) -> list[Snippet]:
    """Those of a document, from top to bottom."""
    name = str(path.relative_to(ROOT))
    found = sorted(_paragraphs(path.read_text()))
    return [Snippet(name, line, fence or kind(text), text) for line, fence, text in found]


SECTIONS = {"README.md": "## The first hour\n", "docs/runbook.md": "# Runbook\n"}
"""Where a command within a sentence, or within a table, is one to type. Elsewhere it is a command's name."""


def spans(document: str) -> list[str]:
    """The commands within sentences of a document that are to be typed."""
    if document not in SECTIONS:
        return []
    _, _, text = (ROOT / document).read_text().partition(SECTIONS[document])
    text, *_ = re.split(r"^## (?!Alerts|lbd doctor)", text, maxsplit=1, flags=re.MULTILINE)
    found = (span.replace("\\|", "|") for span in re.findall(r"`([^`\n]+)`", text))
    return list(dict.fromkeys(span for span in found if re.match(rf"(?:{'|'.join(PROGRAMS)}) [^:]+$", span)))


def shapes(document: str) -> list[dict[str, Any]]:
    """The JSON that a document outlines in its sentences, ``{"a", "b": [{"c"}]}``; None where no more is told."""
    found = re.findall(r"`(\{\"[^`]*\})`", (ROOT / document).read_text())
    told = (re.sub(r"\{…\}|\[…\]|(?<=: )…|(?<=:\n)…", "null", text) for text in found)
    return [json.loads(re.sub(r'("[\w.]+")(?=\s*[,}])', r"\1: null", text)) for text in told]


def kind(text: str) -> str:
    """Of an indented paragraph: what its first word, or all of it, tells."""
    words = text.split()
    if words[0] in PROGRAMS and words[1:2] != ["demo:"]:  # which is what it prints
        return "shell"
    try:
        return "yaml" if isinstance(yaml.safe_load(text), dict) else "shown"
    except yaml.YAMLError:
        return "shown"


def _paragraphs(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, language of the fence ("" where none) and text. What a fence holds is one; what is indented, split."""
    fenced = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for found in fenced.finditer(text):
        yield text.count("\n", 0, found.start()) + 2, found[2], found[3]
    plain = fenced.sub(lambda found: "\n" * found[0].count("\n"), text)
    indented = re.compile(r"(?:(?<=\n\n)|\A)((?: {4}\S?.*\n)+)")
    for found in indented.finditer(plain):
        lines = found[1].splitlines()
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        yield plain.count("\n", 0, found.start()) + 1, "", "\n".join(line[margin:] for line in lines)
