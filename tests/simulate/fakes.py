"""A small fake cluster under a real engine, over HTTP, and whether its journal tells what happened."""

from __future__ import annotations

import time
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lbd.act.ownership import ActClock
from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon import engine as live
from lbd.daemon import wiring
from lbd.model import Result
from lbd.operations import drain
from lbd.store.moves import history
from tests import silence
from tests.silence import LIMIT_SECONDS
from tests.simulate.faulty import FaultyPulsar
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from lbd.daemon.engine import Engine
    from lbd.store.moves import MoveRecord
    from lbd.turn.parts import TurnResult

TURN_SECONDS = 15.0


@contextmanager
def hot(
    *, namespaces: int = 1, seed: int = 1, rates: tuple[float, float] = (70, 20), bundles: int = 14, **options: Any
) -> Iterator[FaultyPulsar]:
    """Three brokers, a point each for 1 MiB/s: the first one carries 70 MiB/s in bundles of 5, the others little."""
    shares = [("a", rates[0] / namespaces, bundles // namespaces)] * namespaces + [("b", rates[1], 4), ("c", 5, 2)]
    load = [
        {"name": f"n{at}", "brokers": [broker], "mib_per_second": rate, "bundles": own}
        for at, (broker, rate, own) in enumerate(shares)
    ]
    world, state = begun(seed, brokers=[{"id": one} for one in "abc"], load=load)
    with FaultyPulsar(world, state, **options) as cluster:
        yield cluster


def settings(cluster: FaultyPulsar, folder: Path, **changes: Any) -> Settings:
    """The default ones, but for limits that would spread the moves over an hour, and the pause between two of them."""
    rails = {"max_traffic_per_turn": 1, "max_unloads_per_turn": 20, "unload_spacing_seconds": 0}
    pulsar = {"admin_urls": list(cluster.admin_urls), "read_timeout_seconds": LIMIT_SECONDS}
    return Settings.model_validate({"state_dir": folder, "pulsar": pulsar, "guardrails": rails, **changes})


@dataclass
class Run:
    """An engine's turns on a fake cluster, one every 15 s of the cluster's time, each with the end of its moves."""

    cluster: FaultyPulsar
    engine: Engine
    folder: Path

    def turn(self) -> TurnResult:
        """The next one."""
        self.cluster.forward(TURN_SECONDS)
        record = self.engine.turn()
        self.engine.wait(60)
        return record

    def turns(self, number: int) -> list[TurnResult]:
        """So many."""
        return [self.turn() for _ in range(number)]

    def until(self, ended: Callable[[], bool], most: int = 40) -> None:
        """Until then."""
        for _ in range(most):
            if ended():
                return
            self.turn()
        raise AssertionError(f"not within {most} turns")

    def until_tried(self) -> list[MoveRecord]:
        """Until moves were tried; these, told by the journal, once they are seen to be true."""
        self.until(lambda: bool(self.engine._real.journal.attempted_at))
        return self.true_moves()

    def moves(self) -> list[MoveRecord]:
        """What the journal says."""
        return history(self.folder)

    def true_moves(self) -> list[MoveRecord]:
        """The same, after each was compared with the cluster's own book of owners."""
        moves = self.moves()
        for move in moves:
            assert_true(self.cluster, move)
        return moves


@contextmanager
def run(
    cluster: FaultyPulsar, folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: Settings | None = None
) -> Iterator[Run]:
    """A real engine on the cluster's clock; what it waits for passes at once, answers that never come included."""
    silence.end_at_once(monkeypatch)
    monkeypatch.setattr(wiring, "CLOCK", ActClock(cluster.now, cluster.forward))
    timebase = Timebase(cluster.now, lambda: cluster.speed)
    with live.engine(chosen or settings(cluster, folder), timebase=timebase) as engine:

        def sleep(seconds: float) -> None:
            """The wait for a report passes at once, too."""
            hold = engine.draining.hold()
            if hold is not None and "it waits: settling" in hold[1]:
                cluster.forward(drain.LOOK_AGAIN_SECONDS)
            else:
                time.sleep(seconds)

        monkeypatch.setattr(drain, "CLOCK", ActClock(cluster.now, sleep))
        yield Run(cluster, engine, folder)


def owners_from(cluster: FaultyPulsar, bundle: str, at: float) -> list[str | None]:
    """Its owner then (epoch seconds), and those after it, by the cluster's own book."""
    changes = [one for one in cluster.history() if one.bundle == bundle]
    number = bisect_right([cluster.begun_at + one.seconds for one in changes], at)
    assert number > 0, f"{bundle} never changed its owner"
    return [one.owner for one in changes[number - 1 :]]


def assert_true(cluster: FaultyPulsar, move: MoveRecord) -> None:
    """What the journal says of the move's end is what was so at that moment, or later where that was amended."""
    assert move.result is not None, move
    assert move.ended_at is not None, move
    if move.result is Result.UNKNOWN:
        return
    if move.result is Result.GONE:
        assert move.bundle not in cluster.owners(), move
        return
    before = owners_from(cluster, move.bundle, move.at)[0]
    assert before == move.source, (move, before)
    after, *later = owners_from(cluster, move.bundle, move.ended_at)
    after = move.owner if move.detail.startswith("was ") and move.owner in later else after
    assert after == move.owner, (move, after)
    by_result = {Result.LANDED: move.destination, Result.FAILED: move.source, Result.UNOWNED: None}
    if move.result is Result.ELSEWHERE:
        assert after not in {None, move.destination}, (move, after)
    else:
        assert after == by_result[move.result], (move, after)
