"""A broker that answers nothing is waited for once; then it is asked beside everything else, until it answers."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from lbd.errors import AdminError
from lbd.pulsar.broker_health import BrokerHealth, unresponsive_text
from lbd.pulsar.http import Http
from lbd.pulsar.settings import PulsarSettings
from tests import silence
from tests.act.test_executor import no_thread
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 60.0
ONE = "http://b1:8080"


@dataclass
class Broker:
    """One that answers only while ``speaks`` is set, but for what has ``always`` in its path."""

    speaks: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    always: str = "/nothing"
    base: str = ""

    def never_answers(self, url: str) -> bool:
        """Whether a request has to be given up."""
        return not self.speaks.is_set() and self.always not in url


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One that answers nothing, and is not waited for long."""
    found = Broker()
    silence.be_short_with(monkeypatch, found.never_answers)
    with listening(found):
        yield found


@contextmanager
def listening(broker: Broker) -> Iterator[Broker]:
    """It listens on a port of its own."""
    over = threading.Event()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            broker.asked.append(self.path)
            while not (broker.speaks.wait(0.02) or broker.always in self.path):
                if over.is_set():
                    return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        server.daemon_threads = True
        broker.base = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield broker
        over.set()
        server.shutdown()


def http(broker: Broker) -> Http:
    """Asks again every twentieth of a second."""
    settings = PulsarSettings(admin_urls=(broker.base,), read_timeout_seconds=LIMIT_SECONDS)
    return Http(settings, BrokerHealth(again_seconds=0.05))


def known(answers: Callable[[str], bool]) -> BrokerHealth:
    """Of brokers that are asked so, and then no more."""
    found = BrokerHealth(again_seconds=3600)
    found.probe_with(lambda base, _: answers(base))
    return found


def test_only_the_first_request_waits_for_it(broker: Broker) -> None:
    """What follows is refused before it is sent, also a PUT, and says since when."""
    asking = http(broker)
    with pytest.raises(AdminError, match="no answer in time"):
        asking.send("GET", f"{broker.base}/first")
    for method in ("GET", "PUT"):
        with pytest.raises(AdminError, match=r"does not answer since \d\d:\d\d:\d\d; not sent") as refused:
            asking.send(method, f"{broker.base}/second")
        assert not refused.value.sent
    assert "/second" not in broker.asked


def test_one_that_answers_again_is_asked_again(broker: Broker) -> None:
    """Nobody but lbd itself asked it meanwhile."""
    asking = http(broker)
    with pytest.raises(AdminError):
        asking.send("GET", f"{broker.base}/first")
    assert asking.silences.since(broker.base) is not None
    broker.speaks.set()
    for _ in range(600):
        if asking.silences.since(broker.base) is None:
            break
        threading.Event().wait(PATIENCE_SECONDS / 600)
    assert asking.send("GET", f"{broker.base}/second").status == 200


def test_one_that_is_slow_at_one_thing_is_not_silent(broker: Broker) -> None:
    """It gives its load report: only that request has failed."""
    broker.always = "/load-report"
    asking = http(broker)
    for _ in range(2):
        with pytest.raises(AdminError, match="no answer in time"):
            asking.send("GET", f"{broker.base}/large")
    assert asking.silences.since(broker.base) is None
    assert broker.asked.count("/large") == 2


def test_an_unload_that_takes_its_time_tells_nothing(broker: Broker) -> None:
    """A source closes topics for a minute, and whoever asked for it may be given up on."""
    asking = http(broker)
    with pytest.raises(AdminError):
        asking.send("PUT", f"{broker.base}/unload")
    assert asking.silences.since(broker.base) is None


def test_one_that_is_asked_by_many_is_told_once() -> None:
    """Requests time out side by side; the first of them counts, and one thread asks again."""
    asked: list[str] = []
    silences = known(lambda base: asked.append(base) is not None)
    for begun_at in (100.0, 101.0):
        silences.unanswered(ONE, begun_at)
    assert (silences.since(ONE), asked) == (100.0, [ONE])


def test_of_several_that_time_out_together_one_asks():
    """The others hear what it heard: a hung broker has one web thread for each request, and no more."""
    asked: list[str] = []
    over, begun = threading.Event(), threading.Event()

    def slowly(base: str) -> bool:
        asked.append(base)
        begun.set()
        over.wait(PATIENCE_SECONDS)
        return False

    silences = known(slowly)
    first, second = (threading.Thread(target=silences.unanswered, args=(ONE, 100.0)) for _ in range(2))
    first.start()
    begun.wait(PATIENCE_SECONDS)
    second.start()
    over.set()
    for one in (first, second):
        one.join(PATIENCE_SECONDS)
    assert (asked, silences.since(ONE)) == ([ONE], 100.0)


