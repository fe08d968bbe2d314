"""What the brokers of a recording would have reported if a plan had owned their bundles. Pure.

Rates of bundles are as recorded, who owns them is the plan's. A broker's usage is what was recorded, plus the slope of
its load model times the traffic that the plan gives it beyond what it had: so bursts, neighbours and noise stay where
they were, and a broker whose bundles are those of the record reports what it did. A new sample shows what was carried
since the one before, as a real one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import scoring
from lbd.load.linear import CPU, carried, driving
from lbd.load.samples import SAMPLED
from lbd.load.start_up import FIRST_CPU
from lbd.model import BYTES_IN, BYTES_OUT, RESOURCES, Rows
from lbd.permit.evidence import IMPOSSIBLE_SHARE
from lbd.permit.ownership import Owners, look

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from lbd.load.linear import LoadModel
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, FloatArray, IntArray, Snapshot

    RowArray = NDArray[np.int64]

MEMORY = [RESOURCES.index(name) for name in ("memory", "direct_memory")]
"""Read whenever somebody asks, and no plan's doing."""

LEAST_SHARE = 1e-4
"""Of a limit; a broker that reports less has not sampled yet."""

LAST_DIGITS = 1e-9


@dataclass(frozen=True, eq=False)
class Round:
    """One round as the plan has it. ``owner`` is int32 (N,), ``rates`` float64 (N, 4), aligned with its bundles."""

    snapshot: Snapshot
    owner: IntArray
    rates: FloatArray

    @property
    def throughput(self) -> float:
        """What all bundles carry, bytes/s."""
        return float(self.rates[:, (BYTES_IN, BYTES_OUT)].sum())


def scores_shown(seen: Snapshot, weights: Weights) -> FloatArray:
    """Score of each broker in points, float64 (B,); 0 where no resource is known, or a number is impossible."""
    found = scoring.scores(seen.brokers, weights)
    return np.where((found > 0) & (found <= 100 * IMPOSSIBLE_SHARE), found, 0.0)


def unmoved(rounds: Iterable[Snapshot], model: LoadModel, weights: Weights) -> list[FloatArray]:
    """Scores of each round, float64 (B,), had no bundle changed hands since the first."""
    recorded = Recorded(model)
    return [scores_shown(recorded.round(one).snapshot, weights) for one in rounds]


class Recorded:
    """A recorded cluster under a plan. ``model`` knows every broker of the recording."""

    def __init__(self, model: LoadModel) -> None:
        self._model = model
        self._owners: Owners | None = None
        self._elsewhere: dict[str, str] = {}
        self._shown: _Shown | None = None

    def move(self, bundle: str, broker: str) -> None:
        """The plan has moved a bundle."""
        self._elsewhere[bundle] = broker

    def round(self, recorded: Snapshot) -> Round:
        """The next round of the recording, as it would have been."""
        was = self._look(recorded)
        owner = self._planned(recorded, was)
        rates, row = bundle_rates(recorded, was)
        beyond = carried(rates, owner, len(recorded.brokers)) - carried(rates, was, len(recorded.brokers))
        if not (np.array_equal(owner, was) and recorded.rows.bundle.size == len(recorded.bundles)):
            recorded = _owned(recorded, (was, owner), row, beyond)
        return Round(self._sampled(recorded, beyond), owner, rates)

    def _look(self, recorded: Snapshot) -> IntArray:
        """Recorded owners, int32 (N,). What changed hands there has not in the plan, while its owner is there."""
        before = self._owners
        self._owners, changed = look(before, recorded)
        if before is not None and changed:
            present = set(recorded.brokers.ids)
            for bundle, broker in former(before, changed).items():
                if broker in present:
                    self._elsewhere.setdefault(bundle, broker)
        return self._owners.owner

    def _planned(self, recorded: Snapshot, was: IntArray) -> IntArray:
        """The plan's owners; a bundle of a broker that is away is where the record has it."""
        position = recorded.brokers.index()
        self._elsewhere = {bundle: broker for bundle, broker in self._elsewhere.items() if broker in position}
        owner = was.copy()
        for bundle, at in recorded.positions_of(self._elsewhere).items():
            owner[at] = position[self._elsewhere[bundle]]
        return owner

    def _sampled(self, seen: Snapshot, beyond: FloatArray) -> Snapshot:
        """Usage changes when the recorded one does: by what the plan gave the broker since the last sample."""
        brokers, model = seen.brokers, self._model.of(seen.brokers.ids)
        shown = _of_brokers(self._shown, brokers.ids)
        total, rounds = shown.total + driving(beyond, model.measure), shown.rounds + 1
        shifted = _shifted(brokers.usage, brokers.limit, model.slope * total / rounds[:, None])
        fresh = _differ(shown.recorded[:, SAMPLED], brokers.usage[:, SAMPLED])
        usage = np.where(fresh[:, None], shifted, shown.usage)
        usage[:, MEMORY] = brokers.usage[:, MEMORY]
        total[fresh], rounds[fresh] = 0.0, 0
        self._shown = _Shown(brokers.ids, brokers.usage, usage, total, rounds)
        return replace(seen, brokers=replace(brokers, usage=usage))


