"""Names of bundles: namespace, range, and matching between rounds; and the bundle of a topic. Pure."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import xor
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray


if TYPE_CHECKING:
    IntArray = NDArray[np.int32]

PIECE = 64
NEAR = 1000
"""Distance to search: a broker that came or went shifts others by hundreds of names, a bundle by a single one."""


@dataclass(frozen=True, eq=False)
class Namespaces:
    """The distinct ``names``, and for each bundle the position of its own among them: ``of`` is int32 (N,)."""

    names: tuple[str, ...]
    of: IntArray


def namespaces(bundles: list[str]) -> Namespaces:
    """The namespaces of the bundles."""
    names = [bundle.rpartition("/")[0] for bundle in bundles]  # bundle_namespace, without a call for each
    position = {name: index for index, name in enumerate(dict.fromkeys(names))}
    of = np.fromiter(map(position.__getitem__, names), dtype=np.int32, count=len(names))
    return Namespaces(tuple(position), of)


def bundle_positions(names: Collection[str], bundles: list[str], spaces: Namespaces) -> dict[str, int]:
    """Positions of some bundles, searched in their namespaces only; a missing bundle is left out."""
    own = {name.rpartition("/")[0] for name in names}
    may = np.array([name in own for name in spaces.names], dtype=np.bool_)[spaces.of]
    return {bundles[row]: row for row in np.flatnonzero(may).tolist() if bundles[row] in names}


def positions(names: list[str], others: list[str]) -> IntArray:
    """Position of each name in ``others``, int32 (N,), -1 where it is missing; both hold each name once.

    From one round to the next most names keep their order: only pieces that do not are looked up one by one.
    """
    if names == others:
        return np.arange(len(names), dtype=np.int32)
    shifts = np.repeat(_shifts(names, others), PIECE)[: len(names)]
    indices = np.where(shifts < len(others), np.arange(len(names)) + shifts, -1).astype(np.int32)
    unmatched = np.ones(len(others), dtype=np.bool_)
    unmatched[indices[indices >= 0]] = False
    position = {others[index]: index for index in np.flatnonzero(unmatched).tolist()}
    rest = np.flatnonzero(indices < 0)
    indices[rest] = [position.get(names[index], -1) for index in rest.tolist()]
    return indices


class Positions:
    """Positions of ``bundles`` in other lists. A repeated call with the same list returns the stored result."""

    def __init__(self, bundles: list[str]) -> None:
        self._bundles = bundles
        self._last: tuple[list[str], IntArray] | None = None

    def __call__(self, others: list[str]) -> IntArray:
        """As :func:`positions`; the result is read-only."""
        last = self._last
        if last is None or last[0] is not others:
            self._last = last = others, positions(self._bundles, others)
            last[1].flags.writeable = False
        return last[1]


def _shifts(names: list[str], others: list[str]) -> list[int]:
    """Shift of each piece of the names in ``others``; ``len(others)`` where the piece is not together there."""
    shifts, shift = [], 0
    for start in range(0, len(names), PIECE):
        piece, then = names[start : start + PIECE], start + shift
        same = then >= 0 and piece == others[then : then + len(piece)]
        shifts.append(shift if same else len(others))
        if not same:
            last = then + len(piece) - 1
            shift += _near(piece[-1], others, last) - last
    return shifts


def _near(name: str, others: list[str], about: int) -> int:
    """Position of the name, if it is near ``about``; else ``about`` itself."""
    try:
        return others.index(name, max(about - NEAR, 0), max(about + NEAR, 0))
    except ValueError:
        return about


# --- the bundle of a topic: Pulsar's hash of its name, and the boundaries of its namespace
# Source: NamespaceBundleFactory.getLongHashCode and NamespaceBundles.findBundle (Pulsar 2.10 to 5.0).

FULL_RANGE = (0x00000000, 0xFFFFFFFF)
"""First and last boundary of every namespace; the last bundle includes its upper end."""
RANGE_BITS = 32

_TOPIC = re.compile(r"(?:non-)?persistent://([^/]+/[^/]+)/[^/]+")
_SEGMENT = re.compile(r"segment://([^/]+/[^/]+)/(.+)/[0-9a-f]{4}-[0-9a-f]{4}-(\d+)")
_SCALABLE = re.compile(r"topic://([^/]+/[^/]+)/.+")
_RANGE = re.compile(r"[^/]+/[^/]+/0x([0-9a-f]{8})_0x([0-9a-f]{8})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_BOUNDARY = re.compile(r"0x[0-9a-fA-F]{1,8}")


def topic_hash(topic: str) -> int:
    """Position of a topic in its namespace, 0 to 0xffffffff: CRC32 of its full name's UTF-8 bytes.

    The full name has the domain, and ``-partition-N`` for a partition: ``persistent://t/n/orders-partition-0``. The
    full name of a segment ends in its key range and number: ``segment://t/n/orders/0000-7fff-1``. A character that
    UTF-8 cannot encode counts as ``?``, as in Java.
    """
    return zlib.crc32(topic.encode(errors="replace"))


OCTAL_DIGITS = 12
"""Octal digits of a made-up name: the fewest whose bits reach every CRC32 (11 reach half of them)."""


def numbered(stem: str, number: int) -> str:
    """A name that ends in a number, always with as many digits."""
    return f"{stem}{number:0{OCTAL_DIGITS}o}"


def topic_at(stem: str, position: int) -> str:
    """The name of a topic with this hash (:func:`topic_hash`): ``stem`` and a number; another hash gives another name.

    CRC32 is linear over GF(2): each set bit of the octal digits decides by itself which bits of the hash change. Hence
    the digits are computed; a search would take as many tries as there are bundles.
    """
    change = position ^ topic_hash(numbered(stem, 0))
    flips = (digits for bit, digits in enumerate(_digits_by_bit()) if change >> bit & 1)
    return numbered(stem, reduce(xor, flips, 0))


@cache
def _digits_by_bit() -> tuple[int, ...]:
    """For each bit of the hash, the digits that flip only that bit, as a number, by Gaussian elimination."""
    zero = topic_hash(numbered("", 0))
    digits_of: dict[int, tuple[int, int]] = {}
    for flip in range(3 * OCTAL_DIGITS):
        digits = 1 << flip
        flipped = topic_hash(numbered("", digits)) ^ zero
        for bit, (other, others) in digits_of.items():
            if flipped >> bit & 1:
                flipped ^= other
                digits ^= others
        if flipped:
            lead = flipped.bit_length() - 1
            for bit, (other, others) in list(digits_of.items()):
                if other >> lead & 1:
                    digits_of[bit] = other ^ flipped, others ^ digits
            digits_of[lead] = flipped, digits
    return tuple(digits_of[bit][1] for bit in range(RANGE_BITS))


WITH_CLUSTER = (
    "the name has a cluster in it (v1: tenant/cluster/namespace); lbd cannot read policies of such a namespace, "
    "and never moves its bundles"
)
"""Reason for refusing names of Pulsar's first API. Its namespaces, topics and bundles have one part more."""

