"""An unload or a split by hand while no daemon runs: the same judgement, journal and proof, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon.engine import engine

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.record.control import Answer, Request, SplitRequest, UnloadRequest


def unload(settings: Settings, request: UnloadRequest) -> Answer:
    """Work the request off and wait for its end.

    Raises :class:`~lbd.errors.RefusedError` when another lbd holds the state directory after all.
    """
    return _worked_off(settings, request)


def split(settings: Settings, request: SplitRequest) -> Answer:
    """The same for a split."""
    return _worked_off(settings, request)


def _worked_off(settings: Settings, request: Request) -> Answer:
    answers: dict[str, Answer] = {}
    with engine(settings) as balancer:
        balancer.requests.deliver = answers.__setitem__
        balancer.by_hand(request)
    return answers[request.id]
