"""A fake broker that never answers: the client's time is over at once, so that its limit is longer than any stall.

A limit of half a second that a test waits out is one that no broker meets on a machine that stops for a moment.
"""

from __future__ import annotations

import select
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbd.clock import boot_seconds
from lbd.deadline import DeadlineReader
from lbd.pulsar.http import Http
from lbd.simulate import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lbd.pulsar.http import Response
    from lbd.simulate.answers import Reply

LIMIT_SECONDS = 30.0
"""Time-out in the settings of tests: whoever answers at all meets it."""

SHORT_SECONDS = 0.5
"""Time-out of a request that is never answered."""

_LOOK_SECONDS = 0.01


def end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on each request that a fake broker of this process leaves unanswered has no time left."""
    unanswered: set[object] = set()
    send, read_into = fake_pulsar.BrokerExchange.send, DeadlineReader.readinto

    def noted(handler: Any, reply: Reply) -> None:
        if not reply.silent:
            send(handler, reply)
            return
        unanswered.add(handler.client_address)
        try:
            send(handler, reply)
        finally:
            unanswered.discard(handler.client_address)

    def read(reader: DeadlineReader, buffer: memoryview) -> int | None:
        peer, ready = reader._socket, select.poll()  # select.select takes no file number above 1023
        ready.register(peer, select.POLLIN)
        while not ready.poll(1000 * min(reader._remaining(), _LOOK_SECONDS)):
            if peer.getsockname() in unanswered:
                raise TimeoutError
        return read_into(reader, buffer)

    monkeypatch.setattr(fake_pulsar.BrokerExchange, "send", noted)
    monkeypatch.setattr(DeadlineReader, "readinto", read)


def be_short_with(monkeypatch: pytest.MonkeyPatch, never_answers: Callable[[str], bool]) -> None:
    """Give requests to URLs that are never answered half a second; all others have the time of the settings."""
    exchange = Http._exchange

    def short(self: Http, request: Any, token: str) -> Response:
        if never_answers(request.url):
            request = replace(request, ends_at=min(request.ends_at, boot_seconds() + SHORT_SECONDS))
        return exchange(self, request, token)

    monkeypatch.setattr(Http, "_exchange", short)
