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
    from lbd.record.control import Answer, Request


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
