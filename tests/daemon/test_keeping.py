"""What the daemon keeps of its turns and says of them, over kills and trouble; and the watchdog's news."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from lbd.cli import main
from lbd.config import Settings
from lbd.daemon.recorder import AGAIN_SECONDS, AlarmLog, Keeper
from lbd.daemon.status import turn_line
from lbd.model import Outcome, Result, Skip, Unload
from lbd.reason import Reason
from lbd.store.database import STORE_NAME
from lbd.store.history_round import HistorySettings
from lbd.store.status import read_status
from lbd.store.turns import KeptTurns
from lbd.turn.watchdog import Alarm
from tests.builders import bundle, state_begun
from tests.daemon.test_service import Daemon, eventually, running, settings_for
from tests.turn.records import COLD, HOT, altered, record, two

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar


def kept(folder: Path) -> list[int]:
    """Numbers of the turns kept, oldest first."""
    return [turn.turn for turn in reversed(list(KeptTurns(folder / "state")))]


def lbd(daemon: Daemon, *words: str) -> str:
    """What a command beside the daemon prints."""
    return CliRunner().invoke(main, [*words, "--config", str(daemon.config)], prog_name="lbd").output


def turn_lines(daemon: Daemon) -> list[dict[str, Any]]:
    """The lines of the log that tell of turns."""
    return [line for line in daemon.lines() if "turn" in line]


def test_what_a_line_of_the_log_tells_of_a_turn():
    """By names that a search relies on: what was decided and why, what came of it, and what the round cost."""
    waiting = record(two(), hold=(Reason.PAUSED, "by ann"))
    held = f"{HOT} -> {COLD}: paused: low samples 1/8, high samples 1/2"
    decided = {"verdict": "blocked", "why": "paused", "hold": "paused", "planned": 0, "outcomes": [], "unfinished": 0}
    assert turn_line(waiting) == decided | {"brokers": 2, "requests": 0, "seconds": 0.0, "skips": [held]}
    move = Unload(bundle(1), HOT, COLD, 1.0, 1.0)
    seen = record(two(), outcomes=(Outcome(move, Result.LANDED, COLD),), unfinished=(move,), unloads=(move, move))
    found = turn_line(altered(seen, skips=(Skip(bundle(2), Reason.COOL_DOWN), Skip("a", Reason.NO_TRAFFIC, "none"))))
    assert (found["planned"], found["unfinished"], found["skips"]) == (2, 1, ["a: no-traffic: none"])
    assert found["outcomes"] == [f"{move.bundle} landed {COLD}"]
    blind = turn_line(replace(seen, observation=None))
    assert (blind["brokers"], blind["requests"], blind["seconds"]) == (None, None, None)


def test_numbers_and_verdicts_are_told_everywhere_and_survive_kill_9(pulsar: FakePulsar, tmp_path: Path):
    """The number in the log names the turn for lbd explain, also after a kill and with no daemon at all."""
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=Moved")
        daemon.notified.wait_for("STATUS=No move")
        eventually((tmp_path / "state" / "status.json").exists)
        eventually(lambda: {"moving", "waiting"} <= {line["verdict"] for line in turn_lines(daemon)})
        status = json.loads(lbd(daemon, "status", "--format", "json"))
        daemon.process.kill()
        daemon.process.wait()
        before = turn_lines(daemon)
    assert (status["verdict"]["kind"], status["turn"] >= 1) == ("waiting", True)
    moving = next(line["turn"] for line in before if line["event"] == "Begins to move 3 bundles.")
    assert "Begins to move 3 bundles." in lbd(daemon, "explain", str(moving))

    (tmp_path / "notify").unlink()
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=No move")
        daemon.notified.wait_for("STATUS=No move")
        assert daemon.end() == 0
        after = turn_lines(daemon)
    assert after[0]["turn"] > max(kept_before := [line["turn"] for line in before][:-1])
    assert set(kept(tmp_path)) & set(kept_before)


def test_turns_that_cannot_be_kept_stop_nothing(pulsar: FakePulsar, tmp_path: Path):
    """The moves are made, and lbd status warns."""
    state_begun(tmp_path / "state")
    with closing(sqlite3.connect(tmp_path / "state" / STORE_NAME)) as store:
        store.execute("CREATE TRIGGER in_the_way BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'no'); END")
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=Moved")
        eventually(lambda: list(pulsar.owners.values()).count(pulsar.ids[2]) == 4)
        told = lbd(daemon, "status")
        assert daemon.end() == 0
    assert f"warning    {tmp_path / 'state' / STORE_NAME}: store is damaged: no; " in told
    assert "not kept for lbd explain, balancing goes on" in told


def test_an_alarm_is_a_warning_of_the_status(tmp_path: Path):
    """From the turn in which it begins to the one in which it ends."""
    keeper, samples, seen = Keeper(Settings(state_dir=tmp_path, history=HistorySettings(enabled=False))), {}, []
    for minute in range(22):
        wobble = minute * 0.01
        scene = two(80 + wobble, 20 + wobble) if minute < 20 else two(30 + wobble, 20 + wobble)
        told = record(scene, after_seconds=60.0 * minute, samples=samples, hold=(Reason.PAUSED, ""))
        samples = dict(told.facts.evidence.samples) if told.facts is not None else {}
        number = keeper.keep(replace(told, sentence="No move."), 0.0).number
        seen.append((number, keeper.warnings))
    keeper.close()
    words = f"{HOT} is 60.0 points above {COLD} for 19 min and nobody acted; lbd: blocked while lbd is paused"
    assert [number for number, _ in seen] == list(range(1, 23))
    assert [bool(warnings) for _, warnings in seen] == [False] * 16 + [True] * 4 + [False] * 2
    assert seen[19][1] == (words,)


def test_alarms_are_told_when_they_begin_at_a_slow_pace_and_when_they_end():
    """And one that comes back is a new one."""
    telling = AlarmLog()
    gap, zero = (Alarm(kind, HOT, 0.0, kind) for kind in ("gap", "zero"))
    steps = [
        (0.0, (gap,)),
        (15.0, (gap, zero)),
        (30.0, (gap,)),
        (AGAIN_SECONDS, (gap,)),
        (AGAIN_SECONDS + 15, (gap,)),
        (AGAIN_SECONDS + 30, ()),
        (AGAIN_SECONDS + 45, (gap,)),
    ]
    told = [[(change, alarm.kind) for change, alarm in telling.news(alarms, now)] for now, alarms in steps]
    assert told == [
        [("begins", "gap")],
        [("begins", "zero")],
        [("ended", "zero")],
        [("lasts", "gap")],
        [],
        [("ended", "gap")],
        [("begins", "gap")],
    ]


def test_the_status_of_an_older_lbd_is_still_read(tmp_path: Path):
    """It knows neither turn nor verdict."""
    old = {"format": 1, "pid": 1, "version": "0.1.0", "at": 1.0, "interval_seconds": 15, "next_turn_at": None}
    (tmp_path / "status.json").write_text(json.dumps({**old, "turns": 3, "cluster": "c", "sentence": "No move."}))
    found = read_status(tmp_path)
    assert (found.turn, found.verdict) == (0, None)
