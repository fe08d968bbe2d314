"""A live lbd on the fake cluster: whether clients of what it moved are back, and what it does where they are not."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from lbd.config import Settings
from lbd.daemon.status import served_line
from lbd.model import Skip, bundle_namespace
from lbd.operations.drain import TO_WAIT_FOR
from lbd.operations.drain_plan import Pass, plan_drain_now
from lbd.reason import Reason
from lbd.store.control import Control, RequestResult, UnloadRequest
from lbd.turn.record import history_round
from tests.simulate import fakes
from tests.simulate.fakes import Run, hot, run
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from lbd.daemon.engine import Engine
    from lbd.store.moves import MoveRecord

TURNS_UNTIL_DUE = 12
"""Two and a half samples are 150 s, ten turns; the last one's topics are asked for beside it."""


def told(running: Run) -> list[MoveRecord]:
    """The moves, once it is told of each whether it is served."""
    for _ in range(TURNS_UNTIL_DUE):
        running.turn()
        running.engine.proof.wait(60)
    return running.moves()


def test_clients_that_are_back_are_told_with_their_numbers_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The seconds are those that the topics' own clients tell, whenever lbd looked."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        running.until_tried()
        moves = told(running)
        for move in moves:
            assert move.served == "yes", move
            assert move.clients_before == move.clients_after is not None, move
            assert move.reconnect_seconds is not None
            assert 0 < move.reconnect_seconds < 60, move
        assert moves


def broken(running: Run) -> list[MoveRecord]:
    """Moves that landed, and whose topics cannot be loaded from now on."""
    moves = running.until_tried()
    for move in moves:
        running.cluster.faults.on(Switch(Fault.TOPICS_DO_NOT_LOAD, move.destination, move.bundle))
    return moves


def hold(engine: Engine) -> str:
    """What holds moves for bundles that are not served; empty where nothing does."""
    return "; ".join(engine.proof.namespaces().values())


def test_a_bundle_that_is_not_served_stops_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The turn names the bundle, where it is, what it had, and the first topic's own error."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        first = broken(running)[0]
        moves = told(running)
        assert {move.served for move in moves} == {"no"}
        before = first.clients_before
        assert before is not None
        assert hold(running.engine).startswith(f"{first.bundle} on {first.destination} ({before.words} before): ")
        assert "persistent://" in hold(running.engine)
        assert "Failed to load topic within timeout" in hold(running.engine)
        record = running.turn()
        namespace = bundle_namespace(first.bundle)
        assert Skip(namespace, Reason.NOT_SERVED, hold(running.engine)) in record.skips
        assert record.plan.hold is None
        assert len(running.moves()) == len(moves)


def test_other_namespaces_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also of the same tenant, as what keeps topics from loading is mostly a namespace's own."""
    with hot(namespaces=2, rates=(80, 20)) as cluster, run(cluster, tmp_path, monkeypatch) as running:
        first = broken(running)[0]
        moves = told(running)
        rests = bundle_namespace(first.bundle)
        assert list(running.engine.proof.namespaces()) == [rests]
        assert running.engine.proof.hold() is None
        others = [bundle for bundle in cluster.owners() if bundle_namespace(bundle) != rests]
        cluster.scale(dict.fromkeys(others, 2.0))
        running.until(lambda: len(running.moves()) > len(moves))
        later = running.moves()[len(moves) :]
        assert later
        assert rests not in {bundle_namespace(move.bundle) for move in later}


