"""Turns the brokers' own shedding off and gives it back, so that it and lbd never act together.

The note of what was there is on disk before anything is changed, and goes only when it is proven to be there again.
Every step may be repeated, so a process that was killed anywhere is followed up by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lbd.act import shedding_note
from lbd.act.read_back import ReadBack
from lbd.act.shedding_note import OFF, ON, Note
from lbd.errors import ObserveError, RefusedError
from lbd.pulsar.paths import SHEDDING_ENABLED, sheds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lbd.act.ownership import Clock
    from lbd.pulsar.admin import Admin

IN_FLIGHT_SECONDS = 5.0
"""How long a request of a process that was killed may still take effect; it takes 7-9 ms."""

IN_FLIGHT_PAUSE_SECONDS = 0.2

SEEN_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class TakenOver:
    """Proof that no active broker sheds: which ``brokers`` were asked, and what lbd owes (None: it changed nothing)."""

    brokers: tuple[str, ...]
    note: Note | None

    def __str__(self) -> str:
        seen = f"in-broker shedding is off on all {len(self.brokers)} brokers"
        if self.note is None:
            return f"{seen}; lbd changed nothing"
        return f"{seen}, turned off by lbd; before: {_told(self.note.before)} (lbd release gives it back)"


class SheddingSwitch:
    """The dynamic override of ``loadBalancerSheddingEnabled``, and the note on it; one process at a time may use it."""

    def __init__(self, admin: Admin, path: Path, clock: Clock, now: Callable[[], float]) -> None:
        self._admin = admin
        self._path = path
        self._clock = clock
        self._now = now
        self._brokers = ReadBack(admin, clock, SHEDDING_ENABLED)

    @property
    def note(self) -> Note | None:
        """What lbd has taken over and not given back. Raises :class:`UsageError` when that cannot be read."""
        return shedding_note.load(self._path)

    def take_over(self) -> TakenOver:
        """Turn shedding off on all brokers, and prove it on each.

        What was there before is noted once: a second take-over keeps it, also when an operator meanwhile put it back,
        or lbd was killed. Only an override that is neither lbd's nor what was there takes its place, as the operator's
        newest wish (:meth:`Note.owes`). Where nobody sheds, or the override is ``false`` already, nothing is changed.

        Raises :class:`RefusedError` that names a broker that still sheds or cannot be asked, :class:`AdminError` when
        the override cannot be read or set; the note stays, and calling again goes on.
        """
        note = self._own_note()
        present = self._settled(note)
        running = {broker: found for broker, found in self._brokers.now().items() if not isinstance(found, str)}
        if note is None and (present == OFF or not any(map(sheds, running.values()))):
            return TakenOver(self._proven_off("overridden with false, not by lbd"), None)
        note = self._noted(note, present, running)
        self._admin.set_dynamic(SHEDDING_ENABLED, OFF)
        brokers = self._proven_off("set to false by lbd on all brokers")
        note = self._save(replace(note, phase="taken", asked_at=self._now(), seen_at=self._now()))
        return TakenOver(brokers, note)

    def seen_off(self) -> None:
        """All brokers were seen off just now; noted at most once a minute."""
        note = self.note
        if note is not None and note.phase == "taken" and not 0 <= self._now() - note.seen_at < SEEN_EVERY_SECONDS:
            self._save(replace(note, seen_at=self._now()))

    def release(self) -> str:
        """Put back exactly what was there before lbd, prove it on each broker, and forget it. One sentence on it.

        An override that is not lbd's any more was changed by somebody else: it is left alone, and the note is removed.
        Raises :class:`ObserveError` when it cannot be done or proven now; the note stays, and calling again goes on.
        """
        note = self._own_note()
        if note is None:
            return nothing_taken(self._path)
        present = self._settled(note)
        if note.lbds(present):
            told = self._give_back(self._save(replace(note, phase="releasing", asked_at=self._now())))
        else:
            told = _left(note, present)
        shedding_note.remove(self._path)
        return told

    def _own_note(self) -> Note | None:
        note = self.note
        if note is not None and note.cluster != self._admin.cluster:
            raise RefusedError(
                f"{self._path}: taken over from cluster {note.cluster!r}, and pulsar.admin_urls lead to "
                f"{self._admin.cluster!r}; run lbd release with the admin_urls of {note.cluster!r} first"
            )
        return note

    def _present(self) -> str | None:
        return self._admin.dynamic_configuration().get(SHEDDING_ENABLED)

    def _settled(self, note: Note | None) -> str | None:
        """The present override, once what a killed process asked for is visible, or can no longer come."""
        present = self._present()
        while note is not None and note.awaits(present):
            left = note.asked_at + IN_FLIGHT_SECONDS - self._now()
            if not 0 < left <= IN_FLIGHT_SECONDS:
                break
            self._clock.sleep(min(left, IN_FLIGHT_PAUSE_SECONDS))
            present = self._present()
        return present

    def _noted(self, note: Note | None, present: str | None, running: Mapping[str, Mapping[str, str]]) -> Note:
        """The note that must be on disk before the override is set."""
        now = self._now()
        if note is None or not note.owes(present):
            ran = {broker: runtime.get(SHEDDING_ENABLED, ON) for broker, runtime in running.items()}
            return self._save(Note(self._admin.cluster, "taking", present, ran, at=now, asked_at=now))
        off_since = note.at if note.phase == "taken" and present == OFF else now
        return self._save(replace(note, phase="taking", at=off_since, asked_at=now))

    def _save(self, note: Note) -> Note:
        shedding_note.save(self._path, note)
        return note

    def _proven_off(self, how: str) -> tuple[str, ...]:
        brokers, wrong = self._brokers.until(lambda _, runtime: not sheds(runtime))
        if wrong:
            raise RefusedError(f"in-broker shedding is not off: {wrong}, wanted false; it is {how}")
        return brokers

    def _give_back(self, note: Note) -> str:
        if note.given is not None:
            self._admin.set_dynamic(SHEDDING_ENABLED, note.given)
            self._require_running(_parsed(note.given))
        if note.before is not None:
            return f"Given back: {_told(note.before)} again, as before lbd."
        return self._deleted(note)

    def _require_running(self, wanted: str) -> None:
        _, wrong = self._brokers.until(lambda _, runtime: runtime.get(SHEDDING_ENABLED) == wanted)
        if wrong:
            raise ObserveError(f"in-broker shedding is not given back: {wrong}, wanted {wanted}; {_AGAIN}")

    def _deleted(self, note: Note) -> str:
        self._admin.delete_dynamic(SHEDDING_ENABLED)
        present = self._present()
        if present is not None:
            raise ObserveError(f"in-broker shedding is not given back: {_told(present)}, wanted no override; {_AGAIN}")
        _, other = self._brokers.until(
            lambda broker, runtime: note.ran.get(broker) in {None, runtime.get(SHEDDING_ENABLED)}
        )
        return f"Given back: {_told(None)} again, as before lbd{other and f'; but {other}, unlike before lbd'}."


_AGAIN = "run lbd release again"


def _parsed(value: str) -> str:
    """What a broker runs with when it is given this value: Java's ``Boolean.valueOf`` (seen for abc, TRUE, False)."""
    return ON if value.strip().lower() == ON else OFF


def nothing_taken(path: Path) -> str:
    """What a release says where there is no note."""
    return f"Nothing to give back: lbd has not taken over in-broker shedding (there is no {path})."


def _left(note: Note, present: str | None) -> str:
    if present == note.before:
        return f"Left as it is: {_told(present)}, as before lbd; the note on it is removed."
    told = f"{_told(present)}, changed by somebody else since lbd turned it off"
    return f"Left as it is: {told} (before lbd: {_told(note.before)}); the note on it is removed."


def _told(override: str | None) -> str:
    return f"{SHEDDING_ENABLED} " + ("has no override" if override is None else f"is overridden with {override}")
