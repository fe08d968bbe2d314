"""Changes over the API: a pause, its end, who asked, and that asking twice does it once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lbd.api.change import KEPT, Once
from lbd.api.problems import ProblemError
from lbd.store.control import Control

if TYPE_CHECKING:
    from tests.api.conftest import Api


class TestPause:
    def test_a_pause_holds_turns_and_is_told_everywhere(self, api: Api):
        """Who, why and until when: in the next turn, in the status and in the metrics."""
        found = api.post("/v1/pause", {"owner": "ann", "reason": "broker\nupgrade", "for_seconds": 600}).json()
        assert (found["paused"]["by"], found["paused"]["reason"], found["replaced"]) == ("ann", "broker upgrade", None)
        assert found["paused"]["until"] - found["paused"]["since"] == 600
        record = api.turn()
        assert record.plan.hold is not None
        assert record.plan.hold[0].label == "paused"
        assert api.get("/v1/status").json()["paused"] == found["paused"]
        assert 'lbd_paused{cluster="c"} 1.0' in api.get("/metrics").text

    def test_resume_ends_it_and_tells_what_was_there(self, api: Api):
        """Nothing in force is nothing ended."""
        paused = api.post("/v1/pause", {"owner": "ann"}).json()["paused"]
        assert api.post("/v1/resume", {"owner": "bob"}).json() == {"ended": paused, "running": os.getpid()}
        assert api.post("/v1/resume", {"owner": "bob"}).json() == {"ended": None, "running": os.getpid()}
        assert api.turn().plan.hold is None

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"owner": ""},
            {"owner": " \n"},
            {"owner": "a", "for_seconds": 0},
            {"owner": "a", "for_seconds": -5},
            {"owner": "a", "for_seconds": "NaN"},
            {"owner": "a", "for_seconds": 1e99},
            {"owner": "a", "bundle": "x"},
            {"owner": "a" * 101},
            [],
            None,
        ],
    )
    def test_junk_pauses_nothing(self, shared_api: Api, body: object):
        """422, with where it is."""
        assert shared_api.post("/v1/pause", body).status_code == 422
        assert Control(shared_api.engine.settings.state_dir).paused(0.0) is None

    def test_each_change_is_one_line_in_the_log(self, api: Api):
        """Who, why, what came of it; also of one that was refused."""
        with capture_logs() as log:
            api.post("/v1/pause", {"owner": "ann", "reason": "upgrade"})
        told = [line for line in log if line["event"] == "change asked for over the API"]
        assert [(line["by"], line["why"], line["result"]) for line in told] == [
            ("ann", "upgrade", "paused until it is resumed")
        ]

    def test_the_address_in_that_line_is_who_asked(self, api: Api):
        """And not what a header says: anybody can send one."""
        with capture_logs() as log:
            api.post("/v1/pause", {"owner": "ann"}, **{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"})
        told = [line["address"] for line in log if line["event"] == "change asked for over the API"]
        assert told == ["127.0.0.1"]


class TestOnce:
    def test_a_change_asked_for_again_is_done_once(self, api: Api):
        """The same answer under the same key; another change under it is 422."""
        first = api.post("/v1/pause", {"owner": "ann", "for_seconds": 60}, **{"Idempotency-Key": "k"}).json()
        again = api.post("/v1/pause", {"owner": "ann", "for_seconds": 60}, **{"Idempotency-Key": "k"}).json()
        other = api.post("/v1/pause", {"owner": "ann", "for_seconds": 61}, **{"Idempotency-Key": "k"})
        assert first == again
        assert other.status_code == 422
        assert api.post("/v1/pause", {"owner": "ann", "for_seconds": 60}).json()["replaced"] == first["paused"]

    def test_what_fails_may_be_asked_for_again(self):
        """An answer is kept, a failure is not."""
        once, tried = Once(lambda: 0.0), []

        def act() -> Any:
            tried.append(1)
            if len(tried) == 1:
                raise ProblemError(503, "not now")
            return "done"

        with pytest.raises(ProblemError):
            once.answer("k", b"", act)
        assert once.answer("k", b"", act) == once.answer("k", b"", act) == "done"
        assert len(tried) == 2

    def test_while_it_is_under_way_it_is_not_begun_again(self):
        """409 for who asks meanwhile."""
        once = Once(lambda: 0.0)
        with pytest.raises(ProblemError, match="under way"):
            once.answer("k", b"", lambda: once.answer("k", b"", lambda: "never"))  # type: ignore[arg-type,return-value]

    def test_old_answers_and_too_many_are_forgotten(self):
        """A day, and a thousand."""
        now, done = [0.0], []
        once = Once(lambda: now[0])

        def ask(key: str) -> None:
            once.answer(key, b"", lambda: done.append(key) or "done")  # type: ignore[arg-type,return-value,func-returns-value]

        ask("old")
        now[0] = 90_000.0
        ask("old")
        for number in range(KEPT):
            ask(str(number))
        ask("old")
        assert done.count("old") == 3
