"""What holds for every plan and every way in which its moves may end: drawn by Hypothesis, without any broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.act.executor import Execution, Executor, FinishedMoves, Pace
from lbd.act.unload import ReadyMove
from lbd.model import Outcome, Result, Skip, Unload, bundle_range
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKERS = [f"b{number}:80" for number in range(4)]
RANGES = [f"0x{number:08x}_0x{number + 1:08x}" for number in range(3)]
ENDS = ["landed", "came back", "elsewhere", "failed", "unknown", "not there", "no leader"]


@dataclass
class Scripted:
    """An unloader whose moves end as the example says, and that watches what is in flight at the same time."""

    ends: Mapping[str, list[str]]
    flying: Counter[str] = field(default_factory=Counter)
    overlaps: list[str] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, move: Unload) -> ReadyMove | Skip:
        """Whether it may be sent."""
        end = self.ends[move.bundle][0]
        if end in {"not there", "no leader"}:
            self.ends[move.bundle].pop(0)
            reason = Reason.LEADER_UNREACHABLE if end == "no leader" else Reason.OWNER_CHANGED
            return Skip(move.bundle, reason, end)
        return ReadyMove(move, Leader("b0:80", "http://b0:80"), named=True)

    def send(self, ready: ReadyMove) -> Outcome:
        """What it came to."""
        move = ready.move
        keys = (move.source, bundle_range(move.bundle))
        with self.lock:
            self.sent.append((move.bundle, move.source))
            self.overlaps.extend(key for key in keys if self.flying[key])
            self.flying.update(keys)
        time.sleep(0.001)
        with self.lock:
            self.flying.subtract(keys)
            end = self.ends[move.bundle].pop(0)
        return {
            "landed": Outcome(move, Result.LANDED, move.destination),
            "came back": Outcome(move, Result.FAILED, move.source, confirmed=True),
            "elsewhere": Outcome(move, Result.ELSEWHERE, "b9:80"),
            "failed": Outcome(move, Result.FAILED, move.source),
            "unknown": Outcome(move, Result.UNKNOWN, None),
        }[end]


@dataclass
class Diary:
    """A journal in memory."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    open: tuple[tuple[str, Unload], ...] = ()
    attempted_at: dict[str, float] = field(default_factory=dict)
    sent: tuple[()] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def intend(self, unload: Unload, attempt: int) -> str:
        """An id of its own for each attempt."""
        with self.lock:
            self.lines.append(("intent", f"{unload.bundle} {attempt}"))
        return f"{unload.bundle} {attempt}"

    def conclude(self, move: str, outcome: Outcome) -> None:
        """After its intent."""
        with self.lock:
            self.lines.append(("outcome", move))

    def amend(self, move: str, outcome: Outcome) -> None:
        """Nothing is looked at again in so short a time."""

    def confirm(self, move: str, again: bool) -> None:
        """One lbd."""


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Unload], dict[str, list[str]], int]:
    """Up to nine bundles of three ranges on four brokers, two ends for each, and how many may fly at once."""
    names = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(RANGES)), unique=True, max_size=9))
    moves = [Unload(f"t/{ns}/{span}", draw(st.sampled_from(BROKERS[:3])), BROKERS[3], 1.0, 1.0) for ns, span in names]
    sendable = st.sampled_from(ENDS[:5])
    ends = {move.bundle: [draw(st.sampled_from(ENDS)), draw(sendable)] for move in moves}
    return moves, ends, draw(st.integers(1, 4))


def executed(moves: list[Unload], ends: dict[str, list[str]], at_once: int) -> tuple[FinishedMoves, Scripted, Diary]:
    unloader, diary = Scripted(ends), Diary()
    executor = Executor(diary, time.time)
    executor.start(moves, SameForAll(may_stay_anywhere=False), Execution(unloader, Pace(at_once=at_once)))  # type: ignore[arg-type]
    assert executor.wait(60)
    return executor.collect(), unloader, diary


@given(plans())
@settings(deadline=None, max_examples=150)
def test_every_move_ends_once_and_none_overlaps(example: tuple[list[Unload], dict[str, list[str]], int]):
    """One source and one range at a time; an outcome or a reason for each; an outcome for each intent; two tries."""
    moves, ends, at_once = example
    ended, unloader, diary = executed(moves, ends, at_once)

    told = [outcome.unload.bundle for outcome in ended.outcomes] + [skip.what for skip in ended.skips]
    assert sorted(told) == sorted(move.bundle for move in moves)
    assert unloader.overlaps == []
    assert sorted(move for kind, move in diary.lines if kind == "intent") == sorted(
        move for kind, move in diary.lines if kind == "outcome"
    )
    assert max(Counter(bundle for bundle, _ in unloader.sent).values(), default=0) <= 2
    assert ended.failure is None


@given(plans())
@settings(deadline=None, max_examples=150)
def test_a_source_stops_after_two_misses_running(example: tuple[list[Unload], dict[str, list[str]], int]):
    """Whatever the order in which sources are served, no source goes on after them."""
    moves, ends, at_once = example
    ended, _, _ = executed(moves, ends, at_once)

    landed = {outcome.unload.bundle: outcome.result is Result.LANDED for outcome in ended.outcomes}
    for source in BROKERS:
        lane = [move.bundle for move in moves if move.source == source]
        tried = [bundle for bundle in lane if bundle in landed]
        misses = 0
        for number, bundle in enumerate(tried):
            misses = 0 if landed[bundle] else misses + 1
            assert misses <= 2
            if misses == 2:
                assert number == len(tried) - 1
