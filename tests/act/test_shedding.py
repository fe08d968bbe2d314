"""Taking shedding over and giving it back: what is owed survives operators, restarts and kill -9 at any point."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lbd.act import override
from lbd.act.broker_shedding import SheddingSwitch
from lbd.act.ownership import ActClock
from lbd.errors import AdminError, LbdError, ObserveError, RefusedError, UsageError
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import Reply, ok, refused
from lbd.store.database import STORE_NAME, value
from lbd.store.state import TAKE_OVER, KeptTakeOver
from tests import fake_pulsar
from tests.builders import put_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

KEY = "loadBalancerSheddingEnabled"
NOW = 1_800_000_000.0
CHANGES = ("POST", "DELETE")


class Killed(BaseException):
    """What kill -9 is to the code under test."""


class Bench:
    """A cluster, a switch with a clock that is set by hand, and the note's file."""

    def __init__(self, pulsar: FakePulsar, folder: Path) -> None:
        self.pulsar, self.folder = pulsar, folder
        self.seconds = 0.0

    @property
    def switch(self) -> SheddingSwitch:
        """One of a process that was started just now."""
        admin = Admin(PulsarSettings(admin_urls=tuple(self.pulsar.urls)))
        return SheddingSwitch(admin, KeptTakeOver(self.folder), ActClock(lambda: self.seconds, self.sleep), self.now)

    def now(self) -> float:
        return NOW + self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def broker_conf(self, *shedding_enabled: str) -> None:
        """What each broker's own file says."""
        for broker, enabled in zip(self.pulsar.brokers, shedding_enabled, strict=True):
            broker.runtime = {KEY: enabled}

    def run_version(self, version: str) -> None:
        """The version of all brokers; below 3 a deleted override goes on until a restart."""
        for broker in self.pulsar.brokers:
            broker.version = version

    def override(self, value: str | None) -> None:
        """What an operator does by hand."""
        self.pulsar.dynamic = {} if value is None else {KEY: value}

    @property
    def present(self) -> str | None:
        return self.pulsar.dynamic.get(KEY)

    @property
    def running(self) -> list[str]:
        return [self.pulsar.configuration.running(broker.id)[KEY] for broker in self.pulsar.brokers]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Requests that change something."""
        found = [one for one in self.pulsar.requests if one.method in CHANGES]
        return [(one.method, one.path.rpartition("/")[2]) for one in found]

    def note(self) -> dict[str, Any] | None:
        """The note as it stands in the store."""
        content = value(self.folder / STORE_NAME, TAKE_OVER)
        return None if content is None else dict(json.loads(content))

    def put_note(self, content: str) -> None:
        """Another one in its place."""
        put_value(self.folder, TAKE_OVER, content.encode())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Three brokers whose own files turn shedding on."""
    with fake_pulsar.started() as cluster:
        found = Bench(cluster, tmp_path)
        found.broker_conf("true", "true", "true")
        yield found


