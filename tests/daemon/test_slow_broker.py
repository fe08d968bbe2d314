"""Beside a broker that carries little and is slow: no turn and no drain sends it anything, and people read why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.doctor.brokers import check_health_checks
from lbd.doctor.survey import survey
from lbd.operations.dry import dry_run
from lbd.permit.slow import KEPT_CHECKS, TYPICAL_CHECKS
from lbd.reason import Reason
from lbd.store.control import Control, Pause
from lbd.store.explain import Explainer
from tests.daemon.test_draining import asked, done, ended, settings
from tests.simulate import fakes
from tests.simulate.faulty import Fault, FaultyPulsar, Switch
from tests.simulate.worlds import begun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.config import Settings
    from lbd.turn.parts import TurnResult
    from tests.simulate.fakes import Run

ENDLESS = 1_000_000


@pytest.fixture
def chosen(cluster: FaultyPulsar, tmp_path: Path) -> Settings:
    """The default ones."""
    return fakes.settings(cluster, tmp_path)


@pytest.fixture
def lbd(cluster: FaultyPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Settings) -> Iterator[Run]:
    """A live lbd beside three brokers, of which the first is hot."""
    with fakes.run(cluster, tmp_path, monkeypatch, chosen) as found:
        yield found


def make_slow(cluster: FaultyPulsar, *brokers: str) -> None:
    """From now on their health checks fail, as where a message is not written in time."""
    for broker in brokers:
        cluster.faults.on(Switch(Fault.UNAVAILABLE, broker, "brokers/health", times=ENDLESS))


def checked(lbd: Run, checks: int) -> list[TurnResult]:
    """Turns with so many health checks of each broker, each known to the turn after it."""
    turns = []
    for _ in range(2 * checks + 1):
        turns.append(lbd.turn())
        for future in list(lbd.engine._real.health_checks._under_way.values()):
            future.exception(30)
    return turns


def destinations(lbd: Run) -> set[str | None]:
    """Where bundles were sent."""
    return {move.destination for move in lbd.moves()}


def pause(lbd: Run) -> None:
    """Until it is known who is slow: lbd looks, and moves nothing."""
    Control(lbd.folder).pause(Pause(lbd.cluster.now(), None, "slow?", "ann"))


def known_slow(lbd: Run, *brokers: str) -> TurnResult:
    """The turn by which enough of their checks have failed."""
    make_slow(lbd.cluster, *brokers)
    pause(lbd)
    last = checked(lbd, TYPICAL_CHECKS)[-1]
    Control(lbd.folder).resume()
    return last


def checklist(lbd: Run, chosen: Settings) -> tuple[str, str]:
    """What ``lbd doctor`` says of slow brokers, and how grave that is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("time.time", lbd.cluster.now)
        seen = survey(chosen, lbd.cluster.now)
    assert seen.observation is not None
    (found,) = check_health_checks(seen, seen.observation)
    return found.level, found.seen


def test_turns_send_everything_elsewhere(lbd: Run, cluster: FaultyPulsar):
    """The slow broker is the least loaded one by far, and the hot one is relieved all the same."""
    hot, warm, cold = cluster.brokers
    known_slow(lbd, cold)
    lbd.until_tried()
    lbd.turns(4)
    assert destinations(lbd) == {warm}
    assert {move.source for move in lbd.moves()} == {hot}


def test_without_it_the_same_cluster_sends_to_the_coldest(lbd: Run, cluster: FaultyPulsar):
    """So the test above shows what it says."""
    pause(lbd)
    checked(lbd, TYPICAL_CHECKS)
    Control(lbd.folder).resume()
    lbd.until_tried()
    assert cluster.brokers[2] in destinations(lbd)


def test_people_read_which_broker_is_slow(lbd: Run, cluster: FaultyPulsar, chosen: Settings):
    """In the turn's sentence, which status and dashboard show, in its skips, in ``lbd explain`` and ``lbd doctor``."""
    cold = cluster.brokers[2]
    why = "its health check takes 10 s, or fails; "
    last = known_slow(lbd, cold)
    assert f"; nothing goes to {cold}: slow-broker ({why}" in last.sentence
    assert [(one.what, one.reason) for one in last.skips if why in one.detail] == [(cold, Reason.SLOW_BROKER)]
    explainer = Explainer(lbd.folder, now=cluster.now(), since=0.0, last=10, cool_down_seconds=0.0)
    answer = explainer.broker(cold)
    expected = f"slow-broker: nothing is moved to it, and it is compared with no other broker: {why}"
    assert answer.because[0].startswith(expected)
    level, text = checklist(lbd, chosen)
    assert (level, text.partition(why)[0]) == ("warning", f"nothing is moved to {cold}: ")


