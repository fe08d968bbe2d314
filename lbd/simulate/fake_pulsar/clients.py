"""Clients of a fake cluster's bundles: they lose their connections with an owner, and come back by looking it up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.simulate.fake_pulsar.book import Book

RECONNECT_SECONDS = 0.1
"""A client's first wait; the new owner shows 127 to 137 ms after the 204 (4.0.8, p50, nobody nudges)."""

JITTER_SECONDS = 0.01
"""The first wait is up to a tenth shorter."""

LOOKUP_SECONDS = (0.0125, 0.0135)
"""From the leader's choice until the chosen broker owns the bundle: 13 ms (4.0.8, p50). The spread is a fit: of unloads
that nobody nudges six clients take 6 % elsewhere then, as there (9 of 140)."""

DEAD_OWNER_SECONDS = 18.0
"""After a dead owner's session has ended clients come within this: their waits have grown (4.0.8, one kill -9)."""


LATER_SECONDS = 5.0
"""Until a client looks again when nobody could place the bundle, in seconds of the cluster."""


class Clients:
    """``number`` clients on each bundle. ``speed``: what takes them milliseconds takes so many times more here."""

    def __init__(self, book: Book, number: int, speed: Callable[[], float]) -> None:
        self._book, self._number, self._speed = book, number, speed
        book.on_free = self.lost

    def lost(self, bundle: str, died: bool) -> None:
        """Their connections broke: each will look the bundle up. Of one that nobody uses nobody cares."""
        random, speed = self._book.random, self._speed()
        for _ in range(self._number):
            short = (RECONNECT_SECONDS - random.uniform(0, JITTER_SECONDS)) * speed
            self._again(bundle, random.uniform(0, DEAD_OWNER_SECONDS) if died else short)

    def _again(self, bundle: str, seconds: float) -> None:
        self._book.at(self._book.seconds + seconds, lambda: self._look_up(bundle))

    def _look_up(self, bundle: str) -> None:
        """The leader chooses; between that and the choice's taking the bundle another one may look it up (#24884)."""
        book = self._book
        if bundle not in book.bundles or book.owner(bundle) is not None:
            return
        leader = book.brokers.get(book.leader or "")
        chosen = book.place(bundle) if leader is not None and leader.up else ""
        if not chosen or not book.brokers[chosen].up:
            self._again(bundle, LATER_SECONDS)
            return
        takes = book.random.uniform(*LOOKUP_SECONDS) * self._speed()
        book.at(book.seconds + takes, lambda: book.acquire(bundle, chosen))
