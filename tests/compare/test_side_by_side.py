"""Strategies side by side: over a scenario, over what was recorded of it, and over real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbd.cli.options import assignment
from lbd.compare.side_by_side import RECORDED, ComparisonRequest, candidate, over_recording, over_scenario, recordings
from lbd.config import Settings
from lbd.decide.strategies import STRATEGIES
from lbd.errors import UsageError
from lbd.load.estimate import CPU
from lbd.store.recording import Header
from tests.load.histories import THREE, TRUE_SLOPE, rounds
from tests.simulate.worlds import scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.compare.side_by_side import Compared
    from lbd.model import Snapshot
    from lbd.simulate.scenario import Scenario

RECORDING = Path(__file__).parents[2] / "examples" / "moves.jsonl.gz"
HEADER = Header(id="simulated", where="test:1")
LOW = {"avg_shedder.min_unload_message": 10, "avg_shedder.min_unload_message_throughput": 10_000}
SKEWED: dict[str, Any] = {
    **THREE,
    "brokers": [{"id": name, "background": 10} for name in "abc"],
    "load": [
        {**THREE["load"][0], "brokers": ["a"], "mib_per_second": 150, "bundles": 60},
        {**THREE["load"][0], "name": "m", "mib_per_second": 90, "bundles": 60, "spread": 0},
    ],
}


def asked(*strategies: str, overrides: Mapping[str, object] | None = None) -> ComparisonRequest:
    chosen = tuple(candidate(one, assignment) for one in strategies)
    return ComparisonRequest(chosen, Settings(), overrides or {}, lambda _, __: None)


def simulated(hours: float) -> Scenario:
    return scenario(**SKEWED, hours=hours)


def real(*strategies: str) -> Compared:
    ((header, found),) = recordings(RECORDING)
    return over_recording(asked(*strategies, overrides=LOW), header, found, None)


def test_pulsars_own_rule_is_a_candidate():
    """Under the name of the setting that it has elsewhere; it serves one destination, and counts anew for the next."""
    assert candidate("avg-shedder:profile=stock,low_threshold=9", assignment).settings == {
        "profile": "stock",
        "avg_shedder.low_threshold": 9,
    }
    found = over_scenario(asked("avg-shedder", "avg-shedder:profile=stock"), "skewed", simulated(0.5), seed=1)
    lbds, pulsars = (run.card for run in found.runs)

    assert 0 < lbds.minutes_over_low < pulsars.minutes_over_low
    assert lbds.last.gap_points < pulsars.last.gap_points


def test_each_candidate_has_its_own_settings():
    """The stronger one is done sooner; both are measured by the same thresholds."""
    found = over_scenario(
        asked("avg-shedder", "avg-shedder:max_unload_percentage=0.1,low_threshold=20"),
        "skewed",
        simulated(1.0),
        seed=1,
    )
    strong, weak = (run.card for run in found.runs)

    assert (15, 40) == found.thresholds
    assert strong.first == weak.first
    assert strong.minutes_over_low < weak.minutes_over_low
    assert strong.traffic_moved > weak.traffic_moved


def test_what_is_set_for_all_holds_for_all():
    """But the candidate's own wins."""
    never = {"avg_shedder.low_threshold": 99, "avg_shedder.high_threshold": 99}
    found = over_scenario(asked("avg-shedder", "avg-shedder:low_threshold=15", overrides=never), "s", simulated(0.5), 1)

    assert [0, True] == [found.runs[0].card.moves, found.runs[1].card.moves > 0]


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_recording_tells_what_the_cluster_itself_would_have_done(seed: int):
    """An unbalanced simulated cluster is recorded without a move; over that lbd does what it does there.

    The same seed, so the same noise: the moves agree within a few, the gap in the end within the noise. With seed 3 the
    last pair stands at the threshold: a point decides whether it is levelled, and the gap in the end is 12 or 6 points.
    """
    untouched: list[Snapshot] = list(rounds(121, SKEWED, seed))
    over = over_recording(asked("avg-shedder"), HEADER, untouched, None)
    by_reports = {"load.live_cpu": False}  # a recording holds nothing else
    truth = over_scenario(asked("avg-shedder", overrides=by_reports), "s", simulated(2.0), seed).runs[0].card
    predicted = over.runs[1].card

    assert over.model is not None
    assert over.model.slope[:, CPU] == pytest.approx([TRUE_SLOPE] * 3, rel=0.1)
    assert over.runs[0].card.moves == 0
    assert predicted.moves == pytest.approx(truth.moves, rel=0.35, abs=2)
    assert predicted.last.gap_points == pytest.approx(truth.last.gap_points, abs=6)
    assert predicted.last.gap_points < over.runs[0].card.last.gap_points / 2


def test_over_real_brokers():
    """What was recorded comes first, with its fifteen moves; AvgShedder ends as even with a third of them."""
    found = real("avg-shedder:hit_count_low=3", "threshold-shedder")
    recorded, average, threshold = found.runs

    assert (RECORDED, 15) == (recorded.label, recorded.card.moves)
    assert 0 < average.card.moves <= 5
    assert average.card.last.gap_points < recorded.card.last.gap_points
    assert average.card.fewest_moves is not None
    assert average.card.fewest_moves <= average.card.moves
    assert threshold.card.moves == 0
    assert found.error is not None
    assert found.error.number == 7


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_can_be_compared(name: str):
    """On real brokers' reports as on simulated ones, with its defaults."""
    found = real(name)
    other = over_scenario(asked(name), "s", simulated(0.3), 1)

    assert found.runs[1].sentence
    assert other.runs[0].sentence


def test_without_change_in_traffic_a_recording_tells_too_little():
    """One line that names the recording, the broker, what was seen, and what would do."""
    steady = {**SKEWED, "load": [{**one, "shape": {"kind": "steady"}} for one in SKEWED["load"]]}
    with pytest.raises(
        UsageError, match=r"^test:1: simulated: no sample shows how cpu follows traffic on a:8080 \(30 "
    ):
        over_recording(asked("avg-shedder"), HEADER, list(rounds(30, steady)), None)


def test_a_header_that_is_wrong_is_named():
    """Its file and line, for a strategy and for a setting."""
    found = list(rounds(1, SKEWED))
    with pytest.raises(UsageError, match=r"^test:1: strategy 'x' is not known"):
        over_recording(asked("avg-shedder"), Header(where="test:1", strategy="x"), found, None)
    with pytest.raises(UsageError, match=r"^test:1: avg_shedder\.low_treshold: no such setting; did you"):
        over_recording(asked("avg-shedder"), Header(where="test:1", settings={"low_treshold": 1}), found, None)