def test_once_it_is_well_it_takes_part_again(lbd: Run, cluster: FaultyPulsar, chosen: Settings):
    """After nine of ten checks, and not before."""
    cold = cluster.brokers[2]
    known_slow(lbd, cold)
    cluster.faults.off()
    pause(lbd)
    still = checked(lbd, KEPT_CHECKS - 3)[-1]
    assert Reason.SLOW_BROKER in {skip.reason for skip in still.skips}
    well = checked(lbd, 3)[-1]
    Control(lbd.folder).resume()
    assert Reason.SLOW_BROKER not in {skip.reason for skip in well.skips}
    assert checklist(lbd, chosen)[0] == "ok"
    lbd.until_tried()
    assert cold in destinations(lbd)


def test_where_most_are_slow_none_is_avoided(lbd: Run, cluster: FaultyPulsar, chosen: Settings):
    """What they share is slow then, and moves go on."""
    last = known_slow(lbd, *cluster.brokers)
    assert Reason.SLOW_BROKER not in {skip.reason for skip in last.skips}
    assert checklist(lbd, chosen)[0] == "ok"
    lbd.until_tried()
    assert cluster.brokers[2] in destinations(lbd)


def test_where_more_than_a_third_are_slow_they_are_named_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two of five: ``lbd doctor`` says what to look at."""
    names, each = "abcde", {"mib_per_second": 10, "bundles": 2}
    load = [{"name": f"n{at}", "brokers": [one], **each} for at, one in enumerate(names)]
    world, state = begun(1, brokers=[{"id": one} for one in names], load=load)
    with FaultyPulsar(world, state) as cluster:
        chosen = fakes.settings(cluster, tmp_path)
        with fakes.run(cluster, tmp_path, monkeypatch, chosen) as lbd:
            last = known_slow(lbd, *cluster.brokers[:2])
            level, text = checklist(lbd, chosen)
    assert Reason.SLOW_BROKER not in {skip.reason for skip in last.skips}
    first, second = sorted(cluster.brokers[:2])
    assert level == "warning", text
    assert text.startswith(f"more than a third of the brokers look slow, so none is avoided: {first}: its health")
    assert f"; {second}: its health check takes 10 s, or fails; " in text


def test_a_dry_run_knows_it_too(lbd: Run, cluster: FaultyPulsar, chosen: Settings, monkeypatch: pytest.MonkeyPatch):
    """Checks are kept beside the other memory; a dry run sends none."""
    _, warm, cold = cluster.brokers
    known_slow(lbd, cold)
    sent = len([one for one in cluster.requests if one.path.endswith("/health")])
    monkeypatch.setattr("time.time", cluster.now)
    planned = dry_run(chosen)
    assert {unload.destination for unload in planned.plan.unloads} == {warm}
    assert sent == len([one for one in cluster.requests if one.path.endswith("/health")])


def test_a_drain_sends_it_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Though it has most room."""
    with fakes.hot(rates=(30, 20), clients=0) as cluster:
        first, second, cold = cluster.brokers
        with fakes.run(cluster, tmp_path, monkeypatch, settings(cluster, tmp_path)) as lbd:
            known_slow(lbd, cold)
            work = ended(lbd, asked(second))
            assert (work.exit_code, work.landed) == (0, 4)
            assert destinations(lbd) == {first}


def test_a_drain_that_only_it_could_bear_says_why(lbd: Run, cluster: FaultyPulsar):
    """Nothing is moved, and a person may turn the guardrail off."""
    hot, _, cold = cluster.brokers
    known_slow(lbd, cold)
    answer, _ = done(lbd, asked(hot))
    assert answer.exit_code == 4
    assert f"{cold} is slow" in answer.sentence


def test_it_can_be_drained_itself(lbd: Run, cluster: FaultyPulsar):
    """By which a person moves its bundles off."""
    cold = cluster.brokers[2]
    known_slow(lbd, cold)
    work = ended(lbd, asked(cold))
    assert (work.exit_code, work.landed) == (0, 2)


@pytest.mark.parametrize("change", ["no guardrail", "mode: observe"])
def test_without_the_guardrail_and_under_observe_no_broker_is_checked(
    cluster: FaultyPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Settings, change: str
):
    """Nor is one avoided that was slow before. An lbd that only observes has no broker write anything."""
    rails = chosen.guardrails.model_copy(update={"avoid_slow_brokers": False})
    changes = {"guardrails": rails} if change == "no guardrail" else {"mode": "observe"}
    with fakes.run(cluster, tmp_path, monkeypatch, chosen.model_copy(update=changes)) as lbd:
        known = lbd.turns(4)
        assert not [one for one in cluster.requests if one.path.endswith("/health")]
        assert known[-1].facts is not None
        assert not known[-1].facts.evidence.health.records
