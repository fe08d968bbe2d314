"""Records of each turn beside counters and moves: the kept turn for ``lbd explain``, history, and the watchdog's.

The watchdog asks whether the brokers' own shedder should have acted: its rule, with its settings, on lbd's data.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from queue import Full, Queue
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.errors import ThreadError, UsageError, as_lbd_error
from lbd.load.scoring import Weights
from lbd.model import Memory
from lbd.operations.from_broker import from_broker_conf
from lbd.pulsar.broker_configuration import minutes, shedder_class
from lbd.reason import Group, Reason
from lbd.store.history_round import HISTORY_FOLDER
from lbd.store.turns import Turns, load_bundles, save_bundles
from lbd.threads import begin
from lbd.turn.record import history_round, reported_bundles, turn_record
from lbd.turn.unmatched import unmatched
from lbd.turn.watchdog import OwnShedder, WatchdogMemory, watch

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.model import Decision, Permission, Snapshot
    from lbd.permit.evidence import Evidence
    from lbd.store.history import HistoryWriter
    from lbd.turn.parts import TurnResult
    from lbd.turn.watchdog import Alarm, Key


KNOWN = "AvgShedder"
INTERVAL_KEY = "loadBalancerSheddingIntervalMinutes"
SPARE_ROUNDS = 2
"""Rounds beyond its hit count that a leader is given: its samples are not lbd's."""


def own_shedder(record: TurnResult) -> OwnShedder | None:
    """The brokers' shedder and the brokers it should unload now; None where it is off, or the turn decided nothing.

    Only AvgShedder's rule is computed. Another shedder is returned with its name alone.
    """
    observation, decision, facts = record.observation, record.plan.decision, record.facts
    if observation is None or decision is None or facts is None or not observation.shedding_on:
        return None
    name = shedder_class(observation.shedder) or "a shedder that is not named"
    if name != KNOWN:
        return OwnShedder(name)
    converted = from_broker_conf(observation.shedder, stock=True).settings
    settings = AvgShedderSettings.model_validate(converted.get("avg_shedder", {})).stock()
    weights = Weights.model_validate(converted.get("weights", {}))
    snapshot = observation.snapshot.as_reported()
    allowed = _allowed(snapshot, decision, facts.evidence)
    answer = build(settings.eager(), weights)(snapshot, facts.averages, allowed, Memory())
    rounds = settings.hit_count_low + SPARE_ROUNDS
    return OwnShedder(name, _sources(answer), rounds * 60.0 * minutes(observation.shedder, INTERVAL_KEY))


def _allowed(snapshot: Snapshot, decision: Decision, evidence: Evidence) -> Permission:
    """Every broker that gives a usable report, and bundles that no policy, nor lbd's doubt in their numbers, bars."""
    free = [reason.code for reason in Reason if reason.group is Group.NORMAL]
    codes = np.where(np.isin(decision.verdicts, free), np.int8(0), decision.verdicts).astype(np.int8)
    everyone = np.ones(len(snapshot.brokers), dtype=np.bool_)
    return replace(evidence.permission(codes), counts=everyone, settled=everyone)


def _sources(answer: Decision) -> dict[str, str]:
    """The brokers that would give bundles, with how far they are from their partners."""
    apart = {pair.source: f"{pair.difference:.1f} points above {pair.destination}" for pair in answer.comparison.pairs}
    return {unload.source: apart[unload.source] for unload in answer.unloads}


# --- history, written in a thread of its own: no turn waits for a disk, and none fails because of one

WAITING_ROUNDS = 8
"""Rounds that may wait for the disk; a round of 65,000 bundles is some 10 MB."""

SHARE = 0.01
"""Share of the elapsed time that history may use of a processor."""

ALLOWANCE_SECONDS = 5.0
"""Beside its share: libraries are loaded at the start."""

STOP_SECONDS = 10.0
"""Longest wait of a stop for rounds that are still to be written."""


