"""Which bundles are too large, by the rule of the modular load manager's leader. Pure.

Source: BundleSplitterTask. It walks bundles in hash order; here the furthest above a limit comes first, then the name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, bundle_namespace
from lbd.split.algorithms import MIB
from lbd.split.topic_hash import range_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import Averages, FloatArray, Snapshot
    from lbd.split.settings import SplitSettings

LIMITS = ("max_topics", "max_sessions", "max_msg_rate", "max_bandwidth_mbytes")
"""The settings that are compared, in the order in which the first that is exceeded is named."""

_LEAST_TOPICS = 2


@dataclass(frozen=True)
class Due:
    """A bundle that ``broker`` reports above a limit: ``value`` exceeds ``limit``, which is the setting's."""

    bundle: str
    broker: str
    setting: str
    value: float
    limit: float

    @property
    def words(self) -> str:
        """What is exceeded, in the setting's unit."""
        return f"{self.value:,.0f} exceeds split.{self.setting} {self.limit:,g}"


def too_large(snapshot: Snapshot, averages: Averages, settings: SplitSettings) -> tuple[Due, ...]:
    """Bundles that the modular manager's leader would split, whatever their namespaces may still hold.

    Rates are ``averages``' long-term ones, aligned with the snapshot. With a single broker nothing is ever split.
    """
    if len(snapshot.brokers) < 2:
        return ()
    return _first_of_each(_above(snapshot, averages.long[snapshot.rows.bundle], settings))


def _first_of_each(found: Iterable[Due]) -> tuple[Due, ...]:
    """A bundle on two reports counts once."""
    return tuple({due.bundle: due for due in reversed(list(found))}.values())[::-1]


def within_namespaces(
    found: Iterable[Due], bundles: Mapping[str, int], settings: SplitSettings
) -> tuple[tuple[Due, ...], tuple[Due, ...]]:
    """Those that may be split, and those whose namespace holds too many bundles, the chosen ones' halves included.

    ``bundles`` is how many each namespace has; one that is not known has no room.
    """
    chosen, left, more = list[Due](), list[Due](), Counter[str]()
    for due in found:
        namespace = bundle_namespace(due.bundle)
        now = bundles.get(namespace, settings.max_bundles_per_namespace) + more[namespace]
        if now < settings.max_bundles_per_namespace:
            more[namespace] += 1
            chosen.append(due)
        else:
            left.append(due)
    return tuple(chosen), tuple(left)


def _above(snapshot: Snapshot, rates: FloatArray, settings: SplitSettings) -> list[Due]:
    """Rows above a limit, the furthest first; ``rates`` is float64 (M, 4)."""
    rows = snapshot.rows
    values = _values(rows.counts.astype(np.float64), rates)
    limits = np.array([getattr(settings, name) for name in LIMITS], dtype=np.float64)
    over = values > np.where(limits > 0, limits, np.inf)
    candidates = np.flatnonzero(rows.reported & (rows.counts[:, 0] >= _LEAST_TOPICS) & over.any(axis=1))
    owner = rows.owner()
    found = [
        (
            float((values[row] / limits)[over[row]].max()),
            _due(snapshot, int(rows.bundle[row]), int(owner[row]), values[row], int(over[row].argmax()), settings),
        )
        for row in candidates.tolist()
    ]
    return [due for _, due in sorted(found, key=lambda one: (-one[0], one[1].bundle)) if _is_wide(due.bundle)]


def _values(counts: FloatArray, rates: FloatArray) -> FloatArray:
    """What the limits are compared with, float64 (M, 4), a column for each of :data:`LIMITS`."""
    with np.errstate(invalid="ignore"):
        messages = rates[:, MSG_IN] + rates[:, MSG_OUT]
        volume = (rates[:, BYTES_IN] + rates[:, BYTES_OUT]) / MIB
    return np.stack([counts[:, 0], counts[:, 1] + counts[:, 2], messages, volume], axis=1)


def _due(snapshot: Snapshot, bundle: int, owner: int, values: FloatArray, limit: int, settings: SplitSettings) -> Due:
    ends = (snapshot.bundles[bundle], snapshot.brokers.ids[owner])
    return Due(*ends, LIMITS[limit], float(values[limit]), float(getattr(settings, LIMITS[limit])))


def _is_wide(bundle: str) -> bool:
    """A range of one hash cannot be cut, nor one whose name cannot be read."""
    try:
        lower, upper = range_of(bundle)
    except UsageError:
        return False
    return upper - lower > 1
