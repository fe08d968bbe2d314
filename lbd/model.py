"""The nouns of lbd: plain frozen values that each stage of a turn hands to the next one, and the memory between turns.

Memory is kept in the store. Arrays are NumPy columns. ``B`` is the number of brokers, ``N`` the number of
distinct bundles, ``M`` the number of (broker, bundle) rows: ``M`` exceeds ``N`` only while a moved bundle is on two
reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbd.bundles import Namespaces, Positions, bundle_positions, namespaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.reason import Reason
    from lbd.spread import Spread
from lbd.text import counted


@dataclass(frozen=True)
class Hits:
    """Number of rounds in a row in which a broker was too far from its partner: AvgShedder's two counters."""

    low: int = 0
    high: int = 0

    def one_more(self, *, high: bool) -> Hits:
        """Add a low hit; add or reset the high one."""
        return Hits(self.low + 1, self.high + 1 if high else 0)

    def reach(self, limits: Hits) -> bool:
        """Whether one of the counters has reached its limit."""
        return self.low >= limits.low or self.high >= limits.high

    def below(self, limits: Hits) -> Hits:
        """The same, but at most one below the limits: under a hold, so that one more round is observed after it."""
        return Hits(min(self.low, max(limits.low - 1, 0)), min(self.high, max(limits.high - 1, 0)))


CLUSTER = "cluster"
"""Key of the hits that a strategy counts for all brokers together."""


def counter_key(broker: str, pool: str) -> str:
    """Key of a broker's hit counters: it has separate ones in each pool."""
    return f"{broker} in {pool}" if pool else broker


def counter_broker(counter: str) -> str:
    """Broker of a key."""
    return counter.partition(" in ")[0]


@dataclass(frozen=True)
class UsualLoad:
    """Usual load of a broker: ``usage`` is a fraction of its most used resource, ``throughput`` bytes/s."""

    usage: float
    throughput: float = 0.0