def test_the_hold_stays_over_a_kill_until_a_person_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And no end of a pause that another lbd tells of."""
    killed = tmp_path / "killed"
    with hot() as cluster:
        with run(cluster, tmp_path / "first", monkeypatch) as running:
            broken(running)
            told(running)
            assert hold(running.engine)
            shutil.copytree(tmp_path / "first", killed, ignore=shutil.ignore_patterns("lock", "*.sock"))
        with run(cluster, killed, monkeypatch) as running:
            assert hold(running.engine)
            Control(killed).resume()
            assert hold(running.engine)
            Control(killed).go_on(cluster.now())
            assert not hold(running.engine)
        with run(cluster, killed, monkeypatch) as running:
            assert not hold(running.engine)


def test_a_request_by_hand_passes_the_hold_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As any order to wait, for any bundle of the namespace."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        broken(running)
        moved = {move.bundle for move in told(running)}
        (namespace,) = running.engine.proof.namespaces()
        bundle = next(name for name in cluster.owners() if bundle_namespace(name) == namespace and name not in moved)
        answers: dict[str, RequestResult] = {}
        running.engine.requests.deliver = answers.__setitem__
        for name, override in (("held", None), ("passed", "why")):
            asked = UnloadRequest(name, bundle, cluster.brokers[1], override, "ann", 0.0, 9e9)
            running.engine.by_hand(asked)
        assert answers["held"].sentence.startswith(f"Refused: not-served: {namespace}/")
        assert "not-served" not in answers["passed"].sentence


def test_a_bundle_that_others_move_on_holds_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What its broker of before did not load is no concern any more; that it did not stays told."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        moves = broken(running)
        told(running)
        assert hold(running.engine)
        for move in moves:
            cluster._book.transfer(move.bundle, next(one for one in cluster.brokers if one != move.destination))
        running.turn()
        running.engine.proof.wait(60)
        assert not hold(running.engine)
        assert {move.served for move in running.moves()} == {"no"}


def test_the_hold_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After the time that lbd stands still; the moves stay as not served."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        broken(running)
        told(running)
        assert "by itself in" in hold(running.engine)
        cluster.forward(3600)
        assert not hold(running.engine)
        assert {move.served for move in running.moves()} == {"no"}


def test_clients_that_come_later_end_the_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The moves are served then, and what was told before stands beside it."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        broken(running)
        told(running)
        cluster.faults.off()
        moves = told(running)
        assert not hold(running.engine)
        assert {move.served for move in moves[:1]} == {"yes"}
        assert "only after lbd had reported" in moves[0].served_detail


def test_topics_that_load_again_end_the_hold_without_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing keeps the clients away any more; that they were kept away stays told."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        first = broken(running)[0]
        told(running)
        cluster.faults.off()
        cluster.faults.on(Switch(Fault.CLIENTS_LEAVE))
        move = told(running)[0]
        assert not hold(running.engine)
        assert (move.bundle, move.served) == (first.bundle, "no")
        assert "by now its topics load" in move.served_detail


def test_a_bundle_without_clients_before_is_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever its topics do afterwards: nobody misses them."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        cluster.faults.on(Switch(Fault.CLIENTS_LEAVE))
        broken(running)
        for move in told(running):
            assert (move.served, move.served_detail) == ("unknown", "it had no clients before the move")
        assert not hold(running.engine)


def test_clients_that_left_by_themselves_are_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Their topics load when they are asked for, so nothing keeps the clients away."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        running.until_tried()
        cluster.faults.on(Switch(Fault.CLIENTS_LEAVE))
        moves = told(running)
        assert {move.served for move in moves[:1]} == {"unknown"}
        assert moves[0].served_detail == "its topics load, and no client has come back to them"
        assert not hold(running.engine)


def test_a_kill_between_landing_and_proof_leaves_it_to_the_next_lbd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its state directory, as it was after the landing, has all that the proof needs."""
    killed = tmp_path / "killed"
    with hot() as cluster:
        with run(cluster, tmp_path / "first", monkeypatch) as running:
            first = broken(running)[0]
            shutil.copytree(tmp_path / "first", killed, ignore=shutil.ignore_patterns("lock", "*.sock"))
        with run(cluster, killed, monkeypatch) as running:
            move = told(running)[0]
            assert (move.move, move.served) == (first.move, "no")
            assert first.bundle in hold(running.engine)


