"""What was there before lbd turned the brokers' own shedding off: ``take-over.json``, and whose the override is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from lbd.errors import UsageError
from lbd.files import decoded, put, sync
from lbd.pulsar.paths import SHEDDING_ENABLED

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
ON, OFF = "true", "false"


class Note(msgspec.Struct, frozen=True):
    """A take-over: ``taking`` until all brokers were seen off, then ``taken``; ``releasing`` until the note is removed.

    ``before`` is the override that lbd owes the operator, None for none, and ``ran`` what each broker ran with then.
    ``at`` is when lbd turned shedding off, ``seen_at`` when all brokers were last seen off, ``asked_at`` when the phase
    began; all in epoch seconds.
    """

    cluster: str
    phase: Literal["taking", "taken", "releasing"]
    before: str | None
    ran: dict[str, str]
    at: float
    asked_at: float
    seen_at: float = 0.0
    format: int = FORMAT

    @property
    def given(self) -> str | None:
        """The override to set when giving back; where there was none it is set before it is deleted.

        Pulsar 2.11 runs on with the last value when an override is deleted, until a restart (seen; 3.3.6 to 5.0.0-M1
        return to broker.conf within 100 ms), so a broker must be made to run its own value first.
        """
        return ON if self.before is None and ON in self.ran.values() else self.before

    def lbds(self, present: str | None) -> bool:
        """Whether the present override is one that lbd itself left, in this phase; a kill may have come at any point.

        ``false`` always is: an operator who sets ``false`` by hand meanwhile cannot be told from lbd.
        """
        return present == OFF or (self.phase == "releasing" and present in {self.given, self.before})

    def owes(self, present: str | None) -> bool:
        """Whether ``before`` still is what the operator wants, given the override that is there now.

        It is while the present override is lbd's own or equals ``before``. Another value, or that there is none any
        more, is the operator's newest wish: that must be given back instead.
        """
        return present == self.before or self.lbds(present)

    def awaits(self, present: str | None) -> bool:
        """Whether the last request of this phase is not visible in the present override: it may be under way yet."""
        return self.phase != "taken" and (present == OFF) != (self.phase == "taking")


def load(path: Path) -> Note | None:
    """The note, None when there is none. Raises :class:`UsageError` for one that cannot be read: lbd does not guess."""
    try:
        note = decoded(path, Note)
    except UsageError as error:
        raise UsageError(f"{error}; {_BY_HAND}") from error
    if note is None:
        return None
    if note.format != FORMAT:
        raise UsageError(f"{path}: format {note.format}, this lbd reads {FORMAT}; {_BY_HAND}")
    return note


_BY_HAND = f"set or delete the override of {SHEDDING_ENABLED} by hand, then remove this file"


def save(path: Path, note: Note) -> None:
    """Replace the note at once or not at all; it is on disk when the call returns. Raises :class:`UsageError`.

    Root may release what another user's daemon took over: neither must be kept out by the other's files.
    """
    try:
        put(path, note)
    except UsageError as error:
        raise UsageError(f"{error}; without it nothing is taken over or given back") from error


def remove(path: Path) -> None:
    """Forget the take-over. Raises :class:`UsageError`."""
    try:
        path.unlink(missing_ok=True)
        sync(path.parent)
    except OSError as error:
        raise UsageError(f"{path}: cannot be removed: {error.strerror}; it is given back, remove it by hand") from error