@dataclass(frozen=True)
class PlacementMemory:
    """Memory of a placement: its own averages of the brokers' usage, a fraction, and its round robin's position."""

    usage: dict[str, float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    counter: int = 0


@dataclass(frozen=True)
class Memory:
    """Memory of a strategy from turn to turn: a broker that is away keeps its counters, as in Pulsar.

    ``loads`` are running averages by broker, ``unloaded_at`` is when one was last to give bundles (epoch seconds). With
    pools every key of these is a :func:`counter_key`. ``placing`` is the memory of the placement beside it.
    """

    hits: Mapping[str, Hits] = field(default_factory=dict)
    loads: Mapping[str, UsualLoad] = field(default_factory=dict)
    unloaded_at: Mapping[str, float] = field(default_factory=dict)
    placing: PlacementMemory = field(default_factory=PlacementMemory)


# --- cost of traffic per broker: plain columns, aligned with a snapshot's brokers

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Slopes:
    """Cost of traffic by broker (``load/estimate.py``), float64 (B, 5): percent for each byte/s, NaN where unknown.

    CPU: for each message/s where ``measure`` is ``msg_rate``. ``noise``: deviation of a sample in percent, (B, 5).
    ``half_width``, (B, 5), is half of a slope's 95 % interval; ``background``, (B, 5), percent without traffic, NaN
    without a sample; ``sources`` is the origin of each broker's slope of CPU, the value of a
    :class:`~lbd.load.estimate.Source`. ``usual``, (B, 5), is percent used on average of the latest samples
    (``load/samples.py``), NaN where there is none, and ``samples``, (B,), their number. ``effect``, (B, 2), is the
    slope of CPU by a broker's own moves, where no other source has it, and the standard deviation of that, infinite
    without a move (``load/effects.py``). ``background_half_width``, (B, 5), is half of a background's 95 % interval.
    These seven are None where they are unknown.
    """

    slope: FloatArray
    noise: FloatArray
    measure: Literal["throughput", "msg_rate"] = "throughput"
    half_width: FloatArray | None = None
    background: FloatArray | None = None
    sources: tuple[str, ...] | None = None
    usual: FloatArray | None = None
    samples: FloatArray | None = None
    effect: FloatArray | None = None
    background_half_width: FloatArray | None = None


# --- nouns of a turn

IntArray = NDArray[np.int32]
CodeArray = NDArray[np.int8]
BoolArray = NDArray[np.bool_]

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Columns of :attr:`Brokers.usage` and :attr:`Brokers.limit`; ``memory`` is the JVM heap."""
MSG_IN, MSG_OUT, BYTES_IN, BYTES_OUT = range(4)
"""Columns of every rates array: messages/s in and out, bytes/s in and out."""

IMPOSSIBLE_NUMBER = 1e15
"""Limit beyond which a number is no limit or rate of a broker: shares of such a total would bind nothing."""


class ProcessCpu(NamedTuple):
    """CPU time of a broker's process since it started, and its age then; both in seconds."""

    spent_seconds: float
    up_seconds: float


@dataclass(frozen=True, eq=False)
class LiveCpu:
    """Present CPU where it is known, beside all ``reported`` values (``observe/live_cpu.py``). All are float64 (B,).

    ``seconds`` is the time before the round over which the present value is the mean, NaN where the report's counts.
    ``apart`` is the difference between the two halves of that time, in percent of the limit. ``took`` is the duration
    of the broker's last response, in seconds, NaN without a request.
    """

    reported: Brokers
    seconds: FloatArray
    apart: FloatArray
    took: FloatArray


@dataclass(frozen=True, eq=False)
class Brokers:
    """One load report per broker, as columns; ``ids`` (``host:webPort``) are sorted.

    ``usage`` and ``limit`` are float64 (B, 5) in the report's own units; a limit <= 0 means that the broker does not
    know it. ``rates`` is float64 (B, 4), the broker totals. ``started_at`` is float64 (B,) in epoch seconds, NaN where
    the report has none (2.11). ``topics`` is int64 (B,). With ``live``, ``usage`` has the present CPU where it is
    known, and ``rates`` of such brokers include moves since they counted.
    """

    ids: tuple[str, ...]
    usage: FloatArray
    limit: FloatArray
    rates: FloatArray
    topics: NDArray[np.int64]
    started_at: FloatArray
    versions: tuple[str, ...]
    live: LiveCpu | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shows_live(self) -> BoolArray:
        """Whether each broker's CPU is the present one, bool (B,)."""
        return np.zeros(len(self), dtype=np.bool_) if self.live is None else np.isfinite(self.live.seconds)

    @property
    def bytes_per_second(self) -> float:
        """Traffic of all of them, in + out; a total that is no number counts as nothing."""
        totals = self.rates[:, [BYTES_IN, BYTES_OUT]]
        return float(totals[np.isfinite(totals)].sum())

    def as_reported(self) -> Brokers:
        """The brokers with nothing but their load reports."""
        return self if self.live is None else self.live.reported

    def index(self) -> dict[str, int]:
        """Position of each broker id."""
        return {broker: position for position, broker in enumerate(self.ids)}

    def ids_where(self, mask: BoolArray) -> frozenset[str]:
        """Ids of the brokers where ``mask``, bool (B,), is true."""
        return frozenset(self.ids[row] for row in np.flatnonzero(mask).tolist())


@dataclass(frozen=True, eq=False)
class Rows:
    """Reported rows of each bundle, grouped by broker.

    ``start`` is int32 (B + 1,): broker b's rows are ``start[b]:start[b + 1]``. ``bundle`` is int32 (M,) into
    :attr:`Snapshot.bundles`. ``rates`` is float64 (M, 4), ``counts`` int64 (M, 3): topics, producers, consumers.
    ``reported``: the bundle is in ``lastStats``; ``listed``: it is in ``bundles``. Pulsar's shedders take candidates
    from the list and numbers from the statistics, and the two may differ briefly.
    """

    start: IntArray
    bundle: IntArray
    rates: FloatArray
    counts: NDArray[np.int64]
    reported: BoolArray
    listed: BoolArray

    def of(self, broker: int) -> slice:
        """The rows of one broker."""
        return slice(int(self.start[broker]), int(self.start[broker + 1]))

    def taken(self, rows: NDArray[np.int64], start: IntArray, bundle: IntArray) -> Rows:
        """These rows in this order, with other brokers' ``start`` and other bundles."""
        return Rows(start, bundle, self.rates[rows], self.counts[rows], self.reported[rows], self.listed[rows])

    def count(self, where: BoolArray) -> IntArray:
        """Number of each broker's rows where ``where``, bool (M,), is true, int32 (B,)."""
        return np.diff(np.concatenate(([0], np.cumsum(where)))[self.start]).astype(np.int32)

    def are_possible(self) -> BoolArray:
        """Whether all rates of each row are such as a bundle can have, bool (M,)."""
        return np.asarray(((self.rates >= 0) & (self.rates <= IMPOSSIBLE_NUMBER)).all(axis=1))

    def owner(self) -> IntArray:
        """Broker position of each row, int32 (M,)."""
        return np.repeat(np.arange(len(self.start) - 1, dtype=np.int32), np.diff(self.start))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One round of load reports. ``taken_at`` is epoch seconds and the only clock of a decision.

    ``partial``: brokers report their largest bundles only (the extensible manager). The rates of a row that is not
    ``reported`` are then unknown, not 0. ``segments_changed`` are bundles whose load jumps without a move, because a
    scalable topic was split or merged since the round before; recordings have none.
    """

    taken_at: float
    brokers: Brokers
    bundles: list[str]
    rows: Rows
    partial: bool = False
    segments_changed: frozenset[str] = frozenset()

    def as_reported(self) -> Snapshot:
        """The round with nothing but its load reports."""
        return self if self.brokers.live is None else self.with_brokers(self.brokers.as_reported())

    def with_brokers(self, brokers: Brokers) -> Snapshot:
        """The round with other figures of its brokers; the names of its bundles are not read again."""
        changed = replace(self, brokers=brokers)
        vars(changed).update(namespaces=self.namespaces, positions_in=self.positions_in)
        return changed

    @cached_property
    def namespaces(self) -> Namespaces:
        """The bundles' namespaces, computed once for all callers."""
        return namespaces(self.bundles)

    @cached_property
    def positions_in(self) -> Positions:
        """Positions of the bundles in another round's list, computed once per list."""
        return Positions(self.bundles)

    def positions_of(self, names: Collection[str]) -> dict[str, int]:
        """Positions of some bundles; one that is not in the round is left out."""
        return bundle_positions(names, self.bundles, self.namespaces) if names else {}

    def owners(self, position: int) -> tuple[str, ...]:
        """Brokers that report the bundle at this position; two after a recent move."""
        return tuple(self.brokers.ids[row] for row in self.rows.owner()[self.rows.bundle == position].tolist())

    @cached_property
    def segment_brokers(self) -> BoolArray:
        """The brokers that report a bundle whose segments changed, bool (B,)."""
        marked = np.zeros(len(self.brokers), dtype=np.bool_)
        if changed := list(self.positions_of(self.segments_changed).values()):
            marked[self.rows.owner()[np.isin(self.rows.bundle, changed)]] = True
        return marked

    def reported_by(self, broker: str) -> set[str]:
        """The bundles that one broker reports."""
        own = self.rows.bundle[self.rows.of(self.brokers.index()[broker])]
        return {self.bundles[row] for row in own.tolist()}


@dataclass(frozen=True, eq=False)
class Averages:
    """Short-term and long-term means of each bundle's rates, aligned with one snapshot's ``bundles``.

    ``short`` (at most 10 samples) and ``long`` (at most 1,000) are float64 (N, 4); ``samples`` is int32 (N,), 0 where
    no report has carried statistics yet. Source: Pulsar's BundleData and TimeAverageMessageData.
    """

    bundles: list[str]
    short: FloatArray
    long: FloatArray
    samples: IntArray

    @classmethod
    def empty(cls) -> Averages:
        """The averages before the first round."""
        return cls([], np.zeros((0, 4)), np.zeros((0, 4)), np.zeros(0, dtype=np.int32))

    def at_least(self, rows: Rows) -> Averages:
        """The averages, where no bundle's short-term mean is below its rates in these rows; NaN has no effect.

        A mean of ten samples has a fifth of a jump when two samples have proven it, and a plan then moves double.
        """
        short, reported = self.short.copy(), np.flatnonzero(rows.reported)
        bundles, rates = rows.bundle[reported], rows.rates[reported]
        for column in range(short.shape[1]):  # NumPy is six times as fast column by column
            np.fmax.at(short[:, column], bundles, rates[:, column])
        return replace(self, short=short)


@dataclass(frozen=True, eq=False)
class Pool:
    """Brokers among which some bundles may move, by isolation policies.

    ``brokers`` is bool (B,), ``bundles`` bool (N,). Each bundle is in one pool at most, a broker may be in several. The
    pool of the namespaces without a policy has no name. ``nobody`` is the reason why no active broker may have these
    bundles; empty where one may.
    """

    name: str
    brokers: BoolArray
    bundles: BoolArray
    nobody: str = ""


def pool_bundles(pools: Iterable[Pool], name: str) -> BoolArray | None:
    """The bundles of the pool of this name, bool (N,); None where every bundle may go anywhere."""
    return next((pool.bundles for pool in pools if pool.name == name), None)


@dataclass(frozen=True, eq=False)
class Permission:
    """Bundles and brokers that may take part in this turn, decided before the strategy.

    ``barred`` is int8 (N,): a :class:`Reason` code per bundle, 0 = may move. ``counts`` is bool (B,): the broker has
    new evidence, so its counter advances. ``paired`` is int8 (B,): 0, or the code of the reason why the broker stays
    out of pairing. ``settled`` is bool (B,): False holds the broker's pair where it is. ``hold`` forbids firing.
    ``pools`` is empty where every bundle may go anywhere. ``costs`` is float64 (N,): cheaper bundles are to be taken
    first; None where all cost the same. ``slopes`` are the learned costs of traffic, None where the strategy does not
    use them. ``max_destination_score``: points that the guardrails allow a destination; None where they do not apply.
    ``spread`` is where partitions of topics, or bundles of namespaces, are together; None where that is unknown, or
    does not count. ``joined`` are brokers that have joined lately and show their present CPU. Of rules that count hits,
    ``goes_on`` are sources that need none, because they gave lately, and ``at_limit``, bool (B,), the brokers whose
    score cannot rise; None: no broker is known to be (``decide/live.py``).
    """

    barred: CodeArray
    counts: BoolArray
    paired: CodeArray
    settled: BoolArray
    hold: Reason | None = None
    pools: tuple[Pool, ...] = ()
    costs: FloatArray | None = None
    slopes: Slopes | None = None
    max_destination_score: float | None = None
    spread: Spread | None = None
    joined: frozenset[str] = frozenset()
    goes_on: frozenset[str] = frozenset()
    at_limit: BoolArray | None = None


@dataclass(frozen=True)
class BundleClients:
    """Clients of a bundle, by a load report: loaded ``topics``, connected ``producers`` and ``consumers``."""

    topics: int
    producers: int
    consumers: int

    @property
    def connected(self) -> int:
        """Producers and consumers."""
        return self.producers + self.consumers

    @property
    def words(self) -> str:
        """Text for a person."""
        numbers = {"topic": self.topics, "producer": self.producers, "consumer": self.consumers}
        return ", ".join(counted(number, noun) for noun, number in numbers.items())


@dataclass(frozen=True)
class Unload:
    """One bundle to be unloaded from ``source`` to the named ``destination`` (None: the broker's placement chooses).

    ``msg_rate`` (messages/s) and ``throughput`` (bytes/s) are in + out: short-term averages, and unless stock at least
    those of the latest report. ``choices`` are the brokers among which Pulsar would draw. ``order`` is ``drain`` or
    ``fill`` where a person ordered one, which has a budget of its own; else empty. ``clients_before`` are the clients
    on the source's last report, None where it has no statistics of the bundle; they are no part of the plan.
    """

    bundle: str
    source: str
    destination: str | None
    msg_rate: float
    throughput: float
    reason: str = ""
    choices: tuple[str, ...] = ()
    order: str = ""
    clients_before: BundleClients | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Skip:
    """A candidate that was not moved. ``what`` is a bundle, a broker, or ``source -> destination``.

    ``until`` is when the reason ends by itself (epoch seconds), None where it does not or that is unknown.
    """

    what: str
    reason: Reason
    detail: str = ""
    until: float | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True)
