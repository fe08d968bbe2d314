"""History beside the daemon: it waits for no disk, ends no turn, and says what it could not keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from lbd.config import Settings
from lbd.daemon import recorder
from lbd.daemon.recorder import Historian
from lbd.store.history import HistoryWriter
from lbd.store.turns import save_bundles
from lbd.turn.record import reported_bundles
from tests.act.test_executor import no_thread
from tests.daemon.test_service import eventually, running, settings_for
from tests.turn.records import record, two

if TYPE_CHECKING:
    import pytest

    from lbd.turn.parts import TurnResult
    from tests.fake_pulsar import FakePulsar


def settings(state_dir: Path, **history: Any) -> Settings:
    """Settings with this state directory."""
    return Settings.model_validate({"state_dir": state_dir, "history": history})


def planned() -> TurnResult:
    """A turn worth keeping."""
    return record(two(60, 20))


def decisions(state_dir: Path) -> list[dict[str, Any]]:
    """What is on disk."""
    folder = state_dir / "history" / "v1" / "decisions"
    found: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist() if folder.exists() else []
    return found


def test_a_daemon_leaves_its_history(pulsar: FakePulsar, tmp_path: Path):
    """Rounds, decisions and moves, written at the latest when it stops; the number is that of lbd explain."""
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=Moved")
        assert daemon.end() == 0
    tables = {
        table: ds.dataset(tmp_path / "state" / "history" / "v1" / table, format="parquet").to_table().to_pylist()
        for table in ("broker_rounds", "bundle_rounds", "decisions", "moves")
    }
    assert {row["broker"] for row in tables["broker_rounds"]} == set(pulsar.ids)
    assert {row["result"] for row in tables["moves"]} == {"landed"}
    moved = [row["bundle"] for row in tables["moves"] if not row["amended"]]  # who is served may be known, too
    assert 1 <= len(set(moved)) == len(moved)
    assert min(row["turn"] for row in tables["decisions"]) >= 1
    assert '"low_threshold":' in tables["decisions"][0]["settings"]


def test_arrow_is_loaded_for_history_alone(pulsar: FakePulsar, tmp_path: Path):
    """A daemon that has moved bundles, on a cluster without isolation policies."""
    with running(tmp_path, settings_for(pulsar, tmp_path, history={"enabled": False})) as daemon:
        daemon.notified.wait_for("STATUS=Moved")
        assert "libarrow.so" not in Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert daemon.end() == 0


def test_a_bundle_that_went_while_no_lbd_ran_is_gone(tmp_path: Path):
    """Else its last traffic would be in every replay from then on, beside that of the parts of its split."""
    turn = planned()
    before = reported_bundles(turn)
    assert before is not None
    parent = {"owner": before.owner[:1], "codes": before.codes[:1], "rates": before.rates[:1]}
    save_bundles(tmp_path, replace(before, bundles=["t/n/0x00000000_0xffffffff"], **parent))
    found = Historian(settings(tmp_path))
    save_bundles(tmp_path, before)
    found.keep(turn)
    found.close()

    rows = ds.dataset(tmp_path / "history" / "v1" / "bundle_rounds", format="parquet").to_table().to_pylist()
    assert [row["bundle"] for row in rows if row["broker"] is None] == ["t/n/0x00000000_0xffffffff"]


def test_none_is_kept_where_it_is_switched_off(tmp_path: Path):
    """Not even a folder."""
    found = Historian(settings(tmp_path, enabled=False))
    found.keep(planned())
    found.close()
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_holds_no_turn_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Turns that find no room are counted, and said."""
    goes_on = Event()
    monkeypatch.setattr(HistoryWriter, "add", lambda *_: goes_on.wait(60))
    found = Historian(settings(tmp_path))
    for _ in range(20):
        found.keep(planned())
    assert not goes_on.is_set()
    assert any(" rounds were not kept: the disk is too slow" in one for one in found.warnings)
    goes_on.set()
    found.close()


def test_a_thread_that_could_not_be_had_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The system had none left for one turn, which is lost and said; the next ones are kept, and no turn fails."""
    found = Historian(settings(tmp_path))
    with monkeypatch.context() as full:
        no_thread(full, "history")
        found.keep(planned())
    assert found.warnings == (f"{tmp_path}/history: a round is not kept: can't start new thread",)
    found.keep(planned())
    found.close()
    assert len(decisions(tmp_path)) == 1


def test_it_takes_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is above is left out, and said."""
    monkeypatch.setattr(recorder, "ALLOWANCE_SECONDS", -1.0)
    found = Historian(settings(tmp_path))
    found.keep(planned())
    found.close()
    assert found.warnings == (f"{tmp_path}/history: 1 rounds were left out: history took over 1%",)


def test_a_disk_that_answers_nothing_ends_with_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A stop does not hang behind what waits for it."""
    goes_on = Event()
    monkeypatch.setattr(recorder, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(HistoryWriter, "add", lambda *_: goes_on.wait(60))
    found = Historian(settings(tmp_path))
    for _ in range(20):
        found.keep(planned())
    found.close()
    assert not goes_on.is_set()
    goes_on.set()


def test_a_reload_holds_for_the_turns_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each is kept under the settings that it was made with, whatever waits before it."""
    seen: list[int] = []

    def add(writer: HistoryWriter, _: Any) -> None:
        if writer.root.is_relative_to(tmp_path):  # the thread of a test before, freed from its slow disk, adds, too
            seen.append(writer.settings.retention_days)

    monkeypatch.setattr(HistoryWriter, "add", add)
    found = Historian(settings(tmp_path, retention_days=1))
    found.keep(planned())
    found.take(settings(tmp_path, retention_days=2))
    found.keep(planned())
    found.close()
    assert seen == [1, 2]


def test_a_bug_in_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And the next round is kept."""
    add = HistoryWriter.add
    monkeypatch.setattr(HistoryWriter, "add", lambda *_: 1 // 0)
    found = Historian(settings(tmp_path))
    found.keep(planned())
    eventually(lambda: bool(found.warnings))
    assert "a round is not kept: " in found.warnings[0]
    assert "ZeroDivisionError" in found.warnings[0]
    monkeypatch.setattr(HistoryWriter, "add", add)
    found.keep(planned())
    found.close()
    assert len(decisions(tmp_path)) == 1
    assert found.warnings == ()


def test_no_place_for_it(tmp_path: Path):
    """Balancing goes on, lbd status warns."""
    (tmp_path / "history").write_text("")
    found = Historian(settings(tmp_path))
    found.keep(planned())
    found.close()
    assert "history cannot be written: " in found.warnings[0]
