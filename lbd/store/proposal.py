"""The plan of a turn that waits for a person's approval, as status, API and ``lbd plan`` show it.

It is kept in memory only: after a restart or a failover the next turn makes a new proposal.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from lbd.files import At

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import Unload


PLAN_SECONDS = 600.0
"""A plan can be applied for so long after the last round that led to it."""


class ProposedMove(msgspec.Struct, frozen=True):
    """One move: messages/s and bytes/s in + out, and how many producers and consumers will reconnect."""

    bundle: str
    source: str
    destination: str
    msg_rate: float | None
    throughput: float | None
    reason: str
    clients: int


class Proposal(msgspec.Struct, frozen=True):
    """Moves under one name. Times are epoch seconds; ``expected`` are scores in points once all moves have landed.

    ``approved_by`` are the people who have approved it, where one is not enough.
    """

    id: str
    made_at: At
    expires_at: At
    unloads: list[ProposedMove]
    expected: dict[str, float]
    clients: int
    approved_by: list[str] = []


class PlannedScore(msgspec.Struct, frozen=True):
    """A broker's score in points now, and ``after`` all moves of a plan have landed; None where unknown.

    ``doubt`` is as in :class:`~lbd.store.turn_record.BrokerRecord`.
    """

    id: str
    score: float | None
    after: float | None
    doubt: str | None = None


def plan_id(moves: Iterable[Unload]) -> str:
    """The name of a plan: the same for the same moves, whenever they are planned, in whatever order."""
    rows = sorted((move.bundle, move.source, move.destination or "") for move in moves)
    return sha256(msgspec.json.encode(rows)).hexdigest()[:8]
