"""Rounds of a window as they were recorded: what a load model is learned from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.learn.replay import recorded
from lbd.load.estimate import CPU
from lbd.load.fit import fit
from lbd.load.model_error import measure
from lbd.load.samples import gather
from lbd.load.scoring import Weights
from tests.learn.histories import CALM, NEIGHBOUR, settled, simulated
from tests.learn.windows import broker, bundle, packed, window
from tests.load.histories import TRUE_SLOPE

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.model import Snapshot

CAPACITY = np.array([1, 1, 2, 1])
"""Of the brokers of :data:`NEIGHBOUR`."""

TOLD = 4
"""Bundles of a broker, the largest of some twenty."""


def largest(seen: Snapshot) -> Snapshot:
    """The round as brokers of the extensible manager tell it: what the smaller bundles carry is not known."""
    reported = np.zeros(seen.rows.bundle.size, dtype=np.bool_)
    for at in range(len(seen.brokers)):
        own = seen.rows.of(at)
        reported[own.start + np.argsort(-seen.rows.rates[own].sum(axis=1))[:TOLD]] = True
    return replace(seen, rows=replace(seen.rows, reported=reported), partial=True)


def test_bundles_go_where_the_record_has_them():
    """With what they carry; also where nobody told of them in between."""
    rows = [broker(number, name) for number in range(4) for name in "ab"]
    moved = [bundle(0, "x", rate=2), bundle(0, "y", rate=3), bundle(1, "x", "b", 2), bundle(2, "y", None, None),
             bundle(3, "y", "b", 3)]  # fmt: skip
    found = list(recorded([window(rows, moved)]))

    assert [one.brokers.rates[:, 0].tolist() for one in found] == [[5, 0], [3, 2], [0, 2], [0, 5]]
    assert [one.rows.owner().tolist() for one in found] == [[0, 0], [0, 1], [0, 1], [1, 1]]
    assert [one.rows.reported.tolist() for one in found] == [[True] * 2, [True] * 2, [False, True], [True] * 2]


def test_slopes_are_recovered_from_a_history_with_moves(tmp_path: Path):
    """Within a tenth; and the moves tell how far the model is off: less than half of what no model is."""
    skewed = {"brokers": NEIGHBOUR["brokers"][:3], "load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b"]}]}
    moves = simulated(tmp_path, settled(), hours=6, **skewed).trace().moves
    samples = gather(recorded([packed(tmp_path)]))
    error = measure(samples, Weights())

    assert moves
    assert fit(samples).slope[:, CPU] * CAPACITY[:3] == pytest.approx(np.full(3, TRUE_SLOPE), rel=0.1)
    assert error.number
    assert error.mean_absolute < error.unchanged_mean_absolute / 2


def test_brokers_that_tell_of_their_largest_bundles_only_have_the_same_slopes(tmp_path: Path):
    """Their own totals count: the load of all bundles is not that of the few that are told of."""
    simulated(tmp_path, settled(**CALM), hours=4, tell=largest)
    found = packed(tmp_path)

    assert len(found.bundles) == TOLD * len(found.brokers)
    assert fit(gather(recorded([found]))).slope[:, CPU] * CAPACITY == pytest.approx(np.full(4, TRUE_SLOPE), rel=0.1)
