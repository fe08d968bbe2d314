"""What a live lbd does with its journal beside its moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.cycle import CycleRecord
    from lbd.record.journal import Journal


def forget_notes(journal: Journal, record: CycleRecord) -> None:
    """What a leader had noted is gone with it; one that tells no id may be the same as before."""
    leader = record.observation.leader if record.observation is not None else None
    if leader is not None and leader.broker is not None:
        for bundle, note in journal.notes.items():
            if note.leader not in {None, leader.broker}:
                journal.note(bundle, None, None)


def journal_warnings(journal: Journal, path: Path) -> tuple[str, ...]:
    """What a person should know of it; empty texts where all is well."""
    torn = journal.torn_lines
    lines = f"{path}: {torn} lines cannot be read; cool-downs in them are lost"
    return (lines if torn else "", journal.rotation_failure)
