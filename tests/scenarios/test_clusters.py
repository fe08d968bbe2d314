"""A few clusters of the seeded suite, each kind once: what least-moves promises of every one of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench import as_even
from tests.bench.as_even import Course, Spent, pairs, spent
from tests.bench.suite import of, row, run, table
from tests.scenarios.clusters import EACH, KINDS, STEADY, cluster

NUMBERS = (0, 12)
"""Of ten and of thirteen brokers: the others take minutes, and stand in the table of decision 0008."""


def test_the_suite_is_what_it_says():
    """Three hundred clusters and more, of ten to three hundred brokers, the same each time."""
    sizes = {kind: [len(cluster(kind, number).brokers) for number in (0, EACH - 1)] for kind in KINDS}

    assert len(KINDS) * EACH >= 300
    assert all(least == 10 for kind, (least, _) in sizes.items() if kind != "joining")
    assert all(most >= 300 for _, most in sizes.values())
    assert cluster("drifting", 7) == cluster("drifting", 7)
    assert cluster("drifting", 7) != cluster("drifting", 8)


@pytest.mark.parametrize("number", [NUMBERS[0], *(pytest.param(one, marks=pytest.mark.soak) for one in NUMBERS[1:])])
@pytest.mark.parametrize("kind", KINDS)
def test_least_moves_on_a_cluster_of_each_kind(kind: str, number: int):
    """It ends nearer than it began, keeps to what bounds allow, and moves one bundle twice at most: where an unlike
    broker turns out to carry less than was estimated.
    """
    card = run((kind, number, "least-moves")).card

    assert card.last.gap_points <= card.first.gap_points
    assert card.bundles_moved_twice <= 1
    assert card.policy_violations == 0
    if kind in STEADY:
        assert card.fewest_moves is not None
        assert card.fewest_moves <= card.moves


def test_the_table_has_a_row_for_each_kind_and_one_for_all():
    """Made of two runs of one kind; a kind that was not run is not told of."""
    found = [run(("equal", 0, name)) for name in ("avg-shedder", "least-moves")]
    lines = table(found)

    assert [line.split(" | ")[0] for line in lines[2:]] == ["| equal", "| equal", "| all", "| all"]
    assert lines[-1].endswith(f"{' | '.join(row([found[1].card]))} | {found[1].clients} |")
    assert of(found, "least-moves") == {("equal", 0): found[1].card}


def test_what_was_spent_until_a_gap_was_reached_counts_from_when_it_stays():
    """A gap that is passed through for a minute is not reached; one that is never reached has no price."""
    minutes = 60.0 * np.arange(8)
    found = Course(
        minutes,
        gaps=np.array([30, 20, 9, 14, 10, 9, 9, 5.0]),
        moves=np.array([0, 2, 3, 3, 4, 4, 6, 9], dtype=np.int32),
        traffic=np.array([0, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.5]),
    )

    assert spent(found, 10) == Spent(4, 0.3)
    assert spent(found, 14) == Spent(3, 0.2)
    assert spent(found, 30) == Spent(0, 0.0)
    assert spent(found, 4) is None


def test_of_each_pair_both_figures_are_told_beside_the_floor():
    """What was spent until as even is no more than in all, and no floor is above what AvgShedder made."""
    found = [run(("equal", 0, name)) for name in ("AvgShedder", "least-moves")]
    (pair,) = pairs(found)

    assert pair.floor is not None
    assert pair.mine.moves <= pair.mine_in_all.moves
    assert pair.floor.moves <= pair.other_in_all.moves
    assert 0 < pair.floor.traffic <= pair.other_in_all.traffic
    assert as_even.table(found)[-1].startswith("| all | 1 of 1 |")
