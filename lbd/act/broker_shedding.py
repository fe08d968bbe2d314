"""Turn the brokers' own shedding off and restore it, so that it and lbd never act together.

``take-over.json`` records the previous override. It is on disk before anything changes, and is removed only when the
previous state is verified. Every step can be repeated: after a kill the next process completes it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from lbd.errors import AdminError, ObserveError, RefusedError, UsageError
from lbd.files import At, decoded, put, sync
from lbd.files import remove as remove_file
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED, sheds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lbd.act.ownership import ActClock
    from lbd.pulsar.admin import Admin


FORMAT = 1
ON, OFF = "true", "false"


class TakeOverNote(msgspec.Struct, frozen=True):
    """A take-over: ``taking`` until shedding is off on all brokers, then ``taken``, at last ``releasing``.

    ``before`` is the override that lbd owes the operator, None for none, and ``ran`` what each broker ran with then.
    ``at`` is when lbd turned shedding off, ``seen_at`` when it was last confirmed off on all brokers, ``asked_at`` when
    the phase began; all in epoch seconds.
    """

    cluster: str
    phase: Literal["taking", "taken", "releasing"]
    before: str | None
    ran: dict[str, str]
    at: At
    asked_at: At
    seen_at: At = 0.0
    format: int = FORMAT

    @property
    def override_to_restore(self) -> str | None:
        """The override to set on release; if there was none before, a value is set before it is deleted.

        Pulsar 2.11 keeps the last value when an override is deleted, until a restart (measured; 3.3.6 to 5.0.0-M1
        return to broker.conf within 100 ms), so a broker must be made to run its own value first.
        """
        return ON if self.before is None and ON in self.ran.values() else self.before

    def lbds(self, present: str | None) -> bool:
        """Whether lbd itself set the present override, in this phase; a kill may have come at any point.

        ``false`` always counts as lbd's: an operator's ``false`` cannot be told apart from it.
        """
        return present == OFF or (self.phase == "releasing" and present in {self.override_to_restore, self.before})

    def owes(self, present: str | None) -> bool:
        """Whether ``before`` still is what the operator wants, given the override that is there now.

        It is while the present override is lbd's own or equals ``before``. Another value, or that there is none any
        more, is the operator's newest wish: that must be given back instead.
        """
        return present == self.before or self.lbds(present)

    def awaits(self, present: str | None) -> bool:
        """Whether the last request of this phase is not visible in the present override: it may be under way yet."""
        return self.phase != "taken" and (present == OFF) != (self.phase == "taking")


def load(path: Path) -> TakeOverNote | None:
    """The note, None when there is none. Raises :class:`UsageError` for one that cannot be read: lbd does not guess."""
    try:
        note = decoded(path, TakeOverNote)
    except UsageError as error:
        raise UsageError(f"{error}; {_BY_HAND}") from error
    if note is None:
        return None
    if note.format != FORMAT:
        raise UsageError(f"{path}: format {note.format}, this lbd reads {FORMAT}; {_BY_HAND}")
    return note


_BY_HAND = f"set or delete the override of {SHEDDING_ENABLED} by hand, then remove this file"


def save(path: Path, note: TakeOverNote) -> None:
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
        remove_file(path)
        sync(path.parent)
    except OSError as error:
        raise UsageError(f"{path}: cannot be removed: {error.strerror}; it is given back, remove it by hand") from error


# --- effective settings, read from each broker: the only proof that a dynamic setting was taken

PATIENCE_SECONDS = 5.0
"""Brokers take 16-80 ms to run with an override that was stored (2.11.0 to 5.0.0-M1, three brokers)."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


