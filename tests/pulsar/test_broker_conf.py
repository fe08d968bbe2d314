"""A broker.conf is read as a broker reads it: the expected values come from Pulsar's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lbd.config import Settings
from lbd.errors import UsageError
from lbd.operations.from_broker import OTHER_SHEDDERS, SECTIONS, from_broker_conf
from lbd.pulsar.broker_conf import read_broker_conf
from lbd.pulsar.broker_configuration import (
    DEFAULTS,
    PLACES_WITH,
    SHEDS_WITH,
    bandwidth_weight,
    is_on,
    load_manager_class,
    number,
    sheds,
)

DATA = Path(__file__).parents[1] / "data" / "configuration"
CASES: list[dict[str, Any]] = json.loads((DATA / "broker-conf.json").read_text())
SHEDDING, LOW = "loadBalancerSheddingEnabled", "loadBalancerAvgShedderLowThreshold"
WEIGHT, MISSPELT = "loadBalancerBandwidthInResourceWeight", "loadBalancerBandwithInResourceWeight"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["content"].encode("unicode_escape").decode())
def test_a_file_is_read_as_pulsar_reads_it(case: dict[str, Any]) -> None:
    """``PulsarConfigurationLoader`` of 5.0.0-M1 read each file (tests/data/configuration/ReadBrokerConf.java)."""
    content = case["content"].encode("latin-1")
    if case.get("refused") and "\\u12" in case["content"]:
        with pytest.raises(UsageError, match="wanted four hexadecimal digits"):
            read_broker_conf(content)
        return
    read = read_broker_conf(b"clusterName=c\n" + content)
    if case.get("refused"):
        assert ["a broker does not start with it" in line for line in read.left_out] == [True]
    else:
        assert {key: read.values[key] for key in case["keys"]} == case["values"]


def test_defaults_are_pulsars() -> None:
    """Absent keys count with the defaults of ``ServiceConfiguration``; strategies depend on the version."""
    expected = json.loads((DATA / "defaults-5.0.0-M1.json").read_text())
    assert sorted(expected) == sorted(DEFAULTS)
    values = read_broker_conf(b"clusterName=c\n").values
    assert values == {key: text for key, text in expected.items() if key not in {SHEDS_WITH, PLACES_WITH}}


def test_each_setting_with_a_name_in_broker_conf_has_a_default_of_pulsar() -> None:
    """Else a file that lacks the key would count with lbd's own default."""
    models = [*SECTIONS.values(), *(model for _, model in OTHER_SHEDDERS.values())]
    extras = [field.json_schema_extra for model in models for field in model.model_fields.values()]
    keys = {str(extra["broker_conf"]) for extra in extras if isinstance(extra, dict) and "broker_conf" in extra}
    assert len(keys) > 30
    assert keys - set(DEFAULTS) == set()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"PULSAR_PREFIX_{SHEDDING}=false\nPULSAR_PREFIX_{LOW}=25\nclusterName=shop\n", ("false", "25")),
        (f"PULSAR_PREFIX_{LOW}=25\n{LOW}=20\n", ("true", "25")),
        (f"{SHEDDING}=false\nPULSAR_PREFIX_{LOW}=25\n", ("false", "25")),
    ],
)
def test_the_environment_of_an_image(content: str, expected: tuple[str, str]) -> None:
    """``PULSAR_PREFIX_`` is dropped, and goes before the same key without it (apply-config-from-env.py)."""
    values = read_broker_conf(content.encode()).values
    assert (values[SHEDDING], values[LOW]) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"root:x:0:0\n",
        b"<a href='x'>\n",
        b"export PATH=/bin\n",
        b"\xff\xfe",
        b"brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerRole = ASYNC_MASTER\n",
        b"loadbalancersheddingenabled=false\n",
    ],
)
def test_a_file_of_another_product_is_refused(content: bytes) -> None:
    """No key of Pulsar in it: nothing is taken for "all defaults" that says nothing of a Pulsar broker."""
    with pytest.raises(UsageError, match="no setting of a Pulsar broker in it"):
        read_broker_conf(content)


@pytest.mark.parametrize(
    ("content", "left_out", "notes"),
    [
        ("clusterName=c", [], ["no setting of load balancing is in the file: all values are Pulsar's defaults"]),
        ("PULSAR_PREFIX_x=1", [], ["no setting of load balancing is in the file: all values are Pulsar's defaults"]),
        (f"{SHEDDING}=on", [], [f"{SHEDDING}=on is false for a broker: only true is true"]),
        (f"{SHEDDING}=TRUE", [], []),
        (f"{LOW}=15.0", [f"{LOW}=15.0: wanted a whole number; a broker does not start with it"], []),
        (f"{LOW}=", [f"{LOW}=: blank; brokers keep their default, 15"], []),
    ],
)
def test_what_a_reader_may_not_expect_is_said(content: str, left_out: list[str], notes: list[str]) -> None:
    """A sentence for each value that a broker takes otherwise than it looks."""
    read = read_broker_conf(content.encode())
    assert (list(read.left_out), list(read.notes)) == (left_out, notes)


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({}, True),
        ({SHEDDING: "TRUE"}, True),
        ({SHEDDING: "false"}, False),
        ({SHEDDING: "on"}, False),
        ({"loadBalancerEnabled": "false"}, False),
        ({"loadBalancerEnabled": "True", SHEDDING: "True"}, True),
    ],
)
def test_whether_brokers_shed(runtime: dict[str, str], expected: bool) -> None:
    """The same for a file and for a live broker; absent means on."""
    assert sheds(runtime) is expected


@pytest.mark.parametrize(
    ("runtime", "manager"),
    [
        ({}, "ModularLoadManagerImpl"),
        ({"loadManagerClassName": ""}, "SimpleLoadManagerImpl"),
        ({"loadManagerClassName": "  "}, "SimpleLoadManagerImpl"),
        ({"loadManagerClassName": "a.b.Own "}, "Own"),
    ],
)
def test_the_load_manager(runtime: dict[str, str], manager: str) -> None:
    """A live broker whose setting is blank runs the simple one (apache/pulsar#24570)."""
    assert load_manager_class(runtime) == manager


@pytest.mark.parametrize(
    ("runtime", "weight"),
    [
        ({}, None),
        ({MISSPELT: "0.5"}, "0.5"),
        ({WEIGHT: "1.0", MISSPELT: "0.5"}, "0.5"),
        ({WEIGHT: "0.7", MISSPELT: "0.5"}, "0.7"),
        ({WEIGHT: "0.7"}, "0.7"),
    ],
)
def test_both_spellings_of_bandwidth(runtime: dict[str, str], weight: str | None) -> None:
    """``getLoadBalancerBandwidthInResourceWeight`` since 4.0: the older spelling counts where the newer is 1.0."""
    assert bandwidth_weight(runtime, WEIGHT) == weight


@pytest.mark.parametrize("text", ["", "many", "NaN", "Infinity"])
def test_a_number_that_is_none_is_the_default(text: str) -> None:
    """Whatever a live broker answers."""
    assert number({"statsUpdateFrequencyInSecs": text}, "statsUpdateFrequencyInSecs") == 60.0


def test_a_switch_that_is_absent_has_its_default() -> None:
    """Both ways."""
    assert (is_on({}, SHEDDING), is_on({}, "failureDomainsEnabled")) == (True, False)


def test_what_a_file_gives_can_be_loaded() -> None:
    """All values together are settings."""
    converted = from_broker_conf(read_broker_conf(b"clusterName=c\n").values)
    assert converted.left_out == ()
    assert Settings.model_validate(converted.settings).avg_shedder.max_unload_percentage == 0.2
