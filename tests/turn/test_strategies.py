"""A turn with each strategy: what it says, keeps and moves is told in the same words, pairs or not."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.config import Settings, strategy_section
from lbd.daemon.engine import engine
from lbd.decide.strategies import STRATEGIES
from lbd.decide.threshold_shedder import ThresholdShedderSettings
from lbd.decide.transfer_shedder import TransferShedderSettings
from lbd.model import Result, UsualLoad
from lbd.operations.dry import dry_run
from lbd.reason import Reason
from lbd.store.state import StateDir, TurnMemory
from lbd.turn.record import document, turn_record
from lbd.turn.verdict import verdict
from lbd.turn.watchdog import WatchdogMemory, watch
from tests import test_turn

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.decide.shedder import StrategySettings
    from tests.fake_pulsar import FakePulsar


FIRE: dict[str, dict[str, Any]] = {
    "avg-shedder": {"hit_count_high": 1, "hit_count_low": 1},
    "threshold-shedder": {"bundle_unload_min_throughput_threshold": 0},
    "overload-shedder": {"broker_overloaded_threshold_percentage": 70},
    "uniform-load-shedder": {},
    "transfer-shedder": {"shedding_condition_hit_count_threshold": 0, "broker_load_target_std": 0.1},
    "least-moves": {"hit_count_high": 1, "hit_count_low": 1},
}
"""Settings with which one sample of the hot broker is enough."""
ONE_SIDED = ("threshold-shedder", "overload-shedder", "uniform-load-shedder")


@pytest.fixture(autouse=True)
def firing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed numbers of strategies without a section, too."""
    for name, rule in tuple(STRATEGIES.items()):
        if not rule.is_section:
            monkeypatch.setitem(STRATEGIES, name, partial(rule, **FIRE[name]))


