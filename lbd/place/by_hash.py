"""One of several brokers by a bundle's name, where Pulsar draws one at random. Pure."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def by_hash(bundle: str, brokers: Iterable[str]) -> str:
    """CRC32 of the full bundle name, modulo the number of brokers, into the brokers sorted by name.

    ValueError when there is no broker.
    """
    ordered = sorted(brokers)
    if not ordered:
        raise ValueError("no broker to choose from")
    return ordered[zlib.crc32(bundle.encode()) % len(ordered)]
