"""``lbd drain`` and ``lbd fill`` with ``--api URL``: the same by the lbd that is there, watched until it has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.api.shapes import Begun, DrainPlan, DrainsTold, Released
from lbd.cli.remote import read, stands_by
from lbd.errors import ObserveError
from lbd.record.control import DrainRequest, FillRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.api.client import Client
    from lbd.record.drains import Drain, Work

__all__ = ["begin", "drained", "release", "shown", "stands_by", "watched"]

POLL_SECONDS = 1.0


def shown(asked: Client, kind: str, broker: str) -> DrainPlan:
    """What a drain or a fill (``kind``) of a broker would do."""
    found: DrainPlan = read(asked.get(kind, broker), DrainPlan)
    return found


def drained(asked: Client) -> dict[str, Drain]:
    """The drains in force there, by broker."""
    return {one.drain.broker: one.drain for one in _told(asked).drains}


def release(asked: Client, broker: str, owner: str, reason: str) -> Drain | None:
    """End a drain; the one that was there."""
    body = {"broker": broker, "owner": owner, "reason": reason}
    found: Released = read(asked.post("release", body=body), Released)
    return found.released


def begin(asked: Client, request: DrainRequest | FillRequest) -> Begun:
    """Ask for it; raises what refuses it."""
    seconds = request.expires_at - request.at
    body = {
        "broker": request.broker,
        "owner": request.by,
        "override": request.override,
        "timeout_seconds": seconds,
    }
    if isinstance(request, DrainRequest):
        body |= {"reason": request.reason, "for_seconds": request.seconds}
    found: Begun = read(asked.post(request.kind, body=body, wait_seconds=seconds), Begun)
    return found


def watched(asked: Client, request: DrainRequest | FillRequest, begun: Begun, progress: Callable[[Work], None]) -> Work:
    """How it ended. Raises :class:`ObserveError` when that lbd answers no more, or forgets it."""
    while True:
        work = _work(_told(asked), request)
        if work is not None and work.broker == request.broker and (work.ended_at or begun.at) >= begun.at:
            progress(work)
            if work.ended_at is not None:
                return work
        time.sleep(POLL_SECONDS)


def _told(asked: Client) -> DrainsTold:
    found: DrainsTold = read(asked.get("drains"), DrainsTold)
    return found


def _work(told: DrainsTold, request: DrainRequest | FillRequest) -> Work | None:
    if isinstance(request, FillRequest):
        return told.fill
    found = next((one for one in told.drains if one.drain.broker == request.broker), None)
    if found is None:
        raise ObserveError(f"the drain of {request.broker} is over: it was released, or its broker was started again")
    return found.work
