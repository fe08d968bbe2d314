"""History: what is stored, what is left out, how it is read back, and what a kill, a clock or a disk does to it."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.load.scoring import percent
from lbd.observe.parse import build_snapshot, parse_report
from lbd.store import history
from lbd.store.history import (
    FLOORS,
    FLUSH_SECONDS,
    MOST_ROWS,
    WHOLE_SECONDS,
    Folder,
    HistoryWriter,
    Stored,
    changes,
    rounds,
    scores,
    utc_day,
)
from lbd.store.history_round import HistoryRound, HistorySettings
from lbd.store.history_tables import COLUMNS, TABLES, VERSION, schema
from tests import disks
from tests.builders import bundle, report, snapshot, stats
from tests.disks import flip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lbd.model import Snapshot


MIDNIGHT = 1_800_057_600.0
A, B = "a:8080", "b:8080"
MOVE = {
    "turn": 7, "bundle": bundle(0), "source": A, "destination": B, "owner": B, "result": "landed", "attempts": 1,
    "seconds": 0.5, "msg_rate": 10.0, "throughput": 1000.0, "reason": "low", "detail": "", "amended": False,
    "served": "yes", "reconnect_seconds": 0.4, "topics_before": 4, "producers_before": 4, "consumers_before": 6,
    "topics_after": 4, "producers_after": 3, "consumers_after": 6,
}  # fmt: skip


def decision(**other: Any) -> dict[str, Any]:
    """A turn that planned nothing."""
    values = {
        "turn": 7, "strategy": "avg-shedder", "settings": "{}", "all_settings": None, "sentence": "Balanced.",
        "verdict": "balanced", "hold": None, "acts": True, "planned": 0, "skipped": "{}",
    }  # fmt: skip
    return {**values, **other}


def round_of(seen: Snapshot, **other: Any) -> HistoryRound:
    """A round in which every broker has a new sample."""
    size = len(seen.brokers)
    values: dict[str, Any] = {
        "fresh": np.ones(size, dtype=np.bool_),
        "used": np.where(seen.brokers.limit > 0, percent(seen.brokers), np.nan),
        "scores": np.full(size, 12.5),
        "binding": ("cpu",) * size,
        "doubts": (None,) * size,
        "decision": decision(),
    }
    return HistoryRound(seen, **{**values, **other})


def two(at: float = MIDNIGHT, rate: float = 100.0, owner: str = A) -> Snapshot:
    """Two brokers, one bundle on the first or the second of them."""
    own = {bundle(0): stats(rate)}
    return snapshot({broker: report(30, own if broker == owner else {}) for broker in (A, B)}, at)


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table, as any reader of Parquet finds them."""
    found: list[dict[str, Any]] = ds.dataset(root / "v1" / table, format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: str(row["t"]))


def written(root: Path, *found: HistoryRound, **settings: Any) -> HistoryWriter:
    """Rounds on disk."""
    writer = HistoryWriter(root, HistorySettings(**settings))
    for one in found:
        writer.add(one)
    writer.flush()
    return writer


