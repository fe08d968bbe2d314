"""Which bundle a topic falls into: Pulsar's hash of its name, and the boundaries of its namespace. Pure.

Source: NamespaceBundleFactory.getLongHashCode and NamespaceBundles.findBundle (Pulsar 2.10 to 5.0).
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL_RANGE = (0x00000000, 0xFFFFFFFF)
"""First and last boundary of every namespace; the last bundle includes its upper end."""

_TOPIC = re.compile(r"(?:non-)?persistent://([^/]+/[^/]+)/[^/]+")
_RANGE = re.compile(r"[^/]+/[^/]+/0x([0-9a-f]{8})_0x([0-9a-f]{8})")
_BOUNDARY = re.compile(r"0x[0-9a-fA-F]{1,8}")


def topic_hash(topic: str) -> int:
    """Position of a topic in its namespace, 0 to 0xffffffff: CRC32 of its full name's UTF-8 bytes.

    The full name has the domain, and ``-partition-N`` where the topic is one: ``persistent://t/n/orders-partition-0``.
    A character that UTF-8 cannot encode counts as ``?``, as in Java.
    """
    return zlib.crc32(topic.encode(errors="replace"))


def namespace_of(topic: str) -> str:
    """``tenant/namespace`` of a full topic name. Raises :class:`UsageError` for any other text."""
    match = _TOPIC.fullmatch(topic)
    if match is None:
        raise UsageError(f"{topic!r} is no topic; wanted persistent://tenant/namespace/topic")
    return match[1]


def parse_boundaries(texts: Sequence[str]) -> tuple[int, ...]:
    """Boundaries as ``GET /admin/v2/namespaces/{tenant}/{namespace}/bundles`` gives them: ``["0x00000000", ...]``.

    Raises :class:`UsageError` unless they rise from 0x00000000 to 0xffffffff.
    """
    found = tuple(int(text, 16) if _BOUNDARY.fullmatch(text) else -1 for text in texts)
    rise = all(lower < upper for lower, upper in pairwise(found))
    if not rise or (found[:1] + found[-1:]) != FULL_RANGE:
        raise UsageError(f"{list(texts)!r:.200} are no boundaries; wanted 0x00000000 rising to 0xffffffff")
    return found


def range_of(bundle: str) -> tuple[int, int]:
    """Both ends of a bundle's range as they stand in its name. Raises :class:`UsageError` for what is no bundle."""
    match = _RANGE.fullmatch(bundle)
    lower, upper = (int(match[1], 16), int(match[2], 16)) if match is not None else (0, 0)
    if not lower < upper:
        raise UsageError(f"{bundle!r} is no bundle; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")
    return lower, upper


def holds(bundle: str, position: int) -> bool:
    """Whether a topic of this hash lies in a bundle: ranges are [lower, upper), the last one has its end."""
    lower, upper = range_of(bundle)
    return lower <= position < upper + (upper == FULL_RANGE[1])


def range_name(lower: int, upper: int) -> str:
    """``0xLLLLLLLL_0xUUUUUUUU``."""
    return f"0x{lower:08x}_0x{upper:08x}"
