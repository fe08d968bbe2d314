"""File systems with little room, and files that a disk has changed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of so many KiB below a folder; the test is skipped where it cannot be made."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def open_way(folder: Path) -> None:
    """Let every user reach a folder of this process's tests."""
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(0o755)


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A folder that every user reaches; each pytest that starts closes the one above ``tmp_path`` to others again."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def free(folder: Path) -> int:
    """Bytes that may still be written below a folder."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def flip(path: Path, column: str) -> None:
    """Change the last byte of the last page of a column of a Parquet file; its footer says what it said."""
    group = pq.read_metadata(path).row_group(0)
    own = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema.startswith(column))
    begin = own.dictionary_page_offset or own.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin + own.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