def test_a_proof_that_nobody_made_within_the_hour_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever keeps clients away by then need not be the move."""
    killed = tmp_path / "killed"
    with hot() as cluster:
        with run(cluster, tmp_path / "first", monkeypatch) as running:
            broken(running)
            shutil.copytree(tmp_path / "first", killed, ignore=shutil.ignore_patterns("lock", "*.sock"))
        cluster.forward(4000)
        with run(cluster, killed, monkeypatch) as running:
            running.turn()
            running.engine.proof.wait(60)
            assert {move.served for move in running.moves()} == {"unknown"}
            assert not hold(running.engine)


def test_a_destination_that_is_gone_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its bundles are elsewhere, or nowhere: that is no fault of the move."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        gone = running.until_tried()[0].destination or ""
        cluster.leave(gone)
        assert {move.served for move in told(running) if move.destination == gone} == {"unknown"}
        assert not hold(running.engine)


def test_a_drain_leaves_a_namespace_that_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its bundles stay with this reason, and those of others go; what was not sent for it is due again afterwards."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        broken(running)
        told(running)
        engine = running.engine
        (namespace,) = engine.proof.namespaces()
        assert engine._real.ordered() is None
        assert Reason.NOT_SERVED in TO_WAIT_FOR
        parts = engine._real.tools(engine._real.parts()).parts
        source = next(owner for bundle, owner in cluster.owners().items() if bundle.startswith(namespace) and owner)
        view = plan_drain_now(parts, engine.looking.admin, Pass(source, cluster.now(), cluster.now()))
        stays = {skip.what for skip in view.plan.stay if skip.reason is Reason.NOT_SERVED}
        assert stays == {bundle for bundle in view.owned if bundle_namespace(bundle) == namespace} != set()
        assert namespace not in {bundle_namespace(unload.bundle) for unload in view.plan.unloads}


def test_the_log_and_history_tell_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A row of its own in history, with the numbers before and after, and a line of the log."""
    with hot() as cluster, run(cluster, tmp_path, monkeypatch) as running:
        heard: list[tuple[str, dict[str, Any]]] = []
        running.engine.proof.on_end = lambda *ended: heard.append(served_line(*ended))
        first = running.until_tried()[0]
        rows: list[Mapping[str, object]] = []
        for _ in range(TURNS_UNTIL_DUE):
            kept = history_round(running.turn(), Settings())
            rows += kept.moves if kept is not None else ()
            running.engine.proof.wait(60)
        (row,) = (one for one in rows if one["bundle"] == first.bundle and one["served"] is not None)
        before = first.clients_before
        assert before is not None
        assert (row["served"], row["amended"], row["result"]) == ("yes", True, "landed")
        assert (row["topics_before"], row["consumers_after"]) == (before.topics, before.consumers)
        assert 0 < cast("float", row["reconnect_seconds"]) < 60
        sentence, facts = next(one for one in heard if one[1]["bundle"] == first.bundle)
        assert sentence.startswith("clients are back, after ")
        assert facts["clients_before"] == asdict(before)


def test_a_resume_while_the_clock_was_ahead_passes_no_later_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given by a clock that showed tomorrow, and what is not served was found today."""
    with fakes.hot() as cluster, fakes.run(cluster, tmp_path, monkeypatch) as running:
        Control(tmp_path, running.engine.orders).go_on(cluster.now() + 86_400)
        broken(running)
        told(running)
        assert hold(running.engine)
        Control(tmp_path, running.engine.orders).go_on(cluster.now())
        assert not hold(running.engine)


def test_clients_that_come_after_an_hour_end_a_longer_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as a bundle holds others it is looked at."""
    with fakes.hot() as cluster:
        rails = fakes.settings(cluster, tmp_path).guardrails.model_dump() | {"stand_still_minutes": 240}
        chosen = fakes.settings(cluster, tmp_path, guardrails=rails)
        with fakes.run(cluster, tmp_path, monkeypatch, chosen) as running:
            broken(running)
            told(running)
            cluster.forward(3700)
            assert hold(running.engine)
            cluster.faults.off()
            told(running)
            assert not hold(running.engine)
