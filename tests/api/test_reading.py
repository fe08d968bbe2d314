"""What may be read over the API: the last turn, what is kept of those before, and what happens now."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import requests

from lbd.daemon.election import Alone
from lbd.reason import Reason
from lbd.simulate.answers import Reply, refused
from tests.api.conftest import PATIENCE_SECONDS, Api, serving
from tests.fake_pulsar import HOT
from tests.store.test_calibration import SECOND, put

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.permit.facts import Hold
    from tests.fake_pulsar import FakePulsar


class TestProbes:
    def test_alive_while_turns_end_ready_once_one_has_seen_the_cluster(self, pulsar: FakePulsar, tmp_path: Path):
        """Alive from the start; ready after a turn that observed, not before."""
        with serving(pulsar, tmp_path) as api:
            before = api.get("/healthz").status_code, api.get("/readyz").status_code, api.get("/v1/status").status_code
            api.turn()
            after = api.get("/healthz").status_code, api.get("/readyz").status_code, api.get("/v1/status").status_code
        assert (before, after) == ((200, 503, 503), (200, 200, 200))

    def test_a_loop_that_stands_still_is_not_alive(self, api: Api):
        """503 once more than its patience has passed without a turn's or move's end."""
        api.silent_seconds[0] = 61.0
        found = api.get("/healthz")
        assert (found.status_code, found.json()["alive"]) == (503, False)

    def test_a_cluster_that_cannot_be_seen_is_not_ready(self, api: Api, pulsar: FakePulsar):
        """The turn ended, so it is alive."""
        pulsar.fault("/admin", Reply(500))
        api.turn()
        assert (api.get("/healthz").status_code, api.get("/readyz").status_code) == (200, 503)


class Standby(Alone):
    """Another lbd leads."""

    words = "this lbd stands by, lbd-b-7 leads since T"

    def hold(self) -> Hold:  # type: ignore[override]
        """Nothing moves here."""
        return Reason.NOT_LEADER, self.words


def now_has(api: Api, role: Alone) -> None:
    """The lbd has another role from now on."""
    api.engine.leading = api.engine._real.leading = role
    api.serving.led()


class TestLastTurn:
    def test_status_is_the_json_of_lbd_status(self, api: Api):
        """With where the API listens, and no pause."""
        found = api.get("/v1/status").json()
        assert found["api"] == api.serving.url
        assert (found["turns"], found["late"], found["paused"], len(found["brokers"])) == (1, False, None, 3)

    def test_who_leads_is_told_before_the_next_turn(self, api: Api):
        """An lbd that stands by names the leader as soon as it knows; one that has come to lead is held no more."""
        now_has(api, Standby(api.engine.orders))
        told = api.get("/v1/status").json()
        assert (told["leader"], told["hold"]) == (Standby.words, "not-leader")
        now_has(api, Alone(api.engine.orders))
        told = api.get("/v1/status").json()
        assert (told["leader"], told["hold"], told["turns"]) == (None, None, 1)

    def test_a_change_of_leader_changes_what_is_to_be_done(self, pulsar: FakePulsar, tmp_path: Path):
        """Until the next turn: one that stands by is given nothing to mend, one that has come to lead no leader."""
        with serving(pulsar, tmp_path, avg_shedder={}) as api:
            alone, standby = Alone(api.engine.orders), Standby(api.engine.orders)
            api.turn()
            now_has(api, standby)
            status = api.get("/v1/status").json()
            assert (status["hold"], [step["reason"] for step in status["steps"]]) == ("not-leader", ["not-leader"])
            api.turn()
            now_has(api, alone)
            status = api.get("/v1/status").json()
            assert (status["hold"], status["verdict"]["kind"]) == (None, "waiting")
            assert status["todo"] == ["Nothing: the next turn plans anew"]

    def test_the_snapshot_names_the_largest_bundles(self, api: Api, pulsar: FakePulsar):
        """Of all, of one broker, of a namespace; a broker that is not there is 404, as elsewhere."""
        first, _, third = pulsar.ids
        all_of_them = api.get("/v1/snapshot").json()
        assert [row["id"] for row in all_of_them["brokers"]] == sorted(pulsar.ids)
        assert all_of_them["bundles_all"] == len(all_of_them["bundles"]) == 10
        hot = api.get("/v1/snapshot", params={"broker": first, "last": 3}).json()
        assert (hot["bundles_all"], len(hot["bundles"])) == (8, 3)
        assert {row["broker"] for row in hot["bundles"]} == {first}
        assert api.get("/v1/snapshot", params={"broker": third}).json()["bundles_all"] == 1
        assert api.get("/v1/snapshot", params={"namespace": "no/such"}).json()["bundles"] == []
        assert api.get("/v1/snapshot", params={"broker": "no:1"}).status_code == 404


class TestHistory:
    """``/v1/history``: memory for the turns of this process, and files for those before."""

    def test_the_turns_of_this_process(self, api: Api, pulsar: FakePulsar):
        """Gap and mean; a broker's line where one is named."""
        pulsar.sample(60.0, 45.0, 10.0)
        api.turn()
        found = api.get("/v1/history").json()
        assert (found["gap"]["points"], found["broker"], found["moves"]) == ([70.0, 50.0], None, [])
        assert found["mean"]["points"] == [45.0, 38.33]
        assert found["until"] - found["since"] == 3600
        hot = api.get("/v1/history", params={"range": "7d", "broker": pulsar.ids[0]}).json()
        assert hot["broker"]["points"] == [80.0, 60.0]
        assert api.get("/v1/history", params={"range": "2d"}).status_code == 422

    def test_turns_that_show_the_same_are_a_point_a_minute(self, api: Api):
        """A turn a second has a new score once a minute: of the others none is held, and the line has no hole."""
        begun = api.serving.board.scores(0.0).at[0]
        assert api.serving.board.last is not None
        published = api.serving.board.last
        for second in range(1, 3600):
            status = msgspec.structs.replace(published.status, at=begun + second)
            api.serving.board.publish(replace(published, status=status))
        at = api.serving.board.scores(0.0).at - begun
        assert (at.size, at[-1], np.diff(at).max()) == (62, 3599.0, 59.0)

    def test_an_unknown_broker_is_404(self, api: Api, pulsar: FakePulsar):
        """One without a score, and not in the cluster; one that gave no report is known."""
        unknown = api.get("/v1/history", params={"broker": "no:1"})
        assert unknown.status_code == 404
        assert unknown.json()["detail"] == "no:1: no broker of the cluster, and no score or move of it in 1h"
        silent = pulsar.ids[2]
        pulsar.die(silent)
        api.turn()
        assert api.get("/v1/history", params={"broker": silent}).status_code == 200

    def test_a_broker_that_left_keeps_its_line_while_its_scores_are_in_range(self, api: Api, pulsar: FakePulsar):
        """The dashboard shows the history of a broker that has just left."""
        gone = pulsar.ids[2]
        pulsar.gone.add(gone)
        api.turn()
        line = api.get("/v1/history", params={"broker": gone})
        assert (line.status_code, line.json()["broker"]["points"][0]) == (200, 10.0)

    def test_an_earlier_process_is_read_from_files(self, pulsar: FakePulsar, tmp_path: Path):
        """What it left is followed by what this one has seen, whether history is written by now or not."""
        with serving(pulsar, tmp_path, history={"enabled": True}) as api:
            api.turn()
        pulsar.sample(60.0, 45.0, 10.0)
        with serving(pulsar, tmp_path) as api:
            api.turn()
            found = api.get("/v1/history", params={"range": "24h", "broker": pulsar.ids[0]}).json()
        assert found["broker"]["points"] == [80.0, 60.0]

    def test_moves_are_marks(self, pulsar: FakePulsar, tmp_path: Path):
        """Those from a broker and to it; of another one none."""
        with serving(pulsar, tmp_path) as api:
            planned = api.turn().plan.unloads
            assert api.engine.wait(PATIENCE_SECONDS)
            every = api.get("/v1/history").json()["moves"]
            by_broker = [api.get("/v1/history", params={"broker": one}).json()["moves"] for one in pulsar.ids]
        assert {(one["bundle"], one["destination"]) for one in every} == {
            (one.bundle, one.destination) for one in planned
        }
        assert by_broker[0] == every
        assert sum(len(one) for one in by_broker[1:]) == len(every)


