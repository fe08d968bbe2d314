"""What is kept of each turn beside counters and moves: its record for ``lbd explain``, history, and the watchdog's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.cycle.keeping import bundles_of, kept
from lbd.cycle.watchdog import Watch, watch
from lbd.daemon.historian import Historian
from lbd.daemon.own_shedder import own_shedder
from lbd.errors import told
from lbd.record.turns import FOLDER, Turns
from lbd.record.turns.bundles import save_bundles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.cycle.watchdog import Alarm, Key

BUNDLES_EVERY_SECONDS = 60.0
"""They are as large as the averages, and owners change by lbd's own moves, which the journal tells."""

AGAIN_SECONDS = 4 * 3600.0
"""An alarm that lasts is told again so often."""


class Keeper:
    """Keeps each turn, and follows what the watchdog says of them. Nothing here raises."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.state_dir / FOLDER
        self._turns = Turns(settings.state_dir, settings.turns.max_bytes)
        self._historian = Historian(settings)
        self._watch = Watch()
        self._bundles_at = 0.0
        self._trouble = ""
        self.alarms: tuple[Alarm, ...] = ()

    def keep(self, record: CycleRecord, now: float) -> CycleRecord:
        """Keep a turn that ended at ``now`` (epoch seconds); returns it with its number."""
        try:
            self._watch, self.alarms = watch(self._watch, record, own_shedder(record))
            number = self._turns.keep(kept(record, now))
            self._keep_bundles(record)
        except Exception as error:  # noqa: BLE001 - the turn has acted: what is only told of it must not end the daemon
            self._trouble = f"this turn is not kept: {told(error)}"
            return record
        numbered = replace(record, number=number)
        self._historian.keep(numbered)
        return numbered

    def take(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._turns.max_bytes = settings.turns.max_bytes
        self._historian.take(settings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know: alarms, and what could not be kept."""
        own = tuple(trouble for trouble in (self._turns.trouble, self._trouble) if trouble)
        return (*(alarm.text for alarm in self.alarms), *own, *self._historian.warnings)

    def close(self) -> None:
        """Close what was opened."""
        self._turns.close()
        self._historian.close()

    def _keep_bundles(self, record: CycleRecord) -> None:
        found = bundles_of(record)
        if found is None or (0 <= found.at - self._bundles_at < BUNDLES_EVERY_SECONDS and not _told_why(record)):
            return
        try:
            save_bundles(self._folder, found)
        except OSError as error:
            self._trouble = f"{self._folder}: owners of bundles are not kept: {error.strerror or error}"
        else:
            self._bundles_at, self._trouble = found.at, ""


def _told_why(record: CycleRecord) -> bool:
    """Whether bundles have moved, or been judged, since: then what was kept of them is no longer so."""
    fired = record.decision is not None and any(pair.fired for pair in record.decision.facts.pairs)
    return fired or bool(record.outcomes)


class Telling:
    """Which alarms are news: they are told when they begin, at a slow pace while they last, and when they end."""

    def __init__(self) -> None:
        self._told: dict[Key, tuple[Alarm, float]] = {}

    def news(self, alarms: tuple[Alarm, ...], now: float) -> Iterator[tuple[str, Alarm]]:
        """``begins``, ``lasts`` or ``ended``, with the alarm. ``now`` is monotonic seconds."""
        for alarm in alarms:
            before = self._told.get(alarm.key)
            if before is None or now - before[1] >= AGAIN_SECONDS:
                self._told[alarm.key] = alarm, now
                yield ("begins" if before is None else "lasts"), alarm
        for key in self._told.keys() - {alarm.key for alarm in alarms}:
            yield "ended", self._told.pop(key)[0]
