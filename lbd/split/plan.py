"""Splits: where Pulsar's four algorithms cut a bundle, position for position, and the result. Pure.

A position is a topic hash, 0 to 0xffffffff; hashes below it go to the lower part, hashes at or above it to the upper
one. None: the algorithm finds nothing to cut, and a broker then returns 204 and does nothing.

Source: Pulsar's *BundleSplitAlgorithm classes; available from 2.10 (the first two), 2.11 (PIP-143), 3.0 (PIP-169) on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from lbd.bundles import holds, range_in_name, range_name, split_segment_command
from lbd.errors import RefusedError, UsageError
from lbd.model import bundle_namespace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


Algorithm: TypeAlias = Literal[
    "range_equally_divide", "topic_count_equally_divide", "specified_positions_divide", "flow_or_qps_equally_divide"
]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
"""Names as ``splitAlgorithmName`` takes them; the first is Pulsar's default."""

SPECIFIED: Algorithm = "specified_positions_divide"

MIB = 1024 * 1024


@dataclass(frozen=True)
class Topic:
    """A topic of a bundle. ``position`` is its hash, ``msg_rate`` messages/s and ``throughput`` bytes/s, in + out.

    Both are None where the broker has no statistics of it, as of a topic that is not loaded.
    """

    name: str
    position: int
    msg_rate: float | None = None
    throughput: float | None = None

    @property
    def has_traffic(self) -> bool:
        """Whether the broker counts any."""
        return (self.msg_rate or 0.0) > 0 or (self.throughput or 0.0) > 0

    @property
    def is_segment(self) -> bool:
        """Whether it is a segment of a scalable topic."""
        return self.name.startswith("segment://")


@dataclass(frozen=True)
class Flow:
    """Limits of one part by ``flow_or_qps_equally_divide``: messages/s and MiB/s, in + out.

    A bundle is cut when it exceeds one of them by ``difference_percentage`` at least.
    """

    max_msg_rate: float = 30_000
    max_bandwidth_mbytes: float = 100
    difference_percentage: float = 10

    @property
    def max_throughput(self) -> float:
        """The same in bytes/s."""
        return self.max_bandwidth_mbytes * MIB


def range_equally_divide(lower: int, upper: int) -> tuple[int, ...]:
    """The middle of the range, whatever lies in it; of a range of a single hash that is its lower end."""
    return (_between(lower, upper),)


def topic_count_equally_divide(topics: Sequence[Topic]) -> tuple[int, ...] | None:
    """Halfway between the two topics in the middle; with an odd number the upper part has one more."""
    if len(topics) <= 1:
        return None
    hashes = sorted(topic.position for topic in topics)
    middle = len(hashes) // 2
    return (_between(hashes[middle - 1], hashes[middle]),)


def specified_positions_divide(
    lower: int, upper: int, topics: Sequence[Topic], positions: Iterable[int], *, force: bool = False
) -> tuple[int, ...] | None:
    """The given positions that are inside the range, in order; ``force``: also with one topic or none.

    Raises :class:`UsageError` when none is given. Source: PIP-143.
    """
    ordered = sorted(positions)
    if not ordered:
        raise UsageError(f"{SPECIFIED} wants positions, and none is given")
    if len(topics) <= 1 and not force:
        return None
    return tuple(position for position in ordered if lower < position < upper) or None


def flow_or_qps_equally_divide(topics: Sequence[Topic], flow: Flow) -> tuple[int, ...] | None:
    """Cuts before each topic with which the part so far would exceed ``flow``, in the order of their hashes.

    Topics without traffic do not count; two of one hash count as one, the later. A part may still exceed ``flow``:
    where a single topic does. Source: PIP-169.
    """
    if len(topics) <= 1:
        return None
    busy = [topic for topic in topics if topic.has_traffic]
    if len({topic.position for topic in busy}) < 2 or not _exceeds(busy, flow):
        return None
    in_order = sorted({topic.position: topic for topic in busy}.values(), key=lambda topic: topic.position)
    return tuple(_cuts(in_order, flow)) or None


