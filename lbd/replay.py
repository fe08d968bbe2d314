"""A strategy over recordings, open loop: the unloads of each round. No Spark, no cluster.

Order within a round (as in Pulsar's leader): the averages take every report once; a round with fewer than two brokers
is not decided; bundles unloaded less than ``grace_s`` ago are left out; the strategy chooses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from lbd.decide.strategies import STRATEGIES, build, strategy_settings
from lbd.documents import complaint
from lbd.errors import UsageError
from lbd.load.scoring import Weights
from lbd.model import Averages, Memory, Permission
from lbd.observe import averages as running
from lbd.observe.parse import build_snapshot, parse_round
from lbd.permit.eligibility import broker_bundles
from lbd.reason import Reason
from lbd.store import recording
from lbd.turn.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from lbd.decide.shedder import StrategySettings
    from lbd.decide.strategies import Strategy
    from lbd.model import CodeArray, Decision, Slopes, Snapshot
    from lbd.store.recording import Header


UNNAMED = "avg-shedder"
"""Strategy of a recording that names none."""


@dataclass(frozen=True)
class Replayed:
    """One round of a replay: its number from 1, the snapshot, and the strategy's decision."""

    id: str
    round: int
    snapshot: Snapshot
    decision: Decision


@dataclass
class _Run:
    """State of one recording: each begins with an empty memory."""

    strategy: Strategy
    grace_s: float
    learn: Callable[[Snapshot], Slopes | None]
    averages: Averages = field(default_factory=Averages.empty)
    memory: Memory = field(default_factory=Memory)
    unloaded_at: dict[str, float] = field(default_factory=dict)

    def step(self, snapshot: Snapshot) -> Decision:
        self.averages = running.update(self.averages, snapshot)
        decision = self.strategy(snapshot, self.averages, self._permission(snapshot), self.memory)
        self.memory = decision.memory
        self.unloaded_at.update((unload.bundle, snapshot.taken_at) for unload in decision.unloads)
        return decision

    def _permission(self, snapshot: Snapshot) -> Permission:
        everyone = np.ones(len(snapshot.brokers), dtype=np.bool_)
        nobody = np.zeros(len(snapshot.brokers), dtype=np.int8)
        slopes = self.learn(snapshot)
        return Permission(self._barred(snapshot), everyone, nobody, everyone, slopes=slopes)

    def _barred(self, snapshot: Snapshot) -> CodeArray:
        barred = broker_bundles(snapshot)
        since = snapshot.taken_at - self.grace_s
        self.unloaded_at = {bundle: time for bundle, time in self.unloaded_at.items() if time >= since}
        barred[list(snapshot.positions_of(self.unloaded_at).values())] = Reason.COOL_DOWN.code
        return barred


def rounds(path: Path) -> Iterator[tuple[Header, int, Snapshot]]:
    """Rounds of each recording in a file, with its header and their numbers (from 1).

    Raises :class:`UsageError` where it has none.
    """
    none = True
    for line in recording.read(path):
        parsed, none = parse_round(line.body, line.where), False
        yield line.header, line.number, build_snapshot(parsed.t, parsed.reports)
    if none:
        raise UsageError(f"{path}: no rounds in it; a round is a line with t and reports (lbd record)")


def replay(
    rounds: Iterable[tuple[Header, int, Snapshot]],
    strategy: str | None,
    settings: dict[str, object],
    *,
    stock: bool,
    placement: str | None = None,
) -> Iterator[Replayed]:
    """Decide every round of every recording. ``settings`` override the header's, ``strategy`` its strategy.

    ``placement`` chooses destinations where the strategy names none; None: no destination.
    """
    run: _Run | None = None
    current: Header | None = None
    for header, number, snapshot in rounds:
        if run is None or header is not current:
            name = strategy or header.strategy or UNNAMED
            chosen, weights = settings_from(header, name, settings)
            learn: Callable[[Snapshot], Slopes | None] = Learning() if chosen.wants_slopes else lambda _: None
            run = _Run(build(chosen.stock() if stock else chosen, weights, placement), header.grace_s, learn)
            current = header
        yield Replayed(header.id, number, snapshot, run.step(snapshot))


def settings_from(
    header: Header, name: str, settings: Mapping[str, object], weights: Mapping[str, object] | None = None
) -> tuple[StrategySettings, Weights]:
    """Settings and weights of the strategy from a recording's header; the arguments win.

    The header of another strategy gives only the weights. Raises :class:`UsageError` that names the header's place.
    """
    if name not in STRATEGIES:
        raise UsageError(f"{header.where}: strategy {name!r} is not known; wanted {', '.join(STRATEGIES)}")
    own = header.settings if (header.strategy or UNNAMED) == name else {}
    try:
        chosen = strategy_settings(name, {**own, **settings})
        return chosen, Weights.model_validate({**header.weights, **(weights or {})})
    except ValidationError as error:
        item = error.errors()[0]
        key = ".".join(map(str, item["loc"]))
        where = "--set" if item["loc"][0] in settings else header.where
        raise UsageError(f"{where}: {key}: {item['input']!r}: {complaint(item)}") from error
