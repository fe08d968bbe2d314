"""Six candidates over the clusters of ``tests/scenarios/clusters.py``: the same load, noise and clients for each."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import Pool
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import topic_hash
from lbd.config import Settings
from lbd.score.scorecard import Scorecard, scorecard
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import settled
from tests.bench.as_even import Course, course, least_traffic
from tests.scenarios.clusters import EACH, KINDS, cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lbd.observe.observer import Observation

CANDIDATES: dict[str, dict[str, object]] = {
    "AvgShedder": {"strategy": "avg-shedder", "profile": "stock"},
    "avg-shedder": {"strategy": "avg-shedder"},
    "avg-shedder, 0.2": {"strategy": "avg-shedder", "avg_shedder.max_unload_percentage": 0.2},
    "transfer-shedder": {"strategy": "transfer-shedder"},
    "threshold-shedder": {"strategy": "threshold-shedder"},
    "least-moves": {"strategy": "least-moves"},
}
"""``AvgShedder`` is Pulsar's own rule; all others are as lbd ships them, or one setting away from that."""

THRESHOLDS = (15.0, 40.0)
"""Points; all are measured by AvgShedder's."""


CLIENTS, CLIENTS_SIGMA = 30, 1.0
"""Median and sigma of the log-normal number of clients on a bundle. It is assumed, and does not follow its traffic."""


@cache
def clients(bundle: str, number: int) -> int:
    """The producers and consumers of a bundle in a cluster of that number, from no seed of its load."""
    random = np.random.default_rng((topic_hash(bundle), number))
    return round(CLIENTS * random.lognormal(sigma=CLIENTS_SIGMA))


class _ClusterWithClients(Simulation):
    """``number`` is the cluster's. All that a strategy does not decide by clients is as without them."""

    number: int

    def observe(self) -> Observation:
        seen = super().observe()
        rows, names = seen.snapshot.rows, seen.snapshot.bundles
        counts = rows.counts.copy()
        counts[:, 1] = [clients(names[at], self.number) for at in rows.bundle.tolist()]
        counts[:, 2] = 0
        return replace(seen, snapshot=replace(seen.snapshot, rows=replace(rows, counts=counts)))


@dataclass(frozen=True)
class Ran:
    """One candidate on one cluster; ``clients`` is how many its moves disconnected."""

    kind: str
    number: int
    candidate: str
    card: Scorecard
    course: Course
    least_traffic: float | None
    clients: int


def run(job: tuple[str, int, str]) -> Ran:
    """A run of a candidate on the cluster of that number and kind."""
    kind, number, candidate = job
    scenario = cluster(kind, number)
    settings = settled(scenario, Settings(), CANDIDATES[candidate])
    simulation = _ClusterWithClients(scenario, settings, number + 1)
    simulation.number = number
    for _ in simulation.turns():
        pass
    trace = simulation.trace()
    floor = None if trace.placement is None else least_traffic(trace.placement)
    disconnected = sum(clients(move.bundle, number) for move in trace.moves)
    return Ran(kind, number, candidate, scorecard(trace, *THRESHOLDS), course(trace), floor, disconnected)


FEW = ("AvgShedder", "avg-shedder", "least-moves")
"""Candidates of the duel, and lbd's default."""


def runs(each: int, candidates: Iterable[str] = CANDIDATES, last: int = EACH - 1) -> Iterator[list[Ran]]:
    """Cluster by cluster the runs of all candidates, on so many of each kind, from the first to that number.

    The small ones come first, and all kinds of one number before the next: so what was cut short is still a suite.
    """
    numbers = dict.fromkeys(round(at * last / max(each - 1, 1)) for at in range(each))
    jobs = [(kind, number, tuple(candidates)) for number in numbers for kind in KINDS]
    with Pool(2) as pool:
        yield from pool.imap(_all_on, jobs)


def _all_on(job: tuple[str, int, tuple[str, ...]]) -> list[Ran]:
    kind, number, candidates = job
    return [run((kind, number, one)) for one in candidates]


def efficiency(cards: Sequence[Scorecard], fewest: str = "fewest_moves") -> float | None:
    """The fewest moves that any plan needs for what was reached, over those made; None where nothing moved."""
    told = [card for card in cards if card.fewest_moves is not None]
    moves = sum(card.moves for card in told)
    return sum(getattr(card, fewest) for card in told) / moves if moves else None


HEAD = (
    "moves", "fewest / moves", "as even", "twice", "traffic moved", "gap at last",
    "over 15, min",
)  # fmt: skip


def row(cards: Sequence[Scorecard]) -> tuple[str, ...]:
    """Means of moves, medians of the rest."""
    median, mean = statistics.median, statistics.mean
    return (
        f"{mean(one.moves for one in cards):.1f}",
        _number(efficiency(cards), 2),
        _number(efficiency(cards, "fewest_moves_as_even"), 2),
        f"{mean(one.bundles_moved_twice for one in cards):.1f}",
        f"{median(one.traffic_moved for one in cards):.1%}",
        f"{median(one.last.gap_points for one in cards):.1f}",
        f"{median(one.minutes_over_low for one in cards):.0f}",
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def table(found: Sequence[Ran]) -> list[str]:
    """A row for each kind and candidate, and for each candidate over all, as Markdown."""
    lines = [f"| clusters | strategy | {' | '.join(HEAD)} | clients |", "|---" * (len(HEAD) + 3) + "|"]
    for kind in (*dict.fromkeys(one.kind for one in found), "all"):
        for candidate in dict.fromkeys(one.candidate for one in found):
            own = [one for one in found if one.candidate == candidate and kind in (one.kind, "all")]
            disconnected = statistics.mean(one.clients for one in own)
            lines.append(
                f"| {kind} | {candidate} | {' | '.join(row([one.card for one in own]))} | {disconnected:.0f} |"
            )
    return lines


def of(found: Sequence[Ran], candidate: str) -> dict[tuple[str, int], Scorecard]:
    """A candidate's cards by cluster."""
    return {(one.kind, one.number): one.card for one in found if one.candidate == candidate}


def duel(found: Sequence[Ran], mine: str = "least-moves", other: str = "AvgShedder") -> str:
    """Where it ends as low or lower: what part of the other's moves, and of its traffic moved, it takes."""
    pairs = [(card, of(found, other)[key]) for key, card in of(found, mine).items()]
    as_low = [(one, two) for one, two in pairs if one.last.gap_points <= two.last.gap_points and two.moves]
    if not as_low:
        return f"{mine} ends no lower than {other} anywhere"
    total, half = partial(_share, as_low), sum(2 * one.moves <= two.moves for one, two in as_low)
    return (
        f"{mine} ends with as small a gap or a smaller one on {len(as_low)} of {len(pairs)} clusters, {other} moving, "
        f"with {total('moves'):.0%} of its moves and {total('traffic_moved'):.0%} of its traffic moved; "
        f"with at most half of its moves on {half} of these"
    )


def _share(pairs: Sequence[tuple[Scorecard, Scorecard]], figure: str) -> float:
    mine, other = (sum(float(getattr(pair[at], figure)) for pair in pairs) for at in (0, 1))
    return mine / other if other else 0.0
