"""What a split would do to one bundle: where it is cut, and which topics lie on each side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lbd.errors import RefusedError, UsageError
from lbd.model import bundle_namespace
from lbd.split.algorithms import (
    MIB,
    SPECIFIED,
    Flow,
    Topic,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from lbd.split.topic_hash import holds, range_name, range_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lbd.split.algorithms import Algorithm


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
        return max(busy, key=lambda one: (one.msg_rate or 0.0, one.throughput or 0.0), default=None)


@dataclass(frozen=True)
class Plan:
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
    owner: str, bundle: str, algorithm: Algorithm, topics: Sequence[Topic], flow: Flow, given: Sequence[int] = ()
) -> Plan:
    """Where ``algorithm`` cuts a bundle, and what lies on each side.

    ``topics`` are those of the bundle, ``given`` the positions of ``specified_positions_divide``. Raises
    :class:`UsageError` for positions that are none, and :class:`RefusedError` where there is nothing to cut.
    """
    positions = _inside(bundle, _positions(bundle, algorithm, topics, flow, given))
    in_order = sorted(topics, key=lambda topic: topic.position)
    return Plan(owner, algorithm, positions, Part(bundle, tuple(in_order)), tuple(_parts(bundle, positions, in_order)))


def parts_of(bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
    """Full names of the bundles that a bundle falls into."""
    lower, upper = range_of(bundle)
    namespace = bundle_namespace(bundle)
    return tuple(f"{namespace}/{range_name(*ends)}" for ends in pairwise((lower, *positions, upper)))


def inside(bundle: str, boundaries: Collection[int]) -> tuple[int, ...]:
    """Which of a namespace's boundaries lie strictly inside a bundle's range, rising."""
    lower, upper = range_of(bundle)
    return tuple(sorted(position for position in boundaries if lower < position < upper))


def _parts(bundle: str, positions: Sequence[int], topics: Sequence[Topic]) -> Iterator[Part]:
    for name in parts_of(bundle, positions):
        yield Part(name, tuple(topic for topic in topics if holds(name, topic.position)))


def _positions(
    bundle: str, algorithm: Algorithm, topics: Sequence[Topic], flow: Flow, given: Sequence[int]
) -> tuple[int, ...]:
    lower, upper = range_of(bundle)
    if given and algorithm != SPECIFIED:
        raise UsageError(f"{algorithm} finds its positions itself; positions are given to {SPECIFIED}")
    if algorithm == "range_equally_divide":
        return range_equally_divide(lower, upper)
    if algorithm == "topic_count_equally_divide":
        return topic_count_equally_divide(topics) or _refuse(bundle, f"{_topics(topics)}, wanted two at least")
    if algorithm == SPECIFIED:
        _check_given(bundle, given)
        found = specified_positions_divide(lower, upper, topics, given)
        return found or _refuse(bundle, f"{_topics(topics)}: brokers cut at given positions from two topics on")
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


def _check_given(bundle: str, given: Sequence[int]) -> None:
    """Pulsar passes over positions outside the range; a person who gave one has mistaken the bundle."""
    lower, upper = range_of(bundle)
    wrong = [position for position in given if not lower < position < upper]
    if wrong:
        told = ", ".join(f"{position:#010x}" for position in wrong[:3])
        raise UsageError(f"{told}: outside {bundle}; wanted above 0x{lower:08x} and below 0x{upper:08x}")


def _inside(bundle: str, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Each position once. Neighbouring topics at a range's lower end can have no position between them."""
    found = inside(bundle, set(positions))
    return found or _refuse(bundle, "no position lies inside its range")


def as_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: positions in hexadecimal, rates of each part."""
    return {
        "bundle": plan.bundle,
        "owner": plan.owner,
        "algorithm": plan.algorithm,
        "positions": [f"0x{position:08x}" for position in plan.positions],
        "before": _part_document(plan.whole),
        "after": [_part_document(part) for part in plan.parts],
    }


def _part_document(part: Part) -> dict[str, Any]:
    busiest = part.busiest
    return {
        "bundle": part.bundle,
        "topics": len(part.topics),
        "msg_rate": round(part.msg_rate, 3),
        "throughput": round(part.throughput, 3),
        "busiest_topic": busiest.name if busiest is not None else None,
    }
