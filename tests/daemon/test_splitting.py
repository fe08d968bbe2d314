"""Splits of a live lbd: by its rule, and by hand; what holds them, and what is left of them after a kill."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.daemon import standalone
from lbd.daemon.engine import Engine, engine
from lbd.errors import LbdError, RefusedError, UsageError
from lbd.model import Unload
from lbd.operations import split as splitting
from lbd.operations.split import plan_due, plan_one
from lbd.permit.evidence import Sample
from lbd.simulate.answers import refused
from lbd.split.plan import Cut, CutOutcome, SplitResult
from lbd.store.control import Control, Pause, RequestResult, SplitRequest, UnloadRequest
from lbd.store.journal import Journal, read
from lbd.store.state import TurnMemory
from tests import fake_splits, test_turn
from tests.act.test_executor import no_thread
from tests.builders import state_begun
from tests.daemon.alone import done
from tests.fake_splits import HIGH, LOW, NAMESPACE, UNOWNED
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.config import Settings
    from tests.fake_splits import SplittingPulsar

LOWER, UPPER = f"{NAMESPACE}/0x00000000_0x40000000", f"{NAMESPACE}/0x40000000_0x80000000"
AUTO = "loadBalancerAutoBundleSplitEnabled"


@pytest.fixture
def pulsar() -> Iterator[SplittingPulsar]:
    """Two bundles of six topics each; each carries 6,000 msg/s in and out."""
    with fake_splits.busy() as cluster:
        cluster.sample(50.0, 50.0, 50.0)
        yield cluster


def settings(pulsar: SplittingPulsar, folder: Path, **changes: Any) -> Settings:
    """lbd splits from 5,000 msg/s on; its strategy wants nothing."""
    shedder = {"low_threshold": 95, "high_threshold": 99}
    split = {"enabled": True, "max_msg_rate": 5000, **changes.pop("split", {})}
    return test_turn.settings(pulsar, folder, avg_shedder=shedder, split=split, **changes)


def request(pulsar: SplittingPulsar, **changes: Any) -> SplitRequest:
    """The lower bundle in its middle, as a person would ask for it."""
    now = time.time()
    values = {"id": "s0", "bundle": LOW, "owner": pulsar.ids[0], "algorithm": "range_equally_divide"}
    asked = {"positions": (0x40000000,), "override": None, "by": "ann", "at": now, "expires_at": now + 60}
    return SplitRequest(**{**values, **asked, **changes})


def watched(found: Engine) -> list[CutOutcome | LbdError]:
    """What the engine tells of splits."""
    told: list[CutOutcome | LbdError] = []
    found.splitting.on_end = told.append
    return told


def fresh(pulsar: SplittingPulsar, found: Engine, times: int = 1) -> None:
    """Turns with new samples, each to the end of what it began."""
    for number in range(times):
        pulsar.sample(*(50.0 + number + len(pulsar.requests) / 1e4 + at for at in range(3)))
        found.turn()
        found.wait()


class TestRule:
    def test_the_largest_bundle_is_split(self, pulsar: SplittingPulsar, tmp_path: Path):
        """One a turn; the journal has intent and outcome. The old name rests, the parts may be moved at once."""
        pulsar.rates[HIGH] = 4000.0
        with engine(settings(pulsar, tmp_path)) as found:
            told = watched(found)
            fresh(pulsar, found)
        [ended] = told
        assert isinstance(ended, CutOutcome)
        assert (ended.result, ended.cut.bundle, ended.cut.reason) == (
            SplitResult.SPLIT,
            HIGH,
            "8,000 exceeds split.max_msg_rate 5,000",
        )
        past = read(tmp_path / "state" / "lbd.db")
        assert set(past.attempted_at) == {HIGH}
        assert set(past.split_or_attempted_at) == {HIGH, *ended.parts}
        assert [one.end.result for one in past.splits if one.end is not None] == [SplitResult.SPLIT]

    def test_a_thread_that_could_not_be_had_fails_no_turn(
        self, pulsar: SplittingPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """It is told as a split that was not tried, and the next turn begins it; a person's is answered."""
        answers: dict[str, RequestResult] = {}
        with engine(settings(pulsar, tmp_path)) as found:
            told, found.requests.deliver = watched(found), answers.__setitem__
            with monkeypatch.context() as full:
                no_thread(full, "lbd-split")
                fresh(pulsar, found)
                found.requests.submit(request(pulsar))
                found.serve()
            fresh(pulsar, found)
        assert [str(one) for one in told[:1]] == ["can't start new thread"]
        assert isinstance(told[-1], CutOutcome)
        assert answers["s0"].sentence == "Not split: can't start new thread"

    def test_the_parts_rest(self, pulsar: SplittingPulsar, tmp_path: Path):
        """What was split a moment ago is not split again, though it is still too large."""
        with engine(settings(pulsar, tmp_path, split={"max_msg_rate": 10})) as found:
            told = watched(found)
            fresh(pulsar, found, 4)
        assert sorted(one.cut.bundle for one in told if isinstance(one, CutOutcome)) == [LOW, HIGH]

    @pytest.mark.parametrize(
        ("changes", "splits"),
        [
            ({}, 1),
            ({"split": {"enabled": False}}, 0),
            ({"split": {"max_msg_rate": 6000}}, 0),
            ({"split": {"max_bundles_per_namespace": 2}}, 0),
            ({"split": {"max_bundles_per_namespace": 3}}, 1),
            ({"guardrails": {"excluded_namespaces": ["shop/*"]}}, 0),
            ({"guardrails": {"include_namespaces": ["x/y"]}}, 0),
            ({"guardrails": {"canary": {"namespaces": ["x/y"]}}}, 0),
            ({"guardrails": {"canary": {"namespaces": ["shop/*"]}}}, 1),
            ({"guardrails": {"quiet_hours": [{"from": "00:00", "to": "24:00"}]}}, 0),
        ],
    )
    def test_caps(self, changes: dict[str, Any], splits: int, pulsar: SplittingPulsar, tmp_path: Path):
        """By default nothing; otherwise no more than each limit allows."""
        with engine(settings(pulsar, tmp_path, **changes)) as found:
            fresh(pulsar, found)
        assert len(pulsar.asked("/split", "PUT")) == splits

    def test_the_hour_is_counted_over_restarts(self, pulsar: SplittingPulsar, tmp_path: Path):
        """By the journal."""
        chosen = settings(pulsar, tmp_path, split={"max_splits_per_hour": 1})
        for _ in range(2):
            with engine(chosen) as found:
                fresh(pulsar, found)
        assert len(pulsar.asked("/split", "PUT")) == 1

    def test_an_old_sample_splits_nothing(self, pulsar: SplittingPulsar, tmp_path: Path):
        """The second turn sees the same numbers as the first."""
        chosen = settings(pulsar, tmp_path)
        usage = {broker: Sample((50.0, 0.0, 0.0), 1_700_000_000.0) for broker in pulsar.ids}
        state_begun(chosen.state_dir).save(TurnMemory(written_at=time.time(), samples=usage, members=pulsar.ids))
        with engine(chosen) as found:
            found.turn()
            found.wait()
        assert not pulsar.asked("/split", "PUT")

    def test_a_part_without_topics_is_not_cut_off(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Pulsar would; it helps nobody, and cannot be taken back."""
        kept = [topic.name for topic in pulsar.topics(UPPER)][:2]
        pulsar.rated = {name: rate for name, rate in pulsar.rated.items() if name in kept}
        with engine(settings(pulsar, tmp_path)) as found:
            fresh(pulsar, found)
        assert not pulsar.asked("/split", "PUT")
        assert "would have no topics" in plan_due(settings(pulsar, tmp_path)).unsplit[0].why

    def test_brokers_that_split_by_themselves(self, pulsar: SplittingPulsar, tmp_path: Path):
        """lbd does not, and says so until they do not."""
        pulsar.dynamic[AUTO] = "true"
        with engine(settings(pulsar, tmp_path)) as found:
            fresh(pulsar, found)
            assert "lbd splits nothing" in "".join(found.warnings)
            assert not pulsar.asked("/split", "PUT")
            del pulsar.dynamic[AUTO]
            fresh(pulsar, found)
            assert found.warnings == ()
        assert pulsar.asked("/split", "PUT")

    def test_a_pause_holds_it(self, pulsar: SplittingPulsar, tmp_path: Path):
        """As it holds moves."""
        chosen = settings(pulsar, tmp_path)
        Control(state_begun(chosen.state_dir).path).pause(Pause(time.time(), None, "", "ann"))
        with engine(chosen) as found:
            fresh(pulsar, found)
        assert not pulsar.asked("/split", "PUT")

    @pytest.mark.parametrize("mode", ["observe", "approve"])
    def test_an_lbd_that_may_not_act_by_itself_splits_nothing(self, mode: str, pulsar: SplittingPulsar, tmp_path: Path):
        """Observing, or with approval of its plans."""
        with engine(settings(pulsar, tmp_path).model_copy(update={"mode": mode})) as found:
            fresh(pulsar, found)
        assert not pulsar.asked("/split", "PUT")

    def test_what_cannot_be_tried_is_told(self, pulsar: SplittingPulsar, tmp_path: Path):
        """The journal cannot be written: nothing is asked for."""
        with engine(settings(pulsar, tmp_path)) as found:
            told = watched(found)
            refuse = "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.journal BEGIN SELECT 1 FROM nowhere; END"
            found._real.journal._store._connection.execute(refuse)
            fresh(pulsar, found)
        assert not pulsar.asked("/split", "PUT")
        assert any("store cannot be read or written" in str(one) for one in told), told


class TestByHand:
    def test_with_none_running(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Under the state lock, to its end."""
        answer = done(settings(pulsar, tmp_path), request(pulsar))
        assert (answer.exit_code, answer.owner, answer.parts) == (0, pulsar.ids[0], (LOWER, UPPER))
        assert answer.sentence.startswith(f"{LOW}: split into 2 at {pulsar.ids[0]} in 0.")

    def test_a_state_directory_that_is_held(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Another lbd works on it."""
        chosen = settings(pulsar, tmp_path)
        with engine(chosen), pytest.raises(RefusedError):
            done(chosen, request(pulsar))

    def test_beside_the_turns(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Taken in the order of requests, and answered."""
        told: dict[str, RequestResult] = {}
        with engine(settings(pulsar, tmp_path, split={"enabled": False})) as found:
            found.requests.deliver = told.__setitem__
            found.requests.submit(request(pulsar))
            found.turn()
            found.serve()
            found.wait()
        answer = told["s0"]
        assert (answer.exit_code, answer.parts) == (0, (LOWER, UPPER))

    @pytest.mark.parametrize(
        ("changes", "asked", "code", "words"),
        [
            ({"split": {"max_bundles_per_namespace": 2}}, {}, 4, "would have 3 bundles"),
            ({"guardrails": {"quiet_hours": [{"from": "00:00", "to": "24:00"}]}}, {}, 4, "quiet-hours"),
            ({}, {"owner": "127.0.0.9:1"}, 4, "owns it, not 127.0.0.9:1"),
            ({}, {"bundle": UNOWNED, "positions": (5,)}, 4, "nobody owns it"),
            ({}, {"bundle": f"{NAMESPACE}/0x00000000_0x40000000", "positions": (5,)}, 2, "is no bundle"),
        ],
    )
    def test_refused(
        self,
        changes: dict[str, Any],
        asked: dict[str, Any],
        code: int,
        words: str,
        pulsar: SplittingPulsar,
        tmp_path: Path,
    ):
        """Exit 4, or 2 for what is no bundle; nothing sent, no line in the journal."""
        answer = done(settings(pulsar, tmp_path, **changes), request(pulsar, **asked))
        assert (answer.exit_code, words in answer.sentence) == (code, True), answer.sentence
        assert not pulsar.asked("/split", "PUT")
        assert read(tmp_path / "state" / "lbd.db").splits == ()

    @pytest.mark.parametrize(
        ("bundle", "excluded", "reason"),
        [
            (LOW, (NAMESPACE,), "excluded-namespace"),
            ("pulsar/system/0x00000000_0xffffffff", (), "system-namespace"),
            ("pulsar/127.0.0.1:8080/0x00000000_0xffffffff", (), "broker-bundle"),
        ],
    )
    def test_what_is_left_alone(
        self, bundle: str, excluded: tuple[str, ...], reason: str, pulsar: SplittingPulsar, tmp_path: Path
    ):
        """Not even with an override: exit 4, nothing sent."""
        chosen = settings(pulsar, tmp_path, guardrails={"excluded_namespaces": excluded})
        answer = done(chosen, request(pulsar, bundle=bundle, positions=(5,), override="I must"))
        assert (answer.exit_code, answer.sentence) == (4, f"Refused: {reason}: nothing is split there, whoever asks.")
        assert not pulsar.asked("/split", "PUT")

    @pytest.mark.parametrize(("override", "code"), [(None, 4), ("the disk is full", 0)])
    def test_limits_may_be_overridden(self, override: str | None, code: int, pulsar: SplittingPulsar, tmp_path: Path):
        """A pause, a cool-down, the hour and the namespace's number of bundles."""
        chosen = settings(pulsar, tmp_path, split={"max_bundles_per_namespace": 2, "max_splits_per_hour": 1})
        Control(state_begun(chosen.state_dir).path).pause(Pause(time.time(), None, "", "ann"))
        lines = Journal(state_begun(chosen.state_dir).store, time.time)
        lines.conclude_split(lines.intend_split(Cut(LOW, "b", "range_equally_divide", (1,))), outcome(LOW))
        lines.close()
        assert done(chosen, request(pulsar, override=override)).exit_code == code

    def test_what_came_of_it_is_told_as_it_is(self, pulsar: SplittingPulsar, tmp_path: Path):
        """412 and a whole range: exit 5."""
        pulsar.fault("/split", refused(412, "Unsupported namespace bundle split algorithm"))
        answer = done(settings(pulsar, tmp_path), request(pulsar))
        assert answer.exit_code == 5
        assert f"{LOW}: not-split in " in answer.sentence
        assert "HTTP 412 (Unsupported namespace bundle split algorithm)" in answer.sentence

    def test_moves_under_way_come_first(self, pulsar: SplittingPulsar, tmp_path: Path):
        """One that a killed lbd left open is no longer that of this very name after a split."""
        chosen = settings(pulsar, tmp_path)
        lines = Journal(state_begun(chosen.state_dir).store, time.time)
        lines.intend(Unload(LOW, pulsar.ids[0], pulsar.ids[1], 1.0, 1.0), 1)
        lines.close()
        answer = done(chosen, request(pulsar, override="now"))
        assert (answer.exit_code, "moves-unfinished" in answer.sentence) == (4, True), answer.sentence

    @pytest.mark.parametrize("paused", [False, True])
    def test_a_split_under_way_comes_first(self, paused: bool, pulsar: SplittingPulsar, tmp_path: Path):
        """One that a killed lbd left open, whatever is overridden: of another split, and of an unload."""
        chosen = settings(pulsar, tmp_path)
        if paused:
            Control(state_begun(chosen.state_dir).path).pause(Pause(time.time(), None, "", "ann"))
        lines = Journal(state_begun(chosen.state_dir).store, time.time)
        lines.intend_split(Cut(HIGH, pulsar.ids[1], "range_equally_divide", (0xC0000000,)))
        lines.close()
        now = time.time()
        unload = UnloadRequest("u0", LOW, pulsar.ids[1], "now", "ann", now, now + 60)
        for asked in (request(pulsar, override="now"), unload):
            with standalone.working(chosen) as work:
                answer = work(asked)
            assert (answer.exit_code, f"a split is under way: {HIGH}" in answer.sentence) == (4, True), answer.sentence

    @pytest.mark.parametrize(("override", "splits", "words"), [(None, 0, "paused"), ("a burner", 1, "split into 2")])
    def test_a_pause_while_its_intent_is_written(
        self,
        override: str | None,
        splits: int,
        words: str,
        pulsar: SplittingPulsar,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """The leader topic may take ten seconds for that: nothing is sent then, unless the person passes pauses."""
        intend = Journal.intend_split

        def paused(journal: Journal, cut: Cut) -> str:
            Control(tmp_path / "state").pause(Pause(time.time(), None, "", "bob"))
            return intend(journal, cut)

        monkeypatch.setattr(Journal, "intend_split", paused)
        answer = done(settings(pulsar, tmp_path), request(pulsar, override=override))
        assert (len(pulsar.asked("/split", "PUT")), words in answer.sentence) == (splits, True), answer.sentence

    def test_what_was_cut_is_told_though_it_cannot_be_written(
        self, pulsar: SplittingPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """The disk is full after the request: the bundle is split, and the next turn closes the journal, silently."""

        def full(_: Any, __: str, ___: CutOutcome) -> None:
            raise UsageError("lbd.db: journal cannot be written: No space left on device")

        conclude = Journal.conclude_split
        monkeypatch.setattr(Journal, "conclude_split", full)
        told: list[CutOutcome | LbdError] = []
        with engine(settings(pulsar, tmp_path, split={"enabled": False})) as found:
            found.splitting.on_end = told.append
            answers: dict[str, RequestResult] = {}
            found.requests.deliver = answers.__setitem__
            found.by_hand(request(pulsar))
            monkeypatch.setattr(Journal, "conclude_split", conclude)
            found.turn()
        [split] = read(tmp_path / "state" / "lbd.db").splits
        assert split.end is not None
        assert split.end.result is SplitResult.SPLIT
        assert (answers["s0"].exit_code, answers["s0"].parts) == (0, (LOWER, UPPER))
        assert "the journal has no end of it: lbd.db: " in answers["s0"].sentence
        assert [one.result for one in told if isinstance(one, CutOutcome)] == [SplitResult.SPLIT]

    def test_a_bug_is_told_as_one_of_a_split(
        self, pulsar: SplittingPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Not of a move."""
        monkeypatch.setattr("lbd.act.split.Splitter.check", lambda *_: 1 // 0)
        answer = done(settings(pulsar, tmp_path), request(pulsar))
        assert (answer.exit_code, answer.sentence.partition(": ")[0]) == (1, "Not split")

    def test_an_lbd_that_only_observes_refuses(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Whatever is overridden."""
        with engine(settings(pulsar, tmp_path).model_copy(update={"mode": "observe"})) as found:
            told: dict[str, RequestResult] = {}
            found.requests.deliver = told.__setitem__
            found.requests.submit(request(pulsar, override="now"))
            found.serve()
        assert (told["s0"].exit_code, "only observes" in told["s0"].sentence) == (4, True)


def outcome(bundle: str) -> CutOutcome:
    """A split that ended well."""
    return CutOutcome(Cut(bundle, "b", "range_equally_divide", (1,)), SplitResult.SPLIT, (1,))


class TestAfterAKill:
    def opened(self, pulsar: SplittingPulsar, folder: Path, age_seconds: float) -> Settings:
        """A state directory whose journal has an open split of the lower bundle."""
        chosen = settings(pulsar, folder, split={"enabled": False})
        lines = Journal(state_begun(chosen.state_dir).store, lambda: time.time() - age_seconds)
        lines.intend_split(Cut(LOW, pulsar.ids[0], "range_equally_divide", (0x40000000,)))
        lines.close()
        return chosen

    def test_it_gets_its_true_outcome(self, pulsar: SplittingPulsar, tmp_path: Path):
        """The boundaries are there: it was split."""
        chosen = self.opened(pulsar, tmp_path, 1.0)
        pulsar.split(LOW, [0x40000000])
        with engine(chosen) as found:
            told = watched(found)
            found.turn()
        [ended] = told
        assert isinstance(ended, CutOutcome)
        assert (ended.result, ended.detail) == (SplitResult.SPLIT, "found open after a restart")

    def test_it_holds_moves_until_it_is_told(self, pulsar: SplittingPulsar, tmp_path: Path):
        """A broker may be at it still."""
        with engine(self.opened(pulsar, tmp_path, 0.0)) as found:
            record = found.turn()
        assert record.plan.hold is not None
        assert (record.plan.hold[0].label, LOW in record.plan.hold[1]) == ("moves-unfinished", True)

    def test_a_whole_range_was_not_split(self, pulsar: SplittingPulsar, tmp_path: Path):
        """After the time that an answer is waited for; it does not hold any more."""
        with engine(self.opened(pulsar, tmp_path, LIMIT_SECONDS)) as found:
            told = watched(found)
            record = found.turn()
        assert [one.result for one in told if isinstance(one, CutOutcome)] == [SplitResult.NOT_SPLIT]
        assert record.plan.hold is None

    def test_a_clock_that_was_set_back_holds_no_moves_for_longer(
        self, pulsar: SplittingPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """By its time the split is an hour ahead; this lbd has known of it for longer than a broker works on one."""
        boot = [1000.0]
        monkeypatch.setattr(splitting, "CLOCK", replace(splitting.CLOCK, boot=lambda: boot[0]))
        with engine(self.opened(pulsar, tmp_path, -3600.0)) as found:
            assert found.turn().plan.hold is not None
            boot[0] += LIMIT_SECONDS
            assert found.turn().plan.hold is None


class TestPlans:
    def test_auto_is_told_without_splitting(self, pulsar: SplittingPulsar, tmp_path: Path):
        """With the caps, and what is left and why; whether lbd is enabled to or not."""
        found = plan_due(settings(pulsar, tmp_path, split={"enabled": False}))
        assert found.chosen is not None
        assert (found.chosen[0].bundle, found.chosen[1].positions) == (LOW, (0x40000000,))
        why = "one split a turn: the next reports show its effect"
        assert [(one.bundle, one.why) for one in found.unsplit] == [(HIGH, why)]
        assert not pulsar.asked("/split", "PUT")

    def test_auto_beside_brokers_that_split(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Exit 4."""
        pulsar.dynamic[AUTO] = "true"
        with pytest.raises(RefusedError, match="the brokers split by themselves"):
            plan_due(settings(pulsar, tmp_path))

    def test_one(self, pulsar: SplittingPulsar, tmp_path: Path):
        """Topics that are not loaded count as topics."""
        found = plan_one(settings(pulsar, tmp_path), LOW, "topic_count_equally_divide")
        assert found.before.topics == len(pulsar.topics(LOW))
