"""Reads lbd's journal as a stranger would: entries of its store, joined by move, with no code of lbd."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Move:
    """One attempt: what was intended, and what the journal says came of it (None while it is open)."""

    id: str
    bundle: str
    source: str
    destination: str | None
    asked_at: float
    result: str | None = None
    owner: str | None = None
    ended_at: float | None = None
    detail: str = ""

    @property
    def found_open(self) -> bool:
        """Whether its outcome was written by a later process than its intent."""
        return "found open" in self.detail


def entries(state: Path) -> list[dict[str, Any]]:
    """Every entry of the journal, by time; none where there is no store."""
    file = state / "lbd.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        found = [json.loads(entry) for (entry,) in store.execute("SELECT entry FROM journal ORDER BY number")]
    return sorted(found, key=lambda entry: float(entry["at"]))


def moves(told: Iterable[dict[str, Any]]) -> list[Move]:
    """Intents with their outcomes, in the order in which they were intended."""
    found: dict[str, Move] = {}
    for entry in told:
        if entry.get("event") == "intent":
            ends = (entry["bundle"], entry["source"], entry.get("destination"))
            found[entry["move"]] = Move(entry["move"], *ends, entry["at"])
        elif entry.get("event") == "outcome" and entry["move"] in found:
            old = found[entry["move"]]
            asked = (old.id, old.bundle, old.source, old.destination, old.asked_at)
            ended = (entry["result"], entry.get("owner"), entry["at"], entry.get("detail", ""))
            found[entry["move"]] = Move(*asked, *ended)
    return list(found.values())


def batches(told: Iterable[Move], pause_seconds: float = 5.0) -> list[list[Move]]:
    """Moves of one turn together: a new one begins after a pause."""
    found: list[list[Move]] = []
    for move in told:
        if not found or move.asked_at - (found[-1][-1].ended_at or found[-1][-1].asked_at) > pause_seconds:
            found.append([])
        found[-1].append(move)
    return found
