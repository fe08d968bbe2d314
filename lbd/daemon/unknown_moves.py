"""Moves that lbd's own state does not know of, as after the restore of an old backup: then everything rests.

A store that was restored knows neither the rests nor the budgets nor the open moves since its backup, and brings back
orders that have ended. Nothing in it says so, but the cluster does: bundles have other owners than this lbd saw last,
and no move of its journal and no restart of a broker explains that. The same holds where others moved bundles while
lbd was away. Either way these bundles have just been moved, nobody here knows when, and lbd rests as long as each of
them would: ``guardrails.cool_down_minutes``, or until a person resumes it.
"""

from __future__ import annotations

import threading
import zlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.errors import UsageError
from lbd.files import At
from lbd.permit.evidence import ReportedOwners, compare_owners, unexplained
from lbd.reason import Reason
from lbd.store.database import value, writing
from lbd.store.journal_lines import Up
from lbd.store.moves import Now
from lbd.text import counted, utc
from lbd.turn.assess import UNREPORTED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lbd.clock import Moment
    from lbd.model import Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.facts import Hold
    from lbd.turn.parts import RoundSource

# --- the owners of all bundles as they were last seen: they are restored with the journal, which must explain them


class UnknownMoves(msgspec.Struct, frozen=True):
    """Bundles with other owners than lbd saw last, at ``since``, which no restart of a broker explains.

    ``noticed_at`` is when that was noticed; both are epoch seconds. ``hands`` has their former owner and the present
    one. The journal may explain them: where several lbds share a cluster it learns later of what others moved.
    """

    noticed_at: At
    since: At
    hands: dict[str, tuple[str, str]]
    boot: str = ""
    up: Up = None

    def shown_at(self, now: float, moment: Moment | None) -> float:
        """When it was noticed, as the clock that is set now would have shown it, within the same boot."""
        if moment is None or self.up is None or moment.boot != self.boot:
            return self.noticed_at
        return Now(now, moment.up).shown(self.noticed_at, self.up)


OWNERS, UNKNOWN_MOVES = "owners", "unknown-moves"
"""Their names in the store."""


class _Owners(msgspec.Struct, frozen=True):
    seen_at: float
    bundles: list[str]
    brokers: tuple[str, ...]
    owner: bytes


_DECODER = msgspec.msgpack.Decoder(_Owners)


class KeptOwners:
    """The owners in a store, and what was noticed by them. Every method raises :class:`UsageError`."""

    def __init__(self, path: Path) -> None:
        """``path`` is that of the store; only the holder of the state directory may."""
        self._path = path

    def load(self) -> ReportedOwners | None:
        """The owners that were saved last; None where there are none."""
        content = value(self._path, OWNERS)
        if content is None:
            return None
        try:
            past = _DECODER.decode(zlib.decompress(content))
            owner = np.frombuffer(past.owner, dtype="<i4").astype(np.int32)
        except (zlib.error, msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"{self._path}: the owners of bundles cannot be read: {error}") from error
        if owner.size != len(past.bundles) or (owner.size and not 0 <= owner.min() <= owner.max() < len(past.brokers)):
            raise UsageError(f"{self._path}: the owners of bundles cannot be read: columns of unlike length")
        return ReportedOwners(past.bundles, past.brokers, owner, seen_at=past.seen_at)

    def save(self, owners: ReportedOwners) -> None:
        """Replace the owners."""
        columns = owners.seen_at, owners.bundles, owners.brokers, owners.owner.astype("<i4").tobytes()
        with writing(self._path) as store:
            store.put({OWNERS: zlib.compress(msgspec.msgpack.encode(_Owners(*columns)), 1)})

    def noticed(self) -> UnknownMoves | None:
        """The unknown moves that were noticed last; None where there are none."""
        content = value(self._path, UNKNOWN_MOVES)
        try:
            return msgspec.json.decode(content, type=UnknownMoves) if content is not None else None
        except msgspec.MsgspecError as error:
            raise UsageError(f"{self._path}: what was noticed of unknown moves cannot be read: {error}") from error

    def notice(self, moves: UnknownMoves) -> None:
        """Replace what was noticed."""
        with writing(self._path) as store:
            store.put({UNKNOWN_MOVES: msgspec.json.encode(moves)})


# --- the watch

