"""What the journal of a state directory says, entry by entry."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lbd.store.database import STORE_NAME, Database, reading
from lbd.store.journal import INSERT

if TYPE_CHECKING:
    from pathlib import Path


def entries(state_dir: Path) -> list[dict[str, Any]]:
    """All entries in their order; none without a store."""
    with reading(state_dir / STORE_NAME) as store:
        rows = store.rows("SELECT CAST(entry AS BLOB) FROM journal ORDER BY number") if store is not None else []
    return [json.loads(entry) for (entry,) in rows]


def events(state_dir: Path) -> list[str]:
    """Their events."""
    return [entry["event"] for entry in entries(state_dir)]


def write(state_dir: Path, *told: dict[str, Any]) -> None:
    """Add entries as another lbd, or an earlier one, may have written them."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with closing(Database.open(state_dir / STORE_NAME)) as store:
        rows = [(one["at"], one["event"], one.get("move", ""), one.get("bundle", ""), json.dumps(one)) for one in told]
        store.write(INSERT, rows)
