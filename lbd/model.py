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
    """How often one broker was seen too far from its partner in a row: AvgShedder's two counters."""

    low: int = 0
    high: int = 0

    def one_more(self, *, high: bool) -> Hits:
        """After one more at the low threshold, that was at the high one, too, or ends what was counted there."""
        return Hits(self.low + 1, self.high + 1 if high else 0)

    def reach(self, wanted: Hits) -> bool:
        """Whether one of the counters has come to its limit."""
        return self.low >= wanted.low or self.high >= wanted.high

    def below(self, wanted: Hits) -> Hits:
        """The same, but one below the limits at most: under a hold, so that one more round is seen after it."""
        return Hits(min(self.low, max(wanted.low - 1, 0)), min(self.high, max(wanted.high - 1, 0)))


CLUSTER = "cluster"
"""Whose hits those are that a strategy counts for all brokers together."""


def counter_key(broker: str, pool: str) -> str:
    """The key of a broker's hit counters: it has a set of its own in each pool."""
    return f"{broker} in {pool}" if pool else broker


def counter_broker(counter: str) -> str:
    """Whose key it is."""
    return counter.partition(" in ")[0]


@dataclass(frozen=True)
class UsualLoad:
    """What a broker's load usually is: ``usage`` is a fraction of its most used resource, ``throughput`` bytes/s."""

    usage: float
    throughput: float = 0.0