class TestTakeOver:
    @pytest.mark.parametrize("before", [None, "true", "TRUE"])
    def test_it_is_off_everywhere_and_noted(self, before: str | None, bench: Bench) -> None:
        """The override is false, each broker runs with it, and the note says what was there."""
        bench.override(before)
        found = bench.switch.take_over()

        assert bench.present == "false"
        assert bench.running == ["false"] * 3
        assert found.brokers == tuple(sorted(bench.pulsar.ids))
        assert bench.note() == {
            "cluster": "c",
            "phase": "taken",
            "before": before,
            "ran": dict.fromkeys(bench.pulsar.ids, "true"),
            "at": NOW,
            "asked_at": NOW,
            "seen_at": NOW,
        }
        told = "has no override" if before is None else f"is overridden with {before}"
        assert str(found).endswith(
            f"on all 3 brokers, turned off by lbd; before: {KEY} {told} (lbd release gives it back)"
        )

    def test_the_note_is_there_before_the_override(self, bench: Bench) -> None:
        """Written, with phase taking, when the request comes; else kill -9 would lose what was there."""
        seen: list[Any] = []
        bench.pulsar.fault(KEY, Reply(200), method="POST", after_acting=True, then=lambda: seen.append(bench.note()))
        bench.switch.take_over()
        assert [(note["phase"], note["before"]) for note in seen] == [("taking", None)]

    @pytest.mark.parametrize(
        ("files", "override", "load_balancer"),
        [
            (["false"] * 3, None, "true"),
            (["true"] * 3, "false", "true"),
            (["true"] * 3, "abc", "true"),
            (["true"] * 3, None, "false"),
        ],
        ids=["broker.conf", "override", "nonsense override", "load balancer off"],
    )
    def test_nobody_sheds(self, files: list[str], override: str | None, load_balancer: str, bench: Bench) -> None:
        """Nothing is changed and nothing noted, so that release will not undo what lbd has not done."""
        bench.broker_conf(*files)
        bench.override(override)
        for broker in bench.pulsar.brokers:
            broker.runtime["loadBalancerEnabled"] = load_balancer
        found = bench.switch.take_over()

        assert (found.note, bench.note(), bench.changes) == (None, None, [])
        assert str(found) == "in-broker shedding is off on all 3 brokers; lbd changed nothing"

    def test_one_broker_sheds(self, bench: Bench) -> None:
        """Any broker may lead next, so one is enough."""
        bench.broker_conf("false", "false", "true")
        bench.switch.take_over()
        assert (bench.present, bench.running) == ("false", ["false"] * 3)

    def test_brokers_that_take_a_moment(self, bench: Bench) -> None:
        """200 is no proof: it is read back until the last broker runs with it."""
        third = bench.pulsar.ids[2]
        bench.pulsar.fault("/runtime", ok({KEY: "true", "clusterName": "c"}), broker=third, times=4)
        assert bench.switch.take_over().brokers == tuple(bench.pulsar.ids)
        assert 0 < bench.seconds < override.PATIENCE_SECONDS

    @pytest.mark.parametrize(
        ("reply", "told"),
        [
            (ok({KEY: "true"}), rf"not off: 127\.0\.0\.3:\d+ runs {KEY}=true, wanted false; it is set to false by lbd"),
            (refused(500, "boom"), r"not off: GET http://127\.0\.0\.3:\d+/.*/runtime: HTTP 500 \(boom\)"),
        ],
        ids=["sheds on", "cannot be asked"],
    )
    def test_a_broker_that_is_not_proven_off(self, reply: Reply, told: str, bench: Bench) -> None:
        """It is named; the note stays open, and the next try goes on."""
        bench.pulsar.fault("/runtime", reply, broker=bench.pulsar.ids[2])
        with pytest.raises(RefusedError, match=told):
            bench.switch.take_over()
        assert bench.seconds >= override.PATIENCE_SECONDS
        assert (bench.note() or {})["phase"] == "taking"
        bench.pulsar.faults.off()
        bench.switch.take_over()
        assert ((bench.note() or {})["phase"], (bench.note() or {})["before"]) == ("taken", None)

    def test_an_operators_false_that_a_broker_ignores(self, bench: Bench) -> None:
        """Nothing of lbd's is in play, so nothing is noted; the broker is named."""
        bench.override("false")
        bench.pulsar.fault("/runtime", ok({KEY: "true"}), broker=bench.pulsar.ids[2])
        with pytest.raises(RefusedError, match=r"127\.0\.0\.3:.* overridden with false, not by lbd"):
            bench.switch.take_over()
        assert (bench.note(), bench.changes) == (None, [])

    @pytest.mark.parametrize("status", [401, 500])
    def test_an_override_that_cannot_be_set(self, status: int, bench: Bench) -> None:
        """The error says what failed; what was there stays noted, and is still there."""
        bench.pulsar.fault(KEY, refused(status, "no"), method="POST")
        with pytest.raises(AdminError, match=f"POST http://.*{KEY}/false: HTTP {status}"):
            bench.switch.take_over()
        assert (bench.present, (bench.note() or {})["phase"]) == (None, "taking")

    def test_a_note_that_cannot_be_written(self, bench: Bench) -> None:
        """Nothing is changed."""
        bench.folder.rename(bench.folder.with_name("gone"))
        with pytest.raises(UsageError, match=r"lbd\.db: cannot be opened: No such file .*; without it"):
            bench.switch.take_over()
        assert bench.changes == []

    @pytest.mark.parametrize(
        ("content", "told"),
        [("{", "cannot be read"), ("{}", "cannot be read"), ("\x00", "cannot be read")],
    )
    @pytest.mark.parametrize("act", [SheddingSwitch.take_over, SheddingSwitch.release], ids=["take over", "release"])
    def test_a_note_that_cannot_be_read(
        self, act: Callable[[SheddingSwitch], object], content: str, told: str, bench: Bench
    ) -> None:
        """lbd does not guess what was there: it says what to do by hand, and changes nothing."""
        bench.put_note(content)
        with pytest.raises(
            UsageError, match=rf"lbd\.db: take-over {told}: .*; before that set or delete the override of {KEY} by hand"
        ):
            act(bench.switch)
        assert bench.changes == []

    @pytest.mark.parametrize("act", [SheddingSwitch.take_over, SheddingSwitch.release], ids=["take over", "release"])
    def test_a_note_of_another_cluster(self, act: Callable[[SheddingSwitch], object], bench: Bench) -> None:
        """admin_urls were changed meanwhile: the other cluster's override is not put into this one."""
        bench.switch.take_over()
        bench.put_note(json.dumps({**(bench.note() or {}), "cluster": "east"}))
        changes = bench.changes
        with pytest.raises(RefusedError, match=r"taken over from cluster 'east', and pulsar\.admin_urls lead to 'c'"):
            act(bench.switch)
        assert bench.changes == changes


