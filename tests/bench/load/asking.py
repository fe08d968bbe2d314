"""Requests at a bounded rate, and how long each answer took."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.bench.load.daemon import Turned

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Asked:
    """One request: when it was due (epoch seconds), and how long after that its whole answer was there."""

    path: str
    at: float
    seconds: float
    status: int
    size: int


def ask(url: str, paths: Iterable[str], seconds: float, a_second: float | None = None) -> list[Asked]:
    """One client on one connection that is kept: so many requests a second, or each as the one before is answered.

    A request at a rate counts from when it was due: one that waits for a slow answer before it is as slow.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)
    found: list[Asked] = []
    begun = time.time()
    for path in paths:
        due = time.time() if a_second is None else begun + len(found) / a_second
        if due - begun > seconds:
            break
        time.sleep(max(due - time.time(), 0.0))
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        found.append(Asked(path, due, time.time() - due, answer.status, len(body)))
    connection.close()
    return found


def ask_all(clients: Sequence[tuple[str, Iterator[str]]], seconds: float, a_second: float) -> list[list[Asked]]:
    """Several clients at once, each with a URL, its paths and its share of the rate, a little apart; by client."""
    found: list[list[Asked]] = [[] for _ in clients]

    def one(number: int) -> None:
        time.sleep(number / a_second)
        found[number] = ask(*clients[number], seconds, a_second / len(clients))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class Listening:
    """Streams of events that are read as they come; ``bytes`` and ``events`` are of all of them together."""

    def __init__(self, url: str, number: int) -> None:
        self.bytes = self.events = 0
        self._lock, address = threading.Lock(), urlsplit(url).netloc
        self._connections = [http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS) for _ in range(number)]
        self._threads = [threading.Thread(target=self._listen, args=(one,)) for one in self._connections]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._connections:
            if one.sock is not None:
                one.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _listen(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/v1/events")
        answer = connection.getresponse()
        with suppress(http.client.IncompleteRead):  # it is cut off in the end
            while part := answer.read1(1 << 16):
                with self._lock:
                    self.bytes += len(part)
                    self.events += part.count(b"\nevent: ")


def beside(asked: Iterable[Asked], turns: Sequence[Turned]) -> list[Asked]:
    """Those that overlapped a turn."""
    spans = [(turn.begun, turn.ended) for turn in turns]
    return [one for one in asked if any(one.at < ended and begun < one.at + one.seconds for begun, ended in spans)]


def at_quantile(values: Iterable[float], part: float) -> float:
    """The value that ``part`` of them do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else float("nan")