class ReadBack:
    """Asks all active brokers for one setting's effective value, at the same time."""

    def __init__(self, admin: Admin, clock: ActClock, key: str) -> None:
        self._admin = admin
        self._clock = clock
        self._key = key
        self._pool = ThreadPoolExecutor(admin.settings.concurrency, thread_name_prefix="lbd-read-back")

    def now(self) -> dict[str, Mapping[str, str] | str]:
        """Each active broker's effective configuration, or why it cannot be read."""
        brokers = self._admin.active_brokers()
        return dict(zip(brokers, self._pool.map(self._configuration, brokers), strict=True))

    def _configuration(self, broker: str) -> Mapping[str, str] | str:
        try:
            return self._admin.runtime_configuration(broker)
        except AdminError as error:
            return str(error)

    def until(self, holds: Callable[[str, Mapping[str, str]], bool]) -> tuple[tuple[str, ...], str]:
        """All active brokers, and a message on those for which it does not hold even after some seconds."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while True:
            configurations = self.now()
            problems = [self._problem(broker, runtime, holds) for broker, runtime in configurations.items()]
            wrong = [problem for problem in problems if problem]
            if not wrong or self._clock.monotonic() >= deadline:
                return tuple(configurations), _first_problem(wrong)
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _problem(
        self, broker: str, runtime: Mapping[str, str] | str, holds: Callable[[str, Mapping[str, str]], bool]
    ) -> str:
        if isinstance(runtime, str):
            return runtime
        return "" if holds(broker, runtime) else f"{broker} runs {self._key}={runtime.get(self._key)}"


def _first_problem(wrong: list[str]) -> str:
    more = f" (and {len(wrong) - 1} more brokers)" if len(wrong) > 1 else ""
    return wrong[0] + more if wrong else ""


# --- take-over and release

IN_FLIGHT_SECONDS = 5.0
"""How long a request of a process that was killed may still take effect; it takes 7-9 ms."""

IN_FLIGHT_PAUSE_SECONDS = 0.2

CONFIRM_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class TakenOver:
    """Proof that no active broker sheds: the ``brokers`` asked, and the note to release (None: nothing changed)."""

    brokers: tuple[str, ...]
    note: TakeOverNote | None

    def __str__(self) -> str:
        state = f"in-broker shedding is off on all {len(self.brokers)} brokers"
        if self.note is None:
            return f"{state}; lbd changed nothing"
        return f"{state}, turned off by lbd; before: {_override_text(self.note.before)} (lbd release gives it back)"


class SheddingSwitch:
    """The dynamic override of ``loadBalancerSheddingEnabled``, and the note on it; one process at a time may use it."""

    def __init__(self, admin: Admin, path: Path, clock: ActClock, now: Callable[[], float]) -> None:
        self._admin = admin
        self._path = path
        self._clock = clock
        self._now = now
        self._brokers = ReadBack(admin, clock, SHEDDING_ENABLED)

    @property
    def note(self) -> TakeOverNote | None:
        """The take-over that is not released yet. Raises :class:`UsageError` when the note cannot be read."""
        return load(self._path)

    def take_over(self) -> TakenOver:
        """Turn shedding off on all brokers, and prove it on each.

        The previous override is noted once: a second take-over keeps the note, also when an operator meanwhile restored
        the override, or lbd was killed. Only an override that is neither lbd's nor the noted one replaces it, as the
        operator's newest wish (:meth:`TakeOverNote.owes`). If no broker sheds, or the override is ``false`` already,
        nothing is changed.

        Raises :class:`RefusedError` that names a broker that still sheds or cannot be asked, :class:`AdminError` when
        the override cannot be read or set; the note stays, and calling again goes on.
        """
        note = self._own_note()
        present = self._settled(note)
        running = {broker: runtime for broker, runtime in self._brokers.now().items() if not isinstance(runtime, str)}
        if note is None and (present == OFF or not any(map(sheds, running.values()))):
            return TakenOver(self._prove_off("overridden with false, not by lbd"), None)
        note = self._note_first(note, present, running)
        self._admin.set_dynamic(SHEDDING_ENABLED, OFF)
        brokers = self._prove_off("set to false by lbd on all brokers")
        note = self._save(replace(note, phase="taken", asked_at=self._now(), seen_at=self._now()))
        return TakenOver(brokers, note)

    def confirm_off(self) -> None:
        """Note that shedding is off on all brokers now, at most once a minute."""
        note = self.note
        if note is not None and note.phase == "taken" and not 0 <= self._now() - note.seen_at < CONFIRM_EVERY_SECONDS:
            self._save(replace(note, seen_at=self._now()))

    def release(self) -> str:
        """Restore the override from before lbd, prove it on each broker, and remove the note. Returns one sentence.

        An override that is not lbd's any more was changed by somebody else: it is left alone, and the note is removed.
        Raises :class:`ObserveError` when it cannot be done or proven now; the note stays, and calling again goes on.
        """
        note = self._own_note()
        if note is None:
            return nothing_taken(self._path)
        present = self._settled(note)
        if note.lbds(present):
            message = self._give_back(self._save(replace(note, phase="releasing", asked_at=self._now())))
        else:
            message = _remaining_note(note, present)
        remove(self._path)
        return message

    def _own_note(self) -> TakeOverNote | None:
        note = self.note
        if note is not None and note.cluster != self._admin.cluster:
            raise RefusedError(
                f"{self._path}: taken over from cluster {note.cluster!r}, and pulsar.admin_urls lead to "
                f"{self._admin.cluster!r}; run lbd release with the admin_urls of {note.cluster!r} first"
            )
        return note

    def _present(self) -> str | None:
        return self._admin.dynamic_configuration().get(SHEDDING_ENABLED)

    def _settled(self, note: TakeOverNote | None) -> str | None:
        """The present override, once a killed process's request is visible in it, or can no longer take effect."""
        present = self._present()
        while note is not None and note.awaits(present):
            remaining = note.asked_at + IN_FLIGHT_SECONDS - self._now()
            if not 0 < remaining <= IN_FLIGHT_SECONDS:
                break
            self._clock.sleep(min(remaining, IN_FLIGHT_PAUSE_SECONDS))
            present = self._present()
        return present

    def _note_first(
        self, note: TakeOverNote | None, present: str | None, running: Mapping[str, Mapping[str, str]]
    ) -> TakeOverNote:
        """The note that must be on disk before the override is set."""
        now = self._now()
        if note is None or not note.owes(present):
            ran = {broker: runtime.get(SHEDDING_ENABLED, ON) for broker, runtime in running.items()}
            return self._save(TakeOverNote(self._admin.cluster, "taking", present, ran, at=now, asked_at=now))
        off_since = note.at if note.phase == "taken" and present == OFF else now
        return self._save(replace(note, phase="taking", at=off_since, asked_at=now))

    def _save(self, note: TakeOverNote) -> TakeOverNote:
        save(self._path, note)
        return note

    def _prove_off(self, how: str) -> tuple[str, ...]:
        brokers, wrong = self._brokers.until(lambda _, runtime: not sheds(runtime))
        if wrong:
            raise RefusedError(f"in-broker shedding is not off: {wrong}, wanted false; it is {how}")
        return brokers

    def _give_back(self, note: TakeOverNote) -> str:
        if note.override_to_restore is not None:
            self._admin.set_dynamic(SHEDDING_ENABLED, note.override_to_restore)
            self._require_running(_parsed(note.override_to_restore))
        if note.before is not None:
            return f"Given back: {_override_text(note.before)} again, as before lbd."
        return self._delete_override(note)

    def _require_running(self, wanted: str) -> None:
        _, wrong = self._brokers.until(lambda _, runtime: runtime.get(SHEDDING_ENABLED) == wanted)
        if wrong:
            raise ObserveError(f"in-broker shedding is not given back: {wrong}, wanted {wanted}; {_AGAIN}")

    def _delete_override(self, note: TakeOverNote) -> str:
        self._admin.delete_dynamic(SHEDDING_ENABLED)
        present = self._present()
        if present is not None:
            raise ObserveError(
                f"in-broker shedding is not given back: {_override_text(present)}, wanted no override; {_AGAIN}"
            )
        _, other = self._brokers.until(
            lambda broker, runtime: note.ran.get(broker) in {None, runtime.get(SHEDDING_ENABLED)}
        )
        return (
            f"Given back: {_override_text(None)} again, as before lbd{other and f'; but {other}, unlike before lbd'}."
        )


_AGAIN = "run lbd release again"


def _parsed(value: str) -> str:
    """The effective value of an override: Java's ``Boolean.valueOf`` (measured for abc, TRUE, False)."""
    return ON if value.strip().lower() == ON else OFF


def nothing_taken(path: Path) -> str:
    """The message of a release without a note."""
    return f"Nothing to give back: lbd has not taken over in-broker shedding (there is no {path})."


def _remaining_note(note: TakeOverNote, present: str | None) -> str:
    if present == note.before:
        return f"Left as it is: {_override_text(present)}, as before lbd; the note on it is removed."
    change = f"{_override_text(present)}, changed by somebody else since lbd turned it off"
    return f"Left as it is: {change} (before lbd: {_override_text(note.before)}); the note on it is removed."


def _override_text(override: str | None) -> str:
    return f"{SHEDDING_ENABLED} " + ("has no override" if override is None else f"is overridden with {override}")
