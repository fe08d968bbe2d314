"""Which bundle a topic falls into, so that a test can choose one topic per bundle by name alone."""

from __future__ import annotations

import itertools
import zlib


def topic_hash(topic: str) -> int:
    """The position of a topic in its namespace's hash range."""
    return zlib.crc32(topic.encode())


def bundle_ranges(bundles: int) -> list[str]:
    """The ranges of a namespace that was created with this many bundles: all alike, and the last one has the rest.

    Source: PoliciesUtil.getBundles.
    """
    edges = [index * (0x100000000 // bundles) for index in range(bundles)] + [0xFFFFFFFF]
    return [f"0x{low:08x}_0x{high:08x}" for low, high in itertools.pairwise(edges)]


def contains(bundle: str, topic: str) -> bool:
    """Whether the topic falls into the bundle (tenant/namespace/range); the last range includes its end."""
    low, high = (int(edge, 16) for edge in bundle.rpartition("/")[2].split("_"))
    return low <= topic_hash(topic) < high or high == topic_hash(topic) == 0xFFFFFFFF


def topic_in(bundle: str, prefix: str = "topic", domain: str = "persistent") -> str:
    """A topic name that falls into the bundle; always the same for the same arguments."""
    namespace = bundle.rpartition("/")[0]
    names = (f"{domain}://{namespace}/{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if contains(bundle, name))
