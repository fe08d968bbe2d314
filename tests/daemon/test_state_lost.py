"""The journal or the directory around it is not what lbd holds: no move, a hold told everywhere, nothing made anew."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.clock import Moment, Timebase
from lbd.daemon.engine import engine
from lbd.errors import UsageError
from lbd.reason import Reason
from lbd.store.control import Control, Pause, UnloadRequest
from lbd.store.journal import read
from lbd.store.state import StateDir
from tests import fake_pulsar, journals
from tests.daemon.test_disk import nothing_was_moved
from tests.daemon.test_service import running, settings_for
from tests.test_turn import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """One hot broker, one hit is enough."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


def intents(folder: Path) -> int:
    """How many moves the journal has."""
    return journals.events(folder / "state").count("intent")


def _replaced(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


LOSSES: dict[str, Callable[[Path], object]] = {
    "the directory is moved away": lambda state: state.rename(state.with_name("away")),
    "the directory is removed": shutil.rmtree,
    "another directory has its name": lambda state: (state.rename(state.with_name("away")), state.mkdir()),
    "a copy has its name": lambda state: (
        state.rename(state.with_name("away")),
        shutil.copytree(state.with_name("away"), state),
    ),
    "the journal is removed": lambda state: (state / "lbd.db").unlink(),
    "the journal is replaced": lambda state: _replaced(state / "lbd.db"),
    "the lock is removed": lambda state: (state / "lock").unlink(),
    "the lock is replaced": lambda state: _replaced(state / "lock"),
}


@pytest.mark.parametrize("how", LOSSES)
def test_nothing_is_moved_from_then_on(how: str, pulsar: FakePulsar, tmp_path: Path):
    """Neither by a turn nor by hand, whatever is overridden; the turn ends in a hold; nothing is made or written."""
    state = tmp_path / "state"
    now = time.time()
    with engine(settings(pulsar, tmp_path)) as found:
        LOSSES[how](state)
        before = sorted(path.relative_to(tmp_path) for path in state.rglob("*")) if state.exists() else None
        record = found.turn()
        assert record.plan.hold is not None
        assert record.plan.hold[0] is Reason.STATE_LOST
        assert record.sentence.startswith("No move: state-lost: ")
        assert "was removed or replaced while lbd runs on it" in record.sentence
        request = UnloadRequest("r", fake_pulsar.HOT[0], pulsar.ids[2], "I know better", "ann", now, now + 60)
        found._dispatcher.begin(request, found._real.beside)
        found.wait()
        found.serve()
        found.flush()
        if "directory" in how or "copy" in how:
            after = sorted(path.relative_to(tmp_path) for path in state.rglob("*")) if state.exists() else None
            assert after == before
    assert nothing_was_moved(pulsar)


def test_when_it_is_put_back_moves_go_on(pulsar: FakePulsar, tmp_path: Path):
    """It is the same directory and the same journal: nothing was lost."""
    with engine(settings(pulsar, tmp_path)) as found:
        (tmp_path / "state").rename(tmp_path / "away")
        assert found.turn().plan.hold is not None
        (tmp_path / "away").rename(tmp_path / "state")
        pulsar.sample(80.1, 45.1, 10.1)
        assert found.turn().plan.hold is None
        found.wait()
    assert intents(tmp_path) == 3


def test_a_daemon_says_so_and_stays(pulsar: FakePulsar, tmp_path: Path):
    """It is told to systemd with every turn; a directory that a second lbd makes is left alone by the first."""
    pulsar.sample(40.0, 41.0, 42.0)
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=No move: cluster: balanced")
        (tmp_path / "state").rename(tmp_path / "away")
        daemon.notified.wait_for("STATUS=No move: state-lost: ")
        with StateDir(tmp_path / "state").locked():
            pulsar.sample(80.0, 45.0, 10.0)
            for _ in range(3):
                daemon.notified.wait_for("STATUS=No move: state-lost: ")
            assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["lbd.db", "lock"]
        assert nothing_was_moved(pulsar)
        assert daemon.end() == 0


@pytest.mark.parametrize("command", [["pause", "--for-next"], ["drain", "a:80", "--release"]])
def test_no_command_makes_the_directory(command: list[str], tmp_path: Path):
    """A lbd may be running whose directory was moved away."""
    environ = {"LBD_STATE_DIR": str(tmp_path / "state"), "LBD_PULSAR__ADMIN_URLS": '["http://127.0.0.1:1"]'}
    CliRunner().invoke(main, command, env=environ)
    assert not (tmp_path / "state").exists()


class TestLostJournal:
    """Where other files show that there was one, its loss is accepted by a person."""

    @pytest.mark.parametrize(
        ("loss", "told"),
        [
            (lambda store: store.unlink(), "is missing"),
            (lambda store: store.write_bytes(b""), "is empty"),
            (lambda store: store.write_bytes(b"\0" * 4096), "is damaged"),
            (lambda store: store.write_bytes(store.read_bytes()[:9000]), "is damaged"),
        ],
        ids=["removed", "emptied", "zeros", "cut off"],
    )
    def test_no_start_without_it(
        self, loss: Callable[[Path], object], told: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Budgets and cool-downs do not begin anew by themselves; with ``--new-journal`` they do."""
        chosen, journal = settings(pulsar, tmp_path), tmp_path / "state" / "lbd.db"
        with engine(chosen) as found:
            found.once()
        moved = len(pulsar.asked("/unload"))
        loss(journal)
        left = journal.read_bytes() if journal.exists() else None
        for _ in range(2):
            with pytest.raises(UsageError, match=f"{told}.*--new-journal"), engine(chosen):
                pass
        assert (journal.read_bytes() if journal.exists() else None) == left
        with engine(chosen, new_journal=True) as found:
            assert found.journal.sent == ()
        assert not left or (tmp_path / "state" / "lbd.db.lost").read_bytes() == left
        with engine(chosen):
            pass
        assert len(pulsar.asked("/unload")) == moved

    def test_a_journal_that_is_there_stays(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The flag may stand in a unit file for ever: it forgets nothing that can be read."""
        with engine(settings(pulsar, tmp_path), new_journal=True) as found:
            found.once()
        before = read(tmp_path / "state" / "lbd.db").sent
        with engine(settings(pulsar, tmp_path), new_journal=True) as found:
            assert found.journal.sent == before != ()

    @pytest.mark.parametrize("names", [[], ["lock"], ["history/v1"], ["token"]])
    def test_a_directory_without_a_past(self, names: list[str], pulsar: FakePulsar, tmp_path: Path) -> None:
        """A pause, an import of history or a lock may come before the first journal."""
        for name in names:
            (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "state" / name).touch()
        with engine(settings(pulsar, tmp_path)):
            assert (tmp_path / "state" / "lbd.db").stat().st_size

    def test_who_only_looks_is_told(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """``lbd history`` tells what is left, and that it is not all."""
        with engine(settings(pulsar, tmp_path)) as found:
            found.once()
        (tmp_path / "state" / "lbd.db").unlink()
        done = CliRunner().invoke(main, ["history"], env={"LBD_STATE_DIR": str(tmp_path / "state")})
        assert (done.exit_code, "Warning: " in done.output, "is missing" in done.output) == (0, True, True)


@dataclass
class Clocks:
    """A machine's two clocks."""

    wall: float = field(default_factory=time.time)
    up: float = 1000.0
    boot: str = "boot-1"

    def pass_(self, seconds: float) -> None:
        """Time passes on both."""
        self.wall, self.up = self.wall + seconds, self.up + seconds

    @property
    def timebase(self) -> Timebase:
        """As a daemon is given them."""
        return Timebase(now=lambda: self.wall, boot=lambda: Moment(self.boot, self.up))


class TestClockSetAhead:
    """One move an hour, whatever is done to the clock."""

    def moves(self, pulsar: FakePulsar, folder: Path, clocks: Clocks) -> int:
        """A turn with a new sample, by a process of its own; how many moves there were by then."""
        rails = {"max_unloads_per_hour": 1, "cool_down_minutes": 0, "max_moves_per_bundle": 0}
        with engine(settings(pulsar, folder, guardrails=rails), timebase=clocks.timebase) as found:
            for _ in range(3):
                pulsar.sample(*(base + len(pulsar.requests) / 1e4 for base in (80.0, 45.0, 10.0)))
                found.once()
        return intents(folder)

    def test_no_step_gives_a_second_move(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Ahead by more than an hour, back, ahead by a day, by a week; also by another process."""
        clocks = Clocks()
        counts = [self.moves(pulsar, tmp_path, clocks)]
        for step in (3700.0, -3700.0, 86_400.0, 8 * 86_400.0):
            clocks.wall += step
            clocks.pass_(60)
            counts.append(self.moves(pulsar, tmp_path, clocks))
        assert counts == [1] * 5

    @pytest.mark.parametrize("step", [0.0, 86_400.0, -86_400.0 * 7])
    def test_an_hour_that_has_passed_is_one(self, step: float, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A clock that was set ahead is not punished; one that was set back counts from then on."""
        clocks = Clocks()
        assert self.moves(pulsar, tmp_path, clocks) == 1
        clocks.wall += step
        clocks.pass_(10)
        assert self.moves(pulsar, tmp_path, clocks) == 1
        clocks.pass_(3700)
        assert self.moves(pulsar, tmp_path, clocks) == 2

    def test_after_a_restart_of_the_machine_the_clock_is_believed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing else is there."""
        clocks = Clocks()
        assert self.moves(pulsar, tmp_path, clocks) == 1
        clocks.wall += 3700
        clocks.boot, clocks.up = "boot-2", 30.0
        assert self.moves(pulsar, tmp_path, clocks) == 2


def test_a_pause_needs_the_directory(tmp_path: Path):
    """It is told what is missing; a pause in a directory that lbd does not use would hold nothing."""
    with pytest.raises(UsageError, match="there is no such directory; lbd run makes it"):
        Control(tmp_path / "state").pause(Pause(time.time(), None, "", "ann"))
