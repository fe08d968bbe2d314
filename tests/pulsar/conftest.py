"""What holds for all tests of requests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import requests
import responses

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def answers_are_for_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of earlier tests, which may wait minutes for what a broker did, get no answer and are not counted."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    answer, begin = responses.RequestsMock._on_request, threading.Thread.start

    def answered(mock: responses.RequestsMock, *args: Any, **named: Any) -> Any:
        if threading.current_thread() in others:
            raise requests.ConnectionError("asked by an earlier test")
        return answer(mock, *args, **named)

    def started(thread: threading.Thread) -> None:
        if threading.current_thread() in others:
            others.add(thread)
        begin(thread)

    monkeypatch.setattr(responses.RequestsMock, "_on_request", answered)
    monkeypatch.setattr(threading.Thread, "start", started)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause of this test's own thread before a request is sent again: noted, not waited for."""
    noted: list[float] = []
    own, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        pausing: Callable[[float], None] = noted.append if threading.get_ident() == own else sleep
        pausing(seconds)

    monkeypatch.setattr("lbd.pulsar.http.time.sleep", pause)
    return noted