@dataclass(frozen=True, eq=False)
class _Shown:
    """Of each broker: ``recorded`` and shown ``usage`` of its last round, both (B, 5), and what the plan gave it beyond
    what it had, added up over the ``rounds`` (B,) since its last sample: ``total`` (B, 5).
    """

    ids: tuple[str, ...]
    recorded: FloatArray
    usage: FloatArray
    total: FloatArray
    rounds: FloatArray


def _of_brokers(before: _Shown | None, ids: tuple[str, ...]) -> _Shown:
    """The same for these brokers; nothing is known of new ones."""
    if before is not None and before.ids == ids:
        return before
    size = len(ids)
    found = _Shown(ids, np.full((size, 5), np.inf), np.zeros((size, 5)), np.zeros((size, 5)), np.zeros(size))
    position = {} if before is None else {broker: at for at, broker in enumerate(before.ids)}
    new = [at for at, broker in enumerate(ids) if broker in position]
    old = [position[ids[at]] for at in new]
    if before is not None:
        for mine, its in zip(_columns(found), _columns(before), strict=True):
            mine[new] = its[old]
    return found


def _columns(shown: _Shown) -> tuple[FloatArray, ...]:
    return shown.recorded, shown.usage, shown.total, shown.rounds


def _differ(first: FloatArray, second: FloatArray) -> BoolArray:
    """Rows in which two tables differ, bool (B,); what is missing in both does not."""
    found: BoolArray = np.logical_or.reduce((first != second) & ~(np.isnan(first) & np.isnan(second)), axis=1)
    return found


def former(before: Owners, changed: frozenset[str]) -> Mapping[str, str]:
    """Who had the bundles that changed hands."""
    found = {bundle: seen[0] for bundle, seen in before.away.items() if bundle in changed}
    for at, bundle in enumerate(before.bundles):
        if bundle in changed:
            found[bundle] = before.brokers[before.owner[at]]
    return found


def bundle_rates(seen: Snapshot, owner: IntArray) -> tuple[FloatArray, RowArray]:
    """Rates of each bundle, (N, 4), and its row, int64 (N,): that of its owner where two brokers report it.

    A rate that is no number counts for none.
    """
    rows = seen.rows
    row = np.zeros(len(seen.bundles), dtype=np.int64)
    row[rows.bundle] = np.arange(rows.bundle.size)
    own = np.flatnonzero(rows.owner() == owner[rows.bundle])
    row[rows.bundle[own]] = own
    return np.nan_to_num(np.maximum(rows.rates[row], 0.0), posinf=0.0), row


def _owned(seen: Snapshot, owners: tuple[IntArray, IntArray], row: RowArray, beyond: FloatArray) -> Snapshot:
    """The same reports with each bundle on its owner's, and on no other; ``owners`` are those recorded and planned.

    A broker's topics are those that it reported, and what the plan gave and took: it may not tell of all its bundles.
    """
    was, owner = owners
    order = np.argsort(owner, kind="stable").astype(np.int32)
    rows, chosen, size = seen.rows, row[order], len(seen.brokers)
    start = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=size)))).astype(np.int32)
    found = Rows(
        start=start,
        bundle=order,
        rates=rows.rates[chosen],
        counts=rows.counts[chosen],
        reported=rows.reported[chosen],
        listed=rows.listed[chosen],
    )
    each = rows.counts[row, 0]
    given = np.bincount(owner, each, size) - np.bincount(was, each, size)
    topics = np.maximum(seen.brokers.topics + given.astype(np.int64), 0)
    brokers = replace(seen.brokers, rates=np.maximum(seen.brokers.rates + beyond, 0.0), topics=topics)
    return replace(seen, brokers=brokers, rows=found)


def _shifted(usage: FloatArray, limit: FloatArray, points: FloatArray) -> FloatArray:
    """Usage after so many percent of the limit more, within the limit.

    As it was where nothing is added, and where it is no number that could be added to: lbd shall see that, too. A new
    sample is a new one at either end, too, by its last digits.
    """
    known = (limit > 0) & (points != 0) & (usage >= 0) & np.isfinite(usage)
    known[:, CPU] &= usage[:, CPU] > FIRST_CPU
    wanted = usage + points / 100 * limit
    found = np.clip(wanted, LEAST_SHARE * limit, np.maximum(limit, usage))
    return np.where(known, np.where(found == wanted, found, found + LAST_DIGITS * usage), usage)
