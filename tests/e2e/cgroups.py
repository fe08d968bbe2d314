"""CPU quotas and CPU meters per broker through Linux control groups, version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PERIOD_MICROSECONDS = 20_000
"""Short, because the kernel's usual 100 ms would make publish gaps of its own."""
PREFIX = "lbd-e2e-"


@dataclass(frozen=True)
class Hierarchy:
    """A place where groups can be made: the version, the directory that limits and the one that counts."""

    version: int
    limiting: Path
    counting: Path

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.limiting, self.counting)))


class Group:
    """One control group: what is started in it shares a quota, and its CPU time can be read."""

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self.hierarchy = hierarchy
        self.name = name

    def create(self) -> Group:
        """Make the group (no error when it is there)."""
        for directory in self.hierarchy.directories:
            (directory / self.name).mkdir(exist_ok=True)
        return self

    @property
    def process_files(self) -> list[Path]:
        """The files into which a process writes its id to join."""
        return [directory / self.name / "cgroup.procs" for directory in self.hierarchy.directories]

    def set_quota(self, cores: float | None) -> None:
        """Limit the group to so many cores; None lifts the limit."""
        directory = self.hierarchy.limiting / self.name
        quota = None if cores is None else round(cores * PERIOD_MICROSECONDS)
        if self.hierarchy.version == 1:
            (directory / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (directory / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
        else:
            (directory / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD_MICROSECONDS}")

    def used_seconds(self) -> float:
        """CPU time of everything that ever ran in the group."""
        directory = self.hierarchy.counting / self.name
        if self.hierarchy.version == 1:
            return int((directory / "cpuacct.usage").read_text()) / 1e9
        return _stat(directory / "cpu.stat", "usage_usec") / 1e6

    def remove(self, timeout_seconds: float = 5.0) -> None:
        """Remove the group; the kernel may need a moment after the last process has ended."""
        deadline = time.monotonic() + timeout_seconds
        for directory in self.hierarchy.directories:
            while not _removed(directory / self.name):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"control group {directory / self.name} still holds processes")
                time.sleep(0.02)


@cache
def find() -> tuple[Hierarchy | None, str]:
    """The hierarchy this process may use, or None and one line that says why not."""
    reasons = []
    for hierarchy in _candidates():
        reason = _try(hierarchy)
        if reason is None:
            _sweep(hierarchy)
            return hierarchy, ""
        reasons.append(reason)
    return None, "no CPU quotas: " + (
        "; ".join(reasons) or "no control group hierarchy with a cpu controller is mounted"
    )


def _candidates() -> list[Hierarchy]:
    mounts = _mounts()
    if "cpu" in mounts and "cpuacct" in mounts:
        return [
            Hierarchy(1, mounts["cpu"] / own, mounts["cpuacct"] / own)
            for own in dict.fromkeys((_own_path("cpu"), ""))
            if (mounts["cpu"] / own).is_dir() and (mounts["cpuacct"] / own).is_dir()
        ]
    if "unified" in mounts:
        bases = dict.fromkeys((mounts["unified"], mounts["unified"] / _own_path("")))
        return [Hierarchy(2, base, base) for base in bases if base.is_dir()]
    return []


def _mounts() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, directory, kind, options, *_ = line.split()
        if kind == "cgroup":
            found.update(dict.fromkeys(options.split(","), Path(directory)))
        elif kind == "cgroup2":
            found["unified"] = Path(directory)
    return found


def _own_path(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _try(hierarchy: Hierarchy) -> str | None:
    group = Group(hierarchy, f"{PREFIX}{os.getpid()}-probe")
    try:
        if hierarchy.version == 2 and "cpu" not in (hierarchy.limiting / "cgroup.subtree_control").read_text().split():
            (hierarchy.limiting / "cgroup.subtree_control").write_text("+cpu")
        group.create()
        group.set_quota(1.0)
        group.used_seconds()
    except OSError as error:
        return f"{error.filename or hierarchy.limiting}: {error.strerror}"
    finally:
        for directory in hierarchy.directories:
            _removed(directory / group.name)
    return None


def _sweep(hierarchy: Hierarchy) -> None:
    """Remove empty groups whose maker is gone: a killed test run cannot clean up after itself."""
    for directory in hierarchy.directories:
        for group in directory.glob(f"{PREFIX}*"):
            maker = re.match(rf"{PREFIX}(\d+)-", group.name)
            if maker is not None and not Path(f"/proc/{maker[1]}").exists():
                _removed(group)


def _removed(directory: Path) -> bool:
    with contextlib.suppress(OSError):  # busy, or never made
        directory.rmdir()
    return not directory.exists()


def _stat(file: Path, key: str) -> int:
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    raise ValueError(f"{file} has no {key}")
