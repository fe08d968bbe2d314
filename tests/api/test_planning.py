"""A plan that is shown, and made true as it was shown or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.api.conftest import PATIENCE_SECONDS, Api, serving, working
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

WHO = {"owner": "ann", "reason": "tonight", "timeout_seconds": 120}


@pytest.fixture
def api(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd that waits for many more hits before it moves anything by itself."""
    with serving(pulsar, tmp_path, avg_shedder={"hit_count_high": 90, "hit_count_low": 90}) as found:
        found.turn()
        with working(found):
            yield found


class TestPlan:
    def test_it_is_the_dry_run_of_now_under_a_name(self, api: Api, pulsar: FakePulsar):
        """The same moves have the same name, also in another round; no broker is asked to do anything."""
        first = api.get("/v1/plan").json()
        assert [unload["source"] for unload in first["unloads"]] == [pulsar.ids[0]] * len(first["unloads"])
        assert first["unloads"]
        assert api.get("/v1/plan").json()["id"] == first["id"]
        api.turn()
        assert api.get("/v1/plan").json()["id"] == first["id"]
        assert pulsar.asked("/unload") == []

    def test_without_what_is_not_moved(self, api: Api):
        """The same plan in few words: a page that looks at every turn has no use for a line for each bundle."""
        plan = api.get("/v1/plan").json()
        assert api.get("/v1/plan?skips=false").json() == {key: plan[key] for key in plan if key != "skips"}
        assert plan["skips"]

    def test_exactly_that_plan_is_made_true(self, api: Api, pulsar: FakePulsar):
        """Each move landed, and the journal has who wanted it and why."""
        plan = api.get("/v1/plan").json()
        found = api.post(f"/v1/plan/{plan['id']}/apply", WHO)
        assert (found.status_code, found.json()["exit_code"]) == (200, 0), found.text
        wanted = {unload["bundle"]: unload["destination"] for unload in plan["unloads"]}
        assert {bundle: pulsar.owners[bundle] for bundle in wanted} == wanted
        assert {move["bundle"]: move["result"] for move in found.json()["moves"]} == dict.fromkeys(wanted, "landed")
        moves = api.get("/v1/moves").json()
        assert {move["reason"] for move in moves} == {f"plan {plan['id']}, ann: tonight"}

    def test_a_cluster_that_has_drifted_refuses_all_of_it_and_names_what_is_stale(self, api: Api, pulsar: FakePulsar):
        """One bundle has another owner: 409, that one is named, and nothing is sent."""
        plan = api.get("/v1/plan").json()
        gone = plan["unloads"][0]["bundle"]
        pulsar.owners[gone] = pulsar.ids[1]
        found = api.post(f"/v1/plan/{plan['id']}/apply", WHO)
        assert (found.status_code, [move["bundle"] for move in found.json()["moves"]]) == (409, [gone]), found.text
        assert "owner-changed" in found.json()["moves"][0]["detail"]
        assert pulsar.asked("/unload") == []

    def test_a_pause_holds_it(self, api: Api, pulsar: FakePulsar):
        """409 with who paused."""
        plan = api.get("/v1/plan").json()
        api.post("/v1/pause", {"owner": "bob", "reason": "no"})
        found = api.post(f"/v1/plan/{plan['id']}/apply", WHO)
        assert (found.status_code, "paused: by bob" in found.json()["detail"]) == (409, True), found.text
        assert pulsar.asked("/unload") == []

    def test_a_move_that_misses_is_told(self, api: Api, pulsar: FakePulsar):
        """502: it was tried; the answer says of each move what came of it, and the same key does not try it again."""
        plan = api.get("/v1/plan").json()
        pulsar.steals[plan["unloads"][0]["bundle"]] = [pulsar.ids[1]] * 2
        found = api.post(f"/v1/plan/{plan['id']}/apply", WHO, **{"Idempotency-Key": "k"})
        assert found.status_code == 502, found.text
        again = api.post(f"/v1/plan/{plan['id']}/apply", WHO, **{"Idempotency-Key": "k"})
        assert (again.status_code, again.json()) == (502, found.json())
        assert {move["bundle"] for move in found.json()["moves"]} == {one["bundle"] for one in plan["unloads"]}

    def test_the_same_key_applies_it_once(self, api: Api, pulsar: FakePulsar):
        """The second answer is the first one."""
        plan = api.get("/v1/plan").json()
        first = api.post(f"/v1/plan/{plan['id']}/apply", WHO, **{"Idempotency-Key": "k"})
        again = api.post(f"/v1/plan/{plan['id']}/apply", WHO, **{"Idempotency-Key": "k"})
        assert (first.status_code, again.json()) == (200, first.json())
        assert len({one.path for one in pulsar.asked("/unload")}) == len(plan["unloads"])

    def test_a_plan_that_nobody_was_shown_is_not_known(self, api: Api):
        """404."""
        assert api.post("/v1/plan/0123456789abcdef/apply", WHO).status_code == 404


def test_where_nobody_works_requests_off_the_plan_is_withdrawn(pulsar: FakePulsar, tmp_path: Path):
    """504, and nothing was begun."""
    with serving(pulsar, tmp_path, avg_shedder={"hit_count_high": 90, "hit_count_low": 90}) as api:
        api.turn()
        plan = api.get("/v1/plan").json()
        found = api.post(f"/v1/plan/{plan['id']}/apply", {**WHO, "timeout_seconds": 1})
        assert (found.status_code, "nothing was begun" in found.json()["detail"]) == (504, True)
        api.engine.serve()
        eventually(lambda: api.engine.wait(PATIENCE_SECONDS))
    assert pulsar.asked("/unload") == []


def test_an_lbd_that_ends_takes_nothing_with_it_to_its_next_start(pulsar: FakePulsar, tmp_path: Path):
    """503, nothing was begun: no request is left behind that a restart would find and carry out."""
    with serving(pulsar, tmp_path, avg_shedder={"hit_count_high": 90, "hit_count_low": 90}) as api:
        api.turn()
        plan = api.get("/v1/plan").json()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(api.post, f"/v1/plan/{plan['id']}/apply", {**WHO, "timeout_seconds": 600})
            eventually(lambda: bool(api.engine.requests._waiting))
            api.serving.stop()
            found = asked.result()
        assert (found.status_code, found.json()["detail"]) == (503, "lbd is ending: nothing was begun.")
        assert not api.engine.requests._waiting
