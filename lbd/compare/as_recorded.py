"""What a recording tells of the time in which it was made: scores as reported, and who moved what. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.compare.recorded import bundle_rates, former, scores_shown, unmoved
from lbd.load.samples import row_totals
from lbd.model import BYTES_IN, BYTES_OUT
from lbd.permit.ownership import Owners, look
from lbd.score.trace import Moved, Seen, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.load.linear import LoadModel
    from lbd.load.scoring import Weights
    from lbd.model import Snapshot


def recorded_trace(rounds: Sequence[Snapshot], model: LoadModel, weights: Weights, high_threshold: float) -> Trace:
    """What really happened: scores as reported, and each bundle that changed hands, by whomever."""
    brokers = tuple(sorted({broker for one in rounds for broker in one.brokers.ids}))
    seen, moves, shown_at = [], list[Moved](), None
    owners: Owners | None = None
    for one, untouched in zip(rounds, unmoved(rounds, model, weights), strict=True):
        seconds, points = one.taken_at - rounds[0].taken_at, scores_shown(one, weights)
        present = np.isin(brokers, one.brokers.ids)
        carries = np.zeros(len(brokers))
        carries[present] = np.nan_to_num(row_totals(one)[:, (BYTES_IN, BYTES_OUT)].sum(axis=1))
        seen.append(Seen(seconds, points, untouched, present, carries))
        before, (owners, changed) = owners, look(owners, one)
        if before is not None and changed:
            moves += _changes(before, owners, changed, one, seconds)
        if shown_at is None and np.ptp(points) >= high_threshold:
            shown_at = seconds
    return Trace(tuple(seen), tuple(moves), brokers, shown_at)


def _changes(
    before: Owners, now: Owners, changed: frozenset[str], snapshot: Snapshot, seconds: float
) -> Iterator[Moved]:
    """The bundles that changed hands, from whom to whom."""
    was = former(before, changed)
    sizes = bundle_rates(snapshot, now.owner)[0][:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
    for bundle, at in snapshot.positions_of(changed).items():
        destination = snapshot.brokers.ids[now.owner[at]]
        yield Moved(seconds, bundle, was[bundle], destination, float(sizes[at]))