_TOPIC_WITH_CLUSTER = re.compile(r"(?:non-)?persistent://[^/]+/[^/]+/[^/]+/.+")


def has_cluster(namespace: str) -> bool:
    """Whether a namespace, as it stands in the name of a bundle, is a v1 one: ``tenant/cluster/namespace``."""
    return namespace.count("/") == 2


def names_topic(text: str) -> bool:
    """Whether a text is meant as the name of a topic, a segment or a scalable topic; a web address is not."""
    return text.partition("://")[0] in {"persistent", "non-persistent", "segment", "topic"} and "://" in text


def topic_namespace(topic: str) -> str:
    """``tenant/namespace`` of a full topic name. Raises :class:`UsageError` for any other text.

    A scalable topic is refused: its messages are in segments, each in the bundle of its own name.
    """
    match = _TOPIC.fullmatch(topic) or _SEGMENT.fullmatch(topic)
    if match is not None:
        return match[1]
    if _TOPIC_WITH_CLUSTER.fullmatch(topic):
        raise UsageError(f"{topic}: {WITH_CLUSTER}")
    form = "segment://tenant/namespace/topic/0000-ffff-0"
    if _SCALABLE.fullmatch(topic):
        raise UsageError(f"{topic} is a scalable topic, each segment of which has its own bundle; wanted {form}")
    raise UsageError(f"{topic!r} is no topic; wanted persistent://tenant/namespace/topic or {form}")


# --- scalable topics of Pulsar 5 and their segments
# Source: SegmentTopicName and TopicName (5.0.0-M1); docs/scalable-topics.md.


