"""The command line as people and scripts meet it: words, JSON, exit codes, and never a stack trace."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lbd.cli import COMMANDS
from lbd.config import Settings
from lbd.simulate.answers import refused
from tests import journals
from tests.cli.conftest import lbd
from tests.fake_pulsar import COLD, EXTENSIBLE, HOT, SIMPLE, WARM, FakePulsar

TOKEN = "top-secret-token"
EXAMPLES = Path(__file__).parents[2] / "examples"


def process(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """One call in a process of its own, with no LBD_* variable but these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    found = subprocess.run(
        [sys.executable, "-m", "lbd", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**clean, **environ},
    )
    assert "Traceback" not in found.stderr + found.stdout
    return found


def config_of(folder: Path, cluster: FakePulsar | None = None, **changes: Any) -> Path:
    """A configuration file with which one hit is enough."""
    values: dict[str, Any] = {
        "state_dir": str(folder / "state"),
        "avg_shedder": {"hit_count_high": 1},
        "guardrails": {"max_traffic_per_turn": 1.0, "membership_settle_seconds": 0},
    }
    if cluster is not None:
        values["pulsar"] = {"admin_urls": cluster.urls}
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}), encoding="utf-8")
    return path


def recording_of(folder: Path, pulsar: FakePulsar, rounds: int = 3) -> Path:
    """A recording of a cluster that stays as hot as it is."""
    header = {"recording": 1, "id": "hot", "settings": {"hit_count_high": 2}, "grace_s": 1800}
    reports = {broker: pulsar.report(broker) for broker in pulsar.ids}
    lines = [header, *({"t": 1_800_000_000 + 60 * number, "reports": reports} for number in range(rounds))]
    path = folder / "hot.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


PRINTING = [
    ("--help",),
    ("config", "show"),
    ("dry-run", "--recording", EXAMPLES / "hot-broker.jsonl.gz"),
    ("dry-run", "--recording", EXAMPLES / "hot-broker.jsonl.gz", "--format", "json"),
]
WRONG_USAGE = [
    *([], ["nonsense"], ["run", "--nonsense"], ["dry-run", "--format", "xml"]),
    *(["history", "--last", "9" * 30], ["explain", "--last", "9" * 30]),
    *(["unload", "a/b", "--timeout", wrong] for wrong in ("nan", "inf", "1e300")),
]


