"""The table of values in the chart's README, from the comments in values.yaml.

``python -m tests.helm.readme`` writes it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "lbd"
README = CHART / "README.md"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"


def documented() -> dict[str, str]:
    """What each value means, by its dotted name: the comment ``# --`` above it and the lines that go on with it."""
    found: dict[str, str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        key = re.match(r"( *)([A-Za-z]\w*):", line)
        if comment := re.match(r" *# (-- )?(.*)", line):
            above = [comment[2]] if comment[1] else [*above, comment[2]]
        elif key:
            path = [*(one for one in path if one[0] < len(key[1])), (len(key[1]), key[2])]
            if above:
                found[".".join(name for _, name in path)] = " ".join(above)
            above = []
        else:
            above = []
    return found


def default(name: str) -> str:
    """The value that stands in values.yaml, as YAML's flow style, which is JSON here."""
    value: Any = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in name.split("."):
        value = value[part]
    return json.dumps(value)


def table() -> str:
    """All of it."""
    rows = [f"| `{name}` | {meaning} | `{default(name)}` |" for name, meaning in documented().items()]
    return "\n".join(["| value | meaning | default |", "|---|---|---|", *rows, ""])


def current() -> str:
    """The README with the table as it should be."""
    before, _, rest = README.read_text().partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(current())
