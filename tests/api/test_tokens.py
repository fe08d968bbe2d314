"""Named tokens: who each is, what it may do, and what a broken file of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from structlog.testing import capture_logs

from lbd.api.token import Caller, TokenFiles
from tests.api.conftest import serving, working
from tests.fake_pulsar import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar

READ, OPERATE, ADMINISTER = (f"{role}-0123456789abcdef" for role in ("r", "o", "a"))
TOKENS = f"""
# who may what
prometheus read {READ}
ann operate {OPERATE}
bob@example.org administer {ADMINISTER}
"""
RESUME = {"owner": "somebody else"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def named(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd with three named tokens, and the one without a name, that executes commands."""
    (tmp_path / "tokens").write_text(TOKENS)
    thresholds = {"low_threshold": 95, "high_threshold": 99}
    with serving(pulsar, tmp_path, {"tokens_file": str(tmp_path / "tokens")}, avg_shedder=thresholds) as found:
        found.turn()
        with working(found):
            yield found


class TestRoles:
    @pytest.mark.parametrize(
        ("token", "resume", "override"),
        [(READ, 403, 403), (OPERATE, 200, 403), (ADMINISTER, 200, 200), ("wrong-0123456789abcdef", 401, 401)],
    )
    def test_what_a_role_may(self, named: Api, pulsar: FakePulsar, token: str, resume: int, override: int):
        """Read changes nothing, operate passes no limits, administer does both."""
        move = {**RESUME, "bundle": HOT[0], "destination": pulsar.ids[2], "override": "told to"}
        assert named.post("/v1/resume", RESUME, **bearer(token)).status_code == resume
        assert named.post("/v1/unload", move, **bearer(token)).status_code == override

    def test_a_refusal_says_what_is_missing(self, named: Api, pulsar: FakePulsar):
        """The name, its role, and the role that would do."""
        found = named.post("/v1/resume", RESUME, **bearer(READ))
        assert found.json()["detail"] == "prometheus has the role read; this needs operate"
        drain = {**RESUME, "broker": pulsar.ids[0], "override": "now"}
        found = named.post("/v1/drain", drain, **bearer(OPERATE))
        assert found.json()["detail"] == "ann has the role operate; override needs administer"

    def test_every_role_may_read_where_reading_needs_a_token(self, pulsar: FakePulsar, tmp_path: Path):
        """Elsewhere than on loopback, and without the token that has no name."""
        (tmp_path / "tokens").write_text(TOKENS)
        own = {"listen": "0.0.0.0:0", "token_file": None, "tokens_file": str(tmp_path / "tokens")}
        with serving(pulsar, tmp_path, own) as api:
            api.turn()
            assert api.get("/v1/status").status_code == 401
            for token in (READ, OPERATE, ADMINISTER):
                assert api.get("/v1/status", headers=bearer(token)).status_code == 200

    def test_the_token_without_a_name_may_everything(self, named: Api, pulsar: FakePulsar):
        """As before there were others."""
        move = {"owner": "eve", "bundle": HOT[0], "destination": pulsar.ids[2], "override": "told to"}
        assert named.post("/v1/unload", move).status_code == 200


class TestNames:
    def test_the_name_stands_for_who_asked(self, named: Api):
        """In the log and in a pause, whatever the request says."""
        with capture_logs() as log:
            found = named.post("/v1/pause", {"owner": "the boss", "reason": "upgrade"}, **bearer(OPERATE))
        assert found.json()["paused"]["by"] == "ann"
        assert [line["by"] for line in log if line["event"] == "change asked for over the API"] == ["ann"]
        assert OPERATE not in str(log)

    def test_and_in_the_journal(self, named: Api, pulsar: FakePulsar):
        """A move by hand is told with its name."""
        move = {**RESUME, "bundle": HOT[0], "destination": pulsar.ids[2]}
        assert named.post("/v1/unload", move, **bearer(OPERATE)).status_code == 200
        (told,) = named.get("/v1/moves").json()
        assert "ann" in str(told)
        assert "somebody else" not in str(told)


