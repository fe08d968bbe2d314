"""Whole lbds that share a cluster over real HTTP, and a topic in memory: who moves, and what the next one knows."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.daemon import election
from lbd.daemon.engine import Engine, engine
from lbd.errors import UsageError
from lbd.model import Unload
from lbd.reason import Reason
from lbd.store.control import Control, Pause, RequestResult, UnloadRequest
from lbd.store.drains import Drain, Drains
from lbd.store.moves import history
from tests import test_turn
from tests.daemon.alone import done
from tests.fake_pulsar import HOT
from tests.leader_topic import Connection, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.config import Settings
    from tests.fake_pulsar import FakePulsar

PATIENCE_SECONDS = 60.0


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """What all lbds of a test find under ``leader.topic``."""
    found = Topic()
    monkeypatch.setattr(election, "SharedLog", lambda *_: Connection(found))
    monkeypatch.setattr(election.LeaderTopic, "create", lambda _: None)
    monkeypatch.setattr(election.LeaderTopic, "forget", lambda *_: None)
    for name in ("ELECT_EVERY_SECONDS", "AGAIN_AFTER_SECONDS"):
        monkeypatch.setattr(election, name, 0.01)
    return found


def settings(pulsar: FakePulsar, folder: Path, **changes: Any) -> Settings:
    """One of several, with a state directory of its own."""
    folder.mkdir(exist_ok=True)
    found = test_turn.settings(pulsar, folder, **changes)
    several = {"leader": {"enabled": True, **changes.get("leader", {})}}
    pulsar_section = found.pulsar.model_copy(update={"service_url": "pulsar://nowhere.example:6650"})
    return type(found).model_validate({**found.model_dump(exclude_unset=True), "pulsar": pulsar_section, **several})


@contextmanager
def lbd(pulsar: FakePulsar, folder: Path, *, leads: bool = True) -> Iterator[Engine]:
    """One that leads, or one that has heard who does."""
    with engine(settings(pulsar, folder)) as found:
        found.leading.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found.leading.leading if leads else " leads since " in found.leading.words):
            assert time.monotonic() < deadline, found.leading.words
            time.sleep(0.01)
        yield found


def request(pulsar: FakePulsar, bundle: str = HOT[0]) -> UnloadRequest:
    """One hot bundle to the cold broker, whatever limits say."""
    now = time.time()
    return UnloadRequest("r1", bundle, pulsar.ids[2], "it must", "ann", now, now + 60)


@pytest.mark.usefixtures("topic")
def test_only_the_leader_moves(pulsar: FakePulsar, tmp_path: Path):
    """The other one sees the same, says that it stands by, and asks nothing of any broker."""
    with lbd(pulsar, tmp_path / "one") as one, lbd(pulsar, tmp_path / "two", leads=False) as two:
        standby = two.turn()
        asked = len(pulsar.asked("/unload", "PUT"))
        leader = one.once()

    assert standby.plan.hold is not None
    assert standby.plan.hold[0] is Reason.NOT_LEADER
    assert standby.sentence.startswith("No move: not-leader: this lbd stands by, lbd-")
    assert standby.plan.unloads == ()
    assert asked == 0
    assert leader.moves.outcomes


@pytest.mark.usefixtures("topic")
def test_the_next_leader_lets_moved_bundles_rest(pulsar: FakePulsar, tmp_path: Path):
    """What the one before moved is in its journal, and the brokers that were touched have to settle."""
    with lbd(pulsar, tmp_path / "one") as one:
        moved = {outcome.unload.bundle for outcome in one.once().moves.outcomes}
    with lbd(pulsar, tmp_path / "two") as two:
        record = two.turn()

    assert moved
    assert {move.bundle for move in history(tmp_path / "two" / "state")} == moved
    assert record.facts is not None
    assert not record.facts.evidence.settled[: len(pulsar.ids)].all()


def test_the_next_leader_holds_what_was_ordered_before_it(pulsar: FakePulsar, tmp_path: Path, topic: Topic):
    """A pause and a drain of the one that is gone: nothing moves, and nothing goes to the drained broker."""
    now = time.time()
    with lbd(pulsar, tmp_path / "one") as one:
        Control(one.settings.state_dir).pause(Pause(now, None, "upgrade", "ann"))
        Drains(one.settings.state_dir).begin(Drain(pulsar.ids[2], now, now + 3600, "ann"))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(sum(key in line for line in topic.lines) for key in (b'"key":"pause"', b'"key":"drain ')):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    with lbd(pulsar, tmp_path / "two") as two:
        record = two.turn()
        drained = two.draining.drained()

    assert record.plan.hold == (Reason.PAUSED, "by ann until lbd resume: upgrade")
    assert drained == {pulsar.ids[2]}
    assert not pulsar.asked("/unload", "PUT")


@pytest.mark.usefixtures("topic")
def test_an_open_move_is_brought_to_its_end_first(pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It had landed when its lbd was killed: the next leader says so, in its own journal, before its first plan."""
    monkeypatch.setattr("lbd.act.executor.HEIR_WAITS_SECONDS", 0.0)
    with lbd(pulsar, tmp_path / "one") as one:
        one._real.journal.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0), 1)
        pulsar.owners[HOT[0]] = pulsar.ids[2]
    with lbd(pulsar, tmp_path / "two") as two:
        two.once()

    first = next(iter(history(tmp_path / "two" / "state")))
    assert (first.bundle, first.owner) == (HOT[0], pulsar.ids[2])
    assert first.result is not None


