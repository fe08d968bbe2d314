"""The owners of all bundles as they were last seen, in the store: what the journal of the same store must explain.

They are restored with the journal. So, where a backup is put back, the cluster shows what that journal does not know.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.errors import UsageError
from lbd.files import At
from lbd.permit.evidence import ReportedOwners
from lbd.store.database import value, writing

if TYPE_CHECKING:
    from pathlib import Path


class UnknownMoves(msgspec.Struct, frozen=True):
    """Bundles with other owners than lbd saw last, at ``since``, which no restart of a broker explains.

    ``noticed_at`` is when that was noticed; both are epoch seconds. ``hands`` has their former owner and the present
    one. The journal may explain them: where several lbds share a cluster it learns later of what others moved.
    """

    noticed_at: At
    since: At
    hands: dict[str, tuple[str, str]]


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
            kept = _DECODER.decode(zlib.decompress(content))
            owner = np.frombuffer(kept.owner, dtype="<i4").astype(np.int32)
        except (zlib.error, msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"{self._path}: the owners of bundles cannot be read: {error}") from error
        if owner.size != len(kept.bundles) or (owner.size and not 0 <= owner.min() <= owner.max() < len(kept.brokers)):
            raise UsageError(f"{self._path}: the owners of bundles cannot be read: columns of unlike length")
        return ReportedOwners(kept.bundles, kept.brokers, owner, seen_at=kept.seen_at)

    def save(self, owners: ReportedOwners) -> None:
        """Replace the owners."""
        columns = owners.seen_at, owners.bundles, owners.brokers, owners.owner.astype("<i4").tobytes()
        with writing(self._path) as store:
            store.put({OWNERS: zlib.compress(msgspec.msgpack.encode(_Owners(*columns)), 1)})

    def noticed(self) -> UnknownMoves | None:
        """What was noticed last."""
        content = value(self._path, UNKNOWN_MOVES)
        try:
            return msgspec.json.decode(content, type=UnknownMoves) if content is not None else None
        except msgspec.MsgspecError as error:
            raise UsageError(f"{self._path}: what was noticed of unknown moves cannot be read: {error}") from error

    def notice(self, moves: UnknownMoves) -> None:
        """Replace what was noticed."""
        with writing(self._path) as store:
            store.put({UNKNOWN_MOVES: msgspec.json.encode(moves)})
