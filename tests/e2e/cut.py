"""A network of its own for one process, in which the brokers are reached only through this one, and which can be cut.

A cut network loses what is sent, in both directions, and tells nobody: connections stay open, as with a broken switch.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

NEW_NETWORK = 0x40000000
"""``CLONE_NEWNET`` of Linux."""

BYTES = 65_536


class CutError(Exception):
    """No such network can be made here."""


class OwnNetwork:
    """``prefix`` begins a command that runs in it; ``addresses`` of the host are reached there as they are here."""

    def __init__(self, addresses: Iterable[tuple[str, int]]) -> None:
        self._addresses = tuple(addresses)
        self._whole, self._over = threading.Event(), threading.Event()
        self._whole.set()
        self._holder: subprocess.Popen[str] | None = None
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        script = "ip link set lo up && echo up && exec sleep infinity"
        words = ["unshare", "--net", "sh", "-c", script]
        self._holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline().strip()
        if said != "up":
            raise CutError(f"no network of its own can be made: {said}")
        failures: list[OSError] = []
        thread = threading.Thread(target=self._listen, args=(failures,), daemon=True)
        thread.start()
        thread.join()
        if failures:
            raise CutError(f"no network of its own can be entered: {failures[0]}")
        for listening, address in zip(tuple(self._sockets), self._addresses, strict=True):
            threading.Thread(target=self._accept, args=(listening, address), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._whole.set()
        for each in self._sockets:
            each.close()
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()

    @property
    def prefix(self) -> list[str]:
        """Words before a command."""
        return ["nsenter", f"--net={self._path}"]

    def cut(self) -> None:
        """Lose everything from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """What was sent meanwhile arrives late, as with TCP."""
        self._whole.set()

    @property
    def _path(self) -> str:
        assert self._holder is not None
        return f"/proc/{self._holder.pid}/ns/net"

    def _listen(self, failures: list[OSError]) -> None:
        """In a thread that enters the network, and ends there: what it opens belongs to it."""
        try:
            _enter(self._path)
            self._sockets += [socket.create_server(address) for address in self._addresses]
        except OSError as error:
            failures.append(error)

    def _accept(self, listening: socket.socket, address: tuple[str, int]) -> None:
        with suppress(OSError):
            while not self._over.is_set():
                inner, _ = listening.accept()
                self._whole.wait()
                try:
                    outer = socket.create_connection(address, 5)
                except OSError:  # no broker listens there now
                    inner.close()
                    continue
                outer.settimeout(None)
                self._sockets += inner, outer
                for pair in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, destination: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(BYTES):
                self._whole.wait()
                destination.sendall(received)
        self._whole.wait()
        for each in (source, destination):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _enter(path: str) -> None:
    """Move this thread, and no other, into a network. Raises OSError."""
    with open(path) as network:  # noqa: PTH123 - a descriptor is wanted, and no text
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), NEW_NETWORK):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
