"""Common parts: settings of all strategies, and the shedders that look at one broker at a time. Pure.

Such shedders decide the amount of a broker's traffic that should go, and the bundles; a placement names destinations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import Field, PrivateAttr

from lbd.decide.candidates import UNITS, Offers
from lbd.load import scoring
from lbd.model import Comparison, Decision, Hits, Memory, Pair, Skip
from lbd.reason import Reason
from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.decide.candidates import Candidates, Measure
    from lbd.load.scoring import Weights
    from lbd.model import CodeArray, FloatArray, Unload


MOST_POINTS, MOST_HITS, MOST_MESSAGES, MOST_BYTES = 1000.0, 10_000, 1e9, 1e13
"""Limits of settings: a weight of 10 in points, a week of samples, and beyond the traffic of any broker."""


def parameter(value: float, key: str, most: float | None = None, least: float = 0.0) -> Any:  # noqa: ANN401 - see Field
    """A number of a rule that Pulsar has under this key in broker.conf, and lbd.yaml has not; no limits: a switch."""
    return Field(value, ge=None if most is None else least, le=most, json_schema_extra={"broker_conf": key})


class StrategySettings(Section):
    """Settings of one strategy; ``name`` is what ``strategy:`` takes. lbd.yaml has a section of them if ``is_section``:
    the numbers of Pulsar's four older rules are its defaults, as other numbers do not mend these rules (PIP-364).

    ``assumed`` are the words for what :meth:`eager` takes as given. ``placed_by`` is the placement that goes with a
    strategy that names no destination; None: it names them. With ``wants_slopes`` it gets the cost of traffic on
    each broker (:class:`~lbd.model.Slopes`).
    """

    name: ClassVar[str]
    assumed: ClassVar[str] = ""
    placed_by: ClassVar[str | None] = None
    wants_slopes: ClassVar[bool] = False
    is_section: ClassVar[bool] = True

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
        """Settings as if the present had lasted: the unloads if the imbalance lasts."""
        return self

    @property
    def wanted_hits(self) -> Hits:
        """Number of samples in a row before a strategy fires."""
        return Hits(1, 1)


class HitSettings(StrategySettings):
    """Settings of strategies that fire after some samples in a row, after fewer beyond a high threshold."""

    assumed = "enough samples taken as counted"

    if TYPE_CHECKING:
        hit_count_low: int
        hit_count_high: int

    def eager(self) -> Self:
        """Hit counts taken as reached: the unloads if the imbalance lasts."""
        return self.model_copy(
            update={"hit_count_low": min(self.hit_count_low, 1), "hit_count_high": min(self.hit_count_high, 1)}
        )

    @property
    def wanted_hits(self) -> Hits:
        """Hit counts at which a broker or a pair fires."""
        return Hits(self.hit_count_low, self.hit_count_high)


def progress(hits: Hits, limits: Hits) -> str:
    """Hits so far beside those that are wanted, as text."""
    return f"low samples {hits.low}/{limits.low}, high samples {hits.high}/{limits.high}"


def too_few(paired: CodeArray) -> Skip | None:
    """Skip where fewer than two brokers can be compared (``paired`` int8 (B,), 0: it can); no rule is applied then.

    Source: all shedders of Pulsar.
    """
    comparable = int((paired == 0).sum())
    message = f"{comparable} of {paired.size} reports can be compared"
    return Skip("cluster", Reason.TOO_FEW_BROKERS, message) if comparable < 2 else None


class ShedderSettings(StrategySettings):
    """Settings of the shedders that look at one broker alone.

    The placement is the one that PIP-364 recommends with it; Pulsar's default for all. They differ from Pulsar in two
    points, except with ``profile: stock``: a broker's only bundle stays (Pulsar counts the broker's own heartbeat
    bundles, too, so that it moves beside them), and so do bundles without traffic: their moves change nothing.
    """

    placed_by = "least-long-term-message-rate"


# --- shedders of one broker: which brokers take part, and how much is taken

if TYPE_CHECKING:
    Choose = Callable[[FloatArray, float], list[int]]
    """Traffic of the candidates, the largest first, and the amount: which of them are taken, by position."""


@dataclass(frozen=True)
class Demand:
    """Demand on a broker: ``amount`` in ``measure``, and the reason; below ``minimum`` nothing.

    ``above`` is the distance in points to the broker's reference; with ``at_most`` a bundle that carries more than the
    amount is too large.
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

    offers: Offers
    settings: ShedderSettings
    weights: Weights
    unloads: list[Unload] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot, self.permission = self.offers.snapshot, self.offers.permission
        self.scores = scoring.scores(self.snapshot.brokers, self.weights)
        self.verdicts: CodeArray = self.permission.barred.copy()
        self.taking_part: list[int] = np.flatnonzero(self.permission.paired == 0).tolist()

    def too_few(self, memory: Memory) -> Decision | None:
        """The decision if fewer than two brokers can be compared."""
        if (skip := too_few(self.permission.paired)) is None:
            return None
        self.skips.append(skip)
        return self.decision(memory, "")

    def decision(self, memory: Memory, calm: str) -> Decision:
        """The decision of the round; ``calm`` is the message where no broker is to be relieved."""
        if not (self.pairs or self.skips):
            self.skips.append(Skip("cluster", Reason.BALANCED, calm))
        comparison = Comparison(self.scores, scoring.binding(self.snapshot.brokers, self.weights), tuple(self.pairs))
        return Decision(tuple(self.unloads), tuple(self.skips), memory, comparison, self.verdicts)

    def traffic(self, broker: int, measure: Measure) -> float:
        """Latest total of a broker, in + out."""
        return self.offers.traffic(broker, measure)

    def enough_bundles(self, broker: int) -> bool:
        """Whether it has more than one bundle; Pulsar also counts the broker's own heartbeat bundles."""
        return (self.offers.listed(broker).size if self.settings.is_stock else self.offers.own(broker)) > 1

    def relieve(self, demand: Demand, choose: Choose) -> None:
        """Take the demand from its broker, or note the reason why not; an earlier note on it is dropped."""
        skip = self._settling(demand.broker) or self._too_little(demand) or self._sole(demand.broker)
        fired = skip is None
        if fired:
            candidates, taken = self._chosen(demand, choose)
            skip = self._held(demand.broker) if taken else None
            fired = skip is None
        if fired:
            skip = self._take(demand, candidates, taken)
        self._tell(demand, skip, fired=fired)

    def _tell(self, demand: Demand, skip: tuple[Reason, str] | None, *, fired: bool) -> None:
        broker, hits = self.snapshot.brokers.ids[demand.broker], self.settings.wanted_hits
        pair = Pair(broker, None, demand.above, hits, hits, fired=fired, why=demand.why)
        pair = replace(pair, measure=demand.measure, wanted=demand.amount) if fired else pair
        self.pairs = [*(other for other in self.pairs if other.source != broker), pair]
        self.skips = [other for other in self.skips if other.what != broker]
        if skip is not None:
            self.skips.append(Skip(broker, *skip))

    def _settling(self, broker: int) -> tuple[Reason, str] | None:
        """Refusal if present figures must not be judged."""
        if self.permission.settled[broker]:
            return None
        return Reason.SETTLING, "it was moved to, moved from or restarted lately"

    def _held(self, broker: int) -> tuple[Reason, str] | None:
        """Refusal if present figures must not cause a move."""
        if self.permission.hold is not None:
            return self.permission.hold, ""
        return None if self.permission.counts[broker] else (Reason.NO_NEW_SAMPLE, "no new sample since the last turn")

    def _too_little(self, demand: Demand) -> tuple[Reason, str] | None:
        """Refusal of a small amount. As in Java, NaN is not too little."""
        if not demand.amount < demand.minimum:
            return None
        return (
            Reason.BELOW_MINIMUM,
            f"{demand.amount:,.0f} {UNITS[demand.measure]} to move, minimum {demand.minimum:,.0f}",
        )

    def _sole(self, broker: int) -> tuple[Reason, str] | None:
        return None if self.enough_bundles(broker) else self.offers.sole(broker, self.verdicts)

    def _chosen(self, demand: Demand, choose: Choose) -> tuple[Candidates, list[int]]:
        """The candidates, and the positions of those that are to go."""
        candidates = self.offers.candidates(demand.broker, demand.measure, self.verdicts)
        order = candidates.by_falling_traffic()
        if not self.settings.is_stock:
            order = [index for index in order if candidates.traffic[index] > 0]
        return candidates, [order[index] for index in choose(candidates.traffic[order], demand.amount)]

    def _take(self, demand: Demand, candidates: Candidates, taken: list[int]) -> tuple[Reason, str] | None:
        sizes = [demand.at_most & (candidates.traffic > demand.amount), candidates.traffic > 0]
        passed_over = np.select(sizes, [Reason.TOO_LARGE.code, Reason.NOT_NEEDED.code], Reason.NO_TRAFFIC.code)
        self.verdicts[candidates.bundles] = passed_over
        self.verdicts[candidates.bundles[taken]] = Reason.MOVES.code
        self.unloads.extend(self._unload(demand, candidates, index) for index in taken)
        if taken:
            return None
        why = self.offers.none_fits(demand.broker, candidates, self.verdicts)
        return Reason.NOTHING_FITS, f"{demand.amount:,.0f} {UNITS[demand.measure]} to move; {why}"

    def _unload(self, demand: Demand, candidates: Candidates, index: int) -> Unload:
        reason = f"{demand.why}, {candidates.traffic[index]:,.0f} {UNITS[demand.measure]}"
        source = self.snapshot.brokers.ids[demand.broker]
        return self.offers.unload(int(candidates.bundles[index]), (source, None), reason)


def at_least(traffic: FloatArray, amount: float) -> list[int]:
    """Positions of the first ones that make up the amount: one at least, and the last may overshoot.

    ``traffic`` is float64 (K,), the largest first, in the unit of ``amount``.

    Source: OverloadShedder and ThresholdShedder. Sums run one by one in double, as in Java.
    """
    before = np.concatenate(([0.0], np.cumsum(traffic)[:-1])) if traffic.size else np.zeros(0)
    with np.errstate(invalid="ignore"):
        enough = np.flatnonzero(~(before < amount))
    last = next((number for number in enough.tolist() if number), len(before))
    return list(range(last))
