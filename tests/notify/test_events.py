"""What is an event, and what is none: turn after turn, by what each left."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lbd.notify.events import NOT_SENT, Announced, EndedMove, Event, TurnEnd, merged, news
from lbd.reason import Reason
from lbd.remedy import next_step
from lbd.store.control import Pause
from lbd.store.drains import RemainingBundle, Work
from lbd.store.proposal import Proposal, ProposedMove
from lbd.store.status import BrokerStatus, Status
from lbd.store.turn_record import Verdict

AT = 1_800_000_000.0
HOUR = 3600.0
A, B, C = "a:8080", "b:8080", "c:8080"
BLOCKED = Verdict("blocked", "unloads-per-hour", "30 of 30, the next one in 50 min")
BALANCED = Verdict("balanced")
LANDED = EndedMove("t/n/0x0_0x1", "landed", A, B, B)


def left(after: float = 0.0, **changes: Any) -> TurnEnd:
    """What a turn left, so many seconds after the first."""
    status = {name: changes.pop(name) for name in set(changes) & set(Status.__struct_fields__)}
    usual = {"verdict": BALANCED, "brokers": [BrokerStatus(A, 80.0, "cpu", 1.0, 1.0, 9)]}
    found = Status(
        pid=1,
        version="1",
        at=AT + after,
        interval_seconds=15,
        next_turn_at=None,
        turns=1,
        cluster="c",
        sentence="No move.",
        **{**usual, **status},
    )
    return TurnEnd(found, **{"leads": True, **changes})


def plan(*ends: tuple[str, str], number: int = 1, name: str = "1f3a9c2e") -> Proposal:
    """A plan with so many moves between each of these brokers."""
    moves = [
        ProposedMove(f"t/n/0x{at}_0x{at + 1}", source, destination, 100.0, 1.0, "hot", 4)
        for source, destination in ends
        for at in range(number)
    ]
    return Proposal(name, AT, AT + 600, moves, {A: 60.0, B: 40.0}, 4 * len(moves))


def drained(*bundles: str, ended: bool = True, code: int = 4) -> Work:
    """A drain that left these bundles."""
    rest = [RemainingBundle(bundle, "sole-bundle") for bundle in bundles]
    at = AT if ended else None
    return Work(kind="drain", broker=B, request="r", begun_at=AT, ended_at=at, left=rest, exit_code=code, sentence="S.")


def pause(hours: float, **changes: Any) -> Pause:
    """A pause that began so many hours before the first turn."""
    return msgspec.structs.replace(Pause(AT - hours * HOUR, None, "upgrade", "ann"), **changes)


def told(*turns: TurnEnd) -> list[list[Event]]:
    """The events of each turn."""
    known, found = Announced(leads=True), []
    for one in turns:
        known, events = news(known, one)
        found.append(events)
    return found


def texts(*turns: TurnEnd) -> list[list[str]]:
    """The texts of the events of each turn."""
    return [[event.text for event in events] for events in told(*turns)]


PLAN = "plan 1f3a9c2e waits for approval: 1 move, 4 clients would reconnect: lbd apply 1f3a9c2e"
HOURLY = next_step(Reason.HOUR_UNLOADS)
BLOCKED_TOLD = "for 15 min blocked by unloads-per-hour: 30 of 30, the next one in 50 min"
PAUSED = "paused for 4 h, and no end is set: by ann: upgrade; lbd resume ends it"
DRAINED = "drain incomplete: S."
NEITHER: list[str] = []


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([left()], [NEITHER]),
        ([left(plan=plan((A, B)))], [[PLAN]]),
        ([left(plan=plan((A, B))), left(60, plan=plan((A, B), number=2))], [[PLAN], NEITHER]),
        ([left(plan=plan((A, B))), left(60), left(120, plan=plan((A, B)))], [[PLAN], NEITHER, NEITHER]),
        ([left(plan=plan((A, B))), left(900, plan=plan((A, B)))], [[PLAN], [PLAN]]),
        ([left(plan=plan((A, C))), left(60, plan=plan((A, B)))], [[PLAN], [PLAN]]),
        ([left(plan=plan((A, B))), left(60, ended=(LANDED,)), left(75, plan=plan((A, B)))][::2], [[PLAN], NEITHER]),
        (
            [left(plan=plan((A, B))), left(60, ended=(LANDED,)), left(75, plan=plan((A, B)))],
            [[PLAN], ["1 bundle moved"], [PLAN]],
        ),
        (
            [left(plan=plan((A, B)), observe_only=True)],
            [["1 move would be made now, and lbd only observes"]],
        ),
        ([left(plan=plan())], [NEITHER]),
        ([left(verdict=BLOCKED), left(899, verdict=BLOCKED)], [NEITHER, NEITHER]),
        (
            [left(verdict=BLOCKED), left(900, verdict=BLOCKED), left(915, verdict=BLOCKED), left(960)],
            [NEITHER, [BLOCKED_TOLD], NEITHER, ["not blocked any more, after 16 min: balanced"]],
        ),
        (
            [left(verdict=BLOCKED, steps=[HOURLY]), left(900, verdict=BLOCKED, steps=[HOURLY])],
            [NEITHER, [f"{BLOCKED_TOLD}. {HOURLY.text(AT + 900)}"]],
        ),
        ([left(verdict=BLOCKED), left(600), left(900, verdict=BLOCKED)], [NEITHER, NEITHER, NEITHER]),
        (
            [left(verdict=BLOCKED), left(600, verdict=Verdict("unknown")), left(900, verdict=BLOCKED)],
            [NEITHER, NEITHER, [BLOCKED_TOLD]],
        ),
        (
            [left(at, verdict=Verdict("blocked", Reason.PAUSED.label, "by ann")) for at in (0, 900)],
            [NEITHER, NEITHER],
        ),
        (
            [left(verdict=BLOCKED), left(900, verdict=BLOCKED), left(960, leads=False, leader="b leads")],
            [NEITHER, [BLOCKED_TOLD], ["b leads"]],
        ),
        ([left(works=(drained("t/n/x"),)), left(60, works=(drained("t/n/x"),))], [[DRAINED], NEITHER]),
        (
            [left(works=(drained("x"),)), left(60, works=(drained(ended=False),)), left(90, works=(drained("x"),))],
            [[DRAINED], NEITHER, NEITHER],
        ),
        ([left(works=(drained("x"),)), left(60, works=(drained("x", "y"),))], [[DRAINED], [DRAINED]]),
        ([left(works=(drained("x"),)), left(60), left(90, works=(drained("x"),))], [[DRAINED], NEITHER, [DRAINED]]),
        ([left(works=(drained(code=0),))], [NEITHER]),
        ([left(works=(drained("x"),), leads=False)], [NEITHER]),
        ([left(leads=False, leader="b leads"), left(leader="this lbd leads")], [["b leads"], ["this lbd leads"]]),
        ([left(leader="this lbd leads"), left(leader="this lbd leads")], [NEITHER, NEITHER]),
        ([left(pause=pause(3.9))], [NEITHER]),
        ([left(pause=pause(4)), left(60, pause=pause(4))], [[PAUSED], NEITHER]),
        ([left(pause=pause(40, until=AT + HOUR))], [NEITHER]),
        ([left(pause=pause(4), leads=False)], [NEITHER]),
        ([left(pause=pause(4)), left(24 * HOUR, pause=pause(4))], [[PAUSED], [PAUSED.replace("4 h", "1 day 4 h")]]),
        (
            [left(pause=pause(5)), left(60, pause=pause(4))],
            [[PAUSED.replace("4 h", "5 h")], [PAUSED.replace("4 h", "4 h 1 min")]],
        ),
        (
            [left(pause=pause(0, since=0.0, by="unknown", reason=""))],
            [["paused since nobody knows when, and no end is set: by unknown; lbd resume ends it"]],
        ),
        ([left(ended=(LANDED, LANDED))], [["2 bundles moved"]]),
        (
            [
                left(
                    ended=(LANDED, EndedMove("x", "landed-elsewhere"), EndedMove("y", NOT_SENT), EndedMove("z", "gone"))
                )
            ],
            [["1 bundle moved", "2 moves not made as planned: 1 landed-elsewhere, 1 not-sent"]],
        ),
    ],
)
def test_events(turns: list[TurnEnd], expected: list[list[str]]):
    """Each change once, no matter how many turns say the same."""
    assert texts(*turns) == expected


def test_a_standby_tells_nothing_at_its_start_and_a_leader_does():
    """Nobody is told that a second lbd stands by; that one has taken over is news."""
    for leads, words in ((False, []), (True, ["words"])):
        _, found = news(Announced(), left(leads=leads, leader="words"))
        assert [event.text for event in found] == words


def test_one_lbd_alone_tells_nothing_of_leading():
    """It has no other to be the leader of."""
    assert news(Announced(), left())[1] == []


def test_what_programs_read_of_them():
    """Whether it has ended, the broker, the plan with its scores, and each move."""
    (proposed,), (over,) = told(left(plan=plan((A, B)))), told(left(leads=False, leader="b leads"))
    assert (proposed[0].kind, proposed[0].plan, proposed[0].scores) == ("plan", plan((A, B)), {A: 80.0})
    assert (over[0].kind, over[0].ended) == ("leader", True)
    ended = told(left(ended=(LANDED,)))[0][0]
    assert (ended.kind, ended.at, ended.moves) == ("move", AT, [LANDED])
    assert told(left(works=(drained("x"),)))[0][0].broker == B


def test_one_message_tells_the_last_of_each_and_all_moves():
    """In the order in which they came last."""
    moved = [told(left(at, ended=(LANDED,) * number))[0][0] for at, number in ((0, 1), (15, 2))]
    states = [Event("leader", AT, "first"), Event("drain", AT, "b", broker=B), Event("drain", AT, "c", broker=C)]
    found = merged([moved[0], *states, moved[1], Event("leader", AT + 1, "last")])
    assert [(event.kind, event.text) for event in found] == [
        ("drain", "b"),
        ("drain", "c"),
        ("move", "3 bundles moved"),
        ("leader", "last"),
    ]
    assert (found[2].at, len(found[2].moves)) == (AT + 15, 3)