@dataclass(frozen=True)
class TopicBundle:
    """A topic or segment by its full name, and the bundle that holds it."""

    topic: str
    bundle: str


def is_scalable(topic: str) -> bool:
    """Whether this is the name of a scalable topic, which has segments: ``topic://tenant/namespace/topic``."""
    return topic.startswith("topic://")


def scalable_namespace(topic: str) -> str:
    """``tenant/namespace`` of a scalable topic. Raises :class:`UsageError` for any other text."""
    match = _SCALABLE.fullmatch(topic)
    if match is None:
        raise UsageError(f"{topic!r} is no scalable topic; wanted topic://tenant/namespace/topic")
    return match[1]


def segment_name(topic: str, first_key: int, last_key: int, number: int) -> str:
    """Full name of a segment of a scalable topic: its first and last key hash, 0 to 0xffff, and its number."""
    return f"segment://{topic.removeprefix('topic://')}/{first_key:04x}-{last_key:04x}-{number}"


def one_bundle(topic: str, parts: Sequence[TopicBundle]) -> str:
    """The bundle of a topic. Raises :class:`UsageError` that names its segments or partitions if it has several."""
    if len(parts) == 1:
        return parts[0].bundle
    names = ", ".join(f"{part.topic} ({part.bundle.rpartition('/')[2]})" for part in parts)
    what = "segments" if is_scalable(topic) else "partitions"
    raise UsageError(f"{topic} has {len(parts)} {what}; wanted one of {names}")


def partitions(topic: str, topics: Iterable[str]) -> list[str]:
    """The partitions of a topic among these names, in their order: ``TOPIC-partition-0`` and so on."""
    numbers = {name.removeprefix(f"{topic}-partition-"): name for name in topics if name.startswith(topic)}
    return [numbers[number] for number in sorted(filter(_NUMBER.fullmatch, numbers), key=int)]


def segment_parent(segment: str) -> str | None:
    """The scalable topic of a segment; None for any other name."""
    match = _SEGMENT.fullmatch(segment)
    return f"topic://{match[1]}/{match[2]}" if match is not None else None


def split_segment_command(topic: str) -> str:
    """The command that halves a segment; empty for any other topic. Source: CmdScalableTopics."""
    match = _SEGMENT.fullmatch(topic)
    command = "pulsar-admin scalable-topics split-segment"
    return f"{command} {match[1]}/{match[2]} --segment-id {match[3]}" if match is not None else ""


def parse_boundaries(texts: Sequence[str]) -> tuple[int, ...]:
    """Parse the boundaries of ``GET /admin/v2/namespaces/{tenant}/{namespace}/bundles``: ``["0x00000000", ...]``.

    Raises :class:`UsageError` unless they rise from 0x00000000 to 0xffffffff.
    """
    boundaries = tuple(int(text, 16) if _BOUNDARY.fullmatch(text) else -1 for text in texts)
    rise = all(lower < upper for lower, upper in pairwise(boundaries))
    if not rise or (boundaries[:1] + boundaries[-1:]) != FULL_RANGE:
        raise UsageError(f"{list(texts)!r:.200} are no boundaries; wanted 0x00000000 rising to 0xffffffff")
    return boundaries


def not_a_bundle(text: str) -> str:
    """The message about a text that is no name of a bundle that lbd could move."""
    namespace, _, span = text.rpartition("/")
    if has_cluster(namespace) and span.startswith("0x"):
        return f"{text}: {WITH_CLUSTER}"
    return f"{text!r} is no bundle; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU"


def range_in_name(bundle: str) -> tuple[int, int]:
    """Both ends of a bundle's range by its name. Raises :class:`UsageError` for any other text."""
    match = _RANGE.fullmatch(bundle)
    lower, upper = (int(match[1], 16), int(match[2], 16)) if match is not None else (0, 0)
    if not lower < upper:
        raise UsageError(not_a_bundle(bundle))
    return lower, upper


def holds(bundle: str, position: int) -> bool:
    """Whether a topic of this hash is in a bundle: ranges are [lower, upper), the last one has its end."""
    lower, upper = range_in_name(bundle)
    return lower <= position < upper + (upper == FULL_RANGE[1])


