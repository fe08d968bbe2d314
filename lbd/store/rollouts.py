"""The rollout under way, as a control file, and the last one that ended: what must survive a kill -9.

::

    control/rollout.json   brokers are restarted one after the other: how far that is, from the order to its end
    rollout.json           the result of the last one

The first is an order, like a drain: the lbd that leads goes on with it, whichever that is, and removes it at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.errors import UsageError
from lbd.files import At, decoded, put, put_order, remove_order

if TYPE_CHECKING:
    from pathlib import Path


class SplittingBefore(msgspec.Struct, frozen=True):
    """The dynamic override of automatic splitting that lbd owes the operator; None where there was none."""

    override: str | None


Phase: TypeAlias = Literal["drain", "restart", "fill", "ended"]


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of ``brokers``, one after the other. Times are epoch seconds.

    ``members`` were active when it began, and have to stay, but for the one at work. ``broker`` is at work, in this
    ``phase`` since ``phase_at``: drained, to be restarted, or filled, which comes last. ``begun``: the drain of this
    phase was ordered, and after a failure ``tries`` times once more. ``started_at`` is when the broker had started,
    None where it does not tell (2.11); ``gone_at`` is when it was first seen to be gone, or started anew. It has to be
    back ``timeout_seconds`` later; with ``executes`` a command restarts it, and the time counts from the hand-over.
    ``done`` were restarted. ``stopping`` is why it is to be stopped, ``waits`` what it waits for. ``splitting`` is what
    is to be given back at the end, None where lbd changed nothing.
    """

    id: str
    brokers: tuple[str, ...]
    members: tuple[str, ...]
    by: str
    begun_at: At
    phase_at: At
    broker: str
    timeout_seconds: At
    executes: bool = False
    reason: str = ""
    phase: Phase = "drain"
    begun: bool = False
    tries: int = 0
    started_at: At | None = None
    gone_at: At | None = None
    done: tuple[str, ...] = ()
    stopping: str = ""
    waits: str = ""
    splitting: SplittingBefore | None = None
    ended_at: At | None = None
    exit_code: int = 0
    sentence: str = ""

    @property
    def summary(self) -> str:
        """How far it is, in one sentence."""
        if self.ended_at is not None:
            return self.sentence
        doing = {
            "drain": f"{self.broker} is being drained",
            "restart": f"{self.broker} owns nothing and is to be restarted",
            "fill": f"all are restarted, {self.broker} is being filled",
            "ended": "it is over",
        }[self.phase]
        if self.phase == "restart" and self.gone_at is not None:
            doing = f"{self.broker} is restarted, and not ready yet"
        waits = f"; it waits: {self.waits}" if self.waits else ""
        return f"rollout, {len(self.done)} of {len(self.brokers)} brokers restarted: {doing}{waits}"


class Rollouts:
    """The rollout of a state directory. Every method raises :class:`~lbd.errors.UsageError` for files without use."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._order, self._last = state_dir / "control" / "rollout.json", state_dir / "rollout.json"

    def under_way(self) -> Rollout | None:
        """The rollout under way."""
        try:
            return decoded(self._order, Rollout)
        except UsageError as error:
            raise UsageError(
                f"{error}; remove it, and the rollout is over: release its drain, if there is one"
            ) from error

    def last(self) -> Rollout | None:
        """The rollout under way, else the last one that ended here."""
        return self.under_way() or decoded(self._last, Rollout)

    def save(self, rollout: Rollout) -> None:
        """Write the order with its progress, which survives restarts of lbd."""
        put_order(self._state_dir, self._order, rollout)

    def end(self, rollout: Rollout) -> None:
        """End the rollout, and save its result."""
        put(self._last, rollout)
        self.forget()

    def forget(self) -> None:
        """Remove the order: no rollout is under way."""
        remove_order(self._order)
