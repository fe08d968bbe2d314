"""An order whose answer was lost is given once more under its key, at an lbd that has forgotten what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.store.control import Control
from lbd.store.orders import DRAIN, FILL, PAUSE, ROLLOUT

if TYPE_CHECKING:
    import requests

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.api.conftest import Api

KEY = {"Idempotency-Key": "answer-lost-1"}


@pytest.fixture
def api(unpaced_api: Api) -> Api:
    """An lbd that was asked for nothing yet; its orders stay as they are written."""
    unpaced_api.engine.rolling.step = lambda _: None  # type: ignore[method-assign]
    unpaced_api.engine.draining.step = lambda _: None  # type: ignore[method-assign]
    return unpaced_api


def given(api: Api, kind: str, **body: Any) -> requests.Response:
    """An order at an lbd that has answered nothing before."""
    api.serving.stop()
    api.serving.start()
    return api.post(f"/v1/{kind}", {"owner": "ann", **body}, **KEY)


@pytest.mark.parametrize("ended", [False, True], ids=["in force", "ended since"])
@pytest.mark.parametrize("kind", ["pause", "drain", "fill", "rollout"])
def test_it_is_the_same_order(kind: str, api: Api, cluster: FakePulsar, *, ended: bool):
    """In force it stays as it is; one that a person has ended since is not begun again."""
    broker, orders = cluster.brokers[2], api.engine.orders
    body: dict[str, Any] = {"pause": {"for_seconds": 600}, "rollout": {"brokers": [broker]}}.get(
        kind, {"broker": broker}
    )
    first = given(api, kind, **body)
    assert first.status_code == 200, first.text
    if ended:
        key = {"pause": PAUSE, "drain": DRAIN + broker, "fill": FILL, "rollout": ROLLOUT}[kind]
        orders.change(lambda before: before.end(key, 2.0))
    before = orders.read()

    again = given(api, kind, **body)

    assert (again.status_code, orders.read()) == (409 if ended else 200, before), again.text
    if ended:
        assert again.json()["detail"].endswith(f"this {kind} was ordered before, under the same key, and is over")
    elif kind == "pause":
        assert again.json() == first.json()


def test_another_order_under_the_key_is_given(api: Api, cluster: FakePulsar):
    """That the key was used before is forgotten: nobody is told of an order that was never made."""
    answers = [*(given(api, "drain", broker=broker) for broker in cluster.brokers[1:]), given(api, "pause")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert api.engine.draining.drained() == set(cluster.brokers[1:])
    assert Control(api.serving.state_dir).paused(api.serving.now()) is not None
