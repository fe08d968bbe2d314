"""Orders at an lbd that stands by: each is refused in the same sentence, by API and by command, and nothing begins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, get_args

import msgspec
import pytest

from lbd.api import client as client_module
from lbd.config import Settings
from lbd.daemon import engine as engine_module
from lbd.daemon.election import Leadership
from lbd.reason import Reason
from lbd.store.control import Control, Request, RequestResult
from lbd.store.shared import SharedJournal, SharedOrders, leads
from lbd.text import utc
from tests.api.conftest import QUIET, Api, lbd, listening, own_api, working
from tests.daemon.test_disk import nothing_was_moved
from tests.daemon.test_leading import until
from tests.daemon.test_service import settings_for
from tests.fake_pulsar import HOT, hot_broker
from tests.leader_topic import Connection, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.clock import Timebase
    from lbd.daemon.election import Role
    from lbd.store.journal import Journal
    from lbd.store.state import StateDir
    from tests.fake_pulsar import FakePulsar

LEADER, URL, SINCE = "lbd-pod-b-7-beef", "http://pod-b:8085", 1_800_000_000.0
SENTENCE = (
    f"{Reason.NOT_LEADER.message(f'this lbd stands by, {LEADER} ({URL}) leads since {utc(SINCE)}')}; "
    "only the leader takes orders"
)
COLD = "COLD"
"""Stands for the cold broker, whose port is known when it is there."""

OVER_THE_API: dict[str, dict[str, object]] = {
    "/v1/pause": {"reason": "upgrade"},
    "/v1/resume": {},
    "/v1/unload": {"bundle": HOT[0], "destination": COLD, "override": "I know better"},
    "/v1/place": {"targets": [HOT[0]]},
    "/v1/split": {"bundle": HOT[0], "broker": COLD, "algorithm": "range_equally_divide", "positions": [7]},
    "/v1/drain": {"broker": COLD},
    "/v1/fill": {"broker": COLD},
    "/v1/release": {"broker": COLD},
    "/v1/rollout": {"brokers": [COLD]},
    "/v1/plan/{name}/apply": {},
}
BY_COMMAND = {
    "pause": ("pause",),
    "resume": ("resume",),
    "unload": ("unload", HOT[0], "--to", COLD, "--apply"),
    "unload with an override": ("unload", HOT[0], "--to", COLD, "--apply", "--override", "I know better"),
    "place": ("place", HOT[0], "--apply"),
    "split": ("split", HOT[0], "--apply"),
    "drain": ("drain", COLD, "--apply"),
    "fill": ("fill", COLD, "--apply"),
    "release": ("drain", COLD, "--release"),
    "rollout": ("rollout", COLD),
    "rollout --stop": ("rollout", "--stop"),
    "apply": ("apply", "1f3a9c2e"),
}


@pytest.fixture(scope="module")
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker, a warm and a cold one."""
    with hot_broker() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def standby(pulsar: FakePulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A live lbd with its API that follows another one's topic, and has ended a turn."""
    folder, topic = tmp_path_factory.mktemp("standby"), Topic()
    topic.writer = Connection(topic)
    topic.writer.publish(leads(SINCE, LEADER, "term", URL))

    def joined(settings: Settings, state: StateDir, timebase: Timebase) -> tuple[Journal, Role]:
        journal = SharedJournal(state.store, timebase.now)
        orders = SharedOrders(settings.state_dir, timebase.now)
        return journal, Leadership("lbd-pod-a-1-cafe", journal, time.time, lambda: Connection(topic), orders)

    settings = Settings.model_validate(settings_for(pulsar, folder, api=own_api(folder), avg_shedder=QUIET))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "open_role", joined)
        patch.setattr(client_module, "STANDBY_PAUSE_SECONDS", 0.0)
        with listening(settings) as found, working(found):
            found.engine.leading.start()
            until(lambda: LEADER in found.engine.leading.words)
            found.turn()
            yield found


def _named(pulsar: FakePulsar, value: object) -> object:
    return pulsar.ids[2] if value == COLD else [_named(pulsar, one) for one in value] if type(value) is list else value


def test_the_table_has_every_change_of_the_api(standby: Api):
    """Also those to come."""
    paths = standby.get("/v1/openapi.json").json()["paths"]
    assert {path for path, methods in paths.items() if "post" in methods} == OVER_THE_API.keys()


@pytest.mark.parametrize("path", OVER_THE_API)
def test_every_order_over_the_api_is_refused(path: str, standby: Api, pulsar: FakePulsar):
    """409 with the leader's name and address as members; an override passes no such limit."""
    body = {name: _named(pulsar, value) for name, value in OVER_THE_API[path].items()}
    answer = standby.post(path.format(name="1f3a9c2e"), {"owner": "ann", **body})

    wanted = {"title": "Conflict", "status": 409, "detail": SENTENCE, "leader": LEADER, "leader_url": URL}
    assert (answer.status_code, answer.json()) == (409, wanted)
    _nothing_came_of_it(standby, pulsar)


@pytest.mark.parametrize("words", BY_COMMAND.values(), ids=BY_COMMAND)
def test_every_order_by_command_is_refused(words: tuple[str, ...], standby: Api, pulsar: FakePulsar, tmp_path: Path):
    """Exit 4, in the same sentence."""
    found = lbd(standby, tmp_path, *(str(_named(pulsar, word)) for word in words))

    assert (found.exit_code, SENTENCE in found.output) == (4, True), found.output
    _nothing_came_of_it(standby, pulsar)


@pytest.mark.parametrize("kind", get_args(Request), ids=lambda kind: kind.__name__)
def test_an_order_that_came_before_the_other_one_led_is_refused(kind: type[Request], standby: Api, pulsar: FakePulsar):
    """It waited for its turn meanwhile, or is that of a command that runs by itself."""
    fields = {"id": "r", "bundle": HOT[0], "broker": pulsar.ids[2], "owner": pulsar.ids[0], "by": "ann", "reason": ""}
    fields |= {"brokers": [], "executes": False, "back_within_seconds": 1.0, "moves": [], "plan": "p", "targets": []}
    fields |= {"destination": None, "override": "I know better", "seconds": None, "at": 0.0, "expires_at": 9e9}
    fields |= {"algorithm": "range_equally_divide", "positions": [7], "strategy": "rendezvous"}
    request = msgspec.convert({name: fields[name] for name in fields.keys() & set(kind.__struct_fields__)}, kind)
    answers: list[RequestResult] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby.engine.requests, "deliver", lambda _, result: answers.append(result))
        standby.engine._dispatcher.begin(request, standby.engine._real.beside)

    assert answers == [RequestResult(4, f"Refused: {SENTENCE}")]
    _nothing_came_of_it(standby, pulsar)


def _nothing_came_of_it(standby: Api, pulsar: FakePulsar) -> None:
    orders = standby.engine.orders.read()
    assert (orders.orders, orders.ended) == ({}, {})
    assert Control(standby.engine.settings.state_dir).paused(time.time()) is None
    assert nothing_was_moved(pulsar)
