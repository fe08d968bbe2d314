"""The real deciding over a window, closed loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.learn.replay import ReplayCluster, Scale, as_recorded, figures, replay
from lbd.load.estimate import CPU, fixed_model
from lbd.load.scoring import Weights
from lbd.permit.settings import Guardrails
from tests.learn.histories import CALM, NEIGHBOUR, settled, simulated
from tests.learn.windows import broker, bundle, minute, packed, window
from tests.load.histories import TRUE_SLOPE

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.learn.replay import Course
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel
    from lbd.score.scorecard import Moved

SKEWED = {"hours": 3, "load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b"]}]}

HOSTS = tuple(f"{one['id']}:8080" for one in NEIGHBOUR["brokers"])


def true_model(found: Window) -> LoadModel:
    """What the simulated cluster really does; the third broker is twice as large."""
    return fixed_model(found.brokers, np.zeros(4), np.array([1, 1, 0.5, 1]) * TRUE_SLOPE)


def regions(number: int, mib: float, bundles: int) -> dict[str, object]:
    """Waves go round four brokers in six hours: what moved lately is soon on the busiest of them again."""
    wave = {"kind": "wave", "amplitude": 0.9, "period_hours": 6}
    part = {"mib_per_second": mib, "bundles": bundles, "spread": 1}
    load = [{"name": f"r{at}", **part, "shape": {**wave, "peak_at_hours": 6 * at / number}} for at in range(number)]
    return {"hours": 6, "brokers": [{"id": name, "background": 8} for name in "abcd"], "load": load}


def made(moves: tuple[Moved, ...]) -> set[tuple[float, str, str, str | None]]:
    """Minutes, bundles and brokers of the moves of a live lbd."""
    return {(one.seconds // 60, one.bundle, one.source, one.destination) for one in moves}


def replayed(course: Course) -> set[tuple[float, str, str, str | None]]:
    """The same of a replay."""
    return {((one.at - course.at[0]) // 60, one.bundle, one.source, one.destination) for one in course.moves}


def a_slope_of_one(found: Window) -> LoadModel:
    """A point of CPU for each byte/s."""
    size = len(found.brokers)
    return fixed_model(found.brokers, np.zeros(size), np.ones(size))


@pytest.mark.parametrize(
    ("seed", "guardrails"),
    [(1, {}), (2, {}), (3, {}), (3, {"max_unloads_per_hour": 6}), (4, {"max_unloads_per_broker_per_hour": 3})],
)
def test_the_settings_that_were_in_force_make_the_moves_that_were_made(
    tmp_path: Path, seed: int, guardrails: dict[str, int]
):
    """The same bundles from and to the same brokers, each in its round; and brokers as busy as they were."""
    settings = settled().model_copy(update={"guardrails": Guardrails(**guardrails)})
    done = simulated(tmp_path, settings, seed, step=0.0, **SKEWED).trace().moves
    found = packed(tmp_path)
    course = replay(found, settings, true_model(found))

    assert len(done) >= 5
    assert replayed(course) == made(done)
    last = course.moves[-1].at + 120
    seen = as_recorded(found, settings.weights)
    np.testing.assert_allclose(course.points[found.at > last], seen[found.at > last], atol=0.01)


@pytest.mark.parametrize(("seed", "about"), [(1, regions(4, 80, 8)), (3, regions(3, 120, 12))])
def test_what_moved_lately_rests_and_does_not_go_back(tmp_path: Path, seed: int, about: dict[str, object]):
    """Others of its broker go instead, as under the live lbd: the same bundles, each in its round."""
    done = simulated(tmp_path, settled(), seed, step=0.0, **about).trace().moves
    found = packed(tmp_path)
    course = replay(found, settled(), fixed_model(found.brokers, np.full(4, 8.0), np.full(4, TRUE_SLOPE)))

    assert len(done) >= 5
    assert replayed(course) == made(done)


@pytest.mark.parametrize(
    ("seed", "guardrails", "cpu_weight"),
    [
        (1, {}, 1.0),
        (3, {"max_unloads_per_turn": 2, "cool_down_minutes": 10}, 1.0),
        (1, {"max_destination_score": 40, "max_traffic_per_hour": 1}, 1.0),
        (1, {"max_destination_score": 19}, 0.5),
    ],
    ids=["as shipped", "small turns", "destinations are soon full", "by weighted points"],
)
def test_least_moves_makes_the_moves_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, guardrails: dict[str, int], cpu_weight: float
):
    """Where the live lbd knew what traffic costs: moves are sized from the mean of the last samples in both."""
    known = fixed_model(HOSTS, np.zeros(4), np.array([1, 1, 0.5, 1]) * TRUE_SLOPE)
    monkeypatch.setattr("lbd.turn.learning.fit", lambda *_: known)
    chosen = {"strategy": "least-moves", "guardrails": Guardrails(**guardrails), "weights": Weights(cpu=cpu_weight)}
    settings = settled().model_copy(update=chosen)
    done = simulated(tmp_path, settings, seed, step=0.0, **SKEWED).trace().moves
    found = packed(tmp_path)
    course = replay(found, settings, known)

    assert len(done) >= 4
    assert replayed(course) == made(done)


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_with_live_cpu_relief_takes_as_long_as_it_took(tmp_path: Path, seed: int):
    """A broker that gave goes on at its first hit, and settles within a minute: the first moves come as soon."""
    settings = settled(live_cpu=True)
    done = simulated(tmp_path, settings, seed, step=0.0, **SKEWED).trace().moves
    found = packed(tmp_path)
    by_live, by_reports = (replayed(replay(found, one, true_model(found))) for one in (settings, settled()))
    took, wanted, longer = (sorted(one[0] for one in moves)[:5] for moves in (by_live, made(done), by_reports))

    assert np.abs(np.subtract(took, wanted)).max() <= 1
    assert longer[-1] > took[-1] + 1


@pytest.mark.parametrize(
    ("strategy", "live_cpu", "left_before", "waited"),
    [
        ("avg-shedder", True, False, 1),
        ("avg-shedder", True, True, 8),
        ("avg-shedder", False, False, 9),
        ("least-moves", True, False, 1),
        ("least-moves", True, True, 2),
        ("least-moves", False, False, 3),
    ],
)
def test_a_broker_that_joined_takes_bundles_at_once(strategy: str, *, live_cpu: bool, left_before: bool, waited: int):
    """At the first hit where CPU of now is known, but not within an hour after a broker left: that is a restart."""
    joins = 20
    reports = [broker(at, name, 40.0) for at in range(2 * joins) for name in "ab"]
    reports += [broker(at, "c", 10.0, started_at=minute(joins)) for at in range(joins, 2 * joins)]
    reports += [broker(at, "gone", 40.0) for at in range(joins // 2)] if left_before else []
    found = window(reports, [bundle(0, f"t/n/{name}{at}", name, rate=2000.0) for name in "ab" for at in range(6)])
    settings = settled(live_cpu=live_cpu).model_copy(update={"strategy": strategy})
    size = len(found.brokers)
    moves = replay(found, settings, fixed_model(found.brokers, np.full(size, 10.0), np.full(size, 5 / 4000))).moves

    assert {one.destination for one in moves} == {"c"}
    assert (moves[0].at - found.at[joins]) / 60 == waited


def test_moves_that_were_not_made_change_what_comes_after(tmp_path: Path):
    """Of a history without moves the default settings level the brokers, within what the noise allows."""
    simulated(tmp_path, settled(**CALM), **SKEWED)
    found, default = packed(tmp_path), settled()
    course, still = (replay(found, settings, true_model(found)) for settings in (default, settled(**CALM)))

    assert not still.moves
    np.testing.assert_array_equal(still.points, as_recorded(found, default.weights))
    assert 3 <= len(course.moves) <= 30
    apart = Scale(15.0, 40.0)
    assert figures(course, apart).p95_gap < figures(still, apart).p95_gap - 15


def test_no_bundle_moves_again_before_its_rest(tmp_path: Path):
    """Half an hour, as in a live turn, under the most restless settings."""
    simulated(tmp_path, settled(**CALM), **SKEWED)
    found = packed(tmp_path)
    restless = settled(low_threshold=1.0, high_threshold=2.0, hit_count_low=1, hit_count_high=1)
    moves = replay(found, restless, true_model(found)).moves
    again = [
        later.at - one.at for at, one in enumerate(moves) for later in moves[at + 1 :] if one.bundle == later.bundle
    ]

    assert len(moves) >= 10
    assert min(again, default=1800) >= 1800


levels = st.lists(st.sampled_from((30.0, 38.0, 44.0, 52.0, 75.0)), min_size=3, max_size=3)


@given(
    stretches=st.lists(st.tuples(levels, st.integers(1, 12)), min_size=1, max_size=6),
    live_cpu=st.booleans(),
    strategy=st.sampled_from(("avg-shedder", "least-moves")),
)
def test_rounds_that_are_left_out_change_nothing(
    stretches: list[tuple[list[float], int]], *, live_cpu: bool, strategy: str
):
    """A replay that asks the strategy in every round makes the same moves: below its gap no counter goes up."""
    cpu = [levels for levels, minutes in stretches for _ in range(minutes)]
    reports = [broker(at, name, own) for at, one in enumerate(cpu) for name, own in zip("abc", one, strict=True)]
    found = window(reports, [bundle(0, f"t/n/{name}{at}", name, rate=2000.0) for name in "abc" for at in range(6)])
    settings = settled(live_cpu=live_cpu, hit_count_low=3).model_copy(update={"strategy": strategy})
    model = fixed_model(found.brokers, np.full(3, 10.0), np.full(3, 5 / 4000))
    course = replay(found, settings, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lbd.learn.replay._idle_gap", lambda _: 0.0)
        stepped = replay(found, settings, model)

    assert course.moves == stepped.moves
    np.testing.assert_array_equal(course.points, stepped.points)


def test_counters_begin_anew_after_a_silence(tmp_path: Path):
    """A gap that must last three samples does not fire on two before a hole of an hour and one after."""
    simulated(tmp_path, settled(**CALM), hours=0.1, load=SKEWED["load"])
    found = packed(tmp_path)
    settings = settled(low_threshold=5.0, high_threshold=100.0, hit_count_low=3)
    hole = replace(found, at=found.at + np.where(np.arange(found.at.size) > 1, 3600, 0))
    begun = [replay(one, settings, true_model(found)).moves[0].at - one.at[0] for one in (found, hole)]

    assert begun == [120, 3600 + 240]


def test_a_history_of_one_round_is_played():
    """Nothing moves in it."""
    course = replay(window([broker(0), broker(0, "b")]), settled(), fixed_model(("a", "b"), np.zeros(2), np.zeros(2)))

    assert (course.points.tolist(), course.moves) == ([[50, 50]], ())


class TestCluster:
    """Who owns what, and how busy that makes them."""

    TWO = tuple(broker(number, name, cpu=10) for number in range(4) for name in "ab")

    def cluster(self, rows: list[dict[str, object]]) -> ReplayCluster:
        found = window(self.TWO, rows)
        return ReplayCluster(found, a_slope_of_one(found))

    def test_a_move_takes_its_load_along(self):
        """Bytes in and out times the slope, off the one and onto the other, as long as it is away."""
        cluster = self.cluster([bundle(0, rate=2), bundle(2, rate=3)])
        cluster.advance(0)
        cluster.move(0, 1)
        used = []
        for number in (1, 2):
            cluster.advance(number)
            used.append(cluster.used[:, CPU].tolist())

        assert used == [[10 - 4, 10 + 4], [10 - 6, 10 + 6]]

    def test_a_bundle_stays_where_the_replay_put_it(self):
        """Though the record moves it later; the record's own move brings recorded and replayed together again."""
        cluster = self.cluster([bundle(0), bundle(1, owner="b")])
        cluster.advance(0)
        cluster.move(0, 1)
        cluster.advance(1)

        assert cluster.owner.tolist() == cluster.recorded.tolist() == [1]
        assert cluster.used[:, CPU].tolist() == [10, 10]

    def test_a_bundle_that_is_gone_is_nobodys(self):
        """Deleted, or without a report: whoever has it in the replay loses it too."""
        cluster = self.cluster([bundle(0), bundle(1, owner=None)])
        cluster.advance(0)
        cluster.move(0, 1)
        cluster.advance(1)

        assert cluster.owner.tolist() == [-1]

    @pytest.mark.parametrize(
        ("moved", "back_on", "lands"), [(True, "a", "b"), (True, "c", "b"), (False, "c", "a")],
        ids=["among the largest again", "moved by the record, too", "moved by the record alone"],
    )  # fmt: skip
    def test_a_bundle_that_is_told_of_again_is_where_the_replay_had_it(self, moved: bool, back_on: str, lands: str):
        """Neither brokers that tell of their largest bundles only, nor a report between two of them, move anything."""
        rows = [broker(number, name, cpu=10) for number in range(4) for name in "abc"]
        found = window(rows, [bundle(0), bundle(1, owner=None), bundle(2, owner=back_on)])
        cluster = ReplayCluster(found, a_slope_of_one(found))
        cluster.advance(0)
        if moved:
            cluster.move(0, found.brokers.index("b"))
        cluster.advance(1)
        cluster.advance(2)

        assert found.brokers[cluster.owner[0]] == lands

    def test_a_bundle_whose_broker_left_meanwhile_is_where_the_record_says(self):
        """Though that broker is back by then."""
        rows = [broker(at, name) for at in range(4) for name in "abc" if (at, name) != (1, "b")]
        found = window(rows, [bundle(0), bundle(1, owner=None), bundle(3, owner="c")])
        cluster = ReplayCluster(found, a_slope_of_one(found))
        cluster.advance(0)
        cluster.move(0, found.brokers.index("b"))
        for number in (1, 2, 3):
            cluster.advance(number)

        assert found.brokers[cluster.owner[0]] == "c"

    def test_a_broker_that_leaves_leaves_its_bundles_to_the_record(self):
        """A broker renamed is one that leaves and one that joins."""
        rows = [broker(0, "a"), broker(0, "b"), broker(1, "a"), broker(1, "renamed")]
        found = window(rows, [bundle(0)])
        cluster = ReplayCluster(found, a_slope_of_one(found))
        cluster.advance(0)
        cluster.move(0, found.brokers.index("b"))
        cluster.advance(1)

        assert cluster.owner.tolist() == [found.brokers.index("a")]
        assert cluster.snapshot(1, ["t/n/1"]).brokers.ids == ("a", "renamed")
