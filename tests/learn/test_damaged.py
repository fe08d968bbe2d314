"""Damaged histories: what each is found to lack, and that nothing is learned from what is in doubt. Without Spark."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lbd.errors import LbdError, ObserveError, UsageError
from lbd.learn.calibrate import SAMPLES, mix_of_days, sampled
from lbd.learn.history import CheckedHistory, read_history
from lbd.learn.workers import Task
from lbd.load.scoring import Weights
from lbd.store.calibration import CalibratedMix
from lbd.store.history_tables import schema
from tests.disks import flip
from tests.learn.in_process import InProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FIRST = datetime(2026, 1, 5, tzinfo=UTC)
DAYS, BROKERS, BUNDLES = 6, 4, 40
STEP_MINUTES = 3
MILLISECONDS_A_DAY = 86_400_000


@dataclass(frozen=True)
class History:
    """A history of six days: four brokers with ten bundles each, a round every three minutes."""

    root: Path

    def day(self, table: str, day: int) -> Path:
        """The file of a table on a day, counted from 0."""
        return self.root / "v1" / table / f"day=2026-01-{5 + day:02d}" / "day.parquet"

    def change(self, table: str, day: int, change: Callable[[pa.Table], pa.Table]) -> None:
        """Write a day's file anew."""
        path = self.day(table, day)
        write(path, change(pq.ParquetFile(path).read()))


def write(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, compression="zstd", write_page_checksum=True)


