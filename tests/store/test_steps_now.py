"""What a person should do about the process and its orders, whatever the last turn said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.reason import Reason
from lbd.remedy import next_step
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Work
from lbd.store.status import ENDED, BrokerStatus, Status, in_force, steps_now
from lbd.store.turn_record import Verdict
from tests.builders import state_begun

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lbd.store.turn_record import Kind

NOW = 1000.0


def status(**changes: Any) -> Status:
    """Of a turn that has just ended."""
    values = {"pid": 1, "version": "1", "at": NOW, "interval_seconds": 15, "next_turn_at": None, "turns": 1}
    return Status(**{**values, "cluster": "c", "sentence": "No move: it said so.", **changes})


@pytest.mark.parametrize(
    ("reason", "ordered", "over"),
    [
        (Reason.PAUSED, "paused", False),
        (Reason.PAUSED, "resumed", True),
        (Reason.PAUSED, "expired", True),
        (Reason.NOT_SERVED, "resumed", True),
        (Reason.CHANGED_HANDS, "resumed", True),
        (Reason.NOT_SERVED, "nothing", False),
        (Reason.QUIET_HOURS, "resumed", False),
    ],
)
@pytest.mark.parametrize("kind", ["blocked", "held"])
def test_a_hold_that_ended_since_the_turn(reason: Reason, ordered: str, over: bool, kind: Kind, tmp_path: Path) -> None:
    """Status, doctor, page and API name only what is in force; the sentence is the turn's."""
    control, steps = Control(state_begun(tmp_path / "state").path), [next_step(reason)]
    if ordered in {"paused", "expired"}:
        control.pause(Pause(NOW - 60, NOW - 1 if ordered == "expired" else None, "upgrade", "bob"))
    if ordered == "resumed":
        control.go_on(NOW + 1, "ann", "done")
    turned = status(hold=reason.label, verdict=Verdict(kind, reason.label), steps=steps, ended_by_resume=["it"])
    now, pause = in_force(turned, control, NOW + 2)
    assert (now.hold, now.sentence) == (None if over else reason.label, turned.sentence)
    assert now.verdict == (ENDED if over else turned.verdict)
    assert [step.reason for step in now.steps] == ["round-stopped" if over else reason.label]
    assert (pause is not None) is (ordered == "paused")
    resumed = (now.resumed is not None, now.ended_by_resume)
    assert resumed == ((True, []) if ordered == "resumed" else (False, ["it"]))


@pytest.mark.parametrize(
    ("reporting", "work", "reasons"),
    [
        (("a:80", "b:80"), None, []),
        (("b:80",), None, ["away"]),
        (
            ("b:80",),
            Work(kind="drain", broker="a:80", request="1", begun_at=1.0, owned=0, ended_at=NOW - 5),
            ["emptied"],
        ),
        ((), None, []),
    ],
    ids=["drained and there", "drained and away", "drained, empty and away", "nothing is known of any broker"],
)
def test_a_drained_broker(reporting: Collection[str], work: Work | None, reasons: list[str]) -> None:
    """A drain of a broker that never comes back is named until somebody ends it."""
    brokers = [BrokerStatus(name, 10.0, "cpu", 1.0, 1.0, 1) for name in reporting]
    steps = steps_now(
        status(brokers=brokers), 1, None, NOW, [(Drain("a:80", by="ann", since=NOW - 60, until=None, reason=""), work)]
    )
    assert [(step.reason, step.command) for step in steps] == [
        (reason, "lbd drain a:80 --release") for reason in reasons
    ]


@pytest.mark.parametrize(
    ("reporting", "says"),
    [
        (("a:80", "b:80"), "Restart a:80, unless somebody has or lbd rollout --exec does: it owns nothing"),
        (("b:80",), "Wait until a:80 is back, or start it: it is away, and the rollout goes on then"),
    ],
    ids=["to be restarted", "away"],
)
def test_a_broker_of_a_rollout(reporting: Collection[str], says: str) -> None:
    """Its drain is not to be released, which would stop the rollout; and that nothing is to be done is not so."""
    brokers = [BrokerStatus(name, 10.0, "cpu", 1.0, 1.0, 1) for name in reporting]
    drain = Drain("a:80", by="ann", since=NOW - 60, until=None, rollout="r")
    work = Work(kind="drain", broker="a:80", request="1", begun_at=1.0, owned=0, ended_at=NOW - 5)
    turned = status(brokers=brokers, steps=[next_step(Reason.MOVES_UNFINISHED)])
    steps = steps_now(turned, 1, None, NOW, [(drain, work)])
    assert [step.text(NOW) for step in steps] == [f"{says}; to stop the rollout instead: `lbd rollout --stop`"]
