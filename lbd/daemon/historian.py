"""Writes history in a thread of its own: no turn waits for a disk, and none ends because of one."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING

from lbd.cycle.chosen import effective
from lbd.cycle.rounds import round_of
from lbd.errors import told
from lbd.record.history import FOLDER

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.record.history.writer import Writer

WAITING_ROUNDS = 8
"""Rounds that may wait for the disk; a round of 65,000 bundles is some 10 MB."""

SHARE = 0.01
"""Of its own time on a processor history may take so much of the time that passes."""

ALLOWANCE_SECONDS = 5.0
"""Beside its share: libraries are loaded at the start."""

STOP_SECONDS = 10.0
"""A stop waits so long for what is still to be written."""


class Historian:
    """Keeps rounds of turns while ``settings.history.enabled``. Nothing here raises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = settings.state_dir / FOLDER
        self._turns: Queue[tuple[CycleRecord, Settings] | None] = Queue(WAITING_ROUNDS)
        self._thread: Thread | None = None
        self._written = _Written()
        self._behind = 0

    def keep(self, record: CycleRecord) -> None:
        """Hand a turn over; one for which there is no room is lost, and counted."""
        if not self._settings.history.enabled:
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, name="history", daemon=True)
            self._thread.start()
        try:
            self._turns.put_nowait((record, self._settings))
        except Full:
            self._behind += 1

    def take(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._settings = settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know."""
        found = self._written
        return tuple(
            text
            for count, text in (
                (found.trouble, found.trouble),
                (found.lost, f"{self._root}: {found.lost:,} rounds could not be written and are lost"),
                (found.torn, f"{self._root}/torn: {found.torn} files that a kill or a disk tore were set aside"),
                (self._behind, f"{self._root}: {self._behind:,} rounds were not kept: the disk is too slow"),
                (
                    found.left_out,
                    f"{self._root}: {found.left_out:,} rounds were left out: history took over {SHARE:.0%}",
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
        from lbd.record.history.writer import Writer  # noqa: PLC0415 - pyarrow is loaded where it is needed, beside turns

        writer, begun = Writer(self._root, self._settings.history), time.monotonic()
        while (found := self._turns.get()) is not None:
            if time.thread_time() > SHARE * (time.monotonic() - begun) + ALLOWANCE_SECONDS:
                self._written.left_out += 1
                continue
            try:
                _keep(writer, *found)
            except Exception as error:  # noqa: BLE001 - a bug here must not end the daemon; it is told
                self._written.trouble = f"{self._root}: a round is not kept: {told(error)}"
            else:
                self._written.take(writer)
        writer.flush()
        self._written.take(writer)


class _Written:
    """What the thread says of its work."""

    trouble, lost, torn, left_out = "", 0, 0, 0

    def take(self, writer: Writer) -> None:
        self.trouble, self.lost, self.torn = writer.trouble, writer.lost, writer.torn


def _keep(writer: Writer, record: CycleRecord, settings: Settings) -> None:
    """Under the settings that the turn was made with."""
    writer.settings = settings.history
    found = round_of(record, settings.strategy, effective(settings).model_dump_json())
    if found is not None:
        writer.add(found)
