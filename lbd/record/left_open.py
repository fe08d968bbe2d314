"""What the last status of an lbd that has ended comes to: of what it had under way only the journal knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.record.journal import LIVE_NAME, read
from lbd.record.status import UnfinishedStatus

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.record.status import Status


def after_its_end(status: Status, state_dir: Path) -> Status:
    """The same with what was asked for and has no outcome; what had not been asked for yet never will be."""
    try:
        past = read(state_dir / LIVE_NAME)
    except UsageError as error:
        return msgspec.structs.replace(status, warnings=[*status.warnings, f"what it left open is not known: {error}"])
    left = [
        UnfinishedStatus(one.bundle, one.source, one.destination, past.attempted_at.get(one.bundle, status.at))
        for _, one in past.open
    ]
    return msgspec.structs.replace(status, unfinished=left)
