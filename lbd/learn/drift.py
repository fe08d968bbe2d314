"""How the proposed settings did since they were taken: the figures of a calibration, from what really happened.

It reads history with pyarrow, a day at a time, and needs no Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lbd.config import strategy_section
from lbd.learn.replay import Figures, as_recorded, gap_figures, pooled
from lbd.learn.window import pack
from lbd.store.history import day_rows
from lbd.store.history_tables import VERSION, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lbd.load.scoring import Weights
    from lbd.store.calibration import ChangedSetting

if TYPE_CHECKING:
    DecidedRound = tuple[float, str | None, str | None]


@dataclass(frozen=True)
class Drift:
    """``since`` epoch seconds the settings are in force. Moves are those that the strategy planned and lbd made."""

    since: float
    figures: Figures


def measure(history: Path, changes: Sequence[ChangedSetting], after: float, weights: Weights) -> Drift | None:
    """What came of the proposed settings; None if they are not in force by the newest round of history.

    ``after`` is when they were proposed, epoch seconds. Raises :class:`UsageError` for history that cannot be read.
    """
    days = sorted((history / f"v{VERSION}" / "decisions").glob("day=*"))
    since: float | None = None
    for day in days:
        rows = day_rows(day, "decisions", after)
        times = [at.timestamp() for at in rows["t"].to_pylist()]
        decided = rows["strategy"].to_pylist(), rows["settings"].to_pylist()
        since = taken_since(zip(times, *decided, strict=True), changes, since)
    if since is None:
        return None
    found = [one for day in days if (one := _figures(history, day.name, since, weights)) is not None]
    return Drift(since, pooled(found)) if found else None


def taken_since(
    rounds: Iterable[tuple[float, str | None, str | None]],
    changes: Sequence[ChangedSetting],
    since: float | None = None,
) -> float | None:
    """Since when the proposed settings are in force, epoch seconds; None if they are not, in the last of the rounds.

    ``rounds`` have a time, a strategy and its settings as JSON, in the order of time; ``since`` is the answer for the
    rounds before them.
    """
    known: dict[tuple[str | None, str | None], bool] = {}
    for at, strategy, settings in rounds:
        key = strategy, settings
        if key not in known:
            known[key] = _has(strategy, settings, changes)
        if not known[key]:
            since = None
        elif since is None:
            since = at
    return since


def _has(strategy: str | None, settings: str | None, changes: Sequence[ChangedSetting]) -> bool:
    """Whether a round was decided with all proposed values; one of an imported recording was decided with none."""
    if not strategy or not settings:
        return False
    values = {f"{strategy_section(strategy)}.{key}": value for key, value in json.loads(settings).items()}
    values["strategy"] = strategy
    return all(values.get(change.key) == change.proposed for change in changes)


def _figures(history: Path, day: str, since: float, weights: Weights) -> Figures | None:
    """A day's figures, as a calibration has them of a window; None of a day before."""
    rounds, samples = (
        day_rows(history / f"v{VERSION}" / table / day, table, since) for table in ("decisions", "broker_rounds")
    )
    if not rounds.num_rows:
        return None
    brokers = rounds["brokers"].combine_chunks()
    reported = pa.table({"t": rounds["t"].take(pc.list_parent_indices(brokers)), "broker": pc.list_flatten(brokers)})
    window = pack(reported.join(samples, ["t", "broker"]), schema("bundle_rounds").empty_table())
    moves = pc.sum(rounds.filter(rounds["acts"])["planned"]).as_py() or 0
    gaps = gap_figures(window.at, as_recorded(window, weights), 0.0)
    return Figures(moves=moves, bundles=0, moved_twice=0, **gaps)
