"""The drains in force, as control files, and their progress: what must survive a kill -9.

::

    control/drains/<broker>.json   the broker is drained until it is released, the drain expires, or the broker restarts
    drains.json                    progress of the moves of each drain, and of the last fill

The first are orders, like a pause: written when a drain starts, removed when it ends, by whichever process ends it. The
second is written by the lbd that moves, and may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

import msgspec

from lbd.errors import UsageError
from lbd.files import At, as_usage_error, decoded, put, put_order, remove_order
from lbd.load.estimate import Carried

if TYPE_CHECKING:
    from pathlib import Path


FORMAT = 1


class Drain(msgspec.Struct, frozen=True):
    """A broker that is to own nothing. Times are epoch seconds; ``until`` is when the drain expires.

    ``started_at`` is when the broker had started, by its report: another start ends the drain; None where brokers do
    not tell (2.11). ``carried`` is what it carried when the drain began, nothing where its report does not show that
    yet. ``override`` is why holds may be passed, those that stood ``ordered_at``: when it was ordered last.
    ``respect_rest``: bundles that rest stay. ``rollout`` is the id of the rollout that it is a part of. ``since`` is 0
    (unknown) where the file cannot be read.
    """

    broker: str
    since: At
    until: At | None
    by: str
    reason: str = ""
    override: str | None = None
    started_at: At | None = None
    carried: Carried = Carried(0.0, 0.0, 0.0, 0)
    respect_rest: bool = False
    ordered_at: At = 0.0
    rollout: str = ""


class RemainingBundle(msgspec.Struct, frozen=True):
    """A bundle that stays, with the label of the reason and its details."""

    bundle: str
    reason: str
    detail: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How far a drain, or a fill, has come. Times are epoch seconds, ``ended_at`` None while it is under way.

    Of ``total`` bundles ``landed`` are where they should be, ``elsewhere`` on another broker that may have them, and
    ``failed`` have not moved, or nobody owns them. ``left`` are those that stay. ``held`` is what it waits for.
    ``request`` is the request that began it; empty where lbd moves bundles off again that came back. ``owned`` is the
    number of bundles that the broker reported to own at the end, without its own bundles and Pulsar's.
    """

    kind: Literal["drain", "fill"]
    broker: str
    request: str
    begun_at: At
    ended_at: At | None = None
    total: int = 0
    landed: int = 0
    elsewhere: int = 0
    failed: int = 0
    left: list[RemainingBundle] = []
    held: str = ""
    eta_seconds: At | None = None
    owned: int | None = None
    exit_code: int = 0
    sentence: str = ""

    @property
    def tried(self) -> int:
        """Moves that have ended."""
        return self.landed + self.elsewhere + self.failed

    @property
    def remaining(self) -> int | None:
        """Bundles still on a drained broker: while it is under way those to be moved, at its end those that it owns.

        None before the first look, and where the broker could not be asked at the end.
        """
        if self.ended_at is not None:
            return self.owned
        return self.total - self.landed - self.elsewhere if self.total else None


class DrainStatus(msgspec.Struct, frozen=True):
    """A drain in force, and how far it has come; ``work`` is null before its first look."""

    drain: Drain
    work: Work | None


class Works(msgspec.Struct, frozen=True):
    """``drains.json``: the last work on each drained broker, and the last fill."""

    format: int = FORMAT
    drains: dict[str, Work] = {}
    fill: Work | None = None

    def of(self, request: str) -> Work | None:
        """The work that a request began."""
        return next((one for one in (*self.drains.values(), self.fill) if one and one.request == request), None)


class Drains:
    """The drains of a state directory. Every method raises :class:`UsageError` for files that cannot be used."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._orders, self._works = state_dir / "control" / "drains", state_dir / "drains.json"

    def begin(self, drain: Drain) -> None:
        """Write the order, which survives restarts of lbd."""
        put_order(self._state_dir, self._file(drain.broker), drain)

    def release(self, broker: str) -> Drain | None:
        """End a drain; returns its order, even if expired. Moved bundles stay where they are."""
        path = self._file(broker)
        drain = self._read(path)
        if drain is not None:
            remove_order(path)
        return drain

    def all(self) -> list[Drain]:
        """All orders, those that have expired among them. When in doubt a broker is drained: files may be broken."""
        with as_usage_error(self._orders):
            paths = sorted(self._orders.glob("*.json")) if self._orders.is_dir() else []
        return [drain for drain in map(self._read, paths) if drain is not None]

    def in_force(self, now: float) -> dict[str, Drain]:
        """The drains that have not expired, by broker."""
        return {drain.broker: drain for drain in self.all() if drain.until is None or now < drain.until}

    def works(self) -> Works:
        """The progress of drains and fill; empty if none is saved. Raises :class:`UsageError` if it cannot be read."""
        try:
            works = decoded(self._works, Works)
        except UsageError as error:
            raise UsageError(f"{error}; remove it, and only how far drains have come is forgotten") from error
        return works if works is not None and works.format == FORMAT else Works()

    def save(self, works: Works) -> None:
        """Replace the saved progress at once or not at all; only the holder of the state directory may."""
        put(self._works, works)

    def _file(self, broker: str) -> Path:
        return self._orders / f"{quote(broker, safe=':')}.json"

    @staticmethod
    def _read(path: Path) -> Drain | None:
        try:
            return decoded(path, Drain)
        except UsageError as error:
            return Drain(unquote(path.stem), 0.0, None, "unknown", f"{error}; lbd drain --release removes it")


def drains_in_force(state_dir: Path, now: float) -> list[tuple[Drain, Work | None]]:
    """The drains in force, each with its last progress. Raises :class:`UsageError` as :class:`Drains` does."""
    drains = Drains(state_dir)
    works = drains.works().drains
    return [(drain, works.get(broker)) for broker, drain in drains.in_force(now).items()]
