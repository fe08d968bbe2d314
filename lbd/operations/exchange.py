"""Convert history to recordings, and recordings to history."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.files import as_usage_error
from lbd.load import scoring
from lbd.replay import rounds as recorded
from lbd.replay import settings_from
from lbd.store import recording
from lbd.store.history import HistoryWriter, rounds
from lbd.store.history_round import HISTORY_FOLDER, HistoryRound
from lbd.store.state import StateDir
from lbd.turn.strategy_config import effective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.model import BoolArray, FloatArray, Snapshot
    from lbd.store.recording import Header


def exported(root: Path, file: Path, settings: Settings, since: float, until: float) -> int:
    """Write the rounds between two times (epoch seconds) into a recording; returns their number.

    Raises :class:`UsageError` where there are none, and for a file that exists or cannot be written.
    """
    stored = rounds(root, since, until)
    first = next(stored, None)
    if first is None:
        raise UsageError(f"{root}: no history between these times; lbd run keeps it where history.enabled is true")
    header = {
        "id": file.name.partition(".")[0],
        "strategy": settings.strategy,
        "settings": effective(settings).model_dump(mode="json", exclude_unset=True),
        "weights": settings.weights.model_dump(mode="json"),
        "source": "lbd history export",
    }
    count = 0
    with recording.create(file, header) as writer:
        for taken_at, reports in chain([first], stored):
            writer.round(taken_at, reports)
            count += 1
    return count


def imported(files: Sequence[Path], root: Path, settings: Settings) -> int:
    """Add the rounds of recordings to history; returns their number.

    Raises :class:`UsageError` for an invalid line, and :class:`~lbd.errors.RefusedError` while an lbd is running.
    """
    own = root == settings.state_dir / HISTORY_FOLDER
    count = 0
    with StateDir(settings.state_dir).locked() if own else nullcontext():
        if not own:
            with as_usage_error(root):
                root.mkdir(parents=True, exist_ok=True)
        writer = HistoryWriter(root, settings.history)
        for file in files:
            for recorded in _rounds(file):
                writer.add(recorded)
                count += 1
        writer.flush()
    if writer.trouble or writer.lost:
        raise UsageError(writer.trouble or f"{root}: {writer.lost:,} rounds could not be written")
    return count


def _rounds(file: Path) -> Iterator[HistoryRound]:
    current: Header | None = None
    before: dict[str, tuple[float, ...]] = {}
    for header, _, snapshot in recorded(file):
        if header is not current:
            current, before = header, {}
            chosen, weights = settings_from(header, header.strategy or "avg-shedder", {})
            decision = _decision(header.strategy or "avg-shedder", chosen.model_dump_json(), file)
        fresh = _fresh(snapshot, before)
        used = np.where(snapshot.brokers.limit > 0, scoring.percent(snapshot.brokers), np.nan)
        scores: FloatArray = scoring.scores(snapshot.brokers, weights)
        binding = scoring.binding(snapshot.brokers, weights)
        yield HistoryRound(snapshot, fresh, used, scores, binding, (None,) * len(snapshot.brokers), decision)


def _fresh(snapshot: Snapshot, before: dict[str, tuple[float, ...]]) -> BoolArray:
    """Brokers with another report than in the round before; ``before`` is updated."""
    usages = dict(zip(snapshot.brokers.ids, map(tuple, snapshot.brokers.usage.tolist()), strict=True))
    fresh = np.array([before.get(broker) != usage for broker, usage in usages.items()], dtype=np.bool_)
    before.clear()
    before.update(usages)
    return fresh


def _decision(strategy: str, settings: str, file: Path) -> dict[str, object]:
    return {
        "turn": 0,
        "strategy": strategy,
        "settings": settings,
        "all_settings": None,
        "sentence": f"imported from {file.name}",
        "verdict": "unknown",
        "hold": None,
        "acts": False,
        "planned": 0,
        "skipped": "{}",
    }