class TestChanges:
    """Which bundles are stored again."""

    @pytest.mark.parametrize(
        ("second", "stored"),
        [
            (two(), 0),
            (two(rate=104.0), 0),
            (two(rate=106.0), 1),
            (two(owner=B), 1),
            (snapshot({A: report(30, {bundle(0): stats(100, topics=2)}), B: report(30)}), 1),
            (snapshot({A: report(30, {bundle(0): stats(float("nan"))}), B: report(30)}), 1),
        ],
    )
    def test_a_change_is_news(self, second: Snapshot, stored: int) -> None:
        """Of more than a twentieth of a rate, of an owner, of a count."""
        fresh = np.ones(2, dtype=np.bool_)
        before, first = changes(Stored.nothing(), two(), fresh, 0.05)
        _, found = changes(before, second, fresh, 0.05)
        assert (first.rows.size, found.rows.size, found.gone) == (1, stored, ())

    def test_small_rates_are_left_alone(self) -> None:
        """From one message a second to nearly two nothing is learned."""
        fresh = np.ones(2, dtype=np.bool_)
        before, _ = changes(Stored.nothing(), two(rate=1.0), fresh, 0.05)
        assert changes(before, two(rate=1.9), fresh, 0.05)[1].rows.size == 0
        assert changes(before, two(rate=1.9), fresh, 0.0)[1].rows.size == 1

    def test_nan_that_stays_is_told_once(self) -> None:
        """A broken report does not fill the disk."""
        fresh = np.ones(2, dtype=np.bool_)
        before, first = changes(Stored.nothing(), two(rate=float("nan")), fresh, 0.05)
        assert (first.rows.size, changes(before, two(rate=float("nan")), fresh, 0.05)[1].rows.size) == (1, 0)

    def test_a_broker_without_a_new_sample_says_nothing(self) -> None:
        """Whatever its rows are."""
        _, found = changes(Stored.nothing(), two(), np.array([False, True]), 0.05)
        assert found.rows.size == 0

    def test_a_bundle_on_no_report_is_gone_once(self) -> None:
        """And stored again when it comes back."""
        fresh, empty = np.ones(2, dtype=np.bool_), snapshot({A: report(30), B: report(30)})
        before, _ = changes(Stored.nothing(), two(), fresh, 0.05)
        before, gone = changes(before, empty, fresh, 0.05)
        before, quiet = changes(before, empty, fresh, 0.05)
        assert (gone.gone, quiet.gone) == ((bundle(0),), ())
        assert changes(before, two(), fresh, 0.05)[1].rows.size == 1

    @given(
        st.lists(
            st.dictionaries(st.integers(0, 5), st.tuples(st.floats(0, 1e6), st.sampled_from([A, B])), max_size=6),
            min_size=1, max_size=6,
        )
    )  # fmt: skip
    def test_what_was_stored_last_is_never_far_off(self, history: list[dict[int, tuple[float, str]]]) -> None:
        """Within the step or the floor of every bundle, with its owner, in every round."""
        state, fresh = Stored.nothing(), np.ones(2, dtype=np.bool_)
        told: dict[str, tuple[np.ndarray[Any, Any], str]] = {}
        for each in history:
            own = {owner: {bundle(n): stats(r) for n, (r, o) in each.items() if o == owner} for owner in (A, B)}
            seen = snapshot({owner: report(30, found) for owner, found in own.items()})
            state, found = changes(state, seen, fresh, 0.05)
            for name in found.gone:
                del told[name]
            for row in found.rows.tolist():
                owner = seen.brokers.ids[seen.rows.owner()[row]]
                told[seen.bundles[seen.rows.bundle[row]]] = seen.rows.rates[row], owner
            assert {name: owner for name, (_, owner) in told.items()} == {bundle(n): o for n, (_, o) in each.items()}
            for row, at in enumerate(seen.rows.bundle.tolist()):
                stored = told[seen.bundles[at]][0]
                assert (np.abs(seen.rows.rates[row] - stored) <= np.maximum(stored * 0.05, FLOORS)).all()


class TestTables:
    """What stands on disk."""

    def test_every_table_has_its_rows(self, tmp_path: Path) -> None:
        """With units and names as documented, and null for what no number is."""
        written(tmp_path, round_of(two(), moves=[MOVE], scores=np.array([12.5, -np.inf]), doubts=(None, "young")))
        first, second = rows(tmp_path, "broker_rounds")
        assert (first["broker"], first["bandwidth_in"], first["score"]) == (A, None, 12.5)
        assert first["cpu"] == pytest.approx(30)
        assert (second["score"], second["doubt"], second["bundles"]) == (None, "young", 0)
        (own,) = rows(tmp_path, "bundle_rounds")
        assert (own["bundle"], own["broker"], own["msg_rate_in"], own["topics"]) == (bundle(0), A, 100.0, 1)
        (made,) = rows(tmp_path, "decisions")
        assert (made["brokers"], made["sentence"], made["t"].timestamp()) == ([A, B], "Balanced.", MIDNIGHT)
        (move,) = rows(tmp_path, "moves")
        assert {name: move[name] for name in MOVE} == MOVE

    def test_nothing_new_is_no_row(self, tmp_path: Path) -> None:
        """A turn between two samples leaves nothing, one that moved does."""
        quiet = round_of(two(), fresh=np.zeros(2, dtype=np.bool_))
        written(tmp_path, quiet)
        assert not (tmp_path / "v1").exists()
        written(tmp_path, replace(quiet, decision=decision(planned=1)))
        assert [row["planned"] for row in rows(tmp_path, "decisions")] == [1]

    def test_bundles_are_whole_once_an_hour(self, tmp_path: Path) -> None:
        """So that reading can begin anywhere."""
        steps = [0, 60, 120, WHOLE_SECONDS, WHOLE_SECONDS + 60]
        written(tmp_path, *(round_of(two(MIDNIGHT + step)) for step in steps))
        assert [row["t"].timestamp() - MIDNIGHT for row in rows(tmp_path, "bundle_rounds")] == [0, WHOLE_SECONDS]

    def test_a_clock_set_back_loses_nothing(self, tmp_path: Path) -> None:
        """The round is of another time, and is kept."""
        written(tmp_path, round_of(two(MIDNIGHT + 500)), round_of(two(MIDNIGHT)))
        assert [row["t"].timestamp() for row in rows(tmp_path, "decisions")] == [MIDNIGHT, MIDNIGHT + 500]

    def test_every_column_has_a_meaning(self) -> None:
        """The document is made from them."""
        assert all(meaning for columns in COLUMNS.values() for _, meaning in columns.values())


