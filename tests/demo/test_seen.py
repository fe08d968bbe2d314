"""What the daemon says, gathered turn by turn and move by move."""

from __future__ import annotations

from lbd.demo import NOT_SENT, WAITS, DemoMove, DemoProgress
from lbd.model import Outcome, Result, Skip, Unload
from lbd.reason import Reason
from lbd.store.turn_record import BrokerRecord, Planned, TurnRecord, Verdict
from lbd.turn.record import gap_points

BUNDLE = "t/n/0x00000000_0x80000000"
OTHER = "t/n/0x80000000_0xffffffff"


def turn(
    at: float, sentence: str = "No move.", scores: tuple[float | None, ...] = (80.0, 20.0), *bundles: str
) -> TurnRecord:
    """A turn that saw brokers with these scores, and planned these bundles from the first to the second."""
    brokers = [BrokerRecord(f"b{at}:1", score, "cpu", 1.0, 1.0, 1) for at, score in enumerate(scores)]
    unloads = [Planned(bundle, "b0:1", "b1:1") for bundle in bundles]
    return TurnRecord(at=at, sentence=sentence, verdict=Verdict("waiting"), brokers=brokers, unloads=unloads)


def landed(bundle: str = BUNDLE) -> Outcome:
    """A move that came to its destination."""
    return Outcome(Unload(bundle, "b0:1", "b1:1", 1.0, 1.0), Result.LANDED, "b1:1", seconds=0.25)


def test_a_planned_move_waits_until_it_has_landed():
    """It is told once, in its last state."""
    seen = DemoProgress().turned(turn(0, "x", (80.0, 20.0), BUNDLE, OTHER))
    assert [move.state for move in seen.moves] == [WAITS, WAITS]
    seen = seen.ended(landed(), 3.0)
    assert [(move.bundle, move.state) for move in seen.moves] == [(OTHER, WAITS), (BUNDLE, "landed")]
    assert seen.moves[-1] == DemoMove(BUNDLE, "b0:1", "b1:1", "landed", 3.0, "in 0.25 s")


def test_a_move_may_end_before_its_turn_is_told():
    """Moves run beside the turn that began them."""
    seen = DemoProgress().ended(landed(), 3.0).turned(turn(2.5, "x", (80.0, 20.0), BUNDLE, OTHER))
    assert [(move.bundle, move.state) for move in seen.moves] == [(BUNDLE, "landed"), (OTHER, WAITS)]


def test_a_bundle_that_moves_again_is_a_second_move():
    """What landed in an earlier turn stays told."""
    seen = DemoProgress().ended(landed(), 1.0).turned(turn(60.0, "x", (80.0, 20.0), BUNDLE))
    assert [move.state for move in seen.moves] == ["landed", WAITS]


def test_a_move_that_was_not_sent_says_why():
    """With the ends that it was planned with; those of one that nobody planned here are not known."""
    skip = Skip(BUNDLE, Reason.PAUSED, "by ann")
    seen = DemoProgress().turned(turn(0, "x", (80.0, 20.0), BUNDLE)).ended(skip, 1.0)
    assert seen.moves == (DemoMove(BUNDLE, "b0:1", "b1:1", NOT_SENT, 1.0, "paused: by ann"),)
    assert DemoProgress().ended(skip, 1.0).moves[0].source == ""


def test_a_sentence_that_only_counts_on_is_said_once():
    """With the time at which it was first said, its last numbers, and in how many turns."""
    seen = (
        DemoProgress()
        .turned(turn(0, "A: waiting (1/8)."))
        .turned(turn(15, "A: waiting (2/8)."))
        .turned(turn(30, "Moved."))
    )
    assert [(one.at, one.sentence, one.turns) for one in seen.sentences] == [
        (0, "A: waiting (2/8).", 2),
        (30, "Moved.", 1),
    ]


def test_the_gap_at_first_and_now():
    """From the first turn that saw brokers to the last one; none where too few have a score."""
    blind = TurnRecord(at=0, sentence="No move: broken", verdict=Verdict("unknown"))
    seen = DemoProgress().turned(blind)
    assert seen.gaps is None
    seen = seen.turned(turn(15, scores=(80.0, 20.0, None))).turned(turn(30, scores=(60.0, 40.0)))
    assert seen.gaps == (60.0, 20.0)
    assert gap_points(turn(0, scores=(80.0,)).brokers) is None
    assert seen.turned(blind).gaps is None
