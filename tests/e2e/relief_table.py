"""The rows of tests.e2e.scenarios as one table, a line for each run: what brokers' own shedders and lbd made of a case.

python -m tests.e2e.relief_table docs/soak/relief.txt
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

HEAD = (
    "| | who | first, last move after s | moves | twice | changed hands | true gap, first → last | each minute "
    "| below 15 for good from s | longest publish gap, ms: moved, others meanwhile | publish ms: p99.9, max | lost |"
)


def rows(text: str) -> list[dict[str, Any]]:
    """The runs that a file has, by case and strategy."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda row: (row["scenario"], row["strategy"]))


def line(row: dict[str, Any]) -> str:
    """One run."""
    after, (first, last) = row["moves of turns after s"], row["true gap first, last"]
    moved, others = row["gaps of moved topics: n, p50, max ms"], row["gaps of bystanders meanwhile"]
    cells = (
        row["scenario"],
        row["strategy"],
        f"{after[0]}, {after[-1]}" if after else "never",
        row["moves"],
        row["moves"] - row["bundles"],
        row["changes of hands"],
        f"{first:.0f} → {last:.0f}",
        ", ".join(f"{gap:.0f}" for gap in row["true gap each minute"]),
        _or_never(row["below 15 for good from s"]),
        f"{moved[-1] if moved else '-'}, {others[-1] if others else '-'}",
        f"{row['publish ms']['p99.9']}, {row['publish ms']['max']}",
        row["lost"],
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def medians(runs: list[dict[str, Any]]) -> str:
    """The runs of one case and strategy in one sentence."""
    never = float("inf")
    below = median(
        never if row["below 15 for good from s"] is None else row["below 15 for good from s"] for row in runs
    )
    moves, last = median(row["moves"] for row in runs), median(row["true gap first, last"][1] for row in runs)
    seconds = "never below 15 points for good" if below == never else f"below 15 points for good from {below:.0f} s"
    how = f"{runs[0]['scenario']}, {runs[0]['strategy']}, median of {len(runs)}"
    return f"- {how}: {seconds}, {moves:g} moves, {last:.0f} points left."


def _or_never(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f}"


def main(files: list[str]) -> None:
    """Print it."""
    found = rows("\n".join(Path(file).read_text(encoding="utf-8") for file in files))
    print(HEAD, "|---" * HEAD.count("|", 1) + "|", *map(line, found), "", sep="\n")
    cases = dict.fromkeys((row["scenario"], row["strategy"]) for row in found)
    of_case = ([row for row in found if (row["scenario"], row["strategy"]) == case] for case in cases)
    print(*map(medians, of_case), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
