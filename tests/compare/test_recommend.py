"""Which strategy a comparison recommends, and why."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lbd.compare.side_by_side import RECORDED, Compared
from lbd.compare.summary import DECIDING, WHICH_WHEN, answer, recommended, rows
from lbd.score.scorecard import FIGURES, Evenness, Scorecard, Trace
from lbd.simulate.run import Run


def run(label: str, gap: float, moves: int, traffic: float = 0.1, violations: int = 0) -> Run:
    """A run that ended so far apart, after so many moves."""
    values: dict[str, Any] = {one.name: 0 for one in fields(Scorecard)}
    values |= {
        **dict.fromkeys(("first", "mean", "unmoved"), Evenness(30, 0, 1)),
        "last": Evenness(gap, 0, 1),
        "moves": moves,
        "traffic_moved": traffic,
        "policy_violations": violations,
    }
    return Run(label, Scorecard(**{**values, "fewest_moves_as_even": None}), Trace((), ()), "")


TABLE = [
    pytest.param([run("one", 20, 3), run("two", 30, 0)], "one", "less even in the end: two (30.0)", id="the-evener"),
    pytest.param([run("one", 14, 9), run("two", 10, 12)], "one", "within the low threshold of 15", id="even-enough"),
    pytest.param([run("one", 21, 9), run("two", 20, 12)], "one", "the nearest 20.0", id="as-near-with-fewer-moves"),
    pytest.param(
        [run("one", 9, 5, 0.3), run("two", 9, 5)],
        "two",
        "as even: one (5 moves of 30% of the traffic)",
        id="less-traffic",
    ),
    pytest.param(
        [run("one", 9, 2, violations=1), run("two", 9, 5)], "two", "against a policy: one", id="no-policy-broken"
    ),
    pytest.param(
        [run("avg-shedder", 12, 10), run("least-moves", 11, 8)],
        "avg-shedder",
        "as even: least-moves (8 moves of 10% of the traffic); too few moves saved to leave the default: least-moves",
        id="the-default-stays",
    ),
    pytest.param(
        [run("avg-shedder:hit_count_low=4", 12, 10), run("least-moves", 11, 7)],
        "least-moves",
        "7 moves of 10% of the traffic; as even: avg-shedder:hit_count_low=4 (10 moves of 10% of the traffic)",
        id="a-quarter-fewer",
    ),
    pytest.param([run("avg-shedder", 12, 1), run("least-moves", 11, 0)], "avg-shedder", "1 move", id="one-is-chance"),
    pytest.param(
        [run("avg-shedder", 20, 3), run("least-moves", 11, 9)],
        "least-moves",
        "less even in the end: avg-shedder (20.0)",
        id="the-default-is-not-even",
    ),
    pytest.param(
        [run("avg-shedder", 12, 10), run("avg-shedder:low_threshold=12", 11, 9)],
        "avg-shedder:low_threshold=12",
        "9 moves",
        id="settings-of-the-default",
    ),
    pytest.param([run(RECORDED, 5, 0), run("one", 9, 2), run("two", 9, 3)], "one", "2 moves", id="not-the-past"),
]


@pytest.mark.parametrize(("runs", "label", "words"), TABLE)
def test_as_even_as_the_best_with_the_fewest_moves(runs: list[Run], label: str, words: str) -> None:
    """Runs by their last gap and their moves; who is recommended, and words of the reasons."""
    found = recommended(Compared("here", tuple(runs), (15.0, 40.0)))

    assert found is not None
    assert found.label == label
    assert words in "; ".join(found.reasons)


def test_one_alone_is_not_recommended() -> None:
    """There is nothing to choose from; the answer is how it ended."""
    alone = Compared("here", (run(RECORDED, 5, 0), run("one", 9, 2)), (15.0, 40.0))
    assert recommended(alone) is None
    (words,) = answer(alone)
    assert words.startswith("here: one ends 9.0 points apart, with 2 moves of 10% of the traffic. ")


def test_the_answer_is_one_line_and_each_further_reason_another() -> None:
    """The first line names the comparison, the candidate, how even it ends and its moves."""
    first, *others = answer(Compared("here", (run("one", 20, 3), run("two", 30, 0)), (15.0, 40.0)))
    assert first == (
        "here: one is recommended: ends 20.0 points apart, no other ends nearer; 3 moves of 10% of the traffic."
    )
    assert others == ["Less even in the end: two (30.0).", f"Which strategy when: {WHICH_WHEN}."]


def test_the_deciding_figures_are_ten_and_have_what_a_recommendation_reads() -> None:
    """A figure that the recommendation reads is one of the rows that are always shown."""
    read = {"last.gap_points", "moves", "fewest_moves_as_even", "traffic_moved", "minutes_over_low"}
    assert read | {"policy_violations"} <= set(DECIDING)
    assert len(set(DECIDING)) == 10
    assert set(DECIDING) <= {figure.name for figure in FIGURES}


def best(*runs: Run) -> dict[str, tuple[int, ...]]:
    """The positions of the best values, by the name of the figure."""
    return {row.figure.name: row.best for row in rows(Compared("here", runs, (15.0, 40.0)))}


def test_the_best_values_of_a_row() -> None:
    """The lowest, all that look equal; none where all do, or where no value is better."""
    found = best(run("one", 9.04, 5), run("two", 8.96, 7), run("three", 20, 5))
    assert (found["last.gap_points"], found["moves"]) == ((0, 1), (0, 2))
    assert (found["rounds"], found["policy_violations"]) == ((), ())


def test_what_was_before_any_move_is_nobodys_merit() -> None:
    """Neither the first look nor the load without moves marks anybody."""
    early = replace(run("two", 9, 5).card, first=Evenness(1, 1, 1))
    found = best(run("one", 9, 5), Run("two", early, Trace((), ()), ""))
    assert found["first.gap_points"] == ()


def test_a_missing_value_is_never_the_best() -> None:
    """Never balanced is not sooner than after an hour."""
    never = replace(run("two", 9, 5).card, minutes_to_balance=None)
    hour = replace(never, minutes_to_balance=60.0)
    found = best(Run("one", never, Trace((), ()), ""), Run("two", hour, Trace((), ()), ""))
    assert found["minutes_to_balance"] == (1,)


def test_which_when_is_said_where_strategies_differ() -> None:
    """And not between settings of one; the place that is named is there."""
    differ = recommended(Compared("here", (run("avg-shedder", 9, 2), run("least-moves", 9, 2)), (15.0, 40.0)))
    alike = recommended(Compared("here", (run("one", 9, 2), run("one:x=1", 9, 2)), (15.0, 40.0)))
    assert differ is not None
    assert alike is not None
    assert differ.reasons[-1] == f"which strategy when: {WHICH_WHEN}"
    assert not [reason for reason in alike.reasons if "which strategy" in reason]
    path, _, heading = WHICH_WHEN.partition("#")
    assert f"\n## {heading.capitalize().replace('-', ' ')}\n" in (Path(__file__).parents[2] / path).read_text()
