"""Turn the brokers' own shedding off and restore it, so that it and lbd never act together.

The note on the override (``override.py``) is on disk before a change: after a kill the next process continues by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from lbd.act.override import SettingSwitch
from lbd.errors import RefusedError
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED, sheds
from lbd.pulsar.override_note import OFF, TakeOverNote, override_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.act.ownership import ActClock
    from lbd.pulsar.admin import Admin


class NoteKeeper(Protocol):
    """Stores the one note; ``place`` names where. Every method raises :class:`~lbd.errors.UsageError`."""

    place: str

    def load(self) -> TakeOverNote | None: ...
    def save(self, note: TakeOverNote) -> None: ...
    def remove(self) -> None: ...


# --- take-over and release

IN_FLIGHT_SECONDS = 5.0
"""Time in which a request of a killed process may still take effect; it takes 7-9 ms."""

IN_FLIGHT_PAUSE_SECONDS = 0.2

CONFIRM_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class TakenOver:
    """Proof that no active broker sheds: the ``brokers`` that confirmed it, and the note to release, if any."""

    brokers: tuple[str, ...]
    note: TakeOverNote | None

    def __str__(self) -> str:
        state = f"in-broker shedding is off on all {len(self.brokers)} brokers"
        if self.note is None:
            return f"{state}; lbd changed nothing"
        return f"{state}, turned off by lbd; before: {_override_text(self.note.before)} (lbd release gives it back)"


class SheddingSwitch:
    """The dynamic override of ``loadBalancerSheddingEnabled``, and the note on it; one process at a time may use it."""

    def __init__(self, admin: Admin, notes: NoteKeeper, clock: ActClock, now: Callable[[], float]) -> None:
        self._admin = admin
        self._notes = notes
        self._clock = clock
        self._now = now
        self._switch = SettingSwitch(admin, clock, SHEDDING_ENABLED, name="in-broker shedding", again=_AGAIN)

    @property
    def note(self) -> TakeOverNote | None:
        """The take-over that is not yet released. Raises :class:`UsageError` when the note cannot be read."""
        return self._notes.load()

    def take_over(self) -> TakenOver:
        """Turn shedding off on all brokers, and prove it on each.

        The previous override is noted once: a second take-over keeps the note, also when an operator meanwhile restored
        the override, or lbd was killed. Only an override that is neither lbd's nor the noted one replaces it, as the
        operator's newest wish (:meth:`TakeOverNote.owes`). If no broker sheds, or the override is ``false`` already,
        nothing is changed.

        Raises :class:`RefusedError` that names a broker that still sheds or does not respond, :class:`AdminError` when
        the override cannot be read or set; the note stays, and another call continues.
        """
        note = self._own_note()
        present = self._settled(note)
        running = self._switch.running()
        if note is None and (present == OFF or not any(map(sheds, running.values()))):
            return TakenOver(self._switch.prove_off(sheds, "overridden with false, not by lbd"), None)
        note = self._note_first(note, present, running)
        brokers = self._switch.turn_off(sheds)
        note = self._save(replace(note, phase="taken", asked_at=self._now(), seen_at=self._now()))
        return TakenOver(brokers, note)

    def confirm_off(self) -> None:
        """Note that shedding is off on all brokers now, at most once a minute."""
        note = self.note
        if note is not None and note.phase == "taken" and not 0 <= self._now() - note.seen_at < CONFIRM_EVERY_SECONDS:
            self._save(replace(note, seen_at=self._now()))

    def release(self) -> str:
        """Restore the override from before lbd, prove it on each broker, and remove the note. Returns one sentence.

        An override that is not lbd's any more was changed by somebody else: it stays, and the note is removed. Raises
        :class:`ObserveError` when it cannot be done or proven now; the note stays, and another call continues.
        """
        note = self._own_note()
        if note is None:
            return nothing_taken(self._notes.place)
        present = self._settled(note)
        if note.lbds(present):
            message = self._switch.give_back(self._save(replace(note, phase="releasing", asked_at=self._now())))
        else:
            message = _remaining_note(note, present)
        self._notes.remove()
        return message

    def _own_note(self) -> TakeOverNote | None:
        note = self.note
        if note is not None and note.cluster != self._admin.cluster:
            raise RefusedError(
                f"{self._notes.place}: taken over from cluster {note.cluster!r}, and pulsar.admin_urls lead to "
                f"{self._admin.cluster!r}; run lbd release with the admin_urls of {note.cluster!r} first"
            )
        return note

    def _settled(self, note: TakeOverNote | None) -> str | None:
        """Present override, once a killed process's request is visible in it, or can no longer take effect."""
        present = self._switch.present()
        while note is not None and note.awaits(present):
            remaining = note.asked_at + IN_FLIGHT_SECONDS - self._now()
            if not 0 < remaining <= IN_FLIGHT_SECONDS:
                break
            self._clock.sleep(min(remaining, IN_FLIGHT_PAUSE_SECONDS))
            present = self._switch.present()
        return present

    def _note_first(
        self, note: TakeOverNote | None, present: str | None, running: Mapping[str, Mapping[str, str]]
    ) -> TakeOverNote:
        """The note that must be on disk before the override is set."""
        now = self._now()
        if note is None or not note.owes(present):
            first = msgspec.structs.asdict(self._switch.note(present, running))
            return self._save(TakeOverNote(cluster=self._admin.cluster, at=now, asked_at=now, **first))
        off_since = note.at if note.phase == "taken" and present == OFF else now
        return self._save(replace(note, phase="taking", at=off_since, asked_at=now))

    def _save(self, note: TakeOverNote) -> TakeOverNote:
        self._notes.save(note)
        return note


_AGAIN = "run lbd release again"


def nothing_taken(place: str) -> str:
    """The message of a release without a note."""
    return f"Nothing to give back: lbd has not taken over in-broker shedding ({place} has no note on it)."


def _remaining_note(note: TakeOverNote, present: str | None) -> str:
    if present == note.before:
        return f"Left as it is: {_override_text(present)}, as before lbd; the note on it is removed."
    change = f"{_override_text(present)}, changed by somebody else since lbd turned it off"
    return f"Left as it is: {change} (before lbd: {_override_text(note.before)}); the note on it is removed."


def _override_text(override: str | None) -> str:
    return override_text(SHEDDING_ENABLED, override)
