"""Notifications of a running lbd: what it tells, and that no receiver holds it up or learns more than it may."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status, turn_end
from lbd.model import Skip
from lbd.notify.events import NOT_SENT
from lbd.reason import Reason
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains, Work, Works
from tests import test_turn
from tests.daemon.test_service import eventually, journal, running, settings_for
from tests.turn.records import altered
from tests.webhook import SECRET, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.daemon.test_service import Daemon
    from tests.fake_pulsar import FakePulsar
    from tests.webhook import Hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A receiver that takes everything."""
    with receiving() as found:
        yield found


def notifying(pulsar: FakePulsar, folder: Path, hook: Hook, **changes: Any) -> dict[str, Any]:
    """Settings with a webhook that hears of everything."""
    file = folder / "hook"
    file.write_text(hook.url)
    file.chmod(0o640)
    notify = {
        "url_file": str(file),
        "format": "json",
        "events": ["plan", "move", "failure"],
        "min_interval_seconds": 1,
    }
    return settings_for(pulsar, folder, notify=notify, **changes)


def events(hook: Hook, kind: str) -> list[dict[str, Any]]:
    """What it was told of that kind."""
    return [event for body in list(hook.bodies) for event in body["events"] if event["kind"] == kind]


def moves(hook: Hook) -> list[dict[str, Any]]:
    """The moves that it was told of."""
    return [move for event in events(hook, "move") for move in event["moves"]]


def lbd(daemon: Daemon, *words: str) -> str:
    """What a command beside the daemon prints."""
    return CliRunner().invoke(main, [*words, "--config", str(daemon.config)], prog_name="lbd").output


def test_moves_are_told(pulsar: FakePulsar, tmp_path: Path, hook: Hook):
    """With both ends and how each ended, as the journal has it."""
    with running(tmp_path, notifying(pulsar, tmp_path, hook)) as daemon:
        eventually(lambda: len(moves(hook)) == 3)
        assert daemon.end() == 0
    intents = [line for line in journal(tmp_path) if line["event"] == "intent"]
    assert {(one["bundle"], one["source"], one["destination"]) for one in moves(hook)} == {
        (one["bundle"], one["source"], one["destination"]) for one in intents
    }
    assert {(one["result"], one["owner"]) for one in moves(hook)} == {("landed", pulsar.ids[2])}


def test_a_plan_is_told_once_with_the_name_that_approves_it(pulsar: FakePulsar, tmp_path: Path, hook: Hook):
    """And its moves and scores, as lbd status has them."""
    with running(tmp_path, notifying(pulsar, tmp_path, hook, mode="approve")) as daemon:
        eventually(lambda: bool(events(hook, "plan")))
        status = json.loads(lbd(daemon, "status", "--format", "json"))
        for _ in range(6):
            daemon.notified.wait_for("STATUS=Proposes")
        assert daemon.end() == 0
    (plan,) = events(hook, "plan")
    proposal = status["proposal"]
    assert plan["text"].endswith(f": lbd apply {proposal['id']}")
    assert {key: plan["plan"][key] for key in ("id", "unloads", "expected", "clients")} == {
        key: proposal[key] for key in ("id", "unloads", "expected", "clients")
    }
    assert plan["scores"] == {one["id"]: one["score"] for one in status["brokers"] if one["id"] in proposal["expected"]}


@pytest.mark.security("a webhook that hangs: turns keep their pace, and a stop is in time")
def test_no_receiver_holds_turns_or_the_end_up(pulsar: FakePulsar, tmp_path: Path, hook: Hook):
    """Turns do not wait for it, moves are made, it is told in status, and the stop comes to its end."""
    hook.hangs = True
    with running(tmp_path, notifying(pulsar, tmp_path, hook)) as daemon:
        eventually(lambda: bool(hook.bodies))
        for _ in range(15):
            daemon.notified.wait_for("STATUS=")
        assert len(hook.bodies) < 15
        eventually(lambda: "takes no messages since" in lbd(daemon, "status"))
        assert daemon.end() == 0
    assert [line.get("result") for line in journal(tmp_path)].count("landed") == 3
    assert [line["event"] for line in daemon.lines()].count("notifications are not taken") == 1


WAYS_TO_LOOK = (("status", "--format", "json"), ("config", "show"), ("doctor", "--notify"))


@pytest.mark.security("the address of the webhook in log, status, doctor and settings, while it fails")
def test_the_address_is_shown_nowhere(pulsar: FakePulsar, tmp_path: Path, hook: Hook):
    """It is as good as a password: only its host is shown."""
    hook.answers = [500]
    with running(tmp_path, notifying(pulsar, tmp_path, hook, log={"level": "debug"})) as daemon:
        eventually(lambda: bool(hook.bodies))
        eventually(lambda: "takes no messages since" in lbd(daemon, "status"))
        shown = [lbd(daemon, *words) for words in WAYS_TO_LOOK]
        assert daemon.end() == 0
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "hook"]
    for text in (*shown, *(path.read_bytes().decode(errors="replace") for path in written)):
        assert SECRET[10:] not in text
    assert f"127.0.0.1:{hook.port} takes no messages since " in shown[0]
    assert str(tmp_path / "hook") in shown[1]
    assert f"notify: 127.0.0.1:{hook.port}: it answered 500 Internal Server Error" in " ".join(shown[2].split())


def test_a_reload_turns_it_off_and_on(pulsar: FakePulsar, tmp_path: Path, hook: Hook):
    """As all settings."""
    chosen = notifying(pulsar, tmp_path, hook, mode="approve")
    with running(tmp_path, {**chosen, "notify": {}}) as daemon:
        daemon.notified.wait_for("STATUS=Proposes")
        assert hook.bodies == []
        daemon.write(chosen)
        daemon.process.send_signal(1)
        daemon.notified.wait_for("RELOADING=1")
        daemon.notified.wait_for("STATUS=")
        pulsar.sample(81.0, 46.0, 11.0)  # a reload drops proposals, and a new sample proposes anew
        eventually(lambda: bool(events(hook, "plan")))
        assert daemon.end() == 0


# --- what a turn leaves


def test_what_events_are_made_from(pulsar: FakePulsar, tmp_path: Path):
    """Drains in force with their work, the pause, and moves that were not sent, unless a person held them."""
    chosen = test_turn.settings(pulsar, tmp_path)
    work = Work(kind="drain", broker=pulsar.ids[2], request="r", begun_at=1.0)
    with engine(chosen) as balancer:
        record = balancer.turn()
        drains, pause = Drains(chosen.state_dir), Pause(1.0, None, "no", "bob")
        drains.begin(Drain(pulsar.ids[2], 1.0, None, "ann"))
        drains.save(Works(drains={pulsar.ids[2]: work, pulsar.ids[1]: work}))
        Control(chosen.state_dir).pause(pause)
        skips = Skip("t/n/a", Reason.OWNER_CHANGED, "b has it"), Skip("t/n/b", Reason.PAUSED, "by bob")
        balancer.wait()
        record = altered(record, refused=skips)
        found = turn_end(balancer, record, build_status(balancer, record, 1, None))
    assert (found.leads, found.plan, found.works, found.pause) == (True, None, (work,), pause)
    assert [(one.bundle, one.result, one.detail) for one in found.ended] == [
        ("t/n/a", NOT_SENT, "owner-changed: b has it")
    ]
