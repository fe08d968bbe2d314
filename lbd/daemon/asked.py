"""What people ask for by hand: begun one after the other, judged as a turn judges, and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.cycle import turn
from lbd.daemon.applying import Applying
from lbd.daemon.requests import overriding, split_hold, wanting, why
from lbd.errors import LbdError
from lbd.record.control import DrainRequest, FillRequest, PlaceRequest, PlanRequest, SplitRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.cycle import Parts
    from lbd.daemon.assembled import Assembled
    from lbd.daemon.requests import Requests
    from lbd.model import Outcome, Skip
    from lbd.record.control import Request, UnloadRequest


class Asked:
    """Begins what stands in ``requests`` with the parts of a live lbd; thread-safe only where it hears what ended."""

    def __init__(self, real: Assembled, requests: Requests) -> None:
        self._real, self._requests = real, requests
        self._applying = Applying(requests)

    def begin(self, request: Request, parts: Callable[[UnloadRequest | None], Parts]) -> None:
        """It is begun, unless something holds it, and ends in an answer."""
        if isinstance(request, SplitRequest):
            self._split(request)
            return
        self._requests.begun(request)
        if self._real.observing is not None:
            self._requests.refuse(request, "this lbd only observes (--observe)")
            return
        try:
            self._judge(request, parts)
        except LbdError as error:
            self._requests.fail(request, error)

    def ended(self, ended: Outcome | Skip) -> None:
        """A move has ended, in a thread of its own."""
        self._requests.ended(ended)
        self._applying.ended(ended)

    def _split(self, request: SplitRequest) -> None:
        real, observe_only = self._real, self._real.observing is not None
        hold = split_hold(request, real.held, real.executor.unfinished, observe_only=observe_only)
        real.splitting.serve(request, real.settings, self._requests, hold)

    def _judge(
        self,
        request: UnloadRequest | PlaceRequest | PlanRequest | DrainRequest | FillRequest,
        parts: Callable[[UnloadRequest | None], Parts],
    ) -> None:
        real = self._real
        if isinstance(request, DrainRequest | FillRequest):
            self._requests.answer(request, real.draining.begin(request, real.tools(parts(None))))
        elif isinstance(request, PlaceRequest):
            self._requests.answer(request, real.placing.place(request, parts(None), real.placer))
        elif isinstance(request, PlanRequest):
            self._applying.apply(request, parts(None))
        else:
            self._unload(request, overriding(parts(request), request))

    def _unload(self, request: UnloadRequest, parts: Parts) -> None:
        """A turn that wants just this, and ends in an answer."""
        request, parts, picked = self._real.placing.destination(request, parts)
        record = turn(wanting(parts, request, picked))
        if record.error is not None:
            self._requests.fail(request, record.error)
        elif not record.unloads:
            self._requests.refuse(request, why(record, request.bundle))
