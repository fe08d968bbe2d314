"""The tables of docs/permissions.md, from the table of requests. ``python -m tests.requests_page`` writes them."""

from __future__ import annotations

import sys
from pathlib import Path

from lbd.pulsar.request_table import CLIENT_CALLS, EFFECTS, REQUESTS

PAGE = Path(__file__).parents[1] / "docs" / "permissions.md"
RIGHTS, CHANGES, SETTINGS = "rights", "changes", "settings"


def tables() -> dict[str, str]:
    """Each generated table of the page, by the name in its marks."""
    named = {f"{row.method} `{row.path}`": row for row in REQUESTS}
    named |= {f"`{row.method}` of {row.path}": row for row in CLIENT_CALLS}
    rights = [(name, row.right, row.purpose) for name, row in named.items()]
    changes = [
        (name, row.changes or "nothing", row.more or "nothing", row.guard)
        for name, row in named.items()
        if row.changes or row.more
    ]
    settings = [(f"`{effect.key}`", f"`{effect.harmless}`", effect.effect) for effect in EFFECTS]
    return {
        RIGHTS: _table(("request", "what Pulsar checks", "for"), rights),
        CHANGES: _table(("request", "what it changes", "what more, and when", "what guards it"), changes),
        SETTINGS: _table(("setting of a broker", "usual value", "with another value"), settings),
    }


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def page(text: str) -> str:
    """The page with its tables as they are to be."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: python -m tests.requests_page -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
