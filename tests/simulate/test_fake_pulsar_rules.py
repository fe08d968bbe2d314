"""Random clusters with random faults, over HTTP, for hundreds of turns: what is journaled is so, and the rules hold."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from lbd.bundles import range_in_name
from lbd.model import bundle_namespace, bundle_range
from lbd.split.plan import SplitResult
from lbd.store.moves import read_splits
from tests.simulate.fakes import run, settings
from tests.simulate.faulty import Fault, FaultyPulsar, Switch
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lbd.store.moves import MoveRecord, SplitRecord
    from tests.simulate.fakes import Run

ROUNDED_SECONDS = 0.01
TURNS = 120
COOL_DOWN_MINUTES = 4
EAGER: dict[str, Any] = {
    "avg_shedder": {"low_threshold": 5, "high_threshold": 10, "hit_count_low": 2, "hit_count_high": 1},
    "guardrails": {
        "cool_down_minutes": COOL_DOWN_MINUTES,
        "max_traffic_per_turn": 0.5,
        "max_unloads_per_hour": 1000,
        "max_unloads_per_broker_per_hour": 0,
        "max_moves_per_bundle": 0,
        "stand_still_minutes": 0,
        "membership_settle_seconds": 30,
        "unload_spacing_seconds": 0,
    },
}
SLOW = {Fault.SILENT, Fault.SLOW, Fault.DRIPS, Fault.CLOSES_LATE}
QUICK = [fault for fault in Fault if fault not in {*SLOW, Fault.AFFINITY_LEFT, Fault.LED_AWAY}]
"""What costs no time of this machine, and can be known: nobody can see that a note that was used has stayed, or that
who sends a note's request away has not noted it."""

PARTS = ["", "/unload", "/unload", "/schemas/", "/topicHashPositions", "/load-report", "/ownedNamespaces", "/ready"]


SPLITTING = {"split": {"enabled": True, "max_msg_rate": 6000, "max_splits_per_hour": 0}}


def unsteady(chance: random.Random, topics: int = 8) -> FaultyPulsar:
    """Three to five brokers under traffic that comes and goes, so that there is always something to move.

    ``topics`` are those of each eight bundles.
    """
    shapes = [
        {"kind": "wave", "amplitude": 0.9, "period_hours": 0.4, "peak_at_hours": chance.random()},
        {"kind": "on-off", "on_minutes": 4, "off_minutes": 4},
        {"kind": "ramp", "to": 3, "at_minutes": 10, "minutes": 5},
    ]
    brokers = [f"b{at}" for at in range(chance.randint(3, 5))]
    load = [
        {
            "name": f"n{at}",
            "brokers": [broker],
            "mib_per_second": 20,
            "bundles": 8,
            "spread": 0.7,
            "shape": shape,
            "topics": topics,
        }
        for at, (broker, shape) in enumerate(zip(brokers, shapes, strict=False))
    ]
    parts = [{"id": broker, "background": chance.uniform(0, 20)} for broker in brokers]
    world, state = begun(chance.randrange(1 << 30), brokers=parts, load=load, noise_points=1)
    return FaultyPulsar(world, state, clients=chance.choice([0, 1, 6]), version=chance.choice(["4.0.8", "4.2.4"]))


def disturb(cluster: FaultyPulsar, chance: random.Random, parts: Sequence[str] = PARTS) -> None:
    """Now and then something goes wrong, or is mended."""
    broker, what = chance.choice(cluster.brokers), chance.random()
    if what < 0.25:
        fault, part = chance.choice(QUICK), chance.choice(parts)
        where = chance.choice([None, broker])
        seconds, acts = chance.uniform(-900, 900), chance.random() < 0.5
        cluster.faults.on(Switch(fault, where, part, chance.randint(1, 6), seconds, acts))
    elif what < 0.3:
        cluster.faults.off()
        for one in cluster.brokers:
            cluster.start(one)
    elif what < 0.31 and len(cluster.admin_urls) > 2:
        cluster.kill(broker)
    elif what < 0.33:
        cluster.start(broker)


def check_pace(moves: Iterable[MoveRecord]) -> None:
    """One under way for each source and each range, and a rest for each bundle, but for the second attempt."""
    ended_at: dict[str, float] = defaultdict(float)
    begun_at: dict[str, float] = defaultdict(lambda: float("-inf"))
    for move in sorted(moves, key=lambda move: move.at):
        assert move.ended_at is not None
        for key in (move.source, bundle_range(move.bundle)):
            assert move.at >= ended_at[key], f"{move} began before another one of {key} ended"
            ended_at[key] = move.ended_at
        rested = move.at - begun_at[move.bundle] >= COOL_DOWN_MINUTES * 60
        assert move.destination not in {None, move.source}
        assert move.attempt == 2 or rested, f"{move} came {move.at - begun_at[move.bundle]:.0f} s after the last one"
        begun_at[move.bundle] = move.at


def check_notes(running: Run) -> None:
    """What a leader may still have as a destination, lbd knows of."""
    notes = running.engine._real.journal.notes
    known = [(bundle, broker) for bundle, note in notes.items() for broker in note.brokers]
    for key, broker in running.cluster.affinity.items():
        assert any(key in {bundle, bundle_range(bundle)} and broker == noted for bundle, noted in known), (key, broker)


def check_splits(cluster: FaultyPulsar, splits: Iterable[SplitRecord]) -> int:
    """How many were made; each ended as the cluster's own book says."""
    begun = {one.bundle: cluster.begun_at + one.seconds for one in reversed(cluster.history())}
    made = 0
    for split in splits:
        ended, whole = split.end, split.cut.bundle
        assert ended is not None, split
        if ended.result is SplitResult.SPLIT:
            made += 1
            assert whole not in cluster.owners(), split
            assert all(split.at - ROUNDED_SECONDS <= begun[part] <= ended.at for part in ended.parts), split
        elif ended.result is SplitResult.NOT_SPLIT:
            ends = range_in_name(whole)
            inner = [name for name in begun if bundle_namespace(name) == bundle_namespace(whole) and name != whole]
            within = [name for name in inner if ends[0] <= range_in_name(name)[0] and range_in_name(name)[1] <= ends[1]]
            assert not [name for name in within if begun[name] <= ended.at], split
    return made


LONG = tuple(pytest.param(seed, marks=pytest.mark.soak) for seed in (*range(1, 60), 1002))


@pytest.mark.parametrize("seed", [0, *LONG])
def test_no_rule_is_broken(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done is done one at a time and rarely, and told as it was."""
    chance = random.Random(seed)
    with unsteady(chance) as cluster, run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path, **EAGER)) as one:
        for _ in range(TURNS):
            disturb(cluster, chance)
            one.turn()
            check_notes(one)
        moves = one.true_moves()
    check_pace(moves)
    assert len(moves) > 5


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
def test_no_rule_is_broken_where_bundles_are_split(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits by the daemon's rule among the moves: each is told as it ended, and so is every move of a part."""
    chance = random.Random(seed)
    chosen = {**EAGER, **SPLITTING}
    with unsteady(chance, topics=48) as cluster:
        with run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path, **chosen)) as one:
            for _ in range(TURNS):
                disturb(cluster, chance, [*PARTS, "/split", "/topics", "/bundles"])
                one.turn()
            moves = one.true_moves()
        check_pace(moves)
        assert check_splits(cluster, read_splits(tmp_path)) > 3
        assert len(moves) > 5
