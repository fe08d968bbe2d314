"""Requests of people in memory: in their order, each executed at most once; what was withdrawn is never executed."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lbd.errors import RefusedError
from lbd.operations.requests import QUEUED, Requests
from lbd.store.control import REFUSED, RequestResult, RolloutRequest, UnloadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.store.control import Request

NOW = 1_800_000_000.0
BUNDLE = "t/n/0x00000000_0x80000000"
LANDED = RequestResult(0, "It landed.")


def a_request(name: str = "r1", seconds: float = 60.0) -> UnloadRequest:
    """A request that waits so long."""
    return UnloadRequest(name, BUNDLE, "b3:8080", None, "ann", NOW, NOW + seconds)


def stays() -> bool:
    """A caller that does not go."""
    return False


def asked(requests: Requests, request: Request, gone: Callable[[], bool] = stays) -> tuple[RequestResult | None, bool]:
    """What its caller is told, where nobody executes it."""
    return requests.ask(request, gone)


def test_the_whole_way():
    """Submitted, taken, answered under its id."""
    requests = Requests()
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(requests.ask, a_request(), stays)
        while (request := requests.next(NOW)) is None:
            time.sleep(0.001)
        assert request == a_request()
        requests.begun(request)
        requests.answer(request, LANDED)
        assert told.result(60) == (RequestResult(0, "It landed.", id="r1"), False)
    assert requests.next(NOW) is None


def test_oldest_first_and_once():
    """In the order in which they came."""
    requests = Requests()
    for name in ("c", "a", "b"):
        requests.submit(a_request(name))
    assert [requests.next(NOW) for _ in range(4)] == [a_request("c"), a_request("a"), a_request("b"), None]


def test_one_that_expired_behind_another_is_refused_and_the_next_one_taken():
    """Its caller waits no longer: it is not executed."""
    requests, told = Requests(), {}
    requests.deliver = told.__setitem__
    requests.submit(a_request("late", seconds=5))
    requests.submit(a_request("good"))
    assert requests.next(NOW + 5) == a_request("good")
    assert (told["late"].exit_code, told["late"].sentence.startswith("Refused: expired")) == (REFUSED, True)


def test_where_nobody_takes_it_it_is_withdrawn():
    """When its time is over; afterwards nobody can take it."""
    requests = Requests()
    began = time.monotonic()
    assert asked(requests, a_request(seconds=0.3)) == (None, True)
    assert time.monotonic() - began >= 0.3
    assert requests.next(NOW) is None


def test_where_its_caller_has_gone_it_is_withdrawn():
    """Long before its time is over; one that waits behind another as well."""
    requests = Requests()
    requests.submit(a_request("first"))
    assert requests.next(NOW) == a_request("first")
    assert asked(requests, a_request("second"), lambda: True) == (None, True)
    assert requests.next(NOW) is None


def test_what_was_taken_is_not_withdrawn_and_its_late_result_is_for_nobody():
    """The caller is told that it is under way; what came of it is in the journal."""
    requests = Requests()
    requests.on_new = lambda: requests.next(NOW)
    assert asked(requests, a_request(), lambda: True) == (None, False)
    requests.begun(a_request())
    requests.answer(a_request(), LANDED)


def test_too_many_are_refused():
    """Nothing grows without end."""
    requests = Requests()
    for number in range(QUEUED):
        requests.submit(a_request(str(number)))
    with pytest.raises(RefusedError, match="16 requests are waiting already"):
        asked(requests, a_request("more"))
    assert requests.next(NOW) == a_request("0")
    requests.submit(a_request("more"))


def test_the_end_of_an_order_waits_for_nothing():
    """Neither for what waits before it, nor for what is under way; too many that wait do not keep it out."""
    end = RolloutRequest("end", (), False, 60.0, "", "ann", NOW, NOW + 60, stop=True)
    requests = Requests()
    for number in range(QUEUED):
        requests.submit(a_request(str(number)))
    assert requests.next(NOW, ends_only=True) is None
    requests.submit(end)
    assert [requests.next(NOW, ends_only=True), requests.next(NOW, ends_only=True)] == [end, None]
    requests.submit(end)
    assert [requests.next(NOW), requests.next(NOW)] == [end, a_request("0")]


def test_an_lbd_that_ends_refuses_what_waits_and_what_comes():
    """What is under way still gets its result."""
    requests = Requests()
    with ThreadPoolExecutor(2) as pool:
        under_way = pool.submit(requests.ask, a_request("r1"), stays)
        while (request := requests.next(NOW)) is None:
            time.sleep(0.001)
        requests.begun(request)
        waits = pool.submit(requests.ask, a_request("r2"), stays)
        while not requests._waiting:
            time.sleep(0.001)
        requests.close("lbd is ending")
        assert waits.result(60) == (RequestResult(REFUSED, "Refused: lbd is ending.", id="r2"), False)
        with pytest.raises(RefusedError, match="lbd is ending"):
            requests.submit(a_request("r3"))
        requests.answer(request, LANDED)
        assert under_way.result(60) == (RequestResult(0, "It landed.", id="r1"), False)


@pytest.mark.security("requests withdrawn at any moment: none reported as withdrawn is executed, none twice")
def test_withdrawn_and_taken_at_the_same_time():
    """Callers go at random moments while another thread takes: each request has exactly one of both fates."""
    requests, executed, over = Requests(), [], threading.Event()

    def execute() -> None:
        while not over.is_set() or requests._waiting:
            request = requests.next(NOW)
            if request is not None:
                executed.append(request.id)
                requests.begun(request)
                requests.answer(request, LANDED)

    def call(number: int) -> tuple[str, RequestResult | None, bool]:
        name = str(number)
        return name, *requests.ask(a_request(name, seconds=random.uniform(0, 0.002)), stays)

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(call, range(2000)))
    finally:
        over.set()
        thread.join()
    withdrawn = {name for name, _, untouched in told if untouched}
    assert len(executed) == len(set(executed))
    assert withdrawn.isdisjoint(executed)
    assert withdrawn | set(executed) == {name for name, _, _ in told}
    assert all(name in executed for name, result, _ in told if result is not None)
