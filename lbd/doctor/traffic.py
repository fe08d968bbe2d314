"""Check that the current traffic, in its bundles, could be levelled by moving bundles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.doctor.findings import Check, named
from lbd.load.scoring import scores
from lbd.model import BYTES_IN, BYTES_OUT, IMPOSSIBLE_NUMBER, MSG_IN, MSG_OUT
from lbd.permit.eligibility import broker_bundles
from lbd.text import counted
from lbd.turn.strategy_config import effective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.doctor.findings import Finding
    from lbd.doctor.survey import Survey
    from lbd.model import FloatArray, Snapshot


FEWEST_BUNDLES = 3
"""Bundles with topics for each broker, below which a pair can seldom be levelled; 5.0 makes 32 a namespace, 4.x 4."""

HIGHEST_POINTS = 1000.0
"""Highest plausible score; ``reports`` has a finding on higher ones."""

MINIMUMS = Check(
    "minimums", "a pair is left alone whose amount to move is below both minimums, however far apart it is"
)
COUNT = Check("bundle-count", "lbd moves whole bundles: a few of them cannot be spread evenly")
LARGE = Check("large-bundles", "a bundle that carries more than there is to move stays, and its broker stays hot")
SOLE = Check("sole-bundles", "a broker's only bundle would take the whole load with it, so it stays")
ROOM = Check("destinations", "nothing is moved to a broker above guardrails.max_destination_score")


@dataclass(frozen=True, eq=False)
class TrafficView:
    """One round in numbers: ``points`` float64 (B,), ``traffic`` float64 (B, 2) and ``carried`` float64 (M, 2).

    The two columns are messages/s and bytes/s, in + out; the rows of a broker's own bundles, in ``movable``.
    """

    snapshot: Snapshot
    settings: AvgShedderSettings
    points: FloatArray
    traffic: FloatArray
    carried: FloatArray
    movable: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def rows(self, broker: int) -> list[int]:
        """Rows of a broker's bundles that carry anything, or may, and are not its own."""
        own = self.snapshot.rows.of(broker)
        return [row for row in range(own.start, own.stop) if self.movable[row]]

    def name(self, row: int) -> str:
        """The bundle in a row."""
        return self.snapshot.bundles[int(self.snapshot.rows.bundle[row])]


def check_traffic(survey: Survey, snapshot: Snapshot) -> Iterator[Finding]:
    """Check one round against lbd's settings; what pairs could exchange is checked only if AvgShedder makes pairs."""
    chosen = effective(survey.settings)
    pairs = isinstance(chosen, AvgShedderSettings)
    load = _load(survey, snapshot, chosen if isinstance(chosen, AvgShedderSettings) else AvgShedderSettings())
    if len(snapshot.brokers) < 2:
        return
    if pairs:
        yield _minimums(load)
    yield _count(load)
    if pairs:
        yield _sole(load)
        yield from _large(load)
    limit = survey.settings.guardrails.max_destination_score
    if not (load.points < limit).any():
        message = f"all brokers have {limit:g} points or more; the lowest has {load.points.min():.1f}"
        yield ROOM.problem(message, "add brokers: moving bundles cannot help a full cluster")


def _load(survey: Survey, snapshot: Snapshot, settings: AvgShedderSettings) -> TrafficView:
    rates, rows = snapshot.brokers.rates, snapshot.rows
    carried = _both(rows.rates)
    own = broker_bundles(snapshot)[rows.bundle] != 0
    movable = ~own & ((carried > 0).any(axis=1) | (snapshot.partial & ~rows.reported))
    points = np.clip(scores(snapshot.brokers, survey.settings.weights), 0.0, HIGHEST_POINTS)
    return TrafficView(snapshot, settings, points, _both(rates), carried, movable)


def _both(rates: FloatArray) -> FloatArray:
    """Messages and bytes, in + out; absurd numbers, on which ``reports`` has a finding, count as none."""
    usable = np.where((rates >= 0) & (rates <= IMPOSSIBLE_NUMBER), rates, 0.0)
    columns = (usable[:, MSG_IN] + usable[:, MSG_OUT], usable[:, BYTES_IN] + usable[:, BYTES_OUT])
    return np.stack(columns, axis=1)


def _limits(load: TrafficView) -> tuple[float, float]:
    return load.settings.min_unload_message, load.settings.min_unload_message_throughput