class TestFiles:
    """Days, packing, retention, and what is torn."""

    def test_a_file_every_ten_minutes_and_a_day_in_one(self, tmp_path: Path) -> None:
        """What is packed holds the same rows; the running day is left alone."""
        times = np.arange(MIDNIGHT - 3600, MIDNIGHT + 1200, 60.0)
        written(tmp_path, *(round_of(two(at)) for at in times))
        days = {day.name: len(list(day.iterdir())) for day in Folder(tmp_path).days("decisions")}
        assert days == {f"day={utc_day(MIDNIGHT - 1)}": 1, f"day={utc_day(MIDNIGHT)}": 1200 // FLUSH_SECONDS}
        assert [row["t"].timestamp() for row in rows(tmp_path, "decisions")] == times.tolist()

    def test_nothing_is_doubled_by_a_kill_after_packing(self, tmp_path: Path) -> None:
        """The packed day names what it replaces; what is left of that goes at the next start."""
        written(tmp_path, round_of(two(MIDNIGHT)), round_of(two(MIDNIGHT + 700)))
        (day,) = Folder(tmp_path).days("decisions")
        kept = {path.name: path.read_bytes() for path in day.iterdir()}
        Folder(tmp_path).pack(utc_day(MIDNIGHT + 86_400))
        for name, content in kept.items():
            (day / name).write_bytes(content)
        assert len(rows(tmp_path, "decisions")) == 4
        HistoryWriter(tmp_path, HistorySettings())
        assert len(rows(tmp_path, "decisions")) == 2

    def test_half_a_file_is_set_aside_and_counted(self, tmp_path: Path) -> None:
        """One under its hidden name at the start, one that a disk tore when its day is packed."""
        written(tmp_path, *(round_of(two(MIDNIGHT + at)) for at in (0, 700, 1400)))
        (day,) = Folder(tmp_path).days("decisions")
        first, *_ = sorted(day.iterdir())
        first.write_bytes(first.read_bytes()[:100])
        (day / ".part-1.parquet.new").write_bytes(b"PAR1")
        writer = HistoryWriter(tmp_path, HistorySettings())
        assert writer.torn == 1
        writer.add(round_of(two(MIDNIGHT + 86_400)))
        writer.flush()
        assert len(rows(tmp_path, "decisions")) == 3
        assert HistoryWriter(tmp_path, HistorySettings()).torn == 2

    def test_a_changed_byte_sets_its_file_aside(self, tmp_path: Path) -> None:
        """When its day is packed: the other files' rows become one file, and balancing's disk is not blamed."""
        writer = written(tmp_path, *(round_of(two(MIDNIGHT + at)) for at in (0, 700, 1400)))
        (day,) = Folder(tmp_path).days("decisions")
        flip(sorted(day.iterdir())[1], "t")
        writer.add(round_of(two(MIDNIGHT + 86_400)))
        writer.flush()

        assert writer.trouble == ""
        assert [row["t"].timestamp() - MIDNIGHT for row in rows(tmp_path, "decisions")] == [0, 1400, 86_400]
        assert [path.name for path in day.iterdir()] == ["day.parquet"]
        assert HistoryWriter(tmp_path, HistorySettings()).torn == 1

    @pytest.mark.parametrize("table", TABLES)
    def test_a_file_without_a_column_is_set_aside(self, tmp_path: Path, table: str) -> None:
        """The others of its day are packed."""
        kind, folder, times = schema(table), Folder(tmp_path), (MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 2)
        tables = [pa.Table.from_pylist([{"t": datetime.fromtimestamp(at, UTC)}], kind) for at in times]
        files = [folder.put(table, at, own.to_batches()) for at, own in zip(times, tables, strict=True)]
        pq.write_table(pq.ParquetFile(files[1]).read().drop_columns([kind.names[1]]), files[1])
        folder.pack(utc_day(MIDNIGHT + 86_400))

        (day,) = folder.days(table)
        (packed,) = day.iterdir()
        assert pq.ParquetFile(packed).read().schema.equals(kind)
        assert [row["t"].timestamp() for row in rows(tmp_path, table)] == [times[0], times[2]]
        assert [path.name for path in (tmp_path / "torn").iterdir()] == [f"{table}-{files[1].name}"]

    @pytest.mark.parametrize("seed", range(20))
    def test_a_changed_byte_of_a_footer_is_no_trouble_of_the_disk(self, tmp_path: Path, seed: int) -> None:
        """Whatever it makes of the footer: each night the days are packed, and at each start they are looked at."""
        writer = written(tmp_path, *(round_of(two(MIDNIGHT + at)) for at in (0, 700, 1400)))
        (day,) = Folder(tmp_path).days("decisions")
        damaged = sorted(day.iterdir())[1]
        content = bytearray(damaged.read_bytes())
        length = int.from_bytes(content[-8:-4], "little")
        chance = random.Random(seed)
        content[-8 - chance.randint(1, length)] ^= 1 << chance.randrange(8)
        damaged.write_bytes(content)
        writer.add(round_of(two(MIDNIGHT + 86_400)))
        writer.flush()
        assert writer.trouble == ""
        assert [path.name for path in day.iterdir()] == ["day.parquet"]

        packed = day / "day.parquet"
        content = bytearray(packed.read_bytes())
        length = int.from_bytes(content[-8:-4], "little")
        content[-8 - chance.randint(1, length)] ^= 1 << chance.randrange(8)
        packed.write_bytes(content)
        assert HistoryWriter(tmp_path, HistorySettings()).trouble == ""

    @pytest.mark.parametrize(("kept_days", "left"), [(1, 2), (2, 3), (30, 4)])
    def test_old_days_go(self, tmp_path: Path, kept_days: int, left: int) -> None:
        """Those before so many whole days."""
        found = (round_of(two(MIDNIGHT + day * 86_400)) for day in range(4))
        written(tmp_path, *found, retention_days=kept_days)
        assert [len(Folder(tmp_path).days(table)) for table in ("broker_rounds", "decisions")] == [left, left]

    def test_the_oldest_go_when_there_is_no_room(self, tmp_path: Path) -> None:
        """The oldest days, and of a single day its oldest files."""
        for day in range(3):
            written(tmp_path, *(round_of(two(MIDNIGHT + day * 86_400 + at)) for at in (0, 700)))
        folder = Folder(tmp_path)
        size = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
        folder.prune(MIDNIGHT + 2 * 86_400, 30, size // 2)
        assert [day.name for day in folder.days("decisions")] == [f"day={utc_day(MIDNIGHT + 2 * 86_400)}"]
        folder.prune(MIDNIGHT + 2 * 86_400, 30, 30_000)
        assert 0 < sum(path.stat().st_size for path in tmp_path.rglob("*.parquet")) <= 30_000


class TestTrouble:
    """Disks."""

    def test_a_disk_that_is_really_full(self, tmp_path: Path, small_disk: Path) -> None:
        """Rounds wait, it is said, nothing is raised; with room again they are written."""
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * 250_000)
        writer = written(small_disk / "history", round_of(two()))
        assert "No space left on device; " in writer.trouble
        assert not list((small_disk / "history").rglob(f"*{history.FRESH}"))
        filler.unlink()
        writer.add(round_of(two(MIDNIGHT + 60)))
        writer.flush()
        assert (writer.trouble, writer.lost) == ("", 0)
        assert len(rows(small_disk / "history", "decisions")) == 2

    def test_what_waits_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then rounds are lost, and counted."""
        monkeypatch.setattr("lbd.store.history.MOST_ROWS", 10)
        monkeypatch.setattr(Folder, "put", failing)
        writer = written(tmp_path, *(round_of(two(MIDNIGHT + at * 60)) for at in range(8)))
        assert MOST_ROWS > 10
        assert writer.lost == 5
        assert "Input/output error; " in writer.trouble

    def test_no_place_at_all(self, tmp_path: Path) -> None:
        """A file where the folder should be."""
        (tmp_path / "history").write_text("")
        writer = written(tmp_path / "history", round_of(two()))
        assert writer.trouble.startswith(f"{tmp_path / 'history'}: history cannot be written: ")


def failing(*_: object) -> None:
    """A disk that is gone."""
    raise OSError(errno.EIO, "Input/output error")


class TestReading:
    """Rounds come back as load reports."""

    def read(self, root: Path, since: float = 0.0) -> list[Snapshot]:
        return [_parsed(at, found) for at, found in rounds(root, since, 4e9)]

    def test_what_was_kept_comes_back(self, tmp_path: Path) -> None:
        """Scores' ingredients, owners, rates within the step, and the brokers of that round alone."""
        kept = [two(), two(MIDNIGHT + 60, 103), two(MIDNIGHT + 120, owner=B), replace(two(), taken_at=MIDNIGHT + 180)]
        written(tmp_path, *map(round_of, kept))
        found = self.read(tmp_path)
        assert [one.taken_at for one in found] == [one.taken_at for one in kept]
        assert [one.bundles for one in found] == [one.bundles for one in kept]
        owners = [one.brokers.ids[one.rows.owner()[0]] for one in found]
        assert owners == [A, A, B, A]
        assert [one.rows.rates[0, 0] for one in found] == [100, 100, 100, 100]
        assert (percent(found[0].brokers) == percent(kept[0].brokers)).all()

    def test_one_may_begin_in_the_middle(self, tmp_path: Path) -> None:
        """An hour before that every bundle was stored."""
        written(tmp_path, *(round_of(two(MIDNIGHT + at)) for at in (0.0, 60.0, 3600.0, 3660.0, 7260.0)))
        (last,) = self.read(tmp_path, MIDNIGHT + 7260)
        assert last.bundles == [bundle(0)]

    def test_a_broker_that_left_has_no_report(self, tmp_path: Path) -> None:
        """Nor has its bundle."""
        alone = snapshot({B: report(30)}, MIDNIGHT + 60)
        written(tmp_path, round_of(two()), round_of(alone))
        assert [(one.brokers.ids, len(one.bundles)) for one in self.read(tmp_path)] == [((A, B), 1), ((B,), 0)]

    def test_a_newer_version_is_refused(self, tmp_path: Path) -> None:
        """By its number."""
        written(tmp_path, round_of(two()))
        (path,) = (tmp_path / "v1" / "decisions").rglob("*.parquet")
        read = pq.read_table(path)
        pq.write_table(read.replace_schema_metadata({"lbd.history": '{"version": 2}'}), path)
        with pytest.raises(UsageError, match=rf"{path}: history of version 2, this lbd reads up to {VERSION}"):
            self.read(tmp_path)

    def test_a_torn_file_is_named(self, tmp_path: Path) -> None:
        """With its day."""
        written(tmp_path, round_of(two()))
        (path,) = (tmp_path / "v1" / "moves").parent.joinpath("decisions").rglob("*.parquet")
        path.write_bytes(b"PAR1")
        with pytest.raises(UsageError, match=f"{path.parent}: cannot be read: "):
            self.read(tmp_path)

    def test_a_changed_byte_is_no_other_number(self, tmp_path: Path) -> None:
        """It is an error that names the day."""
        written(tmp_path, round_of(two()))
        (path,) = (tmp_path / "v1" / "bundle_rounds").rglob("*.parquet")
        flip(path, "msg_rate_in")
        with pytest.raises(UsageError, match=f"{path.parent}: cannot be read: "):
            self.read(tmp_path)

    def test_there_is_none(self, tmp_path: Path) -> None:
        """No rounds."""
        assert self.read(tmp_path) == []


class TestScores:
    """Scores over time, as the dashboard draws them."""

    def test_a_score_lasts_until_the_next_sample(self, tmp_path: Path) -> None:
        """Over midnight, too; of a sample without a score, and of a broker without a report, there is none."""
        fresh_a, nobody = np.array([True, False]), np.array([False, False])
        found = [
            round_of(two(MIDNIGHT - 30), scores=np.array([70.0, 20.0])),
            round_of(two(MIDNIGHT - 15), scores=np.array([65.0, 99.0]), fresh=fresh_a),
            round_of(two(MIDNIGHT), scores=np.array([60.0, 99.0]), fresh=fresh_a),
            round_of(two(MIDNIGHT + 15), scores=np.array([99.0, 99.0]), fresh=nobody, decision=decision(planned=1)),
            round_of(two(MIDNIGHT + 30), scores=np.array([np.nan, 30.0])),
            round_of(snapshot({A: report(30)}, MIDNIGHT + 45), scores=np.array([50.0])),
        ]
        written(tmp_path, *found)
        days = list(scores(tmp_path, MIDNIGHT - 30, MIDNIGHT + 45))
        assert [one.at.tolist() for one in days] == [
            [MIDNIGHT - 30, MIDNIGHT - 15],
            [MIDNIGHT, MIDNIGHT + 15, MIDNIGHT + 30, MIDNIGHT + 45],
        ]
        assert np.concatenate([one.of(A) for one in days]).tolist() == pytest.approx(
            [70, 65, 60, 60, np.nan, 50], nan_ok=True
        )
        assert np.concatenate([one.of(B) for one in days]).tolist() == pytest.approx(
            [20, 20, 20, 20, 30, np.nan], nan_ok=True
        )

    def test_only_what_was_asked_for(self, tmp_path: Path) -> None:
        """Between two times; of nothing there is nothing, and a newer version is refused."""
        assert list(scores(tmp_path, 0.0, MIDNIGHT)) == []
        written(tmp_path, *(round_of(two(MIDNIGHT + at)) for at in (0, 15, 30)))
        (day,) = scores(tmp_path, MIDNIGHT + 10, MIDNIGHT + 20)
        assert (day.at.tolist(), day.points.tolist()) == ([MIDNIGHT + 15], [[12.5, 12.5]])

    def test_a_torn_file_is_named(self, tmp_path: Path) -> None:
        """And no chart is drawn without it as if it were whole."""
        written(tmp_path, round_of(two()))
        (path,) = (tmp_path / "v1" / "broker_rounds").rglob("*.parquet")
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(UsageError, match=path.name):
            list(scores(tmp_path, MIDNIGHT, MIDNIGHT + 60))


def _parsed(at: float, reports: Mapping[str, bytes]) -> Snapshot:
    assert all(msgspec.json.decode(body) for body in reports.values())
    return build_snapshot(at, {broker: parse_report(body, broker) for broker, body in reports.items()})


def test_all_tables_are_told_of():
    """Four, as the design has it."""
    assert TABLES == ("broker_rounds", "bundle_rounds", "decisions", "moves")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with disks.small_disk(tmp_path, 256) as disk:
        yield disk


def test_room_that_a_file_has_freed_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Once for each time that rounds are written."""
    given_back: list[str] = []
    pool = SimpleNamespace(release_unused=lambda: given_back.append("free room"))
    monkeypatch.setattr(pa, "default_memory_pool", lambda: pool)
    written(tmp_path, round_of(two()), round_of(two(MIDNIGHT + 60)), round_of(two(MIDNIGHT + 660)))
    assert given_back == ["free room"] * 2


def test_a_bundle_that_goes_on_the_hour_is_gone(tmp_path: Path):
    """As one that goes at any other time, though all bundles are stored anew then."""
    later = [snapshot({A: report(30), B: report(30)}, MIDNIGHT + at) for at in (WHOLE_SECONDS, 2 * WHOLE_SECONDS)]
    written(tmp_path, round_of(two(MIDNIGHT + WHOLE_SECONDS - 60)), *map(round_of, later))

    assert [_parsed(*one).bundles for one in rounds(tmp_path, 0.0, 4e9)] == [[bundle(0)], [], []]


def test_a_day_that_gets_rows_again_and_again_is_packed_each_time(tmp_path: Path):
    """As by imports, or by a clock that was set back: without trouble, and older days still go."""
    written(tmp_path, round_of(two(MIDNIGHT - 5 * 86_400)))
    for number in range(5):
        writer = written(tmp_path, round_of(two(MIDNIGHT + number)), round_of(two(MIDNIGHT + 86_400 + number)))
        (day,) = [day for day in Folder(tmp_path).days("decisions") if day.name == "day=2027-01-16"]

        assert writer.trouble == ""
        assert len(list(day.iterdir())) == 1
        assert len(rows(tmp_path, "decisions")) == 1 + 2 * (number + 1)
    written(tmp_path, round_of(two(MIDNIGHT + 86_400 + number)), retention_days=2)
    assert len(Folder(tmp_path).days("decisions")) == 2


def test_old_days_go_though_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They are what makes room."""
    written(tmp_path, round_of(two()))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Folder, "put", full)
    writer = written(tmp_path, round_of(two(MIDNIGHT + 40 * 86_400)), retention_days=30)

    assert "No space left on device" in writer.trouble
    assert Folder(tmp_path).days("decisions") == []