@dataclass(frozen=True)
class PlacementMemory:
    """What a placement remembers: its own averages of the brokers' usage, a fraction, and the round robin's place."""

    usage: dict[str, float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    counter: int = 0


@dataclass(frozen=True)
class Memory:
    """What a strategy remembers from turn to turn: a broker that is away keeps its counters, as in Pulsar.

    ``loads`` are running averages by broker, ``unloaded_at`` is when one was last to give bundles (epoch seconds). With
    pools every key of these is a :func:`counter_key`. ``placing`` is what the placement beside it remembers.
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
    without a sample; ``sources`` is where each broker's slope of CPU comes from, the value of a
    :class:`~lbd.load.estimate.Source`. ``usual``, (B, 5), is percent used on average of the latest samples
    (``load/samples.py``), NaN where there is none, and ``samples``, (B,), how many they are. ``effect``, (B, 2), is
    the slope of CPU by a broker's own moves, where no other source has it, and the standard deviation of that, infinite
    without a move (``load/effects.py``). ``background_half_width``, (B, 5), is half of a background's 95 % interval.
    These seven are None where they are not known.
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
"""No broker has a limit, or carries messages or bytes a second, above it: shares of such a total would bind nothing."""


class ProcessCpu(NamedTuple):
    """CPU that a broker's process has spent since it started, and how long ago that was; both in seconds."""

    spent_seconds: float
    up_seconds: float


@dataclass(frozen=True, eq=False)
class LiveCpu:
    """Where CPU of now is known, beside what all brokers ``reported`` (``observe/live_cpu.py``). All are float64 (B,).

    ``seconds`` is of how long a time before the round the present value is the mean, NaN where the report's counts.
    ``apart`` is how far the two halves of that time differ, in percent of the limit. ``took`` is how long the broker
    took to answer last, in seconds, NaN where it was not asked.
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
    the report has none (2.11). ``topics`` is int64 (B,). With ``live``, ``usage`` has the CPU of now where it is known,
    and ``rates`` of such brokers what has moved since they counted.
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
        """Whose CPU is that of now, bool (B,)."""
        return np.zeros(len(self), dtype=np.bool_) if self.live is None else np.isfinite(self.live.seconds)

    def as_reported(self) -> Brokers:
        """What their load reports say."""
        return self if self.live is None else self.live.reported

    def index(self) -> dict[str, int]:
        """Position of each broker id."""
        return {broker: position for position, broker in enumerate(self.ids)}

    def ids_where(self, mask: BoolArray) -> frozenset[str]:
        """The ids of the brokers at which this is true, bool (B,)."""
        return frozenset(self.ids[at] for at in np.flatnonzero(mask).tolist())


@dataclass(frozen=True, eq=False)
class Rows:
    """What each broker reports of each bundle, grouped by broker.

    ``start`` is int32 (B + 1,): broker b's rows are ``start[b]:start[b + 1]``. ``bundle`` is int32 (M,) into
    :attr:`Snapshot.bundles`. ``rates`` is float64 (M, 4), ``counts`` int64 (M, 3): topics, producers, consumers.
    ``reported``: the bundle is in ``lastStats``; ``listed``: it is in ``bundles``. Pulsar's shedders take candidates
    from the list and numbers from the statistics, and the two differ for moments.
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

    def count(self, where: BoolArray) -> IntArray:
        """How many of each broker's rows are marked, int32 (B,): ``where`` is bool (M,)."""
        return np.diff(np.concatenate(([0], np.cumsum(where)))[self.start]).astype(np.int32)

    def owner(self) -> IntArray:
        """Broker position of each row, int32 (M,)."""
        return np.repeat(np.arange(len(self.start) - 1, dtype=np.int32), np.diff(self.start))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One round of load reports. ``taken_at`` is epoch seconds and the only clock that deciding knows.

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
        """The same with nothing but what load reports say."""
        return self if self.brokers.live is None else replace(self, brokers=self.brokers.as_reported())

    @cached_property
    def namespaces(self) -> Namespaces:
        """The bundles' namespaces, computed once for all callers."""
        return namespaces(self.bundles)

    @cached_property
    def positions_in(self) -> Positions:
        """Where the bundles stand in another round's list, worked out once for all that asks about the same one."""
        return Positions(self.bundles)

    def positions_of(self, wanted: Collection[str]) -> dict[str, int]:
        """Where some bundles stand; one that is not in the round is left out."""
        return bundle_positions(wanted, self.bundles, self.namespaces) if wanted else {}

    def owners(self, position: int) -> tuple[str, ...]:
        """The brokers that report the bundle at this position; two where it moved lately."""
        return tuple(self.brokers.ids[at] for at in self.rows.owner()[self.rows.bundle == position].tolist())

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
        return {self.bundles[at] for at in own.tolist()}


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
        """The same where no bundle's short-term mean is below what these rows report of it; NaN says nothing.

        A mean of ten samples knows a fifth of a jump when two samples have proven it, and a plan then moves twice as
        much as it should.
        """
        short, reported = self.short.copy(), np.flatnonzero(rows.reported)
        bundles, rates = rows.bundle[reported], rows.rates[reported]
        for column in range(short.shape[1]):  # of one column NumPy is six times as fast as of all
            np.fmax.at(short[:, column], bundles, rates[:, column])
        return replace(self, short=short)


@dataclass(frozen=True, eq=False)
class Pool:
    """Brokers among which some bundles may move, as isolation policies make them.

    ``brokers`` is bool (B,), ``bundles`` bool (N,). Each bundle is in one pool at most, a broker may be in several. The
    pool of the namespaces without a policy has no name. ``nobody`` says why no active broker may have these bundles;
    empty where one may.
    """

    name: str
    brokers: BoolArray
    bundles: BoolArray
    nobody: str = ""


@dataclass(frozen=True, eq=False)
class Permission:
    """Who may take part in this turn, known before a strategy is asked.

    ``barred`` is int8 (N,): a :class:`Reason` code per bundle, 0 = may move. ``counts`` is bool (B,): the broker has
    new evidence, so its counter advances. ``paired`` is int8 (B,): 0, or the code of why the broker stays out of
    pairing. ``settled`` is bool (B,): False holds the broker's pair where it is. ``hold`` forbids firing. ``pools`` is
    empty where every bundle may go anywhere. ``costs`` is float64 (N,): cheaper bundles are to be taken first; None
    where all cost the same. ``slopes`` are what lbd has learned of the brokers, None where the strategy does not ask.
    ``max_destination_score``: points that the guardrails will let a destination reach; None where they are not asked.
    ``spread`` is where partitions of topics, or bundles of namespaces, are together; None where that is not known, or
    does not count. ``joined`` are brokers that have joined lately and show their CPU of now.
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


@dataclass(frozen=True)
class BundleClients:
    """Who uses a bundle, by a load report: loaded ``topics``, connected ``producers`` and ``consumers``."""

    topics: int
    producers: int
    consumers: int

    @property
    def connected(self) -> int:
        """Producers and consumers."""
        return self.producers + self.consumers

    @property
    def words(self) -> str:
        """As a person reads it."""
        numbers = {"topic": self.topics, "producer": self.producers, "consumer": self.consumers}
        return ", ".join(counted(number, noun) for noun, number in numbers.items())


@dataclass(frozen=True)
class Unload:
    """One bundle to be unloaded from ``source`` to the named ``destination`` (None: the broker's placement chooses).

    ``msg_rate`` (messages/s) and ``throughput`` (bytes/s) are in + out: short-term averages, and unless stock at
    least what the latest report says. ``choices`` are the brokers among which Pulsar would draw. ``order`` is ``drain``
    or ``fill`` where a person ordered one, which has a budget of its own; else empty. ``clients_before`` are the
    clients on the source's last report, None where it has no statistics of the bundle; they are no part of the plan.
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
    """Something considered and not moved. ``what`` is a bundle, a broker, or ``source -> destination``.

    ``until`` is when that ends by itself (epoch seconds), None where it does not or where that is not known.
    """

    what: str
    reason: Reason
    detail: str = ""
    until: float | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True)
class Pair:
    """Two brokers that the strategy compares, within ``pool``; ``difference`` is in points of score.

    A strategy that compares a broker with anything else has no ``destination``, and says ``why`` the broker is to be
    relieved. Of a pair that fired, ``wanted`` is how much was to be moved: messages/s where ``measure`` is
    ``msg_rate``, bytes/s where it is ``throughput``.
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
        """What it is called: both brokers, or the one."""
        return self.source if self.destination is None else f"{self.source} -> {self.destination}"

    @property
    def apart(self) -> str:
        """How far it is from where it should be."""
        return self.why or f"{self.difference:.1f} points apart"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a strategy saw: ``scores`` float64 (B,) in points, ``binding`` behind each; ``summary`` of the plan.

    ``compared`` is bool (B,): the brokers that it compared; None: all whose report is trusted.
    """

    scores: FloatArray
    binding: tuple[str | None, ...]
    pairs: tuple[Pair, ...] = ()
    summary: str = ""
    compared: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """A strategy's answer: what to move, what not and why, and what to remember.

    ``verdicts`` is int8 (N,): a :class:`Reason` code per bundle, ``NOT_ASKED`` where its broker was no source.
    """

    unloads: tuple[Unload, ...]
    skips: tuple[Skip, ...]
    memory: Memory
    comparison: Comparison
    verdicts: CodeArray


class Result(StrEnum):
    """How an unload ended, as proven by asking who owns the bundle.

    ``GONE``: there is no such bundle any more, as its namespace was deleted or it was split.
    """

    LANDED = "landed"
    ELSEWHERE = "landed-elsewhere"
    UNOWNED = "unowned"
    GONE = "gone"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """The proven end of one unload. ``owner`` is who owns the bundle now, ``attempts`` how often it was asked for.

    ``noted`` is the broker that ``leader`` may still hold as destination for this range, None when it holds none; with
    ``older_note`` nothing proves that it is not what it held before. ``confirmed``: the brokers answered that it was
    done. ``amended``: another end was recorded before, and a broker acted after the wait for it was over.
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
    """The brokers that a person may mean by ``host:port``, host, or the beginning of a host up to a dot."""
    known = sorted(set(brokers))
    hosts = [one for one in known if name in {one, one.rpartition(":")[0]}]
    return hosts or [one for one in known if one.startswith(f"{name}.")]


def bundle_namespace(bundle: str) -> str:
    """``tenant/namespace`` of a full bundle name (or ``tenant/cluster/namespace`` of an old one)."""
    return bundle.rpartition("/")[0]


def bundle_range(bundle: str) -> str:
    """``0xLLLLLLLL_0xUUUUUUUU`` of a full bundle name."""
    return bundle.rpartition("/")[2]