class TestTakeOverAgain:
    @pytest.mark.parametrize(
        ("before", "by_hand", "owed"),
        [
            (None, "false", None),
            (None, None, None),
            (None, "true", "true"),
            (None, "TRUE", "TRUE"),
            ("true", "false", "true"),
            ("true", "true", "true"),
            ("true", "TRUE", "TRUE"),
            ("true", None, None),
        ],
    )
    def test_what_is_owed(self, before: str | None, by_hand: str | None, owed: str | None, bench: Bench) -> None:
        """What was there first, unless an operator meanwhile wished for something new; lbd's own false is no wish."""
        bench.override(before)
        bench.switch.take_over()
        bench.override(by_hand)
        bench.switch.take_over()
        assert (bench.present, (bench.note() or {})["before"]) == ("false", owed)
        bench.switch.release()
        assert (bench.present, bench.running, bench.note()) == (owed, ["true"] * 3, None)

    @pytest.mark.parametrize("before", [None, "true"])
    def test_since_when(self, before: str | None, bench: Bench) -> None:
        """Since lbd turned it off last; a look that finds it off is no new beginning."""
        bench.override(before)
        bench.switch.take_over()
        bench.seconds = 100.0
        bench.switch.take_over()
        assert (bench.note() or {})["at"] == NOW
        bench.override("true")
        bench.switch.take_over()
        assert (bench.note() or {})["at"] == NOW + 100

    @pytest.mark.parametrize(
        ("passed", "expected"), [(0, 0), (59, 0), (60, 60), (-10, -10)], ids=["at once", "59 s", "60 s", "clock back"]
    )
    def test_seen_off(self, passed: float, expected: float, bench: Bench) -> None:
        """Noted once a minute, so that a turn does not cost a write."""
        bench.switch.take_over()
        bench.seconds += passed
        bench.switch.confirm_off()
        assert (bench.note() or {})["seen_at"] == pytest.approx(NOW + expected)

    def test_seen_off_without_a_note(self, bench: Bench) -> None:
        """Where lbd took nothing over there is nothing to note."""
        bench.switch.confirm_off()
        assert bench.note() is None


