"""Whatever a cluster does wrong, a real engine's journal tells what happened: the cluster's own book says the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.model import Result, bundle_range
from lbd.reason import Reason
from lbd.store.moves import history
from tests.simulate import fakes
from tests.simulate.fakes import assert_true, run, settings
from tests.simulate.faulty import LOAD_REPORT, Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from click.testing import Result as Invoked

    from lbd.simulate.fake_pulsar import FakePulsar
    from lbd.store.moves import MoveRecord

LOOK_UP, PROBE = "/schemas/", "/topicHashPositions"
LANDED, ELSEWHERE, UNOWNED, _, FAILED, UNKNOWN = Result


def hot(**options: Any) -> AbstractContextManager[FakePulsar]:
    """A hot broker whose plan is five bundles to the cold one; the other one, which leads, gets nothing."""
    return fakes.hot(rates=(75, 33), bundles=12, **options)


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker, a second one that leads, and a cold one where bundles go."""
    with hot(clients=0) as cluster:
        yield cluster


TABLE: dict[str, tuple[int, Callable[[str, str, str], list[Switch]], dict[Result, int]]] = {
    # clients of each bundle, what is switched on (hot, leader, cold): what became of the attempts of a plan of five
    "nothing": (0, lambda *_: [], {LANDED: 5}),
    "lost on the way to one": (0, lambda *at: [Switch(Fault.LOST_TO_A_LOOKUP, at[1])], {LANDED: 5}),
    "keyed by range": (0, lambda *_: [Switch(Fault.AFFINITY_BY_RANGE)], {LANDED: 5}),
    "note left over": (0, lambda *_: [Switch(Fault.AFFINITY_LEFT)], {LANDED: 5}),
    "204 and nothing": (0, lambda *_: [Switch(Fault.NO_EFFECT)], {FAILED: 4}),
    "204 and nothing, once": (0, lambda *_: [Switch(Fault.NO_EFFECT, times=1)], {FAILED: 1, LANDED: 5}),
    "409": (0, lambda *_: [Switch(Fault.CONFLICT)], {FAILED: 2}),
    "409 at the cold one": (0, lambda *at: [Switch(Fault.CONFLICT, at[2])], {LANDED: 5}),
    "412": (0, lambda *_: [Switch(Fault.NO_SUCH_BUNDLE)], {FAILED: 2}),
    "412, yet done": (0, lambda *_: [Switch(Fault.NO_SUCH_BUNDLE, acts=True)], {UNOWNED: 2}),
    "412, yet done, with a client": (1, lambda *_: [Switch(Fault.NO_SUCH_BUNDLE, acts=True)], {LANDED: 5}),
    "500": (0, lambda *_: [Switch(Fault.NOT_ACTIVE)], {FAILED: 2}),
    "500, yet done": (0, lambda *_: [Switch(Fault.NOT_ACTIVE, acts=True)], {LANDED: 5}),
    "503": (0, lambda *_: [Switch(Fault.UNAVAILABLE, part="/unload")], {FAILED: 2}),
    "503, yet done": (0, lambda *_: [Switch(Fault.UNAVAILABLE, part="/unload", acts=True)], {LANDED: 5}),
    "503 to lookups": (0, lambda *_: [Switch(Fault.UNAVAILABLE, part=LOOK_UP)], {UNOWNED: 2}),
    "503 to lookups, with a client": (1, lambda *_: [Switch(Fault.UNAVAILABLE, part=LOOK_UP)], {LANDED: 5}),
    "slow": (0, lambda *_: [Switch(Fault.SLOW, seconds=0.005)], {LANDED: 5}),
    "done at once, told slowly": (0, lambda *_: [Switch(Fault.SLOW, seconds=0.005, acts=True)], {LANDED: 5}),
    "drips": (0, lambda *_: [Switch(Fault.DRIPS, part="/unload", seconds=0.0001)], {LANDED: 5}),
    "500, and done later": (0, lambda *_: [Switch(Fault.CLOSES_LATE, seconds=60)], {FAILED: 2}),
    "led away": (0, lambda *_: [Switch(Fault.LED_AWAY, location="http://192.0.2.1:8080/")], {FAILED: 2}),
    "half an answer to lookups": (0, lambda *_: [Switch(Fault.HALF_JSON, part=LOOK_UP)], {UNOWNED: 2}),
    "half an answer to lookups, with a client": (1, lambda *_: [Switch(Fault.HALF_JSON, part=LOOK_UP)], {LANDED: 5}),
    "half an answer to an unload": (0, lambda *_: [Switch(Fault.HALF_JSON, part="/unload")], {FAILED: 2}),
    "a page to lookups": (0, lambda *_: [Switch(Fault.HTML, part=LOOK_UP)], {UNOWNED: 2}),
    "a page to lookups, with a client": (1, lambda *_: [Switch(Fault.HTML, part=LOOK_UP)], {LANDED: 5}),
    "a page to an unload": (0, lambda *_: [Switch(Fault.HTML, part="/unload")], {FAILED: 2}),
    "clocks behind": (0, lambda *_: [Switch(Fault.CLOCK_SKEW, seconds=-3600)], {LANDED: 5}),
    "clocks ahead": (0, lambda *_: [Switch(Fault.CLOCK_SKEW, seconds=300)], {LANDED: 5}),
    "another leader before": (0, lambda *_: [Switch(Fault.LEADER_CHANGES, times=1)], {LANDED: 5}),
    "the source dies": (0, lambda *at: [Switch(Fault.BROKER_DIES, at[0])], {LANDED: 1}),
    "the source dies after": (0, lambda *at: [Switch(Fault.BROKER_DIES, at[0], acts=True)], {LANDED: 1}),
    "the leader dies": (0, lambda *at: [Switch(Fault.BROKER_DIES, at[1])], {FAILED: 1, LANDED: 4}),
    "the leader dies at a lookup": (0, lambda *at: [Switch(Fault.BROKER_DIES, at[1], part=LOOK_UP)], {LANDED: 1}),
    "the destination dies": (0, lambda *at: [Switch(Fault.BROKER_DIES, at[2], part=LOOK_UP)], {FAILED: 1}),
}


