"""Common parts: settings of all strategies, and the shedders that look at one broker at a time. Pure.

Such shedders say how much of a broker's traffic should go, and with which bundles; a placement names destinations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, PrivateAttr

from lbd.decide.candidates import UNITS, Offers
from lbd.load import scoring
from lbd.model import Comparison, Decision, Hits, Memory, Pair, Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.decide.candidates import Candidates, Measure
    from lbd.load.scoring import Weights
    from lbd.model import Averages, CodeArray, FloatArray, Permission, Snapshot, Unload


MOST_POINTS, MOST_HITS, MOST_MESSAGES, MOST_BYTES = 1000.0, 10_000, 1e9, 1e13
"""Above them a setting is a slip of the pen: points with a weight of 10, a week of samples, what no broker carries."""


class StrategySettings(BaseModel):
    """Settings of one strategy; ``name`` is what ``strategy:`` takes.

    ``assumed`` are the words for what :meth:`eager` takes as given. ``placed_by`` is the placement that goes with a
    strategy that names no destination; None: it names them. With ``wants_slopes`` it gets the cost of traffic on
    each broker (:class:`~lbd.model.Slopes`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    assumed: ClassVar[str] = ""
    placed_by: ClassVar[str | None] = None
    wants_slopes: ClassVar[bool] = False

    _is_stock: bool = PrivateAttr(default=False)

    @property
    def is_stock(self) -> bool:
        """Whether the strategy decides exactly as Pulsar does (``profile: stock``); no setting of the strategy."""
        return self._is_stock

    def stock(self) -> Self:
        """The same numbers with Pulsar's own behaviour everywhere."""
        settings = self.model_copy()
        settings._is_stock = True  # noqa: SLF001 - of this class
        return settings

    def eager(self) -> Self:
        """As if what is seen now had lasted: what would be unloaded if the imbalance lasts."""
        return self

    @property
    def wanted_hits(self) -> Hits:
        """How many samples in a row a strategy wants before it fires."""
        return Hits(1, 1)


class HitSettings(StrategySettings):
    """What strategies have in common that fire after some samples in a row, after fewer beyond a high threshold."""

    assumed = "hit counts taken as reached"

    if TYPE_CHECKING:
        hit_count_low: int
        hit_count_high: int

    def eager(self) -> Self:
        """Hit counts taken as reached: what would be unloaded if the imbalance lasts."""
        return self.model_copy(
            update={"hit_count_low": min(self.hit_count_low, 1), "hit_count_high": min(self.hit_count_high, 1)}
        )

    @property
    def wanted_hits(self) -> Hits:
        """Hit counts at which a broker or a pair fires."""
        return Hits(self.hit_count_low, self.hit_count_high)


class ShedderSettings(StrategySettings):
    """What the shedders that look at one broker alone have in common.

    The placement is the one that PIP-364 recommends with it; Pulsar's default for all. They differ from Pulsar in two
    points, except with ``profile: stock``: a broker's only bundle stays (Pulsar counts the broker's own heartbeat
    bundles, too, so that it moves beside them), and so do bundles without traffic, of which a move changes nothing.
    """

    placed_by = "least-long-term-message-rate"


# --- shedders of one broker: which brokers take part, and how much is taken

if TYPE_CHECKING:
    Choose = Callable[[FloatArray, float], list[int]]
    """Traffic of the candidates, the largest first, and the amount: which of them are taken, by position."""


@dataclass(frozen=True)
class Demand:
    """What a broker is to give: ``amount`` in ``measure``, and why; below ``minimum`` nothing.

    ``above`` is how many points the broker is above what it is compared with; with ``at_most`` a bundle that carries
    more than the amount is too large.
    """

    broker: int
    above: float
    why: str
    measure: Measure
    amount: float
    minimum: float = 0.0
    at_most: bool = False


@dataclass(eq=False)
class ShedderRound:
    """One round of such a shedder. ``pairs`` have no destination."""

    snapshot: Snapshot
    averages: Averages
    permission: Permission
    settings: ShedderSettings
    weights: Weights
    unloads: list[Unload] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scores = scoring.scores(self.snapshot.brokers, self.weights)
        self.verdicts: CodeArray = self.permission.barred.copy()
        self.taking_part: list[int] = np.flatnonzero(self.permission.paired == 0).tolist()
        self._offers = Offers(self.snapshot, self.averages, self.permission)

    def too_few(self, memory: Memory) -> Decision | None:
        """The decision if fewer than two brokers can be compared: the rule is not applied then, as in Pulsar."""
        if len(self.taking_part) >= 2:
            return None
        message = f"{len(self.taking_part)} of {len(self.snapshot.brokers)} reports can be compared"
        self.skips.append(Skip("cluster", Reason.TOO_FEW_BROKERS, message))
        return self.decision(memory, "")

    def decision(self, memory: Memory, calm: str) -> Decision:
        """The answer; ``calm`` is what to say where no broker is to be relieved."""
        if not (self.pairs or self.skips):
            self.skips.append(Skip("cluster", Reason.BALANCED, calm))
        comparison = Comparison(self.scores, scoring.binding(self.snapshot.brokers, self.weights), tuple(self.pairs))
        return Decision(tuple(self.unloads), tuple(self.skips), memory, comparison, self.verdicts)

    def traffic(self, broker: int, measure: Measure) -> float:
        """The broker's latest total, in + out."""
        return self._offers.traffic(broker, measure)

    def enough_bundles(self, broker: int) -> bool:
        """Whether it has more than one bundle; Pulsar also counts the broker's own heartbeat bundles."""
        return (self._offers.listed(broker).size if self.settings.is_stock else self._offers.own(broker)) > 1

    def relieve(self, wanted: Demand, choose: Choose) -> None:
        """Take from one broker what it is to give, or say why not; what was said of it before is forgotten."""
        skip = self._settling(wanted.broker) or self._too_little(wanted) or self._sole(wanted.broker)
        fired = skip is None
        if fired:
            candidates, taken = self._chosen(wanted, choose)
            skip = self._held(wanted.broker) if taken else None
            fired = skip is None
        if fired:
            skip = self._take(wanted, candidates, taken)
        self._tell(wanted, skip, fired=fired)

    def _tell(self, wanted: Demand, skip: tuple[Reason, str] | None, *, fired: bool) -> None:
        broker, hits = self.snapshot.brokers.ids[wanted.broker], self.settings.wanted_hits
        pair = Pair(broker, None, wanted.above, hits, hits, fired=fired, why=wanted.why)
        pair = replace(pair, measure=wanted.measure, wanted=wanted.amount) if fired else pair
        self.pairs = [*(one for one in self.pairs if one.source != broker), pair]
        self.skips = [one for one in self.skips if one.what != broker]
        if skip is not None:
            self.skips.append(Skip(broker, *skip))

    def _settling(self, broker: int) -> tuple[Reason, str] | None:
        """What is seen now is not to be judged."""
        if self.permission.settled[broker]:
            return None
        return Reason.SETTLING, "it was moved to, moved from or restarted lately"

    def _held(self, broker: int) -> tuple[Reason, str] | None:
        """What is seen now is not to be acted on."""
        if self.permission.hold is not None:
            return self.permission.hold, ""
        return None if self.permission.counts[broker] else (Reason.NO_NEW_SAMPLE, "no new sample since the last turn")

    def _too_little(self, wanted: Demand) -> tuple[Reason, str] | None:
        """As in Java, an amount that is no number is not too little."""
        if not wanted.amount < wanted.minimum:
            return None
        return (
            Reason.BELOW_MINIMUM,
            f"{wanted.amount:,.0f} {UNITS[wanted.measure]} to move, minimum {wanted.minimum:,.0f}",
        )

    def _sole(self, broker: int) -> tuple[Reason, str] | None:
        if self.enough_bundles(broker):
            return None
        candidates = self._offers.candidates(broker, "throughput", self.verdicts)
        self.verdicts[candidates.bundles] = Reason.SOLE_BUNDLE.code
        bundles = self._offers.own(broker)
        if not bundles:
            return Reason.NOTHING_FITS, "it has no bundles: its load is not theirs"
        return Reason.SOLE_BUNDLE, f"it has {bundles} bundle; split it, or its clients only change brokers"

    def _chosen(self, wanted: Demand, choose: Choose) -> tuple[Candidates, list[int]]:
        """The candidates, and which of them are to go."""
        candidates = self._offers.candidates(wanted.broker, wanted.measure, self.verdicts)
        order = candidates.by_falling_traffic()
        if not self.settings.is_stock:
            order = [at for at in order if candidates.traffic[at] > 0]
        return candidates, [order[at] for at in choose(candidates.traffic[order], wanted.amount)]

    def _take(self, wanted: Demand, candidates: Candidates, taken: list[int]) -> tuple[Reason, str] | None:
        sizes = [wanted.at_most & (candidates.traffic > wanted.amount), candidates.traffic > 0]
        passed_over = np.select(sizes, [Reason.TOO_LARGE.code, Reason.NOT_NEEDED.code], Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = passed_over
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        self.unloads.extend(self._unload(wanted, candidates, at) for at in taken)
        if taken:
            return None
        why = self._offers.none_fits(wanted.broker, candidates, self.verdicts)
        return Reason.NOTHING_FITS, f"{wanted.amount:,.0f} {UNITS[wanted.measure]} to move; {why}"

    def _unload(self, wanted: Demand, candidates: Candidates, at: int) -> Unload:
        reason = f"{wanted.why}, {candidates.traffic[at]:,.0f} {UNITS[wanted.measure]}"
        source = self.snapshot.brokers.ids[wanted.broker]
        return self._offers.unload(int(candidates.bundles[at]), (source, None), reason)


def at_least(traffic: FloatArray, amount: float) -> list[int]:
    """Positions of the first ones that make up the amount: one at least, and the last may overshoot.

    ``traffic`` is float64 (K,), the largest first, in the unit of ``amount``.

    Source: OverloadShedder and ThresholdShedder. Sums run one by one in double, as Java's do.
    """
    before = np.concatenate(([0.0], np.cumsum(traffic)[:-1])) if traffic.size else np.zeros(0)
    with np.errstate(invalid="ignore"):
        enough = np.flatnonzero(~(before < amount))
    last = next((at for at in enough.tolist() if at), len(before))
    return list(range(last))
