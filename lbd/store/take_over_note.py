"""The note on in-broker shedding that lbd took over, in the store: what the brokers are owed survives a kill -9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.pulsar.override_note import TakeOverNote
from lbd.store.database import STORE_NAME, json_value, put_json, writing

if TYPE_CHECKING:
    from pathlib import Path


TAKE_OVER = "take-over"
"""Its name in the store."""

_BY_HAND = f"before that set or delete the override of {SHEDDING_ENABLED} by hand"


class KeptTakeOver:
    """The note in the store of a state directory; only the holder of that may change it. Raises :class:`UsageError`."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / STORE_NAME
        self.place = str(self._path)

    def load(self) -> TakeOverNote | None:
        """The note, None when there is none; lbd does not guess what one says that cannot be read."""
        try:
            return json_value(self._path, TAKE_OVER, TakeOverNote)
        except UsageError as error:
            raise UsageError(f"{error}; {_BY_HAND}") from error

    def save(self, note: TakeOverNote) -> None:
        """Replace the note, on disk when this returns."""
        try:
            put_json(self._path, TAKE_OVER, note)
        except UsageError as error:
            raise UsageError(f"{error}; without it nothing is taken over or given back") from error

    def remove(self) -> None:
        """Forget the take-over."""
        try:
            with writing(self._path) as store:
                store.remove(TAKE_OVER)
        except UsageError as error:
            raise UsageError(f"{error}; shedding is given back, and lbd release removes the note on it") from error