def bundle_ends(bundles: Sequence[str]) -> NDArray[np.int64]:
    """Both ends of each bundle's range by its name, int64 (N, 2); -1 and -1 for any other text."""
    text = "".join([name[-RANGE_CHARACTERS:] for name in bundles]).encode(errors="replace")
    if len(text) != RANGE_CHARACTERS * len(bundles):
        bounds = [
            (int(match[1], 16), int(match[2], 16)) if match else (-1, -1) for match in map(_RANGE.fullmatch, bundles)
        ]
        return np.array(bounds, dtype=np.int64).reshape(-1, 2)
    characters = np.frombuffer(text, dtype=np.uint8).reshape(-1, RANGE_CHARACTERS)
    digits = _DIGITS[characters[:, _DIGIT_COLUMNS]].reshape(-1, 2, 8)
    ends: NDArray[np.int64] = digits @ _POWERS
    ends[(digits < 0).any(axis=(1, 2)) | (characters[:, _SIGN_COLUMNS] != _SIGNS).any(axis=1)] = -1
    return ends


RANGE_CHARACTERS = len("0x00000000_0xffffffff")
_SIGN_COLUMNS = [0, 1, 10, 11, 12]
_DIGIT_COLUMNS = [*range(2, 10), *range(13, 21)]
_SIGNS = np.frombuffer(b"0x_0x", dtype=np.uint8)
_POWERS = 16 ** np.arange(7, -1, -1, dtype=np.int64)
_DIGITS = np.full(256, -1, dtype=np.int64)
_DIGITS[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)


def topic_hashes(namespaces: Iterable[str], names: Iterable[str]) -> NDArray[np.int64]:
    """The :func:`topic_hash` of persistent topics: for each of these names in each namespace, int64 (S, T)."""
    tails = [name.encode(errors="replace") for name in names]
    starts = [topic_hash(f"persistent://{namespace}/") for namespace in namespaces]
    return np.array([[zlib.crc32(tail, start) for tail in tails] for start in starts], dtype=np.int64)


def bundles_at(
    ends: NDArray[np.int64], spaces: Namespaces, namespace: NDArray[np.int64], position: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Bundle of each topic, int64 (P,) by position among the bundles; -1: in none of these.

    ``ends`` are :func:`bundle_ends` of the bundles, ``spaces`` their namespaces. ``namespace`` is int64 (P,) into the
    names of these, ``position`` is int64 (P,), the :func:`topic_hash` of each topic.
    """
    if not ends.size:
        return np.full(position.size, -1, dtype=np.int64)
    start = (spaces.of.astype(np.int64) << RANGE_BITS) + ends[:, 0]
    order = np.argsort(start, kind="stable")
    last = np.searchsorted(start[order], (namespace << RANGE_BITS) + position, side="right") - 1
    candidates = order[np.maximum(last, 0)]
    lower, upper = ends[candidates].T
    holds = (last >= 0) & (spaces.of[candidates] == namespace) & (lower >= 0)
    holds &= (lower <= position) & (position < upper + (upper == FULL_RANGE[1]))
    return np.where(holds, candidates, -1)


def split_into(bundle: str, bundles: Iterable[str]) -> list[str]:
    """Bundles that cover exactly the range of this one, which no longer exists; empty if none do."""
    if _RANGE.fullmatch(bundle) is None:
        return []
    lower, upper = range_in_name(bundle)
    start = f"{bundle.rpartition('/')[0]}/0x"
    cut = sorted((range_in_name(part), part) for part in bundles if part.startswith(start))
    parts = [(ends, part) for ends, part in cut if lower <= ends[0] and ends[1] <= upper]
    edges = [lower, *(ends[1] for ends, _ in parts)]
    whole = [ends[0] for ends, _ in parts] == edges[:-1] and edges[-1] == upper
    return [part for _, part in parts] if whole and len(parts) > 1 else []


def missing(bundle: str, bundles: Sequence[str]) -> str:
    """The message about a bundle that does not exist: its parts, or the bundles in its place."""
    lower, upper = range_in_name(bundle)
    if parts := split_into(bundle, bundles):
        return f"{bundle} is no bundle any more: it was split into {first_names(parts)}"
    there = [other for other in bundles if range_in_name(other)[0] < upper and lower < range_in_name(other)[1]]
    instead = f"; there are {first_names(there)}" if there else ""
    return f"{bundle} is no bundle of {bundle.rpartition('/')[0]}, which has {len(bundles)}{instead}"


def range_name(lower: int, upper: int) -> str:
    """``0xLLLLLLLL_0xUUUUUUUU``."""
    return f"0x{lower:08x}_0x{upper:08x}"
