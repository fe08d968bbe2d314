"""How many brokers are wanted, over the API: what is known after one turn, and what while no load is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.simulate.answers import Reply
from tests.api.conftest import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar


def test_until_a_load_has_lasted_nothing_is_known(api: Api, pulsar: FakePulsar):
    """The number is that of the brokers that are there."""
    found = api.get("/v1/capacity").json()

    assert (found["active"], found["wanted"], found["max_score"]) == (len(pulsar.ids), len(pulsar.ids), 70.0)
    assert (found["day"], found["score"], found["brokers"], found["easiest"]) == (None, None, [], None)


def test_a_turn_that_saw_no_load_tells_nothing(pulsar: FakePulsar, tmp_path: Path):
    """503, and what to do: ask again."""
    with serving(pulsar, tmp_path) as api:
        pulsar.fault("load-report", Reply(500))
        api.turn()
        found = api.get("/v1/capacity")

    assert (found.status_code, found.headers["retry-after"]) == (503, "15")
    assert "the last turn saw no load" in found.text
