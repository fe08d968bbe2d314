"""The files below a state directory: the one way to read, replace, append to, move and remove them.

Root runs ``lbd pause`` or ``lbd run --once`` in a directory that belongs to the user of the service, who may have put
anything there. Therefore nothing here follows a symbolic link at the end of a path, and on the way to it only one that
belongs to root or to the user of this process; nothing is opened that is no regular file; nothing is written to a file
that has a second name elsewhere; owners and modes are set on open files, never by name.

A directory that this process holds (:func:`hold`) is written to only as long as it is still found under its name.
"""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import socket
import stat
import struct
import threading
import tokenize
import zlib
from collections import deque
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias, TypeVar
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
    *(ValueError, KeyError, EOFError, RuntimeError, IndexError, TypeError, MemoryError, OverflowError),
    *(BadZipFile, zlib.error, tokenize.TokenError),
)
"""Errors that NumPy and zipfile raise for a damaged file of arrays, beside OSError for an unreadable one."""

LARGEST_BYTES = 1 << 30
"""Largest file that is read whole; files of lbd are far smaller."""

REPLACED = "was removed or replaced while lbd runs on it"
STARTS_AGAIN = "stop lbd, put back what was there, and start it"

_MOST_LINKS = 40
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ADDED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A FIFO that somebody left there would hold whoever opens it, for ever."""

NO_FILE = frozenset({errno.EINVAL, errno.ELOOP})
"""Numbers of the errors of :func:`reading` that are about the kind of file, and not about the disk."""

YEAR_10000 = 253_402_300_800.0
At: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]
"""Epoch seconds as files have them; a file with any other number there is damaged, and no clock could show it."""

Kind = TypeVar("Kind")

_held: dict[str, int] = {}
"""Descriptors of the directories that this process holds, by their absolute paths."""
_holding = threading.Lock()


# --- directories -----------------------------------------------------------------------------------------------------


@contextmanager
def hold(path: Path) -> Iterator[int]:
    """Hold a directory: until the end nothing of this process is written below another one of that name.

    Yields its descriptor. Raises OSError.
    """
    with directory(path) as walked:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walked)
    key = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow what is there now
    with _holding:
        before, _held[key] = _held.get(key), descriptor
    try:
        yield descriptor
    finally:
        with _holding:
            if before is None:
                del _held[key]
            else:
                _held[key] = before
        os.close(descriptor)


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """A descriptor of a directory, for calls that take ``dir_fd``. Raises OSError."""
    descriptor = _walked(os.path.abspath(path))  # noqa: PTH100 - see hold
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _walked(path: str) -> int:
    walk, way = _begun(path)
    try:
        for name in way.split("/"):
            walk.enter(name)
    except BaseException:
        os.close(walk.folder)
        raise
    return walk.folder


def _begun(path: str) -> tuple[_Walk, str]:
    """A walk at the nearest held directory above the path, else at the root, and the rest of the way.

    The links to a held directory were judged when it was first held. Raises OSError where another one has its name.
    """
    nearest = ""
    with _holding:
        for name, descriptor in _held.items():
            if path == name or path.startswith(f"{name}/"):
                if not os.path.samestat(os.stat(name), os.fstat(descriptor)):  # noqa: PTH116 - it is a text
                    raise OSError(errno.ESTALE, REPLACED)
                nearest = max(nearest, name, key=len)
        start = os.dup(_held[nearest]) if nearest else os.open("/", _WALK)
    return _Walk(start), path[len(nearest) :]


class _Walk:
    """A walk along a path, step by step, that judges each link on it. ``folder`` is the descriptor it has reached."""

    def __init__(self, folder: int) -> None:
        self.folder = folder
        self._links = 0

    def enter(self, name: str) -> None:
        """Enter a directory. ``..`` in a link is the parent of the link's own directory. Raises OSError."""
        pending = deque([name] if name else [])
        while pending:
            target = self._step(pending.popleft())
            if target.startswith("/"):
                self._go("/")
            pending.extendleft(reversed([part for part in target.split("/") if part not in {"", "."}]))

    def _step(self, name: str) -> str:
        """The target of the link of that name; empty where it is no link, and was entered."""
        try:
            self._go(name)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            there = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
            if not stat.S_ISLNK(there.st_mode):
                raise
            self._links += 1
            if self._links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
            if there.st_uid not in {0, os.geteuid()}:
                message = f"{name} is a symbolic link of {user_name(there.st_uid)}, and is not followed"
                raise OSError(errno.ELOOP, message) from error
            return os.readlink(name, dir_fd=self.folder)
        return ""

    def _go(self, name: str) -> None:
        before, self.folder = self.folder, os.open(name, _WALK, dir_fd=self.folder)
        os.close(before)


