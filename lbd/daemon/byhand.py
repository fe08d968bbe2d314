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
    from lbd.record.control import Answer, DrainRequest, FillRequest, Request
    from lbd.record.drains import Work


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


@contextmanager
def draining(
    settings: Settings, on_answer: Callable[[Answer], None], on_work: Callable[[Work], None]
) -> Iterator[Callable[[DrainRequest | FillRequest], tuple[Answer, Work | None]]]:
    """What works one drain or fill off to its end: the answer to its beginning, and what came of it.

    ``on_answer`` hears of the first at once, ``on_work`` how far it has come.
    Raises :class:`~lbd.errors.RefusedError` when another lbd holds the state directory after all.
    """
    answers: dict[str, Answer] = {}
    with engine(settings) as balancer:

        def deliver(name: str, answer: Answer) -> None:
            answers[name] = answer
            on_answer(answer)

        balancer.requests.deliver, balancer.draining.on_work = deliver, on_work

        def work(request: DrainRequest | FillRequest) -> tuple[Answer, Work | None]:
            balancer.by_hand(msgspec.structs.replace(request, expires_at=math.inf))
            return answers.pop(request.id), balancer.draining.works.of(request.id)

        yield work
