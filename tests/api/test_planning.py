"""A plan that is shown or waits for approval, and made true as it was shown or not at all; and its commands."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from lbd.cli import main
from lbd.clock import SYSTEM
from lbd.files import user_name
from lbd.store.proposal import PLAN_SECONDS
from tests.api.conftest import PATIENCE_SECONDS, Api, lbd, serving, working
from tests.daemon.test_service import eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

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
        """404, with the exit code of a refusal."""
        found = api.post("/v1/plan/01234567/apply", WHO)
        assert (found.status_code, found.json()["exit_code"]) == (404, 4)
        assert found.json()["detail"] == (
            "Refused: plan 01234567 is not known, or has expired; no plan waits for approval (lbd plan)."
        )

    def test_a_plan_that_was_shown_is_not_known_for_ever(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """Ten minutes after the round that it was made from."""
        plan = api.get("/v1/plan").json()
        assert (plan["proposed"], plan["expires_at"]) == (False, plan["taken_at"] + PLAN_SECONDS)
        late = replace(SYSTEM, now=lambda: plan["expires_at"])
        for part in (api.engine, api.engine._real):
            monkeypatch.setattr(part, "timebase", late)
        assert api.post(f"/v1/plan/{plan['id']}/apply", WHO).status_code == 404


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


@pytest.fixture
def asking(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd that proposes at once, and has."""
    with serving(pulsar, tmp_path, mode="approve") as found:
        found.turn()
        with working(found):
            yield found


class TestProposal:
    def test_it_is_the_plan_until_somebody_has_applied_it(self, asking: Api):
        """With what it would come to; its end in status and plan is that of the daemon's memory, planned for once."""
        waiting, plan = asking.get("/v1/status").json()["proposal"], asking.get("/v1/plan").json()
        last = asking.serving.board.last
        assert last is not None
        assert asking.serving.plan(last) is asking.serving.plan(last)
        assert plan["proposed"]
        assert {key: plan[key] for key in waiting} == waiting
        assert waiting["clients"] == sum(move["clients"] for move in waiting["unloads"]) > 0
        assert set(waiting["expected"]) == {move["source"] for move in waiting["unloads"]} | {
            move["destination"] for move in waiting["unloads"]
        }
        assert asking.post(f"/v1/plan/{waiting['id']}/apply", WHO).status_code == 200
        assert not asking.get("/v1/plan").json()["proposed"]

    def test_turns_that_tell_of_it_plan_no_move(self, asking: Api):
        """It is the same one in each of them."""
        assert asking.turn().plan.unloads
        assert '\nlbd_planned_moves_total{cluster="c"} 0.0\n' in asking.get("/metrics").text

    def test_the_one_before_can_still_be_applied(self, asking: Api, pulsar: FakePulsar):
        """Whoever has read a plan need not hurry: its moves are judged again in any case. Then none is left."""
        before = asking.get("/v1/plan").json()
        pulsar.own(pulsar.ids[0], {before["unloads"][0]["bundle"]: 500.0})
        pulsar.sample(81.0, 46.0, 11.0)
        asking.turn()
        now = asking.get("/v1/plan").json()
        assert (now["proposed"], now["id"] != before["id"]) == (True, True)
        found = asking.post(f"/v1/plan/{before['id']}/apply", WHO)
        assert (found.status_code, len(found.json()["moves"])) == (200, len(before["unloads"])), found.text
        assert asking.post(f"/v1/plan/{now['id']}/apply", WHO).status_code == 404

    def test_another_one_is_refused_with_its_name(self, asking: Api, pulsar: FakePulsar):
        """So that nobody looks for it."""
        waiting = asking.get("/v1/status").json()["proposal"]
        found = asking.post("/v1/plan/01234567/apply", WHO)
        assert (found.status_code, f"plan {waiting['id']} waits for approval" in found.json()["detail"]) == (404, True)
        assert pulsar.asked("/unload") == []


def told(done: Result) -> list[str]:
    """What the command printed; the lbd that it asked is in this process, and logs to the same place."""
    return [line for line in done.stdout.splitlines() if " [info" not in line]