class Pair:
    """Two brokers that the strategy compares, within ``pool``; ``difference`` is in points of score.

    A strategy that compares a broker with anything else has no ``destination``, and gives the reason in ``why``. For a
    pair that fired, ``wanted`` is the amount to be moved: messages/s where ``measure`` is ``msg_rate``, bytes/s where
    it is ``throughput``.
    """

    source: str
    destination: str | None
    difference: float
    hits: Hits
    wanted_hits: Hits = field(default_factory=Hits)
    fired: bool = False
    pool: str = ""
    measure: str = ""
    wanted: float = 0.0
    why: str = ""

    @property
    def ends(self) -> str:
        """Name of the pair: both brokers, or the one."""
        return self.source if self.destination is None else f"{self.source} -> {self.destination}"

    @property
    def apart(self) -> str:
        """Distance of the broker from its target, in words."""
        return self.why or f"{self.difference:.1f} points apart"


@dataclass(frozen=True, eq=False)
class Comparison:
    """View of a strategy: ``scores`` float64 (B,) in points, ``binding`` behind each; ``summary`` of the plan.

    ``compared`` is bool (B,): the brokers that it compared; None: all with a trusted report.
    """

    scores: FloatArray
    binding: tuple[str | None, ...]
    pairs: tuple[Pair, ...] = ()
    summary: str = ""
    compared: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """Result of a strategy: moves, refusals with their reasons, and its memory.

    ``verdicts`` is int8 (N,): a :class:`Reason` code per bundle, ``NOT_ASKED`` where its broker was no source.
    """

    unloads: tuple[Unload, ...]
    skips: tuple[Skip, ...]
    memory: Memory
    comparison: Comparison
    verdicts: CodeArray


