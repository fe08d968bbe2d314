"""``config from-broker``: what a cluster runs with becomes lbd's settings, and what lbd does differently is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from lbd.cli import main
from lbd.config import Settings, load
from lbd.operations.from_broker import from_broker_conf
from lbd.pulsar.broker_configuration import PLACES_WITH

Section = dict[str, Any]
IMPL = "org.apache.pulsar.broker.loadbalance.impl."
SHEDS_WITH = "loadBalancerLoadSheddingStrategy"
RUNTIME = Path(__file__).parents[1] / "data" / "configuration" / "runtime-4.0.8.json"
AVG_SHEDDER = {SHEDS_WITH: IMPL + "AvgShedder"}
OFF = {"loadBalancerSheddingEnabled": "false"}


class TestValues:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({}, {}),
            ({"loadBalancerAvgShedderLowThreshold": "20"}, {"avg_shedder": {"low_threshold": 20.0}}),
            ({"maxUnloadPercentage": "0.2"}, {"avg_shedder": {"max_unload_percentage": 0.2}}),
            ({"loadBalancerBandwithInResourceWeight": "0.5"}, {"weights": {"bandwidth_in": 0.5}}),
            (
                {"loadBalancerBandwithInResourceWeight": "0.5", "loadBalancerBandwidthInResourceWeight": "0.7"},
                {"weights": {"bandwidth_in": 0.7}},
            ),
            (
                {"loadBalancerSheddingExcludedNamespaces": "[t/a, t/b]"},
                {"guardrails": {"excluded_namespaces": ["t/a", "t/b"]}},
            ),
            ({"loadBalancerSheddingExcludedNamespaces": "[]"}, {"guardrails": {"excluded_namespaces": []}}),
            (
                {"loadBalancerSheddingExcludedNamespaces": "t/a,t/b"},
                {"guardrails": {"excluded_namespaces": ["t/a", "t/b"]}},
            ),
            (
                {SHEDS_WITH: IMPL + "OverloadShedder", "loadBalancerBrokerOverloadedThresholdPercentage": "70"},
                {
                    "avg_shedder": {"broker_overloaded_threshold_percentage": 70.0},
                    "guardrails": {"max_destination_score": 70.0},
                },
            ),
            ({"loadBalancerBrokerMaxTopics": "100"}, {"guardrails": {"max_topics_per_broker": 100}}),
            ({"loadBalancerSheddingGracePeriodMinutes": "10"}, {"guardrails": {"cool_down_minutes": 10.0}}),
            ({"loadBalancerNamespaceBundleMaxTopics": "500"}, {"split": {"max_topics": 500}}),
            ({"loadBalancerCPUResourceWeight": "2", "webServicePort": "8080"}, {"weights": {"cpu": 2.0}}),
        ],
    )
    def test_values(self, values: dict[str, str], expected: dict[str, Section]) -> None:
        """What a broker's configuration says, under lbd's names; both spellings of bandwidth."""
        assert from_broker_conf(values).settings == expected

    @pytest.mark.parametrize("text", ["many", "", "-3", "NaN"])
    def test_an_unreadable_value_is_left_out_and_said(self, text: str) -> None:
        """One line a value, also where two sections have it."""
        key = "loadBalancerAvgShedderHitCountLowThreshold"
        taken = from_broker_conf({key: text, "minUnloadMessage": "5"})
        assert taken.settings == {"avg_shedder": {"min_unload_message": 5.0}}
        (told,) = taken.left_out
        assert told.startswith(f"{key}={text}: ")

    def test_what_is_taken_can_be_loaded(self, tmp_path: Path) -> None:
        """The output of config from-broker is a configuration."""
        values = {"loadBalancerAvgShedderLowThreshold": "20", "loadBalancerCPUResourceWeight": "2"}
        path = tmp_path / "lbd.yaml"
        path.write_text(yaml.safe_dump(from_broker_conf(values).settings))
        assert load(path, {}).settings.avg_shedder.low_threshold == 20

    def test_every_broker_conf_name_that_is_told_is_read(self) -> None:
        """A setting whose description names its key in broker.conf takes it from there."""
        for section in ("avg_shedder", "weights", "guardrails"):
            model = Settings.model_fields[section].annotation
            assert isinstance(model, type)
            assert issubclass(model, BaseModel)
            for name, field in model.model_fields.items():
                key = (field.description or "").partition("broker.conf ")[2].partition(";")[0].strip()
                if key:
                    text = {"excluded_namespaces": "t/n", "high_threshold": "50"}.get(name, "1")
                    assert name in from_broker_conf({key: text}).settings.get(section, {}), key

    @pytest.mark.parametrize(
        ("values", "left_out"),
        [
            ({"loadBalancerAvgShedderLowThreshold": "50"}, "avg_shedder.high_threshold 40 is below low_threshold 50"),
            ({"loadBalancerAvgShedderHitCountLowThreshold": "0"}, "avg_shedder.hit_count_low 0: every turn would move"),
            (
                dict.fromkeys(
                    (
                        "loadBalancerCPUResourceWeight",
                        "loadBalancerBandwidthInResourceWeight",
                        "loadBalancerBandwidthOutResourceWeight",
                    ),
                    "0",
                ),
                "every broker would score 0 points",
            ),
        ],
    )
    def test_values_that_lbd_takes_for_no_live_cluster(self, values: dict[str, str], left_out: str) -> None:
        """They are left out with the reason, and what is printed is a configuration."""
        found = from_broker_conf(values)
        assert any(left_out in one for one in found.left_out)
        assert Settings.model_validate(found.settings)


HITS = "lbd counts each new CPU sample above a threshold"
EVENLY = "loadBalancerDistributeBundlesEvenlyEnabled"
RANDOM = "a random one where it has more bundles"
SOLE, BYTES, GAP = "A broker's only bundle stays", "bytes are levelled", "A gap that level traffic would not close"
EXCLUDED, OWN = "Excluded namespaces are left out before", "set strategy"
NEVER = "were never in force there"


class TestDifferences:
    """Each is said where it applies, and only there."""

    @pytest.mark.parametrize(
        ("values", "said", "not_said"),
        [
            ({}, ["is not set"], [SOLE, HITS, OWN]),
            (
                {**AVG_SHEDDER, EVENLY: "false"},
                [SOLE, BYTES, GAP, "profile: stock"],
                [HITS, RANDOM, EXCLUDED, OWN, NEVER, "is not set"],
            ),
            ({**AVG_SHEDDER, "loadBalancerSheddingIntervalMinutes": "5"}, ["8 take 8 min here, 40 min there"], []),
            ({**AVG_SHEDDER, "loadBalancerHostUsageCheckIntervalMinutes": "5"}, ["40 min here, 8 min there"], []),
            ({**AVG_SHEDDER, EVENLY: "true"}, [RANDOM], []),
            (AVG_SHEDDER, [RANDOM], []),
            ({**AVG_SHEDDER, "loadBalancerSheddingExcludedNamespaces": "t/n"}, [EXCLUDED], []),
            (
                {
                    **AVG_SHEDDER,
                    "loadBalancerBandwidthInResourceWeight": "0",
                    "loadBalancerBandwidthOutResourceWeight": "0",
                },
                [SOLE],
                [BYTES],
            ),
            (
                {SHEDS_WITH: IMPL + "ThresholdShedder"},
                ["The brokers shed with ThresholdShedder", "set strategy: threshold-shedder."],
                [SOLE, RANDOM],
            ),
            (
                {
                    SHEDS_WITH: IMPL + "ThresholdShedder",
                    "loadBalancerBrokerThresholdShedderPercentage": "20",
                    "lowerBoundarySheddingEnabled": "true",
                    "loadBalancerHistoryResourcePercentage": "0.90",
                    "loadBalancerBundleUnloadMinThroughputThreshold": "much",
                },
                [
                    "The brokers have loadBalancerBrokerThresholdShedderPercentage=20; threshold-shedder of lbd always",
                    "The brokers have lowerBoundarySheddingEnabled=true; threshold-shedder of lbd always decides with",
                ],
                ["loadBalancerHistoryResourcePercentage", "MinThroughputThreshold"],
            ),
            (
                {SHEDS_WITH: IMPL + "UniformLoadShedder", PLACES_WITH: IMPL + "LeastLongTermMessageRate"},
                ["set strategy: uniform-load-shedder and placement: least-long-term-message-rate."],
                [NEVER],
            ),
            (
                {SHEDS_WITH: IMPL + "OverloadShedder", "loadBalancerAvgShedderLowThreshold": "15"},
                [NEVER, "OverloadShedder, which"],
                [],
            ),
            ({SHEDS_WITH: "org.x.Own"}, ["The brokers shed with Own, which is none of the modular"], []),
            ({"maxUnloadPercentage": "0.2", SHEDS_WITH: "a.ThresholdShedder"}, ["20% of their difference"], []),
            ({"loadBalancerSheddingGracePeriodMinutes": "7"}, ["A bundle rests 7 min after every attempt"], []),
            ({"loadBalancerBrokerOverloadedThresholdPercentage": "70"}, ["at or below 70 points"], []),
            ({"loadBalancerMemoryResourceWeight": "1.0"}, ["weights.memory"], []),
            ({"loadBalancerMemoryResourceWeight": "0.0"}, [], ["weights.memory"]),
        ],
    )
    def test_by_configuration(self, values: dict[str, str], said: list[str], not_said: list[str]) -> None:
        """A table of configurations."""
        told = " ".join(from_broker_conf(values).differences)
        assert [words for words in said if words not in told] == []
        assert [words for words in not_said if words in told] == []

    @pytest.mark.parametrize(
        ("values", "todo"),
        [
            ({}, ("the brokers shed by themselves",)),
            (OFF, ()),
            ({"loadBalancerSheddingEnabled": "True"}, ("the brokers shed by themselves",)),
            ({"loadBalancerEnabled": "false"}, ("loadBalancerEnabled=false: the brokers publish no load reports",)),
            (
                {**OFF, "loadManagerClassName": "org.x.ExtensibleLoadManagerImpl"},
                ("the brokers run ExtensibleLoadManagerImpl, which sends its load data on topics; lbd needs",),
            ),
            (
                {**OFF, "loadManagerClassName": "org.x.Own"},
                ("the brokers run Own; lbd balances with",),
            ),
            ({**OFF, "loadManagerClassName": ""}, ("the brokers run SimpleLoadManagerImpl",)),
        ],
    )
    def test_what_must_be_done_first(self, values: dict[str, str], todo: tuple[str, ...]) -> None:
        """Without it lbd would move nothing."""
        found = from_broker_conf(values).todo
        assert len(found) == len(todo)
        assert all(line.startswith(words) for line, words in zip(found, todo, strict=True))

    def test_a_real_broker(self) -> None:
        """4.0.8 as it ran: everything is carried over, what its own shedder goes by included."""
        taken = from_broker_conf(json.loads(RUNTIME.read_text()))
        assert taken.left_out == ()
        assert taken.settings["avg_shedder"]["max_unload_percentage"] == 0.2
        assert not any("always decides with" in line for line in taken.differences)
        assert Settings.model_validate(taken.settings).strategy == "avg-shedder"


def test_the_output_is_yaml_with_comments(tmp_path: Path):
    """Differences stand where the next reader of the file finds them; what needs somebody now is on stderr, too."""
    conf = tmp_path / "broker.conf"
    conf.write_text("loadBalancerSheddingEnabled=true\nminUnloadMessage=few\nmaxUnloadPercentage=0.3\n")
    done = CliRunner().invoke(main, ["config", "from-broker", str(conf)])
    assert yaml.safe_load(done.stdout)["avg_shedder"]["max_unload_percentage"] == 0.3
    comments = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert comments[0] == f"# Taken from {conf}. What lbd does differently from these brokers:"
    assert all(line.startswith(("# - ", "#   ")) and len(line) <= 120 for line in comments[1:])
    for words in ("left out: minUnloadMessage=few: ", "to do: the brokers shed by themselves"):
        assert words in done.stderr
        assert f"# - {words}" in done.stdout


SHEDDER = f"{SHEDS_WITH}={IMPL}AvgShedder\n"
BY_THEMSELVES = "to do: the brokers shed by themselves"
OFF_IN_FILE = "loadBalancerEnabled=false\nloadBalancerSheddingEnabled=true\n"
BLANK_IN_FILE = "loadManagerClassName=\nloadBalancerSheddingEnabled=false\n"


@pytest.mark.parametrize(
    ("content", "printed", "said", "not_said"),
    [
        (f"clusterName=shop\n{SHEDDER}", "low_threshold: 15", [BY_THEMSELVES], []),
        (OFF_IN_FILE, "", ["publish no load reports"], [BY_THEMSELVES]),
        (BLANK_IN_FILE, "", ["left out: loadManagerClassName=: blank; brokers keep their default"], ["to do"]),
        (f"loadBalancerEnabled=TRUE\nloadBalancerSheddingEnabled=True\n{SHEDDER}", "", [BY_THEMSELVES], []),
        ("# \xb8\xba\xd4\xd8\nloadBalancerAvgShedderLowThreshold=20\n", "low_threshold: 20", [], []),
        ("PULSAR_PREFIX_loadBalancerAvgShedderLowThreshold=25\n", "low_threshold: 25", [BY_THEMSELVES], []),
        ("maxUnloadPercentage=0.5f\n", "max_unload_percentage: 0.5", [], ["left out"]),
    ],
)
def test_files_of_operators(content: str, printed: str, said: list[str], not_said: list[str], tmp_path: Path) -> None:
    """Forms that public files have: absent keys, blanks, True, other encodings, an environment, Java's numbers."""
    (tmp_path / "broker.conf").write_bytes(content.encode("latin-1"))
    done = CliRunner().invoke(main, ["config", "from-broker", str(tmp_path / "broker.conf")])
    assert done.exit_code == 0
    assert printed in done.stdout
    assert [words for words in said if words not in done.stderr] == []
    assert [words for words in not_said if words in done.stderr] == []


def test_a_value_of_two_sections_is_left_out_once(tmp_path: Path) -> None:
    """One line of stderr a value."""
    (tmp_path / "broker.conf").write_text("loadBalancerBrokerOverloadedThresholdPercentage=85%\n")
    done = CliRunner().invoke(main, ["config", "from-broker", str(tmp_path / "broker.conf")])
    assert done.stderr.count("85%") == 1
