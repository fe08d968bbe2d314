"""lbd over a recording as if it had been there: real turns, whose moves change what the later rounds report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.act.orders import Pace
from lbd.compare.recorded import Recorded, scores_shown, unmoved
from lbd.cycle import turn
from lbd.load import scoring
from lbd.load.linear import CPU, background_as_recorded, carried, driving
from lbd.model import BYTES_IN, BYTES_OUT, Skip
from lbd.observe.observer import Observation
from lbd.permit.policies import Isolation
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from lbd.score.placement import Placement, everywhere
from lbd.score.trace import Moved, Seen, Trace
from lbd.simulate.moving import UNLOAD_SECONDS, Moving
from lbd.simulate.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lbd.compare.recorded import Round
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.load.linear import LoadModel
    from lbd.model import Snapshot, Unload


@dataclass
class Rerun:
    """A recording under lbd. ``clock`` (seconds) only measures how long turns take.

    Every unload lands where it should, and isolation policies are not known: recordings do not hold them.
    """

    rounds: Sequence[Snapshot]
    model: LoadModel
    settings: Settings
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._recorded = Recorded(self.model)
        self._round: Round | None = None
        self._now = self.rounds[0].taken_at
        self._moving = Moving(Pace.of(self.settings.guardrails), lambda: self._now, self._refused)
        self._seen: list[Seen] = []
        self._moves: list[Moved] = []
        self._first: dict[str, str] = {}
        self._named: list[str] = []
        self._heaviest: Round | None = None
        self._unmoved = unmoved(self.rounds, self.model, self.settings.weights)
        self._shown_at: float | None = None
        self._brokers = tuple(sorted({broker for one in self.rounds for broker in one.brokers.ids}))

    def turns(self) -> Iterator[CycleRecord]:
        """A turn for each round. Raises what a turn could not be finished for."""
        parts = parts_of(self, self._moving, self.settings, Isolation())
        for recorded in self.rounds:
            self._now = recorded.taken_at
            self._land()
            self._round = self._recorded.round(recorded)
            begun = self.clock()
            record = turn(parts)
            took = self.clock() - begun
            if record.error is not None:
                raise record.error
            self._look(self._round, took)
            yield record

    def trace(self) -> Trace:
        """What the scorecard is made of; scores are those that the reports would have shown."""
        return Trace(
            seen=tuple(self._seen),
            moves=tuple(self._moves),
            brokers=self._brokers,
            shown_at_seconds=self._shown_at,
            placement=self._placement(),
            unserved_bundle_seconds=len(self._moves) * UNLOAD_SECONDS,
        )

    def observe(self) -> Observation:
        """The round as the plan has it; there is a leader, and the brokers do not shed by themselves."""
        assert self._round is not None
        seen = self._round.snapshot
        return Observation(seen, "recorded", seen.brokers.ids, Leader(seen.brokers.ids[0], ""))

    def _land(self) -> None:
        for unload, _ in self._moving.landed():
            assert unload.destination is not None
            self._recorded.move(unload.bundle, unload.destination)
            ends = (unload.source, unload.destination)
            self._moves.append(Moved(self._since(), unload.bundle, *ends, unload.throughput))
            self._heaviest = None

    def _since(self) -> float:
        return self._now - self.rounds[0].taken_at

    def _refused(self, unload: Unload) -> Skip | None:
        """What the executor checks before each request."""
        assert self._round is not None
        ids = self._round.snapshot.brokers.ids
        if unload.destination not in ids:
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{unload.destination} is not there; not sent")
        return None

    def _look(self, found: Round, took_seconds: float) -> None:
        brokers = found.snapshot.brokers
        points = scores_shown(found.snapshot, self.settings.weights)
        present = np.isin(self._brokers, brokers.ids)
        carries = np.zeros(len(self._brokers))
        carries[present] = carried(found.rates, found.owner, len(brokers))[:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
        untouched = self._unmoved[len(self._seen)]
        self._seen.append(Seen(self._since(), points, untouched, present, carries, took_seconds))
        if self._heaviest is None or found.throughput > self._heaviest.throughput:
            self._heaviest = found
        if self._shown_at is None and np.ptp(points) >= self.settings.avg_shedder.high_threshold:
            self._shown_at = self._since()
        if self._named != found.snapshot.bundles:
            self._named = found.snapshot.bundles
            for bundle, owner in zip(self._named, found.owner.tolist(), strict=True):
                self._first.setdefault(bundle, brokers.ids[owner])

    def _placement(self) -> Placement | None:
        """In what drives CPU; not told where brokers came or went, or another resource binds."""
        found = self._heaviest
        if found is None or len({one.brokers.ids for one in self.rounds}) > 1:
            return None
        brokers, weight = found.snapshot.brokers, self.settings.weights.cpu
        if set(scoring.binding(brokers, self.settings.weights)) != {"cpu"}:
            return None
        model, position = self.model.of(brokers.ids), brokers.index()
        traffic = carried(found.rates, found.owner, len(brokers))
        return Placement(
            sizes=driving(found.rates, model.measure)[:, CPU],
            first=np.array([position[self._first[bundle]] for bundle in found.snapshot.bundles], dtype=np.int32),
            last=found.owner,
            idle=weight * np.maximum(background_as_recorded(model, scoring.percent(brokers), traffic)[:, CPU], 0.0),
            slope=weight * model.slope[:, CPU],
            present=np.ones(len(brokers), dtype=np.bool_),
            pools=everywhere(len(found.owner), len(brokers)),
        )