class Result(StrEnum):
    """Result of an unload, proven by the owner of the bundle.

    ``GONE``: there is no such bundle any more, because its namespace was deleted or it was split.
    """

    LANDED = "landed"
    ELSEWHERE = "landed-elsewhere"
    UNOWNED = "unowned"
    GONE = "gone"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """Proven end of one unload. ``owner`` is the present owner of the bundle, ``attempts`` the number of requests.

    ``noted`` is the broker that ``leader`` may still have noted as destination for this range, None when it has none;
    with ``older_note`` it may still be the note from before. ``confirmed``: the brokers answered that it was done.
    ``amended``: another end was recorded before, and a broker acted after the wait for it was over.
    """

    unload: Unload
    result: Result
    owner: str | None
    detail: str = ""
    attempts: int = 1
    seconds: float = 0.0
    noted: str | None = None
    leader: str | None = None
    older_note: bool = False
    confirmed: bool = False
    amended: bool = False


def brokers_named(name: str, brokers: Iterable[str]) -> list[str]:
    """Brokers that a person may mean by ``host:port``, host, or the beginning of a host up to a dot."""
    ids = sorted(set(brokers))
    hosts = [broker for broker in ids if name in {broker, broker.rpartition(":")[0]}]
    return hosts or [broker for broker in ids if broker.startswith(f"{name}.")]


def bundle_namespace(bundle: str) -> str:
    """``tenant/namespace`` of a full bundle name (or ``tenant/cluster/namespace`` of an old one)."""
    return bundle.rpartition("/")[0]


def bundle_range(bundle: str) -> str:
    """``0xLLLLLLLL_0xUUUUUUUU`` of a full bundle name."""
    return bundle.rpartition("/")[2]
