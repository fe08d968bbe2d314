"""How the proposed settings did since they were taken, from what really happened, and what the cluster carries now.

It reads history with pyarrow, a day at a time, and needs no Spark.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lbd.config import strategy_section
from lbd.documents import flat
from lbd.learn.replay import Figures, Scale, as_recorded, gap_figures, pooled
from lbd.learn.window import pack
from lbd.model import BYTES_IN
from lbd.reason import Reason
from lbd.store.calibration import MeanBroker, PresentLoad
from lbd.store.history import Folder, day_rows
from lbd.store.history_tables import RATES, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lbd.load.scoring import Weights
    from lbd.store.calibration import ChangedSetting


class DecidedBy(NamedTuple):
    """Strategy and settings that decided a round: the columns of ``decisions`` of these names."""

    strategy: str | None
    settings: str | None
    all_settings: str | None

    def has(self, changes: Sequence[ChangedSetting]) -> bool:
        """Whether all proposed values were in force; a value that history lacks was not."""
        in_force = dict(flat(self._values()))
        return all(change.key in in_force and in_force[change.key] == change.proposed for change in changes)

    def _values(self) -> dict[str, Any]:
        """Its settings as in lbd.yaml: only the strategy's of an imported recording, none where that names no
        strategy.
        """
        if self.all_settings:
            values: dict[str, Any] = json.loads(self.all_settings)
            return values
        if not self.strategy or not self.settings:
            return {}
        return {"strategy": self.strategy, strategy_section(self.strategy): json.loads(self.settings)}


@dataclass(frozen=True)
class Drift:
    """``since`` epoch seconds the settings are in force. Moves are those that the strategy planned and lbd made."""

    since: float
    figures: Figures


def measure(
    history: Path, changes: Sequence[ChangedSetting], after: float, weights: Weights, now: float
) -> Drift | None:
    """The figures since the proposed settings are in force; None if they are not by the newest round of history, or no
    round since was :func:`_acting`.

    ``after`` is when they were proposed, epoch seconds; rows after ``now`` are of a clock that was ahead. Raises
    :class:`UsageError` for history that cannot be read.
    """
    since: float | None = None
    by_day: list[Figures] = []
    for day in Folder(history).days("decisions"):
        rounds = day_rows(day, "decisions", after, now)
        times = [at.timestamp() for at in rounds["t"].to_pylist()]
        decided = map(DecidedBy, *(rounds[name].to_pylist() for name in DecidedBy._fields))
        before, since = since, taken_since(zip(times, decided, strict=True), changes, since)
        if since != before:
            by_day = []
        if since is not None and (own := _acting(rounds.slice(bisect_left(times, since)))).num_rows:
            by_day.append(_figures(own, Folder(history), day.name, weights))
    return Drift(since, pooled(by_day)) if since is not None and by_day else None


def _acting(rounds: pa.Table) -> pa.Table:
    """The rounds in which this lbd itself might move: not those of ``mode: observe`` or ``approve``, of an lbd that
    stood by, or of a pause, which no replay has.
    """
    others = pc.is_in(rounds["hold"], pa.array([Reason.NOT_LEADER.label, Reason.PAUSED.label]))
    return rounds.filter(pc.and_(rounds["acts"], pc.invert(others)))


LAST_SECONDS = 300.0
"""Each broker has sampled several times within it."""


def last_load(history: Path, now: float) -> PresentLoad | None:
    """The load in the last minutes of a history until ``now``, epoch seconds; None of no history.

    Raises :class:`UsageError` for history that cannot be read.
    """
    days = reversed(Folder(history).days("broker_rounds"))
    rows = next((rows for day in days if (rows := day_rows(day, "broker_rounds", 0.0, now))), None)
    if rows is None:
        return None
    end = rows["t"][-1].as_py()
    rows = rows.filter(pc.field("t") > end - timedelta(seconds=LAST_SECONDS))
    brokers = rows.group_by("broker").aggregate([(column, "mean") for column in ("cpu", *RATES)])
    traffic = sum(pc.sum(brokers[f"{column}_mean"]).as_py() or 0.0 for column in RATES[BYTES_IN:])
    usable = brokers.drop_null()
    cpu, *rates = (pc.mean(usable[f"{column}_mean"]).as_py() for column in ("cpu", *RATES))
    mean = MeanBroker(cpu, sum(rates[:BYTES_IN]), sum(rates[BYTES_IN:])) if usable.num_rows else None
    return PresentLoad(brokers.num_rows, traffic, mean)


def taken_since(
    rounds: Iterable[tuple[float, DecidedBy]],
    changes: Sequence[ChangedSetting],
    since: float | None = None,
) -> float | None:
    """Since when the proposed settings are in force, epoch seconds; None if they are not, in the last of the rounds.

    ``rounds`` are in the order of time; ``since`` is the answer for the rounds before them.
    """
    taken: dict[DecidedBy, bool] = {}
    for time, decided in rounds:
        if decided not in taken:
            taken[decided] = decided.has(changes)
        if not taken[decided]:
            since = None
        elif since is None:
            since = time
    return since


def _figures(rounds: pa.Table, history: Folder, day: str, weights: Weights) -> Figures:
    """The figures of rounds of a day, one at least, as a calibration has them of a window."""
    since = rounds["t"][0].as_py().timestamp()
    samples = day_rows(history.table("broker_rounds") / day, "broker_rounds", since)
    brokers = rounds["brokers"].combine_chunks()
    reported = pa.table({"t": rounds["t"].take(pc.list_parent_indices(brokers)), "broker": pc.list_flatten(brokers)})
    window = pack(reported.join(samples, ["t", "broker"]), schema("bundle_rounds").empty_table())
    moves = pc.sum(rounds["planned"]).as_py()
    gaps = gap_figures(window.at, as_recorded(window, weights), Scale(0.0, 0.0))
    return Figures(moves=moves, bundles=0, moved_twice=0, replays=1, **gaps)