@pytest.mark.parametrize("case", TABLE)
def test_every_outcome_is_true(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the journal tells of each attempt is what was so; this is what became of them."""
    clients, faults, wanted = TABLE[case]
    with hot(clients=clients) as pulsar, run(pulsar, tmp_path, monkeypatch) as running:
        for switch in faults(*pulsar.brokers):
            pulsar.faults.on(switch)
        found = Counter(move.result for move in running.until_tried())
    assert found == wanted


LOSSES = [Switch(Fault.LOST_TO_A_LOOKUP, times=1), Switch(Fault.LEADER_CHANGES, part=LOOK_UP, times=1)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.fault.name)
def test_a_destination_that_is_lost(loss: Switch, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance the bundle goes back to its source, and is tried again, or to the third one, where it may stay."""
    with hot(clients=0, seed=seed) as pulsar, run(pulsar, tmp_path, monkeypatch) as running:
        pulsar.faults.on(replace(loss))
        moves = running.until_tried()
        stayed = [move for move in moves if move.result is ELSEWHERE]
    assert {move.result for move in moves} <= {LANDED, ELSEWHERE, FAILED}
    assert Counter(move.result for move in moves)[LANDED] == 5 - len(stayed)
    assert len({move.bundle for move in moves}) == 5


@pytest.mark.parametrize(("acts", "wanted"), [(False, {FAILED: 2}), (True, {LANDED: 5})])
def test_an_unload_that_is_not_answered(
    acts: bool, wanted: dict[Result, int], pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was done all the same is asked for when the time is over."""
    pulsar.faults.on(Switch(Fault.SILENT, part="/unload", acts=acts))
    with run(pulsar, tmp_path, monkeypatch) as running:
        found = Counter(move.result for move in running.until_tried())
    assert found == wanted


REPORTS: dict[str, tuple[Fault, int | None, set[int]]] = {
    # what the reports are like, at which broker (None: at all): where bundles went
    "NaN everywhere": (Fault.NAN, None, set()),
    "NaN at the hot one": (Fault.NAN, 0, set()),
    "NaN at the cold one": (Fault.NAN, 2, {1}),
    "frozen everywhere": (Fault.FROZEN_REPORT, None, set()),
    "half an answer everywhere": (Fault.HALF_JSON, None, set()),
    "half an answer at the cold one": (Fault.HALF_JSON, 2, {1}),
    "a page at the cold one": (Fault.HTML, 2, {1}),
    "503 at the cold one": (Fault.UNAVAILABLE, 2, {1}),
    "no answer from the cold one": (Fault.SILENT, 2, {1}),
}


def test_every_switch_has_its_case():
    """One that nobody tried would be one of which nobody knows what lbd does; tests/simulate/test_served.py has two."""
    tried = {switch.fault for _, switches, _ in TABLE.values() for switch in switches("hot", "leader", "cold")}
    named = set(Fault) - {Fault.OTHER_REPLY, Fault.TOPICS_DO_NOT_LOAD, Fault.CLIENTS_LEAVE}
    assert tried | {loss.fault for loss in LOSSES} | {fault for fault, *_ in REPORTS.values()} == named


@pytest.mark.parametrize("case", REPORTS)
def test_reports_that_cannot_be_believed(
    case: str, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who tells nothing of itself takes no bundle and gives none."""
    fault, broker, wanted = REPORTS[case]
    pulsar.faults.on(Switch(fault, None if broker is None else pulsar.brokers[broker], part=LOAD_REPORT))
    with run(pulsar, tmp_path, monkeypatch) as running:
        running.turns(6)
        moves = running.true_moves()
    assert {move.destination for move in moves} == {pulsar.brokers[at] for at in wanted}
    assert {move.result for move in moves} <= {LANDED}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_broker_whose_report_has_stood_still_takes_nothing(
    restarted: bool, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight hits take eight minutes; from the sixth on the cold one is out, and said to be, whoever looks then."""
    hot_one, leader, cold = pulsar.brokers
    pulsar.faults.on(Switch(Fault.FROZEN_REPORT, cold, part=LOAD_REPORT))
    chosen = settings(pulsar, tmp_path, avg_shedder={"high_threshold": 100})
    with run(pulsar, tmp_path, monkeypatch, chosen) as running:
        running.turns(20)
        seen = running.turns(0 if restarted else 25)
    if restarted:
        with run(pulsar, tmp_path, monkeypatch, chosen) as running:
            seen = running.turns(25)
    assert {(move.source, move.destination) for move in running.true_moves()} == {(hot_one, leader)}
    told = {skip for record in seen[5:] for skip in record.skips if skip.what == cold}
    assert {skip.reason for skip in told} == {Reason.NO_NEW_SAMPLE}
    assert "CPU and bandwidth in its report have stood still for 10 min" in {skip.detail for skip in told}


@pytest.mark.parametrize("fault", [Fault.HALF_JSON, Fault.HTML, Fault.UNAVAILABLE])
def test_owners_that_cannot_be_asked_for(
    fault: Fault, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent while nobody tells the owner, and a page is not taken for one that does."""
    pulsar.faults.on(Switch(fault, part=PROBE))
    with run(pulsar, tmp_path, monkeypatch) as running:
        running.turns(5)
        moves = running.true_moves()
    assert moves == []


def test_a_dead_leader_holds_everything_until_its_session_ends(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named and listed for 30 s; then another one leads, and lbd sits out 2 min before it moves again."""
    hot_one, leader, cold = pulsar.brokers
    with run(pulsar, tmp_path, monkeypatch) as running:
        running.turn()
        pulsar.kill(leader)
        held = running.turn()
        assert pulsar.leader == leader
        assert held.plan.hold is not None
        assert held.plan.hold[0] is Reason.LEADER_UNREACHABLE
        settling = running.turns(6)
        assert {record.plan.hold[0] for record in settling if record.plan.hold} == {Reason.MEMBERSHIP_CHANGED}
        assert running.moves() == []
        moves = running.until_tried()
    assert pulsar.leader == hot_one
    assert {move.destination for move in moves} == {cold}
    assert leader not in set(pulsar.owners().values())


def test_a_broker_that_comes_back(pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarted within its session it is empty, and its first samples are not trusted."""
    _, _, cold = pulsar.brokers
    with run(pulsar, tmp_path, monkeypatch) as running:
        running.turn()
        pulsar.kill(cold)
        pulsar.forward(5)
        pulsar.start(cold)
        running.turns(30)
        moves = running.true_moves()
    assert cold in {move.destination for move in moves}
    assert min(move.at for move in moves if move.destination == cold) > pulsar.begun_at + 140


def test_two_namespaces_with_the_same_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 4.0.8 a leader takes the bundles of both for one; lbd never has two of a range under way, and all land."""
    with hot(namespaces=5) as cluster, run(cluster, tmp_path, monkeypatch) as running:
        moves = running.until_tried()
    ranges = Counter(bundle_range(move.bundle) for move in moves)
    assert max(ranges.values()) == 2
    assert {move.result for move in moves} == {LANDED}


ONCE: dict[str, tuple[list[Switch], int, dict[Result, int]]] = {
    # what is switched on: the exit code, and what became of the one bundle that the traffic limit lets go
    "nothing": ([], 0, {LANDED: 1}),
    "500": ([Switch(Fault.NOT_ACTIVE)], 5, {FAILED: 1}),
    "503, yet done": ([Switch(Fault.UNAVAILABLE, part="/unload", acts=True)], 0, {LANDED: 1}),
    "half of each report": ([Switch(Fault.HALF_JSON, part=LOAD_REPORT)], 3, {}),
    "no broker is ready": ([Switch(Fault.UNAVAILABLE, part="/ready")], 0, {}),
}


def once(cluster: FakePulsar, folder: Path) -> tuple[Invoked, list[MoveRecord]]:
    """``lbd run --once``, which needs one hit alone, and its moves, which are seen to be true."""
    config, state = folder / "lbd.yaml", folder / "state"
    values = {"pulsar": {"admin_urls": list(cluster.admin_urls)}, "state_dir": str(state)}
    config.write_text(json.dumps({**values, "avg_shedder": {"hit_count_high": 1}}))
    done = CliRunner().invoke(main, ["run", "--once", "--config", str(config)], prog_name="lbd")
    moves = history(state)
    for move in moves:
        assert_true(cluster, move)
    return done, moves


@pytest.mark.parametrize("case", ONCE)
def test_what_runs_once(case: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Its exit code and its journal are what happened."""
    faults, code, wanted = ONCE[case]
    for switch in faults:
        pulsar.faults.on(replace(switch))
    done, moves = once(pulsar, tmp_path)
    assert (Counter(move.result for move in moves), done.exit_code) == (wanted, code), done.output


@pytest.mark.parametrize("seed", [1, 2])
def test_once_where_a_destination_is_lost(seed: int, tmp_path: Path) -> None:
    """It fails unless a second attempt lands."""
    with hot(clients=0, seed=seed) as pulsar:
        pulsar.faults.on(replace(LOSSES[0]))
        done, moves = once(pulsar, tmp_path)
    assert moves[0].result is (FAILED if moves[0].owner == moves[0].source else ELSEWHERE)
    assert done.exit_code == (0 if moves[-1].result is LANDED else 5), done.output


@pytest.mark.parametrize(
    "lie",
    [{"result": FAILED}, {"result": UNOWNED, "owner": None}, {"owner": "b:1"}, {"source": "b:1"}, {"result": None}],
)
def test_a_journal_that_lies_is_found_out(
    lie: dict[str, Any], pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the comparison that all of these tests make."""
    with run(pulsar, tmp_path, monkeypatch) as running:
        move = running.until_tried()[0]
    with pytest.raises(AssertionError):
        assert_true(pulsar, replace(move, **lie))
