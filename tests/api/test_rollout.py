"""A rollout over the API: begun, looked at, shown and ended, with the guard of every change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from lbd.store.drains import Drain, Drains
from lbd.store.orders import ROLLOUT, Order
from lbd.store.rollouts import Rollout, Rollouts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.api.conftest import Api


@pytest.fixture
def api(unpaced_api: Api) -> Api:
    """An lbd that moves without a pause."""
    return unpaced_api


def asked(api: Api, **more: Any) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a change."""
    found = api.post("/v1/rollout", {"owner": "ann", **more})
    return found.status_code, found.json()


def test_it_is_begun_looked_at_and_ended(api: Api, cluster: FakePulsar, tmp_path: Path):
    """A second one is refused, the same one goes on."""
    assert api.get("/v1/rollout").json() == {"rollout": None, "summary": "There was no rollout.", "work": None}
    status, told = asked(api, brokers=[cluster.brokers[2]], back_within_seconds=60)
    assert (status, told["sentence"]) == (200, f"The rollout has begun: 1 broker, {cluster.brokers[2]} first.")
    found = api.get("/v1/rollout").json()
    assert (found["rollout"]["brokers"], found["rollout"]["by"]) == ([cluster.brokers[2]], "ann")
    assert f"0 of 1 brokers restarted: {cluster.brokers[2]} " in found["summary"]
    status, told = asked(api, brokers=[cluster.brokers[0]])
    assert (status, "lbd rollout --stop ends it" in told["sentence"]) == (409, True)
    assert asked(api, brokers=[cluster.brokers[2]])[1]["sentence"].startswith("It goes on: rollout, 0 of 1")
    assert asked(api, stop=True, reason="enough")[0] == 200
    assert asked(api, stop=True)[0] in {200, 409}
    assert Rollouts(tmp_path / "state").last() is not None


def test_an_order_that_cannot_be_read_is_an_answer(api: Api):
    """The page reads the rollout beside the status: without an answer it would offer no resume either."""
    with patched_steps(api):
        api.engine.orders.change(lambda orders: orders.give(Order("x", ROLLOUT, {"id": 7}), 1.0))
        found = api.get("/v1/rollout")

    assert (found.status_code, found.json()["rollout"]) == (200, None)
    assert "lbd rollout --stop ends it" in found.json()["summary"]


def test_a_broker_is_handed_over_only_where_it_is_due(api: Api, cluster: FakePulsar):
    """Nothing is begun by the question, whatever the answer."""
    due, other = cluster.brokers[1], cluster.brokers[2]
    assert asked(api, restarts=due)[0] == 409
    assert api.get("/v1/rollout").json()["rollout"] is None

    folder, orders = api.engine.settings.state_dir, api.engine.orders
    kept, drains = Rollouts(folder, orders), Drains(folder, orders)
    times = {"begun_at": 1.0, "phase_at": 1.0, "timeout_seconds": 900.0, "executes": True}
    bundles = [bundle for bundle, owner in cluster.owners().items() if owner == due]
    draining = Rollout(id="r", brokers=(due, other), members=tuple(cluster.brokers), by="ann", broker=due, **times)
    answers = {}
    for words, now in {
        "in its drain": draining,
        "owner of bundles": replace(draining, phase="restart"),
        "due": replace(draining, phase="restart"),
        "back already": replace(draining, phase="restart", started_at=1.0),
        "gone": replace(draining, phase="restart", gone_at=2.0),
        "stopped": replace(draining, phase="restart", stopping="by ann"),
    }.items():
        if words == "due":
            give(cluster, bundles, other)
        with patched_steps(api):
            kept.begin(now)
            if not now.stopping:
                drains.begin(Drain(due, 1.0, None, "ann", rollout="r"))
            answers[words] = asked(api, restarts=due)[0], asked(api, restarts=other)[0]
            kept.withdraw(0.0)
            drains.release(due)

    assert answers == {
        "in its drain": (409, 409),
        "owner of bundles": (409, 409),
        "due": (200, 409),
        "back already": (409, 409),
        "gone": (409, 409),
        "stopped": (409, 409),
    }


def give(cluster: FakePulsar, bundles: Collection[str], broker: str) -> None:
    """Have another broker own these."""
    with cluster._lived():
        for bundle in bundles:
            cluster._book.transfer(bundle, broker)


@contextmanager
def patched_steps(api: Api) -> Iterator[None]:
    """The rollout and its drain stay as they are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.engine.rolling, "step", lambda _: None)
        patch.setattr(api.engine.draining, "step", lambda _: None)
        yield


def test_who_names_no_broker_is_told(api: Api):
    """400 for what is none, and 401 without a token."""
    assert asked(api, brokers=["nobody:1"])[0] == 400
    assert asked(api, brokers=["b:1"], pace=3)[0] == 422
    assert api.post("/v1/rollout", {"owner": "ann"}, Authorization="").status_code == 401


def test_it_is_shown(api: Api, cluster: FakePulsar):
    """The leader last; of one broker where it is named."""
    steps = api.get("/v1/rollout/plan").json()["steps"]
    assert (len(steps), steps[-1]["broker"]) == (3, cluster.leader)
    (one,) = api.get("/v1/rollout/plan", params={"broker": cluster.brokers[0]}).json()["steps"]
    assert (one["bundles"], one["refused"]) == (14, None)