def test_one_thread_asks_them_all() -> None:
    """However many they are; each has its turn, and the time for an answer that lets the others have theirs."""
    asked: list[tuple[str, float]] = []
    bases = [f"http://b{number}:8080" for number in range(50)]
    silences = BrokerHealth(again_seconds=0.05)
    silences.probe_with(lambda base, seconds: bool(asked.append((base, seconds))))
    before = set(threading.enumerate())
    for base in bases:
        silences.unanswered(base, 100.0)
    del asked[:]
    for _ in range(600):
        if len({base for base, _ in asked}) == len(bases):
            break
        threading.Event().wait(PATIENCE_SECONDS / 600)
    assert [one.name for one in set(threading.enumerate()) - before] == ["lbd-asks-again"]
    assert {base for base, _ in asked} == set(bases)
    assert {seconds for _, seconds in asked} == {1.0}


def test_its_thread_ends_with_the_last_and_begins_again() -> None:
    """Nobody is silent most of the time."""
    silences = BrokerHealth(again_seconds=0.01)
    for _ in range(3):
        answers = iter([False, False, True])
        silences.probe_with(lambda _, __, answers=answers: next(answers))  # type: ignore[misc]
        silences.unanswered(ONE, 100.0)
        for _ in range(600):
            if silences.since(ONE) is None and silences._thread is None:
                break
            threading.Event().wait(PATIENCE_SECONDS / 600)
        assert (silences.since(ONE), silences._thread) == (None, None)


def test_a_thread_that_could_not_be_had_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker gets no request meanwhile; the next that is refused begins to ask it again."""
    silences, answers = BrokerHealth(again_seconds=0.01), iter([False, True])
    silences.probe_with(lambda _, __: next(answers))
    with monkeypatch.context() as full:
        no_thread(full, "lbd-asks-again")
        silences.unanswered(ONE, 100.0)
        with pytest.raises(AdminError, match=r"not sent, nor asked again: .*can't start new thread"):
            silences.refuse("GET /x", ONE)
    with pytest.raises(AdminError, match=r"not sent$"):
        silences.refuse("GET /x", ONE)
    for _ in range(600):
        if silences.since(ONE) is None:
            break
        threading.Event().wait(PATIENCE_SECONDS / 600)
    assert silences.since(ONE) is None


def test_what_one_part_found_out_all_know(broker: Broker) -> None:
    """Turns, plans and placements ask the same brokers."""
    turns = http(broker)
    plans = Http(turns._settings, turns.silences)
    with pytest.raises(AdminError, match="no answer in time"):
        turns.send("GET", f"{broker.base}/first")
    with pytest.raises(AdminError, match="does not answer since"):
        plans.send("GET", f"{broker.base}/second")
    assert "/second" not in broker.asked


@pytest.mark.parametrize(("listed", "trusted"), [(["b1:8080", "b2:8080"], False), (["b2:8080"], True)])
def test_mistrust_ends_with_the_session(listed: list[str], trusted: bool):
    """It was of a process: what comes back under the same name is another one, or has joined anew."""
    silences = known(lambda _: True)
    silences.mistrust(ONE, "b1:8080")
    silences.listed(listed, listed)
    for _ in range(600 if trusted else 4):
        if silences.since(ONE) is None:
            break
        threading.Event().wait(PATIENCE_SECONDS / 600)
    assert (silences.since(ONE) is None) is trusted


@pytest.mark.parametrize(("listed", "asked_on"), [(["b1:8080", "b2:8080"], True), (["b2:8080"], False)])
def test_one_that_left_is_asked_no_more(listed: list[str], asked_on: bool):
    """Whoever has its address next would be sent a token."""
    asked: list[str] = []
    silences = BrokerHealth(again_seconds=0.05)
    silences.probe_with(lambda base, _: bool(asked.append(base)))
    silences.listed(["b1:8080", "b2:8080"], ["b1:8080", "b2:8080"])
    silences.unanswered(ONE, 100.0)
    silences.listed(listed, listed)
    before = len(asked)
    for _ in range(600):
        if (len(asked) > before + 2) if asked_on else silences.since(ONE) is None:
            break
        threading.Event().wait(PATIENCE_SECONDS / 600)
    assert (silences.since(ONE) is not None) is asked_on
    assert len(asked) <= before + 1 or asked_on


def test_after_its_end_nothing_is_noted() -> None:
    """Settings were read again: whoever still works with the old ones asks as if nothing were known."""
    silences = known(lambda _: False)
    silences.close()
    silences.unanswered(ONE, 100.0)
    assert silences.since(ONE) is None


def test_the_day_is_told_where_it_is_another() -> None:
    """Weeks later a time of day would mislead."""
    assert re.fullmatch(r"does not answer since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", unresponsive_text(1.0))
