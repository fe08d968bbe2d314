"""Pages are plain technical English: the house's own turns of phrase are banned, wherever a reader may meet them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for name in ("docs", "examples", "helm", "systemd") for path in (ROOT / name).rglob("*.md")),
    ]
)
BANS = {
    "of which": r"(?i:\bof which\b)",
    "so many": r"(?i:\bso many\b)",
    "so much more": r"(?i:\bso much (?:above|below|more|less|of)\b)",
    "told": r"(?i:\btold\b)",
    "a sentence that begins with Of": r"(?:^|(?<=[.:;!?] )|(?<=\| )|(?<=\*\* ))Of (?!course|these|those)",
    "a sentence that begins with That a": r"(?<=[.!?] )That an? ",
}
"""Phrases by what they are called, as expressions over a page whose lines are joined."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_say_it_plainly(path: Path):
    """In sentences, tables and lists; blocks of code and output are what they are."""
    assert {name: found for name, ban in BANS.items() if (found := phrases(path.read_text(), ban))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "Twelve brokers, of\nwhich four are large.",
        "So many an hour, and not more. Not so many.",
        "A bundle is told as moved.",
        "It ended. Of the others\nnone moved.",
        "| x | Of a scenario. |",
        "- **Share.** Of what a source has.",
    ],
)
def test_what_is_banned_is_found(text: str):
    """Over the end of a line, too."""
    assert [name for name, ban in BANS.items() if phrases(text, ban)] != []


@pytest.mark.parametrize(
    "text", ["`told` in code", "    told in a block\n", "```text\ntold\n```\n", "The rest of the 12."]
)
def test_what_is_allowed_is_not_found(text: str):
    """Code keeps its names."""
    assert [name for name, ban in BANS.items() if phrases(text, ban)] == []


def phrases(text: str, ban: str) -> list[str]:
    """Where a page has a banned phrase, with the words around it."""
    prose = re.sub(r"```.*?```|^(?: {4})+(?![ \-\d]).*$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = re.sub(r"\n(?=[^\n|#\-*>\d])", " ", prose)
    return [lines[max(match.start() - 30, 0) : match.end() + 30] for match in re.finditer(ban, lines, re.MULTILINE)]
