"""The topics of simulated bundles: where their hashes lie, and names that have these hashes. Pure.

CRC32 is linear: what a changed bit does to it depends on where the bit stands, and on nothing else. So the last digits
of a name can be chosen such that it has a given hash, which a search would take as many tries for as there are bundles.
"""

from __future__ import annotations

from functools import cache, lru_cache, reduce
from operator import xor
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import bundle_namespace
from lbd.split.algorithms import Topic
from lbd.split.topic_hash import FULL_RANGE, range_of, topic_hash

if TYPE_CHECKING:
    from lbd.simulate.world import World

DIGITS = 12
"""Octal ones, of three bits each: the fewest of which some combination has each of the 2**32 hashes."""

HASH_BITS = 32


def topic_at(namespace: str, position: int) -> str:
    """The name of a topic whose hash is ``position``; another position has another name."""
    stem = f"persistent://{namespace}/topic-"
    wanted = position ^ topic_hash(f"{stem}{0:0{DIGITS}o}")
    flips = (digits for bit, digits in enumerate(_digits_by_bit()) if wanted >> bit & 1)
    return f"{stem}{reduce(xor, flips, 0):0{DIGITS}o}"


@lru_cache(maxsize=4096)
def topics_of(bundle: str, number: int) -> tuple[Topic, ...]:
    """The topics of a bundle that was never split, in the order of their hashes, which lie at random in its range."""
    lower, upper = range_of(bundle)
    random, width = np.random.default_rng(topic_hash(bundle)), upper - lower + (upper == FULL_RANGE[1])
    positions = np.sort(lower + random.choice(width, number, replace=False)).tolist()
    return tuple(Topic(topic_at(bundle_namespace(bundle), position), position) for position in positions)


def topics_in(first: World, world: World, at: int) -> tuple[Topic, ...]:
    """The topics of a bundle of ``world``, which is ``first`` after some splits."""
    whole = int(world.origin[at])
    lower, upper = range_of(world.bundles[at])
    last = upper + (upper == FULL_RANGE[1])
    return tuple(
        one for one in topics_of(first.bundles[whole], int(first.topics[whole])) if lower <= one.position < last
    )


@cache
def _digits_by_bit() -> tuple[int, ...]:
    """For each bit of the hash the digits that flip it and no other one, as a number: Gaussian elimination."""
    zero = topic_hash(f"{0:0{DIGITS}o}")
    found: dict[int, tuple[int, int]] = {}
    for at in range(3 * DIGITS):
        digits = 1 << at
        flipped = topic_hash(f"{digits:0{DIGITS}o}") ^ zero
        for bit, (other, others) in found.items():
            if flipped >> bit & 1:
                flipped ^= other
                digits ^= others
        if flipped:
            lead = flipped.bit_length() - 1
            for bit, (other, others) in list(found.items()):
                if other >> lead & 1:
                    found[bit] = other ^ flipped, others ^ digits
            found[lead] = flipped, digits
    return tuple(found[bit][1] for bit in range(HASH_BITS))