def _minimums(load: TrafficView) -> Finding:
    """No pair can be further apart than the most and the least loaded broker of each measure."""
    share = load.settings.max_unload_percentage
    messages, volume = (load.traffic.max(axis=0) - load.traffic.min(axis=0)) * share
    least_messages, least_volume = _limits(load)
    most = f"at most {_rates(messages, volume)} are to be moved now"
    if messages > least_messages or volume > least_volume:
        return MINIMUMS.ok(f"{most}, more than the minimums")
    message = f"{most}, the minimums are {_rates(least_messages, least_volume)}"
    names = "avg_shedder.min_unload_message and min_unload_message_throughput"
    return MINIMUMS.warning(
        f"no move is worth it: {message}", f"nothing, if so little needs no balance; else lower {names}"
    )


def _rates(messages: float, volume: float) -> str:
    return f"{messages:,.0f} msg/s and {volume / 1e6:,.2f} MB/s"


def _count(load: TrafficView) -> Finding:
    brokers, bundles = len(load.snapshot.brokers), int(load.movable.sum())
    unknown = int((load.movable & ~load.snapshot.rows.reported).sum()) if load.snapshot.partial else 0
    message = f"{counted(bundles, 'bundle')} with traffic on {counted(brokers, 'broker')}"
    message += f", {unknown} of which no broker reports" if unknown else ""
    if bundles == 0:
        return COUNT.ok(f"{message}: nothing to balance yet")
    if bundles < FEWEST_BUNDLES * brokers:
        todo = "lbd split BUNDLE shows where to; new namespaces: defaultNumberOfNamespaceBundles (32 in 5.0)"
        return COUNT.warning(f"{message}, fewer than {FEWEST_BUNDLES} each", todo)
    return COUNT.ok(message)


def _sole(load: TrafficView) -> Finding:
    """A sole bundle matters where its broker is a source: above the least loaded one by the low threshold."""
    alone = {broker: rows[0] for broker in range(len(load.points)) if len(rows := load.rows(broker)) == 1}
    hot = [broker for broker in alone if load.points[broker] - load.points.min() >= load.settings.low_threshold]
    if hot and not load.settings.is_stock:
        words = named([f"{load.snapshot.brokers.ids[broker]} ({load.name(alone[broker])})" for broker in hot])
        return SOLE.warning(f"one bundle alone loads {words}", "lbd split BUNDLE shows what a split would do")
    return SOLE.ok(f"{counted(len(alone), 'broker')} with one bundle, none of them to be relieved" if alone else "none")


def _large(load: TrafficView) -> Iterator[Finding]:
    """Pairs that are apart, from the outside in as AvgShedder makes them, whose bundles are too large to move."""
    order = np.argsort(load.points, kind="stable").tolist()
    too_large = False
    for low, high in zip(order[: len(order) // 2], reversed(order), strict=False):
        apart = float(load.points[high] - load.points[low])
        if apart >= load.settings.low_threshold and (words := _too_large(load, low, high)):
            too_large = True
            todo = "lbd split BUNDLE shows what a split of the largest would do"
            yield LARGE.warning(words, todo)
    if not too_large:
        yield LARGE.ok("none is in the way now")


def _too_large(load: TrafficView, low: int, high: int) -> str:
    """Message about a pair where whole bundles make up less than half of the amount to move."""
    gaps = ((load.traffic[high] - load.traffic[low]) * load.settings.max_unload_percentage).tolist()
    measure = next((column for column, least in enumerate(_limits(load)) if gaps[column] > least), None)
    carried = {row: float(load.carried[row, measure]) for row in load.rows(high)} if measure is not None else {}
    if measure is None or len(carried) < 2:
        return ""
    amount = gaps[measure]
    fits, largest = sum(size for size in carried.values() if size <= amount), max(carried, key=carried.__getitem__)
    if fits >= amount / 2:
        return ""
    unit, scale = (("msg/s", 1.0), ("MB/s", 1e6))[measure]
    source, destination = load.snapshot.brokers.ids[high], load.snapshot.brokers.ids[low]
    return (
        f"{load.name(largest)} carries {carried[largest] / scale:,.1f} {unit} at {source}; "
        f"{amount / scale:,.1f} are to go to {destination}, and the bundles that fit make {fits / scale:,.1f}"
    )
