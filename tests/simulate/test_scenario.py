"""Scenario files: what is shipped loads, and what is wrong is named with its file and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lbd.config import Settings
from lbd.errors import UsageError
from lbd.simulate.scenario import BrokerPart, LoadPart, Restarts, Scenario, SilentSpell, Spell, load, settled, shipped
from lbd.simulate.world import OnOff, Ramp, Spike, Wave
from tests.simulate.worlds import scenario
from tests.test_config import LAUGHS

LOAD: dict[str, Any] = {"name": "n", "mib_per_second": 1, "bundles": 2}
GOOD: dict[str, Any] = {
    "about": "mine",
    "brokers": [{"id": "a", "number": 12}],
    "load": [LOAD],
}


@pytest.mark.parametrize("name", shipped())
def test_shipped(name: str):
    """Each loads, says where its numbers come from and what Pulsar did, and its settings are lbd's."""
    found = load(name)
    assert found.source
    assert found.stock
    assert settled(found, Settings(), {}).interval_seconds == 60


def test_a_file_of_ones_own(tmp_path: Path):
    """A path is taken as well as a name; alike brokers are numbered so that they sort."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    found = load(str(path))
    assert found.about == "mine"
    assert found.brokers[0].ids()[::11] == ("a-01:8080", "a-12:8080")


@pytest.mark.parametrize(
    ("name", "minutes"),
    [
        ("demo", None),
        ("day", None),
        ("cold-start", 5),
        ("scale-out", 10),
        ("scale-in", 10),
        ("spike", 13),
        ("fifth-lost", 30),
        ("rolling-restart", 30),
    ],
)
def test_its_first_event(name: str, minutes: float | None):
    """Brokers that come, go or falter, and traffic that jumps; a wave is none."""
    assert load(name).first_event_minutes == minutes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"about": ""}, r"about: '': String should have at least 1"),
        ({"brokers": []}, r"brokers: empty; wanted at least one"),
        ({"load": []}, r"load: empty; wanted at least one"),
        ({"hour": 3}, r"hour: 3: no such key"),
        ({"hours": -1}, r"hours: -1: wanted 0.01 or more"),
        ({"noise_points": 0}, r"noise_points: 0: wanted 0.01 or more"),
        ({"brokers": [{"id": "a b"}]}, r"brokers.0.id: 'a b': wanted text as"),
        ({"brokers": [{"id": "a"}, {"id": "a"}]}, r"brokers: a:8080 is there twice; wanted each once"),
        ({"brokers": [{"id": "a", "joins_at_minutes": 3}]}, r"none is there, or none answers, at minute 0; wanted one"),
        ({"brokers": [{"id": "a", "leaves_at_minutes": 3}]}, r"none is there, .* at minute 3; wanted one at any time"),
        (
            {"brokers": [{"id": "a", "crashes_at_minutes": 3}, {"id": "b", "joins_at_minutes": 4}]},
            r"brokers: none is there, .* at minute 3;",
        ),
        ({"brokers": [{"id": "a", "silent": [{"at_minutes": 2}]}]}, r"none is there, or none answers, at minute 2;"),
        (
            {"brokers": [{"id": "a"}, {"id": "b"}], "load": [{**LOAD, "isolated_to": ["b", "c"]}]},
            r"load.n.isolated_to: c is not there; wanted some of a, b",
        ),
        (
            {"brokers": [{"id": "a"}, {"id": "b"}], "load": [{**LOAD, "brokers": ["a"], "isolated_to": ["b"]}]},
            r"load.n: no broker that it may be on is there at first; wanted one of a, b",
        ),
        ({"load": [LOAD, {**LOAD, "name": "m", "isolated_to": ["a"]}]}, r"load.n: no broker that it may be on"),
        ({"load": [{**LOAD, "spread": 1, "zipf": 1}]}, r"load.0: spread 1 and zipf 1: wanted one of them"),
        ({"stats_interval_seconds": 7}, r"stats_interval_seconds: 7: .* multiple of 5"),
        (
            {"load": [{**LOAD, "brokers": ["x"]}]},
            r"load.n.brokers: x is not there at first; wanted some of a",
        ),
        ({"first_ratio": [3, 2]}, r"first_ratio: from 3 to 2; wanted the smaller one first"),
        ({"first_ratio": [0.5, 2]}, r"first_ratio.0: 0.5: wanted 1 or more"),
        ({"first_ratio": [2]}, r"first_ratio.1: .*missing"),
        ({"load": [{**LOAD, "shape": {"kind": "saw"}}]}, r"load.0.shape:.* 'saw'"),
        ({"load": [{**LOAD, "bundles": 0}]}, r"load.0.bundles: 0: wanted 1 or more"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], told: str):
    """The file and its line, the key, the value, and what would be right, in one line."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    with pytest.raises(UsageError, match=rf"^{path}:\d+: .*{told}") as caught:
        load(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not YAML"),
        ("- 1", "the file is a list, wanted keys and values$"),
        ("long " * 999, "the file is a str, wanted keys and values$"),
        ("", "the file is empty, wanted keys and values$"),
        ("[" * 5000, "nested too deeply"),
        ("settings: &a {b: *a}", "contains itself"),
    ],
    ids=["cut off", "a list", "no scenario", "empty", "too deep", "endless"],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, told: str):
    """It is named, with what it is."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"^{path}(:1)?: .*{told}"):
        load(str(path))


def test_the_line_is_that_of_the_key(tmp_path: Path):
    """Of one that is missing, that of what it is missing in."""
    path = tmp_path / "mine.yaml"
    path.write_text("about: x\nbrokers:\n  - id: a\nload:\n  - name: n\n    bundles: 3\n    mib_per_secnd: 9\n")
    with pytest.raises(UsageError) as caught:
        load(str(path))
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in str(caught.value).splitlines()] == ["5", "7"]


def test_no_name():
    """An empty variable of a script, say: no folder is meant."""
    with pytest.raises(UsageError, match=r"^no name of a scenario; wanted a file, or one of background, "):
        load("")


def test_no_such_scenario():
    """Those that there are, are named."""
    with pytest.raises(UsageError, match=r"^nope: no such scenario .* one of background, cold-start, "):
        load("nope")


def test_aliases_of_aliases(tmp_path: Path):
    """A kilobyte that would be 4e27 values is refused at once."""
    path = tmp_path / "laughs.yaml"
    path.write_bytes(LAUGHS)
    with pytest.raises(UsageError, match=r"laughs\.yaml: not YAML: aliases make it more than 100,000 values"):
        load(str(path))


class TestSettings:
    def test_the_users_win_over_the_scenarios(self):
        """And what is tried wins over both; what nobody sets is the default, but for a turn a minute."""
        given = Settings.model_validate({"avg_shedder": {"low_threshold": 20, "hit_count_low": 4}})
        chosen = scenario(settings={"avg_shedder": {"low_threshold": 10, "high_threshold": 30}})
        found = settled(chosen, given, {"avg_shedder.hit_count_low": 5, "guardrails.cool_down_minutes": 1})
        assert found.avg_shedder.low_threshold == 20
        assert found.avg_shedder.high_threshold == 30
        assert found.avg_shedder.hit_count_low == 5
        assert found.guardrails.cool_down_minutes == 1
        assert found.interval_seconds == 60
        assert settled(chosen, Settings(interval_seconds=15), {}).interval_seconds == 15

    def test_each_problem_is_told(self):
        """With the nearest key that there is."""
        with pytest.raises(UsageError) as caught:
            settled(
                scenario(settings={"guardrail": {}}), Settings(), {"avg_shedder.low_treshold": 1, "interval_seconds": 0}
            )
        lines = sorted(str(caught.value).splitlines())
        assert lines[0].startswith("--set: avg_shedder.low_treshold: no such setting; did you mean low_threshold?")
        assert lines[1].startswith("--set: interval_seconds: 0: ")
        assert lines[2].startswith("scenario: guardrail: no such setting; did you mean guardrails?")


def test_the_documented_scenario_loads(tmp_path: Path):
    """And uses every key that there is."""
    text = re.search(r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs/simulate.md").read_text(), re.DOTALL)
    assert text is not None
    path = tmp_path / "documented.yaml"
    path.write_text(text[1])
    found = load(str(path))
    assert settled(found, Settings(), {}).avg_shedder.min_unload_message == 10000
    for model in (Scenario, BrokerPart, LoadPart, Spell, SilentSpell, Restarts, Wave, Ramp, Spike, OnOff):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", text[1]), key