class TestRelease:
    @pytest.mark.parametrize(
        ("before", "told"),
        [
            (None, f"Given back: {KEY} has no override again, as before lbd."),
            ("true", f"Given back: {KEY} is overridden with true again, as before lbd."),
            ("TRUE", f"Given back: {KEY} is overridden with TRUE again, as before lbd."),
        ],
    )
    @pytest.mark.parametrize("version", ["4.0.8", "2.11.0"])
    def test_it_is_as_it_was(self, version: str, before: str | None, told: str, bench: Bench) -> None:
        """The same override or none, and each broker runs with what it ran with, also where deleting does not do it."""
        bench.run_version(version)
        bench.override(before)
        bench.switch.take_over()
        assert bench.switch.release() == told
        assert (bench.present, bench.running, bench.note()) == (before, ["true"] * 3, None)
        assert bench.switch.release().startswith("Nothing to give back: lbd has not taken over in-broker shedding")

    @pytest.mark.parametrize(
        ("version", "running", "told"),
        [
            ("4.0.8", ["true", "true", "false"], "as before lbd."),
            ("2.11.0", ["true", "true", "true"], f":18080 runs {KEY}=true, unlike before lbd."),
        ],
    )
    def test_brokers_with_different_files(self, version: str, running: list[str], told: str, bench: Bench) -> None:
        """Each goes back to its own file; on 2.11 one that had it off is told of, since only a restart helps."""
        bench.broker_conf("true", "true", "false")
        bench.run_version(version)
        bench.switch.take_over()
        found = bench.switch.release()
        port = bench.pulsar.ids[2].rpartition(":")[2]
        assert found.endswith(told.replace(":18080", f"127.0.0.3:{port}"))
        assert (bench.present, bench.running, bench.note()) == (None, running, None)

    @pytest.mark.parametrize(
        ("before", "by_hand", "told"),
        [
            (
                None,
                "true",
                f"{KEY} is overridden with true, changed by somebody else since lbd turned it off (before lbd: ",
            ),
            ("true", None, f"{KEY} has no override, changed by somebody else since lbd turned it off (before lbd: "),
            ("true", "true", f"{KEY} is overridden with true, as before lbd; the note on it is removed."),
            (None, None, f"{KEY} has no override, as before lbd; the note on it is removed."),
        ],
    )
    def test_changed_by_hand(self, before: str | None, by_hand: str | None, told: str, bench: Bench) -> None:
        """What is not lbd's any more is left alone, said, and forgotten."""
        bench.override(before)
        bench.switch.take_over()
        bench.override(by_hand)
        changes = bench.changes
        assert bench.switch.release().startswith(f"Left as it is: {told}")
        assert (bench.present, bench.changes, bench.note()) == (by_hand, changes, None)

    @pytest.mark.parametrize(
        ("part", "reply", "told"),
        [
            (
                "/runtime",
                ok({KEY: "false", "clusterName": "c"}),
                rf"runs {KEY}=false \(and 2 more brokers\), wanted true; run lbd release again",
            ),
            ("/runtime", refused(500, "boom"), "HTTP 500"),
            (KEY, refused(503, "later"), "HTTP 503"),
            ("/values", refused(401, "Unauthorized"), "HTTP 401"),
        ],
        ids=["not taken", "cannot be asked", "not stored", "no rights"],
    )
    @pytest.mark.parametrize("before", [None, "true"])
    def test_it_cannot_be_proven(self, before: str | None, part: str, reply: Reply, told: str, bench: Bench) -> None:
        """Exit 3, the note is kept, and the next try gives back the same."""
        bench.override(before)
        bench.switch.take_over()
        bench.pulsar.fault(part, reply)
        with pytest.raises(ObserveError, match=told) as found:
            bench.switch.release()
        assert found.value.exit_code == 3
        assert (bench.note() or {})["before"] == before
        bench.pulsar.faults.off()
        bench.switch.release()
        assert (bench.present, bench.running, bench.note()) == (before, ["true"] * 3, None)

    def test_a_delete_that_did_nothing(self, bench: Bench) -> None:
        """200 is no proof here either."""
        bench.switch.take_over()
        bench.pulsar.fault(KEY, Reply(200), method="DELETE")
        with pytest.raises(ObserveError, match=f"{KEY} is overridden with true, wanted no override; run lbd release"):
            bench.switch.release()

    def test_nobody_answers(self, bench: Bench) -> None:
        """Exit 3, and the note is kept."""
        bench.switch.take_over()
        switch = bench.switch
        for broker in bench.pulsar.ids:
            bench.pulsar.kill(broker)
        with pytest.raises(AdminError, match="connection refused"):
            switch.release()
        assert bench.note() is not None