def column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column."""
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, table.schema.field(at), pa.chunked_array([pa.array(values, table.schema.field(at).type)])
    )


def rows(name: str, columns: dict[str, Any]) -> pa.Table:
    size = len(columns["t"])
    kinds = schema(name)
    return pa.table({one.name: pa.array(columns.get(one.name, [None] * size), one.type) for one in kinds}, kinds)


def day_of(number: int, brokers: Sequence[str], turn: int = 0) -> dict[str, pa.Table]:
    """The tables of a day; every bundle is stored once an hour."""
    begins = int(FIRST.timestamp() * 1000) + number * MILLISECONDS_A_DAY
    times = begins + np.arange(0, MILLISECONDS_A_DAY, STEP_MINUTES * 60_000)
    size, hours = times.size, times[:: 60 // STEP_MINUTES]
    wave = 1 + 0.2 * np.sin(2 * np.pi * (times - begins) / MILLISECONDS_A_DAY)
    load = np.repeat(wave, len(brokers)) * 1e6
    traffic = np.repeat(wave[:: 60 // STEP_MINUTES], BUNDLES) * 1e6 * len(brokers) / BUNDLES
    names = [f"t/n/{one}" for one in range(BUNDLES)]
    totals = {
        "throughput_in": load / 2,
        "throughput_out": load / 2,
        "msg_rate_in": load / 2e3,
        "msg_rate_out": load / 2e3,
    }
    parts = dict(zip(totals, [traffic / 2] * 2 + [traffic / 2e3] * 2, strict=True))
    return {
        "decisions": rows("decisions", {"t": times, "turn": turn + 1 + number * size + np.arange(size),
                                        "brokers": [list(brokers)] * size}),
        "broker_rounds": rows("broker_rounds", {
            "t": np.repeat(times, len(brokers)), "broker": [*brokers] * size, "cpu": 20 + load / 1e5,
            "memory": np.full(load.size, 30.0), "topics": np.ones(load.size, int),
            "bundles": np.ones(load.size, int), **totals}),
        "bundle_rounds": rows("bundle_rounds", {
            "t": np.repeat(hours, BUNDLES), "bundle": names * hours.size,
            "broker": [brokers[one % len(brokers)] for one in range(BUNDLES)] * hours.size,
            "producers": np.ones(traffic.size, int), "consumers": np.ones(traffic.size, int),
            "topics": np.ones(traffic.size, int), **parts}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> History:
    """One without damage."""
    made = History(tmp_path_factory.mktemp("whole") / "history")
    for number in range(DAYS):
        for table, found in day_of(number, "abcd").items():
            write(made.day(table, number), found)
    return made


def read(root: Path) -> CheckedHistory:
    return read_history(InProcess(root), str(root), Weights(), lambda _: None)


def cut(table: str) -> Callable[[History], None]:
    """Half of the second day's rows are gone."""
    return lambda one: one.change(table, 1, lambda found: found.slice(0, found.num_rows // 2))


def values(name: str, value: float, every: int = 1) -> Callable[[History], None]:
    """A resource has another value in the second day, in every so many rows."""

    def changed(found: pa.Table) -> pa.Table:
        own = found[name].to_numpy().copy()
        own[::every] = value
        return column(found, name, own)

    return lambda one: one.change("broker_rounds", 1, changed)


def doubled(one: History) -> None:
    for table in ("decisions", "broker_rounds", "bundle_rounds"):
        one.change(table, 1, lambda found: pa.concat_tables([found, found]))


def set_back(one: History) -> None:
    """On the second day six hours were recorded again, a second later each, by later turns."""
    begins = int(FIRST.timestamp() * 1000) + MILLISECONDS_A_DAY
    for table in ("decisions", "broker_rounds", "bundle_rounds"):

        def again(found: pa.Table, table: str = table) -> pa.Table:
            at = found["t"].cast(pa.int64()).to_numpy()
            early = at < begins + MILLISECONDS_A_DAY // 4
            later = found.filter(pa.array(early))
            later = column(later, "t", at[early] + 1000)
            if table == "decisions":
                turns = found["turn"].to_numpy().copy()
                second = turns[early] + early.sum()
                found = column(found, "turn", np.where(early, turns, turns + early.sum()))
                later = column(later, "turn", second)
            return pa.concat_tables([found, later])

        one.change(table, 1, again)


def ahead(one: History) -> None:
    """On the second day the clock was sixty days ahead for an hour: so is what was recorded in it."""
    noon = int(FIRST.timestamp() * 1000) + MILLISECONDS_A_DAY + MILLISECONDS_A_DAY // 2
    for table in ("decisions", "broker_rounds", "bundle_rounds"):
        found = pq.ParquetFile(one.day(table, 1)).read()
        at = found["t"].cast(pa.int64()).to_numpy()
        within = (at >= noon) & (at < noon + 3_600_000)
        write(one.day(table, 1), found.filter(pa.array(~within)))
        later = found.filter(pa.array(within))
        path = one.root / "v1" / table / "day=2026-03-07" / "day.parquet"
        write(path, column(later, "t", at[within] + 60 * MILLISECONDS_A_DAY))


def two_clusters(one: History) -> None:
    for number in range(DAYS):
        for table, found in day_of(number, "wxyz", 1_000_000).items():
            times = found["t"].cast(pa.int64()).to_numpy() + 60_000
            other = column(found, "t", times)
            one.change(table, number, partial(_with, other))


def _with(other: pa.Table, own: pa.Table) -> pa.Table:
    return pa.concat_tables([own, other])


def restarted(one: History) -> None:
    """A new broker comes in the last round of a day, and has no sample before midnight."""

    def with_broker(found: pa.Table) -> pa.Table:
        names = found["brokers"].to_pylist()
        names[-1] = [*names[-1], "new"]
        return column(found, "brokers", names)

    one.change("decisions", 1, with_broker)


def other_types(one: History) -> None:
    path = one.day("broker_rounds", 1)
    found = pq.ParquetFile(path).read()
    at = found.schema.get_field_index("cpu")
    write(path, found.set_column(at, "cpu", pa.array(["much"] * found.num_rows)))


LOST = "2026-01-06 is left out: {} is missing"
BROKERS_GONE, BUNDLES_GONE, ROUNDS_GONE = (
    LOST.format(f"its record of {what}") for what in ("brokers", "bundles' traffic", "rounds")
)


@pytest.mark.parametrize(
    ("damage", "lost", "found"),
    [
        (lambda _: None, [], {}),
        (lambda one: one.day("bundle_rounds", 1).write_bytes(one.day("bundle_rounds", 1).read_bytes()[:-40]),
         [BUNDLES_GONE], {"unreadable-file": 1, "lost-day": 1}),
        (lambda one: one.day("broker_rounds", 1).write_bytes(b""),
         [BROKERS_GONE], {"unreadable-file": 1, "lost-day": 1}),
        (lambda one: flip(one.day("broker_rounds", 1), "cpu"),
         [BROKERS_GONE], {"unreadable-page": 1, "lost-day": 1}),
        (other_types, [BROKERS_GONE], {"unreadable-page": 1, "lost-day": 1}),
        (lambda one: one.change("bundle_rounds", 1, lambda own: own.drop_columns(["throughput_in"])),
         [BUNDLES_GONE], {"other-columns": 1, "lost-day": 1}),
        (lambda one: [one.day(table, 1).unlink() for table in ("decisions", "broker_rounds", "bundle_rounds")],
         [ROUNDS_GONE], {"lost-day": 1}),
        (lambda one: one.day("decisions", 1).unlink(), [ROUNDS_GONE], {"lost-day": 1}),
        (lambda one: one.day("bundle_rounds", 1).unlink(), [BUNDLES_GONE], {"lost-day": 1}),
        (cut("bundle_rounds"), [LOST.format("44 % of its record of bundles' traffic")], {"lost-day": 1}),
        (cut("broker_rounds"), [LOST.format("50 % of its record of brokers")], {"lost-day": 1}),
        (cut("decisions"), [LOST.format("50 % of its record of rounds")], {"lost-day": 1}),
        (lambda one: one.change("bundle_rounds", 1, lambda own: own.filter(pc.not_equal(own["broker"], "a"))),
         [LOST.format("25 % of its record of bundles' traffic")], {"lost-day": 1}),
        (values("cpu", np.inf, 4), [LOST.format("25 % of its record of brokers")],
         {"not-a-number": 480, "lost-day": 1}),
        (values("cpu", np.nan, 50), [], {"not-a-number": 39}),
        (doubled, [], {"repeated-round": 480}),
        (set_back, [], {"clock-set-back": 119}),
        (ahead, [], {"clock-set-back": 20, "silence": 1}),
        (restarted, [], {}),
    ],
    ids=[
        "none", "truncated", "empty", "a changed byte", "a column of another type", "a column less", "a missing day",
        "decisions missing", "bundles missing", "half of the bundles", "half of the samples", "half of the decisions",
        "bundles of one broker", "infinite on one broker", "NaN now and then", "doubled", "clock set back",
        "clock ahead for an hour", "restart at midnight",
    ],
)  # fmt: skip
def test_a_day_that_lacks_much_is_left_out_and_named(
    whole: History, tmp_path: Path, damage: Callable[[History], None], lost: list[str], found: dict[str, int]
):
    """And no other; what is only in doubt or there twice costs no day. The first of six windows is for warming up."""
    made = History(shutil.copytree(whole.root, tmp_path / "history"))
    damage(made)
    history = read(made.root)

    assert [one.text for one in history.lost] == lost
    assert {one.name: one.count for one in history.checks if one.count} == found
    assert history.days == pytest.approx(DAYS - len(lost), rel=0.01)
    assert len(history.numbers) == (DAYS - 1 if lost else DAYS)


def test_the_mix_is_that_of_whole_days(whole: History, tmp_path: Path):
    """Half of the traffic of forty equal bundles is in twenty of them. The last day, of which an hour is there, says
    nothing, and neither does a day that is left out."""
    shutil.copytree(whole.root, tmp_path, dirs_exist_ok=True)
    one = History(tmp_path)
    begins = FIRST.timestamp() * 1000 + (DAYS - 1) * MILLISECONDS_A_DAY
    for table in ("decisions", "broker_rounds", "bundle_rounds"):
        one.change(table, DAYS - 1, lambda own: own.filter(pc.less(own["t"].cast(pa.int64()), int(begins) + 3_600_000)))
    one.change("bundle_rounds", 1, lambda own: own.filter(pc.not_equal(own["broker"], "a")))
    found = read(tmp_path)
    rows = found.run([Task(*found.hours_of(number)) for number in found.numbers], sampled, SAMPLES)

    assert len(found.numbers) == DAYS - 1
    assert mix_of_days(found, rows) == CalibratedMix(pytest.approx(20.0), pytest.approx(20.0))
    assert mix_of_days(found, [row for row in rows if row["hour"] == found.hours_of(found.numbers[-1])[0]]) is None


def test_a_file_of_bundles_that_are_gone_is_whole(whole: History, tmp_path: Path):
    """It has names alone; without it the last traffic of these bundles would stay."""
    made = History(shutil.copytree(whole.root, tmp_path / "history"))
    gone = rows("bundle_rounds", {"t": [int(FIRST.timestamp() * 1000) + 60_000], "bundle": ["t/n/0"]})
    write(made.day("bundle_rounds", 0).with_name("part-1.parquet"), gone)
    history = read(made.root)

    assert (history.torn, history.lost) == ((), ())


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (two_clusters, ObserveError, r"other-cluster 5,\d+ \(99\.\d % of the rounds\), at most 10 %"),
        (values("cpu", np.nan), ObserveError, r"not-a-number 1,920 \(16\.7 % of the samples\), at most 10 %"),
        (lambda one: [one.day("bundle_rounds", day).unlink() for day in range(1, 5)], ObserveError,
         r"lost-day 4 \(66\.7 % of the days\), at most 50 %"),
        (lambda one: [one.day("decisions", day).write_bytes(b"junk") for day in range(DAYS)], UsageError,
         "decisions: none of 6 files can be read"),
    ],
    ids=["two clusters", "NaN for a day", "most days without bundles", "junk alone"],
)  # fmt: skip
def test_nothing_is_learned_from_a_history_of_which_too_much_is_bad(
    whole: History, tmp_path: Path, damage: Callable[[History], None], kind: type[LbdError], message: str
):
    """In one line that names what."""
    made = History(shutil.copytree(whole.root, tmp_path / "history"))
    damage(made)
    with pytest.raises(kind, match=message):
        read(made.root)