class TestKept:
    def test_moves_tell_how_each_ended(self, pulsar: FakePulsar, tmp_path: Path):
        """The newest first; of one bundle where it is named."""
        with serving(pulsar, tmp_path) as api:
            planned = api.turn().plan.unloads
            assert api.engine.wait(PATIENCE_SECONDS)
            moves = api.get("/v1/moves").json()
            one = api.get("/v1/moves", params={"bundle": planned[0].bundle}).json()
            decisions = api.get("/v1/decisions", params={"last": 1}).json()
        assert {move["bundle"] for move in moves} == {unload.bundle for unload in planned}
        assert {move["result"] for move in moves} == {"landed"}
        assert [move["bundle"] for move in one] == [planned[0].bundle]
        assert [row["bundle"] for row in decisions[0]["unloads"]] == [unload.bundle for unload in planned]

    def test_explain_tells_of_a_broker_a_bundle_and_a_turn(self, api: Api, pulsar: FakePulsar):
        """What is not known is 404, and says what is."""
        assert api.get(f"/v1/explain/{pulsar.ids[0]}").json()["broker"] == pulsar.ids[0]
        assert api.get(f"/v1/explain/{HOT[0]}").json()["owner"] == pulsar.ids[0]
        assert api.get("/v1/explain/1").json()["turn"]["turn"] == 1
        assert api.get("/v1/explain").json()["turn"]["turn"] == 1
        unknown = api.get("/v1/explain/nobody:1")
        assert (unknown.status_code, pulsar.ids[0] in unknown.json()["detail"]) == (404, True)


