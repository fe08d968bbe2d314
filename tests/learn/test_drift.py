"""How proposed settings did since they were taken: from history alone, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lbd.config import STRATEGIES, Settings, strategy_section
from lbd.errors import UsageError
from lbd.learn.drift import DecidedBy, last_load, measure, taken_since
from lbd.learn.replay import Scale, as_recorded, gap_figures
from lbd.load.scoring import Weights
from lbd.simulate.run import BEGUN_AT
from lbd.store.calibration import ChangedSetting
from lbd.turn.strategy_config import DECIDING, deciding, effective
from tests.disks import flip
from tests.learn.histories import NEIGHBOUR, settled, simulated
from tests.learn.windows import packed

if TYPE_CHECKING:
    from pathlib import Path

LOW = ChangedSetting("avg_shedder.low_threshold", 15.0, 8.0)
STRATEGY = ChangedSetting("strategy", "avg-shedder", "least-moves")
MOVES = ChangedSetting("guardrails.max_unloads_per_turn", None, 2)
NO_LIMIT = ChangedSetting("guardrails.max_unloads_per_turn", 2, None)
NOW = 9e9
SKEWED = {"load": [{**NEIGHBOUR["load"][0], "brokers": ["a", "b"]}]}


def decided(strategy: str, low: float = 8.0, **guardrails: Any) -> DecidedBy:
    """By what a round was decided, as ``lbd run`` writes it."""
    avg_shedder = {"low_threshold": low, "hit_count_low": 3}
    settings = Settings.model_validate({"strategy": strategy, "avg_shedder": avg_shedder, "guardrails": guardrails})
    own = effective(settings).model_dump_json()
    return DecidedBy(strategy, own, json.dumps(deciding(settings)))


def earlier(before: DecidedBy) -> DecidedBy:
    """The same, written by an lbd that stored a strategy's settings only."""
    return before._replace(all_settings=None)


OURS, BEFORE, IMPORTED = decided("avg-shedder"), decided("avg-shedder", 15.0), DecidedBy(None, None, None)
SLOW = decided("avg-shedder", max_unloads_per_turn=2)


@pytest.mark.parametrize(
    ("rounds", "changes", "since"),
    [
        ([BEFORE, OURS, OURS], [LOW], 1),
        ([OURS, OURS], [LOW], 0),
        ([OURS, BEFORE, OURS], [LOW], 2),
        ([OURS, BEFORE], [LOW], None),
        ([IMPORTED, OURS], [LOW], 1),
        ([OURS, SLOW, SLOW], [MOVES], 1),
        ([OURS, SLOW], [LOW, MOVES], 1),
        ([SLOW, OURS], [NO_LIMIT], 1),
        ([earlier(SLOW), SLOW], [MOVES], 1),
        ([earlier(OURS)], [NO_LIMIT], None),
        ([earlier(BEFORE), earlier(OURS)], [LOW], 1),
        ([OURS, decided("least-moves")], [STRATEGY], 1),
        ([OURS, decided("least-moves")], [LOW], None),
        ([], [LOW], None),
    ],
    ids=[
        "taken",
        "all along",
        "taken again",
        "taken back",
        "imported",
        "a guardrail",
        "both",
        "a guardrail less",
        "a guardrail not known before",
        "no guardrail known",
        "known before",
        "a strategy",
        "another one's",
        "no round",
    ],
)
def test_settings_are_in_force_since_the_last_round_without_them(
    rounds: list[DecidedBy], changes: list[ChangedSetting], since: float | None
):
    """By what each round was decided with, until the newest one."""
    assert taken_since(enumerate(rounds), changes) == since


def test_a_day_may_end_before_they_are_taken_back():
    """The answer of the days before holds on."""
    assert taken_since([(5, OURS)], [LOW], since=2) == 2
    assert taken_since([(5, BEFORE)], [LOW], since=2) is None


