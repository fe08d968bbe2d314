"""One deadline over a whole exchange: with a timeout per read a dripping response could last for ever.

Rule: all code that connects to the outside (brokers, the issuer of a token, the webhook, another lbd) connects, sends
and reads with the remaining time of one deadline. ``tests/test_deadlines.py`` has the table of all of them.
"""

from __future__ import annotations

import io
import socket
from typing import TYPE_CHECKING

from lbd.clock import boot_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Seconds = Callable[[], float]
    """How long an exchange may still take; raises an error once its deadline has passed."""


def remaining_seconds(ends_at: float) -> float:
    """Seconds until ``ends_at``, by the boot clock. Raises :class:`TimeoutError` past it."""
    remaining = ends_at - boot_seconds()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def connection(
    host: str,
    port: int | None,
    remaining: Seconds,
    options: Iterable[tuple[int, int, int]] = (),
    permit: Callable[[str], None] = lambda _: None,
) -> socket.socket:
    """Connect to the first address of a host that accepts within ``remaining``.

    ``permit`` is called with each address before it is tried, and raises an error where it must not be.

    Raises :class:`OSError` of the last address that failed, and errors of ``remaining`` and ``permit``.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for family, kind, protocol, _, address in addresses:
        permit(str(address[0]))
        connected = socket.socket(family, kind, protocol)
        try:
            for option in options:
                connected.setsockopt(*option)
            connected.settimeout(remaining())
            connected.connect(address)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure


class DeadlineReader(io.RawIOBase):
    """The bytes of a socket; each read must finish within the remaining time of the exchange."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket, remaining: Seconds) -> None:
        self._raw, self._socket, self._remaining = raw, connected, remaining

    def readable(self) -> bool:
        """True: the stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """Read bytes. Raises :class:`TimeoutError`, or the error of ``remaining``."""
        self._socket.settimeout(self._remaining())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """End reading; the connection stays open for its owner."""
        self._raw.close()
        super().close()
