"""The nouns of lbd: plain frozen values that every stage of a turn hands to the next one.

Arrays are NumPy columns. ``B`` is the number of brokers, ``N`` the number of distinct bundles, ``M`` the number of
(broker, bundle) rows: ``M`` exceeds ``N`` only while a moved bundle is on two reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lbd.bundles import Namespaces, Positions, namespaces, positions_of
from lbd.memory import CLUSTER as CLUSTER
from lbd.memory import Hits as Hits
from lbd.memory import Load as Load
from lbd.memory import Memory as Memory
from lbd.memory import Placing as Placing
from lbd.memory import broker_of as broker_of
from lbd.memory import counter_of as counter_of
from lbd.slopes import Slopes as Slopes  # noqa: TC001 - told again beside the other nouns

if TYPE_CHECKING:
    from collections.abc import Collection

    from lbd.reason import Reason

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
CodeArray = NDArray[np.int8]
BoolArray = NDArray[np.bool_]

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Columns of :attr:`Brokers.usage` and :attr:`Brokers.limit`; ``memory`` is the JVM heap."""
MSG_IN, MSG_OUT, BYTES_IN, BYTES_OUT = range(4)
"""Columns of every rates array: messages/s in and out, bytes/s in and out."""


@dataclass(frozen=True, eq=False)
class Brokers:
    """One load report per broker, as columns; ``ids`` (``host:webPort``) are sorted.

    ``usage`` and ``limit`` are float64 (B, 5) in the report's own units; a limit <= 0 means that the broker does not
    know it. ``rates`` is float64 (B, 4), the broker totals. ``started_at`` is float64 (B,) in epoch seconds, NaN where
    the report has none (2.11). ``topics`` is int64 (B,).
    """

    ids: tuple[str, ...]
    usage: FloatArray
    limit: FloatArray
    rates: FloatArray
    topics: NDArray[np.int64]
    started_at: FloatArray
    versions: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def index(self) -> dict[str, int]:
        """Position of each broker id."""
        return {broker: position for position, broker in enumerate(self.ids)}


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

    ``partial``: brokers tell what their largest bundles carry (the extensible manager); of a row that is not
    ``reported`` the rates are unknown then, not 0.
    """

    taken_at: float
    brokers: Brokers
    bundles: list[str]
    rows: Rows
    partial: bool = False

    @cached_property
    def namespaces(self) -> Namespaces:
        """The bundles' namespaces, told apart once for all that asks by namespace."""
        return namespaces(self.bundles)

    @cached_property
    def positions_in(self) -> Positions:
        """Where the bundles stand in another round's list, worked out once for all that asks about the same one."""
        return Positions(self.bundles)

    def positions_of(self, wanted: Collection[str]) -> dict[str, int]:
        """Where some bundles stand; one that is not in the round is left out."""
        return positions_of(wanted, self.bundles, self.namespaces) if wanted else {}


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


@dataclass(frozen=True, eq=False)
class Pool:
    """Brokers among which some bundles may move, as isolation policies make them.

    ``brokers`` is bool (B,), ``bundles`` bool (N,). Each bundle is in one pool at most, a broker may be in several. The
    pool of the namespaces without a policy has no name.
    """

    name: str
    brokers: BoolArray
    bundles: BoolArray


@dataclass(frozen=True, eq=False)
class Permission:
    """Who may take part in this turn, known before a strategy is asked.

    ``barred`` is int8 (N,): a :class:`Reason` code per bundle, 0 = may move. ``counts`` is bool (B,): the broker has
    new evidence, so its counter advances. ``paired`` is int8 (B,): 0, or the code of why the broker stays out of
    pairing. ``settled`` is bool (B,): False holds the broker's pair where it is. ``hold`` forbids firing. ``pools`` is
    empty where every bundle may go anywhere. ``costs`` is float64 (N,): cheaper bundles are to be taken first; None
    where all cost the same. ``slopes`` are what lbd has learned of the brokers, None where the strategy does not ask.
    ``max_destination_score``: points that the guardrails will let a destination reach; None where they are not asked.
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


@dataclass(frozen=True)
class Unload:
    """One bundle to be unloaded from ``source`` to the named ``destination`` (None: the broker's placement chooses).

    ``msg_rate`` (messages/s) and ``throughput`` (bytes/s) are in + out, short-term averages. ``choices`` are the
    brokers among which Pulsar would draw.
    """

    bundle: str
    source: str
    destination: str | None
    msg_rate: float
    throughput: float
    reason: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Skip:
    """Something considered and not moved. ``what`` is a bundle, a broker, or ``source -> destination``."""

    what: str
    reason: Reason
    detail: str = ""


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
class Facts:
    """What a strategy saw: ``scores`` float64 (B,) in points, ``binding`` behind each; ``told`` of the whole plan."""

    scores: FloatArray
    binding: tuple[str | None, ...]
    pairs: tuple[Pair, ...] = ()
    told: str = ""


@dataclass(frozen=True, eq=False)
class Decision:
    """A strategy's answer: what to move, what not and why, and what to remember.

    ``verdicts`` is int8 (N,): a :class:`Reason` code per bundle, ``NOT_ASKED`` where its broker was no source.
    """

    unloads: tuple[Unload, ...]
    skips: tuple[Skip, ...]
    memory: Memory
    facts: Facts
    verdicts: CodeArray


class Result(Enum):
    """How an unload ended, as proven by asking who owns the bundle."""

    LANDED = "landed"
    ELSEWHERE = "landed-elsewhere"
    UNOWNED = "unowned"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """The proven end of one unload. ``owner`` is who owns the bundle now, ``attempts`` how often it was asked for.

    ``noted`` is the broker that ``leader`` may still hold as destination for this range, None when it holds none; with
    ``older_note`` nothing proves that it is not what it held before.
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


def bundle_namespace(bundle: str) -> str:
    """``tenant/namespace`` of a full bundle name (or ``tenant/cluster/namespace`` of an old one)."""
    return bundle.rpartition("/")[0]


def bundle_range(bundle: str) -> str:
    """``0xLLLLLLLL_0xUUUUUUUU`` of a full bundle name."""
    return bundle.rpartition("/")[2]
