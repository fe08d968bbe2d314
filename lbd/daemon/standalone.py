"""Manual requests while no daemon runs: the same checks, journal and verification, in this process."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from lbd.daemon.engine import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.daemon.engine import Engine
    from lbd.store.control import DrainRequest, FillRequest, Request, RequestResult
    from lbd.store.drains import Work


@contextmanager
def _executing(
    settings: Settings, on_answer: Callable[[RequestResult], None]
) -> Iterator[tuple[Engine, Callable[[Request], RequestResult]]]:
    """An engine, and a function that executes requests one after the other, each to its end, however long.

    Raises :class:`~lbd.errors.RefusedError` when another lbd holds the state directory after all.
    """
    answers: dict[str, RequestResult] = {}
    with engine(settings) as balancer:

        def deliver(name: str, answer: RequestResult) -> None:
            answers[name] = answer
            on_answer(answer)

        balancer.requests.deliver = deliver

        def work(request: Request) -> RequestResult:
            balancer.by_hand(msgspec.structs.replace(request, expires_at=math.inf))
            return answers.pop(request.id)

        yield balancer, work


@contextmanager
def working(settings: Settings) -> Iterator[Callable[[Request], RequestResult]]:
    """Give a function that executes requests one after the other in one engine. Raises as :func:`_executing`."""
    with _executing(settings, lambda _: None) as (_, work):
        yield work


@contextmanager
def draining(
    settings: Settings, on_answer: Callable[[RequestResult], None], on_work: Callable[[Work], None]
) -> Iterator[Callable[[DrainRequest | FillRequest], tuple[RequestResult, Work | None]]]:
    """Give a function that executes a drain or a fill to its end and returns the answer to the request, and its work.

    ``on_answer`` gets the answer at once, ``on_work`` the progress. Raises as :func:`_executing`.
    """
    with _executing(settings, on_answer) as (balancer, work):
        balancer.draining.on_work = on_work
        yield lambda request: (work(request), balancer.draining.works.of(request.id))