def _exceeds(busy: Sequence[Topic], flow: Flow) -> bool:
    factor = 1 + flow.difference_percentage / 100.0
    messages = sum(topic.msg_rate or 0.0 for topic in busy)
    volume = sum(topic.throughput or 0.0 for topic in busy)
    return messages >= flow.max_msg_rate * factor or volume >= flow.max_throughput * factor


def _cuts(in_order: Sequence[Topic], flow: Flow) -> Iterator[int]:
    before, messages, volume = in_order[0].position, 0.0, 0.0
    for topic in in_order:
        rate, throughput = topic.msg_rate or 0.0, topic.throughput or 0.0
        too_much = messages + rate > flow.max_msg_rate or volume + throughput > flow.max_throughput
        if too_much and topic is not in_order[0]:
            yield _between(before, topic.position) + 1
            messages = volume = 0.0
        before, messages, volume = topic.position, messages + rate, volume + throughput


def _between(lower: int, upper: int) -> int:
    return lower + (upper - lower) // 2


# --- plan of one bundle: its cuts, and the topics on each side


@dataclass(frozen=True)
class Part:
    """A bundle as it is, or as it would be, with its topics in the order of their hashes."""

    bundle: str
    topics: tuple[Topic, ...]

    @property
    def msg_rate(self) -> float:
        """Messages/s in + out of the topics that the owner has statistics of."""
        return sum(topic.msg_rate or 0.0 for topic in self.topics)

    @property
    def throughput(self) -> float:
        """Bytes/s in + out, likewise."""
        return sum(topic.throughput or 0.0 for topic in self.topics)

    @property
    def busiest(self) -> Topic | None:
        """The topic with most messages, by bytes where none has any; None where there is no traffic."""
        busy = [topic for topic in self.topics if topic.has_traffic]
        return max(busy, key=lambda topic: (topic.msg_rate or 0.0, topic.throughput or 0.0), default=None)


@dataclass(frozen=True)
class SplitPlan:
    """One split. ``positions`` rise and lie inside the range of ``whole``; ``owner`` is who owns it now."""

    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    whole: Part
    parts: tuple[Part, ...]

    @property
    def bundle(self) -> str:
        """The bundle that is to be cut."""
        return self.whole.bundle

    @property
    def empty(self) -> tuple[str, ...]:
        """Parts that no topic falls into: cutting them off helps nobody, and cannot be taken back."""
        return tuple(part.bundle for part in self.parts if not part.topics)


def plan(
    owner: str, bundle: str, algorithm: Algorithm, topics: Sequence[Topic], flow: Flow, requested: Sequence[int] = ()
) -> SplitPlan:
    """Where ``algorithm`` cuts a bundle, and which topics lie on each side.

    ``topics`` are those of the bundle, ``requested`` the positions of ``specified_positions_divide``. Raises
    :class:`UsageError` for invalid positions, and :class:`RefusedError` where there is nothing to cut, or the load is
    that of one segment, which a cut between topics cannot divide.
    """
    segment = None if requested else _only_segment(topics)
    if segment is not None:
        command = split_segment_command(segment.name)
        _refuse(bundle, f"its load is that of one segment, {segment.name}; divide that: {command}")
    positions = _inside(bundle, _positions(bundle, algorithm, topics, flow, requested))
    in_order = sorted(topics, key=lambda topic: topic.position)
    return SplitPlan(
        owner, algorithm, positions, Part(bundle, tuple(in_order)), tuple(_parts(bundle, positions, in_order))
    )


def _only_segment(topics: Sequence[Topic]) -> Topic | None:
    """The segment that has all of the traffic, or is the only topic."""
    busy = [topic for topic in topics if topic.has_traffic] or topics
    return busy[0] if len(busy) == 1 and busy[0].is_segment else None