class Historian:
    """Keeps rounds of turns while ``settings.history.enabled``. Nothing here raises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = settings.state_dir / HISTORY_FOLDER
        self._turns: Queue[tuple[TurnResult, Settings] | None] = Queue(WAITING_ROUNDS)
        self._thread: threading.Thread | None = None
        self._written = _Written()
        try:
            self._before = load_bundles(settings.state_dir) if settings.history.enabled else None
        except UsageError as error:
            self._before, self._written.trouble = None, str(error)
        self._behind = 0

    def keep(self, record: TurnResult) -> None:
        """Hand a turn over; one for which there is no room is lost, and counted."""
        if not self._settings.history.enabled:
            return
        try:
            self._thread = self._thread or begin(self._work, "history")
            self._turns.put_nowait((record, self._settings))
        except Full:
            self._behind += 1
        except ThreadError as error:  # the next turn tries again to start the thread
            self._written.trouble = f"{self._root}: a round is not kept: {error}"

    def take(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._settings = settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """Troubles of the history, a sentence each."""
        written = self._written
        return tuple(
            text
            for count, text in (
                (written.trouble, written.trouble),
                (written.lost, f"{self._root}: {written.lost:,} rounds could not be written and are lost"),
                (written.torn, f"{self._root}/torn: {written.torn} files that a kill or a disk tore were set aside"),
                (self._behind, f"{self._root}: {self._behind:,} rounds were not kept: the disk is too slow"),
                (
                    written.left_out,
                    f"{self._root}: {written.left_out:,} rounds were left out: history took over {SHARE:.0%}",
                ),
            )
            if count
        )

    def close(self) -> None:
        """Write what waits; a disk that answers nothing is not waited for any longer than ``STOP_SECONDS``."""
        if self._thread is not None:
            with suppress(Full):
                self._turns.put(None, timeout=STOP_SECONDS)
                self._thread.join(STOP_SECONDS)
            self._thread = None

    def _work(self) -> None:
        """Until it is closed: one turn after the other, within its share of time."""
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own pools keep tens of MB for the next file
        from lbd.store.history import HistoryWriter as Writer  # noqa: PLC0415 - pyarrow is loaded where it is needed, beside turns

        writer, started_at = Writer(self._root, self._settings.history), time.monotonic()
        if self._before is not None:
            writer.begin_after(self._before.brokers, self._before.bundles, self._before.owner)
        while (queued := self._turns.get()) is not None:
            if time.thread_time() > SHARE * (time.monotonic() - started_at) + ALLOWANCE_SECONDS:
                self._written.left_out += 1
                continue
            try:
                _keep(writer, *queued)
            except Exception as error:  # noqa: BLE001 - a bug here must not end the daemon; a warning says so
                self._written.trouble = f"{self._root}: a round is not kept: {as_lbd_error(error)}"
            else:
                self._written.take(writer)
        writer.flush()
        self._written.take(writer)


class _Written:
    """Trouble of the thread, with its lost rounds, torn files and rounds left out."""

    trouble, lost, torn, left_out = "", 0, 0, 0

    def take(self, writer: HistoryWriter) -> None:
        self.trouble, self.lost, self.torn = writer.trouble, writer.lost, writer.torn


def _keep(writer: HistoryWriter, record: TurnResult, settings: Settings) -> None:
    """Under the settings that the turn was made with."""
    writer.settings = settings.history
    one_round = history_round(record, settings)
    if one_round is not None:
        writer.add(one_round)


# --- recorder

BUNDLES_EVERY_SECONDS = 60.0
"""They are as large as the averages, and owners change by lbd's own moves, which the journal tells."""

AGAIN_SECONDS = 4 * 3600.0
"""Time between two reports of an alarm that lasts."""


class Keeper:
    """Keeps each turn, and follows what the watchdog says of them. Nothing here raises."""

    def __init__(self, settings: Settings) -> None:
        self._state_dir, self._settings = settings.state_dir, settings
        self._turns = Turns(settings.state_dir)
        self._historian = Historian(settings)
        self._watch = WatchdogMemory()
        self._bundles_at = 0.0
        self._trouble = ""
        self.alarms: tuple[Alarm, ...] = ()

    def keep(self, record: TurnResult, now: float) -> TurnResult:
        """Keep a turn that ended at ``now`` (epoch seconds); returns it with its number."""
        try:
            self._watch, self.alarms = watch(self._watch, record, own_shedder(record), self._unmatched(record))
            number = self._turns.keep(turn_record(record, now))
            self._keep_bundles(record)
        except Exception as error:  # noqa: BLE001 - the turn has acted: its record must not end the daemon
            self._trouble = f"this turn is not kept: {as_lbd_error(error)}"
            return record
        numbered = replace(record, number=number)
        self._historian.keep(numbered)
        return numbered

    def take(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._settings = settings
        self._historian.take(settings)

    def _unmatched(self, record: TurnResult) -> dict[str, str]:
        if record.observation is None:
            return {}
        namespaces, brokers = record.observation.snapshot.namespaces.names, record.observation.active
        return {setting.key: setting.text for setting in unmatched(self._settings, namespaces, brokers)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for people: alarms, and records that could not be kept."""
        own = tuple(trouble for trouble in (self._turns.trouble, self._trouble) if trouble)
        return (*(alarm.text for alarm in self.alarms), *own, *self._historian.warnings)

    def close(self) -> None:
        """Close what was opened."""
        self._historian.close()

    def _keep_bundles(self, record: TurnResult) -> None:
        reported = reported_bundles(record)
        if reported is None or (
            0 <= reported.at - self._bundles_at < BUNDLES_EVERY_SECONDS and not _record_is_current(record)
        ):
            return
        try:
            save_bundles(self._state_dir, reported)
        except UsageError as error:
            self._trouble = f"{error}; owners of bundles are not kept"
        else:
            self._bundles_at, self._trouble = reported.at, ""


def _record_is_current(record: TurnResult) -> bool:
    """Whether bundles have moved, or been judged, since: then what was kept of them is no longer so."""
    fired = any(pair.fired for pair in record.plan.pairs)
    return fired or bool(record.moves.outcomes)


class AlarmLog:
    """Selects the alarms to report: when they begin, at a slow pace while they last, and when they end."""

    def __init__(self) -> None:
        self._reported: dict[Key, tuple[Alarm, float]] = {}

    def news(self, alarms: tuple[Alarm, ...], now: float) -> Iterator[tuple[str, Alarm]]:
        """``begins``, ``lasts`` or ``ended``, with the alarm. ``now`` is monotonic seconds."""
        for alarm in alarms:
            before = self._reported.get(alarm.key)
            if before is None or now - before[1] >= AGAIN_SECONDS:
                self._reported[alarm.key] = alarm, now
                yield ("begins" if before is None else "lasts"), alarm
        for key in self._reported.keys() - {alarm.key for alarm in alarms}:
            yield "ended", self._reported.pop(key)[0]