def make_directory(path: Path) -> None:
    """Make a directory that all may read, unless it is there. Its parent must be there already. Raises OSError.

    It belongs to the owner of its parent, also when root makes it: otherwise a daemon that runs as another user could
    not write into what root made before its first start.
    """
    with directory(path.parent) as parent:
        try:
            os.mkdir(path.name, DIRECTORY_MODE, dir_fd=parent)
        except FileExistsError:
            with directory(path):  # and is one
                return
        descriptor = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fchmod(descriptor, DIRECTORY_MODE)
            _give(descriptor, os.fstat(parent))
        finally:
            os.close(descriptor)


def require_directory(path: Path) -> None:
    """Raises :class:`UsageError` where there is no state directory: who holds one makes it, and nobody else does."""
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such directory; lbd run makes it. Is state_dir, or LBD_STATE_DIR, right?"
        )


def sync(folder: Path) -> None:
    """Put the names in a directory on disk. Raises OSError."""
    with directory(folder) as walked:
        _sync_names(walked)


def _sync_names(walked: int) -> None:
    """Some network file systems cannot sync a directory, and have no need to."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walked)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF}:
            raise
    finally:
        os.close(descriptor)


def identity(descriptor: int) -> tuple[int, int]:
    """The identity of an open file or directory: device and inode."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def is_found(path: Path, descriptor: int) -> bool:
    """Whether a path still names this open file, and not a link to it."""
    try:
        with directory(path.parent) as folder:
            there = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        return (there.st_dev, there.st_ino) == identity(descriptor)
    except OSError:
        return False