def split_parts(bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
    """Full names of the bundles that a bundle falls into."""
    lower, upper = range_in_name(bundle)
    namespace = bundle_namespace(bundle)
    return tuple(f"{namespace}/{range_name(*ends)}" for ends in pairwise((lower, *positions, upper)))


def inside(bundle: str, boundaries: Collection[int]) -> tuple[int, ...]:
    """Which of a namespace's boundaries lie strictly inside a bundle's range, rising."""
    lower, upper = range_in_name(bundle)
    return tuple(sorted(position for position in boundaries if lower < position < upper))


def _parts(bundle: str, positions: Sequence[int], topics: Sequence[Topic]) -> Iterator[Part]:
    for name in split_parts(bundle, positions):
        yield Part(name, tuple(topic for topic in topics if holds(name, topic.position)))


def _positions(
    bundle: str, algorithm: Algorithm, topics: Sequence[Topic], flow: Flow, requested: Sequence[int]
) -> tuple[int, ...]:
    lower, upper = range_in_name(bundle)
    if requested and algorithm != SPECIFIED:
        raise UsageError(f"{algorithm} finds its positions itself; positions are given to {SPECIFIED}")
    if algorithm == "range_equally_divide":
        return range_equally_divide(lower, upper)
    segments = sum(topic.is_segment for topic in topics)
    if len(topics) - segments < 2 <= len(topics):  # NamespaceService.getOwnedTopicListForNamespaceBundle (5.0.0-M1)
        counted = f"{_topics(topics)}, {segments} of them segments, which brokers do not count"
        _refuse(bundle, f"{counted}; only range_equally_divide cuts it")
    if algorithm == "topic_count_equally_divide":
        return topic_count_equally_divide(topics) or _refuse(bundle, f"{_topics(topics)}, wanted two at least")
    if algorithm == SPECIFIED:
        _check_positions(bundle, requested)
        cuts = specified_positions_divide(lower, upper, topics, requested)
        return cuts or _refuse(bundle, f"{_topics(topics)}: brokers cut at given positions from two topics on")
    return flow_or_qps_equally_divide(topics, flow) or _refuse(bundle, _too_little(topics, flow))


def _refuse(bundle: str, why: str) -> tuple[int, ...]:
    raise RefusedError(f"{bundle}: nothing to cut: {why}")


def _topics(topics: Sequence[Topic]) -> str:
    return f"it has {len(topics) or 'no'} topic{'' if len(topics) == 1 else 's'}"


def _too_little(topics: Sequence[Topic], flow: Flow) -> str:
    busy = sum(topic.has_traffic for topic in topics)
    if busy < 2:
        return f"{_topics(topics)}, {busy} of them with traffic, wanted two at least"
    whole = Part("", tuple(topics))
    factor = 1 + flow.difference_percentage / 100
    if whole.msg_rate < flow.max_msg_rate * factor and whole.throughput < flow.max_throughput * factor:
        return (
            f"{whole.msg_rate:,.0f} msg/s and {whole.throughput / MIB:,.1f} MiB/s; it is cut from "
            f"{flow.max_msg_rate * factor:,.0f} msg/s (split.max_msg_rate) or "
            f"{flow.max_bandwidth_mbytes * factor:,.1f} MiB/s (split.max_bandwidth_mbytes) on, "
            f"{flow.difference_percentage:g} % above the limit"
        )
    return "all of its traffic is on topics of one hash"


def _check_positions(bundle: str, requested: Sequence[int]) -> None:
    """Refuse positions outside the range. Pulsar ignores them, but a person who gave one has mistaken the bundle."""
    lower, upper = range_in_name(bundle)
    wrong = [position for position in requested if not lower < position < upper]
    if wrong:
        outside = ", ".join(f"{position:#010x}" for position in wrong[:3])
        raise UsageError(f"{outside}: outside {bundle}; wanted above 0x{lower:08x} and below 0x{upper:08x}")


def _inside(bundle: str, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Each position once. Neighbouring topics at a range's lower end can have no position between them."""
    cuts = inside(bundle, set(positions))
    return cuts or _refuse(bundle, "no position lies inside its range")


class PartDocument(msgspec.Struct, frozen=True):
    """A part of a bundle, or all of it: number of topics, messages/s and bytes/s in + out."""

    bundle: str
    topics: int
    msg_rate: float
    throughput: float
    busiest_topic: str | None


class SplitDocument(msgspec.Struct, frozen=True):
    """A plan as JSON: positions in hexadecimal, traffic before and after.

    ``refused`` is why the bundle may not be split now; null where it may.
    """

    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[str, ...]
    before: PartDocument
    after: tuple[PartDocument, ...]
    refused: str | None = None


class DueSplitDocument(SplitDocument, frozen=True, kw_only=True):
    """A plan of the rule, and why."""

    reason: str


class UnsplitDocument(msgspec.Struct, frozen=True):
    """A bundle above a limit that is not split, and why."""

    bundle: str
    reason: str


class DueSplitsDocument(msgspec.Struct, frozen=True):
    """The bundles that the rule would split, and those above a limit that it leaves."""

    splits: tuple[DueSplitDocument, ...]
    left: tuple[UnsplitDocument, ...]


def as_document(plan: SplitPlan, refused: str = "") -> SplitDocument:
    """The plan as JSON."""
    positions = tuple(f"0x{position:08x}" for position in plan.positions)
    parts = tuple(map(_part_document, plan.parts))
    ends = plan.bundle, plan.owner, plan.algorithm, positions
    return SplitDocument(*ends, _part_document(plan.whole), parts, refused or None)


def _part_document(part: Part) -> PartDocument:
    busiest = part.busiest
    rates = (round(part.msg_rate, 3), round(part.throughput, 3))
    return PartDocument(part.bundle, len(part.topics), *rates, busiest.name if busiest is not None else None)


# --- request and result, judged by the namespace's boundaries afterwards


class SplitResult(Enum):
    """How a split ended, as proven by reading the namespace's boundaries back."""

    SPLIT = "split"
    ELSEWHERE = "split-elsewhere"
    NOT_SPLIT = "not-split"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Cut:
    """One bundle to be cut at ``positions``, which rise, while ``owner`` owns it."""

    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    reason: str = ""

    @property
    def asked_as(self) -> tuple[Algorithm, tuple[int, ...] | None]:
        """The request to the broker: algorithm, and positions or None.

        With an algorithm that goes by topics, which come and go, the broker would choose its own positions, and it
        fails (500) at ``flow_or_qps_equally_divide`` unless that is its default; given positions make it cut where the
        plan does. The middle of a range is the same for every broker and is cut whatever lies in it, whereas brokers
        cut at given positions only from two topics on.
        """
        if self.algorithm == "range_equally_divide":
            return self.algorithm, None
        return SPECIFIED, self.positions


@dataclass(frozen=True)
class CutOutcome:
    """The proven end of one split. ``boundaries`` are those inside the bundle's range afterwards.

    ``owner`` owns all the parts, None where that is not so or not known.
    """

    cut: Cut
    result: SplitResult
    boundaries: tuple[int, ...] = ()
    owner: str | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """Full names of the bundle's parts now: its own name if it is whole, or nothing is known."""
        return split_parts(self.cut.bundle, self.boundaries) if self.boundaries else (self.cut.bundle,)


def plan_cut(plan: SplitPlan, reason: str) -> Cut:
    """The split that a plan describes."""
    return Cut(plan.bundle, plan.owner, plan.algorithm, plan.positions, reason)


def judged(cut: Cut, boundaries: Collection[int]) -> tuple[SplitResult, tuple[int, ...]]:
    """The result, and the boundaries inside the range; those that were not requested come from a later split."""
    cuts = inside(cut.bundle, boundaries)
    if not cuts:
        return SplitResult.NOT_SPLIT, ()
    return (SplitResult.SPLIT if set(cut.positions) <= set(cuts) else SplitResult.ELSEWHERE), cuts