def _killed(bench: Bench, act: Callable[[SheddingSwitch], object], at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do it, and be killed before or after the request or the change of the note that comes at this place.

    Whether there was such a place.
    """
    steps = iter(range(1000))

    def step() -> None:
        if next(steps) == at:
            raise Killed

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            step()
            found = real(*arguments, **options)
            step()
            return found

        return wrapped

    with monkeypatch.context() as patched:
        for name in ("set_dynamic", "delete_dynamic"):
            patched.setattr(Admin, name, around(getattr(Admin, name)))
        for name in ("save", "remove"):
            patched.setattr(KeptTakeOver, name, around(getattr(KeptTakeOver, name)))
        try:
            act(bench.switch)
        except Killed:
            return True
    return False


@pytest.mark.parametrize(("before", "version"), [(None, "4.0.8"), (None, "2.11.0"), ("true", "4.0.8")])
class TestKilled:
    @pytest.mark.parametrize("at", range(6))
    @pytest.mark.parametrize("again", [False, True], ids=["then released", "then run again and released"])
    def test_while_taking_over(
        self, again: bool, at: int, before: str | None, version: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever was done, release gives back what was there, and a next run does not take lbd's false for it."""
        bench.run_version(version)
        bench.override(before)
        assert _killed(bench, SheddingSwitch.take_over, at, monkeypatch)
        if again:
            bench.switch.take_over()
            assert (bench.present, (bench.note() or {})["before"]) == ("false", before)
        bench.switch.release()
        assert (bench.present, bench.running, bench.note()) == (before, ["true"] * 3, None)

    @pytest.mark.parametrize("at", range(8))
    @pytest.mark.parametrize("again", [False, True], ids=["then released", "then run again and released"])
    def test_while_releasing(
        self, again: bool, at: int, before: str | None, version: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What lbd itself put back is not taken for an operator's wish, and is proven before it is forgotten."""
        bench.run_version(version)
        bench.override(before)
        bench.switch.take_over()
        _killed(bench, SheddingSwitch.release, at, monkeypatch)
        if again:
            bench.switch.take_over()
            assert (bench.present, (bench.note() or {})["before"]) == ("false", before)
        assert not bench.switch.release().startswith("Left as it is")
        assert (bench.present, bench.running, bench.note()) == (before, ["true"] * 3, None)


class TestUnderWay:
    def test_a_request_that_outlives_its_process(self, bench: Bench) -> None:
        """A killed process's request may come after the look at what is there; release waits until it cannot."""
        bench.pulsar.fault(KEY, refused(500, "slow"), method="POST", times=3)
        with pytest.raises(LbdError):
            bench.switch.take_over()

        def late(seconds: float) -> None:
            bench.seconds += seconds
            bench.override("false")

        bench.sleep = late  # type: ignore[method-assign]
        assert bench.switch.release().startswith("Given back")
        assert (bench.present, bench.running, bench.note()) == (None, ["true"] * 3, None)

    @pytest.mark.parametrize(("later", "waited"), [(0.0, 5.0), (3.0, 2.0), (6.0, 0.0), (-100.0, 0.0)])
    def test_the_wait_is_bounded(self, later: float, waited: float, bench: Bench) -> None:
        """Five seconds after it was asked for, or with a clock that went back, it is taken as never come."""
        bench.pulsar.fault(KEY, refused(500, "no"), method="POST", times=3)
        with pytest.raises(LbdError):
            bench.switch.take_over()
        bench.seconds += later
        began = bench.seconds
        assert bench.switch.release().startswith(f"Left as it is: {KEY} has no override, as before lbd")
        assert bench.seconds - began == pytest.approx(waited, abs=0.01)
