"""What is asked for by hand while no daemon runs: the same judgement, journal and proof, in this process."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from lbd.daemon.engine import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.record.control import Answer, Request, SplitRequest, UnloadRequest


@contextmanager
def working(settings: Settings) -> Iterator[Callable[[Request], Answer]]:
    """What works one request off after the other, each to its end, however long, and remembers those before.

    Raises :class:`~lbd.errors.RefusedError` when another lbd holds the state directory after all.
    """
    answers: dict[str, Answer] = {}
    with engine(settings) as balancer:
        balancer.requests.deliver = answers.__setitem__

        def work(request: Request) -> Answer:
            balancer.by_hand(msgspec.structs.replace(request, expires_at=math.inf))
            return answers.pop(request.id)

        yield work


def unload(settings: Settings, request: UnloadRequest) -> Answer:
    """Work an unload off and wait for its end."""
    with working(settings) as work:
        return work(request)


def split(settings: Settings, request: SplitRequest) -> Answer:
    """The same for a split."""
    with working(settings) as work:
        return work(request)