class TestFile:
    def test_it_is_read_again_when_it_changes(self, named: Api, tmp_path: Path):
        """A role that was taken away, and a token that was replaced."""
        (tmp_path / "tokens").write_text(f"ann read {OPERATE}\nbob administer new-0123456789abcdef\n")
        for token, status in ((OPERATE, 403), (ADMINISTER, 401), ("new-0123456789abcdef", 200)):
            assert named.post("/v1/resume", RESUME, **bearer(token)).status_code == status

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("ann operate", "line 1 has 2 words, wanted NAME ROLE TOKEN"),
            (f"\n#\nann root {OPERATE}", "line 3: the second word is no role; wanted read, operate, administer"),
            (f"an/n operate {OPERATE}", "line 1: the name may have letters, digits and"),
            ("ann operate short", "line 1: the token has 5 characters, wanted 16 or more"),
            (f"ann read {READ}\nann operate {OPERATE}", "line 2 repeats a name or a token"),
            (f"ann read {READ}\nbob operate {READ}", "line 2 repeats a name or a token"),
            (f"{OPERATE} operate ann", "line 1: the token has 3 characters"),
            ("", "api.tokens_file is empty"),
            (None, "api.tokens_file cannot be read: No such file or directory"),
        ],
    )
    def test_a_wrong_line_lets_nobody_in(self, tmp_path: Path, content: str | None, words: str):
        """Nobody of this file; the reason names the line and shows no token."""
        path, one = tmp_path / "tokens", tmp_path / "token"
        one.write_text("the-one-token")
        if content is not None:
            path.write_text(content)
        files = TokenFiles(one, path)
        for token in (READ, OPERATE, "ann"):
            status, why = files.caller(f"Bearer {token}")  # type: ignore[misc]
            assert (status, why.startswith(words) or words in why) == (503, True)
            assert token not in why or token == "ann"
        assert words in files.trouble
        assert files.caller("Bearer the-one-token") == Caller("", "administer")

    def test_trouble_is_told_by_the_status(self, named: Api, tmp_path: Path):
        """With the line, as long as it lasts."""
        (tmp_path / "tokens").write_text("ann operate")
        named.turn()
        assert any("api.tokens_file: line 1 has 2 words" in one for one in named.get("/v1/status").json()["warnings"])


class TestTwoApprovers:
    """``approvers: 2``: a plan is carried out once two people have applied it."""

    BODY: ClassVar = {**RESUME, "timeout_seconds": 120}

    @pytest.fixture
    def asking(self, pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
        """An lbd that has proposed a plan, and wants two names for it."""
        (tmp_path / "tokens").write_text(TOKENS)
        own = {"tokens_file": str(tmp_path / "tokens")}
        with serving(pulsar, tmp_path, own, mode="approve", approvers=2) as found:
            found.turn()
            with working(found):
                yield found

    def waiting(self, api: Api) -> tuple[str, list[str]]:
        """The plan's path, and who has approved it."""
        plan = api.get("/v1/plan").json()
        return f"/v1/plan/{plan['id']}/apply", plan["approved_by"]

    def test_the_second_name_begins_it(self, asking: Api, pulsar: FakePulsar):
        """The first one, also twice, moves nothing; the journal has both."""
        path, names = self.waiting(asking)
        assert names == []
        for _ in range(2):
            first = asking.post(path, self.BODY, **bearer(OPERATE))
            assert (first.status_code, first.json()["moves"]) == (200, []), first.text
            assert "is approved by ann and waits for another person until" in first.json()["sentence"]
        asking.turn()
        assert (self.waiting(asking), pulsar.asked("/unload")) == ((path, ["ann"]), [])
        second = asking.post(path, self.BODY, **bearer(ADMINISTER))
        assert second.status_code == 200, second.text
        moves = second.json()["moves"]
        assert {move["result"] for move in moves} == {"landed"}
        assert {move["reason"].partition(", ")[2] for move in asking.get("/v1/moves").json()} == {
            "ann and bob@example.org"
        }

    def test_a_name_that_anybody_can_write_does_not_count(self, asking: Api, pulsar: FakePulsar):
        """The token without a name proves nobody; a token that only reads approves nothing."""
        path, _ = self.waiting(asking)
        refused = asking.post(path, {**self.BODY, "owner": "bob"})
        assert (refused.status_code, "needs a name that is proven" in refused.json()["detail"]) == (403, True)
        assert asking.post(path, self.BODY, **bearer(READ)).status_code == 403
        assert (self.waiting(asking), pulsar.asked("/unload")) == ((path, []), [])

    def test_a_plan_that_does_not_wait_cannot_be_applied(self, pulsar: FakePulsar, tmp_path: Path):
        """With another mode nothing is kept until the second name comes."""
        (tmp_path / "tokens").write_text(TOKENS)
        thresholds = {"hit_count_high": 90, "hit_count_low": 90}
        own = {"tokens_file": str(tmp_path / "tokens")}
        with serving(pulsar, tmp_path, own, approvers=2, avg_shedder=thresholds) as api:
            api.turn()
            with working(api):
                path, _ = self.waiting(api)
                found = api.post(path, self.BODY, **bearer(OPERATE))
        assert (found.status_code, "does not wait for approval" in found.json()["detail"]) == (409, True), found.text