def chosen(pulsar: FakePulsar, folder: Path, name: str, **changes: Any) -> Settings:
    """This strategy, with destinations by what brokers have carried for long."""
    section = {strategy_section(name): FIRE[name]} if strategy_section(name) in Settings.model_fields else {}
    return test_turn.settings(pulsar, folder, strategy=name, **{**section, **changes})


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_hot_broker_is_relieved(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Each bundle has a named destination, lands there, and the turn that is kept says why it moved."""
    first = pulsar.ids[0]
    record = test_turn.once(chosen(pulsar, tmp_path, name))

    assert record.error is None
    assert record.moves.outcomes
    assert {outcome.result for outcome in record.moves.outcomes} == {Result.LANDED}
    assert {outcome.unload.source for outcome in record.moves.outcomes} == {first}
    for outcome in record.moves.outcomes:
        assert pulsar.owners[outcome.unload.bundle] == outcome.unload.destination != first
    turn = turn_record(record, 0.0)
    assert [pair.source for pair in turn.pairs if pair.fired] == [first]
    assert {one.reason for one in turn.candidates} >= {"moves"}
    assert verdict(record).kind == "moving"


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_what_was_touched_settles_first(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Whoever decides: the next turn waits for the truth, says so, and nothing moves twice."""
    settings = chosen(pulsar, tmp_path, name)
    test_turn.once(settings)
    owners = dict(pulsar.owners)
    pulsar.sample(82.0, 47.0, 12.0)
    record = test_turn.once(settings)

    assert pulsar.owners == owners
    assert record.plan.unloads == ()


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_hold_holds(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """While the brokers shed by themselves nothing moves, and the verdict is the hold."""
    pulsar.brokers[0].runtime["loadBalancerSheddingEnabled"] = "true"
    record = test_turn.once(chosen(pulsar, tmp_path, name))

    test_turn.unmoved(pulsar, record)
    found = verdict(record)
    assert (found.kind, found.reason) == ("blocked", Reason.IN_BROKER_SHEDDING.label)
    assert pulsar.ids[0] in found.detail


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_dry_run_as_json(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Pairs are told where there are any, and each unload has its destination."""
    settings = chosen(pulsar, tmp_path, name)
    found = document(dry_run(settings), everything=True)

    assert found["strategy"] == name
    assert bool(found["pairs"]) == (name not in ONE_SIDED)
    assert found["unloads"]
    assert all(unload["destination"] in pulsar.ids[1:] for unload in found["unloads"])
    assert "if the imbalance lasts" in found["summary"]
    json.dumps(found)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_why_nothing_moves_is_said_of_the_broker(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """In the sentence, the verdict, what is kept, and by the watchdog."""
    rest = {"excluded_namespaces": ["t/*", "shop/*", "public/*"]}
    record = test_turn.once(chosen(pulsar, tmp_path, name, guardrails=rest))
    first = pulsar.ids[0]

    assert record.sentence.startswith(f"No move: {first}: excluded-namespace (")
    assert verdict(record).kind == "not-fixable"
    assert verdict(record).detail.startswith(f"{first}: ")
    (pair,) = turn_record(record, 0.0).pairs
    assert (pair.ends, pair.reason, pair.hits) == (first, "excluded-namespace", "")
    _, alarms = watch(WatchdogMemory(), record)
    assert alarms == ()


@pytest.mark.parametrize("name", ONE_SIDED)
def test_explain_and_status_read_what_was_kept(name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """In words without pairs, and without the name of a strategy that has some."""
    settings = chosen(pulsar, tmp_path, name)
    with engine(settings) as balancer:
        balancer.once()
    environ = {"LBD_STATE_DIR": str(settings.state_dir)}
    for words in (["explain"], ["explain", pulsar.ids[0]], ["explain", pulsar.ids[1]], ["explain", "--format", "json"]):
        done = CliRunner().invoke(main, words, env=environ)
        assert done.exit_code == 0, done.output
        assert "None" not in done.output
    told = CliRunner().invoke(main, ["explain", pulsar.ids[0]], env=environ).output
    assert "it has" in told
    assert "last fired" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("strategy: threshold-sheder", "did you mean threshold-shedder? wanted one of avg-shedder, threshold-shedder"),
        ("strategy: nonsense", "strategy: 'nonsense': wanted one of avg-shedder, threshold-shedder"),
        ("placement: least-long-term", "did you mean least-long-term-message-rate? wanted one of rendezvous"),
        ("least_moves: {aim_point: 1}", "no such setting; did you mean aim_points?"),
        ("least_move: {}", "least_move: no such setting; did you mean least_moves?"),
    ],
)
def test_a_wrong_name_is_one_line(words: str, told: str, tmp_path: Path) -> None:
    """With exit code 2, and what would be right."""
    path = tmp_path / "lbd.yaml"
    path.write_text(words)
    done = CliRunner().invoke(main, ["--config", str(path), "config", "check"])

    assert done.exit_code == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "calm",
    [ThresholdShedderSettings(broker_threshold_shedder_percentage=90), TransferShedderSettings()],
    ids=lambda rule: rule.name,
)
def test_averages_survive_a_restart(
    calm: StrategySettings, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second lbd goes on where the first one was: nine parts of what it knew, one of what it sees."""
    monkeypatch.setitem(STRATEGIES, calm.name, lambda: calm)
    settings = chosen(pulsar, tmp_path, calm.name)
    before = StateDir(settings.state_dir)
    test_turn.once(settings)
    first = before.load().loads
    pulsar.sample(90.0, 50.0, 20.0)
    test_turn.once(settings)
    second = before.load().loads

    assert set(first) == set(second) == set(pulsar.ids)
    for broker, now in zip(pulsar.ids, (0.9, 0.5, 0.2), strict=True):
        assert second[broker].usage == pytest.approx(0.9 * first[broker].usage + 0.1 * now)


def test_averages_are_forgotten_after_a_gap() -> None:
    """As hit counters are; when a broker last gave bundles is not."""
    found = TurnMemory(written_at=1000, loads={"a:80": UsualLoad(0.5)}, unloaded_at={"a:80": 990})

    assert found.at(1100, 180).loads == {"a:80": UsualLoad(0.5)}
    assert found.at(2000, 180).loads == {}
    assert found.at(2000, 180).unloaded_at == {"a:80": 990}
    assert found.at(980, 180).unloaded_at == {"a:80": 980}