class TestHelp:
    @pytest.mark.parametrize(
        "command",
        [*([name] for name in COMMANDS), ["config", "check"], ["config", "show"], ["config", "from-broker"], []],
        ids=" ".join,
    )
    @pytest.mark.parametrize("option", ["--help", "-h"])
    def test_every_command_explains_itself(self, command: list[str], option: str) -> None:
        """With its usage, and exit code 0."""
        found = lbd(*command, option)
        assert found.exit_code == 0
        assert found.stdout.startswith(f"Usage: main {' '.join(command)}".rstrip())

    @pytest.mark.parametrize("group", ["config", "history"])
    def test_what_a_command_is_for_is_told_to_the_end(self, group: str) -> None:
        """In the list of its group, which click cuts off."""
        assert "..." not in lbd(group, "--help").stdout.partition("Commands:")[2]

    def test_the_commands_are_listed(self) -> None:
        """All of them, in the order in which one meets them."""
        listed = lbd("--help").stdout.partition("Commands:")[2]
        places = [listed.index(f"  {name} ") for name in COMMANDS]
        assert places == sorted(places)

    def test_help_imports_nothing_heavy(self) -> None:
        """Or it would not come within a blink."""
        program = (
            "import sys, lbd.cli; print([name for name in ('numpy', 'requests', 'pydantic') if name in sys.modules])"
        )
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]"

    def test_version(self) -> None:
        """The version of the package."""
        assert lbd("--version").stdout.startswith("lbd 0.1.0 (")

    def test_ctrl_c_is_no_bug(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """130, as shells have it, also while a command is still being loaded."""

        def interrupted(name: str) -> None:
            raise KeyboardInterrupt(name)

        monkeypatch.setattr("lbd.cli.importlib.import_module", interrupted)
        found = lbd("status")
        assert (found.exit_code, found.stderr) == (130, "\nInterrupted.\n")

    def test_ctrl_c_before_it_is_loaded(self) -> None:
        """The same, of a press in the first tenths of a second: what is being imported then shows no trace."""
        program = (
            "import builtins, sys; known = builtins.__import__\n"
            "def interrupted(name, *more):\n"
            "    if name == 'click': raise KeyboardInterrupt\n"
            "    return known(name, *more)\n"
            "builtins.__import__ = interrupted\n"
            "from lbd.__main__ import main; main()"
        )
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (130, "", "\nInterrupted.\n")

    @pytest.mark.parametrize("words", PRINTING, ids=["click", "lines", "rich", "at its end"])
    def test_nobody_reads_on(self, words: tuple[object, ...]) -> None:
        """As behind ``| head``: it ends without a word, and with 141, as shells have it."""
        reads, writes = os.pipe()
        os.close(reads)
        try:
            command = [sys.executable, "-m", "lbd", *map(str, words)]
            found = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
        finally:
            os.close(writes)
        assert (found.returncode, found.stderr) == (141, "")

    @pytest.mark.parametrize("words", PRINTING, ids=["click", "lines", "rich", "at its end"])
    def test_output_that_has_no_room(self, words: tuple[object, ...]) -> None:
        """A full disk is no bug: one line."""
        command = [sys.executable, "-m", "lbd", *map(str, words)]
        with Path("/dev/full").open("wb") as full:
            found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (found.returncode, found.stderr) == (2, "Error: stdout: cannot be written: No space left on device\n")

    def test_neither_stream_has_room(self) -> None:
        """``> log 2>&1`` on a full disk: the exit code is left to tell that it is no bug."""
        with Path("/dev/full").open("wb") as full:
            found = subprocess.run(
                [sys.executable, "-m", "lbd", "config", "show"], stdout=full, stderr=subprocess.STDOUT, check=False
            )
        assert found.returncode == 2

    def test_no_output_is_wanted(self) -> None:
        """``>&-``: stdout was closed before the command began."""
        command = ["sh", "-c", f"exec {sys.executable} -m lbd config show >&-"]
        found = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, "")

    def test_what_a_terminal_cannot_show_is_left_out(self) -> None:
        """Bars and arrows, or the name of a file that is no text."""
        found = process("dry-run", "--recording", EXAMPLES / "hot-broker.jsonl.gz", PYTHONIOENCODING="ascii")
        assert (found.returncode, found.stdout.splitlines()[-1][:21]) == (0, "Would move 6 bundles ")
        named = process("dry-run", "--recording", b"\xff.jsonl".decode("utf-8", "surrogateescape"))
        assert (named.returncode, ".jsonl" in named.stderr) == (2, True)

    @pytest.mark.parametrize("arguments", WRONG_USAGE)
    def test_wrong_usage(self, arguments: list[str]) -> None:
        """Exit 2 and one message on stderr."""
        found = lbd(*arguments)
        assert found.exit_code == 2
        assert "Usage:" in found.stderr

    @pytest.mark.parametrize(("word", "near"), [("statsu", " Did you mean 'status'?"), ("xyzzy", "")])
    def test_an_unknown_command(self, word: str, near: str) -> None:
        """With the nearest one, if one is near."""
        found = lbd(word)
        assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, f"Error: No such command {word!r}.{near}")


