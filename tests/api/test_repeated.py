"""An order whose answer was lost is given once more under its key, at an lbd that has forgotten what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.api.change import order_id
from lbd.store.drains import Drain, Fill
from lbd.store.orders import DRAIN, FILL, PAUSE, ROLLOUT, Order, body_of
from lbd.store.rollouts import Rollout

if TYPE_CHECKING:
    import msgspec

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.api.conftest import Api

KEY, NEVER = "answer-lost-1", 9e9


@pytest.fixture
def api(unpaced_api: Api) -> Api:
    """An lbd that was asked for nothing yet; its rollouts stay as they are written."""
    unpaced_api.engine.rolling.step = lambda _: None  # type: ignore[method-assign]
    unpaced_api.engine.draining.step = lambda _: None  # type: ignore[method-assign]
    return unpaced_api


def given(kind: str, broker: str) -> tuple[str, msgspec.Struct | dict[str, Any], dict[str, Any]]:
    """The key of an order in the list, what it says, and the body that gives it."""
    rollout = {"brokers": (broker,), "members": (broker,), "begun_at": 1.0, "phase_at": 1.0, "timeout_seconds": 900.0}
    return {
        "pause": (PAUSE, {"since": 1.0, "until": None, "reason": "", "by": "ann"}, {}),
        "drain": (DRAIN + broker, Drain(broker, 1.0, NEVER, "ann"), {"broker": broker}),
        "fill": (FILL, Fill(order_id(KEY), broker, NEVER, "ann", 1.0), {"broker": broker}),
        "rollout": (ROLLOUT, Rollout(id=order_id(KEY), by="ann", broker=broker, **rollout), {"brokers": [broker]}),
    }[kind]


@pytest.mark.parametrize("ended", [False, True], ids=["in force", "ended since"])
@pytest.mark.parametrize("kind", ["pause", "drain", "fill", "rollout"])
def test_it_is_the_same_order(kind: str, api: Api, cluster: FakePulsar, *, ended: bool):
    """In force it stays as it is; one that a person has ended since is not begun again."""
    key, value, body = given(kind, cluster.brokers[2])
    order = Order(order_id(KEY), key, value if isinstance(value, dict) else body_of(value))
    orders = api.engine.orders
    orders.change(lambda before: before.give(order, 1.0))
    if ended:
        orders.change(lambda before: before.end(key, 2.0))
    before = orders.read()

    again = api.post(f"/v1/{kind}", {"owner": "ann", **body}, **{"Idempotency-Key": KEY})

    assert (again.status_code, orders.read()) == (409 if ended else 200, before), again.text
    if ended:
        assert again.json()["detail"].endswith(f"this {kind} was ordered before, under the same key, and is over")
