"""Where the bundles of one round stood in another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lbd.bundles import NEAR, PIECE, Positions, bundle_positions, missing, namespaces, positions, split_into
from tests.builders import bundle, report, snapshot, stats

MANY = [bundle(number) for number in range(3 * NEAR)]
FIRST, MIDDLE, LAST = 0, len(MANY) // 2, len(MANY) - 1


def without(*numbers: int) -> list[str]:
    """All names but some."""
    return [name for at, name in enumerate(MANY) if at not in numbers]


def moved(source: int, destination: int) -> list[str]:
    """One name stands elsewhere."""
    left = without(source)
    return [*left[:destination], MANY[source], *left[destination:]]


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ([], []),
        ([], MANY),
        (MANY, []),
        (MANY, MANY),
        (MANY, [f"{name[:1]}{name[1:]}" for name in MANY]),
        (MANY, moved(FIRST, LAST)),
        (MANY, moved(LAST, FIRST)),
        (moved(PIECE, MIDDLE), moved(MIDDLE, PIECE)),
        (MANY, without(FIRST, 1, PIECE - 1, PIECE, MIDDLE, LAST)),
        (without(FIRST, 1, PIECE - 1, PIECE, MIDDLE, LAST), MANY),
        (MANY, [*MANY[:MIDDLE], f"{MANY[MIDDLE]}-lower", f"{MANY[MIDDLE]}-upper", *MANY[MIDDLE + 1 :]]),
        (MANY, [*MANY[: MIDDLE - 1], "t/n/other", *MANY[MIDDLE:]]),
        (MANY[NEAR // 2 :], MANY),
        (MANY, MANY[NEAR // 2 :]),
        (MANY[2 * NEAR :], MANY),
        (MANY, MANY[2 * NEAR :]),
        (MANY, MANY[::-1]),
        (MANY, [*MANY[MIDDLE:], *MANY[:MIDDLE]]),
        (MANY, [f"{name}-other" for name in MANY]),
    ],
    ids=[
        "of nothing in nothing",
        "the first round",
        "nothing is reported any more",
        "the very same",
        "the same once more",
        "moved to the end",
        "moved to the beginning",
        "two moved",
        "some are gone",
        "some are new",
        "one was split",
        "one was renamed",
        "a broker joined",
        "a broker left",
        "many brokers joined",
        "many brokers left",
        "in the opposite order",
        "the halves changed places",
        "all were renamed",
    ],
)
def test_each_name_is_found_where_it_stood(known: list[str], names: list[str]):
    """Whatever came, went or moved in between, as if each was looked up; -1 is one that was not there."""
    where = {name: at for at, name in enumerate(known)}
    assert positions(names, known).tolist() == [where.get(name, -1) for name in names]


def test_what_was_worked_out_is_told_of_that_very_list_only():
    """Another list, though as long, is looked at anew, and nobody can spoil what the next one is told."""
    told, known, other = Positions(MANY[:3]), MANY[:3], MANY[1:4]
    assert told(known) is told(known)
    assert [told(known).tolist(), told(other).tolist(), told(known).tolist()] == [[0, 1, 2], [-1, 0, 1], [0, 1, 2]]
    with pytest.raises(ValueError, match="read-only"):
        told(known)[0] = 5


def test_names_are_read_once_for_all_copies_of_a_round():
    """A copy with other figures of its brokers has the same bundles."""
    seen = snapshot({"a:1": report(40, {name: stats(1) for name in MANY[:3]})})
    copy = seen.with_brokers(replace(seen.brokers, rates=2 * seen.brokers.rates))
    assert copy.brokers.rates.tolist() == (2 * seen.brokers.rates).tolist()
    assert copy.namespaces is seen.namespaces
    assert copy.positions_in is seen.positions_in


def test_positions_are_a_column():
    """As owners and rows are: int32."""
    assert [positions(names, MANY).dtype for names in (MANY, MANY[1:], [])] == [np.int32] * 3


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {}),
        ({bundle(2, "t/b")}, {bundle(2, "t/b"): 3}),
        ({bundle(1, "t/b"), bundle(1, "t/a")}, {bundle(1, "t/a"): 0, bundle(1, "t/b"): 1}),
        ({bundle(3, "t/b"), bundle(1, "t/c"), "t/a", "junk", ""}, {}),
    ],
    ids=["none", "one of a namespace", "the same range in two", "gone, or no bundle's name"],
)
def test_some_bundles_are_found(wanted: set[str], found: dict[str, int]):
    """Those that are there, by their whole names."""
    names = [bundle(1, "t/a"), bundle(1, "t/b"), bundle(2, "t/a"), bundle(2, "t/b")]
    assert bundle_positions(wanted, names, namespaces(names)) == found


WHOLE, LOWER, MIDDLE_PART, UPPER = (
    f"t/n/{ends}"
    for ends in ("0x00000000_0x80000000", "0x00000000_0x20000000", "0x20000000_0x80000000", "0x80000000_0xffffffff")
)


@pytest.mark.parametrize(
    ("there", "parts"),
    [
        ([LOWER, MIDDLE_PART, UPPER], [LOWER, MIDDLE_PART]),
        ([UPPER, MIDDLE_PART, LOWER], [LOWER, MIDDLE_PART]),
        ([LOWER, UPPER], []),
        ([WHOLE, UPPER], []),
        (["t/n/0x00000000_0xffffffff"], []),
        (["t/m/0x00000000_0x20000000", "t/m/0x20000000_0x80000000"], []),
        ([], []),
    ],
)
def test_what_a_bundle_was_split_into(there: list[str], parts: list[str]):
    """Bundles of the same namespace that cover its range, all of it and nothing else."""
    assert split_into(WHOLE, there) == parts


def test_what_is_said_of_a_bundle_that_is_none():
    """It was split, or what lies there instead."""
    assert missing(WHOLE, [LOWER, MIDDLE_PART, UPPER]) == (
        f"{WHOLE} is no bundle any more: it was split into {LOWER}, {MIDDLE_PART}"
    )
    assert missing(LOWER, [WHOLE, UPPER]) == f"{LOWER} is no bundle of t/n, which has 2; there are {WHOLE}"
