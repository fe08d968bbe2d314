"""Small JSON files that several users read and write: replaced whole, readable by all, junk told in one line."""

from __future__ import annotations

import os
import pwd
import secrets
import tokenize
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from zipfile import BadZipFile

import msgspec

from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_MODE, DIRECTORY_MODE = 0o644, 0o755
FRESH = ".new"
"""Ending of a file that is being written; one that a kill left over is in nobody's way."""

DAMAGED = (
    *(ValueError, KeyError, EOFError, RuntimeError, IndexError, TypeError, MemoryError),
    *(BadZipFile, zlib.error, tokenize.TokenError),
)
"""What NumPy and zipfile raise on files of arrays whose bytes are wrong, beside OSError where they cannot be read."""

Kind = TypeVar("Kind")


def decoded(path: Path, kind: type[Kind]) -> Kind | None:
    """What the file holds, None when there is none. Raises :class:`UsageError` for junk of whatever sort."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except OSError as error:
        raise refused(path, error, "read") from error


def put(path: Path, value: object) -> None:
    """Replace a file at once or not at all, on disk when the call returns; any number of processes may do so.

    Raises :class:`UsageError` that names who may write here.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}{FRESH}")
    try:
        with telling(path):
            _write(fresh, _encoded(path, value))
            fresh.replace(path)
            sync(path.parent)
    except UsageError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _encoded(path: Path, value: object) -> bytes:
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError as error:
        raise UsageError(f"{path}: cannot be written: {error.object!r} is no UTF-8 text") from error


def _write(path: Path, content: bytes) -> None:
    """Exclusive, because root may write into a directory of a user that it does not trust."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, FILE_MODE)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def sync(directory: Path) -> None:
    """Put the names in a directory on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, owner_like: Path) -> None:
    """Create a directory that all may read and that belongs to the owner of ``owner_like``, also when root makes it.

    Otherwise a daemon that runs as another user could not write into what root made before its first start.
    """
    with telling(path):
        try:
            path.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, DIRECTORY_MODE)
            if os.geteuid() == 0:
                wanted = owner_like.stat()
                os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
        finally:
            os.close(descriptor)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """An OSError within is told as a :class:`UsageError` about ``path``."""
    try:
        yield
    except OSError as error:
        raise refused(path, error, "written") from error


def refused(path: Path, error: OSError, doing: str) -> UsageError:
    """Why a file cannot be read or written, and where it is a matter of permissions, which user can."""
    who = ""
    if isinstance(error, PermissionError):
        folder = next((parent for parent in path.parents if os.access(parent, os.F_OK)), path)
        able = dict.fromkeys(("root", owner(folder)))
        who = f"; this is user {user_name(os.geteuid())}, do it as {' or '.join(able)}"
    return UsageError(f"{path}: cannot be {doing}: {error.strerror or error}{who}")


def owner(path: Path) -> str:
    """Name of the user that a file or directory belongs to."""
    try:
        return user_name(path.stat().st_uid)
    except OSError:
        return "the user that lbd runs as"


def user_name(number: int) -> str:
    """Name of a user id; a container's user often has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
