"""A dynamic setting that lbd overrides on all brokers for a time: intent, act, read back, release.

To override and to restore take two steps each, and a kill or a failing request may come between any two. So a note on
the previous state is on disk before any change, and is dropped only when that state was read back from the brokers.
Every step can be repeated. Take-over of shedding, and a rollout, which stops splitting, use it; each stores its own
note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.errors import AdminError, ObserveError, RefusedError
from lbd.pulsar.override_note import OFF, ON, OverrideNote, override_text
from lbd.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.act.ownership import ActClock
    from lbd.pulsar.admin import Admin


# --- effective settings, read from each broker: the only proof that a dynamic setting was accepted

PATIENCE_SECONDS = 5.0
"""Time for brokers to adopt a stored override: 16-80 ms (2.11.0 to 5.0.0-M1, three brokers)."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


class ReadBack:
    """Reads one setting's effective value from all active brokers at the same time."""

    def __init__(self, admin: Admin, clock: ActClock, key: str) -> None:
        self._admin = admin
        self._clock = clock
        self._key = key
        self._pool = Threads(admin.settings.concurrency, "lbd-read-back")

    def now(self) -> dict[str, Mapping[str, str] | str]:
        """Effective configuration of each active broker, or the reason why it cannot be read."""
        brokers = self._admin.active_brokers()
        return dict(zip(brokers, self._pool.map(self._configuration, brokers), strict=True))

    def _configuration(self, broker: str) -> Mapping[str, str] | str:
        try:
            return self._admin.runtime_configuration(broker)
        except AdminError as error:
            return str(error)

    def until(self, holds: Callable[[str, Mapping[str, str]], bool]) -> tuple[tuple[str, ...], str]:
        """All active brokers, and a message on those for which ``holds`` is still false after some seconds."""
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


# --- the override itself


class SettingSwitch:
    """The override of one setting, turned off and restored. ``name`` is for messages, ``again`` the advice on failure.

    Errors leave the note to its owner: an unproven change is to be tried again.
    """

    def __init__(self, admin: Admin, clock: ActClock, key: str, *, name: str, again: str) -> None:
        self._admin, self._key, self._name, self._again = admin, key, name, again
        self.brokers = ReadBack(admin, clock, key)

    def present(self) -> str | None:
        """The present override. Raises :class:`AdminError`."""
        return self._admin.dynamic_configuration().get(self._key)

    def running(self) -> dict[str, Mapping[str, str]]:
        """Configuration of each broker that gives it."""
        return {broker: runtime for broker, runtime in self.brokers.now().items() if not isinstance(runtime, str)}

    def note(self, present: str | None, running: Mapping[str, Mapping[str, str]]) -> OverrideNote:
        """The note that must be on disk before the override is set."""
        ran = {broker: runtime.get(self._key, ON) for broker, runtime in running.items()}
        return OverrideNote(phase="taking", before=present, ran=ran)

    def turn_off(self, is_on: Callable[[Mapping[str, str]], bool]) -> tuple[str, ...]:
        """Set the override, and prove it on each broker; see :meth:`prove_off`."""
        self._admin.set_dynamic(self._key, OFF)
        return self.prove_off(is_on, "set to false by lbd on all brokers")

    def prove_off(self, is_on: Callable[[Mapping[str, str]], bool], how: str) -> tuple[str, ...]:
        """The brokers, once none has it on. Raises :class:`RefusedError` naming one that has it on, or is silent."""
        brokers, wrong = self.brokers.until(lambda _, runtime: not is_on(runtime))
        if wrong:
            raise RefusedError(f"{self._name} is not off: {wrong}, wanted false; it is {how}")
        return brokers

    def give_back(self, note: OverrideNote) -> str:
        """Restore the previous state, and prove it; the note says ``releasing`` by now. Returns one sentence.

        Raises :class:`ObserveError` where it cannot be done or proven now; another call continues.
        """
        if note.override_to_restore is not None:
            self._admin.set_dynamic(self._key, note.override_to_restore)
            self._require_running(_parsed(note.override_to_restore))
        if note.before is not None:
            return f"Given back: {self._text(note.before)} again, as before lbd."
        return self._delete(note)

    def _text(self, override: str | None) -> str:
        return override_text(self._key, override)

    def _require_running(self, value: str) -> None:
        _, wrong = self.brokers.until(lambda _, runtime: runtime.get(self._key) == value)
        if wrong:
            raise ObserveError(f"{self._name} is not given back: {wrong}, wanted {value}; {self._again}")

    def _delete(self, note: OverrideNote) -> str:
        self._admin.delete_dynamic(self._key)
        present = self.present()
        if present is not None:
            raise ObserveError(
                f"{self._name} is not given back: {self._text(present)}, wanted no override; {self._again}"
            )
        _, other = self.brokers.until(lambda broker, runtime: note.ran.get(broker) in {None, runtime.get(self._key)})
        return f"Given back: {self._text(None)} again, as before lbd{other and f'; but {other}, unlike before lbd'}."


def _parsed(value: str) -> str:
    """The effective value of an override: Java's ``Boolean.valueOf`` (measured for abc, TRUE, False)."""
    return ON if value.strip().lower() == ON else OFF