class TestEvents:
    def test_each_turn_and_each_move_is_an_event(self, pulsar: FakePulsar, tmp_path: Path):
        """A turn with the status, a move with its outcome; the stream ends when lbd does."""
        with serving(pulsar, tmp_path) as api, api.get("/v1/events", stream=True) as stream:
            lines = stream.iter_lines(chunk_size=1, decode_unicode=True)
            assert next(lines) == "retry: 3000"
            planned = api.turn().plan.unloads
            found: list[tuple[str, dict[str, object]]] = []
            while len(found) < 1 + len(planned):
                line = next(lines)
                if line.startswith("event: "):
                    found.append((line.removeprefix("event: "), json.loads(next(lines).removeprefix("data: "))))
            api.serving.stop()
            assert [line for line in lines if line.startswith("event")] == []
        assert sorted(name for name, _ in found) == ["move"] * len(planned) + ["turn"]
        assert {data["bundle"] for name, data in found if name == "move"} == {one.bundle for one in planned}

    def test_there_are_places_for_so_many(self, api: Api, monkeypatch: pytest.MonkeyPatch):
        """One more is told to come back later; a place is free again when a listener has gone."""
        monkeypatch.setattr("lbd.api.published.LISTENERS", 1)
        with api.get("/v1/events", stream=True) as first:
            lines = first.iter_lines(chunk_size=1)
            next(lines)
            refused = api.get("/v1/events", stream=True)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")


def test_a_broker_that_answers_and_gives_no_report_is_told(api: Api, pulsar: FakePulsar):
    """Else nobody would miss it: it is in no table and no pair."""
    pulsar.fault("load-report", refused(500, "no"), broker=pulsar.ids[2])
    api.turn()
    (warning,) = api.get("/v1/status").json()["warnings"]
    assert warning.startswith(f"{pulsar.ids[2]} gives no report: GET ")
    assert "HTTP 500 (no)" in warning


def test_a_proposal_that_cannot_be_read_is_a_warning(api: Api):
    """It names the file, and turns go on."""
    run = put(api.engine.settings.state_dir, SECOND, b"junk")
    assert api.turn().error is None
    (warning,) = api.get("/v1/status").json()["warnings"]
    assert warning.startswith(f"{run}/summary.json: cannot be read: ")


class TestPort:
    def test_a_port_that_is_taken_costs_the_api_and_not_the_turns(self, pulsar: FakePulsar, tmp_path: Path):
        """The turn is made, and the status says what is missing."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            with serving(pulsar, tmp_path, {"listen": listen}) as api:
                record = api.turn()
                assert api.serving.board.last is not None
                status = api.serving.board.last.status
        assert record.observation is not None
        assert status.api is None
        assert status.warnings == [f"api.listen {listen}: cannot listen there: Address already in use"]

    def test_nothing_listens_after_the_end(self, api: Api):
        """The port is closed."""
        url = api.serving.url
        assert url is not None
        api.serving.stop()
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{url}/healthz", timeout=PATIENCE_SECONDS)