@pytest.mark.usefixtures("topic")
def test_a_command_waits_to_lead_and_is_refused_where_another_does(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Exit 4, nothing sent, no override passes it; where nobody leads it leads for as long as it takes."""
    monkeypatch.setattr("lbd.daemon.engine.LED_WITHIN_SECONDS", 0.5)
    with lbd(pulsar, tmp_path / "one"):
        refused = done(settings(pulsar, tmp_path / "two"), request(pulsar))
    assert not pulsar.asked("/unload", "PUT")
    monkeypatch.setattr("lbd.daemon.engine.LED_WITHIN_SECONDS", PATIENCE_SECONDS)
    moved = done(settings(pulsar, tmp_path / "two"), request(pulsar))

    assert (refused.exit_code, "not-leader: this lbd stands by" in refused.sentence) == (4, True)
    assert moved.exit_code == 0, moved.sentence


def test_a_topic_that_cannot_be_had_holds_everything(pulsar: FakePulsar, tmp_path: Path, topic: Topic):
    """And the reason is told."""
    topic.gone = True
    with engine(settings(pulsar, tmp_path / "one")) as one:
        one.leading.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "no broker has it" not in one.leading.words:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        record = one.turn()

    assert record.sentence.startswith("No move: not-leader: who leads is not known: the topic cannot be read")


@pytest.mark.usefixtures("topic")
def test_the_bundle_of_the_topic_stays(pulsar: FakePulsar, tmp_path: Path):
    """Whoever asks for its move, and with which reason."""
    own = {"topic": next(name for name in map("persistent://t/n/{}".format, range(9999)) if _in(name, HOT[0]))}
    chosen = settings(pulsar, tmp_path / "one", leader=own)
    answer = done(chosen, request(pulsar))

    assert (answer.exit_code, "leader-topic" in answer.sentence) == (4, True), answer.sentence
    assert not pulsar.asked("/unload", "PUT")


def _in(topic: str, bundle: str) -> bool:
    from lbd.permit.eligibility import carries

    return carries(bundle, topic)


@pytest.mark.usefixtures("topic")
def test_a_reload_does_not_change_who_takes_part(pulsar: FakePulsar, tmp_path: Path):
    """That wants a restart, and says so."""
    with (
        lbd(pulsar, tmp_path / "one") as one,
        pytest.raises(UsageError, match=r"leader: another value takes effect with a restart"),
    ):
        one.take(test_turn.settings(pulsar, tmp_path / "one"))


def test_without_a_service_url_there_is_no_leader(tmp_path: Path):
    """The configuration is refused: exit 2."""
    path = tmp_path / "lbd.yaml"
    path.write_text("leader: {enabled: true}\n")
    found = CliRunner().invoke(main, ["config", "check", "--config", str(path)])

    assert found.exit_code == 2
    assert "leader.enabled needs pulsar.service_url" in found.output


@pytest.mark.usefixtures("topic")
def test_a_standby_answers_at_once_whatever_its_journal_has_open(pulsar: FakePulsar, tmp_path: Path):
    """Moves that it left open when it was killed are the leader's to end."""
    with lbd(pulsar, tmp_path / "two") as killed:
        killed._real.journal.intend(Unload(HOT[0], pulsar.ids[0], pulsar.ids[2], 1.0, 1.0), 1)
    with lbd(pulsar, tmp_path / "one"), lbd(pulsar, tmp_path / "two", leads=False) as two:
        assert two.unfinished == ()
        answers: dict[str, RequestResult] = {}
        two.requests.deliver = answers.__setitem__
        two.requests.submit(request(pulsar))
        two.serve()

    assert answers["r1"].sentence.startswith("Refused: not-leader: this lbd stands by")