class TestConfig:
    def test_check_is_content(self, tmp_path: Path) -> None:
        """And says how much is set."""
        found = lbd("config", "check", "--config", config_of(tmp_path))
        assert (found.exit_code, found.stdout, found.stderr) == (0, "", "ok: 4 values set\n")

    @pytest.mark.parametrize(
        ("words", "told"), [([], "all defaults"), (["--admin-url", "http://b1:80"], "1 value set")]
    )
    def test_check_counts(self, words: list[str], told: str) -> None:
        """As one says it."""
        assert lbd("config", "check", *words).stderr == f"ok: {told}\n"

    def test_check_tells_every_problem(self, tmp_path: Path) -> None:
        """One line each, exit 2."""
        path = config_of(tmp_path, profile="bold", intervall_seconds=5, weights={"cpu": -1})
        found = lbd("config", "check", "--config", path)
        lines = found.stderr.splitlines()
        assert (found.exit_code, found.stdout, len(lines)) == (2, "", 3)
        assert all(line.startswith(f"Error: {path}: ") for line in lines)
        assert "did you mean interval_seconds?" in found.stderr

    def test_show_is_yaml_with_origins(self, tmp_path: Path) -> None:
        """What it prints can be loaded again, and says where each value came from."""
        path = config_of(tmp_path)
        found = lbd("config", "show", "--config", path, "--admin-url", "http://b9:8080")
        values = yaml.safe_load(found.stdout)
        again = Settings.model_validate(values)
        assert again.pulsar.admin_urls == ("http://b9:8080",)
        assert again.avg_shedder.hit_count_high == 1
        assert f"hit_count_high: 1  # {path}" in found.stdout
        assert "admin_urls: ['http://b9:8080']  # command line" in found.stdout
        assert "hit_count_low: 8\n" in found.stdout

    def test_show_tells_no_secret(self, tmp_path: Path) -> None:
        """The file of a token is named, not read."""
        (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
        path = config_of(tmp_path, pulsar={"token_file": str(tmp_path / "token")})
        found = lbd("config", "show", "--config", path)
        assert str(tmp_path / "token") in found.stdout
        assert TOKEN not in found.output

    @pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
    def test_options_stand_before_or_after_the_command(self, before: bool, tmp_path: Path) -> None:
        """--config and --admin-url mean the same in both places."""
        options = ["--config", config_of(tmp_path), "--admin-url", "http://b9:8080"]
        arguments = [*options, "config", "show"] if before else ["config", "show", *options]
        found = lbd(*arguments)
        assert "http://b9:8080" in found.stdout
        assert "hit_count_high: 1  #" in found.stdout

    def test_what_stands_after_wins(self, tmp_path: Path) -> None:
        """The nearer one is meant."""
        found = lbd("--admin-url", "http://b1:1", "config", "show", "--admin-url", "http://b2:2")
        assert "admin_urls: ['http://b2:2']" in found.stdout
        assert lbd("--config", tmp_path / "absent", "config", "check", "--config", config_of(tmp_path)).exit_code == 0

    def test_from_the_environment(self, tmp_path: Path) -> None:
        """LBD_CONFIG names the file, LBD_* set values over it."""
        found = process("config", "show", LBD_CONFIG=str(config_of(tmp_path)), LBD_PROFILE="stock")
        assert "hit_count_high: 1  #" in found.stdout
        assert "profile: stock  # environment LBD_PROFILE" in found.stdout

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Exit 2, and its name."""
        found = lbd("config", "check", "--config", tmp_path / "absent.yaml")
        assert found.exit_code == 2
        assert "absent.yaml" in found.stderr

    def test_from_broker_conf(self, tmp_path: Path) -> None:
        """A broker.conf becomes lbd's settings on stdout; what differs is said on stderr."""
        conf = tmp_path / "broker.conf"
        conf.write_text(
            "# a comment\nloadBalancerAvgShedderLowThreshold=20\nminUnloadMessage = 5\n#maxUnloadPercentage=0.9\n"
            "loadBalancerBandwithInResourceWeight=0.5\nmaxUnloadPercentage=much\nnonsense\n",
            encoding="utf-8",
        )
        found = lbd("config", "from-broker", conf)
        printed = yaml.safe_load(found.stdout)
        assert printed["avg_shedder"]["low_threshold"] == 20.0
        assert printed["avg_shedder"]["min_unload_message"] == 5.0
        assert printed["weights"]["bandwidth_in"] == 0.5
        assert "left out: maxUnloadPercentage=much" in found.stderr

    def test_from_a_live_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What it prints is a configuration."""
        pulsar.brokers[0].runtime = {"loadBalancerAvgShedderHighThreshold": "50"}
        found = lbd("config", "from-broker", "--admin-url", pulsar.urls[0])
        (tmp_path / "lbd.yaml").write_text(found.stdout, encoding="utf-8")
        assert lbd("config", "check", "--config", tmp_path / "lbd.yaml").exit_code == 0
        printed = yaml.safe_load(found.stdout)
        assert printed["pulsar"] == {"admin_urls": pulsar.urls}
        assert printed["avg_shedder"]["high_threshold"] == 50.0

    @pytest.mark.parametrize("content", ["", "root:x:0:0\n", "<a href='x'>\n", "export PATH=/bin\n"])
    def test_a_file_that_is_no_broker_conf(self, content: str, tmp_path: Path) -> None:
        """Exit 2: nothing is taken for the way in which a cluster balances that says nothing of it."""
        (tmp_path / "broker.conf").write_text(content)
        found = lbd("config", "from-broker", tmp_path / "broker.conf")
        assert (found.exit_code, found.stdout) == (2, "")
        assert "broker.conf: no setting of a Pulsar broker in it; wanted a broker.conf" in found.stderr

    def test_a_broker_conf_that_is_not_there(self, tmp_path: Path) -> None:
        """Exit 2, and its name."""
        found = lbd("config", "from-broker", tmp_path / "broker.conf")
        assert found.exit_code == 2
        assert "broker.conf: cannot be read" in found.stderr

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
    def test_the_examples_are_right(self, path: Path) -> None:
        """Every configuration in examples/ passes the check."""
        assert lbd("config", "check", "--config", path).exit_code == 0


class TestReplay:
    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A line a round; two hits are wanted, so the second round moves half of the difference."""
        found = lbd("replay", "--format", "json", recording_of(tmp_path, pulsar))
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        first, _, third = pulsar.ids
        moved = [{"bundle": bundle, "source": first, "destination": third} for bundle in HOT[:3]]
        assert lines[:2] == [{"id": "hot", "round": 1, "unloads": []}, {"id": "hot", "round": 2, "unloads": moved}]
        unloads = sum(len(line["unloads"]) for line in lines)
        assert (found.exit_code, found.stderr) == (0, f"{len(lines)} rounds, {unloads} unloads\n")

    def test_nothing_to_do_is_told(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """So that it is not taken for nothing read."""
        found = lbd("replay", recording_of(tmp_path, pulsar), "--set", "hit_count_low=99", "--set", "hit_count_high=99")
        assert (found.exit_code, found.stdout) == (0, "")
        assert found.stderr.endswith(" rounds, 0 unloads\n")

    def test_text(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A line for each unload."""
        found = lbd("replay", recording_of(tmp_path, pulsar, rounds=2))
        assert len(found.stdout.splitlines()) == 3
        assert f"hot round 2: {HOT[0]} {pulsar.ids[0]} -> {pulsar.ids[2]} (" in found.stdout

    def test_overrides(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """--set wins over the recording's header."""
        found = lbd("replay", "--format", "json", "--set", "hit_count_high=1", recording_of(tmp_path, pulsar, rounds=1))
        assert len(json.loads(found.stdout)["unloads"]) == 3

    @pytest.mark.parametrize(("placement", "named"), [([], False), (["--placement", "round-robin"], True)])
    def test_another_strategy(self, placement: list[str], named: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The header's settings are those of its own strategy; destinations are null without a placement."""
        path = recording_of(tmp_path, pulsar, rounds=1)
        words = ["--strategy", "uniform-load-shedder", "--format", "json", *placement]
        unloads = json.loads(lbd("replay", *words, path).stdout)["unloads"]
        assert unloads
        assert {unload["destination"] is not None for unload in unloads} == {named}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--set", "hit_count_high"], "wanted KEY=VALUE"),
            (["--set", "hit_count_hihg=1"], "Error: --set: hit_count_hihg: 1: no such key"),
            (["--set", "hit_count_high=often"], "Error: --set: hit_count_high: 'often': wanted a whole number"),
            (["--set", "hit_count_high=[1"], "hit_count_high"),
            (["--strategy", "nonsense"], "'--strategy': 'nonsense' is not one of 'avg-shedder'"),
            (["--strategy", "overload-shedder", "--set", "hit_count_high=1"], "--set: hit_count_high: 1: no such key"),
            (["--placement", "nonsense"], "rendezvous"),
        ],
    )
    def test_wrong_options(self, arguments: list[str], words: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2, with the option in the message."""
        found = lbd("replay", *arguments, recording_of(tmp_path, pulsar))
        assert found.exit_code == 2
        assert words in found.stderr

    @pytest.mark.parametrize(
        ("header", "commands"),
        [
            ({"recording": 1, "strategy": "best-shedder"}, ["replay"]),
            ({"recording": 1, "settings": {"nonsense": 1}}, ["replay", "dry-run --recording"]),
            ({"recording": 1, "weights": {"cpu": "much"}}, ["replay", "dry-run --recording"]),
            ({"recording": 2}, ["replay", "dry-run --recording"]),
            ({"t": 60}, ["replay", "dry-run --recording"]),
        ],
        ids=["strategy", "settings", "weights", "format", "none"],
    )
    def test_a_wrong_header(
        self, header: dict[str, Any], commands: list[str], pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Exit 2 and the header's place, in both commands that read recordings."""
        path = recording_of(tmp_path, pulsar)
        rounds = path.read_text(encoding="utf-8").splitlines()[1:]
        path.write_text("\n".join([json.dumps(header), *rounds, ""]), encoding="utf-8")
        for command in commands:
            found = lbd(*command.split(), path)
            assert found.exit_code == 2
            assert found.stderr.startswith(f"Error: {path}:1: ")

    @pytest.mark.parametrize("command", ["replay", "dry-run --recording"])
    def test_no_rounds(self, command: str, tmp_path: Path) -> None:
        """Exit 2: of nothing nothing can be said."""
        path = tmp_path / "empty.jsonl"
        path.write_text('{"recording": 1}\n', encoding="utf-8")
        found = lbd(*command.split(), path)
        assert found.exit_code == 2
        assert f"{path}: no rounds in it; a round is a line with t and reports (lbd record)" in found.stderr

    def test_a_broken_line_is_named(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """File and line; what came before it was printed."""
        path = recording_of(tmp_path, pulsar)
        path.write_text(path.read_text(encoding="utf-8") + '{"t": 1', encoding="utf-8")
        found = lbd("replay", "--format", "json", path)
        assert found.exit_code == 2
        assert f"{path}:5: " in found.stderr
        assert len(found.stdout.splitlines()) == 3


class TestDryRun:
    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The shape that scripts rely on."""
        found = lbd("dry-run", "--format", "json", "--config", config_of(tmp_path, pulsar))
        shown = json.loads(found.stdout)
        first, _, third = pulsar.ids
        assert found.exit_code == 0
        assert (shown["cluster"], shown["strategy"]) == ("c", "avg-shedder")
        assert abs(shown["taken_at"] - time.time()) < 60
        assert [
            set(broker) >= {"id", "score", "usage", "msg_rate", "throughput", "bundles"} for broker in shown["brokers"]
        ]
        hot = next(broker for broker in shown["brokers"] if broker["id"] == first)
        assert (hot["score"], hot["msg_rate"], hot["bundles"]) == (80.0, 16_000.0, 8)
        assert hot["usage"]["cpu"] == 80.0
        assert hot["usage"]["bandwidth_in"] is None
        assert [(pair["source"], pair["destination"], pair["difference"]) for pair in shown["pairs"]] == [
            (first, third, 70.0)
        ]
        assert {"low", "high"} <= set(shown["pairs"][0]["hits"])
        assert [unload["bundle"] for unload in shown["unloads"]] == HOT[:3]
        assert {key: shown["unloads"][0][key] for key in ("source", "destination", "msg_rate", "throughput")} == {
            "source": first,
            "destination": third,
            "msg_rate": 2000.0,
            "throughput": 200_000.0,
        }
        assert all(set(skip) == {"what", "reason", "detail"} for skip in shown["skips"])
        assert shown["summary"].startswith("Would move 3 bundles")
        assert shown["verdict"] == {
            "kind": "moving",
            "reason": None,
            "detail": "3 bundles would move if the imbalance lasts",
            "samples": None,
        }

    def test_text(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Every broker, the pair, each unload, and the one sentence."""
        found = lbd("dry-run", "--config", config_of(tmp_path, pulsar))
        assert found.exit_code == 0
        assert all(broker in found.stdout for broker in pulsar.ids)
        assert "80.0" in found.stdout
        assert "Would move 3 bundles" in found.stdout

    @pytest.mark.parametrize(("high", "code"), [(40, 6), (99, 0)])
    def test_detailed_exitcode(self, high: int, code: int, pulsar: FakePulsar, tmp_path: Path) -> None:
        """6 when unloads are planned, 0 when none are."""
        shedder = {"high_threshold": high, "low_threshold": high}
        path = config_of(tmp_path, pulsar, avg_shedder=shedder)
        assert process("dry-run", "--detailed-exitcode", "--config", path).returncode == code

    def test_a_recording(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No cluster is asked; the header's settings hold; the last round is judged."""
        path = recording_of(tmp_path, pulsar)
        arguments = ["dry-run", "--recording", path, "--format", "json", "--detailed-exitcode"]
        found = lbd(*arguments, "--config", config_of(tmp_path))
        shown = json.loads(found.stdout)
        assert found.exit_code == 6
        assert [unload["bundle"] for unload in shown["unloads"]] == HOT[:3]
        assert shown["taken_at"] == 1_800_000_120
        assert pulsar.requests == []

    def test_of_many_recordings_the_last_one_is_judged(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """By its own header: what an earlier one in the same file says does not hold for it."""
        path = recording_of(tmp_path, pulsar)
        lines = path.read_text(encoding="utf-8").splitlines()
        strict = json.dumps({"recording": 1, "settings": {"low_threshold": 99, "high_threshold": 99}})
        path.write_text("\n".join([strict, lines[1], *lines, ""]), encoding="utf-8")
        assert lbd("dry-run", "--recording", path, "--detailed-exitcode").exit_code == 6
        path.write_text("\n".join([*lines, strict, lines[1], ""]), encoding="utf-8")
        assert lbd("dry-run", "--recording", path, "--detailed-exitcode").exit_code == 0

    def test_of_another_strategys_recording_the_reports_are_taken(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A dry-run asks the configured strategy; settings of another one mean nothing to it."""
        path = recording_of(tmp_path, pulsar)
        rounds = path.read_text(encoding="utf-8").splitlines()[1:]
        header = json.dumps({"recording": 1, "strategy": "threshold-shedder", "settings": {"threshold": 10}})
        path.write_text("\n".join([header, *rounds, ""]), encoding="utf-8")
        assert lbd("dry-run", "--recording", path, "--detailed-exitcode").exit_code == 6

    def test_least_moves_acts_on_a_recorded_hot_broker(self, tmp_path: Path) -> None:
        """Three real brokers of 6,215, 679 and 796 msg/s, of which the first is hot."""
        config, example = tmp_path / "lbd.yaml", Path(__file__).parents[1] / "data" / "hot-broker.jsonl"
        config.write_text("strategy: least-moves\n", encoding="utf-8")
        found = lbd("dry-run", "--recording", example, "--config", config, "--format", "json")
        assert {one["source"] for one in json.loads(found.output)["unloads"]} == {"broker-1.example:8080"}

    @pytest.mark.parametrize("content", ["", '{"recording": 1}\n', '{"recording": 1}\n{"t": 1, "reports": {}}\n', "no"])
    def test_a_recording_with_nothing_in_it(self, content: str, tmp_path: Path) -> None:
        """Said in words, with the file's name or that there is nothing to compare."""
        path = tmp_path / "r.jsonl"
        path.write_text(content, encoding="utf-8")
        found = lbd("dry-run", "--recording", path)
        assert found.exit_code == (0 if "reports" in content else 2)
        assert "too-few-brokers" in found.stdout or str(path) in found.stderr

    def test_it_changes_nothing(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No unload, no state directory."""
        lbd("dry-run", "--config", config_of(tmp_path, pulsar))
        assert pulsar.asked("/unload") == []
        assert not (tmp_path / "state").exists()

    def test_all(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """--all names every bundle that stays."""
        path = config_of(tmp_path, pulsar)
        some = json.loads(lbd("dry-run", "--format", "json", "--config", path).stdout)["skips"]
        every = json.loads(lbd("dry-run", "--format", "json", "--all", "--config", path).stdout)["skips"]
        named = {skip["what"] for skip in every}
        assert {WARM, COLD} <= named
        assert not {WARM, COLD} & {skip["what"] for skip in some}


class TestRun:
    def test_landed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 0, and the outcomes in JSON."""
        found = lbd("run", "--once", "--format", "json", "--config", config_of(tmp_path, pulsar))
        outcomes = json.loads(found.stdout)["outcomes"]
        assert found.exit_code == 0
        assert [outcome["result"] for outcome in outcomes] == ["landed"] * 3
        assert {outcome["owner"] for outcome in outcomes} == {pulsar.ids[2]}

    def test_balanced(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing to do is done: exit 0."""
        pulsar.sample(50.0, 45.0, 40.0)
        found = lbd("run", "--once", "--config", config_of(tmp_path, pulsar))
        assert found.exit_code == 0
        assert "No move: cluster: balanced" in found.stdout

    def test_nobody_there(self, tmp_path: Path) -> None:
        """Exit 3 for an address at which nobody listens."""
        found = process("run", "--once", "--config", config_of(tmp_path), "--admin-url", "http://127.0.0.1:9")
        assert found.returncode == 3
        assert found.stderr.startswith("Error: ")
        assert "connection refused" in found.stderr

    def test_another_load_manager(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 3, with what to do."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": SIMPLE}
        found = lbd("run", "--once", "--config", config_of(tmp_path, pulsar))
        assert found.exit_code == 3
        assert "set loadManagerClassName=" in found.stderr

    def test_the_extensible_load_manager_without_an_address(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 3, with the setting that is missing."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadManagerClassName": EXTENSIBLE}
        found = lbd("dry-run", "--config", config_of(tmp_path, pulsar))
        assert found.exit_code == 3
        assert "pulsar.service_url is not set" in found.stderr

    def test_in_broker_shedding(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 4; a dry-run answers all the same."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadBalancerSheddingEnabled": "true"}
        path = config_of(tmp_path, pulsar)
        found = process("run", "--once", "--config", path)
        assert found.returncode == 4
        assert "loadBalancerSheddingEnabled=false" in found.stdout.replace("\n", " ")
        assert lbd("dry-run", "--config", path).exit_code == 0

    def test_another_lbd(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 4 while another one holds the state directory."""
        from lbd.store.state import StateDir

        path = config_of(tmp_path, pulsar)
        with StateDir(tmp_path / "state").locked():
            found = lbd("run", "--once", "--config", path)
        assert found.exit_code == 4
        assert f"process {os.getpid()}" in found.stderr

    def test_landed_elsewhere(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 5: what was asked for is not what came about."""
        pulsar.steals[HOT[0]] = [pulsar.ids[1]] * 2
        found = process("run", "--once", "--config", config_of(tmp_path, pulsar))
        assert found.returncode == 5
        assert "landed-elsewhere" in found.stdout

    def test_unknown_key(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2, before anybody is asked."""
        found = process("run", "--once", "--config", config_of(tmp_path, pulsar, profil="live"))
        assert found.returncode == 2
        assert "did you mean profile?" in found.stderr
        assert pulsar.requests == []

    def test_a_state_directory_that_cannot_be(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2, and its path."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        found = lbd("run", "--once", "--config", config_of(tmp_path, pulsar, state_dir=str(tmp_path / "file")))
        assert found.exit_code == 2
        assert str(tmp_path / "file") in found.stderr

    @pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
    @pytest.mark.parametrize("command", [["run", "--once"], ["dry-run"], ["record", "--rounds", "1"]], ids=" ".join)
    def test_no_token_in_any_output(self, command: list[str], right: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Neither where it is right nor where it is refused; nor in any file that is written."""
        pulsar.authorization = f"Bearer {TOKEN}"
        folder = tmp_path / "kept"
        folder.mkdir()
        (tmp_path / "token").write_text(TOKEN if right else f"{TOKEN}-old", encoding="utf-8")
        reach = {"admin_urls": pulsar.urls, "token_file": str(tmp_path / "token")}
        path = config_of(folder, pulsar=reach)
        target = [folder / "r.jsonl"] if command[0] == "record" else []
        found = lbd(*command, *target, "--config", path)
        assert found.exit_code == (0 if right else 3)
        assert TOKEN not in found.output
        assert not any(TOKEN.encode() in one.read_bytes() for one in folder.rglob("*") if one.is_file())


class TestRecord:
    @pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
    def test_what_is_recorded_can_be_replayed(self, name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The settings in force go along, so the replay decides as the cluster's lbd would."""
        path = tmp_path / name
        config = config_of(tmp_path, pulsar)
        found = lbd("record", path, "--rounds", "2", "--interval", "0.01", "--config", config)
        assert (found.exit_code, found.stderr) == (0, f"2 rounds of 3 brokers in {path}\n")
        lines = [json.loads(line) for line in lbd("replay", "--format", "json", path).stdout.splitlines()]
        assert [(line["id"], line["round"], len(line["unloads"])) for line in lines] == [("r", 1, 3), ("r", 2, 3)]

    def test_a_round_that_fails_is_passed_over(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Said on stderr; the recording goes on until it has its rounds."""
        path = tmp_path / "r.jsonl"
        config = config_of(tmp_path, pulsar)
        pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.ids[0], times=1)
        found = lbd("record", path, "--rounds", "2", "--interval", "0.01", "--config", config)
        assert found.exit_code == 0
        assert len(path.read_text(encoding="utf-8").splitlines()) == 3

    def test_an_existing_file_is_refused(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2, and the file stays as it was."""
        path = tmp_path / "r.jsonl"
        path.write_text("mine", encoding="utf-8")
        found = lbd("record", path, "--rounds", "1", "--config", config_of(tmp_path, pulsar))
        assert found.exit_code == 2
        assert path.read_text(encoding="utf-8") == "mine"

    def test_nobody_there(self, tmp_path: Path) -> None:
        """Exit 3, and no file is left behind."""
        found = lbd("record", tmp_path / "r.jsonl", "--rounds", "1", "--admin-url", "http://127.0.0.1:9")
        assert found.exit_code == 3
        assert not (tmp_path / "r.jsonl").exists()

    @pytest.mark.parametrize(
        "arguments", [["--rounds", "0"], *(["--interval", wrong] for wrong in ("-1", "soon", "nan", "inf"))]
    )
    def test_wrong_options(self, arguments: list[str], pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2."""
        config = config_of(tmp_path, pulsar)
        found = lbd("record", tmp_path / "r.jsonl", "--rounds", "1", *arguments, "--config", config)
        assert found.exit_code == 2


class TestWhatIsShown:
    def test_the_hit_counts_of_a_recording(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Those of its header are in force, so those are shown as wanted."""
        path = recording_of(tmp_path, pulsar)
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[0] = json.dumps({"recording": 1, "settings": {"hit_count_low": 3, "hit_count_high": 5}})
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        found = lbd("dry-run", "--recording", path, "--format", "json")
        wanted = json.loads(found.stdout)["pairs"][0]["hits"]
        assert (wanted["low_wanted"], wanted["high_wanted"]) == (3, 5)
        assert "low 0 of 3, high 0 of 5" in lbd("dry-run", "--recording", path).stdout

    def test_the_hit_counts_of_the_settings_win(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Over those of the header."""
        arguments = ["dry-run", "--recording", recording_of(tmp_path, pulsar), "--format", "json"]
        wanted = json.loads(lbd(*arguments, "--config", config_of(tmp_path)).stdout)["pairs"][0]["hits"]
        assert (wanted["low_wanted"], wanted["high_wanted"]) == (8, 1)

    def test_in_broker_shedding_beside_a_plan(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A dry-run answers, and says why a run would not act."""
        for broker in pulsar.brokers:
            broker.runtime = {"loadBalancerSheddingEnabled": "true"}
        path = config_of(tmp_path, pulsar)
        shown = json.loads(lbd("dry-run", "--format", "json", "--config", path).stdout)
        assert len(shown["unloads"]) == 3
        assert "in-broker-shedding" in {skip["reason"] for skip in shown["skips"]}
        assert "in-broker-shedding" in lbd("dry-run", "--config", path).stdout

    def test_what_a_limit_keeps_back_is_counted_under_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Each bundle is in the plan, or skipped for one reason: never counted as moving and held back at once."""
        guardrails = {"max_unloads_per_turn": 1, "max_traffic_per_turn": 1.0, "membership_settle_seconds": 0}
        path = config_of(tmp_path, pulsar, guardrails=guardrails)
        shown = json.loads(lbd("dry-run", "--format", "json", "--config", path).stdout)
        assert len(shown["unloads"]) == 1
        assert shown["skipped"]["unloads-per-turn"] == 2
        assert "moves" not in shown["skipped"]
        assert sum(shown["skipped"].values()) + len(shown["unloads"]) == len(pulsar.owners)


class TestWhatCannotBeReadOrWritten:
    def test_a_memory_below_a_file(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A dry-run does without the memory of a daemon that it cannot look at."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        for state in (tmp_path / "file" / "state", tmp_path / ("x" * 300)):
            found = lbd("dry-run", "--config", config_of(tmp_path, pulsar, state_dir=str(state)))
            assert found.exit_code == 0
            assert "Would move 3 bundles" in found.stdout

    @pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
    def test_a_recording_on_a_disk_that_is_full(self, name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Exit 2, and the file is named: here no file may grow beyond 300 bytes."""
        path = config_of(tmp_path, pulsar)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
        try:
            found = lbd("record", tmp_path / name, "--rounds", "1", "--config", path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert found.exit_code == 2
        assert name in found.stderr
        assert len(found.stderr.splitlines()) == 1


class TestRunMore:
    def test_a_dead_leader(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A hold is no failure: exit 0, one sentence, and no move in the journal."""
        path = config_of(tmp_path, pulsar)
        pulsar.kill(pulsar.ids[1])
        found = process("run", "--once", "--config", path)
        assert found.returncode == 0
        assert "leader-unreachable" in found.stdout
        assert "intent" not in journals.events(tmp_path / "state")

    def test_variables_of_kubernetes(self, tmp_path: Path) -> None:
        """In a pod beside a service called lbd the settings are still right."""
        found = process(
            "config", "check", "--config", config_of(tmp_path), LBD_PORT="tcp://10.0.0.7:8085", LBD_REQUIRE_E2E="1"
        )
        assert found.returncode == 0


class TestFromALiveBroker:
    def test_what_it_prints_reaches_the_cluster(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The address it asked comes first in what it prints, then other brokers', for any may be down."""
        printed = lbd("config", "from-broker", "--admin-url", pulsar.urls[1]).stdout
        assert yaml.safe_load(printed)["pulsar"]["admin_urls"] == [pulsar.urls[1], pulsar.urls[0], pulsar.urls[2]]
        path = tmp_path / "lbd.yaml"
        path.write_text(printed, encoding="utf-8")
        assert lbd("config", "check", "--config", path).exit_code == 0
        shown = json.loads(lbd("dry-run", "--format", "json", "--config", path).stdout)
        assert {broker["id"] for broker in shown["brokers"]} == set(pulsar.ids)
