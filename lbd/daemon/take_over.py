"""``in_broker_shedding: take-over`` in the loop: shedding that is on is turned off before a turn may move."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.act.broker_shedding import SheddingSwitch, nothing_taken
from lbd.act.ownership import ActClock
from lbd.errors import LbdError, RefusedError
from lbd.pulsar.admin import Admin
from lbd.store.state import KeptTakeOver, StateDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.observe.observer import Observation
    from lbd.turn.parts import RoundSource


ELSEWHERE = " Of several lbds the one that led then has the note: run lbd release on its machine."


def shedding_switch(settings: Settings, admin: Admin, now: Callable[[], float] = time.time) -> SheddingSwitch:
    """The switch whose note is in the state directory; that must be locked while it is used."""
    return SheddingSwitch(admin, KeptTakeOver(settings.state_dir), ActClock(time.monotonic, time.sleep), now)


def watching(
    settings: Settings,
    observer: RoundSource,
    admin: Admin,
    now: Callable[[], float] = time.time,
    may: Callable[[], bool] = lambda: True,
) -> RoundSource:
    """The observer that ``in_broker_shedding`` asks for; ``may``: whether it may change anything now."""
    taking = settings.in_broker_shedding == "take-over"
    return TakingOver(observer, shedding_switch(settings, admin, now), may) if taking else observer


class TakingOver:
    """An observer that turns the brokers' own shedding off wherever it sees it on."""

    def __init__(self, observer: RoundSource, switch: SheddingSwitch, may: Callable[[], bool] = lambda: True) -> None:
        self._observer, self._switch, self._may = observer, switch, may

    def observe(self) -> Observation:
        """One round. Where shedding is on, or a take-over is unfinished, it is taken over and a second round is had.

        A take-over that fails is reported in ``shedding_note``, and ``shedding_on`` keeps the turn from moving.
        """
        observation = self._observer.observe()
        try:
            if not (self._may() and self._wanted(observation)):
                return observation
            self._switch.take_over()
        except LbdError as error:
            doubtful = observation.shedding_on or tuple(observation.missing) or observation.active
            return replace(observation, shedding_on=doubtful, shedding_note=f"take-over failed: {error}")
        return self._observer.observe()

    def _wanted(self, observation: Observation) -> bool:
        note = self._switch.note
        if observation.shedding_on or (note is not None and note.phase != "taken"):
            return True
        if not observation.missing:
            self._switch.confirm_off()
        return False


def release(settings: Settings) -> str:
    """``lbd release``: give shedding back while no lbd runs. One sentence on what was done.

    Raises :class:`RefusedError` when another lbd holds the state directory: it would take over again.
    """
    stored_note = KeptTakeOver(settings.state_dir)
    noted = stored_note.load() is not None
    elsewhere = ELSEWHERE if settings.leader.enabled and not noted else ""
    if not noted and (settings.in_broker_shedding == "refuse" or not settings.state_dir.is_dir()):
        return f"{nothing_taken(stored_note.place)}{elsewhere}"
    with ExitStack() as held:
        try:
            held.enter_context(StateDir(settings.state_dir).locked())
        except RefusedError as error:
            raise RefusedError(f"{error}; stop it before lbd release, or it takes over again") from error
        return f"{shedding_switch(settings, Admin(settings.pulsar)).release()}{elsewhere}"


def release_at_stop(settings: Settings, admin: Admin, now: Callable[[], float] = time.time) -> str:
    """The same at a plain stop of a daemon, which holds the lock itself; empty where ``restore_on_stop`` is not set."""
    restores = settings.restore_on_stop and settings.in_broker_shedding == "take-over"
    return shedding_switch(settings, admin, now).release() if restores else ""
