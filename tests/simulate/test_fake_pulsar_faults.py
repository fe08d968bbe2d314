"""Whatever a cluster does wrong, a real engine's journal tells what happened: the cluster's own book says the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lbd.model import Result
from lbd.simulate.fake_pulsar import FakePulsar, Fault, Switch
from tests.simulate.fakes import hot, impatient, run, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.simulate.fakes import Run

PROBE, LOOK_UP, REPORT, READY = "/topicHashPositions", "/lookup/", "/load-report", "/ready"
LANDED, ELSEWHERE, UNOWNED, FAILED, UNKNOWN = Result


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker, a second one that leads, and a cold one where bundles go."""
    with hot() as cluster:
        yield cluster


TABLE: dict[str, tuple[Callable[[str, str, str], list[Switch]], dict[Result, int]]] = {
    # what is switched on (hot, leader, cold): what became of the attempts of one plan of six bundles
    "nothing": (lambda *_: [], {LANDED: 6}),
    "lost to a lookup": (lambda *_: [Switch(Fault.LOST_TO_A_LOOKUP, times=1)], {LANDED: 5, ELSEWHERE: 1}),
    "lost on the way to one": (lambda *at: [Switch(Fault.LOST_TO_A_LOOKUP, at[1])], {LANDED: 6}),
    "keyed by range": (lambda *_: [Switch(Fault.AFFINITY_BY_RANGE)], {LANDED: 6}),
    "note left over": (lambda *_: [Switch(Fault.AFFINITY_LEFT)], {LANDED: 6}),
    "204 and nothing": (lambda *_: [Switch(Fault.NO_EFFECT)], {ELSEWHERE: 4}),
    "204 and nothing, once": (lambda *_: [Switch(Fault.NO_EFFECT, times=1)], {ELSEWHERE: 1, LANDED: 6}),
    "409": (lambda *_: [Switch(Fault.CONFLICT)], {FAILED: 2}),
    "409 at the cold one": (lambda *at: [Switch(Fault.CONFLICT, at[2])], {LANDED: 6}),
    "412": (lambda *_: [Switch(Fault.NO_SUCH_BUNDLE)], {FAILED: 2}),
    "412, yet done": (lambda *_: [Switch(Fault.NO_SUCH_BUNDLE, acts=True)], {LANDED: 6}),
    "500": (lambda *_: [Switch(Fault.NOT_ACTIVE)], {FAILED: 2}),
    "500, yet done": (lambda *_: [Switch(Fault.NOT_ACTIVE, acts=True)], {LANDED: 6}),
    "503": (lambda *_: [Switch(Fault.UNAVAILABLE, part="/unload")], {FAILED: 2}),
    "503, yet done": (lambda *_: [Switch(Fault.UNAVAILABLE, part="/unload", acts=True)], {LANDED: 6}),
    "503 to lookups": (lambda *_: [Switch(Fault.UNAVAILABLE, part=LOOK_UP)], {LANDED: 6}),
    "slow": (lambda *_: [Switch(Fault.SLOW, seconds=0.005)], {LANDED: 6}),
    "half an answer to lookups": (lambda *_: [Switch(Fault.HALF_JSON, part=LOOK_UP)], {LANDED: 6}),
    "half an answer to an unload": (lambda *_: [Switch(Fault.HALF_JSON, part="/unload")], {FAILED: 2}),
    "a page to lookups": (lambda *_: [Switch(Fault.HTML, part=LOOK_UP)], {LANDED: 6}),
    "a page to an unload": (lambda *_: [Switch(Fault.HTML, part="/unload")], {FAILED: 2}),
    "clocks behind": (lambda *_: [Switch(Fault.CLOCK_SKEW, seconds=-3600)], {LANDED: 6}),
    "clocks ahead": (lambda *_: [Switch(Fault.CLOCK_SKEW, seconds=300)], {LANDED: 6}),
    "another leader before": (lambda *_: [Switch(Fault.LEADER_CHANGES, times=1)], {LANDED: 6}),
    "another leader after": (lambda *_: [Switch(Fault.LEADER_CHANGES, part=LOOK_UP, times=1)], {LANDED: 6}),
    "the source dies": (lambda *at: [Switch(Fault.BROKER_DIES, at[0])], {LANDED: 1}),
    "the source dies after": (lambda *at: [Switch(Fault.BROKER_DIES, at[0], acts=True)], {LANDED: 1}),
    "the leader dies": (lambda *at: [Switch(Fault.BROKER_DIES, at[1])], {FAILED: 1}),
    "the leader dies at a lookup": (lambda *at: [Switch(Fault.BROKER_DIES, at[1], part=LOOK_UP)], {LANDED: 1}),
    "the destination dies": (lambda *at: [Switch(Fault.BROKER_DIES, at[2], part=LOOK_UP)], {ELSEWHERE: 1}),
}


@pytest.mark.parametrize("case", TABLE)
def test_every_outcome_is_true(case: str, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the journal tells of each attempt is what was so; this is what became of them."""
    faults, wanted = TABLE[case]
    with run(pulsar, tmp_path, monkeypatch) as running:
        for switch in faults(*pulsar.brokers):
            pulsar.faults.on(switch)
        found = Counter(move.result for move in running.until_tried())
        print(case, found)
        for m in running.moves():
            print(m.source, m.result, m.owner, m.detail)
    assert found == wanted


@pytest.mark.parametrize(("acts", "wanted"), [(False, {FAILED: 2}), (True, {LANDED: 6})])
def test_an_unload_that_is_not_answered(
    acts: bool, wanted: dict[Result, int], pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was done all the same is asked for when the time is over."""
    pulsar.faults.on(Switch(Fault.SILENT, part="/unload", acts=acts))
    with run(pulsar, tmp_path, monkeypatch, impatient(settings(pulsar, tmp_path))) as running:
        found = Counter(move.result for move in running.until_tried())
    assert found == wanted


REPORTS = {
    # what the reports are like, at which brokers: whether anything is moved, and where to
    "NaN everywhere": (Fault.NAN, None, None),
    "NaN at the cold one": (Fault.NAN, 2, None),
    "frozen everywhere": (Fault.FROZEN_REPORT, None, None),
    "frozen at the cold one": (Fault.FROZEN_REPORT, 2, 2),
    "half an answer at the cold one": (Fault.HALF_JSON, 2, None),
    "a page at the cold one": (Fault.HTML, 2, None),
    "503 at the cold one": (Fault.UNAVAILABLE, 2, None),
    "no answer from the cold one": (Fault.SILENT, 2, None),
    "half an answer everywhere": (Fault.HALF_JSON, None, None),
}


@pytest.mark.parametrize("case", REPORTS)
def test_reports_that_are_none(case: str, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be believed moves nothing."""
    fault, broker, destination = REPORTS[case]
    pulsar.faults.on(Switch(fault, None if broker is None else pulsar.brokers[broker], part=REPORT))
    with run(pulsar, tmp_path, monkeypatch) as running:
        said = [record.sentence for record in running.turns(9)]
        moves = running.true_moves()
    print(case, said[-1], said[:5], {move.destination for move in moves})


def test_a_dead_leader_holds_everything_until_its_session_ends(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named and listed for 30 s; then another one leads, what it owned is owned again, and lbd settles first."""
    _, leader, _ = pulsar.brokers
    with run(pulsar, tmp_path, monkeypatch) as running:
        running.turn()
        pulsar.kill(leader)
        said = [record.sentence for record in running.turns(20)]
        print(said)
        running.true_moves()
    assert pulsar.leader == pulsar.brokers[0]
    assert leader not in set(pulsar.owners().values())
