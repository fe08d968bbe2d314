"""Automatic splits: the ``split:`` section, and bundles that are too large by the rule of Pulsar's leader. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from lbd.bundles import range_in_name
from lbd.errors import UsageError
from lbd.load.scoring import broker_conf
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, bundle_namespace
from lbd.section import Section
from lbd.split.plan import MIB, Flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import Averages, FloatArray, Snapshot


class SplitSettings(Section):
    """When a bundle is too large, by the rule of the modular load manager's leader, and lbd's own limits."""

    enabled: bool = Field(
        False,
        description="Split bundles that exceed a limit below. Off by default, because a split cannot be "
        "undone. lbd splits nothing while the brokers split by themselves "
        "(loadBalancerAutoBundleSplitEnabled)",
    )
    algorithm: Literal["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"] = Field(
        "range_equally_divide", **broker_conf("defaultNamespaceBundleSplitAlgorithm", "How a bundle is cut")
    )
    max_topics: int = Field(
        1000, ge=1, le=10_000_000, **broker_conf("loadBalancerNamespaceBundleMaxTopics", "Topics of a bundle")
    )
    max_sessions: int = Field(
        1000,
        ge=-1,
        le=100_000_000,
        **broker_conf(
            "loadBalancerNamespaceBundleMaxSessions", "Producers and consumers of a bundle. 0 or -1 means no limit"
        ),
    )
    max_msg_rate: float = Field(
        30_000,
        ge=1,
        le=1e9,
        **broker_conf("loadBalancerNamespaceBundleMaxMsgRate", "Messages/s in + out of a bundle, long-term average"),
    )
    max_bandwidth_mbytes: float = Field(
        100,
        ge=0.001,
        le=1e6,
        **broker_conf("loadBalancerNamespaceBundleMaxBandwidthMbytes", "MiB/s in + out of a bundle, long-term average"),
    )
    max_bundles_per_namespace: int = Field(
        128,
        ge=1,
        le=1_000_000,
        **broker_conf("loadBalancerNamespaceMaximumBundles", "A namespace with this many bundles is not split further"),
    )
    max_splits_per_hour: int = Field(
        10,
        ge=0,
        le=10_000,
        description="Splits within the last hour. A split cannot be undone, so a fault must not make hundreds"
        " of them. 0 means no limit",
    )

    @property
    def flow(self) -> Flow:
        """Limits of a part by ``flow_or_qps_equally_divide``."""
        return Flow(self.max_msg_rate, self.max_bandwidth_mbytes)


# --- bundles that are too large, by the rule of the modular load manager's leader
# Source: BundleSplitterTask. It walks bundles in hash order; here the furthest above a limit comes first, then the
# name.

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
        """Value and limit, in the setting's unit."""
        return f"{self.value:,.0f} exceeds split.{self.setting} {self.limit:,g}"


def too_large(snapshot: Snapshot, averages: Averages, settings: SplitSettings) -> tuple[Due, ...]:
    """Bundles that the modular manager's leader would split, whatever their namespaces may still hold.

    Rates are ``averages``' long-term ones, aligned with the snapshot. With a single broker nothing is ever split.
    """
    if len(snapshot.brokers) < 2:
        return ()
    return _first_of_each(_above(snapshot, averages.long[snapshot.rows.bundle], settings))


def _first_of_each(candidates: Iterable[Due]) -> tuple[Due, ...]:
    """A bundle on two reports counts once."""
    return tuple({due.bundle: due for due in reversed(list(candidates))}.values())[::-1]


def within_namespaces(
    candidates: Iterable[Due], bundles: Mapping[str, int], settings: SplitSettings
) -> tuple[tuple[Due, ...], tuple[Due, ...]]:
    """Candidates that may be split, and those whose namespace has too many bundles, counting the new halves.

    ``bundles`` is how many each namespace has; a namespace that is not known has no room.
    """
    chosen, refused, more = list[Due](), list[Due](), Counter[str]()
    for due in candidates:
        namespace = bundle_namespace(due.bundle)
        now = bundles.get(namespace, settings.max_bundles_per_namespace) + more[namespace]
        if now < settings.max_bundles_per_namespace:
            more[namespace] += 1
            chosen.append(due)
        else:
            refused.append(due)
    return tuple(chosen), tuple(refused)


def _above(snapshot: Snapshot, rates: FloatArray, settings: SplitSettings) -> list[Due]:
    """Rows above a limit, the furthest first; ``rates`` is float64 (M, 4)."""
    rows = snapshot.rows
    values = _values(rows.counts.astype(np.float64), rates)
    limits = np.array([getattr(settings, name) for name in LIMITS], dtype=np.float64)
    over = values > np.where(limits > 0, limits, np.inf)
    candidates = np.flatnonzero(rows.reported & (rows.counts[:, 0] >= _LEAST_TOPICS) & over.any(axis=1))
    owner = rows.owner()
    excesses = [
        (
            float((values[row] / limits)[over[row]].max()),
            _due(snapshot, int(rows.bundle[row]), int(owner[row]), values[row], int(over[row].argmax()), settings),
        )
        for row in candidates.tolist()
    ]
    return [
        due for _, due in sorted(excesses, key=lambda excess: (-excess[0], excess[1].bundle)) if _is_wide(due.bundle)
    ]


def _values(counts: FloatArray, rates: FloatArray) -> FloatArray:
    """Values that the limits are compared with, float64 (M, 4), a column for each of :data:`LIMITS`."""
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
        lower, upper = range_in_name(bundle)
    except UsageError:
        return False
    return upper - lower > 1