SAVED_EVERY_SECONDS = 60.0


class UnknownMovesWatch:
    """Compares the first round of this process with the last one of the store, and keeps the owners of later rounds.

    Thread-safe. A file that cannot be read or written is a warning (``trouble``), and no hold.
    """

    def __init__(
        self,
        owners: KeptOwners,
        attempted_at: Callable[[], Mapping[str, float]],
        gap_seconds: Callable[[], float],
        rest_seconds: Callable[[], float],
        resumed_at: Callable[[], float],
        boot: Callable[[], Moment | None] = lambda: None,
    ) -> None:
        """After a gap of ``gap_seconds`` at most nothing was restored. ``resumed_at`` is when a person resumed lbd."""
        self._owners, self._attempted_at = owners, attempted_at
        self._gap_seconds, self._rest_seconds, self._resumed_at = gap_seconds, rest_seconds, resumed_at
        self._boot, self._lock = boot, threading.Lock()
        self._latest: Snapshot | None = None
        self._saved_at = float("-inf")
        self.before: ReportedOwners | None = None
        self._noticed: UnknownMoves | None = None
        self.trouble = ""
        try:
            self.before, self._noticed = owners.load(), owners.noticed()
        except UsageError as error:
            self.trouble = str(error)

    def saw(self, snapshot: Snapshot) -> None:
        """A round, in the order of time; the first one is compared."""
        with self._lock:
            if self._latest is None and self.before is not None:
                self._compare(self.before, snapshot)
            self._latest = snapshot
            if not 0 <= snapshot.taken_at - self._saved_at < SAVED_EVERY_SECONDS:
                self._save(snapshot)

    def _compare(self, before: ReportedOwners, snapshot: Snapshot) -> None:
        now = snapshot.taken_at
        hands = unexplained(before, *compare_owners(before, snapshot), snapshot)
        if hands and not 0 <= now - before.seen_at <= self._gap_seconds():
            boot, up = self._boot() or ("", None)
            noticed = self._noticed = UnknownMoves(now, before.seen_at, hands, boot, up)
            self._write(lambda: self._owners.notice(noticed))

    def hold(self, now: float) -> Hold | None:
        """The reason why nothing may move, ``now`` in epoch seconds; a clock that was set back makes it no longer."""
        noticed, rest = self._noticed, self._rest_seconds()
        if noticed is None:
            return None
        noticed_at = noticed.shown_at(now, self._boot())
        if not 0 <= now - noticed_at < rest or noticed_at <= self._resumed_at() <= now:
            return None
        attempted_at, since = self._attempted_at(), noticed.since - UNREPORTED_SECONDS
        moved = [bundle for bundle in noticed.hands if attempted_at.get(bundle, float("-inf")) < since]
        if not moved:
            return None
        bundle = min(moved)
        source, owner = noticed.hands[bundle]
        what = f"{counted(len(moved), 'bundle')} changed owners since lbd last looked at {utc(noticed.since)}"
        why = "neither its journal nor a restart explains it: an older backup was restored, or others moved them"
        until = f"all rests until {utc(noticed_at + rest)}, or until lbd resume; check the orders in lbd status"
        return Reason.CHANGED_HANDS, f"{what}; {why}; {until}; the first: {bundle} from {source} to {owner}"

    @property
    def ends_at(self) -> float:
        """The end of the hold by itself, in epoch seconds; without a meaning where there is none."""
        return self._noticed.noticed_at + self._rest_seconds() if self._noticed is not None else 0.0

    def close(self) -> None:
        """Keep the owners of the last round."""
        with self._lock:
            if self._latest is not None:
                self._save(self._latest)

    def _save(self, snapshot: Snapshot) -> None:
        self._saved_at = snapshot.taken_at
        self._write(lambda: self._owners.save(compare_owners(None, snapshot)[0]))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
            self.trouble = ""
        except UsageError as error:
            self.trouble = f"a restored backup would not be noticed at the next start: {error}"


class WatchedObserver:
    """An observer whose rounds the watch sees before anybody plans by them."""

    def __init__(self, observer: RoundSource, watch: UnknownMovesWatch) -> None:
        self._observer, self._watch = observer, watch

    def observe(self) -> Observation:
        """One round."""
        observation = self._observer.observe()
        self._watch.saw(observation.snapshot)
        return observation
