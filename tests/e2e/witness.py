"""Who really owned what and when, as locks and brokers told all the time, and what in a journal they deny."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import requests

from tests.e2e import locks, settings
from tests.e2e.journal import Move

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.e2e.cluster import Cluster

ASK_TIMEOUT_SECONDS = 2.0
BEFORE_SECONDS, AFTER_SECONDS = 1.0, 3.0
"""The told owner must have been seen as owner within so many seconds of its outcome."""

PROVEN = ("landed", "landed-elsewhere")


class Witness:
    """Asks all the time who owns what: ZooKeeper for its locks, as brokers that are asked can hang.

    Those of the extensible manager hold no locks, and cannot; each is asked from a thread of its own, so a dead one
    holds nobody up.
    """

    def __init__(self, cluster: Cluster, every_seconds: float = 0.4) -> None:
        self._cluster = cluster
        self._every = every_seconds
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        self._stays: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def __enter__(self) -> Self:
        if self._cluster.spec.load_manager == "extensible":
            works = [(self._watch, (index,)) for index in range(len(self._cluster.brokers))]
        else:
            works = [(self._watch_locks, ())]
        self._threads = [threading.Thread(target=work, args=given, daemon=True) for work, given in works]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def seen(self, bundle: str, broker: str, begin: float, end: float) -> bool:
        """Whether this broker said in this time that it owns the bundle."""
        return any(first <= end and last >= begin for first, last in tuple(self._stays[bundle, broker]))

    def moves(self, since: float, of: str = "") -> list[Move]:
        """Every change of hands after a moment, of bundles whose name begins so, by time.

        When it was asked for is when the old owner was last seen.
        """
        by_bundle: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for (bundle, broker), stays in tuple(self._stays.items()):
            by_bundle[bundle] += [(first, last, broker) for first, last in tuple(stays) if bundle.startswith(of)]
        found: list[Move] = []
        for bundle, in_order in by_bundle.items():
            for (_, left_at, source), (came_at, _, owner) in pairwise(sorted(in_order)):
                if source != owner and came_at > since:
                    name = f"{bundle} {came_at:.3f}"
                    found.append(Move(name, bundle, source, owner, left_at, "landed", owner, came_at))
        return sorted(found, key=lambda move: move.asked_at)

    def _watch_locks(self) -> None:
        previous = 0.0
        while not self._done.wait(self._every):
            asked, held, answered = time.time(), _held(), time.time()
            for bundle, broker in held.items():
                _stay(self._stays[bundle, broker], previous, asked, answered)
            previous = answered

    def _watch(self, index: int) -> None:
        cluster, previous = self._cluster, 0.0
        broker = cluster.brokers[index]
        url = f"{cluster.admin_urls[index]}/admin/v2/brokers/{settings.CLUSTER}/{broker}/ownedNamespaces"
        with requests.Session() as session:
            session.trust_env, session.verify = False, cluster.session.verify
            session.headers.update(cluster.session.headers)
            while not self._done.wait(self._every):
                asked, bundles, answered = time.time(), _ask(session, url), time.time()
                for bundle in bundles:
                    _stay(self._stays[bundle, broker], previous, asked, answered)
                previous = answered


def _held() -> dict[str, str]:
    try:
        return locks.held(ASK_TIMEOUT_SECONDS)
    except OSError:  # it restarts: nothing was seen
        return {}


def _ask(session: requests.Session, url: str) -> list[str]:
    try:
        answer = session.get(url, timeout=ASK_TIMEOUT_SECONDS, allow_redirects=False)
        return list(answer.json()) if answer.status_code == 200 else []
    except (requests.RequestException, ValueError):  # dead, stopped or restarting: nothing was seen
        return []


def _stay(stays: list[tuple[float, float]], previous: float, asked: float, answered: float) -> None:
    """Extend the last stay when the broker was seen with the bundle in the look before, too."""
    if stays and stays[-1][1] == previous:
        stays[-1] = (stays[-1][0], answered)
    else:
        stays.append((asked, answered))


def contradictions(
    told: Iterable[Move],
    witness: Witness,
    present: Mapping[str, set[str]],
    kills: Iterable[tuple[float, str]],
    by_others: Mapping[str, float] | None = None,
) -> list[str]:
    """What the brokers deny: a told owner that was never seen around then, and a last owner that is none now.

    The last owner may have lost the bundle when it was killed after its outcome, or to somebody else who moved it
    (``by_others``: when). What ended as unowned or unknown says nothing of later.
    """
    ended = sorted((move for move in told if move.ended_at is not None), key=lambda move: move.ended_at or 0.0)
    denied = [
        f"{move.id} {move.bundle}: told {move.result} on {move.owner}, never seen there then"
        for move in ended
        if move.result in PROVEN and not _confirmed(move, witness)
    ]
    for move in {move.bundle: move for move in ended}.values():
        since = (move.ended_at or 0.0) - BEFORE_SECONDS
        excused = any(at > since and broker == move.owner for at, broker in kills)
        excused |= (by_others or {}).get(move.bundle, 0.0) > since
        now = present.get(move.bundle, set())
        if move.owner is not None and now != {move.owner} and not excused:
            denied.append(f"{move.id} {move.bundle}: last told {move.result} on {move.owner}, now on {now or 'nobody'}")
    return denied


def _confirmed(move: Move, witness: Witness) -> bool:
    at = move.ended_at or 0.0
    return move.owner is not None and witness.seen(move.bundle, move.owner, at - BEFORE_SECONDS, at + AFTER_SECONDS)
