"""The plan of now, for the API: what a turn would begin if the imbalance lasts, by the round that the last turn saw."""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from lbd.api.shapes import Plan
from lbd.cycle import turn
from lbd.cycle.document import document
from lbd.daemon.dry import look_parts, unsampled
from lbd.daemon.placing import Fixed
from lbd.daemon.policies import PolicyReader
from lbd.errors import ObserveError
from lbd.pulsar.admin import Admin
from lbd.record.control import PlannedMove

if TYPE_CHECKING:
    from lbd.api.board import Published
    from lbd.cycle import CycleRecord
    from lbd.daemon.engine import Engine

KEPT = 16
"""Plans that may still be applied; the oldest are forgotten."""


class Planner:
    """Plans of one running lbd. Thread-safe; each round is planned for once, and no turn waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._admin = Admin(engine.settings.pulsar, engine.silences)
        self._lock = threading.Lock()
        self._last: tuple[Published, Plan] | None = None
        self._known: OrderedDict[str, Plan] = OrderedDict()

    def plan(self, published: Published) -> Plan:
        """What would be unloaded. Raises :class:`~lbd.errors.LbdError` where that cannot be said."""
        with self._lock:
            if self._last is None or self._last[0] is not published:
                found = _plan(self._planned(published))
                self._last = published, found
                self._known[found.id] = found
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
            return self._last[1]

    def find(self, name: str) -> Plan | None:
        """One of the last plans that were shown."""
        with self._lock:
            return self._known.get(name)

    def _planned(self, published: Published) -> CycleRecord:
        record, settings = published.record, published.settings
        if record.observation is None or record.kept is None or record.averages is None:
            raise ObserveError(f"the last turn says nothing to plan by: {record.sentence}")
        self._admin.active_brokers()
        looked, policies = Fixed(record.observation), PolicyReader(self._admin)
        kept, journal = unsampled(record.kept), self._engine.journal
        found = turn(look_parts(settings, looked, policies, kept, record.averages, journal, lambda: None))
        if found.error is not None:
            raise found.error
        return found


def _plan(record: CycleRecord) -> Plan:
    assert record.observation is not None
    told = document(record, everything=False)
    moves = tuple(
        PlannedMove(unload.bundle, unload.source, unload.destination)
        for unload in record.unloads
        if unload.destination is not None
    )
    snapshot = record.observation.snapshot
    seen = (record.observation.cluster, snapshot.taken_at, told["brokers"], moves)
    return Plan(sha256(msgspec.json.encode(seen)).hexdigest()[:16], told, moves)
