"""The daemon on a disk that is really full, read-only, or gone: it moves nothing, and says so."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml

from lbd.config import Settings
from lbd.daemon.engine import engine
from tests.daemon.test_service import running, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of 16 MiB of the test's own; skipped where this user may not mount one."""
    state = folder / "state"
    state.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "lbd-test", str(state)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield state
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


def fill(state: Path) -> None:
    """Leave not a byte."""
    with (state / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            return


def nothing_was_moved(pulsar: FakePulsar) -> bool:
    return pulsar.asked("/unload") == [] and pulsar.asked("/schemas/") == []


def test_a_full_disk_moves_nothing_until_there_is_room(pulsar: FakePulsar, tmp_path: Path):
    """Each turn says so; when somebody has made room, the next fresh sample moves."""
    pulsar.sample(40.0, 41.0, 42.0)
    with disk(tmp_path) as state, engine(Settings.model_validate(settings_for(pulsar, tmp_path))) as found:
        assert "cluster: balanced" in found.turn().sentence
        fill(state)
        for extra in range(3):
            pulsar.sample(80.0 + extra, 45.0 + extra, 10.0 + extra)
            assert "database or disk is full" in found.turn().sentence
        assert nothing_was_moved(pulsar)
        (state / "ballast").unlink()
        pulsar.sample(84.0, 49.0, 14.0)
        assert len(found.turn().plan.unloads) == 3
        found.wait()
        assert found.turn().sentence == "Moved 3 of 3 bundles: 3 landed."


def test_a_disk_without_room_for_a_store_ends_the_start(pulsar: FakePulsar, tmp_path: Path):
    """Exit 2 and the reason: a daemon that could write no intent does not begin."""
    with disk(tmp_path) as state:
        fill(state)
        (tmp_path / "lbd.yaml").write_text(yaml.safe_dump(settings_for(pulsar, tmp_path)))
        command = [sys.executable, "-m", "lbd", "run", "--config", str(tmp_path / "lbd.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        message = f"Error: {state / 'lbd.db'}: store cannot be read or written: database or disk is full"
        assert (done.returncode, done.stderr.startswith(message)) == (2, True), done.stderr
    assert pulsar.requests == []


def test_a_read_only_disk_ends_the_start(pulsar: FakePulsar, tmp_path: Path):
    """Exit 2 and the reason, before the cluster is asked anything."""
    with disk(tmp_path) as state:
        made = subprocess.run(["mount", "-o", "remount,ro", str(state)], capture_output=True, check=False)
        assert made.returncode == 0, made.stderr
        (tmp_path / "lbd.yaml").write_text(yaml.safe_dump(settings_for(pulsar, tmp_path)))
        command = [sys.executable, "-m", "lbd", "run", "--config", str(tmp_path / "lbd.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    told = f"Error: {state}: state_dir is not writable: Read-only file system; set state_dir, or LBD_STATE_DIR, to"
    assert (done.returncode, done.stderr.startswith(told)) == (2, True)
    assert pulsar.requests == []


def test_a_state_directory_that_vanishes(pulsar: FakePulsar, tmp_path: Path):
    """Nothing is moved without a place to write it down; each turn says so, and the process stays."""
    pulsar.sample(40.0, 41.0, 42.0)
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=No move: cluster: balanced")
        (tmp_path / "state").rename(tmp_path / "away")
        pulsar.sample(80.0, 45.0, 10.0)
        daemon.notified.wait_for("STATUS=No move: state-lost: /")
        assert nothing_was_moved(pulsar)
        assert daemon.end() == 0