class TestCommands:
    def test_a_person_sees_and_applies_it(self, asking: Api, pulsar: FakePulsar, tmp_path: Path):
        """Names, clients, scores and the command; then each move has landed, by whom and why."""
        shown = lbd(asking, tmp_path, "plan")
        name = asking.get("/v1/plan").json()["id"]
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.splitlines()[0] == f"{pulsar.ids[0]} -> {pulsar.ids[2]}"
        assert shown.stdout.splitlines()[-1].startswith(f"Plan {name}: 3 bundles, 6 clients reconnect. Proposed at ")
        assert shown.stdout.rstrip().endswith(f": lbd apply {name}")
        done = lbd(asking, tmp_path, "apply", name, "--reason", "evening peak")
        assert (done.exit_code, told(done)) == (0, ["3 moves: 3 landed."])
        moves = asking.get("/v1/moves").json()
        assert {move["reason"] for move in moves} == {f"plan {name}, {user_name(os.getuid())}: evening peak"}

    def test_what_holds_it_is_told(self, asking: Api, tmp_path: Path):
        """It waits on, and could not be applied now."""
        asking.post("/v1/pause", {"owner": "bob", "reason": "no"})
        asking.turn()
        shown = told(lbd(asking, tmp_path, "plan"))[-1]
        assert ". The last turn: No move: paused: by bob until lbd resume: no; " in shown

    def test_json(self, asking: Api, tmp_path: Path):
        """That of the API."""
        shown = json.loads(lbd(asking, tmp_path, "plan", "--format", "json").stdout)
        assert shown == asking.get("/v1/plan?skips=false").json()
        done = json.loads("\n".join(told(lbd(asking, tmp_path, "apply", shown["id"], "--format", "json"))))
        assert (done["exit_code"], {move["result"] for move in done["moves"]}) == (0, {"landed"})

    @pytest.mark.parametrize("again", [False, True])
    def test_a_refusal_has_a_line_for_each_difference(
        self, asking: Api, pulsar: FakePulsar, tmp_path: Path, again: bool
    ):
        """And exit 4, as a refused unload."""
        plan = asking.get("/v1/plan").json()
        if again:
            assert lbd(asking, tmp_path, "apply", plan["id"]).exit_code == 0
        else:
            pulsar.owners[plan["unloads"][0]["bundle"]] = pulsar.ids[1]
        found = lbd(asking, tmp_path, "apply", plan["id"])
        *differences, sentence = told(found)
        assert found.exit_code == 4
        if again:
            assert (differences, sentence.startswith(f"Refused: plan {plan['id']} is not known")) == ([], True)
        else:
            (difference,) = differences
            assert difference.startswith(f"{plan['unloads'][0]['bundle']}: owner-changed: {pulsar.ids[1]} has it")
            words = f"plan {plan['id']}: 1 of 3 moves cannot be made now (1 owner-changed); the first: {difference}"
            assert sentence == f"Refused: {words}; nothing was begun."

    def test_where_no_lbd_runs(self, pulsar: FakePulsar, tmp_path: Path):
        """The plan is made anew each time: the same one is applied, any other is refused."""
        config = tmp_path / "lbd.yaml"
        config.write_text(yaml.safe_dump(settings_for(pulsar, tmp_path)))

        def alone(*words: str) -> Result:
            return CliRunner().invoke(main, [*words, "--config", str(config)])

        shown = json.loads(alone("plan", "--format", "json").stdout)
        assert (shown["proposed"], shown["expires_at"], len(shown["unloads"])) == (False, None, 3)
        assert alone("plan").stdout.splitlines()[-1] == (
            f"Plan {shown['id']}: 3 bundles, 6 clients reconnect. Nothing waits for approval: this would move if the "
            f"imbalance lasts. To move it now: lbd apply {shown['id']}"
        )
        other = alone("apply", "01234567")
        assert (other.exit_code, other.stderr) == (
            4,
            f"Error: plan 01234567 is not known; the plan of now is {shown['id']} (lbd plan)\n",
        )
        done = alone("apply", shown["id"])
        assert (done.exit_code, done.stdout) == (0, "3 moves: 3 landed.\n")
        assert {pulsar.owners[one["bundle"]] for one in shown["unloads"]} == {pulsar.ids[2]}