def test_what_really_happened_is_measured(tmp_path: Path):
    """Moves that were made, and the gap of the brokers' own reports, in the figures of a calibration."""
    settings = settled(low_threshold=8.0, hit_count_low=3)
    settings = Settings.model_validate({**settings.model_dump(), "guardrails": {"max_unloads_per_turn": 2}})
    made = simulated(tmp_path, settings, hours=2, **SKEWED)
    found = measure(tmp_path, [LOW, MOVES], 0.0, Weights(), NOW)

    assert found is not None
    assert found.figures.days == pytest.approx(2 / 24, rel=0.05)
    assert found.figures.moves == len(made.trace().moves) > 0
    window = packed(tmp_path)
    gaps = gap_figures(window.at, as_recorded(window, Weights()), Scale(0.0, 0.0))
    assert (found.figures.mean_gap, found.figures.p95_gap) == (gaps["mean_gap"], gaps["p95_gap"])
    assert gaps["mean_gap"] > 5


@pytest.mark.parametrize(
    "changes",
    [{"acts": False}, {"hold": "not-leader"}, {"hold": "paused"}, {"acts": False, "hold": "observe-only"}],
    ids=["observe or approve", "a standby", "a pause", "what would move was said before"],
)
def test_only_time_in_which_lbd_itself_moves_is_measured(tmp_path: Path, changes: dict[str, Any]):
    """What it did not make were no moves a day, which the proposal would seem to save: of two hours one counts."""
    simulated(tmp_path, settled(low_threshold=8.0, hit_count_low=3), hours=2, **SKEWED)
    first_hour = measure(tmp_path, [LOW], 0.0, Weights(), BEGUN_AT + 3599)
    for path in (tmp_path / "v1" / "decisions").glob("*/*.parquet"):
        table = pq.read_table(path, partitioning=None)
        rows = [row | (changes if row["t"].timestamp() >= BEGUN_AT + 3600 else {}) for row in table.to_pylist()]
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)

    assert first_hour is not None
    assert first_hour.figures.moves > 0
    assert measure(tmp_path, [LOW], 0.0, Weights(), NOW) == first_hour
    assert measure(tmp_path, [LOW], BEGUN_AT + 3600, Weights(), NOW) is None


def test_what_a_clock_that_was_ahead_recorded_is_not_of_now(tmp_path: Path):
    """Until that date it would be the newest of history: neither measured settings nor the present load."""
    simulated(tmp_path, settled(low_threshold=8.0), hours=2)
    before = measure(tmp_path, [LOW], 0.0, Weights(), BEGUN_AT + 3600)

    assert before is not None
    assert before.figures.days == pytest.approx(1 / 24, rel=0.05)
    assert last_load(tmp_path, BEGUN_AT - 1) is None
    assert last_load(tmp_path, BEGUN_AT + 3600) != last_load(tmp_path, NOW)


def test_settings_that_were_not_taken_have_no_drift(tmp_path: Path):
    """Also where nothing is in history since they were proposed."""
    simulated(tmp_path, settled(low_threshold=15.0), hours=0.1)
    taken = ChangedSetting("avg_shedder.low_threshold", 8.0, 15.0)

    assert measure(tmp_path, [LOW], 0.0, Weights(), NOW) is None
    assert measure(tmp_path, [taken], 8e9, Weights(), NOW) is None
    assert measure(tmp_path / "none", [taken], 0.0, Weights(), NOW) is None


def test_every_setting_is_said_to_decide_or_not():
    """A new one is kept with each round, or named here: a proposal that changes it could not be measured otherwise."""
    others = {"pulsar", "approvers", "restore_on_stop", "drain", "capacity", "calibrate", "history", "state_dir", "api",
              "leader", "notify", "log"}  # fmt: skip
    assert others | set(DECIDING) == Settings.model_fields.keys() - set(map(strategy_section, STRATEGIES))
    assert deciding(Settings()).keys() == {*DECIDING, "avg_shedder"}


def test_history_that_cannot_be_read_is_named(tmp_path: Path):
    """A byte that a disk has changed ends it in one line."""
    simulated(tmp_path, settled(low_threshold=8.0), hours=0.1)
    (file,) = (tmp_path / "v1" / "broker_rounds").glob("*/*.parquet")
    flip(file, "cpu")

    with pytest.raises(UsageError, match=r"broker_rounds/day=.*: cannot be read"):
        measure(tmp_path, [LOW], 0.0, Weights(), NOW)
