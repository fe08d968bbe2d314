"""Names in the settings that match nothing in the cluster are reported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
import yaml
from pydantic import BaseModel

from lbd.config import Settings
from lbd.daemon.recorder import Keeper
from lbd.store.turns import ReportedBundles, save_bundles
from lbd.turn.unmatched import NAMING_SETTINGS
from tests.builders import state_begun
from tests.cli.conftest import lbd
from tests.fake_pulsar import hot_broker
from tests.turn.records import record, two

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

NAMES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "guardrails.excluded_namespaces": ({"guardrails": {"excluded_namespaces": ["t/n", "t/m", "u/*"]}}, "t/m, u/*"),
    "guardrails.include_namespaces": ({"guardrails": {"include_namespaces": ["t/*", "u/*"]}}, "u/*"),
    "guardrails.canary.namespaces": ({"guardrails": {"canary": {"namespaces": ["t/n", "t/m"]}}}, "t/m"),
    "guardrails.move_costs": ({"guardrails": {"move_costs": {"t/n": 1, "u/n": "never"}}}, "u/n"),
    "load.brokers": ({"load": {"brokers": [{"broker": b, "capacity": 2} for b in (".*", "gone-.*")]}}, "gone-.*"),
    "spread.zones": ({"spread": {"zones": {"*": "a", "gone-*": "b"}}}, "gone-*"),
}
"""Each setting with names that match and names that do not, and those that do not."""

NAMES_NO_NAMESPACE_OR_BROKER = {
    "pulsar.admin_urls": "addresses; an unreachable one is an error or a warning of the connection",
    "pulsar.service_url": "an address",
    "pulsar.cluster": "requests with a wrong name fail",
    "pulsar.basic.username": "a user",
    "pulsar.oauth2.issuer_url": "an address",
    "pulsar.oauth2.audience": "a name at the issuer",
    "pulsar.oauth2.scope": "a name at the issuer",
    "strategy": "checked against the list",
    "placement": "checked against the list",
    "api.listen": "an address",
    "leader.topic": "created by the first leader",
    "leader.api_url": "an address",
}


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers with bundles of t/n."""
    with hot_broker() as cluster:
        yield cluster


def test_each_setting_with_free_text_names_something_that_is_checked_or_says_why_not() -> None:
    """A new setting has to be put into the one table or the other."""
    named = {setting.key for setting in NAMING_SETTINGS}
    texts = {key.removesuffix(".broker") for key in _texts(Settings)}
    assert named <= texts
    assert texts - named == NAMES_NO_NAMESPACE_OR_BROKER.keys()
    assert named == NAMES.keys()


def _texts(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Settings that hold any text."""
    for name, field in model.model_fields.items():
        types = list(_parts(field.annotation))
        inner = [part for part in types if isinstance(part, type) and issubclass(part, BaseModel)]
        for part in inner:
            yield from _texts(part, f"{path}{name}.")
        if str in types and not inner:
            yield f"{path}{name}"


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _config(folder: Path, values: Mapping[str, Any], urls: list[str]) -> Path:
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({"pulsar": {"admin_urls": urls}, "state_dir": str(folder / "state"), **values}))
    return path


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("source", ["cluster", "state directory"])
def test_config_check_warns_of_names_that_match_nothing(
    pulsar: FakePulsar, tmp_path: Path, key: str, source: str
) -> None:
    """The state directory is asked first, so that a file can be checked beside a running lbd without a request."""
    values, idle = NAMES[key]
    urls = pulsar.urls
    if source == "state directory":
        urls = ["http://127.0.0.1:1"]
        state_begun(tmp_path / "state")
        rows = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int8), np.zeros((1, 2))
        kept = ReportedBundles(time.time(), tuple(pulsar.ids), ["t/n/0x00000000_0xffffffff"], *rows)
        save_bundles(tmp_path / "state", kept)
    found = lbd("config", "check", "--config", _config(tmp_path, values, urls))
    assert found.exit_code == 0
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("warning")]
    assert line.startswith(f"warning: {key}: {idle} names no ")


def test_config_check_without_a_cluster_says_that_names_are_not_compared(tmp_path: Path) -> None:
    """Without names nothing is asked or said."""
    values, _ = NAMES["spread.zones"]
    found = lbd("config", "check", "--config", _config(tmp_path, values, ["http://127.0.0.1:1"]))
    assert found.exit_code == 0
    assert "warning: names of namespaces and brokers are not compared with the cluster: " in found.stderr
    assert "warning" not in lbd("config", "check", "--config", _config(tmp_path, {}, ["http://127.0.0.1:1"])).stderr


@pytest.mark.parametrize("key", NAMES)
def test_the_doctor_warns_of_names_that_match_nothing(pulsar: FakePulsar, tmp_path: Path, key: str) -> None:
    """With what to do."""
    values, idle = NAMES[key]
    found = " ".join(lbd("doctor", "--config", _config(tmp_path, values, pulsar.urls)).stdout.split())
    assert f"settings: {key}: {idle} names no " in found
    assert f"take it out of {key}" in found


@pytest.mark.parametrize("key", NAMES)
def test_the_status_warns_of_names_that_match_nothing_for_two_samples(tmp_path: Path, key: str) -> None:
    """Bundles of a broker that restarts are on no report for a while."""
    values, idle = NAMES[key]
    keeper = Keeper(Settings.model_validate({**values, "state_dir": tmp_path, "history": {"enabled": False}}))
    state_begun(tmp_path)
    said = []
    for seconds in (0.0, 60.0, 120.0):
        turn = record(two(), after_seconds=seconds)
        keeper.keep(turn, seconds)
        said.append([line for line in keeper.warnings if line.startswith(key)])
    assert said[:2] == [[], []]
    assert [line.partition(" names ")[0] for line in said[2]] == [f"{key}: {idle}"]
    keeper.take(Settings(state_dir=tmp_path))
    keeper.keep(record(two(), after_seconds=180.0), 180.0)
    assert not [line for line in keeper.warnings if line.startswith(key)]