# --- reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """A file to be read. Raises OSError, also where it is a link, a FIFO, a device or whatever else is no file."""
    with directory(path.parent) as folder:
        descriptor = os.open(path.name, os.O_RDONLY | _ADDED, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_other_than_files(descriptor)
        yield file


def read(path: Path) -> bytes:
    """All that a file holds. Raises OSError."""
    with reading(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.read()


def decoded(path: Path, kind: type[Kind]) -> Kind | None:
    """Content of a JSON file, None without a file. Raises :class:`UsageError` for junk of whatever sort."""
    try:
        return msgspec.json.decode(read(path), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except OSError as error:
        raise refused(path, error, "read") from error


def _refuse_other_than_files(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")


# --- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file to be written, which replaces ``path`` at the end of the block: whole, or not at all where that raises.

    Any number of processes may do so at once. It is on disk then, unless it is written anew all the time and need not
    be ``durable``. Mode and owner stay as they are; a new file belongs to the owner of its directory. Raises OSError.
    """
    with directory(path.parent) as folder:
        fresh = f".{path.name}.{secrets.token_hex(6)}{FRESH}"
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ADDED, FILE_MODE, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "r+b") as file:
                _take_after(descriptor, path.name, folder)
                yield file
                file.flush()
                if durable:
                    os.fsync(descriptor)
            os.replace(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise
        if durable:
            _sync_names(folder)


def replace(path: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Replace a file, or make it. Raises OSError."""
    with replacing(path, durable=durable) as file:
        file.write(content)


def growing(path: Path, *, append: bool = True) -> int:
    """A descriptor of a file that grows, made unless it is there; with ``append`` every write goes to its end.

    A new one may be read by all, whatever the umask. Raises OSError.
    """
    flags = os.O_RDWR | _ADDED | (os.O_APPEND if append else 0)
    with directory(path.parent) as folder:
        descriptor = _created_or_opened(path.name, flags, folder)
        try:
            _refuse_other_than_files(descriptor)
            _refuse_names_elsewhere(descriptor, folder)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _created_or_opened(name: str, flags: int, folder: int) -> int:
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)
    except FileExistsError:
        return os.open(name, flags, dir_fd=folder)
    os.fchmod(descriptor, FILE_MODE)
    _give(descriptor, os.fstat(folder))
    return descriptor


def _refuse_names_elsewhere(descriptor: int, folder: int) -> None:
    """A hard link lets its maker have root write to a file that he himself may not write to."""
    status, process = os.fstat(descriptor), os.geteuid()
    own = status.st_uid == os.fstat(folder).st_uid or status.st_uid == process != 0
    if status.st_nlink > 1 and not own:
        raise OSError(errno.EMLINK, f"it is a hard link to a file of {user_name(status.st_uid)}")


def _take_after(descriptor: int, name: str, folder: int) -> None:
    """Mode and owner of what is replaced, else those of a new file."""
    mode, like = FILE_MODE, os.fstat(folder)
    with suppress(FileNotFoundError):
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(there.st_mode) and there.st_nlink == 1:
            mode, like = there.st_mode & 0o777, there
    os.fchmod(descriptor, mode)
    _give(descriptor, like)


def _give(descriptor: int, like: os.stat_result) -> None:
    """Give a file that root writes to the owner in ``like``, where this root may: a container's root may not."""
    there = os.fstat(descriptor)
    if os.geteuid() == 0 and (there.st_uid, there.st_gid) != (like.st_uid, like.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)


def remove(path: Path) -> bool:
    """Remove a file, whatever it is; whether it was there. Raises OSError."""
    try:
        with directory(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def remove_directory(path: Path) -> None:
    """Remove an empty directory. Raises OSError."""
    with directory(path.parent) as folder:
        os.rmdir(path.name, dir_fd=folder)


def move(source: Path, target: Path) -> None:
    """Give a file another name, in place of what has it now. Raises OSError."""
    with directory(source.parent) as before, directory(target.parent) as after:
        os.replace(source.name, target.name, src_dir_fd=before, dst_dir_fd=after)


# --- sockets: their path may be longer than the 107 bytes of an address, so they are named by a descriptor -----------

SOCKET_MODE = 0o600


def listen(path: Path, backlog: int) -> socket.socket:
    """A Unix socket that only the owner of its directory and root may connect to; replaces what has its name.

    Raises OSError.
    """
    remove(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with directory(path.parent) as folder:
            os.fchmod(listening.fileno(), SOCKET_MODE)  # Linux gives the file this mode
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
            with _socket_node(path.name, folder) as node:
                like, there = os.fstat(folder), os.fstat(node)
                if os.geteuid() == 0 and (there.st_uid, there.st_gid) != (like.st_uid, like.st_gid):
                    with suppress(PermissionError):
                        os.chown(f"/proc/self/fd/{node}", like.st_uid, like.st_gid)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path, timeout_seconds: float) -> socket.socket:
    """A connection to such a socket; not to one of a stranger.

    Raises :class:`OSError`; :class:`BlockingIOError` where nobody has accepted one for ``timeout_seconds``, the backlog
    being full.
    """
    with directory(path.parent) as folder, _socket_node(path.name, folder) as node:
        maker = os.fstat(node).st_uid
        if maker not in {0, os.geteuid(), os.fstat(folder).st_uid}:
            raise OSError(errno.EPERM, f"it is a socket of {user_name(maker)}")
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_seconds))
            connected.connect(f"/proc/self/fd/{node}")
        except BaseException:
            connected.close()
            raise
        return connected


def _timeval(seconds: float) -> bytes:
    """As the kernel takes times of sockets; a timeout of Python's would not wait for a place in a full backlog."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


@contextmanager
def _socket_node(name: str, folder: int) -> Iterator[int]:
    node = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISSOCK(os.fstat(node).st_mode):
            raise OSError(errno.EINVAL, "it is no socket")
        yield node
    finally:
        os.close(node)


# --- what went wrong -------------------------------------------------------------------------------------------------


@contextmanager
def as_usage_error(path: Path) -> Iterator[None]:
    """Turn an OSError within into a :class:`UsageError` about ``path``."""
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
