"""Where the brokers' jars come from: fetched once through Maven, then kept under one directory per version."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGESTS = {
    "4.2.4": "854811be4621384a8751ddcd06bc5b5d8504ee6736d1d98bbee88c0bc065adda",
    "4.0.8": "9e5f639af62b2e5dd70a776b4ff1c1ee680e9e7fc2bc72473b0c5cdd19296a19",
    "5.0.0-M1": "4ef9850744c935ca15e9a623d8e6eb185174bfe25c188a93aebebbfb2fce5d10",
    "3.3.6": "0ae3d8060e9af2e6cd3d295732b93fb4ce3a2f6d6b965544e5a27c377a5fcf02",
    "2.11.0": "62c4c9ab2e2fa0cec6424865fcdf3c83bea995c6d9a5e821abb549d91bec3735",
}
"""What ``LC_ALL=C; sha256sum *.jar | sha256sum`` prints in the directory of each version."""

VERSIONS = tuple(DIGESTS)
"""All that tests run on. The first is that of the tests at each landing, the others are for `tests/soak`."""

CURRENT_VERSIONS = VERSIONS[:3]
"""What Pulsar still maintains, or will."""
FETCH_TIMEOUT_SECONDS = 900.0
OLDEST_JAVA = 17

_POMS = Path(__file__).parent / "poms"
_TARBALL_VERSIONS = ("2.11.0", "3.3.6", "4.0.8")


class Missing(Exception):  # noqa: N818 - it names what is not there, which need not be an error
    """A part the cluster needs is not to be had on this machine; the message is one line a person can act on."""


def cache_root() -> Path:
    """The directory that holds jars and the state of a cluster started by hand (LBD_E2E_CACHE moves it)."""
    return Path(os.environ.get("LBD_E2E_CACHE") or Path.home() / ".cache" / "lbd-e2e")


def ensure(version: str) -> Path:
    """The directory with the jars of one Pulsar version; fetches them when they are not there yet."""
    if version not in DIGESTS:
        known = ", ".join(sorted(VERSIONS))
        raise Missing(f"Pulsar {version} has no recipe here; known versions: {known}")
    java()
    lib = cache_root() / "jars" / version
    if not lib.is_dir():
        with _one_at_a_time(lib):
            if not lib.is_dir():
                _fetch(version, lib)
    return lib


@cache
def java() -> str:
    """The java command, checked to be new enough for Pulsar."""
    command = shutil.which("java")
    if command is None:
        raise Missing("no java command found; Pulsar needs a Java runtime 17 or newer (Debian: default-jre-headless)")
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if found is None or int(found[1]) < OLDEST_JAVA:
        seen = (answer.stderr.splitlines() or ["nothing"])[0]
        raise Missing(f"{command} is not Java {OLDEST_JAVA} or newer: it says {seen}")
    return command


def compile_java(lib: Path, source: Path, classes: Path) -> None:
    """Compile a class that brokers of this version are to load. Raises :class:`Missing` without a compiler."""
    command = shutil.which("javac")
    if command is None:
        raise Missing(f"no javac command found; it compiles {source.name} (Debian: openjdk-17-jdk-headless)")
    words = [command, "-proc:none", "-cp", f"{lib}/*", "-d", str(classes), str(source)]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
    if answer.returncode != 0:
        raise Missing(f"{source.name} was not compiled: {answer.stderr[:300]}")


def _is_tarball(version: str) -> bool:
    return version in _TARBALL_VERSIONS


def _pom(version: str) -> Path:
    return _POMS / f"{version}.xml"


@contextmanager
def _one_at_a_time(lib: Path) -> Iterator[None]:
    lib.parent.mkdir(parents=True, exist_ok=True)
    with lib.with_name(f".{lib.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(version: str, lib: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=lib.parent) as scratch:
        fetched = (_from_tarball if _is_tarball(version) else _from_class_path)(version, Path(scratch))
        _check(version, fetched)
        fetched.rename(lib)


def _check(version: str, fetched: Path) -> None:
    jars = sorted(fetched.glob("*.jar"))
    hashes = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in jars]
    found = hashlib.sha256("".join(hashes).encode()).hexdigest()
    if found != DIGESTS[version]:
        raise Missing(
            f"Pulsar {version}: Maven left {len(jars)} jars, and they are not those that the tests were written for: "
            f"their digest is {found} instead of {DIGESTS[version]}"
        )


def _from_tarball(version: str, scratch: Path) -> Path:
    artifact = f"org.apache.pulsar:pulsar-server-distribution:{version}:tar.gz:bin"
    _maven(version, scratch, "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}")
    lib = scratch / "lib"
    lib.mkdir()
    for tarball in scratch.glob("*.tar.gz"):
        _unpack_jars(tarball, lib)
        tarball.unlink()
    return lib


def _unpack_jars(tarball: Path, lib: Path) -> None:
    with tarfile.open(tarball) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            source = archive.extractfile(member) if path.parent.name == "lib" and path.suffix == ".jar" else None
            if source is not None:
                with source, (lib / path.name).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


def _from_class_path(version: str, scratch: Path) -> Path:
    shutil.copy(_pom(version), scratch / "pom.xml")
    lib = scratch / "lib"
    _maven(version, scratch, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={lib}")
    return lib


def _maven(version: str, directory: Path, *arguments: str) -> None:
    command = shutil.which("mvn")
    if command is None:
        raise Missing(f"Pulsar {version} is not fetched yet and there is no mvn command (Debian: maven)")
    try:
        answer = subprocess.run(
            [command, "-B", "-q", *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"Pulsar {version}: Maven did not end within {FETCH_TIMEOUT_SECONDS:.0f} s") from error
    if answer.returncode != 0:
        errors = [line for line in answer.stdout.splitlines() if "ERROR" in line] or ["it said nothing"]
        raise Missing(f"Pulsar {version}: Maven ended with code {answer.returncode}: {errors[0][:300]}")


def main(versions: list[str]) -> int:
    """Fetch by hand, the version of the tests at each landing if none is named.

    Prints one line per version and returns non-zero when one is not to be had.
    """
    failed = False
    for version in versions or VERSIONS[:1]:
        try:
            lib = ensure(version)
        except Missing as missing:
            failed = True
            print(f"Pulsar {version}: {missing}", file=sys.stderr)
        else:
            print(f"Pulsar {version}: {sum(1 for _ in lib.glob('*.jar'))} jars in {lib}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
