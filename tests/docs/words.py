"""Words of the pages in docs/, and which pages are reference. ``python -m tests.docs.words`` prints them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

REFERENCE = ("commands.md", "endpoints.md", "history-tables.md", "metrics.md", "security-tests.md", "settings.md")
"""Pages to look something up in. Decisions and results, each in a folder, are records and not read from end to end."""

RECORDS = ("decisions", "results")
GENERATED = re.compile(r"<!-- ([\w-]+): python -m tests\.\w+ -->.*?<!-- end of \1 -->|```console\n.*?```", re.DOTALL)
"""Tables between two marks, and the screens of the tour."""


def pages() -> list[Path]:
    """The pages that a reader reads."""
    found = sorted(DOCS.rglob("*.md"))
    return [path for path in found if path.name not in REFERENCE and path.relative_to(DOCS).parts[0] not in RECORDS]


def words(path: Path) -> int:
    """Number of words of a page, without its generated parts and the bars of its tables."""
    return sum(any(map(str.isalnum, word)) for word in GENERATED.sub("", path.read_text()).split())


if __name__ == "__main__":
    counts = {path: words(path) for path in pages()}
    for path, count in sorted(counts.items(), key=lambda item: item[1]):
        print(f"{count:6} {path.relative_to(DOCS)}")
    print(f"{sum(counts.values()):6} in all")
