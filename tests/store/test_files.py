"""What root may safely do in a directory that belongs to somebody else: no writer is led out of it, no reader hangs."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd import files
from lbd.errors import LbdError, UsageError
from lbd.load.capacity import Peaks
from lbd.load.samples import BrokerSamples
from lbd.model import Averages, Unload
from lbd.pulsar.override_note import TakeOverNote
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains, Works, drains_in_force
from lbd.store.history import Folder
from lbd.store.history_tables import schema
from lbd.store.journal import Journal, read
from lbd.store.moves import history
from lbd.store.state import KeptTakeOver, StateDir, TurnMemory, load_peaks, load_samples, save_peaks, save_samples
from lbd.store.status import read_status, running, write_status
from lbd.store.turn_record import TurnRecord, Verdict
from lbd.store.turns import KeptTurns, ReportedBundles, Turns, load_bundles, save_bundles
from tests import disks
from tests.store.test_control import a_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


NOW = 1_800_000_000.0
SERVICE = 54321
"""A user that owns a state directory in which root works."""

PRECIOUS = b"root:x:0:0\n"


def journal(state: Path) -> None:
    """One intent."""
    with_lines = Journal(state / "lbd.db", lambda: NOW)
    try:
        with_lines.intend(Unload("t/n/0", "a:80", "b:80", 1.0, 1.0), 1)
    finally:
        with_lines.close()


def lock(state: Path) -> None:
    """Held and given back."""
    with StateDir(state).locked():
        pass


def samples(state: Path) -> None:
    """Of one broker."""
    own = BrokerSamples(np.array([NOW]), np.zeros((1, 4)), np.zeros((1, 5)), np.zeros(1, np.int32), (1.0,) * 5, 1.0)
    save_samples(state, {"a:80": own})


def turn(state: Path) -> None:
    """One kept turn, with trouble as an error."""
    turns = Turns(state)
    turns.keep(TurnRecord(at=NOW, sentence="No move.", verdict=Verdict("balanced")))
    if turns.trouble:
        raise UsageError(turns.trouble)


def bundles(state: Path) -> None:
    """Who owned nothing."""
    save_bundles(state, ReportedBundles(NOW, (), [], *(np.zeros(shape, np.int32) for shape in (0, 0, (0, 2)))))


TAKEN = TakeOverNote(phase="taken", before=None, ran={}, cluster="c", at=NOW, asked_at=NOW)

WRITERS: dict[str, Callable[[Path], object]] = {
    "lbd.db by the journal": journal,
    "lbd.db by turns": turn,
    "lbd.db by bundles": bundles,
    "lbd.db by counters": lambda state: StateDir(state).save(TurnMemory(), (Averages.empty(), NOW)),
    "lbd.db by averages": lambda state: StateDir(state).save_averages(Averages.empty(), NOW),
    "lbd.db by samples": samples,
    "lbd.db by peaks": lambda state: save_peaks(state, Peaks()),
    "lbd.db by a take-over": lambda state: KeptTakeOver(state).save(TAKEN),
    "lbd.db by drains": lambda state: Drains(state).save(Works()),
    "lock": lock,
    "status.json": lambda state: write_status(state, a_status()),
    "lbd.db by a pause": lambda state: Control(state).pause(Pause(NOW, None, "", "me")),
    "lbd.db by a drain": lambda state: Drains(state).begin(Drain("b:80", NOW, None, "me")),
    "history/v1/decisions/day=2027-01-15/part-1800000000000.parquet": lambda state: Folder(state / "history").put(
        "decisions", NOW, schema("decisions").empty_table().to_batches()
    ),
}
"""Every file that lbd keeps below a state directory, and who writes it."""

GROWING = {"lbd.db", "lock"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory ."""
    found = tmp_path / "state"
    found.mkdir()
    return found


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file that nobody but root may write to."""
    found = tmp_path / "passwd"
    found.write_bytes(PRECIOUS)
    found.chmod(0o600)
    return found


@contextmanager
def of_service(state: Path) -> Iterator[None]:
    """The directory and what is in it belong to the user of the service; skipped where this is not root."""
    if os.geteuid() != 0:
        pytest.skip("only root may be led astray")
    disks.open_way(state)
    for path in (state, *state.rglob("*")):
        os.chown(path, SERVICE, SERVICE, follow_symlinks=False)
    yield


def written(writer: Callable[[Path], object], state: Path) -> None:
    """What is refused is told as lbd tells errors, or as the OSError that its caller turns into a warning."""
    try:
        writer(state)
    except (LbdError, OSError):
        return


@pytest.mark.parametrize(("name", "writer"), [(name.partition(" ")[0], WRITERS[name]) for name in WRITERS], ids=WRITERS)
class TestEveryWriter:
    @pytest.mark.parametrize("ending", ["", ".new", ".tmp"])
    @pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
    def test_a_symbolic_link_is_not_followed(
        self, name: str, writer: Callable[[Path], object], ending: str, there: bool, state: Path, precious: Path
    ) -> None:
        """Neither under the name itself, nor under one that the file could have while it is written."""
        if not there:
            precious.unlink()
        target = state / f"{name}{ending}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(precious)
        with of_service(state):
            written(writer, state)
        assert precious.exists() is there
        if there:
            assert (precious.read_bytes(), precious.stat().st_uid) == (PRECIOUS, os.geteuid())
            assert stat.S_IMODE(precious.stat().st_mode) == 0o600

    def test_a_hard_link_is_not_written_to(
        self, name: str, writer: Callable[[Path], object], state: Path, precious: Path
    ) -> None:
        """Its other name may be anywhere; and neither its owner nor its mode is given away."""
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        with of_service(state):
            (state / name).hardlink_to(precious)
            written(writer, state)
        assert precious.read_bytes() == PRECIOUS
        assert (precious.stat().st_uid, stat.S_IMODE(precious.stat().st_mode)) == (0, 0o600)

    def test_a_fifo_is_not_waited_for(self, name: str, writer: Callable[[Path], object], state: Path) -> None:
        """It is refused, or replaced, at once."""
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(state / name)
        if name in GROWING:
            with pytest.raises((LbdError, OSError), match="no regular file"):
                writer(state)
        else:
            written(writer, state)

    def test_a_folder_that_leads_elsewhere_is_not_entered(
        self, name: str, writer: Callable[[Path], object], state: Path, tmp_path: Path
    ) -> None:
        """A link of the user of the service is followed by nobody else."""
        first, _, below = name.partition("/")
        if not below:
            pytest.skip("it stands in the directory itself")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        if (state / first).is_dir():
            (state / first).rmdir()
        (state / first).symlink_to(elsewhere)
        with of_service(state), pytest.raises((LbdError, OSError), match="symbolic link"):
            writer(state)
        assert list(elsewhere.iterdir()) == []

    def test_what_root_makes_belongs_to_the_service(
        self, name: str, writer: Callable[[Path], object], state: Path
    ) -> None:
        """The daemon must be able to go on with it; also where it replaces what was there."""
        with of_service(state):
            for _ in range(2):
                written(writer, state)
                assert {path.stat().st_uid for path in state.rglob("*")} == {SERVICE}
        assert (state / name).is_file() or name.startswith("history")

    def test_nothing_is_left_over(self, name: str, writer: Callable[[Path], object], state: Path) -> None:
        """Of what was written beside it."""
        writer(state)
        assert not [path for path in state.rglob("*") if files.FRESH in path.name]


READERS: dict[str, Callable[[Path], object]] = {
    "lbd.db of the journal": lambda state: (read(state / "lbd.db"), history(state)),
    "lbd.db of turns": lambda state: list(KeptTurns(state)),
    "lbd.db of bundles": load_bundles,
    "lbd.db of counters": lambda state: StateDir(state).load(),
    "lbd.db of averages": lambda state: StateDir(state).load_averages(NOW),
    "lbd.db of samples": lambda state: load_samples(state, NOW),
    "lbd.db of peaks": load_peaks,
    "lbd.db of a take-over": lambda state: KeptTakeOver(state).load(),
    "lbd.db of drains": lambda state: drains_in_force(state, NOW),
    "lock": running,
    "status.json": read_status,
    "lbd.db of orders": lambda state: Control(state).paused(NOW),
    "history/v1/decisions/day=2027-01-15/a.parquet": lambda state: Folder(state / "history").pack("2027-01-16"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("plant", ["a FIFO", "a folder", "a link to a device"])
def test_no_reader_hangs(name: str, plant: str, state: Path) -> None:
    """What is no file is as one that cannot be read."""
    path = state / name.partition(" ")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    if plant == "a FIFO":
        os.mkfifo(path)
    elif plant == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    try:
        READERS[name](state)
    except (UsageError, OSError):
        return


class TestDirectories:
    def test_links_of_root_are_followed(self, tmp_path: Path) -> None:
        """systemd makes ``/var/lib/lbd`` one, and so may an administrator; ``..`` in it is that of where it leads."""
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "real").mkdir()
        (tmp_path / "a" / "b" / "link").symlink_to("../../real")
        (tmp_path / "absolute").symlink_to(tmp_path / "a" / "b" / "link")
        files.replace(tmp_path / "absolute" / "file", b"words")
        assert (tmp_path / "real" / "file").read_bytes() == b"words"

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        """Is no way to anything."""
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(OSError, match="Too many levels"):
            files.replace(tmp_path / "loop" / "file", b"")

    @pytest.mark.parametrize("instead", ["directory", "link", ""])
    def test_a_directory_that_is_held_is_not_replaced(self, instead: str, tmp_path: Path) -> None:
        """Nothing goes into the one that has its name now; when it is back, all is as before."""
        held = tmp_path / "held"
        held.mkdir()
        with files.hold(held):
            files.replace(held / "file", b"before")
            held.rename(tmp_path / "away")
            if instead == "directory":
                held.mkdir()
            elif instead:
                (tmp_path / "other").mkdir()
                held.symlink_to("other")
            for write in (
                lambda: files.replace(held / "file", b"after"),
                lambda: files.make_directory(held / "folder"),
                lambda: os.close(files.growing(held / "growing")),
                lambda: files.move(tmp_path / "away" / "file", held / "file"),
            ):
                with pytest.raises(OSError, match="removed or replaced" if instead else "No such file"):
                    write()
            assert not instead or list(held.iterdir()) == []
            if instead == "directory":
                held.rmdir()
            elif instead:
                held.unlink()
            (tmp_path / "away").rename(held)
            files.replace(held / "file", b"again")
        held.rename(tmp_path / "away")
        held.mkdir()
        files.replace(held / "file", b"not held any more")


class TestReplace:
    @pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o664, 0o664), (0o4755, 0o755), (None, 0o644)])
    def test_the_mode_is_kept(self, before: int | None, after: int, tmp_path: Path) -> None:
        """What an administrator set stays, whatever the umask; a new file may be read by all."""
        path = tmp_path / "file"
        if before is not None:
            path.touch()
            path.chmod(before)
        files.replace(path, b"words")
        assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (after, b"words")

    def test_what_fails_changes_nothing(self, tmp_path: Path) -> None:
        """And leaves nothing."""
        files.replace(tmp_path / "file", b"before")

        def fail() -> None:
            with files.replacing(tmp_path / "file") as file:
                file.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]
