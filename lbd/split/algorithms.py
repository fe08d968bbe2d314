"""Where Pulsar would cut a bundle: its four algorithms, position for position. Pure.

A position is a topic hash, 0 to 0xffffffff; what lies below it goes to the lower part, what lies at or above it to the
upper one. None: the algorithm finds nothing to cut, and a broker that is asked answers 204 and does nothing.

Source: Pulsar's *BundleSplitAlgorithm classes; available from 2.10 (the first two), 2.11 (PIP-143), 3.0 (PIP-169) on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


@dataclass(frozen=True)
class Flow:
    """What one part may carry by ``flow_or_qps_equally_divide``: messages/s and MiB/s, in + out.

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
    """The positions given, those that are inside the range, in order; ``force``: also of one topic or none.

    Raises :class:`UsageError` when none is given. Source: PIP-143.
    """
    given = sorted(positions)
    if not given:
        raise UsageError(f"{SPECIFIED} wants positions, and none is given")
    if len(topics) <= 1 and not force:
        return None
    return tuple(position for position in given if lower < position < upper) or None


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
