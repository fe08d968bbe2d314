"""Rounds and samples of a day: short tables in, short tables out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lbd.learn.history import window_row
from lbd.learn.loss import hour_counts
from lbd.learn.rounds import (
    counts,
    days_of_wrong_clock,
    last_settings,
    reports,
    rounds,
    samples,
    turn_gaps,
    without,
)
from lbd.load.scoring import Weights
from lbd.store.history_tables import schema
from tests.learn.windows import BEGUN, minute

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN, INFINITY = float("nan"), float("inf")


def table(name: str, *rows: dict[str, Any]) -> pa.Table:
    """Rows of a table of history; columns that are not given are null."""
    return pa.Table.from_pylist([{**dict.fromkeys(schema(name).names), **row} for row in rows], schema(name))


def decisions(*told: tuple[float, list[str]], turn: int = 1) -> pa.Table:
    return table("decisions", *({"t": minute(at), "brokers": names, "turn": turn} for at, names in told))


def broker_rounds(*rows: tuple[float, str, float | None]) -> pa.Table:
    return table(
        "broker_rounds", *({"t": minute(at), "broker": name, "cpu": cpu, "topics": 1} for at, name, cpu in rows)
    )


def minutes(found: pa.Table) -> list[float]:
    """When, in minutes since the beginning."""
    return sorted((at - BEGUN).total_seconds() / 60 for at in found["t"].to_pylist())


def listed(found: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in columns) for row in found.to_pylist()), key=str)


def test_a_round_that_is_there_twice_is_taken_once():
    """Of a recording imported twice, or of one that the daemon had kept, too: the one with the later turn."""
    both = pa.concat_tables([decisions((0, ["a"]), (1, ["a"])), decisions((1, ["a", "b"]), turn=2)])
    found = both.take(pa.array(rounds(both).row))

    assert minutes(found) == [0, 1]
    assert found["brokers"].to_pylist() == [["a"], ["a", "b"]]


ANEW = {0: 5, 1: 6, 60: 1, 61: 2, 62: 3, 66: 4, 70: 7, 71: 8}
TWO = {0: 900, 0.5: 7, 1: 901, 1.5: 8, 2: 902, 2.5: 9}
BACK = {0: 1, 1: 2, 2: 3, 3: 4, 1.5: 5, 2.5: 6, 3.5: 7, 4.5: 8}


@pytest.mark.parametrize(
    ("turns", "kept"),
    [
        (BACK, [0, 1, 1.5, 2.5, 3.5, 4.5]),
        (dict.fromkeys(BACK, 0), sorted(BACK)),
        (ANEW, sorted(ANEW)),
        (TWO, [0, 1, 2, 2.5]),
        ({}, []),
    ],
    ids=["a clock set back", "imported rounds", "turns counted anew", "two lbds in one folder", "none"],
)
def test_rounds_that_a_clock_came_by_again_are_left_out(turns: dict[float, int], kept: list[float]):
    """In every table. Two minutes were recorded twice, at other seconds: the later turns stay. After ``turns/`` was
    removed no clock went back, also where the count comes by its old height that day.
    """
    recorded = table("decisions", *({"t": minute(at), "brokers": ["a"], "turn": turn} for at, turn in turns.items()))
    measured = broker_rounds(*((at, "a", 20.0) for at in turns))
    changes = table("bundle_rounds", *({"t": minute(at), "bundle": "x"} for at in turns))
    read, overtaken = counts(recorded, measured)

    assert minutes(reports(recorded, measured, overtaken)) == kept
    assert minutes(without(changes, overtaken)) == kept
    assert (read.rounds_read, read.rounds_kept, read.rounds_overtaken) == (
        len(turns), len(kept), len(turns) - len(kept),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([(0, "a", 20.0), (0, "a", 20.0)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", None)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", -1.0)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", NAN)], [("a", 20.0)]),
        ([(0, "a", 20.0), (0, "b", INFINITY)], [("a", 20.0)]),
        ([(0, "a", 0.0)], [("a", 0.0)]),
        ([], []),
    ],
    ids=["twice", "without a number", "below zero", "NaN", "infinite", "idle", "none"],
)
def test_samples_that_are_kept(rows: list[tuple[float, str, float | None]], kept: list[tuple[str, float]]):
    """One for each broker and round, with numbers only."""
    assert listed(samples(broker_rounds(*rows)), "broker", "cpu") == kept


def test_every_report_has_a_row():
    """Its numbers are null without a new sample, and a sample without a round is left out."""
    found = reports(decisions((0, ["a", "b"]), (61, ["a"])), broker_rounds((0, "a", 20.0), (30, "a", 99.0)))

    assert listed(found, "broker", "cpu") == [("a", 20.0), ("a", None), ("b", None)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], (0, 0, 0, 0, 0)),
        ([0], (1, 1, 0, 0, 0)),
        ([0, 1, 1, 2], (4, 3, 0, 120, 0)),
        ([62, 0, 61, 1], (4, 4, 1, 60 + 180 + 60, 3600 - 180)),
    ],
    ids=["none", "one", "twice", "a hole, in any order"],
)
def test_what_was_read_and_left_out_is_counted(times: Sequence[float], expected: tuple[int, ...]):
    """Rounds read and kept, gaps, and the seconds of a day that were covered and that were silent."""
    measured = broker_rounds(
        *[(0, "a", 20.0), (1, "a", None), (2, "a", -1.0), (3, "a", -1.0)],
        *[(4, "a", NAN), (5, "a", INFINITY), (6, "a", -INFINITY)],
    )
    read = asdict(counts(decisions(*((at, ["a"]) for at in times)), measured)[0])
    named = ("rounds_read", "rounds_kept", "gaps", "seconds_seen", "seconds_silent")

    assert tuple(read[name] for name in named) == expected
    kinds = ("read", "kept", "missing", "negative", "not_finite")
    assert [read[f"samples_{kind}"] for kind in kinds] == [7, 1, 1, 2, 3]


def test_the_last_round_has_the_settings_in_force():
    """Whatever order rounds come in; none where there is no round."""
    rows = [
        {"t": minute(at), "brokers": [], "turn": 1, "strategy": name, "settings": "{}"}
        for at, name in ((2, "b"), (1, "a"))
    ]

    assert last_settings(table("decisions", *rows))[1:] == ("b", "{}")
    assert last_settings(table("decisions")) == (0, None, None)


SILENT = (0, 0, 0)
"""Minutes without a round."""


def test_brokers_with_new_addresses_are_no_more_brokers():
    """As pods that are replaced: a proposal would expire by twice as many as there ever were."""
    rounds_of = [(0, ["a", "b"]), (1, ["a", "d"]), (2, ["c", "d"])]
    measured = broker_rounds(*((at, name, 20.0) for at, names in rounds_of for name in names))
    row = window_row(decisions(*rounds_of), measured, overtaken=frozenset(), weights=Weights())

    assert (row["brokers"], row["most_brokers"]) == (["a", "b", "c", "d"], 2)


def test_traffic_that_went_to_a_new_address_within_the_hour_is_carried_once():
    """As after a rollout of pods: by twice as much a day would lack bundles, and a proposal would hold for too long."""
    rounds_of = [(0, ["a", "b"]), (20, ["b", "c"]), (40, ["c", "d"]), (60, ["c", "d"])]
    rate = {"cpu": 20.0, "topics": 1, "throughput_in": 50.0, "throughput_out": 50.0}
    samples_of = ({"t": minute(at), "broker": name, **rate} for at, names in rounds_of for name in names)
    bundles = ({"t": minute(at), "bundle": f"t/n/{at}", "broker": "a", **rate, "cpu": None} for at in (0, 0, 60, 60))
    measured, changed = table("broker_rounds", *samples_of), table("bundle_rounds", *bundles)
    first, second = hour_counts(decisions(*rounds_of), measured, changed)

    assert (first.carried, second.carried) == (200.0, 200.0)
    (alone,) = hour_counts(decisions(), measured.slice(0, 4), changed.slice(0, 2))
    assert (alone.carried, alone.decided) == (300.0, 0)


@pytest.mark.parametrize(
    ("days", "wrong"),
    [
        ({1: [1, 2, *SILENT, 6, 7], 2: [8, 9], 61: [3, 4, 5]}, {61}),
        ({1: [1, 2, 3], 2: [4, 5]}, set()),
        ({1: [1, 2, *SILENT, 7, 8], 2: [3, 4, 9]}, set()),
        ({1: [10, 11, 20], 2: [1, 2, 3]}, set()),
        ({1: [500, 501, 502, 1, 2], 2: [3, 4], 3: [5, 6]}, set()),
        ({1: [1, 2, 3, 501, 502, 4, 5], 2: [6, 7], 3: [503, 504]}, set()),
        ({1: [1, *SILENT, 5], 2: [2, 4], 3: []}, {2}),
        ({}, set()),
    ],
    ids=[
        "clock ahead for three turns",
        "in order",
        "also turns of its own",
        "counted anew before",
        "counted anew that day",
        "two lbds by turns",
        "turns lost",
        "no day",
    ],
)
def test_a_day_in_the_middle_of_another_one_was_a_wrong_clock(days: dict[int, list[int]], wrong: set[int]):
    """All of its turns were made between two rounds that follow one another on the other day, as late as they took."""
    tables = {
        day: table(
            "decisions",
            *({"t": minute(at), "brokers": ["a"], "turn": turn} for at, turn in enumerate(turns) if turn),
        )
        for day, turns in days.items()
    }
    assert days_of_wrong_clock({day: turn_gaps(rows) for day, rows in tables.items()}) == wrong
