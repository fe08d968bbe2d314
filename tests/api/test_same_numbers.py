"""One moment of a live lbd: status, dry-run, explain, doctor, metrics and the dashboard state the same numbers."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from lbd.cli import main
from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon.status import build_status
from lbd.demo import RUNTIME
from lbd.simulate.cluster import cluster
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import load, settled
from lbd.store.calibration import CalibratedLoad, PresentLoad
from lbd.store.status import write_status
from tests.api.conftest import listening, own_api
from tests.store.test_calibration import SECOND, put, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.api.conftest import Api

    Moment: TypeAlias = tuple[Api, Callable[..., Any]]

TURNS, TURN_SECONDS = 16, 30.0

OUTGROWN = msgspec.structs.replace(summary(), load=CalibratedLoad(2, 3, 1e12))
"""Of half as many brokers."""


@pytest.fixture(scope="module")
def moment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moment]:
    """The demo's cluster eight minutes on, and a command of its machine: ten moves landed, a pair has hits and waits.

    Of one of six brokers it is known what traffic costs. The clock of the cluster stands still from then on.
    """
    folder = tmp_path_factory.mktemp("moment")
    scenario = load("demo")
    with FakePulsar(
        *cluster(scenario, 1), runtime=RUNTIME, begun_at=time.time() - TURNS * TURN_SECONDS, speed=0.001
    ) as brokers:
        known = [{"broker": brokers.brokers[0], "slope": 0.16}]
        own = {
            "pulsar": {"admin_urls": brokers.admin_urls},
            "state_dir": str(folder / "state"),
            "interval_seconds": TURN_SECONDS,
            "avg_shedder": {"low_threshold": 5, "hit_count_low": 50},
            "load": {"measure": "throughput", "live_cpu": False, "brokers": known},
            "api": own_api(folder),
        }
        put(folder / "state", SECOND, OUTGROWN)
        config = folder / "lbd.yaml"
        config.write_text(json.dumps(own))

        def command(*words: str) -> Any:
            done = CliRunner().invoke(main, [*words, "--config", str(config)], prog_name="lbd")
            assert done.exit_code == 0, done.output
            return json.loads(done.stdout) if "json" in words else done.stdout

        settings = settled(scenario, Settings.model_validate(own), {})
        with listening(settings, Timebase(brokers.now, lambda: 1.0)) as api:
            for turn in range(TURNS):
                record = api.turn()
                assert api.engine.wait(60)
                write_status(settings.state_dir, build_status(api.engine, record, turn + 1, None))
                brokers.forward(TURN_SECONDS if turn + 1 < TURNS else 0.0)
            yield api, command


def metrics(api: Api) -> dict[tuple[str, ...], float]:
    """What a scrape reads, by name and the values of the labels but ``cluster`` in the order of their names."""
    families = text_string_to_metric_families(api.get("/metrics").text)
    return {
        (one.name, *(value for label, value in sorted(one.labels.items()) if label != "cluster")): one.value
        for family in families
        for one in family.samples
    }


def line(text: str, label: str) -> str:
    """What stands behind a label of ``lbd status`` or a check of ``lbd doctor``."""
    (found,) = re.findall(rf"^{label}:? +(.+)$", text, re.MULTILINE)
    return str(found)


def finding(command: Callable[..., Any], check: str) -> str:
    """What ``lbd doctor`` found of one thing."""
    (found,) = (one for one in command("doctor", "--format", "json")["findings"] if one["check"] == check)
    return str(found["seen"])


def test_moves_of_the_last_hour(moment: Moment):
    """Moves, their bundles and their attempts; a budget counts attempts."""
    api, command = moment
    status, scraped = command("status", "--format", "json"), metrics(api)
    number = len(command("history", "--format", "json"))
    assert number > 4
    assert status["last_hour"] == {"moves": number, "bundles": number, "attempts": number, "ordered": 0}
    assert api.get("/v1/status").json()["last_hour"] == status["last_hour"]
    assert line(command("status"), "last hour") == f"{number} moves of {number} bundles, {number} attempts"
    assert [scraped[f"lbd_{name}_last_hour",] for name in ("moves", "bundles", "attempts")] == [number] * 3
    (used,) = (one["used"] for one in status["budgets"] if one["name"] == "unloads-per-hour")
    assert used == number
    assert scraped["lbd_budget_limit", "unloads-per-hour"] - scraped["lbd_budget_left", "unloads-per-hour"] == number


def test_hits_and_differences_of_pairs(moment: Moment):
    """With those of the last turn, which a dry run finds before its own."""
    api, command = moment
    pairs, scraped = command("status", "--format", "json")["pairs"], metrics(api)
    assert any(0 < pair["hits"]["low"] < 50 for pair in pairs)
    assert api.get("/v1/status").json()["pairs"] == pairs
    assert command("dry-run", "--format", "json")["pairs"] == pairs
    explained = command("explain", "--format", "json")["turn"]["pairs"]
    for pair, told in zip(pairs, explained, strict=True):
        ends, hits = (pair["destination"], pair["source"]), pair["hits"]
        assert {name: told.get(name, 0) for name in hits} == hits
        assert told["difference"] == pair["difference"] == scraped["lbd_pair_difference_points", *ends]
        for threshold in ("low", "high"):
            assert scraped["lbd_pair_hits", *ends, threshold] == hits[threshold]
            assert scraped["lbd_pair_hits_wanted", *ends, threshold] == hits[f"{threshold}_wanted"]
    words = "low samples {low}/{low_wanted}, high samples {high}/{high_wanted}".format(**pairs[0]["hits"])
    assert words in line(command("status"), "last turn")
    assert words in command("explain")
    assert words in finding(command, "lbd")


def test_the_gap(moment: Moment):
    """Highest score minus lowest, also of the brokers that each of them lists."""
    api, command = moment
    status = command("status", "--format", "json")
    gap = status["gap_points"]
    assert gap > 5
    assert api.get("/v1/status").json()["gap_points"] == gap
    assert line(command("status"), "gap") == f"{gap:.1f} points between the highest and the lowest score"
    assert metrics(api)["lbd_score_gap_points",] == gap
    for brokers in (
        status["brokers"],
        command("dry-run", "--format", "json")["brokers"],
        command("explain", "--format", "json")["turn"]["brokers"],
    ):
        scores = [one["score"] for one in brokers]
        assert max(scores) - min(scores) == pytest.approx(gap)


def test_what_is_known_of_the_load_model(moment: Moment):
    """One broker's load is given, and the others are taken to be like it."""
    api, command = moment
    words = "known of 1 of 6 brokers, taken from the others for 5"
    states = [one["load"]["state"] for one in command("status", "--format", "json")["brokers"]]
    assert sorted(states) == ["known", *["pooled"] * 5]
    assert [one["load"]["state"] for one in api.get("/v1/status").json()["brokers"]] == states
    assert [one["state"] for one in command("dry-run", "--format", "json")["load"]] == states
    assert line(command("status"), "load model") == words
    assert line(command("dry-run"), "load model: what traffic costs is") == words
    assert finding(command, "load-model") == words
    scraped = metrics(api)
    assert [scraped["lbd_load_model_brokers", state] for state in ("known", "pooled", "unknown")] == [1, 5, 0]


def test_what_a_calibration_proposed_for_another_cluster(moment: Moment):
    """One sentence, word for word, wherever it is read."""
    api, command = moment
    sentence = f"{OUTGROWN.expired(PresentLoad(6, 0.0))}: lbd calibrate --show"
    assert line(command("status"), "settings") == sentence
    assert command("status", "--format", "json")["calibration"] == sentence
    assert api.get("/v1/status").json()["calibration"] == sentence
